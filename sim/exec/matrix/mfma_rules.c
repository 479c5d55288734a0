// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one matrix-core output, by the definition: slow, scalar, one statement a step.
//
// Everything faster is tested against this file. Host arithmetic is IEEE 754, rounding to nearest
// even.
#include "mfma.h"

#include <math.h>
#include <string.h>

const mfma_format mfma_formats[MFMA_NUM_TYPES] = {
    [MFMA_F64] = {64, 52, 1023, MFMA_IEEE}, [MFMA_F32] = {32, 23, 127, MFMA_IEEE},
    [MFMA_XF32] = {32, 10, 127, MFMA_IEEE}, [MFMA_F16] = {16, 10, 15, MFMA_IEEE},
    [MFMA_BF16] = {16, 7, 127, MFMA_IEEE},  [MFMA_I8] = {8, 0, 0, MFMA_ALL_OK},
    [MFMA_FP8_FNUZ] = {8, 3, 8, MFMA_FNUZ}, [MFMA_BF8_FNUZ] = {8, 2, 16, MFMA_FNUZ},
    [MFMA_FP8] = {8, 3, 7, MFMA_FN},        [MFMA_BF8] = {8, 2, 15, MFMA_IEEE},
    [MFMA_FP6] = {6, 3, 1, MFMA_ALL_OK},    [MFMA_BF6] = {6, 2, 3, MFMA_ALL_OK},
    [MFMA_FP4] = {4, 1, 1, MFMA_ALL_OK},
};

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    if (isnan(x))
        return MFMA_NAN32;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---- decoding

/** Returns whether a type's bits are a finite number, an infinity or a NaN. */
static mfma_kind kind_of(const mfma_format *f, bool negative, uint32_t exponent,
                         uint32_t fraction) {
    const uint32_t top = (1u << (f->bits - 1 - f->fraction)) - 1;
    switch (f->specials) {
    case MFMA_IEEE:
        return exponent != top ? MFMA_FINITE : fraction == 0 ? MFMA_INF : MFMA_NAN;
    case MFMA_FNUZ:
        return negative && exponent == 0 && fraction == 0 ? MFMA_NAN : MFMA_FINITE;
    case MFMA_FN:
        return exponent == top && fraction == (1u << f->fraction) - 1 ? MFMA_NAN : MFMA_FINITE;
    default:
        return MFMA_FINITE;
    }
}

mfma_term mfma_decode(mfma_type type, uint64_t bits) {
    const mfma_format *f = &mfma_formats[type];
    mfma_term t = {.bits = f->bits == 64 ? bits : bits & ((1ull << f->bits) - 1)};
    if (type == MFMA_F64 || type == MFMA_I8)
        return t; // used unchanged
    uint32_t raw = (uint32_t)t.bits;
    if (type == MFMA_XF32)
        raw >>= 13; // keeps sign, exponent and 10 fraction bits, toward zero
    const int width = type == MFMA_XF32 ? 19 : f->bits;
    const bool negative = raw >> (width - 1);
    const uint32_t exponent = (raw >> f->fraction) & ((1u << (width - 1 - f->fraction)) - 1);
    const uint32_t fraction = raw & ((1u << f->fraction) - 1);
    mfma_format as_read = *f;
    as_read.bits = (uint8_t)width;
    t.kind = (uint8_t)kind_of(&as_read, negative, exponent, fraction);
    const int32_t m = (int32_t)(exponent != 0 ? fraction | 1u << f->fraction : fraction);
    t.m = negative ? -m : m;
    t.e = (int16_t)(m == 0 ? -126 : (exponent != 0 ? (int)exponent : 1) - f->bias);
    return t;
}

// ---- chain

static uint32_t chain_f32(const mfma_term *a, const mfma_term *b, int count, uint32_t c) {
    float s = float_of(c);
    for (int k = 0; k < count; k++)
        s = fmaf(float_of((uint32_t)a[k].bits), float_of((uint32_t)b[k].bits), s);
    return bits_of(s);
}

static uint64_t chain_f64(const mfma_term *a, const mfma_term *b, int count, uint64_t c) {
    double s;
    memcpy(&s, &c, sizeof s);
    for (int k = 0; k < count; k++) {
        double x, y;
        memcpy(&x, &a[k].bits, sizeof x);
        memcpy(&y, &b[k].bits, sizeof y);
        s = fma(x, y, s);
    }
    memcpy(&c, &s, sizeof c);
    return isnan(s) ? MFMA_NAN64 : c;
}

// ---- pairwise with flush (gfx90a)

/** Returns an input, widened. Subnormals of its own type become +0. */
static float flushed_input(mfma_type type, uint64_t bits) {
    mfma_term t = mfma_decode(type, bits);
    const mfma_format *f = &mfma_formats[type];
    if (t.kind == MFMA_NAN)
        return NAN;
    if (t.kind == MFMA_INF)
        return t.m < 0 ? -INFINITY : INFINITY;
    if ((t.m < 0 ? -t.m : t.m) >> f->fraction == 0)
        return 0.0f;
    return (float)ldexp(t.m, t.e - f->fraction);
}

/** Returns x, or a zero of its sign if x is subnormal. */
static float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static float pairwise_group(mfma_type type, const mfma_term *a, const mfma_term *b, int group) {
    float q[4] = {0};
    for (int i = 0; i < group; i++)
        q[i] = flushed(fmaf(flushed_input(type, a[i].bits), flushed_input(type, b[i].bits), 0.0f));
    const float low = flushed(q[0] + q[1]);
    return group == 2 ? low : flushed(low + flushed(q[2] + q[3]));
}

static uint32_t pairwise(const mfma_form *form, const mfma_term *a, const mfma_term *b, int count,
                         uint32_t c) {
    float s = flushed_input(MFMA_F32, c);
    for (int k = 0; k < count; k += form->group)
        s = flushed(s + pairwise_group((mfma_type)form->a_type, a + k, b + k, form->group));
    return bits_of(s);
}

// ---- fused, fused with split (gfx942)

/** Deals with NaN, Inf and products past f32's range before any arithmetic. Returns false if there
 *  are none. */
static bool fused_special(const mfma_term *a, const mfma_term *b, int count, int fraction,
                          int scale_exponent, mfma_term c, uint32_t *out) {
    bool nan = c.kind == MFMA_NAN, huge[2] = {false}, inf[2] = {false};
    if (c.kind == MFMA_INF)
        inf[c.m < 0] = true;
    for (int k = 0; k < count; k++) {
        const bool negative = (a[k].m < 0) != (b[k].m < 0);
        nan |= a[k].kind == MFMA_NAN || b[k].kind == MFMA_NAN;
        if (a[k].kind == MFMA_INF || b[k].kind == MFMA_INF) {
            nan |= a[k].m == 0 || b[k].m == 0;
            inf[negative] = true;
        } else {
            const double p =
                ldexp((double)a[k].m * b[k].m, a[k].e + b[k].e + scale_exponent - fraction);
            huge[negative] |= fabs(p) >= 0x1p128;
        }
    }
    const bool any_inf = inf[0] || inf[1];
    const bool *seen = any_inf ? inf : huge;
    if (nan || (seen[0] && seen[1])) {
        *out = MFMA_NAN32;
        return true;
    }
    *out = seen[1] ? 0xff800000 : 0x7f800000;
    return seen[0] || seen[1];
}

/** Shifts x right by n, toward minus infinity, for any n >= 0. */
static int64_t shift_floor(int64_t x, int n) {
    return x >> (n > 62 ? 62 : n);
}

typedef struct group_sum {
    int64_t s; // units of 2^(e - 24)
    int e;
} group_sum;

/** Sums every `step`-th product, each cut toward zero at 2^-24 of the largest exponent. */
static group_sum sum_products(const mfma_term *a, const mfma_term *b, int count, int step,
                              int fraction, int scale_exponent) {
    group_sum g = {.e = INT32_MIN};
    for (int k = 0; k < count; k += step) {
        const int e = a[k].e + b[k].e + scale_exponent;
        g.e = e > g.e ? e : g.e;
    }
    for (int k = 0; k < count; k += step) {
        const int64_t p = (int64_t)a[k].m * b[k].m * (1 << (24 - fraction));
        const int down = g.e - (a[k].e + b[k].e + scale_exponent);
        g.s += p < 0 ? -shift_floor(-p, down) : shift_floor(p, down);
    }
    return g;
}

static uint32_t fused_group(const mfma_form *form, const mfma_term *a, const mfma_term *b,
                            int count, uint32_t c_bits, int fraction, int scale_exponent) {
    mfma_term c = mfma_decode(MFMA_F32, c_bits);
    uint32_t special;
    if (fused_special(a, b, count, fraction, scale_exponent, c, &special))
        return special;
    group_sum g;
    const bool split = form->rule == MFMA_SPLIT;
    if (split) {
        group_sum even = sum_products(a, b, count, 2, fraction, scale_exponent);
        group_sum odd = sum_products(a + 1, b + 1, count - 1, 2, fraction, scale_exponent);
        g.e = even.e > odd.e ? even.e : odd.e;
        g.s = shift_floor(even.s, g.e - even.e) + shift_floor(odd.s, g.e - odd.e);
    } else {
        g = sum_products(a, b, count, 1, fraction, scale_exponent);
    }
    const int top = g.e > c.e ? g.e : c.e;
    const int64_t t = shift_floor(g.s * 128, top - g.e);
    int64_t k = shift_floor(2 * (int64_t)c.m, top - c.e);
    if (split && c.e < top - 25)
        k = 0;
    return bits_of((float)ldexp((double)(t + k * 128), top - 31));
}

static uint32_t fused(const mfma_form *form, const mfma_term *a, const mfma_term *b, int count,
                      uint32_t c, int scale_exponent) {
    const int fraction = mfma_formats[form->a_type].fraction + mfma_formats[form->b_type].fraction;
    for (int k = 0; k < count; k += form->group)
        c = fused_group(form, a + k, b + k, form->group, c, fraction, scale_exponent);
    return c;
}

// ---- i8

static uint32_t integer(const mfma_term *a, const mfma_term *b, int count, uint32_t c) {
    for (int k = 0; k < count; k++)
        c += (uint32_t)((int8_t)a[k].bits * (int8_t)b[k].bits);
    return c;
}

uint64_t mfma_dot(const mfma_form *form, const mfma_term *a, const mfma_term *b, int count,
                  uint64_t c, int scale_exponent) {
    switch ((mfma_rule)form->rule) {
    case MFMA_CHAIN:
        return mfma_is_f64(form) ? chain_f64(a, b, count, c) : chain_f32(a, b, count, (uint32_t)c);
    case MFMA_PAIRWISE:
        return pairwise(form, a, b, count, (uint32_t)c);
    case MFMA_INTEGER:
        return integer(a, b, count, (uint32_t)c);
    default:
        return fused(form, a, b, count, (uint32_t)c, scale_exponent);
    }
}
