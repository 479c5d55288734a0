// SPDX-License-Identifier: Apache-2.0
// Checks of AOTriton's calls under AOTriton's names, dropout's numbers, the workspace, and the run.
#include "aotriton.h"

#include <math.h>

qn_status qni_aotriton_check_on_either(const qn_stream *stream, const char *op, const char *name,
                                       const DLTensor *t, int ndim) {
    if (!t)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null", op, name);
    DLTensor there = *t;
    if (t->device.device_type == kDLCPU)
        there.device = stream->device->id;
    return qni_check_tensor(stream, op, name, &there, ndim);
}

// ---- numbers

static qn_status check_number(const qn_stream *stream, const char *op, const char *name,
                              const DLTensor *t) {
    char text[128];
    qn_status st;
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    QN_TRY(qni_aotriton_check_on_either(stream, op, name, t, t->ndim == 0 ? 0 : 1));
    const bool is_64 = (t->dtype.code == kDLInt || t->dtype.code == kDLUInt) &&
                       t->dtype.bits == 64 && t->dtype.lanes == 1;
    if (!is_64 || qni_numel(t) != 1)
        return QN_FAIL(is_64 ? QN_E_INVALID : QN_E_UNSUPPORTED,
                       "%s: %s is %s; accepted: one u64 or i64", op, name,
                       qni_tensor_text(t, text, sizeof text));
out:
    return st;
}

qn_status qni_aotriton_read_number(qn_stream *stream, const char *op, const char *name,
                                   const DLTensor *t, uint64_t *out) {
    qn_status st;
    *out = 0;
    QN_TRY(check_number(stream, op, name, t));
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    DLTensor host = qni_host_tensor(out, t->dtype, t->ndim, t->shape);
    QN_TRY(qni_aotriton_under(op, qn_copy(stream, &host, t)));
out:
    return st;
}

static qn_status write_number(qn_stream *stream, const char *op, DLTensor *t, uint64_t value) {
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    const DLTensor host = qni_host_tensor(&value, t->dtype, t->ndim, t->shape);
    return qni_aotriton_under(op, qn_copy(stream, t, &host));
}

// ---- what both calls have

qn_status qni_aotriton_check_operand(const qni_aotriton_call *c, const char *name,
                                     const DLTensor *t) {
    char text[128];
    qn_status st;
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, 4));
    const qni_dtype dtype = qni_dtype_of(t);
    if (dtype != QNI_F32 && dtype != QNI_F16 && dtype != QNI_BF16)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s is %s; accepted: f32, f16, bf16", c->op, name,
                       qni_tensor_text(t, text, sizeof text));
out:
    return st;
}

qn_status qni_aotriton_check_operands(const qni_aotriton_call *c) {
    qn_status st;
    QN_TRY(qni_aotriton_check_operand(c, "q", c->q));
    QN_TRY(qni_aotriton_check_operand(c, "k", c->k));
    QN_TRY(qni_aotriton_check_operand(c, "v", c->v));
out:
    return st;
}

qn_status qni_aotriton_check_outputs(const qni_aotriton_call *c, int64_t rows) {
    const DLTensor *lse = c->softmax_lse;
    const int64_t *q = c->q->shape;
    const int64_t want[] = {q[0], q[1], q[2], c->v->shape[3]}, want_lse[] = {rows, q[2]};
    char text[128];
    qn_status st;
    QN_TRY(qni_aotriton_check_operand(c, "out", c->out));
    QN_TRY(qni_check_shape(c->op, "out", c->out, 4, want));
    if (!qni_aotriton_is_there(lse))
        return QN_OK;
    QN_TRY(qni_check_tensor(c->stream, c->op, "softmax_lse", lse, 2));
    if (qni_dtype_of(lse) != QNI_F32)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: softmax_lse is %s; accepted: f32", c->op,
                       qni_tensor_text(lse, text, sizeof text));
    QN_TRY(qni_check_shape(c->op, "softmax_lse", lse, 2, want_lse));
out:
    return st;
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

/** Checks all of dropout's numbers and reads those that go in. */
static qn_status take_dropout(const qni_aotriton_call *c, qn_attention_args *args) {
    qn_status st = QN_OK;
    if (!(c->dropout_p > 0))
        return QN_OK;
    QN_TRY(check_number(c->stream, c->op, "philox_seed_output", c->philox_seed_output));
    QN_TRY(check_number(c->stream, c->op, "philox_offset_output", c->philox_offset_output));
    QN_TRY(qni_aotriton_read_number(c->stream, c->op, "philox_seed", c->philox_seed,
                                    &args->dropout_seed));
    QN_TRY(qni_aotriton_read_number(c->stream, c->op, "philox_offset1", c->philox_offset1,
                                    &args->dropout_offset));
    args->dropout_p = c->dropout_p;
    args->dropout_offset += (uint64_t)c->philox_offset2;
out:
    return st;
}

qn_status qni_aotriton_run(const qni_aotriton_call *c, qn_attention_args *args) {
    qn_status st;
    QN_TRY(take_dropout(c, args));
    QN_TRY(qni_aotriton_under(c->op, qn_attention(c->stream, args)));
    if (args->dropout_p > 0) {
        QN_TRY(write_number(c->stream, c->op, c->philox_seed_output, args->dropout_seed));
        QN_TRY(write_number(c->stream, c->op, c->philox_offset_output, args->dropout_offset));
    }
out:
    return st;
}

qn_status qni_aotriton_take_workspace(const qni_aotriton_call *c, int64_t bytes, DLTensor **out) {
    DLTensor *w = c->ext ? c->ext->workspace : nullptr;
    const struct {
        const char *name;
        const DLTensor *t;
    } others[] = {{"q", c->q}, {"k", c->k},     {"v", c->v},
                  {"b", c->b}, {"out", c->out}, {"softmax_lse", c->softmax_lse}};
    qn_status st;
    *out = nullptr;
    if (bytes == 0)
        return QN_OK;
    if (!w)
        return QN_FAIL(QN_E_INVALID, "%s: ext has no workspace, needs one of %ld bytes", c->op,
                       (long)bytes);
    QN_TRY(qni_check_tensor(c->stream, c->op, "workspace", w, 1));
    if (qni_dtype_of(w) != QNI_U8 || (uintptr_t)qni_data(w) % 16 != 0)
        return QN_FAIL(QN_E_INVALID,
                       "%s: workspace has dtype %s at %p; accepted: u8 at a multiple of 16", c->op,
                       qni_dtype_name(qni_dtype_of(w)), qni_data(w));
    QN_TRY(qni_check_last_contiguous(c->op, "workspace", w));
    if (w->shape[0] < bytes)
        return QN_FAIL(QN_E_INVALID, "%s: workspace has %ld bytes, needs %ld", c->op,
                       (long)w->shape[0], (long)bytes);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (qni_aotriton_is_there(others[i].t))
            QN_TRY(qni_check_disjoint(c->op, "workspace", w, others[i].name, others[i].t));
    *out = w;
out:
    return st;
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
