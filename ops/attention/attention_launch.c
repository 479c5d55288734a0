// SPDX-License-Identifier: Apache-2.0
// Launches the GPU kernels of attention: the code that all kernels share, and the kernels without
// matrix cores.
#include "../shared/round.h"
#include "attention.h"

#include <string.h>

static_assert((int)QNI_F32 == 0 && (int)QNI_F16 == 1 && (int)QNI_BF16 == 2 && (int)QNI_E4M3FN == 3,
              "kernels number dtypes so");

enum { RUN = 8, THREADS = 256, GROUPS_OF_UNIT = 8 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through the other items
constexpr int64_t most = 1 << 30;

static qn_status launch_of(qn_stream *stream, const qni_kernel_ref *kernel, int64_t groups,
                           uint32_t threads, const void *args, size_t bytes) {
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return groups > 0 ? qni_launch(stream, kernel, grid, threads, args, bytes) : QN_OK;
}

static qn_status launch(qn_stream *stream, const qni_kernel_ref *kernel, int64_t groups,
                        const void *args, size_t bytes) {
    return launch_of(stream, kernel, groups, THREADS, args, bytes);
}

int64_t qni_attention_groups_of(const qn_stream *stream, const qni_attention_problem *p,
                                uint32_t count) {
    const int64_t groups = (int64_t)count * p->args.num_kv_heads;
    const int64_t at_once = (int64_t)GROUPS_OF_UNIT * stream->device->info.num_compute_units;
    return p->plan && p->plan->is_for_graph && groups < at_once ? at_once : groups;
}

/** Returns the arguments with the schedule that the host can read. */
static qk_attention_args on_host(const qni_attention_problem *p, const qk_attention_args *args) {
    qk_attention_args g = *args;
    g.schedule = p->plan;
    return g;
}

int64_t qni_attention_count_groups(const qn_stream *stream, const qni_attention_problem *p,
                                   const qk_attention_args *args) {
    const qk_attention_args g = on_host(p, args);
    return qni_attention_groups_of(stream, p, qk_attention_count(&g));
}

/** Returns the threads of a workgroup that merges: fewer where workgroups are many, as a request's
 *  few rows leave most waves of a large one idle. */
static uint32_t merge_threads(const qn_stream *stream, int64_t groups) {
    return groups > 2 * (int64_t)stream->device->info.num_compute_units ? THREADS / 2 : THREADS;
}

/** Returns how many workgroups share each of `groups` merges: so many that a wave has a part of one
 *  row alone, but no more than run at a time. */
static int64_t merge_parts(const qn_stream *stream, const qni_attention_problem *p,
                           const qk_attention_args *g, int64_t groups) {
    const qn_device_info *chip = &stream->device->info;
    const int64_t tile = g->schedule ? g->schedule->q_tile : g->q_tile;
    const int64_t rows = p->max_rows < tile ? p->max_rows : tile;
    const int64_t parts_of_row = qni_pieces(g->head_dim_vo, 2 * (int64_t)chip->wave_size);
    const int64_t wanted = qni_pieces(rows * parts_of_row, THREADS / chip->wave_size);
    const int64_t room = GROUPS_OF_UNIT * (int64_t)chip->num_compute_units / groups;
    return wanted < room ? wanted : room;
}

qn_status qni_attention_merge(const qni_variant *variant, qn_stream *stream,
                              const qni_attention_problem *p, const qk_attention_args *args) {
    const qk_attention_args g = on_host(p, args);
    const int64_t groups = qni_attention_groups_of(stream, p, qk_attention_count_merges(&g));
    if (p->is_merged_later || groups == 0)
        return QN_OK;
    const int64_t parts = merge_parts(stream, p, &g, groups);
    qk_attention_args merged = *args;
    if (!p->merges_own)
        merged.least_rows = 0, merged.most_rows = UINT32_MAX;
    return launch_of(stream, &variant->config.kernel[1], parts > 1 ? parts * groups : groups,
                     merge_threads(stream, groups), &merged, sizeof merged);
}

qn_status qni_attention_launch_of(const qni_variant *variant, qn_stream *stream,
                                  const qni_attention_problem *p, uint32_t threads,
                                  const qk_attention_args *args, size_t bytes) {
    QN_TRY(launch_of(stream, &variant->config.kernel[0],
                     qni_attention_count_groups(stream, p, args), threads, args, bytes));
    return qni_attention_merge(variant, stream, p, args);
}

qn_status qni_attention_launch_groups(const qni_variant *variant, qn_stream *stream, int64_t groups,
                                      const qk_attention_args *args, size_t bytes) {
    return launch(stream, &variant->config.kernel[0], groups, args, bytes);
}

qn_status qni_attention_launch(const qni_variant *variant, qn_stream *stream,
                               const qni_attention_problem *p, const qk_attention_args *args,
                               size_t bytes) {
    return qni_attention_launch_of(variant, stream, p, THREADS, args, bytes);
}

bool qni_attention_fits(const qni_variant *variant, const qni_attention_problem *p,
                        qni_reason *why) {
    const qk_attention_args *g = &p->args;
    const int64_t rows = p->plan ? 0 : (int64_t)g->requests * p->max_rows;
    const int64_t chunks = p->plan ? 1 : qk_attention_uniform_chunks(g);
    if (p->max_rows >= most || rows >= most || rows * chunks * g->num_kv_heads >= most)
        return qni_no(why, "%ld rows a request; fewer than 2^30 rows and work items are accepted",
                      (long)p->max_rows);
    const uint32_t dim = g->head_dim_qk > g->head_dim_vo ? g->head_dim_qk : g->head_dim_vo;
    const uint32_t above = variant->config.flags >> 8, columns = variant->config.columns;
    if (dim > above && dim <= columns)
        return true;
    return qni_no(why, "head_dim is %u; taken: above %u, up to %u", dim, above, columns);
}

// ---- attention.gpu_any_*

bool qni_attention_any_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                qni_reason *why) {
    return qni_attention_fits(variant, problem, why);
}

bool qni_attention_is_wide(const qk_attention_rows *k, uint32_t dim) {
    return (uintptr_t)k->data % 16 == 0 && dim % RUN == 0 && k->block % RUN == 0 &&
           k->token % RUN == 0 && k->head % RUN == 0;
}

qn_status qni_attention_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_attention_tail *tail = &p->tail;
    qk_attention_any_args any = {
        .common = p->args,
        .tail = *tail,
        .is_wide = qni_attention_is_wide(&p->args.k, p->args.head_dim_qk - tail->dim) &&
                   qni_attention_is_wide(&tail->k, tail->dim)};
    qk_attention_args *g = &any.common;
    g->q_tile = variant->config.rows;
    static_assert(sizeof any.turns == sizeof p->turns);
    memcpy(any.turns, p->turns, sizeof any.turns);
    return qni_attention_launch(variant, stream, p, g, sizeof any);
}

// ---- merge_states.gpu, attention_dropout.gpu

bool qni_merge_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                            qni_reason *why) {
    (void)device;
    const qni_merge_problem *p = problem;
    return (p->n < most && p->heads < most && p->n * p->heads < most && p->states < most &&
            p->head_dim < most) ||
           qni_no(why, "%ld queries of %ld heads; fewer than 2^30 are accepted", (long)p->n,
                  (long)p->heads);
}

qn_status qni_merge_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_merge_problem *p = problem;
    const qk_merge_args args = {.v = {p->v[0], p->v[1]},
                                .s = {p->s[0], p->s[1]},
                                .v_token = {p->v_token[0], p->v_token[1]},
                                .v_state = p->v_state,
                                .v_head = {p->v_head[0], p->v_head[1]},
                                .s_token = {p->s_token[0], p->s_token[1]},
                                .s_state = p->s_state,
                                .s_head = {p->s_head[0], p->s_head[1]},
                                .o = p->o,
                                .lse = p->lse,
                                .o_token = p->o_token,
                                .o_head = p->o_head,
                                .lse_token = p->lse_token,
                                .lse_head = p->lse_head,
                                .n = (uint32_t)p->n,
                                .heads = (uint32_t)p->heads,
                                .head_dim = (uint32_t)p->head_dim,
                                .states = (uint32_t)p->states,
                                .dtype = (uint32_t)p->dtype,
                                .lse_unit = p->lse_unit};
    const int64_t waves = THREADS / stream->device->target->wave_size;
    return launch(stream, &variant->config.kernel[0], (p->n * p->heads + waves - 1) / waves, &args,
                  sizeof args);
}

bool qni_dropout_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                              qni_reason *why) {
    (void)device;
    const qni_dropout_problem *p = problem;
    const bool fits = p->batches < most && p->heads < most && p->batches * p->heads < most &&
                      p->queries < most && p->batches * p->heads * p->queries < most &&
                      p->keys < most;
    return fits || qni_no(why, "%ld queries of %ld heads; fewer than 2^30 are accepted",
                          (long)p->queries, (long)p->heads);
}

qn_status qni_dropout_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_dropout_problem *p = problem;
    const qk_dropout_args args = {.common = p->args,
                                  .r = p->r,
                                  .r_batch = p->r_batch,
                                  .r_head = p->r_head,
                                  .r_query = p->r_query,
                                  .rows = (uint32_t)(p->batches * p->heads * p->queries),
                                  .keys = (uint32_t)p->keys,
                                  .dtype = (uint32_t)p->dtype,
                                  .what = p->what};
    const int64_t quads = (p->keys + 3) / 4 * args.rows;
    return launch(stream, &variant->config.kernel[0], (quads + THREADS - 1) / THREADS, &args,
                  sizeof args);
}
