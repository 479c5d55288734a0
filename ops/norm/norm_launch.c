// SPDX-License-Identifier: Apache-2.0
// Chooses and launches the kernels of norm_gpu.c.
#include "norm.h"
#include "norm_gpu.h"

#define KERNEL(entry_name) {.image = "norm", .entry = #entry_name}
#define BY_DTYPE(prefix)                                                                           \
    {[QNI_F32] = KERNEL(prefix##_f32),                                                             \
     [QNI_F16] = KERNEL(prefix##_f16),                                                             \
     [QNI_BF16] = KERNEL(prefix##_bf16)}
#define BY_KIND(tail)                                                                              \
    {                                                                                              \
        BY_DTYPE(qk_rms##tail),     BY_DTYPE(qk_rms_quant##tail),                                  \
        BY_DTYPE(qk_rms_sum##tail), BY_DTYPE(qk_rms_sum_quant##tail),                              \
        BY_DTYPE(qk_layer##tail),   BY_DTYPE(qk_layer_full##tail)}
static const qni_kernel_ref rows_kernels[] = BY_DTYPE(qk_rms_rows);
static const qni_kernel_ref kept_1[][QNI_BF16 + 1] = BY_KIND(_1),
                                                kept_4[][QNI_BF16 + 1] = BY_KIND(_4);
#undef KERNEL
#define KERNEL(entry_name) {.image = "norm_any", .entry = #entry_name}
static const qni_kernel_ref any[] = BY_DTYPE(qk_norm_any);

enum { RUN = 8, ROW_LANES = 16, ROWS_THREADS = 256, ROWS_PER_GROUP = ROWS_THREADS / ROW_LANES };
/** Kernels of rows that stay as they are get no more workgroups than run at once: each goes through its rows, loading
 *  one while it works on another. Kernels of sums do not, and are faster with a workgroup a row. */
constexpr int64_t lanes_per_unit = 2048, max_grid = 1 << 20;

static bool is_sum(const qni_norm_problem *p) {
    return p->residual.data || p->gate.data;
}

/** Which kernels a problem takes, in the order of BY_KIND. */
enum { RMS, RMS_QUANT, RMS_SUM, RMS_SUM_QUANT, LAYER, LAYER_FULL };
static int family_of(const qni_norm_problem *p) {
    const bool is_quant = p->quant != QNI_NORM_PLAIN;
    if (p->subtracts_mean || p->beta.data)
        return is_sum(p) || is_quant ? LAYER_FULL : LAYER;
    return is_sum(p) ? is_quant ? RMS_SUM_QUANT : RMS_SUM : is_quant ? RMS_QUANT : RMS;
}

bool qni_norm_gpu_any_supports(const qn_device *device, const void *problem, qni_reason *why) {
    (void)device;
    const qni_norm_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * 1024)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 of each are accepted", (long)p->rows,
                  (long)p->h);
}

/** Whether runs of 8 elements lie at multiples of `bytes`. */
static bool is_aligned(const void *data, int64_t batch, int64_t row, uintptr_t bytes) {
    return (uintptr_t)data % bytes == 0 && batch % RUN == 0 && row % RUN == 0;
}

static bool has_whole_runs(const qni_norm_problem *p, qni_reason *why) {
    const uintptr_t out = p->quant == QNI_NORM_PLAIN ? 16 : RUN;
    if (p->h % RUN != 0)
        return qni_no(why, "h=%ld is no multiple of 8", (long)p->h);
    if (is_aligned(p->x.data, p->x.batch, p->x.row, 16) &&
        is_aligned(p->out.data, p->out.batch, p->out.row, out) &&
        is_aligned(p->residual.data, p->residual.batch, p->residual.row, 16) &&
        is_aligned(p->weight.data, p->weight.batch, 0, 16) &&
        is_aligned(p->beta.data, p->beta.batch, 0, 16) &&
        is_aligned(p->gate.data, p->gate.batch, 0, 16))
        return true;
    return qni_no(why, "a tensor does not begin, or its rows do not, at a multiple of 16 bytes");
}

bool qni_norm_gpu_rows_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_norm_problem *p = problem;
    if (p->h > RUN * ROW_LANES)
        return qni_no(why, "h=%ld is more than 128, which 16 lanes keep", (long)p->h);
    if (p->subtracts_mean || p->beta.data || p->residual.data || p->gate.data ||
        p->quant != QNI_NORM_PLAIN)
        return qni_no(why, "not a plain RMSNorm");
    return has_whole_runs(p, why) && qni_norm_gpu_any_supports(device, problem, why);
}

bool qni_norm_gpu_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_norm_problem *p = problem;
    // LayerNorm with all that may go with it takes twice the registers.
    const int64_t most = 4 * RUN * (family_of(p) == LAYER_FULL ? 256 : 512);
    if (p->h > most)
        return qni_no(why, "h=%ld is more than %ld, which a workgroup keeps", (long)p->h,
                      (long)most);
    return has_whole_runs(p, why) && qni_norm_gpu_any_supports(device, problem, why);
}

static qk_norm_args make_args(const qni_norm_problem *p) {
    const qni_fp8 kind = p->quant == QNI_NORM_PLAIN ? QNI_FP8_E4M3FN : qni_fp8_of(p->dtype_out);
    return (qk_norm_args){.x = p->x.data,
                          .out = p->out.data,
                          .residual = p->residual.data,
                          .weight = p->weight.data,
                          .beta = p->beta.data,
                          .gate = p->gate.data,
                          .scale = p->scale,
                          .x_batch = p->x.batch,
                          .x_row = p->x.row,
                          .out_batch = p->out.batch,
                          .out_row = p->out.row,
                          .residual_batch = p->residual.batch,
                          .residual_row = p->residual.row,
                          .weight_batch = p->weight.batch,
                          .beta_batch = p->beta.batch,
                          .gate_batch = p->gate.batch,
                          .scale_row = p->scale_row,
                          .rows = (uint32_t)p->rows,
                          .inner = (uint32_t)p->inner,
                          .h = (uint32_t)p->h,
                          .eps = p->eps,
                          .scale_eps = p->scale_eps,
                          .weight_plus = p->weight_plus,
                          .weight_dtype = (uint32_t)p->dtype_weights,
                          .quant = (uint32_t)p->quant,
                          .kind = (uint32_t)kind,
                          .subtracts_mean = p->subtracts_mean,
                          .rounds_first = p->rounds_first};
}

static qn_status launch(qn_stream *stream, const qni_norm_problem *p, const qni_kernel_ref *kernel,
                        int64_t rows_per_group, int64_t threads) {
    const qk_norm_args args = make_args(p);
    const int64_t groups = (p->rows + rows_per_group - 1) / rows_per_group;
    const int64_t at_once = stream->device->info.num_compute_units * lanes_per_unit / threads;
    const int64_t most = is_sum(p) ? max_grid : at_once;
    const uint32_t grid[3] = {(uint32_t)(groups < most ? groups : most), 1, 1};
    return qni_launch(stream, kernel, grid, (uint32_t)threads, &args, sizeof args);
}

static const qni_kernel_ref *pick(const qni_kernel_ref kernels[][QNI_BF16 + 1],
                                  const qni_norm_problem *p) {
    return &kernels[family_of(p)][p->dtype];
}

qn_status qni_norm_gpu_rows(qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    return launch(stream, p, &rows_kernels[p->dtype], ROWS_PER_GROUP, ROWS_THREADS);
}

/** Few rows: as many lanes as there are runs, since only one row's latency counts. Many rows: four runs a lane, so
 *  that several rows share a compute unit and one loads while another waits for its sum. */
qn_status qni_norm_gpu(qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    const int64_t runs = p->h / RUN, wave = stream->device->target->wave_size;
    const bool is_few = p->rows <= 2 * (int64_t)stream->device->info.num_compute_units;
    const int kept = (is_few && runs <= 1024) || runs <= wave ? 1 : 4;
    const int64_t threads = ((runs + kept - 1) / kept + wave - 1) / wave * wave;
    return launch(stream, p, pick(kept == 1 ? kept_1 : kept_4, p), 1, threads);
}

qn_status qni_norm_gpu_any(qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    return launch(stream, p, &any[p->dtype], 1, 256);
}
