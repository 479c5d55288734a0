// SPDX-License-Identifier: Apache-2.0
// Decodes and encodes single values of the four FP8 kinds, on the host.
//
// Sources: OCP 8-bit floating point specification (e4m3fn, e5m2); arXiv:2206.02915 (the FNUZ
// kinds).
#ifndef QNI_FP8_H
#define QNI_FP8_H

#include <math.h>
#include <stdint.h>

/** The FP8 kinds, in the order of the dtypes of runtime/runtime.h. */
typedef enum qni_fp8 {
    QNI_FP8_E4M3FN,
    QNI_FP8_E4M3FNUZ,
    QNI_FP8_E5M2,
    QNI_FP8_E5M2FNUZ,
    QNI_NUM_FP8
} qni_fp8;

typedef struct qni_fp8_format {
    int mantissa_bits, bias;
    uint8_t max_code; // code of the largest finite value
    uint8_t nan_code; // code that encoding a NaN gives
    bool is_fnuz;     // 0x80 is the only NaN: no negative zero, no infinity
    float max;
} qni_fp8_format;

static inline qni_fp8_format qni_fp8_format_of(qni_fp8 kind) {
    static const qni_fp8_format formats[QNI_NUM_FP8] = {
        [QNI_FP8_E4M3FN] = {3, 7, 0x7E, 0x7F, false, 448.0f},
        [QNI_FP8_E4M3FNUZ] = {3, 8, 0x7F, 0x80, true, 240.0f},
        [QNI_FP8_E5M2] = {2, 15, 0x7B, 0x7F, false, 57344.0f},
        [QNI_FP8_E5M2FNUZ] = {2, 16, 0x7F, 0x80, true, 57344.0f},
    };
    return formats[kind];
}

static inline bool qni_fp8_is_nan(qni_fp8 kind, uint8_t code) {
    switch (kind) {
    case QNI_FP8_E4M3FN:
        return (code & 0x7F) == 0x7F;
    case QNI_FP8_E5M2:
        return (code & 0x7F) > 0x7C;
    default:
        return code == 0x80;
    }
}

/** Returns the exact value of a code. */
static inline float qni_fp8_decode(qni_fp8 kind, uint8_t code) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    if (qni_fp8_is_nan(kind, code))
        return __builtin_nanf("");
    if (kind == QNI_FP8_E5M2 && (code & 0x7F) == 0x7C)
        return code & 0x80 ? -__builtin_inff() : __builtin_inff();
    const int exponent = (code & 0x7F) >> f.mantissa_bits;
    const int fraction = code & ((1 << f.mantissa_bits) - 1);
    const int significand = exponent == 0 ? fraction : fraction + (1 << f.mantissa_bits);
    const int power = (exponent == 0 ? 1 : exponent) - f.bias - f.mantissa_bits;
    const float magnitude = ldexpf((float)significand, power);
    return code & 0x80 ? -magnitude : magnitude;
}

/** Returns the code nearest to x, ties to even. Values beyond the largest finite one, infinities
 *  among them, get the largest one's code; a NaN of any sign gets nan_code. */
static inline uint8_t qni_fp8_encode(qni_fp8 kind, float x) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    const uint32_t bits = __builtin_bit_cast(uint32_t, x), magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return f.nan_code;
    // x's binade, or the binade of the smallest normal value if x is smaller.
    const int32_t smallest = 128 - f.bias, exponent = (int32_t)(magnitude >> 23);
    const int32_t binade = exponent > smallest ? exponent : smallest;
    // The sum of x and 2^(binade + 23 - mantissa_bits) has x in its low bits, in units of the last
    // place of the kind: the addition itself rounds x.
    const uint32_t anchor = (uint32_t)(binade + 23 - f.mantissa_bits) << 23;
    uint32_t code = f.max_code;
    if (exponent < 200) {
        const float sum = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, anchor);
        code = __builtin_bit_cast(uint32_t, sum) - anchor +
               ((uint32_t)(binade - smallest) << f.mantissa_bits);
    }
    if (code > f.max_code)
        code = f.max_code;
    const bool keeps_sign = !f.is_fnuz || code != 0;
    return (uint8_t)(code | (keeps_sign ? bits >> 24 & 0x80 : 0));
}

/** Returns the UE8M0 code of a scale that is rounded up to a power of two: its exponent field, plus
 *  1 if any bit of its fraction is set, kept within 1 .. 254. */
static inline uint32_t qni_ue8m0_up(float scale) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, scale) & 0x7FFFFFFF;
    const uint32_t e = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
    return e < 1 ? 1 : e > 254 ? 254 : e;
}

#endif
