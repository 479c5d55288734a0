// SPDX-License-Identifier: Apache-2.0
// Paged caches and their index tensors: checked, validated, turned into what kernels take. For
// every family that writes to a cache.
#ifndef QNI_PAGES_H
#define QNI_PAGES_H

#include "../../runtime/runtime.h"
#include "pages_abi.h"

#include <quern/kvcache.h>

/** Where tokens go: slot_mapping, or the others (last_page_len may be null). */
typedef struct qni_page_tensors {
    const DLTensor *slot_mapping;
    const DLTensor *batch_indices, *positions, *kv_indices, *kv_indptr, *kv_last_page_len;
} qni_page_tensors;

/** A cache tensor, in elements. */
typedef struct qni_cache_view {
    void *data;
    int64_t page, place, head; // strides
    int64_t pages, page_size;
} qni_cache_view;

/** Checks a cache for `heads` heads of `width`; heads < 0: an MLA cache. */
qn_status qni_check_cache(const qn_stream *stream, const char *op, const char *name,
                          const DLTensor *t, qn_kv_layout layout, int64_t heads, int64_t width,
                          qni_cache_view *view);
/** Checks index tensors for n tokens; where qni_validates_indices, their contents too. */
qn_status qni_check_pages(qn_stream *stream, const char *op, const qni_page_tensors *t, int64_t n,
                          const qni_cache_view *cache, qk_pages *pages);

#endif
