// SPDX-License-Identifier: Apache-2.0
// Calls of a driver, and what HIP's driver and CUDA's do alike. For hip.c and cuda.c, each of which
// defines before:
//
//   ON_DEVICE(device, function, …)          calls the function on the device; 0: it succeeded
//   DRIVER_FAILED(device, error, call, …)   the status of a failed call, with a message
//   driver_function                         the driver's type of a kernel
#ifndef QNI_DRIVER_CALLS_H
#define QNI_DRIVER_CALLS_H

#include "../runtime.h"

#define UNPACK(...) __VA_ARGS__
/** Calls a driver's function on the device, or returns its failure: the function's name, what it
 *  was about, and where. */
#define TRY_ON(device, function, arguments, about, ...)                                            \
    do {                                                                                           \
        const int error_of_call = ON_DEVICE(device, function, UNPACK arguments);                   \
        if (error_of_call != 0)                                                                    \
            return DRIVER_FAILED(device, error_of_call,                                            \
                                 #function about " on %s" __VA_OPT__(, ) __VA_ARGS__,              \
                                 (device)->info.spec);                                             \
    } while (0)

static qn_status stream_sync(qn_stream *stream) {
    TRY_ON(stream->device, StreamSynchronize, (stream->native), "");
    return QN_OK;
}

static void stream_destroy(qn_device *device, void *native) {
    ON_DEVICE(device, StreamDestroy, native);
}

static void event_destroy(qn_device *device, void *native) {
    ON_DEVICE(device, EventDestroy, native);
}

static qn_status event_record(qn_event *event, qn_stream *stream) {
    TRY_ON(stream->device, EventRecord, (event->native, stream->native), "");
    return QN_OK;
}

static qn_status event_sync(qn_event *event) {
    TRY_ON(event->device, EventSynchronize, (event->native), "");
    return QN_OK;
}

static qn_status event_elapsed(int64_t *out_ns, qn_event *start, qn_event *end) {
    float ms = 0;
    TRY_ON(start->device, EventElapsedTime, (&ms, start->native, end->native), "");
    *out_ns = (int64_t)((double)ms * 1e6 + 0.5); // a float near the driver's nanoseconds
    return QN_OK;
}

static void image_unload(qn_device *device, void *native_module) {
    ON_DEVICE(device, ModuleUnload, native_module);
}

static qn_status kernel_get(qn_device *device, void **native_kernel, void *native_module,
                            const char *entry) {
    driver_function function = nullptr;
    TRY_ON(device, ModuleGetFunction, (&function, native_module, entry), " of %s", entry);
    *native_kernel = function;
    return QN_OK;
}

#endif
