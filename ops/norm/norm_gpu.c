// SPDX-License-Identifier: Apache-2.0
// Every norm of the family in one pass over memory: t = residual + gate * x, its statistics,
// weights, FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 8 runs of 8 elements in registers where they stay in 16 bits and a wave
//           has 32 lanes, else 4 (_rows: 1). A row belongs to 16 lanes (_rows: h <= 128) or to a
//           workgroup; run c of the row to lane c % lanes, so that every load is of whole cache
//           lines, and 16 neighbouring lanes hold the 128 elements of a group
// Launch    _rows: 256 threads, 16 rows a workgroup; else whole waves, up to 512 threads, a row a
//           workgroup; on CDNA a workgroup of LayerNorm goes from row to row
// Order     a lane with 8 runs sums up its even and its odd ones apart, as two lanes of twice as
//           many do that have 4 each (_sum, for few rows). So a row's sums have the same bits by
//           either kernel, whatever else is in the batch
// LDS       1536 bytes: three values of 16 lanes, twice
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else norm_any_gpu.c. Lanes
//           past the row's end load its last run again, so that no branch stands between loads; it
//           does not count and is not stored
// Memory    rows without residual and gate stay in their 16 bits, for half the registers: several
//           workgroups share a compute unit, and some load while others sum up. Weights come after
//           the barrier, from the caches; on CDNA, where registers are more, with the row, and
//           LayerNorm keeps them from row to row. Each row costs one barrier, where all that its
//           statistics need is brought together
// Source    arXiv:1910.07467 (RMSNorm), arXiv:1607.06450 (LayerNorm), FlashInfer's norm functions
#include "norm_kept_gpu.h"

QD_SHARED(sums);
QD_SHARED(others); // largest magnitudes, or distances from the mean
QD_SHARED(counts);

// ---- RMSNorm

/** Writes each part's sum over 16 lanes of the row to LDS, one part behind the other. */
QD_INLINE void put_part(QD_LDS uint32_t *lds, int part, float v) {
    if (qd_thread() % QD_ROW == 0)
        lds[(uint32_t)part * (__gpu_num_threads(0) / QD_ROW) + qd_thread() / QD_ROW] = qd_as_u32(v);
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
    EACH_PART put_part(sums[0], part, qd_row_sum(lane_sums[part]));
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
            *top = qd_max(*top, qd_run_top(weigh(m, rms_weights(m), g, r, k, i, t)));
    }
}

QD_INLINE void put_rms(mode m, const qk_norm_args *g, const row *r, const kept *k, float inverse) {
    EACH_RUN put_run(m, rms_weights(m), r, r->out, i,
                     weigh(m, rms_weights(m), g, r, k, i, t_of(m, k, i, LAST) * inverse));
}

/** Writes the codes of a lane's four runs z, times `inverse` and over the scales of their groups,
 *  and the scales, of which one lane in four computes each. */
QD_INLINE void put_four_groups(weights w, const qk_norm_args *g, const row *r,
                               const qd_f32x8 z[QD_GROUPS], float inverse) {
    const uint32_t own = qd_thread() % QD_ROW, scaled = RUN(own) / QD_ROW;
    uint32_t top[QD_GROUPS];
    QD_UNROLL for (int i = 0; i < QD_GROUPS; i++)
        top[i] = qd_run_top(z[i]);
    const float scale = scale_of(g, qd_as_f32(qd_four_tops(top)) * inverse);
    const uint32_t factor = qd_as_u32(inverse * qd_rcp(scale));
    if (own < QD_GROUPS && scaled * QD_ROW < r->runs)
        r->scale[scaled * g->scale_col] = scale;
    QD_UNROLL for (int i = 0; i < QD_GROUPS; i++)
        put_codes(w, true, g, r, i, z[i] * qd_as_f32(qd_lane_of_four(factor, (uint32_t)i)));
}

QD_INLINE void put_rms_groups(mode m, const qk_norm_args *g, const row *r, const kept *k,
                              float inverse) {
    qd_f32x8 z[MAX_RUNS];
    EACH_RUN z[i] = weigh(m, rms_weights(m), g, r, k, i, t_of(m, k, i, LAST));
    put_four_groups(rms_weights(m), g, r, z, inverse);
}

/** Writes the codes of t times weights times `factor`. For groups the factor is `inverse` times
 *  what each group's scale makes of it. */
QD_INLINE void put_rms_codes(mode m, bool is_group, const qk_norm_args *g, const row *r,
                             const kept *k, float inverse, float factor) {
    EACH_RUN {
        const qd_f32x8 z = weigh(m, rms_weights(m), g, r, k, i, t_of(m, k, i, LAST));
        put_codes(rms_weights(m), is_group, g, r, i,
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
    const float mean_square = uniform(sum * g->per_h + g->eps);
    const float factor = qk_norm_factor(mean_square, 0);
    if (may_leave_range(m, r) && factor != 1.0f) {
        scale_row(m, g, r, factor);
        return;
    }
    const float inverse = qd_inverse_root(mean_square);
    *r = find_again(m, g, r);
    put_residual(m, r, k);
    if (!m.is_quant || (m.is_any && g->quant == QK_NORM_PLAIN))
        put_rms(m, g, r, k, inverse);
    else if (is_group && is_cdna)
        put_rms_groups(m, g, r, k, inverse);
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
    const float factor = qk_norm_factor(square, 0);
    if (qd_ballot(factor != 1.0f)) { // the whole wave: it sums up all of its rows
        t *= factor;
        square = small_square(g, r, t, factor);
    }
    put_run(m, rms_weights(m), r, r->out, 0,
            weigh(m, rms_weights(m), g, r, k, 0, t * qd_inverse_root(square)));
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
        if (m.is_loop)
            qd_pin(); // else the scheduler takes more registers than there are
    }
    const float mean = sum * qd_rcp(count > 0 ? count : 1);
    return (partial){count, pivot + mean, squares - sum * mean};
}

/** Writes the moments of a part over 16 lanes to LDS. */
QD_INLINE void put_moments(int part, uint32_t turn, partial a) {
    const float count = qd_row_sum(a.count);
    const float row_mean = qd_row_sum(a.count * a.mean) * qd_rcp(count > 0 ? count : 1);
    put_part(sums[turn], part, row_mean);
    put_part(others[turn], part, qd_row_sum(a.spread + from_mean(a.count, a.mean, row_mean)));
    put_part(counts[turn], part, count);
}

/** Returns the row's variance plus eps, and sets *mean to the row's mean. A workgroup's rows use
 *  the halves of LDS in turn. */
QD_INLINE float find_variance(mode m, const qk_norm_args *g, const row *r, const kept *k,
                              uint32_t turn, float *mean) {
    float sum = 0, total = 0;
    EACH_PART put_moments(part, turn, lane_moments(m, part, r, k));
    qd_barrier();
    EACH_PUT(at) sum += qd_as_f32(counts[turn][at]) * qd_as_f32(sums[turn][at]);
    *mean = qd_row_sum(sum) * g->per_h;
    EACH_PUT(at)
    total += qd_as_f32(others[turn][at]) +
             from_mean(qd_as_f32(counts[turn][at]), qd_as_f32(sums[turn][at]), *mean);
    return uniform(qd_row_sum(total) * g->per_h + g->eps);
}

/** Returns a run of weight or beta. On CDNA one kernel rounds results as if weights were in 16
 *  bits, for which NaNs of f32 must be short ones, and the others are to give the same bits. */
QD_INLINE qd_f32x8 layer_factor(mode m, weights w, const qk_norm_args *g, const row *r,
                                const void *p, int i) {
    const qd_f32x8 v = load_factor(m, w, g, r, p, i);
    return is_cdna && m.dtype != QD_F32 && w == WIDE ? qd_with_short_nans(v) : v;
}

QD_INLINE qd_f32x8 layer_result(mode m, weights w, const qk_norm_args *g, const row *r,
                                const kept *k, int i, float mean, float inverse) {
    const qd_f32x8 t = t_of(m, k, i, w == NARROW ? LAST : TOP), y = (t - mean) * inverse;
    if (w == ANY && (!r->weight || !r->beta)) {
        const qd_f32x8 weighed = weigh(m, w, g, r, k, i, y);
        return r->beta ? weighed + load_factor(m, w, g, r, r->beta, i) : weighed;
    }
    return __builtin_elementwise_fma(y, layer_factor(m, w, g, r, r->weight, i) + g->weight_plus,
                                     layer_factor(m, w, g, r, r->beta, i));
}

QD_INLINE void put_layer(mode m, weights w, const qk_norm_args *g, const row *r, const kept *k,
                         float mean, float inverse) {
    EACH_RUN put_run(m, w, r, r->out, i, layer_result(m, w, g, r, k, i, mean, inverse));
}

QD_INLINE void put_layer_codes(mode m, const qk_norm_args *g, const row *r, const kept *k,
                               float mean, float inverse) {
    const float factor = 1.0f / *g->scale;
    EACH_RUN {
        const qd_f32x8 y = layer_result(m, ANY, g, r, k, i, mean, inverse);
        put_codes(ANY, false, g, r, i, (g->rounds_first ? qd_rounded(m.dtype, y) : y) * factor);
    }
}

QD_INLINE void put_layer_groups(mode m, weights w, const qk_norm_args *g, const row *r,
                                const kept *k, float mean, float inverse) {
    qd_f32x8 y[QD_GROUPS];
    EACH_RUN y[i] = layer_result(m, w, g, r, k, i, mean, inverse);
    put_four_groups(w, g, r, y, 1);
}

QD_INLINE void layer(mode m, const qk_norm_args *g, row *r, const kept *k) {
    float mean;
    const float variance = find_variance(m, g, r, k, 0, &mean);
    const float factor = qk_norm_factor(variance, mean);
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

/** Weights and bias of a lane's runs. */
typedef struct factors {
    qd_f32x8 weight[MAX_RUNS], beta[MAX_RUNS];
} factors;

QD_INLINE void load_factors(mode m, weights w, const qk_norm_args *g, const row *r, factors *f) {
    EACH_RUN {
        f->weight[i] = layer_factor(m, w, g, r, r->weight, i);
        f->beta[i] = layer_factor(m, w, g, r, r->beta, i);
    }
    EACH_RUN f->weight[i] += g->weight_plus;
}

QD_INLINE void load_any_factors(mode m, const qk_norm_args *g, const row *r, factors *f) {
    if (g->weight_dtype == QD_F32)
        load_factors(m, WIDE, g, r, f);
    else
        load_factors(m, NARROW, g, r, f);
}

/** Normalises a row. Where squares leave f32's range it reads the row's factors again, so that they
 *  need no registers meanwhile. */
QD_INLINE void layer_of_factors(mode m, const qk_norm_args *g, const row *r, const kept *k,
                                factors *f, uint32_t turn) {
    float mean;
    const float variance = find_variance(m, g, r, k, turn, &mean);
    const float factor = qk_norm_factor(variance, mean), inverse = qd_inverse_root(variance);
    if (may_leave_range(m, r) && factor != 1.0f) {
        scale_row(m, g, r, factor);
        load_any_factors(m, g, r, f);
        return;
    }
    EACH_RUN {
        put_run(m, NARROW, r, r->out, i,
                __builtin_elementwise_fma((t_of(m, k, i, LAST) - mean) * inverse, f->weight[i],
                                          f->beta[i]));
        qd_pin();
    }
}

/** Normalises the workgroup's rows, each of which is loaded while the one before is computed. The
 *  factors stay in registers, as in f32 they are four times a row's bytes; but those of many
 *  batches are read for each row. */
QD_INLINE void layer_rows(mode m, const qk_norm_args *args) {
    const qk_norm_args *g = args;
    const uint32_t step = __gpu_num_blocks(0);
    const bool has_batches = g->inner < g->rows;
    kept next;
    factors f;
    const row first = find_row(m.dtype, g, qd_block(), false);
    load_kept(m, g, &first, &next);
    load_any_factors(m, g, &first, &f);
    for (uint32_t at = qd_block(), turn = 0; at < g->rows; at += step, turn ^= 1) {
        g = qd_reread(args);
        const row r = find_row(m.dtype, g, at, false);
        const kept k = next;
        const row after = find_row(m.dtype, g, qd_min(at + step, g->rows - 1), false);
        load_kept(m, g, &after, &next);
        if (has_batches)
            load_any_factors(m, g, &r, &f);
        layer_of_factors(m, g, &r, &k, &f, turn);
    }
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
    if (m.is_loop) {
        layer_rows(m, g);
        return;
    }
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
#define UNBOUND(entry, ...) KERNEL(QD_KERNEL_UP_TO(512, entry), __VA_ARGS__)
#define OF_DTYPE(name, dtype, most, quant_registers)                                               \
    KERNEL(QD_KERNEL(256) qk_rms_rows_##name, dtype, 1, .is_small = true)                          \
    KERNEL(QD_KERNEL_WITHIN(512, quant_registers, qk_rms_quant_##name), dtype, most,               \
           .is_quant = true)                                                                       \
    KERNEL(QD_LOOP_WAVES QD_KERNEL_WITHIN(512, 96, qk_layer_##name), dtype, most,                  \
           .is_layer = true, .is_loop = is_cdna && dtype != QD_F32)                                \
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
OF_DTYPE(f16, QD_F16, is_cdna ? 4 : 8, 88)
OF_DTYPE(bf16, QD_BF16, is_cdna ? 4 : 8, 72)
