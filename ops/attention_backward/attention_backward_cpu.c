// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention on the CPU: the loop over items, the sinks' gradients; and the
// backward pass in plain C vectors.
#define QN_LANES 4
#include "attention_backward_simd.h"

typedef struct work {
    const qni_backward_problem *p;
    const qni_backward_functions *functions;
} work;

static void run_items(void *context, int64_t first, int64_t end, void *scratch) {
    const work *w = context;
    const uint32_t heads = w->p->args.common.num_kv_heads;
    for (int64_t i = first; i < end; i++)
        w->functions->run_item(w->p, (uint32_t)(i / heads), (uint32_t)(i % heads), scratch);
}

static void run_mask_rows(void *context, int64_t first, int64_t end, void *scratch) {
    const work *w = context;
    for (int64_t row = first; row < end; row++)
        w->functions->run_mask_row(w->p, row, scratch);
}

/** Computes one head's dsink, over requests and queries in order. */
static void run_sink(void *context, int64_t head) {
    const work *w = context;
    const qk_backward_args *b = &w->p->args;
    const qk_attention_args *g = &b->common;
    const float sink = g->sinks[head] * QNI_LOG2_E;
    float sum = 0;
    for (uint32_t index = 0; index < w->p->requests; index++) {
        const qk_attention_request r = qk_attention_get_request(g, index);
        for (int64_t token = r.qo_begin; token < (int64_t)r.qo_begin + r.qo_len; token++) {
            const float lse =
                g->lse[index * g->lse_batch + token * g->lse_token + head * g->lse_head];
            sum -= exp2f(sink - lse / g->lse_unit) *
                   b->delta[qk_backward_delta(b, index, token, (uint32_t)head)];
        }
    }
    b->dsinks[head] = sum;
}

qn_status qni_backward_on_threads(const qni_backward_problem *p,
                                  const qni_backward_functions *functions) {
    work w = {p, functions};
    const qk_mask_gradient *m = &p->args.dmask;
    const int64_t heads = p->args.common.num_kv_heads;
    if (!qni_parallel_runs(p->requests * heads, 1, sizeof(qni_backward_scratch), run_items, &w) ||
        (m->data && !qni_parallel_runs((int64_t)m->batches * m->heads * m->queries, 1,
                                       qni_backward_mask_bytes(p), run_mask_rows, &w)))
        return QN_FAIL(QN_E_MEMORY, "attention_backward: out of memory");
    if (p->args.dsinks)
        qni_parallel(heads * p->args.common.group, run_sink, &w);
    return QN_OK;
}

qn_status qni_backward_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_backward_on_threads(problem, &(qni_backward_functions){run_item, run_mask_row});
}
