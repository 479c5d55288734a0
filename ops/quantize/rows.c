// SPDX-License-Identifier: Apache-2.0
// The public functions that quantise along rows: each checks its tensors and fills one kind of
// problem.
#include "rows.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_quantize_rows 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_quantize_rows
const qni_op qni_op_quantize_rows = QN_OP("quantize_rows", variants);

static qn_status check_matrix(const qn_stream *stream, const char *op, const char *name,
                              const DLTensor *t) {
    QN_TRY(qni_check_tensor(stream, op, name, t, 2));
    return qni_check_last_contiguous(op, name, t);
}

/** x and q, and what follows from them. */
static qn_status make_problem(const char *op, const qn_stream *stream, const DLTensor *q,
                              const DLTensor *x, qni_rows_problem *p) {
    QN_TRY(check_matrix(stream, op, "x", x));
    QN_TRY(check_matrix(stream, op, "q", q));
    QN_TRY(qni_check_dtype(op, "x", x, qni_of_floats));
    QN_TRY(qni_check_dtype(op, "q", q, qni_of_fp8 | 1u << QNI_I8));
    QN_TRY(qni_check_shape(op, "q", q, 2, x->shape));
    QN_TRY(qni_check_elements_apart(op, "q", q));
    QN_TRY(qni_check_alignment(op, "x", x));
    QN_TRY(qni_check_disjoint(op, "q", q, "x", x));
    *p = (qni_rows_problem){.dtype_x = qni_dtype_of(x),
                            .dtype_q = qni_dtype_of(q),
                            .rows = x->shape[0],
                            .cols = x->shape[1],
                            .group = x->shape[1],
                            .x = qni_data(x),
                            .q = qni_data(q),
                            .x_row = qni_stride(x, 0),
                            .q_row = qni_stride(q, 0)};
    return QN_OK;
}

static qn_status check_scale_dtype(const char *op, const DLTensor *scale, bool may_be_packed) {
    const qni_dtype dtype = qni_dtype_of(scale);
    if (dtype == QNI_F32 || (may_be_packed && dtype == QNI_I32))
        return qni_check_alignment(op, "scale", scale);
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: scale has dtype %s; accepted: f32%s", op,
                   qni_dtype_text(scale), may_be_packed ? ", i32 (UE8M0, four to a word)" : "");
}

static qn_status check_one_scale(const char *op, const qn_stream *stream, const DLTensor *scale) {
    const int64_t one[] = {1};
    QN_TRY(qni_check_tensor(stream, op, "scale", scale, 1));
    QN_TRY(check_scale_dtype(op, scale, false));
    return qni_check_shape(op, "scale", scale, 1, one);
}

static qn_status check_eps(const char *op, float eps) {
    if (eps >= 1e-30f && eps <= __FLT_MAX__)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 1e-30 or more, finite", op, (double)eps);
}

static qn_status run_problem(qn_stream *stream, const qni_rows_problem *p) {
    return p->rows == 0 || p->cols == 0 ? QN_OK : qni_run(&qni_op_quantize_rows, stream, p);
}

/** The scales of groups: their form, shape and strides. */
static qn_status take_scales(const char *op, const qn_stream *stream, const DLTensor *q,
                             const DLTensor *scale, const DLTensor *x, bool rounds,
                             qni_rows_problem *p) {
    QN_TRY(qni_check_tensor(stream, op, "scale", scale, 2));
    QN_TRY(check_scale_dtype(op, scale, true));
    const bool is_packed = qni_dtype_of(scale) == QNI_I32;
    const int64_t groups = p->cols ? qni_rows_groups(p) : 0;
    const int64_t want[] = {p->rows, is_packed ? (groups + 3) / 4 : groups};
    QN_TRY(qni_check_shape(op, "scale", scale, 2, want));
    QN_TRY(qni_check_elements_apart(op, "scale", scale));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "x", x));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "q", q));
    p->form = is_packed ? QNI_SCALE_PACKED : rounds ? QNI_SCALE_POWER : QNI_SCALE_F32;
    p->scale = qni_data(scale);
    p->scale_row = qni_stride(scale, 0);
    p->scale_col = qni_stride(scale, 1);
    return QN_OK;
}

qn_status qn_quantize_groups(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                             int64_t group, int32_t round_scale, float eps) {
    constexpr char op[] = "quantize_groups";
    qni_rows_problem p;
    QN_TRY(make_problem(op, stream, q, x, &p));
    if (group < 0)
        return QN_FAIL(QN_E_INVALID, "%s: group is %ld; accepted: 1 or more, and 0 for a row", op,
                       (long)group);
    if (round_scale != 0 && round_scale != 1)
        return QN_FAIL(QN_E_INVALID, "%s: round_scale is %d, needs 0 or 1", op, round_scale);
    p.group = group > 0 && group < p.cols ? group : p.cols;
    QN_TRY(take_scales(op, stream, q, scale, x, round_scale == 1, &p));
    QN_TRY(check_eps(op, eps));
    p.eps = eps;
    return run_problem(stream, &p);
}

qn_status qn_quantize_static(qn_stream *stream, DLTensor *q, const DLTensor *x,
                             const DLTensor *scale) {
    constexpr char op[] = "quantize_static";
    qni_rows_problem p;
    QN_TRY(make_problem(op, stream, q, x, &p));
    QN_TRY(qni_check_given_scale(stream, op, "scale", scale));
    QN_TRY(qni_check_disjoint(op, "q", q, "scale", scale));
    p.form = QNI_SCALE_GIVEN;
    p.scale = qni_data(scale);
    return run_problem(stream, &p);
}

int64_t qn_quantize_tensor_workspace(void) {
    return QNI_ROWS_MAXIMA * (int64_t)sizeof(uint32_t);
}

static qn_status check_workspace(const char *op, const qn_stream *stream,
                                 const DLTensor *workspace) {
    QN_TRY(qni_check_tensor(stream, op, "workspace", workspace, 1));
    if (qni_dtype_of(workspace) != QNI_U8)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: workspace has dtype %s; accepted: u8", op,
                       qni_dtype_text(workspace));
    QN_TRY(qni_check_last_contiguous(op, "workspace", workspace));
    if (workspace->shape[0] < qn_quantize_tensor_workspace())
        return QN_FAIL(QN_E_INVALID, "%s: workspace has %ld bytes, needs %ld", op,
                       (long)workspace->shape[0], (long)qn_quantize_tensor_workspace());
    if ((uintptr_t)qni_data(workspace) % sizeof(uint32_t) != 0)
        return QN_FAIL(QN_E_INVALID, "%s: workspace begins at %p, needs a multiple of 4 bytes", op,
                       qni_data(workspace));
    return QN_OK;
}

qn_status qn_quantize_tensor(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                             DLTensor *workspace, float eps) {
    constexpr char op[] = "quantize_tensor";
    qni_rows_problem p;
    QN_TRY(make_problem(op, stream, q, x, &p));
    QN_TRY(check_one_scale(op, stream, scale));
    QN_TRY(check_workspace(op, stream, workspace));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "x", x));
    QN_TRY(qni_check_disjoint(op, "scale", scale, "q", q));
    QN_TRY(qni_check_disjoint(op, "workspace", workspace, "x", x));
    QN_TRY(qni_check_disjoint(op, "workspace", workspace, "q", q));
    QN_TRY(qni_check_disjoint(op, "workspace", workspace, "scale", scale));
    QN_TRY(check_eps(op, eps));
    p.form = QNI_SCALE_TENSOR;
    p.scale = qni_data(scale);
    p.maxima = qni_data(workspace);
    p.eps = eps;
    return run_problem(stream, &p);
}
