// SPDX-License-Identifier: Apache-2.0
// Float functions that several families need: sums and products with a NaN's bits the same on every
// host, IEEE-754 minimum and maximum as the ISA has them, exact f16 fused multiply-add.
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

static inline f32x16 quiet(f32x16 a) {
    return (f32x16)((u32x16)a | 0x400000);
}

static inline u64x8 is_nan64(f64x8 a) {
    return (u64x8)(a != a);
}

static inline f64x8 choose64(u64x8 mask, f64x8 yes, f64x8 no) {
    return (f64x8)((mask & (u64x8)yes) | (~mask & (u64x8)no));
}

static inline f64x8 quiet64(f64x8 a) {
    return (f64x8)((u64x8)a | UINT64_C(1) << 51);
}

/** Returns values with zeros, signs kept, for those that are denormal. */
static inline f32x16 flush_f32(f32x16 a) {
    u32x16 bits = (u32x16)a;
    return (f32x16)select16((u32x16)((bits & 0x7f800000) != 0), bits, bits & 0x80000000);
}

// ---- sums and products. The first source that is a NaN gives the result's bits. On the host
// another source may give them, since compilers exchange factors and addends, and the C library
// decides where the host has no instruction.

static __attribute__((noinline, cold)) f32x16 first_nan(f32x16 otherwise, f32x16 a, f32x16 b,
                                                        f32x16 c) {
    f32x16 of_b = choose(is_nan(b), quiet(b), choose(is_nan(c), quiet(c), otherwise));
    return choose(is_nan(a), quiet(a), of_b);
}

static __attribute__((noinline, cold)) f64x8 first_nan64(f64x8 otherwise, f64x8 a, f64x8 b,
                                                         f64x8 c) {
    f64x8 of_b = choose64(is_nan64(b), quiet64(b), choose64(is_nan64(c), quiet64(c), otherwise));
    return choose64(is_nan64(a), quiet64(a), of_b);
}

/** Returns the result of an operation on three sources, with the right NaN. For two sources, c is
 *  one of them again. */
SIM_INLINE f32x16 with_nan(f32x16 result, f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_expect(bits16(is_nan(result)) != 0, 0) ? first_nan(result, a, b, c) : result;
}

SIM_INLINE f64x8 with_nan64(f64x8 result, f64x8 a, f64x8 b, f64x8 c) {
    return __builtin_expect(bits8(is_nan64(result)) != 0, 0) ? first_nan64(result, a, b, c)
                                                             : result;
}

// AVX-512's own instructions hand on the first source's NaN, if the compiler cannot exchange the
// sources.
#ifdef __AVX512F__
#define SIM_IN_ORDER(name, instruction, type, operation, with)                                     \
    SIM_INLINE type name(type a, type b) {                                                         \
        type out;                                                                                  \
        __asm__(instruction " %2, %1, %0" : "=v"(out) : "v"(a), "v"(b));                           \
        return out;                                                                                \
    }
#else
#define SIM_IN_ORDER(name, instruction, type, operation, with)                                     \
    SIM_INLINE type name(type a, type b) {                                                         \
        return with(a operation b, a, b, b);                                                       \
    }
#endif
SIM_IN_ORDER(sum_of, "vaddps", f32x16, +, with_nan)
SIM_IN_ORDER(difference_of, "vsubps", f32x16, -, with_nan)
SIM_IN_ORDER(product_of, "vmulps", f32x16, *, with_nan)
SIM_IN_ORDER(sum64_of, "vaddpd", f64x8, +, with_nan64)
SIM_IN_ORDER(product64_of, "vmulpd", f64x8, *, with_nan64)

SIM_INLINE f32x16 fused(f32x16 a, f32x16 b, f32x16 c) {
    return with_nan(__builtin_elementwise_fma(a, b, c), a, b, c);
}
SIM_INLINE f64x8 fused64(f64x8 a, f64x8 b, f64x8 c) {
    return with_nan64(__builtin_elementwise_fma(a, b, c), a, b, c);
}

/** Returns a b + (c d + e), rounded after each addition. */
SIM_INLINE f32x16 fused_twice(f32x16 a, f32x16 b, f32x16 c, f32x16 d, f32x16 e) {
    f32x16 first = __builtin_elementwise_fma(c, d, e);
    f32x16 sum = __builtin_elementwise_fma(a, b, first);
    return __builtin_expect(bits16(is_nan(sum)) != 0, 0)
               ? first_nan(sum, a, b, first_nan(first, c, d, e))
               : sum;
}

// ---- minimum and maximum

/** Returns the smaller value. A number beats a NaN, and -0 is below +0. */
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

/** Returns the nearest value from 0 to 1; 0 for a NaN. */
static inline f32x16 clamp_to_one(f32x16 a) {
    f32x16 zero = {}, one = zero + 1;
    return min_number(max_number(choose(is_nan(a), zero, a), zero), one);
}

static inline u32x16 is_signalling(f32x16 a) {
    return is_nan(a) & (u32x16)(((u32x16)a & 0x400000) == 0);
}

/** Returns the first source that is a signalling NaN, made quiet, as IEEE mode demands, or
 *  `otherwise` if there is none. */
static inline f32x16 keep_signalling(f32x16 a, f32x16 b, f32x16 otherwise) {
    return choose(is_signalling(a), quiet(a), choose(is_signalling(b), quiet(b), otherwise));
}

static inline f32x16 min_ieee(f32x16 a, f32x16 b) {
    return keep_signalling(a, b, min_number(a, b));
}
static inline f32x16 max_ieee(f32x16 a, f32x16 b) {
    return keep_signalling(a, b, max_number(a, b));
}

/** Returns the minimum or maximum of IEEE 754-2019, where a NaN beats a number. */
static inline f32x16 minimum(f32x16 a, f32x16 b) {
    return choose(is_nan(a), quiet(a), choose(is_nan(b), quiet(b), min_number(a, b)));
}
static inline f32x16 maximum(f32x16 a, f32x16 b) {
    return choose(is_nan(a), quiet(a), choose(is_nan(b), quiet(b), max_number(a, b)));
}

// ---- minimum and maximum of f16 bit patterns; a conversion to f32 would quiet signalling NaNs

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

// ---- smaller floats

/** Returns f16 values rounded towards zero: the nearest, stepped back where it is further from
 *  zero. */
static inline u32x16 f16_toward_zero(f32x16 a) {
    u32x16 nearest = f16_of_f32(a);
    f32x16 back = f32_of_f16(nearest);
    u32x16 beyond = (u32x16)(__builtin_elementwise_abs(back) > __builtin_elementwise_abs(a));
    return nearest - (beyond & 1); // infinity becomes the largest number
}

/** Returns bf16 values, rounded to the nearest, ties to even. NaN stays NaN. */
static inline u32x16 bf16_of(u32x16 a) {
    u32x16 rounded = (a + 0x7fff + (a >> 16 & 1)) >> 16;
    return select16(is_nan((f32x16)a), a >> 16 | 0x40, rounded);
}

/** Returns a * b + c of f16 values, rounded to odd, so that a later rounding to f16 gives what a
 *  single one would. With AVX-512, the sum is cut toward zero, and its last bit set if the sums
 *  rounded down and up differ. Otherwise the sum in double (the product is exact) is rounded to
 *  odd, then cut to f32, again to odd. */
#ifdef __AVX512F__
static inline f32x16 fma_for_f16(f32x16 a, f32x16 b, f32x16 c) {
    enum { DOWN = 9, UP = 10, TO_ZERO = 11 }; // rounding modes, exceptions suppressed
    __m512 x = (__m512)a, y = (__m512)b, z = (__m512)c;
    f32x16 least = (f32x16)_mm512_fmadd_round_ps(x, y, z, DOWN);
    f32x16 most = (f32x16)_mm512_fmadd_round_ps(x, y, z, UP);
    u32x16 cut = (u32x16)_mm512_fmadd_round_ps(x, y, z, TO_ZERO);
    return choose((u32x16)(least < most), (f32x16)(cut | 1), fused(a, b, c));
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
    f32x16 odd = __builtin_convertvector((f64x16)((bits - cut) | sticky), f32x16);
    return with_nan(odd, a, b, c);
}
#endif

#endif
