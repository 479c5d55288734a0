// SPDX-License-Identifier: Apache-2.0
// The clock's part of a profile (report.c).
#ifndef SIM_CLOCK_REPORT_H
#define SIM_CLOCK_REPORT_H

#include "result.h"

#include <stdio.h>

/** Returns what reports call a way to spend a cycle. */
const char *sim_spent_name(sim_spent kind);
/** Adds a launch to the sum of several. The clock and the watts are those of the last one. */
void sim_clock_add(sim_clock_result *sum, const sim_clock_result *one);
/** Adds what the launch's instructions cost. Returns false if memory runs out. */
bool sim_clock_add_insts(sim_clock_result *sum, const sim_clock_result *one);
/** Writes the members of a result's JSON object, without its instructions. */
void sim_clock_write(FILE *out, const sim_clock_result *result);
/** Writes the members of an instruction's JSON object that say what it cost. */
void sim_clock_write_inst(FILE *out, const sim_inst_cost *inst);

#endif
