// SPDX-License-Identifier: Apache-2.0
// What attention's GPU kernels do to scores and to finished rows: soft cap, ALiBi, masks, dropout,
// sinks, outputs.
#ifndef QK_ATTENTION_ROW_GPU_H
#define QK_ATTENTION_ROW_GPU_H

#include "../shared/philox_abi.h"
#include "attention_abi.h"
#include "elementary.h"
#include "elements.h"

constexpr float log2_e = 0x1.715476p+0f;

/** Reads a kernel's arguments again, which begin with these. */
QD_INLINE const qk_attention_args *reread(const qk_attention_args *g) {
    return qd_reread(g);
}

/** Returns the bytes of an element of any of qni_dtype's first seven dtypes. */
QD_INLINE uint32_t bytes_of(uint32_t dtype) {
    return dtype == QD_F32 ? 4 : dtype <= QD_BF16 ? 2 : 1;
}
QD_INLINE const char *element_at(uint32_t dtype, const void *p, int64_t i) {
    return (const char *)p + i * bytes_of(dtype);
}

/** Loads one element; for FP8 `dtype` gives the kind. */
QD_INLINE float load_element(uint32_t dtype, const void *p) {
    return dtype <= QD_BF16 ? qd_load1((int)dtype, p)
                            : qd_fp8_decode((int)dtype - 3, *(const uint8_t *)p); // 3: e4m3fn
}

/** A row of a request. */
typedef struct row_place {
    uint32_t request, query, head, kv_head;
    int64_t token; // of q, o and lse, in their batch
} row_place;

QD_INLINE row_place find_row(const qk_attention_args *g, const qk_attention_request *r,
                             uint32_t request, uint32_t kv_head, uint32_t row) {
    const uint32_t query = g->group == 1 ? row : row / g->group;
    return (row_place){.request = request,
                       .query = query,
                       .head = kv_head * g->group + (row - query * g->group),
                       .kv_head = kv_head,
                       .token = (int64_t)r->qo_begin + query};
}

QD_INLINE int64_t q_offset(const qk_attention_args *g, const row_place *row) {
    return row->request * g->q.block + row->token * g->q.token + row->head * g->q.head;
}

/** Returns the factor of <q, k>, for natural logarithms. */
QD_INLINE float score_scale(const qk_attention_args *g, const row_place *row) {
    return g->scale * (g->q_scales ? g->q_scales[row->head] : 1.0f) *
           (g->k_scales ? g->k_scales[row->kv_head] : 1.0f);
}

/** Returns ALiBi's slope of a head. */
QD_INLINE float alibi_slope(const qk_attention_args *g, uint32_t head) {
    const uint32_t heads = g->num_kv_heads * g->group;
    const uint32_t n =
        1u << (31 - (uint32_t)__builtin_clz(heads)); // the largest power of two in it
    return head < n ? qd_exp2(-8.0f * (float)(head + 1) / (float)n)
                    : qd_exp2(-4.0f * (float)(2 * (head + 1 - n) - 1) / (float)n);
}

/** Returns c tanh(x / c), off by 8u c: near 0 the quotient is rounded as a number near 1. */
QD_INLINE float soft_cap(float c, float x) {
    const float e = qd_exp2(x / c * (2 * log2_e));
    return c - 2 * c * qd_rcp(1 + e);
}

/** Returns what the mask tensor adds to a score; -infinity where a boolean mask is false. */
QD_INLINE float mask_value(const qk_attention_args *g, const row_place *row, uint32_t j) {
    const int64_t at = row->request * g->mask_batch + row->head * g->mask_head +
                       row->query * g->mask_query + j * g->mask_key;
    if (g->mask_kind == QK_MASK_BOOL)
        return ((const uint8_t *)g->mask)[at] ? 0 : -__builtin_inff();
    const uint32_t dtype = g->mask_kind - QK_MASK_F32;
    return qd_load1((int)dtype, element_at(dtype, g->mask, at));
}

/** Returns whether dropout keeps the weight of key j, from the words of its four keys. */
QD_INLINE bool keeps(const qk_attention_args *g, const uint32_t words[4], uint32_t j) {
    const uint32_t low = j & 1 ? words[1] : words[0], high = j & 1 ? words[3] : words[2];
    return (int32_t)(j & 2 ? high : low) > g->dropout_threshold;
}

/** Returns a weight after dropout: 0, or the weight over 1 - p. */
QD_INLINE float drop_out(const qk_attention_args *g, const row_place *row, uint32_t j,
                         float weight) {
    uint32_t words[4];
    qk_philox(g->dropout_seed,
              qk_attention_dropout_counter(g, row->request, row->head, row->query, j / 4), words);
    return keeps(g, words, j) ? weight * g->dropout_scale : 0;
}

/** The factor of a row's sum of weighted values, and its base-2 log-sum-exp. `max` and `sum` are
 *  those of the weights 2^(x - max) before sinks. If no key was seen, sum is 0 and max
 *  -infinity. */
typedef struct row_end {
    float factor, lse;
} row_end;

QD_INLINE row_end finish_row(const qk_attention_args *g, const row_place *row, float max,
                             float sum) {
    const float v_scale = g->v_scale * (g->v_scales ? g->v_scales[row->kv_head] : 1.0f);
    float factor = 1;
    if (g->sinks) {
        const float sink = g->sinks[row->head] * log2_e, top = max > sink ? max : sink;
        factor = qd_exp2(max - top);
        sum = sum * factor + qd_exp2(sink - top);
        max = top;
    }
    if (sum == 0)
        return (row_end){0, -__builtin_inff()};
    return (row_end){factor * v_scale / sum, max + qd_log2(sum)};
}

QD_INLINE int64_t o_offset(const qk_attention_args *g, const row_place *row) {
    return row->request * g->o_batch + row->token * g->o_token + row->head * g->o_head;
}
QD_INLINE void store_o(const qk_attention_args *g, int64_t offset, float v) {
    qd_store1((int)g->dtype_o, (void *)element_at(g->dtype_o, g->o, offset), v);
}
QD_INLINE void store_lse(const qk_attention_args *g, const row_place *row, float lse) {
    if (g->lse)
        g->lse[row->request * g->lse_batch + row->token * g->lse_token + row->head * g->lse_head] =
            lse * g->lse_unit;
}

#endif
