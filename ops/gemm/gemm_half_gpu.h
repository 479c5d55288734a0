// SPDX-License-Identifier: Apache-2.0
// What the gemm kernels of bf16, with -DQK_IS_F16 of f16, with -DQK_IS_FP8 of FP8, on CDNA share:
// products of a stage of LDS, and how d leaves. The files that include it differ in how stages are
// filled.
//
// Tile      TM x TN x 64, of FP8 TM x TN x 128, with TM = 8 MT WAVES, TN = 32 NT; WAVES / 2 x 2
//           waves, each MT x NT tiles of 16 x 16
// Launch    64 WAVES threads; grid = tiles_m * tiles_n (* groups when masked)
// LDS       a stage is rows of 128 bytes, a's first. Piece c of 16 bytes of row r stands at place
//           c ^ (r & 7) of the row, so that the eight lanes of a read's phase touch all banks.
//           Behind each eight rows are QK_PAD bytes
// Registers 4 MT NT sums; a whole K-block of operands, in two halves of 32 k
// Edges     rows past a's or b's end are copies of the last one, whose results nobody stores; what
//           the loop leaves of k goes through registers (run_last), as zeros past its end
// Sum       one chain for each element of d, through k in the order of gemm_any's products
// Scales    of FP8: one for a row of a or all of it, one for a row of b or all of it, behind the
//           loop. gemm_flat_gpu.c, with QK_HAS_RUNS, has those of K-blocks in its own loop
// Source    manual "CDNA3", matrix chapter, for the lane layouts; checked by the simulator's MFMA
//           tests
#ifndef QK_GEMM_HALF_GPU_H
#define QK_GEMM_HALF_GPU_H

#define QK_FULL // one image has all forms of a product's end, which acts behind the loop
#include "buffer_store.h"
#include "copy.h"
#include "gemm_full_gpu.h"
#include "mma/cdna_halves.h"
#include "narrow.h"

#ifdef QK_IS_F16
enum { IS_F16 = 1 };
#else
enum { IS_F16 = 0 };
#endif
#ifdef QK_IS_FP8
enum { ELEMENT = 1 }; // bytes
typedef uint8_t element;
#else
enum { ELEMENT = 2 };
typedef uint16_t element;
#endif
#ifndef QK_A_ACROSS
#define QK_A_ACROSS 0 // 1: m, not k, is contiguous in a
#endif
#ifndef QK_B_ACROSS
#define QK_B_ACROSS 0 // 1: n is contiguous in b
#endif
#if defined(QK_IS_FP8) && !defined(QK_HAS_RUNS)
enum { HAS_FACTORS = 1 }; // scales of rows or of all
#else
enum { HAS_FACTORS = 0 };
#endif
enum { MT = QK_MT, NT = QK_NT, WAVES = QK_WAVES, THREADS = 64 * WAVES };
enum { WAVE_ROWS = WAVES / 2, TM = 16 * MT * WAVE_ROWS, TN = 32 * NT };
#ifdef QK_HAS_RUNS
enum { IS_PAIRED = 0 };
#else
enum { IS_PAIRED = !QK_B_ACROSS }; // column_in() says what for
#endif
enum { ROW_BYTES = 128, PIECES = 8, BLOCK_K = ROW_BYTES / ELEMENT };
enum {
    TILES = MT * NT,
    STEPS = 4 * TILES, // MFMAs of a K-block
    READS = MT + NT,   // of a half
    EIGHT_BYTES = 8 * ROW_BYTES + QK_PAD,
    STAGE_BYTES = (TM + TN) / 8 * EIGHT_BYTES,
};
// How d leaves: from registers, in runs of a lane's neighbouring columns; or through LDS, a row of
// tiles at once, in f32.
enum {
    TYPE_D = IS_F16 ? QK_F16 : QK_BF16, // that leaves from registers
    D_PIECES = TN / 8,
    PASS_ROWS = 16 * WAVE_ROWS, // of d, for a row of tiles
    RESULT_PITCH = TN / 4 + 1,  // of LDS, in 16 bytes: odd, so that columns touch all banks
    HAS_CODES = 128 % TN == 0,  // d may be FP8
};
static_assert(PASS_ROWS * RESULT_PITCH * 16 <= STAGE_BYTES);

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds0[STAGE_BYTES]
    __attribute__((aligned(128)));

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct products {
    uint32_t wave, rows, columns;          // rows, columns: the tile's that exist
    uint32_t read_a[2], read_b[2];         // this lane's piece of its row, of each half, in a stage
    qd_u32x4 a_tile[2][MT], b_tile[2][NT]; // of each half
    qd_f32x4 sum[MT][NT];
} products;

/** Returns where 16-byte piece `piece` of a row lies in a stage. */
QD_INLINE uint32_t swizzle(uint32_t row, uint32_t piece) {
#ifdef QK_HAS_RUNS // lanes that write eight bytes of two rows touch all banks, too
    const uint32_t turn = (row & 4) | (row & 1) << 1 | (row & 2) >> 1;
#else
    const uint32_t turn = row & 7;
#endif
    return row / 8 * EIGHT_BYTES + row % 8 * ROW_BYTES + (piece ^ turn) * 16;
}

/** Returns which of b's rows, which are columns of d, stands in row r of those of a stage. In two
 *  tiles of a wave, fours of rows take turns: so a lane, which has four neighbouring rows of each
 *  tile's products, has eight neighbouring columns of d. */
QD_INLINE uint32_t column_in(uint32_t r) {
    const uint32_t in = r % (16 * NT), i = r % 16;
    if (!IS_PAIRED || in >= NT / 2 * 32)
        return r;
    return r - in % 32 + i / 4 * 8 + in / 16 % 2 * 4 + i % 4;
}

/** Returns the first of this lane's four columns of tile n. */
QD_INLINE uint32_t column_of(uint32_t wave, uint32_t n) {
    const uint32_t first = wave % 2 * NT * 16, four = qd_lane() / 16;
    if (!IS_PAIRED || n >= NT / 2 * 2)
        return first + n * 16 + four * 4;
    return first + n / 2 * 32 + four * 8 + n % 2 * 4;
}

/** Reads operand i of a half: a's tiles, then b's. */
QD_INLINE void read(products *w, QD_LDS uint8_t *stage, int half, int i) {
    if (i < MT)
        w->a_tile[half][i] = *(QD_LDS qd_u32x4 *)(stage + w->read_a[half] + i * 2 * EIGHT_BYTES);
    else
        w->b_tile[half][i - MT] =
            *(QD_LDS qd_u32x4 *)(stage + w->read_b[half] + (i - MT) * 2 * EIGHT_BYTES);
}

#ifndef QK_HAS_RUNS
/** Runs MFMA s of a block. The result has b's rows as rows and a's as columns: a lane has four
 *  neighbouring columns of a row of d. */
QD_INLINE void multiply(products *w, int s) {
    const int half = s / (2 * TILES), m = s % TILES / NT, n = s % NT;
#ifdef QK_IS_FP8
    const qd_i64x2 x = __builtin_bit_cast(qd_i64x2, w->b_tile[half][n]);
    const qd_i64x2 y = __builtin_bit_cast(qd_i64x2, w->a_tile[half][m]);
    w->sum[m][n] =
        s / TILES % 2 ? qd_mma16_fp8(x.y, y.y, w->sum[m][n]) : qd_mma16_fp8(x.x, y.x, w->sum[m][n]);
#else
    w->sum[m][n] =
        qd_mma16_half(IS_F16, w->b_tile[half][n], w->a_tile[half][m], s / TILES % 2, w->sum[m][n]);
#endif
}

#endif

/** Says which rows the tile has and where the wave's operands lie in a stage. */
QD_INLINE void find_operands(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                             uint32_t n0) {
    const uint32_t lane = qd_lane();
    w->wave = qd_wave();
    w->rows = tile->row < tile->end ? qd_min(tile->end - tile->row, TM) : 0;
    w->columns = qd_min(g->n - n0, TN);
    const uint32_t row = w->wave / 2 * MT * 16 + lane % 16;
    const uint32_t column = TM + w->wave % 2 * NT * 16 + lane % 16;
    QD_UNROLL for (uint32_t half = 0; half < 2; half++) {
        w->read_a[half] = swizzle(row, half * 4 + lane / 16);
        w->read_b[half] = swizzle(column, half * 4 + lane / 16);
    }
}

#ifdef QK_HAS_RUNS
/** Does the same and starts the sums. */
QD_INLINE void begin(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    find_operands(w, g, tile, n0);
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w->sum[m][n] = 0;
}
#else
/** Starts the sums here, not where the compiler would: while the first loads are under way. */
QD_INLINE void clear_sums(products *w) {
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++) {
            w->sum[m][n] = 0;
            asm volatile("" : "+v"(w->sum[m][n]));
        }
}
#endif

#ifndef QK_HAS_RUNS
/** Loads 16 bytes of a row from element k on; those past the end are zero. `step` is k's stride if
 *  rows lie across. */
QD_INLINE qd_u32x4 load_piece(const element *row, bool is_across, int64_t step, uint32_t k,
                              uint32_t num_k) {
    if (ELEMENT == 1)
        return qk_gemm_load_piece((const uint8_t *)row, k, num_k);
    if (!is_across && k + 8 <= num_k && ((uintptr_t)(row + k)) % 16 == 0)
        return *(const qd_u32x4 *)(row + k);
    qd_u32x4 out = 0;
    QD_UNROLL for (uint32_t i = 0; i < 8; i++)
        if (k + i < num_k)
            out[i / 2] |= (uint32_t)row[is_across ? (k + i) * step : k + i] << (i % 2 * 16);
    return out;
}

/** Runs one K-block, whole or not, through registers. Nothing past a row's end is read. */
QD_INLINE void run_last(products *w, const qk_gemm_args *g, const element *a, const element *b,
                        uint32_t block) {
    qd_barrier();
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < (TM + TN) * PIECES; i += THREADS) {
        const uint32_t line = i / PIECES, row = line < TM ? line : line - TM;
        const uint32_t k = block * BLOCK_K + i % PIECES * (16 / ELEMENT);
        qd_u32x4 piece = 0;
        if (line < TM && row < w->rows)
            piece = load_piece(a + row * g->a_row, QK_A_ACROSS, g->a_k, k, g->k);
        if (line >= TM && column_in(row) < w->columns)
            piece = load_piece(b + column_in(row) * g->b_n, QK_B_ACROSS, g->b_k, k, g->k);
        *(QD_LDS qd_u32x4 *)(lds0 + swizzle(line, i % PIECES)) = piece;
    }
    QD_WAIT(0);
    qd_barrier();
    QD_UNROLL for (int half = 0; half < 2; half++) QD_UNROLL
        for (int i = 0; i < READS; i++)
            read(w, lds0, half, i);
    QD_UNROLL for (int s = 0; s < STEPS; s++)
        multiply(w, s);
}

#endif

// ---- storing

/** What the end of a product reads of a lane's run of columns, as it lies in memory. */
typedef struct inputs {
    qd_u32x4 bias, gate, c[MT];
} inputs;

/** Where a tile's rows of d begin, and those of c. A lane has `row` bytes to each of its rows; what
 *  it must not touch lies PAST_ROWS or PAST_COLUMNS farther, or both, behind all that exists. */
typedef struct places {
    __amdgpu_buffer_rsrc_t d, c;
    uint32_t d_row[MT], c_row[MT];
} places;
constexpr uint32_t PAST_COLUMNS = 0x40000000, PAST_ROWS = 0x80000000;

/** Returns whether rows of a matrix of 16 bits are made of whole runs of 16 bytes, and a tile's lie
 *  within a GiB. */
QD_INLINE bool has_runs(const void *data, int64_t row, int64_t group) {
    return (uintptr_t)data % 16 == 0 && (row | group) % QD_RUN == 0 &&
           row < PAST_COLUMNS / (2 * TM) - TN;
}

/** Returns which row of gates row `row` of d has. */
QD_INLINE uint32_t batch_of(const qk_gemm_args *g, uint32_t row) {
    return g->gate ? row / g->gate_rows : 0;
}

/** Returns whether store_runs() can store the tile: all that it touches has 16 bits and whole runs,
 *  and its rows have the same gates. */
QD_INLINE bool is_of_runs(const products *w, const qk_gemm_args *g, const qk_gemm_tile *tile) {
    if (g->type_d != TYPE_D || g->n % QD_RUN || !has_runs(g->d, g->d_row, g->d_group))
        return false;
    if (g->c && !has_runs(g->c, g->c_row, 0))
        return false;
    if (g->bias && (g->type_bias != QK_BF16 || !has_runs(g->bias, 0, 0)))
        return false;
    if (g->gate && (g->type_gate != QK_BF16 || !has_runs(g->gate, 0, g->gate_batch)))
        return false;
    const uint32_t last = tile->row + qd_max(w->rows, 1) - 1;
    return g->activation != QK_SILU_AND_MUL && batch_of(g, tile->row) == batch_of(g, last);
}

/** Finds the rows of d that are the group's own or, if `is_zero`, those that become zero. */
QD_INLINE void find_places(places *p, const products *w, const qk_gemm_args *g,
                           const qk_gemm_tile *tile, uint32_t n0, bool is_zero) {
    const uint32_t group = qd_uniform(tile->group), first = qd_uniform(tile->row);
    p->d = qd_buffer((uint16_t *)g->d + group * g->d_group + first * g->d_row + n0, PAST_COLUMNS);
    if (g->c)
        p->c = qd_buffer((const uint16_t *)g->c + first * g->c_row + n0, PAST_COLUMNS);
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = (w->wave / 2 * MT + m) * 16 + qd_lane() % 16;
        bool becomes_zero;
        const bool writes = qk_gemm_writes_row(g, tile, first + row, &becomes_zero);
        const bool is_own = writes && becomes_zero == is_zero;
        p->d_row[m] = is_own ? row * (uint32_t)g->d_row * 2 : PAST_ROWS;
        p->c_row[m] = is_own ? row * (uint32_t)g->c_row * 2 : PAST_ROWS;
    }
}

/** Loads a run of `count` elements, 8 or 4; the others are zero. */
QD_INLINE qd_u32x4 load_run(const uint16_t *p, uint32_t count) {
    if (count == QD_RUN)
        return *(const qd_u32x4 *)p;
    const qd_u32x2 half = *(const qd_u32x2 *)p;
    return (qd_u32x4){half.x, half.y};
}

/** Loads what the end of a run reads; of bias and gates for columns past the last run, that one. c
 *  may be d, so that a lane loads no more of it than it stores. `batch` is which row of gates the
 *  tile's rows have. */
QD_INLINE void load_inputs(inputs *in, const qk_gemm_args *g, const places *p, uint32_t batch,
                           uint32_t n0, uint32_t column, uint32_t count) {
    const uint32_t own = n0 + column < g->n ? column * 2 : PAST_COLUMNS;
    column = qd_min(column, g->n - n0 - count);
    if (g->bias)
        in->bias = load_run((const uint16_t *)g->bias + n0 + column, count);
    if (g->gate)
        in->gate = load_run((const uint16_t *)g->gate + batch * g->gate_batch + n0 + column, count);
    if (g->c) QD_UNROLL
        for (int m = 0; m < MT; m++) {
            const uint32_t at = p->c_row[m] + own;
            if (count == QD_RUN)
                in->c[m] = qd_buffer_load4(p->c, at, 0);
            else
                in->c[m].xy = qd_buffer_load2(p->c, at, 0);
        }
}

/** Does to four values what qd_gelu_tanh does to one: instructions that take two do some steps. */
QD_INLINE qd_f32x4 gelu4(qd_f32x4 x) {
    const qd_f32x4 cube = -0x1.a5a7dp-4f, slope = -0x1.26aec2p+1f;
    const qd_f32x4 y = x * __builtin_elementwise_fma(x * x, cube, slope);
    qd_f32x4 part;
    QD_UNROLL for (int i = 0; i < 4; i++)
        part[i] = qd_rcp(1.0f + qd_exp2_flushed(y[i]));
    return x * part;
}

/** Returns four of a run's elements. */
QD_INLINE qd_f32x4 part_of(int dtype, qd_u32x4 run, uint32_t part) {
    const qd_f32x8 v = qd_from_16(dtype, run);
    return part ? __builtin_shufflevector(v, v, 4, 5, 6, 7)
                : __builtin_shufflevector(v, v, 0, 1, 2, 3);
}

/** Turns four columns of products of each row, in the `part` of a run, into those of d. */
QD_INLINE void end_part(const qk_gemm_args *g, const inputs *in, uint32_t part, qd_f32x4 v[MT]) {
    if (g->bias) QD_UNROLL
        for (int m = 0; m < MT; m++)
            v[m] += part_of(QD_BF16, in->bias, part);
    if (g->activation == QK_GELU_TANH) QD_UNROLL
        for (int m = 0; m < MT; m++)
            v[m] = gelu4(v[m]);
    if (g->gate) QD_UNROLL
        for (int m = 0; m < MT; m++)
            v[m] *= part_of(QD_BF16, in->gate, part);
    if (g->c) QD_UNROLL
        for (int m = 0; m < MT; m++)
            v[m] += part_of(TYPE_D, in->c[m], part);
}

/** Stores four values or, if `high` is there, eight. Their NaNs are those of products of codes or
 *  16-bit values, or of short scales. */
QD_INLINE void store_run(const places *p, int m, uint32_t at, qd_f32x4 low, const qd_f32x4 *high) {
    const qd_f32x4 none = 0;
    const qd_u32x4 out = qd_short_to_16(
        TYPE_D, __builtin_shufflevector(low, high ? *high : none, 0, 1, 2, 3, 4, 5, 6, 7));
    if (high)
        qd_buffer_store4(p->d, p->d_row[m] + at, out);
    else
        qd_buffer_store2(p->d, p->d_row[m] + at, out.xy);
}

/** Stores the runs that begin with tile n of b, of `parts` fours of columns. */
QD_INLINE void end_runs(const products *w, const qk_gemm_args *g, const places *p, const inputs *in,
                        uint32_t n0, uint32_t n, uint32_t parts) {
    const uint32_t column = column_of(w->wave, n);
    const uint32_t at = n0 + column < g->n ? column * 2 : PAST_COLUMNS;
    qd_f32x4 v[2][MT];
    QD_UNROLL for (uint32_t part = 0; part < parts; part++) {
        QD_UNROLL for (int m = 0; m < MT; m++)
            v[part][m] = w->sum[m][n + part];
        if (in)
            end_part(g, in, part, v[part]);
    }
    QD_UNROLL for (int m = 0; m < MT; m++)
        store_run(p, m, at, v[0][m], parts == 2 ? &v[1][m] : nullptr);
}

/** Stores zeros in rows that are padding. */
QD_INLINE void store_zeros(const products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                           uint32_t n0) {
    places p;
    find_places(&p, w, g, tile, n0, true);
    QD_NO_UNROLL for (uint32_t n = 0; n < NT; n++) {
        const uint32_t column = column_of(w->wave, n);
        QD_UNROLL for (int m = 0; m < MT; m++)
            store_run(&p, m, n0 + column < g->n ? column * 2 : PAST_COLUMNS, 0, nullptr);
    }
}

/** Stores the tile from registers. What a run's end reads is on its way while the run before it is
 *  stored. `has_steps`, whether there is more than the products, is a constant. */
QD_INLINE void store_runs(const products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0, bool has_steps) {
    constexpr uint32_t pairs = IS_PAIRED ? NT / 2 : 0, runs = NT - pairs;
    const uint32_t batch = has_steps ? batch_of(g, tile->row) : 0;
    places p;
    inputs in[2];
    find_places(&p, w, g, tile, n0, false);
    QD_UNROLL for (uint32_t i = 0; i <= runs; i++) {
        const uint32_t n = i < pairs ? 2 * i : i + pairs;
        if (has_steps && i < runs)
            load_inputs(&in[i % 2], g, &p, batch, n0, column_of(w->wave, n), i < pairs ? 8 : 4);
        if (i > 0)
            end_runs(w, g, &p, has_steps ? &in[(i - 1) % 2] : nullptr, n0,
                     i <= pairs ? 2 * i - 2 : i + pairs - 1, i <= pairs ? 2 : 1);
    }
    if (tile->zero_end > tile->end)
        store_zeros(w, g, tile, n0);
}

/** Returns the place in LDS of column `column` and the three behind it, of row `row` of those that
 *  take part. */
QD_INLINE QD_LDS qd_f32x4 *result_at(uint32_t row, uint32_t column) {
    return (QD_LDS qd_f32x4 *)(lds0 + (row * RESULT_PITCH + column / 4) * 16);
}

/** Returns eight columns of d, of which the first is `column` of the tile's columns of d. */
QD_INLINE qd_f32x8 finished(const qk_gemm_args *g, uint32_t r, uint32_t row, uint32_t n0,
                            uint32_t column, uint32_t ratio) {
    qd_f32x4 part[4];
    QD_UNROLL for (uint32_t i = 0; i < 2 * ratio; i++) {
        const uint32_t at = column * ratio + 4 * i;
        part[i] = *result_at(r, at);
        if (g->has_epilogue)
            part[i] = qk_gemm_finish_full(g, row, n0 + at, ratio, part[i]);
    }
    if (ratio == 2) {
        part[0] = __builtin_shufflevector(part[0], part[1], 0, 1, 4, 5);
        part[1] = __builtin_shufflevector(part[2], part[3], 0, 1, 4, 5);
    }
    return __builtin_shufflevector(part[0], part[1], 0, 1, 2, 3, 4, 5, 6, 7);
}

/** Stores the rows in LDS, tile row m of each row of waves. `has_codes`, like ratio, is a
 *  constant. */
QD_INLINE void store_row(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                         const qk_gemm_tile *tile, uint32_t n0, uint32_t m, uint32_t ratio,
                         bool has_codes) {
    const uint32_t lanes = D_PIECES / ratio, step = THREADS / lanes; // lanes: of a row
    const uint32_t thread =
        qd_opaque(qd_thread()); // not computed once for all m: too few registers
    const uint32_t column = thread % lanes * 8, end = g->n / ratio, first = thread / lanes;
    QD_NO_UNROLL for (uint32_t r = first < step ? first : TM; r < PASS_ROWS; r += step) {
        const uint32_t row = tile->row + (r / 16 * MT + m) * 16 + r % 16;
        const qd_f32x8 v = finished(g, r, row, n0, column, ratio);
        if (has_codes)
            qk_gemm_quantize8(g, scaling, tile, row, n0 / ratio + column, end, v);
        else
            qk_gemm_store8(g, tile, row, n0 / ratio + column, end, v);
    }
}

QD_INLINE void store(const products *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                     const qk_gemm_tile *tile, uint32_t n0, uint32_t ratio, bool has_codes) {
    const uint32_t row = w->wave / 2 * 16 + qd_lane() % 16;
    QD_NO_UNROLL for (uint32_t m = 0; m < MT; m++) { // code for one m is a quarter as long
        QD_WAIT(0);
        qd_barrier(); // no wave reads LDS any more
        QD_UNROLL for (uint32_t i = 0; i < MT; i++)
            if (i == m) // constants alone index the sums
                QD_UNROLL
                for (uint32_t n = 0; n < NT; n++)
                    *result_at(row, column_of(w->wave, n)) = w->sum[i][n];
        qd_barrier();
        store_row(g, scaling, tile, n0, m, ratio, has_codes);
    }
}

/** Returns a scale, or 1 if there are none. Its NaNs are short, as store_run() needs them. */
QD_INLINE float scale_at(const float *scales, int64_t at) {
    const float scale = scales ? scales[at] : 1;
    return scale == scale ? scale : qd_as_f32(0x7FC00000);
}

/** Multiplies the sums by the one scale of all of a and that of all of b. */
QD_INLINE void scale_alike(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile) {
    const uint32_t group = qd_uniform(tile->group);
    const float scale = scale_at(g->scale_a, group * g->scale_a_group) *
                        scale_at(g->scale_b, group * g->scale_b_group);
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w->sum[m][n] *= scale;
}

/** Multiplies the sums by the scales of their row of a and their row of b. */
QD_INLINE void scale_sums(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0) {
    const uint32_t lane = qd_lane();
    float a[MT], b;
    if (g->scale_a_row == 0 && g->scale_b_nb == 0) { // these take less time
        scale_alike(w, g, tile);
        return;
    }
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = qd_min((w->wave / 2 * MT + m) * 16 + lane % 16, w->rows - 1);
        a[m] = scale_at(g->scale_a,
                        tile->group * g->scale_a_group + (tile->row + row) * g->scale_a_row);
    }
    QD_UNROLL for (uint32_t i = 0; i < NT * 4; i++) {
        const uint32_t at = n0 + qd_min(column_of(w->wave, i / 4) + i % 4, w->columns - 1);
        b = scale_at(g->scale_b, tile->group * g->scale_b_group + at * g->scale_b_nb);
        QD_UNROLL for (int m = 0; m < MT; m++)
            w->sum[m][i / 4][i % 4] *= a[m] * b;
    }
}

/** Stores the tile. */
QD_INLINE void finish(products *w, const qk_gemm_full_args *f, const qk_gemm_tile *tile,
                      uint32_t n0) {
    const qk_gemm_full_args full = qk_gemm_reread(f, tile);
    if (HAS_FACTORS && w->rows > 0 && full.g.k > 0)
        scale_sums(w, &full.g, tile, n0);
    if (is_of_runs(w, &full.g, tile)) {
        if (full.g.c || full.g.has_epilogue)
            store_runs(w, &full.g, tile, n0, true);
        else
            store_runs(w, &full.g, tile, n0, false);
        return;
    }
    QK_GEMM_EACH_RATIO(&full.g, {
        if (HAS_CODES && qk_gemm_has_codes(&full.g))
            store(w, &full.g, &full.scaling, tile, n0, ratio, true);
        else
            store(w, &full.g, &full.scaling, tile, n0, ratio, false);
    })
}

#endif
