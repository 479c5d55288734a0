// SPDX-License-Identifier: Apache-2.0
// Calls by which a running kernel tells the observers (look/) of its instructions. If sim_wave.look
// is null, nobody follows the wave.
#ifndef SIM_LOOK_HOOKS_H
#define SIM_LOOK_HOOKS_H

#include "../isa/inst.h"
#include "../options.h"
#include "../wave.h"

#include <stddef.h>
#include <stdint.h>

/** Turns on the observers that the options name, and makes their files. Returns false if that
 *  fails: `error` then says why, and nothing has changed. */
bool sim_look_configure(const sim_look_options *options, char *error, size_t error_bytes);
/** Called before a dispatch runs: asks each observer whether the dispatch is of interest. */
void sim_look_begin_dispatch(sim_dispatch *d);
void sim_look_end_dispatch(sim_dispatch *d);
/** Called before a workgroup runs, when its waves have their first registers. Returns false if
 *  memory runs out. */
bool sim_look_begin(sim_workgroup *group);
void sim_look_end(sim_workgroup *group);
/** Runs at most `slice` instructions of a wave that is followed, with checks or without. Returns
 *  how many it ran. */
uint32_t sim_look_run(sim_wave *w, uint32_t slice);
/** By these functions exec/ tells which bytes an instruction touches in memory, in a lane's
 *  scratch, in LDS, and by a scalar access. An instruction may tell of the parts of one access one
 *  by one. */
void sim_look_memory(sim_wave *w, const uint64_t address[SIM_LANES], uint64_t mask, uint32_t bytes);
void sim_look_memory_lane(sim_wave *w, int lane, uint64_t address, uint32_t bytes);
void sim_look_scratch_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds(sim_wave *w, uint8_t *const lane_address[SIM_LANES], uint64_t mask,
                  uint32_t bytes);
void sim_look_scalar(sim_wave *w, uint64_t address, uint32_t bytes);
/** It is known when a launch ran: tells the trace and the profile, and frees what they kept. */
void sim_look_show(sim_shown *shown, const sim_span *span);
/** Frees what is kept of a launch of which it will never be known. */
void sim_look_hide(sim_shown *shown);
/** Called when the process ends: writes files. */
void sim_look_finish(void);
/** Called around fork. A child counts for itself. */
void sim_look_fork_prepare(void);
void sim_look_fork_parent(void);
void sim_look_fork_child(void);

#endif
