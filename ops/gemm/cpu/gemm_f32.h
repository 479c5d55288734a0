// SPDX-License-Identifier: Apache-2.0
// A GEMM engine in f32 vectors of any width. Each instruction set's file defines three numbers,
// includes this file, and hands an engine of these functions to qni_gemm_cpu_run:
//
//   LANES    floats in a register
//   ROWS x VECTORS   registers of sums: rows of a by vectors of columns
//
// Decoded a is [rows][128] f32. Decoded b is [64 / STRIP][128][STRIP] f32: the columns of a
// register tile, at least 16, lie together and leave the first-level cache room for a.
#define QN_LANES LANES
#include "gemm_cpu.h"
#include "gemm_fetch.h"
#include "gemm_store.h"

#include <string.h>

enum { WIDTH = VECTORS * LANES, STRIP = WIDTH < 16 ? 16 : WIDTH };
static_assert(STRIP % WIDTH == 0 && STRIP % 16 == 0 && QNI_GEMM_PANEL_N % STRIP == 0);

typedef float vec __attribute__((vector_size(LANES * 4), may_alias));
typedef float vec16 __attribute__((vector_size(64), may_alias));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));

static inline vec splat(float x) {
    return x - (vec){0};
}

static inline vec multiply_add(vec x, vec y, vec sum) {
#ifdef __FMA__
    return __builtin_elementwise_fma(x, y, sum);
#else
    return x * y + sum;
#endif
}

// ---- decoding

/** Decodes sixteen e4m3 codes exactly. Normal codes are put together bit by bit. Subnormal codes
 *  are few enough to be converted as integers, which is right even if the caller has told the
 *  processor to flush subnormals. */
static inline vec16 decode_e4m3(u8x16 codes, qni_dtype dtype) {
    const bool is_fn = dtype == QNI_E4M3FN;
    u32x16 code = __builtin_convertvector(codes, u32x16), magnitude = code & 0x7F;
    u32x16 normal = (magnitude << 20) + (is_fn ? 120u << 23 : 119u << 23);
    vec16 tiny = __builtin_convertvector((i32x16)magnitude, vec16) * (is_fn ? 0x1p-9f : 0x1p-10f);
    u32x16 is_tiny = (u32x16)(magnitude < 8), bits = (is_tiny & (u32x16)tiny) | (~is_tiny & normal);
    u32x16 is_nan = (u32x16)(is_fn ? magnitude == 0x7F : code == 0x80);
    return (vec16)(bits | (code & 0x80) << 24 | (is_nan & 0x7FC00000));
}

/** Decodes sixteen e5m2 codes likewise. Infinity and NaNs are FNUZ's largest numbers. */
static inline vec16 decode_e5m2(u8x16 codes, qni_dtype dtype) {
    const bool is_fnuz = dtype == QNI_E5M2FNUZ;
    u32x16 code = __builtin_convertvector(codes, u32x16), magnitude = code & 0x7F;
    u32x16 normal = (magnitude << 21) + (is_fnuz ? 111u << 23 : 112u << 23);
    vec16 tiny =
        __builtin_convertvector((i32x16)magnitude, vec16) * (is_fnuz ? 0x1p-17f : 0x1p-16f);
    u32x16 is_tiny = (u32x16)(magnitude < 4), bits = (is_tiny & (u32x16)tiny) | (~is_tiny & normal);
    u32x16 is_special = is_fnuz ? (u32x16)(code == 0x80) : (u32x16)(magnitude >= 0x7C);
    u32x16 special = 0x7F800000 | (is_fnuz ? 1u << 22 : (magnitude & 3) << 21);
    return (vec16)(bits | (code & 0x80) << 24 | (is_special & special));
}

static inline vec16 decode_codes(u8x16 codes, qni_dtype dtype) {
    if (dtype == QNI_I8)
        return __builtin_convertvector((i8x16)codes, vec16);
    return qni_gemm_is_e4m3(dtype) ? decode_e4m3(codes, dtype) : decode_e5m2(codes, dtype);
}

static inline vec16 decode_halves(u16x16 x, qni_dtype dtype) {
    if (dtype == QNI_F16)
        return __builtin_convertvector((f16x16)x, vec16);
    return (vec16)(__builtin_convertvector(x, u32x16) << 16);
}

/** Loads `count` (at most 16) elements of a type that lie `stride` apart; the other lanes are
 *  zero. */
#define LOAD_STRIDED(type, vector, data, stride, count)                                            \
    const type *const from = data;                                                                 \
    vector x = {0};                                                                                \
    if ((count) >= 16 && (stride) == 1)                                                            \
        memcpy(&x, from, sizeof x);                                                                \
    else                                                                                           \
        for (int64_t i = 0; i < 16 && i < (count); i++)                                            \
            x[i] = from[i * (stride)];

static inline vec16 load_strided(const void *data, qni_dtype dtype, int64_t stride, int64_t count) {
    switch (qni_dtype_bytes(dtype)) {
    case 4: {
        LOAD_STRIDED(float, vec16, data, stride, count)
        return x;
    }
    case 2: {
        LOAD_STRIDED(uint16_t, u16x16, data, stride, count)
        return decode_halves(x, dtype);
    }
    default: {
        LOAD_STRIDED(uint8_t, u8x16, data, stride, count)
        return decode_codes(x, dtype);
    }
    }
}

/** Returns where element (k, n) of a decoded panel lies. */
static inline int64_t panel_at(int64_t k, int64_t n) {
    return n / STRIP * STRIP * QNI_GEMM_BLOCK_K + k * STRIP + n % STRIP;
}

static void f32_load_a(void *out, const qni_gemm_block *a) {
    const int64_t bytes = qni_dtype_bytes(a->dtype);
    float *to = out;
    for (int64_t m = 0; m < a->rows; m++)
        for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 16, to += 16) {
            const char *from = (const char *)a->data;
            if (k < a->depth)
                from += (m * a->row_stride + k * a->k_stride) * bytes;
            *(vec16 *)to = load_strided(from, a->dtype, a->k_stride, a->depth - k);
        }
}

/** The codes of 16 n at one k of a packed line, laid out as gemm_pack.c says; the first code is
 *  byte `at` of the line. */
#define CODES_OF(line, at)                                                                         \
    __builtin_shufflevector(line, line, at, at + 2, at + 4, at + 6, at + 16, at + 18, at + 20,     \
                            at + 22, at + 32, at + 34, at + 36, at + 38, at + 48, at + 50,         \
                            at + 52, at + 54)

static inline void decode_line(float *out, const uint8_t *from, qni_dtype dtype) {
    u8x64 line;
    memcpy(&line, from, sizeof line);
    const u8x16 codes[4] = {CODES_OF(line, 0), CODES_OF(line, 1), CODES_OF(line, 8),
                            CODES_OF(line, 9)};
    for (int k = 0; k < 4; k++)
        *(vec16 *)(out + k * STRIP) = decode_e4m3(codes[k], dtype);
}

static void load_packed(float *out, const uint8_t *panel, qni_dtype dtype) {
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k += 4)
        for (int n = 0; n < QNI_GEMM_PANEL_N; n += 16, panel += 64)
            decode_line(out + panel_at(k, n), panel, dtype);
}

/** Loads b of any type and strides that is not packed. */
static void load_strips(float *out, const qni_gemm_block *b) {
    const int64_t bytes = qni_dtype_bytes(b->dtype);
    for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k++)
        for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += 16) {
            const char *from = b->data;
            const bool is_inside = k < b->depth && n < b->rows;
            if (is_inside)
                from += (n * b->row_stride + k * b->k_stride) * bytes;
            *(vec16 *)(out + panel_at(k, n)) =
                load_strided(from, b->dtype, b->row_stride, is_inside ? b->rows - n : 0);
        }
}

[[maybe_unused]] static void f32_load_b(void *out, const qni_gemm_block *b) {
    if (b->is_packed)
        load_packed(out, b->data, b->dtype);
    else
        load_strips(out, b);
}

// ---- multiplying

/** Multiplies `rows` x VECTORS registers of sums over the K-block and adds them, scaled, to `sums`.
 *  rows is a constant at each call. */
[[gnu::always_inline]] static inline void multiply_rows(int rows, float *sums, const float *a,
                                                        const float *strip, const float *scales,
                                                        bool is_first) {
    vec partial[ROWS][VECTORS] = {0};
#pragma clang loop unroll_count(2)
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k++) {
        const vec *column = (const vec *)(strip + k * STRIP);
#pragma clang loop unroll(full)
        for (int m = 0; m < rows; m++)
#pragma clang loop unroll(full)
            for (int v = 0; v < VECTORS; v++)
                partial[m][v] =
                    multiply_add(splat(a[m * QNI_GEMM_BLOCK_K + k]), column[v], partial[m][v]);
    }
#pragma clang loop unroll(full)
    for (int m = 0; m < rows; m++)
#pragma clang loop unroll(full)
        for (int v = 0; v < VECTORS; v++) {
            vec *sum = (vec *)(sums + m * QNI_GEMM_PANEL_N) + v;
            *sum = multiply_add(partial[m][v], splat(scales[m]), is_first ? (vec){0} : *sum);
        }
}

/** Multiplies the rows that are left over, fewer than ROWS. */
static void multiply_rest(int64_t rows, float *sums, const float *a, const float *strip,
                          const float *scales, bool is_first) {
    switch (rows) {
#if ROWS > 4
    case 5:
        multiply_rows(5, sums, a, strip, scales, is_first);
        return;
    case 4:
        multiply_rows(4, sums, a, strip, scales, is_first);
        return;
#endif
    case 3:
        multiply_rows(3, sums, a, strip, scales, is_first);
        return;
    case 2:
        multiply_rows(2, sums, a, strip, scales, is_first);
        return;
    case 1:
        multiply_rows(1, sums, a, strip, scales, is_first);
        return;
    }
}

static void f32_multiply(float *sums, const void *a, const void *b, const float *scales,
                         int64_t rows, bool is_first, qni_gemm_next next) {
    const int64_t whole = rows / ROWS * ROWS;
    // A panel in one strip fills the first-level cache, and fetched lines would push it out.
    constexpr bool to_first = STRIP < QNI_GEMM_PANEL_N;
    fetch f = plan_fetch(next, (whole / ROWS + 1) * (QNI_GEMM_PANEL_N / WIDTH));
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += WIDTH) {
        const float *strip = (const float *)b + panel_at(0, n), *row = a;
        for (int64_t m = 0; m < whole; m += ROWS, row += ROWS * QNI_GEMM_BLOCK_K) {
            fetch_step(&f, to_first);
            multiply_rows(ROWS, sums + m * QNI_GEMM_PANEL_N + n, row, strip, scales + m, is_first);
        }
        fetch_step(&f, to_first);
        multiply_rest(rows - whole, sums + whole * QNI_GEMM_PANEL_N + n, row, strip, scales + whole,
                      is_first);
    }
}
