// SPDX-License-Identifier: Apache-2.0
// Dequantisation as plain loops without branches, which the compiler vectorises for whatever
// instructions the including file may use.
#ifndef QNI_DEQUANTIZE_LOOPS_H
#define QNI_DEQUANTIZE_LOOPS_H

#include "../quantize.h"

/** Decodes as qni_fp8_decode does, by moving the code's exponent and fraction to where an f32 has
 *  them. */
static inline float decode_bits(qni_fp8 kind, const qni_fp8_format *f, uint32_t code) {
    const uint32_t magnitude = code & 0x7F, infinity = kind == QNI_FP8_E5M2 ? 0x7C : 0x80;
    const bool is_nan =
        f->is_fnuz ? code == 0x80 : magnitude > (kind == QNI_FP8_E5M2 ? 0x7Cu : 0x7Eu);
    const uint32_t shifted = magnitude << (23 - f->mantissa_bits);
    const float rebias =
        __builtin_bit_cast(float, (uint32_t)(254 - f->bias) << 23); // 2^(127 - bias)
    uint32_t bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, shifted) * rebias);
    bits = magnitude == infinity ? 0x7F800000 : bits;
    bits = is_nan ? 0x7FC00000 : bits | (code & 0x80) << 24;
    return __builtin_bit_cast(float, bits);
}

/** Returns a * b in f32 with the last bit set if the product is inexact ("rounded to odd").
 *  Rounding this number to a narrower type gives what rounding the exact product gives. */
static inline uint32_t product_to_odd(float a, float b) {
    const double exact = (double)a * (double)b;
    const float nearest = (float)exact;
    const uint32_t bits = __builtin_bit_cast(uint32_t, nearest);
    const double distance = __builtin_fabs((double)nearest) - __builtin_fabs(exact);
    const uint32_t below = distance > 0 ? bits - 1 : bits;   // towards zero
    return distance > 0 || distance < 0 ? below | 1 : below; // neither for a NaN
}

static inline uint16_t bf16_from_odd(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

/** Rounds by an addition, as qni_fp8_encode does. Numbers beyond the largest f16 become
 *  infinity. */
static inline uint16_t f16_from_odd(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7FFFFFFF, smallest = 113u << 23;     // 2^-14
    const uint32_t capped = magnitude < 0x47800000 ? magnitude : 0x47800000; // 2^16
    const uint32_t field = capped & 0x7F800000, binade = field > smallest ? field : smallest;
    const uint32_t anchor = binade + (13u << 23);
    const float sum = __builtin_bit_cast(float, capped) + __builtin_bit_cast(float, anchor);
    const uint32_t code = __builtin_bit_cast(uint32_t, sum) - anchor + ((binade - smallest) >> 13);
    return (uint16_t)(magnitude > 0x7F800000 ? 0x7E00 : code | (bits >> 16 & 0x8000));
}

static inline float f32_product(float a, float b) {
    const float x = a * b;
    return x != x ? __builtin_nanf("") : x;
}

/** Dequantises one row of a block: n elements of one scale. */
static inline __attribute__((always_inline)) void
dequantize_row(qni_dtype dtype, qni_fp8 kind, void *x, const uint8_t *q, int64_t n, float scale) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    for (int64_t i = 0; i < n; i++) {
        const float value = decode_bits(kind, &f, q[i]);
        if (dtype == QNI_F32)
            ((float *)x)[i] = f32_product(value, scale);
        else if (dtype == QNI_F16)
            ((uint16_t *)x)[i] = f16_from_odd(product_to_odd(value, scale));
        else
            ((uint16_t *)x)[i] = bf16_from_odd(product_to_odd(value, scale));
    }
}

/** Dequantises blocks side by side, row by row, so that memory is read in order. */
static inline __attribute__((always_inline)) void
dequantize_side_by_side(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                        int64_t count) {
    const int64_t end = b->col + count * QNI_BLOCK, cols = end < p->cols ? end : p->cols;
    for (int64_t r = b->row; r < b->row + b->rows; r++)
        for (int64_t c = b->col; c < cols; c += QNI_BLOCK)
            dequantize_row(dtype, p->kind,
                           (char *)p->x + (r * p->x_row + c) * qni_element_bytes(dtype),
                           p->q + r * p->q_row + c, cols - c < QNI_BLOCK ? cols - c : QNI_BLOCK,
                           b->scale[(c - b->col) / QNI_BLOCK]);
}

static inline __attribute__((always_inline)) void
dequantize_blocks_as(qni_dtype dtype, const qni_quantize_problem *p, int64_t first, int64_t last) {
    for (int64_t i = first; i < last;) {
        const qni_block b = qni_quantize_block(p, i);
        const int64_t in_row = qni_quantize_block_cols(p) - b.col / QNI_BLOCK;
        const int64_t count = last - i < in_row ? last - i : in_row;
        dequantize_side_by_side(dtype, p, &b, count);
        i += count;
    }
}

static inline void dequantize_blocks(const qni_quantize_problem *p, int64_t first, int64_t last) {
    if (p->dtype_x == QNI_F32)
        dequantize_blocks_as(QNI_F32, p, first, last);
    else if (p->dtype_x == QNI_F16)
        dequantize_blocks_as(QNI_F16, p, first, last);
    else
        dequantize_blocks_as(QNI_BF16, p, first, last);
}

#endif
