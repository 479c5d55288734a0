// SPDX-License-Identifier: Apache-2.0
// Capture: what a program queues on streams becomes the nodes of a graph. A stream joins when it
// waits for an event that was recorded in a capturing stream.
#include "graph.h"

#include <stdlib.h>

typedef struct sim_capture {
    struct sim_capture *next; // of those that have not ended
    sim_nodes dropped;        // which a stream no longer depends on, as the program wanted
    hipGraph_t graph;
    sim_stream *origin;
    hipStreamCaptureMode mode;
    pthread_t thread;
    unsigned long long id;
    bool is_invalid;
    bool is_given; // the graph is the program's, and stays whatever happens
} sim_capture;

static unsigned long long num_captures;
static sim_capture *active;
static thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

// ---- with the lock held

static bool copy_nodes(sim_nodes *to, const sim_nodes *from) {
    bool ok = true;
    for (size_t i = 0; ok && i < from->count; i++)
        ok = sim_nodes_add(to, from->list[i]);
    return ok;
}

static bool is_blocking(const sim_stream *stream) {
    return !(stream->flags & hipStreamNonBlocking);
}

static void join(sim_stream *stream, sim_capture *capture) {
    stream->capture = capture;
    stream->device->num_captures += is_blocking(stream);
}

static void leave(sim_stream *stream) {
    stream->device->num_captures -= is_blocking(stream);
    stream->capture = nullptr;
    sim_nodes_clear(&stream->capture_last);
}

/** Adds a node behind what the stream has captured. */
static hipGraphNode_t append(sim_stream *stream, hipGraphNodeType type) {
    hipGraphNode_t node = sim_graph_add(stream->capture->graph, type, stream->capture_last.list,
                                        stream->capture_last.count);
    sim_nodes_clear(&stream->capture_last);
    return node && sim_nodes_add(&stream->capture_last, node) ? node : nullptr;
}

hipError_t sim_capture_op(sim_stream *stream, sim_op *op) {
    sim_capture *capture = stream->capture;
    if (capture->is_invalid)
        return hipErrorStreamCaptureInvalidated;
    const bool is_fill = op->kind == SIM_OP_BOX && !sim_hip_box_of(op)->src;
    if (op->kind == SIM_OP_OTHER || op->destroy || op->is_marker) {
        capture->is_invalid = true;
        return hipErrorStreamCaptureUnsupported;
    }
    hipGraphNode_t node = append(stream, op->kind == SIM_OP_LAUNCH ? hipGraphNodeTypeKernel
                                         : op->kind == SIM_OP_HOST ? hipGraphNodeTypeHost
                                         : is_fill                 ? hipGraphNodeTypeMemset
                                                                   : hipGraphNodeTypeMemcpy);
    if (!node) {
        capture->is_invalid = true;
        return hipErrorOutOfMemory;
    }
    if (!sim_node_set_op(node, op)) // the operation is gone, which no error may say
        capture->is_invalid = true;
    else if (op->kind == SIM_OP_BOX)
        sim_graph_describe_box(node);
    return hipSuccess;
}

hipError_t sim_capture_alloc(sim_stream *stream, void **out, size_t bytes) {
    if (!out)
        return hipErrorInvalidValue;
    *out = nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    sim_capture *capture = stream->capture;
    hipError_t error = !capture              ? hipErrorIllegalState
                       : capture->is_invalid ? hipErrorStreamCaptureInvalidated
                                             : hipSuccess;
    if (error == hipSuccess && bytes) {
        hipGraphNode_t node = append(stream, hipGraphNodeTypeMemAlloc);
        capture->is_invalid = !node || !sim_block_capture_alloc(node, stream->device, bytes, out);
        error = capture->is_invalid ? hipErrorOutOfMemory : hipSuccess;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

/** Memory that no graph has allocated cannot be freed by one. */
hipError_t sim_capture_free(sim_stream *stream, void *ptr) {
    pthread_mutex_lock(&sim_hip.lock);
    sim_capture *capture = stream->capture;
    hipError_t error = !capture                ? hipErrorIllegalState
                       : capture->is_invalid   ? hipErrorStreamCaptureInvalidated
                       : sim_block_has(ptr, 1) ? hipSuccess
                                               : hipErrorInvalidValue;
    if (error == hipSuccess) {
        hipGraphNode_t node = append(stream, hipGraphNodeTypeMemFree);
        capture->is_invalid = !node || !sim_block_capture_free(node, ptr);
        error = !node                 ? hipErrorOutOfMemory
                : capture->is_invalid ? hipErrorInvalidValue
                                      : hipSuccess;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

hipError_t sim_capture_record(sim_stream *stream, hipEvent_t event) {
    sim_capture_forget(event);
    if (stream->capture->is_invalid)
        return hipErrorStreamCaptureInvalidated;
    event->capture_id = stream->capture->id;
    return copy_nodes(&event->capture_last, &stream->capture_last) ? hipSuccess
                                                                   : hipErrorOutOfMemory;
}

sim_capture *sim_capture_of(const struct sim_event *event) {
    sim_capture *capture = event->capture_id ? active : nullptr;
    while (capture && capture->id != event->capture_id)
        capture = capture->next;
    return capture;
}

hipError_t sim_capture_wait(sim_stream *stream, hipEvent_t event) {
    sim_capture *capture = sim_capture_of(event);
    if (!capture) { // work that no graph captured cannot be waited for in one
        stream->capture->is_invalid = true;
        return hipErrorStreamCaptureIsolation;
    }
    if (stream->capture && stream->capture != capture) {
        stream->capture->is_invalid = capture->is_invalid = true;
        return hipErrorStreamCaptureMerge;
    }
    if (stream == stream->device->default_stream) {
        capture->is_invalid = true;
        return hipErrorStreamCaptureImplicit;
    }
    if (stream->is_closing) // another thread destroys it
        return hipErrorContextIsDestroyed;
    if (!stream->capture)
        join(stream, capture);
    return copy_nodes(&stream->capture_last, &event->capture_last) ? hipSuccess
                                                                   : hipErrorOutOfMemory;
}

void sim_capture_forget(hipEvent_t event) {
    event->capture_id = 0;
    sim_nodes_clear(&event->capture_last);
}

hipError_t sim_capture_refuse(sim_stream *stream) {
    if (stream->capture) {
        stream->capture->is_invalid = true;
        return hipErrorStreamCaptureUnsupported;
    }
    for (sim_stream *s = stream->device->streams; s; s = s->next)
        if (s->capture && is_blocking(s))
            s->capture->is_invalid = true;
    return hipErrorStreamCaptureImplicit;
}

static bool has_dependents(hipGraph_t graph, const struct hipGraphNode *node) {
    for (hipGraphNode_t other = graph->first; other; other = other->next)
        if (sim_nodes_has(&other->on, node))
            return true;
    return false;
}

/** Returns whether all streams that joined have been waited for. As in AMD's runtime, the leaves
 *  decide: a node with dependents leads to a leaf, and a leaf that a stream captured is what some
 *  stream captured last, which must be what the first stream depends on. */
static bool is_joined(const sim_capture *capture) {
    const sim_nodes *ends = &capture->origin->capture_last;
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        for (sim_stream *s = sim_hip.devices[i].streams; s; s = s->next)
            for (size_t k = 0; s->capture == capture && k < s->capture_last.count; k++) {
                const struct hipGraphNode *node = s->capture_last.list[k];
                if (!sim_nodes_has(ends, node) && !has_dependents(capture->graph, node) &&
                    !sim_nodes_has(&capture->dropped, node))
                    return false;
            }
    return true;
}

/** Ends a capture: no stream takes part any more, and no event stands for it. */
static void end(sim_capture *capture) {
    sim_capture **at = &active;
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        for (sim_stream *s = sim_hip.devices[i].streams; s; s = s->next)
            if (s->capture == capture)
                leave(s);
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    capture->graph->capture = nullptr;
    sim_nodes_clear(&capture->dropped);
}

void sim_capture_drop(sim_stream *stream) {
    sim_capture *capture = stream->capture;
    if (!capture)
        return;
    capture->is_invalid = true;
    if (capture->origin != stream) {
        leave(stream);
        return;
    }
    end(capture);
    if (!capture->is_given)
        sim_graph_destroy(capture->graph);
    free(capture);
}

void sim_captures_drop_all(void) {
    while (active)
        sim_capture_drop(active->origin);
}

hipError_t sim_capture_refuse_all(void) {
    for (sim_capture *capture = active; capture; capture = capture->next)
        capture->is_invalid = true;
    return active ? hipErrorStreamCaptureUnsupported : hipSuccess;
}

// ---- calls that captures forbid

/** Returns whether a capture forbids calls to this thread: one that the thread began, unless its
 *  mode is relaxed, or, if the thread's mode is global, another's whose mode is global too. */
static bool forbids(const sim_capture *capture) {
    return capture->mode != hipStreamCaptureModeRelaxed &&
           (pthread_equal(capture->thread, pthread_self()) ||
            (thread_mode == hipStreamCaptureModeGlobal &&
             capture->mode == hipStreamCaptureModeGlobal));
}

hipError_t sim_capture_forbids(void) {
    hipError_t error = hipSuccess;
    if (thread_mode == hipStreamCaptureModeRelaxed)
        return error;
    pthread_mutex_lock(&sim_hip.lock);
    for (sim_capture *capture = active; capture; capture = capture->next) {
        if (forbids(capture)) {
            capture->is_invalid = true;
            error = hipErrorStreamCaptureUnsupported;
        }
    }
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

// ---- calls

/** Begins a capture, into the program's graph if there is one, behind the nodes `on`. */
static hipError_t begin(sim_stream *stream, hipStreamCaptureMode mode, hipGraph_t given,
                        const sim_nodes *on) {
    sim_capture *capture = calloc(1, sizeof *capture);
    hipGraph_t graph = given ? given : capture ? sim_graph_create() : nullptr;
    if (!graph || !capture) {
        free(capture);
        return hipErrorOutOfMemory;
    }
    pthread_mutex_lock(&sim_hip.lock);
    const bool is_free = !stream->capture && !graph->capture && !stream->is_closing;
    if (is_free) {
        *capture = (sim_capture){.graph = graph,
                                 .origin = stream,
                                 .mode = mode,
                                 .thread = pthread_self(),
                                 .id = ++num_captures,
                                 .is_given = given};
        capture->next = active;
        active = capture;
        graph->capture = capture;
        join(stream, capture);
        capture->is_invalid = !copy_nodes(&stream->capture_last, on);
    }
    pthread_mutex_unlock(&sim_hip.lock);
    if (!is_free) {
        if (!given)
            sim_graph_destroy(graph);
        free(capture);
    }
    return is_free ? hipSuccess : hipErrorIllegalState;
}

static hipError_t check_and_begin(hipStream_t handle, hipStreamCaptureMode mode, hipGraph_t given,
                                  const sim_nodes *on) {
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed); // as AMD's runtime has it
    if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed)
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(stream == stream->device->default_stream
                              ? hipErrorStreamCaptureUnsupported
                              : begin(stream, mode, given, on));
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    SIM_HIP_START();
    return check_and_begin(stream, mode, nullptr, &(sim_nodes){});
}

/** Captures into a graph of the program's, behind some of its nodes. Data of edges must be null, as
 *  there is one kind of edge. */
hipError_t hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph,
                                        const hipGraphNode_t *on, const void *edges, size_t count,
                                        hipStreamCaptureMode mode) {
    SIM_HIP_START();
    bool ok = sim_is_graph(graph) && !edges && (!count || on);
    for (size_t i = 0; ok && i < count; i++)
        ok = sim_is_node(on[i]) && on[i]->graph == graph;
    return ok ? check_and_begin(stream, mode, graph, &(sim_nodes){(hipGraphNode_t *)on, count})
              : sim_hip_result(hipErrorInvalidValue);
}

/** Returns why a stream's capture cannot end; hipSuccess if it can. The lock is held. */
static hipError_t check_end(const sim_stream *stream) {
    const sim_capture *capture = stream->capture;
    if (!capture)
        return hipErrorIllegalState;
    if (capture->origin != stream)
        return hipErrorStreamCaptureUnmatched;
    const bool is_foreign = !pthread_equal(capture->thread, pthread_self());
    if (is_foreign && capture->mode != hipStreamCaptureModeRelaxed)
        return hipErrorStreamCaptureWrongThread;
    return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t *out) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream || !out)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = check_end(stream);
    sim_capture *capture = error == hipSuccess ? stream->capture : nullptr;
    if (capture) {
        error = capture->is_invalid  ? hipErrorStreamCaptureInvalidated
                : is_joined(capture) ? hipSuccess
                                     : hipErrorStreamCaptureUnjoined;
        end(capture);
    }
    pthread_mutex_unlock(&sim_hip.lock);
    if (!capture)
        return sim_hip_result(error);
    *out = error == hipSuccess ? capture->graph : nullptr;
    if (error != hipSuccess && !capture->is_given)
        sim_graph_destroy(capture->graph);
    free(capture);
    return sim_hip_result(error);
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t handle, hipStreamCaptureStatus *status,
                                      unsigned long long *id, hipGraph_t *graph,
                                      const hipGraphNode_t **nodes, size_t *count) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream || !status)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    pthread_mutex_lock(&sim_hip.lock);
    const sim_capture *capture = stream->capture;
    const bool is_active = capture && !capture->is_invalid;
    hipError_t error =
        !capture && stream == stream->device->default_stream && stream->device->num_captures
            ? hipErrorStreamCaptureImplicit
            : hipSuccess;
    *status = is_active ? hipStreamCaptureStatusActive
              : capture ? hipStreamCaptureStatusInvalidated
                        : hipStreamCaptureStatusNone;
    if (is_active && id)
        *id = capture->id;
    if (is_active && graph)
        *graph = capture->graph;
    if (is_active && nodes)
        *nodes = stream->capture_last.list;
    if (is_active && count)
        *count = stream->capture_last.count;
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status,
                                   unsigned long long *id) {
    return hipStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
    return hipStreamGetCaptureInfo_v2(stream, status, nullptr, nullptr, nullptr, nullptr);
}

hipError_t hipStreamUpdateCaptureDependencies(hipStream_t handle, hipGraphNode_t *nodes,
                                              size_t count, unsigned flags) {
    enum { ADD, SET };
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream || flags > SET || (count && !nodes))
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = stream->capture ? hipSuccess : hipErrorIllegalState;
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        if (!sim_is_node(nodes[i]) || nodes[i]->graph != stream->capture->graph)
            error = hipErrorInvalidValue;
    if (error == hipSuccess && flags == SET &&
        !copy_nodes(&stream->capture->dropped, &stream->capture_last))
        error = hipErrorOutOfMemory;
    if (error == hipSuccess && flags == SET)
        sim_nodes_clear(&stream->capture_last);
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        error = sim_nodes_add(&stream->capture_last, nodes[i]) ? hipSuccess : hipErrorOutOfMemory;
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

/** Exchanges the thread's mode, which says what calls captures forbid to this thread beside those
 *  that would need a captured stream's work. */
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
    SIM_HIP_START();
    if (!mode || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed)
        return sim_hip_result(hipErrorInvalidValue);
    const hipStreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return hipSuccess;
}

// ---- the thread's own stream as the default

static hipStream_t own(hipStream_t stream) {
    return stream ? stream : (hipStream_t)2;
}

hipError_t hipStreamBeginCapture_spt(hipStream_t stream, hipStreamCaptureMode mode) {
    return hipStreamBeginCapture(own(stream), mode);
}

hipError_t hipStreamEndCapture_spt(hipStream_t stream, hipGraph_t *out) {
    return hipStreamEndCapture(own(stream), out);
}

hipError_t hipStreamIsCapturing_spt(hipStream_t stream, hipStreamCaptureStatus *status) {
    return hipStreamIsCapturing(own(stream), status);
}

hipError_t hipStreamGetCaptureInfo_spt(hipStream_t stream, hipStreamCaptureStatus *status,
                                       unsigned long long *id) {
    return hipStreamGetCaptureInfo(own(stream), status, id);
}

hipError_t hipStreamGetCaptureInfo_v2_spt(hipStream_t stream, hipStreamCaptureStatus *status,
                                          unsigned long long *id, hipGraph_t *graph,
                                          const hipGraphNode_t **nodes, size_t *count) {
    return hipStreamGetCaptureInfo_v2(own(stream), status, id, graph, nodes, count);
}
