// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms with vectors of QN_LANES f32: included by norm_backward_cpu.c,
// _avx2.c, _avx512.c and, with QN_BF16_ALONE, which leaves out the other dtypes, _avx512bf16.c.
//
// A row of x becomes n in a scratch row of f32, and d_out times the weights becomes g in another;
// both stay in the first caches. The sums of dweight and dbeta grow with each row of a part, so
// that their order does not depend on threads.
#ifndef QNI_NORM_BACKWARD_SIMD_H
#define QNI_NORM_BACKWARD_SIMD_H

#include "../shared/groups_simd.h"
#include "../shared/round.h"
#include "norm_backward.h"

/** What the code is built for. The compiler makes a copy for each mix in use. */
typedef struct mix {
    qni_dtype dtype, weight;
} mix;

/** One row: its tensors, its two rows of scratch, and its part's sums. All but x, d_out, dx, n and
 *  g may be null. */
typedef struct row {
    const void *x, *d_out, *d_sum, *gated, *weight, *gate;
    void *dx, *d_gated;
    float *n, *g, *sums[QK_NORM_SUMS];
    int64_t h;
} row;

/** What a row's sums gave. The elements were multiplied by factor before. */
typedef struct moments {
    float factor, mean, inverse, mean_g, mean_gn;
} moments;

#define EACH_VECTOR(i, r) for (int64_t i = 0; i < (r)->h; i += QN_LANES)

QN_INLINE int64_t left_of(const row *r, int64_t i) {
    return r->h - i < QN_LANES ? r->h - i : QN_LANES;
}

/** Loads a vector of a row; zeros behind its end. */
QN_INLINE f32v load_left(qni_dtype dtype, const row *r, const void *p, int64_t i) {
    return r->h - i >= QN_LANES ? load(dtype, p, i) : load_some(dtype, p, i, left_of(r, i));
}

/** Replaces what lies behind the row's end by zeros. */
QN_INLINE f32v keep_left(const row *r, int64_t i, f32v v) {
    if (r->h - i >= QN_LANES)
        return v;
    for (int k = (int)left_of(r, i); k < QN_LANES; k++)
        v[k] = 0;
    return v;
}

QN_INLINE float sum_of(f32v v) {
    float sum = 0;
    for (int k = 0; k < QN_LANES; k++)
        sum += v[k];
    return sum;
}

// ---- passes over a row

/** Writes x times the factor, less the pivot, to n. Returns its sum, or the sum of its squares. */
QN_INLINE float take_x(mix m, const row *r, float factor, float pivot, bool squares) {
    f32v sum = {};
    EACH_VECTOR(i, r) {
        const f32v t = keep_left(r, i, load_left(m.dtype, r, r->x, i) * factor - pivot);
        sum = squares ? fma_of(t, t, sum) : sum + t;
        memcpy(r->n + i, &t, sizeof t);
    }
    return sum_of(sum);
}

/** Subtracts the mean from n. Returns the sum of squares. */
QN_INLINE float subtract_mean(const row *r, float mean) {
    f32v sum = {}, t;
    EACH_VECTOR(i, r) {
        memcpy(&t, r->n + i, sizeof t);
        t = keep_left(r, i, t - mean);
        sum = fma_of(t, t, sum);
        memcpy(r->n + i, &t, sizeof t);
    }
    return sum_of(sum);
}

/** Writes x times the factor, less its mean, to n, and adds to the mean what it differs by from the
 *  one that s has. Returns the mean square of n, with eps. */
QN_INLINE float find_square(mix m, const qni_norm_backward_problem *p, const row *r, moments *s) {
    const float h = (float)r->h;
    float square = take_x(m, r, s->factor, s->mean, !p->subtracts_mean) / h;
    if (p->subtracts_mean) {
        s->mean += square;
        square = subtract_mean(r, square) / h;
    }
    return square + p->eps * s->factor * s->factor;
}

/** Finds mean and root of the row. */
QN_INLINE moments find_root(mix m, const qni_norm_backward_problem *p, const row *r) {
    moments s = {.factor = 1};
    float square;
    int turn = 0;
    do // a loop, so that the code exists once
        square = find_square(m, p, r, &s);
    while (++turn < QK_NORM_TURNS && qk_norm_again(square, &s.mean, &s.factor));
    s.inverse = square <= 0 ? 0 : 1.0f / sqrtf(square);
    return s;
}

QN_INLINE void add_to(float *sums, int64_t i, f32v v) {
    f32v sum;
    memcpy(&sum, sums + i, sizeof sum);
    sum += v;
    memcpy(sums + i, &sum, sizeof sum);
}

/** Normalises n, makes g, and adds to all sums. */
QN_INLINE void find_means(mix m, const qni_norm_backward_problem *p, const row *r, moments *s) {
    f32v sum_g = {}, sum_gn = {}, n;
    EACH_VECTOR(i, r) {
        const f32v d = load_left(m.dtype, r, r->d_out, i);
        f32v g = d;
        if (r->weight)
            g *= load_left(m.weight, r, r->weight, i) + p->weight_plus;
        memcpy(&n, r->n + i, sizeof n);
        n *= s->inverse;
        sum_g += g;
        sum_gn = fma_of(g, n, sum_gn);
        if (r->sums[QK_DWEIGHT])
            add_to(r->sums[QK_DWEIGHT], i, d * n);
        if (r->sums[QK_DBETA])
            add_to(r->sums[QK_DBETA], i, d);
        memcpy(r->n + i, &n, sizeof n);
        memcpy(r->g + i, &g, sizeof g);
    }
    s->mean_g = p->subtracts_mean ? sum_of(sum_g) / (float)r->h : 0;
    s->mean_gn = sum_of(sum_gn) / (float)r->h;
}

QN_INLINE void store_left(qni_dtype dtype, const row *r, void *p, int64_t i, f32v v) {
    if (r->h - i >= QN_LANES)
        store(dtype, p, i, v);
    else
        store_some(dtype, p, i, left_of(r, i), v);
}

QN_INLINE void write_dx(mix m, const row *r, moments s) {
    f32v n, g;
    EACH_VECTOR(i, r) {
        memcpy(&n, r->n + i, sizeof n);
        memcpy(&g, r->g + i, sizeof g);
        f32v dx = (g - s.mean_g - n * s.mean_gn) * s.inverse * s.factor;
        if (r->d_sum)
            dx += load_left(m.dtype, r, r->d_sum, i);
        store_left(m.dtype, r, r->dx, i, dx);
        if (r->d_gated)
            store_left(m.dtype, r, r->d_gated, i, dx * load_left(m.weight, r, r->gate, i));
        if (r->sums[QK_DGATE])
            add_to(r->sums[QK_DGATE], i, dx * load_left(m.dtype, r, r->gated, i));
    }
}

// ---- rows

QN_INLINE const void *row_of_group(mix m, const qni_norm_weights *w, int64_t group) {
    return w->data ? (const char *)w->data + group * w->batch * (m.weight == QNI_F32 ? 4 : 2)
                   : nullptr;
}

QN_INLINE row find_row(mix m, const qni_norm_backward_problem *p, const row *common, int64_t r) {
    const int64_t size = m.dtype == QNI_F32 ? 4 : 2;
    row of = *common;
#define ROW(rows)                                                                                  \
    ((rows).data ? (char *)(rows).data + qni_norm_backward_at(p, &(rows), r) * size : nullptr)
    of.x = ROW(p->x);
    of.d_out = ROW(p->d_out);
    of.d_sum = ROW(p->d_sum);
    of.gated = ROW(p->gated);
    of.dx = ROW(p->dx);
    of.d_gated = ROW(p->d_gated);
#undef ROW
    return of;
}

/** Returns what a part's rows have in common, with sums of 0. */
QN_INLINE row begin_part(mix m, const qni_norm_backward_problem *p, int64_t group, int64_t part,
                         float *scratch) {
    row of = {.weight = row_of_group(m, &p->weight, group),
              .gate = row_of_group(m, &p->gate, group),
              .n = scratch,
              .g = scratch + p->pad,
              .h = p->h};
    for (int i = 0; i < QK_NORM_SUMS; i++)
        if (p->sums[i].to) {
            of.sums[i] = p->sums[i].parts + part * p->pad;
            memset(of.sums[i], 0, (size_t)p->pad * sizeof(float));
        }
    return of;
}

QN_INLINE void part_as(mix m, const qni_norm_backward_problem *p, int64_t part, float *scratch) {
    const qni_norm_part of = qni_norm_backward_part(p, part);
    const row common = begin_part(m, p, of.group, part, scratch);
    for (int64_t i = of.first; i < of.end; i++) {
        const row r = find_row(m, p, &common, i);
        moments s = find_root(m, p, &r);
        find_means(m, p, &r, &s);
        write_dx(m, &r, s);
    }
}

// Each mix has a function: compilers take longer over one function with all the code.
#define PART_OF(name, ...)                                                                         \
    QN_SHARED void name(const qni_norm_backward_problem *p, int64_t part, float *scratch) {        \
        part_as((mix){__VA_ARGS__}, p, part, scratch);                                             \
    }
#ifndef QN_BF16_ALONE
PART_OF(part_f32, QNI_F32, QNI_F32)
PART_OF(part_f16, QNI_F16, QNI_F16)
PART_OF(part_f16_f32, QNI_F16, QNI_F32)
#endif
PART_OF(part_bf16, QNI_BF16, QNI_BF16)
PART_OF(part_bf16_f32, QNI_BF16, QNI_F32)
#undef PART_OF

/** Computes the rows of one part. */
static void backward_part(const qni_norm_backward_problem *p, int64_t part, float *scratch) {
    const bool is_wide = p->dtype_weight == QNI_F32;
#ifndef QN_BF16_ALONE
    if (p->dtype == QNI_F32)
        return part_f32(p, part, scratch);
    if (p->dtype == QNI_F16)
        return (is_wide ? part_f16_f32 : part_f16)(p, part, scratch);
#endif
    return (is_wide ? part_bf16_f32 : part_bf16)(p, part, scratch);
}

#endif
