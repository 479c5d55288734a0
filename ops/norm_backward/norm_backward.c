// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms, host side: the public functions, which read a call's tensors and make
// a problem, and the table of kernels.
#include "norm_backward.h"

#include "../../runtime/tensor/read.h"
#include "../shared/round.h"
#include "../shared/variants.h"

#define OP "norm_backward"
#define INVALID(...) QN_FAIL(QN_E_INVALID, OP ": " __VA_ARGS__)

#define QN_TABLE_OF_norm_backward 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_norm_backward

static const char *const kind_words[] = {"rms", "layer", nullptr};
static const qni_key keys[] = {{.name = "h"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "weight", .words = qni_dtype_words},
                               {.name = "kind", .words = kind_words},
                               {.name = "dweight", .words = qni_no_yes_words},
                               {.name = "dbeta", .words = qni_no_yes_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_norm_backward_problem *p = problem;
    QN_SET_VALUES(keys, values, p->h, p->dtype, p->dtype_weight, p->subtracts_mean,
                  p->dweight != nullptr, p->dbeta != nullptr, p->rows);
}

const qni_op qni_op_norm_backward = QN_OP(OP, variants, keys, describe);

enum { X, D_OUT, D_SUM, DX, WEIGHT, DWEIGHT, DBETA, WORKSPACE, NUM_TENSORS };
enum { ALIGN = 16, PAD = 32 }; // of the workspace, in bytes; of a row of sums, in elements

typedef struct call {
    qni_call of;
    const qn_norm_backward_args *args;
    qni_norm_backward_problem *p;
    qni_tensor t[NUM_TENSORS];
} call;

// ---- parts

/** Few parts are few sums to add in the end; many keep many threads or workgroups busy. On a GPU a
 *  part has at least four rows where this leaves 64 parts, so that its rows weigh more than its
 *  sums. The shape alone decides, as the order of additions follows from it. */
int64_t qni_norm_backward_divide(qni_norm_backward_problem *p, int sums, bool is_cpu) {
    const int64_t most = is_cpu ? 64 : 1024, few = qni_pieces(p->rows, 64);
    const int64_t least = is_cpu ? 1 : few < 4 ? few : 4, needed = qni_pieces(p->rows, most);
    p->rows_per_part = needed > least ? needed : least > 0 ? least : 1;
    p->parts = qni_pieces(p->rows, p->rows_per_part);
    p->pad = qni_round_up(p->h, PAD);
    return sums * p->parts * p->pad * (int64_t)sizeof(float);
}

void qni_norm_backward_place(qni_norm_backward_problem *p, float *workspace) {
    p->weight_sums = p->dweight ? workspace : nullptr;
    p->beta_sums = p->dbeta ? workspace + (p->dweight ? p->parts * p->pad : 0) : nullptr;
}

// ---- from tensors to a problem

static qn_status check_args(const qn_stream *stream, const qn_norm_backward_args *a) {
    if (!stream)
        return INVALID("stream is null");
    QN_TRY(QNI_CHECK_STRUCT(OP, "args", qn_norm_backward_args, a));
    if ((a->subtracts_mean & ~1) || (a->adds_one & ~1))
        return INVALID("subtracts_mean is %d, adds_one %d; accepted: 0, 1", (int)a->subtracts_mean,
                       (int)a->adds_one);
    if (a->dweight && !a->weight)
        return INVALID("dweight is given, and weight is null");
    if (a->dbeta && !a->subtracts_mean)
        return INVALID("dbeta is given, and RMSNorm has no beta");
    if (!(a->eps >= 0 && a->eps <= __FLT_MAX__))
        return INVALID("eps is %g; accepted: 0 or more, finite", (double)a->eps);
    return QN_OK;
}

/** Reads x, and what the parts follow from. */
static qn_status read_x(call *c) {
    const qn_norm_backward_args *a = c->args;
    qni_tensor *const x = &c->t[X];
    const int ndim = a->x && a->x->ndim == 3 ? 3 : 2;
    *x = (qni_tensor){"x", a->x, ndim, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, x, 1));
    if (x->size[ndim - 1] == 0)
        return INVALID("x has rows of 0 elements, needs at least 1");
    *c->p = (qni_norm_backward_problem){.dtype = x->dtype,
                                        .rows = qni_numel(a->x) / x->size[ndim - 1],
                                        .inner = x->size[ndim - 2],
                                        .h = x->size[ndim - 1],
                                        .eps = a->eps,
                                        .weight_plus = (float)a->adds_one,
                                        .subtracts_mean = a->subtracts_mean};
    return QN_OK;
}

static qni_norm_rows rows_of(const qni_tensor *t) {
    if (!t->t)
        return (qni_norm_rows){};
    return (qni_norm_rows){
        .data = t->data, .batch = t->ndim == 3 ? t->stride[0] : 0, .row = t->stride[t->ndim - 2]};
}

/** Reads the tensors that are like x. */
static qn_status read_rows(call *c) {
    const qn_norm_backward_args *a = c->args;
    qni_norm_backward_problem *p = c->p;
    qni_tensor *const x = &c->t[X];
    const struct {
        const char *name;
        const DLTensor *t;
    } given[] = {{"d_out", a->d_out}, {"d_sum", a->d_sum}, {"dx", a->dx}};
    for (int i = D_OUT; i <= DX; i++)
        c->t[i] = (qni_tensor){.name = given[i - D_OUT].name,
                               .t = given[i - D_OUT].t,
                               .ndim = x->ndim,
                               .like = x,
                               .shape = x->size,
                               .may_be_null = i == D_SUM,
                               .has_rows = true,
                               .is_written = i == DX};
    QN_TRY(qni_read_tensors(&c->of, &c->t[D_OUT], DX - D_OUT + 1));
    p->x = rows_of(x);
    p->d_out = rows_of(&c->t[D_OUT]);
    p->d_sum = rows_of(&c->t[D_SUM]);
    p->dx = rows_of(&c->t[DX]);
    return QN_OK;
}

/** Reads weight and the gradients that are like it. */
static qn_status read_weights(call *c) {
    const qn_norm_backward_args *a = c->args;
    qni_norm_backward_problem *p = c->p;
    const qni_tensor *const x = &c->t[X];
    const struct {
        const char *name;
        const DLTensor *t;
    } given[] = {{"weight", a->weight}, {"dweight", a->dweight}, {"dbeta", a->dbeta}};
    for (int i = WEIGHT; i <= DBETA; i++)
        c->t[i] = (qni_tensor){.name = given[i - WEIGHT].name,
                               .t = given[i - WEIGHT].t,
                               .ndim = 1,
                               .dtypes = qni_of_f32,
                               .like = x,
                               .shape = &p->h,
                               .may_be_null = true,
                               .has_rows = true,
                               .is_written = i != WEIGHT};
    QN_TRY(qni_read_tensors(&c->of, &c->t[WEIGHT], DBETA - WEIGHT + 1));
    p->weight = c->t[WEIGHT].data;
    p->dweight = c->t[DWEIGHT].data;
    p->dbeta = c->t[DBETA].data;
    p->dtype_weight = p->weight ? c->t[WEIGHT].dtype : QNI_F32;
    p->dtype_dweight = p->dweight ? c->t[DWEIGHT].dtype : QNI_F32;
    p->dtype_dbeta = p->dbeta ? c->t[DBETA].dtype : QNI_F32;
    return QN_OK;
}

static int64_t divide(const call *c) {
    return qni_norm_backward_divide(c->p,
                                    (c->args->dweight != nullptr) + (c->args->dbeta != nullptr),
                                    c->of.stream->device->id.device_type == kDLCPU);
}

static qn_status read_workspace(call *c) {
    const int64_t needed = divide(c);
    c->t[WORKSPACE] = (qni_tensor){.name = "workspace",
                                   .t = c->args->workspace,
                                   .ndim = 1,
                                   .dtypes = 1u << QNI_U8,
                                   .align = ALIGN,
                                   .may_be_null = needed == 0,
                                   .has_rows = true,
                                   .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[WORKSPACE], 1));
    const int64_t given = c->args->workspace ? c->t[WORKSPACE].size[0] : 0;
    if (given < needed)
        return INVALID("workspace has %ld bytes, needs %ld", (long)given, (long)needed);
    qni_norm_backward_place(c->p, c->t[WORKSPACE].data);
    return QN_OK;
}

// ---- the public functions

qn_status qn_norm_backward(qn_stream *stream, const qn_norm_backward_args *args) {
    qni_norm_backward_problem p = {};
    QN_TRY(check_args(stream, args));
    call c = {.of = {OP, stream}, .args = args, .p = &p};
    QN_TRY(read_x(&c));
    QN_TRY(read_rows(&c));
    QN_TRY(read_weights(&c));
    QN_TRY(read_workspace(&c));
    QN_TRY(qni_check_apart(&c.of, c.t, NUM_TENSORS));
    return p.rows == 0 && !p.dweight && !p.dbeta ? QN_OK
                                                 : qni_run(&qni_op_norm_backward, stream, &p);
}

qn_status qn_norm_backward_workspace_bytes(int64_t *bytes, qn_stream *stream,
                                           const qn_norm_backward_args *args) {
    qni_norm_backward_problem p = {};
    if (!bytes)
        return INVALID("bytes is null");
    QN_TRY(check_args(stream, args));
    call c = {.of = {OP, stream}, .args = args, .p = &p};
    QN_TRY(read_x(&c));
    *bytes = divide(&c);
    return QN_OK;
}
