// SPDX-License-Identifier: Apache-2.0
// The norm family's public functions: each checks its tensors and fills one kind of problem.
#include "norm.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_norm 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_norm

const qni_op qni_op_norm = QN_OP("norm", variants);

/** What a function was given; null where it has no such argument, or where it may be left out. */
typedef struct norm_call {
    const char *op;
    qn_stream *stream;
    DLTensor *out, *residual, *scale_out;
    const DLTensor *x, *weight, *beta, *gate, *scale_in;
    const char *const *names; // of weight and beta
    bool has_batches;         // x is [batch, n, h] and weights [batch, h]
    float eps;
} norm_call;

// ---- checks

/** A tensor of x's shape. */
static qn_status check_like_x(const norm_call *c, const char *name, const DLTensor *t,
                              bool is_written) {
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, c->x->ndim));
    QN_TRY(qni_check_shape(c->op, name, t, c->x->ndim, c->x->shape));
    QN_TRY(qni_check_last_contiguous(c->op, name, t));
    if (is_written)
        QN_TRY(qni_check_elements_apart(c->op, name, t));
    return qni_check_alignment(c->op, name, t);
}

static qn_status check_x(const norm_call *c) {
    const int ndim = c->has_batches || (c->x && c->x->ndim == 3) ? 3 : 2;
    QN_TRY(qni_check_tensor(c->stream, c->op, "x", c->x, ndim));
    QN_TRY(qni_check_dtype(c->op, "x", c->x, qni_of_floats));
    if (c->x->shape[ndim - 1] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: x has rows of 0 elements, needs at least 1", c->op);
    return check_like_x(c, "x", c->x, false);
}

static qn_status check_same_dtype(const norm_call *c, const char *name, const DLTensor *t) {
    if (qni_dtype_of(t) == qni_dtype_of(c->x))
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs x's, %s", c->op, name,
                   qni_dtype_text(t), qni_dtype_text(c->x));
}

/** One of weight, beta and gate; *dtype is NONE until the first of them is seen. */
static qn_status check_weights(const norm_call *c, const char *name, const DLTensor *t,
                               qni_dtype *dtype) {
    const int ndim = c->has_batches ? 2 : 1;
    const int64_t want[] = {c->x->shape[0], c->x->shape[c->x->ndim - 1]};
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, ndim));
    const qni_dtype given = qni_dtype_of(t);
    if (given != QNI_F32 && given != qni_dtype_of(c->x))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: x's (%s) and f32", c->op,
                       name, qni_dtype_name(given), qni_dtype_text(c->x));
    if (*dtype != QNI_DTYPE_NONE && *dtype != given)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs the others', %s", c->op, name,
                       qni_dtype_name(given), qni_dtype_name(*dtype));
    *dtype = given;
    QN_TRY(qni_check_shape(c->op, name, t, ndim, want + (2 - ndim)));
    QN_TRY(qni_check_last_contiguous(c->op, name, t));
    return qni_check_alignment(c->op, name, t);
}

/** What is written must not be read as something else; out may be x itself. */
static qn_status check_overlap(const norm_call *c) {
    const struct {
        const char *name;
        const DLTensor *t;
    } read[] = {{"x", c->x},
                {c->names[0], c->weight},
                {c->names[1], c->beta},
                {"gate", c->gate},
                {"scale", c->scale_in}},
      written[] = {{"out", c->out}, {"residual", c->residual}, {"scale", c->scale_out}};
    for (size_t w = 0; w < 3; w++) {
        for (size_t i = 0; i < w; i++)
            QN_TRY(qni_check_disjoint(c->op, written[w].name, written[w].t, written[i].name,
                                      written[i].t));
        for (size_t i = 0; i < sizeof read / sizeof *read; i++)
            if (!(w == 0 && i == 0 && qni_is_same_memory(c->out, c->x)))
                QN_TRY(qni_check_disjoint(c->op, written[w].name, written[w].t, read[i].name,
                                          read[i].t));
    }
    return QN_OK;
}

static qn_status check_eps(const norm_call *c) {
    if (c->eps >= 0 && c->eps <= __FLT_MAX__)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 0 or more, finite", c->op,
                   (double)c->eps);
}

// ---- from tensors to problems

static qni_norm_rows rows_of(const DLTensor *t) {
    if (!t)
        return (qni_norm_rows){};
    return (qni_norm_rows){.data = qni_data(t),
                           .batch = t->ndim == 3 ? qni_stride(t, 0) : 0,
                           .row = qni_stride(t, t->ndim - 2)};
}

static qni_norm_weights weights_of(const DLTensor *t) {
    if (!t)
        return (qni_norm_weights){};
    return (qni_norm_weights){qni_data(t), t->ndim == 2 ? qni_stride(t, 0) : 0};
}

/** Everything but the result's kind. */
static qn_status make_problem(const norm_call *c, qni_norm_problem *p) {
    qni_dtype weights = QNI_DTYPE_NONE;
    QN_TRY(check_x(c));
    QN_TRY(check_like_x(c, "out", c->out, true));
    if (c->residual) {
        QN_TRY(check_like_x(c, "residual", c->residual, true));
        QN_TRY(check_same_dtype(c, "residual", c->residual));
    }
    if (c->weight)
        QN_TRY(check_weights(c, c->names[0], c->weight, &weights));
    if (c->beta)
        QN_TRY(check_weights(c, c->names[1], c->beta, &weights));
    if (c->gate)
        QN_TRY(check_weights(c, "gate", c->gate, &weights));
    QN_TRY(check_eps(c));
    const int64_t h = c->x->shape[c->x->ndim - 1];
    *p = (qni_norm_problem){
        .dtype = qni_dtype_of(c->x),
        .dtype_weights = weights == QNI_DTYPE_NONE ? QNI_F32 : weights,
        .dtype_out = qni_dtype_of(c->out),
        .rows = qni_numel(c->x) / h,
        .inner = c->x->shape[c->x->ndim - 2],
        .h = h,
        .x = rows_of(c->x),
        .out = rows_of(c->out),
        .residual = rows_of(c->residual),
        .weight = weights_of(c->weight),
        .beta = weights_of(c->beta),
        .gate = weights_of(c->gate),
        .eps = c->eps,
    };
    return QN_OK;
}

static qn_status run_problem(const norm_call *c, const qni_norm_problem *p) {
    if (p->rows == 0)
        return QN_OK;
    const qn_status st = check_overlap(c);
    return st == QN_OK ? qni_run(&qni_op_norm, c->stream, p) : st;
}

static qn_status run_plain(const norm_call *c, float weight_plus, bool subtracts_mean) {
    qni_norm_problem p;
    qn_status st = make_problem(c, &p);
    if (st == QN_OK)
        st = check_same_dtype(c, "out", c->out);
    if (st != QN_OK)
        return st;
    p.weight_plus = weight_plus;
    p.subtracts_mean = subtracts_mean;
    return run_problem(c, &p);
}

static qn_status make_quantised(const norm_call *c, qni_norm_problem *p) {
    const qn_status st = make_problem(c, p);
    return st == QN_OK ? qni_check_dtype(c->op, "out", c->out, qni_of_fp8) : st;
}

static qn_status run_static(const norm_call *c, bool is_layernorm) {
    qni_norm_problem p;
    QN_TRY(make_quantised(c, &p));
    QN_TRY(qni_check_given_scale(c->stream, c->op, "scale", c->scale_in));
    p.quant = QNI_NORM_STATIC;
    p.scale = qni_data(c->scale_in);
    p.subtracts_mean = p.rounds_first = is_layernorm;
    return run_problem(c, &p);
}

/** [n], [n, groups]; with heads [n, heads], [n, heads, groups]. */
static qn_status check_scale_out(const norm_call *c, qni_norm_problem *p) {
    const int rows = c->x->ndim - 1;
    const int64_t want[] = {c->x->shape[0], rows == 2 ? c->x->shape[1] : qni_norm_groups(p),
                            qni_norm_groups(p)};
    if (!c->scale_out)
        return QN_FAIL(QN_E_INVALID, "%s: scale is null", c->op);
    const int ndim = c->scale_out->ndim == rows ? rows : rows + 1;
    QN_TRY(qni_check_tensor(c->stream, c->op, "scale", c->scale_out, ndim));
    QN_TRY(qni_check_dtype(c->op, "scale", c->scale_out, qni_of_f32));
    QN_TRY(qni_check_alignment(c->op, "scale", c->scale_out));
    QN_TRY(qni_check_shape(c->op, "scale", c->scale_out, ndim, want));
    if (!qni_is_contiguous(c->scale_out) && rows == 2)
        return QN_FAIL(QN_E_INVALID, "%s: scale is not contiguous, as it must be with heads",
                       c->op);
    if (ndim > rows)
        QN_TRY(qni_check_last_contiguous(c->op, "scale", c->scale_out));
    QN_TRY(qni_check_elements_apart(c->op, "scale", c->scale_out));
    p->quant = ndim == rows ? QNI_NORM_PER_TOKEN : QNI_NORM_PER_GROUP;
    p->scale = qni_data(c->scale_out);
    p->scale_row = rows == 1 ? qni_stride(c->scale_out, 0) : ndim == 2 ? 1 : want[2];
    return QN_OK;
}

// ---- the public functions

static const char *const rms_names[] = {"weight", "beta"};
static const char *const layer_names[] = {"gamma", "beta"};
static const char *const modulation_names[] = {"scale", "shift"};

#define NORM_CALL(op_name, call_names, ...)                                                        \
    (norm_call) {                                                                                  \
        .op = op_name, .stream = stream, .eps = eps, .names = call_names, __VA_ARGS__              \
    }

static qn_status null_argument(const char *op, const char *name) {
    return QN_FAIL(QN_E_INVALID, "%s: %s is null", op, name);
}

static qn_status rmsnorm(const char *op, qn_stream *stream, DLTensor *out, const DLTensor *x,
                         const DLTensor *weight, float eps, float weight_plus) {
    const norm_call c = NORM_CALL(op, rms_names, .out = out, .x = x, .weight = weight);
    return weight ? run_plain(&c, weight_plus, false) : null_argument(op, "weight");
}

qn_status qn_rmsnorm(qn_stream *stream, DLTensor *out, const DLTensor *x, const DLTensor *weight,
                     float eps) {
    return rmsnorm("rmsnorm", stream, out, x, weight, eps, 0);
}

qn_status qn_gemma_rmsnorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                           const DLTensor *weight, float eps) {
    return rmsnorm("gemma_rmsnorm", stream, out, x, weight, eps, 1);
}

static qn_status fused_add(const char *op, qn_stream *stream, DLTensor *x, DLTensor *residual,
                           const DLTensor *weight, float eps, float weight_plus) {
    const norm_call c =
        NORM_CALL(op, rms_names, .out = x, .x = x, .residual = residual, .weight = weight);
    if (!weight || !residual)
        return null_argument(op, weight ? "residual" : "weight");
    return run_plain(&c, weight_plus, false);
}

qn_status qn_fused_add_rmsnorm(qn_stream *stream, DLTensor *x, DLTensor *residual,
                               const DLTensor *weight, float eps) {
    return fused_add("fused_add_rmsnorm", stream, x, residual, weight, eps, 0);
}

qn_status qn_gemma_fused_add_rmsnorm(qn_stream *stream, DLTensor *x, DLTensor *residual,
                                     const DLTensor *weight, float eps) {
    return fused_add("gemma_fused_add_rmsnorm", stream, x, residual, weight, eps, 1);
}

qn_status qn_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x, const DLTensor *gamma,
                       const DLTensor *beta, float eps) {
    const norm_call c =
        NORM_CALL("layernorm", layer_names, .out = out, .x = x, .weight = gamma, .beta = beta);
    return run_plain(&c, 0, true);
}

qn_status qn_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                           const DLTensor *weight, const DLTensor *scale, float eps) {
    const norm_call c = NORM_CALL("rmsnorm_quant", rms_names, .out = out, .x = x, .weight = weight,
                                  .scale_in = scale);
    return weight ? run_static(&c, false) : null_argument(c.op, "weight");
}

qn_status qn_fused_add_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                     DLTensor *residual, const DLTensor *weight,
                                     const DLTensor *scale, float eps) {
    const norm_call c = NORM_CALL("fused_add_rmsnorm_quant", rms_names, .out = out, .x = x,
                                  .residual = residual, .weight = weight, .scale_in = scale);
    if (!weight || !residual)
        return null_argument(c.op, weight ? "residual" : "weight");
    return run_static(&c, false);
}

qn_status qn_layernorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                             const DLTensor *gamma, const DLTensor *beta, const DLTensor *scale,
                             float eps) {
    const norm_call c = NORM_CALL("layernorm_quant", layer_names, .out = out, .x = x,
                                  .weight = gamma, .beta = beta, .scale_in = scale);
    return run_static(&c, true);
}

qn_status qn_rmsnorm_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                   const DLTensor *x, DLTensor *residual, const DLTensor *weight,
                                   float eps, float scale_eps) {
    const norm_call c = NORM_CALL("rmsnorm_dynamic_quant", rms_names, .out = out, .x = x,
                                  .residual = residual, .weight = weight, .scale_out = scale);
    qni_norm_problem p;
    if (!weight)
        return null_argument(c.op, "weight");
    QN_TRY(make_quantised(&c, &p));
    QN_TRY(check_scale_out(&c, &p));
    if (!(scale_eps >= 1e-30f && scale_eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: scale_eps is %g; accepted: 1e-30 or more, finite", c.op,
                       (double)scale_eps);
    p.scale_eps = scale_eps;
    return run_problem(&c, &p);
}

qn_status qn_adaptive_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                const DLTensor *scale, const DLTensor *shift, float eps) {
    const norm_call c = NORM_CALL("adaptive_layernorm", modulation_names, .out = out, .x = x,
                                  .weight = scale, .beta = shift, .has_batches = true);
    if (!scale || !shift)
        return null_argument(c.op, scale ? "shift" : "scale");
    return run_plain(&c, 1, true);
}

qn_status qn_gated_residual_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                      DLTensor *residual, const DLTensor *gate,
                                      const DLTensor *scale, const DLTensor *shift, float eps) {
    const norm_call c = NORM_CALL("gated_residual_layernorm", modulation_names, .out = out, .x = x,
                                  .residual = residual, .weight = scale, .beta = shift,
                                  .gate = gate, .has_batches = true);
    if (!residual || !gate || !scale || !shift)
        return null_argument(c.op, !residual ? "residual"
                                   : !gate   ? "gate"
                                   : !scale  ? "scale"
                                             : "shift");
    return run_plain(&c, 1, true);
}
