// SPDX-License-Identifier: Apache-2.0
// Host side of gemm.bf16_wmma_* and gemm.f16_wmma_*: which problems they take, and when.
#include "gemm_launch.h"

enum { LEAST_K = 8 }; // a whole piece, from which the rest of k is taken

/** Returns whether an operand, `name`, lies as the kernel takes it: `row` and `step` are its
 *  strides from row to row and along k. */
static bool takes_operand(const char *name, int64_t row, int64_t step, int64_t rows, int64_t k,
                          qni_reason *why) {
    if (step != 1)
        return qni_no(why, "k is not contiguous in %s", name);
    if (row > INT32_MAX / 2 / rows || row * (rows - 1) + k > INT32_MAX / 2)
        return qni_no(why, "k=%ld, row stride %ld: a tile of %s passes 2 GiB", (long)k, (long)row,
                      name);
    return true;
}

/** Only types, strides, k and the form decide, not the number of rows: other kernels sum in another
 *  order. */
bool qni_gemm_wmma_supports(const qni_variant *variant, const qn_device *, const void *problem,
                            qni_reason *why) {
    const qni_gemm_problem *p = problem;
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    const qni_dtype takes = variant->config.flags & QNI_GEMM_BY_F16 ? QNI_F16 : QNI_BF16;
    if (p->dtype_a != takes || p->dtype_b != takes)
        return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b), qni_dtype_name(takes));
    if (!qni_gemm_has_no_scales(p))
        return qni_no(why, "takes no scales");
    if (p->k < LEAST_K || p->k > INT32_MAX / 4)
        return qni_no(why, "k=%ld; takes %d to 2^29", (long)p->k, LEAST_K);
    if (qni_gemm_together(p) > columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %ld",
                      (long)qni_gemm_together(p), (long)columns);
    return takes_operand("a", p->a_row, p->a_k, rows, p->k, why) &&
           takes_operand("b", p->b_n, p->b_k, columns, p->k, why) &&
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

qn_status qni_gemm_wmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return qni_gemm_tiled_full(variant, stream, problem, 0);
}
