// SPDX-License-Identifier: Apache-2.0
// AOTriton's attention over sequences that lie one after another, and its gradients: reads their
// lengths to the host, makes quern's plan of them, and copies the plan to the caller's workspace.
#include "aotriton.h"

#include <stdlib.h>

/** Where sequences begin, and quern's plan of them, in host memory. */
typedef struct sequences {
    int32_t *cu_q, *cu_k;
    void *plan;
    int64_t count, plan_bytes;
    int64_t schedule_bytes; // of the workspace: for the plan's copy, on a GPU
    int64_t partial_bytes;  // and behind the plan, for partial results
} sequences;

static void free_sequences(sequences *s) {
    free(s->cu_q);
    free(s->cu_k);
    free(s->plan);
}

/** Checks that the begins rise and end within `tokens`, and that no sequence is longer than
 *  `longest`. */
static qn_status check_lengths(const char *op, const char *name, const int32_t *begins,
                               int64_t count, const char *tokens_name, int64_t tokens,
                               const char *longest_name, int64_t longest) {
    for (int64_t i = 0; i <= count; i++) {
        const int32_t least = i ? begins[i - 1] : 0;
        if (begins[i] < least || begins[i] > tokens)
            return QN_FAIL(QN_E_INVALID, "%s: %s[%ld] is %d; accepted: %d to %ld, the tokens of %s",
                           op, name, (long)i, begins[i], least, (long)tokens, tokens_name);
        if (i && begins[i] - least > longest)
            return QN_FAIL(QN_E_INVALID, "%s: %s is %ld, sequence %ld has %d", op, longest_name,
                           (long)longest, (long)i - 1, begins[i] - least);
    }
    return QN_OK;
}

/** States where sequences begin; count: of the entries, null: any. */
static qni_tensor begins_of(const char *name, const DLTensor *t, const int64_t *count) {
    return (qni_tensor){.name = name,
                        .t = t,
                        .ndim = 1,
                        .dtypes = qni_of_i32,
                        .shape = count,
                        .may_be_on_host = true,
                        .has_rows = t && !qni_is_on_host(t)};
}

/** Copies begins, which have been read, to the host. */
static qn_status take_begins(const qni_aotriton_call *c, const qni_tensor *x, int32_t **out) {
    const int64_t count = x->size[0];
    if (!(*out = malloc((size_t)count * sizeof **out)))
        return QN_FAIL(QN_E_MEMORY, "%s: no memory for %ld entries of %s", c->op, (long)count,
                       x->name);
    DLTensor host = qni_host_tensor(*out, x->t->dtype, 1, x->t->shape);
    return qni_aotriton_under(c->op, qn_copy(c->stream, &host, x->t));
}

static qn_status read_sequences(qni_aotriton_call *c, int64_t max_q, int64_t max_k, sequences *s) {
    const qni_tensor *q = &c->t[QNI_AOT_CU_Q], *k = &c->t[QNI_AOT_CU_K];
    QN_TRY(qni_aotriton_read(c, QNI_AOT_CU_Q, begins_of("cu_seqlens_q", c->cu_seqlens_q, nullptr)));
    if (q->size[0] < 1)
        return QN_FAIL(QN_E_INVALID, "%s: cu_seqlens_q has no entry, needs one more than sequences",
                       c->op);
    QN_TRY(qni_aotriton_read(c, QNI_AOT_CU_K, begins_of("cu_seqlens_k", c->cu_seqlens_k, q->size)));
    QN_TRY(take_begins(c, q, &s->cu_q));
    QN_TRY(take_begins(c, k, &s->cu_k));
    s->count = q->size[0] - 1;
    QN_TRY(check_lengths(c->op, "cu_seqlens_q", s->cu_q, s->count, "q", c->q->shape[2],
                         "max_seqlen_q", max_q));
    return check_lengths(c->op, "cu_seqlens_k", s->cu_k, s->count, "k", c->k->shape[2],
                         "max_seqlen_k", max_k);
}

/** Makes the plan of the sequences. */
static qn_status make_plan(const qni_aotriton_call *c, int64_t max_q, int64_t max_k, sequences *s) {
    const qn_device *device = c->stream->device;
    const qn_attention_plan_args args = {.struct_size = sizeof args,
                                         .batches = s->count,
                                         .qo_indptr = s->cu_q,
                                         .kv_indptr = s->cu_k,
                                         .num_qo_heads = c->q->shape[1],
                                         .num_kv_heads = c->k->shape[1],
                                         .head_dim_vo = c->v->shape[3],
                                         .num_compute_units = device->info.num_compute_units,
                                         .max_qo_len = max_q,
                                         .max_kv_len = max_k};
    QN_TRY(qni_aotriton_under(
        c->op, qn_attention_plan(nullptr, &s->plan_bytes, &s->partial_bytes, &args)));
    if (!(s->plan = malloc((size_t)s->plan_bytes)))
        return QN_FAIL(QN_E_MEMORY, "%s: no memory for a plan of %ld bytes", c->op,
                       (long)s->plan_bytes);
    QN_TRY(qni_aotriton_under(
        c->op, qn_attention_plan(s->plan, &s->plan_bytes, &s->partial_bytes, &args)));
    s->schedule_bytes = device->id.device_type == kDLCPU ? 0 : (s->plan_bytes + 15) / 16 * 16;
    return QN_OK;
}

/** Returns a part of the workspace; `shape` is its bytes. */
static DLTensor part_of(const DLTensor *workspace, int64_t begin, int64_t *shape) {
    DLTensor part = *workspace;
    part.byte_offset += (uint64_t)begin;
    part.shape = shape;
    part.strides = nullptr;
    return part;
}

/** Gives `args` the plan and, on a GPU, its copy in the workspace. */
static qn_status send_plan(const qni_aotriton_call *c, sequences *s, const DLTensor *workspace,
                           DLTensor *schedule, qn_attention_args *args) {
    args->plan = s->plan;
    args->plan_bytes = s->plan_bytes;
    if (s->schedule_bytes == 0)
        return QN_OK;
    const DLTensor host = qni_host_tensor(s->plan, workspace->dtype, 1, &s->plan_bytes);
    *schedule = part_of(workspace, 0, &s->plan_bytes);
    args->schedule = schedule;
    return qni_aotriton_under(c->op, qn_copy(c->stream, schedule, &host));
}

/** Copies the plan to the workspace and runs. */
static qn_status run_sequences(qni_aotriton_call *c, sequences *s, qn_attention_args *args) {
    DLTensor *workspace, schedule, partial;
    QN_TRY(qni_aotriton_take_workspace(c, s->schedule_bytes + s->partial_bytes, &workspace));
    QN_TRY(send_plan(c, s, workspace, &schedule, args));
    if (s->partial_bytes > 0) {
        partial = part_of(workspace, s->schedule_bytes, &s->partial_bytes);
        args->workspace = &partial;
    }
    return qni_aotriton_run(c, args);
}

static const int tokens_first[] = {2, 1, 3}, lse_tokens_first[] = {1, 0};

/** Refuses b, which AOTriton reserves. */
static qn_status check_no_b(const qni_aotriton_call *c, const char *name, const DLTensor *b) {
    return qni_aotriton_is_there(b)
               ? QN_FAIL(QN_E_UNSUPPORTED, "%s: %s is given, and must be absent", c->op, name)
               : QN_OK;
}

static qn_status attend_sequences(qni_aotriton_call *c, int64_t max_q, int64_t max_k) {
    qni_aotriton_view q, k, v, out_view, lse;
    sequences s = {};
    qn_attention_args args = {.struct_size = sizeof args,
                              .layout = QN_NHD,
                              .is_causal = c->is_causal != 0,
                              .is_top_left = 1,
                              .sm_scale = c->sm_scale,
                              .lse_base = QN_LSE_BASE_E};
    qn_status st;
    QN_TRY_OUT(qni_aotriton_read_operands(c, 1));
    QN_TRY_OUT(qni_aotriton_read_outputs(c, true));
    QN_TRY_OUT(check_no_b(c, "b", c->b));
    QN_TRY_OUT(qni_aotriton_check_scalars(c));
    QN_TRY_OUT(read_sequences(c, max_q, max_k, &s));
    QN_TRY_OUT(make_plan(c, max_q, max_k, &s));
    args.q = qni_aotriton_make_view(&q, c->q, 3, tokens_first);
    args.k = qni_aotriton_make_view(&k, c->k, 3, tokens_first);
    args.v = qni_aotriton_make_view(&v, c->v, 3, tokens_first);
    args.o = qni_aotriton_make_view(&out_view, c->out, 3, tokens_first);
    if (c->t[QNI_AOT_LSE].t)
        args.lse = qni_aotriton_make_view(&lse, c->softmax_lse, 2, lse_tokens_first);
    // Tokens behind the last sequence belong to none, and are left alone.
    q.shape[0] = out_view.shape[0] = lse.shape[0] = s.cu_q[s.count];
    QN_TRY_OUT(run_sequences(c, &s, &args));
out:
    free_sequences(&s);
    return st;
}

qn_status qn_aotriton_attn_fwd_compact_varlen(
    const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *b,
    const DLTensor *cu_seqlens_q, const DLTensor *cu_seqlens_k, int32_t max_seqlen_q,
    int32_t max_seqlen_k, float sm_scale, DLTensor *softmax_lse, DLTensor *out, float dropout_p,
    const DLTensor *philox_seed, const DLTensor *philox_offset1, int64_t philox_offset2,
    DLTensor *philox_seed_output, DLTensor *philox_offset_output, const DLTensor *encoded_softmax,
    int32_t is_causal, const DLTensor *atomic_for_causal, qn_stream *stream,
    const qn_aotriton_ext *ext) {
    (void)atomic_for_causal;
    qni_aotriton_call c = {.op = "aotriton_attn_fwd_compact_varlen",
                           .stream = stream,
                           .q = q,
                           .k = k,
                           .v = v,
                           .b = b,
                           .cu_seqlens_q = cu_seqlens_q,
                           .cu_seqlens_k = cu_seqlens_k,
                           .softmax_lse = softmax_lse,
                           .out = out,
                           .sm_scale = sm_scale,
                           .dropout_p = dropout_p,
                           .philox_seed = philox_seed,
                           .philox_offset1 = philox_offset1,
                           .philox_offset2 = philox_offset2,
                           .philox_seed_output = philox_seed_output,
                           .philox_offset_output = philox_offset_output,
                           .encoded_softmax = encoded_softmax,
                           .is_causal = is_causal,
                           .ext = ext};
    return attend_sequences(&c, max_seqlen_q, max_seqlen_k);
}

qn_status qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(qn_stream *stream, int64_t *bytes,
                                                              const DLTensor *q, const DLTensor *k,
                                                              const DLTensor *v,
                                                              const DLTensor *cu_seqlens_q,
                                                              const DLTensor *cu_seqlens_k) {
    qni_aotriton_call c = {.op = "aotriton_attn_fwd_compact_varlen_workspace_bytes",
                           .stream = stream,
                           .q = q,
                           .k = k,
                           .v = v,
                           .cu_seqlens_q = cu_seqlens_q,
                           .cu_seqlens_k = cu_seqlens_k};
    sequences s = {};
    qn_status st;
    if (!bytes)
        return QN_FAIL(QN_E_INVALID, "%s: bytes is null", c.op);
    QN_TRY_OUT(qni_aotriton_read_operands(&c, 1));
    QN_TRY_OUT(read_sequences(&c, INT32_MAX, INT32_MAX, &s));
    QN_TRY_OUT(make_plan(&c, 0, 0, &s));
    *bytes = s.schedule_bytes + s.partial_bytes;
out:
    free_sequences(&s);
    return st;
}

// ---- gradients

/** The calls of quern that a call stands for. They must not be moved, as they point into
 *  themselves. */
typedef struct calls {
    qn_attention_args forward;
    qn_attention_backward_args backward;
    qni_aotriton_view q, k, v, out, lse, dout, dq, dk, dv;
    int64_t bytes; // of the workspace behind the plan
} calls;

/** Fills in the forward pass, without a schedule: nobody reads it to find the workspace's size, for
 *  which anything aligned stands in its place. Tokens behind the last sequence are left out. */
static qn_status fill_forward(const qni_aotriton_call *c, sequences *s, calls *to) {
    DLTensor schedule = *c->q;
    schedule.data = (void *)(uintptr_t)16;
    schedule.byte_offset = 0;
    schedule.dtype = qni_dl_dtype(QNI_U8);
    schedule.ndim = 1, schedule.shape = &s->plan_bytes, schedule.strides = nullptr;
    to->forward =
        (qn_attention_args){.struct_size = sizeof to->forward,
                            .o = qni_aotriton_make_view(&to->out, c->out, 3, tokens_first),
                            .q = qni_aotriton_make_view(&to->q, c->q, 3, tokens_first),
                            .k = qni_aotriton_make_view(&to->k, c->k, 3, tokens_first),
                            .v = qni_aotriton_make_view(&to->v, c->v, 3, tokens_first),
                            .layout = QN_NHD,
                            .is_causal = c->is_causal != 0,
                            .is_top_left = 1,
                            .plan = s->plan,
                            .plan_bytes = s->plan_bytes,
                            .schedule = s->schedule_bytes > 0 ? &schedule : nullptr,
                            .lse_base = QN_LSE_BASE_E};
    to->forward.lse = qni_aotriton_make_view(&to->lse, c->softmax_lse, 2, lse_tokens_first);
    to->backward =
        (qn_attention_backward_args){.struct_size = sizeof to->backward, .forward = &to->forward};
    to->q.shape[0] = to->out.shape[0] = to->lse.shape[0] = s->cu_q[s->count];
    QN_TRY(qni_aotriton_under(
        c->op, qn_attention_backward_workspace_bytes(&to->bytes, c->stream, &to->backward)));
    to->forward.schedule = nullptr;
    return QN_OK;
}

/** Runs the backward pass, whose workspace lies behind the plan. */
static qn_status run_backward(qni_aotriton_call *c, sequences *s, calls *to) {
    DLTensor *workspace, schedule, rest;
    QN_TRY(qni_aotriton_take_workspace(c, s->schedule_bytes + to->bytes, &workspace));
    QN_TRY(send_plan(c, s, workspace, &schedule, &to->forward));
    if (to->bytes > 0) {
        rest = part_of(workspace, s->schedule_bytes, &to->bytes);
        to->backward.workspace = &rest;
    }
    to->forward.sm_scale = c->sm_scale;
    to->backward.d_o = qni_aotriton_make_view(&to->dout, c->dout, 3, tokens_first);
    to->backward.dq = qni_aotriton_make_view(&to->dq, c->dq, 3, tokens_first);
    to->backward.dk = qni_aotriton_make_view(&to->dk, c->dk, 3, tokens_first);
    to->backward.dv = qni_aotriton_make_view(&to->dv, c->dv, 3, tokens_first);
    to->dout.shape[0] = to->dq.shape[0] = s->cu_q[s->count];
    return qni_aotriton_run_backward(c, &to->forward, &to->backward);
}

static qn_status differentiate(qni_aotriton_call *c, int64_t max_q, int64_t max_k) {
    sequences s = {};
    calls to;
    qn_status st;
    QN_TRY_OUT(qni_aotriton_read_operands(c, 1));
    QN_TRY_OUT(qni_aotriton_read_outputs(c, false));
    QN_TRY_OUT(check_no_b(c, "b", c->b));
    QN_TRY_OUT(check_no_b(c, "db", c->db));
    QN_TRY_OUT(qni_aotriton_read_gradients(c));
    QN_TRY_OUT(qni_aotriton_check_scalars(c));
    QN_TRY_OUT(read_sequences(c, max_q, max_k, &s));
    QN_TRY_OUT(make_plan(c, max_q, max_k, &s));
    QN_TRY_OUT(fill_forward(c, &s, &to));
    QN_TRY_OUT(run_backward(c, &s, &to));
out:
    free_sequences(&s);
    return st;
}

qn_status qn_aotriton_attn_bwd_compact_varlen(
    const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *cu_seqlens_q,
    const DLTensor *cu_seqlens_k, int32_t max_seqlen_q, int32_t max_seqlen_k, const DLTensor *b,
    float sm_scale, const DLTensor *out, const DLTensor *dout, DLTensor *dq, DLTensor *dk,
    DLTensor *dv, DLTensor *db, const DLTensor *softmax_lse, const DLTensor *delta, float dropout_p,
    const DLTensor *philox_seed, const DLTensor *philox_offset1, int64_t philox_offset2,
    int32_t is_causal, qn_stream *stream, const qn_aotriton_ext *ext) {
    (void)delta;
    qni_aotriton_call c = {QNI_AOTRITON_BACKWARD("aotriton_attn_bwd_compact_varlen"),
                           .cu_seqlens_q = cu_seqlens_q, .cu_seqlens_k = cu_seqlens_k};
    return differentiate(&c, max_seqlen_q, max_seqlen_k);
}

qn_status qn_aotriton_attn_bwd_compact_varlen_workspace_bytes(
    qn_stream *stream, int64_t *bytes, const DLTensor *q, const DLTensor *k, const DLTensor *v,
    const DLTensor *out, const DLTensor *softmax_lse, const DLTensor *cu_seqlens_q,
    const DLTensor *cu_seqlens_k) {
    qni_aotriton_call c = {.op = "aotriton_attn_bwd_compact_varlen_workspace_bytes",
                           .stream = stream,
                           .q = q,
                           .k = k,
                           .v = v,
                           .out = out,
                           .softmax_lse = softmax_lse,
                           .cu_seqlens_q = cu_seqlens_q,
                           .cu_seqlens_k = cu_seqlens_k};
    sequences s = {};
    calls to;
    qn_status st;
    if (!bytes)
        return QN_FAIL(QN_E_INVALID, "%s: bytes is null", c.op);
    QN_TRY_OUT(qni_aotriton_read_operands(&c, 1));
    QN_TRY_OUT(qni_aotriton_read_outputs(&c, false));
    QN_TRY_OUT(read_sequences(&c, INT32_MAX, INT32_MAX, &s));
    QN_TRY_OUT(make_plan(&c, 0, 0, &s));
    QN_TRY_OUT(fill_forward(&c, &s, &to));
    *bytes = s.schedule_bytes + to.bytes;
out:
    free_sequences(&s);
    return st;
}
