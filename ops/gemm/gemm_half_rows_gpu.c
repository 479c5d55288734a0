// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, with -DQK_IS_F16 of f16, for few rows, k contiguous: streams the weights, at the
// speed of memory (CDNA).
//
// Needs     v_mfma_f32_16x16x16; rows of a and b at multiples of four bytes
// Tile      16 RT x 16 NT; a wave each, which waits for no other
// Sum       one chain for each element of d, in the order of gemm_half_gpu.h: the same bits
// Launch    64 threads; grid = tiles_m * tiles_n (* groups when masked), order of place_of
// LDS       none: lanes load what they multiply, 16 bytes of a row and 32 of k
// Registers AHEAD K-blocks of a and b on their way, 8 (RT + NT) VGPRs each
// Edges     rows that do not exist read as zero; the last k % 64 by checked loads
// Schedule  a K-block's loads follow the products of the one AHEAD before, whose registers they
//           take. Loads past the last K-block touch no memory. In a last turn that is not whole
//           only the blocks that are there are multiplied: products of zeros would make -0 of a sum
//           +0.
#include "arguments.h"
#include "copy.h"
#define QK_FULL // one image has all forms of a product's end, which acts behind the loop
#include "gemm_full_gpu.h"
#include "gemm_words_gpu.h"
#include "mma/cdna_halves.h"

#ifndef QK_RT
#define QK_RT 1 // tiles of 16 rows
#endif
#ifndef QK_NT
#define QK_NT 1 // tiles of 16 columns
#endif
#ifndef QK_AHEAD
#define QK_AHEAD 8 // K-blocks of a turn, whose loads are under way
#endif
#ifdef QK_IS_F16
enum { IS_F16 = 1 };
#else
enum { IS_F16 = 0 };
#endif
enum { RT = QK_RT, NT = QK_NT, TM = 16 * RT, TN = 16 * NT, AHEAD = QK_AHEAD };
enum { ROW_BYTES = 128, HALF_BYTES = 64, BLOCK_K = ROW_BYTES / 2, THREADS = 64 };
static_assert((AHEAD - 1) * 2 * (RT + NT) < 64); // what a wait can count

/** A lane's operands of a K-block: 8 k of each 32, of a row of each 16 of a and of b. */
typedef struct block {
    qd_u32x4 a[2][RT], b[2][NT];
} block;

/** The rows of an operand that the tile has. */
typedef struct operand {
    const uint16_t *first;
    int64_t step; // elements from row to row
    uint32_t rows;
} operand;

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    __amdgpu_buffer_rsrc_t a, b;
    uint32_t blocks;                     // whole K-blocks
    uint32_t a_offset[RT], b_offset[NT]; // this lane's; QD_OUTSIDE if there is no such row
    block x[AHEAD];
    qd_f32x4 sum[RT][NT];
} wave;

/** Loads a K-block, if it is one of the whole ones. The pin keeps this many loads under way. */
QD_INLINE void load_block(const wave *w, block *x, uint32_t kb) {
    const uint32_t outside = kb < w->blocks ? 0 : QD_OUTSIDE, at = kb * ROW_BYTES;
    QD_UNROLL for (int t = 0; t < NT; t++) QD_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            x->b[h][t] = qd_buffer_stream4(w->b, (w->b_offset[t] | outside) + h * HALF_BYTES, at);
    QD_UNROLL for (int t = 0; t < RT; t++) QD_UNROLL
        for (uint32_t h = 0; h < 2; h++)
            x->a[h][t] = qd_buffer_load4(w->a, (w->a_offset[t] | outside) + h * HALF_BYTES, at);
    qd_pin();
}

/** Multiplies a K-block. The result has b's rows as rows and a's as columns: a lane has four
 *  neighbouring columns of a row of d. */
QD_INLINE void multiply(wave *w, const block *x) {
    QD_UNROLL for (int s = 0; s < 4; s++) QD_UNROLL
        for (int t = 0; t < RT * NT; t++) {
            const int m = t / NT, n = t % NT;
            w->sum[m][n] =
                qd_mma16_half(IS_F16, x->b[s / 2][n], x->a[s / 2][m], s % 2, w->sum[m][n]);
        }
    qd_pin();
}

QD_INLINE void run_blocks(wave *w) {
    uint32_t first = 0;
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        load_block(w, &w->x[i], i);
    for (; first + AHEAD <= w->blocks; first += AHEAD) QD_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++) {
            multiply(w, &w->x[i]);
            load_block(w, &w->x[i], first + AHEAD + i);
        }
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        if (first + i < w->blocks)
            multiply(w, &w->x[i]);
}

/** Returns 16 bytes of k of this lane's row of an operand, those past the end zero; all zero if
 *  there is no such row. */
QD_INLINE qd_u32x4 checked(const operand *x, uint32_t row, uint32_t k_byte, uint32_t k) {
    qd_u32x4 out = 0;
    if (row < x->rows)
        out = qk_gemm_load_piece((const uint8_t *)(x->first + row * x->step), k_byte, k * 2);
    return out;
}

/** Runs the last, broken K-block. Nothing past a row's end is read. */
QD_INLINE void run_tail(wave *w, const qk_gemm_args *g, const operand *a, const operand *b) {
    const uint32_t line = qd_lane() % 16, at = w->blocks * ROW_BYTES + qd_lane() / 16 * 16;
    block x;
    QD_UNROLL for (uint32_t h = 0; h < 2; h++) {
        QD_UNROLL for (uint32_t t = 0; t < NT; t++)
            x.b[h][t] = checked(b, t * 16 + line, at + h * HALF_BYTES, g->k);
        QD_UNROLL for (uint32_t t = 0; t < RT; t++)
            x.a[h][t] = checked(a, t * 16 + line, at + h * HALF_BYTES, g->k);
    }
    multiply(w, &x);
}

/** Returns this lane's offset of row `row`. */
QD_INLINE uint32_t offset_of(const operand *x, uint32_t row) {
    return row < x->rows ? row * (uint32_t)x->step * 2 + qd_lane() / 16 * 16 : QD_OUTSIDE;
}

/** Returns the descriptor of an operand. clang 22 would put what lanes compute with, too, in VGPRs,
 *  and a loop around each load. */
QD_INLINE __amdgpu_buffer_rsrc_t buffer_of(const operand *x, uint32_t k) {
    const uintptr_t at = (uintptr_t)x->first;
    const uintptr_t first =
        (uintptr_t)qd_uniform((uint32_t)(at >> 32)) << 32 | qd_uniform((uint32_t)at);
    return qd_buffer((const void *)first,
                     qd_uniform((x->rows - 1) * (uint32_t)x->step * 2 + k * 2));
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const operand *a, const operand *b) {
    w->a = buffer_of(a, g->k);
    w->b = buffer_of(b, g->k);
    QD_UNROLL for (uint32_t t = 0; t < NT; t++)
        w->b_offset[t] = offset_of(b, t * 16 + qd_lane() % 16);
    QD_UNROLL for (uint32_t t = 0; t < RT; t++)
        w->a_offset[t] = offset_of(a, t * 16 + qd_lane() % 16);
}

/** Stores the tile. Of each 16 x 16 a lane has four columns of a row. */
QD_INLINE void finish(const wave *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                      const qk_gemm_tile *tile, uint32_t n0) {
    QD_UNROLL for (uint32_t t = 0; t < RT * NT; t++) {
        const uint32_t row = tile->row + t / NT * 16 + qd_lane() % 16;
        const uint32_t column = n0 + t % NT * 16 + qd_lane() / 16 * 4;
        qk_gemm_end_columns(g, scaling, tile, row, column, w->sum[t / NT][t % NT]);
    }
}

/** Chooses the workgroup's tile: row tiles of the same columns are eight workgroups apart, so that
 *  they run together on one XCD, whose second level reads b once. Returns the row tile's number.
 *  Divisions, which take long, are few. */
QD_INLINE uint32_t place_of(const qk_gemm_args *g, uint32_t block, uint32_t *tile_n) {
    constexpr uint32_t xcds = 8;
    uint32_t slab = 0;
    if (g->grouping == QK_GROUPED_MASKED) {
        slab = block / (g->tiles_m * g->tiles_n);
        block -= slab * g->tiles_m * g->tiles_n;
    }
    *tile_n = block;
    if (g->tiles_m == 1)
        return slab;
    const uint32_t run = block / (xcds * g->tiles_m), in = block - run * xcds * g->tiles_m;
    const uint32_t width = qd_min(g->tiles_n - run * xcds, xcds);
    const uint32_t row = width == xcds ? in / xcds : in / width;
    *tile_n = run * xcds + in - row * width;
    return slab * g->tiles_m + row;
}

QD_WAVES_PER_EU(2) QD_KERNEL(THREADS) qk_gemm_half_rows(const qk_gemm_full_args given) {
    static_assert(sizeof given > 3 * 64 + 4);
    qd_touch_arguments();
    const qk_gemm_args g = qk_gemm_by_words(&given.g);
    uint32_t tile_n;
    qk_gemm_tile tile;
    const uint32_t tile_m = place_of(&g, qd_block(), &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    const operand a = {(const uint16_t *)g.a + tile.group * g.a_group + tile.row * g.a_row, g.a_row,
                       tile.row < tile.end ? qd_min(tile.end - tile.row, TM) : 0};
    const operand b = {(const uint16_t *)g.b + tile.group * g.b_group + n0 * g.b_n, g.b_n,
                       qd_min(g.n - n0, TN)};
    wave w;
    QD_UNROLL for (int t = 0; t < RT * NT; t++)
        w.sum[t / NT][t % NT] = 0;
    if (a.rows > 0 && g.k > 0) {
        w.blocks = g.k / BLOCK_K;
        if (w.blocks > 0) {
            set_up(&w, &g, &a, &b);
            run_blocks(&w);
        }
        if (g.k % BLOCK_K)
            run_tail(&w, &g, &a, &b);
    }
    const qk_gemm_full_args again = qk_gemm_reread(&given, &tile);
    finish(&w, &again.g, &again.scaling, &tile, n0);
}
