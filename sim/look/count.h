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

/** A counter's name on a chip, or null if there is none. */
const char *sim_counter_name(sim_counter counter, const sim_chip *chip);

enum { SIM_FOOTPRINT_LINE = 128 }; // bytes, of the chips' second-level caches

/** A set of such lines. All zero: an empty one. (footprint.c) */
typedef struct sim_footprint {
    struct sim_page {
        uint64_t number, lines; // lines of a page by bits; 0: the slot is free
    } *pages;
    size_t room, used;
    bool is_incomplete; // memory ran out
} sim_footprint;
/** Adds the line that holds an address. */
void sim_footprint_add(sim_footprint *f, uint64_t address);
void sim_footprint_merge(sim_footprint *to, const sim_footprint *from);
uint64_t sim_footprint_lines(const sim_footprint *f);
void sim_footprint_deinit(sim_footprint *f);

/** Of a workgroup or a launch. */
typedef struct sim_counts {
    uint64_t counters[SIM_NUM_COUNTERS];
    sim_footprint loaded, stored;
} sim_counts;

/** Adds what an instruction of a wave did. */
void sim_count(sim_counts *counts, const sim_wave *w, const sim_facts *facts);

/** Different cache lines of `line_bytes` (a power of two, at most 128) that an access lies in, and
 *  its different bytes. The lines go to `loaded` and `stored` as well, unless these are null.
 *  (lines.c) */
typedef struct sim_lines {
    uint32_t lines, bytes;
} sim_lines;
sim_lines sim_count_lines(const sim_touch *touch, uint32_t line_bytes, sim_footprint *loaded,
                          sim_footprint *stored);

/** How long the LDS works on an access of effects.access's kind, in cycles, and how many of these
 *  are due to conflicts. (banks.c) */
typedef struct sim_lds_time {
    uint32_t active, conflict;
} sim_lds_time;
sim_lds_time sim_time_lds(const sim_chip *chip, const sim_touch *touch, uint8_t access);

#endif
