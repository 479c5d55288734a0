// SPDX-License-Identifier: Apache-2.0
// The engine of AVX-512 in f32, compiled with and without AVX-512 VBMI (gemm_e4m3_avx512.h).
//
// Registers  6 rows x 64 columns of f32 sums in 24, 4 for b, 1 for a; few rows of e4m3: rows x 4,
//            4 for the decoder, 7 for codes and what they become
// Bound      many rows: FMAs, 24 for 10 loads. One row of e4m3, for 64 codes: 4 operations that
//            gather and 17 that decode and multiply, on two ports, 12 cycles; or reading b
#define LANES 16
#define ROWS 6
#define VECTORS 4
#include "gemm_e4m3_avx512.h"
#include "gemm_f32_dot.h"

enum { DIRECT_ROWS = 5 };

/** Four vectors of weights: 16 columns at four k. */
typedef struct quad {
    __m512 k[4];
} quad;

/** Decodes a packed line. */
[[gnu::always_inline]] static inline quad decode_quad(const decoder *d, const void *line) {
    const __m512i high = _mm512_set1_epi32((int)0xFFFF0000);
    __m512i pairs[2]; // of bf16: k and k + 1; k + 2 and k + 3
    decode(d, _mm512_loadu_si512(line), &pairs[0], &pairs[1]);
    return (quad){{_mm512_castsi512_ps(_mm512_slli_epi32(pairs[0], 16)),
                   _mm512_castsi512_ps(_mm512_and_si512(pairs[0], high)),
                   _mm512_castsi512_ps(_mm512_slli_epi32(pairs[1], 16)),
                   _mm512_castsi512_ps(_mm512_and_si512(pairs[1], high))}};
}

// ---- decoding to memory

static void load_b(void *out, const qni_gemm_block *b) {
    if (!b->is_packed) {
        f32_load_b(out, b);
        return;
    }
    const decoder d = decoder_of(b->dtype);
    const uint8_t *line = b->data;
    float *to = out;
    for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 4, to += 4 * STRIP)
#pragma clang loop unroll(full)
        for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += 16, line += 64) {
            const quad weights = decode_quad(&d, line);
            for (int64_t i = 0; i < 4; i++)
                _mm512_store_ps(to + i * STRIP + n, weights.k[i]);
        }
}
static_assert(STRIP == QNI_GEMM_PANEL_N);

/** Decodes 64 codes of a row. Dwords go where decoding and widening bring them back in order. */
[[gnu::always_inline]] static inline void decode_codes_of_row(const decoder *d, float *out,
                                                              const uint8_t *codes, uint64_t mask) {
    const __m512i deal = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i zero = _mm512_setzero_si512();
    __m512i halves[2];
    decode(d, _mm512_permutexvar_epi32(deal, _mm512_maskz_loadu_epi8(mask, codes)), &halves[0],
           &halves[1]);
    for (int i = 0; i < 2; i++, out += 32) {
        _mm512_store_si512(out, _mm512_unpacklo_epi16(zero, halves[i]));
        _mm512_store_si512(out + 16, _mm512_unpackhi_epi16(zero, halves[i]));
    }
}

static void load_a(void *out, const qni_gemm_block *a) {
    if (!qni_gemm_is_e4m3(a->dtype) || a->k_stride != 1) {
        f32_load_a(out, a);
        return;
    }
    const decoder d = decoder_of(a->dtype);
    const uint64_t mask0 = first_bits(a->depth), mask1 = first_bits(a->depth - 64);
    float *to = out;
    for (int64_t m = 0; m < a->rows; m++, to += QNI_GEMM_BLOCK_K) {
        const uint8_t *row = (const uint8_t *)a->data + m * a->row_stride;
        decode_codes_of_row(&d, to, row, mask0);
        decode_codes_of_row(&d, to + 64, mask1 ? row + 64 : row, mask1);
    }
}

// ---- few rows: decoded in registers, used at once

/** Multiplies up to DIRECT_ROWS rows. k runs in the order of multiply_rows, so that the bits are
 *  equal. */
[[gnu::always_inline]] static inline void multiply_direct(int rows, float *sums, const float *a,
                                                          const qni_gemm_block *b,
                                                          const float *scales, bool is_first,
                                                          qni_gemm_next next) {
    const decoder d = decoder_of(b->dtype);
    const char *line = b->data;
    __m512 partial[DIRECT_ROWS][VECTORS];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows * VECTORS; i++)
        partial[i / VECTORS][i % VECTORS] = _mm512_setzero_ps();
    for (int k = 0; k < QNI_GEMM_BLOCK_K; k += 4) {
        fetch_two_rows(&next);
#pragma clang loop unroll(full)
        for (int v = 0; v < VECTORS; v++, line += 64) {
            const quad weights = decode_quad(&d, line);
#pragma clang loop unroll(full)
            for (int i = 0; i < 4 * rows; i++) {
                __m512 *sum = &partial[i % rows][v];
                const __m512 x = _mm512_set1_ps(a[i % rows * QNI_GEMM_BLOCK_K + k + i / rows]);
                *sum = _mm512_fmadd_ps(x, weights.k[i / rows], *sum);
            }
        }
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < rows * VECTORS; i++) {
        float *sum = sums + i / VECTORS * QNI_GEMM_PANEL_N + i % VECTORS * 16;
        const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(sum);
        const __m512 scale = _mm512_set1_ps(scales[i / VECTORS]);
        _mm512_store_ps(sum, _mm512_fmadd_ps(partial[i / VECTORS][i % VECTORS], scale, before));
    }
}

static void multiply_packed(float *sums, const void *a, const qni_gemm_block *b,
                            const float *scales, int64_t rows, bool is_first, qni_gemm_next next) {
    if (!next.rows)
        next = (qni_gemm_next){b->data, QNI_GEMM_BLOCK_K};
    switch (rows) {
#define CASE(ROWS)                                                                                 \
    case ROWS:                                                                                     \
        multiply_direct(ROWS, sums, a, b, scales, is_first, next);                                 \
        return;
        CASE(5)
        CASE(4)
        CASE(3)
        CASE(2)
        CASE(1)
#undef CASE
    }
}

static const qni_gemm_engine engine = {.gather = gather,
                                       .load_a = load_a,
                                       .load_b = load_b,
                                       .multiply = f32_multiply,
                                       .multiply_packed = multiply_packed,
                                       .direct_rows = DIRECT_ROWS,
                                       .load_a_along_k = f32_load_a_along_k,
                                       .multiply_along_k = f32_multiply_along_k,
                                       .dot_bytes = sizeof(float),
                                       .finish = finish_row,
                                       .store = store_row,
                                       .quantize = quantize_row};
