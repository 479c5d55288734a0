// SPDX-License-Identifier: Apache-2.0
// Quantisation with vectors of QN_LANES f32: included by quantize_avx2.c and quantize_avx512.c.
//
// Blocks go row by row, 128 elements at a time. The largest magnitude is found on the elements'
// bits, whose order as integers is that of the magnitudes. The addition that qni_fp8_encode
// explains makes the codes. No value can exceed the range, since the scale comes from the largest;
// blocks with an infinity or a NaN are left to the scalar kernel. Elements past the edge are zeros
// in a buffer.
#ifndef QNI_QUANTIZE_SIMD_H
#define QNI_QUANTIZE_SIMD_H

#include "../../shared/fp8_simd.h"
#include "../quantize.h"

#include <string.h>

typedef uint16_t u16v __attribute__((vector_size(4 * QN_LANES)));     // 2 * QN_LANES elements
typedef uint8_t u8v __attribute__((vector_size(4 * QN_LANES)));       // 4 * QN_LANES codes
typedef uint16_t u16_half __attribute__((vector_size(2 * QN_LANES))); // half a vector
typedef _Float16 f16_half __attribute__((vector_size(2 * QN_LANES)));
typedef uint8_t u8_half __attribute__((vector_size(2 * QN_LANES)));

constexpr int64_t cache_line = 64; // bytes

QN_INLINE u16v join_u16(u16_half low, u16_half high) {
    u16v joined;
    memcpy(&joined, &low, sizeof low);
    memcpy((char *)&joined + sizeof low, &high, sizeof high);
    return joined;
}

QN_INLINE u8v join_u8(u8_half low, u8_half high) {
    u8v joined;
    memcpy(&joined, &low, sizeof low);
    memcpy((char *)&joined + sizeof low, &high, sizeof high);
    return joined;
}

/** Returns the codes of 2 * QN_LANES elements, with their signs, in the upper byte of each half.
 *  The lower bytes are garbage. `high` has the upper halves of the elements' bits, sign first. */
QN_INLINE u16v with_signs(u16v codes, u16v high) {
    return (codes & 0x7FFF) | (high & 0x8000);
}

QN_INLINE u32v encode_scaled(f32v magnitude, f32v inverse, const rounding *k) {
    return encode_magnitudes(magnitude * inverse, (f32v){} + k->anchor, k);
}

QN_INLINE u16v encode_bf16(const uint16_t *x, f32v inverse, const rounding *k) {
    u16v bits;
    memcpy(&bits, x, sizeof bits);
    const u32v pairs = (u32v)(bits & 0x7FFF);
    const u32v even = encode_scaled((f32v)(pairs << 16), inverse, k);
    const u32v odd = encode_scaled((f32v)(pairs & 0xFFFF0000), inverse, k);
    return with_signs((u16v)((even & 0xFFFF) | odd << 16), bits);
}

QN_INLINE u16v encode_f16(const _Float16 *x, f32v inverse, const rounding *k) {
    u16_half bits[2], codes[2];
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 2; i++) {
        const f32v magnitude = __builtin_convertvector((f16_half)(bits[i] & 0x7FFF), f32v);
        codes[i] = __builtin_convertvector(encode_scaled(magnitude, inverse, k), u16_half);
    }
    return with_signs(join_u16(codes[0], codes[1]), join_u16(bits[0], bits[1]));
}

QN_INLINE u16v encode_f32(const float *x, f32v inverse, const rounding *k) {
    u32v bits[2];
    u16_half codes[2], high[2];
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 2; i++) {
        const f32v magnitude = (f32v)(bits[i] & 0x7FFFFFFF);
        codes[i] = __builtin_convertvector(encode_scaled(magnitude, inverse, k), u16_half);
        high[i] = __builtin_convertvector(bits[i] >> 16, u16_half);
    }
    return with_signs(join_u16(codes[0], codes[1]), join_u16(high[0], high[1]));
}

QN_INLINE u8_half encode(qni_dtype dtype, const void *x, int i, f32v inverse, const rounding *k) {
    const u16v codes = dtype == QNI_BF16  ? encode_bf16((const uint16_t *)x + i, inverse, k)
                       : dtype == QNI_F16 ? encode_f16((const _Float16 *)x + i, inverse, k)
                                          : encode_f32((const float *)x + i, inverse, k);
    return __builtin_convertvector(codes >> 8, u8_half);
}

/** Encodes 128 elements, and fetches those `ahead` bytes further on; 0: none. */
QN_INLINE void encode_row(qni_dtype dtype, bool streams, const char *x, uint8_t *q, f32v inverse,
                          const rounding *k, int64_t ahead) {
    for (int i = 0; i < QNI_BLOCK; i += 4 * QN_LANES) {
        for (int64_t at = 0; ahead > 0 && at < 4 * QN_LANES * qni_element_bytes(dtype);
             at += cache_line)
            __builtin_prefetch(x + i * qni_element_bytes(dtype) + at + ahead);
        u8v codes = join_u8(encode(dtype, x, i, inverse, k),
                            encode(dtype, x, i + 2 * QN_LANES, inverse, k));
        codes &= (u8v)(codes != k->dropped);
        if (streams)
            __builtin_nontemporal_store(codes, (u8v *)(void *)(q + i));
        else
            memcpy(q + i, &codes, sizeof codes);
    }
}

/** Bits of the largest magnitudes so far, for one dtype. A NaN's bits are larger than
 *  infinity's. */
typedef struct tops {
    u32v of32;
    u16v of16;
} tops;

/** Adds 128 more elements, and fetches those at `next`. */
QN_INLINE void add_row(qni_dtype dtype, tops *t, const char *x, const char *next) {
    for (size_t i = 0; i < QNI_BLOCK * (size_t)qni_element_bytes(dtype); i += sizeof(u32v)) {
        u32v bits;
        memcpy(&bits, x + i, sizeof bits);
        if (next && i % cache_line == 0)
            __builtin_prefetch((const void *)((uintptr_t)next + i));
        if (dtype == QNI_F32)
            t->of32 = __builtin_elementwise_max(t->of32, bits & 0x7FFFFFFF);
        else
            t->of16 = __builtin_elementwise_max(t->of16, (u16v)bits & 0x7FFF);
    }
}

QN_INLINE uint32_t top_of(qni_dtype dtype, const tops *t) {
    return dtype == QNI_F32 ? __builtin_reduce_max(t->of32) : __builtin_reduce_max(t->of16);
}

QN_INLINE float float_of_top(qni_dtype dtype, uint32_t top) {
    if (dtype == QNI_F16)
        return (float)__builtin_bit_cast(_Float16, (uint16_t)top);
    return __builtin_bit_cast(float, dtype == QNI_F32 ? top : top << 16);
}

/** How many blocks side by side, and how many tall ones, have their scales computed together, so
 *  that divisions do not wait for each other; how many rows ahead a tall block is fetched. */
enum { BATCH = 16, TALL_BATCH = 4, ROWS_AHEAD = 8 };

typedef struct batch {
    uint32_t tops[BATCH], largest; // magnitudes' bits; largest of all
    float scales[BATCH], inverses[BATCH];
} batch;

/** Finds the largest magnitudes of `count` tall blocks, by rows of all of them, because a row of
 *  one block is too short for the processor to fetch it ahead. The rows below are fetched meanwhile
 *  and, at the end, the first rows of the next blocks. */
QN_INLINE void find_tall_tops(qni_dtype dtype, batch *a, const char *x, int count, int64_t rows,
                              int64_t row_bytes) {
    const int64_t block = QNI_BLOCK * qni_element_bytes(dtype);
    const int64_t below = ROWS_AHEAD * row_bytes, beside = count * block + below - rows * row_bytes;
    tops t[TALL_BATCH] = {};
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < count; i++) {
            const char *at = x + r * row_bytes + i * block;
            const int64_t ahead = r + ROWS_AHEAD < rows ? below : beside;
            add_row(dtype, &t[i], at, (const char *)((uintptr_t)at + (uintptr_t)ahead));
        }
    for (int i = 0; i < count; i++)
        a->tops[i] = top_of(dtype, &t[i]);
}

QN_INLINE void batch_tops(qni_dtype dtype, batch *a, const char *x, int count, int64_t rows,
                          int64_t row_bytes) {
    *a = (batch){};
    if (rows > 1)
        find_tall_tops(dtype, a, x, count, rows, row_bytes);
    for (int i = 0; i < count; i++) {
        if (rows == 1) {
            tops t = {};
            add_row(dtype, &t, x + i * QNI_BLOCK * qni_element_bytes(dtype), nullptr);
            a->tops[i] = top_of(dtype, &t);
        }
        a->largest = a->tops[i] > a->largest ? a->tops[i] : a->largest;
    }
}

/** Computes all scales of the batch, whether they are used or not: the compiler makes vectors of a
 *  loop of fixed length. */
QN_INLINE void batch_scales(qni_dtype dtype, batch *a, const qni_quantize_problem *p) {
    for (int i = 0; i < BATCH; i++) {
        a->scales[i] = qni_quantize_scale(p, float_of_top(dtype, a->tops[i]));
        a->inverses[i] = 1.0f / a->scales[i];
    }
}

/** Encodes `count` blocks side by side. */
QN_INLINE void encode_blocks(qni_dtype dtype, bool streams, const qni_quantize_problem *p,
                             const qni_block *b, int count, const batch *a, const rounding *kind) {
    const rounding k = *kind; // stores of bytes cannot change a copy
    const int64_t element = qni_element_bytes(dtype), x_bytes = p->x_row * element;
    const int64_t ahead = b->rows > 1 ? 2 * x_bytes : 2 * count * QNI_BLOCK * element;
    const char *x = (const char *)p->x + b->row * x_bytes + b->col * element;
    uint8_t *q = p->q + b->row * p->q_row + b->col;
    for (int64_t r = 0; r < b->rows; r++, x += x_bytes, q += p->q_row)
        for (int i = 0; i < count; i++)
            encode_row(dtype, streams, x + i * QNI_BLOCK * element, q + i * QNI_BLOCK,
                       (f32v){} + a->inverses[i], &k, ahead);
}

/** Codes of this size and more are stored past the caches, as the first would leave the caches
 *  before anyone reads them. */
constexpr int64_t stream_bytes = 8 << 20;

/** Returns whether codes go past the caches: they must be many, in whole cache lines. Blocks of one
 *  row were no faster that way. */
static inline bool streams_out(const qni_quantize_problem *p) {
    return p->block_rows > 1 && p->rows * p->cols >= stream_bytes &&
           (uintptr_t)p->q % cache_line == 0 && p->q_row % cache_line == 0;
}

/** Quantises `count` blocks of all 128 columns, from b to the right; count is at most BATCH. */
QN_INLINE void quantize_full(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                             int count, const rounding *k) {
    const int64_t element = qni_element_bytes(dtype), x_bytes = p->x_row * element;
    const uint32_t infinity = dtype == QNI_F32 ? 0x7F800000 : dtype == QNI_F16 ? 0x7C00 : 0x7F80;
    batch a;
    batch_tops(dtype, &a, (const char *)p->x + b->row * x_bytes + b->col * element, count, b->rows,
               x_bytes);
    if (a.largest >= infinity) {
        qni_quantize_blocks_scalar(p, b, count);
        return;
    }
    batch_scales(dtype, &a, p);
    memcpy(b->scale, a.scales, (size_t)count * sizeof *a.scales);
    if (streams_out(p))
        encode_blocks(dtype, true, p, b, count, &a, k);
    else
        encode_blocks(dtype, false, p, b, count, &a, k);
}

/** Quantises a block at the right edge: a copy of it, padded with zeros, goes through
 *  quantize_full. */
static void quantize_partial(qni_dtype dtype, const qni_quantize_problem *p, const qni_block *b,
                             const rounding *k) {
    const int64_t element = qni_element_bytes(dtype);
    alignas(64) char x[QNI_BLOCK * QNI_BLOCK * sizeof(float)];
    alignas(64) uint8_t q[QNI_BLOCK * QNI_BLOCK];
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t from = ((b->row + r) * p->x_row + b->col) * element;
        char *row = x + r * QNI_BLOCK * element;
        memset(row, 0, (size_t)(QNI_BLOCK * element));
        memcpy(row, (const char *)p->x + from, (size_t)(b->cols * element));
    }
    qni_quantize_problem padded = *p;
    padded.x = x, padded.q = q, padded.x_row = padded.q_row = QNI_BLOCK;
    padded.rows = b->rows, padded.cols = QNI_BLOCK;
    const qni_block block = {.rows = b->rows, .cols = QNI_BLOCK, .scale = b->scale};
    if (dtype == QNI_F32)
        quantize_full(QNI_F32, &padded, &block, 1, k);
    else if (dtype == QNI_F16)
        quantize_full(QNI_F16, &padded, &block, 1, k);
    else
        quantize_full(QNI_BF16, &padded, &block, 1, k);
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(p->q + (b->row + r) * p->q_row + b->col, q + r * QNI_BLOCK, (size_t)b->cols);
}

/** Returns how many of `left` blocks go together from b on; 0 if b itself is partial. */
static inline int batch_size(const qni_quantize_problem *p, const qni_block *b, int64_t left) {
    const int64_t in_row = (p->cols - b->col) / QNI_BLOCK;
    const int64_t most = p->block_rows == 1 ? BATCH : TALL_BATCH;
    const int64_t count = left < in_row ? left : in_row;
    return (int)(count < most ? count : most);
}

QN_INLINE void quantize_blocks_as(qni_dtype dtype, const qni_quantize_problem *p, int64_t first,
                                  int64_t last) {
    const rounding k = rounding_of(p->kind);
    for (int64_t i = first; i < last;) {
        const qni_block b = qni_quantize_block(p, i);
        const int count = batch_size(p, &b, last - i);
        if (count > 0)
            quantize_full(dtype, p, &b, count, &k);
        else
            quantize_partial(dtype, p, &b, &k);
        i += count > 0 ? count : 1;
    }
    if (streams_out(p))
        __atomic_thread_fence(__ATOMIC_SEQ_CST); // nothing less orders stores past the caches
}

static void quantize_blocks(const qni_quantize_problem *p, int64_t first, int64_t last) {
    if (p->dtype_x == QNI_F32)
        quantize_blocks_as(QNI_F32, p, first, last);
    else if (p->dtype_x == QNI_F16)
        quantize_blocks_as(QNI_F16, p, first, last);
    else
        quantize_blocks_as(QNI_BF16, p, first, last);
}

#endif
