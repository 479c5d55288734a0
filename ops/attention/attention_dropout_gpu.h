// SPDX-License-Identifier: Apache-2.0
// Dropout of weights, as a lane of attention's matrix kernels holds them. A weight that is kept
// stays as it is, and o is multiplied by dropout_scale as it is stored: in f16 a weight over
// 1 - p might be infinite.
#ifndef QK_ATTENTION_DROPOUT_GPU_H
#define QK_ATTENTION_DROPOUT_GPU_H

#include "attention_scores_gpu.h"

static_assert(SCORES <= 64, "a row's weights of a tile have a bit each");

/** Returns which weights of a row are kept, a bit each. One draw is for four keys, of which a lane
 *  has all or two side by side: it draws where another four begin. A loop, as a draw is long. */
QD_INLINE uint64_t draw_row(const part *p, const row *r, uint32_t own, uint32_t begin) {
    const qk_attention_args *g = reread(p->args);
    const uint64_t first = qk_attention_dropout_counter(g, p->index, r->head, r->query, 0);
    const uint32_t part = qd_opaque(qd_mma_part());
    uint32_t words[4] = {}, quad = UINT32_MAX;
    uint64_t kept = 0;
    QD_NO_UNROLL for (uint32_t i = 0; i < SCORES; i++) {
        const uint32_t key =
            begin + i / ELEMENTS * QD_MMA_ROWS + qd_mma_row(part, own * ELEMENTS + i % ELEMENTS);
        if (key / 4 != quad) {
            quad = key / 4;
            qk_philox(reread(p->args)->dropout_seed, first + quad, words);
        }
        kept |= (uint64_t)keeps(reread(p->args), words, key) << i;
    }
    return kept;
}

/** Clears the weights that dropout drops. */
QD_INLINE void drop_weights(const part *p, const wave *w, uint32_t begin,
                            packed weights[QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t own = 0; own < QD_MMA_OWN; own++) {
        const uint64_t kept = draw_row(p, &w->rows[own], own, begin);
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t two = (uint32_t)(kept >> (f * 8 + i * 2));
                weights[own].words[f][i] &= (two & 1) * 0xFFFF + (two >> 1 & 1) * 0xFFFF0000;
            }
        }
    }
}

#endif
