// SPDX-License-Identifier: Apache-2.0
// The sampling family's functions on rows: each reads its tensors and makes a problem, which is one
// struct for all of them.
#include "sampling.h"

#include "../shared/variants.h"
#include "sampling_args.h"

#define QN_TABLE_OF_sampling 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_sampling

static const char *const what_words[] = {"softmax", "tokens", "greedy",    "renorm",
                                         "mask",    "chain",  "penalties", nullptr};
static const qni_key keys[] = {{.name = "vocab"},
                               {.name = "what", .words = what_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_sampling_problem *p = problem;
    QN_SET_VALUES(keys, values, qni_sampling_vocab(p), p->what, qni_sampling_batch(p));
}

const qni_op qni_op_sampling = QN_OP("sampling", variants, keys, describe);

enum { X, OUT, VALID, INDICES, TEMPERATURES, TOP_KS, TOP_PS, MIN_PS, SEEDS, OFFSETS, NUM_TENSORS };

/** What a function was given; null and 0 where the function has no such argument. */
typedef struct rows_call {
    qni_call of;
    qn_stream *stream;
    const char *x_name;
    qn_sample_args given;
    qni_tensor t[NUM_TENSORS];
    qni_sampling_problem p;
} rows_call;

// ---- tensors

/** Reads x, and sets what follows from it. */
static qn_status read_x(rows_call *c, const char *name, const DLTensor *x) {
    c->t[X] = (qni_tensor){name, x, 2, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[X], 1));
    QN_TRY(qni_sampling_check_vocab(&c->of, &c->t[X]));
    const qni_tensor *const t = &c->t[X];
    qk_sampling_args *const g = &c->p.rows;
    g->x = t->data;
    g->x_row = t->stride[0];
    g->rows = (uint32_t)t->size[0];
    g->vocab = (uint32_t)t->size[1];
    g->dtype = (uint32_t)t->dtype;
    return QN_OK;
}

/** Reads a result of x's shape; dtypes 0: of x's dtype. */
static qn_status read_matrix(rows_call *c, const char *name, DLTensor *out, uint32_t dtypes) {
    c->t[OUT] = (qni_tensor){.name = name,
                             .t = out,
                             .ndim = 2,
                             .dtypes = dtypes,
                             .like = dtypes ? nullptr : &c->t[X],
                             .shape = c->t[X].size,
                             .has_rows = true,
                             .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[OUT], 1));
    c->p.rows.out = c->t[OUT].data;
    c->p.rows.out_row = c->t[OUT].stride[0];
    c->p.rows.batch = c->p.rows.rows;
    return QN_OK;
}

/** Reads tokens, whether they are valid, and the rows that they are of. */
static qn_status read_tokens(rows_call *c) {
    const qn_sample_args *const a = &c->given;
    const bool is_vector = a->indices && a->indices->ndim == 1 && a->indices->shape;
    const int64_t batch = is_vector ? a->indices->shape[0] : -1;
    const int64_t count = a->indices ? batch : (int64_t)c->p.rows.rows;
    c->t[INDICES] = qni_indices("indices", a->indices, nullptr);
    c->t[INDICES].may_be_null = true;
    c->t[OUT] = qni_indices("out", a->out, &count);
    c->t[OUT].is_written = true;
    c->t[VALID] = (qni_tensor){"valid",
                               a->valid,
                               1,
                               qni_sampling_of_flags,
                               .shape = &count,
                               .has_rows = true,
                               .may_be_null = true,
                               .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[INDICES], 1));
    QN_TRY(qni_read_tensors(&c->of, &c->t[OUT], 2));
    qk_sampling_args *const g = &c->p.rows;
    g->batch = (uint32_t)count;
    g->out = c->t[OUT].data;
    g->valid = c->t[VALID].data;
    g->indices = c->t[INDICES].data;
    if (count >= INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: out has %ld rows; accepted: fewer than 2^31", c->of.op,
                       (long)count);
    if (!g->indices || !qni_validates_indices(c->stream))
        return QN_OK;
    return qni_validate_range(c->stream, c->of.op, "indices", g->indices, count, 0, g->rows);
}

// ---- numbers

/** Reads the vectors, and checks the numbers that count where a vector is null. */
static qn_status read_filters(rows_call *c) {
    const qn_sample_args *const a = &c->given;
    qk_sampling_args *const g = &c->p.rows;
    const qni_sampling_numbers numbers[] = {
        {"temperature", "temperatures", a->temperatures, a->temperature, 0x1p-100f, 0x1p100f},
        {"top_p", "top_ps", a->top_ps, a->top_p, 0x1p-149f, 1},
        {"min_p", "min_ps", a->min_ps, a->min_p, 0, 1}};
    static const int at[] = {TEMPERATURES, TOP_PS, MIN_PS};
    const float **const vectors[] = {&g->temperatures, &g->top_ps, &g->min_ps};
    for (int i = 0; i < 3; i++)
        QN_TRY(qni_sampling_read_numbers(&c->of, c->stream, &numbers[i], g->batch, &c->t[at[i]],
                                         vectors[i]));
    const int64_t batch = g->batch;
    c->t[TOP_KS] = qni_indices("top_ks", a->top_ks, &batch);
    c->t[TOP_KS].may_be_null = true;
    QN_TRY(qni_read_tensors(&c->of, &c->t[TOP_KS], 1));
    if (a->top_k < 1)
        return QN_FAIL(QN_E_INVALID, "%s: top_k is %ld; accepted: 1 or more", c->of.op,
                       (long)a->top_k);
    g->top_ks = c->t[TOP_KS].data;
    g->temperature = a->temperature;
    g->top_p = a->top_p;
    g->min_p = a->min_p;
    g->top_k = a->top_k < g->vocab ? (uint32_t)a->top_k : g->vocab;
    if (!g->top_ks || !qni_validates_indices(c->stream))
        return QN_OK;
    return qni_validate_range(c->stream, c->of.op, "top_ks", g->top_ks, batch, 1, 1L << 31);
}

static qn_status run(rows_call *c, uint32_t what, bool is_logits) {
    QN_TRY(read_filters(c));
    c->p.what = c->p.rows.what = what;
    c->p.rows.is_logits = is_logits;
    QN_TRY(qni_check_apart(&c->of, c->t, NUM_TENSORS));
    return c->p.rows.batch == 0 ? QN_OK : qni_run(&qni_op_sampling, c->stream, &c->p);
}

/** Runs a function whose result has x's shape. */
static qn_status run_matrix(rows_call *c, uint32_t what, DLTensor *out, const char *out_name,
                            const DLTensor *x, const char *x_name) {
    const bool is_softmax = what == QK_SAMPLING_SOFTMAX;
    QN_TRY(read_x(c, x_name, x));
    QN_TRY(read_matrix(c, out_name, out, is_softmax ? qni_of_f32 : 0));
    return run(c, what, what != QK_SAMPLING_RENORM);
}

// ---- the public functions

/** What leaves all rows as they are. */
#define NO_FILTERS .temperature = 1, .top_k = INT32_MAX, .top_p = 1

qn_status qn_softmax(qn_stream *stream, DLTensor *probs, const DLTensor *logits,
                     const DLTensor *temperatures, float temperature) {
    rows_call c = {.of = {"softmax", stream},
                   .stream = stream,
                   .given = {.temperatures = temperatures,
                             .temperature = temperature,
                             .top_k = INT32_MAX,
                             .top_p = 1}};
    return run_matrix(&c, QK_SAMPLING_SOFTMAX, probs, "probs", logits, "logits");
}

qn_status qn_top_k_renorm_probs(qn_stream *stream, DLTensor *out, const DLTensor *probs,
                                const DLTensor *top_ks, int64_t top_k) {
    rows_call c = {.of = {"top_k_renorm_probs", stream},
                   .stream = stream,
                   .given = {.temperature = 1, .top_ks = top_ks, .top_k = top_k, .top_p = 1}};
    return run_matrix(&c, QK_SAMPLING_RENORM, out, "out", probs, "probs");
}

qn_status qn_top_p_renorm_probs(qn_stream *stream, DLTensor *out, const DLTensor *probs,
                                const DLTensor *top_ps, float top_p) {
    rows_call c = {
        .of = {"top_p_renorm_probs", stream},
        .stream = stream,
        .given = {.temperature = 1, .top_k = INT32_MAX, .top_ps = top_ps, .top_p = top_p}};
    return run_matrix(&c, QK_SAMPLING_RENORM, out, "out", probs, "probs");
}

qn_status qn_top_k_mask_logits(qn_stream *stream, DLTensor *out, const DLTensor *logits,
                               const DLTensor *top_ks, int64_t top_k) {
    rows_call c = {.of = {"top_k_mask_logits", stream},
                   .stream = stream,
                   .given = {.temperature = 1, .top_ks = top_ks, .top_k = top_k, .top_p = 1}};
    return run_matrix(&c, QK_SAMPLING_MASK, out, "out", logits, "logits");
}

qn_status qn_sample_greedy(qn_stream *stream, DLTensor *out, DLTensor *valid,
                           const DLTensor *logits) {
    rows_call c = {.of = {"sample_greedy", stream},
                   .stream = stream,
                   .given = {.out = out, .valid = valid, NO_FILTERS}};
    QN_TRY(read_x(&c, "logits", logits));
    QN_TRY(read_tokens(&c));
    return run(&c, QK_SAMPLING_GREEDY, true);
}

/** Checks what only some values of other arguments go with, and fills in what was not given. */
static qn_status complete(rows_call *c) {
    qn_sample_args *const a = &c->given;
    if (!a->logits == !a->probs)
        return QN_FAIL(QN_E_INVALID, "%s: %s; accepted: one of logits and probs", c->of.op,
                       a->logits ? "logits and probs are given" : "logits and probs are null");
    if (a->probs && (a->temperatures || a->temperature != 0))
        return QN_FAIL(QN_E_INVALID, "%s: temperature is given with probs; accepted: with logits",
                       c->of.op);
    if (a->order < QN_TOP_K_FIRST || a->order > QN_JOINT)
        return QN_FAIL(QN_E_INVALID, "%s: order is %d; accepted: QN_TOP_K_FIRST, QN_JOINT",
                       c->of.op, (int)a->order);
    a->temperature = a->temperature == 0 ? 1 : a->temperature;
    a->top_k = a->top_k == 0 ? INT32_MAX : a->top_k;
    a->top_p = a->top_p == 0 ? 1 : a->top_p;
    c->p.rows.is_joint = a->order == QN_JOINT;
    return QN_OK;
}

qn_status qn_sample(qn_stream *stream, const qn_sample_args *args) {
    const char *op = "sample";
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_sample_args, args));
    rows_call c = {.of = {op, stream}, .stream = stream, .given = *args};
    QN_TRY(complete(&c));
    QN_TRY(args->logits ? read_x(&c, "logits", args->logits) : read_x(&c, "probs", args->probs));
    QN_TRY(read_tokens(&c));
    QN_TRY(qni_sampling_read_random(&c.of, args->seeds, args->offsets, args->seed, args->offset,
                                    c.p.rows.batch, &c.t[SEEDS], &c.p.rows.random));
    return run(&c, QK_SAMPLING_TOKENS, args->logits != nullptr);
}
