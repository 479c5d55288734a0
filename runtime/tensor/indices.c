// SPDX-License-Identifier: Apache-2.0
// Checks the contents of index tensors and given scales before a launch: of indices on the CPU
// always, and of all on GPUs with QUERN_VALIDATE=1, which waits for the stream and reads them back.
#include "../runtime.h"

#include <stdlib.h>

static bool is_on_host(const qn_stream *stream) {
    return stream->device->id.device_type == kDLCPU;
}

bool qni_validates_indices(const qn_stream *stream) {
    return is_on_host(stream) || qni_env_get()->validate;
}

qn_status qni_read_indices(qn_stream *stream, const char *op, const char *name,
                           const int32_t *indices, int64_t count, const int32_t **out) {
    const qni_backend *backend = stream->device->backend;
    const int64_t bytes = count * (int64_t)sizeof **out;
    if (is_on_host(stream)) {
        *out = indices;
        return QN_OK;
    }
    int32_t *host = malloc((size_t)bytes + 1);
    if (!host)
        return QN_FAIL(QN_E_MEMORY, "%s: no memory for %ld bytes of %s", op, (long)bytes, name);
    qn_status st = QN_OK;
    if (bytes)
        QN_TRY_OUT(backend->copy(stream, host, indices, bytes, QNI_COPY_TO_HOST));
    QN_TRY_OUT(backend->stream_sync(stream));
    *out = host;
    host = nullptr;
out:
    free(host);
    return st;
}

void qni_release_indices(const qn_stream *stream, const int32_t *read) {
    if (!is_on_host(stream))
        free((void *)read);
}

qn_status qni_validate_range(qn_stream *stream, const char *op, const char *name,
                             const int32_t *indices, int64_t count, int64_t low, int64_t high) {
    const int32_t *host = nullptr;
    qn_status st;
    QN_TRY_OUT(qni_read_indices(stream, op, name, indices, count, &host));
    for (int64_t i = 0; st == QN_OK && i < count; i++)
        if (host[i] < low || host[i] >= high)
            st = QN_FAIL(QN_E_INVALID, "%s: %s[%ld] is %d; accepted: %ld to %ld", op, name, (long)i,
                         host[i], (long)low, (long)high - 1);
out:
    qni_release_indices(stream, host);
    return st;
}

qn_status qni_validate_rising(qn_stream *stream, const char *op, const char *name,
                              const int32_t *indptr, int64_t count, int64_t high) {
    const int32_t *host = nullptr;
    qn_status st;
    QN_TRY_OUT(qni_read_indices(stream, op, name, indptr, count, &host));
    for (int64_t i = 0; st == QN_OK && i < count; i++)
        if (host[i] < (i ? host[i - 1] : 0) || host[i] > high)
            st = QN_FAIL(QN_E_INVALID, "%s: %s[%ld] is %d; accepted: %d to %ld", op, name, (long)i,
                         host[i], i ? host[i - 1] : 0, (long)high);
out:
    qni_release_indices(stream, host);
    return st;
}

qn_status qni_validate_scale(qn_stream *stream, const char *op, const char *name,
                             const float *given) {
    const int32_t *bits = nullptr;
    qn_status st;
    if (!qni_env_get()->validate)
        return QN_OK;
    QN_TRY_OUT(qni_read_indices(stream, op, name, (const int32_t *)given, 1, &bits));
    const float scale = __builtin_bit_cast(float, *bits);
    if (!(scale > 0 && scale <= __FLT_MAX__))
        st = QN_FAIL(QN_E_INVALID, "%s: %s is %g; accepted: above 0, finite", op, name,
                     (double)scale);
out:
    qni_release_indices(stream, bits);
    return st;
}
