// SPDX-License-Identifier: Apache-2.0
// How many of an XCD's lines others read as well, and how far away they are (share.c).
#ifndef SIM_SHARE_H
#define SIM_SHARE_H

#include "sample.h"

typedef struct sim_shared {
    uint32_t own_share; // of 1024 lines that the first XCD reads, its own to fetch from memory: of
                        // a line that n XCDs read, one n-th is
    double farther;     // by how many hops more the lines of some XCD are away from it, on average
} sim_shared;

/** Returns how many hops a line's memory is away from an XCD. */
uint32_t sim_hops(const sim_chip *chip, uint32_t xcd, uint64_t line);

/** Returns what the XCDs have of each other's lines; 1024 and 0 if all run. Called before the
 *  dispatch's workgroups run. */
sim_shared sim_share_of(sim_dispatch *d, const sim_sample *sample);

#endif
