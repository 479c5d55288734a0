// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention on the CPU: the loop over blocks of keys, the sinks' gradients;
// and the backward pass in plain C vectors.
#define QN_LANES 4
#include "attention_backward_simd.h"

#include <stdlib.h>

typedef struct work {
    const qni_backward_problem *p;
    const qni_backward_functions *functions;
    bool begins;             // rows: in front of the blocks of keys, else behind them
    int64_t items, threads;  // kv heads of all requests
    int64_t blocks;          // of keys, of the longest request
    _Atomic int64_t next;    // the block that nobody has begun
    _Atomic int64_t *passed; // [items][blocks]: rows of dq that the block has passed
} work;

// ---- rows

enum { ROWS = 64 }; // that a thread takes at a time

static void run_rows(void *context, int64_t i) {
    const work *w = context;
    const qk_attention_args *g = &w->p->args.common;
    const int64_t heads = (int64_t)g->num_kv_heads * g->group;
    const int64_t runs = qni_pieces(w->p->args.max_qo, ROWS);
    const uint32_t index = (uint32_t)(i / runs / heads), head = (uint32_t)(i / runs % heads);
    const uint32_t first = (uint32_t)(i % runs * ROWS);
    const uint32_t qo_len = (uint32_t)qk_attention_get_request(g, index).qo_len;
    for (uint32_t query = first; query < first + ROWS && query < qo_len; query++)
        w->functions->run_row(w->p, index, head, query, w->begins);
}

static void run_all_rows(work *w, bool begins) {
    const qk_attention_args *g = &w->p->args.common;
    w->begins = begins;
    qni_parallel((int64_t)w->p->requests * g->num_kv_heads * g->group *
                     qni_pieces(w->p->args.max_qo, ROWS),
                 run_rows, w);
}

// ---- blocks of keys

/** Runs a block of an item, if the request has as many. */
static void run_block(work *w, int64_t item, int64_t block, void *scratch) {
    const qk_attention_args *g = &w->p->args.common;
    const uint32_t index = (uint32_t)(item / g->num_kv_heads);
    const int64_t first = block * qni_backward_block_rows(w->p);
    _Atomic int64_t *passed = w->passed + item * w->blocks + block;
    const qni_backward_turn turn = {block ? passed - 1 : nullptr, passed};
    if (first < qk_attention_get_request(g, index).kv_len)
        w->functions->run_keys(w->p, index, (uint32_t)(item % g->num_kv_heads), (uint32_t)first,
                               &turn, scratch);
}

/** Runs blocks that nobody has begun. As many items as there are threads go along side by side, so
 *  that few wait for each other; of an item a block begins after those before it. */
static void run_blocks(void *context, int64_t, int64_t, void *scratch) {
    work *w = context;
    const int64_t side_by_side = w->threads * w->blocks;
    for (int64_t i; (i = atomic_fetch_add(&w->next, 1)) < w->items * w->blocks;) {
        const int64_t first = i / side_by_side * w->threads;
        const int64_t left = w->items - first, items = left < w->threads ? left : w->threads;
        run_block(w, first + i % side_by_side % items, i % side_by_side / items, scratch);
    }
}

static bool run_all_blocks(work *w) {
    const int64_t blocks = w->items * w->blocks;
    w->passed = calloc((size_t)blocks + 1, sizeof *w->passed);
    const bool is_run = w->passed && qni_parallel_runs(blocks < w->threads ? blocks : w->threads, 1,
                                                       sizeof(qni_backward_scratch), run_blocks, w);
    free((void *)w->passed);
    return is_run;
}

// ---- masks and sinks

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
    const qk_mask_gradient *m = &p->args.dmask;
    const int64_t heads = p->args.common.num_kv_heads;
    work w = {.p = p,
              .functions = functions,
              .items = p->requests * heads,
              .threads = qni_num_threads(),
              .blocks = qni_pieces(p->args.max_kv, qni_backward_block_rows(p))};
    run_all_rows(&w, true);
    if (!run_all_blocks(&w) ||
        (m->data && !qni_parallel_runs((int64_t)m->batches * m->heads * m->queries, 1,
                                       qni_backward_mask_bytes(p), run_mask_rows, &w)))
        return QN_FAIL(QN_E_MEMORY, "attention_backward: out of memory");
    run_all_rows(&w, false);
    if (p->args.dsinks)
        qni_parallel(heads * p->args.common.group, run_sink, &w);
    return QN_OK;
}

qn_status qni_backward_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_backward_on_threads(problem, &these_functions);
}
