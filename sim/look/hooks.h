// SPDX-License-Identifier: Apache-2.0
// Where those who follow a kernel's instructions (look/) are told of them. Nobody follows where
// sim_wave.look is null.
#ifndef SIM_LOOK_HOOKS_H
#define SIM_LOOK_HOOKS_H

#include "../isa/inst.h"
#include "../options.h"
#include "../wave.h"

#include <stddef.h>
#include <stdint.h>

/** Turns on who the options name, and makes their files. False: `error` says why not, and nothing
 *  has changed. */
bool sim_look_configure(const sim_look_options *options, char *error, size_t error_bytes);
/** Asks each observer whether a dispatch is of interest; around its run. */
void sim_look_begin_dispatch(sim_dispatch *d);
void sim_look_end_dispatch(sim_dispatch *d);
/** Around a workgroup that has its first registers; false without memory. */
bool sim_look_begin(sim_workgroup *group);
void sim_look_end(sim_workgroup *group);
/** sim_wave_run's loop for a wave that is followed, checked or not. */
uint32_t sim_look_run(sim_wave *w, uint32_t slice);
/** Facts that only execution knows, as it meets them: exec/ tells what an instruction touches in
 *  memory, in a lane's scratch, in LDS, and by a scalar access. An instruction may tell of parts of
 *  one access in turn. */
void sim_look_memory(sim_wave *w, const uint64_t address[SIM_LANES], uint64_t mask, uint32_t bytes);
void sim_look_memory_lane(sim_wave *w, int lane, uint64_t address, uint32_t bytes);
void sim_look_scratch_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds(sim_wave *w, uint8_t *const lane_address[SIM_LANES], uint64_t mask,
                  uint32_t bytes);
void sim_look_scalar(sim_wave *w, uint64_t address, uint32_t bytes);
/** Fills inst->kind, a step of decoding. */
void sim_find_kind(sim_inst *inst);
/** The process ends: files are written. A child after fork counts for itself. */
void sim_look_finish(void);
void sim_look_fork_prepare(void);
void sim_look_fork_parent(void);
void sim_look_fork_child(void);

#endif
