// SPDX-License-Identifier: Apache-2.0
// Which problems the activations' GPU kernels take, what they cost, and their launch.
#include "../shared/round.h"
#include "activation.h"
#include "activation_abi.h"

enum { RUN = 8, THREADS = 256, MAX_THREADS = 512, MIN_LANES_LOG2 = 4, MAX_LANES_LOG2 = 8 };
// Workgroups step through the rows that are left.
constexpr int64_t max_grid = 1 << 20, groups_per_unit = 8;
constexpr int64_t max_tiles = 1 << 15; // of a row

/** Returns how many runs of 8 elements of a row a lane has under way. For few elements it is one,
 *  so that no lane works long. */
static int64_t runs_per_lane(const qni_variant *variant, const qni_activation_problem *p) {
    const uint32_t flags = variant->config.flags;
    const bool is_short = p->dtype == QNI_F32 || flags & QNI_ACTIVATION_AHEAD;
    return flags & QNI_ACTIVATION_FEW ? 1 : is_short ? 2 : 4;
}

bool qni_activation_any_supports(const qni_variant *, const qn_device *, const void *problem,
                                 qni_reason *why) {
    const qni_activation_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * THREADS)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 of each are accepted", (long)p->rows,
                  (long)p->h);
}

/** Returns whether runs of 8 elements lie at multiples of `bytes`. */
static bool is_aligned(const qni_activation_rows *t, uintptr_t bytes) {
    return (uintptr_t)t->data % bytes == 0 && t->batch % RUN == 0 && t->row % RUN == 0;
}

static bool fits(const qni_variant *variant, const qn_device *device,
                 const qni_activation_problem *p, int64_t most_lanes, qni_reason *why) {
    const int64_t most = RUN * runs_per_lane(variant, p) * most_lanes;
    if (p->h % RUN != 0)
        return qni_no(why, "h=%ld is no multiple of 8", (long)p->h);
    if (p->h > most)
        return qni_no(why, "h=%ld is more than %ld", (long)p->h, (long)most);
    if (!is_aligned(&p->x, 16) || !is_aligned(&p->out, p->quant == QNI_ACTIVATION_PLAIN ? 16 : RUN))
        return qni_no(why, "x or out does not begin, or its rows do not, at a multiple of 8 "
                           "elements and 16 bytes");
    return qni_activation_any_supports(variant, device, p, why);
}

bool qni_activation_tile_supports(const qni_variant *variant, const qn_device *device,
                                  const void *problem, qni_reason *why) {
    const qni_activation_problem *p = problem;
    if (p->quant == QNI_ACTIVATION_PER_TOKEN)
        return qni_no(why, "rows have a scale each");
    return fits(variant, device, p, THREADS * max_tiles, why);
}

bool qni_activation_token_supports(const qni_variant *variant, const qn_device *device,
                                   const void *problem, qni_reason *why) {
    const qni_activation_problem *p = problem;
    if (p->quant != QNI_ACTIVATION_PER_TOKEN)
        return qni_no(why, "rows have no scale each");
    return fits(variant, device, p, MAX_THREADS, why);
}

/** Returns the cost in units of an element's cost among many elements. */
double qni_activation_tile_cost(const qni_variant *variant, const qn_device *device,
                                const void *problem) {
    const qni_activation_problem *p = problem;
    const int64_t at_once = THREADS * (int64_t)device->info.num_compute_units;
    const bool is_cdna = device->target->wave_size == 64;
    if (variant->config.flags & QNI_ACTIVATION_AHEAD)
        return is_cdna ? 0.9 : 1.1;
    if (!(variant->config.flags & QNI_ACTIVATION_FEW))
        return 1;
    return p->rows * p->h / RUN <= at_once ? 0.5 : 2;
}

static qk_activation_args make_args(const qni_activation_problem *p) {
    const bool is_plain = p->quant == QNI_ACTIVATION_PLAIN;
    return (qk_activation_args){
        .x = p->x.data,
        .out = p->out.data,
        .scale = p->scale,
        .x_batch = p->x.batch,
        .x_row = p->x.row,
        .out_batch = p->out.batch,
        .out_row = p->out.row,
        .scale_row = p->scale_row,
        .rows = (uint32_t)p->rows,
        .inner = (uint32_t)p->inner,
        .h = (uint32_t)p->h,
        .limit = p->limit,
        .scale_eps = p->scale_eps,
        .function = (uint32_t)p->function,
        .quant = (uint32_t)p->quant,
        .kind = (uint32_t)(is_plain ? QNI_FP8_E4M3FN : qni_fp8_of(p->dtype_out))};
}

static qn_status launch(qn_stream *stream, const qk_activation_args *args,
                        const qni_kernel_ref *kernel, int64_t row_groups, int64_t most,
                        int64_t tiles_per_row, int64_t threads) {
    const uint32_t grid[3] = {(uint32_t)(row_groups < most ? row_groups : most),
                              (uint32_t)tiles_per_row, 1};
    return qni_launch(stream, kernel, grid, (uint32_t)threads, args, sizeof *args);
}

/** Launches with lanes along a row: no more than the row has runs, but at least a group's 16. */
qn_status qni_activation_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_activation_problem *p = problem;
    const int64_t runs =
        qni_pieces(p->h / RUN, runs_per_lane(variant, p)); // one turn for each lane
    qk_activation_args args = make_args(p);
    args.lanes_log2 = MIN_LANES_LOG2;
    while (args.lanes_log2 < MAX_LANES_LOG2 && (1 << args.lanes_log2) < runs)
        args.lanes_log2++;
    const int64_t tiles = qni_pieces(runs, 1 << args.lanes_log2);
    const int64_t groups = stream->device->info.num_compute_units * groups_per_unit;
    const bool is_ahead = variant->config.flags & QNI_ACTIVATION_AHEAD;
    return launch(stream, &args, &variant->config.kernel[p->dtype],
                  qni_pieces(p->rows, THREADS >> args.lanes_log2),
                  is_ahead ? qni_pieces(groups, tiles) : max_grid, tiles, THREADS);
}

qn_status qni_activation_token(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_activation_problem *p = problem;
    const int64_t wave = stream->device->target->wave_size;
    const int64_t runs = qni_pieces(p->h / RUN, runs_per_lane(variant, p));
    const qk_activation_args args = make_args(p);
    return launch(stream, &args, &variant->config.kernel[p->dtype], p->rows, max_grid, 1,
                  qni_round_up(runs, wave));
}

qn_status qni_activation_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_activation_problem *p = problem;
    const qk_activation_args args = make_args(p);
    return launch(stream, &args, &variant->config.kernel[p->dtype], p->rows, max_grid, 1, THREADS);
}
