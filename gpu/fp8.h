// SPDX-License-Identifier: Apache-2.0
// FP8 in device code: encodes and decodes the four kinds, by the target's own conversions if there
// are any.
//
// Source: instruction set manuals "CDNA3" and "RDNA4", v_cvt_pk_fp8_f32 and kin; builtins of
// clang 22.
#ifndef QD_FP8_H
#define QD_FP8_H

#include <stdint.h>

/** The FP8 kinds, in the order of qni_fp8 of ops/shared/fp8.h. */
enum { QD_E4M3FN, QD_E4M3FNUZ, QD_E5M2, QD_E5M2FNUZ };

#define QD_FP8_INLINE static inline __attribute__((always_inline))

// The kinds that the target converts, and that its matrix cores multiply. They match MFMA_FP8_FNUZ,
// MFMA_FP8_OCP and WMMA_GFX12 of runtime/device/targets.def, as tests/targets_test.sh checks.
#if defined(__gfx942__)
#define QD_HAS_FP8_FNUZ 1
#elif defined(__gfx950__) || defined(__GFX12__)
#define QD_HAS_FP8_OCP 1
#endif

#if defined(__NVPTX__) && __CUDA_ARCH__ >= 890
#define QD_FP8_PTX 1 // cvt.rn.satfinite.e4m3x2.f32 and kin
#endif

/** Returns whether the target has instructions that convert this kind. */
QD_FP8_INLINE bool qd_fp8_is_native(int kind) {
#if QD_HAS_FP8_FNUZ
    return kind == QD_E4M3FNUZ || kind == QD_E5M2FNUZ;
#elif QD_HAS_FP8_OCP || QD_FP8_PTX
    return kind == QD_E4M3FN || kind == QD_E5M2;
#else
    (void)kind;
    return false;
#endif
}

/** The kind that most code for the target uses: the target's own e4m3. On the host it is
 *  qni_usual_e4m3. */
#if QD_HAS_FP8_FNUZ
enum { QD_FP8_USUAL = QD_E4M3FNUZ };
#else
enum { QD_FP8_USUAL = QD_E4M3FN };
#endif

QD_FP8_INLINE bool qd_fp8_is_fnuz(int kind) {
    return kind & 1;
}
QD_FP8_INLINE uint32_t qd_fp8_mantissa_bits(int kind) {
    return kind < QD_E5M2 ? 3 : 2;
}
QD_FP8_INLINE uint32_t qd_fp8_bias(int kind) {
    return (kind < QD_E5M2 ? 7u : 15u) + (uint32_t)qd_fp8_is_fnuz(kind);
}
QD_FP8_INLINE float qd_fp8_max(int kind) {
    return kind >= QD_E5M2 ? 57344.0f : kind == QD_E4M3FN ? 448.0f : 240.0f;
}
QD_FP8_INLINE uint32_t qd_fp8_max_code(int kind) {
    return kind == QD_E4M3FN ? 0x7E : kind == QD_E5M2 ? 0x7B : 0x7F;
}
QD_FP8_INLINE uint32_t qd_fp8_nan_code(int kind) {
    return qd_fp8_is_fnuz(kind) ? 0x80 : 0x7F;
}

/** Returns the code nearest to x, ties to even, saturating; a NaN gives the kind's NaN code.
 *  qni_fp8_encode takes these steps on the host, and explains them. */
QD_FP8_INLINE uint32_t qd_fp8_encode(int kind, float x) {
    const uint32_t mantissa = qd_fp8_mantissa_bits(kind), smallest = (128 - qd_fp8_bias(kind))
                                                                     << 23;
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    float magnitude = __builtin_fabsf(x);
    magnitude = magnitude > qd_fp8_max(kind) ? qd_fp8_max(kind) : magnitude;
    const uint32_t field = __builtin_bit_cast(uint32_t, magnitude) & 0x7F800000;
    const uint32_t binade = field > smallest ? field : smallest;
    const uint32_t anchor = binade + ((23 - mantissa) << 23);
    const float sum = magnitude + __builtin_bit_cast(float, anchor);
    const uint32_t code =
        __builtin_bit_cast(uint32_t, sum) - anchor + ((binade - smallest) >> (23 - mantissa));
    const uint32_t sign = qd_fp8_is_fnuz(kind) && code == 0 ? 0 : bits >> 24 & 0x80;
    // From "x != x ? …" the compiler would make a branch around all of this function.
    const uint32_t if_nan = 0u - (uint32_t)(x != x);
    return (qd_fp8_nan_code(kind) & if_nan) | ((code | sign) & ~if_nan);
}

#if QD_HAS_FP8_FNUZ || QD_HAS_FP8_OCP
QD_FP8_INLINE float qd_fp8_clamp(int kind, float x) {
    return __builtin_amdgcn_fmed3f(x, qd_fp8_max(kind), -qd_fp8_max(kind));
}
/** Puts the codes of a and b into the low (HIGH false) or the high half of `old`. */
#define QD_FP8_CVT_PK(kind, a, b, old, HIGH)                                                       \
    (kind < QD_E5M2 ? __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, HIGH)                             \
                    : __builtin_amdgcn_cvt_pk_bf8_f32(a, b, old, HIGH))
#endif

#if QD_FP8_PTX
/** Returns the codes of two values, a's in the low byte; values saturate. */
QD_FP8_INLINE uint32_t qd_fp8_encode2(int kind, float a, float b) {
    uint16_t codes;
    if (kind < QD_E5M2)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(b), "f"(a));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(b), "f"(a));
    return codes;
}
#endif

/** Returns the codes of four values that are not NaN, the first in the low byte. */
QD_FP8_INLINE uint32_t qd_fp8_encode4(int kind, const float x[4]) {
#ifdef QD_FP8_CVT_PK
    if (qd_fp8_is_native(kind)) {
        const int low =
            QD_FP8_CVT_PK(kind, qd_fp8_clamp(kind, x[0]), qd_fp8_clamp(kind, x[1]), 0, false);
        return (uint32_t)QD_FP8_CVT_PK(kind, qd_fp8_clamp(kind, x[2]), qd_fp8_clamp(kind, x[3]),
                                       low, true);
    }
#elif QD_FP8_PTX
    if (qd_fp8_is_native(kind))
        return qd_fp8_encode2(kind, x[0], x[1]) | qd_fp8_encode2(kind, x[2], x[3]) << 16;
#endif
    return qd_fp8_encode(kind, x[0]) | qd_fp8_encode(kind, x[1]) << 8 |
           qd_fp8_encode(kind, x[2]) << 16 | qd_fp8_encode(kind, x[3]) << 24;
}

/** Returns the exact value of a code. */
QD_FP8_INLINE float qd_fp8_decode(int kind, uint32_t code) {
    const uint32_t mantissa = qd_fp8_mantissa_bits(kind), magnitude = code & 0x7F;
    // The code's exponent and fraction as those of an f32 (exponent 0: a denormal). The product
    // then corrects the bias.
    const float unbiased = __builtin_bit_cast(float, magnitude << (23 - mantissa));
    float x = unbiased * __builtin_bit_cast(float, (254 - qd_fp8_bias(kind)) << 23);
    if (kind == QD_E5M2 && magnitude == 0x7C)
        x = __builtin_inff();
    if (qd_fp8_is_fnuz(kind) ? code == 0x80 : magnitude > (kind == QD_E5M2 ? 0x7Cu : 0x7Eu))
        x = __builtin_nanf("");
    return code & 0x80 ? -x : x;
}

/** Decodes the four codes of a word, the low byte first. */
QD_FP8_INLINE void qd_fp8_decode4(int kind, uint32_t codes, float x[4]) {
    for (int i = 0; i < 4; i++)
        x[i] = qd_fp8_decode(kind, codes >> (8 * i) & 0xFF);
}

/** Returns four e4m3fn codes as e4m3fnuz codes of half the value: -0 becomes 0, a NaN FNUZ's
 *  NaN. */
QD_FP8_INLINE uint32_t qd_fp8_fnuz_from_fn(uint32_t codes) {
    const uint32_t ones = 0x01010101, magnitude = codes & 0x7F7F7F7F;
    const uint32_t is_nan = (magnitude + ones) >> 7 & ones; // 1 where the magnitude is 0x7F
    const uint32_t is_nonzero = magnitude + 0x7F7F7F7F;     // top bit where it is not 0
    return (codes & is_nonzero & 0x80808080) | (magnitude + is_nan); // 0x7F + 1 is FNUZ's NaN
}

/** Converts eight e4m3 codes to eight bf16, exactly; a word has two, the first in the low half. */
QD_FP8_INLINE void qd_fp8_to_bf16(int kind, const uint32_t codes[2], uint32_t out[4]) {
    for (int i = 0; i < 4; i++) {
        const uint32_t pair = codes[i / 2] >> (i % 2 * 16);
        const float low = qd_fp8_decode(kind, pair & 0xFF);
        const float high = qd_fp8_decode(kind, pair >> 8 & 0xFF);
        out[i] = __builtin_bit_cast(uint32_t, low) >> 16 |
                 (__builtin_bit_cast(uint32_t, high) & 0xFFFF0000);
    }
}

#endif
