// SPDX-License-Identifier: Apache-2.0
// Every norm of the family in one pass over memory: t = residual + gate * x, its statistics,
// weights, FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 8 runs of 8 elements in registers where they stay in 16 bits, else 4
//           (_rows: 1). A row belongs to 16 lanes (_rows: h <= 128) or to a workgroup; run c of the
//           row to lane c % lanes, so that every load is of whole cache lines, and 16 neighbouring
//           lanes hold the 128 elements of a group
// Launch    _rows: 256 threads, 16 rows a workgroup; else whole waves, up to 512 threads, a row a
//           workgroup
// Order     a lane with 8 runs sums up its even and its odd ones apart, as two lanes of twice as
//           many do that have 4 each (_sum, for few rows). So a row's sums have the same bits by
//           either kernel, whatever else is in the batch
// LDS       1536 bytes: three values of 16 lanes, twice
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else norm_any_gpu.c. Lanes
//           past the row's end load its last run again, so that no branch stands between loads; it
//           does not count and is not stored
// Memory    rows without residual and gate stay in their 16 bits, for half the registers: several
//           workgroups share a compute unit, and some load while others sum up. Weights come after
//           the barrier, from the caches. Each row costs one barrier, where all that its statistics
//           need is brought together
// Source    arXiv:1910.07467 (RMSNorm), arXiv:1607.06450 (LayerNorm), FlashInfer's norm functions
#include "norm_row_gpu.h"

enum { MAX_RUNS = 8 };
QD_SHARED(sums);
QD_SHARED(others); // largest magnitudes, or distances from the mean
QD_SHARED(counts);

/** What a kernel knows at compile time. */
typedef struct mode {
    int dtype, runs;
    bool is_small; // 16 lanes a row
    bool is_sum;   // the row may have a residual and a gate
    bool is_quant; // out is FP8
    bool is_layer; // LayerNorm
    /** The kernel finds out at run time which of residual, gate, FP8 and weights there are, and of
     *  which kinds. */
    bool is_any;
} mode;

/** A lane's part of a row: raw holds t as it was loaded, sum holds t as a sum of what was
 *  loaded. */
typedef struct kept {
    qd_u32x4 raw[MAX_RUNS];
    qd_f32x8 sum[MAX_RUNS];
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

QD_INLINE void load_sums(mode m, const qk_norm_args *g, row *r, kept *k) {
    qd_u32x4 x[MAX_RUNS], residual[MAX_RUNS];
    EACH_RUN x[i] = qd_stream_load4((const qd_u32x4 *)r->x + AT(i));
    if (r->residual)
        EACH_RUN residual[i] = qd_stream_load4((const qd_u32x4 *)r->residual + AT(i));
    r->lane = qd_opaque(r->lane);
    EACH_RUN k->sum[i] = qd_from_16(m.dtype, x[i]);
    if (r->gate)
        EACH_RUN k->sum[i] *= load_factor(m, ANY, g, r, r->gate, i);
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

QD_INLINE void put_run(mode m, const row *r, void *p, int i, qd_f32x8 v) {
    qd_store8_if(IS_IN(i), m.dtype, (void *)qd_at(m.dtype, p, (int64_t)RUN(i) * QD_RUN), v);
}

QD_INLINE void load_kept(mode m, const qk_norm_args *g, row *r, kept *k) {
    if (m.dtype == QD_F32)
        load_wide_sums(m, r, k);
    else if (m.is_sum)
        load_sums(m, g, r, k);
    else
        EACH_RUN k->raw[i] = qd_stream_load4((const qd_u32x4 *)r->x + AT(i));
    if (m.is_layer && is_raw(m)) // each part begins with its first run
        EACH_RUN EACH_PART k->raw[part].x = qd_after(k->raw[i].x, k->raw[part].x);
}

/** Returns y times the weights of run i. */
QD_INLINE qd_f32x8 weigh(mode m, weights w, const qk_norm_args *g, const row *r, int i,
                         qd_f32x8 y) {
    if (w == ANY && !r->weight)
        return y;
    return y * (load_factor(m, w, g, r, r->weight, i) + g->weight_plus);
}

// ---- results

/** Stores t as the residual, once all lanes have read the residual; lanes past the row's end have
 *  read its last run. */
QD_INLINE void put_residual(mode m, const row *r, const kept *k) {
    if (m.is_sum && r->residual)
        EACH_RUN put_run(m, r, r->residual, i, k->sum[i]);
}

QD_INLINE void put_codes(weights w, const qk_norm_args *g, const row *r, int i, qd_f32x8 y) {
    const bool is_usual = w != ANY || g->kind == QD_FP8_USUAL;
    const qd_u32x2 codes = is_usual ? qd_encode8(QD_FP8_USUAL, y) : qd_encode8((int)g->kind, y);
    qd_store2_if(IS_IN(i), (qd_u32x2 *)r->out + RUN(i), codes);
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

// ---- RMSNorm

/** Writes each part's sum over 16 lanes of the row to LDS, one part behind the other. */
QD_INLINE void put_part(QD_LDS uint32_t (*lds)[QD_MAX_ROWS], int part, float v) {
    if (qd_thread() % QD_ROW == 0)
        lds[0][(uint32_t)part * (__gpu_num_threads(0) / QD_ROW) + qd_thread() / QD_ROW] =
            qd_as_u32(v);
}

/** Walks the sums of all parts that a row has written to LDS; each lane takes some of them, and 16
 *  lanes take all. */
#define EACH_PUT(at)                                                                               \
    for (uint32_t at = qd_thread() % QD_ROW;                                                       \
         at < (uint32_t)parts_of(m) * (__gpu_num_threads(0) / QD_ROW); at += QD_ROW)

/** Returns the sum over all lanes of a row, and sets *top to the maximum if has_top. */
QD_INLINE float sum_and_top(mode m, const float lane_sums[MAX_PARTS], bool has_top, uint32_t *top) {
    qd_shared second = {others, 0};
    float sum = 0;
    EACH_PART put_part(sums, part, qd_row_sum(lane_sums[part]));
    const QD_LDS uint32_t *tops = has_top ? qd_put_row(&second, qd_row_max(*top)) : nullptr;
    qd_barrier();
    if (has_top)
        *top = qd_shared_max(tops);
    EACH_PUT(at) sum += qd_as_f32(sums[0][at]);
    return qd_row_sum(sum);
}

/** Sums the squares of a lane's t in parts; if has_top, sets *top to the bits of the lane's largest
 *  t times weight. */
QD_INLINE void lane_squares(mode m, bool has_top, const qk_norm_args *g, const row *r,
                            const kept *k, float lane_sums[MAX_PARTS], uint32_t *top) {
    EACH_PART lane_sums[part] = 0;
    EACH_RUN {
        const qd_f32x8 t = t_of(m, k, i, has_top ? TOP : FIRST);
        const float squares = run_squares(t);
        lane_sums[i % parts_of(m)] += IS_IN(i) ? squares : 0;
        if (has_top)
            *top = qd_max(*top, qd_run_top(weigh(m, rms_weights(m), g, r, i, t)));
    }
}

QD_INLINE void put_rms(mode m, const qk_norm_args *g, const row *r, const kept *k, float inverse) {
    EACH_RUN put_run(m, r, r->out, i,
                     weigh(m, rms_weights(m), g, r, i, t_of(m, k, i, LAST) * inverse));
}

/** Writes the codes of t times weights times `factor`. For groups the factor is `inverse` times
 *  what each group's scale makes of it. */
QD_INLINE void put_rms_codes(mode m, bool is_group, const qk_norm_args *g, const row *r,
                             const kept *k, float inverse, float factor) {
    EACH_RUN {
        const qd_f32x8 z = weigh(m, rms_weights(m), g, r, i, t_of(m, k, i, LAST));
        put_codes(rms_weights(m), g, r, i,
                  z * (is_group ? group_factor(g, r, i, z, inverse) : factor));
    }
}

QD_INLINE void rms(mode m, const qk_norm_args *g, row *r, const kept *k) {
    const bool is_token = g->quant == QK_NORM_PER_TOKEN, is_group = g->quant == QK_NORM_PER_GROUP;
    const float given = m.is_quant && g->quant == QK_NORM_STATIC ? *g->scale : 1.0f;
    uint32_t top = 0;
    float lane_sums[MAX_PARTS];
    if (m.is_quant && is_token)
        lane_squares(m, true, g, r, k, lane_sums, &top);
    else
        lane_squares(m, false, g, r, k, lane_sums, &top);
    const float sum = sum_and_top(m, lane_sums, m.is_quant && is_token, &top);
    const float mean_square = sum * g->per_h + g->eps, factor = qk_norm_factor(mean_square);
    if (may_leave_range(m, r) && factor != 1.0f) {
        scale_row(m, g, r, factor);
        return;
    }
    const float inverse = qd_inverse_root(mean_square);
    *r = find_again(m, g, r);
    put_residual(m, r, k);
    if (!m.is_quant || (m.is_any && g->quant == QK_NORM_PLAIN))
        put_rms(m, g, r, k, inverse);
    else if (is_group)
        put_rms_codes(m, true, g, r, k, inverse, 0);
    else
        put_rms_codes(m, false, g, r, k, inverse,
                      is_token ? token_factor(g, r, top, inverse) : inverse / given);
}

/** Returns the mean square with eps of a row of 16 lanes with one run each. */
QD_INLINE float small_square(const qk_norm_args *g, const row *r, qd_f32x8 t, float factor) {
    const float squares = run_squares(t);
    return qd_row_sum(r->lane < r->runs ? squares : 0) * g->per_h + g->eps * factor * factor;
}

QD_INLINE void rms_small(mode m, const qk_norm_args *g, const row *r, const kept *k) {
    qd_f32x8 t = t_of(m, k, 0, FIRST);
    float square = small_square(g, r, t, 1);
    const float factor = qk_norm_factor(square);
    if (qd_ballot(factor != 1.0f)) { // the whole wave: it sums up all of its rows
        t *= factor;
        square = small_square(g, r, t, factor);
    }
    put_run(m, r, r->out, 0, weigh(m, rms_weights(m), g, r, 0, t * qd_inverse_root(square)));
}

// ---- LayerNorm

/** Some of a row's elements: how many, their mean, and the sum of their squared distances from the
 *  mean. Two partials become one without a look at the elements, and nothing is lost if the mean is
 *  large (Chan, Golub, LeVeque 1983). */
typedef struct partial {
    float count, mean, spread;
} partial;

/** Returns what a part's elements add to a whole's spread because the part's mean differs from the
 *  whole's. */
QD_INLINE float from_mean(float count, float part, float whole) {
    return count * (part - whole) * (part - whole);
}

/** Returns count, mean and sum of squared distances from the mean of a part of a lane's runs. One
 *  pass sums up distances from a pivot, the mean of the first run. The pivot lies among the values,
 *  so that squared distances are no larger than a few times the spread, and lose few bits. */
QD_INLINE partial lane_moments(mode m, int part, const row *r, const kept *k) {
    const float pivot = run_sum(t_of(m, k, part, FIRST)) / QD_RUN;
    float count = 0, sum = 0, squares = 0;
    QD_UNROLL for (int i = part; i < m.runs; i += parts_of(m)) {
        const qd_f32x8 d = t_of(m, k, i, FIRST) - pivot;
        const float s = run_sum(d), q = run_squares(d);
        sum += IS_IN(i) ? s : 0;
        squares += IS_IN(i) ? q : 0;
        count += IS_IN(i) ? QD_RUN : 0;
    }
    const float mean = sum * qd_rcp(count > 0 ? count : 1);
    return (partial){count, pivot + mean, squares - sum * mean};
}

/** Writes the moments of a part over 16 lanes to LDS. */
QD_INLINE void put_moments(int part, partial a) {
    const float count = qd_row_sum(a.count);
    const float row_mean = qd_row_sum(a.count * a.mean) * qd_rcp(count > 0 ? count : 1);
    put_part(sums, part, row_mean);
    put_part(others, part, qd_row_sum(a.spread + from_mean(a.count, a.mean, row_mean)));
    put_part(counts, part, count);
}

/** Returns the row's variance plus eps, and sets *mean to the row's mean. */
QD_INLINE float find_variance(mode m, const qk_norm_args *g, const row *r, const kept *k,
                              float *mean) {
    float sum = 0, total = 0;
    EACH_PART put_moments(part, lane_moments(m, part, r, k));
    qd_barrier();
    EACH_PUT(at) sum += qd_as_f32(counts[0][at]) * qd_as_f32(sums[0][at]);
    *mean = qd_row_sum(sum) * g->per_h;
    EACH_PUT(at)
    total += qd_as_f32(others[0][at]) +
             from_mean(qd_as_f32(counts[0][at]), qd_as_f32(sums[0][at]), *mean);
    return qd_row_sum(total) * g->per_h + g->eps;
}

QD_INLINE qd_f32x8 layer_result(mode m, weights w, const qk_norm_args *g, const row *r,
                                const kept *k, int i, float mean, float inverse) {
    const qd_f32x8 t = t_of(m, k, i, w == NARROW ? LAST : TOP), y = (t - mean) * inverse;
    if (w == ANY && (!r->weight || !r->beta)) {
        const qd_f32x8 weighed = weigh(m, w, g, r, i, y);
        return r->beta ? weighed + load_factor(m, w, g, r, r->beta, i) : weighed;
    }
    return __builtin_elementwise_fma(y, load_factor(m, w, g, r, r->weight, i) + g->weight_plus,
                                     load_factor(m, w, g, r, r->beta, i));
}

QD_INLINE void put_layer(mode m, weights w, const qk_norm_args *g, const row *r, const kept *k,
                         float mean, float inverse) {
    EACH_RUN put_run(m, r, r->out, i, layer_result(m, w, g, r, k, i, mean, inverse));
}

QD_INLINE void put_layer_codes(mode m, const qk_norm_args *g, const row *r, const kept *k,
                               float mean, float inverse) {
    const float factor = 1.0f / *g->scale;
    EACH_RUN {
        const qd_f32x8 y = layer_result(m, ANY, g, r, k, i, mean, inverse);
        put_codes(ANY, g, r, i, (g->rounds_first ? qd_rounded(m.dtype, y) : y) * factor);
    }
}

/** Writes the codes of a lane's four runs, and the scales of their groups, of which one lane in
 *  four computes each. */
QD_INLINE void put_layer_groups(mode m, weights w, const qk_norm_args *g, const row *r,
                                const kept *k, float mean, float inverse) {
    const uint32_t own = qd_thread() % QD_ROW, scaled = RUN(own) / QD_ROW;
    qd_f32x8 y[QD_GROUPS];
    uint32_t top[QD_GROUPS];
    EACH_RUN {
        y[i] = layer_result(m, w, g, r, k, i, mean, inverse);
        top[i] = qd_run_top(y[i]);
    }
    const float scale = scale_of(g, qd_as_f32(qd_four_tops(top)));
    const uint32_t factor = qd_as_u32(qd_rcp(scale));
    if (own < QD_GROUPS && scaled * QD_ROW < r->runs)
        r->scale[scaled * g->scale_col] = scale;
    EACH_RUN put_codes(w, g, r, i, y[i] * qd_as_f32(qd_lane_of_four(factor, (uint32_t)i)));
}

QD_INLINE void layer(mode m, const qk_norm_args *g, row *r, const kept *k) {
    float mean;
    const float variance = find_variance(m, g, r, k, &mean), factor = qk_norm_factor(variance);
    if (may_leave_range(m, r) && factor != 1.0f) {
        scale_row(m, g, r, factor);
        return;
    }
    const float inverse = qd_inverse_root(variance);
    *r = find_again(m, g, r);
    put_residual(m, r, k);
    const bool is_wide = m.dtype == QD_F32 || g->weight_dtype == QD_F32;
    if (m.is_quant && !m.is_any && is_wide)
        put_layer_groups(m, WIDE, g, r, k, mean, inverse);
    else if (m.is_quant && !m.is_any)
        put_layer_groups(m, NARROW, g, r, k, mean, inverse);
    else if (m.is_quant && g->quant == QK_NORM_STATIC)
        put_layer_codes(m, g, r, k, mean, inverse);
    else if (m.is_any && (!g->weight || !g->beta))
        put_layer(m, ANY, g, r, k, mean, inverse);
    else if (is_wide)
        put_layer(m, WIDE, g, r, k, mean, inverse);
    else
        put_layer(m, NARROW, g, r, k, mean, inverse);
}

enum { WAVE_ROWS = QD_WAVE / QD_ROW }; // small rows of a wave

/** Finds this lane's row among small ones; `first` is the wave's first. Lanes past the last row
 *  stay, as their wave sums up its rows together; they are past their row's end. */
QD_INLINE row find_small_row(mode m, const qk_norm_args *g, uint32_t first) {
    const uint32_t at = first + qd_lane() / QD_ROW;
    row r = find_row(m.dtype, g, qd_min(at, g->rows - 1), true);
    r.lane = at < g->rows ? r.lane : r.runs;
    return r;
}

/** Normalises a row or, if rows are small, one row for each 16 lanes of the workgroup. Rows are
 *  counted from g->first. */
QD_INLINE void norm(mode m, const qk_norm_args *g) {
    qd_begin();
    const uint32_t waves = __gpu_num_threads(0) / QD_WAVE;
    const uint32_t at =
        g->first + (m.is_small ? (qd_block() * waves + qd_wave()) * WAVE_ROWS : qd_block());
    if (at >= g->rows)
        return;
    row r = m.is_small ? find_small_row(m, g, at) : find_row(m.dtype, g, at, false);
    kept k;
    load_kept(m, g, &r, &k);
    if (m.is_small)
        rms_small(m, g, &r, &k);
    else if (m.is_layer)
        layer(m, g, &r, &k);
    else
        rms(m, g, &r, &k);
}

// The kernels: qk_rms_rows_DTYPE, qk_rms[_sum][_quant]_DTYPE, qk_layer[_sum]_DTYPE,
// qk_layer_quant_DTYPE (scales of groups), and for other problems qk_{rms,layer}_any_DTYPE.
#define KERNEL(head, type, most, ...)                                                              \
    head(const qk_norm_args g) {                                                                   \
        norm((mode){.dtype = type, .runs = most, __VA_ARGS__}, &g);                                \
    }
#define UNBOUND(entry, ...) KERNEL(QD_KERNEL_UP_TO(512) entry, __VA_ARGS__)
#define OF_DTYPE(name, dtype, most, quant_registers)                                               \
    KERNEL(QD_KERNEL(256) qk_rms_rows_##name, dtype, 1, .is_small = true)                          \
    KERNEL(QD_KERNEL_WITHIN(512, quant_registers, qk_rms_quant_##name), dtype, most,               \
           .is_quant = true)                                                                       \
    KERNEL(QD_KERNEL_WITHIN(512, 96, qk_layer_##name), dtype, most, .is_layer = true)              \
    KERNEL(QD_KERNEL_WITHIN(512, 64, qk_layer_quant_##name), dtype, 4, .is_layer = true,           \
           .is_quant = true)                                                                       \
    UNBOUND(qk_rms_##name, dtype, most)                                                            \
    UNBOUND(qk_rms_sum_##name, dtype, 4, .is_sum = true)                                           \
    UNBOUND(qk_rms_sum_quant_##name, dtype, 4, .is_sum = true, .is_quant = true)                   \
    UNBOUND(qk_rms_any_##name, dtype, 4, .is_sum = true, .is_quant = true, .is_any = true)         \
    UNBOUND(qk_layer_sum_##name, dtype, 4, .is_sum = true, .is_layer = true)                       \
    UNBOUND(qk_layer_any_##name, dtype, 4, .is_sum = true, .is_quant = true, .is_layer = true,     \
            .is_any = true)
OF_DTYPE(f32, QD_F32, 4, 80)
OF_DTYPE(f16, QD_F16, 8, 88)
OF_DTYPE(bf16, QD_BF16, 8, 72)
