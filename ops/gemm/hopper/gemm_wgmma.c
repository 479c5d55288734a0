// SPDX-License-Identifier: Apache-2.0
// Host side of the kernels for Hopper's tensor cores (gemm_*_wgmma_gpu.c): which problems each
// takes, its tensor maps, what it costs.
#include "../gemm_launch.h"

constexpr uint32_t K_BYTES = 128, LINES = 64, // of boxes, as gemm_abi.h has them
    D_ROWS = 64, D_BYTES = 128, LOWEST = 64;  // LOWEST: rows of a tile

/** A tile's images, by their QK_FORM; some tiles lack some. */
enum { GROUPED, PLAIN, STEPS, SLABS, CODES };

static bool has_image(const qni_config *config, int form) {
    return config->kernel[form].image;
}

/** Returns whether the tile's images are for SiLU-and-multiply. */
static bool has_pairs(const qni_config *config) {
    return config->flags & QNI_GEMM_PAIRS;
}

/** Returns the product's columns that a workgroup has at a time: of codes of pairs two tiles'. */
static int64_t columns_of(const qni_gemm_problem *p, const qni_config *config) {
    const bool is_wide = has_pairs(config) && qni_is_fp8(p->dtype_d);
    return config->columns * (is_wide ? 2 : 1);
}

// ---- tensor maps, of rank 2: the rows of all groups below each other. With a third dimension for
// groups the copy engine is slower; it is for groups that do not lie so, and for operands of groups
// in which k is not contiguous: below a group's last k zeros must follow.

/** A matrix of each group, or one in all: what a map of rows needs. */
typedef struct rows_of {
    int64_t count, stride; // rows of a group, elements from one to the next
    int64_t groups, group_stride;
} rows_of;

/** Returns whether groups have one row each, and not all the same. */
static bool is_one_each(rows_of rows) {
    return rows.count == 1 && rows.groups > 1 && rows.group_stride != 0;
}

/** Returns how many of a group's rows would lie before the next group; -1 if that is no whole
 *  number. */
static int64_t slab_of(rows_of rows) {
    if (rows.groups == 1)
        return 0;
    if (is_one_each(rows))
        return 1;
    return rows.stride > 0 && rows.group_stride % rows.stride == 0 ? rows.group_stride / rows.stride
                                                                   : -1;
}

static int64_t count_rows(rows_of rows) {
    return (rows.groups - 1) * slab_of(rows) + rows.count;
}

static qni_tensor_map map_rows(const char *name, const void *data, qni_dtype dtype, int64_t columns,
                               rows_of rows, bool has_slabs) {
    qni_tensor_map map = {.name = name, .data = data, .dtype = dtype, .rank = has_slabs ? 3 : 2};
    map.size[0] = columns, map.stride[0] = 1;
    map.size[1] = has_slabs ? rows.count : count_rows(rows);
    map.stride[1] = is_one_each(rows) && !has_slabs ? rows.group_stride : rows.stride;
    map.size[2] = rows.groups, map.stride[2] = rows.group_stride, map.box[2] = 1;
    return map;
}

static int64_t slabs_of(const qni_gemm_problem *p) {
    return p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
}
static rows_of rows_of_a(const qni_gemm_problem *p) {
    return (rows_of){p->m, p->a_row, slabs_of(p), p->a_group};
}
static rows_of rows_of_b(const qni_gemm_problem *p) {
    return (rows_of){p->n, p->b_n, p->groups, p->b_group};
}
static rows_of rows_of_d(const qni_gemm_problem *p) {
    return (rows_of){p->m, p->d_row, slabs_of(p), p->d_group};
}
static rows_of rows_of_scale_a(const qni_gemm_problem *p) {
    return (rows_of){qni_pieces(p->k, 128), p->scale_a_kb, slabs_of(p), p->scale_a_group};
}

static bool lies_in_rows(rows_of rows) {
    return slab_of(rows) >= 0 && count_rows(rows) <= INT32_MAX;
}

/** Returns whether the product's maps have a third dimension, for groups. */
static bool has_slabs(const qni_gemm_problem *p, const qni_config *config) {
    const bool is_needed = p->grouping != QN_GEMM_DENSE &&
                           (!has_image(config, GROUPED) || !lies_in_rows(rows_of_a(p)) ||
                            !lies_in_rows(rows_of_b(p)) || !lies_in_rows(rows_of_d(p)));
    return is_needed && has_image(config, SLABS);
}

/** An operand's map: boxes of 128 bytes of k. */
static qni_tensor_map map_operand(const char *name, const void *data, qni_dtype dtype, int64_t k,
                                  rows_of rows, uint32_t box_rows, bool has_slabs) {
    qni_tensor_map map = map_rows(name, data, dtype, k, rows, has_slabs);
    map.box[0] = K_BYTES / (uint32_t)qni_dtype_bytes(dtype);
    map.box[1] = box_rows;
    map.swizzle_bytes = K_BYTES;
    return map;
}

/** The map of an operand whose rows are contiguous, and k is not: boxes of its rows by 64 of k. */
static qni_tensor_map map_across(const char *name, const void *data, int64_t k, int64_t k_stride,
                                 rows_of rows, uint32_t tile_rows, bool has_slabs) {
    const int64_t columns = rows.count;
    rows.count = k, rows.stride = k_stride;
    qni_tensor_map map = map_rows(name, data, QNI_BF16, columns, rows, has_slabs);
    map.box[0] = tile_rows < LINES ? tile_rows : LINES;
    map.box[1] = LINES;
    map.swizzle_bytes = map.box[0] * (uint32_t)qni_dtype_bytes(QNI_BF16);
    return map;
}

/** Returns whether the tile's boxes may be lower than it: what of a box lies outside a is slow. It
 *  multiplies by what lies in LDS below its rows, too, which becomes rows that nobody stores.
 *  Across, boxes are of 64 rows. */
static bool has_low_boxes(const qni_config *config) {
    return config->rows <= LOWEST && !(config->flags & QNI_GEMM_A_ACROSS);
}

/** Returns the rows of scale_a's box, of which a tile has one. */
static uint32_t scale_rows(const qni_gemm_problem *p, const qni_config *config) {
    const bool is_low = has_low_boxes(config) && p->m < config->rows;
    return is_low ? (uint32_t)qni_round_up(p->m, 8) : config->rows;
}

/** Returns the rows of a's boxes, whole eights of the swizzle. Of groups, the lowest tile loads as
 *  many boxes as its own rows need, since those of other groups beside a few would be half as many
 *  bytes as the weights. */
static uint32_t box_rows(const qni_gemm_problem *p, const qni_config *config) {
    if (!has_low_boxes(config) || p->grouping == QN_GEMM_DENSE)
        return scale_rows(p, config);
    uint32_t rows = 8; // the tile is a multiple
    while (rows < config->rows && rows < qni_gemm_likely_rows(p))
        rows *= 2;
    return rows;
}

static qni_tensor_map map_a(const qni_gemm_problem *p, const qni_config *config) {
    const bool slabs = has_slabs(p, config);
    if (config->flags & QNI_GEMM_A_ACROSS)
        return map_across("a", p->a, p->k, p->a_k, rows_of_a(p), config->rows, slabs);
    return map_operand("a", p->a, p->dtype_a, p->k, rows_of_a(p), box_rows(p, config), slabs);
}
static qni_tensor_map map_b(const qni_gemm_problem *p, const qni_config *config) {
    const bool slabs = has_slabs(p, config);
    if (config->flags & QNI_GEMM_B_ACROSS)
        return map_across("b", p->b, p->k, p->b_k, rows_of_b(p), config->columns, slabs);
    return map_operand("b", p->b, p->dtype_b, p->k, rows_of_b(p), config->columns, slabs);
}

/** Returns the columns of a box of pairs, of which a tile has whole ones. */
static uint32_t box_of_pairs(const qni_config *config) {
    const uint32_t columns = config->columns / 2;
    return columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : 16;
}

static qni_tensor_map map_d(const qni_gemm_problem *p, const qni_config *config) {
    qni_tensor_map map =
        map_rows("d", p->d, p->dtype_d, qni_gemm_columns(p), rows_of_d(p), has_slabs(p, config));
    const uint32_t bytes = (uint32_t)qni_dtype_bytes(p->dtype_d), columns = D_BYTES / bytes;
    map.box[0] = config->columns < columns ? config->columns : columns;
    map.box[1] = D_ROWS;
    map.swizzle_bytes = map.box[0] == columns ? D_BYTES : 0;
    if (has_pairs(config)) {
        map.box[0] = box_of_pairs(config);
        map.swizzle_bytes = map.box[0] * 2;
    }
    return map;
}

static qni_tensor_map map_scale_a(const qni_gemm_problem *p, const qni_config *config) {
    qni_tensor_map map = map_rows("scale_a", p->scale_a, QNI_F32, p->m, rows_of_scale_a(p), false);
    map.box[0] = scale_rows(p, config);
    map.box[1] = 1;
    return map;
}

/** Returns whether the map's groups lie whole rows apart unless they have a dimension, and its rows
 *  are few enough. */
static bool fits_map(const qni_tensor_map *map, rows_of rows, qni_reason *why) {
    if (map->rank == 2 && slab_of(rows) < 0)
        return qni_no(why, "groups of %s are %ld elements apart, no multiple of its rows' %ld",
                      map->name, (long)rows.group_stride, (long)rows.stride);
    if (map->size[1] > INT32_MAX)
        return qni_no(why, "%s has %ld rows in all, needs fewer than 2^31", map->name,
                      (long)map->size[1]);
    return qni_tensor_map_fits(map, why);
}

// ---- how d is stored

/** Returns whether more than rounding comes between product and d. */
static bool has_more(const qni_gemm_problem *p) {
    return p->c || qni_gemm_has_epilogue(p);
}

/** Returns whether two columns of the vector, from even ones on, can be loaded at once. */
static bool loads_two(const void *data, qni_dtype dtype) {
    return (uintptr_t)data % (2 * (size_t)qni_dtype_bytes(dtype)) == 0;
}

/** Returns whether threads can do an epilogue's steps on their sums: pairs of columns, and each box
 *  in one batch of gate. */
static bool fits_registers(const qni_gemm_problem *p) {
    const bool is_one_batch = p->gate_rows % D_ROWS == 0 || p->gate_rows == p->m;
    return loads_two(p->bias, p->dtype_bias) && loads_two(p->c, p->dtype_d) && p->c_row % 2 == 0 &&
           (!p->gate ||
            (loads_two(p->gate, p->dtype_gate) && p->gate_batch % 2 == 0 && is_one_batch));
}

/** Returns whether lanes can store codes 16 at a time. */
static bool fits_pieces(const qni_gemm_problem *p, qni_reason *why) {
    const int64_t slabs = slabs_of(p);
    if ((uintptr_t)p->d % 16 == 0 && (p->m == 1 || p->d_row % 16 == 0) &&
        (slabs == 1 || p->d_group % 16 == 0))
        return true;
    return qni_no(why, "d is e4m3fn; then takes rows at multiples of 16 bytes");
}

/** Returns whether d is of codes that the tile can make of its sums: of groups of 128 columns, each
 *  of which a workgroup has at a time. */
static bool fits_codes(const qni_gemm_problem *p, const qni_config *config, qni_reason *why) {
    const int64_t columns = qni_gemm_columns(p);
    if (p->dtype_d != QNI_E4M3FN || !has_image(config, CODES) || columns % QNI_GEMM_GROUP != 0)
        return qni_no(
            why, "d is %s with %ld columns; %s", qni_dtype_name(p->dtype_d), (long)columns,
            has_image(config, CODES) ? "takes e4m3fn with a multiple of 128" : "takes no FP8");
    if (has_pairs(config))
        return p->gate ? qni_no(why, "d is e4m3fn; then takes no gate") : fits_pieces(p, why);
    const qni_tensor_map map = map_d(p, config);
    if (p->gate || !fits_registers(p))
        return qni_no(why, "d is e4m3fn; then takes no gate, and bias aligned to two elements");
    return fits_map(&map, rows_of_d(p), why);
}

/** Returns whether the tile's threads have in registers what boxes hold. */
static bool has_boxes(const qni_gemm_problem *p, const qni_config *config) {
    if (has_pairs(config))
        return (p->dtype_d == QNI_BF16 || p->dtype_d == QNI_F16) && !p->gate && !p->c;
    return p->dtype_d == QNI_BF16 &&
           (!has_more(p) || (has_image(config, STEPS) && fits_registers(p)));
}

/** Returns whether the copy engine can store d, in boxes. It writes whole 16 bytes, past the last
 *  column too. */
static bool has_map_d(const qni_gemm_problem *p, const qni_config *config) {
    if (qni_is_fp8(p->dtype_d))
        return !has_pairs(config);
    const qni_tensor_map map = map_d(p, config);
    return has_boxes(p, config) && qni_gemm_columns(p) % 8 == 0 &&
           fits_map(&map, rows_of_d(p), nullptr);
}

/** Returns whether groups begin where boxes may begin in a dimension that is contiguous: at
 *  multiples of 16 bytes. At others, odd rows of f32, an H200's copy engine raises an illegal
 *  instruction. */
static bool begins_at_pieces(const qni_gemm_problem *p, int64_t bytes) {
    return p->grouping != QN_GEMM_GROUPED_ENDS || p->m_alignment * bytes % 16 == 0;
}

/** Returns whether the copy engine takes both scales: a's with m contiguous, and of b's rows four
 *  K-blocks, 16 bytes, at a time. */
static bool has_scale_copies(const qni_gemm_problem *p, const qni_config *config) {
    const qni_tensor_map map = map_scale_a(p, config);
    const bool has_whole_rows = qni_pieces(p->k, 128) % 4 == 0 && p->scale_b_nb % 4 == 0 &&
                                (p->groups == 1 || p->scale_b_group % 4 == 0);
    return p->scale_a_row == 1 && begins_at_pieces(p, sizeof(float)) &&
           fits_map(&map, rows_of_scale_a(p), nullptr) && (uintptr_t)p->scale_b % 16 == 0 &&
           has_whole_rows;
}

/** Returns which of the tile's images takes the product. A tile without registers to spare lacks
 *  the one that knows epilogues and adds c in registers. */
static int image_of(const qni_gemm_problem *p, const qni_config *config) {
    if (qni_is_fp8(p->dtype_d))
        return CODES;
    if (has_slabs(p, config))
        return SLABS;
    if (p->grouping != QN_GEMM_DENSE)
        return GROUPED;
    if (!has_more(p) && has_map_d(p, config) && has_image(config, PLAIN))
        return PLAIN;
    return has_image(config, STEPS) ? STEPS : GROUPED;
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
    const int64_t columns = columns_of(p, config);
    const int64_t tiles = qni_gemm_count_tiles(p, config->rows, columns);
    const int64_t most = stream->device->info.num_compute_units;
    const bool slabs = has_slabs(p, config);
    qk_gemm_wgmma_args args = {
        .g = qni_gemm_kernel_args(p, config->rows, columns),
        .slab_a = slabs ? 0 : (uint32_t)slab_of(rows_of_a(p)),
        .slab_b = slabs ? 0 : (uint32_t)slab_of(rows_of_b(p)),
        .slab_d = slabs ? 0 : (uint32_t)slab_of(rows_of_d(p)),
        .slab_scales = (uint32_t)slab_of(rows_of_scale_a(p)),
        .blocks = (uint32_t)qni_pieces(p->k * qni_dtype_bytes(p->dtype_a), K_BYTES),
        .box_rows = box_rows(p, config),
        .band = band_rows / config->rows,
        .has_map_d = has_map_d(p, config),
        .has_steps = has_more(p),
        .has_scales = qni_is_fp8(p->dtype_a) && has_scale_copies(p, config),
        .scaling = qni_gemm_scaling(p),
        .bias_group = p->bias_group,
    };
    QN_TRY(encode_maps(stream->device, p, config, &args));
    const bool has_one_tile = config->flags & QNI_GEMM_ONE_TILE;
    const uint32_t grid[3] = {(uint32_t)(has_one_tile || tiles < most ? tiles : most), 1, 1};
    return qni_launch(stream, &config->kernel[image_of(p, config)], grid, config->waves * 32, &args,
                      sizeof args);
}

// ---- what they take

/** Returns whether what the tile's images want contiguous in an operand is so: k, or across its
 *  other dimension, `across`. */
static bool is_contiguous(const char *name, const char *across, bool is_across, int64_t k_stride,
                          qni_reason *why) {
    if ((k_stride != 1) == is_across)
        return true;
    return qni_no(why, "%s is not contiguous in %s", is_across ? across : "k", name);
}

/** Returns whether the tile's images know the end of the product. */
static bool fits_end(const qni_gemm_problem *p, const qni_config *config, qni_reason *why) {
    const bool is_paired = p->activation == QN_GEMM_SILU_AND_MUL;
    if (p->c && p->grouping != QN_GEMM_DENSE)
        return qni_no(why, "takes no c of batches");
    if (is_paired != has_pairs(config))
        return qni_no(why,
                      is_paired ? "takes no SiLU-and-multiply" : "takes SiLU-and-multiply alone");
    if (qni_is_fp8(p->dtype_d) && (is_paired || p->grouping == QN_GEMM_DENSE))
        return fits_codes(p, config, why);
    if (!is_paired && qni_gemm_needs_full(p))
        return qni_no(why, "takes no bias or activation of groups, and d of bf16, f32 or, dense, "
                           "e4m3fn");
    if (qni_gemm_has_epilogue(p) && !has_image(config, STEPS))
        return qni_no(why, "takes no bias, activation or gate");
    return true;
}

static bool fits(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    const qni_config *config = &variant->config;
    const qni_tensor_map a = map_a(p, config), b = map_b(p, config);
    if (!fits_end(p, config, why))
        return false;
    if (p->is_packed)
        return qni_no(why, "b is packed, takes weights as they were");
    if (!is_contiguous("a", "m", config->flags & QNI_GEMM_A_ACROSS, p->a_k, why) ||
        !is_contiguous("b", "n", config->flags & QNI_GEMM_B_ACROSS, p->b_k, why))
        return false;
    if (config->flags & QNI_GEMM_A_ACROSS && !begins_at_pieces(p, qni_dtype_bytes(p->dtype_a)))
        return qni_no(why,
                      "a is contiguous in m and groups begin at multiples of %ld rows; then "
                      "takes multiples of 16 bytes",
                      (long)p->m_alignment);
    if (p->grouping == QN_GEMM_GROUPED_INDEX && 128 % config->rows != 0)
        return qni_no(why, "groups begin at multiples of 128 rows, the tile has %u", config->rows);
    return fits_map(&a, rows_of_a(p), why) && fits_map(&b, rows_of_b(p), why) &&
           qni_gemm_fits_grid(variant, p, why);
}

bool qni_gemm_fp8_wgmma_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                 qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_E4M3FN || p->dtype_b != QNI_E4M3FN)
        return qni_no(why, "a is %s, b %s; takes e4m3fn", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b));
    if (!qni_gemm_has_block_scales(p))
        return qni_gemm_fail_scales(p, why);
    return fits(variant, p, why);
}

bool qni_gemm_bf16_wgmma_supports(const qni_variant *variant, const qn_device *,
                                  const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_BF16 || p->dtype_b != QNI_BF16)
        return qni_no(why, "a is %s, b %s; takes bf16", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b));
    if (!qni_gemm_has_no_scales(p))
        return qni_no(why, "takes no scales");
    return fits(variant, p, why);
}

// ---- what a product costs: cycles of a multiprocessor

/** Returns the cycles of one tile. The tensor cores or the bytes that come from L2 bound each
 *  K-block, three teams cover each other better than two, and a tile has an end. */
static double tile_cost(const qni_config *config, int64_t k_bytes) {
    const double rows = config->rows, columns = config->columns;
    constexpr double per_product = 1.05 / 32, from_l2 = 50; // bytes a cycle
    constexpr uint32_t three_teams = 16;                    // waves, the loader's among them
    const double product = rows * columns * per_product,
                 bytes = (rows + columns) * (double)K_BYTES / from_l2;
    const double block =
        (product > bytes ? product : bytes) * (config->waves == three_teams ? 0.98 : 1);
    const double end = 6 * rows + 0.4 * rows * columns;
    return (double)qni_pieces(k_bytes, K_BYTES) * block + end;
}

/** Returns the cycles of all rounds of tiles, or those in which memory gives the weights if that is
 *  more. Boxes that lie for the most part past a's rows are slow. Tiles with a workgroup each pay
 *  where groups have a row or none: of 256 experts and a token by 11 %, of 16 tokens by 2 %; of 64
 *  they lose 2 %. The numbers are fitted to 40
 *  products, each timed with all tiles on an H200: the tiles chosen take 0.2 % longer than the best
 *  tiles, 4 % at most. */
double qni_gemm_wgmma_cost(const qni_variant *variant, const qn_device *device,
                           const void *problem) {
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, likely = qni_gemm_likely_rows(p);
    const int64_t units = device->info.num_compute_units;
    const int64_t k_bytes = p->k * qni_dtype_bytes(p->dtype_a);
    constexpr double from_memory = 18,
                     outside = 2; // bytes a cycle and multiprocessor; times slower
    const int64_t columns = columns_of(p, &variant->config);
    const int64_t tiles = p->groups * qni_pieces(likely, rows) * qni_pieces(p->n, columns);
    const double work = (double)qni_pieces(tiles, units) * tile_cost(&variant->config, k_bytes) *
                        (double)(columns / variant->config.columns);
    const double weights =
        (double)(p->groups * p->n) * (double)k_bytes / (from_memory * (double)units);
    const bool is_few = p->grouping != QN_GEMM_DENSE && likely <= 1;
    const double one_tile = !(variant->config.flags & QNI_GEMM_ONE_TILE) ? 1 : is_few ? 0.9 : 2;
    return ((work > weights ? work : weights) + 0.05 * work) * one_tile *
           (rows > qni_round_up(likely, 64) ? outside : 1);
}
