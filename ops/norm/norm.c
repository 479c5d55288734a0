// SPDX-License-Identifier: Apache-2.0
// The norm family's public functions: each reads its tensors and makes a problem, which is one
// struct for all functions.
#include "norm.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_norm 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_norm

static const char *const kind_words[] = {"rms", "layer", nullptr};
static const char *const quant_words[] = {"none", "static", "token", "group", nullptr};
static const qni_key keys[] = {{.name = "h"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "weights", .words = qni_dtype_words},
                               {.name = "out", .words = qni_dtype_words},
                               {.name = "kind", .words = kind_words},
                               {.name = "quant", .words = quant_words},
                               {.name = "sum", .words = qni_no_yes_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_norm_problem *p = problem;
    QN_SET_VALUES(keys, values, p->h, p->dtype, p->dtype_weights, p->dtype_out, p->subtracts_mean,
                  p->quant, p->residual.data || p->gate.data, p->rows);
}

const qni_op qni_op_norm = QN_OP("norm", variants, keys, describe);

enum { X, OUT, RESIDUAL, WEIGHT, BETA, GATE, SCALE, NUM_TENSORS };

/** What a function was given; null where the function has no such argument, or where the argument
 *  may be left out. */
typedef struct norm_call {
    qni_call of;
    qn_stream *stream;
    DLTensor *out, *residual, *scale_out;
    const DLTensor *x, *weight, *beta, *gate, *scale_in;
    const char *const *names; // of weight and beta
    unsigned required;        // bit i: tensor i may not be left out
    bool has_batches;         // x is [batch, n, h] and weights [batch, h]
    float eps;
    qni_tensor t[NUM_TENSORS];
} norm_call;

// ---- from tensors to problems

static bool may_be_null(const norm_call *c, int which) {
    return !(c->required >> which & 1);
}

/** Reads x, and out and residual, which have x's shape. */
static qn_status read_rows(norm_call *c, uint32_t out_dtypes) {
    qni_tensor *const x = &c->t[X];
    const int ndim = c->has_batches || (c->x && c->x->ndim == 3) ? 3 : 2;
    *x = (qni_tensor){"x", c->x, ndim, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, x, 1));
    if (x->size[ndim - 1] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: x has rows of 0 elements, needs at least 1", c->of.op);
    c->t[OUT] = (qni_tensor){
        .name = "out",
        .t = c->out,
        .ndim = ndim,
        .dtypes = out_dtypes,
        .like = out_dtypes ? nullptr : x,
        .shape = x->size,
        .has_rows = true,
        .is_written = true,
        .may_be = x,
    };
    c->t[RESIDUAL] = (qni_tensor){
        .name = "residual",
        .t = c->residual,
        .ndim = ndim,
        .like = x,
        .shape = x->size,
        .may_be_null = may_be_null(c, RESIDUAL),
        .has_rows = true,
        .is_written = true,
    };
    return qni_read_tensors(&c->of, &c->t[OUT], 2);
}

/** Reads weight, beta and gate, which have one dtype, x's or f32; *dtype becomes that dtype. */
static qn_status read_weights(norm_call *c, qni_dtype *dtype) {
    const qni_tensor *const x = &c->t[X];
    const int ndim = c->has_batches ? 2 : 1;
    const int64_t shape[] = {x->size[0], x->size[x->ndim - 1]};
    const struct {
        const char *name;
        const DLTensor *t;
    } given[] = {{c->names[0], c->weight}, {c->names[1], c->beta}, {"gate", c->gate}};
    *dtype = QNI_DTYPE_NONE;
    for (int i = WEIGHT; i <= GATE; i++) {
        qni_tensor *const w = &c->t[i];
        *w = (qni_tensor){
            .name = given[i - WEIGHT].name,
            .t = given[i - WEIGHT].t,
            .ndim = ndim,
            .dtypes = qni_of_f32,
            .like = x,
            .shape = shape + (2 - ndim),
            .may_be_null = may_be_null(c, i),
            .has_rows = true,
        };
        QN_TRY(qni_read_tensors(&c->of, w, 1));
        if (w->t && *dtype != QNI_DTYPE_NONE && *dtype != w->dtype)
            return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs the others', %s", c->of.op,
                           w->name, qni_dtype_name(w->dtype), qni_dtype_name(*dtype));
        if (w->t)
            *dtype = w->dtype;
    }
    return QN_OK;
}

static qni_norm_rows rows_of(const qni_tensor *t) {
    if (!t->t)
        return (qni_norm_rows){};
    return (qni_norm_rows){
        .data = t->data, .batch = t->ndim == 3 ? t->stride[0] : 0, .row = t->stride[t->ndim - 2]};
}

static qni_norm_weights weights_of(const qni_tensor *t) {
    return (qni_norm_weights){t->data, t->ndim == 2 ? t->stride[0] : 0};
}

/** Reads everything but the result's kind; out_dtypes 0: the dtype of x. */
static qn_status read_problem(norm_call *c, uint32_t out_dtypes, qni_norm_problem *p) {
    qni_dtype weights;
    QN_TRY(read_rows(c, out_dtypes));
    QN_TRY(read_weights(c, &weights));
    if (!(c->eps >= 0 && c->eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 0 or more, finite", c->of.op,
                       (double)c->eps);
    const qni_tensor *const x = &c->t[X];
    const int64_t h = x->size[x->ndim - 1];
    *p = (qni_norm_problem){
        .dtype = x->dtype,
        .dtype_weights = weights == QNI_DTYPE_NONE ? QNI_F32 : weights,
        .dtype_out = c->t[OUT].dtype,
        .rows = qni_numel(c->x) / h,
        .inner = x->size[x->ndim - 2],
        .h = h,
        .x = rows_of(x),
        .out = rows_of(&c->t[OUT]),
        .residual = rows_of(&c->t[RESIDUAL]),
        .weight = weights_of(&c->t[WEIGHT]),
        .beta = weights_of(&c->t[BETA]),
        .gate = weights_of(&c->t[GATE]),
        .eps = c->eps,
    };
    return QN_OK;
}

static qn_status run_problem(const norm_call *c, const qni_norm_problem *p) {
    QN_TRY(qni_check_apart(&c->of, c->t, NUM_TENSORS));
    return p->rows == 0 ? QN_OK : qni_run(&qni_op_norm, c->stream, p);
}

static qn_status run_plain(norm_call *c, float weight_plus, bool subtracts_mean) {
    qni_norm_problem p;
    QN_TRY(read_problem(c, 0, &p));
    p.weight_plus = weight_plus;
    p.subtracts_mean = subtracts_mean;
    return run_problem(c, &p);
}

static qn_status run_static(norm_call *c, bool is_layernorm) {
    qni_norm_problem p;
    QN_TRY(read_problem(c, qni_of_fp8, &p));
    c->t[SCALE] = qni_given_scale("scale", c->scale_in);
    QN_TRY(qni_read_tensors(&c->of, &c->t[SCALE], 1));
    QN_TRY(qni_validate_scale(c->stream, c->of.op, "scale", c->t[SCALE].data));
    p.quant = QNI_NORM_STATIC;
    p.scale = c->t[SCALE].data;
    p.subtracts_mean = p.rounds_first = is_layernorm;
    return run_problem(c, &p);
}

/** Reads the scales that are written: [n], [n, groups]; with heads, or with batches of rows, [n,
 *  heads], [n, heads, groups]. */
static qn_status read_scale_out(norm_call *c, qni_norm_problem *p, const char *name,
                                float scale_eps) {
    const int rows = c->t[X].ndim - 1;
    const int ndim = c->scale_out && c->scale_out->ndim == rows ? rows : rows + 1;
    const int64_t shape[] = {c->t[X].size[0], rows == 2 ? c->t[X].size[1] : qni_norm_groups(p),
                             qni_norm_groups(p)};
    qni_tensor *const scale = &c->t[SCALE];
    *scale = (qni_tensor){
        .name = name,
        .t = c->scale_out,
        .ndim = ndim,
        .dtypes = qni_of_f32,
        .shape = shape,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, scale, 1));
    if (!(scale_eps >= 1e-30f && scale_eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: scale_eps is %g; accepted: 1e-30 or more, finite",
                       c->of.op, (double)scale_eps);
    p->quant = ndim == rows ? QNI_NORM_PER_TOKEN : QNI_NORM_PER_GROUP;
    p->scale = scale->data;
    p->scale_batch = rows == 2 ? scale->stride[0] : 0;
    p->scale_row = scale->stride[rows - 1];
    p->scale_col = ndim > rows ? scale->stride[rows] : 0;
    p->scale_eps = scale_eps;
    return QN_OK;
}

// ---- the public functions

static const char *const rms_names[] = {"weight", "beta"};
static const char *const layer_names[] = {"gamma", "beta"};
static const char *const modulation_names[] = {"scale", "shift"};

#define NORM_CALL(op_name, call_names, ...)                                                        \
    (norm_call) {                                                                                  \
        .of = {op_name, stream}, .stream = stream, .eps = eps, .names = call_names, __VA_ARGS__    \
    }

static qn_status rmsnorm(const char *op, qn_stream *stream, DLTensor *out, const DLTensor *x,
                         const DLTensor *weight, float eps, float weight_plus) {
    norm_call c =
        NORM_CALL(op, rms_names, .out = out, .x = x, .weight = weight, .required = 1u << WEIGHT);
    return run_plain(&c, weight_plus, false);
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
    norm_call c = NORM_CALL(op, rms_names, .out = x, .x = x, .residual = residual, .weight = weight,
                            .required = 1u << RESIDUAL | 1u << WEIGHT);
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
    norm_call c =
        NORM_CALL("layernorm", layer_names, .out = out, .x = x, .weight = gamma, .beta = beta);
    return run_plain(&c, 0, true);
}

qn_status qn_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                           const DLTensor *weight, const DLTensor *scale, float eps) {
    norm_call c = NORM_CALL("rmsnorm_quant", rms_names, .out = out, .x = x, .weight = weight,
                            .scale_in = scale, .required = 1u << WEIGHT);
    return run_static(&c, false);
}

qn_status qn_fused_add_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                     DLTensor *residual, const DLTensor *weight,
                                     const DLTensor *scale, float eps) {
    norm_call c =
        NORM_CALL("fused_add_rmsnorm_quant", rms_names, .out = out, .x = x, .residual = residual,
                  .weight = weight, .scale_in = scale, .required = 1u << RESIDUAL | 1u << WEIGHT);
    return run_static(&c, false);
}

qn_status qn_layernorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                             const DLTensor *gamma, const DLTensor *beta, const DLTensor *scale,
                             float eps) {
    norm_call c = NORM_CALL("layernorm_quant", layer_names, .out = out, .x = x, .weight = gamma,
                            .beta = beta, .scale_in = scale);
    return run_static(&c, true);
}

qn_status qn_rmsnorm_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                   const DLTensor *x, DLTensor *residual, const DLTensor *weight,
                                   float eps, float scale_eps) {
    norm_call c =
        NORM_CALL("rmsnorm_dynamic_quant", rms_names, .out = out, .x = x, .residual = residual,
                  .weight = weight, .scale_out = scale, .required = 1u << WEIGHT);
    qni_norm_problem p;
    QN_TRY(read_problem(&c, qni_of_fp8, &p));
    QN_TRY(read_scale_out(&c, &p, "scale", scale_eps));
    return run_problem(&c, &p);
}

qn_status qn_adaptive_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                const DLTensor *scale, const DLTensor *shift, float eps) {
    norm_call c =
        NORM_CALL("adaptive_layernorm", modulation_names, .out = out, .x = x, .weight = scale,
                  .beta = shift, .has_batches = true, .required = 1u << WEIGHT | 1u << BETA);
    return run_plain(&c, 1, true);
}

qn_status qn_adaptive_layernorm_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale_out,
                                              const DLTensor *x, const DLTensor *scale,
                                              const DLTensor *shift, float eps, float scale_eps) {
    norm_call c = NORM_CALL("adaptive_layernorm_dynamic_quant", modulation_names, .out = out,
                            .x = x, .weight = scale, .beta = shift, .scale_out = scale_out,
                            .has_batches = true, .required = 1u << WEIGHT | 1u << BETA);
    qni_norm_problem p;
    QN_TRY(read_problem(&c, qni_of_fp8, &p));
    QN_TRY(read_scale_out(&c, &p, "scale_out", scale_eps));
    p.weight_plus = 1;
    p.subtracts_mean = true;
    return run_problem(&c, &p);
}

qn_status qn_gated_residual_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                      DLTensor *residual, const DLTensor *gate,
                                      const DLTensor *scale, const DLTensor *shift, float eps) {
    norm_call c = NORM_CALL("gated_residual_layernorm", modulation_names, .out = out, .x = x,
                            .residual = residual, .weight = scale, .beta = shift, .gate = gate,
                            .has_batches = true,
                            .required = 1u << RESIDUAL | 1u << WEIGHT | 1u << BETA | 1u << GATE);
    return run_plain(&c, 1, true);
}
