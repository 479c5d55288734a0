// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, with -DQK_IS_F16 of f16, with -DQK_IS_FP8 of e4m3fn, on RDNA: d = c + a b^T.
//
// Needs     v_wmma_f32_16x16x16 (gfx11, gfx12), wave32
// Tile      TM x TN x BLOCK_K with TM = 16 MT WM, TN = 16 NT WN; WM x WN waves, each MT x NT tiles
//           of 16 x 16
// Launch    32 WM WN threads; grid = tiles_m * tiles_n (* groups when masked)
// LDS       two stages of rows of 64 bytes, a's first, which lie 80 bytes apart, so that the eight
//           lanes of a read's phase touch all banks
// Schedule  Loads fetch a line of two K-blocks, 128 bytes as a cache has them: of half a line the
//           other half would leave the cache before its turn. They wait in registers until a stage
//           is free. Each half of a K-block is multiplied while the other half, or the next block's
//           first, is read; so the waves meet once a block, with products to go on with
// FP8       gfx12 multiplies it. For gfx11 codes become f16 on their way to LDS, and a line has 64
//           bytes. b may be packed
// Layouts   of 16-bit kinds: k contiguous (qk_gemm_wmma), n in b (_nn), m in a (_tt), both (_tn).
//           The latter turn rows on their way to LDS (gemm_wmma_across_gpu.h). FP8 has k contiguous
// Scales    of FP8: qk_gemm_wmma_blocks takes those of 1 x 128 and 128 x 128, qk_gemm_wmma_rows
//           one for a row of a or all of it, one for a row of b or all of it, or none
// Sum       one chain for each element of d, through k in steps of 16; with scales of blocks one
//           for each 128 of k, which is scaled and added to the sum
// Edges     rows past a's or b's end are copies of the last one, whose results nobody stores; what
//           whole lines leave of k is moved to its place and padded by zeros (run_rest). k is a
//           piece at least
// Source    manuals "RDNA3" and "RDNA4", WMMA, for the lane layouts; checked by the simulator's
//           matrix tests
#include "gemm_wmma_across_gpu.h"
#include "gemm_wmma_store_gpu.h"

// ---- filling a stage

/** Returns where K-block `block` of a's line begins. */
QD_INLINE const MEMORY uint8_t *a_at(const wave *w, uint32_t block, uint32_t what) {
    if (what & A_ACROSS)
        return block ? in_scalars(w->a + w->a_block) : w->a;
    return w->a + block * BLOCK_BYTES;
}

QD_INLINE const MEMORY uint8_t *b_at(const wave *w, uint32_t block, uint32_t what) {
    if (IS_FP8 || what & B_ACROSS)
        return block ? in_scalars(w->b + w->b_block) : w->b;
    return w->b + block * BLOCK_BYTES;
}

/** Returns whether load i is of an operand that lies across. */
QD_INLINE bool is_across(int i, uint32_t what) {
    return what & (i < LOADS_A ? A_ACROSS : B_ACROSS);
}

/** Returns where this thread's piece i of a K-block lies in memory, `past` elements back. */
QD_INLINE const MEMORY piece *piece_at(const wave *w, uint32_t block, int i, uint32_t past,
                                       uint32_t what) {
    const MEMORY uint8_t *from = i < LOADS_A ? a_at(w, block, what) : b_at(w, block, what);
    return (const MEMORY piece *)(from + w->offset[i] - (int32_t)(past * ELEMENT));
}

QD_INLINE void step(wave *w, uint32_t what) {
    w->a += what & A_ACROSS ? 2 * w->a_block : 2 * BLOCK_BYTES;
    w->b += IS_FP8 || what & B_ACROSS ? 2 * w->b_block : 2 * BLOCK_BYTES;
}

/** Loads the next block's scales. */
QD_INLINE void load_scales(wave *w) {
    w->scale_a = in_scalars(w->scale_a);
    w->scale_b = in_scalars(w->scale_b);
    QD_UNROLL for (int m = 0; m < MT; m++) {
        w->scale_offset[m] = qd_opaque(w->scale_offset[m]);
        w->next_a[m] = *(const MEMORY float *)(w->scale_a + w->scale_offset[m]);
    }
    w->next_b = *(const MEMORY float *)w->scale_b;
    w->scale_a += w->scale_a_step;
    w->scale_b += sizeof(float);
    qd_pin();
}

/** Loads a line: two K-blocks. */
QD_INLINE void load(wave *w, uint32_t what) {
    w->a = in_scalars(w->a);
    w->b = in_scalars(w->b);
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        w->offset[i] = qd_opaque(w->offset[i]);
    QD_UNROLL for (uint32_t block = 0; block < 2; block++) {
        QD_UNROLL for (int i = 0; i < LOADS; i++)
            if (!is_across(i, what))
                w->held[block][i] = *piece_at(w, block, i, 0, what);
        if (what & A_ACROSS)
            load_across(w->held[block], a_at(w, block, what), w->offset[0], w->a_across.step,
                        LOADS_A);
        if (what & B_ACROSS)
            load_across(w->held[block] + LOADS_A, b_at(w, block, what), w->offset[LOADS_A],
                        w->b_across.step, LOADS_B);
    }
    step(w, what);
    qd_pin();
}

#if defined(QK_IS_FP8) && !BY_FP8
/** Returns two e4m3fn codes in the high bytes of halves as f16 of 2^-8 of their values. A NaN code
 *  is then the only one that overflows times 36000, and infinity times 0 is a NaN. */
QD_INLINE uint32_t widen2(uint32_t high) {
    const uint32_t signs_twice =
        __builtin_bit_cast(uint32_t, __builtin_bit_cast(qd_i16x2, high) >> 1);
    const qd_f16x2 x = __builtin_bit_cast(qd_f16x2, signs_twice & 0xBF80BF80);
    return __builtin_bit_cast(
        uint32_t, __builtin_elementwise_fma(x * (_Float16)36000, (qd_f16x2)(_Float16)0, x));
}

/** Returns a piece as it stands in LDS: of each four of k, the even ones before the odd ones. */
QD_INLINE qd_u32x4 staged(codes v) {
    return (qd_u32x4){widen2(v.x << 8), widen2(v.x), widen2(v.y << 8), widen2(v.y)};
}

/** Returns a piece without the first `bytes`, and zeros in their place behind the others. */
QD_INLINE codes without(codes v, uint32_t bytes) {
    return bytes < 8 ? __builtin_bit_cast(codes, __builtin_bit_cast(uint64_t, v) >> bytes * 8) : 0;
}
#else
QD_INLINE qd_u32x4 staged(codes v) {
    return v;
}

/** Returns a piece without the first `bytes`, and zeros in their place behind the others. */
QD_INLINE codes without(codes v, uint32_t bytes) {
    if (bytes >= 16)
        v = 0;
    if (bytes & 8)
        v = (codes){v.z, v.w, 0, 0};
    if (bytes & 4)
        v = (codes){v.y, v.z, v.w, 0};
    QD_UNROLL for (uint32_t part = ELEMENT; part < 4; part *= 2)
        if (bytes & part)
            v = (v >> part * 8) | (codes){v.y, v.z, v.w, 0} << (32 - part * 8);
    return v;
}
#endif

/** Returns where this thread's piece i goes in a stage. */
QD_INLINE QD_LDS qd_u32x4 *place_of(const wave *w, uint32_t block, int i) {
    return (QD_LDS qd_u32x4 *)(lds + w->write + block * STAGE_BYTES + i * row_at(TURN));
}

QD_INLINE void put(const wave *w, uint32_t block, uint32_t what) {
    QD_LDS uint8_t *stage = lds + block * STAGE_BYTES;
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        if (!is_across(i, what))
            *place_of(w, block, i) = staged(w->held[block][i]);
    if (what & A_ACROSS)
        put_across(stage + w->a_across.to, w->held[block], LOADS_A, false);
    if (what & B_ACROSS)
        put_across(stage + w->b_across.to, w->held[block] + LOADS_A, LOADS_B, true);
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
        w->b_tile[half][i] = operand_at(w->read_b + at + i * row_at(16));
    else if (i < READS)
        w->a_tile[half % A_SETS][i - NT] = operand_at(w->read_a + at + (i - NT) * row_at(16));
}

/** Reads operands of a half of the block in a stage, while product i of the other half runs. */
QD_INLINE void read_beside(wave *w, uint32_t block, uint32_t half, uint32_t i) {
    if (A_SETS == 1) {
        if (i < NT)
            read(w, block, half, i);
        if (i % NT == NT - 1)
            read(w, block, half, NT + i / NT);
        return;
    }
    QD_UNROLL for (uint32_t r = i * RATE; r < (i + 1) * RATE; r++)
        read(w, block, half, r);
}

/** Returns the sum d of a tile and the products of a half of a K-block. x's lines are rows. */
QD_INLINE qd_mma16_acc product(qd_mma16_operand x, qd_mma16_operand y, qd_mma16_acc d) {
#if BY_FP8
    const qd_i64x2 xs = __builtin_bit_cast(qd_i64x2, x), ys = __builtin_bit_cast(qd_i64x2, y);
    return qd_mma16_fp8(xs.y, ys.y, qd_mma16_fp8(xs.x, ys.x, d));
#else
    return qd_mma16(IS_F16, x, y, d);
#endif
}

/** Multiplies the operands of a half of a K-block for a tile. The result has b's rows as rows and
 *  a's as columns. */
QD_INLINE void multiply_tile(wave *w, uint32_t half, uint32_t i, uint32_t what) {
    const uint32_t m = i / NT, n = i % NT;
    qd_mma16_acc *to = what & BY_BLOCKS ? &w->part[m][n] : &w->sum[m][n];
    const bool is_new = (what & BY_BLOCKS) && (what & FIRST);
    *to = product(w->b_tile[half][n], w->a_tile[half % A_SETS][m], is_new ? 0 : *to);
}

/** Adds a tile's partial, scaled, to its sum. Two FMAs make one instruction if they take the scale
 *  from two registers. */
QD_INLINE void promote(wave *w, uint32_t i) {
    const uint32_t m = i / NT, n = i % NT;
    QD_UNROLL for (int e = 0; e < QD_MMA16_ACC; e++)
        w->sum[m][n][e] =
            __builtin_fmaf(w->part[m][n][e], w->scale[e % COPIES][m], w->sum[m][n][e]);
}

/** Multiplies a half of a K-block, and reads the other half of the block in stage `next`. */
QD_INLINE void multiply(wave *w, uint32_t half, uint32_t next, uint32_t what) {
    const bool promotes = (what & BY_BLOCKS) && (what & LAST);
    QD_UNROLL for (uint32_t i = 0; i < TILES; i++) {
        multiply_tile(w, half, i, what);
        read_beside(w, next, 1 - half, i);
        if (promotes && i > 0)
            promote(w, i - 1);
        qd_pin();
    }
    if (promotes)
        promote(w, TILES - 1);
}

/** Makes the scales that were loaded those of the block that is multiplied. */
QD_INLINE void take_scales(wave *w) {
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int i = 0; i < COPIES; i++)
            w->scale[i][m] = qd_as_f32(qd_opaque(qd_as_u32(w->next_a[m] * (SCALE * w->next_b))));
}

// ---- through k

/** Runs a line and loads the next one, with its scales if it is another block's. */
QD_INLINE void run_line(wave *w, uint32_t what) {
    const bool has_next = (what & BY_BLOCKS) && (what & LAST);
    multiply(w, 0, 0, what & ~LAST);
    put(w, 1, what);
    meet();
    if (has_next)
        load_scales(w);
    load(w, what);
    multiply(w, 1, 1, what & BY_BLOCKS);
    multiply(w, 0, 1, what & BY_BLOCKS);
    put(w, 0, what);
    meet();
    multiply(w, 1, 0, what & ~FIRST);
    if (has_next)
        take_scales(w);
}

/** Runs the last line. */
QD_INLINE void run_last(wave *w, uint32_t what) {
    multiply(w, 0, 0, what & ~LAST);
    put(w, 1, what);
    meet();
    multiply(w, 1, 1, what & BY_BLOCKS);
    multiply(w, 0, 1, what & BY_BLOCKS);
    multiply(w, 1, 1, what & ~FIRST); // what it reads nobody multiplies
}

/** Returns what is to be known of line `line` of a turn. */
QD_INLINE uint32_t line_of(uint32_t form, uint32_t line) {
    return form | (line == 0 ? FIRST : 0) | (line == LINES - 1 ? LAST : 0);
}

/** Runs whole turns of the loop. */
QD_INLINE void run_turns(wave *w, uint32_t turns, uint32_t form) {
    if (form & BY_BLOCKS)
        load_scales(w);
    load(w, form);
    put(w, 0, form);
    meet();
    QD_UNROLL for (uint32_t i = 0; i < READS; i++)
        read(w, 0, 0, i);
    if (form & BY_BLOCKS)
        take_scales(w);
    QD_NO_UNROLL for (uint32_t turn = 1; turn < turns; turn++) QD_UNROLL
        for (uint32_t line = 0; line < LINES; line++)
            run_line(w, line_of(form, line));
    QD_UNROLL for (uint32_t line = 0; line < LINES - 1; line++)
        run_line(w, line_of(form, line));
    run_last(w, line_of(form, LINES - 1));
}

/** Fills both stages with a line of which `count` of k, or all, exist. Of packed weights, too, what
 *  stands behind the end goes. */
QD_INLINE void put_rest(const wave *w, uint32_t count, uint32_t what) {
    QD_UNROLL for (uint32_t block = 0; block < 2; block++) QD_UNROLL
        for (int i = 0; i < LOADS; i++) {
            if (is_across(i, what))
                continue;
            const uint32_t end = block * BLOCK_K + (qd_thread() % PIECES + 1) * PIECE_K;
            const uint32_t past = end > count ? end - count : 0;
            *place_of(w, block, i) =
                staged(without(*piece_at(w, block, i, past, what), past * ELEMENT));
            qd_pin();
        }
    if (what & A_ACROSS)
        put_rest_across(w->a, &w->a_across, w->rows, count, LOADS_A, false);
    if (what & B_ACROSS)
        put_rest_across(w->b, &w->b_across, w->columns, count, LOADS_B, true);
}

/** Runs what remains behind the turns of the loop: `count` of k. */
QD_INLINE void run_rest(wave *w, uint32_t count, uint32_t form) {
    if (form & BY_BLOCKS) {
        load_scales(w);
        take_scales(w);
        QD_UNROLL for (uint32_t i = 0; i < TILES; i++)
            w->part[i / NT][i % NT] = 0;
    }
    const uint32_t most = LINES * LINE_K + (form & (A_ACROSS | B_ACROSS) ? BEHIND : 0);
    QD_NO_UNROLL for (uint32_t from = 0; from < most && from < count; from += LINE_K) {
        qd_barrier(); // no wave reads LDS any more
        put_rest(w, count - from, form);
        qd_barrier();
        step(w, form);
        const uint32_t end = qd_min(count - from, LINE_K);
        QD_NO_UNROLL for (uint32_t k = 0; k < end; k += STEP_K) {
            const uint32_t at = k / BLOCK_K * STAGE_BYTES + k % BLOCK_K / STEP_K * 32;
            w->read_a += at;
            w->read_b += at;
            QD_UNROLL for (uint32_t i = 0; i < READS; i++)
                read(w, 0, 0, i);
            w->read_a -= at;
            w->read_b -= at;
            QD_UNROLL for (uint32_t i = 0; i < TILES; i++)
                multiply_tile(w, 0, i, form);
        }
    }
    if (form & BY_BLOCKS) QD_UNROLL
        for (uint32_t i = 0; i < TILES; i++)
            promote(w, i);
}

// ---- setting up

/** Starts the sums, and says where the wave's operands lie and this thread's pieces go. */
QD_INLINE void begin(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t lane = qd_lane(), in_row = qd_mma16_k(lane) * 2;
    w->rows = tile->row < tile->end ? qd_min(tile->end - tile->row, TM) : 0;
    w->columns = qd_min(g->n - n0, TN);
    w->read_a = row_at(qd_wave() / WN * (16 * MT) + lane % 16) + in_row;
    w->read_b = row_at(TM + qd_wave() % WN * (16 * NT) + lane % 16) + in_row;
    w->write = row_at(qd_thread() / PIECES) + qd_thread() % PIECES * 16;
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++)
            w->sum[m][n] = 0;
}

/** Returns where this thread's piece of a row of b lies. */
QD_INLINE uint32_t offset_b(const qk_gemm_args *g, uint32_t row) {
    const uint32_t k = qd_thread() % PIECES * PIECE_K;
    if (IS_FP8 && g->is_packed)
        return (uint32_t)qk_gemm_packed_offset(row, k, g->packed_k);
    return (row * (uint32_t)g->b_n + k) * ELEMENT;
}

/** Says where this thread's pieces of a and b come from. */
QD_INLINE void aim(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0,
                   uint32_t form) {
    const uint32_t first = qd_thread() / PIECES, k = qd_thread() % PIECES * PIECE_K;
    const bool is_packed = IS_FP8 && g->is_packed;
    const int64_t n0_at = n0 * (is_packed ? g->packed_k : g->b_n);
    w->b_block = is_packed ? QK_PACK_ROWS * BLOCK_K : BLOCK_BYTES;
    w->a =
        (const MEMORY uint8_t *)g->a + (tile->group * g->a_group + tile->row * g->a_row) * ELEMENT;
    w->b = (const MEMORY uint8_t *)g->b + (tile->group * g->b_group + n0_at) * ELEMENT;
    if (form & A_ACROSS)
        w->a_block = aim_across(&w->a_across, w->offset, g->a_k, w->rows, LOADS_A, false);
    else QD_UNROLL
        for (uint32_t i = 0; i < LOADS_A; i++)
            w->offset[i] =
                (qd_min(first + i * TURN, w->rows - 1) * (uint32_t)g->a_row + k) * ELEMENT;
    if (form & B_ACROSS)
        w->b_block =
            aim_across(&w->b_across, w->offset + LOADS_A, g->b_k, w->columns, LOADS_B, true);
    else QD_UNROLL
        for (uint32_t i = 0; i < LOADS_B; i++)
            w->offset[LOADS_A + i] =
                offset_b(g, qd_min(column_of(first + i * TURN), w->columns - 1));
}

/** Returns how many turns the loop runs. */
QD_INLINE uint32_t count_turns(const wave *w, uint32_t k, uint32_t form) {
    const bool passes_a = form & A_ACROSS && w->rows % RUN_OF(LOADS_A) > 0;
    const bool passes_b = form & B_ACROSS && w->columns % RUN_OF(LOADS_B) > 0;
    return (k - (passes_a || passes_b ? BEHIND : 0)) / (LINES * LINE_K);
}

/** Says where the scales of blocks of this lane's rows and of the tile's columns are. */
QD_INLINE void aim_scales(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    w->scale_a_step = (uint32_t)g->scale_a_kb * 4;
    w->scale_a = (const MEMORY uint8_t *)(g->scale_a + tile->group * g->scale_a_group +
                                          tile->row * g->scale_a_row);
    w->scale_b = (const MEMORY uint8_t *)(g->scale_b + tile->group * g->scale_b_group +
                                          n0 / 128 * g->scale_b_nb);
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = (qd_wave() / WN * MT + m) * 16 + qd_lane() % 16;
        w->scale_offset[m] = qd_min(row, w->rows - 1) * (uint32_t)g->scale_a_row * 4;
    }
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

/** Computes a tile. */
QD_INLINE void run(const qk_gemm_full_args *f, uint32_t form) {
    const qk_gemm_args g = f->g;
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    find_place(&g, &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    wave w;
    begin(&w, &g, &tile, n0);
    if (w.rows > 0 && g.k > 0) {
        aim(&w, &g, &tile, n0, form);
        if (form & BY_BLOCKS)
            aim_scales(&w, &g, &tile, n0);
        const uint32_t turns = count_turns(&w, g.k, form);
        const uint32_t rest = g.k - turns * (LINES * LINE_K);
        if (turns > 0)
            run_turns(&w, turns, form);
        if (rest > 0)
            run_rest(&w, rest, form);
    }
    finish(&w, f, &tile, n0, form & BY_BLOCKS);
}

#ifdef QK_IS_FP8
QD_KERNEL(THREADS) qk_gemm_wmma_blocks(const qk_gemm_full_args f) {
    run(&f, BY_BLOCKS);
}
QD_KERNEL(THREADS) qk_gemm_wmma_rows(const qk_gemm_full_args f) {
    run(&f, 0);
}
#else
QD_KERNEL(THREADS) qk_gemm_wmma(const qk_gemm_full_args f) {
    run(&f, 0);
}
QD_KERNEL(THREADS) qk_gemm_wmma_nn(const qk_gemm_full_args f) {
    run(&f, B_ACROSS);
}
QD_KERNEL(THREADS) qk_gemm_wmma_tn(const qk_gemm_full_args f) {
    run(&f, A_ACROSS | B_ACROSS);
}
QD_KERNEL(THREADS) qk_gemm_wmma_tt(const qk_gemm_full_args f) {
    run(&f, A_ACROSS);
}
#endif
