// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, and how every CPU kernel's rows are shared among threads.
#define QN_LANES 4
#include "norm_simd.h"

/** Bytes that one task reads: enough that handing it out costs nothing. */
constexpr int64_t task_bytes = 1 << 17;

typedef struct shared_rows {
    const qni_norm_problem *problem;
    qni_norm_rows_fn rows;
    int64_t per_task;
} shared_rows;

static void run_task(void *context, int64_t i) {
    const shared_rows *s = context;
    const int64_t first = i * s->per_task, end = first + s->per_task;
    s->rows(s->problem, first, end < s->problem->rows ? end : s->problem->rows);
}

qn_status qni_norm_on_threads(const qni_norm_problem *p, qni_norm_rows_fn rows) {
    const int64_t row_bytes = p->h * qni_dtype_bytes(p->dtype);
    shared_rows s = {p, rows, 1 + task_bytes / row_bytes};
    qni_parallel((p->rows + s.per_task - 1) / s.per_task, run_task, &s);
    return QN_OK;
}

qn_status qni_norm_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_norm_on_threads(problem, norm_rows);
}
