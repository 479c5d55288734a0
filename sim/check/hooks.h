// SPDX-License-Identifier: Apache-2.0
// Where the checker (check/) looks at what a kernel does. It is off where sim_wave.shadow is null.
#ifndef SIM_CHECK_HOOKS_H
#define SIM_CHECK_HOOKS_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../wave.h"

#include <stddef.h>
#include <stdint.h>

/** Fills inst->effects, the last step of decoding. */
void sim_find_effects(sim_inst *inst, sim_arch arch);
/** Bytes of a worker that a workgroup of `num_waves` needs; 0 if `check` needs none. */
size_t sim_check_bytes(uint32_t check, size_t num_waves, size_t lds_bytes);
/** Lays out `memory` for a workgroup whose waves have their first registers; null: no checking. */
void sim_check_begin(sim_workgroup *group, void *memory);
/** sim_wave_run's loop, with checks: at most `slice` instructions; how many there were. */
uint32_t sim_check_run(sim_wave *w, uint32_t slice);
/** Lanes of `mask` access `bytes` of LDS each, at lane_address. Called by exec/ before it does
 *  so. */
void sim_check_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                   uint64_t mask, uint32_t bytes);

/** Lanes of `mask` access `bytes` of memory each, at address in the guest, host here. Before it
 *  happens. */
void sim_check_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                      uint8_t *const *host, uint64_t mask, uint32_t bytes);
/** A wave has come to a barrier that it waits at; it has signalled (gfx12). If SIM_CHECK_BARRIER is
 *  on. */
void sim_check_barrier(sim_wave *w, const sim_inst *inst);
void sim_check_signal(sim_wave *w, const sim_inst *inst);
/** Around a dispatch: makes what is remembered of global memory, if its checks need that. False
 *  without memory. */
bool sim_race_open(sim_dispatch *d);
void sim_race_close(sim_dispatch *d);

#endif
