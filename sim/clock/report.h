// SPDX-License-Identifier: Apache-2.0
// The clock's part of a profile (report.c).
#ifndef SIM_CLOCK_REPORT_H
#define SIM_CLOCK_REPORT_H

#include "result.h"

#include <stdio.h>

/** Adds a launch to the sum of several. The clock and the watts are those of the last one. */
void sim_clock_add(sim_clock_result *sum, const sim_clock_result *one);
/** Adds what the launch's instructions cost. Returns false if memory runs out. */
bool sim_clock_add_insts(sim_clock_result *sum, const sim_clock_result *one);
/** Writes a result as a JSON object. */
void sim_clock_write(FILE *out, const sim_clock_result *result);

#endif
