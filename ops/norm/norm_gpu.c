// SPDX-License-Identifier: Apache-2.0
// Every norm of the family in one pass over memory: t = residual + gate * x, its statistics, weights, FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds runs of 8 elements. A row belongs to 16 lanes (_rows: h <= 256) or to a workgroup;
//           run c of the row to lane c % lanes, so that every load is of whole cache lines, and 16
//           neighbouring lanes hold the 128 elements of a group
// Launch    rows of 16 lanes: 256 threads, 16 rows a workgroup; else any multiple of 16 threads up to 1024,
//           as norm_launch.c chooses; a workgroup steps through the rows that are left
// LDS       256 bytes: one value for each 16 lanes
// Edges     kernels _1 .. _4 keep 1 .. 4 runs a lane in registers and need h a multiple of 8 and everything
//           aligned to 16 bytes; _any reads memory again for each pass and takes any h, stride and address
// Source    arXiv:1910.07467 (RMSNorm), arXiv:1607.06450 (LayerNorm), FlashInfer's norm functions
#include "norm_gpu.h"

#include "elements.h"
#include "reduce.h"

enum { QK_MAX_RUNS = 4 }; // that a lane keeps
[[clang::loader_uninitialized]] static QD_LDS uint32_t shared_rows[QD_MAX_ROWS];

/** One row of the problem, and this lane's part of it. */
typedef struct row {
    const void *x;
    void *out, *residual;
    const void *weight, *beta, *gate;
    float *scale;
    uint32_t lane, lanes;
} row;

QD_INLINE const void *row_of(int dtype, const void *p, int64_t offset) {
    return p ? qd_at(dtype, p, offset) : nullptr;
}

QD_INLINE row find_row(int dtype, const qk_norm_args *g, uint32_t r, bool is_small) {
    const int64_t batch = r / g->inner, i = r % g->inner;
    const int w = (int)g->weight_dtype;
    const int64_t out = batch * g->out_batch + i * g->out_row;
    return (row){
        .x = row_of(dtype, g->x, batch * g->x_batch + i * g->x_row),
        .out = g->quant == QK_NORM_PLAIN ? (void *)row_of(dtype, g->out, out)
                                         : (void *)((uint8_t *)g->out + out),
        .residual =
            (void *)row_of(dtype, g->residual, batch * g->residual_batch + i * g->residual_row),
        .weight = row_of(w, g->weight, batch * g->weight_batch),
        .beta = row_of(w, g->beta, batch * g->beta_batch),
        .gate = row_of(w, g->gate, batch * g->gate_batch),
        .scale = g->scale + (int64_t)r * g->scale_row,
        .lane = is_small ? qd_thread() % QD_ROW : qd_thread(),
        .lanes = is_small ? QD_ROW : __gpu_num_threads(0),
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

/** Sum of squares of what lies in the run, less mean. */
QD_INLINE float run_squares(const qk_norm_args *g, bool whole, qd_f32x8 t, float mean, uint32_t c) {
    const uint32_t n = run_length(g, c);
    if (whole)
        return n ? run_sum((t - mean) * (t - mean)) : 0;
    float sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        sum += i < n ? (t[i] - mean) * (t[i] - mean) : 0;
    }
    return sum;
}

QD_INLINE float sum_lanes(bool is_small, float v) {
    return is_small ? qd_row_sum(v) : qd_workgroup_sum(shared_rows, v);
}

/** Bits of the largest magnitude; NaNs do not count. */
QD_INLINE uint32_t run_top(qd_f32x8 y) {
    uint32_t top = 0;
    QD_UNROLL for (int i = 0; i < QD_RUN; i++) {
        const uint32_t bits = qd_as_u32(y[i]) & 0x7FFFFFFF;
        top = qd_max(top, bits <= 0x7F800000 ? bits : 0);
    }
    return top;
}

QD_INLINE float scale_of(const qk_norm_args *g, uint32_t top) {
    const float amax = qd_as_f32(top);
    return (amax > g->scale_eps ? amax : g->scale_eps) / qd_fp8_max((int)g->kind);
}

QD_INLINE void store_codes(bool whole, const qk_norm_args *g, const row *r, uint32_t c,
                           qd_f32x8 y) {
    const uint32_t n = run_length(g, c);
    uint8_t *q = (uint8_t *)r->out + (int64_t)c * QD_RUN;
    const qd_u32x2 codes = qd_encode8((int)g->kind, y);
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

/** Writes the codes of run c. `inverse` scales the whole row; groups of 128, which are 16 lanes, find their own. */
QD_INLINE void quantize_run(bool whole, const qk_norm_args *g, const row *r, uint32_t c, qd_f32x8 y,
                            float inverse) {
    if (g->quant == QK_NORM_PER_GROUP) {
        const float scale = scale_of(g, qd_row_max(run_top(y)));
        inverse = 1.0f / scale;
        if (c % QD_ROW == 0 && run_length(g, c))
            r->scale[c / QD_ROW] = scale;
    }
    store_codes(whole, g, r, c, y * inverse);
}

/** What quantising multiplies by: from the given scale, or from the row's largest result. */
QD_INLINE float row_scale(const qk_norm_args *g, const row *r, bool is_small, uint32_t top) {
    if (g->quant == QK_NORM_STATIC)
        return 1.0f / *g->scale;
    if (g->quant == QK_NORM_PER_GROUP)
        return 1.0f;
    top = is_small ? qd_row_max(top) : qd_workgroup_max(shared_rows, top);
    const float scale = scale_of(g, top);
    if (r->lane == 0)
        *r->scale = scale;
    return 1.0f / scale;
}

/** One over the root of the mean square. */
QD_INLINE float inverse_root(const qk_norm_args *g, bool is_small, float squares) {
    const float variance = sum_lanes(is_small, squares) / (float)g->h;
    return 1.0f / __builtin_sqrtf(variance + g->eps);
}

// ---- rows that stay in registers: N runs a lane, run i of it being run lane + i * lanes of the row

#define RUN(i) (r->lane + (uint32_t)(i) * r->lanes)
#define EACH_RUN(...)                                                                              \
    QD_UNROLL for (int i = 0; i < N; i++) {                                                        \
        __VA_ARGS__                                                                                \
    }

/** Loads t. The loads of all runs stand before the first use: with a branch around each, every load would be
 *  waited for before the next. */
QD_INLINE void load_kept(int dtype, int N, const qk_norm_args *g, const row *r, qd_f32x8 t[]) {
    if (r->gate) {
        EACH_RUN(t[i] = load_t(dtype, true, g, r, RUN(i));)
    } else if (r->residual) {
        EACH_RUN(t[i] = load_run(dtype, true, g, r->x, RUN(i)) +
                        load_run(dtype, true, g, r->residual, RUN(i));)
    } else {
        EACH_RUN(t[i] = load_run(dtype, true, g, r->x, RUN(i));)
    }
}

/** Weights and beta; zeros past the row's end, so that no such value is anybody's largest. */
QD_INLINE void weigh_kept(int dtype, int N, const qk_norm_args *g, const row *r, qd_f32x8 y[]) {
    if (r->weight && g->weight_dtype == QD_F32) {
        EACH_RUN(y[i] *= load_run(QD_F32, true, g, r->weight, RUN(i)) + g->weight_plus;)
    } else if (r->weight) {
        EACH_RUN(y[i] *= load_run(dtype, true, g, r->weight, RUN(i)) + g->weight_plus;)
    }
    if (r->beta && g->weight_dtype == QD_F32) {
        EACH_RUN(y[i] += load_run(QD_F32, true, g, r->beta, RUN(i));)
    } else if (r->beta) {
        EACH_RUN(y[i] += load_run(dtype, true, g, r->beta, RUN(i));)
    }
    EACH_RUN(y[i] = run_length(g, RUN(i)) ? y[i] : 0;)
}

QD_INLINE void quantize_kept(int dtype, int N, bool is_small, const qk_norm_args *g, const row *r,
                             qd_f32x8 y[]) {
    uint32_t top = 0;
    if (g->rounds_first)
        EACH_RUN(y[i] = qd_rounded(dtype, y[i]);)
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_RUN(top = qd_max(top, run_top(y[i]));)
    const float inverse = row_scale(g, r, is_small, top);
    EACH_RUN(quantize_run(true, g, r, RUN(i), y[i], inverse);)
}

QD_INLINE void norm_kept(int dtype, int N, bool is_small, const qk_norm_args *g, const row *r) {
    qd_f32x8 t[QK_MAX_RUNS];
    float mean = 0, sum = 0;
    load_kept(dtype, N, g, r, t);
    if (g->subtracts_mean) {
        EACH_RUN(sum += run_sum(t[i]);)
        mean = sum_lanes(is_small, sum) / (float)g->h;
    }
    sum = 0;
    EACH_RUN(sum += run_squares(g, true, t[i], mean, RUN(i));)
    if (r->residual)
        EACH_RUN(store_run(dtype, true, g, r->residual, RUN(i), t[i]);)
    const float inverse = inverse_root(g, is_small, sum);
    EACH_RUN(t[i] = (t[i] - mean) * inverse;)
    weigh_kept(dtype, N, g, r, t);
    if (g->quant != QK_NORM_PLAIN)
        quantize_kept(dtype, N, is_small, g, r, t);
    else
        EACH_RUN(store_run(dtype, true, g, r->out, RUN(i), t[i]);)
}

// ---- rows of any length, read again for each pass

/** Run c's result; zeros past the row's end. */
QD_INLINE qd_f32x8 result_of(int dtype, const qk_norm_args *g, const row *r, uint32_t c, float mean,
                             float inverse) {
    qd_f32x8 y = (load_t(dtype, false, g, r, c) - mean) * inverse;
    if (r->weight)
        y *= load_weights(dtype, g, r->weight, c) + g->weight_plus;
    if (r->beta)
        y += load_weights(dtype, g, r->beta, c);
    if (g->rounds_first)
        y = qd_rounded(dtype, y);
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        y[i] = i < run_length(g, c) ? y[i] : 0;
    }
    return y;
}

/** Lanes of 16 stay together, past the row's end too, since they exchange values. */
#define EACH_READ(c) for (uint32_t c = r->lane; c - r->lane % QD_ROW < runs; c += r->lanes)

QD_INLINE void norm_read(int dtype, const qk_norm_args *g, const row *r) {
    const uint32_t runs = qd_div_up(g->h, QD_RUN);
    float mean = 0, sum = 0;
    uint32_t top = 0;
    if (g->subtracts_mean) {
        EACH_READ(c) sum += run_sum(load_t(dtype, false, g, r, c));
        mean = sum_lanes(false, sum) / (float)g->h;
    }
    sum = 0;
    EACH_READ(c) sum += run_squares(g, false, load_t(dtype, false, g, r, c), mean, c);
    const float inverse = inverse_root(g, false, sum);
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_READ(c) top = qd_max(top, run_top(result_of(dtype, g, r, c, mean, inverse)));
    const float inverse_scale = g->quant == QK_NORM_PLAIN ? 1.0f : row_scale(g, r, false, top);
    EACH_READ(
        c) { // out may be x, and the residual is replaced: both are read before either is written
        const qd_f32x8 t = load_t(dtype, false, g, r, c);
        const qd_f32x8 y = result_of(dtype, g, r, c, mean, inverse);
        if (r->residual)
            store_run(dtype, false, g, r->residual, c, t);
        if (g->quant == QK_NORM_PLAIN)
            store_run(dtype, false, g, r->out, c, y);
        else
            quantize_run(false, g, r, c, y, inverse_scale);
    }
}

/** A workgroup takes rows block, block + blocks, …; 16 lanes of it one row each where rows are small. */
QD_INLINE void norm(int dtype, int N, bool is_small, const qk_norm_args *g) {
    const uint32_t side_by_side = is_small ? __gpu_num_threads(0) / QD_ROW : 1;
    const uint32_t mine = is_small ? qd_thread() / QD_ROW : 0;
    for (uint32_t at = qd_block() * side_by_side; at < g->rows;
         at += __gpu_num_blocks(0) * side_by_side) {
        if (at + mine >= g->rows)
            continue;
        const row r = find_row(dtype, g, at + mine, is_small);
        if (N)
            norm_kept(dtype, N, is_small, g, &r);
        else
            norm_read(dtype, g, &r);
    }
}

#define QK_NORM(name, dtype)                                                                       \
    QD_KERNEL(256) qk_norm_##name##_rows_1(const qk_norm_args g) {                                 \
        norm(dtype, 1, true, &g);                                                                  \
    }                                                                                              \
    QD_KERNEL(256) qk_norm_##name##_rows_2(const qk_norm_args g) {                                 \
        norm(dtype, 2, true, &g);                                                                  \
    }                                                                                              \
    QD_KERNEL_UP_TO(1024) qk_norm_##name##_1(const qk_norm_args g) {                               \
        norm(dtype, 1, false, &g);                                                                 \
    }                                                                                              \
    QD_KERNEL_UP_TO(1024) qk_norm_##name##_2(const qk_norm_args g) {                               \
        norm(dtype, 2, false, &g);                                                                 \
    }                                                                                              \
    QD_KERNEL_UP_TO(512) qk_norm_##name##_4(const qk_norm_args g) {                                \
        norm(dtype, 4, false, &g);                                                                 \
    }                                                                                              \
    QD_KERNEL_UP_TO(256) qk_norm_##name##_any(const qk_norm_args g) {                              \
        norm(dtype, 0, false, &g);                                                                 \
    }
QK_NORM(f32, QD_F32)
QK_NORM(f16, QD_F16)
QK_NORM(bf16, QD_BF16)
