// SPDX-License-Identifier: Apache-2.0
// What a launch that has run asks of the chip (demand.c).
#ifndef SIM_DEMAND_H
#define SIM_DEMAND_H

#include "../machine.h"

/** Returns the demand of a launch that ran to a tick; its results are in the machine's dispatch.
 *  The caller frees it. Returns null if memory runs out. */
sim_demand *sim_demand_of(const sim_machine *m, uint64_t end);

#endif
