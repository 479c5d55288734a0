// SPDX-License-Identifier: Apache-2.0
// Streams: queues of operations, with a thread for each.
//
// The default stream is HIP's legacy one: an operation on it waits for all operations that were
// queued before on the device's blocking streams, and later operations on those streams wait for
// it. An operation holds this order as dependencies on operations that were queued earlier, so that
// no two can wait for each other.
#include "runtime.h"

#include <stdlib.h>

#define STREAM_LEGACY ((hipStream_t)1)
#define STREAM_PER_THREAD ((hipStream_t)2)

// ---- operations

// Streams that were destroyed, for new ones: a call in another thread may still have such a stream,
// and then finds it closed. Some wait before they are used again, so that a handle that is
// destroyed twice is not somebody else's.
enum { MIN_SPARE = 64 };
static sim_stream *spare, **last_spare = &spare; // the first one is the oldest
static unsigned num_spare;

static void release(sim_stream *stream) {
    if (--stream->references)
        return;
    sim_moment_release(stream->moment);
    free(stream->cu_mask);
    stream->moment = nullptr;
    stream->next = nullptr;
    *last_spare = stream;
    last_spare = &stream->next;
    num_spare++;
}

static void destroy_op(sim_device *device, sim_op *op) {
    sim_hip_time_end(device, op);
    for (size_t i = 0; i < op->num_dependencies; i++)
        release(op->dependencies[i].stream);
    free(op->dependencies);
    if (op->destroy)
        op->destroy(op);
    if (op->module)
        atomic_fetch_sub(&op->module->num_ops, 1);
    free(op);
}

static bool is_met(const sim_stream *stream, const sim_op *op) {
    if (stream->is_taken || !sim_hip_time_is_met(stream, op))
        return false;
    for (size_t i = 0; i < op->num_dependencies; i++)
        if (op->dependencies[i].stream->done < op->dependencies[i].count)
            return false;
    return true;
}

static bool depends(const sim_stream *stream, const sim_stream *other) {
    bool both_block =
        !(stream->flags & hipStreamNonBlocking) && !(other->flags & hipStreamNonBlocking);
    bool one_is_default =
        stream == stream->device->default_stream || other == stream->device->default_stream;
    return stream != other && both_block && one_is_default && other->done < other->queued;
}

/** Notes what op has to wait for on other streams. Returns false without memory. */
static bool add_dependencies(sim_stream *stream, sim_op *op) {
    size_t count = 0;
    for (sim_stream *s = stream->device->streams; s; s = s->next)
        count += depends(stream, s);
    if (count == 0)
        return true;
    op->dependencies = calloc(count, sizeof *op->dependencies);
    if (!op->dependencies)
        return false;
    for (sim_stream *s = stream->device->streams; s; s = s->next) {
        if (depends(stream, s)) {
            s->references++;
            op->dependencies[op->num_dependencies++] = (sim_dependency){s, s->queued};
        }
    }
    return true;
}

// ---- a stream's thread

/** Takes the first operation off, with the lock held. */
static void finish_first(sim_stream *stream) {
    sim_op *op = stream->first;
    stream->first = op->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->done++;
    destroy_op(stream->device, op);
    pthread_cond_broadcast(&sim_hip.changed);
}

static void run_first(sim_stream *stream) {
    sim_op *op = stream->first;
    sim_hip_time_begin(stream, op);
    if (stream->device->error == hipSuccess || op->is_marker) {
        pthread_mutex_unlock(&sim_hip.lock);
        hipError_t error = op->run(stream, op);
        pthread_mutex_lock(&sim_hip.lock);
        if (error != hipSuccess && stream->device->error == hipSuccess)
            stream->device->error = error;
    }
    finish_first(stream);
}

static void *stream_thread(void *argument) {
    sim_stream *stream = argument;
    pthread_mutex_lock(&sim_hip.lock);
    while (!sim_hip.is_stopping)
        if (stream->first && is_met(stream, stream->first))
            run_first(stream);
        else if (!stream->first && stream->is_closing)
            break;
        else
            pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
    pthread_mutex_unlock(&sim_hip.lock);
    return nullptr;
}

static bool start_thread(sim_stream *stream) {
    if (!stream->has_thread)
        stream->has_thread = pthread_create(&stream->thread, nullptr, stream_thread, stream) == 0;
    return stream->has_thread;
}

// ---- queueing and waiting

/** Gives an operation to the graph that captures the stream, and the lock back. Nobody then has to
 *  wait for it. */
static hipError_t queue_captured(sim_stream *stream, sim_op *op, uint64_t *ticket) {
    hipError_t error = sim_capture_op(stream, op);
    if (error != hipSuccess)
        destroy_op(stream->device, op);
    if (ticket)
        *ticket = 1; // nobody waits for a capturing stream: see sim_hip_wait
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

hipError_t sim_hip_queue(sim_stream *stream, sim_op *op, uint64_t *ticket) {
    hipError_t error = hipSuccess;
    pthread_mutex_lock(&sim_hip.lock);
    if (stream->capture && !sim_hip.is_stopping)
        return queue_captured(stream, op, ticket);
    if (sim_hip.is_stopping)
        error = hipErrorDeinitialized;
    else if (stream->is_closing)
        error = hipErrorContextIsDestroyed;
    else if (stream == stream->device->default_stream && stream->device->num_captures)
        error = sim_capture_refuse(stream);
    else if (stream->device->error != hipSuccess && !op->is_marker)
        error = stream->device->error;
    else if (!add_dependencies(stream, op))
        error = hipErrorOutOfMemory;
    else if (!start_thread(stream))
        error = hipErrorOutOfMemory; // EAGAIN: of memory, mostly, or of threads
    else if (!sim_hip_time_queue(stream, op))
        error = hipErrorOutOfMemory;
    if (error != hipSuccess) {
        destroy_op(stream->device, op);
    } else {
        if (op->kind == SIM_OP_LAUNCH)
            sim_hip_number_launch(op);
        op->next = nullptr;
        *stream->last = op;
        stream->last = &op->next;
        stream->queued++;
        if (ticket)
            *ticket = stream->queued;
        pthread_cond_broadcast(&sim_hip.changed);
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

void sim_hip_drop(sim_stream *stream, sim_op *op) {
    pthread_mutex_lock(&sim_hip.lock);
    destroy_op(stream->device, op);
    pthread_mutex_unlock(&sim_hip.lock);
}

/** Returns whether nothing has to come before an operation that is queued now. */
static bool is_free(const sim_stream *stream) {
    const sim_device *device = stream->device;
    bool is_free = !sim_hip.is_stopping && !stream->is_closing && !stream->capture &&
                   stream->done == stream->queued &&
                   !(stream == device->default_stream && device->num_captures) &&
                   device->error == hipSuccess && !sim_hip_is_modelled(device);
    for (const sim_stream *s = device->streams; s && is_free; s = s->next)
        is_free = !depends(stream, s);
    return is_free;
}

bool sim_hip_run_here(sim_stream *stream, sim_op *op, hipError_t *error) {
    sim_device *device = stream->device;
    pthread_mutex_lock(&sim_hip.lock);
    const bool is_here = is_free(stream);
    if (is_here) {
        stream->is_taken = true;
        stream->queued++;
        stream->references++;
        pthread_mutex_unlock(&sim_hip.lock);
        *error = op->run(stream, op);
        pthread_mutex_lock(&sim_hip.lock);
        if (*error != hipSuccess && device->error == hipSuccess)
            device->error = *error;
        stream->is_taken = false;
        stream->done++;
        destroy_op(device, op);
        release(stream);
        pthread_cond_broadcast(&sim_hip.changed);
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return is_here;
}

/** Waits until the stream has passed a ticket. The lock is held. */
static hipError_t wait_locked(sim_stream *stream, uint64_t ticket) {
    stream->references++;
    while (stream->done < ticket && !sim_hip.is_stopping)
        pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
    sim_hip_time_synced(stream);
    hipError_t error = sim_hip.is_stopping ? hipErrorDeinitialized : stream->device->error;
    release(stream);
    return error;
}

hipError_t sim_hip_wait(sim_stream *stream, uint64_t ticket) {
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = stream->capture ? (ticket ? hipSuccess : sim_capture_refuse(stream))
                                       : wait_locked(stream, ticket ? ticket : stream->queued);
    pthread_mutex_unlock(&sim_hip.lock);
    if (!ticket)
        sim_pools_waited();
    return error;
}

/** Returns a stream of a device that has unfinished work. */
static sim_stream *find_busy(sim_device *device, bool blocking_only) {
    for (sim_stream *s = device->streams; s; s = s->next)
        if (s->done < s->queued && !(blocking_only && (s->flags & hipStreamNonBlocking)))
            return s;
    return nullptr;
}

static hipError_t drain(sim_device *device, bool blocking_only) {
    pthread_mutex_lock(&sim_hip.lock);
    for (sim_stream *s; !sim_hip.is_stopping && (s = find_busy(device, blocking_only));)
        wait_locked(s, s->queued);
    for (sim_stream *s = device->streams; s; s = s->next) // also those that were done at once
        if (!(blocking_only && (s->flags & hipStreamNonBlocking)))
            sim_hip_time_synced(s);
    hipError_t error = sim_hip.is_stopping ? hipErrorDeinitialized : device->error;
    pthread_mutex_unlock(&sim_hip.lock);
    sim_pools_waited();
    return error;
}

hipError_t sim_hip_drain(sim_device *device) {
    return drain(device, false);
}

// ---- making and destroying

static sim_stream *new_stream(sim_device *device, unsigned flags) {
    sim_stream *stream = num_spare > MIN_SPARE ? spare : malloc(sizeof *stream);
    if (!stream)
        return nullptr;
    if (stream == spare) {
        spare = stream->next; // there are others
        num_spare--;
    }
    *stream = (sim_stream){.device = device,
                           .next = device->streams,
                           .flags = flags,
                           .number = device->num_streams++,
                           .references = 1,
                           .last = &stream->first};
    device->streams = stream;
    return stream;
}

bool sim_hip_add_default_stream(sim_device *device) {
    device->default_stream = new_stream(device, 0);
    return device->default_stream;
}

/** A thread's own streams, by device: hipStreamPerThread. They are destroyed when the thread ends,
 *  once they are done. */
typedef struct own_streams {
    sim_stream *streams[SIM_MAX_DEVICES];
} own_streams;

static pthread_key_t own_key;
static atomic_bool has_own_key;

static void destroy_own(void *value) {
    own_streams *own = value;
    for (size_t i = 0; i < SIM_MAX_DEVICES; i++)
        if (own->streams[i])
            hipStreamDestroy(own->streams[i]); // fails if the process is ending, which destroys all
                                               // streams
    free(own);
}

static void make_own_key(void) {
    atomic_store(&has_own_key, pthread_key_create(&own_key, destroy_own) == 0);
}

static sim_stream *own_stream(sim_device *device) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_own_key);
    own_streams *own = atomic_load(&has_own_key) ? pthread_getspecific(own_key) : nullptr;
    if (!own) {
        own = atomic_load(&has_own_key) ? calloc(1, sizeof *own) : nullptr;
        if (!own || pthread_setspecific(own_key, own) != 0) {
            free(own);
            return nullptr;
        }
    }
    sim_stream **stream = &own->streams[device->id];
    if (!*stream) {
        pthread_mutex_lock(&sim_hip.lock);
        *stream = new_stream(device, 0);
        pthread_mutex_unlock(&sim_hip.lock);
    }
    return *stream;
}

/** Returns the stream of a handle. It looks handles up and does not follow them, as a destroyed
 *  stream's memory may be anything. */
sim_stream *sim_hip_stream(hipStream_t handle) {
    if (!handle || handle == STREAM_LEGACY)
        return sim_hip_device()->default_stream;
    if (handle == STREAM_PER_THREAD)
        return own_stream(sim_hip_device());
    sim_stream *found = nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    for (uint32_t i = 0; !found && i < sim_hip.num_devices; i++)
        for (sim_stream *s = sim_hip.devices[i].streams; s && !found; s = s->next)
            found = s == handle && !s->is_closing ? s : nullptr;
    pthread_mutex_unlock(&sim_hip.lock);
    return found;
}

hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
    SIM_HIP_START();
    if (!out || flags & ~(unsigned)hipStreamNonBlocking)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_hip.lock);
    sim_stream *stream = new_stream(sim_hip_device(), flags);
    if (stream) {
        stream->priority = priority < SIM_GREATEST_PRIORITY ? SIM_GREATEST_PRIORITY
                           : priority > SIM_LEAST_PRIORITY  ? SIM_LEAST_PRIORITY
                                                            : priority;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    if (!stream)
        return sim_hip_result(hipErrorOutOfMemory);
    *out = stream;
    return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags) {
    return hipStreamCreateWithPriority(out, flags, 0);
}

hipError_t hipStreamCreate(hipStream_t *out) {
    return hipStreamCreateWithFlags(out, 0);
}

static void unlink_stream(sim_stream *stream) {
    sim_stream **at = &stream->device->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
}

hipError_t hipStreamDestroy(hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    if (stream == stream->device->default_stream || handle == STREAM_PER_THREAD)
        return sim_hip_result(hipErrorInvalidHandle);
    pthread_mutex_lock(&sim_hip.lock);
    if (stream->is_closing) { // another thread was earlier
        pthread_mutex_unlock(&sim_hip.lock);
        return sim_hip_result(hipErrorContextIsDestroyed);
    }
    sim_capture_drop(stream);
    stream->is_closing = true;
    pthread_cond_broadcast(&sim_hip.changed);
    while (stream->is_taken)
        pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
    const bool has_thread = stream->has_thread;
    pthread_mutex_unlock(&sim_hip.lock);
    if (has_thread)
        pthread_join(stream->thread, nullptr); // the thread first finishes what is queued
    if (stream->kernarg)
        sim_memory_free(sim_hip.memory, stream->kernarg);
    if (stream->grid_sync)
        sim_memory_free(sim_hip.memory, stream->grid_sync);
    if (stream->printf_buffer)
        sim_memory_free(sim_hip.memory, stream->printf_buffer);
    sim_hostcall_destroy(stream->hostcall);
    pthread_mutex_lock(&sim_hip.lock);
    unlink_stream(stream);
    release(stream);
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
    SIM_HIP_START_UNCAPTURED();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    if (stream == stream->device->default_stream)
        return sim_hip_result(drain(stream->device, true));
    return sim_hip_result(sim_hip_wait(stream, 0));
}

hipError_t hipStreamQuery(hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = stream->capture ? sim_capture_refuse(stream) : stream->device->error;
    const bool is_default = stream == stream->device->default_stream;
    if (error == hipSuccess &&
        (is_default ? (bool)find_busy(stream->device, true) : stream->done < stream->queued))
        error = hipErrorNotReady;
    else
        sim_hip_time_synced(stream);
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

// ---- the end, and fork

static void drop_queued(sim_stream *stream) {
    while (stream->first)
        finish_first(stream);
}

/** Calls fn for every stream of every device. */
static void each_stream(void (*fn)(sim_stream *)) {
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        for (sim_stream *s = sim_hip.devices[i].streams; s; s = s->next)
            fn(s);
}

static void stop_dispatch(sim_stream *stream) {
    if (stream->dispatch)
        atomic_store(&stream->dispatch->stop, true);
}

static void join(sim_stream *stream) {
    pthread_mutex_lock(&sim_hip.lock);
    while (stream->is_taken)
        pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
    pthread_mutex_unlock(&sim_hip.lock);
    if (stream->has_thread) {
        pthread_join(stream->thread, nullptr);
        stream->has_thread = false;
    }
}

void sim_hip_stop_streams(void) {
    pthread_mutex_lock(&sim_hip.lock);
    sim_hip.is_stopping = true;
    each_stream(stop_dispatch);
    sim_captures_drop_all();
    pthread_cond_broadcast(&sim_hip.changed);
    pthread_mutex_unlock(&sim_hip.lock);
    if (atomic_exchange(&has_own_key, false))
        pthread_key_delete(own_key); // threads may outlive this library
    each_stream(join);
    each_stream(drop_queued);
    for (uint32_t i = 0; i < sim_hip.num_devices; i++) {
        for (sim_stream *s = sim_hip.devices[i].streams, *next; s; s = next) {
            next = s->next;
            sim_hostcall_destroy(s->hostcall);
            s->hostcall = nullptr;
            release(s);
        }
        sim_hip.devices[i].streams = nullptr;
    }
    for (sim_stream *next; spare; spare = next) {
        next = spare->next;
        free(spare);
    }
    last_spare = &spare;
    num_spare = 0;
}

static void forget_thread(sim_stream *stream) {
    stream->has_thread = stream->is_taken = false;
    stream->dispatch = nullptr;
    drop_queued(stream);
    stream->done = stream->queued; // also what a thread of the parent's ran itself
}

void sim_hip_fork_streams(void) {
    each_stream(forget_thread);
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        pthread_mutex_init(&sim_hip.devices[i].clock.lock, nullptr); // a launch may have held it
}
