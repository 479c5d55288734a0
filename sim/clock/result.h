// SPDX-License-Identifier: Apache-2.0
// What the clock says of a launch.
#ifndef SIM_CLOCK_RESULT_H
#define SIM_CLOCK_RESULT_H

#include <stdint.h>

/** Which workgroups of a launch run at modelled time: none; some, from which the launch's time
 *  follows; all; or some while the others do not run at all: those of a sample, or all of an
 *  XCD. */
typedef enum sim_clock_mode {
    SIM_CLOCK_OFF,
    SIM_CLOCK_ON,
    SIM_CLOCK_FULL,
    SIM_CLOCK_SAMPLE,
    SIM_CLOCK_XCD
} sim_clock_mode;

/** Where the cycles of a SIMD go. */
typedef enum sim_spent {
#define SIM_SPENT(id, name) SIM_SPENT_##id,
#include "spent.def"
#undef SIM_SPENT
    SIM_NUM_SPENT
} sim_spent;

/** How much the levels of memory were asked for. */
typedef struct sim_traffic {
#define SIM_LEVEL(member) uint64_t member;
#include "traffic.def"
#undef SIM_LEVEL
} sim_traffic;

/** What one instruction of a kernel cost: cycles that its issue took, and that SIMDs spent waiting
 *  for it to issue. */
typedef struct sim_inst_cost {
    const char *name; // to print; null: it never ran
    uint64_t issues;  // of waves
    uint64_t cycles[SIM_NUM_SPENT];
} sim_inst_cost;

typedef struct sim_clock_result {
    uint64_t cycles; // of the shader clock, without the launch's own time
    // The launch at the clock that the board's power allows, and at the highest clock.
    uint64_t ns, unlimited_ns;
    double mhz, watts;           // of the first
    uint64_t sampled;            // workgroups of the first XCD that ran in detail
    uint64_t groups, groups_run; // workgroups: of the launch; that ran in detail
    double part_run;        // of their instructions, that ran: less than all if workgroups are long
    double spread;          // by how much two halves of what stands for the rest differ, as a share
    uint64_t wave_cycles;   // for which these workgroups' waves were resident, in sum
    uint64_t matrix_ops;    // multiplications and additions that their matrix units did
    uint64_t matrix_cycles; // for which these units were busy, in sum
    uint64_t spent[SIM_NUM_SPENT]; // cycles of the SIMDs that ran
    sim_traffic traffic;           // of the XCDs that ran
    sim_inst_cost *insts;          // by (pc - start of the code) / 4; the dispatch's owner frees it
    uint64_t num_insts;
} sim_clock_result;

/** When a launch ran, in the device's modelled nanoseconds. */
typedef struct sim_span {
    uint64_t begin_ns, end_ns;
    uint64_t shared_ns; // of these: workgroups of another launch ran, too
} sim_span;

/** What tells of a launch as soon as it is known when it began and ended (look/hooks.h). */
typedef struct sim_shown {
    struct sim_timeline *timeline; // its waves, for the trace; null: none
    uint64_t record;               // the profile's; 0: none
    uint64_t dispatch;             // number on its device
    uint32_t stream;
} sim_shown;

#endif
