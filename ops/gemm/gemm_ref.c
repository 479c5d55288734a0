// SPDX-License-Identifier: Apache-2.0
// The definition of the gemm family in double precision, with the error that a kernel in f32 may
// make.
//
//   p[m,n] = sum_kb sa[m,kb] sb[n,kb] sum_(k in kb) a[m,k] b[n,k]
//   d[m,n] = c[m,n] + gate[m / gate_rows,n] activation(p[m,n] + bias[group of m,n])
//
// or, where pairs of columns make one, with x = p + bias:
//
//   d[m,j] = c[m,j] + gate[m / gate_rows,j] silu(x[m,2j]) x[m,2j+1]
//
// A scale of e8m0fnu, or a byte of an i32 word, is 2^(e - 127). A d of FP8 holds quantize's codes
// of that number in f32 (rows_ref.c), by groups of 128 columns or with a given scale.
//
// Bound. A kernel multiplies exactly (a product of two values of 8 or 16 bits fits f32), adds the
// up to 128 products of a K-block, scales twice, adds the blocks, adds bias, adds c: to first order
// at most (k + 4) roundings act on any product, each of 2^-24. The bound is twice that, which
// allows for matrix cores that cut instead of round, and for products of f32 that are rounded. An
// activation adds the error that its own definition allows, and makes the error of its argument
// larger by its slope, at most 1.13 (GELU) and 1.1 (SiLU).
// GPUs multiply f32, and f16 beside f32 or bf16, as sums of two bf16, high and low. An f32 loses
// 2^-16 (bf16 rounds to 2^-8, and does so twice), and the product of both low parts, up to 2^-16,
// is left out. Three products then act in place of one.
// Hardware that flushes subnormal bf16 operands or f32 sums (vdpbf16ps, the matrix cores of gfx90a)
// loses products with a subnormal operand whole, and up to 2^-126 at each sum.
// Hopper's tensor cores add 32 products of FP8 codes and a sum in one instruction: they align all
// 33 to the largest, and cut what lies 13 bits below it (arXiv:2412.19437, 3.3.2). Source:
// DeepGEMM's fp8_gemm_nt with recipe (1, 128, 128).
#include "../shared/activated.h"
#include "../shared/fp8.h"
#include "gemm.h"

#include <math.h>

static constexpr double F32_ROUNDING = 0x1p-24;
static constexpr double PART_ROUNDING = 0x1p-16;    // of two bf16 that are one f32
static constexpr double FP8_CUT = 33 * 0x1p-13;     // of the largest of an instruction's addends
static constexpr double SMALLEST_NORMAL = 0x1p-126; // of f32 and of bf16

/** An array whose elements are read as numbers. The values of all 256 codes of 8 bits are looked up
 *  once. */
typedef struct reader {
    const void *data;
    qni_dtype dtype;
    double codes[256];
} reader;

static reader reader_of(const void *data, qni_dtype dtype) {
    reader r = {.data = data, .dtype = dtype};
    for (int i = 0; i < 256 && (qni_is_fp8(dtype) || dtype == QNI_I8); i++)
        r.codes[i] = qni_get(dtype, &(uint8_t){(uint8_t)i}, 0);
    return r;
}

static double read_at(const reader *r, int64_t i) {
    switch (r->dtype) {
    case QNI_F32:
        return (double)((const float *)r->data)[i];
    case QNI_F16:
        return (double)((const _Float16 *)r->data)[i];
    case QNI_BF16:
        return (double)__builtin_bit_cast(float, (uint32_t)((const uint16_t *)r->data)[i] << 16);
    default:
        return r->codes[((const uint8_t *)r->data)[i]];
    }
}

static int64_t min_i64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

/** Returns the group of row m by the groups' ends: group g has rows
 *  qni_round_up(end[g-1])..end[g]-1, then padding to the next multiple. */
static int64_t group_by_ends(const qni_gemm_problem *p, int64_t m) {
    int64_t start = 0;
    for (int64_t g = 0; g < p->groups && start <= m; g++) {
        const int64_t end = min_i64(p->layout[g], p->m);
        if (m < end)
            return g;
        if (end > start && m < qni_round_up(end, p->m_alignment))
            return p->zero_padding ? QNI_GEMM_ROW_ZERO : QNI_GEMM_ROW_UNTOUCHED;
        start = end > start ? qni_round_up(end, p->m_alignment) : start;
    }
    return QNI_GEMM_ROW_UNTOUCHED;
}

int64_t qni_gemm_row_group(const qni_gemm_problem *p, int64_t slab, int64_t m) {
    switch (p->grouping) {
    case QN_GEMM_DENSE:
        return 0;
    case QN_GEMM_GROUPED_INDEX:
        return p->layout[m] >= 0 && p->layout[m] < p->groups ? p->layout[m]
                                                             : QNI_GEMM_ROW_UNTOUCHED;
    case QN_GEMM_GROUPED_ENDS:
        return group_by_ends(p, m);
    case QN_GEMM_GROUPED_MASKED:
        return !p->layout || m < p->layout[slab] ? slab : QNI_GEMM_ROW_UNTOUCHED;
    }
    return QNI_GEMM_ROW_UNTOUCHED;
}

/** One row of a and one column of d. */
typedef struct place {
    int64_t slab, group, m, n;
} place;

/** Returns the scales' product for a K-block. */
static double scale_of(const qni_gemm_problem *p, place at, int64_t kb) {
    const int64_t of_a = at.slab * p->scale_a_group + at.m * p->scale_a_row;
    const int64_t of_b = at.group * p->scale_b_group + at.n / p->scale_b_columns * p->scale_b_nb;
    const float a = qni_gemm_scale(p->scale_a, p->dtype_scale_a, of_a, kb, p->scale_a_kb),
                b = qni_gemm_scale(p->scale_b, p->dtype_scale_b, of_b, kb, p->scale_b_kb);
    return (double)a * (double)b;
}

static bool is_subnormal(double x) {
    return x != 0 && fabs(x) < SMALLEST_NORMAL;
}

uint32_t qni_gemm_losses(const qn_device *device) {
    if (!qni_has(device, QNI_F(GPU)))
        return 0;
    return QNI_GEMM_SPLITS_F32 | (qni_has(device, QNI_F(WGMMA)) ? QNI_GEMM_CUTS_FP8 : 0) |
           (qni_has(device, QNI_F(TILE_F16)) ? 0 : QNI_GEMM_SPLITS_F16);
}

/** A problem, and what is lost in it: QNI_GEMM_CUTS_FP8, QNI_GEMM_SPLITS_F32 or nothing. */
typedef struct lossy {
    const qni_gemm_problem *p;
    bool cuts, splits;
} lossy;

static lossy losses_of(const qni_gemm_problem *p, uint32_t losses) {
    const bool has_f32 = p->dtype_a == QNI_F32 || p->dtype_b == QNI_F32,
               has_f16 = p->dtype_a == QNI_F16 || p->dtype_b == QNI_F16,
               has_bf16 = p->dtype_a == QNI_BF16 || p->dtype_b == QNI_BF16;
    const bool splits_f16 = has_f16 && (has_bf16 || (losses & QNI_GEMM_SPLITS_F16));
    return (lossy){.p = p,
                   .cuts = (losses & QNI_GEMM_CUTS_FP8) && qni_is_fp8(p->dtype_a) &&
                           qni_is_fp8(p->dtype_b),
                   .splits = (losses & QNI_GEMM_SPLITS_F32) && (has_f32 || splits_f16)};
}

/** Returns what of a product is lost that is made of parts. */
static double of_parts(const lossy *l) {
    const qni_dtype a = l->p->dtype_a, b = l->p->dtype_b;
    const bool both_low = (a == QNI_F32 || a == QNI_F16) && (b == QNI_F32 || b == QNI_F16);
    return l->splits ? PART_ROUNDING * ((a == QNI_F32) + (b == QNI_F32) + both_low) : 0;
}

/** Returns the error that the roundings of sums may make, for a magnitude of 1. */
static double roundings(const lossy *l) {
    return 2 * ((l->splits ? 3 : 1) * (double)l->p->k + 4) * F32_ROUNDING;
}

/** Sums over a K-block, or over all of them. */
typedef struct total {
    double sum, magnitude, flushed;
    double cut; // what Hopper's tensor cores may cut
} total;

enum { BLOCK = 128, LANES = 4 };

/** A K-block of a row, in double; behind the end are zeros. */
typedef struct run {
    double at[BLOCK];
} run;

static void read_run(const reader *r, int64_t begin, int64_t stride, int64_t count, run *out) {
    for (int64_t k = 0; k < count; k++)
        out->at[k] = read_at(r, begin + k * stride);
    for (int64_t k = count; k < BLOCK; k++)
        out->at[k] = 0;
}

/** Adds each lane's products up by itself, so that no sum waits for the sum before. */
static total add_up(const run *x, const run *y) {
    double sum[LANES] = {0}, magnitude[LANES] = {0};
    for (int k = 0; k < BLOCK; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const double product = x->at[k + lane] * y->at[k + lane];
            sum[lane] += product;
            magnitude[lane] += fabs(product);
        }
    return (total){.sum = sum[0] + sum[1] + (sum[2] + sum[3]),
                   .magnitude = magnitude[0] + magnitude[1] + (magnitude[2] + magnitude[3])};
}

/** Returns what hardware loses that takes subnormals for zeros: products, and low parts. */
static double flushed(const lossy *l, const run *x, const run *y) {
    double lost = (double)BLOCK * SMALLEST_NORMAL;
    for (int k = 0; k < BLOCK; k++)
        if (is_subnormal(x->at[k]) || is_subnormal(y->at[k]))
            lost += fabs(x->at[k] * y->at[k]);
    for (int k = 0; k < BLOCK && l->splits; k++)
        lost += (2 + fabs(x->at[k]) + fabs(y->at[k])) * SMALLEST_NORMAL;
    return lost;
}

/** Returns whether an operand, or a part of it, may be subnormal. */
static bool may_flush(const lossy *l) {
    return l->p->dtype_a == QNI_BF16 || l->p->dtype_b == QNI_BF16 || l->splits;
}

/** Returns what Hopper's tensor cores may cut of a K-block: of each 32 products and the sum. */
static double cut(const run *x, const run *y, int64_t count) {
    double sum = 0, all = 0;
    for (int k0 = 0; k0 < count; k0 += 32) {
        double largest = fabs(sum);
        for (int k = k0; k < k0 + 32; k++) {
            const double product = x->at[k] * y->at[k];
            largest = fmax(largest, fabs(product));
            sum += product;
        }
        all += FP8_CUT * largest;
    }
    return all;
}

static total multiply_block(const lossy *l, const reader *a, const reader *b, place at,
                            int64_t k0) {
    const qni_gemm_problem *p = l->p;
    const int64_t count = min_i64(p->k - k0, BLOCK);
    run x, y;
    read_run(a, at.slab * p->a_group + at.m * p->a_row + k0 * p->a_k, p->a_k, count, &x);
    read_run(b, at.group * p->b_group + at.n * p->b_n + k0 * p->b_k, p->b_k, count, &y);
    total t = add_up(&x, &y);
    if (may_flush(l))
        t.flushed = flushed(l, &x, &y);
    if (l->cuts)
        t.cut = cut(&x, &y, count);
    return t;
}

/** All that the problem reads. */
typedef struct readers {
    reader a, b, c, bias, gate;
} readers;

/** A number, and how far from it a kernel may be. */
typedef struct estimate {
    double value, error;
} estimate;

/** Returns p[m,n] of the definition above. */
static estimate product(const lossy *l, const readers *r, place at) {
    const qni_gemm_problem *p = l->p;
    total all = {0};
    for (int64_t k0 = 0; k0 < p->k; k0 += 128) {
        const double scale = scale_of(p, at, k0 / 128);
        total block = multiply_block(l, &r->a, &r->b, at, k0);
        all.sum += scale * block.sum;
        all.magnitude += fabs(scale) * block.magnitude;
        all.flushed += fabs(scale) * block.flushed;
        all.cut += fabs(scale) * block.cut;
    }
    return (estimate){all.sum,
                      (roundings(l) + of_parts(l)) * all.magnitude + all.flushed + all.cut};
}

static estimate add(const lossy *l, estimate x, double y) {
    return (estimate){x.value + y, x.error + roundings(l) * fabs(y)};
}

static estimate activated(qn_activation function, estimate x) {
    constexpr double slope = 1.13;
    double relative;
    const double y = qni_activated(function, x.value, &relative);
    const double own = fmin((relative + 4) * F32_ROUNDING, 1), before = slope * x.error;
    return (estimate){y, before + own * (fabs(y) + before) + fabs(x.value) * 0x1p-124};
}

static estimate multiply(estimate x, double gate) {
    const double y = x.value * gate;
    return (estimate){y, x.error * fabs(gate) + 4 * F32_ROUNDING * fabs(y) + SMALLEST_NORMAL};
}

static estimate multiply_both(estimate x, estimate y) {
    estimate both = multiply(x, y.value);
    both.error += (fabs(x.value) + x.error) * y.error;
    return both;
}

/** Returns p[m,n] + bias[n]. */
static estimate biased(const lossy *l, const readers *r, place at) {
    const estimate sum = product(l, r, at);
    const int64_t bias = at.group * l->p->bias_group + at.n;
    return l->p->bias ? add(l, sum, read_at(&r->bias, bias)) : sum;
}

/** Returns what is multiplied by gate, in a column of d. */
static estimate factor(const lossy *l, const readers *r, place at) {
    at.n *= qni_gemm_ratio(l->p);
    const estimate x = biased(l, r, at);
    if (l->p->activation == QN_GEMM_NO_ACTIVATION)
        return x;
    if (l->p->activation == QN_GEMM_GELU_TANH)
        return activated(QN_GELU_TANH, x);
    at.n++;
    return multiply_both(activated(QN_SILU, x), biased(l, r, at));
}

/** Returns one element of d, and *bound as qni_gemm_ref defines it. at.n is a column of d. */
static double element(const lossy *l, const readers *r, place at, double *bound) {
    const qni_gemm_problem *p = l->p;
    estimate d = factor(l, r, at);
    if (p->gate)
        d = multiply(d, read_at(&r->gate, at.m / p->gate_rows * p->gate_batch + at.n));
    if (p->c)
        d = add(l, d, read_at(&r->c, at.slab * p->c_group + at.m * p->c_row + at.n));
    *bound = isinf(d.value) ? 0 : d.error;
    return d.value;
}

void qni_gemm_ref(const qni_gemm_problem *p, uint32_t losses, double *d, double *bound) {
    const lossy l = losses_of(p, losses);
    const readers r = {.a = reader_of(p->a, p->dtype_a),
                       .b = reader_of(p->b, p->dtype_b),
                       .c = reader_of(p->c, p->dtype_d),
                       .bias = reader_of(p->bias, p->dtype_bias),
                       .gate = reader_of(p->gate, p->dtype_gate)};
    const int64_t slabs = p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
    const int64_t columns = qni_gemm_columns(p);
    for (int64_t row = 0; row < slabs * p->m; row++) {
        place at = {.slab = row / p->m, .m = row % p->m};
        at.group = qni_gemm_row_group(p, at.slab, at.m);
        for (at.n = 0; at.n < columns && at.group != QNI_GEMM_ROW_UNTOUCHED; at.n++) {
            const int64_t i = row * columns + at.n;
            double error = 0;
            d[i] = at.group == QNI_GEMM_ROW_ZERO ? 0 : element(&l, &r, at, &error);
            if (bound)
                bound[i] = error;
        }
    }
}
