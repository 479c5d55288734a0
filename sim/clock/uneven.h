// SPDX-License-Identifier: Apache-2.0
// Long workgroups whose lengths differ: their times follow from their lengths and from the pace of
// some of them (uneven.c).
#ifndef SIM_UNEVEN_H
#define SIM_UNEVEN_H

#include "machine.h"

/** Says which workgroups run first, of those whose lengths m->settle.of has. Returns false if none
 *  are long enough. */
bool sim_uneven_begin(sim_machine *m);
/** Starts them. */
void sim_uneven_start(sim_machine *m);
/** Called when a window has ended. Returns whether nothing has to run any more. */
bool sim_uneven_check(sim_machine *m, uint64_t tick);
/** Makes the machine one on which all workgroups have run. */
void sim_uneven_end(sim_machine *m);

#endif
