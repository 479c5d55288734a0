// SPDX-License-Identifier: Apache-2.0
// Events: marks in a stream that the host and other streams can wait for.
#include "runtime.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct event_op {
    sim_op op;
    hipEvent_t event;
    uint64_t count;     // which record of the event
    sim_moment *moment; // of that
} event_op;

/** Releases a reference. The lock is held. */
static void release(hipEvent_t event) {
    if (--event->references)
        return;
    sim_capture_forget(event);
    sim_moment_release(event->moment);
    if (event->counts != &event->own)
        sim_event_unshare(event);
    free(event);
}

static void release_event(sim_op *op) {
    sim_moment_release(((event_op *)op)->moment);
    release(((event_op *)op)->event);
}

static hipError_t run_record(sim_stream *stream, sim_op *op) {
    event_op *record = (event_op *)op;
    const uint64_t ns = sim_host_ns();
    pthread_mutex_lock(&sim_hip.lock);
    record->event->ns = ns;
    sim_moment_follow(record->moment, stream->moment);
    sim_moment_follow(record->moment, op->host);
    sim_moment_close(record->moment);
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

/** Ends a record, also one that was not queued or will not be reached, so that nobody waits for it.
 *  This is one step with the stream's end of the operation, so that once an event has passed, its
 *  stream is done. */
static void pass_event(sim_op *op) {
    event_op *record = (event_op *)op;
    _Atomic uint64_t *passed = &record->event->counts->passed;
    for (uint64_t old = *passed; old < record->count;) // other processes may count too
        if (atomic_compare_exchange_weak(passed, &old, record->count))
            break;
    pthread_cond_broadcast(&sim_hip.changed);
    sim_moment_close(record->moment);
    release_event(op);
}

/** Gives the lock back for a moment, as no process tells another that an event has passed. */
static void look_again_later(void) {
    enum { MICROSECONDS = 20 };
    pthread_mutex_unlock(&sim_hip.lock);
    usleep(MICROSECONDS);
    pthread_mutex_lock(&sim_hip.lock);
}

/** Waits for a record of the event. The lock is held. */
static void wait_for(hipEvent_t event, uint64_t count) {
    event->references++;
    while (event->counts->passed < count && !sim_hip.is_stopping)
        if (event->counts == &event->own)
            pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
        else
            look_again_later();
    release(event);
}

static hipError_t run_wait(sim_stream *stream, sim_op *op) {
    const event_op *wait = (event_op *)op;
    pthread_mutex_lock(&sim_hip.lock);
    wait_for(wait->event, wait->count);
    if (wait->event->device == stream->device)
        sim_hip_time_wait(stream, wait->moment);
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

bool sim_hip_is_event(hipEvent_t event) {
    return event && sim_handle_is(SIM_HANDLE_EVENT, event);
}

hipEvent_t sim_event_take(hipEvent_t handle) {
    pthread_mutex_lock(&sim_hip.lock);
    hipEvent_t event = sim_hip_is_event(handle) ? handle : nullptr;
    if (event)
        event->references++;
    pthread_mutex_unlock(&sim_hip.lock);
    return event;
}

static void give_back(hipEvent_t event) {
    pthread_mutex_lock(&sim_hip.lock);
    release(event);
    pthread_mutex_unlock(&sim_hip.lock);
}

hipError_t sim_event_give(hipEvent_t event, hipError_t error) {
    if (event)
        give_back(event);
    return sim_hip_result(error);
}

/** Makes an operation on an event, which the operation keeps alive. Errors: hipErrorInvalidHandle
 *  if it is no event, hipErrorOutOfMemory. */
static hipError_t new_op(event_op **out, hipEvent_t handle,
                         hipError_t (*run)(sim_stream *, sim_op *), void (*destroy)(sim_op *)) {
    hipEvent_t event = sim_event_take(handle);
    if (!event)
        return hipErrorInvalidHandle;
    event_op *op = calloc(1, sizeof *op);
    if (!op) {
        give_back(event);
        return hipErrorOutOfMemory;
    }
    *op = (event_op){{.run = run, .destroy = destroy, .is_marker = true}, event, 0, nullptr};
    *out = op;
    return hipSuccess;
}

hipError_t sim_event_create(hipEvent_t *out, unsigned flags) {
    hipEvent_t event = calloc(1, sizeof *event);
    if (!event || !sim_handle_add(SIM_HANDLE_EVENT, event)) {
        free(event);
        return hipErrorOutOfMemory;
    }
    event->flags = flags;
    event->references = 1;
    event->device = sim_hip_device();
    event->counts = &event->own;
    *out = event;
    return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
    // The known flags are blocking synchronisation, no timing, other processes, and three flags
    // about fences, which change nothing here. An event of several processes has no time.
    enum {
        KNOWN = 3 | hipEventInterprocess,
        SHARED = hipEventInterprocess | hipEventDisableTiming
    };
    constexpr unsigned FENCES = 0xe0000000;
    SIM_HIP_START();
    const unsigned fences = flags & FENCES; // of which one at most may be asked for
    if (!out || flags & ~(KNOWN | FENCES) || fences & (fences - 1) ||
        (flags & SHARED) == hipEventInterprocess)
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(sim_event_create(out, flags));
}

hipError_t hipEventCreate(hipEvent_t *out) {
    return hipEventCreateWithFlags(out, 0);
}

hipError_t hipEventDestroy(hipEvent_t event) {
    SIM_HIP_START();
    if (!event || !sim_handle_remove(SIM_HANDLE_EVENT, event)) // as AMD's runtime has it
        return sim_hip_result(event ? hipErrorContextIsDestroyed : hipErrorInvalidHandle);
    give_back(event);
    return hipSuccess;
}

void sim_events_free_all(void) {
    for (hipEvent_t event; (event = sim_handle_take(SIM_HANDLE_EVENT));)
        give_back(event);
}

hipError_t hipEventRecord(hipEvent_t handle, hipStream_t stream_handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(stream_handle);
    hipEvent_t event = sim_event_take(handle);
    if (!event || !stream || event->device != stream->device)
        return sim_event_give(event, stream ? hipErrorInvalidHandle : hipErrorContextIsDestroyed);
    pthread_mutex_lock(&sim_hip.lock);
    const bool is_captured = stream->capture;
    hipError_t error = is_captured ? sim_capture_record(stream, event) : hipSuccess;
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_event_give(event, is_captured ? error : sim_hip_record(event, stream));
}

hipError_t sim_hip_record(hipEvent_t event, sim_stream *stream) {
    sim_moment *moment = sim_moment_create();
    event_op *op;
    hipError_t error = moment ? new_op(&op, event, run_record, pass_event) : hipErrorOutOfMemory;
    if (error != hipSuccess) {
        free(moment);
        return error;
    }
    op->moment = moment;
    pthread_mutex_lock(&sim_hip.lock);
    sim_capture_forget(event);
    op->count = ++event->counts->recorded;
    sim_moment_release(event->moment);
    event->moment = sim_moment_keep(moment);
    event->source = (sim_known){sim_stream_key(stream), stream->queued};
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_queue(stream, &op->op, nullptr);
}

hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned flags) {
    if (flags) // hipEventRecordExternal is for graphs
        return sim_hip_result(hipErrorInvalidValue);
    return hipEventRecord(event, stream);
}

hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned flags) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(stream_handle);
    hipEvent_t event = sim_event_take(handle);
    if (!event || !stream || flags)
        return sim_event_give(event,
                              event && stream ? hipErrorInvalidValue : hipErrorInvalidHandle);
    pthread_mutex_lock(&sim_hip.lock);
    const bool is_captured = stream->capture || sim_capture_of(event);
    hipError_t error = is_captured ? sim_capture_wait(stream, event) : hipSuccess;
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_event_give(event, is_captured ? error : sim_hip_await(stream, event));
}

/** Notes what a stream knows of another one; the oldest such note goes. */
static void note_known(sim_stream *stream, sim_known known) {
    for (size_t i = 0; i < SIM_NUM_KNOWN; i++)
        if (stream->known[i].stream == known.stream) {
            if (stream->known[i].position < known.position)
                stream->known[i] = known;
            return;
        }
    stream->known[stream->num_known++ % SIM_NUM_KNOWN] = known;
}

hipError_t sim_hip_await(sim_stream *stream, hipEvent_t event) {
    event_op *op;
    hipError_t error = new_op(&op, event, run_wait, release_event);
    if (error != hipSuccess)
        return error;
    pthread_mutex_lock(&sim_hip.lock);
    op->count = event->counts->recorded;
    op->moment = sim_moment_keep(event->moment);
    note_known(stream, event->source);
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_queue(stream, &op->op, nullptr);
}

/** Takes the lock, and a reference to an event that no graph captures; without them, says why. */
static hipError_t enter(hipEvent_t handle) {
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = !sim_hip_is_event(handle) ? hipErrorInvalidHandle
                       : sim_capture_of(handle)  ? hipErrorCapturedEvent
                                                 : hipSuccess;
    if (error == hipSuccess)
        handle->references++;
    else
        pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

static hipError_t leave(hipEvent_t event, hipError_t error) {
    release(event);
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

hipError_t hipEventSynchronize(hipEvent_t event) {
    SIM_HIP_START();
    hipError_t error = enter(event);
    if (error != hipSuccess)
        return sim_hip_result(error);
    sim_device *device = event->device;
    sim_moment *moment = sim_moment_keep(event->moment);
    wait_for(event, event->counts->recorded);
    sim_hip_time_waited(device, moment);
    sim_moment_release(moment);
    sim_pools_waited();
    return leave(event, sim_hip.is_stopping ? hipErrorDeinitialized : device->error);
}

hipError_t hipEventQuery(hipEvent_t event) {
    SIM_HIP_START();
    hipError_t error = enter(event);
    if (error != hipSuccess)
        return sim_hip_result(error);
    const bool is_passed = event->counts->passed >= event->counts->recorded;
    if (is_passed)
        sim_hip_time_waited(event->device, event->moment);
    return leave(event, is_passed ? hipSuccess : hipErrorNotReady);
}

/** Computes the time between two records. The events are there. */
static hipError_t elapsed(float *ms, hipEvent_t start, hipEvent_t stop) {
    if (start->device != stop->device || !start->counts->recorded || !stop->counts->recorded ||
        (start->flags | stop->flags) & hipEventDisableTiming) {
        return hipErrorInvalidHandle;
    }
    if (hipEventQuery(start) != hipSuccess || hipEventQuery(stop) != hipSuccess)
        return hipErrorNotReady;
    hipError_t error = hipSuccess;
    pthread_mutex_lock(&sim_hip.lock);
    int64_t ns = (int64_t)(stop->ns - start->ns);
    if (sim_hip_is_modelled(start->device))
        error = sim_hip_time_between(start->device, start->moment, stop->moment, &ns);
    pthread_mutex_unlock(&sim_hip.lock);
    if (error == hipSuccess)
        *ms = (float)((double)ns * 1e-6);
    return error;
}

hipError_t hipEventElapsedTime(float *ms, hipEvent_t start_handle, hipEvent_t stop_handle) {
    SIM_HIP_START();
    if (!ms)
        return sim_hip_result(hipErrorInvalidValue);
    hipEvent_t start = sim_event_take(start_handle), stop = sim_event_take(stop_handle);
    hipError_t error = start && stop ? elapsed(ms, start, stop) : hipErrorInvalidHandle;
    sim_event_give(start, hipSuccess);
    return sim_event_give(stop, error);
}
