// SPDX-License-Identifier: Apache-2.0
// What attention's CPU kernels share: the loop over work items, and what they do to one row at a
// time.
#ifndef QNI_ATTENTION_CPU_H
#define QNI_ATTENTION_CPU_H

#include "../attention.h"
#include "../attention_any_abi.h"

constexpr float QNI_LOG2_E = 0x1.715476p+0f;

typedef void (*qni_attention_item_fn)(const qni_attention_problem *p, const qk_attention_work *work,
                                      uint32_t kv_head);
/** Runs all work items on the CPU's threads and merges what was split. Uniform requests are cut
 *  into tiles of `rows` rows. */
qn_status qni_attention_on_threads(const qni_attention_problem *p, qni_attention_item_fn item,
                                   uint32_t rows);

/** Returns where a row of q begins, or of q's tail. */
static inline int64_t qni_attention_q_offset(const qk_attention_rows *q,
                                             const qni_attention_row *row) {
    return row->index * q->block + ((int64_t)row->request.qo_begin + row->query) * q->token +
           row->head * q->head;
}

/** Returns the factor of <q, k>, for natural logarithms. */
static inline float qni_attention_scale(const qk_attention_args *g, const qni_attention_row *row) {
    return g->scale * (g->q_scales ? g->q_scales[row->head] : 1.0f) *
           (g->k_scales ? g->k_scales[row->head / g->group] : 1.0f);
}

/** Returns ALiBi's slope of a head. */
float qni_attention_slope(const qk_attention_args *g, uint32_t head);
/** Returns what masks add to a score; -infinity hides the key. */
float qni_attention_mask(const qk_attention_args *g, const qni_attention_row *row, uint32_t key);
/** Stores a row of a chunk from the sum of weighted values o, which is overwritten, and the maximum
 *  and sum of the weights 2^(x - max). `row` counts in the request; `chunk` is the chunk's first
 *  key. */
void qni_attention_finish(const qni_attention_problem *p, const qni_attention_row *place,
                          uint32_t row, uint32_t chunk, float max, float sum, float *o);

#endif
