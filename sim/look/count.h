// SPDX-License-Identifier: Apache-2.0
// The counters of a profile, and how one instruction changes them.
#ifndef SIM_COUNT_H
#define SIM_COUNT_H

#include "look.h"

typedef enum sim_counter {
#define SIM_COUNTER(id, cdna, rdna) SIM_COUNT_##id,
#include "counters.def"
#undef SIM_COUNTER
    SIM_NUM_COUNTERS
} sim_counter;

/** A counter's name on a chip, or null if there is none. */
const char *sim_counter_name(sim_counter counter, const sim_chip *chip);

/** Adds what an instruction of a wave did. */
void sim_count(uint64_t counters[SIM_NUM_COUNTERS], const sim_wave *w, const sim_facts *facts);

/** Different cache lines of `line_bytes` (a power of two, at most 128) that an access lies in, and its different
 *  bytes. (lines.c) */
typedef struct sim_lines {
    uint32_t lines, bytes;
} sim_lines;
sim_lines sim_count_lines(const sim_touch *touch, uint32_t line_bytes);

/** How long the LDS works on an access of effects.access's kind, in cycles, and how many of these are due to
 *  conflicts. (banks.c) */
typedef struct sim_lds_time {
    uint32_t active, conflict;
} sim_lds_time;
sim_lds_time sim_time_lds(const sim_chip *chip, const sim_touch *touch, uint8_t access);

#endif
