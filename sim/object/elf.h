// SPDX-License-Identifier: Apache-2.0
// Checked access to an ELF64 file in memory, which may be damaged or hostile and need not be
// aligned.
//
// libelf is not used, as Debian's static libelf is built for programs and does not link into a
// shared library.
#ifndef SIM_ELF_H
#define SIM_ELF_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_elf {
    const uint8_t *bytes;
    size_t size;
    Elf64_Ehdr header;
} sim_elf;

/** Begins the access to a file. Returns false unless it begins like a little-endian ELF64 file. */
bool sim_elf_init(sim_elf *elf, const void *image, size_t size);

/** Returns the `size` bytes at `offset`, or null if the file does not have all of them. */
const void *sim_elf_range(const sim_elf *elf, uint64_t offset, uint64_t size);

/** Reads program header i. Returns false if the file has none, or if its table lies outside. */
bool sim_elf_segment(const sim_elf *elf, size_t i, Elf64_Phdr *out);
/** Reads section header i. Returns false if the file has none, or if its table lies outside. */
bool sim_elf_section(const sim_elf *elf, size_t i, Elf64_Shdr *out);

/** Reads entry i, of `size` bytes, of a table section. Returns false if the entry lies behind the
 *  table's end or outside the file. */
bool sim_elf_entry(const sim_elf *elf, const Elf64_Shdr *table, size_t i, void *out, size_t size);

/** Returns the string at `offset` of string section `index`, or null if the string does not end
 *  within the section. */
const char *sim_elf_string(const sim_elf *elf, size_t index, uint64_t offset);

#endif
