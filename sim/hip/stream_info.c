// SPDX-License-Identifier: Apache-2.0
// Properties of streams, and the program's own functions in a stream's queue.
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

// ---- what a stream is

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    SIM_HIP_START();
    if (least)
        *least = SIM_LEAST_PRIORITY;
    if (greatest)
        *greatest = SIM_GREATEST_PRIORITY;
    return hipSuccess;
}

/** Tells how a stream was made, which the default stream was not. */
hipError_t hipStreamGetFlags(hipStream_t handle, unsigned *flags) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!handle || !flags)
        return sim_hip_result(hipErrorInvalidValue);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    *flags = stream->flags;
    return hipSuccess;
}

hipError_t hipStreamGetPriority(hipStream_t handle, int *priority) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream || !priority)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    *priority = stream->priority;
    return hipSuccess;
}

hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t *device) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream || !device)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    *device = (hipDevice_t)stream->device->id;
    return hipSuccess;
}

/** Gives the stream's address, which no two streams have at one time. */
hipError_t hipStreamGetId(hipStream_t handle, unsigned long long *id) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream || !id)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    *id = (uintptr_t)stream;
    return hipSuccess;
}

int hipGetStreamDeviceId(hipStream_t handle) {
    hipDevice_t device;
    return hipStreamGetDevice(handle, &device) == hipSuccess ? device : -1;
}

// ---- attributes: how calls that wait are to wait is kept and told; they all block

enum { ATTRIBUTE_POLICY = 3, ATTRIBUTE_PRIORITY = 8, POLICY_AUTO = 1, POLICY_BLOCK = 4 };

/** Sets how the program wishes to wait for a stream, the only attribute that HIP lets a program
 *  set. */
hipError_t hipStreamSetAttribute(hipStream_t handle, int attribute,
                                 const hipLaunchAttributeValue *value) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!value || !stream)
        return sim_hip_result(value ? hipErrorInvalidHandle : hipErrorInvalidValue);
    if (attribute != ATTRIBUTE_POLICY || value->number < POLICY_AUTO ||
        value->number > POLICY_BLOCK) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    pthread_mutex_lock(&sim_hip.lock);
    const bool captures = stream->capture;
    if (!captures)
        stream->wait_policy = value->number;
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(captures ? hipErrorStreamCaptureUnsupported : hipSuccess);
}

hipError_t hipStreamGetAttribute(hipStream_t handle, int attribute,
                                 hipLaunchAttributeValue *value) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!value || !stream)
        return sim_hip_result(value ? hipErrorInvalidHandle : hipErrorInvalidValue);
    if (attribute != ATTRIBUTE_POLICY && attribute != ATTRIBUTE_PRIORITY)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_hip.lock);
    const int policy = stream->wait_policy ? stream->wait_policy : POLICY_AUTO;
    value->number = attribute == ATTRIBUTE_POLICY ? policy : stream->priority;
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

/** Copies what hipStreamSetAttribute can set. */
hipError_t hipStreamCopyAttributes(hipStream_t to, hipStream_t from) {
    SIM_HIP_START();
    sim_stream *dst = sim_hip_stream(to);
    const sim_stream *src = sim_hip_stream(from);
    if (!dst || !src)
        return sim_hip_result(hipErrorInvalidHandle);
    pthread_mutex_lock(&sim_hip.lock);
    dst->wait_policy = src->wait_policy;
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

// ---- masks of compute units: kept and told

/** Returns the words that a mask of a device's units has. */
static uint32_t words_of(const sim_device *device) {
    return (device->chip->compute_units + 31) / 32;
}

/** Makes a stream that wishes for some units, or for all if the mask has none; bits behind the
 *  device's units say nothing. Launches run as if there were no wish. */
hipError_t hipExtStreamCreateWithCUMask(hipStream_t *out, uint32_t words, const uint32_t *mask) {
    SIM_HIP_START();
    if (!out || !words || !mask)
        return sim_hip_result(out ? hipErrorInvalidValue : hipErrorInvalidHandle);
    const uint32_t all = words_of(sim_hip_device());
    uint32_t *kept = calloc(all, sizeof *kept);
    hipError_t error = kept ? hipStreamCreate(out) : hipErrorOutOfMemory;
    if (error != hipSuccess) {
        free(kept);
        return sim_hip_result(error);
    }
    memcpy(kept, mask, (words < all ? words : all) * sizeof *kept);
    bool has_units = false;
    for (uint32_t i = 0; i < all; i++)
        has_units |= kept[i] != 0;
    if (has_units)
        (*out)->cu_mask = kept;
    else
        free(kept);
    return hipSuccess;
}

hipError_t hipExtStreamGetCUMask(hipStream_t handle, uint32_t words, uint32_t *mask) {
    SIM_HIP_START();
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    const uint32_t units = stream->device->chip->compute_units, all = words_of(stream->device);
    if (!mask || words < all)
        return sim_hip_result(hipErrorInvalidValue);
    for (uint32_t i = 0; i < all; i++) {
        const uint32_t left = units - 32 * i;
        mask[i] = stream->cu_mask ? stream->cu_mask[i]
                  : left < 32     ? (UINT32_C(1) << left) - 1
                                  : UINT32_MAX;
    }
    return hipSuccess;
}

// ---- the program's functions

typedef struct host_op {
    sim_op op;
    hipHostNodeParams call;
    hipStreamCallback_t callback; // in place of a function
    hipStream_t handle;
} host_op;

static hipError_t run_host(sim_stream *stream, sim_op *op) {
    const host_op *host = (host_op *)op;
    if (host->call.fn) {
        host->call.fn(host->call.userData);
        return hipSuccess;
    }
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = stream->device->error;
    pthread_mutex_unlock(&sim_hip.lock);
    host->callback(host->handle, error, host->call.userData);
    return hipSuccess;
}

static hipError_t queue_host(hipStream_t handle, host_op what) {
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return hipErrorContextIsDestroyed;
    host_op *op = malloc(sizeof *op);
    if (!op)
        return hipErrorOutOfMemory;
    *op = what;
    return sim_hip_queue(stream, &op->op, nullptr);
}

sim_op *sim_hip_host_op(const hipHostNodeParams *call) {
    host_op *op = malloc(sizeof *op);
    if (op)
        *op = (host_op){.op = {.run = run_host, .kind = SIM_OP_HOST, .bytes = sizeof *op},
                        .call = *call};
    return op ? &op->op : nullptr;
}

const hipHostNodeParams *sim_hip_host_of(const sim_op *op) {
    return &((const host_op *)op)->call;
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data) {
    SIM_HIP_START();
    if (!function)
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(queue_host(
        stream, (host_op){.op = {.run = run_host, .kind = SIM_OP_HOST, .bytes = sizeof(host_op)},
                          .call = {function, data}}));
}

/** Queues a callback. Unlike a host function, a callback runs after a failure too, and is told of
 *  the failure. */
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void *data,
                                unsigned flags) {
    SIM_HIP_START();
    if (!callback || flags)
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(queue_host(stream, (host_op){.op = {.run = run_host,
                                                              .kind = SIM_OP_HOST,
                                                              .is_marker = true,
                                                              .bytes = sizeof(host_op)},
                                                       .callback = callback,
                                                       .handle = stream,
                                                       .call.userData = data}));
}
