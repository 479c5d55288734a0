// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, or with -DQK_IS_F16 of f16, on CDNA's matrix cores, k contiguous: d = c + a b^T.
//
// Needs     v_mfma_f32_16x16x16, copies to LDS (gfx90a, gfx942, gfx950); rows of a and b at
//           multiples of four bytes
// Tile      TM x TN x 64 with TM = 32 MT, TN = 32 NT; 2 x 2 waves, each MT x NT tiles of 16 x 16
// Launch    256 threads; grid = tiles_m * tiles_n (* groups when masked), order of qk_gemm_order
// LDS       STAGES stages of TM + TN rows of 128 bytes, a's first; 16-byte piece c of row r stands
//           at c ^ (r & 7), so that the eight lanes of a read's phase touch all banks
// Registers 4 MT NT sums; a whole K-block of operands, in two halves of 32 k
// Edges     rows past a's or b's end are copies of the last one, whose results nobody stores; what
//           the loop leaves of k goes through registers (run_last), as zeros past its end
// Schedule  A K-block of 64 runs 4 MT NT MFMAs, the half of k = 0..31 first; a pin ends each step.
//           Step 0 on: reads of the second half. Then the waves meet, as all have read the stage,
//           and copies of the block STAGES later overwrite it. They meet again when the next
//           block's copies have landed, whose first half is read into the registers of this block's
//           first half, which are free by then. With one stage the copies have half a block to
//           land, and a second workgroup on the compute unit multiplies meanwhile.
// Sum       one chain for each element of d, through k in the order of gemm_any's products
// Source    manual "CDNA3", matrix chapter, for the lane layouts; checked by the simulator's MFMA
//           tests
#define QK_FULL // one image has all forms of a product's end, which acts behind the loop
#include "copy.h"
#include "gemm_full_gpu.h"
#include "mma/cdna_halves.h"

#ifdef QK_IS_F16
enum { IS_F16 = 1 };
#else
enum { IS_F16 = 0 };
#endif
enum { MT = QK_MT, NT = QK_NT, STAGES = QK_STAGES, WAVES = 4, THREADS = 64 * WAVES };
enum { TM = 32 * MT, TN = 32 * NT, BLOCK_K = 64, ROW_BYTES = 128, PIECES = 8 };
enum {
    TILES = MT * NT,
    STEPS = 4 * TILES, // MFMAs of a K-block
    READS = MT + NT,   // of a half
    FETCH_A = TM / 8,
    FETCH_B = TN / 8, // copies of a wave, each of two rows
    FETCHES = FETCH_A + FETCH_B,
    EMPTY = READS + 4,                  // the step before which the stage is free
    LANDED = STEPS - READS - TILES / 4, // the step before which the next block has landed
    RATE = QK_RATE,                     // copies a step
};
static_assert(STEPS / 2 <= LANDED && EMPTY + (FETCHES + RATE - 1) / RATE <= LANDED);
static_assert((STAGES - 1) * FETCHES < 64 && (STAGES == 1 || STAGES == 2));
enum { STAGE_BYTES = (TM + TN) * ROW_BYTES };

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds0[STAGE_BYTES]
    __attribute__((aligned(128)));
#if QK_STAGES == 2
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds1[STAGE_BYTES]
    __attribute__((aligned(128)));
#else
#define lds1 lds0
#endif

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    __amdgpu_buffer_rsrc_t a, b;
    uint32_t wave, rows, columns;          // rows, columns: the tile's that exist
    uint32_t offset[FETCHES];              // this lane's, for each copy: a's, then b's
    uint32_t read_a[2], read_b[2];         // this lane's piece of its row, of each half, in a stage
    uint32_t at;                           // where the block to be copied begins in a row, bytes
    qd_u32x4 a_tile[2][MT], b_tile[2][NT]; // of each half
    qd_f32x4 sum[MT][NT];
} wave;

/** Returns where 16-byte piece `piece` of a row lies in a stage. */
QD_INLINE uint32_t swizzle(uint32_t row, uint32_t piece) {
    return row * ROW_BYTES + (piece ^ (row & 7)) * 16;
}

// ---- memory operations

/** Reads operand i of a half: a's tiles, then b's. */
QD_INLINE void read(wave *w, QD_LDS uint8_t *stage, int half, int i) {
    if (i < MT)
        w->a_tile[half][i] = *(QD_LDS qd_u32x4 *)(stage + w->read_a[half] + i * 16 * ROW_BYTES);
    else
        w->b_tile[half][i - MT] =
            *(QD_LDS qd_u32x4 *)(stage + w->read_b[half] + (i - MT) * 16 * ROW_BYTES);
}

/** Starts copying 256 bytes, two rows of this wave, to the stage. */
QD_INLINE void fetch(wave *w, QD_LDS uint8_t *stage, int i) {
    const uint32_t row = i < FETCH_A ? w->wave * (TM / WAVES) + 2 * (uint32_t)i
                                     : TM + w->wave * (TN / WAVES) + 2 * (uint32_t)(i - FETCH_A);
    qd_copy_to_lds(stage + row * ROW_BYTES, i < FETCH_A ? w->a : w->b, w->offset[i], w->at);
}

/** Does the memory operations of step s of a block in `now`; `next` has the block behind it. */
QD_INLINE void memory_step(wave *w, QD_LDS uint8_t *now, QD_LDS uint8_t *next, int s) {
    if (s < READS)
        read(w, now, 1, s);
    if (s >= EMPTY) QD_UNROLL
        for (int i = (s - EMPTY) * RATE; i < (s - EMPTY + 1) * RATE; i++)
            if (i < FETCHES)
                fetch(w, now, i);
    if (s >= LANDED && s - LANDED < READS)
        read(w, next, 0, s - LANDED);
}

// ---- arithmetic

/** Runs MFMA s of a block. The result has b's rows as rows and a's as columns: a lane has four
 *  neighbouring columns of a row of d. */
QD_INLINE void multiply(wave *w, int s) {
    const int half = s / (2 * TILES), m = s % TILES / NT, n = s % NT;
    w->sum[m][n] =
        qd_mma16_half(IS_F16, w->b_tile[half][n], w->a_tile[half][m], s / TILES % 2, w->sum[m][n]);
}

/** Lets the waves meet: then all have read what they had begun to, and of the copies that are under
 *  way, at least the last block's but STAGES - 1 have landed. */
QD_INLINE void meet(void) {
    QD_WAIT((STAGES - 1) * FETCHES);
    qd_meet();
    qd_pin();
}

QD_INLINE void run_block(wave *w, QD_LDS uint8_t *now, QD_LDS uint8_t *next) {
    QD_UNROLL for (int s = 0; s < STEPS; s++) {
        if (s == EMPTY || s == LANDED)
            meet();
        multiply(w, s);
        memory_step(w, now, next, s);
        qd_pin();
    }
}

/** Sets where the copies of a block begin. Past the end they repeat the last of `blocks`, which
 *  nobody reads, so as not to leave the matrix. */
QD_INLINE void aim(wave *w, uint32_t block, uint32_t blocks) {
    w->at = qd_min(block, blocks - 1) * ROW_BYTES;
}

/** Runs whole K-blocks, a multiple of STAGES. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    QD_UNROLL for (int stage = 0; stage < STAGES; stage++) {
        aim(w, (uint32_t)stage, blocks);
        QD_UNROLL for (int i = 0; i < FETCHES; i++)
            fetch(w, stage ? lds1 : lds0, i);
        qd_pin();
    }
    meet();
    QD_UNROLL for (int i = 0; i < READS; i++)
        read(w, lds0, 0, i);
    qd_pin();
    for (uint32_t block = 0; block < blocks; block += STAGES) {
        aim(w, block + STAGES, blocks);
        run_block(w, lds0, lds1);
#if QK_STAGES == 2
        aim(w, block + 1 + STAGES, blocks);
        run_block(w, lds1, lds0);
#endif
    }
    QD_WAIT(0); // the LDS must not change hands while copies are under way
}

/** Loads eight elements of a row from k on; those past the end are zero. */
QD_INLINE qd_u32x4 load_piece(const uint16_t *row, uint32_t k, uint32_t num_k) {
    if (k + 8 <= num_k && ((uintptr_t)(row + k)) % 16 == 0)
        return *(const qd_u32x4 *)(row + k);
    qd_u32x4 out = 0;
    QD_UNROLL for (uint32_t i = 0; i < 8; i++)
        if (k + i < num_k)
            out[i / 2] |= (uint32_t)row[k + i] << (i % 2 * 16);
    return out;
}

/** Runs one K-block, whole or not, through registers. Nothing past a row's end is read. */
QD_INLINE void run_last(wave *w, const qk_gemm_args *g, const uint16_t *a, const uint16_t *b,
                        uint32_t block) {
    qd_barrier();
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < (TM + TN) * PIECES; i += THREADS) {
        const uint32_t line = i / PIECES, row = line < TM ? line : line - TM;
        const uint32_t k = block * BLOCK_K + i % PIECES * 8;
        const uint16_t *from = line < TM ? a + row * g->a_row : b + row * g->b_n;
        qd_u32x4 piece = 0;
        if (row < (line < TM ? w->rows : w->columns))
            piece = load_piece(from, k, g->k);
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

// ---- setting up and storing

/** Returns this lane's offset of two rows of which the first is `row`: of its row, or of the last
 *  one that exists, and of the piece that belongs at the lane's place in LDS. */
QD_INLINE uint32_t offset_of(uint32_t row, uint32_t rows, uint32_t row_bytes) {
    row += qd_lane() / 32;
    const uint32_t k = (qd_lane() / 4 % 8 ^ (row & 7)) * 16 + qd_lane() % 4 * 4;
    return qd_by_all_lanes(qd_min(row, rows - 1) * row_bytes + k);
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const uint16_t *a, const uint16_t *b) {
    const uint32_t lane = qd_lane(), a_bytes = (uint32_t)g->a_row * 2,
                   b_bytes = (uint32_t)g->b_n * 2;
    const uint32_t row = w->wave / 2 * MT * 16 + lane % 16;
    const uint32_t column = TM + w->wave % 2 * NT * 16 + lane % 16;
    w->a = qd_buffer(a, (w->rows - 1) * a_bytes + g->k * 2);
    w->b = qd_buffer(b, (w->columns - 1) * b_bytes + g->k * 2);
    QD_UNROLL for (uint32_t half = 0; half < 2; half++) {
        w->read_a[half] = swizzle(row, half * 4 + lane / 16);
        w->read_b[half] = swizzle(column, half * 4 + lane / 16);
    }
    QD_UNROLL for (uint32_t i = 0; i < FETCH_A; i++)
        w->offset[i] = offset_of(w->wave * (TM / WAVES) + 2 * i, w->rows, a_bytes);
    QD_UNROLL for (uint32_t i = 0; i < FETCH_B; i++)
        w->offset[FETCH_A + i] = offset_of(w->wave * (TN / WAVES) + 2 * i, w->columns, b_bytes);
}

/** Returns whether store_rows() can store the tile: whole rows of 16 bits as they are. */
QD_INLINE bool has_whole_rows(const qk_gemm_args *g, uint32_t n0) {
    const bool is_aligned = (uintptr_t)g->d % 16 == 0 && (g->d_row | g->d_group) % 8 == 0;
    const bool has_halves = g->type_d == QK_BF16 || g->type_d == QK_F16;
    return is_aligned && has_halves && !g->c && !g->has_epilogue && n0 + TN <= g->n;
}

/** Returns the place in LDS of 16-byte piece `piece` of a row of d. */
QD_INLINE QD_LDS uint8_t *piece_at(uint32_t row, uint32_t piece) {
    return lds0 + row * TN * 2 + (piece ^ (row % 8)) * 16;
}

/** Stores the tile through LDS, in pieces of 16 bytes, TN / 8 lanes a row. */
QD_INLINE void store_rows(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0) {
    constexpr uint32_t lanes = TN / 8;
    const uint32_t lane = qd_lane(), own = w->wave / 2 * MT * 16 + lane % 16;
    const uint32_t piece = w->wave % 2 * NT * 2 + lane / 32, column = qd_thread() % lanes * 8;
    const bool is_f16 = g->type_d == QK_F16;
    QD_WAIT(0);
    qd_barrier(); // no wave reads a stage any more
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) QD_UNROLL
        for (uint32_t n = 0; n < NT; n++) {
            const qd_f32x4 v = w->sum[m][n];
            *(QD_LDS qd_u32x2 *)(piece_at(own + m * 16, piece + n * 2) + lane / 16 % 2 * 8) =
                (qd_u32x2){qk_gemm_pair16(is_f16, v.xy), qk_gemm_pair16(is_f16, v.zw)};
        }
    qd_barrier();
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + n0 + column;
    QD_NO_UNROLL for (uint32_t r = qd_thread() / lanes; r < TM; r += THREADS / lanes) {
        const uint32_t row = tile->row + r;
        bool is_zero;
        if (qk_gemm_writes_row(g, tile, row, &is_zero))
            *(qd_u32x4 *)(d + row * g->d_row) =
                is_zero ? 0 : *(QD_LDS qd_u32x4 *)piece_at(r, column / 8);
    }
}

/** Returns the place in LDS of column `column` and the three behind it, of row `row` of the 32 that
 *  take part. */
QD_INLINE QD_LDS qd_f32x4 *result_at(uint32_t row, uint32_t column) {
    return (QD_LDS qd_f32x4 *)(lds0 + row * TN * 4 + (column / 4 ^ (row & 15)) * 16);
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

/** Stores the 32 rows in LDS, tile row m of both halves of the tile. `has_codes`, like ratio, is a
 *  constant. */
QD_INLINE void store_runs(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                          const qk_gemm_tile *tile, uint32_t n0, uint32_t m, uint32_t ratio,
                          bool has_codes) {
    const uint32_t lanes = TN / 8 / ratio; // of a row
    const uint32_t column = qd_thread() % lanes * 8, end = g->n / ratio;
    QD_NO_UNROLL for (uint32_t r = qd_thread() / lanes; r < 32; r += THREADS / lanes) {
        const uint32_t row = tile->row + (r / 16 * MT + m) * 16 + r % 16;
        const qd_f32x8 v = finished(g, r, row, n0, column, ratio);
        if (has_codes)
            qk_gemm_quantize8(g, scaling, tile, row, n0 / ratio + column, end, v);
        else
            qk_gemm_store8(g, tile, row, n0 / ratio + column, end, v);
    }
}

QD_INLINE void store(const wave *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
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

QD_WAVES_PER_EU(TILES > 16 ? 1 : 2) QD_KERNEL(THREADS) qk_gemm_half(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    qk_gemm_order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    wave w;
    w.wave = qd_wave();
    w.rows = tile.row < tile.end ? qd_min(tile.end - tile.row, TM) : 0;
    w.columns = qd_min(g.n - n0, TN);
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w.sum[m][n] = 0;
    if (w.rows > 0 && g.k > 0) {
        const uint16_t *a = (const uint16_t *)g.a + tile.group * g.a_group + tile.row * g.a_row;
        const uint16_t *b = (const uint16_t *)g.b + tile.group * g.b_group + n0 * g.b_n;
        const uint32_t blocks = g.k / BLOCK_K / STAGES * STAGES;
        set_up(&w, &g, a, b);
        if (blocks > 0)
            run_blocks(&w, blocks);
        for (uint32_t block = blocks; block * BLOCK_K < g.k; block++)
            run_last(&w, &g, a, b, block);
    }
    const qk_gemm_full_args full = qk_gemm_reread(&f, &tile);
    if (has_whole_rows(&full.g, n0)) {
        store_rows(&w, &full.g, &tile, n0);
        return;
    }
    QK_GEMM_EACH_RATIO(&full.g, {
        if (qk_gemm_has_codes(&full.g))
            store(&w, &full.g, &full.scaling, &tile, n0, ratio, true);
        else
            store(&w, &full.g, &full.scaling, &tile, n0, ratio, false);
    })
}
