// SPDX-License-Identifier: Apache-2.0
// Parts of norm_gpu.c's kernels: what a lane keeps of a row, its loads, and its results.
#ifndef QK_NORM_KEPT_GPU_H
#define QK_NORM_KEPT_GPU_H

#include "narrow.h"
#include "norm_row_gpu.h"
#include "rows.h"

enum { MAX_RUNS = 8 };
/** Whether this is CDNA: its waves have twice the lanes, so that a lane keeps four runs and their
 *  weights, and rows' addresses stay in scalar registers. */
constexpr bool is_cdna = QD_WAVE == 64;

/** What a kernel knows at compile time. */
typedef struct mode {
    int dtype, runs;
    bool is_small; // 16 lanes a row
    bool is_sum;   // the row may have a residual and a gate
    bool is_quant; // out is FP8
    bool is_layer; // LayerNorm
    bool is_loop;  // a workgroup goes from row to row
    /** The kernel finds out at run time which of residual, gate, FP8 and weights there are, and of
     *  which kinds. */
    bool is_any;
} mode;

/** A lane's part of a row: raw holds t as it was loaded, sum holds t as a sum of what was
 *  loaded. */
typedef struct kept {
    qd_u32x4 raw[MAX_RUNS];
    qd_f32x8 sum[MAX_RUNS];
    qd_u32x4 weight[MAX_RUNS]; // CDNA: of RMSNorm, loaded before the barrier
} kept;

#define EACH_RUN QD_UNROLL for (int i = 0; i < m.runs; i++)
/** A lane's runs are summed in parts: run i belongs to part i % parts. */
enum { MAX_PARTS = 2 };
QD_INLINE int parts_of(mode m) {
    return m.runs == MAX_RUNS ? MAX_PARTS : 1;
}
#define EACH_PART QD_UNROLL for (int part = 0; part < parts_of(m); part++)
#define RUN(i) (r->lane + (uint32_t)(i) * r->lanes)
#define IS_IN(i) (RUN(i) < r->runs)
#define AT(i) qd_min(RUN(i), r->runs - 1)

QD_INLINE bool is_raw(mode m) {
    return !m.is_sum && m.dtype != QD_F32;
}

/** Run i of t is used for the row's statistics, for its largest result, and for its results. */
enum { FIRST, TOP, LAST };
QD_INLINE qd_f32x8 t_of(mode m, const kept *k, int i, int use) {
    return !is_raw(m)     ? k->sum[i]
           : use == FIRST ? qd_from_16(m.dtype, k->raw[i])
                          : qd_from_16_again(m.dtype, k->raw[i], use);
}

/** What is known of weights and beta when the code is compiled: they exist, in x's 16 bits; they
 *  exist, in f32; or nothing. In the first two cases FP8 is of the usual kind. */
typedef enum weights { NARROW, WIDE, ANY } weights;

/** Returns what is known of RMSNorm's weights: they have x's dtype, unless the kernel is for any
 *  weights. */
QD_INLINE weights rms_weights(mode m) {
    return m.is_any ? ANY : m.dtype == QD_F32 ? WIDE : NARROW;
}

/** Returns the row for its results, computed again so that it does not stay in registers through
 *  the barrier. */
QD_INLINE row find_again(mode m, const qk_norm_args *g, const row *r) {
    if (is_cdna)
        return *r;
    row again = find_row(m.dtype, g, qd_opaque(r->index), m.is_small);
    again.lane = qd_opaque(again.lane);
    return again;
}

// ---- loads

QD_INLINE qd_f32x8 load_wide(const void *p, uint32_t c) {
    const qd_u32x4 *at = (const qd_u32x4 *)p + 2 * (int64_t)c;
    const qd_f32x4 low = __builtin_bit_cast(qd_f32x4, qd_const_load4(at));
    const qd_f32x4 high = __builtin_bit_cast(qd_f32x4, qd_const_load4(at + 1));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

QD_INLINE qd_f32x8 load_narrow(mode m, const void *p, uint32_t c) {
    return qd_from_16(m.dtype, qd_const_load4((const qd_u32x4 *)p + c));
}

/** Loads run i of weight, beta or gate. */
QD_INLINE qd_f32x8 load_factor(mode m, weights w, const qk_norm_args *g, const row *r,
                               const void *p, int i) {
    const bool is_wide = m.dtype == QD_F32 || w == WIDE || (w == ANY && g->weight_dtype == QD_F32);
    return is_wide ? load_wide(p, AT(i)) : load_narrow(m, p, AT(i));
}

QD_INLINE void load_sums(mode m, const qk_norm_args *g, const row *r, kept *k) {
    qd_u32x4 x[MAX_RUNS], residual[MAX_RUNS];
    EACH_RUN x[i] = qd_stream_load4((const qd_u32x4 *)r->x + AT(i));
    if (r->residual)
        EACH_RUN residual[i] = qd_stream_load4((const qd_u32x4 *)r->residual + AT(i));
    row again = *r; // for the gate, so that places are computed again
    again.lane = qd_opaque(r->lane);
    EACH_RUN k->sum[i] = qd_from_16(m.dtype, x[i]);
    if (r->gate)
        EACH_RUN k->sum[i] *= load_factor(m, ANY, g, &again, r->gate, i);
    if (r->residual)
        EACH_RUN k->sum[i] += qd_from_16(m.dtype, residual[i]);
}

QD_INLINE void load_wide_sums(mode m, const row *r, kept *k) {
    EACH_RUN k->sum[i] = qd_load8(QD_F32, (const qd_f32x8 *)r->x + AT(i));
    if (m.is_sum && r->gate)
        EACH_RUN k->sum[i] *= load_wide(r->gate, AT(i));
    if (m.is_sum && r->residual)
        EACH_RUN k->sum[i] += qd_load8(QD_F32, (const qd_f32x8 *)r->residual + AT(i));
}

/** Stores run i; `w` says of which kind NaNs can be. */
QD_INLINE void put_run(mode m, weights w, const row *r, void *p, int i, qd_f32x8 v) {
    void *at = (void *)qd_at(m.dtype, p, (int64_t)RUN(i) * QD_RUN);
    if (m.dtype == QD_F32) {
        qd_store8_if(IS_IN(i), m.dtype, at, v);
        return;
    }
    const qd_u32x4 bits = w == NARROW ? qd_short_to_16(m.dtype, v) : qd_to_16(m.dtype, v);
    if (is_cdna && !m.is_small)
        qd_row_store4(p, r->runs * (uint32_t)sizeof bits, RUN(i) * (uint32_t)sizeof bits, bits);
    else
        qd_store4_if(IS_IN(i), at, bits);
}

/** Returns whether the weights come with the row, and not after the barrier. */
QD_INLINE bool loads_early(mode m) {
    return is_cdna && !m.is_small && !m.is_layer && rms_weights(m) == NARROW;
}

QD_INLINE void load_kept(mode m, const qk_norm_args *g, const row *r, kept *k) {
    if (m.dtype == QD_F32)
        load_wide_sums(m, r, k);
    else if (m.is_sum)
        load_sums(m, g, r, k);
    else
        EACH_RUN k->raw[i] = qd_stream_load4((const qd_u32x4 *)r->x + AT(i));
    if (loads_early(m))
        EACH_RUN k->weight[i] = qd_const_load4((const qd_u32x4 *)r->weight + AT(i));
    if (m.is_layer && is_raw(m)) // each part begins with its first run
        EACH_RUN EACH_PART k->raw[part].x = qd_after(k->raw[i].x, k->raw[part].x);
}

/** Returns y times the weights of run i. */
QD_INLINE qd_f32x8 weigh(mode m, weights w, const qk_norm_args *g, const row *r, const kept *k,
                         int i, qd_f32x8 y) {
    if (w == ANY && !r->weight)
        return y;
    if (loads_early(m))
        return y * (qd_from_16(m.dtype, k->weight[i]) + g->weight_plus);
    return y * (load_factor(m, w, g, r, r->weight, i) + g->weight_plus);
}

// ---- results

/** Returns v, which is equal in all lanes, in a scalar register if the target has such. */
QD_INLINE float uniform(float v) {
    return qd_as_f32(qd_uniform(qd_as_u32(v)));
}

/** Stores t as the residual, once all lanes have read the residual; lanes past the row's end have
 *  read its last run. */
QD_INLINE void put_residual(mode m, const row *r, const kept *k) {
    if (m.is_sum && r->residual)
        EACH_RUN put_run(m, m.is_layer || m.is_any ? ANY : NARROW, r, r->residual, i, k->sum[i]);
}

/** Stores the codes of run i; `is_bounded`: y is NaN or in the kind's range, see narrow.h. */
QD_INLINE void put_codes(weights w, bool is_bounded, const qk_norm_args *g, const row *r, int i,
                         qd_f32x8 y) {
    const bool is_usual = w != ANY || g->kind == QD_FP8_USUAL;
    const qd_u32x2 codes = !is_usual    ? qd_encode8((int)g->kind, y)
                           : is_bounded ? qd_encode8_bounded(QD_FP8_USUAL, y)
                                        : qd_encode8(QD_FP8_USUAL, y);
    qd_row_store2(r->out, r->runs * (uint32_t)sizeof codes, RUN(i) * (uint32_t)sizeof codes, codes);
}

/** Returns the factor that turns group i of z into codes, and writes the group's scale; z times
 *  `inverse` are the results. */
QD_INLINE float group_factor(const qk_norm_args *g, const row *r, int i, qd_f32x8 z,
                             float inverse) {
    const float scale = scale_of(g, qd_as_f32(qd_row_max(qd_run_top(z))) * inverse);
    if (RUN(i) % QD_ROW == 0 && IS_IN(i))
        r->scale[RUN(i) / QD_ROW * g->scale_col] = scale;
    return inverse * qd_rcp(scale);
}

/** Returns the factor that turns a row of z into codes, and writes the row's scale; the row's
 *  largest z has the bits `top`. */
QD_INLINE float token_factor(const qk_norm_args *g, const row *r, uint32_t top, float inverse) {
    const float scale = scale_of(g, qd_as_f32(top) * inverse);
    if (r->lane == 0)
        *r->scale = scale;
    return inverse * qd_rcp(scale);
}

/** Returns whether squares may leave f32's range. Those of f16's own values never do. */
QD_INLINE bool may_leave_range(mode m, const row *r) {
    return m.dtype != QD_F16 || (m.is_sum && (r->residual || r->gate));
}

/** Calls norm_scaled with what is known when the code is compiled. */
QD_INLINE void scale_row(mode m, const qk_norm_args *g, const row *r, float factor) {
    qk_norm_args known = *g;
    row part = *r;
    if (!m.is_quant)
        known.quant = QK_NORM_PLAIN;
    if (!m.is_any && m.is_quant)
        known.kind = QD_FP8_USUAL;
    if (!m.is_layer) {
        known.subtracts_mean = known.rounds_first = 0;
        part.beta = nullptr;
    }
    if (!m.is_sum)
        part.residual = nullptr, part.gate = nullptr;
    norm_scaled(m.dtype, true, &known, &part, factor);
}

#endif
