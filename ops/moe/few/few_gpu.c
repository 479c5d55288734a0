// SPDX-License-Identifier: Apache-2.0
// A layer of FP8 experts for few tokens, by two launches: each pair of a token and an expert reads
// its expert's weights by itself, at the speed of memory (CDNA3, CDNA4).
//
// Needs     v_mfma_f32_32x32x16_fp8_fp8, or on gfx950 32x32x64_f8f6f4; weights from qk_gemm_pack,
//           of the matrix cores' kind, with scales of 128 x 128; x bf16
// Tile      a wave has a strip of 32 rows of the weights. first: a pair, four strips a workgroup;
//           second: a token, a strip for all of its pairs, a wave each, then their weighted sum
// Sum       K-block after K-block, products and roundings as by the layer's parts: the same bits
// Launch    first: 256 threads, grid = pairs * (2 inner / 128), pairs fastest; second: 512 threads,
//           grid = tokens * (hidden / 32), tokens fastest: pairs of one expert read its weights at
//           the same time, so that memory gives them once
// LDS       first: the token's codes; second: of each wave the codes of its pair's activation
// Registers AHEAD K-blocks of weights on their way, 16 VGPRs each
// Edges     hidden and inner are multiples of 128; pairs of no expert compute nothing
// Schedule  what is to be quantised is loaded first, then the first weights, which come while the
//           wave quantises. Loads past the last K-block touch no memory; there codes are multiplied
//           with zeros and the products' scale is -0, which leaves every sum's bits
#include "../../gemm/gemm_abi.h"
#include "../moe_abi.h"
#include "copy.h"
#include "elementary.h"
#include "elements.h"
#include "mma/cdna_fp8.h"
#include "phases.h"
#include "reduce.h"
#include "scale.h"

enum {
    STRIP = QK_PACK_ROWS,
    BLOCK_K = QK_PACK_K,
    AHEAD = 4,
    FIRST_WAVES = 4,
    SECOND_WAVES = 8,
    FIRST_RUNS = QK_MOE_FEW_HIDDEN / QD_RUN / (64 * FIRST_WAVES), // of a lane
    SECOND_RUNS = QK_MOE_FEW_INNER / QD_RUN / 64,
    FIRST_BLOCKS = QK_MOE_FEW_HIDDEN / BLOCK_K,
    SECOND_BLOCKS = QK_MOE_FEW_INNER / BLOCK_K,
};
static_assert(FIRST_BLOCKS % AHEAD == 0 && SECOND_BLOCKS % AHEAD == 0);

/** A wave's strip of weights, and those of its K-blocks that are on their way. */
typedef struct strip {
    __amdgpu_buffer_rsrc_t from;
    uint32_t blocks;
    qd_u32x4 x[AHEAD][4];
} strip;

/** Loads K-block kb into place i. The pin keeps so many loads under way. */
QD_INLINE void load_block(strip *s, uint32_t i, uint32_t kb) {
    const uint32_t outside = kb < s->blocks ? 0 : QD_OUTSIDE;
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        s->x[i][j] =
            qd_buffer_stream4(s->from, (qd_lane() * 16 + j * 1024) | outside, kb * QK_PACK_BLOCK);
    qd_pin();
}

QD_INLINE void start(strip *s, const qk_moe_few_weights *w, int32_t e, uint32_t number,
                     uint32_t k) {
    const uint32_t bytes = STRIP * w->packed_k;
    s->from = qd_buffer((const uint8_t *)w->codes + e * w->group + (int64_t)number * bytes, bytes);
    s->blocks = k / BLOCK_K;
    qd_pin(); // behind the loads of what is to be quantised
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        load_block(s, i, i);
}

/** Returns the scales of a strip's K-blocks, which lie side by side. */
QD_INLINE __amdgpu_buffer_rsrc_t scales_of(const qk_moe_few_weights *w, int32_t e, uint32_t number,
                                           uint32_t k) {
    return qd_buffer(w->scale + e * w->scale_group + number * STRIP / 128 * w->scale_nb,
                     k / BLOCK_K * (uint32_t)sizeof(float));
}

/** Multiplies K-block i with a row of codes. All columns of the result are that row's. */
QD_INLINE qd_f32x16 multiply(const qd_u32x4 x[4], const QD_LDS uint8_t *codes) {
    qd_f32x16 part = 0;
    qd_u32x4 a[4];
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        a[j] = *(const QD_LDS qd_u32x4 *)(codes + j * 32 + qd_lane() / 32 * 16);
    QD_UNROLL for (int q = 0; q < 8; q++)
        part = qd_mma32_fp8(x, a, q, part);
    return part;
}

/** Returns the strip's products with a row of codes, the lane's 16 of all 32. */
QD_INLINE qd_f32x16 run(strip *s, const QD_LDS uint8_t *codes, const QD_LDS float *scales) {
    qd_f32x16 sum = 0;
    for (uint32_t first = 0; first < s->blocks; first += AHEAD) QD_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++) {
            qd_f32x16 part = multiply(s->x[i], codes + (first + i) * BLOCK_K);
            // Else loads come before products, to other registers, and are waited for at the turn's
            // end.
            QD_ANCHOR(part);
            qd_pin();
            load_block(s, i, first + i + AHEAD);
            const qd_f32x16 scale = scales[first + i];
            sum = __builtin_elementwise_fma(part, scale, sum);
        }
    return sum;
}

/** Quantises run i of a row, whose groups' runs 16 neighbouring lanes have, for weights of which
 *  the group's K-block has the scale `other`. */
QD_INLINE void quantize(qd_f32x8 y, float eps, uint32_t i, float other, bool is_in,
                        QD_LDS uint8_t *codes, QD_LDS float *scales) {
    const float scale = qd_scale_of(qd_row_max(qd_run_top(y)), eps, qd_fp8_max(QD_FP8_USUAL));
    *(QD_LDS qd_u32x2 *)(codes + i * QD_RUN) = qd_encode8(QD_FP8_USUAL, y * (1.0f / scale));
    if (qd_lane() % QD_ROW == 0)
        scales[i / QD_ROW] = is_in ? scale * other : -0.0f;
}

// ---- x w1

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_x[QK_MOE_FEW_HIDDEN]
    __attribute__((aligned(16)));
[[clang::loader_uninitialized]] static QD_LDS float lds_x_scale[FIRST_BLOCKS];

/** Stores a lane's results of a strip: lanes 0 and 32 have all of them, four by four. */
QD_INLINE void store_strip(__bf16 *to, qd_f32x16 sum) {
    if (qd_lane() % 32 != 0)
        return;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const qd_f32x4 four = {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]};
        *(qd_bf16x4 *)(to + 8 * i + qd_lane() / 32 * 4) = __builtin_convertvector(four, qd_bf16x4);
    }
}

QD_KERNEL(64 * FIRST_WAVES) qk_moe_few_first(const qk_moe_few_args g) {
    const uint32_t pair = qd_block() % g.sort.pairs;
    const uint32_t number = qd_block() / g.sort.pairs * FIRST_WAVES + qd_wave();
    const int64_t token = pair / g.sort.top_k;
    const __amdgpu_buffer_rsrc_t x = qd_buffer((const __bf16 *)g.x + token * g.x_row, g.hidden * 2);
    qd_u32x4 raw[FIRST_RUNS]; // zeros past the row's end
    float other[FIRST_RUNS];
    QD_UNROLL for (uint32_t i = 0; i < FIRST_RUNS; i++)
        raw[i] = qd_buffer_load4(x, (qd_thread() + i * 64 * FIRST_WAVES) * 16, 0);
    const int32_t e = qk_moe_expert_of(&g.sort, pair);
    if (e < 0)
        return;
    const __amdgpu_buffer_rsrc_t scales = scales_of(&g.w1, e, number, g.hidden);
    QD_UNROLL for (uint32_t i = 0; i < FIRST_RUNS; i++)
        other[i] =
            qd_as_f32(qd_buffer_load(scales, (qd_thread() / QD_ROW + i * 4 * FIRST_WAVES) * 4, 0));
    strip s;
    start(&s, &g.w1, e, number, g.hidden);
    QD_UNROLL for (uint32_t i = 0; i < FIRST_RUNS; i++) {
        const uint32_t at = qd_thread() + i * 64 * FIRST_WAVES;
        quantize(qd_from_bf16(raw[i]), g.eps, at, other[i], at * QD_RUN < g.hidden, lds_x,
                 lds_x_scale);
    }
    qd_barrier();
    store_strip((__bf16 *)g.between + (int64_t)pair * 2 * g.inner + number * STRIP,
                run(&s, lds_x, lds_x_scale));
}

// ---- silu(gate) up w2, and the sum

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_h[SECOND_WAVES][QK_MOE_FEW_INNER]
    __attribute__((aligned(16)));
[[clang::loader_uninitialized]] static QD_LDS float lds_h_scale[SECOND_WAVES][SECOND_BLOCKS];
[[clang::loader_uninitialized]] static QD_LDS float lds_made[QK_MOE_FEW_TOP_K][STRIP];
[[clang::loader_uninitialized]] static QD_LDS uint32_t lds_counts[QK_MOE_FEW_TOP_K];

/** What a lane loads of a pair's first product, and the scales of the weights that it meets. */
typedef struct halves {
    qd_u32x4 gate[SECOND_RUNS], up[SECOND_RUNS]; // zeros past the end
    float other[SECOND_RUNS];
} halves;

QD_INLINE void load_halves(halves *h, const qk_moe_few_args *g, uint32_t pair, int32_t e,
                           uint32_t number) {
    const __bf16 *row = (const __bf16 *)g->between + (int64_t)pair * 2 * g->inner;
    const __amdgpu_buffer_rsrc_t gate = qd_buffer(row, g->inner * 2);
    const __amdgpu_buffer_rsrc_t up = qd_buffer(row + g->inner, g->inner * 2);
    const __amdgpu_buffer_rsrc_t scales = scales_of(&g->w2, e, number, g->inner);
    QD_UNROLL for (uint32_t i = 0; i < SECOND_RUNS; i++) {
        h->gate[i] = qd_buffer_load4(gate, (qd_lane() + i * 64) * 16, 0);
        h->up[i] = qd_buffer_load4(up, (qd_lane() + i * 64) * 16, 0);
        h->other[i] = qd_as_f32(qd_buffer_load(scales, (qd_lane() / QD_ROW + i * 4) * 4, 0));
    }
}

QD_INLINE void activate(const halves *h, const qk_moe_few_args *g) {
    QD_UNROLL for (uint32_t i = 0; i < SECOND_RUNS; i++) {
        const uint32_t at = qd_lane() + i * 64;
        qd_f32x8 gate = qd_from_bf16(h->gate[i]), y = qd_from_bf16(h->up[i]);
        QD_UNROLL for (int k = 0; k < QD_RUN; k++)
            y[k] = qd_silu(gate[k]) * y[k];
        quantize(y, g->eps, at, h->other[i], at * QD_RUN < g->inner, lds_h[qd_wave()],
                 lds_h_scale[qd_wave()]);
    }
}

/** Computes the strip that pair j of a token adds, rounded as the second product is. */
QD_INLINE void make_strip(const qk_moe_few_args *g, uint32_t pair, uint32_t j, uint32_t number) {
    const int32_t e = qk_moe_expert_of(&g->sort, pair);
    lds_counts[j] = e >= 0;
    if (e < 0)
        return;
    halves h;
    strip s;
    load_halves(&h, g, pair, e, number);
    start(&s, &g->w2, e, number, g->inner);
    qd_wave_barrier(); // this wave has read its codes of the pair before
    activate(&h, g);
    qd_wave_barrier();
    const qd_f32x16 sum = run(&s, lds_h[qd_wave()], lds_h_scale[qd_wave()]);
    if (qd_lane() % 32 == 0) QD_UNROLL
        for (uint32_t i = 0; i < 16; i++)
            lds_made[j][i / 4 * 8 + qd_lane() / 32 * 4 + i % 4] = (float)(__bf16)sum[i];
}

QD_KERNEL(64 * SECOND_WAVES) qk_moe_few_second(const qk_moe_few_args g) {
    const uint32_t number = qd_block() / g.tokens, top_k = g.sort.top_k;
    const int64_t token = qd_block() % g.tokens, column = number * STRIP + qd_lane() % STRIP;
    const int dtype = (int)g.out_dtype;
    float weight = 0, addend = 0;
    if (qd_lane() < top_k)
        weight = g.weights[token * g.weights_row + qd_lane()];
    if (g.addend)
        addend = qd_load1(dtype, qd_at(dtype, g.addend, token * g.addend_row + column));
    for (uint32_t j = qd_wave(); j < top_k; j += SECOND_WAVES)
        make_strip(&g, (uint32_t)token * top_k + j, j, number);
    qd_barrier();
    if (qd_wave() != 0)
        return;
    float sum = 0;
    for (uint32_t j = 0; j < top_k; j++)
        if (lds_counts[j])
            sum = __builtin_fmaf(qd_as_f32(qd_read_lane(qd_as_u32(weight), j)),
                                 lds_made[j][qd_lane() % STRIP], sum);
    if (g.addend)
        sum += addend;
    if (qd_lane() < STRIP)
        qd_store1(dtype, (void *)qd_at(dtype, g.out, token * g.out_row + column), sum);
}
