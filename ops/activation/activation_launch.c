// SPDX-License-Identifier: Apache-2.0
// Chooses and launches the activations' GPU kernels.
#include "activation.h"
#include "activation_gpu.h"

#define KERNELS(image_name, prefix)                                                                \
    {[QNI_F32] = {.image = image_name, .entry = #prefix "_f32"},                                   \
     [QNI_F16] = {.image = image_name, .entry = #prefix "_f16"},                                   \
     [QNI_BF16] = {.image = image_name, .entry = #prefix "_bf16"}}
static const qni_kernel_ref tiles[] = KERNELS("activation", qk_activation);
static const qni_kernel_ref shorts[] = KERNELS("activation", qk_activation_short);
static const qni_kernel_ref tokens[] = KERNELS("activation", qk_activation_token);
static const qni_kernel_ref any[] = KERNELS("activation_any", qk_activation_any);

enum { RUN = 8, THREADS = 256, MAX_THREADS = 512, MIN_LANES_LOG2 = 4, MAX_LANES_LOG2 = 8 };
constexpr int64_t max_grid = 1 << 20;  // workgroups step through the rows that are left
constexpr int64_t max_tiles = 1 << 15; // of a row

static int64_t runs_per_lane(const qni_activation_problem *p) {
    return p->dtype == QNI_F32 ? 2 : 4;
}

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

bool qni_activation_gpu_any_supports(const qn_device *device, const void *problem,
                                     qni_reason *why) {
    (void)device;
    const qni_activation_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * THREADS)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 of each are accepted", (long)p->rows,
                  (long)p->h);
}

/** Whether runs of 8 elements lie at multiples of `bytes`. */
static bool is_aligned(const qni_activation_rows *t, uintptr_t bytes) {
    return (uintptr_t)t->data % bytes == 0 && t->batch % RUN == 0 && t->row % RUN == 0;
}

bool qni_activation_gpu_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_activation_problem *p = problem;
    const bool is_token = p->quant == QNI_ACTIVATION_PER_TOKEN;
    const int64_t most = RUN * runs_per_lane(p) * (is_token ? MAX_THREADS : THREADS * max_tiles);
    if (p->h % RUN != 0)
        return qni_no(why, "h=%ld is no multiple of 8", (long)p->h);
    if (p->h > most)
        return qni_no(why, "h=%ld is more than %ld", (long)p->h, (long)most);
    if (!is_aligned(&p->x, 16) || !is_aligned(&p->out, p->quant == QNI_ACTIVATION_PLAIN ? 16 : RUN))
        return qni_no(why, "x or out does not begin, or its rows do not, at a multiple of 8 "
                           "elements and 16 bytes");
    return qni_activation_gpu_any_supports(device, problem, why);
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
                        const qni_kernel_ref *kernel, int64_t row_groups, int64_t tiles_per_row,
                        int64_t threads) {
    const uint32_t grid[3] = {(uint32_t)(row_groups < max_grid ? row_groups : max_grid),
                              (uint32_t)tiles_per_row, 1};
    return qni_launch(stream, kernel, grid, (uint32_t)threads, args, sizeof *args);
}

/** Lanes along a row: no more than it has runs for, at least a group's 16. */
qn_status qni_activation_gpu(qn_stream *stream, const void *problem) {
    const qni_activation_problem *p = problem;
    // Few elements: a run a lane, so that no lane has long to work.
    const int64_t at_once = THREADS * (int64_t)stream->device->info.num_compute_units;
    const bool is_short = p->quant != QNI_ACTIVATION_PER_TOKEN && p->rows * p->h / RUN <= at_once;
    const int64_t kept = is_short ? 1 : runs_per_lane(p);
    const int64_t runs = div_up(p->h / RUN, kept); // for each lane one turn
    qk_activation_args args = make_args(p);
    if (p->quant == QNI_ACTIVATION_PER_TOKEN) {
        const int64_t wave = stream->device->target->wave_size;
        return launch(stream, &args, &tokens[p->dtype], p->rows, 1, div_up(runs, wave) * wave);
    }
    args.lanes_log2 = MIN_LANES_LOG2;
    while (args.lanes_log2 < MAX_LANES_LOG2 && (1 << args.lanes_log2) < runs)
        args.lanes_log2++;
    return launch(stream, &args, &(is_short ? shorts : tiles)[p->dtype],
                  div_up(p->rows, THREADS >> args.lanes_log2), div_up(runs, 1 << args.lanes_log2),
                  THREADS);
}

qn_status qni_activation_gpu_any(qn_stream *stream, const void *problem) {
    const qni_activation_problem *p = problem;
    const qk_activation_args args = make_args(p);
    return launch(stream, &args, &any[p->dtype], p->rows, 1, THREADS);
}
