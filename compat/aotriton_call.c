// SPDX-License-Identifier: Apache-2.0
// The tensors of AOTriton's calls, read once each under AOTriton's names; dropout's numbers, the
// workspace, and the run.
#include "aotriton.h"

#include <math.h>

// ---- numbers

/** States one number, on the host or on the device; one that is absent is null. */
static qni_tensor number_of(const char *name, const DLTensor *t, bool is_written) {
    static const int64_t one = 1;
    const DLTensor *given = qni_aotriton_is_there(t) ? t : nullptr;
    return (qni_tensor){.name = name,
                        .t = given,
                        .ndim = given && t->ndim == 0 ? 0 : 1,
                        .dtypes = 1u << QNI_I64 | 1u << QNI_U64,
                        .shape = &one,
                        .may_be_null = true,
                        .may_be_on_host = true,
                        .is_written = is_written};
}

/** Copies a number that has been read to the host; 0 if it is absent. */
static qn_status take_number(qn_stream *stream, const char *op, const qni_tensor *x,
                             uint64_t *out) {
    *out = 0;
    if (!x->t)
        return QN_OK;
    DLTensor host = qni_host_tensor(out, x->t->dtype, x->t->ndim, x->t->shape);
    return qni_aotriton_under(op, qn_copy(stream, &host, x->t));
}

qn_status qni_aotriton_read_number(qn_stream *stream, const char *op, const char *name,
                                   const DLTensor *t, uint64_t *out) {
    qni_tensor x = number_of(name, t, false);
    QN_TRY(qni_read_tensors(&(qni_call){op, stream}, &x, 1));
    return take_number(stream, op, &x, out);
}

static qn_status write_number(qn_stream *stream, const char *op, DLTensor *t, uint64_t value) {
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    const DLTensor host = qni_host_tensor(&value, t->dtype, t->ndim, t->shape);
    return qni_aotriton_under(op, qn_copy(stream, t, &host));
}

// ---- what both calls have

qn_status qni_aotriton_read(qni_aotriton_call *c, int which, qni_tensor stated) {
    c->t[which] = stated;
    return qni_read_tensors(&(qni_call){c->op, c->stream}, &c->t[which], 1);
}

qn_status qni_aotriton_read_operands(qni_aotriton_call *c, int64_t batch) {
    const qni_tensor *k = &c->t[QNI_AOT_K];
    const int64_t shape_q[] = {batch, -1, -1, -1};
    QN_TRY(qni_aotriton_read(
        c, QNI_AOT_Q,
        (qni_tensor){"q", c->q, 4, qni_of_floats, .shape = shape_q, .has_rows = true}));
    const int64_t shape_k[] = {c->q->shape[0], -1, -1, c->q->shape[3]};
    QN_TRY(qni_aotriton_read(
        c, QNI_AOT_K,
        (qni_tensor){"k", c->k, 4, qni_of_floats, .shape = shape_k, .has_rows = true}));
    const int64_t shape_v[] = {k->size[0], k->size[1], k->size[2], -1};
    return qni_aotriton_read(
        c, QNI_AOT_V, (qni_tensor){"v", c->v, 4, .like = k, .shape = shape_v, .has_rows = true});
}

qn_status qni_aotriton_read_b(qni_aotriton_call *c) {
    const DLTensor *b = c->b;
    const int64_t *q = c->q->shape, want[] = {q[0], q[1], q[2], c->k->shape[2]};
    char text[128];
    if (!qni_aotriton_is_there(b))
        return QN_OK;
    if (c->is_causal)
        return QN_FAIL(QN_E_INVALID, "%s: b and is_causal are both given; accepted: one of them",
                       c->op);
    QN_TRY(qni_aotriton_read(
        c, QNI_AOT_B, (qni_tensor){.name = "b", .t = b, .ndim = 4, .dtypes = qni_of_floats}));
    for (int i = 0; i < 4; i++)
        if (b->shape[i] != 1 && b->shape[i] != want[i])
            return QN_FAIL(QN_E_INVALID, "%s: b is %s; its dimension %d needs to be 1 or %ld",
                           c->op, qni_tensor_text(b, text, sizeof text), i, (long)want[i]);
    return QN_OK;
}

qn_status qni_aotriton_read_outputs(qni_aotriton_call *c, bool are_written) {
    const int64_t *q = c->t[QNI_AOT_Q].size;
    const int64_t shape[] = {q[0], q[1], q[2], c->t[QNI_AOT_V].size[3]};
    const int64_t shape_lse[] = {q[0] * q[1], q[2]};
    const bool has_lse = !are_written || qni_aotriton_is_there(c->softmax_lse);
    QN_TRY(qni_aotriton_read(c, QNI_AOT_OUT,
                             (qni_tensor){.name = "out",
                                          .t = c->out,
                                          .ndim = 4,
                                          .dtypes = qni_of_floats,
                                          .shape = shape,
                                          .has_rows = true,
                                          .is_written = are_written}));
    return qni_aotriton_read(c, QNI_AOT_LSE,
                             (qni_tensor){.name = "softmax_lse",
                                          .t = has_lse ? c->softmax_lse : nullptr,
                                          .ndim = 2,
                                          .dtypes = qni_of_f32,
                                          .shape = shape_lse,
                                          .may_be_null = are_written,
                                          .is_written = are_written});
}

/** Reads the gradient by a tensor that has been read: of its shape, and of any type. */
static qn_status read_gradient(qni_aotriton_call *c, int which, const char *name, const DLTensor *t,
                               int by) {
    return qni_aotriton_read(c, which,
                             (qni_tensor){.name = name,
                                          .t = t,
                                          .ndim = 4,
                                          .dtypes = qni_of_floats,
                                          .shape = c->t[by].size,
                                          .has_rows = by != QNI_AOT_B,
                                          .is_written = true});
}

qn_status qni_aotriton_read_gradients(qni_aotriton_call *c) {
    const qni_tensor *out = &c->t[QNI_AOT_OUT];
    QN_TRY(qni_aotriton_read(
        c, QNI_AOT_DOUT,
        (qni_tensor){"dout", c->dout, 4, .like = out, .shape = out->size, .has_rows = true}));
    QN_TRY(read_gradient(c, QNI_AOT_DQ, "dq", c->dq, QNI_AOT_Q));
    QN_TRY(read_gradient(c, QNI_AOT_DK, "dk", c->dk, QNI_AOT_K));
    QN_TRY(read_gradient(c, QNI_AOT_DV, "dv", c->dv, QNI_AOT_V));
    if (!qni_aotriton_is_there(c->db))
        return QN_OK;
    if (!c->t[QNI_AOT_B].t)
        return QN_FAIL(QN_E_INVALID, "%s: db is given, b is not", c->op);
    return read_gradient(c, QNI_AOT_DB, "db", c->db, QNI_AOT_B);
}

qn_status qni_aotriton_check_scalars(const qni_aotriton_call *c) {
    const qn_aotriton_ext *ext = c->ext;
    if (qni_aotriton_is_there(c->encoded_softmax))
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: encoded_softmax is given, and must be absent; "
                       "qn_aotriton_debug_simulate_encoded_softmax tells what is dropped",
                       c->op);
    if (!isfinite(c->sm_scale) || !(fabsf(c->sm_scale) > 0))
        return QN_FAIL(QN_E_INVALID, "%s: sm_scale is %g; accepted: any finite number but 0", c->op,
                       (double)c->sm_scale);
    if (!(c->dropout_p >= 0 && c->dropout_p < 1))
        return QN_FAIL(QN_E_INVALID, "%s: dropout_p is %g; accepted: 0 to below 1", c->op,
                       (double)c->dropout_p);
    return ext ? QNI_CHECK_STRUCT(c->op, "ext", qn_aotriton_ext, ext) : QN_OK;
}

/** Reads the tensors of dropout's numbers; without dropout they are ignored. */
static qn_status read_numbers(qni_aotriton_call *c) {
    if (!(c->dropout_p > 0))
        return QN_OK;
    c->t[QNI_AOT_SEED] = number_of("philox_seed", c->philox_seed, false);
    c->t[QNI_AOT_OFFSET1] = number_of("philox_offset1", c->philox_offset1, false);
    c->t[QNI_AOT_SEED_OUTPUT] = number_of("philox_seed_output", c->philox_seed_output, true);
    c->t[QNI_AOT_OFFSET_OUTPUT] = number_of("philox_offset_output", c->philox_offset_output, true);
    return qni_read_tensors(&(qni_call){c->op, c->stream}, &c->t[QNI_AOT_SEED],
                            QNI_AOT_OFFSET_OUTPUT - QNI_AOT_SEED + 1);
}

static qn_status take_dropout(const qni_aotriton_call *c, qn_attention_args *args) {
    if (!(c->dropout_p > 0))
        return QN_OK;
    QN_TRY(take_number(c->stream, c->op, &c->t[QNI_AOT_SEED], &args->dropout_seed));
    QN_TRY(take_number(c->stream, c->op, &c->t[QNI_AOT_OFFSET1], &args->dropout_offset));
    args->dropout_p = c->dropout_p;
    args->dropout_offset += (uint64_t)c->philox_offset2;
    return QN_OK;
}

qn_status qni_aotriton_run(const qni_aotriton_call *c, qn_attention_args *args) {
    QN_TRY(take_dropout(c, args));
    QN_TRY(qni_aotriton_under(c->op, qn_attention(c->stream, args)));
    if (args->dropout_p > 0) {
        QN_TRY(write_number(c->stream, c->op, c->philox_seed_output, args->dropout_seed));
        QN_TRY(write_number(c->stream, c->op, c->philox_offset_output, args->dropout_offset));
    }
    return QN_OK;
}

qn_status qni_aotriton_run_backward(const qni_aotriton_call *c, qn_attention_args *forward,
                                    const qn_attention_backward_args *args) {
    QN_TRY(take_dropout(c, forward));
    return qni_aotriton_under(c->op, qn_attention_backward(c->stream, args));
}

static qn_status read_workspace(qni_aotriton_call *c, int64_t bytes) {
    DLTensor *w = c->ext ? c->ext->workspace : nullptr;
    if (!w)
        return QN_FAIL(QN_E_INVALID, "%s: ext has no workspace, needs one of %ld bytes", c->op,
                       (long)bytes);
    QN_TRY(qni_aotriton_read(c, QNI_AOT_WORKSPACE,
                             (qni_tensor){.name = "workspace",
                                          .t = w,
                                          .ndim = 1,
                                          .dtypes = 1u << QNI_U8,
                                          .align = 16,
                                          .has_rows = true,
                                          .is_written = true}));
    if (w->shape[0] < bytes)
        return QN_FAIL(QN_E_INVALID, "%s: workspace has %ld bytes, needs %ld", c->op,
                       (long)w->shape[0], (long)bytes);
    return QN_OK;
}

qn_status qni_aotriton_take_workspace(qni_aotriton_call *c, int64_t bytes, DLTensor **out) {
    if (bytes > 0)
        QN_TRY(read_workspace(c, bytes));
    QN_TRY(read_numbers(c));
    QN_TRY(qni_check_apart(&(qni_call){c->op, c->stream}, c->t, QNI_AOT_TENSORS));
    *out = bytes > 0 ? c->ext->workspace : nullptr;
    return QN_OK;
}

DLTensor *qni_aotriton_make_view(qni_aotriton_view *out, const DLTensor *t, int ndim,
                                 const int *dims) {
    out->t = *t;
    out->t.ndim = ndim;
    out->t.shape = out->shape;
    out->t.strides = out->strides;
    for (int i = 0; i < ndim; i++) {
        out->shape[i] = t->shape[dims[i]];
        out->strides[i] = qni_stride(t, dims[i]);
    }
    return &out->t;
}

DLTensor *qni_aotriton_view_lse(qni_aotriton_view *out, const qni_aotriton_call *c) {
    const int dims[] = {0, 0, 1};
    qni_aotriton_make_view(out, c->softmax_lse, 3, dims);
    out->shape[0] = c->q->shape[0], out->shape[1] = c->q->shape[1];
    out->strides[0] *= c->q->shape[1];
    return &out->t;
}
