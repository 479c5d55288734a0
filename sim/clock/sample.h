// SPDX-License-Identifier: Apache-2.0
// Which workgroups of a launch run at modelled time, and the time of the launch from theirs.
#ifndef SIM_SAMPLE_H
#define SIM_SAMPLE_H

#include "../wave.h"

enum { SIM_ROUNDS = 3 };

/** A part of a launch: the first workgroups of some XCDs. */
typedef struct sim_sample {
    uint32_t xcds;   // that run
    uint64_t slots;  // workgroups that one of them holds
    uint64_t groups; // of the first XCD
    uint64_t run;    // of these
} sim_sample;

/** Returns how many compute units hold a workgroup of the dispatch together. */
uint32_t sim_joint_units(const sim_dispatch *d);
/** Returns how many workgroups so many compute units hold. */
sim_occupancy sim_occupancy_of(const sim_dispatch *d);
/** Returns what the dispatch's clock wants to run. */
sim_sample sim_sample_of(const sim_dispatch *d);
/** Returns the end of the launch, of which `run` workgroups an XCD ended at a tick.
 *  round_ends[i]: the tick at which i rounds of `slots` workgroups had ended. */
uint64_t sim_sample_end(const sim_sample *s, uint64_t end, const uint64_t round_ends[]);

#endif
