// SPDX-License-Identifier: Apache-2.0
// FP8 gemm for few rows, weights packed: streams the weights once, at the speed of memory (CDNA3,
// CDNA4).
//
// Needs     gfx942: v_mfma_f32_32x32x16_fp8_fp8, a e4m3fn or e4m3fnuz; gfx950:
//           v_mfma_f32_32x32x64_f8f6f4, a e4m3fn; b from qk_gemm_pack
// Tile      32 rows x 32 columns; in each round the 8 waves multiply a K-block each, then meet, and
//           every wave adds all eight partials of its eighth of the tile
// Sum       K-block after K-block, as in every other kernel of the family: the same bits
// Launch    512 threads; grid = tiles_m * tiles_n (* groups when masked), columns fastest
// LDS       34 KiB: each wave's 32 x 32 partials and scales. In the place of its partials a wave
//           turns its K-block of a: loads take whole lines, eight lanes a row, as a load of 16
//           bytes of each of 32 rows would keep the vector cache busy four times as long; 16-byte
//           piece c of row r stands at c ^ (r & 7)
// Registers two K-blocks of a and b on their way: 2 x 32 VGPRs
// Edges     rows that do not exist read as zero; the last k % 128 by one wave, a through checked
//           loads
// Schedule  b is read without caching; 8 KiB a wave are under way at any time. Loads past the last
//           K-block touch no memory. Memory bounds the kernel, so the MFMAs need no order of their
//           own.
#include "copy.h"
#include "fp8.h"
#include "gemm_full_gpu.h"
#include "mma/cdna_fp8.h"

enum { TILE = 32, BLOCK_K = 128, WAVES = 8, THREADS = 64 * WAVES, AHEAD = 2 };

// Of each wave 32 rows of a, or [pair][lane] f32x2: elements 2 pair and 2 pair + 1 of the partial
// that the lane holds; and the scale of that partial.
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_own[WAVES][TILE * BLOCK_K]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS float lds_scale[WAVES][64];

/** Returns the place of element pair `pair` of the partial that this lane of a wave holds. */
QD_INLINE QD_LDS qd_f32x2 *part_at(uint32_t wave, uint32_t pair) {
    return (QD_LDS qd_f32x2 *)lds_own[wave] + pair * 64 + qd_lane();
}
/** Returns the place of a 16-byte piece of a row of this wave's a. */
QD_INLINE QD_LDS qd_u32x4 *piece_at(uint32_t row, uint32_t piece) {
    return (QD_LDS qd_u32x4 *)(lds_own[qd_wave()] + row * BLOCK_K + (piece ^ (row & 7)) * 16);
}

/** This lane's operands of one K-block: b's 16 bytes for each 32 of k; a's rows lane / 8 + 8 i, 16
 *  bytes each. */
typedef struct block {
    qd_u32x4 a[4], b[4];
    float scale_a, scale_b;
} block;

typedef struct strip {
    __amdgpu_buffer_rsrc_t a, b, scale_a, scale_b;
    uint32_t a_offset[4], scale_offset; // of this lane's rows; QD_OUTSIDE if there is none
    uint32_t scale_step;                // bytes from one K-block's scales of a to the next's
    bool is_fn;                         // a is to be repaired for FNUZ cores
} strip;

/** Loads b and scales of a K-block; `outside` is QD_OUTSIDE if there is no such block, else 0. */
QD_INLINE void load_b(const strip *s, block *x, uint32_t kb, uint32_t outside) {
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        x->b[j] =
            qd_buffer_stream4(s->b, (qd_lane() * 16 + j * 1024) | outside, kb * QK_PACK_BLOCK);
    x->scale_a =
        qd_as_f32(qd_buffer_load(s->scale_a, s->scale_offset | outside, kb * s->scale_step));
    x->scale_b = qd_as_f32(qd_buffer_load(s->scale_b, outside, kb * (uint32_t)sizeof(float)));
}

/** Loads a K-block, if it is one of the first `blocks`. */
QD_INLINE void load_block(const strip *s, block *x, uint32_t kb, uint32_t blocks) {
    const uint32_t outside = kb < blocks ? 0 : QD_OUTSIDE;
    kb = qd_min(kb, blocks - 1);
    load_b(s, x, kb, outside);
    QD_UNROLL for (int i = 0; i < 4; i++)
        x->a[i] = qd_buffer_load4(s->a, s->a_offset[i] | outside, kb * BLOCK_K);
    qd_pin(); // keeps this many loads under way
}

/** Repairs this lane's pieces of a e4m3fn. The pin keeps it a branch: from a choice the compiler
 *  would make vector instructions that always run. */
QD_INLINE void repair(const strip *s, block *x) {
    if (!s->is_fn)
        return;
    qd_pin();
    QD_UNROLL for (int i = 0; i < 16; i++)
        x->a[i / 4][i % 4] = qd_fp8_fnuz_from_fn(x->a[i / 4][i % 4]);
}

/** Hands a's pieces through LDS to the lanes that multiply them: lane l gets pieces 2 j + l / 32 of
 *  row l % 32. */
QD_INLINE void turn(block *x) {
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        *piece_at(qd_lane() / 8 + 8 * i, qd_lane() % 8) = x->a[i];
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        x->a[j] = *piece_at(qd_lane() % 32, 2 * j + qd_lane() / 32);
}

/** Multiplies a K-block. The result has weights as rows and activations as columns. */
QD_INLINE qd_f32x16 multiply(const block *x) {
    qd_f32x16 part = 0;
    QD_UNROLL for (int q = 0; q < 8; q++)
        part = qd_mma32_fp8(x->b, x->a, q, part);
    return part;
}

/** Writes this wave's partial to LDS, for all waves. */
QD_INLINE void share(const strip *s, const block *x, qd_f32x16 part) {
    QD_UNROLL for (uint32_t i = 0; i < 8; i++)
        *part_at(qd_wave(), i) = (qd_f32x2){part[2 * i], part[2 * i + 1]};
    lds_scale[qd_wave()][qd_lane()] = x->scale_a * (s->is_fn ? 2 * x->scale_b : x->scale_b);
}

/** Adds what wave w shared to this wave's pair of sums. */
QD_INLINE qd_f32x2 add(qd_f32x2 sum, uint32_t w) {
    qd_f32x2 scale = lds_scale[w][qd_lane()];
    return __builtin_elementwise_fma(*part_at(w, qd_wave()), scale, sum);
}

/** Adds what the waves shared, `count` K-blocks, in the blocks' order. */
QD_INLINE qd_f32x2 add_round(qd_f32x2 sum, uint32_t count) {
    qd_barrier();
    if (count >= WAVES) QD_UNROLL
        for (uint32_t w = 0; w < WAVES; w++)
            sum = add(sum, w);
    else QD_NO_UNROLL
        for (uint32_t w = 0; w < count; w++)
            sum = add(sum, w);
    return sum;
}

/** Runs the whole K-blocks. Rounds past the end only load, from nowhere: with a way out of the
 *  turn, or with loads in a branch, the compiler no longer counts how many are under way. */
QD_INLINE qd_f32x2 run_blocks(const strip *s, uint32_t blocks) {
    block x[AHEAD];
    qd_f32x2 sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        load_block(s, &x[i], qd_wave() + i * WAVES, blocks);
    for (uint32_t kb = 0; kb < blocks; kb += AHEAD * WAVES) QD_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++) {
            const uint32_t first = kb + i * WAVES;
            if (i == 0 || first < blocks) {
                qd_barrier(); // all have read the round before
                repair(s, &x[i]);
                turn(&x[i]);
                share(s, &x[i], multiply(&x[i]));
            }
            load_block(s, &x[i], first + AHEAD * WAVES + qd_wave(), blocks);
            if (i == 0 || first < blocks)
                sum = add_round(sum, blocks - first);
        }
    return sum;
}

/** Runs the last, broken K-block on the first wave. */
QD_INLINE qd_f32x2 run_tail(const strip *s, qd_f32x2 sum, const qk_gemm_args *g,
                            const uint8_t *a_row, bool has_row, uint32_t kb) {
    block x;
    load_b(s, &x, kb, 0);
    QD_UNROLL for (uint32_t j = 0; j < 4; j++) {
        x.a[j] = 0;
        if (has_row)
            x.a[j] = qk_gemm_load_piece(a_row, kb * BLOCK_K + j * 32 + qd_lane() / 32 * 16, g->k);
    }
    qd_barrier(); // all have read the round before
    repair(s, &x);
    share(s, &x, multiply(&x));
    return add_round(sum, 1);
}

/** Brings the waves' pairs of sums together and stores them. Each of 256 lanes stores four columns
 *  of a row. */
QD_INLINE void finish(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                      const qk_gemm_tile *tile, uint32_t n0, qd_f32x2 sum) {
    qd_barrier();
    *part_at(0, qd_wave()) = sum;
    qd_barrier();
    if (qd_wave() >= 4)
        return;
    qd_f32x2 low = *part_at(0, 2 * qd_wave()), high = *part_at(0, 2 * qd_wave() + 1);
    const uint32_t column = n0 + qd_wave() * 8 + qd_lane() / 32 * 4;
    const uint32_t row = tile->row + qd_lane() % 32;
    qd_f32x4 values = {low.x, low.y, high.x, high.y};
#ifdef QK_FULL
    qk_gemm_end_columns(g, scaling, tile, row, column, values);
#else
    (void)scaling;
    if (g->has_epilogue)
        values = qk_gemm_finish4(g, row, column, values);
    qk_gemm_store4(g, tile, row, column, values);
#endif
}

QD_INLINE strip strip_of(const qk_gemm_args *g, const qk_gemm_tile *tile, const uint8_t *a,
                         uint32_t rows, uint32_t n0) {
    const uint32_t lane = qd_lane(), row = lane % 32, num_kb = qd_div_up(g->k, BLOCK_K);
    const uint8_t *b = (const uint8_t *)g->b + tile->group * g->b_group + (int64_t)n0 * g->packed_k;
    const float *scale_a = g->scale_a + tile->group * g->scale_a_group + tile->row * g->scale_a_row;
    const float *scale_b = g->scale_b + tile->group * g->scale_b_group + n0 / 128 * g->scale_b_nb;
    uint32_t scales =
        (rows - 1) * (uint32_t)g->scale_a_row + (num_kb - 1) * (uint32_t)g->scale_a_kb + 1;
    strip s = {
        .a = qd_buffer(a, (rows - 1) * (uint32_t)g->a_row + g->k),
        .b = qd_buffer(b, TILE * g->packed_k),
        .scale_a = qd_buffer(scale_a, scales * (uint32_t)sizeof(float)),
        .scale_b = qd_buffer(scale_b, num_kb * (uint32_t)sizeof(float)),
        .scale_offset = row < rows ? row * (uint32_t)(g->scale_a_row * sizeof(float)) : QD_OUTSIDE,
        .scale_step = (uint32_t)(g->scale_a_kb * sizeof(float)),
        .is_fn = QD_FP8_USUAL == QD_E4M3FNUZ && g->type_a == QK_E4M3FN,
    };
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const uint32_t r = lane / 8 + 8 * i;
        s.a_offset[i] = r < rows ? r * (uint32_t)g->a_row + lane % 8 * 16 : QD_OUTSIDE;
    }
    return s;
}

QD_KERNEL(THREADS) qk_gemm_decode(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    qk_gemm_tile tile;
    if (!qk_gemm_find_tile(&g, qd_block() / g.tiles_n, TILE, &tile))
        return;
    const uint32_t n0 = qd_block() % g.tiles_n * TILE;
    const uint32_t rows = tile.row < tile.end ? qd_min(tile.end - tile.row, TILE) : 0;
    qd_f32x2 sum = 0;
    if (rows > 0 && g.k > 0) {
        const uint8_t *a = (const uint8_t *)g.a + tile.group * g.a_group + tile.row * g.a_row;
        strip s = strip_of(&g, &tile, a, rows, n0);
        const uint32_t blocks = g.k / BLOCK_K;
        if (blocks > 0)
            sum = run_blocks(&s, blocks);
        if (g.k % BLOCK_K)
            sum =
                run_tail(&s, sum, &g, a + qd_lane() % 32 * g.a_row, qd_lane() % 32 < rows, blocks);
    }
#ifdef QK_FULL
    const qk_gemm_full_args again = qk_gemm_reread(&f, &tile);
    finish(&again.g, &again.scaling, &tile, n0, sum);
#else
    finish(&g, nullptr, &tile, n0, sum);
#endif
}
