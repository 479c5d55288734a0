// SPDX-License-Identifier: Apache-2.0
// What kernels compiled with -DQK_FULL share: the end of a product in all its forms. Plain kernels,
// in images of their own, have the forms of gemm_gpu.h alone, and take no longer for these.
#ifndef QK_GEMM_FULL_GPU_H
#define QK_GEMM_FULL_GPU_H

#include "gemm_gpu.h"
#include "halves.h"

// `ratio` is how many columns of the product make one of d: 1, or with QK_SILU_AND_MUL 2. It is a
// constant at each call. Four columns of the product are then 4 / ratio of d, a vector's first.

/** Expands `…` with a constant `ratio`. */
#define QK_GEMM_EACH_RATIO(g, ...)                                                                 \
    if ((g)->activation == QK_SILU_AND_MUL) {                                                      \
        constexpr uint32_t ratio = 2;                                                              \
        __VA_ARGS__                                                                                \
    } else {                                                                                       \
        constexpr uint32_t ratio = 1;                                                              \
        __VA_ARGS__                                                                                \
    }

/** Returns silu(x[2j]) x[2j+1] for the two pairs. */
QD_INLINE qd_f32x4 qk_gemm_silu4(qd_f32x4 x) {
    return (qd_f32x4){qd_silu(x.x) * x.y, qd_silu(x.z) * x.w, 0, 0};
}

/** Turns four columns of a row of the product, from `column` on, into what c is added to. */
QD_INLINE qd_f32x4 qk_gemm_finish_full(const qk_gemm_args *g, uint32_t row, uint32_t column,
                                       uint32_t ratio, qd_f32x4 values) {
    if (g->bias)
        values += qk_gemm_bias4(g, column);
    if (ratio == 2)
        values = qk_gemm_silu4(values);
    else if (g->activation == QK_GELU_TANH)
        values = qk_gemm_gelu4(values);
    if (g->gate)
        values *= qk_gemm_gate4(g, row, column / ratio, g->n / ratio);
    return values;
}

/** Stores 4 / ratio columns of a row of d, from `column` on, in one store if all exist, are aligned
 *  and nothing is added. */
QD_INLINE void qk_gemm_store_full(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                  uint32_t column, uint32_t ratio, qd_f32x4 values) {
    const uint32_t count = 4 / ratio;
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    bool is_zero;
    if (ratio == 1) {
        qk_gemm_store4(g, tile, row, column, values);
        return;
    }
    if (!qk_gemm_writes_row(g, tile, row, &is_zero))
        return;
    if (is_zero)
        values = 0;
    const bool is_whole = column + count <= g->n / ratio && !g->c && at % count == 0;
    if (is_whole && g->type_d == QK_F32 && (uintptr_t)g->d % 8 == 0)
        *(qd_f32x2 *)((float *)g->d + at) = values.xy;
    else if (is_whole && g->type_d == QK_BF16 && (uintptr_t)g->d % 4 == 0)
        *(qd_bf16x2 *)((__bf16 *)g->d + at) = __builtin_convertvector(values.xy, qd_bf16x2);
    else QD_UNROLL
        for (uint32_t e = 0; e < count; e++)
            if (column + e < g->n / ratio)
                qk_gemm_store(g, tile, row, column + e, values[e]);
}

#endif
