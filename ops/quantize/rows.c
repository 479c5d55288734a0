// SPDX-License-Identifier: Apache-2.0
// The public functions that quantise along rows: each reads its tensors and makes a problem, which
// is one struct for all functions.
#include "rows.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_quantize_rows 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_quantize_rows

static const char *const scale_words[] = {"given", "f32", "power", "packed", "tensor", nullptr};
static const qni_key keys[] = {{.name = "cols"},
                               {.name = "group"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "q", .words = qni_dtype_words},
                               {.name = "scale", .words = scale_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_rows_problem *p = problem;
    QN_SET_VALUES(keys, values, p->cols, p->group, p->dtype_x, p->dtype_q, p->form, p->rows);
}

const qni_op qni_op_quantize_rows = QN_OP("quantize_rows", variants, keys, describe);

enum { X, Q, SCALE, WORKSPACE, NUM_TENSORS };

typedef struct rows_call {
    qni_call of;
    qn_stream *stream;
    qni_tensor t[NUM_TENSORS];
    qni_rows_problem p;
} rows_call;

/** Reads x and q, and what follows from them. */
static qn_status read_x_and_q(rows_call *c, const DLTensor *q, const DLTensor *x) {
    qni_tensor *const tx = &c->t[X], *const tq = &c->t[Q];
    *tx = (qni_tensor){"x", x, 2, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, tx, 1));
    *tq = (qni_tensor){
        .name = "q",
        .t = q,
        .ndim = 2,
        .dtypes = qni_of_fp8 | 1u << QNI_I8,
        .shape = tx->size,
        .has_rows = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, tq, 1));
    c->p = (qni_rows_problem){.dtype_x = tx->dtype,
                              .dtype_q = tq->dtype,
                              .rows = tx->size[0],
                              .cols = tx->size[1],
                              .group = tx->size[1],
                              .x = tx->data,
                              .q = tq->data,
                              .x_row = tx->stride[0],
                              .q_row = tq->stride[0]};
    return QN_OK;
}

static qn_status check_eps(const char *op, float eps) {
    if (eps >= 1e-30f && eps <= __FLT_MAX__)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 1e-30 or more, finite", op, (double)eps);
}

static qn_status run_call(const rows_call *c) {
    QN_TRY(qni_check_apart(&c->of, c->t, NUM_TENSORS));
    return c->p.rows == 0 || c->p.cols == 0 ? QN_OK
                                            : qni_run(&qni_op_quantize_rows, c->stream, &c->p);
}

/** Reads the scales of groups: their form, shape and strides. */
static qn_status read_scales(rows_call *c, const DLTensor *scale, bool rounds) {
    qni_rows_problem *const p = &c->p;
    qni_tensor *const t = &c->t[SCALE];
    const bool is_packed = scale && qni_dtype_of(scale) == QNI_I32; // UE8M0, four to a word
    const int64_t groups = p->cols ? qni_rows_groups(p) : 0;
    const int64_t shape[] = {p->rows, is_packed ? (groups + 3) / 4 : groups};
    *t = (qni_tensor){
        .name = "scale",
        .t = scale,
        .ndim = 2,
        .dtypes = qni_of_f32 | qni_of_i32,
        .shape = shape,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    p->form = is_packed ? QNI_SCALE_PACKED : rounds ? QNI_SCALE_POWER : QNI_SCALE_F32;
    p->scale = t->data;
    p->scale_row = t->stride[0];
    p->scale_col = t->stride[1];
    return QN_OK;
}

qn_status qn_quantize_groups(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                             int64_t group, int32_t round_scale, float eps) {
    constexpr char op[] = "quantize_groups";
    rows_call c = {.of = {op, stream}, .stream = stream};
    QN_TRY(read_x_and_q(&c, q, x));
    if (group < 0)
        return QN_FAIL(QN_E_INVALID, "%s: group is %ld; accepted: 1 or more, and 0 for a row", op,
                       (long)group);
    if (round_scale != 0 && round_scale != 1)
        return QN_FAIL(QN_E_INVALID, "%s: round_scale is %d, needs 0 or 1", op, round_scale);
    c.p.group = group > 0 && group < c.p.cols ? group : c.p.cols;
    QN_TRY(read_scales(&c, scale, round_scale == 1));
    QN_TRY(check_eps(op, eps));
    c.p.eps = eps;
    return run_call(&c);
}

qn_status qn_quantize_static(qn_stream *stream, DLTensor *q, const DLTensor *x,
                             const DLTensor *scale) {
    constexpr char op[] = "quantize_static";
    rows_call c = {.of = {op, stream}, .stream = stream};
    QN_TRY(read_x_and_q(&c, q, x));
    c.t[SCALE] = qni_given_scale("scale", scale);
    QN_TRY(qni_read_tensors(&c.of, &c.t[SCALE], 1));
    c.p.form = QNI_SCALE_GIVEN;
    c.p.scale = c.t[SCALE].data;
    QN_TRY(qni_validate_scale(stream, op, "scale", c.p.scale));
    return run_call(&c);
}

int64_t qn_quantize_tensor_workspace(void) {
    return QNI_ROWS_MAXIMA * (int64_t)sizeof(uint32_t);
}

static qn_status read_workspace(rows_call *c, const DLTensor *workspace) {
    qni_tensor *const t = &c->t[WORKSPACE];
    *t = (qni_tensor){
        .name = "workspace",
        .t = workspace,
        .ndim = 1,
        .dtypes = 1u << QNI_U8,
        .align = sizeof(uint32_t),
        .has_rows = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    if (t->size[0] < qn_quantize_tensor_workspace())
        return QN_FAIL(QN_E_INVALID, "%s: workspace has %ld bytes, needs %ld", c->of.op,
                       (long)t->size[0], (long)qn_quantize_tensor_workspace());
    c->p.maxima = t->data;
    return QN_OK;
}

qn_status qn_quantize_tensor(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                             DLTensor *workspace, float eps) {
    constexpr char op[] = "quantize_tensor";
    rows_call c = {.of = {op, stream}, .stream = stream};
    QN_TRY(read_x_and_q(&c, q, x));
    c.t[SCALE] = qni_given_scale("scale", scale);
    c.t[SCALE].is_written = true;
    QN_TRY(qni_read_tensors(&c.of, &c.t[SCALE], 1));
    QN_TRY(read_workspace(&c, workspace));
    QN_TRY(check_eps(op, eps));
    c.p.form = QNI_SCALE_TENSOR;
    c.p.scale = c.t[SCALE].data;
    c.p.eps = eps;
    return run_call(&c);
}
