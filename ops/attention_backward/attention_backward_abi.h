// SPDX-License-Identifier: Apache-2.0
// What the backward pass's kernels share with its host code, on every device: the arguments, and
// which queries see a key.
#ifndef QK_ATTENTION_BACKWARD_ABI_H
#define QK_ATTENTION_BACKWARD_ABI_H

#include "../attention/attention_abi.h"

/** The gradient by the mask: its own sizes, 1 where the mask is repeated, and its strides, 0
 *  there. */
typedef struct qk_mask_gradient {
    void *data; // null: not asked for
    int64_t batch, head, query, key;
    uint32_t batches, heads, queries, keys;
} qk_mask_gradient;

typedef struct qk_backward_args {
    qk_attention_args common;          // of the forward pass, with its o and lse
    qk_attention_rows d_o, dq, dk, dv; // laid out as o, q, k and v
    qk_mask_gradient dmask;
    float *dsinks; // null: not asked for
    float *delta;  // <d_o, o> of each row: qk_backward_delta
    float *dq_sum; // sums of dq, likewise, of head_dim_qk elements; CPU only
    uint32_t dtype_dq, dtype_dk, dtype_dv, dtype_dmask;
    uint32_t block_tokens;   // q's tokens from a request to the next if q is dense, else 0
    uint32_t max_qo, max_kv; // the longest request's queries and keys
    uint32_t is_wide; // rows of q, k, v and d_o: runs of eight elements, all aligned to their size
} qk_backward_args;

/** Returns where a row's delta lies. `token` counts as in q. */
QK_INLINE int64_t qk_backward_delta(const qk_backward_args *b, uint32_t request, int64_t token,
                                    uint32_t head) {
    const int64_t row = (int64_t)request * b->block_tokens + token;
    return row * b->common.num_kv_heads * b->common.group + head;
}

/** Queries begin .. end - 1. */
typedef struct qk_query_range {
    uint32_t begin, end;
} qk_query_range;

QK_INLINE uint32_t qk_backward_clamp(int64_t x, int32_t most) {
    return x < 0 ? 0 : x > most ? (uint32_t)most : (uint32_t)x;
}

/** Returns the queries to which causality and window leave any of the keys first .. last. */
QK_INLINE qk_query_range qk_backward_queries(const qk_attention_args *g,
                                             const qk_attention_request *r, uint32_t first,
                                             uint32_t last) {
    const int64_t level = g->is_top_left ? 0 : r->kv_len - r->qo_len;
    const int64_t begin = g->right == INT32_MAX ? 0 : (int64_t)first - g->right - level;
    const int64_t end = g->left == INT32_MAX ? r->qo_len : (int64_t)last + g->left - level + 1;
    return (qk_query_range){qk_backward_clamp(begin, r->qo_len), qk_backward_clamp(end, r->qo_len)};
}

#endif
