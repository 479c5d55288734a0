// SPDX-License-Identifier: Apache-2.0
// Values in memory that a stream writes, or waits for.
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct value_op {
    sim_op op;
    void *ptr;
    uint64_t value, mask;
    unsigned condition, unit; // unit: 4 or 8 bytes
} value_op;

enum { AT_LEAST, EQUAL, AND, NOR };

/** Returns the host's address of the value. */
static void *place(const value_op *v) {
    return sim_memory_host(sim_hip.memory, (uintptr_t)v->ptr, v->unit);
}

static hipError_t run_write(sim_stream *stream, sim_op *op) {
    (void)stream;
    const value_op *v = (value_op *)op;
    sim_memory_enter(sim_hip.memory);
    void *at = place(v);
    if (at && v->unit == 4)
        atomic_store((_Atomic uint32_t *)at, (uint32_t)v->value);
    else if (at)
        atomic_store((_Atomic uint64_t *)at, v->value);
    if (at)
        sim_memory_wrote(sim_hip.memory, (uintptr_t)v->ptr, v->unit);
    sim_memory_leave(sim_hip.memory);
    return at ? hipSuccess : hipErrorIllegalAddress;
}

/** Compares as signed numbers, as AMD's runtime does: "at least" is a difference that is not
 *  negative. */
static bool is_met(const value_op *v, uint64_t value) {
    const uint64_t got = value & v->mask, want = v->value & v->mask;
    const bool is_less =
        v->unit == 4 ? (int32_t)(uint32_t)(got - want) < 0 : (int64_t)(got - want) < 0;
    switch (v->condition) {
    case AT_LEAST:
        return !is_less;
    case EQUAL:
        return got == want;
    case AND:
        return got & want;
    default: // NOR
        return ~(got | want) & v->mask;
    }
}

/** Looks at the value once. Returns false if its memory has gone. */
static bool look(const value_op *v, bool *is_done) {
    sim_memory_enter(sim_hip.memory);
    void *at = place(v);
    *is_done = at && is_met(v, v->unit == 4 ? atomic_load((_Atomic uint32_t *)at)
                                            : atomic_load((_Atomic uint64_t *)at));
    sim_memory_leave(sim_hip.memory);
    return at;
}

/** Waits, seldom looking: whoever writes the value, perhaps the program itself, tells nobody. */
static hipError_t run_wait(sim_stream *stream, sim_op *op) {
    (void)stream;
    const struct timespec pause = {.tv_nsec = 20000};
    for (bool is_done = false, stops = false; !stops;) {
        if (!look((value_op *)op, &is_done))
            return hipErrorIllegalAddress;
        if (is_done)
            return hipSuccess;
        nanosleep(&pause, nullptr);
        pthread_mutex_lock(&sim_hip.lock);
        stops = sim_hip.is_stopping;
        pthread_mutex_unlock(&sim_hip.lock);
    }
    return hipErrorDeinitialized;
}

static bool is_good(const value_op *v) {
    return v->ptr && (uintptr_t)v->ptr % v->unit == 0 && place(v) && v->condition <= NOR;
}

static hipError_t queue(hipStream_t handle, value_op what) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    if (!is_good(&what))
        return sim_hip_result(hipErrorInvalidValue);
    value_op *op = malloc(sizeof *op);
    if (!op)
        return sim_hip_result(hipErrorOutOfMemory);
    *op = what;
    op->op.bytes = sizeof *op;
    return sim_hip_result(sim_hip_queue(stream, &op->op, nullptr));
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned flags) {
    (void)flags; // reserved, and ignored by AMD's runtime
    return queue(stream,
                 (value_op){.op = {.run = run_write}, .ptr = ptr, .value = value, .unit = 4});
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned flags) {
    (void)flags;
    return queue(stream,
                 (value_op){.op = {.run = run_write}, .ptr = ptr, .value = value, .unit = 8});
}

static hipError_t wait_value(hipStream_t stream, value_op v) {
    v.op.run = run_wait;
    return queue(stream, v);
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned flags,
                                uint32_t mask) {
    return wait_value(
        stream,
        (value_op){.ptr = ptr, .value = value, .mask = mask, .condition = flags, .unit = 4});
}

hipError_t hipStreamWaitValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned flags,
                                uint64_t mask) {
    return wait_value(
        stream,
        (value_op){.ptr = ptr, .value = value, .mask = mask, .condition = flags, .unit = 8});
}

// ---- several at a time

typedef struct batch_op {
    sim_op op;
    hipBatchMemOpNodeParams params; // of these the context, the count and the flags
    hipStreamBatchMemOpParams operations[];
} batch_op;

/** Reads one of the program's operations. Returns false if it is none that a stream can do. */
static bool read_operation(value_op *out, const hipStreamBatchMemOpParams *p) {
    enum { WAIT_32 = 1, WRITE_32 = 2, WAIT_64 = 4, WRITE_64 = 5 };
    const bool is_write = p->operation == WRITE_32 || p->operation == WRITE_64;
    const bool is_64 = p->operation == WAIT_64 || p->operation == WRITE_64;
    if (!is_write && !is_64 && p->operation != WAIT_32)
        return false;
    *out = (value_op){.op.run = is_write ? run_write : run_wait,
                      .ptr = p->value.address,
                      .value = is_64 ? p->value.value64 : p->value.value,
                      .mask = is_64 ? UINT64_MAX : UINT32_MAX,
                      .condition = is_write ? 0 : p->value.flags,
                      .unit = is_64 ? 8 : 4};
    return is_good(out);
}

static hipError_t run_batch(sim_stream *stream, sim_op *op) {
    const batch_op *batch = (batch_op *)op;
    hipError_t error = hipSuccess;
    for (unsigned i = 0; error == hipSuccess && i < batch->params.count; i++) {
        value_op v; // a graph's may be of memory that has gone since
        error = read_operation(&v, &batch->operations[i]) ? v.op.run(stream, &v.op)
                                                          : hipErrorIllegalAddress;
    }
    return error;
}

hipError_t sim_hip_batch_op(sim_op **out, const hipBatchMemOpNodeParams *p) {
    enum { MAX_OPERATIONS = 256 }; // of AMD's runtime
    if (!p->paramArray || p->flags || !p->count || p->count > MAX_OPERATIONS)
        return hipErrorInvalidValue;
    const size_t bytes = p->count * sizeof *p->paramArray;
    batch_op *batch = calloc(1, sizeof *batch + bytes);
    if (!batch)
        return hipErrorOutOfMemory;
    batch->op.run = run_batch;
    batch->op.bytes = sizeof *batch + bytes;
    batch->params = *p;
    memcpy(batch->operations, p->paramArray, bytes);
    value_op ignored;
    for (unsigned i = 0; i < p->count; i++)
        if (!read_operation(&ignored, &batch->operations[i])) {
            free(batch);
            return hipErrorInvalidValue;
        }
    *out = &batch->op;
    return hipSuccess;
}

hipBatchMemOpNodeParams sim_hip_batch_of(sim_op *op) {
    batch_op *batch = (batch_op *)op;
    hipBatchMemOpNodeParams p = batch->params;
    p.paramArray = batch->operations;
    return p;
}

/** Queues writes of values and waits for values as one operation of the stream, which does them in
 *  their order. */
hipError_t hipStreamBatchMemOp(hipStream_t handle, unsigned count,
                               hipStreamBatchMemOpParams *operations, unsigned flags) {
    SIM_HIP_START();
    sim_op *op;
    const hipError_t error = sim_hip_batch_op(
        &op, &(hipBatchMemOpNodeParams){.count = count, .paramArray = operations, .flags = flags});
    if (error != hipSuccess)
        return sim_hip_result(error);
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        free(op);
    return sim_hip_result(stream ? sim_hip_queue(stream, op, nullptr) : hipErrorContextIsDestroyed);
}
