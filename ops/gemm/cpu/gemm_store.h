// SPDX-License-Identifier: Apache-2.0
// Stores a tile's sums: bias, activation and gate act on them, c is added, and they are rounded
// once. Each engine defines QN_LANES and compiles this with its own instructions.
#ifndef QNI_GEMM_STORE_H
#define QNI_GEMM_STORE_H

#include "../../shared/groups_simd.h"
#include "gemm_cpu.h"

/** Rounds to nearest, ties to even; NaN stays NaN. Subnormals are kept, which vcvtneps2bf16 would
 *  flush. */
static inline uint16_t bf16_of(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded);
}

static inline float float_of(uint16_t x) {
    return __builtin_bit_cast(float, (uint32_t)x << 16);
}

/** Turns pairs into columns: silu(x[2j]) x[2j+1]. */
static void halve_row(float *sums, const qni_gemm_epilogue *e) {
    for (int64_t j = 0; j < QNI_GEMM_PANEL_N / 2; j += QN_LANES) {
        f32v x[2];
        for (int i = 0; i < 2; i++) {
            const int64_t n = 2 * j + i * QN_LANES;
            x[i] = load(QNI_F32, sums, n) + load(QNI_F32, e->bias, n);
        }
        split_two(x);
        store(QNI_F32, sums, j, silu_of(x[0]) * x[1] * load(QNI_F32, e->gate, j));
    }
}

static void finish_row(float *sums, const qni_gemm_epilogue *e) {
    if (e->activation == QN_GEMM_SILU_AND_MUL) {
        halve_row(sums, e);
        return;
    }
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += QN_LANES) {
        f32v x = load(QNI_F32, sums, n) + load(QNI_F32, e->bias, n);
        if (e->activation == QN_GEMM_GELU_TANH)
            x = gelu_tanh_of(x);
        store(QNI_F32, sums, n, x * load(QNI_F32, e->gate, n));
    }
}

static void store_bf16(uint16_t *restrict d, const float *restrict sums, int64_t columns) {
    for (int64_t n = 0; n < columns; n++)
        d[n] = bf16_of(sums[n]);
}

/** Adds c to the sums; c may be d. */
static void add_bf16(uint16_t *d, const uint16_t *c, const float *sums, int64_t columns) {
    for (int64_t n = 0; n < columns; n++)
        d[n] = bf16_of(float_of(c[n]) + sums[n]);
}

static void add_f32(float *d, const float *c, const float *sums, int64_t columns) {
    for (int64_t n = 0; n < columns; n++)
        d[n] = c[n] + sums[n];
}

static void store_f16(void *d, const void *c, const float *sums, int64_t columns) {
    for (int64_t n = 0; n < columns; n += QN_LANES) {
        const int64_t count = columns - n < QN_LANES ? columns - n : QN_LANES;
        f32v x = load(QNI_F32, sums, n);
        if (c)
            x = load_some(QNI_F16, c, n, count) + x;
        store_some(QNI_F16, d, n, count, x);
    }
}

/** Stores part of a row of d. */
static void store_row(void *d, const void *c, qni_dtype dtype, const float *sums, int64_t columns) {
    if (dtype == QNI_BF16 && c)
        add_bf16(d, c, sums, columns);
    else if (dtype == QNI_BF16)
        store_bf16(d, sums, columns);
    else if (dtype == QNI_F16)
        store_f16(d, c, sums, columns);
    else if (c)
        add_f32(d, c, sums, columns);
    else
        __builtin_memcpy(d, sums, (size_t)columns * sizeof(float));
}

/** Returns the largest magnitude of a group's values. */
static float amax_of(const float *values) {
    u32v top = {};
    for (int64_t n = 0; n < GROUP; n += QN_LANES)
        top = larger_of(top, load(QNI_F32, values, n));
    return __builtin_bit_cast(float, __builtin_reduce_max(top));
}

/** Stores up to a group of a row of d as FP8. */
static void quantize_row(uint8_t *d, qni_dtype dtype, const qni_gemm_scaling *s,
                         const float *values, int64_t columns) {
    const rounding kind = rounding_of(qni_fp8_of(dtype));
    float scale = s->given;
    if (s->found) {
        const float amax = amax_of(values);
        scale = (amax > s->eps ? amax : s->eps) / qni_fp8_format_of(qni_fp8_of(dtype)).max;
        *s->found = scale;
    }
    encode_values(false, false, &kind, values, columns, 1.0f / scale, d);
}

#endif
