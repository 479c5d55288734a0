// SPDX-License-Identifier: Apache-2.0
// FP8 codes of QN_LANES f32 at a time, by the addition that qni_fp8_encode of fp8.h explains.
//
// The sum that rounds a number holds all of its code: units in its low bits, and its binade in its
// exponent field, at bit 7 of the upper half. One multiplication of both halves by weights puts the
// two side by side, and constants within the anchor take off what the fields count too many.
#ifndef QNI_FP8_SIMD_H
#define QNI_FP8_SIMD_H

#include "fp8.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

typedef float f32v __attribute__((vector_size(4 * QN_LANES)));
typedef int32_t i32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * QN_LANES)));

#define QN_INLINE static inline __attribute__((always_inline))

/** The constants of an FP8 kind. Sums are magnitude + binade * anchor. */
typedef struct rounding {
    uint32_t smallest; // exponent field of the smallest normal value
    float anchor;      // binade * anchor is the number whose addition rounds a magnitude
    float negative;    // anchor for numbers below zero: it gives their codes the sign
    uint32_t weights;  // of a sum's upper and lower half
    uint32_t max;      // bits of the largest finite value
    uint8_t dropped; // a code that becomes 0: FNUZ's -0; in other kinds a NaN, which does not occur
    uint8_t nan;     // code of a NaN
} rounding;

static inline rounding rounding_of(qni_fp8 kind) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    const uint32_t mantissa = (uint32_t)f.mantissa_bits, shift = 23 - mantissa;
    // A sum's exponent is its binade's and `shift`; a code's is 0 below the smallest normal value.
    const uint32_t exponent = shift + (uint32_t)(128 - f.bias);
    const uint32_t anchor = (127 + shift) << 23, less = -(exponent << mantissa) & 0xFF;
    return (rounding){.smallest = (uint32_t)(128 - f.bias) << 23,
                      .anchor = __builtin_bit_cast(float, anchor | less),
                      .negative = __builtin_bit_cast(float, anchor | (less ^ 0x80)),
                      .weights = 2u << mantissa << 16 | 256,
                      .max = __builtin_bit_cast(uint32_t, f.max),
                      .dropped = f.is_fnuz ? 0x80 : 0x7F,
                      .nan = f.nan_code};
}

/** Returns number + binade * anchor. The product is exact, so that an FMA gives equal bits. */
QN_INLINE u32v add_anchor(f32v number, f32v binade, f32v anchor) {
#ifdef __FMA__
    return (u32v)__builtin_elementwise_fma(binade, anchor, number);
#else
    return (u32v)(number + binade * anchor);
#endif
}

/** Returns a sum's code in the second byte of each lane, and the sum's sign in the top bit. */
QN_INLINE u32v weigh_halves(u32v sum, const rounding *k) {
    const u32v weights = (u32v){} + k->weights;
#if defined(__AVX512BW__) && QN_LANES == 16
    return (u32v)_mm512_madd_epi16((__m512i)sum, (__m512i)weights);
#elif defined(__AVX2__) && QN_LANES == 8
    return (u32v)_mm256_madd_epi16((__m256i)sum, (__m256i)weights);
#elif defined(__SSE2__) && QN_LANES == 4
    return (u32v)_mm_madd_epi16((__m128i)sum, (__m128i)weights);
#else
    return (sum << 8) + (u32v)((i32v)sum >> 16) * (weights >> 16);
#endif
}

/** Encodes magnitudes that are at most the kind's largest. The second byte of each lane is the
 *  code, with a sign if anchor is k->negative; the other bytes are garbage. */
QN_INLINE u32v encode_magnitudes(f32v magnitude, f32v anchor, const rounding *k) {
    const u32v field = (u32v)magnitude & 0x7F800000;
    const u32v binade = __builtin_elementwise_max(field, (u32v){} + k->smallest);
    return weigh_halves(add_anchor(magnitude, (f32v)binade, anchor), k);
}

/** Returns v's magnitude, at most the kind's largest; for a NaN, any number or a NaN. */
QN_INLINE f32v saturated(f32v v, const rounding *k) {
#if defined(__AVX512DQ__) && QN_LANES == 16
    const f32v max = (f32v)((u32v){} + k->max);
    return _mm512_range_ps(v, max, 0xA); // the smaller magnitude, with its sign clear
#else
    return (f32v)__builtin_elementwise_min((u32v)v & 0x7FFFFFFF, (u32v){} + k->max);
#endif
}

/** Encodes values that are not NaN, as qni_fp8_encode does, but for -0, which keeps its sign in
 *  every kind. The second byte of each lane is the code; the other bytes are garbage. */
QN_INLINE u32v encode_number(f32v v, const rounding *k) {
    const u32v below = (u32v)((i32v)v < 0);
    const u32v negative = (u32v)((f32v){} + k->negative), positive = (u32v)((f32v){} + k->anchor);
    const f32v anchor = (f32v)((negative & below) | (positive & ~below));
    return encode_magnitudes(saturated(v, k), anchor, k);
}

/** Encodes any values as qni_fp8_encode does, into the second byte of each lane. */
QN_INLINE u32v encode_any(f32v v, const rounding *k) {
    const u32v is_nan = (u32v)(v != v), codes = encode_number(v, k) & 0xFF00;
    const u32v is_dropped = k->dropped == 0x80 ? (u32v)(codes == 0x8000) : (u32v){};
    return (codes & ~is_dropped & ~is_nan) | (is_nan & (uint32_t)k->nan << 8);
}

#if defined(__AVX512VBMI__) && QN_LANES == 16
/** Encodes values that are not NaN, with codes in two places: the second byte of a lane is the code
 *  without its sign, and the lane's top bit is the sign. */
QN_INLINE u32v encode_signed(f32v v, const rounding *k) {
    const f32v max = (f32v)((u32v){} + k->max), smallest = (f32v)((u32v){} + k->smallest);
    const f32v number = _mm512_range_ps(v, max, 0x2); // the smaller magnitude, with v's sign
    const f32v field = (f32v)((u32v)number & 0xFF800000);
    const f32v binade = _mm512_range_ps(field, smallest, 0x3); // the larger magnitude
    return weigh_halves(add_anchor(number, binade, (f32v){} + k->anchor), k);
}
#endif

#endif
