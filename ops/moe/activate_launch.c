// SPDX-License-Identifier: Apache-2.0
// Launches the kernel of activate_gpu.c.
#include "moe.h"

enum { THREADS = 256, RUN = 8 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through the rows that are left

bool qni_moe_activate_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                                   qni_reason *why) {
    const qni_moe_activate_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX / 2 - RUN * THREADS)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 and 2^30 are accepted", (long)p->rows,
                  (long)p->h);
}

static bool is_aligned(const qni_moe_activate_problem *p) {
    const int64_t in = qni_dtype_bytes(p->dtype), out = qni_dtype_bytes(p->dtype_out);
    const int64_t half = p->is_interleaved ? 0 : p->h; // where up begins
    return (uintptr_t)p->x % 16 == 0 && p->x_row * in % 16 == 0 && half * in % 16 == 0 &&
           (uintptr_t)p->out % (p->scale ? RUN : 16) == 0 &&
           p->out_row * out % (p->scale ? RUN : 16) == 0;
}

qn_status qni_moe_activate_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_activate_problem *p = problem;
    const qk_moe_activate_args args = {.x = p->x,
                                       .out = p->out,
                                       .scale = p->scale,
                                       .expert_of_row = p->expert_of_row,
                                       .x_row = p->x_row,
                                       .out_row = p->out_row,
                                       .scale_row = p->scale_row,
                                       .scale_column = p->scale_column,
                                       .rows = (uint32_t)p->rows,
                                       .h = (uint32_t)p->h,
                                       .dtype = (uint32_t)p->dtype,
                                       .kind = p->scale ? (uint32_t)qni_fp8_of(p->dtype_out) : 0,
                                       .function = (uint32_t)p->function,
                                       .is_interleaved = p->is_interleaved,
                                       .is_aligned = is_aligned(p),
                                       .limit = p->limit,
                                       .alpha = p->alpha,
                                       .scale_eps = p->scale_eps};
    const uint32_t grid[3] = {(uint32_t)(p->rows < max_grid ? p->rows : max_grid), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, THREADS, &args, sizeof args);
}
