// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, f16 and FP8 (gemm_half_gpu.h), k contiguous: d = c + a b^T; copies fill the stages.
//
// Needs     v_mfma_f32_16x16x16, copies to LDS (gfx90a, gfx942, gfx950); rows of a and b at
//           multiples of four bytes
// Launch    in the order of qk_gemm_order
// LDS       STAGES stages
// Schedule  A K-block of 64 runs 4 MT NT MFMAs, the half of k = 0..31 first; a pin ends each step.
//           Step 0 on: reads of the second half. Then the waves meet, as all have read the stage,
//           and copies of the block STAGES later overwrite it. They meet again when the next
//           block's copies have landed, whose first half is read into the registers of this block's
//           first half, which are free by then. With one stage the copies have half a block to
//           land, and a second workgroup on the compute unit multiplies meanwhile.
#define QK_PAD 0 // a copy fills two rows without a gap
#include "gemm_half_gpu.h"

enum { STAGES = QK_STAGES };
enum {
    FETCH_A = TM / 2 / WAVES,
    FETCH_B = TN / 2 / WAVES, // copies of a wave, each of two rows
    FETCHES = FETCH_A + FETCH_B,
    EMPTY = READS + 4,                  // the step before which the stage is free
    LANDED = STEPS - READS - TILES / 4, // the step before which the next block has landed
    RATE = QK_RATE,                     // copies a step
};
static_assert(STEPS / 2 <= LANDED && EMPTY + (FETCHES + RATE - 1) / RATE <= LANDED);
static_assert((STAGES - 1) * FETCHES < 64 && (STAGES == 1 || STAGES == 2));

#if QK_STAGES == 2
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds1[STAGE_BYTES]
    __attribute__((aligned(128)));
#else
#define lds1 lds0
#endif

/** A wave's registers. */
typedef struct wave {
    products p;
    __amdgpu_buffer_rsrc_t a, b;
    uint32_t offset[FETCHES]; // this lane's, for each copy: a's, then b's
    uint32_t at;              // where the block to be copied begins in a row, bytes
} wave;

/** Starts copying 256 bytes, two rows of this wave, to the stage. */
QD_INLINE void fetch(wave *w, QD_LDS uint8_t *stage, int i) {
    const uint32_t row = i < FETCH_A ? w->p.wave * (TM / WAVES) + 2 * (uint32_t)i
                                     : TM + w->p.wave * (TN / WAVES) + 2 * (uint32_t)(i - FETCH_A);
    qd_copy_to_lds(stage + row * ROW_BYTES, i < FETCH_A ? w->a : w->b, w->offset[i], w->at);
}

/** Does the memory operations of step s of a block in `now`; `next` has the block behind it. */
QD_INLINE void memory_step(wave *w, QD_LDS uint8_t *now, QD_LDS uint8_t *next, int s) {
    if (s < READS)
        read(&w->p, now, 1, s);
    if (s >= EMPTY) QD_UNROLL
        for (int i = (s - EMPTY) * RATE; i < (s - EMPTY + 1) * RATE; i++)
            if (i < FETCHES)
                fetch(w, now, i);
    if (s >= LANDED && s - LANDED < READS)
        read(&w->p, next, 0, s - LANDED);
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
        multiply(&w->p, s);
        memory_step(w, now, next, s);
        qd_pin();
    }
}

/** Sets where the copies of a block begin. Past the end they repeat the last of `blocks`, which
 *  nobody reads, so as not to leave the matrix. */
QD_INLINE void aim(wave *w, uint32_t block, uint32_t blocks) {
    w->at = qd_min(block, blocks - 1) * ROW_BYTES;
}

QD_INLINE void fetch_first(wave *w, uint32_t blocks) {
    QD_UNROLL for (int stage = 0; stage < STAGES; stage++) {
        aim(w, (uint32_t)stage, blocks);
        QD_UNROLL for (int i = 0; i < FETCHES; i++)
            fetch(w, stage ? lds1 : lds0, i);
        qd_pin();
    }
}

/** Runs whole K-blocks, a multiple of STAGES, the first of which are on their way. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    meet();
    QD_UNROLL for (int i = 0; i < READS; i++)
        read(&w->p, lds0, 0, i);
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

// ---- setting up

/** Returns this lane's offset of two rows of a stage of which the first is `row`: of its row, or of
 *  the last one that exists, and of the piece that belongs at the lane's place in LDS. */
QD_INLINE uint32_t offset_of(bool is_b, uint32_t row, uint32_t rows, uint32_t row_bytes) {
    row += qd_lane() / 32;
    const uint32_t k = (qd_lane() / 4 % 8 ^ (row & 7)) * 16 + qd_lane() % 4 * 4;
    return qd_by_all_lanes(qd_min(is_b ? column_in(row) : row, rows - 1) * row_bytes + k);
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const element *a, const element *b) {
    const uint32_t a_bytes = (uint32_t)g->a_row * ELEMENT, b_bytes = (uint32_t)g->b_n * ELEMENT;
    w->a = qd_buffer(a, (w->p.rows - 1) * a_bytes + g->k * ELEMENT);
    w->b = qd_buffer(b, (w->p.columns - 1) * b_bytes + g->k * ELEMENT);
    QD_UNROLL for (uint32_t i = 0; i < FETCH_A; i++)
        w->offset[i] = offset_of(false, w->p.wave * (TM / WAVES) + 2 * i, w->p.rows, a_bytes);
    QD_UNROLL for (uint32_t i = 0; i < FETCH_B; i++)
        w->offset[FETCH_A + i] =
            offset_of(true, w->p.wave * (TN / WAVES) + 2 * i, w->p.columns, b_bytes);
}

QD_WAVES_PER_EU(2) QD_KERNEL(THREADS) qk_gemm_half(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    qk_gemm_order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    wave w;
    find_operands(&w.p, &g, &tile, n0);
    const uint32_t k = w.p.rows > 0 ? g.k : 0, blocks = k / BLOCK_K / STAGES * STAGES;
    const element *a = (const element *)g.a + tile.group * g.a_group + tile.row * g.a_row;
    const element *b = (const element *)g.b + tile.group * g.b_group + n0 * g.b_n;
    if (blocks > 0) {
        set_up(&w, &g, a, b);
        fetch_first(&w, blocks);
    }
    clear_sums(&w.p);
    if (blocks > 0)
        run_blocks(&w, blocks);
    for (uint32_t block = blocks; block * BLOCK_K < k; block++)
        run_last(&w.p, &g, a, b, block);
    finish(&w.p, &f, &tile, n0);
}
