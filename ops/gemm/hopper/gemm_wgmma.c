// SPDX-License-Identifier: Apache-2.0
// Host side of the kernels for Hopper's tensor cores (gemm_*_wgmma_gpu.c): which problems each
// takes, its tensor maps, what it costs.
#include "../gemm_launch.h"

constexpr uint32_t K_BYTES = 128, D_ROWS = 64, D_COLUMNS = 64; // of boxes, as gemm_abi.h has them

// ---- tensor maps

static bool is_masked(const qni_gemm_problem *p) {
    return p->grouping == QN_GEMM_GROUPED_MASKED;
}

static qni_tensor_map map_a(const qni_gemm_problem *p, const qni_config *config) {
    return (qni_tensor_map){
        .name = "a",
        .data = p->a,
        .dtype = p->dtype_a,
        .rank = 3,
        .size = {p->k, p->m, is_masked(p) ? p->groups : 1},
        .stride = {1, p->a_row, p->a_group},
        .box = {K_BYTES / (uint32_t)qni_dtype_bytes(p->dtype_a), config->rows, 1},
        .swizzle_bytes = K_BYTES};
}

static qni_tensor_map map_b(const qni_gemm_problem *p, const qni_config *config) {
    return (qni_tensor_map){
        .name = "b",
        .data = p->b,
        .dtype = p->dtype_b,
        .rank = 3,
        .size = {p->k, p->n, p->groups},
        .stride = {1, p->b_n, p->b_group},
        .box = {K_BYTES / (uint32_t)qni_dtype_bytes(p->dtype_b), config->columns, 1},
        .swizzle_bytes = K_BYTES};
}

static qni_tensor_map map_d(const qni_gemm_problem *p, const qni_config *config) {
    const uint32_t columns = config->columns < D_COLUMNS ? config->columns : D_COLUMNS;
    return (qni_tensor_map){.name = "d",
                            .data = p->d,
                            .dtype = p->dtype_d,
                            .rank = 3,
                            .size = {p->n, p->m, is_masked(p) ? p->groups : 1},
                            .stride = {1, p->d_row, p->d_group},
                            .box = {columns, D_ROWS, 1},
                            .swizzle_bytes = columns == D_COLUMNS ? 128 : 0};
}

static qni_tensor_map map_scale_a(const qni_gemm_problem *p, const qni_config *config) {
    return (qni_tensor_map){.name = "scale_a",
                            .data = p->scale_a,
                            .dtype = QNI_F32,
                            .rank = 3,
                            .size = {p->m, qni_pieces(p->k, 128), is_masked(p) ? p->groups : 1},
                            .stride = {1, p->scale_a_kb, p->scale_a_group},
                            .box = {config->rows, 1, 1}};
}

/** Returns whether the copy engine can store d, in boxes. It writes whole 16 bytes, past the last
 *  column too. */
static bool has_map_d(const qni_gemm_problem *p, const qni_config *config) {
    const qni_tensor_map map = map_d(p, config);
    return p->dtype_d == QNI_BF16 && !p->c && p->n % 8 == 0 && qni_tensor_map_fits(&map, nullptr);
}

/** Returns whether the copy engine takes both scales: a's with m contiguous, and of b's rows four
 *  K-blocks, 16 bytes, at a time. */
static bool has_scale_copies(const qni_gemm_problem *p, const qni_config *config) {
    const qni_tensor_map map = map_scale_a(p, config);
    const bool has_whole_rows = qni_pieces(p->k, 128) % 4 == 0 && p->scale_b_nb % 4 == 0 &&
                                (p->groups == 1 || p->scale_b_group % 4 == 0);
    return p->scale_a_row == 1 && qni_tensor_map_fits(&map, nullptr) &&
           (uintptr_t)p->scale_b % 16 == 0 && has_whole_rows;
}

static qn_status encode_maps(const qn_device *device, const qni_gemm_problem *p,
                             const qni_config *config, qk_gemm_wgmma_args *args) {
    const qni_tensor_map a = map_a(p, config), b = map_b(p, config), d = map_d(p, config),
                         scale_a = map_scale_a(p, config);
    QN_TRY(qni_tensor_map_encode(device, &a, &args->a));
    QN_TRY(qni_tensor_map_encode(device, &b, &args->b));
    if (args->has_map_d)
        QN_TRY(qni_tensor_map_encode(device, &d, &args->d));
    return args->has_scales ? qni_tensor_map_encode(device, &scale_a, &args->scale_a) : QN_OK;
}

qn_status qni_gemm_wgmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_gemm_problem *p = problem;
    const qni_config *config = &variant->config;
    constexpr uint32_t band_rows = 16 * 128; // of a, which L2 keeps while b's columns pass
    const int64_t tiles = qni_gemm_count_tiles(p, config->rows, config->columns);
    const int64_t most = stream->device->info.num_compute_units;
    qk_gemm_wgmma_args args = {
        .g = qni_gemm_kernel_args(p, config->rows, config->columns),
        .band = band_rows / config->rows,
        .has_map_d = has_map_d(p, config),
        .has_scales = qni_is_fp8(p->dtype_a) && has_scale_copies(p, config),
    };
    QN_TRY(encode_maps(stream->device, p, config, &args));
    const uint32_t grid[3] = {(uint32_t)(tiles < most ? tiles : most), 1, 1};
    return qni_launch(stream, &config->kernel[0], grid, config->waves * 32, &args, sizeof args);
}

// ---- what they take

static bool fits(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    const qni_config *config = &variant->config;
    const qni_tensor_map a = map_a(p, config), b = map_b(p, config);
    if (qni_gemm_needs_full(p))
        return qni_no(why, "takes no SiLU-and-multiply");
    if (qni_gemm_has_epilogue(p))
        return qni_no(why, "takes no bias, activation or gate");
    if (p->is_packed)
        return qni_no(why, "b is packed, takes weights as they were");
    if (p->a_k != 1 || p->b_k != 1)
        return qni_no(why, "k is not contiguous in %s", p->a_k != 1 ? "a" : "b");
    if (p->grouping == QN_GEMM_GROUPED_INDEX && 128 % config->rows != 0)
        return qni_no(why, "groups begin at multiples of 128 rows, the tile has %u", config->rows);
    return qni_tensor_map_fits(&a, why) && qni_tensor_map_fits(&b, why) &&
           qni_gemm_fits_grid(variant, p, why);
}

bool qni_gemm_fp8_wgmma_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                 qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_E4M3FN || p->dtype_b != QNI_E4M3FN)
        return qni_no(why, "a is %s, b %s; takes e4m3fn", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b));
    return fits(variant, p, why);
}

bool qni_gemm_bf16_wgmma_supports(const qni_variant *variant, const qn_device *,
                                  const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_BF16)
        return qni_no(why, "a is %s, takes bf16", qni_dtype_name(p->dtype_a));
    return fits(variant, p, why);
}

// ---- what a product costs: cycles of a multiprocessor

/** Returns the cycles of one tile. The tensor cores or the bytes that come from L2 bound each
 *  K-block, and a tile has an end. */
static double tile_cost(const qni_config *config, int64_t k_bytes) {
    const double rows = config->rows, columns = config->columns;
    constexpr double per_product = 1.1 / 32, from_l2 = 56; // bytes a cycle
    const double product = rows * columns * per_product,
                 bytes = (rows + columns) * (double)K_BYTES / from_l2;
    const double block = product > bytes ? product : bytes, end = 300 + 0.1 * rows * columns;
    return (double)qni_pieces(k_bytes, K_BYTES) * block + end;
}

/** Returns the cycles of all rounds of tiles, or those in which memory gives the weights if that is
 *  more. Boxes that lie for the most part past a's rows are slow. The numbers are fitted to 26
 *  shapes, each timed with all tiles on an H200: the tiles chosen take 0.8 % longer than the best
 *  tiles. */
double qni_gemm_wgmma_cost(const qni_variant *variant, const qn_device *device,
                           const void *problem) {
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, likely = qni_gemm_likely_rows(p);
    const int64_t units = device->info.num_compute_units;
    const int64_t k_bytes = p->k * qni_dtype_bytes(p->dtype_a);
    constexpr double from_memory = 14,
                     outside = 2; // bytes a cycle and multiprocessor; times slower
    const int64_t tiles =
        p->groups * qni_pieces(likely, rows) * qni_pieces(p->n, variant->config.columns);
    const double work = (double)qni_pieces(tiles, units) * tile_cost(&variant->config, k_bytes);
    const double weights =
        (double)(p->groups * p->n) * (double)k_bytes / (from_memory * (double)units);
    return ((work > weights ? work : weights) + 0.02 * work) *
           (rows > qni_round_up(likely, 64) ? outside : 1);
}
