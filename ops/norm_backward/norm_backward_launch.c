// SPDX-License-Identifier: Apache-2.0
// Which problems the GPU kernels of norms' backward pass take, and their launch.
#include "../shared/round.h"
#include "norm_backward.h"

enum { RUN = 8, THREADS = 256, SUM_COLUMNS = 32 };
enum { KEPT_RUNS = 1, WIDE_RUNS = 4 };        // of a lane: norm_backward_gpu.c
enum { KEPT_MOST = 8192, WIDE_MOST = 16384 }; // elements of a row, by threads and runs
enum { SUM = 3 };                             // the variant's kernel behind those of the dtypes

bool qni_norm_backward_any_supports(const qni_variant *, const qn_device *, const void *problem,
                                    qni_reason *why) {
    const qni_norm_backward_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * 1024 &&
        p->groups * qni_pieces(p->h, SUM_COLUMNS) < INT32_MAX)
        return true;
    return qni_no(why, "%ld rows of %ld, %ld weights; fewer than 2^31 of each are accepted",
                  (long)p->rows, (long)p->h, (long)p->groups);
}

static bool is_aligned(const qni_norm_rows *t) {
    return (uintptr_t)t->data % 16 == 0 && t->batch % RUN == 0 && t->row % RUN == 0;
}

static bool are_aligned(const qni_norm_weights *w) {
    return (uintptr_t)w->data % 16 == 0 && w->batch % RUN == 0;
}

/** Returns whether a row of at most so many elements fits into a workgroup's registers. */
static bool fits(const qn_device *device, const qni_norm_backward_problem *p, int64_t most,
                 qni_reason *why) {
    if (p->h % RUN != 0 || p->h > most)
        return qni_no(why, "h=%ld is no multiple of 8 up to %ld, which a workgroup keeps",
                      (long)p->h, (long)most);
    if (!is_aligned(&p->x) || !is_aligned(&p->d_out) || !is_aligned(&p->d_sum) ||
        !is_aligned(&p->gated) || !is_aligned(&p->dx) || !is_aligned(&p->d_gated) ||
        !are_aligned(&p->weight) || !are_aligned(&p->gate))
        return qni_no(why,
                      "a tensor does not begin, or its rows do not, at a multiple of 16 bytes");
    return qni_norm_backward_any_supports(nullptr, device, p, why);
}

bool qni_norm_backward_kept_supports(const qni_variant *, const qn_device *device,
                                     const void *problem, qni_reason *why) {
    return fits(device, problem, KEPT_MOST, why);
}

bool qni_norm_backward_wide_supports(const qni_variant *, const qn_device *device,
                                     const void *problem, qni_reason *why) {
    const qni_norm_backward_problem *p = problem;
    if (p->dtype == QNI_F32 || p->d_gated.data || p->sums[QK_DGATE].to)
        return qni_no(why, "x is f32, or there is a gate");
    return fits(device, p, WIDE_MOST, why);
}

static qk_norm_rows rows_of(const qni_norm_rows *t) {
    return (qk_norm_rows){t->data, t->batch, t->row};
}

static qk_norm_sum sum_of(const qni_norm_sum *sum) {
    return (qk_norm_sum){sum->parts, sum->to, sum->batch, (uint32_t)sum->dtype};
}

static qk_norm_backward_args make_args(const qni_norm_backward_problem *p) {
    qk_norm_backward_args args = {.x = rows_of(&p->x),
                                  .d_out = rows_of(&p->d_out),
                                  .d_sum = rows_of(&p->d_sum),
                                  .gated = rows_of(&p->gated),
                                  .dx = rows_of(&p->dx),
                                  .d_gated = rows_of(&p->d_gated),
                                  .weight = p->weight.data,
                                  .gate = p->gate.data,
                                  .weight_batch = p->weight.batch,
                                  .gate_batch = p->gate.batch,
                                  .rows_per_group = (uint32_t)qni_norm_backward_group_rows(p),
                                  .parts_per_group = (uint32_t)p->parts_per_group,
                                  .rows_per_part = (uint32_t)p->rows_per_part,
                                  .inner = (uint32_t)p->inner,
                                  .h = (uint32_t)p->h,
                                  .pad = (uint32_t)p->pad,
                                  .eps = p->eps,
                                  .per_h = 1.0f / (float)p->h,
                                  .weight_plus = p->weight_plus,
                                  .weight_dtype = (uint32_t)p->dtype_weight,
                                  .subtracts_mean = p->subtracts_mean};
    for (int i = 0; i < QK_NORM_SUMS; i++)
        args.sums[i] = sum_of(&p->sums[i]);
    return args;
}

/** Launches the kernel with a workgroup a part, and the one that adds the parts up. */
static qn_status launch(const qni_variant *variant, qn_stream *stream,
                        const qni_norm_backward_problem *p, int64_t threads) {
    const qk_norm_backward_args args = make_args(p);
    const qni_kernel_ref *kernel = variant->config.kernel;
    const uint32_t parts = (uint32_t)(p->groups * p->parts_per_group);
    const uint32_t columns = (uint32_t)(p->groups * qni_pieces(p->h, SUM_COLUMNS));
    const uint32_t sums = p->sums[QK_DGATE].to ? 3 : p->sums[QK_DBETA].to ? 2 : 1;
    if (parts > 0)
        QN_TRY(qni_launch(stream, &kernel[p->dtype], (const uint32_t[]){parts, 1, 1},
                          (uint32_t)threads, &args, sizeof args));
    if (!qni_norm_backward_has_sums(p))
        return QN_OK;
    return qni_launch(stream, &kernel[SUM], (const uint32_t[]){columns, sums, 1}, THREADS, &args,
                      sizeof args);
}

static qn_status launch_kept(const qni_variant *variant, qn_stream *stream,
                             const qni_norm_backward_problem *p, int64_t runs) {
    const int64_t lanes = qni_pieces(p->h / RUN, runs);
    return launch(variant, stream, p, qni_round_up(lanes, stream->device->target->wave_size));
}

qn_status qni_norm_backward_kept(const qni_variant *variant, qn_stream *stream,
                                 const void *problem) {
    return launch_kept(variant, stream, problem, KEPT_RUNS);
}

qn_status qni_norm_backward_wide(const qni_variant *variant, qn_stream *stream,
                                 const void *problem) {
    return launch_kept(variant, stream, problem, WIDE_RUNS);
}

qn_status qni_norm_backward_any(const qni_variant *variant, qn_stream *stream,
                                const void *problem) {
    return launch(variant, stream, problem, THREADS);
}
