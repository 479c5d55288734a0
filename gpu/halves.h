// SPDX-License-Identifier: Apache-2.0
// Values of 16 bits, two to a word: halves of words, and FP8 codes as f16 or bf16.
//
// Every value of the four FP8 kinds is one of bf16's normals and one of f16's, but for e5m2's and
// e5m2fnuz's below 2^-14, which f16 has as subnormals.
#ifndef QD_HALVES_H
#define QD_HALVES_H

#include "fp8.h"
#include "gpu.h"

typedef _Float16 qd_f16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 qd_bf16x2 __attribute__((ext_vector_type(2)));
typedef int16_t qd_i16x2 __attribute__((ext_vector_type(2)));

/** The lower, or the upper, halves of two words, a's low. */
QD_INLINE uint32_t qd_halves(uint32_t a, uint32_t b, bool upper) {
#if defined(__NVPTX__)
    return upper ? (b & 0xFFFF0000) | a >> 16 : b << 16 | (a & 0xFFFF);
#else
    return __builtin_amdgcn_perm(b, a, upper ? 0x07060302 : 0x05040100);
#endif
}

/** Two f32 that the 16-bit kind has, a low. */
QD_INLINE uint32_t qd_narrow2(bool is_f16, float a, float b) {
    if (!is_f16)
        return qd_halves(qd_as_u32(a), qd_as_u32(b), true);
#if defined(__NVPTX__)
    return __builtin_bit_cast(uint32_t, (qd_f16x2){(_Float16)a, (_Float16)b});
#else
    return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(a, b));
#endif
}

/** Byte i of a and byte j of b, each in the high byte of a half, zeros below; i and j are
 *  constants. */
QD_INLINE uint32_t qd_high_bytes(uint32_t a, uint32_t i, uint32_t b, uint32_t j) {
#if defined(__NVPTX__)
    return __nvvm_prmt(a, b, (4 + j) << 12 | i << 4) & 0xFF00FF00;
#else
    return __builtin_amdgcn_perm(b, a, (4 + j) << 24 | 0x0C000Cu | i << 8); // 0x0C: a zero
#endif
}

/** e5m2 codes in high bytes are f16, infinities and NaNs too. */
QD_INLINE uint32_t qd_widen2_e5m2(bool is_f16, uint32_t high) {
    const qd_f16x2 x = __builtin_bit_cast(qd_f16x2, high);
    return is_f16 ? high : qd_narrow2(false, (float)x[0], (float)x[1]);
}

/** e4m3fn codes in high bytes. One place lower they are f16 with the exponent too small by 8, exact
 *  below 2^-6 too. The NaN is 1.875 there, the greatest other value 1.75: times 36000 only the NaN
 *  overflows, and infinity times 0 is one. */
QD_INLINE uint32_t qd_widen2_e4m3fn(bool is_f16, uint32_t high) {
#if defined(__NVPTX__)
    const uint32_t lower = (high & 0x80008000) | (high >> 1 & 0x3F803F80);
#else
    const qd_i16x2 shifted = __builtin_bit_cast(qd_i16x2, high) >> 1; // the sign's copy is masked
    const uint32_t lower = __builtin_bit_cast(uint32_t, shifted) & 0xBF80BF80;
#endif
    const qd_f16x2 x = __builtin_bit_cast(qd_f16x2, lower);
    const qd_f16x2 zero_or_nan = x * (_Float16)36000 * (_Float16)0;
    if (is_f16)
        return __builtin_bit_cast(uint32_t,
                                  __builtin_elementwise_fma(x, (qd_f16x2)256, zero_or_nan));
    return qd_narrow2(false, __builtin_fmaf((float)x[0], 256, (float)zero_or_nan[0]),
                      __builtin_fmaf((float)x[1], 256, (float)zero_or_nan[1]));
}

#ifdef QD_FP8_CVT_PK
/** Byte i, a constant, of four codes of a kind of the target's own. */
QD_INLINE float qd_convert1(int kind, uint32_t codes, uint32_t i) {
    const qd_f32x2 low = kind < QD_E5M2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)codes, false)
                                        : __builtin_amdgcn_cvt_pk_f32_bf8((int)codes, false);
    const qd_f32x2 high = kind < QD_E5M2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)codes, true)
                                         : __builtin_amdgcn_cvt_pk_f32_bf8((int)codes, true);
    return i < 2 ? low[i] : high[i - 2];
}
#endif

/** Byte i of a and byte j of b, FP8 codes, as two f16 or bf16, a's low, exactly, a NaN as a NaN. i,
 *  j and is_f16 are constants; kind is too, unless it is one of the FNUZ kinds. */
QD_INLINE uint32_t qd_widen2(int kind, bool is_f16, uint32_t a, uint32_t i, uint32_t b,
                             uint32_t j) {
#ifdef QD_FP8_CVT_PK
    if (qd_fp8_is_native(kind))
        return qd_narrow2(is_f16, qd_convert1(kind, a, i), qd_convert1(kind, b, j));
#endif
    if (qd_fp8_is_fnuz(kind))
        return qd_narrow2(is_f16, qd_fp8_decode(kind, a >> (8 * i) & 0xFF),
                          qd_fp8_decode(kind, b >> (8 * j) & 0xFF));
    const uint32_t high = qd_high_bytes(a, i, b, j);
    return kind == QD_E5M2 ? qd_widen2_e5m2(is_f16, high) : qd_widen2_e4m3fn(is_f16, high);
}

/** Eight codes, likewise. */
QD_INLINE qd_u32x4 qd_widen8(int kind, bool is_f16, qd_u32x2 codes) {
    qd_u32x4 wide;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const uint32_t word = codes[i / 2], first = i % 2 * 2;
        wide[i] = qd_widen2(kind, is_f16, word, first, word, first + 1);
    }
    return wide;
}

#endif
