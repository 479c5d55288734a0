// SPDX-License-Identifier: Apache-2.0
// Host side of gemm.bf16_wmma_*, gemm.f16_wmma_* and gemm.fp8_wmma_*: which problems they take,
// and when.
#include "gemm_launch.h"

/** Returns whether an operand, `name`, lies as the kernel takes it: `row` and `step` are its
 *  strides from row to row and along k. Of 16-bit kinds rows may lie across, in lines of k. */
static bool takes_operand(const char *name, bool is_fp8, int64_t row, int64_t step, int64_t rows,
                          int64_t k, qni_reason *why) {
    constexpr int64_t line_k = 64;
    if (step != 1 && is_fp8)
        return qni_no(why, "k is not contiguous in %s", name);
    const bool fits = step == 1
                          ? row <= INT32_MAX / 2 / rows && row * (rows - 1) + k <= INT32_MAX / 2
                          : step <= INT32_MAX / 4 / line_k;
    return fits || qni_no(why, "k=%ld, strides %ld, %ld: a tile of %s passes 2 GiB", (long)k,
                          (long)row, (long)step, name);
}

static qni_dtype taken(const qni_variant *variant) {
    const uint32_t flags = variant->config.flags;
    return flags & QNI_GEMM_BY_FP8 ? QNI_E4M3FN : flags & QNI_GEMM_BY_F16 ? QNI_F16 : QNI_BF16;
}

/** Returns whether the scales of k-long rows are factors of whole sums: one for each row, one for
 *  all or none. */
static bool has_factors(const qni_gemm_problem *p) {
    const bool is_of_rows = !p->scale_a || p->scale_a_kb == 0;
    const bool is_of_columns =
        !p->scale_b || (p->scale_b_kb == 0 && (p->scale_b_nb == 0 || p->scale_b_columns == 1));
    return is_of_rows && is_of_columns;
}

/** Returns whether the scales are such as the kernel takes. */
static bool takes_scales(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    if (qni_gemm_has_no_scales(p))
        return true;
    if (!(variant->config.flags & QNI_GEMM_BY_FP8))
        return qni_no(why, "takes no scales");
    if ((p->scale_a && p->dtype_scale_a != QNI_F32) || (p->scale_b && p->dtype_scale_b != QNI_F32))
        return qni_gemm_fail_scales(p, why);
    if (!qni_gemm_has_block_scales(p))
        return has_factors(p) || qni_no(why, "takes scales of 1 x 128 of a and 128 x 128 of b, "
                                             "those of rows, or of all of a or b");
    const int64_t rows = variant->config.rows;
    if (p->scale_a_kb > INT32_MAX / 4 || p->scale_a_row > INT32_MAX / 4 / rows)
        return qni_no(why, "scale_a's strides %ld, %ld: a tile passes 2 GiB", (long)p->scale_a_row,
                      (long)p->scale_a_kb);
    return true;
}

/** Returns whether a and b lie as the kernel takes them. */
static bool takes_operands(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    const bool is_fp8 = variant->config.flags & QNI_GEMM_BY_FP8;
    if (!takes_operand("a", is_fp8, p->a_row, p->a_k, variant->config.rows, p->k, why))
        return false;
    if (!p->is_packed)
        return takes_operand("b", is_fp8, p->b_n, p->b_k, variant->config.columns, p->k, why);
    return p->k <= INT32_MAX / 256 ||
           qni_no(why, "k=%ld: a tile of packed b passes 2 GiB", (long)p->k);
}

/** Only types, strides, k and the form decide, not the number of rows: other kernels sum in another
 *  order. */
bool qni_gemm_wmma_supports(const qni_variant *variant, const qn_device *, const void *problem,
                            qni_reason *why) {
    const qni_gemm_problem *p = problem;
    const int64_t columns = variant->config.columns;
    const qni_dtype takes = taken(variant);
    const int64_t least_k = qni_is_fp8(takes) ? 16 : 8; // a piece, from which k's rest is taken
    if (p->dtype_a != takes || p->dtype_b != takes)
        return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b), qni_dtype_name(takes));
    if (p->k < least_k || p->k > INT32_MAX / 4)
        return qni_no(why, "k=%ld; takes %ld to 2^29", (long)p->k, (long)least_k);
    if (qni_gemm_together(p) > columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %ld",
                      (long)qni_gemm_together(p), (long)columns);
    return takes_scales(variant, p, why) && takes_operands(variant, p, why) &&
           qni_gemm_fits_grid(variant, p, why);
}

/** In elements of d that a compute unit makes one tile after the other. The small tile reads more
 *  of LDS for each. By the clock's times: no card has timed them. */
double qni_gemm_wmma_cost(const qni_variant *variant, const qn_device *device,
                          const void *problem) {
    constexpr double by_lds = 1.35;
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    const int64_t groups = p->grouping == QN_GEMM_DENSE ? 1 : p->groups;
    const int64_t tiles =
        groups * qni_pieces(qni_gemm_likely_rows(p), rows) * qni_pieces(p->n, columns);
    const int64_t rounds = qni_pieces(tiles, device->info.num_compute_units);
    return (double)(rounds * rows * columns) * (columns < 128 ? by_lds : 1);
}

/** Returns which of the variant's kernels is for the problem: of FP8 that of blocks of scales or
 *  that of rows; else that of a layout, in the order nt, tt, nn, tn. */
static int kernel_of(const qni_variant *variant, const qni_gemm_problem *p) {
    if (variant->config.flags & QNI_GEMM_BY_FP8)
        return qni_gemm_has_no_scales(p) || !qni_gemm_has_block_scales(p);
    return (p->a_k != 1) + 2 * (p->b_k != 1);
}

qn_status qni_gemm_wmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return qni_gemm_tiled_full(variant, stream, problem, kernel_of(variant, problem));
}
