// SPDX-License-Identifier: Apache-2.0
// From an address in a code object to the source line that it was compiled from: DWARF's
// .debug_line, versions 2 to 5.
//
// A reader of our own, as a damaged or hostile code object must not take the host down: LLVM 22's
// DWARF library crashed on most of 12,000 damaged objects that were tried, and Debian's static
// libdw, being built for programs, does not link into a shared library. The tables of lines are
// enough: .debug_info is not read, so inlined functions have no names here.
#ifndef SIM_LINES_H
#define SIM_LINES_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_section {
    const uint8_t *bytes;
    size_t size; // 0: there is none
} sim_section;

/** The sections of a file that tell of lines: .debug_line and the strings that version 5 refers
 *  to. */
typedef struct sim_debug {
    sim_section line, line_str, str;
} sim_debug;

typedef struct sim_source_line {
    char file[512];        // with its folder, as the compiler was given it; cut where it is longer
    uint32_t line, column; // column 0: not known
} sim_source_line;

/** The line of the instruction at an address as in the file, before it is loaded. False if it has
 *  none, or if what is there cannot be understood. Takes time proportional to the section's
 *  size. */
bool sim_line_find(const sim_debug *debug, uint64_t address, sim_source_line *out);

#endif
