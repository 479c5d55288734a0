// SPDX-License-Identifier: Apache-2.0
// The CPU kernels that take any problem: attention row by row as it is defined, merging, dropout's mask.
#include "attention.h"

#include <stdlib.h>

/** Rows are dealt out to threads in turn; each has scratch of its own. */
typedef struct row_tasks {
    const qni_attention_problem *p;
    double *scratch;
    int64_t scratch_each, tasks, max_kv_len;
} row_tasks;

static void store_row(const qni_attention_problem *p, const qni_attention_row *row, const double *o,
                      double lse) {
    const qk_attention_args *g = &p->args;
    const int64_t token = (int64_t)row->request.qo_begin + row->query;
    const int64_t at = row->index * g->o_batch + token * g->o_token + row->head * g->o_head;
    for (uint32_t d = 0; d < g->head_dim_vo; d++)
        qni_put(p->dtype_o, g->o, at + d, o[d]);
    if (g->lse)
        g->lse[row->index * g->lse_batch + token * g->lse_token + row->head * g->lse_head] =
            (float)lse;
}

static void run_rows(void *context, int64_t task) {
    const row_tasks *t = context;
    const qk_attention_args *g = &t->p->args;
    const uint32_t heads = g->num_kv_heads * g->group;
    double *x = t->scratch + task * t->scratch_each, o[QK_ATTENTION_MAX_HEAD_DIM], lse;
    int64_t turn = 0;
    for (uint32_t b = 0; b < qk_attention_num_requests(g); b++) {
        const qk_attention_request r = qk_attention_get_request(g, b);
        for (uint32_t i = 0; i < (uint32_t)r.qo_len; i++)
            for (uint32_t h = 0; h < heads; h++) {
                const qni_attention_row row = {r, b, i, h};
                if (turn++ % t->tasks != task)
                    continue;
                qni_attention_ref(t->p, &row, x, o, &lse, nullptr, nullptr);
                store_row(t->p, &row, o, lse);
            }
    }
}

qn_status qni_attention_cpu(qn_stream *stream, const void *problem) {
    (void)stream;
    const qni_attention_problem *p = problem;
    const int64_t max_kv_len = p->plan ? p->plan->max_kv_len : p->args.kv_len;
    row_tasks t = {.p = p, .scratch_each = max_kv_len + 1, .tasks = qni_num_threads()};
    t.scratch = malloc((size_t)(t.tasks * t.scratch_each) * sizeof *t.scratch);
    if (!t.scratch)
        return QN_FAIL(QN_E_MEMORY, "attention: no memory for the scores of %ld rows of %ld keys",
                       (long)t.tasks, (long)max_kv_len);
    qni_parallel(t.tasks, run_rows, &t);
    free(t.scratch);
    return QN_OK;
}

// ---- merging

/** Where state i of a query's head stands. */
typedef struct state {
    const void *v;
    int64_t at;
    float s; // base 2
} state;

static state get_state(const qni_merge_problem *p, int64_t n, int64_t i, int64_t head) {
    const int which = p->v[1] && i == 1;
    const int64_t step = p->v[1] ? 0 : i;
    const float s =
        p->s[which][n * p->s_token[which] + step * p->s_state + head * p->s_head[which]];
    return (state){.v = p->v[which],
                   .at = n * p->v_token[which] + step * p->v_state + head * p->v_head[which],
                   .s = s / p->lse_unit};
}

static void merge_row(void *context, int64_t row) {
    const qni_merge_problem *p = context;
    const int64_t n = row / p->heads, head = row % p->heads;
    float max = -HUGE_VALF, sum = 0;
    for (int64_t i = 0; i < p->states; i++)
        max = fmaxf(max, get_state(p, n, i, head).s);
    for (int64_t i = 0; max > -HUGE_VALF && i < p->states; i++)
        sum += exp2f(get_state(p, n, i, head).s - max);
    const int64_t at = n * p->o_token + head * p->o_head;
    for (int64_t d = 0; d < p->head_dim; d++) {
        float v = 0;
        for (int64_t i = 0; sum > 0 && i < p->states; i++) {
            const state s = get_state(p, n, i, head);
            if (s.s > -HUGE_VALF)
                v += exp2f(s.s - max) / sum * (float)qni_get(p->dtype, s.v, s.at + d);
        }
        qni_put(p->dtype, p->o, at + d, (double)v);
    }
    p->lse[n * p->lse_token + head * p->lse_head] =
        sum > 0 ? (max + log2f(sum)) * p->lse_unit : -HUGE_VALF;
}

qn_status qni_merge_cpu(qn_stream *stream, const void *problem) {
    (void)stream;
    qni_merge_problem p = *(const qni_merge_problem *)problem;
    qni_parallel(p.n * p.heads, merge_row, &p);
    return QN_OK;
}

// ---- dropout

static void fill_dropout_row(void *context, int64_t i) {
    const qni_dropout_problem *p = context;
    const int64_t per_batch = p->heads * p->queries;
    const qni_attention_row row = {.index = (uint32_t)(i / per_batch),
                                   .head = (uint32_t)(i % per_batch / p->queries),
                                   .query = (uint32_t)(i % p->queries)};
    for (int64_t j = 0; j < p->keys; j++)
        qni_put(p->dtype, p->r, i * p->keys + j,
                qni_attention_keeps(&p->args, &row, (uint32_t)j) ? 0.5 : -0.5);
}

qn_status qni_dropout_cpu(qn_stream *stream, const void *problem) {
    (void)stream;
    qni_dropout_problem p = *(const qni_dropout_problem *)problem;
    qni_parallel(p.batches * p.heads * p.queries, fill_dropout_row, &p);
    return QN_OK;
}
