// SPDX-License-Identifier: Apache-2.0
// Finds the source line that an instruction of a code object was compiled from: reads DWARF's
// .debug_line, versions 2 to 5.
//
// No library reads these tables for us, as a damaged or hostile code object must not take the host
// down. LLVM 22's DWARF library crashed on most of 12,000 damaged objects that were tried. Debian's
// static libdw is built for programs and does not link into a shared library. .debug_info is not
// read, so the names of inlined functions are not known.
#ifndef SIM_LINES_H
#define SIM_LINES_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_section {
    const uint8_t *bytes;
    size_t size; // 0: there is no such section
} sim_section;

/** The sections of a file that tell of lines: .debug_line and the strings that version 5 refers
 *  to. */
typedef struct sim_debug {
    sim_section line, line_str, str;
} sim_debug;

typedef struct sim_source_line {
    char file[512];        // with its folder, as given to the compiler; a longer path is cut
    uint32_t line, column; // column 0: not known
    uint64_t end;          // address behind the last instruction that the table gives with it
} sim_source_line;

/** Finds the source line of the instruction at an address, which is the file's own, not that of a
 *  loaded image. Returns false if there is none or the section cannot be understood. Takes time
 *  proportional to the section's size. */
bool sim_line_find(const sim_debug *debug, uint64_t address, sim_source_line *out);

#endif
