// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: kernels, functions of the program, batches of stream values, events, graphs.
#include "graph.h"

#include <stdlib.h>

/** Checks where a node is to be added. */
static hipError_t check_place(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                              size_t count) {
    if (!out || !sim_is_graph(graph) || (count && !on))
        return hipErrorInvalidValue;
    for (size_t i = 0; i < count; i++)
        if (!sim_is_node(on[i]) || on[i]->graph != graph)
            return hipErrorInvalidValue;
    return hipSuccess;
}

hipError_t sim_graph_place(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                           size_t count, hipGraphNodeType type) {
    hipError_t error = check_place(out, graph, on, count);
    hipGraphNode_t node = error == hipSuccess ? sim_graph_add(graph, type, on, count) : nullptr;
    if (error == hipSuccess && !node)
        error = hipErrorOutOfMemory;
    if (node)
        *out = node;
    return error;
}

hipError_t sim_graph_keep(hipGraphNode_t *out, hipError_t error) {
    if (error != hipSuccess) {
        sim_graph_remove(*out);
        *out = nullptr;
    }
    return error;
}

hipError_t hipGraphAddEmptyNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                size_t count) {
    SIM_HIP_START();
    return sim_hip_result(sim_graph_place(out, graph, on, count, hipGraphNodeTypeEmpty));
}

hipError_t sim_graph_typed(hipGraphNode_t node, hipGraphNodeType type) {
    return sim_is_node(node) && node->type == type ? hipSuccess : hipErrorInvalidValue;
}

hipError_t sim_exec_typed(hipGraphNode_t *out, hipGraphExec_t exec, hipGraphNode_t node,
                          hipGraphNodeType type) {
    if (!exec || !sim_handle_is(SIM_HANDLE_EXEC, exec) || !sim_is_node(node) || node->type != type)
        return hipErrorInvalidValue;
    *out = sim_exec_node(exec, node);
    const bool is_copy = *out && (*out)->type == type; // the node it was made of may be gone
    return is_copy ? hipSuccess : hipErrorInvalidValue;
}

// ---- kernels

/** Makes pointers to the arguments of an operation, as the program asks for them; null without
 *  memory. */
static void **params_of(sim_op *op) {
    const sim_kernel *k = sim_hip_launch_of(op)->function->kernel;
    void **params = calloc(k->num_args + 1, sizeof *params);
    uint32_t n = 0;
    for (uint32_t i = 0; params && i < k->num_args; i++)
        if (k->args[i].hidden < 0)
            params[n++] = sim_hip_launch_args(op) + k->args[i].offset;
    return params;
}

bool sim_node_set_op(hipGraphNode_t node, sim_op *op) {
    void **params = nullptr;
    if (op && op->kind == SIM_OP_LAUNCH && !(params = params_of(op))) {
        sim_graph_free_op(op);
        return false;
    }
    sim_graph_free_op(node->op);
    free(node->kernel_params);
    node->op = op;
    node->kernel_params = params;
    return true;
}

static hipError_t set_kernel(hipGraphNode_t node, const hipKernelNodeParams *p) {
    if (!p || !p->func)
        return p ? hipErrorInvalidDeviceFunction : hipErrorInvalidValue;
    if (!p->kernelParams && !p->extra)
        return hipErrorInvalidValue;
    sim_launch l = {.grid = {p->gridDim.x, p->gridDim.y, p->gridDim.z},
                    .block = {p->blockDim.x, p->blockDim.y, p->blockDim.z},
                    .dynamic_lds = p->sharedMemBytes,
                    .params = p->kernelParams,
                    .extra = p->extra,
                    .host = p->func};
    hipError_t error = sim_hip_registered(&l.function, p->func, sim_hip_device());
    if (error == hipErrorInvalidDeviceFunction) { // then it is a module's function
        l.function = p->func;
        l.host = nullptr;
        error = sim_hip_is_function(l.function) ? hipSuccess : error;
    }
    sim_op *op;
    if (error == hipSuccess)
        error = sim_hip_launch_op(&op, nullptr, &l);
    if (error != hipSuccess)
        return error;
    if (node->op) // an attribute, which stays
        sim_hip_set_cooperative(op, sim_hip_is_cooperative(node->op));
    return sim_node_set_op(node, op) ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipGraphAddKernelNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                 size_t count, const hipKernelNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    hipError_t error = out ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeKernel)
                           : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_kernel(node, params)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams *params) {
    SIM_HIP_START();
    if (!params || sim_graph_typed(node, hipGraphNodeTypeKernel) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    const sim_launch *l = sim_hip_launch_of(node->op);
    *params = (hipKernelNodeParams){
        .func = l->host ? (void *)l->host : l->function,
        .gridDim = {l->grid[0], l->grid[1], l->grid[2]},
        .blockDim = {l->block[0], l->block[1], l->block[2]},
        .kernelParams = node->kernel_params,
        .sharedMemBytes = (unsigned)l->dynamic_lds,
    };
    return hipSuccess;
}

hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams *params) {
    SIM_HIP_START();
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeKernel);
    return sim_hip_result(error == hipSuccess ? set_kernel(node, params) : error);
}

hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                           const hipKernelNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeKernel);
    return sim_hip_result(error == hipSuccess ? set_kernel(copy, params) : error);
}

// ---- functions of the program

static hipError_t set_host(hipGraphNode_t node, const hipHostNodeParams *p) {
    if (!p || !p->fn)
        return hipErrorInvalidValue;
    sim_op *op = sim_hip_host_op(p);
    return op && sim_node_set_op(node, op) ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipGraphAddHostNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                               size_t count, const hipHostNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    hipError_t error =
        out ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeHost) : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_host(node, params)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams *params) {
    SIM_HIP_START();
    if (!params || sim_graph_typed(node, hipGraphNodeTypeHost) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *params = *sim_hip_host_of(node->op);
    return hipSuccess;
}

hipError_t hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams *params) {
    SIM_HIP_START();
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeHost);
    return sim_hip_result(error == hipSuccess ? set_host(node, params) : error);
}

hipError_t hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                         const hipHostNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeHost);
    return sim_hip_result(error == hipSuccess ? set_host(copy, params) : error);
}

// ---- batches of stream values

/** A device has one context, so that the one that is given changes nothing. */
static hipError_t set_batch(hipGraphNode_t node, const hipBatchMemOpNodeParams *p) {
    sim_op *op;
    const hipError_t error = p ? sim_hip_batch_op(&op, p) : hipErrorInvalidValue;
    if (error != hipSuccess)
        return error;
    return sim_node_set_op(node, op) ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipGraphAddBatchMemOpNode(hipGraphNode_t *out, hipGraph_t graph,
                                     const hipGraphNode_t *on, size_t count,
                                     const hipBatchMemOpNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    hipError_t error = out ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeBatchMemOp)
                           : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_batch(node, params)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

/** Gives the parameters; the operations are the node's, until it is changed or destroyed. */
hipError_t hipGraphBatchMemOpNodeGetParams(hipGraphNode_t node, hipBatchMemOpNodeParams *params) {
    SIM_HIP_START();
    if (!params || sim_graph_typed(node, hipGraphNodeTypeBatchMemOp) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *params = sim_hip_batch_of(node->op);
    return hipSuccess;
}

hipError_t hipGraphBatchMemOpNodeSetParams(hipGraphNode_t node, hipBatchMemOpNodeParams *params) {
    SIM_HIP_START();
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeBatchMemOp);
    return sim_hip_result(error == hipSuccess ? set_batch(node, params) : error);
}

hipError_t hipGraphExecBatchMemOpNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                               const hipBatchMemOpNodeParams *params) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeBatchMemOp);
    return sim_hip_result(error == hipSuccess ? set_batch(copy, params) : error);
}

// ---- events

static hipError_t add_event(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                            size_t count, hipEvent_t event, hipGraphNodeType type) {
    SIM_HIP_START();
    if (!sim_hip_is_event(event))
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_graph_place(out, graph, on, count, type);
    if (error == hipSuccess)
        (*out)->event = event;
    return sim_hip_result(error);
}

static hipError_t get_event(hipGraphNode_t node, hipEvent_t *out, hipGraphNodeType type) {
    SIM_HIP_START();
    if (!out || sim_graph_typed(node, type) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *out = node->event;
    return hipSuccess;
}

static hipError_t set_event(hipGraphNode_t node, hipEvent_t event, hipGraphNodeType type) {
    SIM_HIP_START();
    if (!sim_hip_is_event(event) || sim_graph_typed(node, type) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    node->event = event;
    return hipSuccess;
}

static hipError_t set_exec_event(hipGraphExec_t exec, hipGraphNode_t node, hipEvent_t event,
                                 hipGraphNodeType type) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, type);
    return error == hipSuccess ? set_event(copy, event, type) : sim_hip_result(error);
}

hipError_t hipGraphAddEventRecordNode(hipGraphNode_t *out, hipGraph_t graph,
                                      const hipGraphNode_t *on, size_t count, hipEvent_t event) {
    return add_event(out, graph, on, count, event, hipGraphNodeTypeEventRecord);
}

hipError_t hipGraphAddEventWaitNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                    size_t count, hipEvent_t event) {
    return add_event(out, graph, on, count, event, hipGraphNodeTypeWaitEvent);
}

hipError_t hipGraphEventRecordNodeGetEvent(hipGraphNode_t node, hipEvent_t *out) {
    return get_event(node, out, hipGraphNodeTypeEventRecord);
}

hipError_t hipGraphEventRecordNodeSetEvent(hipGraphNode_t node, hipEvent_t event) {
    return set_event(node, event, hipGraphNodeTypeEventRecord);
}

hipError_t hipGraphEventWaitNodeGetEvent(hipGraphNode_t node, hipEvent_t *out) {
    return get_event(node, out, hipGraphNodeTypeWaitEvent);
}

hipError_t hipGraphEventWaitNodeSetEvent(hipGraphNode_t node, hipEvent_t event) {
    return set_event(node, event, hipGraphNodeTypeWaitEvent);
}

hipError_t hipGraphExecEventRecordNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                               hipEvent_t event) {
    return set_exec_event(exec, node, event, hipGraphNodeTypeEventRecord);
}

hipError_t hipGraphExecEventWaitNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                             hipEvent_t event) {
    return set_exec_event(exec, node, event, hipGraphNodeTypeWaitEvent);
}

// ---- graphs

/** Copies the child, which may change later without this node. */
static hipError_t set_child(hipGraphNode_t node, hipGraph_t child) {
    hipGraph_t copy = sim_graph_clone(child);
    if (!copy)
        return hipErrorOutOfMemory;
    copy->is_inner = true;
    if (node->child)
        sim_graph_destroy(node->child);
    node->child = copy;
    return hipSuccess;
}

hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *out, hipGraph_t graph,
                                     const hipGraphNode_t *on, size_t count, hipGraph_t child) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    if (!out || !sim_is_graph(child))
        return sim_hip_result(hipErrorInvalidValue);
    if (sim_graph_has_memory(child))
        return sim_hip_result(hipErrorNotSupported); // its blocks would be those of two graphs
    // A graph may be its own child, as it was before it has one.
    hipGraph_t before = child == graph ? sim_graph_clone(child) : child;
    if (!before)
        return sim_hip_result(hipErrorOutOfMemory);
    hipError_t error = sim_graph_place(&node, graph, on, count, hipGraphNodeTypeGraph);
    error = error == hipSuccess ? sim_graph_keep(&node, set_child(node, before)) : error;
    if (before != child)
        sim_graph_destroy(before);
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t *out) {
    SIM_HIP_START();
    if (!out || sim_graph_typed(node, hipGraphNodeTypeGraph) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *out = node->child;
    return hipSuccess;
}

hipError_t hipGraphExecChildGraphNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                               hipGraph_t child) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeGraph);
    if (error == hipSuccess && (!sim_is_graph(child) || !sim_graph_is_alike(copy->child, child)))
        error = hipErrorInvalidValue;
    return sim_hip_result(error == hipSuccess ? set_child(copy, child) : error);
}
