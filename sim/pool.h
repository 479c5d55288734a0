// SPDX-License-Identifier: Apache-2.0
// Host threads that run workgroups, and the memory that a thread needs to run one.
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "wave.h"

#include <stddef.h>
#include <stdint.h>

/** Registers, LDS and scratch of one workgroup. A worker is made once and used by one thread at a
 *  time. */
typedef struct sim_worker {
    struct sim_worker *next;
    bool is_busy;
    sim_wave *waves;
    uint8_t *lds, *scratch;
    void *shadow; // the checker's
    size_t num_waves, lds_bytes, scratch_bytes, shadow_bytes;
} sim_worker;

/** Makes room for a workgroup of that size. Returns false if memory runs out. */
bool sim_worker_reserve(sim_worker *worker, size_t num_waves, size_t lds_bytes,
                        size_t scratch_bytes, size_t shadow_bytes);

/** Frees what the worker holds. */
void sim_worker_deinit(sim_worker *worker);

/** Makes room for a workgroup of a dispatch. If memory runs out, stops the dispatch and returns
 *  false. */
bool sim_group_reserve(sim_dispatch *dispatch, sim_worker *worker);
/** Gives a workgroup's waves their first registers. Returns false, and has stopped the dispatch, if
 *  memory runs out. */
bool sim_group_begin(sim_workgroup *group, sim_dispatch *dispatch, sim_worker *worker,
                     uint64_t flat_id);
/** Lets the waves that wait at the barrier go on, when none runs. Returns false if there are none,
 *  so that the group is done. */
bool sim_group_release(sim_workgroup *group);
void sim_group_end(sim_workgroup *group);

/** Returns the number of workgroups of a dispatch. */
uint64_t sim_dispatch_groups(const sim_dispatch *dispatch);
/** Runs workgroups of a dispatch until none is left to start or the dispatch is stopped. */
void sim_dispatch_work(sim_dispatch *dispatch, sim_worker *worker);
/** Runs all workgroups of a dispatch on the calling thread, in turn, so that each may wait for any
 *  other. */
void sim_dispatch_work_together(sim_dispatch *dispatch);
/** Runs all workgroups of a dispatch, on the calling thread and on idle threads of the pool. */
void sim_pool_run(sim_dispatch *dispatch);

/** Sets how many host threads run workgroups of one dispatch; 0: one for each core. No dispatch may
 *  be running. */
void sim_pool_configure(uint32_t threads);
/** Joins the pool's threads and frees its memory; the pool starts anew when next used. */
void sim_pool_shutdown(void);
/** Called around fork, as sim_memory_fork_prepare; the child has none of the pool's threads. */
void sim_pool_fork_prepare(void);
void sim_pool_fork_parent(void);
void sim_pool_fork_child(void);

#endif
