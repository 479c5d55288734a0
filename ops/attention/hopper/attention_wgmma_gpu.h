// SPDX-License-Identifier: Apache-2.0
// What attention's kernels for Hopper share: a thread's two rows of a team's 64, from the scores of
// a tile of keys to weights.
//
// An image says QK_D, the largest head dim: 64 or 128; with -DQK_F16 tensors are of f16, else of
// bf16. The file that includes this defines KEYS, a tile's, and SUMS, half as many.
#ifndef QK_ATTENTION_WGMMA_GPU_H
#define QK_ATTENTION_WGMMA_GPU_H

#include "../attention_row_gpu.h"
#include "attention_wgmma_abi.h"
#include "mma/sm90.h"
#include "tensor_copy.h"

#ifdef QK_F16
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.f16.f16"
#define PACK qd_pack_f16
#else
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.bf16.bf16"
#define PACK qd_pack_bf16
#endif

// SUMS, a thread's scores of a tile, and O_SUMS, its elements of o, name operands of instructions.
#if QK_D == 64
#define O_SUMS 32
#else
#define O_SUMS 64
#endif
static_assert(SUMS == KEYS / 2 && O_SUMS == QK_D / 2);

enum {
    BOX = QK_WGMMA_BOX,
    BOXES = QK_D / BOX,
    PARTS = QK_D / 16,          // of q's columns, one product each
    Q_BOX_BYTES = 64 * BOX * 2, // of a team's q and o
    TEAM_BYTES = BOXES * Q_BOX_BYTES,
    K_BOX_BYTES = KEYS * BOX * 2, // of k and v
    STAGE_BYTES = BOXES * K_BOX_BYTES
};
constexpr float RISE = 8; // bits that a row's top may lag by

/** A thread's two rows, 8 apart. */
typedef struct rows {
    float scale;          // of products, log2(e) in it
    float o[O_SUMS];      // sums of weighted values
    uint32_t p[SUMS / 2]; // a tile's weights, as the tensor cores take them
    float top[2];         // the product whose weight counts as one
    float sum[2];         // this thread's part of the weights
    float grown[2];       // what o is to be multiplied by before the next product
    bool grows;           // whether any of the wave's rows has one that is not 1
} rows;

QD_INLINE void begin_rows(rows *w) {
    QD_UNROLL for (uint32_t i = 0; i < O_SUMS; i++)
        w->o[i] = 0;
    QD_UNROLL for (uint32_t r = 0; r < 2; r++)
        w->top[r] = -__builtin_inff(), w->sum[r] = 0;
    w->grows = false;
}

// ---- products. Descriptors count 16 bytes

#define TIMES_KEYS(keep, s, q, k) QD_WGMMA(KIND(KEYS), "1, 1, 0, 0", SUMS, keep, s, q, k)

/** Starts the scores of the team's q and a tile of k, which lie at these addresses. */
QD_INLINE void start_scores(uint32_t q_at, uint32_t k_at, uint32_t stage, float s[SUMS]) {
    const uint64_t k = qd_wgmma_tile(k_at) + stage * (STAGE_BYTES / 16), q = qd_wgmma_tile(q_at);
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

// ---- from scores to weights

QD_INLINE float swapped_max(float x, uint32_t step) {
    return __builtin_fmaxf(x, qd_as_f32(qd_swap_lanes(qd_as_u32(x), step)));
}

/** Returns a row's largest score of a tile; two chains of maxima, as one would wait for itself. */
QD_INLINE float largest(const float s[SUMS], uint32_t row) {
    float a = __builtin_fmaxf(s[2 * row], s[2 * row + 1]);
    float b = __builtin_fmaxf(s[2 * row + 4], s[2 * row + 5]);
    QD_UNROLL for (uint32_t i = 8; i < SUMS; i += 8) {
        a = __builtin_fmaxf(__builtin_fmaxf(a, s[i + 2 * row]), s[i + 2 * row + 1]);
        b = __builtin_fmaxf(__builtin_fmaxf(b, s[i + 2 * row + 4]), s[i + 2 * row + 5]);
    }
    return swapped_max(swapped_max(__builtin_fmaxf(a, b), 1), 2);
}

/** Raises a row's top if its largest score is far above it. A row's first key is. */
QD_INLINE bool rise(rows *w, uint32_t row, float most) {
    const bool rises = (most - w->top[row]) * w->scale > RISE;
    w->grown[row] = rises ? qd_exp2_flushed((w->top[row] - most) * w->scale) : 1;
    w->top[row] = rises ? most : w->top[row];
    w->sum[row] *= w->grown[row];
    return rises;
}

/** Returns the base-2 score of weight 1, with its sign changed; 0 before a row's first key. */
QD_INLINE float base_of(const rows *w, uint32_t row) {
    return w->top[row] == -__builtin_inff() ? 0 : -w->top[row] * w->scale;
}

/** Turns a tile's scores into weights, and tells what o has to be multiplied by. */
QD_INLINE void weigh(rows *w, float s[SUMS]) {
    const float most[2] = {largest(s, 0), largest(s, 1)};
    const bool rises[2] = {rise(w, 0, most[0]), rise(w, 1, most[1])};
    w->grows = qd_wave_any(rises[0] | rises[1]);
    const float base[2] = {base_of(w, 0), base_of(w, 1)};
    float part[4] = {};
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++) {
        s[i] = qd_exp2_flushed(__builtin_fmaf(s[i], w->scale, base[i / 2 % 2]));
        part[i % 4] += s[i];
    }
    w->sum[0] += part[0] + part[1];
    w->sum[1] += part[2] + part[3];
}

QD_INLINE void pack(rows *w, const float s[SUMS]) {
    QD_UNROLL for (uint32_t i = 0; i < SUMS / 2; i++)
        w->p[i] = PACK(s[2 * i], s[2 * i + 1]);
}

QD_INLINE void grow(rows *w) {
    if (w->grows) QD_UNROLL
        for (uint32_t i = 0; i < O_SUMS; i++)
            w->o[i] *= w->grown[i / 2 % 2];
}

/** Returns a row's sum of weights, over all of its threads. */
QD_INLINE float total(const rows *w, uint32_t row) {
    float sum = w->sum[row];
    sum += qd_as_f32(qd_swap_lanes(qd_as_u32(sum), 1));
    return sum + qd_as_f32(qd_swap_lanes(qd_as_u32(sum), 2));
}

#endif
