// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU: the loop over work items, the end of a row, the merge of chunks; and
// attention in plain C vectors.
#define QN_LANES 4
#include "attention_decode_simd.h"

#include <stdlib.h>

float qni_attention_slope(const qk_attention_args *g, uint32_t head) {
    const uint32_t heads = g->num_kv_heads * g->group;
    const uint32_t n = 1u << (31 - __builtin_clz(heads)); // the largest power of two up to heads
    return head < n ? exp2f(-8.0f * (float)(head + 1) / (float)n)
                    : exp2f(-4.0f * (float)(2 * (head + 1 - n) - 1) / (float)n);
}

float qni_attention_mask(const qk_attention_args *g, const qni_attention_row *row, uint32_t key) {
    const int64_t i = row->index * g->mask_batch + row->head * g->mask_head +
                      row->query * g->mask_query + key * g->mask_key;
    if (key >= (uint32_t)row->request.kv_len ||
        qk_attention_is_masked(g, &row->request, row->query, key))
        return -HUGE_VALF;
    if (g->mask_kind == QK_MASK_NONE)
        return 0;
    if (g->mask_kind == QK_MASK_BOOL)
        return ((const uint8_t *)g->mask)[i] ? 0 : -HUGE_VALF;
    return (float)qni_get((qni_dtype)(g->mask_kind - QK_MASK_F32 + QNI_F32), g->mask, i);
}

/** Writes o and lse of a row; sinks enter here. */
static void store_row(const qni_attention_problem *p, const qni_attention_row *row, float max,
                      float sum, float *o) {
    const qk_attention_args *g = &p->args;
    const int64_t token = (int64_t)row->request.qo_begin + row->query;
    const int64_t to = row->index * g->o_batch + token * g->o_token + row->head * g->o_head;
    float factor = g->v_scale * (g->v_scales ? g->v_scales[row->head / g->group] : 1.0f);
    if (g->sinks) {
        const float sink = g->sinks[row->head] * QNI_LOG2_E, top = max > sink ? max : sink;
        const float shrink = exp2f(max - top);
        factor *= shrink;
        sum = sum * shrink + exp2f(sink - top);
        max = top;
    }
    const bool has_none = !(sum > 0) && sum == sum; // a NaN stays a NaN
    factor = has_none ? 0 : factor / sum;
    int64_t d = 0;
    for (; d + QN_LANES <= g->head_dim_vo; d += QN_LANES)
        store(p->dtype_o, g->o, to + d, *(const f32v *)(o + d) * factor);
    if (d < g->head_dim_vo) {
        f32v v = {};
        memcpy(&v, o + d, (size_t)(g->head_dim_vo - d) * sizeof *o);
        store_some(p->dtype_o, g->o, to + d, g->head_dim_vo - d, v * factor);
    }
    if (g->lse)
        g->lse[row->index * g->lse_batch + token * g->lse_token + row->head * g->lse_head] =
            has_none ? -HUGE_VALF : (max + log2f(sum)) * g->lse_unit;
}

void qni_attention_finish(const qni_attention_problem *p, const qni_attention_row *place,
                          uint32_t row, uint32_t chunk, float max, float sum, float *o) {
    const qk_attention_args *g = &p->args;
    const bool has_none = !(sum > 0) && sum == sum;
    if (place->request.partial_begin < 0) {
        store_row(p, place, max, sum, o);
        return;
    }
    const int64_t to = qk_attention_partial(g, &place->request, chunk, row, place->head / g->group);
    const float inverse = has_none ? 0 : 1 / sum;
    for (int64_t d = 0; d < g->head_dim_vo; d++)
        g->partial_o[to * g->head_dim_vo + d] = o[d] * inverse;
    g->partial_lse[to] = has_none ? -HUGE_VALF : max + log2f(sum);
}

// ---- items and merges

typedef struct items {
    qni_attention_problem p;
    qni_attention_item_fn run;
} items;

static void run_one_item(void *context, int64_t i) {
    const items *all = context;
    const uint32_t heads = all->p.args.num_kv_heads;
    const qk_attention_work work = qk_attention_find(&all->p.args, (uint32_t)(i / heads));
    if (qk_attention_takes(&all->p.args, work.request))
        all->run(&all->p, &work, (uint32_t)(i % heads));
}

/** Merges one row of a split request; chunks are taken in order. */
static void merge_row(const qni_attention_problem *p, const qni_attention_row *row, int64_t first,
                      int64_t step) {
    const qk_attention_args *g = &p->args;
    const int64_t chunks = qk_attention_chunks(&row->request), dim = g->head_dim_vo;
    alignas(64) float o[MAX_DIM] = {};
    float max = -HUGE_VALF, sum = 0;
    for (int64_t c = 0; c < chunks; c++)
        max = g->partial_lse[first + c * step] > max ? g->partial_lse[first + c * step] : max;
    for (int64_t c = 0; c < chunks; c++) {
        const float s = g->partial_lse[first + c * step];
        const float *part = g->partial_o + (first + c * step) * dim;
        const float weight = s > -HUGE_VALF || s != s ? exp2f(s - max) : 0;
        sum += weight;
        for (int64_t d = 0; d < dim; d++)
            o[d] += weight * part[d];
    }
    store_row(p, row, max, sum, o);
}

static void run_one_merge(void *context, int64_t i) {
    const items *all = context;
    const qk_attention_args *g = &all->p.args;
    const uint32_t kv_head = (uint32_t)(i % g->num_kv_heads);
    const qk_attention_work work = qk_attention_find_merge(g, (uint32_t)(i / g->num_kv_heads));
    const qk_attention_request r = qk_attention_get_request(g, work.request);
    for (uint32_t row = work.row_begin; row < work.row_end; row++) {
        const qni_attention_row place = {r, work.request, row / g->group,
                                         kv_head * g->group + row % g->group};
        merge_row(&all->p, &place, qk_attention_partial(g, &r, 0, row, kv_head),
                  (int64_t)r.qo_len * g->group * g->num_kv_heads);
    }
}

qn_status qni_attention_on_threads(const qni_attention_problem *p, qni_attention_item_fn item,
                                   uint32_t rows) {
    items all = {*p, item};
    qk_attention_args *g = &all.p.args;
    g->q_tile = rows;
    qni_parallel((int64_t)qk_attention_count(g) * g->num_kv_heads, run_one_item, &all);
    if (!p->is_merged_later)
        qni_parallel((int64_t)qk_attention_count_merges(g) * g->num_kv_heads, run_one_merge, &all);
    return QN_OK;
}

qn_status qni_attention_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_attention_on_threads(problem, run_item, ROWS);
}
