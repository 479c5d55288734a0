// SPDX-License-Identifier: Apache-2.0
// Matrix instructions in plain f32 arithmetic, for QUERN_SIM=mfma=fast: sums of products in order
// of k, each step rounded to nearest, in place of the chip's rules.
//
// Inputs are those of the rules (gfx90a's subnormals are zeros, xf32 is cut), so results differ
// from exact ones by rounding alone. They lie within (k + 1) 2^-24 of the sum of |c| and all |a b|
// from the true value, and within twice that where the host has no fused multiply-add. 8-bit floats
// are bf16 numbers; a host with AVX-512 BF16 multiplies them in pairs of k, and takes subnormal f32
// for zero there. Forms of 4 x 4 and instructions that take operands from other lanes follow the
// rules.
#include "mfma_vector.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { CELL = 16 };

/** A or B by steps of the sum, then by slot: [step * slots + slot]. A step is one k as f32, or two
 *  as bf16. */
typedef struct fast_plane {
    int slots, steps;
    _Alignas(64) uint32_t x[MFMA_MAX_ELEMENTS];
} fast_plane;

// ---- decoding

typedef _Float16 f16_strip __attribute__((vector_size(32)));
typedef uint16_t u16_strip __attribute__((vector_size(32)));

static inline mfma_i32 of_f16(mfma_i32 bits) {
    f16_strip x = (f16_strip) __builtin_convertvector(bits, u16_strip);
    return (mfma_i32) __builtin_convertvector(x, mfma_f32);
}

static inline mfma_i32 without_subnormals(mfma_i32 bits, int exponent) {
    return bits & ((bits & exponent) != 0);
}

/** Writes the numbers of a strip's dwords as f32, by k. */
MFMA_INLINE void decode_dwords(const mfma_form *f, mfma_type type, mfma_i32 dwords,
                               mfma_i32 out[2]) {
    const bool flush = f->rule == MFMA_PAIRWISE;
    if (type == MFMA_XF32) {
        out[0] = dwords & ~0x1fff;
        return;
    }
    mfma_i32 low = dwords & 0xffff, high = (mfma_i32)((mfma_u32)dwords >> 16);
    const int exponent = type == MFMA_F16 ? 0x7c00 : 0x7f80;
    low = flush ? without_subnormals(low, exponent) : low;
    high = flush ? without_subnormals(high, exponent) : high;
    out[0] = type == MFMA_F16 ? of_f16(low) : low << 16;
    out[1] = type == MFMA_F16 ? of_f16(high) : high << 16;
}

/** Returns where the first step of register `reg` lies for the lanes from `lane` on. */
static inline uint32_t *plane_at(fast_plane *p, int regs, int lane, int reg, int steps_a_reg) {
    const int step = (lane / p->slots * regs + reg) * steps_a_reg;
    return p->x + step * p->slots + lane % p->slots;
}

static void read_f32(const mfma_form *f, mfma_type type, const uint32_t *rows, fast_plane *p) {
    const int steps_a_reg = 32 / mfma_formats[type].bits,
              regs = f->k * p->slots / SIM_LANES / steps_a_reg;
    p->steps = f->k;
    for (int lane = 0; lane < SIM_LANES; lane += MFMA_STRIP) {
        for (int reg = 0; reg < regs; reg++) {
            mfma_i32 out[2];
            uint32_t *at = plane_at(p, regs, lane, reg, steps_a_reg);
            decode_dwords(f, type, mfma_load(rows + reg * SIM_LANES + lane), out);
            for (int i = 0; i < steps_a_reg; i++)
                mfma_store(at + i * p->slots, out[i]);
        }
    }
}

// ---- sums

typedef mfma_f32 add_step(mfma_f32 sum, uint32_t a, mfma_i32 b);

MFMA_INLINE mfma_f32 add_f32(mfma_f32 sum, uint32_t a, mfma_i32 b) {
    mfma_f32 x = (mfma_f32)mfma_splat((int32_t)a), y = (mfma_f32)b;
#ifdef __FMA__
    return __builtin_elementwise_fma(x, y, sum);
#else
    return sum + x * y;
#endif
}

/** Returns where row `row` lies in C and D, for a cell whose first row and column are given. */
static inline int strip_at(const mfma_form *f, int block, int row, int column) {
    if (f->n == 32)
        return (block * 16 + row / 8 * 4 + row % 4) * SIM_LANES + row / 4 % 2 * 32 + column;
    return (block * 4 + row % 4) * SIM_LANES + row / 4 * 16;
}

/** Multiplies 16 rows of A by 16 columns of B. d may be c. */
MFMA_INLINE void run_cell(const mfma_form *f, const fast_plane *a, const fast_plane *b, int block,
                          int row, int column, const uint32_t *c, uint32_t *d, add_step *add) {
    mfma_f32 sum[CELL];
    for (int i = 0; i < CELL; i++)
        sum[i] = (mfma_f32)mfma_load(c + strip_at(f, block, row + i, column));
    const uint32_t *x = a->x + block * f->m + row, *y = b->x + block * f->n + column;
    for (int step = 0; step < a->steps; step++, x += a->slots, y += b->slots) {
        mfma_i32 columns = mfma_load(y);
#pragma clang loop unroll(full)
        for (int i = 0; i < CELL; i++)
            sum[i] = add(sum[i], x[i], columns);
    }
    for (int i = 0; i < CELL; i++) {
        mfma_i32 result =
            mfma_select(sum[i] != sum[i], mfma_splat((int32_t)MFMA_NAN32), (mfma_i32)sum[i]);
        mfma_store(d + strip_at(f, block, row + i, column), result);
    }
}

MFMA_INLINE void run_cells(const mfma_form *f, const fast_plane *a, const fast_plane *b,
                           const uint32_t *c, uint32_t *d, add_step *add) {
    for (int block = 0; block < f->blocks; block++) {
        for (int row = 0; row < f->m; row += CELL)
            for (int column = 0; column < f->n; column += CELL)
                run_cell(f, a, b, block, row, column, c, d, add);
    }
}

static void run_f32(const mfma_form *f, const fast_plane *a, const fast_plane *b, const uint32_t *c,
                    uint32_t *d) {
    run_cells(f, a, b, c, d, add_f32);
}

// ---- 8-bit floats as pairs of bf16

#ifdef __AVX512F__
#pragma clang attribute push(__attribute__((target("avx512vbmi,avx512bf16"))), apply_to = function)

/** The bytes of the bf16 number, by the 7 bits below the sign. */
typedef struct bf16_tables {
    _Alignas(64) uint8_t high[128], low[128];
} bf16_tables;

static bf16_tables tables[MFMA_NUM_TYPES];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    static const mfma_type types[] = {MFMA_FP8, MFMA_BF8, MFMA_FP8_FNUZ, MFMA_BF8_FNUZ};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (int bits = 0; bits < 128; bits++) {
            mfma_term t = mfma_decode(types[i], (uint64_t)bits);
            float value = ldexpf((float)t.m, t.e - mfma_formats[types[i]].fraction);
            uint32_t word;
            memcpy(&word, &value, sizeof word);
            tables[types[i]].high[bits] = (uint8_t)(word >> 24);
            tables[types[i]].low[bits] = (uint8_t)(word >> 16);
        }
    }
}

static inline __m512i look_up(const uint8_t *table, __m512i bytes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes, _mm512_load_si512(table + 64));
}

static inline __mmask64 specials(mfma_type type, __m512i bytes) {
    __m512i below_sign = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
    switch (mfma_formats[type].specials) {
    case MFMA_FNUZ:
        return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-128));
    case MFMA_FN:
        return _mm512_cmpeq_epi8_mask(below_sign, _mm512_set1_epi8(0x7f));
    default:
        return _mm512_cmpge_epi8_mask(below_sign, _mm512_set1_epi8(0x7c));
    }
}

/** Returns which bytes make the pairs of k 0 and 1 (pair 0) or of k 2 and 3 of each dword: 0 to 63
 *  are low bytes, 64 and up high ones. */
static inline __m512i pair_bytes(int pair) {
    __m512i dword = _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    __m512i all = _mm512_mullo_epi32(dword, _mm512_set1_epi32(0x01010101));
    return _mm512_add_epi8(all, _mm512_set1_epi32(pair == 0 ? 0x41014000 : 0x43034202));
}

/** Reads A or B as pairs. Returns false if there is an Inf or a NaN. */
static inline bool read_pairs(const mfma_form *f, mfma_type type, const uint32_t *rows,
                              fast_plane *p) {
    const bf16_tables *t = &tables[type];
    const int regs = f->k * p->slots / SIM_LANES / 4;
    __mmask64 bad = 0;
    p->steps = f->k / 2;
    for (int lane = 0; lane < SIM_LANES; lane += MFMA_STRIP) {
        for (int reg = 0; reg < regs; reg++) {
            __m512i bytes = _mm512_loadu_si512(rows + reg * SIM_LANES + lane);
            __m512i sign = _mm512_and_si512(bytes, _mm512_set1_epi8(-128));
            __m512i high = _mm512_or_si512(look_up(t->high, bytes), sign);
            __m512i low = look_up(t->low, bytes);
            uint32_t *at = p->x + mfma_k_of(f, 0, lane, 4 * reg) / 2 * p->slots + lane % p->slots;
            bad |= specials(type, bytes);
            _mm512_storeu_si512(at, _mm512_permutex2var_epi8(low, pair_bytes(0), high));
            _mm512_storeu_si512(at + p->slots, _mm512_permutex2var_epi8(low, pair_bytes(1), high));
        }
    }
    return bad == 0;
}

MFMA_INLINE mfma_f32 add_pair(mfma_f32 sum, uint32_t a, mfma_i32 b) {
    return (mfma_f32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a),
                                      (__m512bh)b);
}

static void run_pairs(const mfma_form *f, const fast_plane *a, const fast_plane *b,
                      const uint32_t *c, uint32_t *d) {
    run_cells(f, a, b, c, d, add_pair);
}

#pragma clang attribute pop
#endif

// ---- execution

typedef void run_planes(const mfma_form *f, const fast_plane *a, const fast_plane *b,
                        const uint32_t *c, uint32_t *d);

/** Reads A and B. Returns the function that multiplies them, or null if the rules do that. */
static run_planes *read_planes(const mfma_form *f, const uint32_t *const rows[2],
                               fast_plane planes[2]) {
    mfma_type types[] = {(mfma_type)f->a_type, (mfma_type)f->b_type};
    if (f->rule != MFMA_SPLIT) {
        read_f32(f, types[0], rows[0], &planes[0]);
        read_f32(f, types[1], rows[1], &planes[1]);
        return run_f32;
    }
#ifdef __AVX512F__
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16")) {
        pthread_once(&tables_once, fill_tables);
        bool ordinary = read_pairs(f, types[0], rows[0], &planes[0]);
        ordinary &= read_pairs(f, types[1], rows[1], &planes[1]);
        return ordinary ? run_pairs : nullptr;
    }
#endif
    return nullptr;
}

static bool has_fast_form(const mfma_form *f, const sim_inst *inst) {
    const bool is_float =
        f->rule == MFMA_FUSED || f->rule == MFMA_SPLIT || f->rule == MFMA_PAIRWISE;
    if (f->group == MFMA_SCALE_BLOCK)
        return mfma_is_plain_f8(inst);
    return is_float && f->n >= CELL && !inst->cbsz && !inst->blgp;
}

/** Returns C's rows, or a copy of them that D may overwrite. */
static const uint32_t *rows_of_c(const mfma_form *f, sim_wave *w, const sim_inst *inst,
                                 uint32_t copy[][SIM_LANES]) {
    const sim_operand *c = &inst->src[2];
    const int regs = mfma_num_results(f), apart = inst->dst[0].reg - c->reg;
    if (c->kind == SIM_OP_VGPR && (apart == 0 || apart >= regs || -apart >= regs))
        return mfma_rows(w, c);
    if (c->kind == SIM_OP_VGPR) {
        memcpy(copy, mfma_rows(w, c), (size_t)regs * sizeof copy[0]);
        return copy[0];
    }
    for (int i = 0; i < regs * SIM_LANES; i += MFMA_STRIP)
        mfma_store(copy[0] + i, mfma_splat((int32_t)c->value));
    return copy[0];
}

bool mfma_exec_fast(sim_wave *w, const sim_inst *inst) {
    const mfma_form form = mfma_typed_form(inst), *f = &form;
    if (!has_fast_form(f, inst))
        return false;
    fast_plane planes[2];
    planes[0].slots = planes[1].slots = f->m * f->blocks;
    const uint32_t *rows[] = {mfma_rows(w, &inst->src[0]), mfma_rows(w, &inst->src[1])};
    run_planes *run = read_planes(f, rows, planes);
    if (run) {
        _Alignas(64) uint32_t copy[32][SIM_LANES];
        const uint32_t *c = rows_of_c(f, w, inst, copy);
        run(f, &planes[0], &planes[1], c, mfma_rows(w, &inst->dst[0]));
    }
    return run;
}
