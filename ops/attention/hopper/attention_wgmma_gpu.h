// SPDX-License-Identifier: Apache-2.0
// A team's products of attention on Hopper: where q, k and v lie in LDS, scores and weighted
// values.
//
// An image says QK_D, the largest head dim: 64, 128 or 256, with -DQK_DIM_QK=192 that of q and k
// another. attention_weights_gpu.h says what the file that includes this defines.
#ifndef QK_ATTENTION_WGMMA_GPU_H
#define QK_ATTENTION_WGMMA_GPU_H

#include "attention_weights_gpu.h"
#include "attention_wgmma_abi.h"
#include "tensor_copy.h"

#ifdef QK_F16
#define IS_F16 true
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.f16.f16"
#else
#define IS_F16 false
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.bf16.bf16"
#endif

// SUMS, a thread's scores of a tile, and O_SUMS, its elements of o, name operands of instructions.
#if QK_D == 64
#define O_SUMS 32
#elif QK_D == 128
#define O_SUMS 64
#else
#define O_SUMS 128
#endif
static_assert(O_SUMS == O_ELEMENTS);
#ifndef QK_DIM_QK
#define QK_DIM_QK QK_D
#endif

enum {
    BOX = QK_WGMMA_BOX,
    BOXES = QK_D / BOX,         // of v and o
    K_BOXES = QK_DIM_QK / BOX,  // of q and k
    PARTS = QK_DIM_QK / 16,     // of q's columns, one product each
    Q_BOX_BYTES = 64 * BOX * 2, // of a team's q and o
    TEAM_BYTES = BOXES * Q_BOX_BYTES,
    Q_BYTES = K_BOXES * Q_BOX_BYTES,
    K_BOX_BYTES = KEYS * BOX * 2, // of k and v
    STAGE_BYTES = BOXES * K_BOX_BYTES,
    K_BYTES = K_BOXES * K_BOX_BYTES
};

// ---- products. Descriptors count 16 bytes

#define TIMES_KEYS(keep, s, q, k) QD_WGMMA(KIND(KEYS), "1, 1, 0, 0", SUMS, keep, s, q, k)

/** Starts the scores of the team's q and a tile of k, which lie at these addresses. */
QD_INLINE void start_scores(uint32_t q_at, uint32_t k_at, uint32_t stage, float s[SUMS]) {
    const uint64_t k = qd_wgmma_tile(k_at) + stage * (K_BYTES / 16), q = qd_wgmma_tile(q_at);
    qd_wgmma_begin();
    TIMES_KEYS(0, s, q, k);
    QD_UNROLL for (uint32_t i = 1; i < PARTS; i++)
        TIMES_KEYS(1, s, q + i / 4 * (Q_BOX_BYTES / 16) + i % 4 * 2,
                   k + i / 4 * (K_BOX_BYTES / 16) + i % 4 * 2);
    qd_wgmma_commit();
}

/** Starts adding a tile's weighted values to o. */
QD_INLINE void start_values(uint32_t v_at, uint32_t stage, rows *w) {
    const uint64_t v = qd_wgmma_tile_across(v_at, K_BOX_BYTES) + stage * (STAGE_BYTES / 16);
    qd_wgmma_begin();
    QD_UNROLL for (uint32_t i = 0; i < KEYS / 16; i++)
        QD_WGMMA_A(KIND(QK_D), "1, 1, 1", O_SUMS, w->o, w->p + 4 * i, v + i * 128);
    qd_wgmma_commit();
}

#endif
