// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses, which are given memory (physical.c) and access to it.
//
// A range has a stretch of the host's addresses, where the memory's files are mapped. The guest
// sees what has memory and access: parts that lie side by side are one region, so that copies and
// kernels go from one to the next. Access is kept for each device, and told; the guest sees memory
// as soon as one device may read it, for reads and writes by all.
#include "virtual.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LOCATION_DEVICE = 1, ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_ALL = 3 };

typedef struct mapping {
    struct mapping *next; // of the range, by address
    uint64_t base, bytes;
    hipMemGenericAllocationHandle_t memory;
    uint32_t readers, writers; // devices, by bit
    bool begins_region;        // the guest sees a region that begins here
} mapping;

typedef struct range {
    struct range *next;
    uint64_t base, bytes;
    uint8_t *host;
    mapping *mappings;
} range;

static range *ranges; // the lock guards all of this file

// ---- with the lock held

/** Returns the range that holds some addresses; null if there is none. */
static range *range_of(uint64_t addr, uint64_t bytes) {
    range *r = ranges;
    while (r && (addr - r->base >= r->bytes || bytes > r->bytes - (addr - r->base)))
        r = r->next;
    return r;
}

static mapping *mapping_at(const range *r, uint64_t addr) {
    mapping *m = r ? r->mappings : nullptr;
    while (m && addr - m->base >= m->bytes)
        m = m->next;
    return m;
}

hipMemGenericAllocationHandle_t sim_physical_at(uint64_t addr) {
    const mapping *m = mapping_at(range_of(addr, 1), addr);
    return m ? m->memory : nullptr;
}

/** Returns whether mappings cover some addresses, and none reaches beyond them. */
static bool is_covered(const range *r, uint64_t addr, uint64_t bytes) {
    const uint64_t end = addr + bytes;
    for (const mapping *m = mapping_at(r, addr); m && m->base == addr && addr < end; m = m->next)
        addr += m->bytes;
    return addr == end;
}

/** Lets the guest see no part of a range. */
static void hide(range *r) {
    for (mapping *m = r->mappings; m; m = m->next) {
        if (m->begins_region)
            sim_memory_retire(sim_hip.memory, m->base);
        m->begins_region = false;
    }
}

/** Lets the guest see the parts of a range that have access. */
static bool show(range *r) {
    bool ok = true;
    for (mapping *m = r->mappings, *next; m; m = next) {
        uint64_t end = m->base + m->bytes;
        for (next = m->next; m->readers && next && next->readers && next->base == end;)
            end += next->bytes, next = next->next;
        m->begins_region = m->readers && sim_memory_show(sim_hip.memory, m->base, end - m->base,
                                                         r->host + (m->base - r->base),
                                                         (uint32_t)m->memory->prop.location.id);
        ok &= m->begins_region || !m->readers;
    }
    return ok;
}

/** Takes the memory from addresses that mappings cover. */
static void unmap(range *r, uint64_t addr, uint64_t bytes) {
    for (mapping **at = &r->mappings; *at;) {
        mapping *m = *at;
        if (m->base - addr >= bytes) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        mmap(r->host + (m->base - r->base), m->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        m->memory->mappings--;
        sim_physical_drop(m->memory);
        free(m);
    }
}

static void free_range(range *r) {
    range **at = &ranges;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    munmap(r->host, r->bytes);
    free(r);
}

void sim_virtual_reset(const sim_device *device) {
    pthread_mutex_lock(&sim_virtual_lock);
    for (range *r = ranges, *next; r; r = next) {
        next = r->next;
        sim_memory_stop(sim_hip.memory);
        hide(r);
        for (mapping *m = r->mappings, *after; m; m = after) {
            after = m->next;
            if (!device || m->memory->prop.location.id == (int)device->id)
                unmap(r, m->base, m->bytes);
        }
        show(r);
        sim_memory_go(sim_hip.memory);
        if (!device)
            free_range(r);
    }
    sim_physical_reset(device);
    pthread_mutex_unlock(&sim_virtual_lock);
}

// ---- calls

static hipError_t leave(hipError_t error) {
    pthread_mutex_unlock(&sim_virtual_lock);
    return sim_hip_result(error);
}

/** Reserves addresses that nobody else gets; the wish for certain ones is not met. */
hipError_t hipMemAddressReserve(void **out, size_t bytes, size_t alignment, void *wish,
                                unsigned long long flags) {
    constexpr uint64_t LARGE_PAGE = 2 << 20;
    SIM_HIP_START();
    (void)wish;
    if (!out || flags)
        return sim_hip_result(hipErrorInvalidValue);
    if (!bytes || bytes % SIM_VIRTUAL_PAGE || alignment & (alignment - 1))
        return sim_hip_result(hipErrorOutOfMemory); // as AMD's runtime has it
    range *r = calloc(1, sizeof *r);
    void *host =
        r ? mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
          : MAP_FAILED;
    const uint64_t base = host == MAP_FAILED
                              ? 0
                              : sim_memory_reserve(sim_hip.memory, bytes,
                                                   alignment > LARGE_PAGE ? alignment : LARGE_PAGE);
    if (!base) {
        if (host != MAP_FAILED)
            munmap(host, bytes);
        free(r);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    pthread_mutex_lock(&sim_virtual_lock);
    *r = (range){.next = ranges, .base = base, .bytes = bytes, .host = host};
    ranges = r;
    *out = (void *)base;
    return leave(hipSuccess);
}

hipError_t hipMemAddressFree(void *ptr, size_t bytes) {
    SIM_HIP_START();
    pthread_mutex_lock(&sim_virtual_lock);
    range *r = bytes ? range_of((uintptr_t)ptr, bytes) : nullptr;
    const bool ok = r && r->base == (uintptr_t)ptr && r->bytes == bytes && !r->mappings;
    if (ok)
        free_range(r);
    return leave(ok ? hipSuccess : hipErrorInvalidValue);
}

/** Gives memory to a part of a range that has none. */
static hipError_t map(range *r, uint64_t addr, uint64_t bytes,
                      hipMemGenericAllocationHandle_t memory) {
    mapping **at = &r->mappings;
    while (*at && (*at)->base + (*at)->bytes <= addr)
        at = &(*at)->next;
    if (*at && (*at)->base < addr + bytes)
        return hipErrorInvalidValue;
    mapping *m = calloc(1, sizeof *m);
    if (!m || !sim_memory_map_file(r->host + (addr - r->base), memory->fd, bytes)) {
        free(m);
        return hipErrorOutOfMemory;
    }
    *m = (mapping){.next = *at, .base = addr, .bytes = bytes, .memory = memory};
    *at = m;
    memory->mappings++;
    return hipSuccess;
}

hipError_t hipMemMap(void *ptr, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t memory,
                     unsigned long long flags) {
    const uint64_t addr = (uintptr_t)ptr;
    SIM_HIP_START();
    if (!ptr || !bytes || offset || flags || addr % SIM_GRANULE || bytes % SIM_VIRTUAL_PAGE)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_virtual_lock);
    range *r = range_of(addr, bytes);
    const bool ok = r && sim_is_physical(memory) && bytes <= memory->bytes;
    return leave(ok ? map(r, addr, bytes, memory) : hipErrorInvalidValue);
}

/** Takes the memory away, once all devices have done what was queued. */
hipError_t hipMemUnmap(void *ptr, size_t bytes) {
    SIM_HIP_START();
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        sim_hip_drain(&sim_hip.devices[i]);
    pthread_mutex_lock(&sim_virtual_lock);
    range *r = bytes ? range_of((uintptr_t)ptr, bytes) : nullptr;
    if (!r || !is_covered(r, (uintptr_t)ptr, bytes))
        return leave(hipErrorInvalidValue);
    sim_memory_stop(sim_hip.memory);
    hide(r);
    unmap(r, (uintptr_t)ptr, bytes);
    const bool ok = show(r);
    sim_memory_go(sim_hip.memory);
    return leave(ok ? hipSuccess : hipErrorOutOfMemory);
}

static bool are_good(const hipMemAccessDesc *list, size_t count) {
    bool ok = list && count;
    for (size_t i = 0; ok && i < count; i++)
        ok = list[i].location.type == LOCATION_DEVICE && sim_hip_device_at(list[i].location.id) &&
             (list[i].flags == ACCESS_NONE || list[i].flags == ACCESS_READ ||
              list[i].flags == ACCESS_ALL);
    return ok;
}

static void set_access(mapping *m, const hipMemAccessDesc *access) {
    const uint32_t bit = 1u << access->location.id;
    m->readers = access->flags ? m->readers | bit : m->readers & ~bit;
    m->writers = access->flags == ACCESS_ALL ? m->writers | bit : m->writers & ~bit;
}

hipError_t hipMemSetAccess(void *ptr, size_t bytes, const hipMemAccessDesc *list, size_t count) {
    SIM_HIP_START();
    if (!bytes || !are_good(list, count))
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_virtual_lock);
    range *r = range_of((uintptr_t)ptr, bytes);
    if (!r || !is_covered(r, (uintptr_t)ptr, bytes))
        return leave(hipErrorInvalidValue);
    sim_memory_stop(sim_hip.memory);
    hide(r);
    for (mapping *m = r->mappings; m; m = m->next)
        for (size_t i = 0; m->base - (uintptr_t)ptr < bytes && i < count; i++)
            set_access(m, &list[i]);
    const bool ok = show(r);
    sim_memory_go(sim_hip.memory);
    return leave(ok ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipMemGetAccess(unsigned long long *flags, const hipMemLocation *location, void *ptr) {
    SIM_HIP_START();
    if (!flags || !location || location->type != LOCATION_DEVICE ||
        !sim_hip_device_at(location->id))
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_virtual_lock);
    const mapping *m = mapping_at(range_of((uintptr_t)ptr, 1), (uintptr_t)ptr);
    const uint32_t bit = 1u << location->id;
    if (m)
        *flags = m->writers & bit ? ACCESS_ALL : m->readers & bit ? ACCESS_READ : ACCESS_NONE;
    return leave(m ? hipSuccess : hipErrorInvalidValue);
}

void sim_virtual_fork_prepare(void) {
    pthread_mutex_lock(&sim_virtual_lock);
}

void sim_virtual_fork_done(void) {
    pthread_mutex_unlock(&sim_virtual_lock);
}

bool sim_virtual_find(uint64_t addr, uint64_t *base, uint64_t *bytes) {
    pthread_mutex_lock(&sim_virtual_lock);
    const mapping *m = mapping_at(range_of(addr, 1), addr);
    if (m) {
        *base = m->base;
        *bytes = m->bytes;
    }
    pthread_mutex_unlock(&sim_virtual_lock);
    return m;
}
