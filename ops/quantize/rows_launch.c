// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of rows_gpu.c.
#include "../shared/round.h"
#include "rows.h"
#include "rows_abi.h"

static_assert(QK_ROWS_MAXIMA == QNI_ROWS_MAXIMA);

enum { RUN = 8, MAX_GROUP = 128, MIN_LANES_LOG2 = 4, MAX_LANES_LOG2 = 8 };
/** The most workgroups (x, y) of a launch. More would not run at one time, and kernels step through
 *  the rest. */
constexpr int64_t max_grid[2] = {1 << 20, 1 << 15};

static bool has_runs(const qni_rows_problem *p) {
    return (uintptr_t)p->x % 16 == 0 && (uintptr_t)p->q % RUN == 0 && p->x_row % RUN == 0 &&
           p->q_row % RUN == 0 && p->cols % RUN == 0 && p->group % RUN == 0;
}

static int64_t runs_per_lane(const qni_rows_problem *p) {
    return p->dtype_x == QNI_F32 ? 2 : 4;
}

bool qni_rows_gpu_any_supports(const qni_variant *, const qn_device *device, const void *problem,
                               qni_reason *why) {
    (void)device;
    const qni_rows_problem *p = problem;
    if (p->rows < INT32_MAX && p->cols < INT32_MAX - RUN * QK_ROWS_THREADS)
        return true;
    return qni_no(why, "[%ld, %ld] is too large; fewer than 2^31 rows and columns are accepted",
                  (long)p->rows, (long)p->cols);
}

bool qni_rows_gpu_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_rows_problem *p = problem;
    const bool is_power = (p->group & (p->group - 1)) == 0;
    if (!qni_rows_has_one_scale(p) && (p->group > MAX_GROUP || !is_power))
        return qni_no(why, "groups of %ld, not of 8, 16, 32, 64 or 128", (long)p->group);
    if (!has_runs(p))
        return qni_no(why, "x or q does not begin, or its rows do not, at a multiple of 8 elements "
                           "and 16 bytes, or groups are not of whole runs of 8");
    if (p->cols > RUN * runs_per_lane(p) * QK_ROWS_THREADS * max_grid[1])
        return qni_no(why, "rows of %ld are too long", (long)p->cols);
    return qni_rows_gpu_any_supports(variant, device, problem, why);
}

static qk_rows_args make_args(const qni_rows_problem *p) {
    return (qk_rows_args){.x = p->x,
                          .q = p->q,
                          .scale = p->scale,
                          .maxima = p->maxima,
                          .x_row = p->x_row,
                          .q_row = p->q_row,
                          .scale_row = p->scale_row,
                          .scale_col = p->scale_col,
                          .rows = (uint32_t)p->rows,
                          .cols = (uint32_t)p->cols,
                          .group = (uint32_t)p->group,
                          .groups = (uint32_t)qni_rows_groups(p),
                          .form = p->form,
                          .kind = p->dtype_q == QNI_I8 ? QK_KIND_I8 : qni_fp8_of(p->dtype_q),
                          .eps = p->eps,
                          .group_lanes = (uint32_t)(p->group / RUN),
                          .has_runs = has_runs(p)};
}

static qn_status launch(qn_stream *stream, const qk_rows_args *args, const qni_kernel_ref *kernel,
                        int64_t x, int64_t y) {
    const uint32_t grid[3] = {(uint32_t)(x < max_grid[0] ? x : max_grid[0]),
                              (uint32_t)(y < max_grid[1] ? y : max_grid[1]), 1};
    return qni_launch(stream, kernel, grid, QK_ROWS_THREADS, args, sizeof *args);
}

/** Finds the largest magnitudes of the tensor's parts, from which the next launch takes the
 *  tensor's scale. */
static qn_status launch_maxima(const qni_variant *variant, qn_stream *stream,
                               const qni_rows_problem *p, const qk_rows_args *args) {
    if (p->form != QNI_SCALE_TENSOR)
        return QN_OK;
    return launch(stream, args, &variant->config.kernel[QNI_KERNEL_DTYPES + p->dtype_x],
                  p->rows < QNI_ROWS_MAXIMA ? p->rows : QNI_ROWS_MAXIMA, 1);
}

qn_status qni_rows_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_rows_problem *p = problem;
    const int64_t runs = qni_pieces(p->cols / RUN, runs_per_lane(p)); // one turn for each lane
    qk_rows_args args = make_args(p);
    args.lanes_log2 = MIN_LANES_LOG2;
    while (args.lanes_log2 < MAX_LANES_LOG2 && (1 << args.lanes_log2) < runs)
        args.lanes_log2++;
    QN_TRY(launch_maxima(variant, stream, p, &args));
    return launch(stream, &args, &variant->config.kernel[p->dtype_x],
                  qni_pieces(p->rows, QK_ROWS_THREADS >> args.lanes_log2),
                  qni_pieces(runs, 1 << args.lanes_log2));
}

qn_status qni_rows_gpu_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_rows_problem *p = problem;
    const qk_rows_args args = make_args(p);
    QN_TRY(launch_maxima(variant, stream, p, &args));
    return launch(stream, &args, &variant->config.kernel[p->dtype_x], p->rows, args.groups);
}
