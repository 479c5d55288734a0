// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, the positions of tokens, and how every CPU kernel's tokens are shared
// among threads.
#define QN_LANES 4
#include "rope_simd.h"

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 17;

bool qni_rope_position(const qni_rope_problem *p, int64_t t, int64_t *position) {
    *position = 0;
    if (p->angles == QNI_ROPE_BY_TOKEN)
        return true;
    if (p->pos_ids) {
        *position = p->pos_ids[t];
        return true;
    }
    int64_t low = 0, high = p->segments; // the segment of t is in low .. high - 1, if in any
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (p->indptr[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    *position = p->offsets[low] + (t - p->indptr[low]);
    return t >= p->indptr[low] && t < p->indptr[low + 1];
}

typedef struct shared_tokens {
    const qni_rope_problem *problem;
    qni_rope_tokens_fn tokens;
    uint64_t turns[QNI_ROPE_MAX_PAIRS + 32];
} shared_tokens;

static void run_tokens(void *context, int64_t first, int64_t end, void *scratch) {
    const shared_tokens *s = context;
    s->tokens(s->problem, s->turns, first, end, scratch);
}

qn_status qni_rope_on_threads(const qni_rope_problem *p, qni_rope_tokens_fn tokens) {
    int64_t widest = 0, bytes = 1;
    for (int i = 0; i < QNI_ROPE_PARTS; i++) {
        widest = p->parts[i].width > widest ? p->parts[i].width : widest;
        bytes += p->parts[i].heads * p->parts[i].width * qni_dtype_bytes(p->dtype);
    }
    const int64_t floats = qni_rope_scratch(widest, p->rotary_dim);
    shared_tokens s = {p, tokens, {}};
    if (p->angles == QNI_ROPE_BY_FREQUENCY)
        qni_rope_turns(&p->law, p->rotary_dim, s.turns);
    if (!qni_parallel_runs(p->n, 1 + task_bytes / bytes, floats * (int64_t)sizeof(float),
                           run_tokens, &s))
        return QN_FAIL(QN_E_MEMORY, "rope: no memory for heads of %ld", (long)widest);
    return QN_OK;
}

qn_status qni_rope_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rope_on_threads(problem, rope_tokens);
}
