// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, or with -DQK_IS_F16 of f16, on RDNA, k contiguous: d = c + a b^T.
//
// Needs     v_wmma_f32_16x16x16 (gfx11, gfx12), wave32
// Tile      TM x TN x 32 with TM = 16 MT WM, TN = 16 NT WN; WM x WN waves, each MT x NT tiles of
//           16 x 16
// Launch    32 WM WN threads; grid = tiles_m * tiles_n (* groups when masked)
// LDS       two stages of rows of 64 bytes, a's first, which lie 80 bytes apart, so that the eight
//           lanes of a read's phase touch all banks
// Schedule  Loads fetch a line of 64 k, two K-blocks, as a cache has it: of half a line the other
//           half would leave the cache before its turn. They wait in registers until a stage is
//           free. Each half of a K-block is multiplied while the other half, or the next block's
//           first, is read; so the waves meet once a block, with products to go on with
// Sum       one chain for each element of d, through k in steps of 16
// Edges     rows past a's or b's end are copies of the last one, whose results nobody stores; what
//           whole lines leave of k is moved to its place and padded by zeros (run_rest). k >= 8
// Source    manuals "RDNA3" and "RDNA4", WMMA, for the lane layouts; checked by the simulator's
//           matrix tests
#define QK_FULL // one image has all forms of a product's end, which acts behind the loop
#include "gemm_full_gpu.h"
#include "mma.h"

#ifdef QK_IS_F16
enum { IS_F16 = 1 };
#else
enum { IS_F16 = 0 };
#endif
enum { MT = QK_MT, NT = QK_NT, WM = QK_WM, WN = QK_WN, BLOCK_K = 32, LINE_K = 64 };
enum { THREADS = 32 * WM * WN, TM = 16 * MT * WM, TN = 16 * NT * WN };
enum { TILES = MT * NT, READS = MT + NT, RATE = (READS + TILES - 1) / TILES }; // for 16 of k
enum { PIECES = BLOCK_K / 8, PITCH = BLOCK_K * 2 + 16, STAGE_BYTES = (TM + TN) * PITCH };
enum {
    TURN = THREADS / PIECES, // rows of which all threads load a piece
    LOADS_A = TM / TURN,
    LOADS = (TM + TN) / TURN, // of a thread, for a K-block
};
static_assert(TM % TURN == 0 && TN % TURN == 0 && TURN % 16 == 0);
// How d leaves through LDS: a row of tiles of each wave at once, as f32.
enum { PASS_ROWS = 16 * WM, RESULT_PITCH = TN / 4 + 1, HAS_CODES = 128 % TN == 0 };
static_assert(PASS_ROWS * RESULT_PITCH * 16 <= 2 * STAGE_BYTES);

#define MEMORY __attribute__((address_space(1)))
typedef qd_u32x4 __attribute__((aligned(2))) piece; // eight elements, at any element's address

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds[2 * STAGE_BYTES]
    __attribute__((aligned(16)));

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    uint32_t rows, columns;                        // of the tile, that exist
    uint32_t read_a, read_b;                       // this lane's first piece of its row, in a stage
    uint32_t write;                                // where this thread's first piece goes
    const MEMORY uint8_t *a, *b;                   // the line that is loaded next
    uint32_t offset[LOADS];                        // this thread's rows, from there on
    qd_u32x4 held[2][LOADS];                       // of each block
    qd_mma16_operand a_tile[2][MT], b_tile[2][NT]; // of each half of a K-block
    qd_mma16_acc sum[MT][NT];
} wave;

/** Returns which column of a wave's the line `row` of its operands is. Results of a lane are rows
 *  of these, and a lane is to have 8 NT neighbouring ones of them in the order of its registers. */
QD_INLINE uint32_t column_of(uint32_t row) {
    uint32_t place = 0;
    QD_UNROLL for (uint32_t i = 0; i < 16; i++)
        if (qd_mma16_row(i / 8 * 16, i % 8) == row % 16)
            place = i / 8 * 8 * NT + i % 8;
    return row / (16 * NT) * (16 * NT) + row / 16 % NT * 8 + place;
}

// ---- filling a stage

/** Returns p, of which the compiler knows nothing, in scalar registers: what a lane adds to it then
 *  stays a part of the load. Code that is not optimised keeps p in scratch, which is no scalar. */
QD_INLINE const MEMORY uint8_t *in_scalars(const MEMORY uint8_t *p) {
#ifdef __OPTIMIZE__
    asm volatile("" : "+s"(p));
#endif
    return p;
}

/** Returns where this thread's piece i lies in memory, and `bytes` behind that. */
QD_INLINE const MEMORY piece *piece_at(const wave *w, int i, int32_t bytes) {
    return (const MEMORY piece *)((i < LOADS_A ? w->a : w->b) + w->offset[i] + bytes);
}

/** Loads a line: two K-blocks. */
QD_INLINE void load(wave *w) {
    w->a = in_scalars(w->a);
    w->b = in_scalars(w->b);
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        w->offset[i] = qd_opaque(w->offset[i]);
    QD_UNROLL for (uint32_t block = 0; block < 2; block++) QD_UNROLL
        for (int i = 0; i < LOADS; i++)
            w->held[block][i] = *piece_at(w, i, (int32_t)(block * BLOCK_K * 2));
    w->a += LINE_K * 2;
    w->b += LINE_K * 2;
    qd_pin();
}

/** Returns eight elements without the first `past`, and zeros in their place behind the others. */
QD_INLINE qd_u32x4 without(qd_u32x4 v, uint32_t past) {
    if (past >= 8)
        v = 0;
    if (past & 4)
        v = (qd_u32x4){v.z, v.w, 0, 0};
    if (past & 2)
        v = (qd_u32x4){v.y, v.z, v.w, 0};
    if (past & 1)
        v = (v >> 16) | (qd_u32x4){v.y, v.z, v.w, 0} << 16;
    return v;
}

/** Returns where this thread's piece i goes in a stage. */
QD_INLINE QD_LDS qd_u32x4 *place_of(const wave *w, uint32_t block, int i) {
    return (QD_LDS qd_u32x4 *)(lds + w->write + block * STAGE_BYTES + i * TURN * PITCH);
}

QD_INLINE void put(const wave *w, uint32_t block) {
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        *place_of(w, block, i) = w->held[block][i];
}

/** Lets the waves meet. */
QD_INLINE void meet(void) {
    qd_barrier();
    qd_pin();
}

// ---- products

/** Returns the operand of a tile of 16 lines. */
QD_INLINE qd_mma16_operand operand_at(uint32_t at) {
    qd_mma16_operand out;
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA16_RUN / 8; i++) {
        const qd_u32x4 v = *(QD_LDS qd_u32x4 *)(lds + at + i * 16);
        QD_UNROLL for (uint32_t j = 0; j < 4; j++)
            out[4 * i + j] = v[j];
    }
    return out;
}

/** Reads operand i of a half of the block in a stage: b's tiles, then a's. */
QD_INLINE void read(wave *w, uint32_t block, uint32_t half, uint32_t i) {
    const uint32_t at = block * STAGE_BYTES + half * 32;
    if (i < NT)
        w->b_tile[half][i] = operand_at(w->read_b + at + i * 16 * PITCH);
    else if (i < READS)
        w->a_tile[half][i - NT] = operand_at(w->read_a + at + (i - NT) * 16 * PITCH);
}

/** Multiplies the operands of a half of a K-block for a tile. The result has b's rows as rows and
 *  a's as columns. */
QD_INLINE void multiply_tile(wave *w, uint32_t half, uint32_t i) {
    const uint32_t m = i / NT, n = i % NT;
    w->sum[m][n] = qd_mma16(IS_F16, w->b_tile[half][n], w->a_tile[half][m], w->sum[m][n]);
}

/** Multiplies a half of a K-block, and reads the other half of the block in stage `next`. */
QD_INLINE void multiply(wave *w, uint32_t half, uint32_t next) {
    QD_UNROLL for (uint32_t i = 0; i < TILES; i++) {
        multiply_tile(w, half, i);
        QD_UNROLL for (uint32_t r = i * RATE; r < (i + 1) * RATE; r++)
            read(w, next, 1 - half, r);
        qd_pin();
    }
}

// ---- through k

/** Runs whole lines. */
QD_INLINE void run_lines(wave *w, uint32_t lines) {
    load(w);
    put(w, 0);
    meet();
    QD_UNROLL for (uint32_t i = 0; i < READS; i++)
        read(w, 0, 0, i);
    QD_NO_UNROLL for (uint32_t line = 1; line < lines; line++) {
        multiply(w, 0, 0);
        put(w, 1);
        meet();
        load(w);
        multiply(w, 1, 1);
        multiply(w, 0, 1);
        put(w, 0);
        meet();
        multiply(w, 1, 0);
    }
    multiply(w, 0, 0);
    put(w, 1);
    meet();
    multiply(w, 1, 1);
    multiply(w, 0, 1);
    multiply(w, 1, 1); // what it reads nobody multiplies
}

/** Runs what remains behind the last whole line: `count` of k. */
QD_INLINE void run_rest(wave *w, uint32_t count) {
    qd_barrier(); // no wave reads LDS any more
    QD_UNROLL for (uint32_t block = 0; block < 2; block++) QD_UNROLL
        for (int i = 0; i < LOADS; i++) {
            const uint32_t end = block * BLOCK_K + qd_thread() % PIECES * 8 + 8;
            const uint32_t past = end > count ? end - count : 0;
            const qd_u32x4 v = *piece_at(w, i, (int32_t)(block * BLOCK_K - past) * 2);
            *place_of(w, block, i) = without(v, past);
            qd_pin();
        }
    qd_barrier();
    QD_NO_UNROLL for (uint32_t k = 0; k < count; k += 16) {
        const uint32_t at = k / BLOCK_K * STAGE_BYTES + k % BLOCK_K * 2;
        w->read_a += at;
        w->read_b += at;
        QD_UNROLL for (uint32_t i = 0; i < READS; i++)
            read(w, 0, 0, i);
        w->read_a -= at;
        w->read_b -= at;
        QD_UNROLL for (uint32_t i = 0; i < TILES; i++)
            multiply_tile(w, 0, i);
    }
}

// ---- storing

/** Returns the place in LDS of column `column` and the three behind it, of row `row` of those that
 *  take part. */
QD_INLINE QD_LDS qd_f32x4 *result_at(uint32_t row, uint32_t column) {
    return (QD_LDS qd_f32x4 *)(lds + (row * RESULT_PITCH + column / 4) * 16);
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

/** Stores the rows in LDS, tile row m of each row of waves. */
QD_INLINE void store_runs(const qk_gemm_full_args *f, const qk_gemm_tile *tile, uint32_t n0,
                          uint32_t m, uint32_t ratio) {
    const qk_gemm_args *g = &f->g;
    const uint32_t lanes = TN / 8 / ratio, step = THREADS / lanes; // lanes: of a row
    const uint32_t column = qd_thread() % lanes * 8, end = g->n / ratio;
    QD_NO_UNROLL for (uint32_t r = qd_thread() / lanes; r < PASS_ROWS; r += step) {
        const uint32_t row = tile->row + (r / 16 * MT + m) * 16 + r % 16;
        const qd_f32x8 v = finished(g, r, row, n0, column, ratio);
        if (HAS_CODES && qk_gemm_has_codes(g))
            qk_gemm_quantize8(g, &f->scaling, tile, row, n0 / ratio + column, end, v);
        else
            qk_gemm_store8(g, tile, row, n0 / ratio + column, end, v);
    }
}

/** Puts a row of tiles of this wave into LDS, as f32. */
QD_INLINE void put_results(const qd_mma16_acc sum[NT]) {
    const uint32_t row = qd_wave() / WN * 16 + qd_lane() % 16;
    const uint32_t column = qd_wave() % WN * (16 * NT) + qd_lane() / 16 * (8 * NT);
    QD_UNROLL for (uint32_t n = 0; n < NT; n++) {
        *result_at(row, column + n * 8) = sum[n].lo;
        *result_at(row, column + n * 8 + 4) = sum[n].hi;
    }
}

/** Stores the tile through LDS. */
QD_INLINE void store(const wave *w, const qk_gemm_full_args *f, const qk_gemm_tile *tile,
                     uint32_t n0, uint32_t ratio) {
    QD_NO_UNROLL for (uint32_t m = 0; m < MT; m++) {
        qd_barrier(); // no wave reads LDS any more
        QD_UNROLL for (uint32_t i = 0; i < MT; i++)
            if (i == m)
                put_results(w->sum[i]);
        qd_barrier();
        store_runs(f, tile, n0, m, ratio);
    }
}

/** Returns whether store_plain() can store the tile: whole runs of 16 bits as they are. */
QD_INLINE bool is_plain(const qk_gemm_args *g, uint32_t n0) {
    const bool is_aligned = (uintptr_t)g->d % 16 == 0 && (g->d_row | g->d_group) % 8 == 0;
    const bool has_halves = g->type_d == QK_BF16 || g->type_d == QK_F16;
    return is_aligned && has_halves && !g->c && !g->has_epilogue && n0 + TN <= g->n;
}

/** Stores the tile from registers. */
QD_INLINE void store_plain(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                           uint32_t n0) {
    const uint32_t row = tile->row + qd_wave() / WN * (16 * MT) + qd_lane() % 16;
    const uint32_t column = n0 + qd_wave() % WN * (16 * NT) + qd_lane() / 16 * (8 * NT);
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + column;
    const bool is_f16 = g->type_d == QK_F16;
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        bool is_zero;
        if (!qk_gemm_writes_row(g, tile, row + m * 16, &is_zero))
            continue;
        qd_u32x4 *to = (qd_u32x4 *)(d + (row + m * 16) * g->d_row);
        QD_UNROLL for (uint32_t n = 0; n < NT; n++) {
            const qd_f32x8 v = is_zero ? 0 : w->sum[m][n];
            qd_u32x4 out;
            QD_UNROLL for (int i = 0; i < 4; i++)
                out[i] = qk_gemm_pair16(is_f16, (qd_f32x2){v[2 * i], v[2 * i + 1]});
            to[n] = out;
        }
    }
}

QD_INLINE void finish(const wave *w, const qk_gemm_full_args *f, const qk_gemm_tile *tile,
                      uint32_t n0) {
    const qk_gemm_full_args full = qk_gemm_reread(f, tile);
    if (is_plain(&full.g, n0)) {
        store_plain(w, &full.g, tile, n0);
        return;
    }
    QK_GEMM_EACH_RATIO(&full.g, { store(w, &full, tile, n0, ratio); })
}

// ---- setting up

/** Starts the sums, and says where the wave's operands lie and this thread's pieces go. */
QD_INLINE void begin(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t lane = qd_lane(), in_row = qd_mma16_k(lane) * 2;
    w->rows = tile->row < tile->end ? qd_min(tile->end - tile->row, TM) : 0;
    w->columns = qd_min(g->n - n0, TN);
    w->read_a = (qd_wave() / WN * (16 * MT) + lane % 16) * PITCH + in_row;
    w->read_b = (TM + qd_wave() % WN * (16 * NT) + lane % 16) * PITCH + in_row;
    w->write = qd_thread() / PIECES * PITCH + qd_thread() % PIECES * 16;
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w->sum[m][n] = 0;
}

/** Says where this thread's pieces of a and b come from. */
QD_INLINE void aim(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t first = qd_thread() / PIECES, k = qd_thread() % PIECES * 16;
    w->a = (const MEMORY uint8_t *)g->a + (tile->group * g->a_group + tile->row * g->a_row) * 2;
    w->b = (const MEMORY uint8_t *)g->b + (tile->group * g->b_group + n0 * g->b_n) * 2;
    QD_UNROLL for (uint32_t i = 0; i < LOADS_A; i++)
        w->offset[i] = qd_min(first + i * TURN, w->rows - 1) * (uint32_t)g->a_row * 2 + k;
    QD_UNROLL for (uint32_t i = 0; i < LOADS - LOADS_A; i++)
        w->offset[LOADS_A + i] =
            qd_min(column_of(first + i * TURN), w->columns - 1) * (uint32_t)g->b_n * 2 + k;
}

/** Finds a workgroup's tile: they are walked in bands of 8 rows of tiles, column after column, so
 *  that workgroups that run together share what the caches hold. */
QD_INLINE void find_place(const qk_gemm_args *g, uint32_t *tile_m, uint32_t *tile_n) {
    constexpr uint32_t band_rows = 8;
    const uint32_t tiles_m = g->grouping == QK_GROUPED_MASKED ? g->tiles_m * g->groups : g->tiles_m;
    const uint32_t band = qd_block() / (band_rows * g->tiles_n);
    const uint32_t in = qd_block() % (band_rows * g->tiles_n);
    const uint32_t height = qd_min(tiles_m - band * band_rows, band_rows);
    *tile_m = band * band_rows + in % height;
    *tile_n = in / height;
}

QD_KERNEL(THREADS) qk_gemm_wmma(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    find_place(&g, &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    wave w;
    begin(&w, &g, &tile, n0);
    if (w.rows > 0 && g.k > 0) {
        aim(&w, &g, &tile, n0);
        if (g.k >= LINE_K)
            run_lines(&w, g.k / LINE_K);
        if (g.k % LINE_K > 0)
            run_rest(&w, g.k % LINE_K);
    }
    finish(&w, &f, &tile, n0);
}
