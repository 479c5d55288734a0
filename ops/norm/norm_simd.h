// SPDX-License-Identifier: Apache-2.0
// Norms with vectors of QN_LANES f32: included by norm_cpu.c, norm_avx2.c and norm_avx512.c; and by
// norm_avx512bf16.c, whose QN_BF16_ALONE leaves out the other dtypes.
//
// A row is read from memory once and stays in the first cache, in its own dtype. Each pass over the
// row (sums, magnitudes, result) makes t again from the elements, which takes fewer instructions
// than storing t as f32 and loading that. The last pass fetches the next row. Passes go STEP
// elements at a time, so that a step's results are whole cache lines, which large outputs send past
// the caches. What is left of a row goes through a step of its own in buffers.
#ifndef QNI_NORM_SIMD_H
#define QNI_NORM_SIMD_H

#include "../shared/groups_simd.h"
#include "norm.h"
#include "norm_abi.h"

#include <string.h>

enum { STEP = 64, VECS = STEP / QN_LANES, CACHE_LINE = 64 };
/** Outputs of this size and more are stored past the caches, as their first lines would leave the
 *  caches before anyone reads them. */
constexpr int64_t stream_bytes = 8 << 20;

/** What the code is built for. The compiler makes a copy for each mix in use. */
typedef struct mix {
    qni_dtype dtype, weights;
    enum { RMS, SUM, ANY } form; // RMS: a weight, nothing else; SUM: also a residual
} mix;

/** Pointers to one row, or to the buffers that stand for a row's end. */
typedef struct row {
    const char *x, *weight, *beta, *gate;
    char *out, *residual;
    float *scale;
    const char *next_x, *next_residual; // of the next row
    bool streams;                       // stores go past the caches
} row;

QN_INLINE row find_row(const qni_norm_problem *p, int64_t r, int64_t next, bool streams) {
    const int64_t size = qni_dtype_bytes(p->dtype), batch = r / p->inner;
    const int64_t weight = qni_dtype_bytes(p->dtype_weights);
#define ROW(rows, r, bytes)                                                                        \
    ((rows).data ? (char *)(rows).data + qni_norm_at(p, &(rows), r) * (bytes) : nullptr)
#define WEIGHTS(w) ((w).data ? (const char *)(w).data + batch * (w).batch * weight : nullptr)
    return (row){.x = ROW(p->x, r, size),
                 .out = ROW(p->out, r, qni_dtype_bytes(p->dtype_out)),
                 .residual = ROW(p->residual, r, size),
                 .weight = WEIGHTS(p->weight),
                 .beta = WEIGHTS(p->beta),
                 .gate = WEIGHTS(p->gate),
                 .scale = p->scale ? p->scale + batch * p->scale_batch + r % p->inner * p->scale_row
                                   : nullptr,
                 .next_x = ROW(p->x, next, size),
                 .next_residual = ROW(p->residual, next, size),
                 .streams = streams};
#undef ROW
#undef WEIGHTS
}

/** The last h % STEP elements of a row. Each array begins at the start of a step; zeros follow the
 *  elements. */
typedef struct row_end {
    alignas(64) char x[4 * STEP], weight[4 * STEP], beta[4 * STEP], gate[4 * STEP],
        residual[4 * STEP], out[4 * STEP];
} row_end;

/** Fills the buffers and returns them as a row. */
static row take_end(const qni_norm_problem *p, const row *r, row_end *end) {
    const int64_t size = qni_dtype_bytes(p->dtype), weight = qni_dtype_bytes(p->dtype_weights);
    const int64_t count = p->h % STEP, first = p->h - count;
    row to = {.scale = r->scale ? r->scale + first / QNI_NORM_GROUP * p->scale_col : nullptr};
    memset(end, 0, sizeof *end);
#define TAKE(array, bytes)                                                                         \
    if (r->array) {                                                                                \
        memcpy(end->array, r->array + first * (bytes), (size_t)(count * (bytes)));                 \
        to.array = end->array;                                                                     \
    }
    TAKE(x, size)
    TAKE(residual, size)
    TAKE(weight, weight)
    TAKE(beta, weight)
    TAKE(gate, weight)
#undef TAKE
    to.out = end->out;
    to.next_x = end->x;
    return to;
}

static void put_end(const qni_norm_problem *p, const row *r, const row_end *end) {
    const int64_t size = qni_dtype_bytes(p->dtype), out = qni_dtype_bytes(p->dtype_out);
    const int64_t count = p->h % STEP, first = p->h - count;
    if (p->quant == QNI_NORM_PLAIN) // codes are in their place already
        memcpy(r->out + first * out, end->out, (size_t)(count * out));
    if (r->residual)
        memcpy(r->residual + first * size, end->residual, (size_t)(count * size));
}

// ---- a step: elements i .. i + STEP - 1 of a row, of which `left` are the row's, in the pairs of
// vectors of simd.h

QN_INLINE bool is_split(mix m) {
    return m.dtype == QNI_BF16;
}

QN_INLINE void load_step(mix m, qni_dtype dtype, const char *from, int64_t i, f32v v[VECS]) {
    for (int k = 0; k < VECS; k += 2)
        load_two(is_split(m), dtype, from, i + k * QN_LANES, v + k);
}

QN_INLINE void store_step(mix m, bool streams, char *to, int64_t i, const f32v v[VECS]) {
    for (int k = 0; k < VECS; k += 2)
        store_two(is_split(m), m.dtype, streams, to, i + k * QN_LANES, v + k);
}

/** Loads t = residual + gate * x; zeros past the row. */
QN_INLINE void load_t(mix m, const row *r, int64_t i, f32v t[VECS]) {
    f32v other[VECS];
    load_step(m, m.dtype, r->x, i, t);
    if (m.form == ANY && r->gate) {
        load_step(m, m.weights, r->gate, i, other);
        for (int k = 0; k < VECS; k++)
            t[k] *= other[k];
    }
    if (m.form == SUM || (m.form == ANY && r->residual)) {
        load_step(m, m.dtype, r->residual, i, other);
        for (int k = 0; k < VECS; k++)
            t[k] += other[k];
    }
}

/** Replaces what lies past the row by zeros. */
QN_INLINE void keep_left(mix m, f32v v[VECS], int64_t left) {
    if (left >= STEP)
        return;
    u32v lane;
    for (int k = 0; k < QN_LANES; k++)
        lane[k] = (uint32_t)k;
    for (int k = 0; k < VECS; k++) {
        const u32v at = is_split(m) ? 2 * lane + (uint32_t)(k / 2 * 2 * QN_LANES + k % 2)
                                    : lane + (uint32_t)(k * QN_LANES);
        v[k] = (f32v)((u32v)v[k] & (u32v)(at < (uint32_t)left));
    }
}

/** Rounds to x's dtype. */
QN_INLINE void round_step(mix m, f32v v[VECS]) {
    alignas(64) char buffer[4 * STEP];
    store_step(m, false, buffer, 0, v);
    load_step(m, m.dtype, buffer, 0, v);
}

/** What a row's sums gave. */
typedef struct moments {
    float factor, mean, inverse; // mean: of the elements times factor; inverse: 0 for a row of
                                 // zeros
} moments;

/** Multiplies by the factor, which for nearly all rows is 1. */
QN_INLINE void scale_step(float factor, f32v t[VECS]) {
    if (factor != 1)
        for (int k = 0; k < VECS; k++)
            t[k] *= factor;
}

/** Computes the result in f32, in place of t. */
QN_INLINE void make_y(mix m, const qni_norm_problem *p, const row *r, moments s, int64_t i,
                      int64_t left, f32v y[VECS]) {
    f32v other[VECS];
    scale_step(s.factor, y);
    for (int k = 0; k < VECS; k++)
        y[k] = (m.form == ANY ? y[k] - s.mean : y[k]) * s.inverse;
    if (m.form != ANY || r->weight) {
        load_step(m, m.weights, r->weight, i, other);
        for (int k = 0; p->weight_plus > 0 && k < VECS; k++)
            other[k] += p->weight_plus;
        for (int k = 0; k < VECS; k++)
            y[k] *= other[k];
    }
    if (m.form == ANY && r->beta) {
        load_step(m, m.weights, r->beta, i, other);
        for (int k = 0; k < VECS; k++)
            y[k] += other[k];
    }
    keep_left(m, y, left);
    if (m.form == ANY && p->rounds_first)
        round_step(m, y);
}

/** Fetches this step of the next row. The last row has none; fetching near address 0 does
 *  nothing. */
QN_INLINE void fetch_next(mix m, const row *r, int64_t i) {
    const int64_t size = m.dtype == QNI_F32 ? 4 : 2;
    for (int64_t at = i * size; at < (i + STEP) * size; at += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)r->next_x + (uintptr_t)at));
    if (m.form == SUM || (m.form == ANY && r->next_residual))
        for (int64_t at = i * size; at < (i + STEP) * size; at += CACHE_LINE)
            __builtin_prefetch((const void *)((uintptr_t)r->next_residual + (uintptr_t)at));
}

/** Computes the result in f32 in the pass that reads the row last; the residual becomes t. */
QN_INLINE void finish_y(mix m, const qni_norm_problem *p, const row *r, moments s, int64_t i,
                        int64_t left, f32v y[VECS]) {
    fetch_next(m, r, i);
    load_t(m, r, i, y);
    if (m.form == SUM || (m.form == ANY && r->residual))
        store_step(m, false, r->residual, i, y);
    make_y(m, p, r, s, i, left, y);
}

// ---- passes over a row

/** A step's place: in the row, or in the buffers that stand for its end. */
typedef struct place {
    const row *r;
    int64_t i, left;
} place;

/** Returns the place of the step at element i. `ends` is the row and its end. */
QN_INLINE place find_step(const qni_norm_problem *p, const row ends[2], int64_t i) {
    const int64_t left = p->h - i;
    return left >= STEP ? (place){&ends[0], i, left} : (place){&ends[1], 0, left};
}

/** Sums are kept in parts, so that additions do not wait for each other. */
enum { PARTS = VECS < 4 ? VECS : 4 };

QN_INLINE float sum_of(const f32v parts[PARTS]) {
    f32v all = {};
    float sum = 0;
    for (int k = 0; k < PARTS; k++)
        all += parts[k];
    for (int lane = 0; lane < QN_LANES; lane++)
        sum += all[lane];
    return sum;
}

/** Returns the mean square of the elements times the factor. */
QN_INLINE float find_square(mix m, const qni_norm_problem *p, const row ends[2], float factor) {
    f32v sums[PARTS] = {}, t[VECS];
    for (int64_t i = 0; i < p->h; i += STEP) {
        const place at = find_step(p, ends, i);
        load_t(m, at.r, at.i, t);
        scale_step(factor, t);
        for (int k = 0; k < VECS; k++)
            sums[k % PARTS] = fma_of(t[k], t[k], sums[k % PARTS]);
    }
    return sum_of(sums) / (float)p->h;
}

/** The mean distance of the elements times the factor from the pivot, and the variance by these
 *  distances. */
typedef struct spread {
    float distance, variance;
} spread;

QN_INLINE spread find_spread(mix m, const qni_norm_problem *p, const row ends[2], float factor,
                             float pivot) {
    f32v sums[PARTS] = {}, squares[PARTS] = {}, t[VECS];
    for (int64_t i = 0; i < p->h; i += STEP) {
        const place at = find_step(p, ends, i);
        load_t(m, at.r, at.i, t);
        scale_step(factor, t);
        for (int k = 0; k < VECS; k++)
            t[k] -= pivot;
        keep_left(m, t, at.left);
        for (int k = 0; k < VECS; k++) {
            sums[k % PARTS] += t[k];
            squares[k % PARTS] = fma_of(t[k], t[k], squares[k % PARTS]);
        }
    }
    const float distance = sum_of(sums) / (float)p->h;
    return (spread){distance, sum_of(squares) / (float)p->h - distance * distance};
}

/** Returns the mean of a row's first step, which is near the mean of nearly all rows. */
QN_INLINE float find_pivot(mix m, const qni_norm_problem *p, const row ends[2], float factor) {
    const place at = find_step(p, ends, 0);
    f32v sums[PARTS] = {}, t[VECS];
    load_t(m, at.r, at.i, t);
    scale_step(factor, t);
    for (int k = 0; k < VECS; k++)
        sums[k % PARTS] += t[k];
    return sum_of(sums) / (float)(at.left < STEP ? at.left : STEP);
}

/** Computes mean and variance in one pass over the row, unless the pivot is so far from the mean
 *  that the difference of squares would lose digits. In that case another pass takes the mean for
 *  the pivot. */
QN_INLINE float find_variance(mix m, const qni_norm_problem *p, const row ends[2], moments *s) {
    float pivot = find_pivot(m, p, ends, s->factor);
    spread found;
    for (bool is_first = true;; is_first = false) { // a loop, so that the code exists once
        found = find_spread(m, p, ends, s->factor, pivot);
        if (!is_first || !(found.distance * found.distance > found.variance))
            break;
        pivot += found.distance;
    }
    s->mean = pivot + found.distance;
    return found.variance < 0 ? 0 : found.variance;
}

/** Returns the mean square, or the variance, with eps. */
QN_INLINE float find_sums(mix m, const qni_norm_problem *p, const row ends[2], moments *s) {
    const float square = m.form == ANY && p->subtracts_mean ? find_variance(m, p, ends, s)
                                                            : find_square(m, p, ends, s->factor);
    return square + p->eps * s->factor * s->factor;
}

QN_INLINE moments find_moments(mix m, const qni_norm_problem *p, const row ends[2]) {
    moments s = {.factor = 1};
    float square;
    do // a loop, so that the code exists once
        square = find_sums(m, p, ends, &s);
    while (s.factor == 1 && (s.factor = qk_norm_factor(square, s.mean)) != 1);
    s.inverse = square <= 0 ? 0 : 1.0f / sqrtf(square);
    return s;
}

QN_INLINE u32v largest_of(u32v top, const f32v y[VECS]) {
    for (int k = 0; k < VECS; k++)
        top = larger_of(top, y[k]);
    return top;
}

QN_INLINE float scale_of(const qni_norm_problem *p, u32v top) {
    const float amax = __builtin_bit_cast(float, __builtin_reduce_max(top));
    return (amax > p->scale_eps ? amax : p->scale_eps) /
           qni_fp8_format_of(qni_fp8_of(p->dtype_out)).max;
}

QN_INLINE void write_row(mix m, const qni_norm_problem *p, const row ends[2], moments s) {
    f32v y[VECS];
    for (int64_t i = 0; i < p->h; i += STEP) {
        const place at = find_step(p, ends, i);
        finish_y(m, p, at.r, s, at.i, at.left, y);
        store_step(m, at.r->streams, at.r->out, at.i, y);
    }
}

QN_INLINE float find_scale(mix m, const qni_norm_problem *p, const row ends[2], moments s) {
    u32v top = {};
    f32v y[VECS];
    for (int64_t i = 0; i < p->h; i += STEP) {
        const place at = find_step(p, ends, i);
        load_t(m, at.r, at.i, y);
        make_y(m, p, at.r, s, at.i, at.left, y);
        top = largest_of(top, y);
    }
    return scale_of(p, top);
}

/** Computes results of elements first .. end - 1. Gives the largest magnitudes of each group's
 *  lanes if finds_top. */
QN_INLINE void make_chunk(mix m, bool finds_top, const qni_norm_problem *p, const row ends[2],
                          moments s, int64_t first, int64_t end, chunk *c) {
    static_assert(QNI_NORM_GROUP == GROUP && GROUP % STEP == 0);
    f32v y[VECS];
    for (int64_t i = first; i < end; i += STEP) {
        const place at = find_step(p, ends, i);
        finish_y(m, p, at.r, s, at.i, at.left, y);
        memcpy(c->y + (i - first), y, sizeof y);
        if (!finds_top)
            continue;
        u32v *top = &c->top[(i - first) / GROUP];
        *top = largest_of(i % GROUP ? *top : (u32v){}, y);
    }
}

/** Quantises a row with one scale: given, or from the row's largest magnitude. */
QN_INLINE void quantize_row(mix m, const qni_norm_problem *p, const row ends[2], moments s) {
    const row *r = &ends[0];
    const rounding kind = rounding_of(qni_fp8_of(p->dtype_out));
    if (p->quant == QNI_NORM_PER_TOKEN)
        *r->scale = find_scale(m, p, ends, s);
    const float inverse = 1.0f / (p->quant == QNI_NORM_STATIC ? *p->scale : *r->scale);
    chunk c;
    for (int64_t i = 0; i < p->h; i += CHUNK) {
        const int64_t end = i + CHUNK < p->h ? i + CHUNK : p->h;
        make_chunk(m, false, p, ends, s, i, end, &c);
        encode_values(is_split(m), r->streams, &kind, c.y, end - i, inverse, (uint8_t *)r->out + i);
    }
}

/** Quantises a row with a scale for each group. */
QN_INLINE void quantize_groups(mix m, const qni_norm_problem *p, const row ends[2], moments s) {
    const row *r = &ends[0];
    float scales[CHUNK / GROUP];
    chunk c;
    for (int64_t i = 0; i < p->h; i += CHUNK) {
        const int64_t end = i + CHUNK < p->h ? i + CHUNK : p->h;
        make_chunk(m, true, p, ends, s, i, end, &c);
        encode_chunk(is_split(m), r->streams, qni_fp8_of(p->dtype_out), &c, end - i, p->scale_eps,
                     scales, (uint8_t *)r->out + i);
        for (int64_t k = 0; k * GROUP < end - i; k++)
            r->scale[(i / GROUP + k) * p->scale_col] = scales[k];
    }
}

QN_INLINE void norm_row(mix m, const qni_norm_problem *p, const row ends[2]) {
    const moments s = find_moments(m, p, ends);
    if (p->quant == QNI_NORM_PLAIN)
        write_row(m, p, ends, s);
    else if (p->quant == QNI_NORM_PER_GROUP)
        quantize_groups(m, p, ends, s);
    else
        quantize_row(m, p, ends, s);
}

// ---- rows

/** Returns whether results go past the caches: the output must be large and made of whole cache
 *  lines, and not overwrite x. */
static bool streams_out(const qni_norm_problem *p) {
    const int64_t size = qni_dtype_bytes(p->dtype_out);
    return p->rows * p->h * size >= stream_bytes && p->out.data != p->x.data &&
           (uintptr_t)p->out.data % CACHE_LINE == 0 && p->out.row * size % CACHE_LINE == 0 &&
           p->out.batch * size % CACHE_LINE == 0;
}

QN_INLINE void norm_rows_as(mix m, const qni_norm_problem *p, int64_t first, int64_t last) {
    const bool streams = streams_out(p), has_end = p->h % STEP != 0;
    for (int64_t i = first; i < last; i++) {
        row ends[2] = {find_row(p, i, i + 1 < p->rows ? i + 1 : i, streams)};
        row_end end;
        if (has_end)
            ends[1] = take_end(p, &ends[0], &end);
        norm_row(m, p, ends);
        if (has_end)
            put_end(p, &ends[0], &end);
    }
    if (streams)
        __atomic_thread_fence(__ATOMIC_SEQ_CST); // nothing less orders stores past the caches
}

// Each mix has a function: compilers take longer over one function with all the code.
#define ROWS_OF(name, ...)                                                                         \
    QN_SHARED void name(const qni_norm_problem *p, int64_t first, int64_t last) {                  \
        norm_rows_as((mix){__VA_ARGS__}, p, first, last);                                          \
    }
#if QN_LANES == 4 // for CPUs before AVX2 one form serves all, in a third of the code
#define FORMS_OF(name, dtype, weights)                                                             \
    ROWS_OF(name##_any, dtype, weights, ANY)                                                       \
    static const qni_norm_rows_fn name[] = {name##_any, name##_any, name##_any};
#else
#define FORMS_OF(name, dtype, weights)                                                             \
    ROWS_OF(name##_rms, dtype, weights, RMS)                                                       \
    ROWS_OF(name##_sum, dtype, weights, SUM)                                                       \
    ROWS_OF(name##_any, dtype, weights, ANY)                                                       \
    static const qni_norm_rows_fn name[] = {name##_rms, name##_sum, name##_any};
#endif
#ifndef QN_BF16_ALONE
FORMS_OF(f32, QNI_F32, QNI_F32)
FORMS_OF(f16, QNI_F16, QNI_F16)
FORMS_OF(f16_f32, QNI_F16, QNI_F32)
#endif
FORMS_OF(bf16, QNI_BF16, QNI_BF16)
FORMS_OF(bf16_f32, QNI_BF16, QNI_F32)
#undef FORMS_OF
#undef ROWS_OF

/** Returns the functions for the problem's dtypes, in the order of the forms. */
static const qni_norm_rows_fn *forms_of(const qni_norm_problem *p) {
    const bool is_wide = p->dtype_weights == QNI_F32;
#ifndef QN_BF16_ALONE
    if (p->dtype == QNI_F32)
        return f32;
    if (p->dtype == QNI_F16)
        return is_wide ? f16_f32 : f16;
#endif
    return is_wide ? bf16_f32 : bf16;
}

/** Computes rows first .. last - 1. */
static void norm_rows(const qni_norm_problem *p, int64_t first, int64_t last) {
    const bool is_any =
        p->subtracts_mean || p->gate.data || p->beta.data || !p->weight.data || p->rounds_first;
    forms_of(p)[is_any ? ANY : p->residual.data ? SUM : RMS](p, first, last);
}

#endif
