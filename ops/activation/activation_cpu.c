// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, and how every CPU kernel's rows are shared among threads.
#define QN_LANES 4
#include "../shared/round.h"
#include "activation_simd.h"

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 17;

typedef struct shared_rows {
    const qni_activation_problem *problem;
    qni_activation_rows_fn rows;
} shared_rows;

static void run_rows(void *context, int64_t first, int64_t end, void *scratch) {
    const shared_rows *s = context;
    s->rows(s->problem, first, end, scratch);
}

qn_status qni_activation_on_threads(const qni_activation_problem *p, qni_activation_rows_fn rows) {
    const int64_t row_bytes = 2 * p->h * qni_dtype_bytes(p->dtype);
    const int64_t room = qni_round_up(p->h, 32) * (int64_t)sizeof(float); // passes take two vectors
                                                                          // at a time
    if (!qni_parallel_runs(p->rows, 1 + task_bytes / row_bytes,
                           p->quant == QNI_ACTIVATION_PLAIN ? 0 : room, run_rows,
                           &(shared_rows){p, rows}))
        return QN_FAIL(QN_E_MEMORY, "activation: no memory for a row of %ld", (long)p->h);
    return QN_OK;
}

qn_status qni_activation_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_activation_on_threads(problem, activation_rows);
}
