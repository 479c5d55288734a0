// SPDX-License-Identifier: Apache-2.0
// Executable graphs: made of a graph's copy, launched, updated.
//
// A launch puts the nodes into the stream one behind another, in an order that their dependencies
// allow; nodes that could run at a time do not.
#include "graph.h"

#include <stdlib.h>

enum { AUTO_FREE = 1 }; // a launch frees what the one before has left

static bool is_exec(hipGraphExec_t exec) {
    return exec && sim_handle_is(SIM_HANDLE_EXEC, exec);
}

static void free_exec(hipGraphExec_t exec) {
    sim_handle_remove(SIM_HANDLE_EXEC, exec);
    if (exec->graph)
        sim_graph_destroy(exec->graph);
    free(exec->order);
    free(exec);
}

/** Makes a graph executable. Errors: hipErrorInvalidValue if its nodes depend on each other in a
 *  circle. */
static hipError_t instantiate(hipGraphExec_t *out, hipGraph_t graph, unsigned long long flags) {
    enum { UPLOAD = 2, DEVICE_LAUNCH = 4, NODE_PRIORITY = 8 };
    if (!out || !sim_is_graph(graph) || graph->capture ||
        (flags && flags != AUTO_FREE && flags != UPLOAD && flags != NODE_PRIORITY)) {
        return flags == DEVICE_LAUNCH ? hipErrorNotSupported : hipErrorInvalidValue;
    }
    if (sim_graph_has_instance(graph))
        return hipErrorNotSupported; // as AMD's runtime has it
    hipGraphExec_t exec = calloc(1, sizeof *exec);
    if (!exec)
        return hipErrorOutOfMemory;
    exec->flags = flags;
    exec->graph = sim_graph_clone(graph);
    exec->order = calloc(graph->num_nodes + 1, sizeof(hipGraphNode_t));
    hipError_t error = exec->graph && exec->order ? hipSuccess : hipErrorOutOfMemory;
    if (exec->graph)
        exec->graph->is_inner = true;
    if (error == hipSuccess && !sim_graph_order(exec->graph, exec->order))
        error = hipErrorInvalidValue;
    if (error == hipSuccess && !sim_handle_add(SIM_HANDLE_EXEC, exec))
        error = hipErrorOutOfMemory;
    if (error != hipSuccess)
        free_exec(exec);
    else
        *out = exec;
    return error;
}

hipError_t hipGraphInstantiate(hipGraphExec_t *out, hipGraph_t graph, hipGraphNode_t *error_node,
                               char *log, size_t log_bytes) {
    SIM_HIP_START();
    if (error_node)
        *error_node = nullptr;
    if (log && log_bytes)
        *log = 0;
    return sim_hip_result(instantiate(out, graph, 0));
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t graph,
                                        unsigned long long flags) {
    SIM_HIP_START();
    return sim_hip_result(instantiate(out, graph, flags));
}

hipError_t hipGraphInstantiateWithParams(hipGraphExec_t *out, hipGraph_t graph,
                                         hipGraphInstantiateParams *params) {
    enum { SUCCESS = 0, ERROR = 1 };
    SIM_HIP_START();
    if (!params)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = instantiate(out, graph, params->flags);
    params->errNode_out = nullptr;
    params->result_out = error == hipSuccess ? SUCCESS : ERROR;
    return sim_hip_result(error);
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
    SIM_HIP_START();
    if (!is_exec(exec))
        return sim_hip_result(hipErrorInvalidValue);
    free_exec(exec);
    return hipSuccess;
}

hipError_t hipGraphExecGetFlags(hipGraphExec_t exec, unsigned long long *flags) {
    SIM_HIP_START();
    if (!flags || !is_exec(exec))
        return sim_hip_result(hipErrorInvalidValue);
    *flags = exec->flags;
    return hipSuccess;
}

// ---- launches

static hipError_t launch_graph(hipGraph_t graph, hipGraphNode_t *order, sim_stream *stream);

/** Launches a graph within a graph, whose order is found anew. */
static hipError_t launch_child(hipGraph_t child, sim_stream *stream) {
    hipGraphNode_t *order = calloc(child->num_nodes + 1, sizeof(hipGraphNode_t));
    if (!order)
        return hipErrorOutOfMemory;
    hipError_t error =
        sim_graph_order(child, order) ? launch_graph(child, order, stream) : hipErrorInvalidValue;
    free(order);
    return error;
}

static hipError_t launch_node(hipGraphNode_t node, sim_stream *stream) {
    if (node->child)
        return launch_child(node->child, stream);
    if (node->event)
        return node->type == hipGraphNodeTypeEventRecord ? sim_hip_record(node->event, stream)
                                                         : sim_hip_await(stream, node->event);
    if (node->block)
        return sim_block_launch(node, stream);
    if (!node->op || !node->is_enabled)
        return hipSuccess;
    sim_op *op = sim_graph_copy_op(node->op);
    return op ? sim_hip_queue(stream, op, nullptr) : hipErrorOutOfMemory;
}

static hipError_t launch_graph(hipGraph_t graph, hipGraphNode_t *order, sim_stream *stream) {
    hipError_t error = hipSuccess;
    for (size_t i = 0; error == hipSuccess && i < graph->num_nodes; i++)
        error = launch_node(order[i], stream);
    return error;
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (!is_exec(exec) || !stream)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    hipError_t error = sim_blocks_prepare(exec->graph, exec->flags == AUTO_FREE, stream);
    return sim_hip_result(error == hipSuccess ? launch_graph(exec->graph, exec->order, stream)
                                              : error);
}

hipError_t hipGraphLaunch_spt(hipGraphExec_t exec, hipStream_t stream) {
    return hipGraphLaunch(exec, stream ? stream : (hipStream_t)2);
}

/** Checks its arguments: there is nowhere to upload a graph to. */
hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t stream) {
    SIM_HIP_START();
    return sim_hip_result(!is_exec(exec)           ? hipErrorInvalidValue
                          : sim_hip_stream(stream) ? hipSuccess
                                                   : hipErrorContextIsDestroyed);
}

// ---- changes

hipGraphNode_t sim_exec_node(hipGraphExec_t exec, hipGraphNode_t node) {
    hipGraphNode_t copy = exec->graph->first;
    while (copy && copy->origin != node)
        copy = copy->next;
    return copy;
}

static hipError_t find_enabled(hipGraphNode_t *out, hipGraphExec_t exec, hipGraphNode_t node) {
    if (!is_exec(exec) || !sim_is_node(node))
        return hipErrorInvalidValue;
    *out = sim_exec_node(exec, node);
    const bool can =
        *out && (node->type == hipGraphNodeTypeKernel || node->type == hipGraphNodeTypeMemcpy ||
                 node->type == hipGraphNodeTypeMemset);
    return can ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned enabled) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = find_enabled(&copy, exec, node);
    if (error == hipSuccess)
        copy->is_enabled = enabled;
    return sim_hip_result(error);
}

hipError_t hipGraphNodeGetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned *enabled) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = enabled ? find_enabled(&copy, exec, node) : hipErrorInvalidValue;
    if (error == hipSuccess)
        *enabled = copy->is_enabled;
    return sim_hip_result(error);
}

/** Returns a node's place in its graph. */
static size_t place_of(const struct hipGraphNode *node) {
    size_t n = 0;
    for (hipGraphNode_t other = node->graph->first; other != node; other = other->next)
        n++;
    return n;
}

/** Returns whether nodes at the same place of two graphs depend on nodes at the same places. */
static bool depend_alike(const struct hipGraphNode *a, const struct hipGraphNode *b) {
    bool alike = a->on.count == b->on.count;
    for (size_t i = 0; alike && i < a->on.count; i++) {
        alike = false;
        for (size_t k = 0; !alike && k < b->on.count; k++)
            alike = place_of(a->on.list[i]) == place_of(b->on.list[k]);
    }
    return alike;
}

/** Compares graphs. Returns the first node of the second one that differs; the result says how. */
static hipGraphNode_t compare(hipGraph_t graph, hipGraph_t with, hipGraphExecUpdateResult *result) {
    hipGraphNode_t a = graph->first, b = with->first;
    *result = graph->num_nodes == with->num_nodes ? hipGraphExecUpdateSuccess
                                                  : hipGraphExecUpdateErrorTopologyChanged;
    for (; a && b && *result == hipGraphExecUpdateSuccess; a = a->next, b = b->next) {
        if (a->type != b->type)
            *result = hipGraphExecUpdateErrorNodeTypeChanged;
        else if (!depend_alike(a, b) || (a->child && !sim_graph_is_alike(a->child, b->child)))
            *result = hipGraphExecUpdateErrorTopologyChanged;
        else if (a->type == hipGraphNodeTypeMemcpy && a->copy.kind != b->copy.kind)
            *result = hipGraphExecUpdateErrorParametersChanged;
        if (*result != hipGraphExecUpdateSuccess)
            return b;
    }
    return nullptr;
}

bool sim_graph_is_alike(hipGraph_t a, hipGraph_t b) {
    hipGraphExecUpdateResult result;
    compare(a, b, &result);
    return result == hipGraphExecUpdateSuccess;
}

hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t *error_node,
                              hipGraphExecUpdateResult *result) {
    SIM_HIP_START();
    if (!is_exec(exec) || !sim_is_graph(graph) || !error_node || !result)
        return sim_hip_result(hipErrorInvalidValue);
    *error_node = compare(exec->graph, graph, result);
    if (*result != hipGraphExecUpdateSuccess)
        return sim_hip_result(hipErrorGraphExecUpdateFailure);
    hipGraphNode_t node = graph->first;
    for (hipGraphNode_t copy = exec->graph->first; copy; copy = copy->next, node = node->next) {
        if (!sim_node_take_params(copy, node)) {
            *result = hipGraphExecUpdateError;
            *error_node = node;
            return sim_hip_result(hipErrorOutOfMemory);
        }
    }
    return hipSuccess;
}
