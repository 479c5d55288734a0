// SPDX-License-Identifier: Apache-2.0
// Quantisation to FP8 of whole blocks of 128 x 128, for large tensors: what quantize_gpu.c does,
// with twice the lanes for a block.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 8 elements of each of 4 rows, a team of 16 lanes 128
// Launch    512 threads, a block; no workgroup takes a second one. grid = block columns x block
//           rows, so that workgroups which run at one time read parts of rows side by side
// LDS       128 bytes, each team's largest magnitude
// Edges     none: blocks are whole, runs of 8 are aligned
// Memory    a lane's loads are all on their way before the first is used; x is not read again.
//           Registers are bounded so that three blocks (f32: two) share a multiprocessor: one's
//           loads are under way while another one's waves meet
// Source    DeepGEMM's per_block_cast_to_fp8
#include "quantize_gpu.h"

enum { ROWS = 4, BLOCK_TEAMS = QK_BLOCK / ROWS };

#define EACH_ROW QD_UNROLL for (uint32_t i = 0; i < ROWS; i++)

/** A lane's part: 8 elements from column col on of row, row + BLOCK_TEAMS, …, as they lie in
 *  memory. */
typedef struct part {
    uint32_t row, col;
    qd_u32x4 low[ROWS], high[ROWS]; // f32 alone has a high half
} part;

QD_INLINE void load_part(int dtype, const qk_quantize_args *g, part *p) {
    EACH_ROW {
        const uint32_t row = p->row + i * BLOCK_TEAMS;
        const qd_u32x4 *x = (const qd_u32x4 *)address_of(dtype, g, row, p->col);
        p->low[i] = qd_stream_load4(x);
        if (dtype == QK_F32)
            p->high[i] = qd_stream_load4(x + 1);
    }
}

/** Returns the lane's elements of row i. */
QD_INLINE qd_f32x8 run_of(int dtype, const part *p, uint32_t i) {
    if (dtype != QK_F32)
        return qd_from_16(dtype, p->low[i]);
    return __builtin_shufflevector(__builtin_bit_cast(qd_f32x4, p->low[i]),
                                   __builtin_bit_cast(qd_f32x4, p->high[i]), 0, 1, 2, 3, 4, 5, 6,
                                   7);
}

[[clang::loader_uninitialized]] static QD_LDS uint32_t team_tops[BLOCK_TEAMS];

/** Returns the largest magnitude of the block, in each lane. */
QD_INLINE uint32_t block_top(int dtype, const part *p) {
    const uint32_t lane = qd_thread() % QK_TEAM;
    uint32_t top = 0;
    EACH_ROW top = qd_max(top, dtype == QK_F32 ? qd_run_top(run_of(dtype, p, i))
                                               : qd_run_top_16(dtype, p->low[i]));
    top = qd_row_max(top);
    if (lane == 0)
        team_tops[qd_thread() / QK_TEAM] = top;
    qd_barrier();
    return qd_uniform(qd_row_max(qd_max(team_tops[lane], team_tops[lane + QK_TEAM])));
}

/** Quantises a block to codes of `kind`. */
QD_INLINE void put_block(int dtype, int kind, const qk_quantize_args *g, const part *p,
                         float scale) {
    const float inverse = 1.0f / scale;
    uint8_t *q = g->q + (int64_t)p->row * g->q_row + p->col;
    EACH_ROW *(qd_u32x2 *)(q + (int64_t)i * BLOCK_TEAMS * g->q_row) =
        qd_encode8(kind, run_of(dtype, p, i) * inverse);
}

QD_INLINE void quantize_block(int dtype, const qk_quantize_args *g) {
    qd_begin();
    part p = {.row = __gpu_block_id(1) * QK_BLOCK + qd_thread() / QK_TEAM,
              .col = __gpu_block_id(0) * QK_BLOCK + qd_thread() % QK_TEAM * QK_RUN};
    load_part(dtype, g, &p);
    const float scale = scale_of(g, block_top(dtype, &p));
    if (g->kind == QD_FP8_USUAL)
        put_block(dtype, QD_FP8_USUAL, g, &p, scale);
    else
        put_block(dtype, (int)g->kind, g, &p, scale);
    if (qd_thread() == 0)
        g->scale[(int64_t)__gpu_block_id(1) * g->scale_row + __gpu_block_id(0)] = scale;
}

#define QK_ENTRY(suffix, dtype, registers)                                                         \
    QD_KERNEL_WITHIN(QK_TEAM *BLOCK_TEAMS, registers, qk_quantize_wide_blocks_##suffix)            \
    (const qk_quantize_args g) {                                                                   \
        quantize_block(dtype, &g);                                                                 \
    }

QK_ENTRY(f32, QK_F32, 64)
QK_ENTRY(f16, QK_F16, 40)
QK_ENTRY(bf16, QK_BF16, 40)
