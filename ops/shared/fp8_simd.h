// SPDX-License-Identifier: Apache-2.0
// FP8 codes of QN_LANES f32 at a time, by the addition that qni_fp8_encode of fp8.h explains.
#ifndef QNI_FP8_SIMD_H
#define QNI_FP8_SIMD_H

#include "fp8.h"

#ifdef __AVX512DQ__
#include <immintrin.h>
#endif

typedef float f32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * QN_LANES)));

#define QN_INLINE static inline __attribute__((always_inline))

/** The constants of an FP8 kind. With `sum` for magnitude + binade * anchor, the code of a
 *  magnitude is (low byte of sum) + (binade >> shift) - first. */
typedef struct rounding {
    uint32_t smallest; // exponent field of the smallest normal value
    float anchor;      // binade * anchor is the number whose addition rounds a magnitude
    float adjusted;    // anchor less `first` units, an even number: gives codes without `first`
    uint32_t shift;
    uint32_t max;    // bits of the largest finite value
    uint8_t first;   // low byte of smallest >> shift
    uint8_t dropped; // a code that becomes 0: FNUZ's -0; in other kinds a NaN, which does not occur
    uint8_t nan;     // code of a NaN
} rounding;

static inline rounding rounding_of(qni_fp8 kind) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    const uint32_t shift = 23 - (uint32_t)f.mantissa_bits;
    const uint32_t smallest = (uint32_t)(128 - f.bias) << 23;
    const uint32_t anchor = (127 + shift) << 23;
    return (rounding){.smallest = smallest,
                      .anchor = __builtin_bit_cast(float, anchor),
                      .adjusted = __builtin_bit_cast(float, anchor | (-(smallest >> shift) & 0xFF)),
                      .shift = shift,
                      .max = __builtin_bit_cast(uint32_t, f.max),
                      .first = (uint8_t)(smallest >> shift),
                      .dropped = f.is_fnuz ? 0x80 : 0x7F,
                      .nan = f.nan_code};
}

/** Encodes magnitudes that are at most the kind's largest. With k->adjusted for anchor the low byte
 *  of each lane is the code, with k->anchor the code plus k->first; the other bytes are garbage.
 *  The product is exact, so that an FMA gives equal bits. */
QN_INLINE u32v add_anchor(f32v magnitude, float anchor, const rounding *k) {
    const u32v field = (u32v)magnitude & 0x7F800000;
    const u32v binade = __builtin_elementwise_max(field, (u32v){} + k->smallest);
    const u32v sum = (u32v)(magnitude + (f32v)binade * anchor);
    return sum + (binade >> k->shift);
}
QN_INLINE u32v encode_magnitudes(f32v magnitude, const rounding *k) {
    return add_anchor(magnitude, k->anchor, k);
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

/** Encodes values that are not NaN, as qni_fp8_encode does. The low byte of each lane is the code;
 *  the other bytes are garbage. */
QN_INLINE u32v encode_number(f32v v, const rounding *k) {
    u32v codes = add_anchor(saturated(v, k), k->adjusted, k) | ((u32v)v >> 24 & 0x80);
    if (k->dropped == 0x80)
        codes &= (u32v)((codes & 0xFF) != 0x80);
    return codes;
}

/** Encodes any values as encode_number does; a NaN gets the kind's NaN. */
QN_INLINE u32v encode_any(f32v v, const rounding *k) {
    const u32v is_nan = (u32v)(v != v);
    return (encode_number(v, k) & ~is_nan) | (is_nan & k->nan);
}

#if defined(__AVX512VBMI__) && QN_LANES == 16
/** Encodes values that are not NaN, with codes in two places: the low byte of a lane is the code
 *  without its sign, and the lane's top bit is the sign. */
QN_INLINE u32v encode_signed(f32v v, const rounding *k) {
    const f32v max = (f32v)((u32v){} + k->max), smallest = (f32v)((u32v){} + k->smallest);
    const f32v number = _mm512_range_ps(v, max, 0x2); // the smaller magnitude, with v's sign
    const f32v field = (f32v)((u32v)number & 0xFF800000);
    const f32v binade = _mm512_range_ps(field, smallest, 0x3); // the larger magnitude
    return (u32v)(number + binade * k->adjusted) + ((u32v)binade >> k->shift);
}
#endif

#endif
