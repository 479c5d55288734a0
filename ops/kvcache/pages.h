// SPDX-License-Identifier: Apache-2.0
// Paged caches and their index tensors: the functions read and validate them and make what kernels
// take, for every family that writes to a cache.
#ifndef QNI_PAGES_H
#define QNI_PAGES_H

#include "../../runtime/tensor/read.h"
#include "pages_abi.h"

#include <quern/kvcache.h>

/** Where tokens go: slot_mapping, or the other tensors (last_page_len may be null). */
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

/** Reads a cache, which the op writes, for `heads` heads of `width`; heads < 0: an MLA cache. */
qn_status qni_read_cache(const qni_call *call, qni_tensor *cache, const char *name,
                         const DLTensor *t, qn_kv_layout layout, int64_t heads, int64_t width,
                         qni_cache_view *view);

enum { QNI_MAX_PAGE_TENSORS = 5 };
/** Reads index tensors for n tokens into `tensors`. Checks their contents if
 *  qni_validates_indices. */
qn_status qni_read_pages(qn_stream *stream, const qni_call *call, const qni_page_tensors *given,
                         int64_t n, const qni_cache_view *cache,
                         qni_tensor tensors[QNI_MAX_PAGE_TENSORS], qk_pages *pages);

#endif
