// SPDX-License-Identifier: Apache-2.0
// What a program sets for an allocation, that each call waits for its copies and fills, as if none
// were asynchronous; and the number by which it knows an allocation from all others, older ones
// too.
#include "../runtime.h"

#include <stdlib.h>

typedef struct note {
    struct note *next;
    uint64_t base;
    unsigned id; // 0: the program has not asked
    bool is_synced;
} note;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // taken after all others
static note *notes;
static atomic_uint num_notes, num_synced; // so that other allocations cost nothing

/** Returns the place of an allocation's note, or of the null at the end. The lock is held. */
static note **find(uint64_t base) {
    note **at = &notes;
    while (*at && (*at)->base != base)
        at = &(*at)->next;
    return at;
}

/** Returns an allocation's note, made if need be; null without memory. The lock is held. */
static note *make(uint64_t base) {
    note **at = find(base);
    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->base = base;
        num_notes++;
    }
    return *at;
}

bool sim_pointer_is_synced(const void *ptr) {
    if (!num_synced)
        return false;
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!region)
        return false;
    pthread_mutex_lock(&lock);
    const note *n = *find(region->base);
    const bool is_synced = n && n->is_synced;
    pthread_mutex_unlock(&lock);
    return is_synced;
}

unsigned sim_pointer_id(const sim_region *region) {
    static unsigned last;
    pthread_mutex_lock(&lock);
    note *n = make(region->base);
    if (n && !n->id)
        n->id = ++last;
    const unsigned id = n ? n->id : 0;
    pthread_mutex_unlock(&lock);
    return id;
}

void sim_pointer_forget(uint64_t base) {
    if (!num_notes)
        return;
    pthread_mutex_lock(&lock);
    note **at = find(base), *n = *at;
    if (n) {
        *at = n->next;
        num_notes--;
        num_synced -= n->is_synced;
    }
    pthread_mutex_unlock(&lock);
    free(n);
}

void sim_pointers_forget_all(void) {
    while (notes)
        sim_pointer_forget(notes->base);
}

void sim_pointer_fork_prepare(void) {
    pthread_mutex_lock(&lock);
}

void sim_pointer_fork_done(void) {
    pthread_mutex_unlock(&lock);
}

hipError_t hipPointerSetAttribute(const void *value, hipPointer_attribute attribute,
                                  hipDeviceptr_t ptr) {
    SIM_HIP_START();
    if (!value || !ptr || attribute != HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return sim_hip_result(hipErrorInvalidValue);
    const unsigned wish = *(const unsigned *)value;
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (wish > 1 || !region)
        return sim_hip_result(wish > 1 ? hipErrorInvalidValue : hipErrorInvalidDevicePointer);
    pthread_mutex_lock(&lock);
    note *n = make(region->base);
    if (n) {
        num_synced += wish - n->is_synced;
        n->is_synced = wish;
    }
    pthread_mutex_unlock(&lock);
    return sim_hip_result(n ? hipSuccess : hipErrorOutOfMemory);
}
