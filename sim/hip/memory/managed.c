// SPDX-License-Identifier: Apache-2.0
// Managed memory: one memory for the host and all devices, and the program's advice about it.
//
// It never moves, so that advice and prefetches change nothing but what the program is told of
// them, which is kept for each page of an allocation.
#include "../runtime.h"

#include <stdlib.h>
#include <string.h>

enum { CPU = -1, NOWHERE = -2 }; // hipCpuDeviceId, hipInvalidDeviceId
enum { ADVICE_PAGE = 4096 };

typedef struct page {
    int16_t preferred, prefetched; // a device, CPU or NOWHERE
    uint32_t accessed_by;          // bit 0: the CPU; bit i + 1: device i
    bool is_read_mostly, is_coarse;
} page;

typedef struct advised {
    struct advised *next;
    uint64_t base;
    size_t num_pages;
    page pages[];
} advised;

static advised *all; // the runtime's lock guards the list

hipError_t sim_managed_alloc(void **out, size_t bytes, unsigned flags) {
    sim_device *device = sim_hip_device();
    if (bytes > device->chip->memory_bytes)
        return hipErrorOutOfMemory;
    const sim_region *region =
        sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_MANAGED, device->id);
    if (!region)
        return hipErrorOutOfMemory;
    sim_memory_tag(sim_hip.memory, region->base, flags);
    *out = region->host;
    return hipSuccess;
}

hipError_t hipMallocManaged(void **out, size_t bytes, unsigned flags) {
    enum { GLOBAL = 1, HOST = 2 };
    SIM_HIP_START_UNCAPTURED();
    if (!out || !bytes || (flags != GLOBAL && flags != HOST))
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(sim_managed_alloc(out, bytes, flags));
}

// ---- what is kept

void sim_managed_forget(uint64_t base) {
    pthread_mutex_lock(&sim_hip.lock);
    for (advised **at = &all; *at;) {
        advised *a = *at;
        if (base && a->base != base) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
    }
    pthread_mutex_unlock(&sim_hip.lock);
}

/** Returns what is kept for an allocation, made if there was nothing; null without memory. The lock
 *  is held. */
static advised *keep(const sim_region *region) {
    for (advised *a = all; a; a = a->next)
        if (a->base == region->base)
            return a;
    const size_t n = (region->size + ADVICE_PAGE - 1) / ADVICE_PAGE;
    advised *a = calloc(1, sizeof *a + n * sizeof a->pages[0]);
    if (!a)
        return nullptr;
    *a = (advised){.next = all, .base = region->base, .num_pages = n};
    for (size_t i = 0; i < n; i++)
        a->pages[i] = (page){.preferred = NOWHERE, .prefetched = NOWHERE};
    all = a;
    return a;
}

/** Finds the managed allocation that holds a range. Errors: hipErrorInvalidValue. */
static hipError_t find(const sim_region **out, const void *ptr, size_t bytes) {
    const sim_region *region =
        ptr && bytes ? sim_memory_find(sim_hip.memory, (uintptr_t)ptr) : nullptr;
    if (!region || region->kind != SIM_REGION_MANAGED ||
        bytes > region->size - ((uintptr_t)ptr - region->base)) {
        return hipErrorInvalidValue;
    }
    *out = region;
    return hipSuccess;
}

static bool is_place(int device) {
    return device == CPU || sim_hip_device_at(device);
}

typedef enum advice { // hipMemoryAdvise, and prefetches
    PREFETCH = 0,
    SET_READ_MOSTLY = 1,
    UNSET_READ_MOSTLY = 2,
    SET_PREFERRED = 3,
    UNSET_PREFERRED = 4,
    SET_ACCESSED_BY = 5,
    UNSET_ACCESSED_BY = 6,
    SET_COARSE = 100,
    UNSET_COARSE = 101,
} advice;

/** Returns false if there is no such advice. */
static bool apply(page *p, advice what, int device) {
    const uint32_t bit = 1u << (device + 1);
    switch (what) {
    case PREFETCH:
        p->prefetched = (int16_t)device;
        return true;
    case SET_READ_MOSTLY:
    case UNSET_READ_MOSTLY:
        p->is_read_mostly = what == SET_READ_MOSTLY;
        return true;
    case SET_PREFERRED:
    case UNSET_PREFERRED:
        p->preferred = what == SET_PREFERRED ? (int16_t)device : NOWHERE;
        return true;
    case SET_ACCESSED_BY:
        p->accessed_by |= bit;
        return true;
    case UNSET_ACCESSED_BY:
        p->accessed_by &= ~bit;
        return true;
    case SET_COARSE:
    case UNSET_COARSE:
        p->is_coarse = what == SET_COARSE;
        return true;
    }
    return false;
}

/** Notes advice for the pages that a range touches. */
static hipError_t advise(const void *ptr, size_t bytes, advice what, int device) {
    const sim_region *region;
    page probe = {};
    const bool names_place = what != SET_READ_MOSTLY && what != UNSET_READ_MOSTLY;
    if (names_place && !is_place(device))
        return hipErrorInvalidDevice;
    hipError_t error = find(&region, ptr, bytes);
    if (error != hipSuccess || !apply(&probe, what, names_place ? device : CPU))
        return hipErrorInvalidValue;
    pthread_mutex_lock(&sim_hip.lock);
    advised *a = keep(region);
    const size_t first = (uintptr_t)ptr - region->base;
    for (size_t i = first / ADVICE_PAGE; a && i <= (first + bytes - 1) / ADVICE_PAGE; i++)
        apply(&a->pages[i], what, names_place ? device : CPU);
    pthread_mutex_unlock(&sim_hip.lock);
    return a ? hipSuccess : hipErrorOutOfMemory;
}

// ---- advice

hipError_t hipMemAdvise(const void *ptr, size_t bytes, int what, int device) {
    SIM_HIP_START();
    return sim_hip_result(what == PREFETCH ? hipErrorInvalidValue
                                           : advise(ptr, bytes, (advice)what, device));
}

/** Gives a location's device. Returns false for a kind of location that is none of these. */
static bool device_of(hipMemLocation location, int *device) {
    enum { DEVICE = 1, HOST = 2, NUMA = 3, NUMA_CURRENT = 4 };
    *device = location.type == DEVICE ? location.id : CPU;
    return location.type >= DEVICE && location.type <= NUMA_CURRENT &&
           (location.type != DEVICE || sim_hip_device_at(location.id));
}

hipError_t hipMemAdvise_v2(const void *ptr, size_t bytes, int what, hipMemLocation location) {
    SIM_HIP_START();
    int device;
    return device_of(location, &device) ? hipMemAdvise(ptr, bytes, what, device)
                                        : sim_hip_result(hipErrorInvalidValue);
}

hipError_t hipMemPrefetchAsync(const void *ptr, size_t bytes, int device, hipStream_t stream) {
    SIM_HIP_START();
    if (!ptr || !bytes)
        return sim_hip_result(hipErrorInvalidValue);
    if (!sim_hip_stream(stream))
        return sim_hip_result(hipErrorContextIsDestroyed);
    return sim_hip_result(advise(ptr, bytes, PREFETCH, device));
}

hipError_t hipMemPrefetchAsync_v2(const void *ptr, size_t bytes, hipMemLocation location,
                                  unsigned flags, hipStream_t stream) {
    SIM_HIP_START();
    int device;
    return !flags && device_of(location, &device) ? hipMemPrefetchAsync(ptr, bytes, device, stream)
                                                  : sim_hip_result(hipErrorInvalidValue);
}

hipError_t hipStreamAttachMemAsync(hipStream_t stream, void *ptr, size_t bytes, unsigned flags) {
    enum { GLOBAL = 1, HOST = 2, SINGLE = 4 };
    SIM_HIP_START();
    const sim_region *region;
    const bool known = flags == GLOBAL || flags == HOST || flags == SINGLE;
    if (!sim_hip_stream(stream))
        return sim_hip_result(hipErrorContextIsDestroyed);
    if (!known || (flags == SINGLE && !stream) || find(&region, ptr, 1) != hipSuccess ||
        (uintptr_t)ptr != region->base || (bytes && bytes != region->size)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    return hipSuccess;
}

// ---- what the program is told

typedef enum attribute { // hipMemRangeAttribute
    READ_MOSTLY = 1,
    PREFERRED = 2,
    ACCESSED_BY = 3,
    PREFETCHED = 4,
    COHERENCY = 100,
} attribute;

/** Returns a page's answer to a question of one word. */
static int answer(const page *p, attribute what) {
    return what == READ_MOSTLY ? p->is_read_mostly
           : what == PREFERRED ? p->preferred
           : what == COHERENCY ? p->is_coarse
                               : p->prefetched;
}

/** Returns the answer for pages; if they differ, the one for that. */
static int common_answer(const page *pages, size_t count, attribute what) {
    enum { INDETERMINATE = 2 };
    const int mixed = what == READ_MOSTLY ? 0 : what == COHERENCY ? INDETERMINATE : NOWHERE;
    for (size_t i = 1; i < count; i++)
        if (answer(&pages[i], what) != answer(&pages[0], what))
            return mixed;
    return answer(&pages[0], what);
}

/** Lists who accesses all of the pages; what is left of the room says NOWHERE. */
static void list_accessed_by(int *out, size_t room, const page *pages, size_t count) {
    uint32_t mask = UINT32_MAX;
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        mask &= pages[i].accessed_by;
    for (int device = CPU; device < SIM_MAX_DEVICES && n < room; device++)
        if (mask >> (device + 1) & 1)
            out[n++] = device;
    while (n < room)
        out[n++] = NOWHERE;
}

static bool is_question(attribute what, size_t data_bytes) {
    return what == ACCESSED_BY
               ? data_bytes && data_bytes % sizeof(int) == 0
               : data_bytes == sizeof(int) && (what == READ_MOSTLY || what == PREFERRED ||
                                               what == PREFETCHED || what == COHERENCY);
}

static hipError_t tell(int *data, size_t data_bytes, attribute what, const void *ptr,
                       size_t bytes) {
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (data && what == COHERENCY && data_bytes == sizeof *data && region &&
        region->kind == SIM_REGION_DEVICE && bytes <= region->size) {
        *data = 1; // coarse
        return hipSuccess;
    }
    if (!data || !is_question(what, data_bytes) || find(&region, ptr, bytes) != hipSuccess)
        return hipErrorInvalidValue;
    pthread_mutex_lock(&sim_hip.lock);
    const advised *a = keep(region);
    const size_t offset = (uintptr_t)ptr - region->base, first = offset / ADVICE_PAGE;
    const size_t count = (offset + bytes - 1) / ADVICE_PAGE - first + 1;
    if (a && what == ACCESSED_BY)
        list_accessed_by(data, data_bytes / sizeof(int), a->pages + first, count);
    else if (a)
        *data = common_answer(a->pages + first, count, what);
    pthread_mutex_unlock(&sim_hip.lock);
    return a ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipMemRangeGetAttribute(void *data, size_t data_bytes, int what, const void *ptr,
                                   size_t bytes) {
    SIM_HIP_START();
    return sim_hip_result(tell(data, data_bytes, (attribute)what, ptr, bytes));
}

hipError_t hipMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes, size_t count,
                                    const void *ptr, size_t bytes) {
    SIM_HIP_START();
    hipError_t error =
        data && data_bytes && attributes && count ? hipSuccess : hipErrorInvalidValue;
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        error = tell(data[i], data_bytes[i], (attribute)attributes[i], ptr, bytes);
    return sim_hip_result(error);
}
