// SPDX-License-Identifier: Apache-2.0
// What the fuzzer of HIP calls works with: handles of every kind, live, destroyed or of another
// kind; memory; numbers. All are chosen by the input's bytes.
#ifndef FUZZ_HIP_H
#define FUZZ_HIP_H

#include "../../sim/hip/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what the bytes say

/** A part of the input, for one thread. */
typedef struct input {
    const uint8_t *at, *end;
} input;

static thread_local input in;

static inline unsigned take(unsigned below) {
    return in.at < in.end ? *in.at++ % below : 0;
}

/** Takes a number: mostly small, else one that code may get wrong. */
static inline size_t take_count(void) {
    static const size_t wild[] = {4096,     65536,      65537,        INT32_MAX,
                                  1u << 31, UINT32_MAX, SIZE_MAX / 2, SIZE_MAX};
    const unsigned n = take(64);
    return n < 56 ? n % 8 : wild[n - 56];
}

// ---- handles

/** The kinds of handles, each with the call that destroys one. */
typedef enum kind {
    STREAM,
    EVENT,
    MODULE,
    FUNCTION,
    GRAPH,
    NODE,
    EXEC,
    ARRAY,
    POOL,
    OBJECT,
    PROGRAM,
    LINK,
    PHYSICAL,
    MEMORY, // of a device
    PINNED, // of the host
    RANGE,  // of addresses
    LIBRARY,
    KERNEL,
    NUM_KINDS,
} kind;

enum { SLOTS = 8, MAX_LIVE = 4096, HOST_BYTES = 4096 };

static _Atomic(void *) slots[NUM_KINDS][SLOTS];
static _Atomic unsigned num_put[NUM_KINDS];
static alignas(64) uint8_t host[2 * HOST_BYTES]; // the program's own memory

/** The handles that were made and not yet destroyed. */
static struct {
    pthread_mutex_t lock;
    void *list[NUM_KINDS][MAX_LIVE];
    size_t count[NUM_KINDS];
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/** Notes a handle that a call has given: one that the program has to destroy, or another's. */
static inline void put(kind k, void *handle, bool is_owned) {
    slots[k][num_put[k]++ % SLOTS] = handle;
    pthread_mutex_lock(&live.lock);
    if (is_owned && handle) {
        if (live.count[k] == MAX_LIVE)
            abort();
        live.list[k][live.count[k]++] = handle;
    }
    pthread_mutex_unlock(&live.lock);
}

/** Takes a handle from the list of live ones. Returns whether it was there. */
static inline bool end_life(kind k, void *handle) {
    bool found = false;
    pthread_mutex_lock(&live.lock);
    for (size_t i = 0; i < live.count[k] && !found; i++) {
        found = live.list[k][i] == handle;
        if (found)
            live.list[k][i] = live.list[k][--live.count[k]];
    }
    pthread_mutex_unlock(&live.lock);
    return found;
}

/** Notes the handle that a call has written to `out`, if any. Returns the call's error. */
static inline hipError_t made(kind k, const void *out, hipError_t error) {
    void *handle;
    memcpy(&handle, out, sizeof handle);
    if (error == hipSuccess && handle)
        put(k, handle, true);
    return error;
}

/** The same for a handle that stays somebody else's. */
static inline hipError_t shown(kind k, const void *out, hipError_t error) {
    void *handle;
    memcpy(&handle, out, sizeof handle);
    if (error == hipSuccess && handle)
        put(k, handle, false);
    return error;
}

/** Takes a handle: of this kind, live or destroyed; of another; or none at all. */
static inline void *any(kind k) {
    void *const wild[] = {nullptr,      (void *)1, (void *)2, (void *)8,
                          (void *)(-1), host,      host + 1,  (void *)UINT64_C(0x400000000100)};
    const unsigned n = take(256);
    if (n < 208)
        return slots[k][n % SLOTS];
    return n < 232 ? slots[n % NUM_KINDS][take(SLOTS)] : wild[n % 8];
}

// ---- memory

/** Returns whether a pointer is into the program's own memory. */
static inline bool is_own(const void *ptr) {
    return (const uint8_t *)ptr >= host && (const uint8_t *)ptr < host + sizeof host;
}

/** Takes an address to copy from or to, at which HOST_BYTES are the program's if it is a host's. */
static inline void *take_memory(void) {
    const unsigned n = take(20), offset = take(4) * 64;
    const kind k = n < 9 ? MEMORY : n < 12 ? PINNED : RANGE;
    uint8_t *at = n < 15 ? slots[k][n % SLOTS] : n < 19 ? host : nullptr;
    return at && n < 15 && n % 2 ? at + offset : at;
}

/** Takes a size for a call that touches two addresses: small, or more than there can be. */
static inline size_t take_bytes(const void *a, const void *b) {
    const size_t bytes = take_count();
    const bool is_large = bytes > 65537 && bytes < SIZE_MAX / 2;
    return is_large || ((is_own(a) || is_own(b)) && bytes > HOST_BYTES / 4) ? HOST_BYTES
                                                                            : bytes * 4;
}

static inline hipMemcpyKind take_direction(void) {
    return (hipMemcpyKind)(take(8) < 6 ? hipMemcpyDefault : take(6));
}

/** Takes where a call's answer goes: to memory, or nowhere. */
static inline void *take_out(void *out) {
    return take(32) ? out : nullptr;
}

#endif
