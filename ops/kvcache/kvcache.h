// SPDX-License-Identifier: Apache-2.0
// What the files of the kvcache family share: the problems of its ops and their definitions.
#ifndef QNI_KVCACHE_H
#define QNI_KVCACHE_H

#include "../shared/elements.h"
#include "kvcache_abi.h"
#include "pages.h"

/** Rows of new tokens and their cache. Strides are in elements. */
typedef struct qni_cache_rows {
    const void *in;
    void *out;
    int64_t in_token, in_head, out_page, out_place, out_head;
    int64_t heads, width;
    const float *scale; // FP8: elements are divided by it; null: bits are copied
} qni_cache_rows;

/** A valid problem of op "kvcache": kvcache.c has checked everything. */
typedef struct qni_kvcache_problem {
    qni_dtype dtype, dtype_out; // equal, or dtype_out is FP8
    int64_t n;
    qni_cache_rows parts[2]; // keys and values
    qk_pages pages;
} qni_kvcache_problem;

/** A valid problem of op "kvcache_positions". */
typedef struct qni_positions_problem {
    int32_t *batch_indices, *positions;
    const int32_t *append_indptr, *seq_lens;
    int64_t n, batches;
} qni_positions_problem;

/** A valid problem of op "kvcache_seq_lens". */
typedef struct qni_seq_lens_problem {
    int32_t *seq_lens;
    const int32_t *kv_indptr, *kv_last_page_len;
    int64_t batches;
    int32_t page_size;
} qni_seq_lens_problem;

/** A valid problem of op "kvcache_gather". Strides are in elements. */
typedef struct qni_gather_problem {
    qni_dtype dtype, dtype_out; // of the cache and of out: equal without scale
    const void *cache;
    void *out;
    int64_t n, width, page, place, out_token;
    const float *scale;  // of all codes
    const float *scales; // of groups of codes; both null: bits are copied
    int64_t scale_page, scale_place;
    qk_pages pages;
} qni_gather_problem;

/** A valid problem of op "kvcache_groups": groups.c has checked everything. */
typedef struct qni_groups_problem {
    qni_dtype dtype, dtype_codes; // of the new tokens: f32, f16 or bf16; an FP8 kind
    qk_groups_args args;          // but for n, width and rope_width, dtype and kind
    int64_t n, width, rope_width;
} qni_groups_problem;

extern const qni_op qni_op_kvcache, qni_op_kvcache_positions, qni_op_kvcache_seq_lens,
    qni_op_kvcache_gather, qni_op_kvcache_groups;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Returns where token t's first element goes; below 0: nowhere. */
static inline int64_t qni_cache_place(const qni_kvcache_problem *p, const qni_cache_rows *r,
                                      int64_t t) {
    const qk_place to = qk_find_place(&p->pages, t);
    return to.page < 0 ? -1 : to.page * r->out_page + to.place * r->out_place;
}

#endif
