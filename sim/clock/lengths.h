// SPDX-License-Identifier: Apache-2.0
// How many instructions the workgroups of a launch execute, of which only a few run (lengths.c).
#ifndef SIM_LENGTHS_H
#define SIM_LENGTHS_H

#include "machine.h"

/** Instructions of the workgroups, all waves of each. If neither member is set, none is known. */
typedef struct sim_lengths {
    uint64_t alike; // of each, if they do not differ
    uint64_t *of;   // of each by its flat id, if they do; the caller frees it
    uint64_t begin; // of these, before they come to the end of their loop for the first time
    uint64_t trip;  // each time that they go round it
} sim_lengths;

/** Finds the lengths of a launch of which nothing has run yet. If they do not differ, a wave must
 *  execute at least so many instructions. */
sim_lengths sim_lengths_find(sim_machine *m, uint64_t least);

#endif
