// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales on CDNA's matrix cores, weights packed: d = c + a b^T.
//
// Needs     v_mfma_f32_32x32x16_fp8_fp8 (gfx942) or 32x32x64_f8f6f4 (gfx950), copies to LDS; b from
//           qk_gemm_pack; a and b of the kind that the target's cores take
// Tile      TM x TN x 128 with TM = 32 WM MT, TN = 32 WN NT = 128; WM x WN waves, each MT x NT
//           tiles of 32 x 32
// Launch    64 WM WN threads; grid = tiles_m * tiles_n (* groups when masked), order of
//           qk_gemm_order
// LDS       a only: STAGES stages of TM rows of 128 bytes; 16-byte piece c of row r stands at c ^
//           (r & 7), so that the eight lanes of a read's phase touch all banks. b goes from memory
//           to registers.
// Registers 16 MT NT sums and 32 partials in VGPRs, where the scale's FMA reads and writes, and 16
//           NT STAGES of b; operands may be AGPRs
// Edges     a lane whose row does not exist copies zeros; the last k % 128 go through registers
//           (tail); d is stored in rows of 64 columns where it is bf16, aligned and whole, else in
//           pieces of four columns or one
// Schedule  K-block kb runs MT NT tiles of 8 steps. Each step is one MFMA, on gfx950 at every
//           fourth step alone, two FMAs that add the tile before to its sum (deferred so that they
//           never wait for their MFMA) and at most one memory operation; a pin ends it. In order:
//           reads of a's last tile; loads of b and scales of kb + STAGES - 1. After an eighth to a
//           half of the block the waves meet. Then copies of kb + STAGES overwrite the stage that
//           all have read, and a's tiles of kb + 1 replace those just used.
// Stages    two let two workgroups of 128 x 128 share a unit, and one waits while the other
//           multiplies. A unit that has a single workgroup, or short K-blocks, needs three or four:
//           operands take longer to come than a K-block of 64 x 128 takes.
// QK_FULL   all forms of gemm_full_gpu.h; what is not whole rows of 16 bits leaves through LDS as
//           f32, 64 rows at a time: stores from registers, unrolled, took clang eight times as long
// QK_REPAIR a is e4m3fn, and the cores take FNUZ: 16 bytes a lane go through registers, where -0
//           and NaN become FNUZ's, and the scale doubles. Without QK_REPAIR a bypasses registers.
// Source    manual "CDNA3", matrix chapter, for the lane layouts; checked by the simulator's MFMA
//           tests
#include "gemm_fp8_gpu.h"

#include "arguments.h"
#include "fp8.h"
#include "gemm_groups_gpu.h"
#include "gemm_words_gpu.h"
#include "mma/cdna_fp8.h"

// ---- memory operations, one a step

QD_INLINE void read_a(wave *w, QD_LDS uint8_t *stage, int m, int j) {
    w->a_tile[m][j] = *(QD_LDS qd_u32x4 *)(stage + w->read_offset[j] + m * 32 * BLOCK_K);
}

QD_INLINE void load_b(wave *w, int p, int i) {
    const uint32_t strip = i / 4, j = i % 4;
    w->b_tile[p][strip][j] =
        qd_buffer_load4(w->b, w->b_offset + j * 1024, w->b_at + strip * w->strip_bytes);
}

QD_INLINE void load_scale(wave *w, int p, int i) {
    if (i < MT)
        w->scale_a_of[p][i] =
            qd_as_f32(qd_buffer_load(w->scale_a, w->scale_offset[i], w->scale_a_at));
    else
        w->scale_b_of[p] = qd_as_f32(qd_buffer_load(w->scale_b, 0, w->scale_b_at));
}

#ifdef QK_REPAIR
QD_INLINE qd_u32x4 repair(qd_u32x4 codes) {
    QD_UNROLL for (int i = 0; i < 4; i++)
        codes[i] = qd_fp8_fnuz_from_fn(codes[i]);
    return codes;
}
/** Starts loading 1 KiB of a, eight rows of this wave, into registers. */
QD_INLINE void fetch_step(wave *w, QD_LDS uint8_t *, int i) {
    w->fetched[i] = qd_buffer_load4(w->a, w->a_offset[i], w->a_at);
}
/** Writes what fetch_step loaded into the stage. */
QD_INLINE void land_step(const wave *w, QD_LDS uint8_t *stage, int i) {
    const uint32_t row = w->wave * WAVE_ROWS + i * 8 + qd_lane() / 8;
    *(QD_LDS qd_u32x4 *)(stage + swizzle(row, qd_lane() % 8)) = repair(w->fetched[i]);
}
#else
QD_INLINE qd_u32x4 repair(qd_u32x4 codes) {
    return codes;
}
/** Starts copying 256 bytes of a, two rows of this wave, to the stage. */
QD_INLINE void fetch_step(wave *w, QD_LDS uint8_t *stage, int i) {
    uint32_t own = w->wave * (WAVE_ROWS * BLOCK_K);
    // Opaque: clang would keep the places of a turn's copies, which are too many for SGPRs.
#if QK_STAGES > 2 && defined __OPTIMIZE__
    asm volatile("" : "+s"(own));
#endif
    qd_copy_to_lds(stage + own + i * 256, w->a, w->a_offset[i], w->a_at);
}
QD_INLINE void land_step(const wave *, QD_LDS uint8_t *, int) {} // copies land by themselves
#endif

/** Does the memory operations of step s of a turn's block p. In the table, row 0 is the steps
 *  before the waves meet:
 *
 *    steps 0 .. 3                   read the last tile of this block's a
 *    row 0, odd steps               load b of the last block that has a register set
 *    row 0, even steps, SCALES_AT … load the MT + 1 scales of that block
 *    row 0, steps LAND, LAND + 2 …  put into the next stage what was fetched through registers
 *    row > 0, FETCHES steps         fetch a of block p + STAGES, over this block's a
 *    row > 0, steps 1 .. 4          read tile row - 1 of the next block's a */
QD_INLINE void memory_step(wave *w, int p, int s) {
    const int row = s / MEET, in = s % MEET, last = (p + STAGES - 1) % STAGES;
    QD_LDS uint8_t *now = stage_of(p), *next = stage_of((p + 1) % STAGES);
    if (s < 4)
        read_a(w, now, MT - 1, s);
    if (row == 0 && in % 2 == 1)
        load_b(w, last, in / 2);
    if (row == 0 && in % 2 == 0 && in >= SCALES_AT && (in - SCALES_AT) / 2 <= MT)
        load_scale(w, last, (in - SCALES_AT) / 2);
    if (row == 0 && in >= LAND && (in - LAND) % 2 == 0 && (in - LAND) / 2 < FETCHES)
        land_step(w, next, (in - LAND) / 2);
    if (row > 0 && s - MEET < FETCHES)
        fetch_step(w, now, s - MEET);
    if (row > 0 && in >= 1 && in <= 4)
        read_a(w, next, row - 1, in - 1);
}

// ---- arithmetic

/** Runs step q of a tile's eight. The result has weights as rows and activations as columns. */
QD_INLINE qd_f32x16 multiply(const wave *w, int p, int m, int n, int q, qd_f32x16 part) {
    return qd_mma32_fp8(w->b_tile[p][n], w->a_tile[m], q, part);
}

/** Adds elements 2 e and 2 e + 1 of a tile's partial, scaled, to the tile's sum. The two FMAs are
 *  scalar because v_fmac_f32, unlike the packed FMA, runs beside an MFMA. */
QD_INLINE void promote(wave *w, int tile, int e, qd_f32x16 part, float scale) {
    qd_f32x2 *sum = &w->sum[tile / NT][tile % NT][e];
    sum->x = __builtin_fmaf(part[2 * e], scale, sum->x);
    sum->y = __builtin_fmaf(part[2 * e + 1], scale, sum->y);
}

/** Returns what scales tile row m of register set p. Past the end that is -0, and so leaves all
 *  bits of a sum: a's scale is 0 there, and b's is -0. */
QD_INLINE float scale_of(const wave *w, int p, int m) {
    float of_b = w->scale_b_of[p];
    if (STAGES > 2) // opaque, as clang would set all signs of a turn at its beginning, and wait
        of_b = qd_as_f32(qd_opaque(qd_as_u32(of_b)) | w->past);
#ifdef QK_REPAIR
    of_b *= 2; // read as FNUZ, e4m3fn's bits mean half
#endif
    return w->scale_a_of[p][m] * of_b;
}

/** Lets the waves meet: then the copies of the next block have landed, and all waves have read this
 *  block's stage. */
QD_INLINE void meet(void) {
    QD_WAIT(FLYING);
    qd_meet();
    qd_pin();
}

/** Runs a turn's K-block p. The steps stand in the order in which they run. */
QD_INLINE void run_block(wave *w, int p) {
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        const int before = (tile + TILES - 1) % TILES, m = tile / NT;
        const int own = (p * TILES + tile) % 2; // partials alternate
        if (tile == NT)
            meet();
        qd_f32x16 part = 0, last = w->part[own ^ 1];
        QD_UNROLL for (int q = 0; q < 8; q++) {
            part = multiply(w, p, m, tile % NT, q, part);
            memory_step(w, p, tile * 8 + q);
            if (q > 0)
                promote(w, before, q - 1, last, w->scale);
            if (q == 7) {
                promote(w, before, 7, last, w->scale);
                w->scale = scale_of(w, p, m);
            }
            qd_pin();
        }
        w->part[own] = part;
    }
}

/** Sets where loads of block `load` and copies of block `copy` begin. Past the end of `blocks` the
 *  operands are of no bytes: memory is not touched, and what arrives is zeros. */
QD_INLINE void aim(wave *w, uint32_t load, uint32_t copy, uint32_t blocks) {
    if (STAGES > 2) {
        w->a = qd_buffer(w->a_base, copy < blocks ? w->a_bytes : 0);
        w->b = qd_buffer(w->b_base, load < blocks ? w->b_bytes : 0);
        w->scale_a = qd_buffer(w->scale_a_base, load < blocks ? w->scale_a_bytes : 0);
        w->scale_b = qd_buffer(w->scale_b_base, load < blocks ? w->scale_b_bytes : 0);
    }
    w->a_at = qd_min(copy, blocks - 1) * BLOCK_K;
    load = qd_min(load, blocks - 1);
    w->b_at = load * QK_PACK_BLOCK;
    w->scale_a_at = load * w->scale_a_step;
    w->scale_b_at = load * sizeof(float);
}

/** Sets the sums to zero, here and not where clang would: on the way to each branch, before the
 *  first loads. */
QD_INLINE void clear(wave *w) {
    QD_UNROLL for (int i = 0; i < TILES * 8; i++) {
        qd_f32x2 *sum = &w->sum[i / (8 * NT)][i / 8 % NT][i % 8];
        asm volatile("v_mov_b32 %0, 0\n\tv_mov_b32 %1, 0" : "=v"(sum->x), "=v"(sum->y));
    }
}

/** Starts loading b and the scales of block i. */
QD_INLINE void load_block(wave *w, int i) {
    QD_UNROLL for (int j = 0; j < 4 * NT; j++)
        load_b(w, i, j);
    QD_UNROLL for (int j = 0; j <= MT; j++)
        load_scale(w, i, j);
    qd_pin();
}

/** Fills the pipeline with the first blocks: a of STAGES and b of one less. Loads stand in the
 *  loop's order, so that the compiler's wait counts agree where prologue and loop join. */
QD_INLINE void prologue(wave *w, uint32_t blocks) {
    QD_UNROLL for (int s = 0; s < STAGES; s++) {
        aim(w, s - 1, s, blocks);
        if (s > 0)
            load_block(w, s - 1);
        if (s == STAGES - 1) {
            clear(w);
            meet();
        }
        QD_UNROLL for (int i = 0; i < FETCHES; i++)
            fetch_step(w, stage_of(s), i);
        if (s == 0) QD_UNROLL
            for (int i = 0; i < FETCHES; i++)
                land_step(w, lds0, i);
        qd_pin();
    }
    QD_UNROLL for (int m = 0; m < MT - 1; m++) QD_UNROLL
        for (int j = 0; j < 4; j++)
            read_a(w, lds0, m, j);
    qd_pin();
}

/** Runs whole K-blocks, STAGES a turn, because stages of LDS and register sets of b take turns.
 *  With two stages their number is even; else a last turn that is not whole ends on zeros. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    prologue(w, blocks);
    w->part[1] = 0;
    w->scale = 0;
    for (uint32_t kb = 0; kb < blocks; kb += STAGES) QD_UNROLL
        for (int p = 0; p < STAGES; p++) {
            aim(w, kb + p + STAGES - 1, kb + p + STAGES, blocks);
            w->past = STAGES > 2 && kb + p >= blocks ? 0x80000000 : 0;
            run_block(w, p);
        }
    QD_UNROLL for (int e = 0; e < 8; e++)
        promote(w, TILES - 1, e, w->part[1], w->scale);
    w->past = 0; // a broken K-block may follow
    QD_WAIT(0);  // the LDS must not change hands while copies are under way
}

/** Runs one K-block, whole or not, with a through registers. Nothing past a row's end is read or
 *  multiplied. */
QD_INLINE void run_last(wave *w, const qk_gemm_args *g, uint32_t block) {
    qd_barrier();
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < TM * 8; i += THREADS) {
        qd_u32x4 codes = 0;
        if (i / 8 < w->rows)
            codes = qk_gemm_load_piece(w->a_base + i / 8 * g->a_row, block * BLOCK_K + i % 8 * 16,
                                       g->k);
        *(QD_LDS qd_u32x4 *)(lds0 + swizzle(i / 8, i % 8)) = repair(codes);
    }
    aim(w, block, block, block + 1);
    load_block(w, 0);
    QD_WAIT(0);
    qd_barrier();
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        if (tile % NT == 0) QD_UNROLL
            for (int j = 0; j < 4; j++)
                read_a(w, lds0, tile / NT, j);
        qd_f32x16 part = 0;
        QD_UNROLL for (int q = 0; q < 8; q++)
            part = multiply(w, 0, tile / NT, tile % NT, q, part);
        QD_UNROLL for (int e = 0; e < 8; e++)
            promote(w, tile, e, part, scale_of(w, 0, tile / NT));
    }
}

// ---- setting up

/** Returns this lane's offset of copy i: that of its row and of the piece that belongs at the
 *  lane's place in LDS. */
QD_INLINE uint32_t a_offset(const wave *w, const qk_gemm_args *g, uint32_t i) {
#ifdef QK_REPAIR
    uint32_t row = w->wave * WAVE_ROWS + i * 8 + qd_lane() / 8, k = qd_lane() % 8 * 16;
#else
    const uint32_t row = w->wave * WAVE_ROWS + i * 2 + qd_lane() / 32;
    const uint32_t k = (qd_lane() / 4 % 8 ^ (row & 7)) * 16 + qd_lane() % 4 * 4;
#endif
    const uint32_t offset = qd_by_all_lanes(row * (uint32_t)g->a_row + k);
    return row < w->rows ? offset : QD_OUTSIDE;
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t lane = qd_lane(), num_kb = qd_div_up(g->k, BLOCK_K);
    const uint32_t wave_m = w->wave / WN * MT * 32, wave_n = w->wave % WN * NT * 32;
    const uint8_t *a = (const uint8_t *)g->a + tile->row * g->a_row, *b = g->b;
    const float *scale_a = g->scale_a + tile->row * g->scale_a_row;
    const float *scale_b = g->scale_b + n0 / 128 * g->scale_b_nb;
    if (tile->group > 0) {
        qd_pin(); // keeps this a branch
        a += tile->group * g->a_group;
        b += tile->group * g->b_group;
        scale_a += tile->group * g->scale_a_group;
        scale_b += tile->group * g->scale_b_group;
    }
    w->a_base = a;
    w->a_bytes = (w->rows - 1) * (uint32_t)g->a_row + g->k;
    w->b_base = b + (int64_t)(n0 + wave_n) * g->packed_k;
    w->b_bytes = NT * 32 * g->packed_k;
    w->scale_a_base = scale_a;
    w->scale_a_bytes =
        ((w->rows - 1) * (uint32_t)g->scale_a_row + (num_kb - 1) * (uint32_t)g->scale_a_kb + 1) *
        (uint32_t)sizeof(float);
    w->scale_b_base = scale_b;
    w->scale_b_bytes = num_kb * (uint32_t)sizeof(float);
    w->a = qd_buffer(a, w->a_bytes);
    w->b = qd_buffer(w->b_base, w->b_bytes);
    w->scale_a = qd_buffer(scale_a, w->scale_a_bytes);
    w->scale_b = qd_buffer(scale_b, w->scale_b_bytes);
    w->past = 0;
    w->a_at = w->b_at = w->scale_a_at = w->scale_b_at = 0;
    w->scale_a_step = (uint32_t)(g->scale_a_kb * sizeof(float));
    w->strip_bytes = g->packed_k * QK_PACK_ROWS;
    w->b_offset = lane * 16;
    QD_UNROLL for (int i = 0; i < MT; i++) {
        const uint32_t row = wave_m + i * 32 + lane % 32;
        w->scale_offset[i] =
            row < w->rows ? row * (uint32_t)(g->scale_a_row * sizeof(float)) : QD_OUTSIDE;
    }
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        w->read_offset[j] = swizzle(wave_m + lane % 32, 2 * j + lane / 32);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        w->a_offset[i] = a_offset(w, g, i);
}

QD_WAVES_PER_EU(MT == 4 ? 1 : 2) QD_KERNEL(THREADS) qk_gemm_fp8(QK_GEMM_PARAMETER) {
    static_assert(sizeof(qk_gemm_args) > 3 * 64 + 4);
    qd_touch_arguments();
    qd_pin(); // no load of them stands before
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    qk_gemm_order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_counted(&g, tile_m, TM, &tile))
        return;
    wave w;
    w.wave = qd_wave();
    w.rows = tile.row < tile.end ? qd_min(tile.end - tile.row, TM) : 0;
    if (w.rows > 0 && g.k > 0) {
        set_up(&w, &g, &tile, tile_n * TN);
        const uint32_t blocks = g.k / BLOCK_K & (STAGES > 2 ? -1u : -2u);
        if (blocks > 0)
            run_blocks(&w, blocks);
        else
            clear(&w);
        for (uint32_t block = blocks; block * BLOCK_K < g.k; block++)
            run_last(&w, &g, block);
    } else {
        clear(&w);
    }
#ifdef QK_FULL
    const qk_gemm_full_args full = qk_gemm_reread(&f, &tile);
    QK_GEMM_EACH_RATIO(&full.g, {
        finish(&w, &full.g, &tile, tile_n * TN, ratio);
        if (has_whole_rows(&full.g, tile_n * TN))
            store_rows(&w, &full.g, &tile, tile_n * TN, ratio);
        else if (qk_gemm_has_codes(&full.g))
            store_by_lds(&w, &full.g, &full.scaling, &tile, tile_n * TN, ratio, true);
        else
            store_by_lds(&w, &full.g, &full.scaling, &tile, tile_n * TN, ratio, false);
    })
#else
    const qk_gemm_args again = qk_gemm_by_words(qd_reread(&g)); // not kept during the loop
    if (again.has_epilogue)
        finish(&w, &again, &tile, tile_n * TN, 1);
    if (has_whole_rows(&again, tile_n * TN)) {
        settle_nans(&w);
        store_rows(&w, &again, &tile, tile_n * TN, 1);
    } else {
        store_pieces(&w, &again, &tile, tile_n * TN);
    }
#endif
}
