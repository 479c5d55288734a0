// SPDX-License-Identifier: Apache-2.0
// The time of a launch on the chip, from what the machine counted: at the highest clock, and at the
// clock that the board's power allows.
#ifndef SIM_POWER_H
#define SIM_POWER_H

#include "machine.h"

/** Returns the result of a machine that has run to a tick. The machine's `insts` are the result's
 *  now. */
sim_clock_result sim_clock_result_of(sim_machine *m, uint64_t end);

#endif
