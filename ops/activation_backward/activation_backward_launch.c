// SPDX-License-Identifier: Apache-2.0
// Which problems the GPU kernels of activations' backward pass take, and their launch.
#include "../shared/round.h"
#include "activation_backward.h"
#include "activation_backward_abi.h"

enum { RUN = 8, THREADS = 256, RUNS_PER_LANE = 2, MIN_LANES_LOG2 = 4, MAX_LANES_LOG2 = 8 };
constexpr int64_t max_grid = 1 << 20;  // workgroups step through the rows that are left
constexpr int64_t max_tiles = 1 << 15; // of a row

bool qni_activation_backward_any_supports(const qni_variant *, const qn_device *,
                                          const void *problem, qni_reason *why) {
    const qni_activation_backward_problem *p = problem;
    if (p->rows < INT32_MAX && p->h <= RUN * THREADS * max_tiles)
        return true;
    return qni_no(why, "%ld rows of %ld; accepted: fewer than 2^31, of at most %ld", (long)p->rows,
                  (long)p->h, (long)(RUN * THREADS * max_tiles));
}

/** Returns whether runs of 8 elements lie at multiples of 16 bytes. */
static bool is_aligned(const qni_activation_rows *t) {
    return (uintptr_t)t->data % 16 == 0 && t->batch % RUN == 0 && t->row % RUN == 0;
}

bool qni_activation_backward_tile_supports(const qni_variant *variant, const qn_device *device,
                                           const void *problem, qni_reason *why) {
    const qni_activation_backward_problem *p = problem;
    if (p->h % RUN != 0)
        return qni_no(why, "h=%ld is no multiple of 8", (long)p->h);
    if (!is_aligned(&p->x) || !is_aligned(&p->d_out) || !is_aligned(&p->dx))
        return qni_no(why, "a tensor does not begin, or its rows do not, at a multiple of 8 "
                           "elements and 16 bytes");
    return qni_activation_backward_any_supports(variant, device, problem, why);
}

static qk_activation_backward_args make_args(const qni_activation_backward_problem *p) {
    return (qk_activation_backward_args){.x = p->x.data,
                                         .d_out = p->d_out.data,
                                         .dx = p->dx.data,
                                         .x_batch = p->x.batch,
                                         .x_row = p->x.row,
                                         .d_out_batch = p->d_out.batch,
                                         .d_out_row = p->d_out.row,
                                         .dx_batch = p->dx.batch,
                                         .dx_row = p->dx.row,
                                         .rows = (uint32_t)p->rows,
                                         .inner = (uint32_t)p->inner,
                                         .h = (uint32_t)p->h,
                                         .limit = p->limit,
                                         .function = (uint32_t)p->function};
}

/** Launches with lanes along a row: no more than the row has pairs of runs, but at least 16. */
qn_status qni_activation_backward_gpu(const qni_variant *variant, qn_stream *stream,
                                      const void *problem) {
    const qni_activation_backward_problem *p = problem;
    const int64_t turns = qni_pieces(p->h, RUN * RUNS_PER_LANE); // one for each lane
    qk_activation_backward_args args = make_args(p);
    args.lanes_log2 = MIN_LANES_LOG2;
    while (args.lanes_log2 < MAX_LANES_LOG2 && (1 << args.lanes_log2) < turns)
        args.lanes_log2++;
    const int64_t groups = qni_pieces(p->rows, THREADS >> args.lanes_log2);
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid),
                              (uint32_t)qni_pieces(turns, 1 << args.lanes_log2), 1};
    return qni_launch(stream, &variant->config.kernel[p->dtype], grid, THREADS, &args, sizeof args);
}
