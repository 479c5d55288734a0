// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales for few columns and long k, weights packed: the waves of a workgroup
// share k (gfx942, gfx950).
//
// Needs     v_mfma_f32_16x16x32_fp8_fp8 (gfx942) or 16x16x128_f8f6f4 (gfx950); b from qk_gemm_pack;
//           a e4m3fn or on gfx942 e4m3fnuz; dense
// Tile      16 x 16; each of four waves multiplies every fourth K-block of it. Small tiles are
//           many, and so have more units ask for lines.
// Sum       K-block after K-block; the products of a K-block in groups of cdna_fp8.h: the same bits
//           as in the family's other kernels
// Launch    256 threads; grid = tiles_m * tiles_n, order of qk_gemm_column_order
// LDS       43 KiB: partials and scales of two turns of 16 K-blocks, which all waves add in the
//           K-blocks' order, each its part of the tile's elements; of each wave 16 rows of a, which
//           it turns there: 136 bytes apart, so that 16 lanes that read eight bytes of a row each
//           touch all banks
// Registers AHEAD K-blocks of a and b on their way, 16 VGPRs each
// Edges     rows that do not exist read as zero; the last k % 128 by one wave, with checked loads
// Schedule  the waves meet once a turn: while some add one turn's partials, others make the next
//           one's. Waves of different tiles begin a turn with different K-blocks of theirs, so that
//           tiles of the same rows or columns do not ask for the same lines at one time. A last
//           turn that is not whole goes on with zeros, whose loads touch no memory.
#include "arguments.h"
#include "copy.h"
#include "fp8.h"
#include "gemm_columns_gpu.h"
#include "gemm_gpu.h"
#include "gemm_words_gpu.h"
#include "mma/cdna_fp8.h"

enum {
    WAVES = 4,
    THREADS = 64 * WAVES,
    BLOCK_K = 128,
    AHEAD = 4,            // a wave's K-blocks whose loads are under way
    TURN = AHEAD * WAVES, // K-blocks
    TILE = 16,            // rows, columns
    PITCH = BLOCK_K + 8,  // bytes from row to row of a in LDS
};
static_assert(TURN * TILE == THREADS); // a thread has one of a turn's scales
static_assert(TILE * TILE == THREADS); // and one of the tile's elements

// [K-block][lane] f32x4
[[clang::loader_uninitialized]] static QD_LDS float lds_part[2][TURN][THREADS]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_a[WAVES][TILE * PITCH]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS float lds_scale[2][TURN][TILE];

typedef qd_u32x4 unaligned4 __attribute__((aligned(8))); // rows in LDS begin at multiples of 8

/** This lane's operands of a K-block: 16 bytes of rows lane / 8 + 8 i of a; 8 bytes of b for each
 *  32 of k, or for f8f6f4 16 for each 64. */
typedef struct block {
    qd_u32x4 a[2];
    qd_u32x2 b[4];
} block;

/** A wave's registers. Offsets are this lane's. */
typedef struct wave {
    __amdgpu_buffer_rsrc_t a, b, a_scales, b_scales;
    uint32_t blocks, num_kb; // whole K-blocks; all
    uint32_t first_round;    // of a turn
    uint32_t a_offset[2], b_offset;
    uint32_t write_at, read_at;  // in its wave's a in LDS
    uint32_t scale_offset;       // of its scale of a turn
    uint32_t scale_kb, scale_at; // that scale's K-block of the turn; its place in LDS
    uint32_t scale_step;         // bytes from K-block to K-block
    block x[AHEAD];
    float next_a, next_b; // of a turn
    bool is_next;         // that they are of a K-block that there is
    float sum;            // of this thread's element
    bool is_fn;           // a is to be repaired for FNUZ cores
} wave;

// ---- loads

QD_INLINE void load_b(const wave *w, block *x, uint32_t kb, uint32_t outside) {
    const uint32_t at = kb * QK_PACK_BLOCK;
    if (QD_MMA_IS_F8F6F4) QD_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const qd_u32x4 codes =
                qd_buffer_stream4(w->b, (w->b_offset | outside) + half * 2048, at);
            x->b[2 * half] = codes.xy;
            x->b[2 * half + 1] = codes.zw;
        }
    else QD_UNROLL
        for (uint32_t q = 0; q < 4; q++)
            x->b[q] = qd_buffer_stream2(w->b, (w->b_offset | outside) + q * 1024, at);
}

/** Loads K-block kb, if it is whole. The pin keeps this many loads under way. */
QD_INLINE void load_block(const wave *w, block *x, uint32_t kb) {
    const uint32_t outside = kb < w->blocks ? 0 : QD_OUTSIDE;
    load_b(w, x, kb, outside);
    QD_UNROLL for (int i = 0; i < 2; i++)
        x->a[i] = qd_buffer_load4(w->a, w->a_offset[i] | outside, kb * BLOCK_K);
    qd_pin();
}

/** Loads this lane's scales of the turn from K-block `first` on, if they are of one before `end`.
 *  Nothing here may wait for what is loaded. */
QD_INLINE void load_scales(wave *w, uint32_t first, uint32_t end) {
    w->is_next = w->scale_kb < end - qd_min(first, end);
    first = qd_min(first, end - 1);
    w->next_a = qd_as_f32(qd_buffer_load(w->a_scales, w->is_next ? w->scale_offset : QD_OUTSIDE,
                                         first * w->scale_step));
    w->next_b = qd_as_f32(
        qd_buffer_load(w->b_scales, w->is_next ? w->scale_kb * (uint32_t)sizeof(float) : QD_OUTSIDE,
                       first * (uint32_t)sizeof(float)));
    qd_pin();
}

/** Puts what load_scales loaded where the turn's waves read it. A K-block past the end gets -0,
 *  which leaves every sum's bits, as its partial is zero. */
QD_INLINE void write_scales(const wave *w, uint32_t half) {
    const float scale = w->next_a * (w->is_fn ? 2 * w->next_b : w->next_b);
    (&lds_scale[half][0][0])[w->scale_at] = w->is_next ? scale : -0.0f;
}

// ---- arithmetic

/** Puts this wave's a where its lanes read rows. The pin keeps the repair of e4m3fn a branch: from
 *  a choice the compiler would make vector instructions that always run. */
QD_INLINE void write_a(const wave *w, block *x) {
    if (w->is_fn) {
        qd_pin();
        QD_UNROLL for (int i = 0; i < 8; i++)
            x->a[i / 4][i % 4] = qd_fp8_fnuz_from_fn(x->a[i / 4][i % 4]);
    }
    QD_UNROLL for (int i = 0; i < 2; i++)
        *(QD_LDS unaligned4 *)(lds_a[qd_wave()] + w->write_at + i * 8 * PITCH) = x->a[i];
    asm volatile("" ::: "memory"); // a wave's accesses of LDS keep their order
}

QD_INLINE qd_u32x4 join(const qd_u32x2 *codes) {
    return __builtin_shufflevector(codes[0], codes[1], 0, 1, 2, 3);
}

/** Multiplies a K-block and writes the partial to LDS, for all waves. */
QD_INLINE void multiply(const wave *w, block *x, QD_LDS float *to) {
    const QD_LDS uint8_t *from = lds_a[qd_wave()] + w->read_at;
    qd_u32x2 a[4];
    qd_f32x4 part = {};
    write_a(w, x);
    QD_UNROLL for (int q = 0; q < 4; q++)
        a[q] =
            *(const QD_LDS qd_u32x2 *)(from + (QD_MMA_IS_F8F6F4 ? q / 2 * 64 + q % 2 * 8 : q * 32));
    qd_pin(); // all are on their way before one is waited for
    QD_UNROLL for (int q = 0; q < 4; q++)
        part = qd_mma16_fp8_step(join(x->b), join(x->b + 2), join(a), join(a + 2), q, part);
    *(QD_LDS qd_f32x4 *)(to + qd_lane() * 4) = part;
}

/** Adds the first `count` partials of a half to this thread's sum. All are on their way before one
 *  is waited for. */
QD_INLINE void add(wave *w, uint32_t half, uint32_t count) {
    float part[TURN], scale[TURN];
    QD_UNROLL for (uint32_t i = 0; i < count; i++) {
        part[i] = lds_part[half][i][qd_thread()];
        scale[i] = lds_scale[half][i][qd_thread() / 4 % 16];
    }
    qd_pin();
    QD_UNROLL for (uint32_t i = 0; i < count; i++)
        w->sum = __builtin_fmaf(part[i], scale[i], w->sum);
}

/** Returns which K-block of a turn this wave has in round r. */
QD_INLINE uint32_t block_of(const wave *w, uint32_t r) {
    return (r + w->first_round) % AHEAD * WAVES + qd_wave();
}

/** Runs the whole K-blocks. The last turn's partials past the end are zeros. */
QD_INLINE void run_blocks(wave *w) {
    load_scales(w, 0, w->blocks);
    QD_UNROLL for (uint32_t r = 0; r < AHEAD; r++)
        load_block(w, &w->x[r], block_of(w, r));
    uint32_t half = 0;
    for (uint32_t first = 0; first < w->blocks; first += TURN, half ^= 1) {
        write_scales(w, half);
        load_scales(w, first + TURN, w->blocks);
        QD_UNROLL for (uint32_t r = 0; r < AHEAD; r++) {
            multiply(w, &w->x[r], lds_part[half][block_of(w, r)]);
            load_block(w, &w->x[r], first + TURN + block_of(w, r));
        }
        qd_barrier();
        add(w, half, TURN);
    }
}

/** Runs the last, broken K-block on the first wave. Nothing past a row's end of a is read. */
QD_INLINE void run_tail(wave *w, const qk_gemm_args *g, uint32_t row0, uint32_t rows) {
    const uint32_t lane = qd_lane(), kb = w->blocks;
    block x;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = lane / 8 + 8 * i;
        x.a[i] = 0;
        if (row < rows)
            x.a[i] = qk_gemm_load_piece((const uint8_t *)g->a + (row0 + row) * g->a_row,
                                        kb * BLOCK_K + lane % 8 * 16, g->k);
    }
    load_b(w, &x, kb, 0);
    load_scales(w, kb, w->num_kb);
    qd_barrier(); // all have added what was there
    write_scales(w, 0);
    if (qd_wave() == 0)
        multiply(w, &x, lds_part[0][0]);
    qd_barrier();
    add(w, 0, 1);
}

// ---- setting up and storing

/** Sets this lane's place of its scale of a turn. Where scales lie along k, neighbouring lanes have
 *  neighbouring K-blocks of a row, else neighbouring rows. */
QD_INLINE void set_scale(wave *w, const qk_gemm_args *g, uint32_t rows) {
    const uint32_t thread = qd_thread();
    const bool is_along_k = g->scale_a_kb == 1;
    const uint32_t row = is_along_k ? thread / TURN : thread % TILE;
    w->scale_kb = is_along_k ? thread % TURN : thread / TILE;
    w->scale_at = w->scale_kb * TILE + row;
    w->scale_offset =
        row < rows ? (row * (uint32_t)g->scale_a_row + w->scale_kb * (uint32_t)g->scale_a_kb) *
                         (uint32_t)sizeof(float)
                   : QD_OUTSIDE;
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, uint32_t row0, uint32_t rows, uint32_t n0) {
    const uint32_t lane = qd_lane(), strip = n0 / QK_PACK_ROWS * QK_PACK_ROWS;
    w->blocks = g->k / BLOCK_K;
    w->num_kb = qd_div_up(g->k, BLOCK_K);
    w->a =
        qd_buffer((const uint8_t *)g->a + row0 * g->a_row, (rows - 1) * (uint32_t)g->a_row + g->k);
    w->b =
        qd_buffer((const uint8_t *)g->b + (int64_t)strip * g->packed_k, QK_PACK_ROWS * g->packed_k);
    w->a_scales = qd_buffer(
        g->scale_a + row0 * g->scale_a_row,
        ((rows - 1) * (uint32_t)g->scale_a_row + (w->num_kb - 1) * (uint32_t)g->scale_a_kb + 1) *
            (uint32_t)sizeof(float));
    w->b_scales =
        qd_buffer(g->scale_b + n0 / 128 * g->scale_b_nb, w->num_kb * (uint32_t)sizeof(float));
    w->scale_step = (uint32_t)(g->scale_a_kb * sizeof(float));
    w->is_fn = QD_FP8_USUAL == QD_E4M3FNUZ && g->type_a == QK_E4M3FN;
    w->read_at = lane % 16 * PITCH + (QD_MMA_IS_F8F6F4 ? lane / 16 * 16 : qd_mma16_k_fp8(lane));
    w->write_at = lane / 8 * PITCH + lane % 8 * 16;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = lane / 8 + 8 * i;
        w->a_offset[i] = row < rows ? row * (uint32_t)g->a_row + lane % 8 * 16 : QD_OUTSIDE;
    }
    w->b_offset = lane / 16 % 2 * 512 + (n0 - strip + lane % 16) * 16 +
                  lane / 32 * (QD_MMA_IS_F8F6F4 ? 1024 : 8);
    set_scale(w, g, rows);
}

/** Brings the threads' sums together; one wave stores them, four columns of a row a lane. */
QD_INLINE void finish(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t lane = qd_lane();
    qd_barrier();
    lds_part[0][0][qd_thread()] = w->sum;
    qd_barrier();
    if (qd_wave() == 0) {
        const uint32_t row = tile->row + lane % 16, column = n0 + lane / 16 * 4;
        qd_f32x4 values = *(const QD_LDS qd_f32x4 *)&lds_part[0][0][lane * 4];
        if (g->has_epilogue)
            values = qk_gemm_finish4(g, row, column, values);
        qk_gemm_store4(g, tile, row, column, values);
    }
}

QD_KERNEL(THREADS) qk_gemm_split(const qk_gemm_args given) {
    static_assert(sizeof given > 3 * 64 + 4);
    qd_touch_arguments();
    qd_pin(); // the compiler's own loads come behind
    const qk_gemm_args g = qk_gemm_by_words(&given);
    uint32_t tile_n;
    const uint32_t tile_m = qk_gemm_column_order(&g, qd_block(), &tile_n), n0 = tile_n * TILE;
    const qk_gemm_tile tile = {.row = tile_m * TILE, .end = g.m};
    wave w;
    w.sum = 0;
    if (g.k > 0) {
        const uint32_t rows = qd_min(tile.end - tile.row, TILE);
        w.first_round = (tile_m + tile_n / 8) % AHEAD;
        set_up(&w, &g, tile.row, rows, n0);
        if (w.blocks > 0)
            run_blocks(&w);
        if (g.k % BLOCK_K)
            run_tail(&w, &g, tile.row, rows);
    }
    finish(&w, &g, &tile, n0);
}
