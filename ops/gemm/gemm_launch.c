// SPDX-License-Identifier: Apache-2.0
// Host side of the family's GPU kernels: which problems each kernel takes, its arguments and grid.
#include "gemm_launch.h"

#include <math.h>

static_assert(QNI_F32 == (int)QK_F32 && QNI_BF16 == (int)QK_BF16 && QNI_E4M3FN == (int)QK_E4M3FN &&
              QNI_E4M3FNUZ == (int)QK_E4M3FNUZ);
static_assert(QN_GEMM_GELU_TANH == (int)QK_GELU_TANH &&
              QN_GEMM_SILU_AND_MUL == (int)QK_SILU_AND_MUL);
static_assert(QNI_I8 == (int)QK_I8 && QNI_I32 == (int)QK_I32 && QNI_E8M0FNU == (int)QK_E8M0FNU);
static_assert(QNI_F16 == (int)QK_F16 && QNI_E5M2FNUZ - QNI_E4M3FN == QNI_FP8_E5M2FNUZ);

enum { MAX_THREADS = 512 }; // of any kernel here

/** Does for groups by ends what count_row_tiles does. Each group may end with a part of a tile, and
 *  a tile has a row at least: most tiles are there if as many groups as can be have one row more
 *  than whole tiles have. Nor are there more than groups' places hold, which begin at multiples of
 *  m_alignment. */
static int64_t count_by_ends(const qni_gemm_problem *p, int64_t rows) {
    if (p->m == 0)
        return 0;
    const int64_t place = p->m_alignment < p->m ? p->m_alignment : p->m;
    const int64_t of_groups = p->m <= p->groups ? p->m : p->groups + (p->m - p->groups) / rows;
    const int64_t of_places = qni_pieces(p->m, place) * qni_pieces(place, rows);
    return of_groups < of_places ? of_groups : of_places;
}

/** Returns how many tiles of `rows` rows the grid must offer. Groups by index begin at multiples of
 *  128 rows, so that higher tiles take so many. */
static int64_t count_row_tiles(const qni_gemm_problem *p, int64_t rows) {
    if (p->grouping == QN_GEMM_GROUPED_ENDS)
        return count_by_ends(p, rows);
    return qni_pieces(p->m, p->grouping == QN_GEMM_GROUPED_INDEX && rows > 128 ? 128 : rows);
}

int64_t qni_gemm_count_tiles(const qni_gemm_problem *p, int64_t rows, int64_t columns) {
    const int64_t slabs = p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
    return count_row_tiles(p, rows) * qni_pieces(p->n, columns) * slabs;
}

/** Returns whether the grid can hold the problem: kernels count rows, columns and k in 32 bits, and
 *  a grid has fewer than 2^32 threads. */
bool qni_gemm_fits_grid(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    if (p->m > INT32_MAX || p->n > INT32_MAX - 128 || p->k > INT32_MAX - 128)
        return qni_no(why, "m=%ld n=%ld k=%ld: needs dimensions below 2^31", (long)p->m, (long)p->n,
                      (long)p->k);
    const int64_t workgroups =
        qni_gemm_count_tiles(p, variant->config.rows, variant->config.columns);
    if (workgroups > UINT32_MAX / MAX_THREADS)
        return qni_no(why, "%ld workgroups, a grid holds %u", (long)workgroups,
                      UINT32_MAX / MAX_THREADS);
    return true;
}

qk_gemm_args qni_gemm_kernel_args(const qni_gemm_problem *p, int64_t rows, int64_t columns) {
    const bool is_masked = p->grouping == QN_GEMM_GROUPED_MASKED;
    return (qk_gemm_args){
        .d = p->d,
        .a = p->a,
        .b = p->b,
        .c = p->c,
        .scale_a = p->scale_a,
        .scale_b = p->scale_b,
        .layout = p->layout,
        .d_group = is_masked ? p->d_group : 0,
        .d_row = p->d_row,
        .c_row = p->c_row,
        .a_group = is_masked ? p->a_group : 0,
        .a_row = p->a_row,
        .a_k = p->a_k,
        .b_group = p->b_group,
        .b_n = p->b_n,
        .b_k = p->b_k,
        .scale_a_group = is_masked ? p->scale_a_group : 0,
        .scale_a_row = p->scale_a_row,
        .scale_a_kb = p->scale_a_kb,
        .scale_b_group = p->scale_b_group,
        .scale_b_nb = p->scale_b_nb,
        .m = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .groups = (uint32_t)p->groups,
        .m_alignment = (uint32_t)(p->m_alignment < p->m ? p->m_alignment : p->m),
        .tiles_m = (uint32_t)count_row_tiles(p, rows),
        .tiles_n = (uint32_t)qni_pieces(p->n, columns),
        .packed_k = (uint32_t)p->packed_k,
        .grouping = (uint8_t)p->grouping,
        .type_a = (uint8_t)p->dtype_a,
        .type_b = (uint8_t)p->dtype_b,
        .type_d = (uint8_t)p->dtype_d,
        .is_packed = p->is_packed,
        .zero_padding = p->zero_padding,
        .has_epilogue = qni_gemm_has_epilogue(p),
        .activation = (uint8_t)p->activation,
        .type_bias = (uint8_t)p->dtype_bias,
        .type_gate = (uint8_t)p->dtype_gate,
        .gate_rows = (uint32_t)p->gate_rows,
        .bias = p->bias,
        .gate = p->gate,
        .gate_batch = p->gate_batch,
    };
}

qk_gemm_scaling qni_gemm_scaling(const qni_gemm_problem *p) {
    return (qk_gemm_scaling){.found = p->scale_d,
                             .given = p->given_scale_d,
                             .group = p->grouping == QN_GEMM_GROUPED_MASKED ? p->scale_d_group : 0,
                             .row = p->scale_d_row,
                             .nb = p->scale_d_nb,
                             .eps = p->eps};
}

/** Returns the columns of the product that a workgroup computes. */
static int64_t columns_of(const qni_config *config, const qni_gemm_problem *p) {
    const bool is_wide = config->flags & QNI_GEMM_WIDENS && qni_is_fp8(p->dtype_d);
    return is_wide ? QNI_GEMM_GROUP * qni_gemm_ratio(p) : config->columns;
}

static qk_gemm_full_args full_args(const qni_config *config, const qni_gemm_problem *p) {
    const int64_t columns = columns_of(config, p);
    return (qk_gemm_full_args){
        .g = qni_gemm_kernel_args(p, config->rows, columns),
        .scaling = qni_gemm_scaling(p),
        .bias_group = p->bias_group,
        .c_group = p->c_group,
    };
}

/** Launches one of the variant's kernels, which takes these arguments. */
static qn_status launch_tiles(const qni_variant *variant, qn_stream *stream,
                              const qni_gemm_problem *p, int kernel, const void *args,
                              size_t bytes) {
    const qni_config *config = &variant->config;
    const int64_t columns = columns_of(config, p);
    const uint32_t grid[3] = {(uint32_t)qni_gemm_count_tiles(p, config->rows, columns), 1, 1};
    const uint32_t threads = config->waves * (uint32_t)stream->device->info.wave_size;
    return qni_launch(stream, &config->kernel[kernel], grid, threads, args, bytes);
}

qn_status qni_gemm_tiled(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qk_gemm_full_args args = full_args(&variant->config, problem);
    const bool is_full = qni_gemm_needs_full(problem);
    return launch_tiles(variant, stream, problem, is_full, &args,
                        is_full ? sizeof args : sizeof args.g);
}

qn_status qni_gemm_tiled_full(const qni_variant *variant, qn_stream *stream, const void *problem,
                              int kernel) {
    const qk_gemm_full_args args = full_args(&variant->config, problem);
    return launch_tiles(variant, stream, problem, kernel, &args, sizeof args);
}

qn_status qni_gemm_any_mixed(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_gemm_problem *p = problem;
    const uint32_t flags = variant->config.flags;
    const qk_gemm_mixed_args args = {.f = full_args(&variant->config, p),
                                     .scale_b_kb = p->scale_b_kb,
                                     .scale_b_columns = (uint32_t)p->scale_b_columns,
                                     .type_scale_a = (uint8_t)p->dtype_scale_a,
                                     .type_scale_b = (uint8_t)p->dtype_scale_b,
                                     .how = flags & QNI_GEMM_BY_PARTS ? QK_BY_PARTS
                                            : flags & QNI_GEMM_BY_F16 ? QK_BY_F16
                                                                      : QK_BY_BF16};
    return launch_tiles(variant, stream, p, 0, &args, sizeof args);
}

bool qni_gemm_fail_scales(const qni_gemm_problem *p, qni_reason *why) {
    if (p->scale_a && p->dtype_scale_a != QNI_F32)
        return qni_no(why, "scale_a is %s, takes f32", qni_dtype_name(p->dtype_scale_a));
    if (p->scale_b && p->dtype_scale_b != QNI_F32)
        return qni_no(why, "scale_b is %s, takes f32", qni_dtype_name(p->dtype_scale_b));
    return qni_no(why, "takes scales of 1 x 128 of a and 128 x 128 of b");
}

// ---- the cost of a product, in units of the time that reading its weights from memory takes

int64_t qni_gemm_likely_rows(const qni_gemm_problem *p) {
    if (p->grouping == QN_GEMM_GROUPED_MASKED)
        return p->expected_m < p->m ? p->expected_m : p->m;
    return qni_pieces(p->m, p->groups);
}

static const double a_tile = 2.25; // of 128 rows; modelled

/** What workgroups of a kernel take on an MI300X, modelled (docs/performance_modelled.md). */
typedef struct pace {
    uint32_t rows, columns;
    bool is_alone;   // a compute unit holds one workgroup
    uint32_t turn;   // K-blocks that run together, whether there are as many or not
    double block_ns; // for a K-block
    double among;    // the part of that which another workgroup on its unit adds
    double ends_ns; // of a workgroup's beginning and end; where several stream, of each further one
    double of_group; // a group's first tile, in the family's units; each further one
    double further;
} pace;

static const pace streams[] = {{16, 16, true, 16, 57, 1, 400, 0, 0}, // dense products alone
                               {16, 32, false, 4, 114, 0.8, 200, 1.1, 0.3},
                               {32, 64, false, 2, 250, 0.82, 1000, 1.05, 0.25},
                               {32, 32, false, 8, 190, 1, 3900, 1.1, 0.22}};
static const pace tiles[] = {{64, 128, false, 4, 350, 1.3, 3000, 1.18, 0.46},
                             {96, 128, true, 4, 440, 1, 3900, 0, 0}, // dense products alone
                             {128, 128, true, 3, 610, 1, 4000, 0, 0},
                             {128, 128, false, 1, 800, 0.38, 3500, 1.47, 0.78},
                             {256, 128, true, 1, 1080, 1, 6500, 2.3, 2}};

/** The same on an MI355X, of kernels that multiply by f8f6f4. */
static const pace f8f6f4_tiles[] = {{128, 128, false, 1, 570, 0.74, 3400, 1.47, 0.78},
                                    {256, 128, true, 1, 930, 1, 4100, 2.3, 2}};

/** Returns the kernel's pace out of a table that has it. */
static const pace *pace_of(const qni_config *config, const pace *table) {
    const bool is_alone = config->flags & QNI_GEMM_ALONE || config->rows == 256;
    while (table->rows != config->rows || table->columns != config->columns ||
           table->is_alone != is_alone)
        table++;
    return table;
}

/** Returns the modelled time of what lasts `work` where reading the weights takes that time alone,
 *  or more. */
static double beside_memory_ns(const qni_gemm_problem *p, double work) {
    constexpr double bytes_per_ns = 4200, hidden = 0.1;
    const double memory = (double)p->n * (double)p->k / bytes_per_ns;
    return work > memory ? work + hidden * memory : memory + hidden * work;
}

static double count_turns(const qni_gemm_problem *p, const pace *x) {
    return (double)qni_round_up(qni_pieces(p->k, 128), x->turn);
}

static const double stream_launch_ns = 3300;

/** Returns the modelled time of a dense product by a kernel that streams the weights, whose
 *  workgroups share a unit in any number. */
static double stream_ns(const qni_gemm_problem *p, const qn_device *device, const pace *x) {
    const double count = (double)(qni_pieces(p->m, x->rows) * qni_pieces(p->n, x->columns));
    const double rounds = count / (double)device->info.num_compute_units;
    const double work =
        count_turns(p, x) * x->block_ns * (rounds * x->among > 1 ? rounds * x->among : 1) +
        (rounds > 1 ? (rounds - 1) * x->ends_ns : 0);
    return stream_launch_ns + beside_memory_ns(p, work);
}

/** The same where each unit has a workgroup at most: a second round would take longer than larger
 *  tiles do. */
static double stream_once_ns(const qni_gemm_problem *p, const qn_device *device, const pace *x) {
    const int64_t count = qni_pieces(p->m, x->rows) * qni_pieces(p->n, x->columns);
    if (count > device->info.num_compute_units)
        return INFINITY;
    return stream_launch_ns + beside_memory_ns(p, count_turns(p, x) * x->block_ns) + x->ends_ns;
}

/** The same of a kernel with tiles in LDS, of which a unit runs two at a time, or one. */
static double tile_ns(const qni_gemm_problem *p, const qn_device *device, const pace *x) {
    constexpr double launch_ns = 2000;
    const int64_t count = qni_pieces(p->m, x->rows) * qni_pieces(p->n, x->columns);
    const int64_t most = qni_pieces(count, device->info.num_compute_units);
    const int64_t pairs = x->is_alone ? 0 : most / 2, single = most - 2 * pairs;
    const double blocks = count_turns(p, x) * x->block_ns;
    const double work = (double)pairs * (blocks * (1 + x->among) + x->ends_ns) +
                        (double)single * (blocks + x->ends_ns);
    return launch_ns + beside_memory_ns(p, work);
}

/** Returns a dense product's modelled time in the family's units. */
static double dense_cost(const qni_gemm_problem *p, const qn_device *device, double ns) {
    const pace *usual = &tiles[3];
    return a_tile * (double)qni_pieces(p->m, usual->rows) * ns / tile_ns(p, device, usual);
}

/** Returns how many tiles a group likely has. Counts are not known here: what the last tile of a
 *  group holds, and what groups by ends or index leave of their places, is a half. */
static double likely_tiles(const qni_gemm_problem *p, int64_t rows) {
    double count = (double)qni_gemm_likely_rows(p);
    if (p->grouping != QN_GEMM_GROUPED_MASKED) {
        const double place = p->grouping == QN_GEMM_GROUPED_ENDS ? (double)p->m_alignment : 128;
        count = fmax(count, fmin(place, (double)p->m)) - (place - 1) / 2;
    }
    return fmax(count / (double)rows + 0.5, 1);
}

/** Returns the cost of a grouped product. It has many workgroups, most of which wait for the
 *  weights, that each group reads for itself. */
static double group_cost(const qni_gemm_problem *p, const pace *x) {
    return x->of_group + (likely_tiles(p, x->rows) - 1) * x->further;
}

/** Kernels that stream the weights. */
double qni_gemm_decode_cost(const qni_variant *variant, const qn_device *device,
                            const void *problem) {
    const qni_gemm_problem *p = problem;
    const pace *x = pace_of(&variant->config, streams);
    if (p->grouping != QN_GEMM_DENSE)
        return group_cost(p, x);
    const double ns = x->is_alone ? stream_once_ns(p, device, x) : stream_ns(p, device, x);
    return dense_cost(p, device, ns);
}

/** A tile through LDS takes as long as reading the weights twice or more, even if few of its rows
 *  are used. */
double qni_gemm_fp8_cost(const qni_variant *variant, const qn_device *device, const void *problem) {
    const qni_gemm_problem *p = problem;
    const bool has_f8f6f4 =
        qni_has(device, QNI_F(MFMA_FP8_OCP)) && !(variant->config.flags & QNI_GEMM_ALONE);
    const pace *x = pace_of(&variant->config, has_f8f6f4 ? f8f6f4_tiles : tiles);
    if (p->grouping != QN_GEMM_DENSE)
        return group_cost(p, x);
    return dense_cost(p, device, tile_ns(p, device, x));
}

/** The kernel has one stage of LDS and tests bounds at each load. RDNA's other kernels, whose costs
 *  have another unit, are faster whatever the number of rows. */
double qni_gemm_any_fp8_cost(const qni_variant *, const qn_device *device, const void *problem) {
    if (qni_has(device, QNI_F(WMMA_GFX12)))
        return INFINITY;
    return 4.5 * (double)qni_pieces(qni_gemm_likely_rows(problem), 64);
}

// ---- gemm.any…: run-time bounds, any shape

static bool fail_types(const qni_gemm_problem *p, const char *takes, qni_reason *why) {
    return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                  qni_dtype_name(p->dtype_b), takes);
}

bool qni_gemm_any_supports(const qni_variant *variant, const qn_device *, const void *problem,
                           qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (!qni_gemm_is_usual(p->dtype_a) || !qni_gemm_is_usual(p->dtype_b))
        return fail_types(p, "bf16, e4m3fn, e4m3fnuz", why);
    if (!qni_gemm_has_no_scales(p) && !qni_gemm_has_block_scales(p))
        return qni_gemm_fail_scales(p, why);
    return qni_gemm_fits_grid(variant, problem, why);
}

/** Returns whether the dtype is `wide` or one of 8 bits, which f16 and bf16 hold. */
static bool is_exact_in(qni_dtype dtype, qni_dtype wide) {
    return dtype == wide || dtype == QNI_I8 || qni_is_fp8(dtype);
}
static bool are_exact_in(const qni_gemm_problem *p, qni_dtype wide) {
    return is_exact_in(p->dtype_a, wide) && is_exact_in(p->dtype_b, wide);
}

bool qni_gemm_any_mixed_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                 qni_reason *why) {
    if (!are_exact_in(problem, QNI_BF16))
        return fail_types(problem, "bf16, FP8, i8", why);
    return qni_gemm_fits_grid(variant, problem, why);
}

/** What is exact in bf16 as well is for gemm.any_mixed. */
bool qni_gemm_any_f16_supports(const qni_variant *variant, const qn_device *, const void *problem,
                               qni_reason *why) {
    if (!are_exact_in(problem, QNI_F16) || are_exact_in(problem, QNI_BF16))
        return fail_types(problem, "f16, beside it FP8, i8", why);
    return qni_gemm_fits_grid(variant, problem, why);
}

bool qni_gemm_any_f32_supports(const qni_variant *variant, const qn_device *device,
                               const void *problem, qni_reason *why) {
    const bool has_f16 = qni_has(device, QNI_F(TILE_F16));
    if (are_exact_in(problem, QNI_BF16) || (has_f16 && are_exact_in(problem, QNI_F16)))
        return fail_types(problem, has_f16 ? "f32, f16 beside bf16" : "f32, f16", why);
    return qni_gemm_fits_grid(variant, problem, why);
}

/** Returns whether the device's own FP8 matrix cores can take both operands; if not, gemm.any
 *  converts them to bf16. gfx942's cores take e4m3fn as well, as the kernel repairs it on the
 *  way. */
bool qni_gemm_any_fp8_supports(const qni_variant *variant, const qn_device *device,
                               const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    const bool is_fnuz = qni_has(device, QNI_F(MFMA_FP8_FNUZ));
    const bool are_e4m3 = qni_gemm_is_e4m3(p->dtype_a) && qni_gemm_is_e4m3(p->dtype_b);
    if (!are_e4m3 || (!is_fnuz && (p->dtype_a != QNI_E4M3FN || p->dtype_b != QNI_E4M3FN)))
        return fail_types(p, is_fnuz ? "e4m3fn, e4m3fnuz" : "e4m3fn", why);
    if (!qni_gemm_has_block_scales(p))
        return qni_gemm_fail_scales(p, why);
    return qni_gemm_fits_grid(variant, p, why);
}

// ---- gemm.fp8_decode, gemm.fp8_mfma_*: packed weights

/** Returns the kind of FP8 that CDNA's matrix cores take. */
static qni_dtype core_dtype(const qn_device *device) {
    return qni_has(device, QNI_F(MFMA_FP8_FNUZ)) ? QNI_E4M3FNUZ : QNI_E4M3FN;
}

static bool is_core_dtype(const qn_device *device, const char *name, qni_dtype dtype,
                          qni_reason *why) {
    if (dtype == core_dtype(device))
        return true;
    return qni_no(why, "%s is %s, the matrix cores take %s", name, qni_dtype_name(dtype),
                  qni_dtype_name(core_dtype(device)));
}

/** Returns whether the problem meets what every kernel for packed weights needs: offsets within a
 *  tile in 31 bits, and a in dwords. */
static bool fits_packed(const qni_variant *variant, const qn_device *device,
                        const qni_gemm_problem *p, qni_reason *why) {
    const int64_t kb = qni_pieces(p->k, 128), rows = variant->config.rows;
    if (!qni_is_fp8(p->dtype_a) || !p->is_packed)
        return qni_no(why, "b is not packed (qn_gemm_pack)");
    if (!qni_gemm_has_block_scales(p))
        return qni_gemm_fail_scales(p, why);
    if (qni_gemm_together(p) > variant->config.columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %u",
                      (long)qni_gemm_together(p), variant->config.columns);
    if (!is_core_dtype(device, "b", p->dtype_b, why))
        return false;
    if (p->grouping == QN_GEMM_GROUPED_INDEX && rows > 128)
        return qni_no(why, "groups begin at multiples of 128 rows, the tile has %ld", (long)rows);
    if (p->a_k != 1)
        return qni_no(why, "k is not contiguous in a");
    if ((uintptr_t)p->a % 4 != 0 || p->a_row % 4 != 0 || p->a_group % 4 != 0)
        return qni_no(why, "a's rows are not 4-byte aligned");
    if (p->a_row > INT32_MAX / rows || p->k > INT32_MAX / 256)
        return qni_no(why, "k=%ld, row stride %ld: a tile of a or b passes 2 GiB", (long)p->k,
                      (long)p->a_row);
    if ((p->scale_a_row * rows + p->scale_a_kb * kb) > INT32_MAX / 4)
        return qni_no(why, "scale_a's strides %ld, %ld: a tile passes 2 GiB", (long)p->scale_a_row,
                      (long)p->scale_a_kb);
    return qni_gemm_fits_grid(variant, p, why);
}

bool qni_gemm_decode_supports(const qni_variant *variant, const qn_device *device,
                              const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_E4M3FN && !is_core_dtype(device, "a", p->dtype_a, why))
        return false;
    return fits_packed(variant, device, p, why);
}

bool qni_gemm_fp8_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_gemm_problem *p = problem;
    return is_core_dtype(device, "a", p->dtype_a, why) && fits_packed(variant, device, p, why);
}

/** Returns whether the problem is for kernels of dense products that have no image for all forms of
 *  a product's end. */
static bool is_plain(const qni_gemm_problem *p, qni_reason *why) {
    if (p->grouping != QN_GEMM_DENSE)
        return qni_no(why, "rows are grouped; takes dense products");
    if (qni_gemm_needs_full(p))
        return qni_no(why, "d is %s%s; takes f32 and bf16, and no SiLU-and-multiply",
                      qni_dtype_name(p->dtype_d),
                      p->activation == QN_GEMM_SILU_AND_MUL ? ", of SiLU-and-multiply" : "");
    return true;
}

bool qni_gemm_split_supports(const qni_variant *variant, const qn_device *device,
                             const void *problem, qni_reason *why) {
    return is_plain(problem, why) && qni_gemm_decode_supports(variant, device, problem, why);
}

bool qni_gemm_fp8_plain_supports(const qni_variant *variant, const qn_device *device,
                                 const void *problem, qni_reason *why) {
    return is_plain(problem, why) && qni_gemm_fp8_supports(variant, device, problem, why);
}

bool qni_gemm_fp8_fn_supports(const qni_variant *variant, const qn_device *device,
                              const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_E4M3FN)
        return qni_no(why, "a is %s, takes e4m3fn", qni_dtype_name(p->dtype_a));
    return fits_packed(variant, device, p, why);
}

// ---- gemm_pack.gpu

static int64_t count_pack_blocks(const qni_gemm_pack_problem *p) {
    return p->groups * (p->packed_n / QK_PACK_ROWS) * (p->packed_k / QK_PACK_K);
}

bool qni_gemm_pack_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                                qni_reason *why) {
    const qni_gemm_pack_problem *p = problem;
    if (p->packed_n > INT32_MAX || p->packed_k > INT32_MAX / QK_PACK_ROWS)
        return qni_no(why, "n=%ld k=%ld: needs n below 2^31, k below 2^26", (long)p->n, (long)p->k);
    if (count_pack_blocks(p) > UINT32_MAX / 256)
        return qni_no(why, "%ld workgroups, a grid holds %u", (long)count_pack_blocks(p),
                      UINT32_MAX / 256);
    return true;
}

qn_status qni_gemm_pack_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_gemm_pack_problem *p = problem;
    qk_gemm_pack_args args = {
        .packed = p->packed,
        .packed_scale = p->packed_scale,
        .b = p->b,
        .scale_b = p->scale_b,
        .b_group = p->b_group,
        .b_n = p->b_n,
        .scale_b_group = p->scale_b_group,
        .scale_b_nb = p->scale_b_nb,
        .groups = (uint32_t)p->groups,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .packed_n = (uint32_t)p->packed_n,
        .packed_k = (uint32_t)p->packed_k,
        .fn_to_fnuz = p->dtype_in != p->dtype_out,
    };
    const uint32_t grid[3] = {(uint32_t)count_pack_blocks(p), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, 256, &args, sizeof args);
}
