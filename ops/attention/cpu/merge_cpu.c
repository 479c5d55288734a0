// SPDX-License-Identifier: Apache-2.0
// Merging of states, dropout's mask and random numbers on the CPU.
#include "../attention.h"

// ---- merging

/** Where state i of a query's head lies. */
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

qn_status qni_merge_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_merge_problem p = *(const qni_merge_problem *)problem;
    qni_parallel(p.n * p.heads, merge_row, &p);
    return QN_OK;
}

// ---- dropout

static void put_random(const qni_dropout_problem *p, int64_t at, uint32_t word) {
    if (p->what == QK_DROPOUT_WORDS)
        ((uint32_t *)p->r)[at] = word;
    else if (p->what == QK_DROPOUT_UNIFORM)
        ((float *)p->r)[at] = qk_philox_uniform(word);
    else
        qni_put(p->dtype, p->r, at, (int32_t)word > p->args.dropout_threshold ? 0.5 : -0.5);
}

static void fill_dropout_row(void *context, int64_t i) {
    const qni_dropout_problem *p = context;
    const int64_t per_batch = p->heads * p->queries;
    const qni_attention_row row = {.index = (uint32_t)(i / per_batch),
                                   .head = (uint32_t)(i % per_batch / p->queries),
                                   .query = (uint32_t)(i % p->queries)};
    const int64_t at = row.index * p->r_batch + row.head * p->r_head + row.query * p->r_query;
    for (int64_t j = 0; j < p->keys; j++)
        put_random(p, at + j, qni_attention_word(&p->args, &row, (uint32_t)j));
}

qn_status qni_dropout_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_dropout_problem p = *(const qni_dropout_problem *)problem;
    qni_parallel(p.batches * p.heads * p.queries, fill_dropout_row, &p);
    return QN_OK;
}
