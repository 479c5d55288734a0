// SPDX-License-Identifier: Apache-2.0
// Host side of gemm.bf16_mfma_*, gemm.f16_mfma_* and gemm.fp8_row_mfma_*: which problems they take,
// and when.
#include "gemm_launch.h"

/** Returns whether every row of an operand begins at a multiple of four bytes, as copies to LDS
 *  need. */
static bool has_dword_rows(const void *data, int64_t row, int64_t group, int64_t bytes) {
    return (uintptr_t)data % 4 == 0 && row * bytes % 4 == 0 && group * bytes % 4 == 0;
}

/** Returns whether a tile's rows lie within 2 GiB. */
static bool fits_tile(int64_t row, int64_t k, int64_t rows) {
    return row <= INT32_MAX / 2 / rows && k <= INT32_MAX / 4 &&
           row * (rows - 1) + k <= INT32_MAX / 2;
}

/** Returns whether an operand, `name`, lies as a kernel takes it: `row` and `step` are its strides
 *  from row to row and along k. Across, the rows of a tile are those of k. */
static bool takes_operand(const char *name, const void *data, int64_t row, int64_t step,
                          int64_t group, bool is_across, int64_t rows, int64_t k, int64_t bytes,
                          qni_reason *why) {
    if (is_across && row != 1)
        return qni_no(why, "%s is not contiguous in %s", *name == 'a' ? "m" : "n", name);
    if (!is_across && step != 1)
        return qni_no(why, "k is not contiguous in %s", name);
    if (!has_dword_rows(data, is_across ? step : row, group, bytes))
        return qni_no(why, "rows of %s are not 4-byte aligned", name);
    if (is_across ? !fits_tile(step, rows, k > 0 ? k : 1) : !fits_tile(row, k, rows))
        return qni_no(why, "k=%ld, strides %ld, %ld: a tile of %s passes 2 GiB", (long)k, (long)row,
                      (long)step, name);
    return true;
}

/** Returns whether groups and d are such as the tile takes them. */
static bool takes_tile(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    const int64_t columns = variant->config.columns;
    if (qni_gemm_together(p) > columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %ld",
                      (long)qni_gemm_together(p), (long)columns);
    if (qni_is_fp8(p->dtype_d) && 128 % columns != 0)
        return qni_no(why, "d is %s: groups of 128 columns are not made of the tile's %ld",
                      qni_dtype_name(p->dtype_d), (long)columns);
    if (p->grouping == QN_GEMM_GROUPED_ENDS && variant->config.flags & QNI_GEMM_A_ACROSS &&
        p->m_alignment % 2 != 0)
        return qni_no(why, "m_alignment=%ld: groups may begin at odd rows, not 4-byte aligned",
                      (long)p->m_alignment);
    return true;
}

/** Returns the dtype that the kernel multiplies. */
static qni_dtype taken(const qni_variant *variant, const qn_device *device) {
    const uint32_t flags = variant->config.flags;
    if (flags & QNI_GEMM_BY_FP8)
        return qni_has(device, QNI_F(MFMA_FP8_FNUZ)) ? QNI_E4M3FNUZ : QNI_E4M3FN;
    return flags & QNI_GEMM_BY_F16 ? QNI_F16 : QNI_BF16;
}

/** Returns whether the scales are such as the kernel takes: none, or of FP8 one for each row or for
 *  all, which are factors of whole sums. */
static bool takes_scales(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    if (qni_gemm_has_no_scales(p))
        return true;
    if (!(variant->config.flags & QNI_GEMM_BY_FP8))
        return qni_no(why, "takes no scales");
    if ((p->scale_a && p->dtype_scale_a != QNI_F32) || (p->scale_b && p->dtype_scale_b != QNI_F32))
        return qni_gemm_fail_scales(p, why);
    const bool is_of_rows = !p->scale_a || p->scale_a_kb == 0;
    const bool is_of_columns =
        !p->scale_b || (p->scale_b_kb == 0 && (p->scale_b_nb == 0 || p->scale_b_columns == 1));
    return (is_of_rows && is_of_columns) ||
           qni_no(why, "scales differ along k; takes those of rows, or of all of a or b");
}

/** Only types, addresses, strides and the form decide, not the number of rows: other kernels sum in
 *  another order. */
bool qni_gemm_half_supports(const qni_variant *variant, const qn_device *device,
                            const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    const uint32_t flags = variant->config.flags;
    const qni_dtype takes = taken(variant, device);
    const int64_t bytes = qni_dtype_bytes(takes);
    if (p->dtype_a != takes || p->dtype_b != takes)
        return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b), qni_dtype_name(takes));
    if (p->is_packed)
        return qni_no(why, "b is packed");
    return takes_scales(variant, p, why) &&
           takes_operand("a", p->a, p->a_row, p->a_k, p->a_group, flags & QNI_GEMM_A_ACROSS,
                         variant->config.rows, p->k, bytes, why) &&
           takes_operand("b", p->b, p->b_n, p->b_k, p->b_group, flags & QNI_GEMM_B_ACROSS,
                         variant->config.columns, p->k, bytes, why) &&
           takes_tile(variant, p, why) && qni_gemm_fits_grid(variant, p, why);
}

/** In microseconds for 1024 of k, where a unit's tiles run one after the other: of each tile a part
 *  for its products and its rows and columns, and a start that is shared by all of k; and what a
 *  tile alone on its unit waits, unless its loads have a block to land. By the clock's times of
 *  tiles of each kind in 1 to 14 rounds, k 3072 to 8192: no card has timed them. */
double qni_gemm_half_cost(const qni_variant *variant, const qn_device *device,
                          const void *problem) {
    const qni_gemm_problem *p = problem;
    const bool is_by_index = p->grouping == QN_GEMM_GROUPED_INDEX;
    const int64_t rows = is_by_index && variant->config.rows > 128 ? 128 : variant->config.rows;
    const int64_t columns = variant->config.columns;
    const int64_t likely = qni_gemm_likely_rows(p), units = device->info.num_compute_units;
    const int64_t groups = p->grouping == QN_GEMM_DENSE ? 1 : p->groups;
    const int64_t tiles = groups * qni_pieces(likely, rows) * qni_pieces(p->n, columns);
    const double rounds = (double)qni_pieces(tiles, units), lines = (double)(rows + columns);
    const int64_t k = p->k * qni_dtype_bytes(p->dtype_a) / 2;  // of FP8 a block has twice as many
    const double starts = 1024. / (double)(k > 128 ? k : 128); // of 1024 of k
    if (variant->config.flags & QNI_GEMM_ALONE)
        return rounds * (10.6 + 8 * starts);
    if (variant->config.flags & QNI_GEMM_WIDE)
        return rounds * (double)columns * (0.13 + 0.08 * starts);
    return 0.0157 * lines +
           rounds * (2.2e-4 * (double)(rows * columns) + lines * (0.0211 + 0.0234 * starts));
}

/** In the same units, of kernels that stream the weights: a wave by itself waits for memory,
 *  several on a unit for its vector cache, which gives a line in two cycles. What memory itself
 *  takes is in no kernel's cost. */
double qni_gemm_half_rows_cost(const qni_variant *variant, const qn_device *device,
                               const void *problem) {
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    const int64_t groups = p->grouping == QN_GEMM_DENSE ? 1 : p->groups;
    const int64_t tiles =
        groups * qni_pieces(qni_gemm_likely_rows(p), rows) * qni_pieces(p->n, columns);
    const double rounds = (double)qni_pieces(tiles, device->info.num_compute_units);
    const double starts = 1024. / (double)(p->k > 128 ? p->k : 128);
    const double lines = (double)(rows + columns);
    const double among = rounds * (0.031 * lines + 5e-5 * (double)(rows * columns));
    const double alone = 2.1 + 0.0125 * lines;
    return (among > alone ? among : alone) + 1.5 * starts;
}

qn_status qni_gemm_half(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return qni_gemm_tiled_full(variant, stream, problem, 0);
}
