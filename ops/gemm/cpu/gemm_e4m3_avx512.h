// SPDX-License-Identifier: Apache-2.0
// e4m3 with AVX-512: codes become bf16, which holds them exactly, and blocks of b whose k is
// contiguous get the order of packed panels.
//
// Cost  64 codes as bf16: with AVX-512 VBMI five operations, two of which look bytes up in tables
//       of 128; without it thirteen, or fifteen for e4m3fnuz
#ifndef QNI_GEMM_E4M3_AVX512_H
#define QNI_GEMM_E4M3_AVX512_H

#include "../../shared/fp8.h"
#include "gemm_cpu.h"

#include <immintrin.h>
#include <pthread.h>

/** Interleaves bytes: of each 16 the first 8 make *first, the others *second. */
[[gnu::always_inline]] static inline void interleave(__m512i low, __m512i high, __m512i *first,
                                                     __m512i *second) {
    *first = _mm512_unpacklo_epi8(low, high);
    *second = _mm512_unpackhi_epi8(low, high);
}

#ifdef __AVX512VBMI__

// ---- decoding: tables of bf16's bytes, indexed by e4m3 codes without their sign

typedef struct table {
    alignas(64) uint8_t low[128], high[128];
} table;

static table tables[2]; // e4m3fn, e4m3fnuz
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    static const qni_fp8 kinds[] = {QNI_FP8_E4M3FN, QNI_FP8_E4M3FNUZ};
    for (int kind = 0; kind < 2; kind++)
        for (int code = 0; code < 128; code++) {
            const float value = qni_fp8_decode(kinds[kind], (uint8_t)code);
            const uint32_t bits = __builtin_bit_cast(uint32_t, value);
            tables[kind].low[code] = (uint8_t)(bits >> 16);
            tables[kind].high[code] = (uint8_t)(bits >> 24);
        }
}

/** Makes what decoder_of needs; to be called before it. */
static void prepare_decoder(void) {
    pthread_once(&tables_once, fill_tables);
}

/** The tables in registers. */
typedef struct decoder {
    __m512i low0, low1, high0, high1;
    bool is_fnuz;
} decoder;

static inline decoder decoder_of(qni_dtype dtype) {
    const table *t = &tables[dtype == QNI_E4M3FNUZ];
    return (decoder){_mm512_load_si512(t->low), _mm512_load_si512(t->low + 64),
                     _mm512_load_si512(t->high), _mm512_load_si512(t->high + 64),
                     dtype == QNI_E4M3FNUZ};
}

/** Decodes 64 codes to bf16: of each 16 bytes the first 8 go to *first, the others to *second. */
[[gnu::always_inline]] static inline void decode(const decoder *d, __m512i codes, __m512i *first,
                                                 __m512i *second) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i low = _mm512_permutex2var_epi8(d->low0, codes, d->low1);
    __m512i high = _mm512_permutex2var_epi8(d->high0, codes, d->high1);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xF8); // high | (codes & sign)
    if (d->is_fnuz) { // the NaN is 0x80, whose low bits are a zero's
        __mmask64 is_nan = _mm512_cmpeq_epi8_mask(codes, sign);
        low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8((char)0xC0));
        high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8(0x7F));
    }
    interleave(low, high, first, second);
}

#else

// ---- decoding: bf16's bytes by arithmetic; of subnormals by tables of eight

static inline void prepare_decoder(void) {}

typedef struct decoder {
    __m512i tiny_low, tiny_high; // bytes of the subnormals 0 to 7, in each 16
    bool is_fnuz;
} decoder;

static inline decoder decoder_of(qni_dtype dtype) {
    const bool is_fnuz = dtype == QNI_E4M3FNUZ;
    alignas(16) uint8_t low[16] = {}, high[16] = {};
    for (int code = 1; code < 8; code++) {
        const uint32_t bits =
            __builtin_bit_cast(uint32_t, (float)code *(is_fnuz ? 0x1p-10f : 0x1p-9f));
        low[code] = (uint8_t)(bits >> 16), high[code] = (uint8_t)(bits >> 24);
    }
    return (decoder){_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)low)),
                     _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)high)), is_fnuz};
}

/** Decodes 64 codes to bf16: of each 16 bytes the first 8 go to *first, the others to *second. */
[[gnu::always_inline]] static inline void decode(const decoder *d, __m512i codes, __m512i *first,
                                                 __m512i *second) {
    const __m512i sign = _mm512_set1_epi8((char)0x80), magnitude = _mm512_andnot_si512(sign, codes);
    const __m512i nibble = _mm512_set1_epi8(0x0F);
    // bf16 is the magnitude, 4 bits further left, plus 120 (FNUZ: 119) << 7, which has a low byte.
    __m512i low = _mm512_andnot_si512(nibble, _mm512_slli_epi16(magnitude, 4)), high;
    if (d->is_fnuz) {
        low = _mm512_xor_si512(low, sign);
        high = _mm512_and_si512(nibble, _mm512_srli_epi16(magnitude, 3));
        high = _mm512_avg_epu8(high, _mm512_setzero_si512()); // with the low byte's carry
        high = _mm512_add_epi8(high, _mm512_set1_epi8(0x3B));
    } else {
        high = _mm512_and_si512(nibble, _mm512_srli_epi16(magnitude, 4));
        high = _mm512_add_epi8(high, _mm512_set1_epi8(0x3C));
    }
    const __mmask64 is_tiny = _mm512_cmplt_epu8_mask(magnitude, _mm512_set1_epi8(8));
    low = _mm512_mask_shuffle_epi8(low, is_tiny, d->tiny_low, magnitude);
    high = _mm512_mask_shuffle_epi8(high, is_tiny, d->tiny_high, magnitude);
    const __mmask64 is_nan = d->is_fnuz ? _mm512_cmpeq_epi8_mask(codes, sign)
                                        : _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(0x7F));
    low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8((char)0xC0));
    high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8(0x7F));
    interleave(low, _mm512_ternarylogic_epi32(high, codes, sign, 0xF8), first, second);
}

#endif

/** Returns a mask of the first `count` (any number) of 64 bits. */
static inline uint64_t first_bits(int64_t count) {
    return count >= 64 ? ~UINT64_C(0) : count <= 0 ? 0 : (UINT64_C(1) << count) - 1;
}

// ---- b to packed panels

/** Transposes 8 rows of 32 codes: out[i] has those at k = 4 i of rows 0 to 3, at 16 + 4 i of the
 *  same rows, then of rows 4 to 7; of 4 k and 4 rows the first two k of each row go first. */
[[gnu::always_inline]] static inline void transpose_8_rows(__m512i out[4], const uint8_t *from,
                                                           int64_t row_stride) {
    __m512i r[4];
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < 4; i++) {
        const uint8_t *low = from + i * row_stride, *high = low + 4 * row_stride;
        r[i] =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i_u *)low)),
                               _mm256_loadu_si256((const __m256i_u *)high), 1);
    }
    const __m512i a = _mm512_unpacklo_epi16(r[0], r[1]), b = _mm512_unpacklo_epi16(r[2], r[3]);
    const __m512i c = _mm512_unpackhi_epi16(r[0], r[1]), d = _mm512_unpackhi_epi16(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi32(a, b), out[1] = _mm512_unpackhi_epi32(a, b);
    out[2] = _mm512_unpacklo_epi32(c, d), out[3] = _mm512_unpackhi_epi32(c, d);
}

static void gather(uint8_t *panel, const uint8_t *rows, int64_t row_stride) {
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += 16, panel += 64)
        for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 32) {
            __m512i low[4], high[4];
            transpose_8_rows(low, rows + n * row_stride + k, row_stride);
            transpose_8_rows(high, rows + (n + 8) * row_stride + k, row_stride);
#pragma clang loop unroll(full)
            for (int64_t i = 0; i < 4; i++) {
                uint8_t *line = panel + (k / 4 + i) * 256;
                _mm512_store_si512(line, _mm512_shuffle_i32x4(low[i], high[i], 0x88));
                _mm512_store_si512(line + 4 * 256, _mm512_shuffle_i32x4(low[i], high[i], 0xDD));
            }
        }
}

#endif
