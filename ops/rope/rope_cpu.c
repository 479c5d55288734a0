// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, where tokens stand, and how every CPU kernel's tokens are shared among
// threads.
#define QN_LANES 4
#include "rope_simd.h"

#include <stdatomic.h>
#include <stdlib.h>

/** Bytes that one task reads: enough that handing it out costs nothing. */
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
    int64_t per_task, scratch_bytes;
    atomic_bool is_out_of_memory;
    uint64_t turns[QNI_ROPE_MAX_PAIRS + 32];
} shared_tokens;

static void run_task(void *context, int64_t i) {
    shared_tokens *s = context;
    const int64_t first = i * s->per_task, end = first + s->per_task, n = s->problem->n;
    float *scratch = aligned_alloc(64, (size_t)s->scratch_bytes);
    if (scratch)
        s->tokens(s->problem, s->turns, first, end < n ? end : n, scratch);
    else
        s->is_out_of_memory = true;
    free(scratch);
}

qn_status qni_rope_on_threads(const qni_rope_problem *p, qni_rope_tokens_fn tokens) {
    int64_t widest = 0, bytes = 1;
    for (int i = 0; i < QNI_ROPE_PARTS; i++) {
        widest = p->parts[i].width > widest ? p->parts[i].width : widest;
        bytes += p->parts[i].heads * p->parts[i].width * qni_dtype_bytes(p->dtype);
    }
    const int64_t floats = qni_rope_scratch(widest, p->rotary_dim);
    shared_tokens s = {p, tokens, 1 + task_bytes / bytes, (floats * 4 + 63) / 64 * 64, false, {}};
    if (p->angles == QNI_ROPE_BY_FREQUENCY)
        qni_rope_turns(&p->law, p->rotary_dim, s.turns);
    qni_parallel((p->n + s.per_task - 1) / s.per_task, run_task, &s);
    if (s.is_out_of_memory)
        return QN_FAIL(QN_E_MEMORY, "rope: no memory for heads of %ld", (long)widest);
    return QN_OK;
}

qn_status qni_rope_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rope_on_threads(problem, rope_tokens);
}
