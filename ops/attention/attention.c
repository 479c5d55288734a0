// SPDX-License-Identifier: Apache-2.0
// Attention, host side: the public functions and the family's tables of kernels. attention_args.c
// checks the arguments, attention_plan.c cuts the work, attention_ref.c is the definition.
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

const qni_op qni_op_attention = QN_OP("attention", variants);
const qni_op qni_op_merge_states = QN_OP("merge_states", merge_variants);
const qni_op qni_op_attention_dropout = QN_OP("attention_dropout", dropout_variants);

// ---- attention

/** No entry from `begin` on, `count` of them, leads outside k and v. */
static qn_status check_pages(const int32_t *indices, int64_t begin, int64_t count, int64_t pages) {
    bool is_bad = false;
    for (int64_t i = begin; i < begin + count; i++)
        is_bad |= (uint32_t)indices[i] >= pages;
    for (int64_t i = begin; is_bad; i++)
        if ((uint32_t)indices[i] >= pages)
            return QN_FAIL(QN_E_INVALID, "attention: kv_indices[%ld] is %d; accepted: 0 to %ld",
                           (long)i, indices[i], (long)pages - 1);
    return QN_OK;
}

/** The pages that kernels read: of requests with queries. With QUERN_VALIDATE=1 the others, too. */
static qn_status validate_pages(qn_stream *stream, const qni_attention_problem *p, int64_t pages) {
    const qk_attention_schedule *s = p->plan;
    const int32_t *indices = nullptr;
    qn_status st;
    QN_TRY_OUT(qni_read_indices(stream, "attention", "kv_indices", p->args.kv_indices, s->kv_end,
                                &indices));
    if (qni_env_get()->validate)
        QN_TRY_OUT(check_pages(indices, 0, s->kv_end, pages));
    for (uint32_t b = 0; b < s->num_requests; b++) {
        const qk_attention_request *r = &qk_attention_requests(s)[b];
        if (r->qo_len > 0)
            QN_TRY_OUT(check_pages(indices, r->kv_begin,
                                   ((int64_t)r->kv_len + s->page_size - 1) / s->page_size, pages));
    }
out:
    qni_release_indices(stream, indices);
    return st;
}

qn_status qn_attention(qn_stream *stream, const qn_attention_args *args) {
    qni_attention_problem p;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "attention: stream is null");
    QN_TRY(QNI_CHECK_STRUCT("attention", "args", qn_attention_args, args));
    QN_TRY(qni_attention_make(stream, args, &p));
    if (p.args.kv_indices && qni_validates_indices(stream))
        QN_TRY(validate_pages(stream, &p, args->k->shape[0]));
    if (p.max_rows > 0 && (p.plan ? p.plan->num_requests : p.args.requests) > 0)
        QN_TRY(qni_run(&qni_op_attention, stream, &p));
    return QN_OK;
}

// ---- merging

/** States of n queries: [n, (states,) heads, head_dim] with their lse. */
static qn_status check_states(const qn_stream *stream, const char *op, const char *const names[2],
                              const DLTensor *v, const DLTensor *s, int ndim, const int64_t *want) {
    QN_TRY(qni_check_tensor(stream, op, names[0], v, ndim));
    QN_TRY(qni_check_tensor(stream, op, names[1], s, ndim - 1));
    QN_TRY(qni_check_dtype(op, names[0], v, qni_of_floats));
    QN_TRY(qni_check_dtype(op, names[1], s, qni_of_f32));
    QN_TRY(qni_check_shape(op, names[0], v, ndim, want));
    QN_TRY(qni_check_shape(op, names[1], s, ndim - 1, v->shape));
    QN_TRY(qni_check_last_contiguous(op, names[0], v));
    QN_TRY(qni_check_alignment(op, names[0], v));
    return qni_check_alignment(op, names[1], s);
}

typedef struct merge_call {
    const char *op;
    qn_stream *stream;
    DLTensor *v, *s;
    const DLTensor *in[2][2]; // v and s of each input; the second null: the first holds all states
    const char *names[2][2];
    qn_lse_base lse_base;
} merge_call;

/** What is written overlaps no input, save that both results may be both of one's. */
static qn_status check_merge_overlap(const merge_call *c) {
    QN_TRY(qni_check_disjoint(c->op, "v", c->v, "s", c->s));
    for (int i = 0; i < 2 && c->in[i][0]; i++) {
        const bool is_in_place = c->in[1][0] && qni_is_same_memory(c->v, c->in[i][0]) &&
                                 qni_is_same_memory(c->s, c->in[i][1]);
        if (is_in_place && i == 0)
            continue;
        for (int k = 0; k < 2; k++) {
            QN_TRY(qni_check_disjoint(c->op, "v", c->v, c->names[i][k], c->in[i][k]));
            QN_TRY(qni_check_disjoint(c->op, "s", c->s, c->names[i][k], c->in[i][k]));
        }
    }
    return QN_OK;
}

static qn_status check_merge(const merge_call *c, int in_ndim) {
    const DLTensor *first = c->in[0][0];
    const char *const out_names[2] = {"v", "s"};
    const int64_t any[4] = {-1, -1, -1, -1};
    QN_TRY(check_states(c->stream, c->op, c->names[0], first, c->in[0][1], in_ndim, any));
    if (c->in[1][0])
        QN_TRY(check_states(c->stream, c->op, c->names[1], c->in[1][0], c->in[1][1], in_ndim,
                            first->shape));
    const int64_t want[3] = {first->shape[0], first->shape[in_ndim - 2], first->shape[in_ndim - 1]};
    QN_TRY(check_states(c->stream, c->op, out_names, c->v, c->s, 3, want));
    QN_TRY(qni_check_elements_apart(c->op, "v", c->v));
    QN_TRY(qni_check_elements_apart(c->op, "s", c->s));
    if (qni_dtype_of(c->v) != qni_dtype_of(first) ||
        (c->in[1][0] && qni_dtype_of(c->in[1][0]) != qni_dtype_of(first)))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: v has dtype %s, %s %s; all need the same", c->op,
                       qni_dtype_text(c->v), c->names[0][0], qni_dtype_text(first));
    if (c->lse_base != QN_LSE_BASE_2 && c->lse_base != QN_LSE_BASE_E)
        return QN_FAIL(QN_E_INVALID, "%s: lse_base is %d; accepted: QN_LSE_BASE_2, QN_LSE_BASE_E",
                       c->op, c->lse_base);
    return check_merge_overlap(c);
}

/** 0 where there are no elements: strides are then not checked, and may be any. */
static int64_t stride_of(const DLTensor *t, int i) {
    return qni_is_empty(t) ? 0 : qni_stride(t, i);
}

static qn_status run_merge(const merge_call *c) {
    const bool is_pair = c->in[1][0];
    const int in_ndim = is_pair ? 3 : 4;
    QN_TRY(check_merge(c, in_ndim));
    const DLTensor *v = c->v, *s = c->s, *first = c->in[0][0];
    qni_merge_problem p = {.dtype = qni_dtype_of(v),
                           .o = qni_data(v),
                           .lse = qni_data(s),
                           .o_token = stride_of(v, 0),
                           .o_head = stride_of(v, 1),
                           .lse_token = stride_of(s, 0),
                           .lse_head = stride_of(s, 1),
                           .n = v->shape[0],
                           .heads = v->shape[1],
                           .head_dim = v->shape[2],
                           .states = is_pair ? 2 : first->shape[1],
                           .v_state = is_pair ? 0 : stride_of(first, 1),
                           .s_state = is_pair ? 0 : stride_of(c->in[0][1], 1),
                           .lse_unit = c->lse_base == QN_LSE_BASE_E ? 0x1.62E43p-1f : 1.0f};
    for (int i = 0; i <= is_pair; i++) {
        const DLTensor *in_v = c->in[i][0], *in_s = c->in[i][1];
        p.v[i] = qni_data(in_v), p.s[i] = qni_data(in_s);
        p.v_token[i] = stride_of(in_v, 0), p.s_token[i] = stride_of(in_s, 0);
        p.v_head[i] = stride_of(in_v, in_ndim - 2), p.s_head[i] = stride_of(in_s, in_ndim - 2);
    }
    if (p.n > 0 && p.heads > 0)
        QN_TRY(qni_run(&qni_op_merge_states, c->stream, &p));
    return QN_OK;
}

qn_status qn_merge_state(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_a,
                         const DLTensor *s_a, const DLTensor *v_b, const DLTensor *s_b,
                         qn_lse_base lse_base) {
    if (!stream || !v_b)
        return QN_FAIL(QN_E_INVALID, "merge_state: %s is null", stream ? "v_b" : "stream");
    const merge_call c = {.op = "merge_state",
                          .stream = stream,
                          .v = v,
                          .s = s,
                          .in = {{v_a, s_a}, {v_b, s_b}},
                          .names = {{"v_a", "s_a"}, {"v_b", "s_b"}},
                          .lse_base = lse_base};
    return run_merge(&c);
}

qn_status qn_merge_states(qn_stream *stream, DLTensor *v, DLTensor *s, const DLTensor *v_states,
                          const DLTensor *s_states, qn_lse_base lse_base) {
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "merge_states: stream is null");
    const merge_call c = {.op = "merge_states",
                          .stream = stream,
                          .v = v,
                          .s = s,
                          .in = {{v_states, s_states}},
                          .names = {{"v_states", "s_states"}},
                          .lse_base = lse_base};
    return run_merge(&c);
}

// ---- dropout

/** Fills r [batch, heads, queries, keys], whose dtype the caller has checked. */
static qn_status run_dropout(qn_stream *stream, const char *op, DLTensor *r, uint32_t what,
                             float dropout_p, uint64_t seed, uint64_t offset) {
    QN_TRY(qni_check_last_contiguous(op, "r", r));
    QN_TRY(qni_check_elements_apart(op, "r", r));
    QN_TRY(qni_check_alignment(op, "r", r));
    qni_dropout_problem p = {.r = qni_data(r),
                             .r_batch = qni_stride(r, 0),
                             .r_head = qni_stride(r, 1),
                             .r_query = qni_stride(r, 2),
                             .dtype = qni_dtype_of(r),
                             .what = what,
                             .batches = r->shape[0],
                             .heads = r->shape[1],
                             .queries = r->shape[2],
                             .keys = r->shape[3]};
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
    const char *op = "attention_dropout_mask";
    QN_TRY(qni_check_tensor(stream, op, "r", r, 4));
    QN_TRY(qni_check_dtype(op, "r", r, qni_of_floats));
    if (!(dropout_p >= 0 && dropout_p < 1))
        return QN_FAIL(QN_E_INVALID, "%s: dropout_p is %g; accepted: 0 to below 1", op,
                       (double)dropout_p);
    return run_dropout(stream, op, r, QK_DROPOUT_MASK, dropout_p, seed, offset);
}

qn_status qn_attention_dropout_rng(qn_stream *stream, DLTensor *r, uint64_t seed, uint64_t offset) {
    const char *op = "attention_dropout_rng";
    QN_TRY(qni_check_tensor(stream, op, "r", r, 4));
    QN_TRY(qni_check_dtype(op, "r", r, qni_of_f32 | qni_of_i32));
    const uint32_t what = qni_dtype_of(r) == QNI_I32 ? QK_DROPOUT_WORDS : QK_DROPOUT_UNIFORM;
    return run_dropout(stream, op, r, what, 0, seed, offset);
}
