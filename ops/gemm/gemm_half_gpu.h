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
#include "copy.h"
#include "gemm_full_gpu.h"
#include "mma/cdna_halves.h"

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
enum { ROW_BYTES = 128, PIECES = 8, BLOCK_K = ROW_BYTES / ELEMENT };
enum {
    TILES = MT * NT,
    STEPS = 4 * TILES, // MFMAs of a K-block
    READS = MT + NT,   // of a half
    EIGHT_BYTES = 8 * ROW_BYTES + QK_PAD,
    STAGE_BYTES = (TM + TN) / 8 * EIGHT_BYTES,
};
// How d leaves through LDS: PASS of the MT rows of tiles at once, in pieces of 16 bytes. Pieces are
// swizzled, or a row has an odd number of them, so that columns of pieces touch all banks.
enum {
    D_PIECES = TN / 8,
    IS_SWIZZLED = D_PIECES % 8 == 0,
    D_PITCH = IS_SWIZZLED ? D_PIECES : D_PIECES | 1,
    PASS_ROWS = 16 * WAVE_ROWS, // of d, for a row of tiles
    PASS = MT * PASS_ROWS * D_PITCH * 16 <= STAGE_BYTES ? MT : MT / 2,
    RESULT_PITCH = TN / 4 + 1, // the same of f32
    HAS_CODES = 128 % TN == 0, // d may be FP8
};
static_assert(PASS * PASS_ROWS * D_PITCH * 16 <= STAGE_BYTES);
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

/** Starts the sums, and says where the wave's operands lie in a stage. */
QD_INLINE void begin(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
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
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w->sum[m][n] = 0;
}

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
        if (line >= TM && row < w->columns)
            piece = load_piece(b + row * g->b_n, QK_B_ACROSS, g->b_k, k, g->k);
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

/** Returns whether store_pass() can store the tile: whole rows of 16 bits as they are. */
QD_INLINE bool has_whole_rows(const qk_gemm_args *g, uint32_t n0) {
    const bool is_aligned = (uintptr_t)g->d % 16 == 0 && (g->d_row | g->d_group) % 8 == 0;
    const bool has_halves = g->type_d == QK_BF16 || g->type_d == QK_F16;
    return is_aligned && has_halves && !g->c && !g->has_epilogue && n0 + TN <= g->n;
}

/** Returns the place in LDS of 16-byte piece `piece` of a row of d. */
QD_INLINE QD_LDS uint8_t *piece_at(uint32_t row, uint32_t piece) {
    return lds0 + (row * D_PITCH + (IS_SWIZZLED ? piece ^ (row % 8) : piece)) * 16;
}

/** Returns which row of the tile row r of PASS rows of tiles is, of which m0 is the first. */
QD_INLINE uint32_t row_of(uint32_t r, uint32_t m0, uint32_t pass) {
    return (r / (16 * pass) * MT + m0) * 16 + r % (16 * pass);
}

/** Stores PASS rows of tiles, from m0 on, of which each row of waves has its own. */
QD_INLINE void store_pass(const products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0, uint32_t m0) {
    const uint32_t lane = qd_lane(), own = w->wave / 2 * PASS * 16 + lane % 16;
    const uint32_t piece = w->wave % 2 * NT * 2 + lane / 32, column = qd_thread() % D_PIECES;
    const bool is_f16 = g->type_d == QK_F16;
    QD_WAIT(0);
    qd_barrier(); // no wave reads LDS any more
    QD_UNROLL for (uint32_t m = 0; m < PASS; m++) QD_UNROLL
        for (uint32_t n = 0; n < NT; n++) {
            const qd_f32x4 v = w->sum[m0 + m][n];
            *(QD_LDS qd_u32x2 *)(piece_at(own + m * 16, piece + n * 2) + lane / 16 % 2 * 8) =
                (qd_u32x2){qk_gemm_pair16(is_f16, v.xy), qk_gemm_pair16(is_f16, v.zw)};
        }
    qd_barrier();
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + n0 + column * 8;
    const uint32_t first = qd_thread() / D_PIECES, step = THREADS / D_PIECES;
    QD_NO_UNROLL for (uint32_t r = first < step ? first : TM; r < PASS * PASS_ROWS; r += step) {
        const uint32_t row = tile->row + row_of(r, m0, PASS);
        bool is_zero;
        if (qk_gemm_writes_row(g, tile, row, &is_zero))
            *(qd_u32x4 *)(d + row * g->d_row) =
                is_zero ? 0 : *(QD_LDS qd_u32x4 *)piece_at(r, column);
    }
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
QD_INLINE void store_runs(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                          const qk_gemm_tile *tile, uint32_t n0, uint32_t m, uint32_t ratio,
                          bool has_codes) {
    const uint32_t lanes = D_PIECES / ratio, step = THREADS / lanes; // lanes: of a row
    const uint32_t thread =
        qd_opaque(qd_thread()); // not computed once for all m: too few registers
    const uint32_t column = thread % lanes * 8, end = g->n / ratio, first = thread / lanes;
    QD_NO_UNROLL for (uint32_t r = first < step ? first : TM; r < PASS_ROWS; r += step) {
        const uint32_t row = tile->row + row_of(r, m, 1);
        const qd_f32x8 v = finished(g, r, row, n0, column, ratio);
        if (has_codes)
            qk_gemm_quantize8(g, scaling, tile, row, n0 / ratio + column, end, v);
        else
            qk_gemm_store8(g, tile, row, n0 / ratio + column, end, v);
    }
}

QD_INLINE void store(const products *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                     const qk_gemm_tile *tile, uint32_t n0, uint32_t ratio, bool has_codes) {
    const uint32_t lane = qd_lane(), row = w->wave / 2 * 16 + lane % 16;
    const uint32_t column = w->wave % 2 * NT * 16 + lane / 16 * 4;
    QD_UNROLL for (int m = 0; m < MT; m++) {
        QD_WAIT(0);
        qd_barrier(); // no wave reads LDS any more
        QD_UNROLL for (int n = 0; n < NT; n++)
            *result_at(row, column + (uint32_t)n * 16) = w->sum[m][n];
        qd_barrier();
        store_runs(g, scaling, tile, n0, (uint32_t)m, ratio, has_codes);
    }
}

/** Multiplies the sums by the scales of their row of a and their row of b. */
QD_INLINE void scale_sums(products *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0) {
    const uint32_t lane = qd_lane(), column = w->wave % 2 * NT * 16 + lane / 16 * 4;
    float a[MT], b;
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = qd_min((w->wave / 2 * MT + m) * 16 + lane % 16, w->rows - 1);
        a[m] = 1;
        if (g->scale_a)
            a[m] = g->scale_a[tile->group * g->scale_a_group + (tile->row + row) * g->scale_a_row];
    }
    QD_UNROLL for (uint32_t i = 0; i < NT * 4; i++) {
        const uint32_t at = n0 + qd_min(column + i / 4 * 16 + i % 4, w->columns - 1);
        b = g->scale_b ? g->scale_b[tile->group * g->scale_b_group + at * g->scale_b_nb] : 1;
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
    if (has_whole_rows(&full.g, n0)) {
        QD_UNROLL for (uint32_t m0 = 0; m0 < MT; m0 += PASS)
            store_pass(w, &full.g, tile, n0, m0);
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
