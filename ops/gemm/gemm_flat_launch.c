// SPDX-License-Identifier: Apache-2.0
// Host side of gemm.fp8_flat_*: which problems they take.
#include "gemm_launch.h"

/** Returns whether an operand, `name`, lies as the kernels take it: k contiguous, rows at multiples
 *  of four bytes, those of a tile within 2 GiB. */
static bool takes_rows(const char *name, const void *data, int64_t row, int64_t step, int64_t group,
                       int64_t rows, int64_t k, qni_reason *why) {
    if (step != 1)
        return qni_no(why, "k is not contiguous in %s", name);
    if ((uintptr_t)data % 4 != 0 || row % 4 != 0 || group % 4 != 0)
        return qni_no(why, "rows of %s are not 4-byte aligned", name);
    if (k > INT32_MAX / 2 || row > INT32_MAX / 2 / rows)
        return qni_no(why, "k=%ld, row stride %ld: a tile of %s passes 2 GiB", (long)k, (long)row,
                      name);
    return true;
}

/** Returns whether the kernels take the problem, whatever its kinds of FP8 are. */
static bool takes_flat(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why) {
    const int64_t rows = variant->config.rows, columns = variant->config.columns;
    if (p->is_packed)
        return qni_no(why, "b is packed");
    if (!qni_gemm_has_block_scales(p))
        return qni_gemm_fail_scales(p, why);
    if (qni_gemm_together(p) > columns)
        return qni_no(why, "scale_d's groups are of %ld columns of the product, the tile has %ld",
                      (long)qni_gemm_together(p), (long)columns);
    if (p->scale_a_row * rows + p->scale_a_kb * qni_pieces(p->k, 128) > INT32_MAX / 4)
        return qni_no(why, "scale_a's strides %ld, %ld: a tile passes 2 GiB", (long)p->scale_a_row,
                      (long)p->scale_a_kb);
    return takes_rows("a", p->a, p->a_row, p->a_k, p->a_group, rows, p->k, why) &&
           takes_rows("b", p->b, p->b_n, p->b_k, p->b_group, columns, p->k, why) &&
           qni_gemm_fits_grid(variant, p, why);
}

/** Returns whether a and b are of kind `takes`. */
static bool are_of(const qni_gemm_problem *p, qni_dtype takes, qni_reason *why) {
    if (p->dtype_a == takes && p->dtype_b == takes)
        return true;
    return qni_no(why, "a is %s, b %s; takes %s", qni_dtype_name(p->dtype_a),
                  qni_dtype_name(p->dtype_b), qni_dtype_name(takes));
}

bool qni_gemm_flat_supports(const qni_variant *variant, const qn_device *device,
                            const void *problem, qni_reason *why) {
    const bool is_fnuz = qni_has(device, QNI_F(MFMA_FP8_FNUZ)); // what the matrix cores take
    return are_of(problem, is_fnuz ? QNI_E4M3FNUZ : QNI_E4M3FN, why) &&
           takes_flat(variant, problem, why);
}

bool qni_gemm_flat_fn_supports(const qni_variant *variant, const qn_device *, const void *problem,
                               qni_reason *why) {
    return are_of(problem, QNI_E4M3FN, why) && takes_flat(variant, problem, why);
}

bool qni_gemm_flat_rows_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                 qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (!qni_gemm_is_e4m3(p->dtype_a) || !qni_gemm_is_e4m3(p->dtype_b))
        return qni_no(why, "a is %s, b %s; takes e4m3fn, e4m3fnuz", qni_dtype_name(p->dtype_a),
                      qni_dtype_name(p->dtype_b));
    return takes_flat(variant, p, why);
}

qn_status qni_gemm_flat(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return qni_gemm_tiled_full(variant, stream, problem, 0);
}
