// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of permutation, the portable one of sums, and how tokens are shared among threads.
#define QN_LANES 4
#include "rows_simd.h"

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 16;

// ---- permute

static void copy_row(const qni_moe_permute_problem *p, int64_t row) {
    const int64_t size = qni_dtype_bytes(p->dtype);
    const int64_t pair = p->pair_of_row[row], token = pair / p->top_k;
    if (pair < 0 || token >= p->tokens)
        return;
    if (p->n > 0)
        memcpy((char *)p->out + row * p->out_row * size,
               (const char *)p->x + token * p->x_row * size, (size_t)(p->n * size));
    for (int64_t g = 0; p->scale && g < p->groups; g++)
        p->scale_out[row * p->scale_out_row + g * p->scale_out_column] =
            p->scale[token * p->scale_row + g * p->scale_column];
}

static void copy_rows(void *context, int64_t first, int64_t end, void *) {
    for (int64_t row = first; row < end; row++)
        copy_row(context, row);
}

qn_status qni_moe_permute_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_moe_permute_problem p = *(const qni_moe_permute_problem *)problem;
    const int64_t row = 1 + p.n * qni_dtype_bytes(p.dtype) + 4 * p.groups;
    qni_parallel_runs(p.rows, 1 + task_bytes / row, 0, copy_rows, &p);
    return QN_OK;
}

// ---- sum

typedef struct shared_tokens {
    const qni_moe_sum_problem *problem;
    qni_moe_sum_fn rows;
} shared_tokens;

static void run_tokens(void *context, int64_t first, int64_t end, void *) {
    const shared_tokens *s = context;
    s->rows(s->problem, first, end);
}

void qni_moe_sum_on_threads(const qni_moe_sum_problem *p, qni_moe_sum_fn rows) {
    const int64_t token = 1 + p->n * (p->top_k + 1) * qni_dtype_bytes(p->dtype);
    qni_parallel_runs(p->tokens, 1 + task_bytes / token, 0, run_tokens, &(shared_tokens){p, rows});
}

qn_status qni_moe_sum_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_moe_sum_on_threads(problem, sum_tokens);
    return QN_OK;
}
