// SPDX-License-Identifier: Apache-2.0
// Nodes whose type the parameters say.
#include "graph.h"

#include <string.h>

/** Returns whether what must be zero is. */
static bool are_good(const hipGraphNodeParams *p) {
    static const int zeros[4];
    return p && memcmp(p->reserved0, zeros, sizeof p->reserved0) == 0 && !p->reserved2 &&
           (p->type != hipGraphNodeTypeMemcpy || memcmp(&p->memcpy, zeros, sizeof zeros) == 0);
}

/** Adds a node. Semaphores of other APIs have no nodes: hipErrorNotSupported. */
hipError_t hipGraphAddNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                           size_t count, hipGraphNodeParams *p) {
    enum { SEMAPHORE_SIGNAL = 8, SEMAPHORE_WAIT = 9 };
    SIM_HIP_START();
    if (!are_good(p))
        return sim_hip_result(hipErrorInvalidValue);
    switch ((int)p->type) {
    case hipGraphNodeTypeKernel:
        return hipGraphAddKernelNode(out, graph, on, count, &p->kernel);
    case hipGraphNodeTypeMemcpy:
        return hipGraphAddMemcpyNode(out, graph, on, count, &p->memcpy.copyParams);
    case hipGraphNodeTypeMemset:
        return hipGraphAddMemsetNode(out, graph, on, count, &p->memset);
    case hipGraphNodeTypeHost:
        return hipGraphAddHostNode(out, graph, on, count, &p->host);
    case hipGraphNodeTypeGraph:
        return hipGraphAddChildGraphNode(out, graph, on, count, p->graph.graph);
    case hipGraphNodeTypeEmpty:
        return hipGraphAddEmptyNode(out, graph, on, count);
    case hipGraphNodeTypeWaitEvent:
        return hipGraphAddEventWaitNode(out, graph, on, count, p->eventWait.event);
    case hipGraphNodeTypeEventRecord:
        return hipGraphAddEventRecordNode(out, graph, on, count, p->eventRecord.event);
    case hipGraphNodeTypeMemAlloc:
        return hipGraphAddMemAllocNode(out, graph, on, count, &p->alloc);
    case hipGraphNodeTypeMemFree:
        return hipGraphAddMemFreeNode(out, graph, on, count, p->free.dptr);
    case SEMAPHORE_SIGNAL:
    case SEMAPHORE_WAIT:
        return sim_hip_result(hipErrorNotSupported);
    }
    return sim_hip_result(hipErrorInvalidValue);
}

/** Changes a node, which keeps its type. A child graph and memory stay as they are made. */
hipError_t hipGraphNodeSetParams(hipGraphNode_t node, hipGraphNodeParams *p) {
    SIM_HIP_START();
    if (!are_good(p) || sim_graph_typed(node, p->type) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    switch ((int)p->type) {
    case hipGraphNodeTypeKernel:
        return hipGraphKernelNodeSetParams(node, &p->kernel);
    case hipGraphNodeTypeMemcpy:
        return hipGraphMemcpyNodeSetParams(node, &p->memcpy.copyParams);
    case hipGraphNodeTypeMemset:
        return hipGraphMemsetNodeSetParams(node, &p->memset);
    case hipGraphNodeTypeHost:
        return hipGraphHostNodeSetParams(node, &p->host);
    case hipGraphNodeTypeWaitEvent:
        return hipGraphEventWaitNodeSetEvent(node, p->eventWait.event);
    case hipGraphNodeTypeEventRecord:
        return hipGraphEventRecordNodeSetEvent(node, p->eventRecord.event);
    }
    return sim_hip_result(hipErrorInvalidValue);
}

hipError_t hipGraphExecNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                     hipGraphNodeParams *p) {
    SIM_HIP_START();
    if (!are_good(p) || sim_graph_typed(node, p->type) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    switch ((int)p->type) {
    case hipGraphNodeTypeKernel:
        return hipGraphExecKernelNodeSetParams(exec, node, &p->kernel);
    case hipGraphNodeTypeMemcpy:
        return hipGraphExecMemcpyNodeSetParams(exec, node, &p->memcpy.copyParams);
    case hipGraphNodeTypeMemset:
        return hipGraphExecMemsetNodeSetParams(exec, node, &p->memset);
    case hipGraphNodeTypeHost:
        return hipGraphExecHostNodeSetParams(exec, node, &p->host);
    case hipGraphNodeTypeGraph:
        return hipGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph);
    case hipGraphNodeTypeWaitEvent:
        return hipGraphExecEventWaitNodeSetEvent(exec, node, p->eventWait.event);
    case hipGraphNodeTypeEventRecord:
        return hipGraphExecEventRecordNodeSetEvent(exec, node, p->eventRecord.event);
    }
    return sim_hip_result(hipErrorInvalidValue);
}
