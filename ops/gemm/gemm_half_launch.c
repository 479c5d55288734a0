// SPDX-License-Identifier: Apache-2.0
// Host side of gemm.bf16_mfma_* and gemm.f16_mfma_*: which problems they take, and when.
#include "gemm_launch.h"

/** Returns whether every row of an operand begins at a multiple of four bytes, as copies to LDS
 *  need. */
static bool has_dword_rows(const void *data, int64_t row, int64_t group) {
    return (uintptr_t)data % 4 == 0 && row % 2 == 0 && group % 2 == 0;
}

/** Returns whether a tile's rows lie within 2 GiB. */
static bool fits_tile(int64_t row, int64_t k, int64_t rows) {
    return row <= INT32_MAX / 2 / rows && k <= INT32_MAX / 4 &&
           row * (rows - 1) + k <= INT32_MAX / 2;
}

/** Only types, addresses, strides and the form decide, not the number of rows: other kernels sum in
 *  another order. */
bool qni_gemm_half_supports(const qni_variant *variant, const qn_device *, const void *problem,
                            qni_reason *why) {
    const qni_gemm_problem *p = problem;
    const bool is_f16 = variant->config.flags & QNI_GEMM_BY_F16;
    const qni_dtype takes = is_f16 ? QNI_F16 : QNI_BF16;
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    if (p->dtype_a != takes || p->dtype_b != takes)
        return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b), qni_dtype_name(takes));
    if (!qni_gemm_has_no_scales(p))
        return qni_no(why, "takes no scales");
    if (p->a_k != 1 || p->b_k != 1)
        return qni_no(why, "k is not contiguous in %s", p->a_k != 1 ? "a" : "b");
    if (!has_dword_rows(p->a, p->a_row, p->a_group) || !has_dword_rows(p->b, p->b_n, p->b_group))
        return qni_no(why, "rows of a or b are not 4-byte aligned");
    if (!fits_tile(p->a_row, p->k, rows) || !fits_tile(p->b_n, p->k, columns))
        return qni_no(why, "k=%ld, row strides %ld, %ld: a tile of a or b passes 2 GiB", (long)p->k,
                      (long)p->a_row, (long)p->b_n);
    if (qni_gemm_together(p) > columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %ld",
                      (long)qni_gemm_together(p), (long)columns);
    if (p->grouping == QN_GEMM_GROUPED_INDEX && rows > 128)
        return qni_no(why, "groups begin at multiples of 128 rows, the tile has %ld", (long)rows);
    return qni_gemm_fits_grid(variant, p, why);
}

/** In microseconds for 1024 of k, where a unit's tiles run one after the other: a part for each
 *  product, a part for each row and column, and what a tile alone on its unit waits, unless it has
 *  two stages. Modelled: no card has timed them. */
double qni_gemm_half_cost(const qni_variant *variant, const qn_device *device,
                          const void *problem) {
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    const int64_t likely = qni_gemm_likely_rows(p), units = device->info.num_compute_units;
    const int64_t groups = p->grouping == QN_GEMM_DENSE ? 1 : p->groups;
    const int64_t tiles = groups * qni_pieces(likely, rows) * qni_pieces(p->n, columns);
    constexpr double by_product = 3.05e-4, by_line = 0.0293, alone = 0.047, two_stages = 16.5;
    const double lines = (double)(rows + columns);
    if (variant->config.flags & QNI_GEMM_ALONE)
        return two_stages * (double)qni_pieces(tiles, units);
    return alone * lines + (double)qni_pieces(tiles, units) *
                               (by_product * (double)(rows * columns) + by_line * lines);
}

qn_status qni_gemm_half(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return qni_gemm_tiled_full(variant, stream, problem, 0);
}
