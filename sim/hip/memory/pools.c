// SPDX-License-Identifier: Apache-2.0
// Memory pools. A pool counts what is allocated from it and keeps no memory for later: what is
// freed goes back at once, whatever the release threshold says.
#include "../runtime.h"

#include <stdlib.h>

typedef struct allocation {
    struct allocation *next;
    uint64_t base, bytes;
} allocation;

struct sim_pool_of_memory {
    struct sim_pool_of_memory *next;
    sim_device *device;
    bool is_default, is_destroyed; // destroyed: goes with its last allocation
    allocation *allocations;
    int reuse[3]; // hipMemPoolReuse…: flags that change nothing
    uint64_t release_threshold, used, used_high, max_bytes;
    uint32_t readers, writers; // devices, by bit
};

// The runtime's lock guards these.
static hipMemPool_t pools;
static hipMemPool_t current[SIM_MAX_DEVICES]; // null: the default one

static hipMemPool_t new_pool(sim_device *device) {
    hipMemPool_t pool = calloc(1, sizeof *pool);
    if (!pool || !sim_handle_add(SIM_HANDLE_POOL, pool)) {
        free(pool);
        return nullptr;
    }
    *pool = (struct sim_pool_of_memory){.next = pools,
                                        .device = device,
                                        .reuse = {1, 1, 1},
                                        .readers = 1u << device->id,
                                        .writers = 1u << device->id};
    pools = pool;
    return pool;
}

static void free_pool(hipMemPool_t pool) {
    hipMemPool_t *at = &pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    for (allocation *a = pool->allocations, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    sim_handle_remove(SIM_HANDLE_POOL, pool);
    free(pool);
}

static hipMemPool_t default_pool(sim_device *device) {
    hipMemPool_t pool = pools;
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

/** Takes the lock for a pool. Returns false, without the lock, if the handle is no pool's. */
static bool enter(hipMemPool_t pool) {
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

/** Allocates from a pool, with the lock held. */
static hipError_t take_from(hipMemPool_t pool, void **out, size_t bytes) {
    if (pool->max_bytes && bytes > pool->max_bytes - pool->used)
        return hipErrorOutOfMemory;
    allocation *a = calloc(1, sizeof *a);
    hipError_t error = a ? sim_hip_alloc(pool->device, out, bytes) : hipErrorOutOfMemory;
    if (error != hipSuccess || !bytes) {
        free(a);
        return error;
    }
    *a = (allocation){pool->allocations, (uintptr_t)*out, bytes};
    pool->allocations = a;
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    return hipSuccess;
}

hipError_t sim_pool_alloc(hipMemPool_t pool, void **out, size_t bytes) {
    if (!pool)
        return hipErrorOutOfMemory;
    if (!enter(pool))
        return hipErrorInvalidValue;
    hipError_t error = take_from(pool, out, bytes);
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

/** Takes an allocation out of a pool. Returns whether the pool had it. */
static bool take_out(hipMemPool_t pool, uint64_t base) {
    allocation **at = &pool->allocations, *a;
    while (*at && (*at)->base != base)
        at = &(*at)->next;
    if (!(a = *at))
        return false;
    *at = a->next;
    pool->used -= a->bytes;
    free(a);
    return true;
}

void sim_pool_freed(uint64_t base) {
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool = pools;
    while (pool && !take_out(pool, base))
        pool = pool->next;
    if (pool && pool->is_destroyed && !pool->allocations)
        free_pool(pool);
    pthread_mutex_unlock(&sim_hip.lock);
}

void sim_pools_reset(const sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    for (hipMemPool_t pool = pools, next; pool; pool = next) {
        next = pool->next;
        if (!device || pool->device == device)
            free_pool(pool);
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
    if (!enter(pool))
        return sim_hip_result(hipErrorInvalidDevice);
    const bool is_its = pool->device->id == (uint32_t)device;
    if (is_its)
        current[device] = pool;
    return leave(is_its ? hipSuccess : hipErrorInvalidDevice);
}

// ---- pools of the program's own

/** Makes a pool of a device's memory. One that other processes could open is not supported. */
hipError_t hipMemPoolCreate(hipMemPool_t *out, const hipMemPoolProps *props) {
    enum { PINNED = 1, DEVICE = 1 };
    SIM_HIP_START();
    if (!out || !props || props->allocType != PINNED || props->location.type != DEVICE ||
        !sim_hip_device_at(props->location.id)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    if (props->handleTypes) {
        sim_hip_report("hipMemPoolCreate", "handles for other processes: not supported");
        return sim_hip_result(hipErrorNotSupported);
    }
    pthread_mutex_lock(&sim_hip.lock);
    hipMemPool_t pool = new_pool(sim_hip_device_at(props->location.id));
    if (pool)
        pool->max_bytes = props->maxSize;
    pthread_mutex_unlock(&sim_hip.lock);
    if (pool)
        *out = pool;
    return sim_hip_result(pool ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
    SIM_HIP_START();
    if (!enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (pool->is_default)
        return leave(hipErrorInvalidValue);
    if (current[pool->device->id] == pool)
        current[pool->device->id] = nullptr;
    pool->is_destroyed = true;
    if (!pool->allocations)
        free_pool(pool);
    return leave(hipSuccess);
}

/** Checks its arguments: a pool keeps nothing that could be trimmed. */
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes) {
    SIM_HIP_START();
    (void)bytes;
    return enter(pool) ? leave(hipSuccess) : sim_hip_result(hipErrorInvalidValue);
}

hipError_t hipMallocFromPoolAsync(void **out, size_t bytes, hipMemPool_t pool, hipStream_t stream) {
    SIM_HIP_START();
    sim_stream *s = sim_hip_stream(stream);
    if (!out || !pool)
        return sim_hip_result(hipErrorInvalidValue);
    if (s && s->capture && enter(pool)) {
        leave(hipSuccess);
        return sim_hip_result(sim_capture_alloc(s, out, bytes));
    }
    return sim_hip_result(s ? sim_pool_alloc(pool, out, bytes) : hipErrorInvalidHandle);
}

// ---- attributes

enum { REUSE_FIRST = 1, REUSE_LAST = 3, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

/** Sets a flag, the threshold, or a high-water mark, which can only be set to 0. */
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, int attribute, void *value) {
    SIM_HIP_START();
    if (!value || !enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    const bool is_mark = attribute == RESERVED_HIGH || attribute == USED_HIGH;
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        pool->reuse[attribute - REUSE_FIRST] = *(int *)value;
    else if (attribute == THRESHOLD)
        pool->release_threshold = *(uint64_t *)value;
    else if (is_mark && *(uint64_t *)value == 0)
        pool->used_high = pool->used;
    else
        return leave(hipErrorInvalidValue);
    return leave(hipSuccess);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, int attribute, void *value) {
    SIM_HIP_START();
    if (!value || !enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        *(int *)value = pool->reuse[attribute - REUSE_FIRST];
    else if (attribute == THRESHOLD)
        *(uint64_t *)value = pool->release_threshold;
    else if (attribute == RESERVED || attribute == USED)
        *(uint64_t *)value = pool->used;
    else if (attribute == RESERVED_HIGH || attribute == USED_HIGH)
        *(uint64_t *)value = pool->used_high;
    else
        return leave(hipErrorInvalidValue);
    return leave(hipSuccess);
}

// ---- access: kept and told; every device reaches all memory here

enum { LOCATION_DEVICE = 1, ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_ALL = 3 };

/** Returns whether the descriptions can be those of a device's pool. */
static bool are_good(const sim_device *device, const hipMemAccessDesc *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int flags = list[i].flags, id = list[i].location.id;
        const bool is_own = sim_hip_device_at(id) == device;
        if (list[i].location.type != LOCATION_DEVICE || !sim_hip_device_at(id) ||
            (flags != ACCESS_NONE && flags != ACCESS_READ && flags != ACCESS_ALL) ||
            (is_own && flags == ACCESS_NONE)) {
            return false;
        }
    }
    return true;
}

hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *list, size_t count) {
    SIM_HIP_START();
    if ((count && !list) || count > sim_hip.num_devices || !enter(pool))
        return sim_hip_result(hipErrorInvalidValue);
    if (!are_good(pool->device, list, count))
        return leave(hipErrorInvalidValue);
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
        !sim_hip_device_at(location->id) || !enter(pool)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    const uint32_t bit = 1u << location->id;
    *flags = pool->writers & bit ? ACCESS_ALL : pool->readers & bit ? ACCESS_READ : ACCESS_NONE;
    return leave(hipSuccess);
}
