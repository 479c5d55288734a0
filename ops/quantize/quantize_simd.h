// SPDX-License-Identifier: Apache-2.0
// Quantisation with vectors of QN_LANES f32: included by quantize_avx2.c and quantize_avx512.c.
//
// Blocks go row by row, 128 elements at a time: the largest magnitude is found on the elements' own bits (whose
// order as integers is that of the magnitudes), the codes by the addition that qni_fp8_encode explains. No value
// can exceed the range, since the scale comes from the largest; a block with an infinity or a NaN is left to the
// scalar kernel. Elements past the edge are zeros in a buffer.
#ifndef QNI_QUANTIZE_SIMD_H
#define QNI_QUANTIZE_SIMD_H

#include "quantize.h"

#include <string.h>

typedef float f32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint16_t u16v __attribute__((vector_size(4 * QN_LANES)));     // 2 * QN_LANES elements
typedef uint16_t u16_half __attribute__((vector_size(2 * QN_LANES))); // QN_LANES elements
typedef _Float16 f16_half __attribute__((vector_size(2 * QN_LANES)));
typedef uint8_t u8v __attribute__((vector_size(2 * QN_LANES))); // 2 * QN_LANES codes
constexpr int step = 2 * QN_LANES;                              // elements that become one u8v

#define QN_INLINE static inline __attribute__((always_inline))

/** The kind's constants; a code is (sum's low byte) + (binade >> shift) - first. */
typedef struct rounding {
    uint32_t smallest; // exponent field of the smallest normal value
    uint32_t anchor;   // from a binade to the number that rounds it
    uint32_t shift, first;
    bool is_fnuz;
} rounding;

static inline rounding rounding_of(qni_fp8 kind) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    const uint32_t shift = 23 - (uint32_t)f.mantissa_bits, smallest = (uint32_t)(128 - f.bias)
                                                                      << 23;
    return (rounding){smallest, shift << 23, shift, smallest >> shift, f.is_fnuz};
}

/** Low byte of each lane: the code of a magnitude. The other bytes are garbage. */
QN_INLINE u32v encode_magnitudes(f32v magnitude, const rounding *k) {
    const u32v field = (u32v)magnitude & 0x7F800000;
    const u32v binade = __builtin_elementwise_max(field, (u32v){} + k->smallest);
    const u32v sum = (u32v)(magnitude + (f32v)(binade + k->anchor));
    return sum + (binade >> k->shift) - k->first;
}

/** `step` elements: their bits' high halves, sign first, and their magnitudes' codes, in the same order. */
typedef struct coded {
    u16v high, codes; // the codes' high bytes are garbage
} coded;

QN_INLINE u16v join(u16_half low, u16_half high) {
    u16v joined;
    memcpy(&joined, &low, sizeof low);
    memcpy((char *)&joined + sizeof low, &high, sizeof high);
    return joined;
}

QN_INLINE coded encode_bf16(const uint16_t *x, f32v inverse, const rounding *k) {
    u16v bits;
    memcpy(&bits, x, sizeof bits);
    const u32v pairs = (u32v)(bits & 0x7FFF);
    const u32v even = encode_magnitudes((f32v)(pairs << 16) * inverse, k);
    const u32v odd = encode_magnitudes((f32v)(pairs & 0xFFFF0000) * inverse, k);
    return (coded){bits, (u16v)((even & 0xFFFF) | odd << 16)};
}

QN_INLINE coded encode_f16(const _Float16 *x, f32v inverse, const rounding *k) {
    u16_half bits[2];
    memcpy(bits, x, sizeof bits);
    u16_half codes[2];
    for (int i = 0; i < 2; i++) {
        const f32v magnitude = __builtin_convertvector((f16_half)(bits[i] & 0x7FFF), f32v);
        codes[i] = __builtin_convertvector(encode_magnitudes(magnitude * inverse, k), u16_half);
    }
    return (coded){join(bits[0], bits[1]), join(codes[0], codes[1])};
}

QN_INLINE coded encode_f32(const float *x, f32v inverse, const rounding *k) {
    u32v bits[2];
    memcpy(bits, x, sizeof bits);
    u16_half codes[2], high[2];
    for (int i = 0; i < 2; i++) {
        const f32v magnitude = (f32v)(bits[i] & 0x7FFFFFFF);
        codes[i] = __builtin_convertvector(encode_magnitudes(magnitude * inverse, k), u16_half);
        high[i] = __builtin_convertvector(bits[i] >> 16, u16_half);
    }
    return (coded){join(high[0], high[1]), join(codes[0], codes[1])};
}

QN_INLINE u8v with_signs(coded c, const rounding *k) {
    u16v signs = c.high >> 8 & 0x80;
    if (k->is_fnuz)
        signs &= (u16v)((c.codes & 0xFF) != 0);
    return __builtin_convertvector(c.codes | signs, u8v);
}

/** 128 elements. `streamed` stores go past the caches; q is then aligned to a u8v. */
QN_INLINE void encode_row(qni_dtype dtype, const void *x, uint8_t *q, f32v inverse,
                          const rounding *k, bool streamed) {
    for (int i = 0; i < QNI_BLOCK; i += step) {
        const coded c = dtype == QNI_BF16  ? encode_bf16((const uint16_t *)x + i, inverse, k)
                        : dtype == QNI_F16 ? encode_f16((const _Float16 *)x + i, inverse, k)
                                           : encode_f32((const float *)x + i, inverse, k);
        const u8v codes = with_signs(c, k);
        if (streamed)
            __builtin_nontemporal_store(codes, (u8v *)(q + i));
        else
            memcpy(q + i, &codes, sizeof codes);
    }
}

/** The largest magnitude's bits of 128 elements; a NaN's are larger than infinity's. */
QN_INLINE uint32_t row_top(qni_dtype dtype, const void *x) {
    if (dtype == QNI_F32) {
        u32v top = {};
        for (int i = 0; i < QNI_BLOCK; i += QN_LANES) {
            u32v bits;
            memcpy(&bits, (const float *)x + i, sizeof bits);
            top = __builtin_elementwise_max(top, bits & 0x7FFFFFFF);
        }
        return __builtin_reduce_max(top);
    }
    u16v top = {};
    for (int i = 0; i < QNI_BLOCK; i += step) {
        u16v bits;
        memcpy(&bits, (const uint16_t *)x + i, sizeof bits);
        top = __builtin_elementwise_max(top, bits & 0x7FFF);
    }
    return __builtin_reduce_max(top);
}

QN_INLINE float float_of_top(qni_dtype dtype, uint32_t top) {
    if (dtype == QNI_F16)
        return (float)__builtin_bit_cast(_Float16, (uint16_t)top);
    return __builtin_bit_cast(float, dtype == QNI_F32 ? top : top << 16);
}

QN_INLINE const char *row_at(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                             int64_t row) {
    return (const char *)p->x + ((b->row + row) * p->x_row + b->col) * qni_element_bytes(dtype);
}

/** A block of all 128 columns. */
QN_INLINE void quantize_full(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                             const rounding *k, bool streamed) {
    uint32_t top = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const uint32_t of_row = row_top(dtype, row_at(dtype, p, b, r));
        top = of_row > top ? of_row : top;
    }
    const uint32_t infinity = dtype == QNI_F32 ? 0x7F800000 : dtype == QNI_F16 ? 0x7C00 : 0x7F80;
    if (top >= infinity) {
        qni_quantize_block_scalar(p, b);
        return;
    }
    *b->scale = qni_quantize_scale(p, float_of_top(dtype, top));
    const f32v inverse = (f32v){} + 1.0f / *b->scale;
    for (int64_t r = 0; r < b->rows; r++)
        encode_row(dtype, row_at(dtype, p, b, r), p->q + (b->row + r) * p->q_row + b->col, inverse,
                   k, streamed);
}

/** A block at the right edge: a copy of it, padded with zeros, goes through quantize_full. */
static void quantize_partial(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                             const rounding *k) {
    const size_t bytes = (size_t)qni_element_bytes(dtype);
    alignas(64) char x[QNI_BLOCK * QNI_BLOCK * sizeof(float)];
    alignas(64) uint8_t q[QNI_BLOCK * QNI_BLOCK];
    for (int64_t r = 0; r < b->rows; r++) {
        char *row = x + (size_t)r * QNI_BLOCK * bytes;
        memset(row, 0, QNI_BLOCK * bytes);
        memcpy(row, row_at(dtype, p, b, r), (size_t)b->cols * bytes);
    }
    qni_quantize_problem padded = *p;
    padded.x = x, padded.q = q, padded.x_row = padded.q_row = QNI_BLOCK;
    const qni_block block = {.rows = b->rows, .cols = QNI_BLOCK, .scale = b->scale};
    if (dtype == QNI_F32)
        quantize_full(QNI_F32, &padded, &block, k, false);
    else if (dtype == QNI_F16)
        quantize_full(QNI_F16, &padded, &block, k, false);
    else
        quantize_full(QNI_BF16, &padded, &block, k, false);
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(p->q + (b->row + r) * p->q_row + b->col, q + r * QNI_BLOCK, (size_t)b->cols);
}

/** Codes that no cache will hold until they are used are better written past the caches. */
static inline bool is_streamed(const qni_quantize_problem *p) {
    constexpr int64_t cache_bytes = 8 << 20;
    return p->rows * p->cols >= cache_bytes && (uintptr_t)p->q % sizeof(u8v) == 0 &&
           (size_t)p->q_row % sizeof(u8v) == 0;
}

QN_INLINE void quantize_blocks_as(qni_dtype dtype, bool streamed, const qni_quantize_problem *p,
                                  int64_t first, int64_t last) {
    const rounding k = rounding_of(p->kind);
    qni_block b = qni_quantize_block(p, first);
    for (int64_t i = first; i < last; i++) {
        if (b.cols == QNI_BLOCK)
            quantize_full(dtype, p, &b, &k, streamed);
        else
            quantize_partial(dtype, p, &b, &k);
        qni_quantize_next_block(p, &b);
    }
    if (streamed)
        __builtin_ia32_sfence(); // streamed stores are not ordered by the locks that end a task
}

static void quantize_blocks(const qni_quantize_problem *p, int64_t first, int64_t last) {
    const bool streamed = is_streamed(p);
    if (p->dtype_x == QNI_F32)
        quantize_blocks_as(QNI_F32, false, p, first, last);
    else if (p->dtype_x == QNI_F16)
        quantize_blocks_as(QNI_F16, false, p, first, last);
    else if (streamed)
        quantize_blocks_as(QNI_BF16, true, p, first, last);
    else
        quantize_blocks_as(QNI_BF16, false, p, first, last);
}

#endif
