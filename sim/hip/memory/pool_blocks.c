// SPDX-License-Identifier: Apache-2.0
// Allocation from pools in streams' order.
//
// A block that a stream frees can be allocated again, in the same size, by whoever comes behind
// that. A pool gives blocks back when a call waits for a stream, until it holds no more than its
// release threshold. Under checks a block goes as soon as the stream comes to its end, so that a
// use behind that is found, and none is allocated again.
#include "pools.h"

#include <stdlib.h>

static atomic_size_t num_kept; // blocks that wait to be used again or given back

void sim_pool_forget_blocks(sim_pool_block **list) {
    for (sim_pool_block *b = *list, *next; b; b = next) {
        next = b->next;
        num_kept -= b->serial != 0;
        free(b);
    }
    *list = nullptr;
}

void sim_pool_drop_if_empty(hipMemPool_t pool) {
    if (pool->is_destroyed && !pool->allocations && !pool->freed)
        sim_pool_drop(pool);
}

static void note_high(hipMemPool_t pool) {
    const uint64_t reserved = pool->used + pool->kept;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    pool->reserved_high = reserved > pool->reserved_high ? reserved : pool->reserved_high;
}

void sim_pool_enter_block(hipMemPool_t pool, sim_pool_block *block) {
    block->next = pool->allocations;
    block->serial = 0;
    pool->allocations = block;
    pool->used += block->bytes;
    note_high(pool);
}

// ---- allocation

/** Returns whether a stream comes behind the end of a block. */
static bool is_behind(const struct sim_pool_of_memory *pool, const sim_pool_block *b,
                      const sim_stream *stream) {
    enum { FOLLOW_EVENTS, OPPORTUNISTIC };
    if (b->stream == sim_stream_key(stream) || (b->is_done && pool->reuse[OPPORTUNISTIC]))
        return true;
    bool knows = false;
    for (size_t i = 0; i < SIM_NUM_KNOWN; i++)
        knows |= stream->known[i].stream == b->stream && stream->known[i].position >= b->position;
    return knows && pool->reuse[FOLLOW_EVENTS];
}

/** Takes a freed block of the size that the stream may have; null if there is none. */
static sim_pool_block *take_freed(hipMemPool_t pool, uint64_t bytes, const sim_stream *stream) {
    sim_pool_block **at = &pool->freed;
    while (*at && !((*at)->bytes == bytes && is_behind(pool, *at, stream)))
        at = &(*at)->next;
    sim_pool_block *b = *at;
    if (!b)
        return nullptr;
    *at = b->next;
    pool->kept -= bytes;
    num_kept--;
    return b;
}

static hipError_t take_from(hipMemPool_t pool, void **out, size_t bytes, const sim_stream *stream) {
    if (pool->is_imported)
        return hipErrorInvalidValue;
    sim_pool_block *b = bytes && stream ? take_freed(pool, bytes, stream) : nullptr;
    if (b) {
        *out = (void *)b->base;
        sim_pool_enter_block(pool, b);
        return hipSuccess;
    }
    if (pool->max_bytes && bytes > pool->max_bytes - pool->used)
        return hipErrorOutOfMemory;
    b = calloc(1, sizeof *b);
    hipError_t error = b ? sim_hip_alloc(pool->device, out, bytes) : hipErrorOutOfMemory;
    if (error != hipSuccess || !bytes) {
        free(b);
        return error;
    }
    *b = (sim_pool_block){.base = (uintptr_t)*out, .bytes = bytes};
    sim_pool_enter_block(pool, b);
    return hipSuccess;
}

hipError_t sim_pool_alloc(hipMemPool_t pool, void **out, size_t bytes, const sim_stream *stream) {
    if (!pool)
        return hipErrorOutOfMemory;
    if (!sim_pool_enter(pool))
        return hipErrorInvalidValue;
    hipError_t error = take_from(pool, out, bytes, stream);
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

// ---- freeing

/** Takes an allocation out of its pool; null if no pool has it. */
static sim_pool_block *take_out(hipMemPool_t *out, uint64_t base) {
    for (hipMemPool_t pool = sim_pools; pool; pool = pool->next)
        for (sim_pool_block **at = &pool->allocations; *at; at = &(*at)->next)
            if ((*at)->base == base) {
                sim_pool_block *b = *at;
                *at = b->next;
                pool->used -= b->bytes;
                *out = pool;
                return b;
            }
    return nullptr;
}

void sim_pool_freed(uint64_t base) {
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool;
    sim_pool_block *b = take_out(&pool, base);
    if (b)
        sim_pool_drop_if_empty(pool);
    pthread_mutex_unlock(&sim_hip.lock);
    free(b);
}

bool sim_pool_has_freed(uint64_t base) {
    bool has = false;
    if (!num_kept)
        return false;
    pthread_mutex_lock(&sim_hip.lock);
    for (const struct sim_pool_of_memory *pool = sim_pools; pool; pool = pool->next)
        for (const sim_pool_block *b = pool->freed; b; b = b->next)
            has |= b->base == base;
    pthread_mutex_unlock(&sim_hip.lock);
    return has;
}

uint64_t sim_pool_free_later(uint64_t base, const sim_stream *stream) {
    static uint64_t serial;
    uint64_t got = 0;
    if (sim_hip.options.check)
        return 0;
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool;
    sim_pool_block *b = take_out(&pool, base);
    if (b) {
        b->next = pool->freed;
        b->stream = sim_stream_key(stream);
        b->position = stream->queued + 1;
        b->serial = got = ++serial;
        b->is_done = false;
        pool->freed = b;
        pool->kept += b->bytes;
        num_kept++;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return got;
}

void sim_pool_reach(uint64_t serial) {
    sim_pool_block *released = nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    for (hipMemPool_t pool = sim_pools, next; pool; pool = next) {
        next = pool->next;
        sim_pool_block *b = pool->freed;
        while (b && b->serial != serial)
            b = b->next;
        if (!b)
            continue;
        b->is_done = true;
        if (pool->is_destroyed) {
            released = sim_pool_release(pool, 0);
            sim_pool_drop_if_empty(pool);
        }
        break;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    sim_pool_free_blocks(released);
}

sim_pool_block *sim_pool_release(hipMemPool_t pool, uint64_t bytes) {
    sim_pool_block *released = nullptr;
    for (sim_pool_block **at = &pool->freed; *at && pool->used + pool->kept > bytes;) {
        sim_pool_block *b = *at;
        if (!b->is_done) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        pool->kept -= b->bytes;
        num_kept--;
        b->next = released;
        released = b;
    }
    return released;
}

void sim_pool_free_blocks(sim_pool_block *list) {
    for (sim_pool_block *next; list; list = next) {
        next = list->next;
        sim_pointer_forget(list->base);
        sim_memory_free(sim_hip.memory, list->base);
        free(list);
    }
}

void sim_pools_waited(void) {
    if (!num_kept)
        return;
    sim_pool_block *released = nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    for (hipMemPool_t pool = sim_pools; pool; pool = pool->next) {
        sim_pool_block *list = sim_pool_release(pool, pool->release_threshold);
        for (sim_pool_block *next; list; list = next) {
            next = list->next;
            list->next = released;
            released = list;
        }
    }
    pthread_mutex_unlock(&sim_hip.lock);
    sim_pool_free_blocks(released);
}
