// SPDX-License-Identifier: Apache-2.0
// Merges a split request's chunks into o and lse: a wave a row, lanes along v's elements, chunks in
// order, so that the same bits come out always.
#ifndef QK_ATTENTION_SPLIT_GPU_H
#define QK_ATTENTION_SPLIT_GPU_H

#include "attention_row_gpu.h"
#include "attention_top_gpu.h"

/** A lane's columns of o, NARROW or WIDE; results that a lane loads before it uses one. */
enum { NARROW = 2, WIDE = 128 / QD_WAVE, LOADS = QD_WAVE / 2 };

/** Columns of a split request's row: `chunks` partial results, so many numbers apart. */
typedef struct split {
    const float *results, *lses;
    int64_t step, lse_step;
    uint32_t chunks;
    float top;         // the largest of the chunks' log-sum-exps, or a NaN among them
    float sum;         // of the weights of chunks
    float o[WIDE];     // of weighted results
    uint32_t at[WIDE]; // the lane's columns; past the end they repeat the last one
} split;

QD_INLINE float find_top(const split *s) {
    float top = -__builtin_inff();
    for (uint32_t c = qd_lane(); c < s->chunks; c += QD_WAVE)
        top = larger(top, s->lses[c * s->lse_step]);
    return wave_max(top);
}

/** Adds chunks from `chunk` on, `most` of them at most, in the lane's columns; both are constants.
 *  Lane c has the weight of chunk c. All are loaded before the first is used, as memory is far. */
QD_INLINE void add_chunks(split *s, float weights, uint32_t block, uint32_t chunk, uint32_t most,
                          uint32_t columns) {
    const float *from = s->results + (block + chunk) * s->step;
    float o[LOADS / NARROW][WIDE];
    QD_UNROLL for (uint32_t i = 0; i < most; i++) {
        QD_UNROLL for (uint32_t j = 0; j < columns; j++)
            o[i][j] = from[s->at[j]];
        from += block + chunk + i + 1 < s->chunks ? s->step : 0;
    }
    QD_UNROLL for (uint32_t i = 0; i < most; i++) {
        const float weight = qd_as_f32(qd_read_lane(qd_as_u32(weights), chunk + i));
        s->sum += weight;
        QD_UNROLL for (uint32_t j = 0; j < columns; j++)
            s->o[j] = __builtin_fmaf(weight, o[i][j], s->o[j]);
    }
}

/** Adds all chunks, in order. Lanes compute weights of as many chunks at once as there are lanes;
 *  chunks past the last one have weights of 0. */
QD_INLINE void add_all(split *s, uint32_t columns) {
    const uint32_t most = LOADS / columns;
    for (uint32_t block = 0; block < s->chunks; block += QD_WAVE) {
        const uint32_t count = qd_min(s->chunks - block, QD_WAVE), c = qd_min(qd_lane(), count - 1);
        const float lse = s->lses[(block + c) * s->lse_step];
        const float weights = qd_lane() < count ? qd_exp2(lse - s->top) : 0;
        for (uint32_t chunk = 0; chunk < count; chunk += most)
            add_chunks(s, weights, block, chunk, most, columns);
    }
}

/** Merges a wave's columns of a row, from `column` on, and stores them. */
QD_INLINE void merge_columns(const qk_attention_args *g, const row_place *row, uint32_t column,
                             split *s, uint32_t columns) {
    QD_UNROLL for (uint32_t j = 0; j < columns; j++) {
        s->at[j] = qd_min(column + j * QD_WAVE + qd_lane(), g->head_dim_vo - 1);
        s->o[j] = 0;
    }
    s->sum = 0;
    if (s->top != -__builtin_inff()) // else no key was seen
        add_all(s, columns);
    g = reread(g);
    const row_end end = finish_row(g, row, s->top, s->sum);
    const int64_t to = o_offset(g, row);
    // Chunks of weight 0 may have turned a -0 into 0; how many there are is the launch's choice.
    QD_UNROLL for (uint32_t j = 0; j < columns; j++)
        if (column + j * QD_WAVE + qd_lane() < g->head_dim_vo)
            store_o(g, to + s->at[j], (s->o[j] + 0.0f) * end.factor);
    if (column == 0 && qd_lane() == 0)
        store_lse(g, row, end.lse);
}

/** Merges the rows of a work item for a kv head, this workgroup's part of `parts`. Waves share a
 *  row's columns if they are enough. */
QD_INLINE void merge_work(const qk_attention_args *g, const qk_attention_work *work,
                          uint32_t kv_head, uint32_t part, uint32_t parts) {
    const qk_attention_request r = qk_attention_get_request(g, work->request);
    const uint32_t chunks = qk_attention_chunks(&r), rows = work->row_end - work->row_begin;
    const uint32_t own = __gpu_num_threads(0) / QD_WAVE, waves = own * parts;
    const uint32_t all = qd_div_up(g->head_dim_vo, NARROW * QD_WAVE);
    const uint32_t shares = rows * all <= waves ? all : 1;
    const int64_t step = (int64_t)r.qo_len * g->group * g->num_kv_heads; // rows of a chunk
    for (uint32_t i = part * own + qd_wave(); i < rows * shares; i += waves) {
        const uint32_t row = work->row_begin + i / shares;
        g = reread(g);
        const row_place place = find_row(g, &r, work->request, kv_head, row);
        const int64_t first = (r.partial_begin + row) * g->num_kv_heads + kv_head;
        split s = {.results = g->partial_o + first * g->head_dim_vo,
                   .lses = g->partial_lse + first,
                   .step = step * g->head_dim_vo,
                   .lse_step = step,
                   .chunks = chunks};
        s.top = find_top(&s);
        if (WIDE > NARROW && shares < all)
            for (uint32_t column = 0; column < g->head_dim_vo; column += WIDE * QD_WAVE)
                merge_columns(g, &place, column, &s, WIDE);
        else
            for (uint32_t share = i % shares; share < all; share += shares)
                merge_columns(g, &place, share * NARROW * QD_WAVE, &s, NARROW);
    }
}

#endif
