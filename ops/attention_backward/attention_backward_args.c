// SPDX-License-Identifier: Apache-2.0
// Reads a call of qn_attention_backward and makes the problem that kernels take.
#include "../shared/round.h"
#include "attention_backward.h"

#define OP "attention_backward"
#define INVALID(...) QN_FAIL(QN_E_INVALID, OP ": " __VA_ARGS__)
#define UNSUPPORTED(...) QN_FAIL(QN_E_UNSUPPORTED, OP ": " __VA_ARGS__)

enum { ALIGN = 16 }; // of the parts of the workspace

enum { D_O = QNI_ATTENTION_TENSORS, DQ, DK, DV, DMASK, DSINKS, WORKSPACE, NUM_TENSORS };

typedef struct call {
    qni_call of;
    const qn_attention_backward_args *args;
    const qn_attention_args *forward;
    qni_backward_problem *p;
    qni_tensor t[NUM_TENSORS]; // the forward pass's first
} call;

// ---- the forward pass

/** Refuses what the forward pass takes and this one does not. */
static qn_status check_forward(const call *c) {
    const qn_attention_args *a = c->forward;
    const qni_attention_problem *f = &c->p->forward;
    if (!a->lse)
        return INVALID("forward's lse is null; it needs what qn_attention wrote");
    if (a->kv_indices)
        return UNSUPPORTED("forward has pages; accepted: dense and ragged k and v");
    if (a->pos_encoding == QN_POS_ROPE_LLAMA)
        return UNSUPPORTED("forward has QN_POS_ROPE_LLAMA; accepted: QN_POS_NONE, QN_POS_ALIBI, q "
                           "and k that are rotated before");
    if (!qni_is_float16_or_32(f->dtype) || !qni_is_float16_or_32(f->dtype_kv))
        return UNSUPPORTED("q has dtype %s, k %s; accepted: f32, f16, bf16",
                           qni_dtype_name(f->dtype), qni_dtype_name(f->dtype_kv));
    if (f->plan && f->plan->is_for_graph)
        return UNSUPPORTED("forward's plan was made with is_for_graph; accepted: other plans");
    return QN_OK;
}

static qn_status read_forward(call *c) {
    qni_attention_problem *f = &c->p->forward;
    c->forward = c->args->forward;
    if (!c->forward)
        return INVALID("forward is null");
    QN_TRY(QNI_CHECK_STRUCT(OP, "forward", qn_attention_args, c->forward));
    QN_TRY(qni_attention_read(&c->of, c->forward, f, c->t));
    for (int i = 0; i < QNI_ATTENTION_TENSORS; i++)
        c->t[i].is_written = false; // o and lse are read, and d_o may be o
    QN_TRY(check_forward(c));
    c->p->args.common = f->args;
    c->p->requests = f->plan ? f->plan->num_requests : f->args.requests;
    c->p->args.max_qo = f->plan ? (uint32_t)f->plan->max_qo_len : f->args.qo_len;
    c->p->args.max_kv = f->plan ? (uint32_t)f->plan->max_kv_len : f->args.kv_len;
    c->p->args.block_tokens = c->t[QNI_ATTENTION_Q].ndim == 4 ? (uint32_t)f->q_tokens : 0;
    return QN_OK;
}

// ---- gradients

/** Reads a tensor that is laid out as one of the forward pass's, and returns where its rows lie. */
static qn_status read_like(call *c, int which, const char *name, const DLTensor *t, int like,
                           bool is_written, qk_attention_rows *rows) {
    const qni_tensor *const of = &c->t[like];
    c->t[which] = (qni_tensor){.name = name,
                               .t = t,
                               .ndim = of->ndim,
                               .dtypes = is_written ? qni_of_floats : 0,
                               .like = is_written ? nullptr : of,
                               .shape = of->size,
                               .has_rows = true,
                               .is_written = is_written};
    QN_TRY(qni_read_tensors(&c->of, &c->t[which], 1));
    const bool is_of_keys = like == QNI_ATTENTION_K || like == QNI_ATTENTION_V;
    *rows = qni_attention_rows(&c->t[which],
                               c->forward->layout == QN_HND && (is_of_keys || of->ndim == 4));
    return QN_OK;
}

static qn_status read_gradients(call *c) {
    const qn_attention_backward_args *a = c->args;
    qni_backward_problem *p = c->p;
    qk_backward_args *b = &p->args;
    QN_TRY(read_like(c, D_O, "d_o", a->d_o, QNI_ATTENTION_O, false, &b->d_o));
    QN_TRY(read_like(c, DQ, "dq", a->dq, QNI_ATTENTION_Q, true, &b->dq));
    QN_TRY(read_like(c, DK, "dk", a->dk, QNI_ATTENTION_K, true, &b->dk));
    QN_TRY(read_like(c, DV, "dv", a->dv, QNI_ATTENTION_V, true, &b->dv));
    b->dtype_dq = (uint32_t)(p->dtype_dq = c->t[DQ].dtype);
    b->dtype_dk = (uint32_t)(p->dtype_dk = c->t[DK].dtype);
    b->dtype_dv = (uint32_t)(p->dtype_dv = c->t[DV].dtype);
    return QN_OK;
}

/** Returns the mask's size and stride `from_last` before its last dimension; 1 and 0 where it has
 *  none or repeats. */
static uint32_t size_of(const qni_tensor *t, int from_last, int64_t *stride) {
    const int i = t->ndim - 1 - from_last;
    const bool repeats = i < 0 || t->size[i] == 1;
    *stride = repeats ? 0 : t->stride[i];
    return repeats ? 1 : (uint32_t)t->size[i];
}

static qn_status read_mask_gradient(call *c) {
    const qni_tensor *const mask = &c->t[QNI_ATTENTION_MASK];
    qk_mask_gradient *d = &c->p->args.dmask;
    if (!c->args->dmask)
        return QN_OK;
    if (c->p->args.common.mask_kind < QK_MASK_F32)
        return INVALID("dmask is given, forward has %s; it needs a mask that is added",
                       mask->t ? "a boolean mask" : "no mask");
    c->t[DMASK] = (qni_tensor){.name = "dmask",
                               .t = c->args->dmask,
                               .ndim = mask->ndim,
                               .dtypes = qni_of_floats,
                               .shape = mask->size,
                               .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[DMASK], 1));
    const qni_tensor *const t = &c->t[DMASK];
    d->data = t->data;
    d->keys = size_of(t, 0, &d->key);
    d->queries = size_of(t, 1, &d->query);
    d->heads = size_of(t, 2, &d->head);
    d->batches = size_of(t, 3, &d->batch);
    c->p->args.dtype_dmask = (uint32_t)(c->p->dtype_dmask = t->dtype);
    return QN_OK;
}

static qn_status read_sinks_gradient(call *c) {
    const qni_tensor *const sinks = &c->t[QNI_ATTENTION_SINKS];
    if (!c->args->dsinks)
        return QN_OK;
    if (!sinks->t)
        return INVALID("dsinks is given, forward has no sinks");
    c->t[DSINKS] = (qni_tensor){.name = "dsinks",
                                .t = c->args->dsinks,
                                .ndim = 1,
                                .dtypes = qni_of_f32,
                                .shape = sinks->size,
                                .has_rows = true,
                                .is_written = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[DSINKS], 1));
    c->p->args.dsinks = c->t[DSINKS].data;
    return QN_OK;
}

// ---- the workspace

/** Returns the floats for one number of each row of q, whole blocks of ALIGN bytes. */
static int64_t count_rows(const qni_backward_problem *p) {
    const qk_attention_args *g = &p->args.common;
    const int64_t blocks = p->args.block_tokens ? p->requests : 1;
    return qni_pieces(blocks * p->forward.q_tokens * g->num_kv_heads * g->group,
                      ALIGN / (int64_t)sizeof(float)) *
           (ALIGN / (int64_t)sizeof(float));
}

static int64_t count_bytes(const qni_backward_problem *p, const qn_stream *stream) {
    const bool is_cpu = stream->device->id.device_type == kDLCPU;
    const int64_t wgmma = qni_backward_wgmma_bytes(p, stream->device);
    const int64_t rows =
        count_rows(p) * (int64_t)sizeof(float) *
        (1 + (is_cpu ? qni_pieces(p->args.common.head_dim_qk, QNI_BACKWARD_PAD) * QNI_BACKWARD_PAD
                     : 0));
    return wgmma > rows ? wgmma : rows;
}

static qn_status read_workspace(call *c) {
    const int64_t needed = count_bytes(c->p, c->of.stream);
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
    c->p->args.delta = c->t[WORKSPACE].data;
    if (c->p->args.delta)
        c->p->args.dq_sum = c->p->args.delta + count_rows(c->p);
    return QN_OK;
}

// ---- all together

static bool is_wide(const qni_backward_problem *p) {
    const qk_attention_args *g = &p->args.common;
    return qni_attention_is_wide(&g->q, g->head_dim_qk) &&
           qni_attention_is_wide(&g->k, g->head_dim_qk) &&
           qni_attention_is_wide(&g->v, g->head_dim_vo) &&
           qni_attention_is_wide(&p->args.d_o, g->head_dim_vo);
}

static qn_status check_call(const qn_stream *stream, const qn_attention_backward_args *args) {
    if (!stream)
        return INVALID("stream is null");
    return QNI_CHECK_STRUCT(OP, "args", qn_attention_backward_args, args);
}

qn_status qni_backward_make(const qn_stream *stream, const qn_attention_backward_args *args,
                            qni_backward_problem *p) {
    QN_TRY(check_call(stream, args));
    call c = {.of = {OP, stream}, .args = args, .p = p};
    *p = (qni_backward_problem){};
    QN_TRY(read_forward(&c));
    QN_TRY(read_gradients(&c));
    QN_TRY(read_mask_gradient(&c));
    QN_TRY(read_sinks_gradient(&c));
    QN_TRY(read_workspace(&c));
    p->args.is_wide = is_wide(p);
    return qni_check_apart(&c.of, c.t, NUM_TENSORS);
}

qn_status qn_attention_backward_workspace_bytes(int64_t *bytes, qn_stream *stream,
                                                const qn_attention_backward_args *args) {
    qni_backward_problem p = {};
    if (!bytes)
        return INVALID("bytes is null");
    QN_TRY(check_call(stream, args));
    call c = {.of = {OP, stream}, .args = args, .p = &p};
    QN_TRY(read_forward(&c));
    *bytes = count_bytes(&p, stream);
    return QN_OK;
}
