// SPDX-License-Identifier: Apache-2.0
// The activation family's public functions: each reads its tensors and makes a problem, which is
// one struct for all functions.
#include "activation.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_activation 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_activation

static const char *const function_words[] = {"silu", "gelu", "gelu_tanh", nullptr};
static const char *const quant_words[] = {"none", "static", "token", "group", nullptr};
static const qni_key keys[] = {{.name = "h"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "out", .words = qni_dtype_words},
                               {.name = "function", .words = function_words},
                               {.name = "quant", .words = quant_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_activation_problem *p = problem;
    QN_SET_VALUES(keys, values, p->h, p->dtype, p->dtype_out, p->function, p->quant, p->rows);
}

const qni_op qni_op_activation = QN_OP("activation", variants, keys, describe);

enum { X, OUT, SCALE, NUM_TENSORS };

/** What a function was given; null where the function has no such argument. */
typedef struct activation_call {
    qni_call of;
    qn_stream *stream;
    DLTensor *out, *scale_out;
    const DLTensor *x, *scale_in;
    qn_activation function;
    float limit;
    qni_tensor t[NUM_TENSORS];
} activation_call;

// ---- from tensors to problems

/** Reads x, and out, which has x's shape with half of its last dimension; out_dtypes 0: the dtype
 *  of x. */
static qn_status read_tensors(activation_call *c, uint32_t out_dtypes) {
    const int ndim = c->x && c->x->ndim >= 1 && c->x->ndim <= QNI_MAX_DIMS ? c->x->ndim : 2;
    int64_t shape[QNI_MAX_DIMS];
    qni_tensor *const x = &c->t[X];
    *x = (qni_tensor){"x", c->x, ndim, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, x, 1));
    if (x->size[ndim - 1] % 2 != 0)
        return QN_FAIL(QN_E_INVALID,
                       "%s: x has rows of %ld elements, needs an even number: gate and up",
                       c->of.op, (long)x->size[ndim - 1]);
    for (int i = 0; i < ndim; i++)
        shape[i] = x->size[i] / (i == ndim - 1 ? 2 : 1);
    c->t[OUT] = (qni_tensor){
        .name = "out",
        .t = c->out,
        .ndim = ndim,
        .dtypes = out_dtypes,
        .like = out_dtypes ? nullptr : x,
        .shape = shape,
        .has_rows = true,
        .is_written = true,
    };
    return qni_read_tensors(&c->of, &c->t[OUT], 1);
}

static qn_status check_scalars(const activation_call *c) {
    if (c->function < QN_SILU || c->function > QN_GELU_TANH)
        return QN_FAIL(QN_E_INVALID, "%s: function is %d; accepted: QN_SILU, QN_GELU, QN_GELU_TANH",
                       c->of.op, (int)c->function);
    if (c->limit >= 0)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: limit is %g; accepted: above 0, and 0 or infinity for none",
                   c->of.op, (double)c->limit);
}

/** Folds the dimensions before the last into batches of rows, in one way for x and out. */
static qn_status fold_rows(const activation_call *c, qni_activation_problem *p) {
    const qni_tensor *const tx = &c->t[X], *const to = &c->t[OUT];
    int64_t size[2] = {1, 1}, x[2] = {}, out[2] = {};
    int level = 0;
    for (int i = tx->ndim - 2; i >= 0; i--) {
        const int64_t n = tx->size[i], sx = tx->stride[i], so = to->stride[i];
        if (n == 1)
            continue;
        const bool continues = sx == x[level] * size[level] && so == out[level] * size[level];
        if (size[level] > 1 && !continues && ++level == 2)
            return QN_FAIL(QN_E_UNSUPPORTED,
                           "%s: the strides of x and out do not fold into two dimensions of rows",
                           c->of.op);
        if (size[level] == 1)
            x[level] = sx, out[level] = so;
        size[level] *= n;
    }
    p->inner = size[0];
    p->rows = size[0] * size[1];
    p->x = (qni_activation_rows){tx->data, x[1], x[0]};
    p->out = (qni_activation_rows){to->data, out[1], out[0]};
    return QN_OK;
}

/** Reads everything but the result's kind; out_dtypes 0: the dtype of x. */
static qn_status read_problem(activation_call *c, uint32_t out_dtypes, qni_activation_problem *p) {
    QN_TRY(read_tensors(c, out_dtypes));
    QN_TRY(check_scalars(c));
    const qni_tensor *const out = &c->t[OUT];
    *p = (qni_activation_problem){.dtype = c->t[X].dtype,
                                  .dtype_out = out->dtype,
                                  .h = out->size[out->ndim - 1],
                                  .function = c->function,
                                  .limit = c->limit > 0 ? c->limit : HUGE_VALF};
    return qni_is_empty(out->t) ? QN_OK : fold_rows(c, p);
}

static qn_status run_problem(const activation_call *c, const qni_activation_problem *p) {
    QN_TRY(qni_check_apart(&c->of, c->t, NUM_TENSORS));
    return p->rows == 0 || p->h == 0 ? QN_OK : qni_run(&qni_op_activation, c->stream, p);
}

/** Reads the scales that are written: of x's shape without its last dimension, or with groups in
 *  its place. */
static qn_status read_scale_out(activation_call *c, qni_activation_problem *p) {
    const int rows = c->t[X].ndim - 1;
    const bool is_token = c->scale_out && c->scale_out->ndim == rows;
    int64_t shape[QNI_MAX_DIMS] = {};
    for (int i = 0; i < rows; i++)
        shape[i] = c->t[X].size[i];
    shape[rows] = qni_activation_groups(p);
    qni_tensor *const scale = &c->t[SCALE];
    *scale = (qni_tensor){
        .name = "scale",
        .t = c->scale_out,
        .ndim = is_token ? rows : rows + 1,
        .dtypes = qni_of_f32,
        .shape = shape,
        .has_rows = !is_token,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, scale, 1));
    if (rows != 1 && !qni_is_contiguous(c->scale_out))
        return QN_FAIL(QN_E_INVALID, "%s: scale is not contiguous, as it must be unless x is 2-D",
                       c->of.op);
    p->quant = is_token ? QNI_ACTIVATION_PER_TOKEN : QNI_ACTIVATION_PER_GROUP;
    p->scale = scale->data;
    p->scale_row = rows == 1 ? scale->stride[0] : is_token ? 1 : shape[rows];
    return QN_OK;
}

// ---- the public functions

static qn_status run_plain(activation_call *c) {
    qni_activation_problem p;
    QN_TRY(read_problem(c, 0, &p));
    return run_problem(c, &p);
}

qn_status qn_silu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){
        .of = {"silu_and_mul", stream}, .stream = stream, .out = out, .x = x, .function = QN_SILU});
}

qn_status qn_gelu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){
        .of = {"gelu_and_mul", stream}, .stream = stream, .out = out, .x = x, .function = QN_GELU});
}

qn_status qn_gelu_tanh_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x) {
    return run_plain(&(activation_call){.of = {"gelu_tanh_and_mul", stream},
                                        .stream = stream,
                                        .out = out,
                                        .x = x,
                                        .function = QN_GELU_TANH});
}

qn_status qn_act_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x,
                         qn_activation function, float limit) {
    return run_plain(&(activation_call){.of = {"act_and_mul", stream},
                                        .stream = stream,
                                        .out = out,
                                        .x = x,
                                        .function = function,
                                        .limit = limit});
}

qn_status qn_act_and_mul_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                               const DLTensor *scale, qn_activation function, float limit) {
    activation_call c = {.of = {"act_and_mul_quant", stream},
                         .stream = stream,
                         .out = out,
                         .x = x,
                         .scale_in = scale,
                         .function = function,
                         .limit = limit};
    qni_activation_problem p;
    QN_TRY(read_problem(&c, qni_of_fp8, &p));
    c.t[SCALE] = qni_given_scale("scale", scale);
    QN_TRY(qni_read_tensors(&c.of, &c.t[SCALE], 1));
    QN_TRY(qni_validate_scale(stream, c.of.op, "scale", c.t[SCALE].data));
    p.quant = QNI_ACTIVATION_STATIC;
    p.scale = c.t[SCALE].data;
    return run_problem(&c, &p);
}

qn_status qn_act_and_mul_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                       const DLTensor *x, qn_activation function, float limit,
                                       float scale_eps) {
    activation_call c = {.of = {"act_and_mul_dynamic_quant", stream},
                         .stream = stream,
                         .out = out,
                         .scale_out = scale,
                         .x = x,
                         .function = function,
                         .limit = limit};
    qni_activation_problem p;
    QN_TRY(read_problem(&c, qni_of_fp8, &p));
    QN_TRY(read_scale_out(&c, &p));
    if (!(scale_eps >= 1e-30f && scale_eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: scale_eps is %g; accepted: 1e-30 or more, finite",
                       c.of.op, (double)scale_eps);
    p.scale_eps = scale_eps;
    return run_problem(&c, &p);
}
