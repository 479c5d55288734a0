// SPDX-License-Identifier: Apache-2.0
// Reads the tensors of a call, each once: compares what a tensor is with what it must be.
#include "read.h"

#define FAIL(code, format, ...)                                                                    \
    QN_FAIL((code), "%s: %s " format, call->op, x->name __VA_OPT__(, ) __VA_ARGS__)

/** Reads the strides, and the bytes that the elements lie within. The shape has been counted. Where
 *  a stride leads to no element, it may be any number: it becomes a contiguous tensor's. */
static void read_place(qni_tensor *x) {
    const int64_t bytes = x->t->dtype.bits * x->t->dtype.lanes / 8;
    const bool is_empty = qni_is_empty(x->t);
    int64_t below = 0, above = is_empty ? 0 : bytes, dense = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        const bool leads_on = x->t->strides && x->size[i] > 1 && !is_empty;
        x->stride[i] = leads_on ? x->t->strides[i] : dense;
        dense *= x->size[i];
        const int64_t far = is_empty ? 0 : (x->size[i] - 1) * x->stride[i] * bytes;
        below += far < 0 ? far : 0;
        above += far > 0 ? far : 0;
    }
    x->begin = (uintptr_t)x->data + (uintptr_t)below;
    x->end = (uintptr_t)x->data + (uintptr_t)above;
}

static qn_status check_dtype(const qni_call *call, const qni_tensor *x) {
    const uint32_t accepted = x->dtypes | (x->like ? 1u << x->like->dtype : 0);
    char names[128];
    if (accepted == 0 || (x->dtype != QNI_DTYPE_NONE && accepted >> x->dtype & 1))
        return QN_OK;
    const char *const has = qni_dtype_text(x->t);
    if (!x->like)
        return FAIL(QN_E_UNSUPPORTED, "has dtype %s; accepted: %s", has,
                    qni_dtypes_text(x->dtypes, names, sizeof names));
    const char *const like = qni_dtype_name(x->like->dtype);
    if (!x->dtypes)
        return FAIL(QN_E_UNSUPPORTED, "has dtype %s, needs %s's, %s", has, x->like->name, like);
    return FAIL(QN_E_UNSUPPORTED, "has dtype %s; accepted: %s's (%s) and %s", has, x->like->name,
                like, qni_dtypes_text(x->dtypes, names, sizeof names));
}

static qn_status check_alignment(const qni_call *call, const qni_tensor *x) {
    if (x->align) {
        if ((uintptr_t)x->data % (uintptr_t)x->align != 0)
            return FAIL(QN_E_INVALID, "begins at %p, needs a multiple of %d bytes", x->data,
                        x->align);
        return QN_OK;
    }
    const int64_t bytes = x->dtype == QNI_DTYPE_NONE ? 1 : qni_dtype_bytes(x->dtype);
    if ((uintptr_t)x->data % (uintptr_t)bytes != 0)
        return FAIL(QN_E_INVALID, "begins at %p, needs a multiple of its %ld-byte elements",
                    x->data, (long)bytes);
    return QN_OK;
}

bool qni_is_on_host(const DLTensor *t) {
    return t->device.device_type == kDLCPU && t->device.device_id == 0;
}

/** Checks sizes, data and device. */
static qn_status check_tensor(const qni_call *call, const qni_tensor *x) {
    if (!x->may_be_on_host || !call->stream || !x->t || !qni_is_on_host(x->t))
        return qni_check_tensor(call->stream, call->op, x->name, x->t, x->ndim);
    DLTensor there = *x->t;
    there.device = call->stream->device->id;
    return qni_check_tensor(call->stream, call->op, x->name, &there, x->ndim);
}

static qn_status read_tensor(const qni_call *call, qni_tensor *x) {
    QN_TRY(check_tensor(call, x));
    x->data = qni_data(x->t);
    x->dtype = qni_dtype_of(x->t);
    x->size = x->t->shape;
    read_place(x);
    QN_TRY(check_dtype(call, x));
    if (x->shape)
        QN_TRY(qni_check_shape(call->op, x->name, x->t, x->ndim, x->shape));
    x->shape = nullptr; // the caller's array may end before x does
    if (x->has_rows)
        QN_TRY(qni_check_last_contiguous(call->op, x->name, x->t));
    if (x->is_written)
        QN_TRY(qni_check_elements_apart(call->op, x->name, x->t));
    return check_alignment(call, x);
}

qn_status qni_read_tensors(const qni_call *call, qni_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        if (tensors[i].t || !tensors[i].may_be_null)
            QN_TRY(read_tensor(call, &tensors[i]));
    return QN_OK;
}

/** Checks that a tensor x, which is written, and another tensor do not overlap. Memory of the host
 *  and of a device is apart. */
static qn_status check_pair(const qni_call *call, const qni_tensor *x, const qni_tensor *other) {
    if (!other->t || x->begin >= other->end || other->begin >= x->end ||
        x->t->device.device_type != other->t->device.device_type)
        return QN_OK;
    if (x->may_be != other)
        return qni_check_disjoint(call->op, x->name, x->t, other->name, other->t);
    if (qni_is_same_memory(x->t, other->t) || !qni_can_meet(x->t, other->t))
        return QN_OK;
    return FAIL(QN_E_INVALID, "overlaps %s without being %s itself", other->name, other->name);
}

qn_status qni_check_apart(const qni_call *call, const qni_tensor *tensors, int count) {
    for (int w = 0; w < count; w++)
        for (int i = 0; tensors[w].is_written && tensors[w].t && i < count; i++)
            if (i < w || !tensors[i].is_written)
                QN_TRY(check_pair(call, &tensors[w], &tensors[i]));
    return QN_OK;
}
