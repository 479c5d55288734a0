// SPDX-License-Identifier: Apache-2.0
// Attention, host side: the public functions and the family's tables of kernels. attention_args.c
// and attention_schedule.c read the arguments, attention_plan.c cuts the work, attention_ref.c is
// the definition.
#include "attention.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_attention 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_attention

#define QN_TABLE_OF_merge_states 0,
static const qni_variant merge_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_merge_states

#define QN_TABLE_OF_attention_dropout 0,
static const qni_variant dropout_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_attention_dropout

static const qni_key keys[] = {{.name = "kv_heads"},
                               {.name = "group"},
                               {.name = "head_dim_qk"},
                               {.name = "head_dim_vo"},
                               {.name = "q", .words = qni_dtype_words},
                               {.name = "kv", .words = qni_dtype_words},
                               {.name = "o", .words = qni_dtype_words},
                               {.name = "paged", .words = qni_no_yes_words},
                               {.name = "requests", .is_of_batch = true},
                               {.name = "rows", .is_of_batch = true},
                               {}};

/** Describes a problem by these numbers; rows are those of the longest request. */
static void describe(const void *problem, int64_t *values) {
    const qni_attention_problem *p = problem;
    QN_SET_VALUES(keys, values, p->args.num_kv_heads, p->args.group, p->args.head_dim_qk,
                  p->args.head_dim_vo, p->dtype, p->dtype_kv, p->dtype_o,
                  p->args.kv_indices != nullptr, p->plan ? p->plan->num_requests : p->args.requests,
                  p->max_rows);
}

static const qni_key merge_keys[] = {{.name = "heads"},
                                     {.name = "head_dim"},
                                     {.name = "states"},
                                     {.name = "v", .words = qni_dtype_words},
                                     {.name = "queries", .is_of_batch = true},
                                     {}};

static void describe_merge(const void *problem, int64_t *values) {
    const qni_merge_problem *p = problem;
    QN_SET_VALUES(merge_keys, values, p->heads, p->head_dim, p->states, p->dtype, p->n);
}

static const char *const what_words[] = {"mask", "words", "uniform", nullptr};
static const qni_key dropout_keys[] = {{.name = "heads"},
                                       {.name = "keys"},
                                       {.name = "what", .words = what_words},
                                       {.name = "queries", .is_of_batch = true},
                                       {.name = "batches", .is_of_batch = true},
                                       {}};

static void describe_dropout(const void *problem, int64_t *values) {
    const qni_dropout_problem *p = problem;
    QN_SET_VALUES(dropout_keys, values, p->heads, p->keys, p->what, p->queries, p->batches);
}

const qni_op qni_op_attention = QN_OP("attention", variants, keys, describe);
const qni_op qni_op_merge_states =
    QN_OP("merge_states", merge_variants, merge_keys, describe_merge);
const qni_op qni_op_attention_dropout =
    QN_OP("attention_dropout", dropout_variants, dropout_keys, describe_dropout);

// ---- attention

qn_status qn_attention(qn_stream *stream, const qn_attention_args *args) {
    qni_attention_problem p;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "attention: stream is null");
    QN_TRY(QNI_CHECK_STRUCT("attention", "args", qn_attention_args, args));
    QN_TRY(qni_attention_make(stream, args, &p));
    QN_TRY(qni_attention_validate_pages(stream, "attention", &p));
    if (p.max_rows > 0 && (p.plan ? p.plan->num_requests : p.args.requests) > 0)
        QN_TRY(qni_attention_run(stream, &p));
    return QN_OK;
}

// ---- merging

enum { V_IN, S_IN, V_OTHER, S_OTHER, V, S, NUM_TENSORS };

/** The tensors of a call: states and their lse, in one tensor of several states or in two; and the
 *  result. */
typedef struct merge_call {
    qni_call of;
    qn_stream *stream;
    qni_tensor t[NUM_TENSORS];
    qn_lse_base lse_base;
} merge_call;

/** Reads states of n queries, [n, (states,) heads, head_dim], of v's shape, with their lse. */
static qn_status read_states(merge_call *c, int which, int ndim, const int64_t *shape) {
    qni_tensor *const v = &c->t[which], *const s = v + 1;
    v->ndim = ndim, s->ndim = ndim - 1;
    v->dtypes = qni_of_floats, s->dtypes = qni_of_f32;
    v->shape = shape;
    v->has_rows = true;
    QN_TRY(qni_read_tensors(&c->of, v, 1));
    s->shape = v->size;
    return qni_read_tensors(&c->of, s, 1);
}

/** Checks that no output overlaps an input; but the two results may both be the tensors of one
 *  state. */
static qn_status check_merge_overlap(const merge_call *c) {
    const qni_tensor *const t = c->t;
    qni_tensor apart[NUM_TENSORS];
    for (int i = 0; i < NUM_TENSORS; i++)
        apart[i] = t[i];
    if (t[V_OTHER].t && qni_is_same_memory(t[V].t, t[V_IN].t) &&
        qni_is_same_memory(t[S].t, t[S_IN].t))
        apart[V_IN].t = apart[S_IN].t = nullptr;
    return qni_check_apart(&c->of, apart, NUM_TENSORS);
}

static qn_status read_merge(merge_call *c) {
    qni_tensor *const t = c->t;
    const bool is_pair = t[V_OTHER].t;
    const int ndim = is_pair ? 3 : 4;
    t[V].is_written = t[S].is_written = true;
    QN_TRY(read_states(c, V_IN, ndim, nullptr));
    const int64_t *const in = t[V_IN].size;
    if (is_pair)
        QN_TRY(read_states(c, V_OTHER, ndim, in));
    QN_TRY(read_states(c, V, 3, (const int64_t[]){in[0], in[ndim - 2], in[ndim - 1]}));
    if (t[V].dtype != t[V_IN].dtype || (is_pair && t[V_OTHER].dtype != t[V_IN].dtype))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: v has dtype %s, %s %s; all need the same", c->of.op,
                       qni_dtype_name(t[V].dtype), t[V_IN].name, qni_dtype_name(t[V_IN].dtype));
    if (c->lse_base != QN_LSE_BASE_2 && c->lse_base != QN_LSE_BASE_E)
        return QN_FAIL(QN_E_INVALID, "%s: lse_base is %d; accepted: QN_LSE_BASE_2, QN_LSE_BASE_E",
                       c->of.op, c->lse_base);
    return check_merge_overlap(c);
}

/** Returns a stride; 0 if there are no elements, whose strides are not checked and may be any. */
static int64_t stride_of(const qni_tensor *t, int i) {
    return t->begin == t->end ? 0 : t->stride[i];
}

static qn_status run_merge(merge_call *c) {
    QN_TRY(read_merge(c));
    const qni_tensor *const v = &c->t[V], *const s = &c->t[S], *const in = &c->t[V_IN];
    const bool is_pair = c->t[V_OTHER].t;
    const int head = in->ndim - 2;
    qni_merge_problem p = {.dtype = v->dtype,
                           .o = v->data,
                           .lse = s->data,
                           .o_token = stride_of(v, 0),
                           .o_head = stride_of(v, 1),
                           .lse_token = stride_of(s, 0),
                           .lse_head = stride_of(s, 1),
                           .n = v->size[0],
                           .heads = v->size[1],
                           .head_dim = v->size[2],
                           .states = is_pair ? 2 : in->size[1],
                           .v_state = is_pair ? 0 : stride_of(in, 1),
                           .s_state = is_pair ? 0 : stride_of(&c->t[S_IN], 1),
                           .lse_unit = c->lse_base == QN_LSE_BASE_E ? 0x1.62E43p-1f : 1.0f};
    for (int i = 0; i <= is_pair; i++) {
        const qni_tensor *const in_v = &c->t[V_IN + 2 * i], *const in_s = in_v + 1;
        p.v[i] = in_v->data, p.s[i] = in_s->data;
        p.v_token[i] = stride_of(in_v, 0), p.s_token[i] = stride_of(in_s, 0);
        p.v_head[i] = stride_of(in_v, head), p.s_head[i] = stride_of(in_s, head);
    }
    return p.n > 0 && p.heads > 0 ? qni_run(&qni_op_merge_states, c->stream, &p) : QN_OK;
}

qn_status qn_merge_state(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_a,
                         const DLTensor *s_a, const DLTensor *v_b, const DLTensor *s_b,
                         qn_lse_base lse_base) {
    if (!stream || !v_b)
        return QN_FAIL(QN_E_INVALID, "merge_state: %s is null", stream ? "v_b" : "stream");
    merge_call c = {.of = {"merge_state", stream},
                    .stream = stream,
                    .t = {[V_IN] = {.name = "v_a", .t = v_a},
                          [S_IN] = {.name = "s_a", .t = s_a},
                          [V_OTHER] = {.name = "v_b", .t = v_b},
                          [S_OTHER] = {.name = "s_b", .t = s_b},
                          [V] = {.name = "v", .t = v},
                          [S] = {.name = "s", .t = s}},
                    .lse_base = lse_base};
    return run_merge(&c);
}

qn_status qn_merge_states(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_states,
                          const DLTensor *s_states, qn_lse_base lse_base) {
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "merge_states: stream is null");
    merge_call c = {.of = {"merge_states", stream},
                    .stream = stream,
                    .t = {[V_IN] = {.name = "v_states", .t = v_states},
                          [S_IN] = {.name = "s_states", .t = s_states},
                          [V] = {.name = "v", .t = v},
                          [S] = {.name = "s", .t = s}},
                    .lse_base = lse_base};
    return run_merge(&c);
}

// ---- dropout

/** Fills r [batch, heads, queries, keys], of one of `dtypes`. */
static qn_status run_dropout(qn_stream *stream, const char *op, DLTensor *r, uint32_t dtypes,
                             float dropout_p, uint64_t seed, uint64_t offset) {
    const qni_call call = {op, stream};
    qni_tensor t = {"r", r, 4, dtypes, .has_rows = true, .is_written = true};
    QN_TRY(qni_read_tensors(&call, &t, 1));
    if (!(dropout_p >= 0 && dropout_p < 1))
        return QN_FAIL(QN_E_INVALID, "%s: dropout_p is %g; accepted: 0 to below 1", op,
                       (double)dropout_p);
    qni_dropout_problem p = {.r = t.data,
                             .r_batch = t.stride[0],
                             .r_head = t.stride[1],
                             .r_query = t.stride[2],
                             .dtype = t.dtype,
                             .what = dtypes == qni_of_floats ? QK_DROPOUT_MASK
                                     : t.dtype == QNI_I32    ? QK_DROPOUT_WORDS
                                                             : QK_DROPOUT_UNIFORM,
                             .batches = t.size[0],
                             .heads = t.size[1],
                             .queries = t.size[2],
                             .keys = t.size[3]};
    p.args = (qk_attention_args){.num_kv_heads = (uint32_t)p.heads,
                                 .group = 1,
                                 .dropout_queries = (uint32_t)p.queries,
                                 .dropout_quads = (uint32_t)((p.keys + 3) / 4)};
    qni_attention_set_dropout(&p.args, dropout_p, seed, offset);
    if (!qni_is_empty(r))
        QN_TRY(qni_run(&qni_op_attention_dropout, stream, &p));
    return QN_OK;
}

qn_status qn_attention_dropout_mask(qn_stream *stream, DLTensor *r, float dropout_p, uint64_t seed,
                                    uint64_t offset) {
    return run_dropout(stream, "attention_dropout_mask", r, qni_of_floats, dropout_p, seed, offset);
}

qn_status qn_attention_dropout_rng(qn_stream *stream, DLTensor *r, uint64_t seed, uint64_t offset) {
    return run_dropout(stream, "attention_dropout_rng", r, qni_of_f32 | qni_of_i32, 0, seed,
                       offset);
}
