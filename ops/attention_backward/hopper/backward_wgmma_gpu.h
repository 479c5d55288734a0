// SPDX-License-Identifier: Apache-2.0
// What comes before and after the backward pass's products on Hopper: each row's log-sum-exp and
// delta, and dq from its sums.
//
// An image says QK_D, the largest head dim; with -DQK_F16 tensors are of f16, else of bf16.
#ifndef QK_BACKWARD_WGMMA_GPU_H
#define QK_BACKWARD_WGMMA_GPU_H

#include "../../attention/attention_row_gpu.h"
#include "backward_wgmma_abi.h"
#include "mma/sm90.h"

#ifdef QK_F16
#define IS_F16 true
#define PACK qd_pack_f16
#else
#define IS_F16 false
#define PACK qd_pack_bf16
#endif

enum { QUERIES = QK_BACKWARD_QUERIES(QK_D), KEYS = QK_BACKWARD_KEYS, TEAMS = QK_BACKWARD_TEAMS };
enum { DQ_SUMS = QUERIES * QK_D / (TEAMS * QD_TEAM) }; // a thread's of a block
static_assert(DQ_SUMS == 32);

/** A block of queries of a head. */
typedef struct block {
    qk_attention_request request;
    uint32_t index, head, query; // of the request; the first query
    int64_t number;              // among the blocks of all heads
    bool exists;
} block;

/** Finds a workgroup's block in the kernels before and after. */
QD_INLINE block find_block(const qk_backward_wgmma_args *p, uint32_t id) {
    const qk_attention_args *g = &p->common.common;
    const uint32_t heads = g->num_kv_heads * g->group, rest = id / heads;
    const uint32_t index = rest / p->most_blocks, at = rest % p->most_blocks;
    const qk_attention_request r = qk_attention_get_request(g, index);
    block b = {.request = r, .index = index, .head = id % heads, .query = at * QUERIES};
    b.number = (int64_t)b.head * p->blocks + qk_backward_first_block(p, &r, index, QUERIES) + at;
    b.exists = b.query < (uint32_t)r.qo_len;
    return b;
}

QD_INLINE int64_t query_at(const qk_attention_rows *rows, const block *b, uint32_t query) {
    return b->index * rows->block + ((int64_t)b->request.qo_begin + query) * rows->token +
           b->head * rows->head;
}

// ---- before

enum { LANES = QK_D / QD_RUN, STEP = QK_BACKWARD_END_THREADS / LANES }; // of a row; rows at once

/** Returns 16 bytes of a row; its own last ones, or the last row's, in place of what is outside. */
QD_INLINE qd_f32x8 load_eight(const qk_attention_rows *rows, const block *b, uint32_t row,
                              uint32_t dim) {
    const uint32_t query = qd_min(b->query + row, (uint32_t)b->request.qo_len - 1);
    const uint32_t column = qd_min(qd_thread() % LANES * QD_RUN, dim - QD_RUN);
    return qd_load8(IS_F16 ? QD_F16 : QD_BF16,
                    (const char *)rows->data + 2 * (query_at(rows, b, query) + column));
}

QD_INLINE float dot8(qd_f32x8 a, qd_f32x8 b) {
    float sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        sum = __builtin_fmaf(a[i], b[i], sum);
    return sum;
}

/** Returns a row's base-2 log-sum-exp; where it has no key, infinity, of which weights are zero. */
QD_INLINE float lse_of(const qk_attention_args *g, const block *b, uint32_t query) {
    const qk_attention_rows rows = {g->lse, g->lse_batch, g->lse_token, g->lse_head};
    if (query >= (uint32_t)b->request.qo_len)
        return __builtin_inff();
    const float lse = g->lse[query_at(&rows, b, query)] / g->lse_unit;
    return lse == -__builtin_inff() ? __builtin_inff() : lse;
}

/** Stores a row's <d_o, o>, of which each of its lanes has a part. */
QD_INLINE void put_delta(float *deltas, uint32_t row, uint32_t dim, float part) {
    float sum = qd_thread() % LANES * QD_RUN < dim ? part : 0;
    QD_UNROLL for (uint32_t step = 1; step < LANES; step *= 2)
        sum += qd_as_f32(qd_swap_lanes(qd_as_u32(sum), step));
    if (qd_thread() % LANES == 0)
        deltas[row] = sum;
}

QD_KERNEL(256) qk_backward_begin_wgmma(const qk_backward_wgmma_args p) {
    qd_begin();
    const qk_attention_args *g = &p.common.common;
    const qk_attention_rows o_rows = {g->o, g->o_batch, g->o_token, g->o_head};
    const block b = find_block(&p, qd_block());
    float parts[QUERIES / STEP];
    static_assert(QK_BACKWARD_END_THREADS == 256);
    if (!b.exists)
        return;
    float *const rows = p.rows + b.number * (2 * QUERIES);
    if (qd_thread() == 0)
        p.done[b.number] = 0;
    if (qd_thread() < QUERIES)
        rows[qd_thread()] = lse_of(g, &b, b.query + qd_thread());
    QD_UNROLL for (uint32_t i = 0; i < QUERIES / STEP; i++) {
        const uint32_t row = i * STEP + qd_thread() / LANES;
        parts[i] = dot8(load_eight(&o_rows, &b, row, g->head_dim_vo),
                        load_eight(&p.common.d_o, &b, row, g->head_dim_vo));
    }
    QD_UNROLL for (uint32_t i = 0; i < QUERIES / STEP; i++)
        put_delta(rows + QUERIES, i * STEP + qd_thread() / LANES, g->head_dim_vo, parts[i]);
}

// ---- after

/** Stores two neighbours, which lie at a multiple of their size. */
QD_INLINE void store2(uint32_t dtype, const void *data, int64_t at, float a, float b) {
    char *const to = (char *)data + at * bytes_of(dtype);
    if (dtype == QD_F32)
        *(qd_f32x2 *)to = (qd_f32x2){a, b};
    else
        *(uint32_t *)to = dtype == QD_F16 ? qd_pack_f16(a, b) : qd_pack_bf16(a, b);
}

/** Where a thread's sums of dq lie in a block: the first row; the team's first column. */
QD_INLINE uint32_t dq_row(uint32_t team, uint32_t thread) {
    return (QK_D == 64 ? team * 64 : 0) + thread / 32 * 16 + thread % 32 / 4;
}
QD_INLINE uint32_t dq_column(uint32_t team) {
    return QK_D == 64 ? 0 : team * 64;
}

/** Gives the lane whose index differs in the bit `step` one of two words, and takes its other. */
QD_INLINE void exchange(uint32_t *low, uint32_t *high, uint32_t step) {
    const bool is_upper = qd_lane() & step;
    const uint32_t got = qd_swap_lanes(is_upper ? *low : *high, step);
    *low = is_upper ? got : *low;
    *high = is_upper ? *high : got;
}
/** Exchanges words among four lanes side by side: lane i's word j becomes lane j's word i. */
QD_INLINE void turn(uint32_t v[4]) {
    exchange(&v[0], &v[1], 1);
    exchange(&v[2], &v[3], 1);
    exchange(&v[0], &v[2], 2);
    exchange(&v[1], &v[3], 2);
}

/** Stores 64 columns of a row, of which this thread has two of each eight, as 16 bits: 16 bytes a
 *  lane. */
QD_INLINE void store_row_16(uint32_t dtype, const void *data, int64_t at, uint32_t columns,
                            bool is_in, const float x[16]) {
    QD_UNROLL for (uint32_t half = 0; half < 2; half++) {
        uint32_t v[4];
        QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
            const float *pair = x + 8 * half + 2 * i;
            v[i] = dtype == QD_F16 ? qd_pack_f16(pair[0], pair[1]) : qd_pack_bf16(pair[0], pair[1]);
        }
        turn(v);
        const uint32_t column = 8 * (4 * half + qd_lane() % 4);
        if (is_in && column < columns)
            *(qd_u32x4 *)((char *)data + 2 * (at + column)) = (qd_u32x4){v[0], v[1], v[2], v[3]};
    }
}

/** As store_row_16, in any dtype, a pair at a time. */
QD_INLINE void store_row_pairs(uint32_t dtype, const void *data, int64_t at, uint32_t columns,
                               bool is_in, const float x[16]) {
    const uint32_t own = qd_lane() % 4 * 2;
    QD_UNROLL for (uint32_t i = 0; i < 8; i++)
        if (is_in && 8 * i < columns)
            store2(dtype, data, at + 8 * i + own, x[2 * i], x[2 * i + 1]);
}

/** Returns whether rows of 16 bits begin at multiples of 16 bytes. */
QD_INLINE bool are_wide(const qk_attention_rows *rows, uint32_t dtype) {
    const uint64_t bits = (uint64_t)rows->data / 2 | (uint64_t)rows->block | (uint64_t)rows->token |
                          (uint64_t)rows->head;
    return dtype != QD_F32 && bits % 8 == 0;
}

QD_KERNEL(256) qk_backward_end_wgmma(const qk_backward_wgmma_args p) {
    qd_begin();
    const qk_attention_args *g = &p.common.common;
    const qk_attention_rows *dq = &p.common.dq;
    const block b = find_block(&p, qd_block());
    const uint32_t team = qd_thread() / QD_TEAM, thread = qd_thread() % QD_TEAM;
    const uint32_t first = b.query + dq_row(team, thread), column = dq_column(team);
    const qd_f32x4 *const sums = (const qd_f32x4 *)(p.sums + b.number * (QUERIES * QK_D)) +
                                 team * (DQ_SUMS / 4 * QD_TEAM) + thread;
    if (!b.exists || column >= g->head_dim_qk)
        return;
    float x[2][16]; // of two rows
    QD_UNROLL for (uint32_t i = 0; i < DQ_SUMS / 4; i++) {
        const qd_f32x4 four = sums[i * QD_TEAM] * g->scale;
        QD_UNROLL for (uint32_t j = 0; j < 4; j++)
            x[j / 2][2 * i + j % 2] = four[j];
    }
    const bool is_wide = are_wide(dq, p.common.dtype_dq);
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const int64_t at = query_at(dq, &b, first + 8 * r) + column;
        const bool is_in = first + 8 * r < (uint32_t)b.request.qo_len;
        if (is_wide)
            store_row_16(p.common.dtype_dq, dq->data, at, g->head_dim_qk - column, is_in, x[r]);
        else
            store_row_pairs(p.common.dtype_dq, dq->data, at, g->head_dim_qk - column, is_in, x[r]);
    }
}

#endif
