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

#endif
