// SPDX-License-Identifier: Apache-2.0
// gemm_f32.h and, in the same vectors, products along k.
//
// Of bf16 a shift gives the even elements and a mask the odd ones, so decoded a has 2 * LANES
// elements' even ones before their odd ones; beside other types elements lie as they come.
//
// Bound   many rows: FMAs, with AVX-512 48 for 4 loads of b, 8 operations that decode them and
//         12 loads of a; one row: reading b
#ifndef QNI_GEMM_F32_DOT_H
#define QNI_GEMM_F32_DOT_H

#include "gemm_f32.h"

#if LANES == 16
#define DOT_ROWS 6
#define DOT_COLUMNS 4
#else
#define DOT_ROWS 6
#define DOT_COLUMNS 2
#endif
#define DOT_PARTS 2

typedef uint32_t u32s __attribute__((vector_size(LANES * 4)));
typedef _Float16 f16s __attribute__((vector_size(LANES * 2)));
typedef vec dot_operand;
typedef float dot_element;

/** Returns part 0 or 1 of 2 * LANES elements. */
[[gnu::always_inline]] static inline vec dot_load_b(const char *b, qni_dtype dtype, int part) {
    switch (dtype) {
    case QNI_BF16: {
        u32s pairs;
        __builtin_memcpy(&pairs, b, sizeof pairs);
        return (vec)(part == 0 ? pairs << 16 : pairs & 0xFFFF0000);
    }
    case QNI_F16: {
        f16s x;
        __builtin_memcpy(&x, b + part * (int)sizeof x, sizeof x);
        return __builtin_convertvector(x, vec);
    }
    default: {
        vec x;
        __builtin_memcpy(&x, b + part * (int)sizeof x, sizeof x);
        return x;
    }
    }
}

[[gnu::always_inline]] static inline vec dot_add(vec sum, vec x, vec y) {
    return multiply_add(x, y, sum);
}

#include "gemm_dot.h"

/** Stores 32 elements with the even ones of each 2 * LANES before the odd ones. */
static inline void store_even_odd(float *out, vec16 x, vec16 y) {
#if LANES == 16
    *(vec16 *)out =
        __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *(vec16 *)(out + 16) =
        __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif LANES == 8
#define EVEN_ODD(x)                                                                                \
    __builtin_shufflevector(x, x, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)
    *(vec16 *)out = EVEN_ODD(x);
    *(vec16 *)(out + 16) = EVEN_ODD(y);
#else
#define EVEN_ODD(x)                                                                                \
    __builtin_shufflevector(x, x, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
    *(vec16 *)out = EVEN_ODD(x);
    *(vec16 *)(out + 16) = EVEN_ODD(y);
#endif
}

/** Loads 16 elements of a row of a from k on; those beyond its depth are zero. */
static inline vec16 load_a_at(const qni_gemm_block *a, int64_t row, int64_t k) {
    const char *from = a->data;
    if (k < a->depth)
        from += (row * a->row_stride + k * a->k_stride) * qni_dtype_bytes(a->dtype);
    return load_strided(from, a->dtype, a->k_stride, a->depth - k);
}

static void f32_load_a_along_k(void *out, const qni_gemm_block *a, int64_t stride,
                               qni_dtype dtype_b) {
    const int64_t end = (a->depth + 31) / 32 * 32;
    for (int64_t m = 0; m < a->rows; m++) {
        float *to = (float *)out + m * stride;
        for (int64_t k = 0; k < end; k += 32, to += 32) {
            const vec16 x = load_a_at(a, m, k), y = load_a_at(a, m, k + 16);
            if (dtype_b == QNI_BF16) {
                store_even_odd(to, x, y);
            } else {
                *(vec16 *)to = x;
                *(vec16 *)(to + 16) = y;
            }
        }
    }
}

static void f32_multiply_along_k(float *sums, const void *a, int64_t stride,
                                 const qni_gemm_block *b, int64_t rows, bool is_first) {
    if (b->dtype == QNI_BF16)
        dot_all(sums, a, stride, b, rows, QNI_BF16, is_first);
    else if (b->dtype == QNI_F16)
        dot_all(sums, a, stride, b, rows, QNI_F16, is_first);
    else
        dot_all(sums, a, stride, b, rows, QNI_F32, is_first);
}

#endif
