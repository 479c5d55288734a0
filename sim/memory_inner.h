// SPDX-License-Identifier: Apache-2.0
// What the files of the guest's address space share: its tables and locks.
#ifndef SIM_MEMORY_INNER_H
#define SIM_MEMORY_INNER_H

#include "memory.h"
#include "options.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    PAGE_SHIFT = 16,
    LEVEL2_SHIFT = 32, // an upper entry covers 4 GiB
    LEVEL1_SIZE = 1 << (47 - LEVEL2_SHIFT),
    LEVEL2_SIZE = 1 << (LEVEL2_SHIFT - PAGE_SHIFT),
};
constexpr uint64_t PAGE_BYTES = UINT64_C(1) << PAGE_SHIFT;
constexpr uint64_t GUEST_FIRST = UINT64_C(0x400000000000);
constexpr uint64_t GUEST_LAST = UINT64_C(0x500000000000);

typedef _Atomic(sim_region *) page_entry;
struct registration;

struct sim_memory {
    _Atomic(page_entry *) level1[LEVEL1_SIZE];
    pthread_mutex_t lock;   // of everything below
    pthread_rwlock_t users; // held for reading while host addresses are in use
    uint64_t next;          // where the next device allocation goes
    uint64_t used[SIM_MAX_DEVICES];
    _Atomic(struct registration *) registrations; // never taken out of the list
    sim_region **regions;                         // live and remembered regions, in order of
                                                  // allocation
    size_t num_regions, cap_regions, num_freed;
    atomic_bool keeps_pages;  // device memory is made of pages, as host memory is
    atomic_bool notes_writes; // writes to device memory are noted
    sim_region *condemned;    // freed regions that still have their host memory
    _Atomic uint64_t condemned_bytes;
};

static inline page_entry *page_at(const sim_memory *memory, uint64_t addr) {
    if (addr >> 47)
        return nullptr;
    page_entry *level2 =
        atomic_load_explicit(&memory->level1[addr >> LEVEL2_SHIFT], memory_order_acquire);
    return level2 ? &level2[addr >> PAGE_SHIFT & (LEVEL2_SIZE - 1)] : nullptr;
}

/** Stands in the table for pages with registered memory, which begins and ends anywhere in a
 *  page. */
extern sim_region sim_shared_page;

typedef struct registration {
    sim_region region; // bytes 0: free to be used again
    struct registration *next;
} registration;

static inline sim_region *registered_at(const sim_memory *memory, uint64_t addr) {
    for (registration *r = atomic_load(&memory->registrations); r; r = r->next)
        if (addr - r->region.base < r->region.bytes)
            return &r->region;
    return nullptr;
}

static inline sim_region *region_at(const sim_memory *memory, uint64_t addr) {
    page_entry *page = page_at(memory, addr);
    sim_region *region = page ? atomic_load_explicit(page, memory_order_acquire) : nullptr;
    return region == &sim_shared_page ? registered_at(memory, addr) : region;
}

static inline uint64_t round_up(uint64_t bytes) {
    return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/** Gives back a region's host memory. */
void sim_memory_host_free(sim_region *region);
/** Returns a place in the guest's range, with a guard page behind it; 0 if none is left. The lock
 *  is held. */
uint64_t sim_memory_place(sim_memory *memory, uint64_t bytes, uint64_t alignment);
/** Gives a region an address, if it has none, and enters it in the table. The lock is held. */
bool sim_memory_install(sim_memory *memory, sim_region *region);

#endif
