// SPDX-License-Identifier: Apache-2.0
// Every norm of the family in one pass over memory: t = residual + gate * x, its statistics, weights, FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds N runs of 8 elements in registers. A row belongs to 16 lanes (_rows: h <= 128) or to a
//           workgroup; run c of the row to lane c % lanes, so that every load is of whole cache lines, and 16
//           neighbouring lanes hold the 128 elements of a group
// Launch    _rows: 256 threads, 16 rows a workgroup; else whole waves, up to 1024 threads (_1) or 512 (_4), as
//           norm_launch.c chooses; a workgroup steps through the rows that are left
// LDS       512 bytes: sums of 16 lanes, twice
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else norm_any_gpu.c
// Memory    while a row is summed up and written, the loads of the workgroup's next one are under way, so memory is
//           always busy. What is read as it is stays in its 16 bits, for half the registers; weights that all rows
//           share are loaded once
// Source    arXiv:1910.07467 (RMSNorm), arXiv:1607.06450 (LayerNorm), FlashInfer's norm functions
#include "norm_row_gpu.h"

enum { MAX_RUNS = 4 };
QD_SHARED(lds);

/** Compile-time facts of a kernel. */
typedef struct mode {
    int dtype, runs;
    bool is_small; // 16 lanes a row
    bool is_sum;   // there may be a residual and a gate
    bool is_quant; // out may be FP8
    bool is_layer; // LayerNorm
} mode;

/** A lane's part of a row: t, as it was loaded or as the sum that it is; of the row to come; of the weights. */
typedef struct kept {
    qd_u32x4 raw[MAX_RUNS], next[MAX_RUNS], weight[MAX_RUNS];
    qd_f32x8 sum[MAX_RUNS];
} kept;

#define RUN(i) (r->lane + (uint32_t)(i) * r->lanes)
#define EACH_RUN QD_UNROLL for (int i = 0; i < m.runs; i++)

QD_INLINE bool is_raw(mode m) {
    return !m.is_sum && m.dtype != QD_F32;
}

QD_INLINE qd_f32x8 t_of(mode m, const kept *k, int i) {
    return is_raw(m) ? qd_from_16(m.dtype, k->raw[i]) : k->sum[i];
}

QD_INLINE qd_u32x4 load_raw(const qk_norm_args *g, const void *p, uint32_t c) {
    return run_length(g, c) ? qd_stream_load4((const qd_u32x4 *)p + c) : (qd_u32x4)0;
}

/** The loads of a row that stays as it is. Nothing waits for them here: they are under way while the row before is
 *  summed up and written. */
QD_INLINE void load_next(mode m, const qk_norm_args *g, const row *r, kept *k) {
    if (is_raw(m))
        EACH_RUN k->next[i] = load_raw(g, r->x, RUN(i));
}

/** Loads a row of sums, or of f32. */
QD_INLINE void load_kept(mode m, const qk_norm_args *g, const row *r, kept *k) {
    if (m.is_sum && r->gate) {
        EACH_RUN k->sum[i] = load_t(m.dtype, true, g, r, RUN(i));
    } else if (m.is_sum && r->residual) {
        // All loads before the first use: no branch may stand between.
        EACH_RUN k->sum[i] = load_run(m.dtype, true, g, r->x, RUN(i)) +
                             load_run(m.dtype, true, g, r->residual, RUN(i));
    } else {
        EACH_RUN k->sum[i] = load_run(m.dtype, true, g, r->x, RUN(i));
    }
}

/** Whether weights have x's 16 bits, and are loaded ahead. */
QD_INLINE bool has_raw_weights(mode m, const qk_norm_args *g, const row *r) {
    return m.dtype != QD_F32 && r->weight && g->weight_dtype != QD_F32;
}

QD_INLINE void load_raw_weights(mode m, const qk_norm_args *g, const row *r, kept *k) {
    EACH_RUN k->weight[i] =
        run_length(g, RUN(i)) ? ((const qd_u32x4 *)r->weight)[RUN(i)] : (qd_u32x4)0;
}

/** Conversions of raw runs are made again for each use: their results would take twice the registers. */
QD_INLINE void forget_conversions(mode m, kept *k) {
    if (is_raw(m))
        EACH_RUN k->raw[i] = qd_opaque4(k->raw[i]);
}

/** Run i's result by RMSNorm; zeros past the row's end, so that they are nobody's largest. */
QD_INLINE qd_f32x8 result_of(mode m, const qk_norm_args *g, const row *r, const kept *k, int i,
                             float inverse) {
    qd_f32x8 y = t_of(m, k, i) * inverse;
    if (has_raw_weights(m, g, r))
        y *= qd_from_16(m.dtype, k->weight[i]) + g->weight_plus;
    else if (r->weight)
        y *= load_run(QD_F32, true, g, r->weight, RUN(i)) + g->weight_plus;
    return run_length(g, RUN(i)) ? y : 0;
}

QD_INLINE void write_rms(mode m, int kind, const qk_norm_args *g, const row *r, kept *k,
                         qd_shared *shared, float inverse) {
    uint32_t top = 0;
    if (!m.is_quant) {
        EACH_RUN store_run(m.dtype, true, g, r->out, RUN(i), result_of(m, g, r, k, i, inverse));
        return;
    }
    if (g->quant == QK_NORM_PER_GROUP) {
        EACH_RUN quantize_group(kind, true, g, r, RUN(i), result_of(m, g, r, k, i, inverse));
        return;
    }
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_RUN top = qd_max(top, run_top(result_of(m, g, r, k, i, inverse)));
    forget_conversions(m, k);
    const float inverse_scale = row_scale(kind, g, r, m.is_small, shared, top);
    EACH_RUN store_codes(kind, true, g, r, RUN(i),
                         result_of(m, g, r, k, i, inverse) * inverse_scale);
}

/** All runs' results by LayerNorm. Branches stand around loops, not in them: the loads of all runs are then under way
 *  at once. */
QD_INLINE void find_results(mode m, const qk_norm_args *g, const row *r, const kept *k, float mean,
                            float inverse, qd_f32x8 y[MAX_RUNS]) {
    const qd_f32x8 scale = inverse, shift = -mean * inverse;
    const bool has_f32 = m.dtype == QD_F32 || g->weight_dtype == QD_F32;
    EACH_RUN y[i] = __builtin_elementwise_fma(t_of(m, k, i), scale, shift);
    if (has_raw_weights(m, g, r)) {
        EACH_RUN y[i] *= qd_from_16(m.dtype, k->weight[i]) + g->weight_plus;
    } else if (r->weight) {
        EACH_RUN y[i] *= load_run(QD_F32, true, g, r->weight, RUN(i)) + g->weight_plus;
    }
    if (r->beta && has_f32) {
        EACH_RUN y[i] += load_run(QD_F32, true, g, r->beta, RUN(i));
    } else if (r->beta) {
        EACH_RUN y[i] += load_run(m.dtype, true, g, r->beta, RUN(i));
    }
    EACH_RUN y[i] = run_length(g, RUN(i)) ? y[i] : 0;
}

QD_INLINE void write_layer(mode m, const qk_norm_args *g, const row *r, const kept *k, float mean,
                           float inverse, qd_shared *shared) {
    const int kind = (int)g->kind;
    qd_f32x8 y[MAX_RUNS];
    uint32_t top = 0;
    find_results(m, g, r, k, mean, inverse, y);
    if (!m.is_quant || g->quant == QK_NORM_PLAIN) {
        EACH_RUN store_run(m.dtype, true, g, r->out, RUN(i), y[i]);
        return;
    }
    if (g->rounds_first)
        EACH_RUN y[i] = qd_rounded(m.dtype, y[i]);
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_RUN top = qd_max(top, run_top(y[i]));
    const float inverse_scale = row_scale(kind, g, r, m.is_small, shared, top);
    EACH_RUN {
        if (g->quant == QK_NORM_PER_GROUP)
            quantize_group(kind, true, g, r, RUN(i), y[i]);
        else
            store_codes(kind, true, g, r, RUN(i), y[i] * inverse_scale);
    }
}

QD_INLINE void norm_row(mode m, const qk_norm_args *g, const row *r, kept *k, qd_shared *shared) {
    float mean = 0, sum = 0;
    qd_f32x8 squares = 0;
    if (m.is_layer) {
        EACH_RUN sum += run_sum(t_of(m, k, i));
        mean = sum_lanes(m.is_small, shared, sum) / (float)g->h;
        forget_conversions(m, k);
    }
    EACH_RUN squares = add_squares(g, true, t_of(m, k, i), mean, RUN(i), squares);
    if (m.is_sum && r->residual)
        EACH_RUN store_run(m.dtype, true, g, r->residual, RUN(i), k->sum[i]);
    const float inverse = inverse_root(g, m.is_small, shared, run_sum(squares));
    forget_conversions(m, k);
    if (m.is_layer)
        write_layer(m, g, r, k, mean, inverse, shared);
    else if (g->kind == QD_FP8_USUAL) // a copy of the code that knows the kind
        write_rms(m, QD_FP8_USUAL, g, r, k, shared, inverse);
    else
        write_rms(m, (int)g->kind, g, r, k, shared, inverse);
}

/** A workgroup takes rows block, block + blocks, …; 16 lanes of it one row each where rows are small. Weights that all
 *  rows share are loaded once. */
QD_INLINE void norm(mode m, const qk_norm_args *g) {
    const uint32_t side_by_side = m.is_small ? __gpu_num_threads(0) / QD_ROW : 1;
    const uint32_t step = __gpu_num_blocks(0) * side_by_side;
    uint32_t at = qd_block() * side_by_side + (m.is_small ? qd_thread() / QD_ROW : 0);
    qd_shared shared = {lds, 0};
    if (at >= g->rows)
        return;
    kept k;
    row r = find_row(m.dtype, g, at, m.is_small);
    load_next(m, g, &r, &k);
    if (has_raw_weights(m, g, &r))
        load_raw_weights(m, g, &r, &k);
    while (true) {
        const bool is_last = g->rows - at <= step;
        row next = r;
        EACH_RUN k.raw[i] = k.next[i];
        if (!is_last) {
            next = find_row(m.dtype, g, at + step, m.is_small);
            load_next(m, g, &next, &k);
        }
        if (!is_raw(m))
            load_kept(m, g, &r, &k);
        norm_row(m, g, &r, &k, &shared);
        if (is_last)
            return;
        if (g->weight_batch && has_raw_weights(m, g, &next))
            load_raw_weights(m, g, &next, &k);
        at += step;
        r = next;
    }
}

// RMSNorm: qk_rms[_sum][_quant]_{1,4}_DTYPE, qk_rms_rows_DTYPE; LayerNorm: qk_layer_{1,4}_DTYPE, and qk_layer_full_…
// where there is a residual, a gate or FP8
#define KERNEL(threads, entry, ...)                                                                \
    QD_KERNEL_UP_TO(threads) entry(const qk_norm_args g) {                                         \
        norm((mode){__VA_ARGS__}, &g);                                                             \
    }
#define KERNELS(kind, name, dtype, ...)                                                            \
    KERNEL(1024, qk_##kind##_1_##name, dtype, 1, false, __VA_ARGS__)                               \
    KERNEL(512, qk_##kind##_4_##name, dtype, 4, false, __VA_ARGS__)
#define OF_DTYPE(name, dtype)                                                                      \
    KERNEL(256, qk_rms_rows_##name, dtype, 1, true, false, false, false)                           \
    KERNELS(rms, name, dtype, false, false, false)                                                 \
    KERNELS(rms_sum, name, dtype, true, false, false)                                              \
    KERNELS(rms_quant, name, dtype, false, true, false)                                            \
    KERNELS(rms_sum_quant, name, dtype, true, true, false)                                         \
    KERNELS(layer, name, dtype, false, false, true)                                                \
    KERNELS(layer_full, name, dtype, true, true, true)
OF_DTYPE(f32, QD_F32)
OF_DTYPE(f16, QD_F16)
OF_DTYPE(bf16, QD_BF16)
