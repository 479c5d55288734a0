// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX2, FMA and F16C: f32, 6 rows by 16 columns in registers; packed weights decoded
// through f16.
//
// Decoded e4m3: a is multiplied by 2^8 and b divided by it, which changes no bit of a product. An
// operand beside another type is decoded to its own values.
//
// The bits of an e4m3 code without its sign, shifted to where f16 has exponent and mantissa, are
// the code's value divided by 2^8 (e4m3fn) or 2^7 (e4m3fnuz), subnormals included; F16C reads them
// whatever the caller has told the processor about subnormals. NaNs would become numbers, so panels
// are searched for NaNs, and a panel that has any is decoded by the slower way of gemm_f32.h.
//
// Bound   many rows: FMAs, 12 for 8 loads; one row: decoding, at 13 bytes of weights a nanosecond
//         (Zen 4, 3.9 GHz)
#define LANES 8
#define ROWS 6
#define VECTORS 2
#include "gemm_f32_dot.h"

#include <immintrin.h>

/** Weights of eight columns at four k, as f16 reads them: divided by 2^8 or 2^7. */
typedef struct quad {
    __m256 k[4];
} quad;

/** Decodes eight columns of a packed line, whose order gemm_pack.c gives: pairs of k, and the pairs
 *  of four columns together. */
static inline quad decode(__m256i codes) {
    const __m256i value = _mm256_set1_epi16((short)0xBF80);
    __m256i pairs =
        _mm256_permute4x64_epi64(codes, 0xD8); // k and k + 1 of all eight; k + 2 and k + 3
    __m256i odd = _mm256_and_si256(_mm256_srai_epi16(pairs, 1), value);
    __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(pairs, 8), 1), value);
    return (quad){{_mm256_cvtph_ps(_mm256_castsi256_si128(even)),
                   _mm256_cvtph_ps(_mm256_castsi256_si128(odd)),
                   _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1)),
                   _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1))}};
}

/** Returns marks that tell of NaNs: for e4m3fn the largest code, doubled so that it has no sign;
 *  for e4m3fnuz the smallest code as a signed number. */
[[gnu::always_inline]] static inline __m256i mark_nans(__m256i marks, __m256i codes, bool is_fn) {
    return is_fn ? _mm256_max_epu8(marks, _mm256_add_epi8(codes, codes))
                 : _mm256_min_epi8(marks, codes);
}

static inline bool has_nan(__m256i marks, bool is_fn) {
    __m256i nan = _mm256_set1_epi8((char)(is_fn ? 0xFE : 0x80));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(marks, nan)) != 0;
}

// ---- many rows: decoded once, to memory

/** Decodes the panel. Returns false if it holds a NaN; `out` is then not to be used. */
[[gnu::always_inline]] static inline bool decode_panel(float *out, const uint8_t *panel,
                                                       bool is_fn) {
    const __m256 half = _mm256_set1_ps(0.5f);
    __m256i marks = _mm256_setzero_si256();
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k += 4)
#pragma clang loop unroll(full)
        for (int n = 0; n < QNI_GEMM_PANEL_N; n += LANES, panel += 32) {
            __m256i codes = _mm256_loadu_si256((const __m256i_u *)panel);
            marks = mark_nans(marks, codes, is_fn);
            quad weights = decode(codes);
            float *to = out + panel_at(k, n);
            for (int i = 0; i < 4; i++)
                _mm256_store_ps(to + i * STRIP,
                                is_fn ? weights.k[i] : _mm256_mul_ps(weights.k[i], half));
        }
    return !has_nan(marks, is_fn);
}

static void multiply_all(float *x, int64_t count, float factor) {
    for (int64_t i = 0; i < count; i += LANES)
        _mm256_store_ps(x + i, _mm256_mul_ps(_mm256_load_ps(x + i), _mm256_set1_ps(factor)));
}

static void load_b(void *out, const qni_gemm_block *b) {
    const bool is_scaled = qni_gemm_is_e4m3(b->dtype) && b->is_beside_e4m3;
    bool is_done = false;
    if (b->is_packed)
        is_done = b->dtype == QNI_E4M3FN ? decode_panel(out, b->data, true)
                                         : decode_panel(out, b->data, false);
    if (!is_done)
        f32_load_b(out, b);
    if (is_done != is_scaled)
        multiply_all(out, QNI_GEMM_PANEL_N * QNI_GEMM_BLOCK_K, is_done ? 0x1p8f : 0x1p-8f);
}

// ---- b to packed panels

/** Transposes 4 rows of 32 codes: out[i] has the codes at k = 4 i and at 16 + 4 i, of each four the
 *  first two k of each row first. */
static inline void transpose_4_rows(__m256i out[4], const uint8_t *from, int64_t row_stride) {
    __m256i r[4];
    for (int64_t i = 0; i < 4; i++)
        r[i] = _mm256_loadu_si256((const __m256i_u *)(from + i * row_stride));
    const __m256i a = _mm256_unpacklo_epi16(r[0], r[1]), b = _mm256_unpacklo_epi16(r[2], r[3]);
    const __m256i c = _mm256_unpackhi_epi16(r[0], r[1]), d = _mm256_unpackhi_epi16(r[2], r[3]);
    out[0] = _mm256_unpacklo_epi32(a, b), out[1] = _mm256_unpackhi_epi32(a, b);
    out[2] = _mm256_unpacklo_epi32(c, d), out[3] = _mm256_unpackhi_epi32(c, d);
}

static void gather(uint8_t *panel, const uint8_t *rows, int64_t row_stride) {
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += 8, panel += 32)
        for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 32) {
            __m256i low[4], high[4];
            transpose_4_rows(low, rows + n * row_stride + k, row_stride);
            transpose_4_rows(high, rows + (n + 4) * row_stride + k, row_stride);
            for (int64_t i = 0; i < 4; i++) {
                __m256i *half = (__m256i *)(panel + (k / 4 + i) * 256);
                _mm256_store_si256(half, _mm256_permute2x128_si256(low[i], high[i], 0x20));
                _mm256_store_si256(half + 4 * 8, _mm256_permute2x128_si256(low[i], high[i], 0x31));
            }
        }
}

// ---- a

/** Decodes a whole row of e4m3fn. */
static void decode_row(float *out, const uint8_t *codes) {
    const __m256i value = _mm256_set1_epi16((short)0xBF80), nan = _mm256_set1_epi16(0x3F80);
    const __m256 unit = _mm256_set1_ps(0x1p16f);
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k += 16) {
        __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i_u *)(codes + k)));
        __m256i half = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(code, 8), 1), value);
        __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, nan), nan);
        half = _mm256_or_si256(half, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7F80)));
        __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
        __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
        _mm256_store_ps(out + k, _mm256_mul_ps(low, unit));
        _mm256_store_ps(out + k + LANES, _mm256_mul_ps(high, unit));
    }
}

static void load_a(void *out, const qni_gemm_block *a) {
    float *to = out;
    const bool is_larger = qni_gemm_is_e4m3(a->dtype) && a->is_beside_e4m3;
    if (is_larger && a->dtype == QNI_E4M3FN && a->k_stride == 1 && a->depth == QNI_GEMM_BLOCK_K) {
        for (int64_t m = 0; m < a->rows; m++, to += QNI_GEMM_BLOCK_K)
            decode_row(to, (const uint8_t *)a->data + m * a->row_stride);
        return;
    }
    f32_load_a(out, a);
    if (is_larger)
        multiply_all(out, a->rows * QNI_GEMM_BLOCK_K, 0x1p8f);
}

// ---- one row: decoded in registers, used at once

/** Computes partial[64] = row b, for e4m3fnuz twice that. Returns false if b holds a NaN. k runs in
 *  the order of multiply_rows, so that the bits are equal. */
[[gnu::always_inline]] static inline bool multiply_row(__m256 partial[8], const float *row,
                                                       const uint8_t *panel, qni_gemm_next next,
                                                       bool is_fn) {
    __m256i marks = _mm256_setzero_si256();
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; i++)
        partial[i] = _mm256_setzero_ps();
#pragma clang loop unroll(disable)
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k += 4, row += 4, panel += 256) {
        fetch_two_rows(&next);
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; i++) {
            __m256i codes = _mm256_loadu_si256((const __m256i_u *)panel + i);
            marks = mark_nans(marks, codes, is_fn);
            quad weights = decode(codes);
#pragma clang loop unroll(full)
            for (int j = 0; j < 4; j++)
                partial[i] =
                    _mm256_fmadd_ps(_mm256_broadcast_ss(row + j), weights.k[j], partial[i]);
            // This keeps clang from interleaving the columns and from keeping four of the row's
            // values: neither fits the registers.
            __asm__ volatile("" : "+x"(partial[i]), "+x"(marks), "+r"(row));
        }
    }
    return !has_nan(marks, is_fn);
}

/** Multiplies a panel that holds a NaN. */
[[gnu::noinline]] static void multiply_decoded(float *sums, const void *a, const qni_gemm_block *b,
                                               const float *scales, bool is_first) {
    alignas(64) float panel[QNI_GEMM_PANEL_N * QNI_GEMM_BLOCK_K];
    load_b(panel, b);
    f32_multiply(sums, a, panel, scales, 1, is_first, (qni_gemm_next){});
}

static void multiply_packed(float *sums, const void *a, const qni_gemm_block *b,
                            const float *scales, [[maybe_unused]] int64_t rows, bool is_first,
                            qni_gemm_next next) {
    __m256 partial[8];
    if (!next.rows)
        next = (qni_gemm_next){b->data, QNI_GEMM_BLOCK_K};
    const bool is_done = b->dtype == QNI_E4M3FN ? multiply_row(partial, a, b->data, next, true)
                                                : multiply_row(partial, a, b->data, next, false);
    if (!is_done) {
        multiply_decoded(sums, a, b, scales, is_first);
        return;
    }
    const __m256 scale = _mm256_set1_ps(*scales);
    const __m256 unit = _mm256_set1_ps(b->dtype == QNI_E4M3FN ? 1 : 0.5f);
    for (int i = 0; i < 8; i++) {
        __m256 before = is_first ? _mm256_setzero_ps() : _mm256_load_ps(sums + i * LANES);
        _mm256_store_ps(sums + i * LANES,
                        _mm256_fmadd_ps(_mm256_mul_ps(partial[i], unit), scale, before));
    }
}

qn_status qni_gemm_avx2(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {.gather = gather,
                                           .load_a = load_a,
                                           .load_b = load_b,
                                           .multiply = f32_multiply,
                                           .multiply_packed = multiply_packed,
                                           .direct_rows = 1,
                                           .load_a_along_k = f32_load_a_along_k,
                                           .multiply_along_k = f32_multiply_along_k,
                                           .dot_bytes = sizeof(float),
                                           .finish = finish_row,
                                           .store = store_row,
                                           .quantize = quantize_row};
    return qni_gemm_cpu_run(&engine, problem);
}
