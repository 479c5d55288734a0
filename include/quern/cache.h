// SPDX-License-Identifier: Apache-2.0
// The disk cache of JIT-compiled kernels: where the cache is, which entries it holds, whether the
// entries are sound, and how to fill it ahead.
#ifndef QUERN_CACHE_H
#define QUERN_CACHE_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One entry of the cache. Its strings live as long as the callback runs. */
typedef struct qn_cache_entry {
    const char *name;      /**< file name: kernel, target and key */
    const char *problem;   /**< why the entry would be rebuilt, not loaded; null: it is sound */
    int64_t bytes;         /**< size on disk */
    int64_t modified_unix; /**< when the entry was written, in seconds since 1970 */
} qn_cache_entry;

typedef void (*qn_cache_fn)(void *context, const qn_cache_entry *entry);

/** Writes the path of the cache's folder to buf: QUERN_CACHE_DIR, else a folder in the user's cache
 *  folder. The folder need not exist yet.
 *  Errors: QN_E_INVALID (room too small), QN_E_NOT_FOUND (no QUERN_CACHE_DIR and no home). */
QN_API qn_status qn_cache_path(char *buf, size_t room);
/** Reads every entry, checks its checksum, owner and mode, and calls `each` with it, in the order
 *  of names. A folder that does not exist holds no entries. Errors: QN_E_IO (the folder cannot be
 *  read, or others can write to it). */
QN_API qn_status qn_cache_list(qn_cache_fn each, void *context);
/** Removes every entry, and files that an interrupted process left; other files in the folder stay.
 *  Processes that use the cache meanwhile build their kernels anew.
 *  removed  written: number of entries removed; may be null
 *  Errors:  QN_E_IO. */
QN_API qn_status qn_cache_clear(int64_t *removed);

/** A kernel that qn_cache_fill has loaded. Its strings live as long as the callback runs. */
typedef struct qn_cache_fill_result {
    const char *op;
    const char *kernel; /**< as qn_last_kernel names it */
    const char *error;  /**< why the kernel cannot be had; null: it is ready */
    int64_t ns;         /**< how long that took */
} qn_cache_fill_result;

typedef void (*qn_cache_fill_fn)(void *context, const qn_cache_fill_result *result);

/** Loads every kernel that the device can run, and calls `each` with it. Kernels that are not built
 *  into the library are compiled and go to the cache. On a CUDA device the driver compiles PTX and
 *  keeps the result in a cache of its own (CUDA_CACHE_PATH). First calls of later processes then
 *  compile nothing. A kernel that cannot be had does not stop the others.
 *  op      the kernels of this op alone; null: of all ops
 *  Errors: QN_E_INVALID (null), QN_E_UNSUPPORTED (the CPU), QN_E_NOT_FOUND (no such op), or that of
 *          the first kernel that cannot be had. */
QN_API qn_status qn_cache_fill(qn_device *device, const char *op, qn_cache_fill_fn each,
                               void *context);

#ifdef __cplusplus
}
#endif
#endif
