// SPDX-License-Identifier: Apache-2.0
// Which problems the kernels of norm_gpu.c and norm_any_gpu.c take, what they cost, and their
// launch.
#include "norm.h"
#include "norm_abi.h"

enum { RUN = 8, ROW_LANES = 16, ROWS_THREADS = 256, ROWS_PER_GROUP = ROWS_THREADS / ROW_LANES };
constexpr int64_t max_grid = 1 << 20, max_elements = 1 << 14; // workgroups of a launch; elements of
                                                              // a row

/** Returns whether FP8 is of the kind that norm_gpu.c's kernels are made for. */
static bool has_usual_kind(const qn_device *device, const qni_norm_problem *p) {
    return p->quant == QNI_NORM_PLAIN || p->dtype_out == qni_usual_e4m3(device);
}

static bool has_sum(const qni_norm_problem *p) {
    return p->residual.data || p->gate.data;
}

static bool is_layer(const qni_norm_problem *p) {
    return p->subtracts_mean || p->beta.data;
}

bool qni_norm_any_supports(const qni_variant *, const qn_device *, const void *problem,
                           qni_reason *why) {
    const qni_norm_problem *p = problem;
    if (p->rows < INT32_MAX && p->h < INT32_MAX - RUN * 1024)
        return true;
    return qni_no(why, "%ld rows of %ld; fewer than 2^31 of each are accepted", (long)p->rows,
                  (long)p->h);
}

/** Returns whether runs of 8 elements lie at multiples of `bytes`. */
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

bool qni_norm_rms_rows_supports(const qni_variant *variant, const qn_device *device,
                                const void *problem, qni_reason *why) {
    const qni_norm_problem *p = problem;
    if (p->h > RUN * ROW_LANES)
        return qni_no(why, "h=%ld is more than 128, which 16 lanes keep", (long)p->h);
    if (p->subtracts_mean || p->beta.data || p->residual.data || p->gate.data || !p->weight.data ||
        p->dtype_weights != p->dtype || p->quant != QNI_NORM_PLAIN)
        return qni_no(why, "not a plain RMSNorm with weights of x's dtype");
    return has_whole_runs(p, why) && qni_norm_any_supports(variant, device, problem, why);
}

/** Returns whether a kernel with these flags takes the weights, scales and sums. Kernels without
 *  QNI_NORM_GENERAL are made for some of them. */
static bool takes_operands(uint32_t flags, const qn_device *device, const qni_norm_problem *p,
                           qni_reason *why) {
    const bool is_quant = flags & QNI_NORM_QUANT;
    if (is_quant != (p->quant != QNI_NORM_PLAIN) || !has_usual_kind(device, p))
        return qni_no(why, "out is %s, takes %s", qni_dtype_name(p->dtype_out),
                      is_quant ? qni_dtype_name(qni_usual_e4m3(device)) : "x's dtype");
    if (has_sum(p) && !(flags & QNI_NORM_SUM))
        return qni_no(why, "a residual or a gate is given");
    if (!p->weight.data || (is_layer(p) ? !p->beta.data : p->dtype_weights != p->dtype))
        return qni_no(why, "takes weights%s", is_layer(p) ? " and a bias" : " of x's dtype");
    return true;
}

/** Returns whether a kernel of LayerNorm quantises so. What is made for FP8 is made for scales of
 *  groups. */
static bool takes_layer_scales(uint32_t flags, qni_norm_quant quant) {
    return flags & QNI_NORM_QUANT ? quant == QNI_NORM_PER_GROUP : quant <= QNI_NORM_STATIC;
}

bool qni_norm_kept_supports(const qni_variant *variant, const qn_device *device,
                            const void *problem, qni_reason *why) {
    const qni_norm_problem *p = problem;
    const uint32_t flags = variant->config.flags;
    if (is_layer(p) != !!(flags & QNI_NORM_LAYER))
        return qni_no(why, "this is %s", is_layer(p) ? "LayerNorm" : "RMSNorm");
    if (is_layer(p) && !takes_layer_scales(flags, p->quant))
        return qni_no(why, "LayerNorm with scales %s",
                      p->quant == QNI_NORM_PER_GROUP   ? "of groups"
                      : p->quant == QNI_NORM_PER_TOKEN ? "of rows"
                                                       : "that are given, or none");
    if (p->h > max_elements)
        return qni_no(why, "h=%ld is more than %ld, which a workgroup keeps", (long)p->h,
                      (long)max_elements);
    if (!(flags & QNI_NORM_GENERAL) && !takes_operands(flags, device, p, why))
        return false;
    return has_whole_runs(p, why) && qni_norm_any_supports(variant, device, problem, why);
}

// ---- costs, in units of a row's time among many rows, by the kernel that reads only what it needs

double qni_norm_rms_rows_cost(const qni_variant *, const qn_device *, const void *) {
    return 0.5;
}

/** If rows are few, the latency of each counts, and a kernel of sums spreads a row over twice the
 *  lanes. Where a wave has 64 lanes, all kernels spread it as far. */
double qni_norm_kept_cost(const qni_variant *variant, const qn_device *device,
                          const void *problem) {
    const qni_norm_problem *p = problem;
    const bool is_few = p->rows <= 2 * (int64_t)device->info.num_compute_units;
    const bool is_wide = device->target->wave_size == 64;
    if (variant->config.flags & QNI_NORM_GENERAL)
        return 3;
    return variant->config.flags & QNI_NORM_SUM ? 1.5 : is_few && !is_wide ? 2 : 1;
}

static qk_norm_args make_args(const qni_norm_problem *p) {
    const qni_fp8 kind = p->quant == QNI_NORM_PLAIN ? QNI_FP8_E4M3FN : qni_fp8_of(p->dtype_out);
    const float most = qni_fp8_format_of(kind).max;
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
                          .scale_batch = p->scale_batch,
                          .scale_row = p->scale_row,
                          .scale_col = p->scale_col,
                          .rows = (uint32_t)p->rows,
                          .inner = (uint32_t)p->inner,
                          .h = (uint32_t)p->h,
                          .eps = p->eps,
                          .per_h = 1.0f / (float)p->h,
                          .per_most = 1.0f / most,
                          .least_scale = p->scale_eps / most,
                          .weight_plus = p->weight_plus,
                          .weight_dtype = (uint32_t)p->dtype_weights,
                          .quant = (uint32_t)p->quant,
                          .kind = (uint32_t)kind,
                          .subtracts_mean = p->subtracts_mean,
                          .rounds_first = p->rounds_first};
}

/** Launches the kernel, several times if there are more rows than one launch takes. Kernels do not
 *  loop, to save registers. */
static qn_status launch(qn_stream *stream, const qni_norm_problem *p, const qni_kernel_ref *kernel,
                        int64_t rows_per_group, int64_t threads) {
    qk_norm_args args = make_args(p);
    const int64_t at_a_time = max_grid * rows_per_group;
    qn_status st = QN_OK;
    for (int64_t first = 0; st == QN_OK && first < p->rows; first += at_a_time) {
        const int64_t rows = p->rows - first < at_a_time ? p->rows - first : at_a_time;
        const int64_t groups = (rows + rows_per_group - 1) / rows_per_group;
        args.first = (uint32_t)first;
        st = qni_launch(stream, kernel, (const uint32_t[]){(uint32_t)groups, 1, 1},
                        (uint32_t)threads, &args, sizeof args);
    }
    return st;
}

/** Returns how many waves a row gets. A lane keeps 4 runs of 8 elements. It keeps 8 if a wave has
 *  32 lanes and they stay in their 16 bits, which they do in rows without a sum, but for LayerNorm
 *  with scales of groups. A kernel of sums gives such a row exactly twice the waves, so that its
 *  sums have one order. */
static int64_t waves_of(uint32_t flags, const qni_norm_problem *p, int64_t wave) {
    constexpr uint32_t layer_quant = QNI_NORM_LAYER | QNI_NORM_QUANT;
    const bool may_be_raw = p->dtype != QNI_F32 && !has_sum(p) && !(flags & QNI_NORM_GENERAL) &&
                            (flags & layer_quant) != layer_quant;
    const bool is_long = may_be_raw && wave == 32;
    const int64_t elements = wave * RUN * (is_long ? 8 : 4);
    return (p->h + elements - 1) / elements * (is_long && flags & QNI_NORM_SUM ? 2 : 1);
}

qn_status qni_norm_rms_rows(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    return launch(stream, p, &variant->config.kernel[p->dtype], ROWS_PER_GROUP, ROWS_THREADS);
}

/** Launches LayerNorm where waves have 64 lanes: no more workgroups than have room at once, which
 *  go from row to row. */
static qn_status launch_loop(qn_stream *stream, const qni_norm_problem *p,
                             const qni_kernel_ref *kernel, int64_t waves) {
    constexpr int64_t waves_per_unit = 12; // with 168 registers
    const qk_norm_args args = make_args(p);
    const int64_t room = stream->device->info.num_compute_units * (waves_per_unit / waves);
    const uint32_t grid[3] = {(uint32_t)(p->rows < room ? p->rows : room), 1, 1};
    return qni_launch(stream, kernel, grid, (uint32_t)waves * 64, &args, sizeof args);
}

qn_status qni_norm_kept(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    const int64_t wave = stream->device->target->wave_size;
    if (wave == 64 && p->dtype != QNI_F32 && variant->config.flags == QNI_NORM_LAYER)
        return launch_loop(stream, p, &variant->config.kernel[p->dtype],
                           waves_of(variant->config.flags, p, wave));
    return launch(stream, p, &variant->config.kernel[p->dtype], 1,
                  waves_of(variant->config.flags, p, wave) * wave);
}

qn_status qni_norm_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_norm_problem *p = problem;
    return launch(stream, p, &variant->config.kernel[p->dtype], 1, 256);
}
