// SPDX-License-Identifier: Apache-2.0
// The fused rules (gfx942), sixteen outputs at a time, in 32-bit integers or exact f32.
//
// A group's products are cut toward zero at 2^-24 of the largest exponent E = max (ea + eb), summed
// as integers S in units of 2^(E - 24), and added to c in units of 2^(top - 31), top = max(E, ec),
// both rounded down; one rounding to f32 ends the group. mfma_rules.c is the definition.
#include "mfma_vector.h"

/** The sum of products k, k + step, ... below end, in units of 2^(e - 24). */
typedef struct group_sum {
    mfma_i32 s, e;
} group_sum;

/** Sums by truncating conversion of exact f32 products. It needs e in -100 .. 125: then 2^(24 - e)
 *  is a normal f32, and the rule cuts to 0 any product too small for f32. */
MFMA_INLINE mfma_i32 sum_by_float(const mfma_plane *a, const mfma_plane *b, mfma_strip s, int k,
                                  int end, int step, mfma_i32 e) {
    mfma_f32 scale = (mfma_f32)((24 + 127 - e) << 23);
    mfma_i32 sum = {0};
    for (; k < end; k += step) {
        mfma_f32 p = (mfma_f32)mfma_a_strip(a->x, s, k) * (mfma_f32)mfma_b_strip(b->x, s, k);
        sum += __builtin_convertvector(p * scale, mfma_i32);
    }
    return sum;
}

/** Sums by shifts, for any e. */
static mfma_i32 sum_by_shifts(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                              mfma_strip s, int k, int end, int step, mfma_i32 e) {
    const int up = 24 - mfma_formats[f->a_type].fraction - mfma_formats[f->b_type].fraction;
    mfma_i32 sum = {0};
    for (; k < end; k += step) {
        mfma_i32 p = mfma_a_strip(a->m, s, k) * mfma_b_strip(b->m, s, k);
        mfma_i32 down = e - (mfma_a_strip(a->e, s, k) + mfma_b_strip(b->e, s, k));
        mfma_i32 sign = p >> 31;
        mfma_i32 magnitude = ((p ^ sign) - sign) << up; // < 2^26
        mfma_i32 cut = magnitude >> mfma_min(down, mfma_splat(31));
        sum += (cut ^ sign) - sign;
    }
    return sum;
}

MFMA_INLINE group_sum sum_products(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                   mfma_strip s, int k, int end, int step) {
    group_sum g = {.e = mfma_splat(INT32_MIN)};
    for (int i = k; i < end; i += step)
        g.e = mfma_max(g.e, mfma_a_strip(a->e, s, i) + mfma_b_strip(b->e, s, i));
    const bool tiny = __builtin_reduce_or(g.e < -100) != 0;
    g.s = tiny ? sum_by_shifts(f, a, b, s, k, end, step, g.e)
               : sum_by_float(a, b, s, k, end, step, g.e);
    return g;
}

/** Rounds eight outputs to f32: ((s * 128 >> down_s) + k * 128) times 2^(top - 31). */
static mfma_f32x8 round_half(mfma_i32x8 s, mfma_i32x8 down_s, mfma_i32x8 k, mfma_i32x8 top) {
    mfma_i64 t =
        (__builtin_convertvector(s, mfma_i64) << 7) >> __builtin_convertvector(down_s, mfma_i64);
    mfma_i64 sum = t + (__builtin_convertvector(k, mfma_i64) << 7);
    mfma_i64 power = (__builtin_convertvector(top, mfma_i64) + (1023 - 31)) << 52;
    return __builtin_convertvector(__builtin_convertvector(sum, mfma_f64) * (mfma_f64)power,
                                   mfma_f32x8);
}

#define LOW(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define HIGH(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)

/** Adds c (f32 bits) to a group's sum and rounds. An Inf or a NaN in c stays. */
static mfma_i32 add_c(const mfma_form *f, group_sum g, mfma_i32 c) {
    mfma_i32 exponent = (c >> 23) & 255, sign = c >> 31;
    mfma_i32 m = (c & 0x7fffff) | ((exponent != 0) & (1 << 23));
    mfma_i32 e = mfma_max(exponent, mfma_splat(1)) - 127;
    mfma_i32 top = mfma_max(g.e, e), down = top - e;
    mfma_i32 k = (((m ^ sign) - sign) << 1) >> mfma_min(down, mfma_splat(31));
    if (f->rule == MFMA_SPLIT)
        k &= down <= 25;
    mfma_i32 down_s = mfma_min(top - g.e, mfma_splat(62));
    mfma_f32x8 low = round_half(LOW(g.s), LOW(down_s), LOW(k), LOW(top));
    mfma_f32x8 high = round_half(HIGH(g.s), HIGH(down_s), HIGH(k), HIGH(top));
    mfma_i32 d = (mfma_i32)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                                   12, 13, 14, 15);
    mfma_i32 special = exponent == 255;
    mfma_i32 is_nan = special & ((c & 0x7fffff) != 0);
    d = mfma_select(special, c, d);
    return mfma_select(is_nan, mfma_splat((int32_t)MFMA_NAN32), d);
}

MFMA_INLINE mfma_i32 fused_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                 mfma_strip s, mfma_i32 c, int group) {
    for (int k = 0; k < f->k; k += group)
        c = add_c(f, sum_products(f, a, b, s, k, k + group, 1), c);
    return c;
}

MFMA_INLINE mfma_i32 fused_by_4(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                mfma_strip s, mfma_i32 c) {
    return fused_strip(f, a, b, s, c, 4);
}

MFMA_INLINE mfma_i32 fused_by_8(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                mfma_strip s, mfma_i32 c) {
    return fused_strip(f, a, b, s, c, 8);
}

MFMA_INLINE mfma_i32 split_by_16(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                 mfma_strip s, mfma_i32 c) {
    for (int k = 0; k < f->k; k += 16) {
        group_sum even = sum_products(f, a, b, s, k, k + 16, 2);
        group_sum odd = sum_products(f, a, b, s, k + 1, k + 16, 2);
        group_sum g = {.e = mfma_max(even.e, odd.e)};
        g.s = (even.s >> mfma_min(g.e - even.e, mfma_splat(31))) +
              (odd.s >> mfma_min(g.e - odd.e, mfma_splat(31)));
        c = add_c(f, g, c);
    }
    return c;
}

void mfma_fused_tile(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                     uint32_t d[][SIM_LANES]) {
    if (f->rule == MFMA_SPLIT)
        mfma_each_strip(f, a, b, d, split_by_16);
    else if (f->group == 8)
        mfma_each_strip(f, a, b, d, fused_by_8);
    else
        mfma_each_strip(f, a, b, d, fused_by_4);
}

void mfma_add_c(const mfma_form *f, const mfma_i32 *sum, const mfma_i32 *e, mfma_i32 *c) {
    *c = add_c(f, (group_sum){*sum, *e}, *c);
}
