// SPDX-License-Identifier: Apache-2.0
// Memory pools (pools.c) and what is allocated from them (pool_blocks.c). The runtime's lock guards
// all of it.
#ifndef SIM_HIP_POOLS_H
#define SIM_HIP_POOLS_H

#include "../runtime.h"

/** An allocation; one that was freed in a stream's order can be allocated again. */
typedef struct sim_pool_block {
    struct sim_pool_block *next;
    uint64_t base, bytes;
    uint64_t stream, position; // where it was freed: sim_stream_key, the operations up to there
    uint64_t serial;           // of the freeing; no other one has it
    bool is_done;              // the stream has come there
} sim_pool_block;

struct sim_pool_of_memory {
    struct sim_pool_of_memory *next;
    sim_device *device;
    bool is_default, is_destroyed; // destroyed: goes with its last allocation
    bool is_shareable;             // other processes may open it
    bool is_imported;              // its memory is another process's: nothing is allocated from it
    sim_pool_block *allocations, *freed;
    int reuse[3]; // whether another stream may get what a stream freed: if it has waited for an
                  // event recorded behind that; if the stream has come there; a third, unused
    uint64_t release_threshold, max_bytes;
    uint64_t used, used_high, kept, reserved_high; // kept: bytes of `freed`; reserved: used + kept
    uint32_t readers, writers;                     // devices, by bit
};

extern hipMemPool_t sim_pools;

/** Takes the lock for a pool. Returns false, without the lock, if the handle is no pool's. */
bool sim_pool_enter(hipMemPool_t pool);

// The next functions have the lock.
void sim_pool_drop(hipMemPool_t pool);
void sim_pool_drop_if_empty(hipMemPool_t pool);
/** Frees a list, without the memory that it stands for. */
void sim_pool_forget_blocks(sim_pool_block **list);
/** Counts a block as allocated from the pool, which then owns it. */
void sim_pool_enter_block(hipMemPool_t pool, sim_pool_block *block);
/** Takes out what streams have freed, until the pool has no more than `bytes`. */
[[nodiscard]] sim_pool_block *sim_pool_release(hipMemPool_t pool, uint64_t bytes);

/** Frees what sim_pool_release gave, without the lock, as that may wait for kernels. */
void sim_pool_free_blocks(sim_pool_block *list);

#endif
