// SPDX-License-Identifier: Apache-2.0
// Long workgroups: once a round of them goes on at a settled pace, the rest of it need not run
// (settle.c).
#ifndef SIM_SETTLE_H
#define SIM_SETTLE_H

#include "machine.h"

/** Finds out whether the workgroups of a launch are long and alike, before they run. Only for
 *  launches without results. */
void sim_settle_begin(sim_machine *m);
/** Called when m->settle.next instructions have issued. Returns whether nothing has to run any
 *  more. */
bool sim_settle_check(sim_machine *m, uint64_t tick);
/** Makes the machine one whose sample has run to its end, if what ran of it stands for all. */
void sim_settle_end(sim_machine *m);

// ---- for uneven.c
/** Begins to look at so many workgroups that have just started, in windows of so many instructions
 *  of each. The caller has set m->settle.skipped and .kept. */
void sim_settle_phase(sim_machine *m, uint64_t residents, uint64_t window, uint64_t tick);
/** Returns whether the last windows took the same time. */
bool sim_settle_is_settled(sim_settle *s);
/** Makes what was counted since the last call as much more as the workgroups are longer than what
 *  ran of them. */
void sim_settle_scale(sim_machine *m, double factor);

#endif
