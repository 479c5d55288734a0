// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of norms: a row's place, its runs of 8 elements, weights, FP8.
#ifndef QK_NORM_ROW_GPU_H
#define QK_NORM_ROW_GPU_H

#include "elementary.h"
#include "elements.h"
#include "norm_abi.h"
#include "reduce.h"
#include "scale.h"

/** One row of the problem, and this lane's part of it. */
typedef struct row {
    const void *x;
    void *out, *residual;
    const void *weight, *beta, *gate;
    float *scale;
    uint32_t index, lane, lanes, runs; // index: of the row; lanes, runs: how many lanes and runs of
                                       // 8 elements it has
} row;

QD_INLINE const void *row_of(int dtype, const void *p, int64_t offset) {
    return p ? qd_at(dtype, p, offset) : nullptr;
}

QD_INLINE row find_row(int dtype, const qk_norm_args *g, uint32_t r, bool is_small) {
    // The branch avoids a division, which takes longer than all else before the first load.
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
        .scale = g->scale + (int64_t)batch * g->scale_batch + (int64_t)i * g->scale_row,
        .index = r,
        .lane = is_small ? qd_thread() % QD_ROW : qd_thread(),
        .lanes = is_small ? QD_ROW : __gpu_num_threads(0),
        .runs = qd_div_up(g->h, QD_RUN),
    };
}

/** Returns how many elements of run c exist. */
QD_INLINE uint32_t run_length(const qk_norm_args *g, uint32_t c) {
    return c * QD_RUN < g->h ? qd_min(g->h - c * QD_RUN, QD_RUN) : 0;
}

/** Loads run c of an array; `whole`: h is a multiple of 8 and everything is aligned. */
QD_INLINE qd_f32x8 load_run(int dtype, bool whole, const qk_norm_args *g, const void *p,
                            uint32_t c) {
    const uint32_t n = run_length(g, c);
    if (!whole)
        return qd_load_part(dtype, qd_at(dtype, p, (int64_t)c * QD_RUN), n);
    return n ? qd_load8(dtype, qd_at(dtype, p, (int64_t)c * QD_RUN)) : (qd_f32x8)0;
}

QD_INLINE qd_f32x8 load_weights(int dtype, bool whole, const qk_norm_args *g, const void *p,
                                uint32_t c) {
    return g->weight_dtype == QD_F32 ? load_run(QD_F32, whole, g, p, c)
                                     : load_run(dtype, whole, g, p, c);
}

/** Returns t unrounded, which is then normalised. */
QD_INLINE qd_f32x8 load_t(int dtype, bool whole, const qk_norm_args *g, const row *r, uint32_t c) {
    qd_f32x8 t = load_run(dtype, whole, g, r->x, c);
    if (r->gate)
        t *= load_weights(dtype, whole, g, r->gate, c);
    if (r->residual)
        t += load_run(dtype, whole, g, r->residual, c);
    return t;
}

QD_INLINE float run_sum(qd_f32x8 v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/** Returns the sum of the squares. */
QD_INLINE float run_squares(qd_f32x8 v) {
    float sum = v[0] * v[0];
    QD_UNROLL for (int i = 1; i < QD_RUN; i++)
        sum = __builtin_fmaf(v[i], v[i], sum);
    return sum;
}

/** Adds the squares of the run's elements less mean, each to a sum of its own. */
QD_INLINE qd_f32x8 add_squares(const qk_norm_args *g, bool whole, qd_f32x8 t, float mean,
                               uint32_t c, qd_f32x8 sums) {
    const uint32_t n = run_length(g, c);
    qd_f32x8 d = t - mean;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        d[i] = (whole ? n > 0 : i < n) ? d[i] : 0;
    return __builtin_elementwise_fma(d, d, sums);
}

/** sum_lanes and the function below give sums and maxima over a row's lanes: 16 lanes (is_small),
 *  or the workgroup. */
QD_INLINE float sum_lanes(bool is_small, qd_shared *shared, float v) {
    return is_small ? qd_row_sum(v) : qd_workgroup_sum(shared, v);
}
QD_INLINE uint32_t max_lanes(bool is_small, qd_shared *shared, uint32_t v) {
    return is_small ? qd_row_max(v) : qd_workgroup_max(shared, v);
}

/** Returns the scale that brings the largest magnitude to the largest number of the FP8 kind. */
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
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < n)
            q[i] = (uint8_t)(codes[i / 4] >> (i % 4 * 8));
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
        r->scale[c / QD_ROW * g->scale_col] = scale;
    store_codes(kind, whole, g, r, c, y * (1.0f / scale));
}

/** Returns what quantising multiplies by: from the given scale, or from the row's largest
 *  result. */
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

/** What a row's sums gave. */
typedef struct moments {
    float factor, mean, inverse; // mean: of the elements times factor
} moments;

/** Returns run c's result; zeros past the row's end. */
QD_INLINE qd_f32x8 result_of(int dtype, bool whole, const qk_norm_args *g, const row *r, uint32_t c,
                             moments s) {
    qd_f32x8 y = (load_t(dtype, whole, g, r, c) * s.factor - s.mean) * s.inverse;
    if (r->weight)
        y *= load_weights(dtype, whole, g, r->weight, c) + g->weight_plus;
    if (r->beta)
        y += load_weights(dtype, whole, g, r->beta, c);
    if (g->rounds_first)
        y = qd_rounded(dtype, y);
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        y[i] = i < run_length(g, c) ? y[i] : 0;
    return y;
}

/** Walks runs first, first + step, …. Waves stay together, past the row's end too, because their
 *  lanes exchange values. */
#define EACH_READ(c, first, step)                                                                  \
    QD_NO_UNROLL for (uint32_t c = (first); c - (first) % QD_WAVE < r->runs; c += (step))

/** Reads a row and writes its results and its residual; `inverse_scale` is used where one scale is
 *  known. out may be x, and the residual is replaced, so both are read of each run before either is
 *  written. */
QD_INLINE void write_row(int dtype, bool whole, const qk_norm_args *g, const row *r, moments s,
                         float inverse_scale) {
    EACH_READ(c, r->lane, r->lanes) {
        const qd_f32x8 t = load_t(dtype, whole, g, r, c);
        const qd_f32x8 y = result_of(dtype, whole, g, r, c, s);
        if (r->residual)
            store_run(dtype, whole, g, r->residual, c, t);
        if (g->quant == QK_NORM_PLAIN)
            store_run(dtype, whole, g, r->out, c, y);
        else if (g->quant == QK_NORM_PER_GROUP)
            quantize_group((int)g->kind, whole, g, r, c, y);
        else
            store_codes((int)g->kind, whole, g, r, c, y * inverse_scale);
    }
}

/** Computes a row whose squares leave f32's range once more from memory, its elements times a power
 *  of two. Each 16 lanes sum up the whole row in one order, because the row's bits must not depend
 *  on how many lanes it has. */
QD_INLINE void norm_scaled(int dtype, bool whole, const qk_norm_args *g, const row *r,
                           float factor) {
    const uint32_t lane = r->lane % QD_ROW;
    moments s = {.factor = factor};
    float sum = 0;
    uint32_t top = 0;
    qd_f32x8 squares = 0;
    if (g->subtracts_mean) {
        EACH_READ(c, lane, QD_ROW) sum += run_sum(load_t(dtype, whole, g, r, c) * factor);
        s.mean = qd_row_sum(sum) * g->per_h;
    }
    EACH_READ(c, lane, QD_ROW)
    squares = add_squares(g, whole, load_t(dtype, whole, g, r, c) * factor, s.mean, c, squares);
    s.inverse = qd_inverse_root(qd_row_sum(run_sum(squares)) * g->per_h + g->eps * factor * factor);
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_READ(c, lane, QD_ROW)
    top = qd_max(top, qd_run_top(result_of(dtype, whole, g, r, c, s)));
    qd_barrier(); // all lanes have read what is overwritten now
    write_row(dtype, whole, g, r, s,
              g->quant == QK_NORM_PLAIN ? 1.0f : row_scale(g, r, true, nullptr, top));
}

#endif
