// SPDX-License-Identifier: Apache-2.0
// The disk cache of JIT-built images, as jit.c uses it. docs/runtime.md has the format.
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
    char problem[256]; // why there is none
} qni_cache;

/** Opens the cache's folder, making it if need be. A folder that cannot be trusted or used gives a
 *  cache that holds nothing and stores nothing, with its reason; close it all the same. */
void qni_cache_open(qni_cache *cache);
void qni_cache_close(qni_cache *cache);

/** The file name of an entry: "gemm_any.gfx942.<32 hex digits>.image". */
void qni_cache_name(char *out, size_t room, const char *image, const char *target,
                    qni_cache_key key);

/** The entry's payload (the caller frees it), or false with the reason: absent, damaged, not
 *  ours. */
bool qni_cache_load(qni_cache *cache, const char *name, qni_cache_key key, void **data,
                    size_t *bytes, char *problem, size_t room);
/** Waits until this process alone may build the entry; false if that takes over wait_ms or cannot
 *  be had. The lock goes with the process, however it ends. */
bool qni_cache_lock(qni_cache *cache, qni_cache_key key, int wait_ms);
void qni_cache_unlock(qni_cache *cache);
/** Under the lock: writes the entry beside its name, syncs it, renames it. False with the
 *  reason. */
bool qni_cache_store(qni_cache *cache, const char *name, qni_cache_key key, const void *data,
                     size_t bytes, char *problem, size_t room);

#endif
