// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales on CDNA's matrix cores (gemm_half_gpu.h), weights as checkpoints hold
// them, k contiguous: d = c + a b^T; the stage is filled through registers, in which the next
// K-block waits.
//
// Needs     v_mfma_f32_16x16x32_fp8_fp8 (gfx942) or 16x16x128_f8f6f4 (gfx950); rows of a and b at
//           multiples of four bytes
// Launch    in the order of qk_gemm_order
// LDS       one stage. On gfx942 a place of 16 bytes holds two runs of eight k, those of the same
//           lane in two products, so that sums have the order of packed weights (place_of)
// Registers 4 MT NT sums, two tiles of partials, a K-block of a, two of b, and for each load 16
//           bytes a lane
// Schedule  A K-block of 128 runs MT NT tiles of four steps. Each step is one MFMA, on gfx950 at
//           the first of a tile alone, at most two FMAs that add the tile before to its sum, and at
//           most one memory operation; a pin ends it. In order: reads of a's last tiles; loads of
//           the next block's scales. Then the waves meet, as all have read the stage, and write the
//           next block to it; behind an operand's writes its load of the block after that one
//           begins, which so has nearly a whole block to land. They meet again, and read the next
//           block: b beside this one's, a over the tiles just used.
// QK_REPAIR a and b are e4m3fn, and the cores take FNUZ: on their way to the stage -0 and NaN
//           become FNUZ's, and the scale is that of two halves
#define QK_HAS_RUNS
#define QK_IS_FP8
#define QK_PAD 0
#include "fp8.h"
#include "gemm_half_gpu.h"
#include "mma/cdna_fp8.h"

enum {
    LOADS_A = TM / 8 / WAVES,
    LOADS_B = TN / 8 / WAVES, // loads of a wave, each of eight rows
    LOADS = LOADS_A + LOADS_B,
    OPS = 3 * LOADS,            // two writes, a load
    SCALES_AT = 2,              // the step from which scales are loaded
    EMPTY = SCALES_AT + MT + 1, // the step before which all have read the stage
    WRITTEN = EMPTY + OPS + 4,  // that before which the next block is written
    REREADS = 2 * (NT + MT - 1),
    REREAD_EVERY = (STEPS - WRITTEN) / REREADS,
};
static_assert(TM % (8 * WAVES) == 0 && TN == 128 && REREAD_EVERY >= 1 && TILES % 2 == 0);

/** A wave's registers. */
typedef struct wave {
    products p; // but for b_tile
    __amdgpu_buffer_rsrc_t a, b, scale_a, scale_b;
    uint32_t offset[LOADS], scale_offset[MT]; // this lane's
    uint32_t to[2];                           // its runs' places in a stage
    uint32_t at, scale_a_at, scale_b_at;      // where the blocks to be loaded begin, bytes
    uint32_t scale_a_step;
    qd_u32x4 next[LOADS];
    qd_u32x4 b_tile[2][2][NT]; // of two K-blocks, of each half
    float scale_a_of[2][MT], scale_b_of[2];
    qd_f32x4 part[2];
    float scale; // of the tile before this one
} wave;

// ---- memory operations

QD_INLINE void load(wave *w, int i) {
    w->next[i] = qd_buffer_load4(i < LOADS_A ? w->a : w->b, w->offset[i], w->at);
}

#ifdef QK_REPAIR
enum { SCALE = 4 }; // read as FNUZ, e4m3fn's bits of a and of b mean half
QD_INLINE qd_u32x2 repair(qd_u32x2 codes) {
    return (qd_u32x2){qd_fp8_fnuz_from_fn(codes.x), qd_fp8_fnuz_from_fn(codes.y)};
}
#else
enum { SCALE = 1 };
QD_INLINE qd_u32x2 repair(qd_u32x2 codes) {
    return codes;
}
#endif

/** Writes eight of the sixteen bytes of load i, or all of them at once where runs are not apart. */
QD_INLINE void write(const wave *w, int i, int run) {
    const uint32_t row = 8 * WAVES * (uint32_t)i; // b's begin behind a's
    QD_LDS uint8_t *to = lds0 + w->to[run] + row * ROW_BYTES;
    if (!QD_MMA_IS_F8F6F4)
        *(QD_LDS qd_u32x2 *)to = repair(run ? w->next[i].zw : w->next[i].xy);
    else if (run == 0)
        *(QD_LDS qd_u32x4 *)to = w->next[i];
}

QD_INLINE void hand_over(wave *w, int op) {
    if (op % 3 == 2)
        load(w, op / 3);
    else
        write(w, op / 3, op % 3);
}

QD_INLINE void read_a(wave *w, int m, int half) {
    w->p.a_tile[half][m] = *(QD_LDS qd_u32x4 *)(lds0 + w->p.read_a[half] + m * 16 * ROW_BYTES);
}
QD_INLINE void read_b(wave *w, int p, int n, int half) {
    w->b_tile[p][half][n] = *(QD_LDS qd_u32x4 *)(lds0 + w->p.read_b[half] + n * 16 * ROW_BYTES);
}

/** Does read i of a K-block's operands, but for a's last tile. */
QD_INLINE void reread(wave *w, int p, int i) {
    if (i < 2 * NT)
        read_b(w, p, i / 2, i % 2);
    else
        read_a(w, (i - 2 * NT) / 2, i % 2);
}

QD_INLINE void load_scale(wave *w, int p, int i) {
    if (i < MT)
        w->scale_a_of[p][i] =
            qd_as_f32(qd_buffer_load(w->scale_a, w->scale_offset[i], w->scale_a_at));
    else
        w->scale_b_of[p] = qd_as_f32(qd_buffer_load(w->scale_b, 0, w->scale_b_at));
}

/** Lets the waves meet: then all have read and written what they had begun to. */
QD_INLINE void meet(void) {
    QD_WAIT(63);
    qd_meet();
    qd_pin();
}

/** Does the memory operations of step s of a block with operands p. */
QD_INLINE void memory_step(wave *w, int p, int s) {
    const int again = s - WRITTEN;
    if (s < 2)
        read_a(w, MT - 1, s);
    if (s >= SCALES_AT && s - SCALES_AT <= MT)
        load_scale(w, p ^ 1, s - SCALES_AT);
    if (s >= EMPTY && s - EMPTY < OPS)
        hand_over(w, s - EMPTY);
    if (again >= 0 && again % REREAD_EVERY == 0 && again / REREAD_EVERY < REREADS)
        reread(w, p ^ 1, again / REREAD_EVERY);
}

// ---- arithmetic

/** Runs step q of a tile's four. */
QD_INLINE qd_f32x4 multiply_tile(const wave *w, int p, int tile, int q, qd_f32x4 part) {
    const int m = tile / NT, n = tile % NT;
    return qd_mma16_fp8_step(w->b_tile[p][0][n], w->b_tile[p][1][n], w->p.a_tile[0][m],
                             w->p.a_tile[1][m], q, part);
}

/** Adds elements 2 e and 2 e + 1 of a tile's partial, scaled, to the tile's sum. */
QD_INLINE void promote(wave *w, int tile, int e, qd_f32x4 part, float scale) {
    qd_f32x4 *sum = &w->p.sum[tile / NT][tile % NT];
    QD_UNROLL for (int i = 2 * e; i < 2 * e + 2; i++)
        (*sum)[i] = __builtin_fmaf(part[i], scale, (*sum)[i]);
}

QD_INLINE float scale_of(const wave *w, int p, int m) {
    return w->scale_a_of[p][m] * (SCALE * w->scale_b_of[p]);
}

/** Runs one K-block with operands p. */
QD_INLINE void run_block(wave *w, int p) {
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        const int before = (tile + TILES - 1) % TILES;
        qd_f32x4 part = 0, last = w->part[(tile + 1) % 2];
        QD_UNROLL for (int q = 0; q < 4; q++) {
            const int s = 4 * tile + q;
            if (s == EMPTY || s == WRITTEN)
                meet();
            part = multiply_tile(w, p, tile, q, part);
            memory_step(w, p, s);
            if (q >= 2)
                promote(w, before, q - 2, last, w->scale);
            if (q == 3 && tile % NT == 0)
                w->scale = scale_of(w, p, tile / NT);
            qd_pin();
        }
        w->part[tile % 2] = part;
    }
}

/** Sets where the scales of block `scales` and loads of block `load` begin. Past the end they
 *  repeat the last of `blocks`, which nobody reads, so as not to leave the matrix. */
QD_INLINE void aim(wave *w, uint32_t scales, uint32_t load, uint32_t blocks) {
    scales = qd_min(scales, blocks - 1);
    w->at = qd_min(load, blocks - 1) * BLOCK_K;
    w->scale_a_at = scales * w->scale_a_step;
    w->scale_b_at = scales * (uint32_t)sizeof(float);
}

/** Fills the stage with block 0. Memory operations stand in the loop's order, so that the
 *  compiler's wait counts agree where prologue and loop join. */
QD_INLINE void prologue(wave *w, uint32_t blocks) {
    aim(w, 0, 0, blocks);
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        load(w, i);
    QD_UNROLL for (int i = 0; i <= MT; i++)
        load_scale(w, 0, i);
    qd_pin();
    aim(w, 0, 1, blocks);
    QD_UNROLL for (int op = 0; op < OPS; op++) {
        hand_over(w, op);
        qd_pin();
    }
    meet();
    QD_UNROLL for (int i = 0; i < REREADS; i++)
        reread(w, 0, i);
    qd_pin();
}

/** Runs an even number of whole K-blocks, two a turn, because b's registers alternate. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    w->part[1] = 0;
    w->scale = 0;
    prologue(w, blocks);
    for (uint32_t kb = 0; kb < blocks; kb += 2) {
        aim(w, kb + 1, kb + 2, blocks);
        run_block(w, 0);
        aim(w, kb + 2, kb + 3, blocks);
        run_block(w, 1);
    }
    QD_UNROLL for (int e = 0; e < 2; e++)
        promote(w, TILES - 1, e, w->part[1], w->scale);
}

// ---- setting up

/** Returns where run `run` of 16-byte piece `piece` lies in a row: as it was, for f8f6f4. Else step
 *  q of half h multiplies k = 64 h + 32 q on; lanes 16 g on have those of qd_mma16_k_fp8, and read
 *  place 4 h + g. */
QD_INLINE uint32_t place_of(uint32_t row, uint32_t piece, uint32_t run) {
    if (QD_MMA_IS_F8F6F4)
        return swizzle(row, piece) + run * 8;
    const uint32_t slot = piece / 4 * 4 + run * 2 + piece % 2;
    return swizzle(row, slot) + piece / 2 % 2 * 8;
}

/** Runs one K-block, whole or not, through registers. Nothing past a row's end is read. */
QD_INLINE void run_last(wave *w, const qk_gemm_args *g, const uint8_t *a, const uint8_t *b,
                        uint32_t block) {
    qd_barrier();
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < (TM + TN) * PIECES; i += THREADS) {
        const uint32_t line = i / PIECES, row = line < TM ? line : line - TM;
        qd_u32x4 codes = 0;
        if (row < (line < TM ? w->p.rows : w->p.columns))
            codes = qk_gemm_load_piece(line < TM ? a + row * g->a_row : b + row * g->b_n,
                                       block * BLOCK_K + i % PIECES * 16, g->k);
        *(QD_LDS qd_u32x2 *)(lds0 + place_of(line, i % PIECES, 0)) = repair(codes.xy);
        *(QD_LDS qd_u32x2 *)(lds0 + place_of(line, i % PIECES, 1)) = repair(codes.zw);
    }
    aim(w, block, block, block + 1);
    QD_UNROLL for (int i = 0; i <= MT; i++)
        load_scale(w, 0, i);
    QD_WAIT(0);
    qd_barrier();
    QD_UNROLL for (int i = 0; i < REREADS + 2; i++)
        reread(w, 0, i);
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        qd_f32x4 part = 0;
        QD_UNROLL for (int q = 0; q < 4; q++)
            part = multiply_tile(w, 0, tile, q, part);
        QD_UNROLL for (int e = 0; e < 2; e++)
            promote(w, tile, e, part, scale_of(w, 0, tile / NT));
    }
}

QD_INLINE void set_up_scales(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                             uint32_t n0) {
    const uint32_t blocks = qd_div_up(g->k, BLOCK_K), row_bytes = (uint32_t)g->scale_a_row * 4;
    w->scale_a_step = (uint32_t)g->scale_a_kb * 4;
    w->scale_a = qd_buffer(g->scale_a + tile->group * g->scale_a_group + tile->row * g->scale_a_row,
                           (w->p.rows - 1) * row_bytes + (blocks - 1) * w->scale_a_step + 4);
    w->scale_b = qd_buffer(g->scale_b + tile->group * g->scale_b_group + n0 / 128 * g->scale_b_nb,
                           blocks * 4);
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = (w->p.wave / 2 * MT + m) * 16 + qd_lane() % 16;
        w->scale_offset[m] = qd_min(row, w->p.rows - 1) * row_bytes;
    }
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const uint8_t *a, const uint8_t *b) {
    const uint32_t lane = qd_lane(), row = w->p.wave * 8 + lane / 8;
    const uint32_t a_bytes = (uint32_t)g->a_row, b_bytes = (uint32_t)g->b_n;
    w->a = qd_buffer(a, (w->p.rows - 1) * a_bytes + g->k);
    w->b = qd_buffer(b, (w->p.columns - 1) * b_bytes + g->k);
    QD_UNROLL for (uint32_t run = 0; run < 2; run++)
        w->to[run] = place_of(row, lane % 8, run);
    QD_UNROLL for (uint32_t i = 0; i < LOADS; i++) {
        const uint32_t line = row + 8 * WAVES * (i < LOADS_A ? i : i - LOADS_A);
        w->offset[i] = qd_by_all_lanes(lane % 8 * 16 +
                                       (i < LOADS_A ? qd_min(line, w->p.rows - 1) * a_bytes
                                                    : qd_min(line, w->p.columns - 1) * b_bytes));
    }
}

QD_WAVES_PER_EU(2) QD_KERNEL(THREADS) qk_gemm_flat(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    qk_gemm_order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    wave w;
    begin(&w.p, &g, &tile, n0);
    if (w.p.rows > 0 && g.k > 0) {
        const uint8_t *a = (const uint8_t *)g.a + tile.group * g.a_group + tile.row * g.a_row;
        const uint8_t *b = (const uint8_t *)g.b + tile.group * g.b_group + n0 * g.b_n;
        const uint32_t blocks = g.k / (2 * BLOCK_K) * 2;
        set_up_scales(&w, &g, &tile, n0);
        set_up(&w, &g, a, b);
        if (blocks > 0)
            run_blocks(&w, blocks);
        for (uint32_t block = blocks; block * BLOCK_K < g.k; block++)
            run_last(&w, &g, a, b, block);
    }
    finish(&w.p, &f, &tile, n0);
}
