// SPDX-License-Identifier: Apache-2.0
// Checks of AOTriton's calls under AOTriton's names, dropout's numbers, the workspace, and the run.
#include "aotriton.h"

#include <math.h>

qn_status qni_aotriton_check_on_either(const qn_stream *stream, const char *op, const char *name,
                                       const DLTensor *t, int ndim) {
    if (!t)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null", op, name);
    DLTensor there = *t;
    if (t->device.device_type == kDLCPU && t->device.device_id == 0)
        there.device = stream->device->id;
    return qni_check_tensor(stream, op, name, &there, ndim);
}

// ---- numbers

static qn_status check_number(const qn_stream *stream, const char *op, const char *name,
                              const DLTensor *t) {
    char text[128];
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    QN_TRY(qni_aotriton_check_on_either(stream, op, name, t, t->ndim == 0 ? 0 : 1));
    const bool is_64 = (t->dtype.code == kDLInt || t->dtype.code == kDLUInt) &&
                       t->dtype.bits == 64 && t->dtype.lanes == 1;
    if (!is_64 || qni_numel(t) != 1)
        return QN_FAIL(is_64 ? QN_E_INVALID : QN_E_UNSUPPORTED,
                       "%s: %s is %s; accepted: one u64 or i64", op, name,
                       qni_tensor_text(t, text, sizeof text));
    return QN_OK;
}

qn_status qni_aotriton_read_number(qn_stream *stream, const char *op, const char *name,
                                   const DLTensor *t, uint64_t *out) {
    *out = 0;
    QN_TRY(check_number(stream, op, name, t));
    if (!qni_aotriton_is_there(t))
        return QN_OK;
    DLTensor host = qni_host_tensor(out, t->dtype, t->ndim, t->shape);
    return qni_aotriton_under(op, qn_copy(stream, &host, t));
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
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, 4));
    const qni_dtype dtype = qni_dtype_of(t);
    if (dtype != QNI_F32 && dtype != QNI_F16 && dtype != QNI_BF16)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s is %s; accepted: f32, f16, bf16", c->op, name,
                       qni_tensor_text(t, text, sizeof text));
    return QN_OK;
}

qn_status qni_aotriton_check_operands(const qni_aotriton_call *c) {
    QN_TRY(qni_aotriton_check_operand(c, "q", c->q));
    QN_TRY(qni_aotriton_check_operand(c, "k", c->k));
    return qni_aotriton_check_operand(c, "v", c->v);
}

qn_status qni_aotriton_check_outputs(const qni_aotriton_call *c, int64_t rows) {
    const DLTensor *lse = c->softmax_lse;
    const int64_t *q = c->q->shape;
    const int64_t want[] = {q[0], q[1], q[2], c->v->shape[3]}, want_lse[] = {rows, q[2]};
    char text[128];
    QN_TRY(qni_aotriton_check_operand(c, "out", c->out));
    QN_TRY(qni_check_shape(c->op, "out", c->out, 4, want));
    if (!qni_aotriton_is_there(lse))
        return QN_OK;
    QN_TRY(qni_check_tensor(c->stream, c->op, "softmax_lse", lse, 2));
    if (qni_dtype_of(lse) != QNI_F32)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: softmax_lse is %s; accepted: f32", c->op,
                       qni_tensor_text(lse, text, sizeof text));
    return qni_check_shape(c->op, "softmax_lse", lse, 2, want_lse);
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

/** Reads the numbers that go into dropout. These numbers, and those that come out, have been
 *  checked. */
static qn_status take_dropout(const qni_aotriton_call *c, qn_attention_args *args) {
    if (!(c->dropout_p > 0))
        return QN_OK;
    QN_TRY(qni_aotriton_read_number(c->stream, c->op, "philox_seed", c->philox_seed,
                                    &args->dropout_seed));
    QN_TRY(qni_aotriton_read_number(c->stream, c->op, "philox_offset1", c->philox_offset1,
                                    &args->dropout_offset));
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

static qn_status check_workspace(const qni_aotriton_call *c, const DLTensor *w, int64_t bytes) {
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
    return QN_OK;
}

typedef struct named_tensor {
    const char *name;
    const DLTensor *t;
} named_tensor;

/** Checks that two tensors do not overlap. Each has been checked or is absent; memory of the host
 *  and of a device is apart. */
static qn_status check_pair(const char *op, const named_tensor *a, const named_tensor *b) {
    if (!qni_aotriton_is_there(a->t) || !qni_aotriton_is_there(b->t) ||
        a->t->device.device_type != b->t->device.device_type)
        return QN_OK;
    return qni_check_disjoint(op, a->name, a->t, b->name, b->t);
}

/** Checks that no output overlaps another tensor; dropout's numbers count only if there is
 *  dropout. */
static qn_status check_apart(const qni_aotriton_call *c, const DLTensor *workspace) {
    const bool drops = c->dropout_p > 0;
    const named_tensor written[] = {{"workspace", workspace},
                                    {"out", c->out},
                                    {"softmax_lse", c->softmax_lse},
                                    {"philox_seed_output", drops ? c->philox_seed_output : nullptr},
                                    {"philox_offset_output",
                                     drops ? c->philox_offset_output : nullptr}},
                       read[] = {{"q", c->q},
                                 {"k", c->k},
                                 {"v", c->v},
                                 {"b", c->b},
                                 {"cu_seqlens_q", c->cu_seqlens_q},
                                 {"cu_seqlens_k", c->cu_seqlens_k},
                                 {"philox_seed", drops ? c->philox_seed : nullptr},
                                 {"philox_offset1", drops ? c->philox_offset1 : nullptr}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        for (size_t k = 0; k < sizeof read / sizeof *read; k++)
            QN_TRY(check_pair(c->op, &written[i], &read[k]));
        for (size_t k = 0; k < i; k++)
            QN_TRY(check_pair(c->op, &written[i], &written[k]));
    }
    return QN_OK;
}

static qn_status check_numbers(const qni_aotriton_call *c) {
    const named_tensor numbers[] = {{"philox_seed", c->philox_seed},
                                    {"philox_offset1", c->philox_offset1},
                                    {"philox_seed_output", c->philox_seed_output},
                                    {"philox_offset_output", c->philox_offset_output}};
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && c->dropout_p > 0 && i < sizeof numbers / sizeof *numbers; i++)
        st = check_number(c->stream, c->op, numbers[i].name, numbers[i].t);
    return st;
}

qn_status qni_aotriton_take_workspace(const qni_aotriton_call *c, int64_t bytes, DLTensor **out) {
    DLTensor *w = bytes > 0 && c->ext ? c->ext->workspace : nullptr;
    if (bytes > 0)
        QN_TRY(check_workspace(c, w, bytes));
    QN_TRY(check_numbers(c));
    QN_TRY(check_apart(c, w));
    *out = w;
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
