// SPDX-License-Identifier: Apache-2.0
// Turns scores of a tile of keys into weights, as a lane of attention's matrix kernels holds them.
#ifndef QK_ATTENTION_SCORES_GPU_H
#define QK_ATTENTION_SCORES_GPU_H

#include "attention_tile_gpu.h"

static_assert(TILE % QD_MMA_K == 0, "a tile's weights are whole operands");

// ---- scores

/** Returns the base-2 score of a product, where the score is more than the scaled product. */
QD_INLINE float transform(const qk_attention_args *g, const part *p, const row *r, float s,
                          uint32_t key) {
    const bool is_there = r->exists && key < p->chunk_end;
    const row_place place = place_of(p, r);
    float x = s * r->scale;
    if (g->pos_encoding == QK_POS_ALIBI)
        x += alibi_slope(g, r->head) *
             (float)((int32_t)key - (int32_t)r->query - p->request.kv_len + p->request.qo_len);
    if (g->soft_cap > 0)
        x = soft_cap(g->soft_cap, x);
    if (g->mask_kind != QK_MASK_NONE && is_there) {
        const float added = mask_value(g, &place, key);
        x = added == -__builtin_inff() ? added : x + added; // x may be a NaN
    }
    if (g->custom_mask && is_there && qk_attention_is_masked(g, &p->request, r->query, key))
        x = -__builtin_inff();
    // The least finite score is still a score.
    return x == -__builtin_inff() ? x : __builtin_fmaxf(x * log2_e, least);
}

/** Turns every score of a tile into a base-2 score. A loop handles the four elements at the front
 *  of the tile's accumulators and then rotates the accumulators, so that the long code of transform
 *  stands in the kernel only four times. */
QD_INLINE void transform_all(const part *p, const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const qk_attention_args *g = reread(p->args);
    QD_NO_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        qd_mma_acc front = s[0];
        QD_NO_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4) {
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t key = begin + t * QD_MMA_ROWS + qd_mma_row(qd_mma_part(), e + i);
                front[i] = transform(g, p, &w->rows[qd_mma_own(i)], front[i], key);
            }
            front = qd_mma_turn4(front);
        }
        QD_UNROLL for (uint32_t i = 1; i < S_TILES; i++)
            s[i - 1] = s[i];
        s[S_TILES - 1] = front;
    }
}

/** Hides the keys of a tile that a lane's rows do not see. */
QD_INLINE void hide(const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const uint32_t part = qd_opaque(qd_mma_part());
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t key = begin + t * QD_MMA_ROWS + qd_mma_row(part, e);
            const row *r = &w->rows[qd_mma_own(e)];
            s[t][e] = key < r->first || key >= r->end ? -__builtin_inff() : s[t][e];
        }
    }
}

// ---- weights and sums

constexpr float FAR = 256; // of base-2 scores

/** Rescales a row's sum and o where its maximum has risen far. */
QD_INLINE void rise(wave *w, const float tops[QD_MMA_OWN]) {
    bool rises[QD_MMA_OWN], any = false;
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        rises[i] = tops[i] > w->rows[i].top + RISE;
        any |= rises[i];
    }
    if (!qd_ballot(any))
        return;
    float factors[QD_MMA_OWN];
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        row *r = &w->rows[i];
        factors[i] = rises[i] ? qd_exp2(r->top - tops[i]) : 1;
        r->top = rises[i] ? tops[i] : r->top;
        r->sum *= factors[i];
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w->o[n] *= qd_mma_spread(factors);
}

enum {
    ELEMENTS = QD_MMA_ACC / QD_MMA_OWN,
    SCORES = S_TILES * ELEMENTS
}; // of a row: of a tile, of all

/** Returns score i of a lane's row. */
QD_INLINE float score(const qd_mma_acc s[S_TILES], uint32_t own, uint32_t i) {
    return s[i / ELEMENTS][own * ELEMENTS + i % ELEMENTS];
}

QD_INLINE float largest(const qd_mma_acc s[S_TILES], uint32_t own) {
    float top = score(s, own, 0);
    QD_UNROLL for (uint32_t i = 1; i < SCORES; i++)
        top = __builtin_fmaxf(top, score(s, own, i));
    return qd_mma_max(top);
}

/** A row's weights of a tile: score i is number i, and two are a word. */
typedef struct packed {
    uint32_t words[FRAGMENTS][4];
} packed;

/** Turns a row's scores, times its `unit` of base 2, into weights. */
QD_INLINE void weigh_row(row *r, const qd_mma_acc s[S_TILES], uint32_t own, float unit,
                         packed *weights) {
    const float base =
        __builtin_fmaxf(r->top, least); // no key seen yet: -infinity minus itself would be a NaN
    QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
        QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = f * 8 + i * 2;
            const float a = qd_exp2(__builtin_fmaf(score(s, own, at), unit, -base));
            const float b = qd_exp2(__builtin_fmaf(score(s, own, at + 1), unit, -base));
            r->sum += a + b;
            weights->words[f][i] = qd_round2(QK_F16, a, b);
        }
    }
}

/** Multiplies the scores of rows whose top is far from 0 before they become weights. Far from 0 the
 *  rounding of a product, which the fused multiplication would leave in the exponent, is more than
 *  weights may be off: the largest weight would not be 1. Each row's own top decides. */
QD_INLINE void round_far_scores(qd_mma_acc s[S_TILES], float units[QD_MMA_OWN],
                                const float tops[QD_MMA_OWN]) {
    float factors[QD_MMA_OWN];
    bool any = false;
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const float far = __builtin_fabsf(tops[i]);
        const bool is_far = far > FAR && far < __builtin_inff(); // infinite: no key is seen
        factors[i] = is_far ? units[i] : 1;
        units[i] = is_far ? 1 : units[i];
        any |= is_far;
    }
    if (!qd_ballot(any))
        return;
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++)
        s[t] *= qd_mma_spread(factors);
}

/** Turns scores into weights. */
QD_INLINE void weigh_rows(wave *w, qd_mma_acc s[S_TILES], bool transforms,
                          packed weights[QD_MMA_OWN]) {
    float units[QD_MMA_OWN], tops[QD_MMA_OWN];
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        units[i] = transforms ? 1 : w->rows[i].scale * log2_e;
        tops[i] = largest(s, i) * units[i];
    }
    if (!transforms)
        round_far_scores(s, units, tops);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++)
        tops[i] -= HEADROOM;
    rise(w, tops);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++)
        weigh_row(&w->rows[i], s, i, units[i], &weights[i]);
}

/** Turns weights into operands of the product with v. */
QD_INLINE void make_operands(const packed from[QD_MMA_OWN],
                             qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) QD_UNROLL
        for (uint32_t f = 0; f < FRAGMENTS; f++)
            weights[f][i] = qd_mma_from_results(from[i].words[f]);
}

QD_INLINE void weigh(wave *w, qd_mma_acc s[S_TILES], bool transforms,
                     qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    packed rows[QD_MMA_OWN];
    weigh_rows(w, s, transforms, rows);
    make_operands(rows, weights);
}

#endif
