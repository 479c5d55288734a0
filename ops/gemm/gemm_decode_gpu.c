// SPDX-License-Identifier: Apache-2.0
// FP8 gemm for few rows, weights packed: streams the weights once, at the speed of memory (CDNA3,
// CDNA4).
//
// Needs     v_mfma_f32_32x32x16_fp8_fp8; b from qk_gemm_pack. gfx942: a e4m3fn or e4m3fnuz; gfx950:
//           e4m3fn
// Tile      32 rows x 32 columns; in each round the 8 waves multiply a K-block each, then meet, and
//           every wave adds all eight partials of its eighth of the tile
// Sum       K-block after K-block, as in every other kernel of the family: the same bits
// Launch    512 threads; grid = tiles_m * tiles_n (* groups when masked), columns fastest
// LDS       34 KiB: each wave's 32 x 32 partials and scales
// Registers four K-blocks of a and b on their way: 4 x 32 VGPRs
// Edges     rows that do not exist read as zero; the last k % 128 by one wave, a through checked
//           loads
// Schedule  b is read without caching; 16 KiB a wave are under way at any time. Memory
//           bounds the kernel, so the MFMAs need no order of their own.
#include "copy.h"
#include "fp8.h"
#include "gemm_full_gpu.h"
#include "mma.h"

enum { TILE = 32, BLOCK_K = 128, WAVES = 8, THREADS = 64 * WAVES, AHEAD = 4 };

// [wave][pair][lane]: elements 2 pair and 2 pair + 1 of the partial that the wave's lane holds, and
// the scale of that partial.
[[clang::loader_uninitialized]] static QD_LDS qd_f32x2 lds_part[WAVES][8][64];
[[clang::loader_uninitialized]] static QD_LDS float lds_scale[WAVES][64];

/** This lane's operands of one K-block: 16 bytes for each 32 of k. */
typedef struct block {
    qd_u32x4 a[4], b[4];
    float scale_a, scale_b;
} block;

typedef struct strip {
    __amdgpu_buffer_rsrc_t a, b, scale_a, scale_b;
    uint32_t a_offset, scale_offset; // of this lane's row; QD_OUTSIDE if there is none
    uint32_t scale_step;             // bytes from one K-block's scales of a to the next's
    bool is_fn;                      // a is to be repaired for FNUZ cores
} strip;

QD_INLINE void load_b(const strip *s, block *x, uint32_t kb) {
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        x->b[j] = qd_buffer_stream4(s->b, qd_lane() * 16 + j * 1024, kb * QK_PACK_BLOCK);
    x->scale_a = qd_as_f32(qd_buffer_load(s->scale_a, s->scale_offset, kb * s->scale_step));
    x->scale_b = qd_as_f32(qd_buffer_load(s->scale_b, 0, kb * (uint32_t)sizeof(float)));
}

QD_INLINE void load_block(const strip *s, block *x, uint32_t kb) {
    load_b(s, x, kb);
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        x->a[j] = qd_buffer_load4(s->a, s->a_offset + j * 32, kb * BLOCK_K);
    qd_pin(); // keeps this many loads under way
}

/** Multiplies a K-block. The result has weights as rows and activations as columns. */
QD_INLINE qd_f32x16 multiply(const strip *s, block *x) {
    if (s->is_fn) QD_UNROLL
        for (int i = 0; i < 16; i++)
            x->a[i / 4][i % 4] = qd_fp8_fnuz_from_fn(x->a[i / 4][i % 4]);
    qd_f32x16 part = 0;
    QD_UNROLL for (int q = 0; q < 8; q++)
        part = qd_mma32_fp8(x->b[q / 2], x->a[q / 2], q % 2, part);
    return part;
}

/** Writes this wave's partial to LDS, for all waves. */
QD_INLINE void share(const strip *s, const block *x, qd_f32x16 part) {
    qd_barrier(); // all have read the round before
    QD_UNROLL for (int i = 0; i < 8; i++)
        lds_part[qd_wave()][i][qd_lane()] = (qd_f32x2){part[2 * i], part[2 * i + 1]};
    lds_scale[qd_wave()][qd_lane()] = x->scale_a * (s->is_fn ? 2 * x->scale_b : x->scale_b);
}

/** Adds what wave w shared to this wave's pair of sums. */
QD_INLINE qd_f32x2 add(qd_f32x2 sum, uint32_t w) {
    qd_f32x2 scale = lds_scale[w][qd_lane()];
    return __builtin_elementwise_fma(lds_part[w][qd_wave()][qd_lane()], scale, sum);
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

/** Runs the whole K-blocks. Loads past the end repeat the last block and are not added. */
QD_INLINE qd_f32x2 run_blocks(const strip *s, uint32_t blocks) {
    block x[AHEAD];
    qd_f32x2 sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        load_block(s, &x[i], qd_min(qd_wave() + i * WAVES, blocks - 1));
    for (uint32_t kb = 0; kb < blocks; kb += AHEAD * WAVES) QD_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++) {
            const uint32_t first = kb + i * WAVES;
            share(s, &x[i], multiply(s, &x[i]));
            load_block(s, &x[i], qd_min(first + AHEAD * WAVES + qd_wave(), blocks - 1));
            sum = add_round(sum, first < blocks ? blocks - first : 0);
        }
    return sum;
}

/** Runs the last, broken K-block on the first wave. */
QD_INLINE qd_f32x2 run_tail(const strip *s, qd_f32x2 sum, const qk_gemm_args *g,
                            const uint8_t *a_row, uint32_t kb) {
    block x;
    load_b(s, &x, kb);
    QD_UNROLL for (uint32_t j = 0; j < 4; j++) {
        x.a[j] = 0;
        if (s->a_offset != QD_OUTSIDE)
            x.a[j] = qk_gemm_load_piece(a_row, kb * BLOCK_K + j * 32 + qd_lane() / 32 * 16, g->k);
    }
    share(s, &x, multiply(s, &x));
    return add_round(sum, 1);
}

/** Brings the waves' pairs of sums together and stores them. Each of 256 lanes stores four columns
 *  of a row. */
QD_INLINE void finish(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                      const qk_gemm_tile *tile, uint32_t n0, qd_f32x2 sum) {
    qd_barrier();
    lds_part[0][qd_wave()][qd_lane()] = sum;
    qd_barrier();
    if (qd_wave() >= 4)
        return;
    qd_f32x2 low = lds_part[0][2 * qd_wave()][qd_lane()];
    qd_f32x2 high = lds_part[0][2 * qd_wave() + 1][qd_lane()];
    const uint32_t column = n0 + qd_wave() * 8 + qd_lane() / 32 * 4;
    const uint32_t row = tile->row + qd_lane() % 32;
    qd_f32x4 values = {low.x, low.y, high.x, high.y};
#ifdef QK_FULL
    QK_GEMM_EACH_RATIO(g, {
        values = qk_gemm_finish_full(g, row, column, ratio, values);
        if (qk_gemm_has_codes(g))
            qk_gemm_store_given(g, scaling, tile, row, column / ratio, ratio, values);
        else
            qk_gemm_store_columns(g, tile, row, column / ratio, ratio, values);
    })
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
    return (strip){
        .a = qd_buffer(a, (rows - 1) * (uint32_t)g->a_row + g->k),
        .b = qd_buffer(b, TILE * g->packed_k),
        .scale_a = qd_buffer(scale_a, scales * (uint32_t)sizeof(float)),
        .scale_b = qd_buffer(scale_b, num_kb * (uint32_t)sizeof(float)),
        .a_offset = row < rows ? row * (uint32_t)g->a_row + lane / 32 * 16 : QD_OUTSIDE,
        .scale_offset = row < rows ? row * (uint32_t)(g->scale_a_row * sizeof(float)) : QD_OUTSIDE,
        .scale_step = (uint32_t)(g->scale_a_kb * sizeof(float)),
        .is_fn = QD_FP8_USUAL == QD_E4M3FNUZ && g->type_a == QK_E4M3FN,
    };
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
            sum = run_tail(&s, sum, &g, a + qd_lane() % 32 * g.a_row, blocks);
    }
#ifdef QK_FULL
    const qk_gemm_full_args again = qk_gemm_reread(&f, &tile);
    finish(&again.g, &again.scaling, &tile, n0, sum);
#else
    finish(&g, nullptr, &tile, n0, sum);
#endif
}
