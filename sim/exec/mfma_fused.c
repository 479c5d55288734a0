// SPDX-License-Identifier: Apache-2.0
// The fused rules (gfx942), sixteen outputs at a time, in 32-bit integers or exact f32.
//
// A group's products are cut toward zero at 2^-24 of the largest exponent E = max (ea + eb), summed as
// integers S in units of 2^(E - 24), and added to c in units of 2^(top - 31), top = max(E, ec), both
// rounded down; one rounding to f32 ends the group. mfma_rules.c is the definition.
#include "mfma_vector.h"

static mfma_i32 splat(int32_t x) {
    return (mfma_i32){0} + x;
}

static inline __attribute__((always_inline)) mfma_i32 a_of(const void *plane, const mfma_plane *a,
                                                           mfma_strip s, int k, bool quad) {
    const int32_t *from = (const int32_t *)plane + k * a->slots + s.a;
    if (!quad) {
        return splat(*from);
    }
    mfma_i32 out;
    for (int lane = 0; lane < MFMA_STRIP; lane++) {
        out[lane] = from[lane & ~3];
    }
    return out;
}

static inline mfma_i32 b_of(const void *plane, const mfma_plane *b, mfma_strip s, int k) {
    return mfma_load((const int32_t *)plane + k * b->slots + s.b);
}

/** Products k, k + step, ... of a group: sum in units of 2^(e - 24). */
typedef struct group_sum {
    mfma_i32 s, e;
} group_sum;

/** By truncating conversion of exact f32 products; needs e in -100 .. 125, so that 2^(24 - e) is a
 *  normal f32 and a product too small for f32 would have been cut to 0 anyway. */
static inline __attribute__((always_inline)) mfma_i32 sum_by_float(const mfma_plane *a,
                                                                   const mfma_plane *b,
                                                                   mfma_strip s, int k, int end,
                                                                   int step, mfma_i32 e,
                                                                   bool quad) {
    mfma_f32 scale = (mfma_f32)((24 + 127 - e) << 23);
    mfma_i32 sum = {0};
    for (; k < end; k += step) {
        mfma_f32 p = (mfma_f32)a_of(a->x, a, s, k, quad) * (mfma_f32)b_of(b->x, b, s, k);
        sum += __builtin_convertvector(p * scale, mfma_i32);
    }
    return sum;
}

/** By shifts, whatever e is. */
static inline __attribute__((always_inline)) mfma_i32 sum_by_shifts(const mfma_plane *a,
                                                                    const mfma_plane *b,
                                                                    mfma_strip s, int k, int end,
                                                                    int step, mfma_i32 e,
                                                                    int fraction, bool quad) {
    mfma_i32 sum = {0};
    for (; k < end; k += step) {
        mfma_i32 p = a_of(a->m, a, s, k, quad) * b_of(b->m, b, s, k);
        mfma_i32 down = e - (a_of(a->e, a, s, k, quad) + b_of(b->e, b, s, k));
        mfma_i32 sign = p >> 31;
        mfma_i32 magnitude = ((p ^ sign) - sign) << (24 - fraction); // < 2^26
        mfma_i32 cut = magnitude >> mfma_min(down, splat(31));
        sum += (cut ^ sign) - sign;
    }
    return sum;
}

static inline __attribute__((always_inline)) group_sum sum_products(const mfma_form *f,
                                                                    const mfma_plane *a,
                                                                    const mfma_plane *b,
                                                                    mfma_strip s, int k, int step,
                                                                    bool quad) {
    int end = k / f->group * f->group + f->group;
    group_sum g = {.e = splat(INT32_MIN)};
    for (int i = k; i < end; i += step) {
        g.e = mfma_max(g.e, a_of(a->e, a, s, i, quad) + b_of(b->e, b, s, i));
    }
    if (__builtin_reduce_min(g.e) >= -100) {
        g.s = sum_by_float(a, b, s, k, end, step, g.e, quad);
    } else {
        int fraction = mfma_formats[f->a_type].fraction + mfma_formats[f->b_type].fraction;
        g.s = sum_by_shifts(a, b, s, k, end, step, g.e, fraction, quad);
    }
    return g;
}

/** Eight outputs: (s * 128 >> down_s) + k * 128, times 2^(top - 31), to f32. */
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

/** Adds c (f32 bits) to a group's sum and rounds. Inf and NaN in c stay. */
static mfma_i32 add_c(const mfma_form *f, group_sum g, mfma_i32 c) {
    mfma_i32 exponent = (c >> 23) & 255, sign = c >> 31;
    mfma_i32 m = (c & 0x7fffff) | ((exponent != 0) & (1 << 23));
    mfma_i32 e = mfma_max(exponent, splat(1)) - 127;
    mfma_i32 top = mfma_max(g.e, e), down = top - e;
    mfma_i32 k = (((m ^ sign) - sign) << 1) >> mfma_min(down, splat(31));
    if (f->rule == MFMA_SPLIT) {
        k &= down <= 25;
    }
    mfma_i32 down_s = mfma_min(top - g.e, splat(62));
    mfma_f32x8 low = round_half(LOW(g.s), LOW(down_s), LOW(k), LOW(top));
    mfma_f32x8 high = round_half(HIGH(g.s), HIGH(down_s), HIGH(k), HIGH(top));
    mfma_i32 d = (mfma_i32)__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                                   12, 13, 14, 15);
    mfma_i32 special = exponent == 255;
    mfma_i32 is_nan = special & ((c & 0x7fffff) != 0);
    d = mfma_select(special, c, d);
    return mfma_select(is_nan, splat((int32_t)MFMA_NAN32), d);
}

static inline __attribute__((always_inline)) mfma_i32 fused_group(const mfma_form *f,
                                                                  const mfma_plane *a,
                                                                  const mfma_plane *b, mfma_strip s,
                                                                  int k, mfma_i32 c, bool quad) {
    if (f->rule == MFMA_FUSED) {
        return add_c(f, sum_products(f, a, b, s, k, 1, quad), c);
    }
    group_sum even = sum_products(f, a, b, s, k, 2, quad);
    group_sum odd = sum_products(f, a, b, s, k + 1, 2, quad);
    group_sum g = {.e = mfma_max(even.e, odd.e)};
    g.s =
        (even.s >> mfma_min(g.e - even.e, splat(31))) + (odd.s >> mfma_min(g.e - odd.e, splat(31)));
    return add_c(f, g, c);
}

void mfma_add_c(const mfma_form *f, const mfma_i32 *sum, const mfma_i32 *e, mfma_i32 *c) {
    *c = add_c(f, (group_sum){*sum, *e}, *c);
}

void mfma_fused_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                      mfma_strip strip, mfma_i32 *c) {
    for (int k = 0; k < f->k; k += f->group) {
        *c = strip.quad ? fused_group(f, a, b, strip, k, *c, true)
                        : fused_group(f, a, b, strip, k, *c, false);
    }
}
