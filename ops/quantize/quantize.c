// SPDX-License-Identifier: Apache-2.0
// qn_quantize_fp8 and qn_dequantize_fp8: check the tensors, choose a kernel, run it.
#include "quantize.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_quantize 0,
static const qni_variant quantize_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_quantize

#define QN_TABLE_OF_dequantize 0,
static const qni_variant dequantize_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_dequantize

const qni_op qni_op_quantize = QN_OP("quantize", quantize_variants);
const qni_op qni_op_dequantize = QN_OP("dequantize", dequantize_variants);

/** The smallest eps: from it on, scales and their inverses are normal f32 numbers for every
 *  kind. */
constexpr float min_eps = 1e-30f;

static qn_status check_blocks(const char *op, int64_t block_rows, int64_t block_cols) {
    if ((block_rows == 1 || block_rows == QNI_BLOCK) && block_cols == QNI_BLOCK)
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: blocks of %ld x %ld; accepted: 1 x 128 and 128 x 128", op,
                   (long)block_rows, (long)block_cols);
}

/** A matrix whose elements are aligned, whose columns are contiguous and whose rows do not
 *  overlap. */
static qn_status check_rows(const char *op, const char *name, const DLTensor *t) {
    if (qni_is_empty(t))
        return QN_OK;
    if (t->shape[1] > 1 && qni_stride(t, 1) != 1)
        return QN_FAIL(QN_E_INVALID, "%s: %s has column stride %ld, needs contiguous columns", op,
                       name, (long)qni_stride(t, 1));
    if (t->shape[0] > 1 && qni_stride(t, 0) < t->shape[1])
        return QN_FAIL(QN_E_INVALID, "%s: %s has row stride %ld, needs at least its %ld columns",
                       op, name, (long)qni_stride(t, 0), (long)t->shape[1]);
    return qni_check_alignment(op, name, t);
}

static qn_status check_scale(const char *op, const DLTensor *scale, const qni_quantize_problem *p) {
    const int64_t want[] = {(p->rows + p->block_rows - 1) / p->block_rows,
                            qni_quantize_block_cols(p)};
    const qn_status st = qni_check_dtype(op, "scale", scale, qni_of_f32);
    return st == QN_OK ? qni_check_shape(op, "scale", scale, 2, want) : st;
}

/** The distance between rows, also where a matrix of one row need not have a sensible one. */
static int64_t row_stride(const DLTensor *t) {
    return t->shape[0] > 1 ? qni_stride(t, 0) : t->shape[1];
}

/** Checks everything that quantising and dequantising have in common, and gives the problem. */
static qn_status make_problem(const char *op, const qn_stream *stream, const DLTensor *q,
                              const DLTensor *scale, const DLTensor *x, int64_t block_rows,
                              int64_t block_cols, qni_quantize_problem *out) {
    QN_TRY(qni_check_tensor(stream, op, "q", q, 2));
    QN_TRY(qni_check_tensor(stream, op, "scale", scale, 2));
    QN_TRY(qni_check_tensor(stream, op, "x", x, 2));
    QN_TRY(qni_check_dtype(op, "q", q, qni_of_fp8));
    QN_TRY(qni_check_dtype(op, "x", x, qni_of_floats));
    QN_TRY(check_blocks(op, block_rows, block_cols));
    *out = (qni_quantize_problem){.dtype_x = qni_dtype_of(x),
                                  .kind = (qni_fp8)(qni_dtype_of(q) - QNI_E4M3FN),
                                  .rows = x->shape[0],
                                  .cols = x->shape[1],
                                  .block_rows = block_rows,
                                  .x = qni_data(x),
                                  .q = qni_data(q),
                                  .scale = qni_data(scale),
                                  .x_row = row_stride(x),
                                  .q_row = row_stride(q),
                                  .scale_row = row_stride(scale)};
    QN_TRY(qni_check_shape(op, "q", q, 2, x->shape));
    QN_TRY(check_scale(op, scale, out));
    QN_TRY(check_rows(op, "x", x));
    QN_TRY(check_rows(op, "q", q));
    return check_rows(op, "scale", scale);
}

qn_status qn_quantize_fp8(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                          int64_t block_rows, int64_t block_cols, float eps) {
    constexpr char op[] = "quantize_fp8";
    qni_quantize_problem p;
    QN_TRY(make_problem(op, stream, q, scale, x, block_rows, block_cols, &p));
    if (!(eps >= min_eps && eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: %g or more, finite", op, (double)eps,
                       (double)min_eps);
    p.eps = eps;
    QN_TRY(qni_check_disjoint(op, "q", q, "x", x));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "x", x));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "q", q));
    if (p.rows > 0 && p.cols > 0)
        QN_TRY(qni_run(&qni_op_quantize, stream, &p));
    return QN_OK;
}

qn_status qn_dequantize_fp8(qn_stream *stream, DLTensor *x, const DLTensor *q,
                            const DLTensor *scale, int64_t block_rows, int64_t block_cols) {
    constexpr char op[] = "dequantize_fp8";
    qni_quantize_problem p;
    QN_TRY(make_problem(op, stream, q, scale, x, block_rows, block_cols, &p));
    QN_TRY(qni_check_disjoint(op, "x", x, "q", q));
    QN_TRY(qni_check_disjoint(op, "x", x, "scale", scale));
    if (p.rows > 0 && p.cols > 0)
        QN_TRY(qni_run(&qni_op_dequantize, stream, &p));
    return QN_OK;
}
