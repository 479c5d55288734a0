// SPDX-License-Identifier: Apache-2.0
// The disk cache of JIT-compiled kernels: where it is, what it holds, whether that is sound.
#ifndef QUERN_CACHE_H
#define QUERN_CACHE_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One entry. Strings live as long as the callback. */
typedef struct qn_cache_entry {
    const char *name;      /**< file name: kernel, target and key */
    const char *problem;   /**< why the entry would be rebuilt, not loaded; null: it is sound */
    int64_t bytes;         /**< size on disk */
    int64_t modified_unix; /**< when it was written, seconds since 1970 */
} qn_cache_entry;

typedef void (*qn_cache_fn)(void *context, const qn_cache_entry *entry);

/** The cache's folder (QUERN_CACHE_DIR, else the user's cache folder), which need not exist yet.
 *  Errors: QN_E_INVALID (room too small), QN_E_NOT_FOUND (no QUERN_CACHE_DIR and no home). */
QN_API qn_status qn_cache_path(char *buf, size_t room);
/** Reads every entry, checks its checksum, owner and mode, and reports it, sorted by name. A folder
 * that does not exist holds no entries. Errors: QN_E_IO (the folder cannot be read, or others can
 * write to it). */
QN_API qn_status qn_cache_list(qn_cache_fn each, void *context);
/** Removes every entry (and what an interrupted process left); other files in the folder are left
 * alone. *removed is their number. Processes that use the cache meanwhile build anew. Errors:
 * QN_E_IO. */
QN_API qn_status qn_cache_clear(int64_t *removed);

#ifdef __cplusplus
}
#endif
#endif
