// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX-512 BF16: e4m3 becomes bf16, which holds it exactly, and vdpbf16ps multiplies pairs
// along k.
//
// Needs      avx512f/bw/dq/vl, avx512_vbmi (vpermi2b looks 64 codes up in a table of 128),
//            avx512_bf16
// Registers  6 rows x 64 columns of f32 sums in 24, 4 for b, 1 for a
// Decoded    a [rows][64 pairs], b [64 pairs][64 columns]; a pair is the bf16 of k and k + 1
// Bound      gemm_ref.c; vdpbf16ps flushes subnormals in and out, of which e4m3 products have none
#define QN_LANES 16
#define LANES 16
#define DOT_ROWS 6
#define DOT_COLUMNS 4
#define DOT_PARTS 1
#include "gemm_e4m3_avx512.h"
#include "gemm_fetch.h"
#include "gemm_store.h"

#include <string.h>

enum {
    ROWS = 6,
    VECTORS = 4,
    PAIRS = QNI_GEMM_BLOCK_K / 2,
    DIRECT_ROWS = 4,
    FETCH_PAIRS = 4, // pairs between two fetches
};

// ---- transposing: 16 rows x 16 dwords

[[gnu::always_inline]] static inline void transpose(__m512i r[16]) {
    __m512i t[16];
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; i += 2) { // 2 x 2 dwords
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; i += 4) { // 4 x 4
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) { // lanes of 4 dwords as 4 x 4
        __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        __m512i b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        __m512i c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        __m512i d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
        t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xDD);
        t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
    }
    memcpy(r, t, sizeof t);
}

// ---- loading 64 rows and 64 k of a block as 32 pairs of each row: out[pair * stride + row]

/** Loads 64 bytes along k of each of 16 rows, transposed; what lies beyond the block's edges is
 *  zero. Rows lie far apart, where the processor does not fetch ahead by itself, so each row's part
 *  of the next K-block is fetched as well. */
static inline void load_along_k(__m512i r[16], const qni_gemm_block *x, int64_t row, int64_t k,
                                int64_t bytes) {
    const uint64_t mask = first_bits((x->depth - k) * bytes);
    const char *from = (const char *)x->data + (row * x->row_stride + k) * bytes;
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < 16; i++, from += x->row_stride * bytes) {
        const bool is_inside = row + i < x->rows && mask;
        r[i] = is_inside ? _mm512_maskz_loadu_epi8(mask, from) : _mm512_setzero_si512();
        _mm_prefetch(from + QNI_GEMM_BLOCK_K * bytes, _MM_HINT_T1);
    }
    transpose(r);
}

/** Loads 16 rows of bf16 whose k is contiguous. */
static void bf16_along_k(uint32_t *out, int64_t stride, const qni_gemm_block *x, int64_t row,
                         int64_t k) {
    for (int64_t half = 0; half < 2; half++) {
        __m512i r[16];
        load_along_k(r, x, row, k + half * 32, 2);
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; i++, out += stride)
            _mm512_store_si512(out, r[i]);
    }
}

/** Loads 64 bytes at one k, from `row` on, of contiguous rows; what lies beyond the edges is
 *  zero. */
static inline __m512i load_rows(const qni_gemm_block *x, int64_t row, int64_t k, int64_t bytes) {
    if (k >= x->depth || row >= x->rows)
        return _mm512_setzero_si512();
    const char *from = (const char *)x->data + (k * x->k_stride + row) * bytes;
    _mm_prefetch(from + QNI_GEMM_BLOCK_K * x->k_stride * bytes, _MM_HINT_T1);
    return _mm512_maskz_loadu_epi8(first_bits((x->rows - row) * bytes), from);
}

/** Exchanges lanes: before, r[i] holds 4 lanes of 16 rows at k + i; afterwards, r[j] holds 4 lanes
 *  of 4 k of the rows from 16 j on. */
static inline void exchange_lanes(__m512i r[4]) {
    __m512i a = _mm512_shuffle_i32x4(r[0], r[1], 0x44), b = _mm512_shuffle_i32x4(r[0], r[1], 0xEE);
    __m512i c = _mm512_shuffle_i32x4(r[2], r[3], 0x44), d = _mm512_shuffle_i32x4(r[2], r[3], 0xEE);
    r[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
    r[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

/** Loads e4m3 whose rows are contiguous. */
static void fp8_along_rows(uint32_t *out, int64_t stride, const qni_gemm_block *x, int64_t row,
                           int64_t k) {
    const decoder d = decoder_of(x->dtype);
    alignas(64) char order[64]; // moves byte n of lane k to its place in a packed line
    for (int n = 0; n < 16; n++)
        for (int j = 0; j < 4; j++)
            order[n / 4 * 16 + j / 2 * 8 + n % 4 * 2 + j % 2] = (char)(j * 16 + n);
    const __m512i permutation = _mm512_load_si512(order);
    for (int64_t i = 0; i < 64; i += 4, out += 2 * stride) {
        __m512i r[4] = {load_rows(x, row, k + i, 1), load_rows(x, row, k + i + 1, 1),
                        load_rows(x, row, k + i + 2, 1), load_rows(x, row, k + i + 3, 1)};
        exchange_lanes(r);
#pragma clang loop unroll(full)
        for (int j = 0; j < 4; j++) {
            __m512i first, second;
            decode(&d, _mm512_permutexvar_epi8(permutation, r[j]), &first, &second);
            _mm512_store_si512(out + j * 16, first);
            _mm512_store_si512(out + stride + j * 16, second);
        }
    }
}

/** Loads bf16 whose rows are contiguous. */
static void bf16_along_rows(uint32_t *out, int64_t stride, const qni_gemm_block *x, int64_t row,
                            int64_t k) {
    alignas(64) uint16_t order[2][32]; // word n of k beside word n of k + 1, 16 n each
    for (uint16_t i = 0; i < 64; i++)
        order[i / 32][i % 32] = (uint16_t)(i % 2 * 32 + i / 2);
    const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
    for (int64_t i = 0; i < 64; i += 2, out += stride)
#pragma clang loop unroll(full)
        for (int64_t n = 0; n < 64; n += 32) {
            __m512i even = load_rows(x, row + n, k + i, 2);
            __m512i odd = load_rows(x, row + n, k + i + 1, 2);
            _mm512_store_si512(out + n, _mm512_permutex2var_epi16(even, low, odd));
            _mm512_store_si512(out + n + 16, _mm512_permutex2var_epi16(even, high, odd));
        }
}

/** Loads pairs; codes whose k is contiguous come as packed panels instead. */
static void load_pairs(uint32_t *out, int64_t stride, const qni_gemm_block *x, int64_t row,
                       int64_t k) {
    const bool is_bf16 = x->dtype == QNI_BF16;
    if (x->k_stride != 1)
        (is_bf16 ? bf16_along_rows : fp8_along_rows)(out, stride, x, row, k);
    else
        for (int64_t i = 0; i < 64; i += 16)
            bf16_along_k(out + i, stride, x, row + i, k);
}

// ---- a

/** Decodes 64 codes of a row. The decoder deals out groups of 8 bytes in turn, so they are put in
 *  the opposite order first. */
static inline void load_a_codes(const decoder *d, uint32_t *out, const void *codes, uint64_t mask) {
    const __m512i deal = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    __m512i first, second, row = _mm512_maskz_loadu_epi8(mask, codes);
    decode(d, _mm512_permutexvar_epi64(deal, row), &first, &second);
    _mm512_store_si512(out, first);
    _mm512_store_si512(out + 16, second);
}

static void load_a_fp8(uint32_t *out, const qni_gemm_block *a) {
    const decoder d = decoder_of(a->dtype);
    const uint64_t mask0 = first_bits(a->depth), mask1 = first_bits(a->depth - 64);
    for (int64_t m = 0; m < a->rows; m++, out += PAIRS) {
        const char *row = (const char *)a->data + m * a->row_stride;
        // Rows lie pages apart, where the processor does not fetch ahead by itself: fetch the next
        // K-block's part.
        _mm_prefetch(row + 128, _MM_HINT_T1);
        _mm_prefetch(row + 192, _MM_HINT_T1);
        load_a_codes(&d, out, row, mask0);
        load_a_codes(&d, out + PAIRS / 2, mask1 ? row + 64 : row, mask1);
    }
}

static void load_a_bf16(uint32_t *out, const qni_gemm_block *a) {
    const size_t bytes = (size_t)a->depth * 2;
    for (int64_t m = 0; m < a->rows; m++, out += PAIRS) {
        memcpy(out, (const uint16_t *)a->data + m * a->row_stride, bytes);
        memset((char *)out + bytes, 0, PAIRS * 4 - bytes);
    }
}

/** Loads a whose rows are contiguous: as pairs, transposed back 16 x 16 at a time. */
static void load_a_transposed(uint32_t *out, const qni_gemm_block *a) {
    alignas(64) uint32_t pairs[32][64];
    for (int64_t m0 = 0; m0 < a->rows; m0 += 64)
        for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 64) {
            load_pairs(&pairs[0][0], 64, a, m0, k);
            for (int64_t part = 0; part < 8; part++) {
                const int64_t m = m0 + part / 2 * 16, pair = part % 2 * 16;
                __m512i r[16];
                for (int64_t i = 0; i < 16; i++)
                    r[i] = _mm512_load_si512(&pairs[pair + i][part / 2 * 16]);
                transpose(r);
                for (int64_t i = 0; i < 16 && m + i < a->rows; i++)
                    _mm512_store_si512(out + (m + i) * PAIRS + k / 2 + pair, r[i]);
            }
        }
}

static void load_a(void *out, const qni_gemm_block *a) {
    if (a->k_stride != 1)
        load_a_transposed(out, a);
    else if (a->dtype == QNI_BF16)
        load_a_bf16(out, a);
    else
        load_a_fp8(out, a);
}

// ---- b

static void load_packed(uint32_t *out, const qni_gemm_block *b) {
    const decoder d = decoder_of(b->dtype);
    const char *line = b->data;
    for (int pair = 0; pair < PAIRS; pair += 2, out += 2 * QNI_GEMM_PANEL_N)
#pragma clang loop unroll(full)
        for (int v = 0; v < VECTORS; v++, line += 64) {
            __m512i first, second;
            decode(&d, _mm512_loadu_si512(line), &first, &second);
            _mm512_store_si512(out + v * 16, first);
            _mm512_store_si512(out + QNI_GEMM_PANEL_N + v * 16, second);
        }
}

static void load_b(void *out, const qni_gemm_block *b) {
    if (b->is_packed) {
        load_packed(out, b);
        return;
    }
    for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 64)
        load_pairs((uint32_t *)out + k / 2 * QNI_GEMM_PANEL_N, QNI_GEMM_PANEL_N, b, 0, k);
}

// ---- multiplying

[[gnu::always_inline]] static inline void clear(int rows, __m512 partial[ROWS][VECTORS]) {
#pragma clang loop unroll(full)
    for (int i = 0; i < rows * VECTORS; i++)
        partial[i / VECTORS][i % VECTORS] = _mm512_setzero_ps();
}

/** sums = (is_first ? 0 : sums) + scale * partial. */
[[gnu::always_inline]] static inline void add_scaled(int rows, float *sums,
                                                     __m512 partial[ROWS][VECTORS],
                                                     const float *scales, bool is_first) {
#pragma clang loop unroll(full)
    for (int i = 0; i < rows * VECTORS; i++) {
        float *sum = sums + i / VECTORS * QNI_GEMM_PANEL_N + i % VECTORS * 16;
        __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(sum);
        __m512 scale = _mm512_set1_ps(scales[i / VECTORS]);
        _mm512_store_ps(sum, _mm512_fmadd_ps(partial[i / VECTORS][i % VECTORS], scale, before));
    }
}

/** Multiplies up to 6 rows over the K-block. `rows` is a constant at each call, so that the sums
 *  stay in registers. */
[[gnu::always_inline]] static inline void multiply_rows(int rows, float *sums, const uint32_t *a,
                                                        const uint32_t *b, const float *scales,
                                                        bool is_first, fetch *next) {
    __m512 partial[ROWS][VECTORS];
    clear(rows, partial);
    for (int pair = 0; pair < PAIRS; pair += FETCH_PAIRS) {
        fetch_step(next, true);
#pragma clang loop unroll(full)
        for (int i = 0; i < FETCH_PAIRS; i++, b += QNI_GEMM_PANEL_N) {
            __m512bh columns[VECTORS];
#pragma clang loop unroll(full)
            for (int v = 0; v < VECTORS; v++)
                columns[v] = (__m512bh)_mm512_load_si512(b + v * 16);
#pragma clang loop unroll(full)
            for (int m = 0; m < rows; m++) {
                __m512bh row = (__m512bh)_mm512_set1_epi32((int)a[m * PAIRS + pair + i]);
#pragma clang loop unroll(full)
                for (int v = 0; v < VECTORS; v++)
                    partial[m][v] = _mm512_dpbf16_ps(partial[m][v], row, columns[v]);
            }
        }
    }
    add_scaled(rows, sums, partial, scales, is_first);
}

static void multiply_tail(int64_t rows, float *sums, const uint32_t *a, const uint32_t *b,
                          const float *scales, bool is_first, fetch *next) {
    switch (rows) {
    case 5:
        multiply_rows(5, sums, a, b, scales, is_first, next);
        return;
    case 4:
        multiply_rows(4, sums, a, b, scales, is_first, next);
        return;
    case 3:
        multiply_rows(3, sums, a, b, scales, is_first, next);
        return;
    case 2:
        multiply_rows(2, sums, a, b, scales, is_first, next);
        return;
    case 1:
        multiply_rows(1, sums, a, b, scales, is_first, next);
        return;
    }
}

static void multiply(float *sums, const void *a, const void *b, const float *scales, int64_t rows,
                     bool is_first, qni_gemm_next next) {
    const uint32_t *row = a;
    fetch f = plan_fetch(next, (rows + ROWS - 1) / ROWS * (PAIRS / FETCH_PAIRS));
    for (; rows >= ROWS; rows -= ROWS) {
        multiply_rows(ROWS, sums, row, b, scales, is_first, &f);
        sums += ROWS * QNI_GEMM_PANEL_N;
        row += ROWS * PAIRS;
        scales += ROWS;
    }
    multiply_tail(rows, sums, row, b, scales, is_first, &f);
}

// ---- few rows: decoded in registers, used at once

/** Multiplies up to DIRECT_ROWS rows. Pairs run in the order of multiply_rows, so that the bits are
 *  equal. */
[[gnu::always_inline]] static inline void multiply_direct(int rows, float *sums, const uint32_t *a,
                                                          const qni_gemm_block *b,
                                                          const float *scales, bool is_first,
                                                          qni_gemm_next next) {
    const decoder d = decoder_of(b->dtype);
    const char *line = b->data;
    __m512 partial[ROWS][VECTORS];
    clear(rows, partial);
    for (int pair = 0; pair < PAIRS; pair += 2) {
        fetch_two_rows(&next);
#pragma clang loop unroll(full)
        for (int v = 0; v < VECTORS; v++, line += 64) {
            __m512i first, second;
            decode(&d, _mm512_loadu_si512(line), &first, &second);
#pragma clang loop unroll(full)
            for (int m = 0; m < rows; m++) {
                const uint32_t *row = a + m * PAIRS + pair;
                __m512 *sum = &partial[m][v];
                *sum = _mm512_dpbf16_ps(*sum, (__m512bh)_mm512_set1_epi32((int)row[0]),
                                        (__m512bh)first);
                *sum = _mm512_dpbf16_ps(*sum, (__m512bh)_mm512_set1_epi32((int)row[1]),
                                        (__m512bh)second);
            }
        }
    }
    add_scaled(rows, sums, partial, scales, is_first);
}

static void multiply_packed(float *sums, const void *a, const qni_gemm_block *b,
                            const float *scales, int64_t rows, bool is_first, qni_gemm_next next) {
    if (!next.rows)
        next = (qni_gemm_next){b->data, QNI_GEMM_BLOCK_K};
    switch (rows) {
    case 4:
        multiply_direct(4, sums, a, b, scales, is_first, next);
        return;
    case 3:
        multiply_direct(3, sums, a, b, scales, is_first, next);
        return;
    case 2:
        multiply_direct(2, sums, a, b, scales, is_first, next);
        return;
    case 1:
        multiply_direct(1, sums, a, b, scales, is_first, next);
        return;
    }
}

// ---- products along k of bf16, which lies in memory as vdpbf16ps wants it

typedef float vec __attribute__((vector_size(64), may_alias));
typedef __m512bh dot_operand;
typedef uint16_t dot_element;

[[gnu::always_inline]] static inline __m512bh dot_load_b(const char *b, qni_dtype, int) {
    return (__m512bh)_mm512_loadu_si512(b);
}

[[gnu::always_inline]] static inline vec dot_add(vec sum, __m512bh x, __m512bh y) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, x, y);
}

#include "gemm_dot.h"

/** Decodes K-block by K-block. */
static void load_a_along_k(void *out, const qni_gemm_block *a, int64_t stride, qni_dtype) {
    alignas(64) uint32_t decoded[QNI_GEMM_DOT_M * PAIRS];
    for (int64_t k = 0; k < a->depth; k += QNI_GEMM_BLOCK_K) {
        qni_gemm_block part = *a;
        part.data = (const char *)a->data + k * a->k_stride * qni_dtype_bytes(a->dtype);
        part.depth = a->depth - k < QNI_GEMM_BLOCK_K ? a->depth - k : QNI_GEMM_BLOCK_K;
        load_a(decoded, &part);
        for (int64_t m = 0; m < a->rows; m++)
            memcpy((uint16_t *)out + m * stride + k, decoded + m * PAIRS, PAIRS * 4);
    }
}

static void multiply_along_k(float *sums, const void *a, int64_t stride, const qni_gemm_block *b,
                             int64_t rows, bool is_first) {
    dot_all(sums, a, stride, b, rows, QNI_BF16, is_first);
}

bool qni_gemm_avx512bf16_supports(const qni_variant *, const qn_device *, const void *problem,
                                  qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (qni_gemm_is_usual(p->dtype_a) && qni_gemm_is_usual(p->dtype_b))
        return true;
    return qni_no(why, "a is %s, b %s; takes bf16, e4m3fn, e4m3fnuz", qni_dtype_name(p->dtype_a),
                  qni_dtype_name(p->dtype_b));
}

qn_status qni_gemm_avx512bf16(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {.gather = gather,
                                           .load_a = load_a,
                                           .load_b = load_b,
                                           .multiply = multiply,
                                           .multiply_packed = multiply_packed,
                                           .direct_rows = DIRECT_ROWS,
                                           .takes_bf16_directly = true,
                                           .load_a_along_k = load_a_along_k,
                                           .multiply_along_k = multiply_along_k,
                                           .dot_bytes = sizeof(dot_element),
                                           .finish = finish_row,
                                           .store = store_row,
                                           .quantize = quantize_row};
    prepare_decoder();
    return qni_gemm_cpu_run(&engine, problem);
}
