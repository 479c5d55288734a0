// SPDX-License-Identifier: Apache-2.0
// What kernels compiled with -DQK_FULL share: the end of a product in all its forms, and d of every
// type. Plain kernels, in images of their own, have the forms of gemm_gpu.h alone, and take no
// longer for these.
#ifndef QK_GEMM_FULL_GPU_H
#define QK_GEMM_FULL_GPU_H

#include "gemm_gpu.h"
#include "halves.h"
#include "reduce.h"
#include "scale.h"

/** Returns silu(x[2j]) x[2j+1] for the two pairs. */
QD_INLINE qd_f32x4 qk_gemm_silu4(qd_f32x4 x) {
    return (qd_f32x4){qd_silu(x.x) * x.y, qd_silu(x.z) * x.w, 0, 0};
}

// A kernel's parameter, and the statement that then makes g, if need be.
#ifndef QK_FULL
#define QK_GEMM_PARAMETER const qk_gemm_args g
#define QK_GEMM_OPEN

QD_INLINE void qk_gemm_store_columns(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                     uint32_t column, uint32_t, qd_f32x4 values) {
    qk_gemm_store4(g, tile, row, column, values);
}
#else
#define QK_GEMM_PARAMETER const qk_gemm_full_args f
#define QK_GEMM_OPEN const qk_gemm_args g = f.g;

/** Returns the arguments, read anew as kernels with long loops do not keep them, with the bias and
 *  the c of the tile's group. */
QD_INLINE qk_gemm_full_args qk_gemm_reread(const qk_gemm_full_args *f, const qk_gemm_tile *tile) {
    qk_gemm_full_args anew = *(const qk_gemm_full_args *)qd_reread(f);
    const uint32_t group = qd_uniform(tile->group);
    if (anew.g.bias)
        anew.g.bias = (const char *)anew.g.bias +
                      group * anew.bias_group * (anew.g.type_bias == QK_F32 ? 4 : 2);
    if (anew.g.c)
        anew.g.c = qd_at(anew.g.type_d, anew.g.c, group * anew.c_group);
    return anew;
}

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

QD_INLINE bool qk_gemm_has_codes(const qk_gemm_args *g) {
    return g->type_d >= QK_E4M3FN;
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

// ---- d of f32, f16 and bf16

/** Stores one element of d: adds c and rounds once. */
QD_INLINE void qk_gemm_store_element(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                     uint32_t column, float value) {
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    if (g->c)
        value += qd_load1(g->type_d, qd_at(g->type_d, g->c, row * g->c_row + column));
    qd_store1(g->type_d, (void *)qd_at(g->type_d, g->d, at), value);
}

/** Returns two values as f16 or bf16. */
QD_INLINE uint32_t qk_gemm_pair16(bool is_f16, qd_f32x2 v) {
    return is_f16 ? __builtin_bit_cast(uint32_t, __builtin_convertvector(v, qd_f16x2))
                  : __builtin_bit_cast(uint32_t, __builtin_convertvector(v, qd_bf16x2));
}

/** Stores 4 / ratio columns of a row of d, from `column` on, in one store if all exist, are aligned
 *  and nothing is added. */
QD_INLINE void qk_gemm_store_columns(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                     uint32_t column, uint32_t ratio, qd_f32x4 values) {
    const uint32_t count = 4 / ratio, bytes = qd_element_bytes(g->type_d);
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    bool is_zero;
    if (!qk_gemm_writes_row(g, tile, row, &is_zero))
        return;
    if (is_zero)
        values = 0;
    uint32_t *d = (uint32_t *)qd_at(g->type_d, g->d, at);
    if (column + count > g->n / ratio || g->c || (uintptr_t)d % (count * bytes) != 0) {
        QD_UNROLL for (uint32_t e = 0; e < count; e++)
            if (column + e < g->n / ratio)
                qk_gemm_store_element(g, tile, row, column + e, values[e]);
    } else if (g->type_d == QK_F32) {
        if (ratio == 1)
            *(qd_f32x4 *)d = values;
        else
            *(qd_f32x2 *)d = values.xy;
    } else {
        const bool is_f16 = g->type_d == QK_F16;
        d[0] = qk_gemm_pair16(is_f16, values.xy);
        if (ratio == 1)
            d[1] = qk_gemm_pair16(is_f16, values.zw);
    }
}

/** Stores eight columns of a row of d, from `column` on, in one or two stores if all exist, are
 *  aligned and nothing is added; columns from `end` on do not exist. */
QD_INLINE void qk_gemm_store8(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                              uint32_t column, uint32_t end, qd_f32x8 v) {
    bool is_zero;
    if (column >= end || !qk_gemm_writes_row(g, tile, row, &is_zero))
        return;
    if (is_zero)
        v = 0;
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    qd_u32x4 *d = (qd_u32x4 *)qd_at(g->type_d, g->d, at);
    const bool is_f16 = g->type_d == QK_F16;
    end = qd_min(end, column + 8);
    if (end < column + 8 || g->c || (uintptr_t)d % 16 != 0) {
        QD_NO_UNROLL for (; column < end; column++) {
            qk_gemm_store_element(g, tile, row, column, v[0]);
            v = __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 0);
        }
    } else if (g->type_d == QK_F32) {
        *(qd_f32x8 *)d = v;
    } else {
        QD_UNROLL for (int i = 0; i < 4; i++)
            (*d)[i] = qk_gemm_pair16(is_f16, (qd_f32x2){v[2 * i], v[2 * i + 1]});
    }
}

// ---- d of FP8: quantize's formulas (gpu/scale.h, gpu/elements.h) on the results in f32

/** Returns eight codes of d's kind. */
QD_INLINE qd_u32x2 qk_gemm_encode8(const qk_gemm_args *g, qd_f32x8 v) {
    const int kind = g->type_d - QK_E4M3FN;
    if (kind == QD_FP8_USUAL) // this copy of the code knows the kind when it is compiled
        return qd_encode8(QD_FP8_USUAL, v);
    return qd_encode8(kind, v);
}

/** Stores `count` codes of a row of d from `column` on, at most eight. */
QD_INLINE void qk_gemm_store_codes(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                   uint32_t column, uint32_t count, qd_u32x2 codes) {
    uint8_t *d = (uint8_t *)g->d + tile->group * g->d_group + row * g->d_row + column;
    if (count == QD_RUN && (uintptr_t)d % QD_RUN == 0)
        *(qd_u32x2 *)d = codes;
    else
        qd_store_codes_part(d, count, codes);
}

/** Quantises 4 / ratio columns of a row of d, from `column` on, with the scale that is given. */
QD_INLINE void qk_gemm_store_given(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                                   const qk_gemm_tile *tile, uint32_t row, uint32_t column,
                                   uint32_t ratio, qd_f32x4 values) {
    const uint32_t columns = g->n / ratio;
    bool is_zero;
    if (column >= columns || !qk_gemm_writes_row(g, tile, row, &is_zero))
        return;
    const qd_f32x4 x = is_zero ? 0 : values * (1.0f / *scaling->given);
    const qd_u32x2 codes =
        qk_gemm_encode8(g, __builtin_shufflevector(x, x, 0, 1, 2, 3, 0, 1, 2, 3));
    qk_gemm_store_codes(g, tile, row, column, qd_min(columns - column, 4 / ratio), codes);
}

QD_INLINE void qk_gemm_end_at(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                              const qk_gemm_tile *tile, uint32_t row, uint32_t column,
                              uint32_t ratio, qd_f32x4 values) {
    values = qk_gemm_finish_full(g, row, column, ratio, values);
    if (qk_gemm_has_codes(g))
        qk_gemm_store_given(g, scaling, tile, row, column / ratio, ratio, values);
    else
        qk_gemm_store_columns(g, tile, row, column / ratio, ratio, values);
}

/** Finishes and stores four columns of a row of the product, without asking another lane. */
QD_INLINE void qk_gemm_end_columns(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                                   const qk_gemm_tile *tile, uint32_t row, uint32_t column,
                                   qd_f32x4 values) {
    QK_GEMM_EACH_RATIO(g, qk_gemm_end_at(g, scaling, tile, row, column, ratio, values);)
}

/** Quantises a row's 128 columns of d, of which each of 16 neighbouring lanes has eight, from
 *  `column` on; columns from `end` on do not exist. All 16 lanes take part. */
QD_INLINE void qk_gemm_quantize8(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                                 const qk_gemm_tile *tile, uint32_t row, uint32_t column,
                                 uint32_t end, qd_f32x8 v) {
    const uint32_t count = column < end ? qd_min(end - column, QD_RUN) : 0;
    bool is_zero;
    const bool writes = qk_gemm_writes_row(g, tile, row, &is_zero);
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        v[i] = i < count && !is_zero ? v[i] : 0;
    const float most = qd_fp8_max(g->type_d - QK_E4M3FN);
    const float scale = scaling->found ? qd_scale_of(qd_row_max(qd_run_top(v)), scaling->eps, most)
                                       : *scaling->given;
    const qd_u32x2 codes = qk_gemm_encode8(g, v * (1.0f / scale));
    if (!writes || count == 0)
        return;
    qk_gemm_store_codes(g, tile, row, column, count, codes);
    if (scaling->found && column % 128 == 0)
        scaling->found[tile->group * scaling->group + row * scaling->row +
                       column / 128 * scaling->nb] = scale;
}

#endif
#endif
