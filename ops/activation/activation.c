// SPDX-License-Identifier: Apache-2.0
// The activation family's public functions: each checks its tensors and fills one kind of problem.
#include "activation.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_activation 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_activation

const qni_op qni_op_activation = QN_OP("activation", variants);

enum { MAX_DIMS = 8 };

/** What a function was given; null where it has no such argument. */
typedef struct activation_call {
    const char *op;
    qn_stream *stream;
    DLTensor *out, *scale_out;
    const DLTensor *x, *scale_in;
    qn_activation function;
    float limit;
} activation_call;

// ---- checks

static qn_status check_x(const activation_call *c) {
    const int ndim = c->x && c->x->ndim >= 1 && c->x->ndim <= MAX_DIMS ? c->x->ndim : 2;
    QN_TRY(qni_check_tensor(c->stream, c->op, "x", c->x, ndim));
    QN_TRY(qni_check_dtype(c->op, "x", c->x, qni_of_floats));
    if (c->x->shape[ndim - 1] % 2 != 0)
        return QN_FAIL(QN_E_INVALID,
                       "%s: x has rows of %ld elements, needs an even number: gate and up", c->op,
                       (long)c->x->shape[ndim - 1]);
    QN_TRY(qni_check_last_contiguous(c->op, "x", c->x));
    return qni_check_alignment(c->op, "x", c->x);
}

/** x's shape with half of its last dimension. */
static qn_status check_out(const activation_call *c, bool is_quantised) {
    const int ndim = c->x->ndim;
    int64_t want[MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        want[i] = c->x->shape[i] / (i == ndim - 1 ? 2 : 1);
    QN_TRY(qni_check_tensor(c->stream, c->op, "out", c->out, ndim));
    const qni_dtype dtype = qni_dtype_of(c->out);
    if (is_quantised)
        QN_TRY(qni_check_dtype(c->op, "out", c->out, qni_of_fp8));
    if (!is_quantised && dtype != qni_dtype_of(c->x))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: out has dtype %s, needs x's, %s", c->op,
                       qni_dtype_name(dtype), qni_dtype_text(c->x));
    QN_TRY(qni_check_shape(c->op, "out", c->out, ndim, want));
    QN_TRY(qni_check_last_contiguous(c->op, "out", c->out));
    QN_TRY(qni_check_elements_apart(c->op, "out", c->out));
    return qni_check_alignment(c->op, "out", c->out);
}

static qn_status check_scalars(const activation_call *c) {
    if (c->function < QN_SILU || c->function > QN_GELU_TANH)
        return QN_FAIL(QN_E_INVALID, "%s: function is %d; accepted: QN_SILU, QN_GELU, QN_GELU_TANH",
                       c->op, (int)c->function);
    if (c->limit >= 0)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: limit is %g; accepted: above 0, and 0 or infinity for none",
                   c->op, (double)c->limit);
}

// ---- from tensors to problems

/** Folds the dimensions before the last into rows and batches of them, the same for x and out. */
static qn_status fold_rows(const activation_call *c, qni_activation_problem *p) {
    int64_t size[2] = {1, 1}, x[2] = {}, out[2] = {};
    int level = 0;
    for (int i = c->x->ndim - 2; i >= 0; i--) {
        const int64_t n = c->x->shape[i], sx = qni_stride(c->x, i), so = qni_stride(c->out, i);
        if (n == 1)
            continue;
        const bool continues = sx == x[level] * size[level] && so == out[level] * size[level];
        if (size[level] > 1 && !continues && ++level == 2)
            return QN_FAIL(QN_E_UNSUPPORTED,
                           "%s: the strides of x and out do not fold into two dimensions of rows",
                           c->op);
        if (size[level] == 1)
            x[level] = sx, out[level] = so;
        size[level] *= n;
    }
    p->inner = size[0];
    p->rows = size[0] * size[1];
    p->x = (qni_activation_rows){qni_data(c->x), x[1], x[0]};
    p->out = (qni_activation_rows){qni_data(c->out), out[1], out[0]};
    return QN_OK;
}

/** Everything but the result's kind. */
static qn_status make_problem(const activation_call *c, bool is_quantised,
                              qni_activation_problem *p) {
    QN_TRY(check_x(c));
    QN_TRY(check_out(c, is_quantised));
    QN_TRY(check_scalars(c));
    *p = (qni_activation_problem){.dtype = qni_dtype_of(c->x),
                                  .dtype_out = qni_dtype_of(c->out),
                                  .h = c->out->shape[c->out->ndim - 1],
                                  .function = c->function,
                                  .limit = c->limit > 0 ? c->limit : HUGE_VALF};
    if (!qni_is_empty(c->out))
        QN_TRY(fold_rows(c, p));
    return QN_OK;
}

/** What is written must be nothing else. */
static qn_status check_overlap(const activation_call *c) {
    QN_TRY(qni_check_disjoint(c->op, "out", c->out, "x", c->x));
    QN_TRY(qni_check_disjoint(c->op, "out", c->out, "scale", c->scale_in));
    QN_TRY(qni_check_disjoint(c->op, "scale", c->scale_out, "x", c->x));
    return qni_check_disjoint(c->op, "scale", c->scale_out, "out", c->out);
}

static qn_status run_problem(const activation_call *c, const qni_activation_problem *p) {
    if (p->rows == 0 || p->h == 0)
        return QN_OK;
    const qn_status st = check_overlap(c);
    return st == QN_OK ? qni_run(&qni_op_activation, c->stream, p) : st;
}

/** x's shape without its last dimension, or with groups for it. */
static qn_status check_scale_out(const activation_call *c, qni_activation_problem *p) {
    const int rows = c->x->ndim - 1;
    int64_t want[MAX_DIMS] = {};
    if (!c->scale_out)
        return QN_FAIL(QN_E_INVALID, "%s: scale is null", c->op);
    const bool is_token = c->scale_out->ndim == rows;
    const int ndim = is_token ? rows : rows + 1;
    for (int i = 0; i < rows; i++)
        want[i] = c->x->shape[i];
    want[rows] = qni_activation_groups(p);
    QN_TRY(qni_check_tensor(c->stream, c->op, "scale", c->scale_out, ndim));
    QN_TRY(qni_check_dtype(c->op, "scale", c->scale_out, qni_of_f32));
    QN_TRY(qni_check_alignment(c->op, "scale", c->scale_out));
    QN_TRY(qni_check_shape(c->op, "scale", c->scale_out, ndim, want));
    if (rows != 1 && !qni_is_contiguous(c->scale_out))
        return QN_FAIL(QN_E_INVALID, "%s: scale is not contiguous, as it must be unless x is 2-D",
                       c->op);
    if (!is_token)
        QN_TRY(qni_check_last_contiguous(c->op, "scale", c->scale_out));
    QN_TRY(qni_check_elements_apart(c->op, "scale", c->scale_out));
    p->quant = is_token ? QNI_ACTIVATION_PER_TOKEN : QNI_ACTIVATION_PER_GROUP;
    p->scale = qni_data(c->scale_out);
    p->scale_row = rows == 1 ? qni_stride(c->scale_out, 0) : is_token ? 1 : want[rows];
    return QN_OK;
}

// ---- the public functions

static qn_status run_plain(const activation_call *c) {
    qni_activation_problem p;
    const qn_status st = make_problem(c, false, &p);
    return st == QN_OK ? run_problem(c, &p) : st;
}

qn_status qn_silu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){
        .op = "silu_and_mul", .stream = stream, .out = out, .x = x, .function = QN_SILU});
}

qn_status qn_gelu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){
        .op = "gelu_and_mul", .stream = stream, .out = out, .x = x, .function = QN_GELU});
}

qn_status qn_gelu_tanh_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){
        .op = "gelu_tanh_and_mul", .stream = stream, .out = out, .x = x, .function = QN_GELU_TANH});
}

qn_status qn_act_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x,
                         qn_activation function, float limit) {
    return run_plain(&(activation_call){.op = "act_and_mul",
                                        .stream = stream,
                                        .out = out,
                                        .x = x,
                                        .function = function,
                                        .limit = limit});
}

qn_status qn_act_and_mul_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                               const DLTensor *scale, qn_activation function, float limit) {
    const activation_call c = {.op = "act_and_mul_quant",
                               .stream = stream,
                               .out = out,
                               .x = x,
                               .scale_in = scale,
                               .function = function,
                               .limit = limit};
    qni_activation_problem p;
    QN_TRY(make_problem(&c, true, &p));
    QN_TRY(qni_check_given_scale(stream, c.op, "scale", scale));
    p.quant = QNI_ACTIVATION_STATIC;
    p.scale = qni_data(scale);
    return run_problem(&c, &p);
}

qn_status qn_act_and_mul_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                       const DLTensor *x, qn_activation function, float limit,
                                       float scale_eps) {
    const activation_call c = {.op = "act_and_mul_dynamic_quant",
                               .stream = stream,
                               .out = out,
                               .scale_out = scale,
                               .x = x,
                               .function = function,
                               .limit = limit};
    qni_activation_problem p;
    QN_TRY(make_problem(&c, true, &p));
    QN_TRY(check_scale_out(&c, &p));
    if (!(scale_eps >= 1e-30f && scale_eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: scale_eps is %g; accepted: 1e-30 or more, finite", c.op,
                       (double)scale_eps);
    p.scale_eps = scale_eps;
    return run_problem(&c, &p);
}
