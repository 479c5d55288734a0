// SPDX-License-Identifier: Apache-2.0
// Matrix instructions on 8-bit floats, on AVX-512 with byte permutes: the split rule at full speed.
//
// The work is cut into cells: 16 rows of A by 16 columns of B over one group of 16 k, or of 32 in
// f8f6f4 forms, here without scales. The rule cuts
// a product only where it lies more than 24 - Fa - Fb bits below the group's largest exponent,
// which real data seldom has. So each cell is computed twice over: the exact dot products in f64
// (products have 8 bits, sums at most 41), and, 64 outputs a byte vector, the largest and the
// smallest exponent of each output's products. Where the spread is small the exact sum is the
// rule's sum; the rows with any other output are computed again product by product. Adding c works
// in f32 where it can: see add_c.
//
// Needs AVX-512 VBMI; mfma_exec_fp8 uses the general forms on a host without it.
#include "mfma_vector.h"

#ifdef __AVX512F__

#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#pragma clang attribute push(__attribute__((target("avx512vbmi"))), apply_to = function)

enum { CELL = 16, MOST_K = 32 };

// An exponent code is the exponent field (at least 1), so e = code - bias; a zero's is ZERO_CODE,
// so that it loses to every number in a signed maximum of sums and in an unsigned minimum.
enum { ZERO_CODE = -64 };

/** One 8-bit type, indexed by the 7 bits below the sign: the exponent code and the upper two bytes
 *  of the f64. */
typedef struct byte_tables {
    _Alignas(64) int8_t code[128];
    _Alignas(64) uint8_t f64_high[128], f64_low[128];
} byte_tables;

static byte_tables tables[MFMA_NUM_TYPES];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_table(mfma_type type) {
    for (int bits = 0; bits < 128; bits++) {
        mfma_term t = mfma_decode(type, (uint64_t)bits);
        double value = ldexp(t.m, t.e - mfma_formats[type].fraction);
        uint64_t word;
        memcpy(&word, &value, sizeof word);
        tables[type].code[bits] = (int8_t)(t.m == 0 ? ZERO_CODE : t.e + mfma_formats[type].bias);
        tables[type].f64_high[bits] = (uint8_t)(word >> 56);
        tables[type].f64_low[bits] = (uint8_t)(word >> 48);
    }
}

static void fill_tables(void) {
    fill_table(MFMA_FP8);
    fill_table(MFMA_BF8);
    fill_table(MFMA_FP8_FNUZ);
    fill_table(MFMA_BF8_FNUZ);
}

/** 16 rows of A (or columns of B) over a group, by k. */
typedef struct fragment {
    _Alignas(64) double value[MOST_K][CELL];
    _Alignas(64) int8_t code[MOST_K][CELL];
} fragment;

// ---- decoding

static inline __m512i look_up(const void *table, __m512i bytes) {
    const uint8_t *t = table;
    return _mm512_permutex2var_epi8(_mm512_load_si512(t), bytes, _mm512_load_si512(t + 64));
}

/** Returns which of the bytes are NaN and Inf patterns. */
static inline __mmask64 specials(const mfma_format *f, __m512i bytes) {
    __m512i below_sign = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
    switch (f->specials) {
    case MFMA_FNUZ:
        return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-128));
    case MFMA_FN:
        return _mm512_cmpeq_epi8_mask(below_sign, _mm512_set1_epi8(0x7f));
    default:
        return _mm512_cmpge_epi8_mask(below_sign, _mm512_set1_epi8(0x7c));
    }
}

/** Decodes four k of 16 rows: bytes[k][row]. */
static inline void decode_four(const byte_tables *t, __m512i bytes, fragment *out, int k) {
    __m512i sign = _mm512_and_si512(bytes, _mm512_set1_epi8(-128));
    __m512i high = _mm512_or_si512(look_up(t->f64_high, bytes), sign);
    __m512i low = look_up(t->f64_low, bytes);
    _mm512_store_si512(out->code[k], look_up(t->code, bytes));
    // Each 128-bit lane holds one k: words of rows 0..7 and of rows 8..15.
    __m512i words[2] = {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    __m512i to_top = _mm512_set_epi16(7, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, //
                                      3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0);
    for (int i = 0; i < 4; i++) {
        __m512i from = _mm512_add_epi16(to_top, _mm512_set1_epi16((short)(8 * i)));
        for (int half = 0; half < 2; half++) {
            _mm512_store_si512(&out->value[k + i][8 * half],
                               _mm512_maskz_permutexvar_epi16(0x88888888, from, words[half]));
        }
    }
}

/** Reads a fragment of two strips of lanes, which hold the first and the second half of its k in
 *  `regs` registers each. Returns false if it holds a NaN or an Inf. */
MFMA_INLINE bool read_fragment(mfma_type type, const uint32_t *rows, int regs, int strip0,
                               int strip1, fragment *out) {
    // Turns 16 dwords of 4 k into 4 k of 16 rows.
    _Alignas(64) static const uint8_t transpose[64] = {
        0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, //
        1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61, //
        2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, //
        3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
    __m512i order = _mm512_load_si512(transpose);
    __mmask64 bad = 0;
    for (int i = 0; i < 2 * regs; i++) {
        const int strip = i < regs ? strip0 : strip1;
        const uint32_t *from = rows + i % regs * SIM_LANES + strip * MFMA_STRIP;
        __m512i bytes = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(from));
        bad |= specials(&mfma_formats[type], bytes);
        decode_four(&tables[type], bytes, out, 4 * i);
    }
    return bad == 0;
}

// ---- one cell

/** The exponents of each output's products: codes [row % 4][row / 4 * 16 + column]. */
typedef struct exponents {
    _Alignas(64) int8_t largest[4][64];
    uint64_t wide[4]; // outputs whose products spread too far for the exact sum
} exponents;

/** Finds the largest and the smallest exponent of each output's products. */
MFMA_INLINE void find_exponents(const fragment *a, const fragment *b, int num_k, int limit,
                                exponents *out) {
    __m512i first = _mm512_set_epi32(12, 12, 12, 12, 8, 8, 8, 8, 4, 4, 4, 4, 0, 0, 0, 0);
    __m512i pick = _mm512_mullo_epi32(first, _mm512_set1_epi32(0x01010101));
    __m512i largest[4], smallest[4];
    for (int r = 0; r < 4; r++) {
        largest[r] = _mm512_set1_epi8(-128);
        smallest[r] = _mm512_set1_epi8(-1);
    }
    for (int k = 0; k < num_k; k++) {
        __m512i ak = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)a->code[k]));
        __m512i bk = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)b->code[k]));
        for (int r = 0; r < 4; r++) {
            __m512i rows = _mm512_add_epi8(pick, _mm512_set1_epi8((char)r));
            __m512i sum = _mm512_add_epi8(_mm512_shuffle_epi8(ak, rows), bk);
            largest[r] = _mm512_max_epi8(largest[r], sum);
            smallest[r] = _mm512_min_epu8(smallest[r], sum);
        }
    }
    for (int r = 0; r < 4; r++) {
        __m512i spread = _mm512_sub_epi8(largest[r], smallest[r]);
        __mmask64 any = _mm512_cmpge_epi8_mask(largest[r], _mm512_setzero_si512());
        out->wide[r] = _mm512_mask_cmpgt_epu8_mask(any, spread, _mm512_set1_epi8((char)limit));
        _mm512_store_si512(out->largest[r], largest[r]);
    }
}

/** Computes the exact dot products of eight rows. */
MFMA_INLINE void multiply_rows(const fragment *a, const fragment *b, int num_k, int row,
                               __m512d s[8][2]) {
    for (int i = 0; i < 8; i++)
        s[i][0] = s[i][1] = _mm512_setzero_pd();
    for (int k = 0; k < num_k; k++) {
        __m512d b0 = _mm512_load_pd(&b->value[k][0]), b1 = _mm512_load_pd(&b->value[k][8]);
        for (int i = 0; i < 8; i++) {
            __m512d x = _mm512_set1_pd(a->value[k][row + i]);
            s[i][0] = _mm512_fmadd_pd(x, b0, s[i][0]);
            s[i][1] = _mm512_fmadd_pd(x, b1, s[i][1]);
        }
    }
}

static inline __m512 join(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/** Computes half a row whose c may have a larger exponent than the products: T = s rounded down at
 *  2^(top - 31), plus k. */
static inline __m256 add_rounded_down(__m512d s, __m256 k, __m256 c, __m128i code, int bias) {
    __m512i e = _mm512_sub_epi64(_mm512_cvtepi8_epi64(code), _mm512_set1_epi64(bias));
    e = _mm512_max_epi64(e, _mm512_set1_epi64(-126));
    __m512d largest =
        _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_add_epi64(e, _mm512_set1_epi64(1023)), 52));
    __m512d power =
        _mm512_and_pd(_mm512_cvtps_pd(c), _mm512_castsi512_pd(_mm512_set1_epi64(0x7ffll << 52)));
    // Adding 1.5 * 2^(52 + n) leaves no bits below 2^n; n = top - 31.
    __m512d magic = _mm512_mul_pd(_mm512_max_pd(largest, power), _mm512_set1_pd(0x1.8p21));
    __m512d t = _mm512_sub_pd(
        _mm512_add_round_pd(s, magic, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), magic);
    return _mm512_cvtpd_ps(_mm512_add_pd(t, _mm512_cvtps_pd(k)));
}

/** Adds c to a row of exact sums. u = c * 2^(24 - E) says where c lies: below 1/2 it is dropped;
 *  below 2^24 it loses the bits under 2^(E - 24), downwards; above, it stays as it is. From 2^32
 *  on, the sum's own bits may fall below 2^(top - 31) and are rounded down too. *odd gets the
 *  outputs that need the definition: their products are all zeros, and c is so small that their
 *  exponents matter. */
static inline __m512 add_c(__m512d low, __m512d high, const int8_t *codes, int bias, __m512 c,
                           __mmask16 *odd) {
    __m128i code = _mm_loadu_si128((const __m128i *)codes);
    __m512 e = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(code));
    __m512 up = _mm512_sub_ps(_mm512_set1_ps((float)(24 + bias)), e);
    __m512 u = _mm512_scalef_ps(c, up), size = _mm512_abs_ps(u);
    __m512 whole = _mm512_roundscale_ps(u, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __mmask16 kept = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.5f), _CMP_GE_OQ);
    __mmask16 cut = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p24f), _CMP_LT_OQ);
    __m512 k = _mm512_maskz_scalef_ps(kept, whole, _mm512_sub_ps(_mm512_setzero_ps(), up));
    k = _mm512_mask_mov_ps(c, cut, k);
    __m256 k_low = _mm512_castps512_ps256(k), k_high = _mm512_extractf32x8_ps(k, 1);
    __mmask16 no_products = _mm512_cmp_ps_mask(e, _mm512_setzero_ps(), _CMP_LT_OQ);
    *odd = _mm512_mask_cmp_ps_mask(no_products & cut, c, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    __mmask16 near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p32f), _CMP_LT_OQ);
    if (__builtin_expect(near == 0xffff, 1)) {
        return join(_mm512_cvtpd_ps(_mm512_add_pd(low, _mm512_cvtps_pd(k_low))),
                    _mm512_cvtpd_ps(_mm512_add_pd(high, _mm512_cvtps_pd(k_high))));
    }
    __m512 d = join(add_rounded_down(low, k_low, _mm512_castps512_ps256(c), code, bias),
                    add_rounded_down(high, k_high, _mm512_extractf32x8_ps(c, 1),
                                     _mm_srli_si128(code, 8), bias));
    d = _mm512_mask_mov_ps(d, _mm512_fpclass_ps_mask(c, 0x18), c); // Inf
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)MFMA_NAN32));
    return _mm512_mask_mov_ps(d, _mm512_fpclass_ps_mask(c, 0x81), nan);
}

// ---- rows with wide products

static inline __m512i exponent_of(__m512i code, int bias) {
    __mmask16 zero = _mm512_cmplt_epi32_mask(code, _mm512_setzero_si512());
    return _mm512_mask_mov_epi32(_mm512_sub_epi32(code, _mm512_set1_epi32(bias)), zero,
                                 _mm512_set1_epi32(-126));
}

/** Computes one row by the rule itself, from every second product from k on, each cut at 2^-24 of
 *  the largest exponent. */
static __m512i sum_cut(const mfma_form *f, const fragment *a, const fragment *b, int row, int k,
                       __m512i *e) {
    const int a_bias = mfma_formats[f->a_type].bias, b_bias = mfma_formats[f->b_type].bias;
    __m512i largest = _mm512_set1_epi32(INT32_MIN), sum = _mm512_setzero_si512();
    for (int i = k; i < f->group; i += 2) {
        __m512i eb = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)b->code[i]));
        __m512i ea = exponent_of(_mm512_set1_epi32(a->code[i][row]), a_bias);
        largest = _mm512_max_epi32(largest, _mm512_add_epi32(ea, exponent_of(eb, b_bias)));
    }
    // If every product is zero, any scale does.
    __m512i down =
        _mm512_sub_epi32(_mm512_set1_epi32(24), _mm512_max_epi32(largest, _mm512_set1_epi32(-100)));
    __m512 scale = _mm512_scalef_ps(_mm512_set1_ps(1), _mm512_cvtepi32_ps(down));
    for (int i = k; i < f->group; i += 2) {
        __m512 x = join(_mm512_cvtpd_ps(_mm512_load_pd(&b->value[i][0])),
                        _mm512_cvtpd_ps(_mm512_load_pd(&b->value[i][8])));
        x = _mm512_mul_ps(x, _mm512_set1_ps((float)a->value[i][row]));
        sum = _mm512_add_epi32(sum, _mm512_cvttps_epi32(_mm512_mul_ps(x, scale)));
    }
    *e = largest;
    return sum;
}

static __attribute__((noinline)) __m512 row_by_rule(const mfma_form *f, const fragment *a,
                                                    const fragment *b, int row, __m512 c) {
    __m512i e[2], s[2];
    s[0] = sum_cut(f, a, b, row, 0, &e[0]);
    s[1] = sum_cut(f, a, b, row, 1, &e[1]);
    mfma_i32 top = (mfma_i32)_mm512_max_epi32(e[0], e[1]);
    mfma_i32 sum = ((mfma_i32)s[0] >> mfma_min(top - (mfma_i32)e[0], (mfma_i32){0} + 31)) +
                   ((mfma_i32)s[1] >> mfma_min(top - (mfma_i32)e[1], (mfma_i32){0} + 31));
    mfma_i32 result = (mfma_i32)c;
    mfma_add_c(f, &sum, &top, &result);
    return (__m512)result;
}

// ---- cells to instructions

/** Where a cell's rows lie in C and D: row i at quad[i / 4] + i % 4 * SIM_LANES. d may be c. */
typedef struct cell_rows {
    const float *c;
    float *d;
    int quad[4];
} cell_rows;

MFMA_INLINE void cell(const mfma_form *f, int num_k, const fragment *a, const fragment *b,
                      cell_rows rows) {
    const mfma_format *fa = &mfma_formats[f->a_type], *fb = &mfma_formats[f->b_type];
    exponents e;
    find_exponents(a, b, num_k, 24 - fa->fraction - fb->fraction, &e);
    const int bias = fa->bias + fb->bias;
    for (int half = 0; half < CELL; half += 8) {
        __m512d s[8][2];
        multiply_rows(a, b, num_k, half, s);
        for (int i = 0; i < 8; i++) {
            const int row = half + i, at = rows.quad[row / 4] + row % 4 * SIM_LANES;
            __m512 c = _mm512_loadu_ps(rows.c + at);
            __mmask16 odd, wide = (__mmask16)(e.wide[row % 4] >> (row / 4 * CELL));
            __m512 d = add_c(s[i][0], s[i][1], &e.largest[row % 4][row / 4 * CELL], bias, c, &odd);
            if (__builtin_expect((odd | wide) != 0, 0))
                d = row_by_rule(f, a, b, row, c);
            _mm512_storeu_ps(rows.d + at, d);
        }
    }
}

typedef struct operands {
    fragment a[4], b[4];
    const float *c;
    float *d;
    _Alignas(64) float constant[16 * SIM_LANES];
} operands;

/** Computes 16 rows by 16 columns: one group of k after the other, each a fragment. */
MFMA_INLINE void run_16x16(const mfma_form *f, int num_k, const operands *o) {
    _Alignas(64) float d[4 * SIM_LANES]; // D may overlap C
    for (int i = 0; i < f->k / num_k; i++) {
        cell_rows rows = {i == 0 ? o->c : d, d, {0, 16, 32, 48}};
        cell(f, num_k, &o->a[i], &o->b[i], rows);
    }
    memcpy(o->d, d, sizeof d);
}

/** Computes 32 rows by 32 columns as four cells for each group of k, which is a pair of fragments:
 *  the first 16 rows and the others. */
MFMA_INLINE void run_32x32(const mfma_form *f, int num_k, const operands *o) {
    _Alignas(64) float d[16 * SIM_LANES]; // D may overlap C
    for (int i = 0; i < f->k / num_k * 4; i++) {
        const int at = i / 2 % 2 * 8 * SIM_LANES + i % 2 * CELL, pair = i / 4 * 2;
        const float *c = pair == 0 ? o->c : d;
        cell_rows rows = {c + at, d + at, {0, 32, 4 * SIM_LANES, 4 * SIM_LANES + 32}};
        cell(f, num_k, &o->a[pair + i / 2 % 2], &o->b[pair + i % 2], rows);
    }
    memcpy(o->d, d, sizeof d);
}

MFMA_INLINE bool read_fragments(const mfma_form *f, mfma_type type, const uint32_t *rows, int num_k,
                                fragment out[]) {
    const int regs = num_k / 8, count = f->k / num_k * f->m / CELL;
    bool ordinary = true;
    for (int i = 0; i < count; i++) {
        const uint32_t *from = rows + i / 2 * regs * SIM_LANES;
        const int strip0 = f->m == 16 ? i % 2 * 2 : i % 2, strip1 = strip0 + f->m / CELL;
        ordinary &= read_fragment(type, from, regs, strip0, strip1, &out[i]);
    }
    return ordinary;
}

static void set_c_and_d(const mfma_form *f, sim_wave *w, const sim_inst *inst, operands *o) {
    o->c = o->constant;
    o->d = (float *)mfma_rows(w, &inst->dst[0]);
    if (inst->src[2].kind == SIM_OP_VGPR) {
        o->c = (const float *)mfma_rows(w, &inst->src[2]);
        return;
    }
    __m512i constant = _mm512_set1_epi32((int)inst->src[2].value);
    for (int i = 0; i < f->m * f->n; i += MFMA_STRIP)
        _mm512_store_si512(o->constant + i, constant);
}

MFMA_INLINE bool run_groups(const mfma_form *f, sim_wave *w, const sim_inst *inst, int num_k) {
    operands o;
    bool ordinary =
        read_fragments(f, (mfma_type)f->a_type, mfma_rows(w, &inst->src[0]), num_k, o.a);
    ordinary &= read_fragments(f, (mfma_type)f->b_type, mfma_rows(w, &inst->src[1]), num_k, o.b);
    if (!ordinary)
        return false;
    set_c_and_d(f, w, inst, &o);
    if (f->m == 16)
        run_16x16(f, num_k, &o);
    else
        run_32x32(f, num_k, &o);
    return true;
}

static bool run(const mfma_form *f, sim_wave *w, const sim_inst *inst) {
    return f->group == MOST_K ? run_groups(f, w, inst, MOST_K) : run_groups(f, w, inst, CELL);
}

#pragma clang attribute pop

bool mfma_run_fp8(const mfma_form *f, sim_wave *w, const sim_inst *inst) {
    pthread_once(&tables_once, fill_tables);
    return __builtin_cpu_supports("avx512vbmi") && run(f, w, inst);
}

void mfma_exec_fp8(sim_wave *w, const sim_inst *inst) {
    if (w->fast_matrix && mfma_exec_fast(w, inst))
        return;
    if (!mfma_run_fp8(mfma_form_of(inst), w, inst))
        mfma_exec_vector(w, inst);
}

#endif
