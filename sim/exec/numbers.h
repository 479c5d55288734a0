// SPDX-License-Identifier: Apache-2.0
// Float functions that several families need: IEEE-754 minimum and maximum as the ISA has them, exact f16 fused
// multiply-add.
#ifndef SIM_NUMBERS_H
#define SIM_NUMBERS_H

#include "exec.h"

#include <immintrin.h>

static inline u32x16 is_nan(f32x16 a) {
    return (u32x16)(a != a);
}

static inline u32x16 is_infinite(f32x16 a) {
    return (u32x16)(__builtin_elementwise_abs(a) == __builtin_inff());
}

static inline f32x16 choose(u32x16 mask, f32x16 yes, f32x16 no) {
    return (f32x16)select16(mask, (u32x16)yes, (u32x16)no);
}

/** The smaller; a number beats NaN, -0 is below +0. */
static inline f32x16 min_number(f32x16 a, f32x16 b) {
    u32x16 equal = (u32x16)(a == b);
    f32x16 smaller = choose((u32x16)(a < b) | is_nan(b), a, b);
    return choose(equal, (f32x16)((u32x16)a | (u32x16)b), smaller);
}

static inline f32x16 max_number(f32x16 a, f32x16 b) {
    u32x16 equal = (u32x16)(a == b);
    f32x16 larger = choose((u32x16)(a > b) | is_nan(b), a, b);
    return choose(equal, (f32x16)((u32x16)a & (u32x16)b), larger);
}

static inline u32x16 is_signalling(f32x16 a) {
    return is_nan(a) & (u32x16)(((u32x16)a & 0x400000) == 0);
}

/** In IEEE mode a signalling NaN makes the result a NaN. */
static inline f32x16 keep_signalling(f32x16 a, f32x16 b, f32x16 otherwise) {
    f32x16 quiet_a = (f32x16)((u32x16)a | 0x400000), quiet_b = (f32x16)((u32x16)b | 0x400000);
    return choose(is_signalling(a), quiet_a, choose(is_signalling(b), quiet_b, otherwise));
}

static inline f32x16 min_ieee(f32x16 a, f32x16 b) {
    return keep_signalling(a, b, min_number(a, b));
}
static inline f32x16 max_ieee(f32x16 a, f32x16 b) {
    return keep_signalling(a, b, max_number(a, b));
}

/** IEEE 754-2019's: a NaN beats a number. */
static inline f32x16 minimum(f32x16 a, f32x16 b) {
    return choose(is_nan(a) | is_nan(b), a + b, min_number(a, b));
}
static inline f32x16 maximum(f32x16 a, f32x16 b) {
    return choose(is_nan(a) | is_nan(b), a + b, max_number(a, b));
}

// ---- the same of f16 bit patterns: a conversion to f32 would quiet the signalling NaNs

static inline u32x16 is_signalling16(u32x16 a) {
    return (u32x16)((a & 0x7e00) == 0x7c00) & (u32x16)((a & 0x1ff) != 0);
}

static inline u32x16 keep_signalling16(u32x16 a, u32x16 b, u32x16 otherwise) {
    u32x16 of_b = select16(is_signalling16(b), (b & 0xffff) | 0x200, otherwise);
    return select16(is_signalling16(a), (a & 0xffff) | 0x200, of_b);
}

static inline u32x16 number_min16(u32x16 a, u32x16 b) {
    return f16_of_f32(min_number(f32_of_f16(a), f32_of_f16(b)));
}
static inline u32x16 number_max16(u32x16 a, u32x16 b) {
    return f16_of_f32(max_number(f32_of_f16(a), f32_of_f16(b)));
}
static inline u32x16 ieee_min16(u32x16 a, u32x16 b) {
    return keep_signalling16(a, b, number_min16(a, b));
}
static inline u32x16 ieee_max16(u32x16 a, u32x16 b) {
    return keep_signalling16(a, b, number_max16(a, b));
}
static inline u32x16 minimum16(u32x16 a, u32x16 b) {
    return f16_of_f32(minimum(f32_of_f16(a), f32_of_f16(b)));
}
static inline u32x16 maximum16(u32x16 a, u32x16 b) {
    return f16_of_f32(maximum(f32_of_f16(a), f32_of_f16(b)));
}

/** a * b + c of f16 values, rounded so that a later rounding to f16 gives what a single one would: to odd. With
 *  AVX-512, the sum cut towards zero, its last bit set where the sums rounded down and up differ; else the sum in
 *  double (the product is exact) is rounded to odd, then cut to f32, again to odd. */
#ifdef __AVX512F__
static inline f32x16 fma_for_f16(f32x16 a, f32x16 b, f32x16 c) {
    enum { DOWN = 9, UP = 10, TO_ZERO = 11 }; // rounding modes, exceptions suppressed
    __m512 x = (__m512)a, y = (__m512)b, z = (__m512)c;
    f32x16 least = (f32x16)_mm512_fmadd_round_ps(x, y, z, DOWN);
    f32x16 most = (f32x16)_mm512_fmadd_round_ps(x, y, z, UP);
    u32x16 cut = (u32x16)_mm512_fmadd_round_ps(x, y, z, TO_ZERO);
    return choose((u32x16)(least < most), (f32x16)(cut | 1), __builtin_elementwise_fma(a, b, c));
}
#else
static inline f32x16 fma_for_f16(f32x16 a, f32x16 b, f32x16 c) {
    f64x16 product = __builtin_convertvector(a, f64x16) * __builtin_convertvector(b, f64x16);
    f64x16 addend = __builtin_convertvector(c, f64x16), sum = product + addend;
    f64x16 back = sum - product, error = (product - (sum - back)) + (addend - back);
    u64x16 bits = (u64x16)sum, finite = (u64x16)(sum - sum == 0);
    u64x16 inexact = (u64x16)(error != 0) & finite & (u64x16)((bits & 1) == 0);
    u64x16 down = (u64x16)((error < 0) != (sum < 0)); // the true sum is nearer to zero
    bits += inexact & (1 - (down & 2));
    u64x16 cut = bits & 0x1fffffff, sticky = (u64x16)(cut != 0) & 0x20000000;
    return __builtin_convertvector((f64x16)((bits - cut) | sticky), f32x16);
}
#endif

#endif
