// SPDX-License-Identifier: Apache-2.0
// How gemm_any_gpu.c with -DQK_MIXED takes operands of any type: to LDS in 16 bits an element, and
// from there to the matrix cores.
//
//   QK_BY_BF16   bf16, FP8 of every kind and i8 are exact in bf16
//   QK_BY_F16    f16, and beside it FP8 and i8, which are exact in f16
//   QK_BY_PARTS  all others: an element is the sum of two bf16, high and low, and a product is
//                high high + high low + low high. High is x rounded to bf16, and low is what
//                remains, rounded: 2^-16 of x at most is lost. low low, which is left out, is 2^-16
//                of the product at most. f16 has 11 bits, so that nothing of it is lost
//
// LDS       a row has 64 elements, or the high parts of 32 and then their low parts
#ifndef QK_GEMM_ANY_TYPES_GPU_H
#define QK_GEMM_ANY_TYPES_GPU_H

#include "elements.h"
#include "gemm_gpu.h"
#include "halves.h"
#include "mma.h"

enum { PART_K = 32 }; // k of a part in LDS

/** Returns the bytes of an element of a or b. */
QD_INLINE uint32_t element_bytes(int type) {
    return type == QK_F32 ? 4 : type == QK_F16 || type == QK_BF16 ? 2 : 1;
}

/** Loads eight elements of consecutive k at p, of which `count` exist; the others are zero. */
QD_INLINE qd_u32x8 load_any(const uint8_t *p, int64_t step, uint32_t count, uint32_t size) {
    qd_u32x8 out = 0;
    if (step == size && count >= QD_RUN && (uintptr_t)p % qd_min(QD_RUN * size, 16) == 0) {
        if (size == 1)
            out.lo.xy = *(const qd_u32x2 *)p;
        else
            out.lo = *(const qd_u32x4 *)p;
        if (size == 4)
            out.hi = ((const qd_u32x4 *)p)[1];
        return out;
    }
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        if (i >= count)
            continue;
        const uint8_t *at = p + i * step;
        const uint32_t bits = size == 1   ? *at
                              : size == 2 ? *(const uint16_t *)at
                                          : *(const uint32_t *)at;
        out[i * size / 4] |= bits << (i * size % 4 * 8);
    }
    return out;
}

/** Returns the values of eight elements of 8 bits. */
QD_INLINE qd_f32x8 values_of_codes(int type, qd_u32x2 codes) {
    qd_f32x8 v;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        const uint32_t code = codes[i / 4] >> (i % 4 * 8) & 0xFF;
        v[i] = type == QK_I8 ? (float)(int8_t)code : qd_fp8_decode(type - QK_E4M3FN, code);
    }
    return v;
}

QD_INLINE qd_f32x8 values_of(int type, qd_u32x8 raw) {
    if (type == QK_F32)
        return __builtin_bit_cast(qd_f32x8, raw);
    if (type == QK_F16 || type == QK_BF16)
        return qd_from_16(type, raw.lo);
    return values_of_codes(type, raw.lo.xy);
}

/** Returns values that are exact in f16, or in bf16, as such. */
QD_INLINE qd_u32x4 narrow8(bool is_f16, qd_f32x8 v) {
    qd_u32x4 out;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        out[i] = qd_narrow2(is_f16, v[2 * i], v[2 * i + 1]);
    return out;
}

/** Returns x's high part, an f32 that is exact in bf16. Of infinity it is 1, so that the low part
 *  is infinity and meets no low part that could take its sign away; of values that would round to
 *  infinity it is the largest bf16. */
QD_INLINE float high_part(float x) {
    const uint32_t bits = qd_as_u32(x), magnitude = bits & 0x7FFFFFFF, sign = bits & 0x80000000;
    uint32_t high = (bits + 0x8000) & 0xFFFF0000;
    if (magnitude >= 0x7F7F8000)
        high = magnitude > 0x7F800000    ? 0x7FC00000
               : magnitude == 0x7F800000 ? sign | 0x3F800000
                                         : bits & 0xFFFF0000;
    return qd_as_f32(high);
}

/** Returns x, a low part, rounded to bf16. */
QD_INLINE float low_part(float x) {
    return qd_as_f32((qd_as_u32(x) + 0x8000) & 0xFFFF0000);
}

/** Puts eight values into a row in LDS at `to` as sums of two bf16. */
QD_INLINE void put_parts(QD_LDS uint8_t *to, qd_f32x8 v) {
    qd_f32x8 high, low;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        high[i] = high_part(v[i]);
        low[i] = low_part(v[i] - high[i]);
    }
    *(QD_LDS qd_u32x4 *)to = narrow8(false, high);
    *(QD_LDS qd_u32x4 *)(to + 2 * PART_K) = narrow8(false, low);
}

/** Returns eight elements as f16 or bf16, which hold them exactly. */
QD_INLINE qd_u32x4 convert8(bool is_f16, int type, qd_u32x8 raw) {
    if (type == (is_f16 ? QK_F16 : QK_BF16))
        return raw.lo;
    if (type == QK_E4M3FN + QD_FP8_USUAL) // this copy of the code knows the kind
        return qd_widen8(QD_FP8_USUAL, is_f16, raw.lo.xy);
    return narrow8(is_f16, values_of_codes(type, raw.lo.xy));
}

/** Puts eight elements into a row in LDS at `to`. */
QD_INLINE void put_elements(QD_LDS uint8_t *to, int type, qd_u32x8 raw, int how) {
    if (how == QK_BY_PARTS)
        put_parts(to, values_of(type, raw));
    else
        *(QD_LDS qd_u32x4 *)to =
            how == QK_BY_F16 ? convert8(true, type, raw) : convert8(false, type, raw);
}

#endif
