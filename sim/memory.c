// SPDX-License-Identifier: Apache-2.0
// The guest's address space: allocations, a page table from guest addresses to them, and reports.
//
// Guest addresses are 47 bits wide. A two-level table has an entry for each page of 64 KiB: the
// allocation that owns the page, or null. Device memory lies in a range of its own, where the host
// maps nothing, so a program that follows a device pointer on the CPU stops there; hipHostMalloc's
// memory keeps its host address. An address is never given out twice before the whole range has
// been used, and the last allocations that were freed stay in the table, so that a late access can
// be named.
#include "memory_inner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_FREED = 1 << 16 }; // freed allocations that are remembered
/** The most host memory of freed allocations that is kept for threads that may still use it. With
 *  more, the thread that frees waits. */
constexpr uint64_t MAX_CONDEMNED = UINT64_C(256) << 20;

sim_region sim_shared_page;

/** Makes the upper entries for a range. Returns false without memory. */
static bool reserve_pages(sim_memory *memory, uint64_t base, uint64_t bytes) {
    for (uint64_t i = base >> LEVEL2_SHIFT; i <= (base + bytes - 1) >> LEVEL2_SHIFT; i++) {
        if (!memory->level1[i]) {
            page_entry *level2 = calloc(LEVEL2_SIZE, sizeof *level2);
            if (!level2)
                return false;
            atomic_store_explicit(&memory->level1[i], level2, memory_order_release);
        }
    }
    return true;
}

static void map_pages(sim_memory *memory, sim_region *region) {
    for (uint64_t addr = region->base; addr < region->base + region->size; addr += PAGE_BYTES)
        atomic_store_explicit(page_at(memory, addr), region, memory_order_release);
}

/** Takes a region out of the table, save pages that a newer region has. */
static void unmap_pages(sim_memory *memory, sim_region *region) {
    for (uint64_t addr = region->base; addr < region->base + region->size; addr += PAGE_BYTES) {
        sim_region *expected = region;
        atomic_compare_exchange_strong(page_at(memory, addr), &expected, nullptr);
    }
}

/** Returns zero-filled host memory. Small blocks come from the heap, so that many of them cost
 *  little, unless `mapped` asks for pages. */
static uint8_t *host_alloc(uint64_t bytes, sim_region_kind kind, uint64_t mapped) {
    if (!mapped && bytes < PAGE_BYTES && !sim_is_shared_kind(kind)) {
        uint8_t *host = aligned_alloc(256, (bytes + 255) & ~UINT64_C(255));
        return host ? memset(host, 0, bytes) : nullptr;
    }
    // Host memory's own address is its guest address, so it takes whole pages, which the table can
    // tell apart.
    const uint64_t whole = round_up(bytes), slack = sim_is_shared_kind(kind) ? PAGE_BYTES : 0;
    uint8_t *host = mmap(nullptr, whole + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED)
        return nullptr;
    const uint64_t head = slack ? round_up((uintptr_t)host) - (uintptr_t)host : 0;
    if (head)
        munmap(host, head);
    if (slack - head)
        munmap(host + head + whole, slack - head);
    return host + head;
}

void sim_memory_host_free(sim_region *region) {
    if (region->is_shared)
        close(region->fd);
    if (region->kind == SIM_REGION_VIRTUAL)
        ; // it is not the region's
    else if (!region->is_shared && !region->mapped && region->size < PAGE_BYTES &&
             !sim_is_shared_kind(region->kind))
        free(region->host);
    else
        munmap(region->host, round_up(region->size));
    region->host = nullptr;
    free(region->written);
    region->written = nullptr;
}

/** Returns a place in the guest's range, with a guard page behind it; 0 if none is left. */
uint64_t sim_memory_place(sim_memory *memory, uint64_t bytes, uint64_t alignment) {
    const uint64_t base = (memory->next + alignment - 1) & ~(alignment - 1);
    const uint64_t span = round_up(bytes) + PAGE_BYTES;
    if (base > GUEST_LAST || span > GUEST_LAST - base)
        return 0;
    memory->next = base + span;
    return base;
}

/** Large places begin at multiples of 2 MiB, as with AMD's driver; device malloc relies on that. */
static uint64_t place(sim_memory *memory, uint64_t bytes) {
    constexpr uint64_t LARGE = UINT64_C(2) << 20;
    return sim_memory_place(memory, bytes, bytes < LARGE ? PAGE_BYTES : LARGE);
}

static bool append(sim_memory *memory, sim_region *region) {
    if (memory->num_regions == memory->cap_regions) {
        const size_t cap = memory->cap_regions ? 2 * memory->cap_regions : 64;
        sim_region **grown = realloc(memory->regions, cap * sizeof *grown);
        if (!grown)
            return false;
        memory->regions = grown;
        memory->cap_regions = cap;
    }
    memory->regions[memory->num_regions++] = region;
    return true;
}

/** Gives region an address and enters it in the table. */
bool sim_memory_install(sim_memory *memory, sim_region *region) {
    if (!region->base)
        region->base = sim_is_shared_kind(region->kind) ? (uintptr_t)region->host
                                                        : place(memory, region->size);
    if (!region->base || !reserve_pages(memory, region->base, region->size) ||
        !append(memory, region)) {
        return false;
    }
    map_pages(memory, region);
    if (region->kind == SIM_REGION_DEVICE)
        memory->used[region->device] += region->size;
    return true;
}

const sim_region *sim_memory_alloc(sim_memory *memory, uint64_t bytes, sim_region_kind kind,
                                   uint32_t device) {
    return sim_memory_alloc_at(memory, 0, bytes, kind, device);
}

const sim_region *sim_memory_alloc_at(sim_memory *memory, uint64_t base, uint64_t bytes,
                                      sim_region_kind kind, uint32_t device) {
    if (bytes == 0 || bytes > GUEST_LAST - GUEST_FIRST)
        return nullptr;
    sim_region *region = calloc(1, sizeof *region);
    if (!region)
        return nullptr;
    *region =
        (sim_region){.base = base, .bytes = bytes, .size = bytes, .kind = kind, .device = device};
    if (kind == SIM_REGION_DEVICE && atomic_load(&memory->keeps_pages))
        region->mapped = round_up(bytes);
    region->host = host_alloc(bytes, kind, region->mapped);
    bool ok = region->host, is_noted = kind == SIM_REGION_DEVICE && memory->notes_writes;
    if (ok && is_noted && !(region->written = sim_written_create(bytes))) {
        sim_memory_host_free(region);
        ok = false;
    }
    if (ok) {
        pthread_mutex_lock(&memory->lock);
        ok = sim_memory_install(memory, region);
        pthread_mutex_unlock(&memory->lock);
        if (!ok)
            sim_memory_host_free(region);
    }
    if (!ok) {
        free(region);
        return nullptr;
    }
    return region;
}

/** Forgets the older half of the freed allocations, once there are very many. */
static void forget_freed(sim_memory *memory) {
    size_t kept = 0, forgotten = 0;
    for (size_t i = 0; i < memory->num_regions; i++) {
        sim_region *region = memory->regions[i];
        if (!region->host && forgotten < MAX_FREED / 2) {
            forgotten++;
            unmap_pages(memory, region);
            free(region);
        } else {
            memory->regions[kept++] = region;
        }
    }
    memory->num_regions = kept;
    memory->num_freed -= forgotten;
}

/** Ends a region for the guest; its host memory stays until reap() frees it. The lock is held. */
static void condemn(sim_memory *memory, sim_region *region) {
    region->bytes = 0;
    region->next = memory->condemned;
    memory->condemned = region;
    memory->condemned_bytes += region->size;
    if (region->kind == SIM_REGION_DEVICE)
        memory->used[region->device] -= region->size;
}

/** Frees the host memory of condemned regions, with `users` held for writing. */
static void give_back(sim_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    for (; memory->condemned; memory->condemned = memory->condemned->next) {
        sim_memory_host_free(memory->condemned);
        memory->condemned_bytes -= memory->condemned->size;
        memory->num_freed++;
    }
    if (memory->num_freed > MAX_FREED)
        forget_freed(memory);
    pthread_mutex_unlock(&memory->lock);
}

/** Frees condemned memory if no thread can be using it. If one may, the last thread that leaves
 *  calls reap() again. */
static void reap(sim_memory *memory) {
    if (memory->condemned_bytes && pthread_rwlock_trywrlock(&memory->users) == 0) {
        give_back(memory);
        pthread_rwlock_unlock(&memory->users);
    }
}

bool sim_memory_retire(sim_memory *memory, uint64_t addr) {
    pthread_mutex_lock(&memory->lock);
    sim_region *region = region_at(memory, addr);
    bool ok =
        region && region->base == addr && region->bytes && region->kind != SIM_REGION_REGISTERED;
    if (ok)
        condemn(memory, region);
    pthread_mutex_unlock(&memory->lock);
    reap(memory);
    return ok;
}

bool sim_memory_free(sim_memory *memory, uint64_t addr) {
    const bool ok = sim_memory_retire(memory, addr);
    if (memory->condemned_bytes > MAX_CONDEMNED) {
        pthread_rwlock_wrlock(&memory->users);
        give_back(memory);
        pthread_rwlock_unlock(&memory->users);
    }
    return ok;
}

void sim_memory_tag(sim_memory *memory, uint64_t addr, uint32_t flags) {
    sim_region *region = region_at(memory, addr);
    if (region)
        region->flags = flags;
}

void sim_memory_tag_code(sim_memory *memory, uint64_t addr, uint64_t start, uint64_t bytes) {
    sim_region *region = region_at(memory, addr);
    if (region) {
        region->code_start = start;
        region->code_bytes = bytes;
    }
}

void sim_memory_free_all(sim_memory *memory, sim_region_kind kind, uint32_t device) {
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < memory->num_regions; i++) {
        sim_region *region = memory->regions[i];
        if (region->bytes && region->kind == kind && region->device == device)
            condemn(memory, region);
    }
    pthread_mutex_unlock(&memory->lock);
    reap(memory);
}

// ---- registered memory

/** Returns whether the guest already sees any byte of a range. The lock is held. */
static bool is_taken(const sim_memory *memory, uint64_t addr, uint64_t bytes) {
    for (const registration *r = atomic_load(&memory->registrations); r; r = r->next)
        if (r->region.base < addr + bytes && addr < r->region.base + r->region.bytes)
            return true;
    for (uint64_t at = addr; at < addr + bytes; at = (at | (PAGE_BYTES - 1)) + 1)
        if (sim_memory_find(memory, at))
            return true;
    return false;
}

/** Returns an unused entry of the list, or a new one. The lock is held. */
static registration *take_registration(sim_memory *memory) {
    registration *r = atomic_load(&memory->registrations);
    while (r && r->region.bytes)
        r = r->next;
    if (!r && (r = calloc(1, sizeof *r))) {
        r->next = atomic_load(&memory->registrations);
        atomic_store(&memory->registrations, r);
    }
    return r;
}

bool sim_memory_register(sim_memory *memory, void *host, uint64_t bytes, uint32_t device,
                         bool *is_known) {
    const uint64_t addr = (uintptr_t)host;
    pthread_rwlock_wrlock(&memory->users);
    pthread_mutex_lock(&memory->lock);
    *is_known = is_taken(memory, addr, bytes);
    registration *r = *is_known ? nullptr : take_registration(memory);
    const bool ok = r && reserve_pages(memory, addr, bytes);
    if (ok) {
        r->region = (sim_region){.base = addr,
                                 .bytes = bytes,
                                 .size = bytes,
                                 .host = host,
                                 .device = device,
                                 .kind = SIM_REGION_REGISTERED};
        for (uint64_t at = addr; at < addr + bytes; at = (at | (PAGE_BYTES - 1)) + 1)
            atomic_store_explicit(page_at(memory, at), &sim_shared_page, memory_order_release);
    }
    pthread_mutex_unlock(&memory->lock);
    pthread_rwlock_unlock(&memory->users);
    return ok;
}

bool sim_memory_unregister(sim_memory *memory, void *host) {
    pthread_rwlock_wrlock(&memory->users);
    pthread_mutex_lock(&memory->lock);
    sim_region *region = registered_at(memory, (uintptr_t)host);
    const bool ok = region && region->base == (uintptr_t)host;
    if (ok)
        region->bytes = 0;
    pthread_mutex_unlock(&memory->lock);
    pthread_rwlock_unlock(&memory->users);
    return ok;
}

// ---- finding

const sim_region *sim_memory_find(const sim_memory *memory, uint64_t addr) {
    const sim_region *region = region_at(memory, addr);
    return region && addr - region->base < region->bytes ? region : nullptr;
}

void *sim_memory_host(const sim_memory *memory, uint64_t addr, uint64_t bytes) {
    const sim_region *region = region_at(memory, addr);
    if (!region)
        return nullptr;
    const uint64_t offset = addr - region->base;
    if (offset >= region->bytes || bytes > region->bytes - offset)
        return nullptr;
    return region->host + offset;
}

void sim_memory_keep_pages(sim_memory *memory, bool on) {
    atomic_store(&memory->keeps_pages, on);
}

void sim_memory_note_writes(sim_memory *memory, bool on) {
    atomic_store(&memory->notes_writes, on);
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < memory->num_regions && !on; i++)
        if (memory->regions[i]->written)
            sim_written_end(memory->regions[i]->written);
    pthread_mutex_unlock(&memory->lock);
}

void sim_memory_wrote(const sim_memory *memory, uint64_t addr, uint64_t bytes) {
    const sim_region *region = sim_memory_find(memory, addr);
    if (region)
        sim_region_note_write(region, addr - region->base, bytes);
}

void sim_memory_copied(const sim_memory *memory, uint64_t to, uint64_t from, uint64_t bytes) {
    const sim_region *there = sim_memory_find(memory, to), *here = sim_memory_find(memory, from);
    if (there)
        sim_region_note_copy(there, to - there->base, here, here ? from - here->base : 0, bytes);
}

void *sim_memory_page_host(const sim_memory *memory, uint64_t addr, uint64_t bytes) {
    const sim_region *region = region_at(memory, addr);
    const uint64_t offset = region ? addr - region->base : 0;
    bool is_there =
        region && region->bytes && offset < region->mapped && bytes <= region->mapped - offset;
    return is_there ? region->host + offset : nullptr;
}

bool sim_memory_is_guest(uint64_t addr) {
    return addr >= GUEST_FIRST && addr < GUEST_LAST;
}

uint64_t sim_memory_used(sim_memory *memory, uint32_t device) {
    pthread_mutex_lock(&memory->lock);
    const uint64_t used = memory->used[device];
    pthread_mutex_unlock(&memory->lock);
    return used;
}

void sim_memory_enter(sim_memory *memory) {
    pthread_rwlock_rdlock(&memory->users);
}

void sim_memory_leave(sim_memory *memory) {
    pthread_rwlock_unlock(&memory->users);
    reap(memory);
}

void sim_memory_fork_prepare(sim_memory *memory) {
    pthread_mutex_lock(&memory->lock);
}

void sim_memory_fork_parent(sim_memory *memory) {
    pthread_mutex_unlock(&memory->lock);
}

void sim_memory_fork_child(sim_memory *memory) {
    pthread_mutex_init(&memory->lock, nullptr);
    pthread_rwlock_init(&memory->users, nullptr);
}

sim_memory *sim_memory_create(void) {
    sim_memory *memory = calloc(1, sizeof *memory);
    if (memory) {
        sim_memory_fork_child(memory);
        memory->next = GUEST_FIRST + PAGE_BYTES;
    }
    return memory;
}

void sim_memory_destroy(sim_memory *memory) {
    if (!memory)
        return;
    for (size_t i = 0; i < memory->num_regions; i++) {
        if (memory->regions[i]->host)
            sim_memory_host_free(memory->regions[i]);
        free(memory->regions[i]);
    }
    for (registration *r = atomic_load(&memory->registrations), *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (size_t i = 0; i < LEVEL1_SIZE; i++)
        free(memory->level1[i]);
    free(memory->regions);
    pthread_mutex_destroy(&memory->lock);
    pthread_rwlock_destroy(&memory->users);
    free(memory);
}
