// SPDX-License-Identifier: Apache-2.0
// Finds where in its source a code object's instruction comes from. A copy of the file is kept if
// it has line tables.
#include "elf.h"
#include "lines.h"
#include "object.h"
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Returns a section by name; empty if the file has no such section, or if it is compressed. */
static sim_section find_section(const sim_elf *elf, const char *wanted) {
    Elf64_Shdr s;
    for (size_t i = 0; sim_elf_section(elf, i, &s); i++) {
        const char *name = sim_elf_string(elf, elf->header.e_shstrndx, s.sh_name);
        if (name && strcmp(name, wanted) == 0 && s.sh_type == SHT_PROGBITS &&
            !(s.sh_flags & SHF_COMPRESSED)) {
            const uint8_t *bytes = sim_elf_range(elf, s.sh_offset, s.sh_size);
            return bytes ? (sim_section){bytes, s.sh_size} : (sim_section){};
        }
    }
    return (sim_section){};
}

void sim_sources_keep(sim_sources *sources, const sim_elf *elf) {
    *sources = (sim_sources){};
    if (find_section(elf, ".debug_line").size && (sources->image = malloc(elf->size))) {
        memcpy(sources->image, elf->bytes, elf->size);
        sources->bytes = elf->size;
    }
}

void sim_sources_deinit(sim_sources *sources) {
    free(sources->image);
    *sources = (sim_sources){};
}

/** Finds the function at an address by the symbol table; a name that is too long is cut. */
static void find_function(const sim_elf *elf, uint64_t address, sim_source *out) {
    Elf64_Shdr section;
    Elf64_Sym s;
    for (size_t i = 0; sim_elf_section(elf, i, &section); i++) {
        if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM)
            continue;
        for (size_t k = 0; sim_elf_entry(elf, &section, k, &s, sizeof s); k++) {
            if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && address - s.st_value < s.st_size) {
                const char *name = sim_elf_string(elf, section.sh_link, s.st_name);
                snprintf(out->function, sizeof out->function, "%s", name ? name : "");
                return;
            }
        }
    }
}

bool sim_sources_find(const sim_sources *sources, uint64_t address, sim_source *out) {
    sim_elf elf;
    sim_source_line line;
    *out = (sim_source){};
    if (!sources->image || !sim_elf_init(&elf, sources->image, sources->bytes))
        return false;
    sim_debug debug = {find_section(&elf, ".debug_line"), find_section(&elf, ".debug_line_str"),
                       find_section(&elf, ".debug_str")};
    if (!sim_line_find(&debug, address, &line))
        return false;
    static_assert(sizeof out->file == sizeof line.file);
    memcpy(out->file, line.file, sizeof out->file);
    out->line = line.line;
    out->column = line.column;
    out->end = line.end;
    find_function(&elf, address, out);
    return true;
}
