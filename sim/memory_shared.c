// SPDX-License-Identifier: Apache-2.0
// Device memory that other processes have too, and ranges of addresses whose memory comes and goes.
#include "memory_inner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/** Moves a region's host memory to a file. Chunks of zeros stay holes. The lock is held. */
static bool move_to_file(sim_region *region) {
    static const uint8_t zeros[4096];
    const int fd = sim_memory_file(region->size);
    uint8_t *host = fd < 0 ? nullptr : sim_memory_map_file(nullptr, fd, round_up(region->size));
    if (!host) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    for (uint64_t at = 0; at < region->size; at += sizeof zeros) {
        const uint64_t left = region->size - at, n = left < sizeof zeros ? left : sizeof zeros;
        if (memcmp(region->host + at, zeros, n) != 0)
            memcpy(host + at, region->host + at, n);
    }
    sim_memory_host_free(region);
    region->host = host;
    region->is_shared = true;
    region->fd = fd;
    return true;
}

int sim_memory_share(sim_memory *memory, uint64_t addr) {
    pthread_rwlock_wrlock(&memory->users);
    pthread_mutex_lock(&memory->lock);
    sim_region *region = region_at(memory, addr);
    const bool is_there =
        region && region->base == addr && region->bytes && region->kind == SIM_REGION_DEVICE;
    const bool ok = is_there && (region->is_shared || move_to_file(region));
    const int fd = ok ? region->fd : -1;
    pthread_mutex_unlock(&memory->lock);
    pthread_rwlock_unlock(&memory->users);
    return fd;
}

/** Enters a region whose host memory is there; `base` is 0 if it has no address yet. Returns null,
 *  with the host memory as it was, without memory. */
static const sim_region *enter_region(sim_memory *memory, const sim_region *like) {
    sim_region *region = calloc(1, sizeof *region);
    if (!region)
        return nullptr;
    *region = *like;
    pthread_mutex_lock(&memory->lock);
    const bool ok = sim_memory_install(memory, region);
    pthread_mutex_unlock(&memory->lock);
    if (!ok)
        free(region);
    return ok ? region : nullptr;
}

const sim_region *sim_memory_open(sim_memory *memory, int fd, uint64_t bytes, uint32_t device) {
    void *host = sim_memory_map_file(nullptr, fd, round_up(bytes));
    const sim_region like = {.bytes = bytes,
                             .size = bytes,
                             .host = host,
                             .is_shared = true,
                             .fd = fd,
                             .kind = SIM_REGION_IMPORTED,
                             .device = device};
    const sim_region *region = host ? enter_region(memory, &like) : nullptr;
    if (host && !region)
        munmap(host, round_up(bytes));
    return region;
}

uint64_t sim_memory_reserve(sim_memory *memory, uint64_t bytes, uint64_t alignment) {
    pthread_mutex_lock(&memory->lock);
    const uint64_t base = sim_memory_place(memory, bytes, alignment);
    pthread_mutex_unlock(&memory->lock);
    return base;
}

void sim_memory_stop(sim_memory *memory) {
    pthread_rwlock_wrlock(&memory->users);
}

void sim_memory_go(sim_memory *memory) {
    pthread_rwlock_unlock(&memory->users);
}

bool sim_memory_show(sim_memory *memory, uint64_t base, uint64_t bytes, void *host,
                     uint32_t device) {
    return enter_region(memory, &(sim_region){.base = base,
                                              .bytes = bytes,
                                              .size = bytes,
                                              .host = host,
                                              .kind = SIM_REGION_VIRTUAL,
                                              .device = device});
}

void sim_memory_count(sim_memory *memory, uint32_t device, int64_t bytes) {
    pthread_mutex_lock(&memory->lock);
    memory->used[device] += (uint64_t)bytes;
    pthread_mutex_unlock(&memory->lock);
}
