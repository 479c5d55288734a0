// SPDX-License-Identifier: Apache-2.0
// Memory, streams, events and copies: this file checks arguments, and the device's backend does the
// work.
#include "../runtime.h"

#include <stdlib.h>
#include <string.h>

qn_status qn_malloc(qn_device *device, void **out, int64_t bytes) {
    if (!device || !out)
        return QN_FAIL(QN_E_INVALID, "malloc: %s is null", device ? "out" : "device");
    if (bytes < 0)
        return QN_FAIL(QN_E_INVALID, "malloc: bytes is %ld; it must be at least 0", (long)bytes);
    void *ptr = nullptr;
    const qn_status st = bytes ? device->backend->mem_alloc(device, &ptr, bytes) : QN_OK;
    if (st == QN_OK)
        *out = ptr;
    return st;
}

void qn_free(qn_device *device, void *ptr) {
    if (device && ptr)
        device->backend->mem_free(device, ptr);
}

static qn_status make_stream(qn_stream **out, qn_device *device, bool is_wrapped, void *native) {
    qn_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return QN_FAIL(QN_E_MEMORY, "stream: out of memory");
    *stream = (qn_stream){.device = device, .native = native, .is_wrapped = is_wrapped};
    const qn_status st =
        is_wrapped ? QN_OK : device->backend->stream_create(device, &stream->native);
    if (st != QN_OK) {
        free(stream);
        return st;
    }
    *out = stream;
    return QN_OK;
}

qn_status qn_stream_create(qn_stream **out, qn_device *device) {
    if (!device || !out)
        return QN_FAIL(QN_E_INVALID, "stream_create: %s is null", device ? "out" : "device");
    return make_stream(out, device, false, nullptr);
}

qn_status qn_stream_wrap(qn_stream **out, qn_device *device, void *native) {
    if (!device || !out)
        return QN_FAIL(QN_E_INVALID, "stream_wrap: %s is null", device ? "out" : "device");
    if (native && device->id.device_type == kDLCPU)
        return QN_FAIL(QN_E_INVALID, "stream_wrap: the CPU has no native streams; pass null");
    return make_stream(out, device, true, native);
}

void qn_stream_destroy(qn_stream *stream) {
    if (!stream)
        return;
    if (!stream->is_wrapped)
        stream->device->backend->stream_destroy(stream->device, stream->native);
    free(stream);
}

qn_status qn_stream_sync(qn_stream *stream) {
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "stream_sync: stream is null");
    return stream->device->backend->stream_sync(stream);
}

qn_device *qn_stream_device(const qn_stream *stream) {
    return stream ? stream->device : nullptr;
}

// ---- copies

enum { MAX_DIMS = 64 }; // as many as PyTorch's and NumPy's tensors have

static int64_t element_bytes(const DLTensor *t) {
    return t->dtype.bits * t->dtype.lanes / 8;
}

/** Copies between two layouts of one shape in host memory, dimension by dimension. */
static void copy_strided(const DLTensor *dst, const DLTensor *src, int dim, char *to,
                         const char *from) {
    const int64_t bytes = element_bytes(src);
    if (dim == src->ndim) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    const int64_t count = src->shape[dim];
    // A dimension of one index may have any stride.
    const int64_t to_step = count > 1 ? qni_stride(dst, dim) * bytes : bytes;
    const int64_t from_step = count > 1 ? qni_stride(src, dim) * bytes : bytes;
    if (dim == src->ndim - 1 && to_step == bytes && from_step == bytes) {
        memcpy(to, from, (size_t)(count * bytes));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        copy_strided(dst, src, dim + 1, to + i * to_step, from + i * from_step);
}

static bool is_host(const DLTensor *t) {
    return t->device.device_type == kDLCPU;
}

static qn_status copy_on_host(DLTensor *dst, const DLTensor *src, int64_t bytes) {
    if (qni_is_contiguous(dst) && qni_is_contiguous(src))
        qni_copy_host(qni_data(dst), qni_data(src), bytes);
    else
        copy_strided(dst, src, 0, qni_data(dst), qni_data(src));
    return QN_OK;
}

/** Copies with one side on the device. A strided host side goes through a contiguous copy. */
static qn_status copy_across(qn_stream *stream, DLTensor *dst, const DLTensor *src, int64_t bytes) {
    const qni_backend *backend = stream->device->backend;
    const DLTensor *host = is_host(dst) ? dst : src;
    qni_copy_kind kind = is_host(dst) ? QNI_COPY_TO_HOST : QNI_COPY_TO_DEVICE;
    if (qni_is_contiguous(host))
        return backend->copy(stream, qni_data(dst), qni_data(src), bytes, kind);
    void *staging = malloc((size_t)bytes);
    if (!staging)
        return QN_FAIL(QN_E_MEMORY, "copy: out of memory for %ld bytes", (long)bytes);
    DLTensor packed = *host;
    packed.data = staging;
    packed.byte_offset = 0;
    packed.strides = nullptr;
    qn_status st;
    if (kind == QNI_COPY_TO_DEVICE) {
        copy_strided(&packed, src, 0, staging, qni_data(src));
        st = backend->copy(stream, qni_data(dst), staging, bytes, kind);
    } else {
        st = backend->copy(stream, staging, qni_data(src), bytes, kind);
        if (st == QN_OK)
            copy_strided(dst, &packed, 0, qni_data(dst), staging);
    }
    free(staging);
    return st;
}

static qn_status check_side(qn_stream *stream, const char *name, const DLTensor *t) {
    static qn_device host = {.info = {.spec = "cpu"}, .id = {kDLCPU, 0}};
    const qn_stream host_stream = {.device = &host};
    if (t && (t->ndim < 0 || t->ndim > MAX_DIMS))
        return QN_FAIL(QN_E_INVALID, "copy: %s has %d dimensions; accepted: 0 to %d", name, t->ndim,
                       MAX_DIMS);
    if (t && is_host(t))
        return qni_check_tensor(&host_stream, "copy", name, t, t->ndim);
    const qn_status st = qni_check_tensor(stream, "copy", name, t, t ? t->ndim : 0);
    if (st == QN_OK && !qni_is_contiguous(t))
        return QN_FAIL(QN_E_UNSUPPORTED, "copy: %s is strided; on a device it must be contiguous",
                       name);
    return st;
}

static qn_status check_pair(const DLTensor *dst, const DLTensor *src) {
    char to[256], from[256];
    bool equal = dst->dtype.code == src->dtype.code && dst->dtype.bits == src->dtype.bits &&
                 dst->dtype.lanes == src->dtype.lanes && dst->ndim == src->ndim;
    for (int i = 0; equal && i < src->ndim; i++)
        equal = dst->shape[i] == src->shape[i];
    if (!equal)
        return QN_FAIL(QN_E_INVALID, "copy: dst is %s, src is %s; shapes and dtypes must be equal",
                       qni_tensor_text(dst, to, sizeof to),
                       qni_tensor_text(src, from, sizeof from));
    if (src->dtype.bits * src->dtype.lanes % 8 != 0 || src->dtype.bits == 0)
        return QN_FAIL(QN_E_UNSUPPORTED, "copy: elements of %d bits; whole bytes are accepted",
                       src->dtype.bits * src->dtype.lanes);
    return QN_OK;
}

qn_status qn_copy(qn_stream *stream, DLTensor *dst, const DLTensor *src) {
    qn_status st = QN_OK;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "copy: stream is null");
    QN_TRY(check_side(stream, "dst", dst));
    QN_TRY(check_side(stream, "src", src));
    QN_TRY(check_pair(dst, src));
    const int64_t bytes = qni_numel(src) * element_bytes(src);
    if (bytes == 0)
        return st;
    if (is_host(dst) && is_host(src))
        st = copy_on_host(dst, src, bytes);
    else if (is_host(dst) || is_host(src))
        st = copy_across(stream, dst, src, bytes);
    else
        st = stream->device->backend->copy(stream, qni_data(dst), qni_data(src), bytes,
                                           QNI_COPY_ON_DEVICE);
    return st;
}

// ---- events

qn_status qn_event_create(qn_event **out, qn_device *device) {
    if (!device || !out)
        return QN_FAIL(QN_E_INVALID, "event_create: %s is null", device ? "out" : "device");
    qn_event *event = calloc(1, sizeof *event);
    if (!event)
        return QN_FAIL(QN_E_MEMORY, "event_create: out of memory");
    event->device = device;
    const qn_status st = device->backend->event_create(device, &event->native);
    if (st != QN_OK) {
        free(event);
        return st;
    }
    *out = event;
    return QN_OK;
}

void qn_event_destroy(qn_event *event) {
    if (!event)
        return;
    event->device->backend->event_destroy(event->device, event->native);
    free(event);
}

qn_status qn_event_record(qn_event *event, qn_stream *stream) {
    if (!event || !stream)
        return QN_FAIL(QN_E_INVALID, "event_record: %s is null", event ? "stream" : "event");
    if (event->device != stream->device)
        return QN_FAIL(QN_E_INVALID, "event_record: the event is on %s, the stream on %s",
                       event->device->info.spec, stream->device->info.spec);
    return event->device->backend->event_record(event, stream);
}

qn_status qn_event_sync(qn_event *event) {
    if (!event)
        return QN_FAIL(QN_E_INVALID, "event_sync: event is null");
    return event->device->backend->event_sync(event);
}

qn_status qn_event_elapsed(int64_t *out_ns, qn_event *start, qn_event *end) {
    if (!out_ns || !start || !end)
        return QN_FAIL(QN_E_INVALID, "event_elapsed: %s is null",
                       !out_ns ? "out_ns" : (!start ? "start" : "end"));
    if (start->device != end->device)
        return QN_FAIL(QN_E_INVALID, "event_elapsed: start is on %s, end on %s",
                       start->device->info.spec, end->device->info.spec);
    if (!start->device->info.has_clock)
        return QN_FAIL(QN_E_UNSUPPORTED, "event_elapsed: %s has no clock",
                       start->device->info.spec);
    return start->device->backend->event_elapsed(out_ns, start, end);
}
