// SPDX-License-Identifier: Apache-2.0
// Vectors of QN_LANES f32 on the CPU, and f32, f16 and bf16 memory: included by an op's NAME_simd.h, which
// NAME_cpu.c, NAME_avx2.c and NAME_avx512.c compile for their instructions.
#ifndef QNI_SIMD_H
#define QNI_SIMD_H

#include "elements.h"

#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef float f32v __attribute__((vector_size(4 * QN_LANES)));
typedef int32_t i32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * QN_LANES)));
typedef uint16_t u16v __attribute__((vector_size(2 * QN_LANES)));
typedef _Float16 f16v __attribute__((vector_size(2 * QN_LANES)));

#define QN_INLINE static inline __attribute__((always_inline))

QN_INLINE f32v load_16(qni_dtype dtype, const void *p) {
    u16v bits;
    memcpy(&bits, p, sizeof bits);
    if (dtype == QNI_F16)
        return __builtin_convertvector((f16v)bits, f32v);
    return (f32v)(__builtin_convertvector(bits, u32v) << 16);
}

/** QN_LANES elements from element i on. */
QN_INLINE f32v load(qni_dtype dtype, const void *p, int64_t i) {
    f32v v;
    if (dtype != QNI_F32)
        return load_16(dtype, (const uint16_t *)p + i);
    memcpy(&v, (const float *)p + i, sizeof v);
    return v;
}

/** The bits of bf16, to nearest, ties to even; NaNs become quiet. The instruction takes denormals for zeros. */
QN_INLINE u16v to_bf16(f32v v) {
#if defined(__AVX512BF16__) && QN_LANES == 16
    return (u16v)_mm512_cvtneps_pbh(v);
#else
    const u32v bits = (u32v)v;
    const u32v rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    const u32v is_nan = (u32v)(v != v);
    return __builtin_convertvector((rounded & ~is_nan) | ((bits >> 16 | 0x40) & is_nan), u16v);
#endif
}

QN_INLINE void store(qni_dtype dtype, void *p, int64_t i, f32v v) {
    if (dtype == QNI_F32) {
        memcpy((float *)p + i, &v, sizeof v);
        return;
    }
    const u16v bits = dtype == QNI_F16 ? (u16v) __builtin_convertvector(v, f16v) : to_bf16(v);
    memcpy((uint16_t *)p + i, &bits, sizeof bits);
}

/** The first `count` elements from element i on, the others zero; and the same for storing. */
QN_INLINE f32v load_some(qni_dtype dtype, const void *p, int64_t i, int64_t count) {
    alignas(64) char buffer[4 * QN_LANES] = {};
    const int64_t size = qni_dtype_bytes(dtype);
    memcpy(buffer, (const char *)p + i * size, (size_t)(count * size));
    return load(dtype, buffer, 0);
}

QN_INLINE void store_some(qni_dtype dtype, void *p, int64_t i, int64_t count, f32v v) {
    alignas(64) char buffer[4 * QN_LANES];
    const int64_t size = qni_dtype_bytes(dtype);
    store(dtype, buffer, 0, v);
    memcpy((char *)p + i * size, buffer, (size_t)(count * size));
}

/** The largest magnitude; NaNs do not count. */
static inline float amax_of(const float *y, int64_t count) {
    float amax = 0;
    for (int64_t i = 0; i < count; i++) {
        const float magnitude = __builtin_fabsf(y[i]);
        amax = magnitude > amax ? magnitude : amax;
    }
    return amax;
}

/** a where the mask is set, else b. */
QN_INLINE f32v select_of(i32v mask, f32v a, f32v b) {
    return (f32v)(((u32v)a & (u32v)mask) | ((u32v)b & ~(u32v)mask));
}

/** a * b + c, rounded once where the instructions allow. */
QN_INLINE f32v fma_of(f32v a, f32v b, f32v c) {
#ifdef __FMA__
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

QN_INLINE f32v all_of(float v) {
    return (f32v){} + v;
}

/** The polynomial c[0] + c[1] x + …, `count` coefficients. */
QN_INLINE f32v polynomial_of(f32v x, const float *c, int count) {
    f32v sum = all_of(c[count - 1]);
    for (int i = count - 2; i >= 0; i--)
        sum = fma_of(sum, x, all_of(c[i]));
    return sum;
}

/** 2^x: off by 2^-22 of it at most; 0 far below the range, infinity above it. A NaN gives some number. */
QN_INLINE f32v exp2_of(f32v x) {
    // Minimax on [-1/2, 1/2], off by 2^-23.6.
    static const float c[] = {0x1.000002p+0f, 0x1.62e428p-1f, 0x1.ebf918p-3f,
                              0x1.c6b6e4p-5f, 0x1.3d0c50p-7f, 0x1.5c0900p-10f};
#if defined(__AVX512F__) && QN_LANES == 16
    const f32v n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // x - n, but 0 for infinities.
    const f32v r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(polynomial_of(r, c, 6), n);
#else
    x = select_of(x > -200.0f, x, all_of(-200));
    x = select_of(x < 200.0f, x, all_of(200));
    // 1.5 * 2^23 rounds to an integer, which stands in the low bits of the sum. Its power is taken in two halves.
    const f32v magic = all_of(0x1.8p23f), sum = x + magic;
    const i32v n = (i32v)sum - (i32v)magic, half = n >> 1, rest = n - half;
    const f32v p = polynomial_of(x - (sum - magic), c, 6);
    return p * (f32v)((half + 127) << 23) * (f32v)((rest + 127) << 23);
#endif
}

#endif
