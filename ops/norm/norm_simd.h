// SPDX-License-Identifier: Apache-2.0
// Norms with vectors of QN_LANES f32: included by norm_cpu.c, norm_avx2.c and norm_avx512.c.
//
// A row goes through a scratch row of f32 that stays in the first cache: t with its sums, then the result, which
// is written past the caches where whole cache lines of it are.
#ifndef QNI_NORM_SIMD_H
#define QNI_NORM_SIMD_H

#include "../simd.h"
#include "norm.h"

QN_INLINE float sum_of(f32v v) {
    float sum = 0;
    for (int i = 0; i < QN_LANES; i++)
        sum += v[i];
    return sum;
}

/** Does `…` with v-wide i and count (QN_LANES, then what is left) along the row. */
#define ALONG(h, ...)                                                                              \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + QN_LANES <= (h); i += QN_LANES) {                                               \
            constexpr bool all = true;                                                             \
            [[maybe_unused]] constexpr int64_t count = QN_LANES;                                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        if (i < (h)) {                                                                             \
            constexpr bool all = false;                                                            \
            [[maybe_unused]] const int64_t count = (h) - i;                                        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LOAD(dtype, p) (all ? load(dtype, p, i) : load_some(dtype, p, i, count))
#define STORE(dtype, p, v) (all ? store(dtype, p, i, v) : store_some(dtype, p, i, count, v))

/** The pointers of one row. */
typedef struct row {
    const char *x, *weight, *beta, *gate;
    char *out, *residual;
    float *scale;
} row;

QN_INLINE row find_row(const qni_norm_problem *p, int64_t r) {
    const int64_t size = qni_dtype_bytes(p->dtype), batch = r / p->inner;
    const int64_t weight = qni_dtype_bytes(p->dtype_weights);
#define ROW(rows, bytes)                                                                           \
    ((rows).data ? (char *)(rows).data + qni_norm_at(p, &(rows), r) * (bytes) : nullptr)
#define WEIGHTS(w) ((w).data ? (const char *)(w).data + batch * (w).batch * weight : nullptr)
    return (row){.x = ROW(p->x, size),
                 .out = ROW(p->out, qni_dtype_bytes(p->dtype_out)),
                 .residual = ROW(p->residual, size),
                 .weight = WEIGHTS(p->weight),
                 .beta = WEIGHTS(p->beta),
                 .gate = WEIGHTS(p->gate),
                 .scale = p->scale + r * p->scale_row};
#undef ROW
#undef WEIGHTS
}

/** t into the scratch row, and back to residual; gives its sum. */
QN_INLINE float read_row(qni_dtype dtype, qni_dtype weights, const qni_norm_problem *p,
                         const row *r, float *t) {
    f32v sum = {};
    ALONG(
        p->h, f32v v = LOAD(dtype, r->x); if (r->gate) v *= LOAD(weights, r->gate);
        if (r->residual) {
            v += LOAD(dtype, r->residual);
            STORE(dtype, r->residual, v);
        } sum += v;
        memcpy(t + i, &v, (size_t)count * sizeof *t);)
    return sum_of(sum);
}

QN_INLINE float squares_of(const float *t, int64_t h, float mean) {
    f32v sum = {}, more = {};
    int64_t i = 0;
    for (; i + 2 * QN_LANES <= h; i += 2 * QN_LANES) {
        const f32v a = load(QNI_F32, t, i) - mean, b = load(QNI_F32, t, i + QN_LANES) - mean;
        sum += a * a;
        more += b * b;
    }
    float rest = 0;
    for (; i < h; i++)
        rest += (t[i] - mean) * (t[i] - mean);
    return sum_of(sum + more) + rest;
}

/** The result into the scratch row (quantised later) or to out. */
QN_INLINE void write_row(qni_dtype dtype, qni_dtype weights, const qni_norm_problem *p,
                         const row *r, float *t, float mean, float inverse) {
    const float plus = p->weight_plus;
    ALONG(p->h, f32v y = (LOAD(QNI_F32, t) - mean) * inverse;
          if (r->weight) y *= LOAD(weights, r->weight) + plus;
          if (r->beta) y += LOAD(weights, r->beta);
          if (p->quant == QNI_NORM_PLAIN) STORE(dtype, r->out, y);
          else memcpy(t + i, &y, (size_t)count * sizeof *t);)
}

static inline float found_scale(const qni_norm_problem *p, const float *y, int64_t count) {
    const float amax = amax_of(y, count);
    return (amax > p->scale_eps ? amax : p->scale_eps) /
           qni_fp8_format_of(qni_fp8_of(p->dtype_out)).max;
}

static inline void quantize_row(const qni_norm_problem *p, const row *r, float *y) {
    const qni_fp8 kind = qni_fp8_of(p->dtype_out);
    const int64_t group = p->quant == QNI_NORM_PER_GROUP ? QNI_NORM_GROUP : p->h;
    if (p->rounds_first)
        for (int64_t i = 0; i < p->h; i++)
            y[i] = (float)qni_round_to(p->dtype, (double)y[i]);
    for (int64_t i = 0; i < p->h; i += group) {
        const int64_t end = i + group < p->h ? i + group : p->h;
        if (p->quant != QNI_NORM_STATIC)
            r->scale[i / group] = found_scale(p, y + i, end - i);
        const float inverse =
            1.0f / (p->quant == QNI_NORM_STATIC ? *p->scale : r->scale[i / group]);
        for (int64_t k = i; k < end; k++)
            ((uint8_t *)r->out)[k] = qni_fp8_encode(kind, y[k] * inverse);
    }
}

QN_INLINE void norm_row(qni_dtype dtype, qni_dtype weights, const qni_norm_problem *p, int64_t at,
                        float *t) {
    const row r = find_row(p, at);
    const float h = (float)p->h, sum = read_row(dtype, weights, p, &r, t);
    const float mean = p->subtracts_mean ? sum / h : 0;
    const float inverse = 1.0f / sqrtf(squares_of(t, p->h, mean) / h + p->eps);
    write_row(dtype, weights, p, &r, t, mean, inverse);
    if (p->quant != QNI_NORM_PLAIN)
        quantize_row(p, &r, t);
}

/** Rows first .. last - 1: a copy of the code for each mix of dtypes. */
static void norm_rows(const qni_norm_problem *p, int64_t first, int64_t last, float *scratch) {
    for (int64_t r = first; r < last; r++) {
        if (p->dtype == QNI_F32)
            norm_row(QNI_F32, QNI_F32, p, r, scratch);
        else if (p->dtype == QNI_F16 && p->dtype_weights == QNI_F16)
            norm_row(QNI_F16, QNI_F16, p, r, scratch);
        else if (p->dtype == QNI_F16)
            norm_row(QNI_F16, QNI_F32, p, r, scratch);
        else if (p->dtype_weights == QNI_BF16)
            norm_row(QNI_BF16, QNI_BF16, p, r, scratch);
        else
            norm_row(QNI_BF16, QNI_F32, p, r, scratch);
    }
}

#endif
