// SPDX-License-Identifier: Apache-2.0
// Checked access to an ELF64 file in memory.
#include "elf.h"

#include <string.h>

bool sim_elf_init(sim_elf *elf, const void *image, size_t size) {
    *elf = (sim_elf){.bytes = image, .size = size};
    if (size < sizeof elf->header || memcmp(image, ELFMAG, SELFMAG) != 0)
        return false;
    memcpy(&elf->header, image, sizeof elf->header);
    return elf->header.e_ident[EI_CLASS] == ELFCLASS64 &&
           elf->header.e_ident[EI_DATA] == ELFDATA2LSB;
}

const void *sim_elf_range(const sim_elf *elf, uint64_t offset, uint64_t size) {
    return offset <= elf->size && size <= elf->size - offset ? elf->bytes + offset : nullptr;
}

/** Copies entry i of a table of `count` entries at `offset`. */
static bool read_entry(const sim_elf *elf, uint64_t offset, size_t count, size_t i, void *out,
                       size_t size) {
    const uint8_t *table = i < count ? sim_elf_range(elf, offset, count * size) : nullptr;
    if (!table)
        return false;
    memcpy(out, table + i * size, size);
    return true;
}

bool sim_elf_segment(const sim_elf *elf, size_t i, Elf64_Phdr *out) {
    const Elf64_Ehdr *h = &elf->header;
    return h->e_phentsize == sizeof *out &&
           read_entry(elf, h->e_phoff, h->e_phnum, i, out, sizeof *out);
}

bool sim_elf_section(const sim_elf *elf, size_t i, Elf64_Shdr *out) {
    const Elf64_Ehdr *h = &elf->header;
    return h->e_shentsize == sizeof *out &&
           read_entry(elf, h->e_shoff, h->e_shnum, i, out, sizeof *out);
}

bool sim_elf_entry(const sim_elf *elf, const Elf64_Shdr *table, size_t i, void *out, size_t size) {
    return table->sh_type != SHT_NOBITS && table->sh_entsize == size &&
           read_entry(elf, table->sh_offset, table->sh_size / size, i, out, size);
}

const char *sim_elf_string(const sim_elf *elf, size_t index, uint64_t offset) {
    Elf64_Shdr table;
    if (!sim_elf_section(elf, index, &table) || table.sh_type != SHT_STRTAB ||
        offset >= table.sh_size) {
        return nullptr;
    }
    const char *strings = sim_elf_range(elf, table.sh_offset, table.sh_size);
    return strings && memchr(strings + offset, 0, table.sh_size - offset) ? strings + offset
                                                                          : nullptr;
}
