// SPDX-License-Identifier: Apache-2.0
// For reports: which allocation, live or freed, an address belongs to or is near.
#include "memory_inner.h"

#include <stdio.h>

/** Returns how far addr is from a region; 0 inside the region. */
static uint64_t distance(const sim_region *region, uint64_t addr) {
    if (addr < region->base)
        return region->base - addr;
    const uint64_t offset = addr - region->base;
    return offset < region->size ? 0 : offset - region->size + 1;
}

/** Returns which of two regions addr is nearer to, the live one if addr is as near to both; `best`
 *  may be null. */
static const sim_region *nearer(const sim_region *best, const sim_region *region, uint64_t addr) {
    const uint64_t far = distance(region, addr);
    const bool wins = far <= PAGE_BYTES && (!best || far < distance(best, addr) ||
                                            (far == distance(best, addr) && region->bytes));
    return wins ? region : best;
}

/** Returns the nearest region within a page of addr. */
static const sim_region *nearest(const sim_memory *memory, uint64_t addr) {
    const sim_region *best = nullptr;
    for (size_t i = 0; i < memory->num_regions; i++)
        best = nearer(best, memory->regions[i], addr);
    for (const registration *r = atomic_load(&memory->registrations); r; r = r->next)
        best = nearer(best, &r->region, addr);
    return best;
}

bool sim_memory_nearest(sim_memory *memory, uint64_t addr, sim_region *out) {
    pthread_mutex_lock(&memory->lock);
    const sim_region *region = nearest(memory, addr);
    *out = region ? *region : (sim_region){};
    pthread_mutex_unlock(&memory->lock);
    return region;
}

static bool is_freed_part(const sim_region *region, uint64_t addr) {
    return !region->bytes && addr - region->base < region->size;
}

bool sim_memory_was_freed(const sim_memory *memory, uint64_t addr) {
    const sim_region *region = region_at(memory, addr);
    if (region)
        return is_freed_part(region, addr);
    for (const registration *r = atomic_load(&memory->registrations); r; r = r->next)
        if (is_freed_part(&r->region, addr))
            return true;
    return false;
}

void sim_region_describe(const sim_region *region, uint64_t addr, uint64_t bytes, char *text,
                         size_t text_bytes) {
    static const char *const kinds[] = {"allocation",
                                        "host allocation",
                                        "code object",
                                        "kernel argument segment",
                                        "managed allocation",
                                        "registered host range",
                                        "allocation of another process",
                                        "mapped part of a virtual range"};
    const char *freed = region->bytes ? "" : "freed ", *kind = kinds[region->kind];
    unsigned long long base = region->base, size = region->size, offset = addr - region->base;
    if (!size) {
        snprintf(text, text_bytes, "no allocation is near");
    } else if (addr < region->base) {
        snprintf(text, text_bytes, "%llu bytes before a %llu-byte %s%s at 0x%llx",
                 (unsigned long long)(region->base - addr), size, freed, kind, base);
    } else if (offset >= size) {
        snprintf(text, text_bytes, "%llu bytes past the end of a %llu-byte %s%s at 0x%llx",
                 offset - size, size, freed, kind, base);
    } else if (!region->bytes) {
        snprintf(text, text_bytes, "%llu bytes into a %llu-byte %s at 0x%llx that was freed",
                 offset, size, kind, base);
    } else if (offset + bytes <= size) {
        snprintf(text, text_bytes, "%llu bytes into a %llu-byte %s at 0x%llx", offset, size, kind,
                 base);
    } else {
        snprintf(text, text_bytes,
                 "the last %llu of its bytes are past the end of a %llu-byte %s at 0x%llx",
                 (unsigned long long)(offset + bytes - size), size, kind, base);
    }
}
