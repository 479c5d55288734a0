// SPDX-License-Identifier: Apache-2.0
// HIP's error codes: names, texts, the last one of each thread.
#include "../report/plain.h"
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>

static thread_local hipError_t last_error;
static thread_local const char
    *unsupported; // the call that gave hipErrorNotSupported last; may be null

hipError_t sim_hip_result(hipError_t error) {
    if (error == hipErrorNotSupported)
        unsupported = nullptr;
    if (error != hipSuccess && error != hipErrorNotReady)
        last_error = error;
    return error;
}

void sim_hip_report(const char *call, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    flockfile(stderr);
    fprintf(stderr, "quernsim: %s: ", call);
    sim_print_plain(stderr, text); // it may quote a code object
    fputc('\n', stderr);
    funlockfile(stderr);
}

hipError_t hipGetLastError(void) {
    hipError_t error = last_error;
    last_error = hipSuccess;
    return error;
}

hipError_t hipPeekAtLastError(void) {
    return last_error;
}

hipError_t sim_hip_unsupported(const char *call) {
    sim_hip_result(hipErrorNotSupported);
    unsupported = call;
    return hipErrorNotSupported;
}

const char *hipGetErrorString(hipError_t error) {
    static thread_local char text[128];
    if (error == hipErrorNotSupported && unsupported) {
        snprintf(text, sizeof text, "operation not supported: the simulated GPU has no %s",
                 unsupported);
        return text;
    }
    switch (error) {
#define HIP_ERROR(name, value, text)                                                               \
    case name:                                                                                     \
        return text;
#include "errors.def"
#undef HIP_ERROR
    }
    return "unrecognized error code";
}

/** Returns the name of an error; null if it is no error code. */
static const char *name_of(hipError_t error) {
    switch (error) {
#define HIP_ERROR(name, value, text)                                                               \
    case name:                                                                                     \
        return #name;
#include "errors.def"
#undef HIP_ERROR
    }
    return nullptr;
}

const char *hipGetErrorName(hipError_t error) {
    const char *name = name_of(error);
    return name ? name : "hipErrorUnknown";
}

hipError_t hipDrvGetErrorName(hipError_t error, const char **name) {
    if (!name || !name_of(error))
        return sim_hip_result(hipErrorInvalidValue);
    *name = name_of(error);
    return hipSuccess;
}

hipError_t hipDrvGetErrorString(hipError_t error, const char **text) {
    if (!text || !name_of(error))
        return sim_hip_result(hipErrorInvalidValue);
    *text = hipGetErrorString(error);
    return hipSuccess;
}

hipError_t hipExtGetLastError(void) {
    return hipGetLastError();
}
