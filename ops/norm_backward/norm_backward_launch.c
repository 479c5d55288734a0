// SPDX-License-Identifier: Apache-2.0
// Which problems the GPU kernels of norms' backward pass take, and their launch.
#include "../shared/round.h"
#include "norm_backward.h"

enum { RUN = 8, THREADS = 256, MAX_THREADS = 512, SUM_COLUMNS = 32 };
enum { SUM = 3 }; // the variant's kernel behind those of the dtypes

bool qni_norm_backward_any_supports(const qni_variant *, const qn_device *, const void *problem,
                                    qni_reason *why) {
    const qni_norm_backward_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * 1024)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 of each are accepted", (long)p->rows,
                  (long)p->h);
}

/** Returns how many runs of 8 elements a lane keeps. */
static int64_t runs_per_lane(const qni_norm_backward_problem *p) {
    return p->dtype == QNI_F32 ? 2 : 4;
}

static bool is_aligned(const qni_norm_rows *t) {
    return (uintptr_t)t->data % 16 == 0 && t->batch % RUN == 0 && t->row % RUN == 0;
}

bool qni_norm_backward_kept_supports(const qni_variant *variant, const qn_device *device,
                                     const void *problem, qni_reason *why) {
    const qni_norm_backward_problem *p = problem;
    const int64_t most = RUN * MAX_THREADS * runs_per_lane(p);
    if (p->h % RUN != 0 || p->h > most)
        return qni_no(why, "h=%ld is no multiple of 8 up to %ld, which a workgroup keeps",
                      (long)p->h, (long)most);
    if (!is_aligned(&p->x) || !is_aligned(&p->d_out) || !is_aligned(&p->d_sum) ||
        !is_aligned(&p->dx) || (uintptr_t)p->weight % 16 != 0)
        return qni_no(why,
                      "a tensor does not begin, or its rows do not, at a multiple of 16 bytes");
    return qni_norm_backward_any_supports(variant, device, problem, why);
}

static qk_norm_rows rows_of(const qni_norm_rows *t) {
    return (qk_norm_rows){t->data, t->batch, t->row};
}

static qk_norm_backward_args make_args(const qni_norm_backward_problem *p) {
    return (qk_norm_backward_args){.x = rows_of(&p->x),
                                   .d_out = rows_of(&p->d_out),
                                   .d_sum = rows_of(&p->d_sum),
                                   .dx = rows_of(&p->dx),
                                   .weight = p->weight,
                                   .weight_sums = p->weight_sums,
                                   .beta_sums = p->beta_sums,
                                   .dweight = p->dweight,
                                   .dbeta = p->dbeta,
                                   .rows = (uint32_t)p->rows,
                                   .inner = (uint32_t)p->inner,
                                   .h = (uint32_t)p->h,
                                   .pad = (uint32_t)p->pad,
                                   .parts = (uint32_t)p->parts,
                                   .rows_per_part = (uint32_t)p->rows_per_part,
                                   .eps = p->eps,
                                   .per_h = 1.0f / (float)p->h,
                                   .weight_plus = p->weight_plus,
                                   .weight_dtype = (uint32_t)p->dtype_weight,
                                   .dweight_dtype = (uint32_t)p->dtype_dweight,
                                   .dbeta_dtype = (uint32_t)p->dtype_dbeta,
                                   .subtracts_mean = p->subtracts_mean};
}

/** Launches the kernel with a workgroup a part, and the one that adds the parts up. */
static qn_status launch(const qni_variant *variant, qn_stream *stream,
                        const qni_norm_backward_problem *p, int64_t threads) {
    const qk_norm_backward_args args = make_args(p);
    if (p->parts > 0)
        QN_TRY(qni_launch(stream, &variant->config.kernel[p->dtype],
                          (const uint32_t[]){(uint32_t)p->parts, 1, 1}, (uint32_t)threads, &args,
                          sizeof args));
    if (!p->dweight && !p->dbeta)
        return QN_OK;
    return qni_launch(stream, &variant->config.kernel[SUM],
                      (const uint32_t[]){(uint32_t)qni_pieces(p->h, SUM_COLUMNS), 2, 1}, THREADS,
                      &args, sizeof args);
}

qn_status qni_norm_backward_kept(const qni_variant *variant, qn_stream *stream,
                                 const void *problem) {
    const qni_norm_backward_problem *p = problem;
    const int64_t lanes = qni_pieces(p->h / RUN, runs_per_lane(p));
    return launch(variant, stream, p, qni_round_up(lanes, stream->device->target->wave_size));
}

qn_status qni_norm_backward_any(const qni_variant *variant, qn_stream *stream,
                                const void *problem) {
    return launch(variant, stream, problem, THREADS);
}
