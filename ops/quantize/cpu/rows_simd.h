// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows as plain loops without branches, which the compiler vectorises: included
// by rows_cpu.c, rows_avx2.c and rows_avx512.c.
#ifndef QNI_QUANTIZE_ROWS_SIMD_H
#define QNI_QUANTIZE_ROWS_SIMD_H

#include "../rows.h"

#define QN_INLINE static inline __attribute__((always_inline))

QN_INLINE float element(qni_dtype dtype, const void *x, int64_t i) {
    return dtype == QNI_F32   ? ((const float *)x)[i]
           : dtype == QNI_F16 ? (float)((const _Float16 *)x)[i]
                              : __builtin_bit_cast(float, (uint32_t)((const uint16_t *)x)[i] << 16);
}

/** Returns the largest magnitude, found on bits, whose order as integers is that of the
 *  magnitudes. */
QN_INLINE float amax_as(qni_dtype dtype, const void *x, int64_t from, int64_t count) {
    uint32_t top = 0;
    for (int64_t i = from; i < from + count; i++) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, element(dtype, x, i)) & 0x7FFFFFFF;
        const uint32_t known = bits <= 0x7F800000 ? bits : 0; // not a NaN
        top = known > top ? known : top;
    }
    return __builtin_bit_cast(float, top);
}

static float amax_of(const qni_rows_problem *p, int64_t row, int64_t col, int64_t count) {
    const int64_t from = row * p->x_row + col;
    return p->dtype_x == QNI_F32   ? amax_as(QNI_F32, p->x, from, count)
           : p->dtype_x == QNI_F16 ? amax_as(QNI_F16, p->x, from, count)
                                   : amax_as(QNI_BF16, p->x, from, count);
}

QN_INLINE void encode_as(qni_dtype dtype, qni_dtype to, const void *x, int64_t from, uint8_t *q,
                         int64_t count, float inverse) {
    for (int64_t i = 0; i < count; i++)
        q[i] = qni_rows_encode(to, element(dtype, x, from + i) * inverse);
}

QN_INLINE void encode_from(qni_dtype dtype, const qni_rows_problem *p, int64_t from, uint8_t *q,
                           int64_t count, float inverse) {
    switch (p->dtype_q) {
    case QNI_E4M3FN:
        encode_as(dtype, QNI_E4M3FN, p->x, from, q, count, inverse);
        return;
    case QNI_E4M3FNUZ:
        encode_as(dtype, QNI_E4M3FNUZ, p->x, from, q, count, inverse);
        return;
    case QNI_I8:
        encode_as(dtype, QNI_I8, p->x, from, q, count, inverse);
        return;
    default:
        encode_as(dtype, p->dtype_q, p->x, from, q, count, inverse);
    }
}

static void encode(const qni_rows_problem *p, int64_t row, int64_t col, int64_t count,
                   float inverse) {
    const int64_t from = row * p->x_row + col;
    uint8_t *q = p->q + row * p->q_row + col;
    if (p->dtype_x == QNI_F32)
        encode_from(QNI_F32, p, from, q, count, inverse);
    else if (p->dtype_x == QNI_F16)
        encode_from(QNI_F16, p, from, q, count, inverse);
    else
        encode_from(QNI_BF16, p, from, q, count, inverse);
}

static const qni_rows_fns fns = {amax_of, encode};

#endif
