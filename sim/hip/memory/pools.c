// SPDX-License-Identifier: Apache-2.0
// Memory pools: which there are, and what the program sets for them. pool_blocks.c allocates.
#include "pools.h"

#include <stdlib.h>

// The runtime's lock guards these.
hipMemPool_t sim_pools;
static hipMemPool_t current[SIM_MAX_DEVICES]; // null: the default one

static hipMemPool_t new_pool(sim_device *device) {
    hipMemPool_t pool = calloc(1, sizeof *pool);
    if (!pool || !sim_handle_add(SIM_HANDLE_POOL, pool)) {
        free(pool);
        return nullptr;
    }
    *pool = (struct sim_pool_of_memory){.next = sim_pools,
                                        .device = device,
                                        .reuse = {1, 1, 1},
                                        .readers = 1u << device->id,
                                        .writers = 1u << device->id};
    sim_pools = pool;
    return pool;
}

void sim_pool_drop(hipMemPool_t pool) {
    hipMemPool_t *at = &sim_pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    sim_pool_forget_blocks(&pool->allocations);
    sim_pool_forget_blocks(&pool->freed);
    sim_handle_remove(SIM_HANDLE_POOL, pool);
    free(pool);
}

static hipMemPool_t default_pool(sim_device *device) {
    hipMemPool_t pool = sim_pools;
    while (pool && !(pool->is_default && pool->device == device))
        pool = pool->next;
    if (!pool && (pool = new_pool(device)))
        pool->is_default = true;
    return pool;
}

hipMemPool_t sim_pool_of(sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool = current[device->id] ? current[device->id] : default_pool(device);
    pthread_mutex_unlock(&sim_hip.lock);
    return pool;
}

/** Returns whether the program may use a pool. The lock is held. */
static bool is_pool(hipMemPool_t pool) {
    return pool && sim_handle_is(SIM_HANDLE_POOL, pool) && !pool->is_destroyed;
}

bool sim_pool_enter(hipMemPool_t pool) {
    pthread_mutex_lock(&sim_hip.lock);
    if (is_pool(pool))
        return true;
    pthread_mutex_unlock(&sim_hip.lock);
    return false;
}

/** Gives the lock back, and the result to the program. */
static hipError_t leave(hipError_t error) {
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

// ---- other processes

bool sim_pool_is_shareable(hipMemPool_t pool) {
    if (!sim_pool_enter(pool))
        return false;
    const bool is_shareable = pool->is_shareable;
    pthread_mutex_unlock(&sim_hip.lock);
    return is_shareable;
}

hipMemPool_t sim_pool_import(sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool = new_pool(device);
    if (pool)
        pool->is_imported = true;
    pthread_mutex_unlock(&sim_hip.lock);
    return pool;
}

sim_device *sim_pool_importer(hipMemPool_t pool) {
    if (!sim_pool_enter(pool))
        return nullptr;
    sim_device *device = pool->is_imported ? pool->device : nullptr;
    pthread_mutex_unlock(&sim_hip.lock);
    return device;
}

bool sim_pool_adopt(hipMemPool_t pool, uint64_t base, uint64_t bytes) {
    sim_pool_block *a = calloc(1, sizeof *a);
    if (!a || !sim_pool_enter(pool)) {
        free(a);
        return false;
    }
    *a = (sim_pool_block){.base = base, .bytes = bytes};
    sim_pool_enter_block(pool, a);
    pthread_mutex_unlock(&sim_hip.lock);
    return true;
}

sim_pool_share sim_pool_share_of(uint64_t base) {
    sim_pool_share share = SIM_POOL_NONE;
    pthread_mutex_lock(&sim_hip.lock);
    for (const struct sim_pool_of_memory *pool = sim_pools; pool; pool = pool->next)
        for (const sim_pool_block *a = pool->allocations; a; a = a->next)
            if (a->base == base)
                share = pool->is_imported    ? SIM_POOL_IMPORTED
                        : pool->is_shareable ? SIM_POOL_SHAREABLE
                                             : SIM_POOL_NONE;
    pthread_mutex_unlock(&sim_hip.lock);
    return share;
}

void sim_pools_reset(const sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    for (hipMemPool_t pool = sim_pools, next; pool; pool = next) {
        next = pool->next;
        if (!device || pool->device == device)
            sim_pool_drop(pool);
    }
    for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++)
        if (!device || i == device->id)
            current[i] = nullptr;
    pthread_mutex_unlock(&sim_hip.lock);
}

// ---- a device's pools

static hipError_t give(hipMemPool_t *out, int device, bool is_default) {
    SIM_HIP_START();
    if (!out || !sim_hip_device_at(device))
        return sim_hip_result(out && is_default ? hipErrorInvalidDevice : hipErrorInvalidValue);
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool =
        is_default || !current[device] ? default_pool(sim_hip_device_at(device)) : current[device];
    pthread_mutex_unlock(&sim_hip.lock);
    if (pool)
        *out = pool;
    return sim_hip_result(pool ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *out, int device) {
    return give(out, device, true);
}

hipError_t hipDeviceGetMemPool(hipMemPool_t *out, int device) {
    return give(out, device, false);
}

hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool) {
    SIM_HIP_START();
    if (!sim_hip_device_at(device) || !pool) // as AMD's runtime has it
        return sim_hip_result(hipErrorInvalidValue);
    if (!sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidDevice);
    const bool is_its = pool->device->id == (uint32_t)device;
    if (is_its && !pool->is_imported)
        current[device] = pool;
    return leave(!is_its             ? hipErrorInvalidDevice
                 : pool->is_imported ? hipErrorInvalidValue
                                     : hipSuccess);
}

// ---- pools of the program's own

/** Makes a pool of a device's memory, which other processes may open if its handles are
 *  descriptors. */
hipError_t hipMemPoolCreate(hipMemPool_t *out, const hipMemPoolProps *props) {
    enum { PINNED = 1, DEVICE = 1, NO_HANDLE = 0, DESCRIPTOR = 1 };
    SIM_HIP_START();
    if (!out || !props || props->allocType != PINNED || props->location.type != DEVICE ||
        !sim_hip_device_at(props->location.id)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    if (props->handleTypes != NO_HANDLE && props->handleTypes != DESCRIPTOR) {
        sim_hip_report("hipMemPoolCreate", "handle type %d; accepted: 0, none, and 1, a descriptor",
                       (int)props->handleTypes);
        return sim_hip_result(hipErrorNotSupported);
    }
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool = new_pool(sim_hip_device_at(props->location.id));
    if (pool) {
        pool->max_bytes = props->maxSize;
        pool->is_shareable = props->handleTypes == DESCRIPTOR;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    if (pool)
        *out = pool;
    return sim_hip_result(pool ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
    SIM_HIP_START();
    if (!sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (pool->is_default)
        return leave(hipErrorInvalidValue);
    if (current[pool->device->id] == pool)
        current[pool->device->id] = nullptr;
    pool->is_destroyed = true;
    sim_pool_block *released = sim_pool_release(pool, 0);
    sim_pool_drop_if_empty(pool);
    leave(hipSuccess);
    sim_pool_free_blocks(released);
    return hipSuccess;
}

/** Gives back what the pool keeps for later, until it has no more than `bytes`. What a stream has
 *  not yet freed stays. */
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes) {
    SIM_HIP_START();
    if (!sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    sim_pool_block *released = sim_pool_release(pool, bytes);
    leave(hipSuccess);
    sim_pool_free_blocks(released);
    return hipSuccess;
}

hipError_t hipMallocFromPoolAsync(void **out, size_t bytes, hipMemPool_t pool, hipStream_t stream) {
    SIM_HIP_START();
    sim_stream *s = sim_hip_stream(stream);
    if (!out || !pool)
        return sim_hip_result(hipErrorInvalidValue);
    if (s && s->capture && sim_pool_enter(pool)) {
        leave(hipSuccess);
        return sim_hip_result(sim_capture_alloc(s, out, bytes));
    }
    return sim_hip_result(s ? sim_pool_alloc(pool, out, bytes, s) : hipErrorInvalidHandle);
}

// ---- attributes

enum { REUSE_FIRST = 1, REUSE_LAST = 3, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

/** Sets a flag, the threshold, or a high-water mark, which can only be set to 0. */
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, int attribute, void *value) {
    SIM_HIP_START();
    if (!value || !sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        pool->reuse[attribute - REUSE_FIRST] = *(int *)value;
    else if (attribute == THRESHOLD)
        pool->release_threshold = *(uint64_t *)value;
    else if (attribute == USED_HIGH && *(uint64_t *)value == 0)
        pool->used_high = pool->used;
    else if (attribute == RESERVED_HIGH && *(uint64_t *)value == 0)
        pool->reserved_high = pool->used + pool->kept;
    else
        return leave(hipErrorInvalidValue);
    return leave(hipSuccess);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, int attribute, void *value) {
    SIM_HIP_START();
    if (!value || !sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        *(int *)value = pool->reuse[attribute - REUSE_FIRST];
    else if (attribute == THRESHOLD)
        *(uint64_t *)value = pool->release_threshold;
    else if (attribute == RESERVED || attribute == USED)
        *(uint64_t *)value = pool->used + (attribute == RESERVED ? pool->kept : 0);
    else if (attribute == RESERVED_HIGH)
        *(uint64_t *)value = pool->reserved_high;
    else if (attribute == USED_HIGH)
        *(uint64_t *)value = pool->used_high;
    else
        return leave(hipErrorInvalidValue);
    return leave(hipSuccess);
}

// ---- access: kept and told; every device reaches all memory here

enum { LOCATION_DEVICE = 1, ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_ALL = 3 };

/** Checks that the descriptions can be those of a device's pool. */
static hipError_t check(const sim_device *device, const hipMemAccessDesc *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int flags = list[i].flags, id = list[i].location.id;
        const bool is_own = sim_hip_device_at(id) == device;
        if (!sim_hip_device_at(id))
            return hipErrorInvalidDevice;
        if (list[i].location.type != LOCATION_DEVICE ||
            (flags != ACCESS_NONE && flags != ACCESS_READ && flags != ACCESS_ALL) ||
            (is_own && flags == ACCESS_NONE)) {
            return hipErrorInvalidValue;
        }
    }
    return hipSuccess;
}

hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *list, size_t count) {
    SIM_HIP_START();
    if ((count && !list) || count > sim_hip.num_devices || !sim_pool_enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = check(pool->device, list, count);
    if (error != hipSuccess)
        return leave(error);
    for (size_t i = 0; i < count; i++) {
        const uint32_t bit = 1u << list[i].location.id;
        pool->readers = list[i].flags ? pool->readers | bit : pool->readers & ~bit;
        pool->writers = list[i].flags == ACCESS_ALL ? pool->writers | bit : pool->writers & ~bit;
    }
    return leave(hipSuccess);
}

hipError_t hipMemPoolGetAccess(int *flags, hipMemPool_t pool, hipMemLocation *location) {
    SIM_HIP_START();
    if (!flags || !location || location->type != LOCATION_DEVICE ||
        !sim_hip_device_at(location->id) || !sim_pool_enter(pool)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    const uint32_t bit = 1u << location->id;
    *flags = pool->writers & bit ? ACCESS_ALL : pool->readers & bit ? ACCESS_READ : ACCESS_NONE;
    return leave(hipSuccess);
}
