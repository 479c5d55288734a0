// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, and how every CPU kernel's rows are shared among threads.
#define QN_LANES 4
#include "activation_simd.h"

#include <stdatomic.h>
#include <stdlib.h>

/** Bytes that one task reads: enough that handing it out costs nothing. */
constexpr int64_t task_bytes = 1 << 17;

typedef struct shared_rows {
    const qni_activation_problem *problem;
    qni_activation_rows_fn rows;
    int64_t per_task;
    atomic_bool is_out_of_memory;
} shared_rows;

static void run_task(void *context, int64_t i) {
    shared_rows *s = context;
    const int64_t first = i * s->per_task, end = first + s->per_task;
    const bool needs_scratch = s->problem->quant != QNI_ACTIVATION_PLAIN;
    const size_t room =
        (size_t)(s->problem->h + 31) / 32 * 32 * sizeof(float); // two vectors each time
    float *scratch = needs_scratch ? aligned_alloc(64, room) : nullptr;
    if (needs_scratch && !scratch)
        s->is_out_of_memory = true;
    else
        s->rows(s->problem, first, end < s->problem->rows ? end : s->problem->rows, scratch);
    free(scratch);
}

qn_status qni_activation_on_threads(const qni_activation_problem *p, qni_activation_rows_fn rows) {
    const int64_t row_bytes = 2 * p->h * qni_dtype_bytes(p->dtype);
    shared_rows s = {p, rows, 1 + task_bytes / row_bytes, false};
    qni_parallel((p->rows + s.per_task - 1) / s.per_task, run_task, &s);
    if (s.is_out_of_memory)
        return QN_FAIL(QN_E_MEMORY, "activation: no memory for a row of %ld", (long)p->h);
    return QN_OK;
}

qn_status qni_activation_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_activation_on_threads(problem, activation_rows);
}
