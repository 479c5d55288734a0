// SPDX-License-Identifier: Apache-2.0
// The counters of a profile, and how one instruction changes them.
#ifndef SIM_COUNT_H
#define SIM_COUNT_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "look.h"

typedef enum sim_counter {
#define SIM_COUNTER(id, cdna, rdna) SIM_COUNT_##id,
#include "counters.def"
#undef SIM_COUNTER
    SIM_NUM_COUNTERS
} sim_counter;

/** Returns a counter's name on a chip, or null if the chip does not have the counter. */
const char *sim_counter_name(sim_counter counter, const sim_chip *chip);

enum { SIM_FOOTPRINT_LINE = 128 }; // bytes in a line of the chips' second-level caches

/** A set of lines of SIM_FOOTPRINT_LINE bytes. A zeroed set is empty. (footprint.c) */
typedef struct sim_footprint {
    struct sim_page {
        uint64_t number, lines; // a bit for each line of the page; 0: the slot is free
    } *pages;
    size_t room, used;
    bool is_incomplete; // memory ran out
} sim_footprint;
/** Adds the line that holds an address. */
void sim_footprint_add(sim_footprint *f, uint64_t address);
/** Returns whether the line that holds an address is in the set. */
bool sim_footprint_has(const sim_footprint *f, uint64_t address);
void sim_footprint_merge(sim_footprint *to, const sim_footprint *from);
uint64_t sim_footprint_lines(const sim_footprint *f);
void sim_footprint_deinit(sim_footprint *f);

/** The counters of a workgroup or a launch. */
typedef struct sim_counts {
    uint64_t counters[SIM_NUM_COUNTERS];
    sim_footprint loaded, stored;
} sim_counts;

/** Adds an instruction of a wave to the counters. */
void sim_count(sim_counts *counts, const sim_wave *w, const sim_facts *facts);

/** The numbers of different cache lines and of different bytes that an access touches. */
typedef struct sim_lines {
    uint32_t lines, bytes;
} sim_lines;
/** Counts the lines of `line_bytes` (a power of two, at most 128) and the bytes that an access
 *  touches. Adds the lines to `loaded` and `stored`, unless these are null. (lines.c) */
sim_lines sim_count_lines(const sim_touch *touch, uint32_t line_bytes, sim_footprint *loaded,
                          sim_footprint *stored);

/** The cycles that the LDS works on an access, and those of them that are due to conflicts. */
typedef struct sim_lds_time {
    uint32_t active, conflict;
} sim_lds_time;
/** Returns the cycles of an access to LDS; `access` is sim_traits.access. (banks.c) */
sim_lds_time sim_time_lds(const sim_chip *chip, const sim_touch *touch, uint8_t access);

#endif
