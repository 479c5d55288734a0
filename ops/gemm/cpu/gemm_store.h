// SPDX-License-Identifier: Apache-2.0
// Stores a tile's sums: bias, activation and gate act on them, c is added, and they are rounded
// once. Each engine defines QN_LANES and compiles this with its own instructions.
#ifndef QNI_GEMM_STORE_H
#define QNI_GEMM_STORE_H

#include "../../shared/simd.h"
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
    constexpr int64_t half = QNI_GEMM_PANEL_N / 2;
    alignas(64) float x[half], up[half];
    for (int64_t j = 0; j < half; j++) {
        x[j] = sums[2 * j] + e->bias[2 * j];
        up[j] = sums[2 * j + 1] + e->bias[2 * j + 1];
    }
    for (int64_t j = 0; j < half; j += QN_LANES) {
        const f32v y = silu_of(load(QNI_F32, x, j)) * load(QNI_F32, up, j);
        store(QNI_F32, sums, j, y * load(QNI_F32, e->gate, j));
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

/** Stores part of a row of d. */
static void store_row(void *d, const void *c, qni_dtype dtype, const float *sums, int64_t columns) {
    if (dtype == QNI_BF16 && c)
        add_bf16(d, c, sums, columns);
    else if (dtype == QNI_BF16)
        store_bf16(d, sums, columns);
    else if (c)
        add_f32(d, c, sums, columns);
    else
        __builtin_memcpy(d, sums, (size_t)columns * sizeof(float));
}

#endif
