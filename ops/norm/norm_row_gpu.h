// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels of norms are made of: a row's place, runs of 8 elements of it, weights, FP8.
#ifndef QK_NORM_ROW_GPU_H
#define QK_NORM_ROW_GPU_H

#include "elementary.h"
#include "elements.h"
#include "norm_gpu.h"
#include "reduce.h"
#include "scale.h"

/** One row of the problem, and this lane's part of it. */
typedef struct row {
    const void *x;
    void *out, *residual;
    const void *weight, *beta, *gate;
    float *scale;
    uint32_t index, lane, lanes, runs; // of the row: its lanes, its runs of 8 elements
} row;

QD_INLINE const void *row_of(int dtype, const void *p, int64_t offset) {
    return p ? qd_at(dtype, p, offset) : nullptr;
}

QD_INLINE row find_row(int dtype, const qk_norm_args *g, uint32_t r, bool is_small) {
    // A division takes longer than all else before the first load.
    const uint32_t batch = r < g->inner ? 0 : r / g->inner, i = r - (int64_t)batch * g->inner;
    const int w = (int)g->weight_dtype;
    const int64_t out = (int64_t)batch * g->out_batch + (int64_t)i * g->out_row;
    return (row){
        .x = row_of(dtype, g->x, (int64_t)batch * g->x_batch + (int64_t)i * g->x_row),
        .out = g->quant == QK_NORM_PLAIN ? (void *)row_of(dtype, g->out, out)
                                         : (void *)((uint8_t *)g->out + out),
        .residual = (void *)row_of(
            dtype, g->residual, (int64_t)batch * g->residual_batch + (int64_t)i * g->residual_row),
        .weight = row_of(w, g->weight, (int64_t)batch * g->weight_batch),
        .beta = row_of(w, g->beta, (int64_t)batch * g->beta_batch),
        .gate = row_of(w, g->gate, (int64_t)batch * g->gate_batch),
        .scale = g->scale + (int64_t)r * g->scale_row,
        .index = r,
        .lane = is_small ? qd_thread() % QD_ROW : qd_thread(),
        .lanes = is_small ? QD_ROW : __gpu_num_threads(0),
        .runs = qd_div_up(g->h, QD_RUN),
    };
}

/** Elements of run c that there are. */
QD_INLINE uint32_t run_length(const qk_norm_args *g, uint32_t c) {
    return c * QD_RUN < g->h ? qd_min(g->h - c * QD_RUN, QD_RUN) : 0;
}

/** Run c of an array; `whole`: h is a multiple of 8 and everything aligned. */
QD_INLINE qd_f32x8 load_run(int dtype, bool whole, const qk_norm_args *g, const void *p,
                            uint32_t c) {
    const uint32_t n = run_length(g, c);
    if (!whole)
        return qd_load_part(dtype, qd_at(dtype, p, (int64_t)c * QD_RUN), n);
    return n ? qd_load8(dtype, qd_at(dtype, p, (int64_t)c * QD_RUN)) : (qd_f32x8)0;
}

QD_INLINE qd_f32x8 load_weights(int dtype, const qk_norm_args *g, const void *p, uint32_t c) {
    return g->weight_dtype == QD_F32 ? load_run(QD_F32, false, g, p, c)
                                     : load_run(dtype, false, g, p, c);
}

/** t, unrounded: what is normalised. */
QD_INLINE qd_f32x8 load_t(int dtype, bool whole, const qk_norm_args *g, const row *r, uint32_t c) {
    qd_f32x8 t = load_run(dtype, whole, g, r->x, c);
    if (r->gate)
        t *= g->weight_dtype == QD_F32 ? load_run(QD_F32, whole, g, r->gate, c)
                                       : load_run(dtype, whole, g, r->gate, c);
    if (r->residual)
        t += load_run(dtype, whole, g, r->residual, c);
    return t;
}

QD_INLINE float run_sum(qd_f32x8 v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/** Sum of the squares. */
QD_INLINE float run_squares(qd_f32x8 v) {
    float sum = v[0] * v[0];
    QD_UNROLL for (int i = 1; i < QD_RUN; i++) {
        sum = __builtin_fmaf(v[i], v[i], sum);
    }
    return sum;
}

/** Adds the squares of the run's elements less mean, each to a sum of its own. */
QD_INLINE qd_f32x8 add_squares(const qk_norm_args *g, bool whole, qd_f32x8 t, float mean,
                               uint32_t c, qd_f32x8 sums) {
    const uint32_t n = run_length(g, c);
    qd_f32x8 d = t - mean;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        d[i] = (whole ? n > 0 : i < n) ? d[i] : 0;
    }
    return __builtin_elementwise_fma(d, d, sums);
}

/** Sums and maxima over a row's lanes: 16 of them (is_small), or the workgroup. */
QD_INLINE float sum_lanes(bool is_small, qd_shared *shared, float v) {
    return is_small ? qd_row_sum(v) : qd_workgroup_sum(shared, v);
}
QD_INLINE uint32_t max_lanes(bool is_small, qd_shared *shared, uint32_t v) {
    return is_small ? qd_row_max(v) : qd_workgroup_max(shared, v);
}

/** The scale that brings the largest magnitude to the kind's. */
QD_INLINE float scale_of(const qk_norm_args *g, float amax) {
    const float scale = amax * g->per_most;
    return scale > g->least_scale ? scale : g->least_scale;
}

QD_INLINE void store_codes(int kind, bool whole, const qk_norm_args *g, const row *r, uint32_t c,
                           qd_f32x8 y) {
    const uint32_t n = run_length(g, c);
    uint8_t *q = (uint8_t *)r->out + (int64_t)c * QD_RUN;
    const qd_u32x2 codes = qd_encode8(kind, y);
    if (whole) {
        if (n)
            *(qd_u32x2 *)q = codes;
        return;
    }
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        if (i < n)
            q[i] = (uint8_t)(codes[i / 4] >> (i % 4 * 8));
    }
}

QD_INLINE void store_run(int dtype, bool whole, const qk_norm_args *g, void *p, uint32_t c,
                         qd_f32x8 v) {
    const uint32_t n = run_length(g, c);
    void *at = (void *)qd_at(dtype, p, (int64_t)c * QD_RUN);
    if (!whole)
        qd_store_part(dtype, at, n, v);
    else if (n)
        qd_store8(dtype, at, v);
}

/** Writes the codes of run c and the scale of its group of 128, which 16 lanes hold. */
QD_INLINE void quantize_group(int kind, bool whole, const qk_norm_args *g, const row *r, uint32_t c,
                              qd_f32x8 y) {
    const float scale = scale_of(g, qd_as_f32(qd_row_max(qd_run_top(y))));
    if (c % QD_ROW == 0 && run_length(g, c))
        r->scale[c / QD_ROW] = scale;
    store_codes(kind, whole, g, r, c, y * (1.0f / scale));
}

/** What quantising multiplies by: from the given scale, or from the row's largest result. */
QD_INLINE float row_scale(const qk_norm_args *g, const row *r, bool is_small, qd_shared *shared,
                          uint32_t top) {
    if (g->quant == QK_NORM_STATIC)
        return 1.0f / *g->scale;
    if (g->quant == QK_NORM_PER_GROUP)
        return 1.0f;
    top = max_lanes(is_small, shared, top);
    const float scale = scale_of(g, qd_as_f32(top));
    if (r->lane == 0)
        *r->scale = scale;
    return 1.0f / scale;
}

/** One over the root of the mean square. */
QD_INLINE float inverse_root(const qk_norm_args *g, bool is_small, qd_shared *shared,
                             float squares) {
    const float variance = sum_lanes(is_small, shared, squares) / (float)g->h;
    return qd_rsqrt(variance + g->eps);
}

#endif
