// SPDX-License-Identifier: Apache-2.0
// Which handles the program has: a set of addresses with what each stands for, so that a wrong or
// destroyed handle is an error without its memory being read.
#include "runtime.h"

#include <stdlib.h>

typedef struct entry {
    struct entry *next;
    const void *handle;
    sim_handle_kind kind;
} entry;

enum { NUM_BUCKETS = 1024 };
static entry *buckets[NUM_BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // taken after all others

static entry **bucket_of(const void *handle) {
    constexpr uint64_t GOLDEN = UINT64_C(0x9E3779B97F4A7C15);
    return &buckets[(uint64_t)(uintptr_t)handle * GOLDEN >> 54];
}

/** Returns the place of a handle's entry; of the null at the end of the list if there is none. */
static entry **find(sim_handle_kind kind, const void *handle) {
    entry **at = bucket_of(handle);
    while (*at && ((*at)->handle != handle || (*at)->kind != kind))
        at = &(*at)->next;
    return at;
}

bool sim_handle_add(sim_handle_kind kind, const void *handle) {
    entry *e = calloc(1, sizeof *e);
    if (!e)
        return false;
    *e = (entry){.handle = handle, .kind = kind};
    pthread_mutex_lock(&lock);
    entry **bucket = bucket_of(handle);
    e->next = *bucket;
    *bucket = e;
    pthread_mutex_unlock(&lock);
    return true;
}

bool sim_handle_is(sim_handle_kind kind, const void *handle) {
    pthread_mutex_lock(&lock);
    const bool found = *find(kind, handle);
    pthread_mutex_unlock(&lock);
    return found;
}

bool sim_handle_remove(sim_handle_kind kind, const void *handle) {
    pthread_mutex_lock(&lock);
    entry **at = find(kind, handle), *e = *at;
    if (e)
        *at = e->next;
    pthread_mutex_unlock(&lock);
    free(e);
    return e;
}

void *sim_handle_take(sim_handle_kind kind) {
    void *handle = nullptr;
    for (size_t i = 0; !handle && i < NUM_BUCKETS; i++)
        for (const entry *e = buckets[i]; e && !handle; e = e->next)
            handle = e->kind == kind ? (void *)e->handle : nullptr;
    if (handle)
        sim_handle_remove(kind, handle);
    return handle;
}

void sim_handle_fork_prepare(void) {
    pthread_mutex_lock(&lock);
}

void sim_handle_fork_done(void) {
    pthread_mutex_unlock(&lock);
}
