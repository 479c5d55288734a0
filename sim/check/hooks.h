// SPDX-License-Identifier: Apache-2.0
// Calls by which a running kernel tells the checker (check/) what it does. If sim_wave.shadow is
// null, the wave is not checked.
#ifndef SIM_CHECK_HOOKS_H
#define SIM_CHECK_HOOKS_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../wave.h"

#include <stddef.h>
#include <stdint.h>

/** Returns the bytes of memory that the checker needs for a workgroup of `num_waves`; 0 if `check`
 *  needs none. */
size_t sim_check_bytes(uint32_t check, size_t num_waves, size_t lds_bytes);
/** Lays out `memory` for a workgroup whose waves have their first registers; null: nothing is
 *  checked. */
void sim_check_begin(sim_workgroup *group, void *memory);
/** Runs at most `slice` instructions of a wave with checks. Returns how many it ran. */
uint32_t sim_check_run(sim_wave *w, uint32_t slice);
/** Checks an access to LDS: each lane of `mask` accesses `bytes` at lane_address. exec/ calls this
 *  before the access. */
void sim_check_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                   uint64_t mask, uint32_t bytes);

/** Checks an access to memory: each lane of `mask` accesses `bytes` at a guest address, which
 *  `host` has as a host address. exec/ calls this before the access. */
void sim_check_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                      uint8_t *const *host, uint64_t mask, uint32_t bytes);
/** Checks a wave that has come to a barrier and waits there, if SIM_CHECK_BARRIER is on. */
void sim_check_barrier(sim_wave *w, const sim_inst *inst);
/** Checks a wave that has signalled for a barrier (gfx12), if SIM_CHECK_BARRIER is on. */
void sim_check_signal(sim_wave *w, const sim_inst *inst);
/** Called before a dispatch: makes the records of accesses to global memory, if the dispatch's
 *  checks need them. Returns false if memory runs out. */
bool sim_race_open(sim_dispatch *d);
void sim_race_close(sim_dispatch *d);

#endif
