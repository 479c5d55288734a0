// SPDX-License-Identifier: Apache-2.0
// How finished rows leave attention's matrix kernels: as results, or as a chunk's part of them.
#ifndef QK_ATTENTION_STORE_GPU_H
#define QK_ATTENTION_STORE_GPU_H

#include "attention_tile_gpu.h"

/** Stores a row's elements times `factor` at o. */
QD_INLINE void store_row(const part *p, const wave *w, uint32_t own, int dtype, char *o,
                         float factor) {
    const uint32_t head_dim = reread(p->args)->head_dim_vo;
    const uint32_t begin = my_column() + qd_opaque(qd_mma_part()) * QD_MMA_RUNS * QD_MMA_RUN;
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        QD_UNROLL for (uint32_t r = 0; r < QD_MMA_RUNS; r++) {
            const uint32_t d = begin + n * QD_MMA_ROWS + r * QD_MMA_RUN;
            const qd_mma_run run = qd_mma_get_run(w->o[n], own, r) * factor;
            if (w->rows[own].exists && d < head_dim)
                qd_mma_store_run(dtype, o + d * qd_element_bytes(dtype), run);
        }
    }
}

/** Returns whether this lane stores the numbers of which a row has one. */
QD_INLINE bool speaks_for(const row *r) {
    return r->exists && my_column() == 0 && qd_mma_part() == 0;
}

/** Stores the results of a chunk that will be merged. */
QD_INLINE void store_partial(const part *p, const wave *w, uint32_t own, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const uint32_t row = r->query * g->group + r->head - p->kv_head * g->group;
    const int64_t at = qk_attention_partial(g, &p->request, p->chunk_begin, row, p->kv_head);
    char *o = (char *)(g->partial_o + at * g->head_dim_vo);
    store_row(p, w, own, QD_F32, o, sum > 0 ? g->dropout_scale / sum : 0);
    if (speaks_for(r))
        g->partial_lse[at] = r->top + qd_log2(sum);
}

QD_INLINE void store_result(const part *p, const wave *w, uint32_t own, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const row_place place = place_of(p, r);
    const row_end end = finish_row(g, &place, r->top, sum);
    const float factor = end.factor * g->dropout_scale;
    const int64_t at = o_offset(g, &place);
    char *o = g->o;
    if (g->dtype_o == QD_F32)
        store_row(p, w, own, QD_F32, o + at * 4, factor);
    else if (g->dtype_o == QD_F16)
        store_row(p, w, own, QD_F16, o + at * 2, factor);
    else
        store_row(p, w, own, QD_BF16, o + at * 2, factor);
    if (speaks_for(r))
        store_lse(g, &place, end.lse);
}

/** Stores the wave's rows, whose sums it adds up first. */
QD_INLINE void store_rows(const part *p, const wave *w) {
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const float sum = qd_mma_sum(w->rows[i].sum);
        if (p->request.partial_begin < 0)
            store_result(p, w, i, sum);
        else
            store_partial(p, w, i, sum);
    }
}

#endif
