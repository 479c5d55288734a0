// SPDX-License-Identifier: Apache-2.0
// Quantisation to FP8 of whole blocks of 128 x 128, for large tensors: what quantize_gpu.c does,
// with twice the lanes for a block.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 8 elements of each of 4 rows, a team of 16 lanes 128
// Launch    512 threads, a block; no workgroup takes a second one
// LDS       128 bytes, each team's largest magnitude
// Edges     none: blocks are whole, runs of 8 are aligned
// Memory    a lane's loads are all on their way before the first is used; x is not read again
// Source    DeepGEMM's per_block_cast_to_fp8
#include "quantize_gpu.h"

enum { ROWS = 4, BLOCK_TEAMS = QK_BLOCK / ROWS };

#define EACH_ROW QD_UNROLL for (uint32_t i = 0; i < ROWS; i++)

/** A lane's part: 8 elements from column col on of row, row + BLOCK_TEAMS, …. */
typedef struct part {
    uint32_t row, col;
    run x[ROWS];
} part;

QD_INLINE void load_part(int dtype, const qk_quantize_args *g, part *p) {
    EACH_ROW {
        const uint32_t row = p->row + i * BLOCK_TEAMS;
        const qd_u32x4 *x = (const qd_u32x4 *)address_of(dtype, g, row, p->col);
        p->x[i].words[0] = qd_stream_load4(x);
        if (dtype == QK_F32)
            p->x[i].words[1] = qd_stream_load4(x + 1);
    }
}

QD_INLINE void store_run(const qk_quantize_args *g, const part *p, uint32_t i, qd_u32x2 codes) {
    *(qd_u32x2 *)(g->q + (int64_t)(p->row + i * BLOCK_TEAMS) * g->q_row + p->col) = codes;
}

[[clang::loader_uninitialized]] static QD_LDS uint32_t team_tops[BLOCK_TEAMS];

/** Returns the largest magnitude of the block, in each lane. */
QD_INLINE uint32_t block_max(int dtype, const part *p, bool with_nan) {
    const uint32_t lane = qd_thread() % QK_TEAM;
    uint32_t top = 0;
    EACH_ROW top = qd_max(top, run_top(dtype, &p->x[i], with_nan));
    qd_barrier(); // all lanes have read the last call's values
    top = team_max(top);
    if (lane == 0)
        team_tops[qd_thread() / QK_TEAM] = top;
    qd_barrier();
    return qd_uniform(team_max(qd_max(team_tops[lane], team_tops[lane + QK_TEAM])));
}

QD_INLINE void quantize_block(int dtype, const qk_quantize_args *g) {
    qd_begin();
    part p = {.row = __gpu_block_id(0) * QK_BLOCK + qd_thread() / QK_TEAM,
              .col = __gpu_block_id(1) * QK_BLOCK + qd_thread() % QK_TEAM * QK_RUN};
    load_part(dtype, g, &p);
    uint32_t top = block_max(dtype, &p, true);
    const bool finite = top < INFINITY_BITS;
    if (top > INFINITY_BITS)
        top = block_max(dtype, &p, false);
    const float scale = scale_of(g, top), inverse = 1.0f / scale;
    EACH_ROW store_run(g, &p, i, encode_run(dtype, g, &p.x[i], inverse, finite));
    if (qd_thread() == 0)
        g->scale[(int64_t)__gpu_block_id(0) * g->scale_row + __gpu_block_id(1)] = scale;
}

#define QK_ENTRY(suffix, dtype)                                                                    \
    QD_KERNEL(QK_TEAM *BLOCK_TEAMS) qk_quantize_wide_blocks_##suffix(const qk_quantize_args g) {   \
        quantize_block(dtype, &g);                                                                 \
    }

QK_ENTRY(f32, QK_F32)
QK_ENTRY(f16, QK_F16)
QK_ENTRY(bf16, QK_BF16)
