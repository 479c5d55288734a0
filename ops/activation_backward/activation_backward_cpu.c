// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, and how every CPU kernel's rows are shared among threads.
#define QN_LANES 4
#include "activation_backward_simd.h"

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 17;

typedef struct shared_rows {
    const qni_activation_backward_problem *problem;
    qni_activation_backward_fn rows;
} shared_rows;

static void run_rows(void *context, int64_t first, int64_t end, void *) {
    const shared_rows *s = context;
    s->rows(s->problem, first, end);
}

qn_status qni_activation_backward_on_threads(const qni_activation_backward_problem *p,
                                             qni_activation_backward_fn rows) {
    const int64_t row_bytes = 3 * p->h * qni_dtype_bytes(p->dtype);
    qni_parallel_runs(p->rows, 1 + task_bytes / row_bytes, 0, run_rows, &(shared_rows){p, rows});
    return QN_OK;
}

qn_status qni_activation_backward_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_activation_backward_on_threads(problem, backward_rows);
}
