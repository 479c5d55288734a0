// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel of activations, and how rows are shared among threads.
#define QN_LANES 4
#include "activate_simd.h"

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 15;

typedef struct shared_rows {
    const qni_moe_activate_problem *problem;
    qni_moe_activate_fn rows;
} shared_rows;

static void run_rows(void *context, int64_t first, int64_t end, void *) {
    const shared_rows *s = context;
    s->rows(s->problem, first, end);
}

void qni_moe_activate_on_threads(const qni_moe_activate_problem *p, qni_moe_activate_fn rows) {
    const int64_t row = 2 * p->h * qni_dtype_bytes(p->dtype);
    qni_parallel_runs(p->rows, 1 + task_bytes / row, 0, run_rows, &(shared_rows){p, rows});
}

qn_status qni_moe_activate_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_moe_activate_on_threads(problem, activate_rows);
    return QN_OK;
}
