// SPDX-License-Identifier: Apache-2.0
// The disk cache of JIT-built images, as jit.c uses it. docs/runtime.md describes the format.
#ifndef QNI_CACHE_H
#define QNI_CACHE_H

#include "../runtime.h"

/** The hash of everything that can change an image. */
typedef struct qni_cache_key {
    uint64_t low, high;
} qni_cache_key;

typedef struct qni_cache {
    int folder;        // -1: there is no usable cache
    int lock;          // -1: no lock is held
    char problem[256]; // why there is no usable cache
} qni_cache;

/** Opens the cache's folder; makes the folder if need be. If the folder cannot be trusted or used,
 *  the cache holds nothing and stores nothing, and `problem` says why; it needs a close all the
 *  same. */
void qni_cache_open(qni_cache *cache);
void qni_cache_close(qni_cache *cache);

/** Writes the file name of an entry: "gemm_any.gfx942.<32 hex digits>.image". */
void qni_cache_name(char *out, size_t room, const char *image, const char *target,
                    qni_cache_key key);

/** Reads an entry's payload, which the caller frees. Returns false if the entry is absent, damaged
 *  or another user's, and writes the reason to `problem`. */
bool qni_cache_load(qni_cache *cache, const char *name, qni_cache_key key, void **data,
                    size_t *bytes, char *problem, size_t room);
/** Waits for the entry's lock, with which this process alone may build the entry. Returns false if
 *  the wait takes over wait_ms or the lock cannot be had. The lock ends with the process, however
 *  that ends. */
bool qni_cache_lock(qni_cache *cache, qni_cache_key key, int wait_ms);
void qni_cache_unlock(qni_cache *cache);
/** Stores an entry, for which the caller holds the lock: writes a file of another name, syncs the
 *  file and renames it. Returns false if that fails, and writes the reason to `problem`. */
bool qni_cache_store(qni_cache *cache, const char *name, qni_cache_key key, const void *data,
                     size_t bytes, char *problem, size_t room);

#endif
