// SPDX-License-Identifier: Apache-2.0
// Launches the GPU kernels of attention's backward pass.
#include "../shared/round.h"
#include "attention_backward.h"

enum { THREADS = 256 };
enum { DELTA, QUERIES, KEYS, MASK, SINKS }; // the variant's kernels
constexpr int64_t max_grid = 1 << 20;       // workgroups step through the other rows
constexpr double most = 0x1p31;             // rows that kernels can count

bool qni_backward_any_supports(const qni_variant *, const qn_device *device, const void *problem,
                               qni_reason *why) {
    (void)device;
    const qni_backward_problem *p = problem;
    const qk_mask_gradient *m = &p->args.dmask;
    const double requests = p->requests, heads = p->args.common.num_kv_heads;
    const double queries = requests * p->args.max_qo * heads * p->args.common.group;
    const double keys = requests * p->args.max_kv * heads;
    const double mask = (double)m->batches * m->heads * m->queries * m->keys;
    return (queries < most && keys < most && mask < most) ||
           qni_no(why,
                  "%.0f rows of queries, %.0f of keys, %.0f elements of dmask; fewer than 2^31 "
                  "are accepted",
                  queries, keys, mask);
}

/** Launches a kernel that has a wave for each of `count` rows. */
static qn_status launch(const qni_variant *variant, qn_stream *stream, int which, int64_t count,
                        const qk_backward_args *args) {
    const int64_t waves = THREADS / stream->device->target->wave_size;
    const int64_t groups = qni_pieces(count, waves);
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return count > 0 ? qni_launch(stream, &variant->config.kernel[which], grid, THREADS, args,
                                  sizeof *args)
                     : QN_OK;
}

qn_status qni_backward_others(const qni_variant *variant, qn_stream *stream, const void *problem,
                              int mask, int sinks) {
    const qni_backward_problem *p = problem;
    const qk_mask_gradient *m = &p->args.dmask;
    const int64_t wave = stream->device->target->wave_size;
    const int64_t heads = (int64_t)p->args.common.num_kv_heads * p->args.common.group;
    const int64_t pieces =
        m->data ? (int64_t)m->batches * m->heads * m->queries * qni_pieces(m->keys, wave) : 0;
    QN_TRY(launch(variant, stream, mask, pieces, &p->args));
    return launch(variant, stream, sinks, p->args.dsinks ? heads * (THREADS / wave) : 0, &p->args);
}

qn_status qni_backward_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_backward_problem *p = problem;
    const qk_attention_args *g = &p->args.common;
    const int64_t heads = (int64_t)g->num_kv_heads * g->group;
    const int64_t rows = (int64_t)p->requests * p->args.max_qo * heads;
    const int64_t keys = (int64_t)p->requests * p->args.max_kv * g->num_kv_heads;
    QN_TRY(launch(variant, stream, DELTA, rows, &p->args));
    QN_TRY(launch(variant, stream, QUERIES, rows, &p->args));
    QN_TRY(launch(variant, stream, KEYS, keys, &p->args));
    return qni_backward_others(variant, stream, problem, MASK, SINKS);
}
