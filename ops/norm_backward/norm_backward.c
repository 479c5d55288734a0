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
                               {.name = "gated", .words = qni_no_yes_words},
                               {.name = "groups"},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_norm_backward_problem *p = problem;
    QN_SET_VALUES(keys, values, p->h, p->dtype, p->dtype_weight, p->subtracts_mean,
                  p->sums[QK_DWEIGHT].to != nullptr, p->sums[QK_DBETA].to != nullptr,
                  p->d_gated.data != nullptr, p->groups, p->rows);
}

const qni_op qni_op_norm_backward = QN_OP(OP, variants, keys, describe);

enum { X, D_OUT, D_SUM, GATED, DX, D_GATED, WEIGHT, GATE, DWEIGHT, DBETA, DGATE, WORKSPACE };
enum { NUM_TENSORS = WORKSPACE + 1 };
enum { ALIGN = 16, PAD = 32 }; // of the workspace, in bytes; of a row of sums, in elements

typedef struct call {
    qni_call of;
    const qn_norm_backward_args *args;
    qni_norm_backward_problem *p;
    qni_tensor t[NUM_TENSORS];
} call;

// ---- parts

/** Returns the most parts on a device. Workgroups of a GPU have a lane for 8 elements, and a
 *  multiprocessor has room for 1024 lanes: of an H200's 132 twice, of an MI300X's 304 less than
 *  once, so that no round of workgroups is a short one. */
static int64_t most_parts(int64_t h, bool is_cpu) {
    const int64_t lanes = qni_round_up(qni_pieces(h, 8), 64);
    return is_cpu ? 64 : 264 * (lanes < 1024 ? 1024 / lanes : 1);
}

/** Few parts are few sums to add in the end; many keep many threads or workgroups busy. On a GPU a
 *  part has at least four rows where this leaves 64 parts, so that its rows weigh more than its
 *  sums. The shape alone decides, as the order of additions follows from it. */
int64_t qni_norm_backward_divide(qni_norm_backward_problem *p, int sums, bool is_cpu) {
    const int64_t most = most_parts(p->h, is_cpu), few = qni_pieces(p->rows, 64);
    const int64_t rows = qni_norm_backward_group_rows(p), groups = p->groups;
    const int64_t needed =
        qni_pieces(rows, groups < most ? qni_pieces(most, groups ? groups : 1) : 1);
    const int64_t least = is_cpu ? 1 : few < 4 ? few : 4;
    const int64_t wanted = needed > least ? needed : least > 0 ? least : 1;
    p->rows_per_part = wanted < rows || rows == 0 ? wanted : rows;
    p->parts_per_group = qni_pieces(rows, p->rows_per_part);
    p->pad = qni_round_up(p->h, PAD);
    return sums * groups * p->parts_per_group * p->pad * (int64_t)sizeof(float);
}

void qni_norm_backward_place(qni_norm_backward_problem *p, float *workspace) {
    for (int i = 0; i < QK_NORM_SUMS; i++) {
        p->sums[i].parts = p->sums[i].to ? workspace : nullptr;
        workspace += p->sums[i].to ? p->groups * p->parts_per_group * p->pad : 0;
    }
}

// ---- from tensors to a problem

static qn_status check_flags(const qn_norm_backward_args *a) {
    if ((a->subtracts_mean & ~1) || (a->adds_one & ~1))
        return INVALID("subtracts_mean is %d, adds_one %d; accepted: 0, 1", (int)a->subtracts_mean,
                       (int)a->adds_one);
    if (!(a->eps >= 0 && a->eps <= __FLT_MAX__))
        return INVALID("eps is %g; accepted: 0 or more, finite", (double)a->eps);
    return QN_OK;
}

static qn_status check_args(const qn_stream *stream, const qn_norm_backward_args *a) {
    if (!stream)
        return INVALID("stream is null");
    QN_TRY(QNI_CHECK_STRUCT(OP, "args", qn_norm_backward_args, a));
    QN_TRY(check_flags(a));
    if (a->dweight && !a->weight)
        return INVALID("dweight is given, and weight is null");
    if (a->dbeta && !a->subtracts_mean)
        return INVALID("dbeta is given, and RMSNorm has no beta");
    if (!a->gate != !a->d_gated)
        return INVALID("%s; accepted: both or neither", a->gate
                                                            ? "gate is given, and d_gated is null"
                                                            : "d_gated is given, and gate is null");
    if (!a->gated != !a->dgate)
        return INVALID("%s; accepted: both or neither", a->gated
                                                            ? "gated is given, and dgate is null"
                                                            : "dgate is given, and gated is null");
    return QN_OK;
}

/** Returns whether weight and what is like it has a row for each batch. */
static bool has_row_for_each_batch(const qn_norm_backward_args *a) {
    const DLTensor *alike[] = {a->weight, a->gate, a->dweight, a->dbeta, a->dgate};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        if (alike[i])
            return a->x->ndim == 3 && alike[i]->ndim == 2;
    return false;
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
                                        .groups = has_row_for_each_batch(a) ? x->size[0] : 1,
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
        qni_norm_rows *to;
    } given[] = {{"d_out", a->d_out, &p->d_out},
                 {"d_sum", a->d_sum, &p->d_sum},
                 {"gated", a->gated, &p->gated},
                 {"dx", a->dx, &p->dx},
                 {"d_gated", a->d_gated, &p->d_gated}};
    for (int i = D_OUT; i <= D_GATED; i++)
        c->t[i] = (qni_tensor){.name = given[i - D_OUT].name,
                               .t = given[i - D_OUT].t,
                               .ndim = x->ndim,
                               .like = x,
                               .shape = x->size,
                               .may_be_null = i != D_OUT && i != DX,
                               .has_rows = true,
                               .is_written = i >= DX};
    QN_TRY(qni_read_tensors(&c->of, &c->t[D_OUT], D_GATED - D_OUT + 1));
    p->x = rows_of(x);
    for (int i = D_OUT; i <= D_GATED; i++)
        *given[i - D_OUT].to = rows_of(&c->t[i]);
    return QN_OK;
}

/** States weight and what is like it: a row of h, or one for each batch. */
static void state_weights(call *c, const int64_t *shape, int ndim) {
    const qn_norm_backward_args *a = c->args;
    const struct {
        const char *name;
        const DLTensor *t;
    } given[] = {{"weight", a->weight},
                 {"gate", a->gate},
                 {"dweight", a->dweight},
                 {"dbeta", a->dbeta},
                 {"dgate", a->dgate}};
    for (int i = WEIGHT; i <= DGATE; i++)
        c->t[i] = (qni_tensor){.name = given[i - WEIGHT].name,
                               .t = given[i - WEIGHT].t,
                               .ndim = ndim,
                               .dtypes = qni_of_f32,
                               .like = &c->t[X],
                               .shape = shape,
                               .may_be_null = true,
                               .has_rows = true,
                               .is_written = i > GATE};
}

static int64_t row_step(const qni_tensor *t) {
    return t->t && t->ndim == 2 ? t->stride[0] : 0;
}

static qn_status read_weights(call *c) {
    qni_norm_backward_problem *p = c->p;
    const int64_t shape[] = {p->groups, p->h};
    const int ndim = has_row_for_each_batch(c->args) ? 2 : 1;
    const qni_tensor *const weight = &c->t[WEIGHT], *const gate = &c->t[GATE];
    state_weights(c, shape + 2 - ndim, ndim);
    QN_TRY(qni_read_tensors(&c->of, &c->t[WEIGHT], DGATE - WEIGHT + 1));
    if (weight->t && gate->t && weight->dtype != gate->dtype)
        return QN_FAIL(QN_E_UNSUPPORTED, OP ": gate has dtype %s, weight %s; accepted: one dtype",
                       qni_dtype_name(gate->dtype), qni_dtype_name(weight->dtype));
    p->weight = (qni_norm_weights){weight->data, row_step(weight)};
    p->gate = (qni_norm_weights){gate->data, row_step(gate)};
    p->dtype_weight = weight->t ? weight->dtype : gate->t ? gate->dtype : QNI_F32;
    for (int i = 0; i < QK_NORM_SUMS; i++) {
        const qni_tensor *t = &c->t[DWEIGHT + i];
        p->sums[i] = (qni_norm_sum){t->data, row_step(t), t->t ? t->dtype : QNI_F32, nullptr};
    }
    return QN_OK;
}

static int64_t divide(const call *c) {
    const qn_norm_backward_args *a = c->args;
    return qni_norm_backward_divide(c->p, !!a->dweight + !!a->dbeta + !!a->dgate,
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
    const bool has_sums = args->dweight || args->dbeta || args->dgate;
    return p.groups == 0 || (p.rows == 0 && !has_sums) ? QN_OK
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
