// SPDX-License-Identifier: Apache-2.0
// What attention's kernels for Hopper share: a thread's two rows, from the scores of a tile of keys
// to weights.
//
// The scores lie as the tensor cores leave them: of each eight keys a thread has two of a row and
// two of the row 8 further; four threads side by side have a row. An image says QK_D, the largest
// head dim; with -DQK_F16 tensors are of f16, else of bf16. The file that includes this defines
// KEYS, a tile's, and SUMS, half as many.
#ifndef QK_ATTENTION_WEIGHTS_GPU_H
#define QK_ATTENTION_WEIGHTS_GPU_H

#include "../attention_row_gpu.h"
#include "mma/sm90.h"

#ifdef QK_F16
#define PACK qd_pack_f16
#else
#define PACK qd_pack_bf16
#endif

enum { O_ELEMENTS = QK_D / 2 }; // a thread's elements of o
static_assert(SUMS == KEYS / 2);
constexpr float RISE = 8; // bits that a row's top may lag by

/** A thread's two rows, 8 apart. */
typedef struct rows {
    float scale;          // of products, log2(e) in it
    float o[O_ELEMENTS];  // sums of weighted values
    uint32_t p[SUMS / 2]; // a tile's weights, as the tensor cores take them
    float top[2];         // the product whose weight counts as one
    float sum[2];         // this thread's part of the weights
    float grown[2];       // what o is to be multiplied by before the next product
    bool grows;           // whether any of the wave's rows has one that is not 1
} rows;

QD_INLINE void begin_rows(rows *w) {
    QD_UNROLL for (uint32_t i = 0; i < O_ELEMENTS; i++)
        w->o[i] = 0;
    QD_UNROLL for (uint32_t r = 0; r < 2; r++)
        w->top[r] = -__builtin_inff(), w->sum[r] = 0;
    w->grows = false;
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

/** Raises the rows' tops if a tile's scores are far above them, and tells what o has to be
 *  multiplied by. */
QD_INLINE void raise(rows *w, const float s[SUMS]) {
    const float most[2] = {largest(s, 0), largest(s, 1)};
    const bool rises[2] = {rise(w, 0, most[0]), rise(w, 1, most[1])};
    w->grows = qd_wave_any(rises[0] | rises[1]);
}

/** Turns a tile's scores into weights; base: base_of the rows. */
QD_INLINE void raise_to_powers(rows *w, float s[SUMS], const float base[2]) {
    float part[4] = {};
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++) {
        s[i] = qd_exp2_flushed(__builtin_fmaf(s[i], w->scale, base[i / 2 % 2]));
        part[i % 4] += s[i];
    }
    w->sum[0] += part[0] + part[1];
    w->sum[1] += part[2] + part[3];
}

/** Turns a tile's scores into weights. */
QD_INLINE void weigh_by_tops(rows *w, float s[SUMS]) {
    const float base[2] = {base_of(w, 0), base_of(w, 1)};
    raise_to_powers(w, s, base);
}

/** Turns a tile's scores into weights, and tells what o has to be multiplied by. */
QD_INLINE void weigh(rows *w, float s[SUMS]) {
    raise(w, s);
    weigh_by_tops(w, s);
}

QD_INLINE void pack(rows *w, const float s[SUMS]) {
    QD_UNROLL for (uint32_t i = 0; i < SUMS / 2; i++)
        w->p[i] = PACK(s[2 * i], s[2 * i + 1]);
}

QD_INLINE void grow(rows *w) {
    if (w->grows) QD_UNROLL
        for (uint32_t i = 0; i < O_ELEMENTS; i++)
            w->o[i] *= w->grown[i / 2 % 2];
}

/** Returns a row's sum of weights, over all of its threads. */
QD_INLINE float total(const rows *w, uint32_t row) {
    float sum = w->sum[row];
    sum += qd_as_f32(qd_swap_lanes(qd_as_u32(sum), 1));
    return sum + qd_as_f32(qd_swap_lanes(qd_as_u32(sum), 2));
}

#endif
