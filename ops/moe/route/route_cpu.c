// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel of routing, and how every CPU kernel's tokens are shared among threads.
#include "route_simd.h"

/** Logits that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_logits = 1 << 14;

typedef struct shared_tokens {
    const qni_moe_route_problem *problem;
    qni_moe_route_fn rows;
} shared_tokens;

static void run_tokens(void *context, int64_t first, int64_t end, void *scratch) {
    const shared_tokens *s = context;
    s->rows(s->problem, first, end, scratch);
}

qn_status qni_moe_route_on_threads(const qni_moe_route_problem *p, qni_moe_route_fn rows) {
    const int64_t room = (p->experts + LANES - 1) / LANES * (int64_t)(sizeof(f32s) + sizeof(u32s));
    if (!qni_parallel_runs(p->tokens, 1 + task_logits / p->experts, room, run_tokens,
                           &(shared_tokens){p, rows}))
        return QN_FAIL(QN_E_MEMORY, "moe_route: no memory for scores of %ld experts",
                       (long)p->experts);
    return QN_OK;
}

qn_status qni_moe_route_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_moe_route_on_threads(problem, route_rows);
}
