// SPDX-License-Identifier: Apache-2.0
// Values of 16 bits, two in a word: halves of words, and FP8 codes as f16 or bf16.
//
// Every value of the four FP8 kinds is a normal value of bf16 and of f16. Exceptions are values of
// e5m2 and e5m2fnuz below 2^-14, which are subnormal in f16.
#ifndef QD_HALVES_H
#define QD_HALVES_H

#include "fp8.h"
#include "gpu.h"

typedef _Float16 qd_f16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 qd_bf16x2 __attribute__((ext_vector_type(2)));
typedef int16_t qd_i16x2 __attribute__((ext_vector_type(2)));

/** Returns the lower or the upper halves of two words, a's in the low half. */
QD_INLINE uint32_t qd_halves(uint32_t a, uint32_t b, bool upper) {
#if defined(__NVPTX__)
    return upper ? (b & 0xFFFF0000) | a >> 16 : b << 16 | (a & 0xFFFF);
#else
    return __builtin_amdgcn_perm(b, a, upper ? 0x07060302 : 0x05040100);
#endif
}

/** Returns two f32, whose values are exact in the 16-bit kind, as that kind; a is the low half. */
QD_INLINE uint32_t qd_narrow2(bool is_f16, float a, float b) {
    if (!is_f16)
        return qd_halves(qd_as_u32(a), qd_as_u32(b), true);
#if defined(__NVPTX__)
    return __builtin_bit_cast(uint32_t, (qd_f16x2){(_Float16)a, (_Float16)b});
#else
    return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(a, b));
#endif
}

/** Rounds two f32, neither negative, to the 16-bit kind and returns them in a word, a low. On AMD
 *  bf16 is rounded to nearest, ties up: two additions, where ties to even would cost five
 *  instructions. */
QD_INLINE uint32_t qd_round2(bool is_f16, float a, float b) {
    if (is_f16)
        return __builtin_bit_cast(uint32_t, (qd_f16x2){(_Float16)a, (_Float16)b});
#if defined(__NVPTX__)
    return __builtin_bit_cast(uint32_t, (qd_bf16x2){(__bf16)a, (__bf16)b});
#else
    return qd_halves(qd_as_u32(a) + 0x8000, qd_as_u32(b) + 0x8000, true);
#endif
}

/** Returns byte i of a and byte j of b, each in the high byte of a half, over a zero byte; i and j
 *  are constants. */
QD_INLINE uint32_t qd_high_bytes(uint32_t a, uint32_t i, uint32_t b, uint32_t j) {
#if defined(__NVPTX__)
    return __nvvm_prmt(a, b, (4 + j) << 12 | i << 4) & 0xFF00FF00;
#else
    return __builtin_amdgcn_perm(b, a, (4 + j) << 24 | 0x0C000Cu | i << 8); // 0x0C: a zero
#endif
}

/** Converts two e5m2 codes in high bytes. As they stand they are f16, infinities and NaNs too. */
QD_INLINE uint32_t qd_widen2_e5m2(bool is_f16, uint32_t high) {
    const qd_f16x2 x = __builtin_bit_cast(qd_f16x2, high);
    return is_f16 ? high : qd_narrow2(false, (float)x[0], (float)x[1]);
}

#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
/** Converts two e4m3fn codes in high bytes to bf16, which Hopper multiplies in pairs. Shifted down
 *  by four places they are bf16 with an exponent that is too small by 120. Of the values only the
 *  NaN code's, 480, then overflows times 1.09 2^119, and infinity times 0 is a NaN. */
QD_INLINE uint32_t qd_bf16_from_e4m3fn(uint32_t high) {
    const uint32_t lower = (high & 0x80008000) | (high >> 4 & 0x07F007F0);
    const qd_bf16x2 x = __builtin_bit_cast(qd_bf16x2, lower) * (__bf16)0x1p120f;
    const qd_bf16x2 finite_or_not = x * (__bf16)0x1.18p119f;
    return __builtin_bit_cast(uint32_t,
                              __builtin_elementwise_fma(finite_or_not, (qd_bf16x2)(__bf16)0, x));
}
#endif

/** Converts two e4m3fn codes in high bytes. Shifted down by one place they are f16 with an exponent
 *  that is too small by 8; values below 2^-6 are exact, too. The NaN code is then 1.875, and the
 *  greatest other value 1.75. Times 36000 only the NaN code overflows, and infinity times 0 is a
 *  NaN. */
QD_INLINE uint32_t qd_widen2_e4m3fn(bool is_f16, uint32_t high) {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
    if (!is_f16)
        return qd_bf16_from_e4m3fn(high);
#endif
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
/** Returns the value of byte i of four codes, of a kind that the target converts; i is a
 *  constant. */
QD_INLINE float qd_convert1(int kind, uint32_t codes, uint32_t i) {
    const qd_f32x2 low = kind < QD_E5M2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)codes, false)
                                        : __builtin_amdgcn_cvt_pk_f32_bf8((int)codes, false);
    const qd_f32x2 high = kind < QD_E5M2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)codes, true)
                                         : __builtin_amdgcn_cvt_pk_f32_bf8((int)codes, true);
    return i < 2 ? low[i] : high[i - 2];
}
#endif

/** Converts two FP8 codes, byte i of a and byte j of b, to f16 or bf16, exactly; a's is the low
 *  half, and a NaN stays a NaN. i, j and is_f16 are constants, and so is kind, unless it is an FNUZ
 *  kind. */
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

/** Converts eight FP8 codes to f16 or bf16, as qd_widen2 converts two. */
QD_INLINE qd_u32x4 qd_widen8(int kind, bool is_f16, qd_u32x2 codes) {
    qd_u32x4 wide;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const uint32_t word = codes[i / 2], first = i % 2 * 2;
        wide[i] = qd_widen2(kind, is_f16, word, first, word, first + 1);
    }
    return wide;
}

#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
/** Converts the word's two e4m3fn codes in its lower or upper half to f16, as Hopper does. */
QD_INLINE qd_f16x2 qd_f16_from_e4m3fn(uint32_t codes, bool upper) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((uint16_t)(upper ? codes >> 16 : codes)));
    return __builtin_bit_cast(qd_f16x2, pair);
}

/** Converts four e4m3fn codes to f16 or bf16 by Hopper's instructions, exactly, and a NaN stays a
 *  NaN: codes 0 and 1 to wide[0], 2 and 3 to wide[1]; `apart`, a constant: codes 0 and 2, 1 and
 *  3. */
QD_INLINE void qd_widen4_e4m3fn(bool is_f16, bool apart, uint32_t codes, uint32_t wide[2]) {
    const qd_f16x2 low = qd_f16_from_e4m3fn(codes, false), high = qd_f16_from_e4m3fn(codes, true);
    constexpr uint32_t lower_halves = 0x5410, upper_halves = 0x7632;
    if (is_f16) {
        const uint32_t a = __builtin_bit_cast(uint32_t, low),
                       b = __builtin_bit_cast(uint32_t, high);
        wide[0] = apart ? __nvvm_prmt(a, b, lower_halves) : a;
        wide[1] = apart ? __nvvm_prmt(a, b, upper_halves) : b;
        return;
    }
    const uint32_t x[4] = {qd_as_u32((float)low[0]), qd_as_u32((float)low[1]),
                           qd_as_u32((float)high[0]), qd_as_u32((float)high[1])};
    wide[0] = __nvvm_prmt(x[0], x[apart ? 2 : 1], upper_halves);
    wide[1] = __nvvm_prmt(x[apart ? 1 : 2], x[3], upper_halves);
}
#endif

#endif
