// SPDX-License-Identifier: Apache-2.0
// Vectors of QN_LANES f32 on the CPU, loaded from and stored to f32, f16 and bf16 memory. An op's
// NAME_simd.h includes this header; NAME_cpu.c, NAME_avx2.c and NAME_avx512.c compile NAME_simd.h,
// each for its instructions.
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
typedef uint8_t u8v __attribute__((vector_size(QN_LANES)));
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

/** Loads QN_LANES elements from element i on. */
QN_INLINE f32v load(qni_dtype dtype, const void *p, int64_t i) {
    f32v v;
    if (dtype != QNI_F32)
        return load_16(dtype, (const uint16_t *)p + i);
    memcpy(&v, (const float *)p + i, sizeof v);
    return v;
}

/** Rounds to bf16, to nearest, ties to even; NaNs become quiet. The upper half of each lane is the
 *  bf16, the lower half garbage. */
QN_INLINE u32v round_to_bf16(f32v v) {
    const u32v bits = (u32v)v, rounded = bits + 0x7FFF + (bits >> 16 & 1);
    const u32v is_nan = (u32v)(v != v);
    return (rounded & ~is_nan) | ((bits | 0x400000) & is_nan);
}

/** Rounds to bf16 as round_to_bf16 does, but that the AVX-512 instruction takes denormals for
 *  zeros. */
QN_INLINE u16v to_bf16(f32v v) {
#if defined(__AVX512BF16__) && QN_LANES == 16
    return (u16v)_mm512_cvtneps_pbh(v);
#else
    return __builtin_convertvector(round_to_bf16(v) >> 16, u16v);
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

/** Loads `count` elements from element i on; the other lanes are zero. */
QN_INLINE f32v load_some(qni_dtype dtype, const void *p, int64_t i, int64_t count) {
    alignas(64) char buffer[4 * QN_LANES] = {};
    const int64_t size = qni_dtype_bytes(dtype);
    memcpy(buffer, (const char *)p + i * size, (size_t)(count * size));
    return load(dtype, buffer, 0);
}

/** Stores the first `count` lanes of v from element i on. */
QN_INLINE void store_some(qni_dtype dtype, void *p, int64_t i, int64_t count, f32v v) {
    alignas(64) char buffer[4 * QN_LANES];
    const int64_t size = qni_dtype_bytes(dtype);
    store(dtype, buffer, 0, v);
    memcpy((char *)p + i * size, buffer, (size_t)(count * size));
}

// ---- two vectors at a time
//
// 2 QN_LANES consecutive elements are held in order, or `split`: the even elements in v[0] and the
// odd ones in v[1]. A shift and a mask take two bf16 in 32 bits apart, and as little puts them
// together, so bf16 is best held split. Values that meet bf16 lane by lane are then held split,
// too.

#if QN_LANES == 4
#define EVENS 0, 2, 4, 6
#define ODDS 1, 3, 5, 7
#define FIRSTS 0, 4, 1, 5
#define LASTS 2, 6, 3, 7
#elif QN_LANES == 8
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#define FIRSTS 0, 8, 1, 9, 2, 10, 3, 11
#define LASTS 4, 12, 5, 13, 6, 14, 7, 15
#else
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define FIRSTS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LASTS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#endif

/** Turns vectors in order into split vectors. */
QN_INLINE void split_two(f32v v[2]) {
    const f32v even = __builtin_shufflevector(v[0], v[1], EVENS);
    v[1] = __builtin_shufflevector(v[0], v[1], ODDS);
    v[0] = even;
}
/** Turns split vectors into vectors in order. */
QN_INLINE void join_two(f32v v[2]) {
    const f32v first = __builtin_shufflevector(v[0], v[1], FIRSTS);
    v[1] = __builtin_shufflevector(v[0], v[1], LASTS);
    v[0] = first;
}

/** Loads elements i .. i + 2 QN_LANES - 1. */
QN_INLINE void load_two(bool split, qni_dtype dtype, const void *p, int64_t i, f32v v[2]) {
    if (dtype == QNI_BF16 && split) {
        u32v pairs;
        memcpy(&pairs, (const uint16_t *)p + i, sizeof pairs);
        v[0] = (f32v)(pairs << 16);
        v[1] = (f32v)(pairs & 0xFFFF0000);
        return;
    }
    v[0] = load(dtype, p, i);
    v[1] = load(dtype, p, i + QN_LANES);
    if (split)
        split_two(v);
}

/** Rounds to bf16 and puts two neighbours into 32 bits, the even one in the lower half. */
QN_INLINE u32v to_bf16_pairs(f32v even, f32v odd) {
#if defined(__AVX512BF16__) && QN_LANES == 16
    typedef uint16_t u16_all __attribute__((vector_size(64)));
    const u16_all halves = (u16_all)_mm512_cvtne2ps_pbh(odd, even);
    return (u32v)__builtin_shufflevector(halves, halves, FIRSTS, LASTS);
#else
    return round_to_bf16(even) >> 16 | (round_to_bf16(odd) & 0xFFFF0000);
#endif
}

/** Stores a vector at `p`. If `streams`, the store goes past the caches, and p must be a multiple
 *  of the vector's size. */
#define PUT(streams, p, v)                                                                         \
    do {                                                                                           \
        const auto put_ = (v);                                                                     \
        if (streams)                                                                               \
            __builtin_nontemporal_store(put_, (typeof_unqual(put_) *)(void *)(p));                 \
        else                                                                                       \
            memcpy((p), &put_, sizeof put_);                                                       \
    } while (0)

/** Stores elements i .. i + 2 QN_LANES - 1. */
QN_INLINE void store_two(bool split, qni_dtype dtype, bool streams, void *p, int64_t i,
                         const f32v v[2]) {
    f32v w[2] = {v[0], v[1]};
    char *to = (char *)p + i * (dtype == QNI_F32 ? 4 : 2);
    if (dtype == QNI_BF16 && split) {
        PUT(streams, to, to_bf16_pairs(w[0], w[1]));
        return;
    }
    if (split)
        join_two(w);
    for (int k = 0; k < 2; k++)
        if (dtype == QNI_F32)
            PUT(streams, to + k * (int)sizeof(f32v), w[k]);
        else if (dtype == QNI_F16)
            PUT(streams, to + k * (int)sizeof(f16v), __builtin_convertvector(w[k], f16v));
        else
            PUT(streams, to + k * (int)sizeof(u16v), to_bf16(w[k]));
}

/** Loads `count` elements from element i on; the rest of the 2 QN_LANES lanes is zero. */
QN_INLINE void load_two_some(bool split, qni_dtype dtype, const void *p, int64_t i, int64_t count,
                             f32v v[2]) {
    alignas(64) char buffer[8 * QN_LANES] = {};
    const int64_t size = dtype == QNI_F32 ? 4 : 2;
    memcpy(buffer, (const char *)p + i * size, (size_t)(count * size));
    load_two(split, dtype, buffer, 0, v);
}
/** Stores the first `count` of 2 QN_LANES elements from element i on. */
QN_INLINE void store_two_some(bool split, qni_dtype dtype, void *p, int64_t i, int64_t count,
                              const f32v v[2]) {
    alignas(64) char buffer[8 * QN_LANES];
    const int64_t size = dtype == QNI_F32 ? 4 : 2;
    store_two(split, dtype, false, buffer, 0, v);
    memcpy((char *)p + i * size, buffer, (size_t)(count * size));
}

typedef uint8_t u8_codes __attribute__((vector_size(2 * QN_LANES)));

#if defined(__AVX512VBMI__) && QN_LANES == 16
/** Returns byte 1 (`byte` 1) or byte 3 (`byte` 3) of each lane of a and b, as codes in order. Its
 *  tables are written out: a loop that fills one can stay a loop, in the innermost loop. */
QN_INLINE u8_codes pick_bytes(bool split, uint8_t byte, u32v a, u32v b) {
    typedef uint8_t u8_all __attribute__((vector_size(64)));
    static const u8_all in_order = {0,  4,  8,  12,  16,  20,  24,  28,  32,  36, 40,
                                    44, 48, 52, 56,  60,  64,  68,  72,  76,  80, 84,
                                    88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
    static const u8_all in_turn = {0,  64,  4,  68,  8,  72,  12, 76,  16,  80, 20,
                                   84, 24,  88, 28,  92, 32,  96, 36,  100, 40, 104,
                                   44, 108, 48, 112, 52, 116, 56, 120, 60,  124};
    const u8_all from = (split ? in_turn : in_order) + byte;
    const u8_all bytes = (u8_all)_mm512_permutex2var_epi8((__m512i)a, (__m512i)from, (__m512i)b);
    u8_codes low;
    memcpy(&low, &bytes, sizeof low);
    return low;
}
#endif

/** Returns 2 QN_LANES codes, which are the second bytes of the lanes of a and b. */
QN_INLINE u8_codes pack_codes(bool split, u32v a, u32v b) {
#if defined(__AVX512VBMI__) && QN_LANES == 16
    return pick_bytes(split, 1, a, b);
#else
    if (split)
        return (u8_codes) __builtin_convertvector((a >> 8 & 0xFF) | (b & 0xFF00), u16v);
    const u8v halves[2] = {__builtin_convertvector(a >> 8, u8v),
                           __builtin_convertvector(b >> 8, u8v)};
    u8_codes codes;
    memcpy(&codes, halves, sizeof codes);
    return codes;
#endif
}

/** Stores the codes that pack_codes returns. */
QN_INLINE void store_codes(bool split, bool streams, void *p, u32v a, u32v b) {
    PUT(streams, p, pack_codes(split, a, b));
}

/** Returns, lane by lane, the bits of the larger magnitude of top and v; a NaN in v does not count.
 *  Bits of magnitudes have the order of the magnitudes. */
QN_INLINE u32v larger_of(u32v top, f32v v) {
#if defined(__AVX512DQ__) && QN_LANES == 16
    return (u32v)_mm512_range_ps((f32v)top, v, 0xB); // the larger magnitude, with its sign clear
#else
    const u32v magnitude = (u32v)v & 0x7FFFFFFF;
    return __builtin_elementwise_max(top, magnitude & (u32v)(magnitude <= 0x7F800000));
#endif
}

/** Returns a in lanes where the mask is set, b in others. */
QN_INLINE f32v select_of(i32v mask, f32v a, f32v b) {
    return (f32v)(((u32v)a & (u32v)mask) | ((u32v)b & ~(u32v)mask));
}

/** Returns a * b + c, rounded once if there is an FMA instruction. */
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

/** Returns the polynomial c[0] + c[1] x + … of `count` coefficients. */
QN_INLINE f32v polynomial_of(f32v x, const float *c, int count) {
    f32v sum = all_of(c[count - 1]);
    for (int i = count - 2; i >= 0; i--)
        sum = fma_of(sum, x, all_of(c[i]));
    return sum;
}

/** Returns 2^(x + shift) with a relative error of at most 2^-22; shift is a whole number. Results
 *  below 2^-126 may be 0; results from 2^127.5 on may be infinity, and from 2^128 on are. A NaN
 *  gives any number. */
QN_INLINE f32v exp2_of(f32v x, int shift) {
    // The minimax polynomial of 2^x on [-1/2, 1/2], with an error of 2^-23.6.
    static const float c[] = {0x1.000002p+0f, 0x1.62e428p-1f, 0x1.ebf918p-3f,
                              0x1.c6b6e4p-5f, 0x1.3d0c50p-7f, 0x1.5c0900p-10f};
#if defined(__AVX512F__) && QN_LANES == 16
    const f32v n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // r is x - n, but 0 for an infinite x.
    const f32v r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(polynomial_of(r, c, 6), shift == 0 ? n : n + (float)shift);
#else
    const f32v least = all_of((float)(-127 - shift)), most = all_of((float)(128 - shift));
    x = select_of(x > least, x, least);
    x = select_of(x < most, x, most);
    // Adding 1.5 * 2^23 rounds x to an integer in the low bits of the sum. With 127 + shift added,
    // these bits are the exponent field of 2^(x + shift), 0 to 255.
    const f32v magic = all_of(0x1.8p23f + (float)(127 + shift)), sum = x + magic;
    return polynomial_of(x - (sum - magic), c, 6) * (f32v)((u32v)sum << 23);
#endif
}

/** Returns x / (1 + 2^y). */
QN_INLINE f32v logistic_of(f32v x, f32v y) {
#if defined(__AVX512F__) && QN_LANES == 16
    return x / (1.0f + exp2_of(y, 0));
#else
    // Numerator and denominator are scaled by 2^-32, as 2^y may pass f32's range where x / 2^y does
    // not.
    return x * (0x1p-32f / (0x1p-32f + exp2_of(y, -32)));
#endif
}

/** Returns x / (1 + exp(-x)). */
QN_INLINE f32v silu_of(f32v x) {
    return logistic_of(x, x * -0x1.715476p+0f); // log2(e)
}

/** Returns x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as gpu/elementary.h explains. */
QN_INLINE f32v gelu_tanh_of(f32v x) {
    return logistic_of(x, x * fma_of(x * x, all_of(-0x1.a5a7dp-4f), all_of(-0x1.26aec2p+1f)));
}

/** Returns x Phi(x), as gpu/elementary.h explains. */
QN_INLINE f32v gelu_of(f32v x) {
    static const float p[] = {0x1.1df1c6p-3f,  0x1.1e70c2p-3f,  0x1.eac9bep-4f,
                              0x1.b057c6p-4f,  -0x1.7c4f7cp-6f, 0x1.46496cp-3f,
                              -0x1.05fab0p-2f, 0x1.26f9bap-3f,  -0x1.ddb924p-6f};
    const f32v a = (f32v)((u32v)x & 0x7FFFFFFF), t = 1.0f / fma_of(a, all_of(0.35f), all_of(1));
    const f32v below = polynomial_of(t, p, 9) * t * exp2_of(a * a * -0x1.715476p-1f, 0);
    return x * select_of(x < 0.0f, below, 1.0f - below);
}

#endif
