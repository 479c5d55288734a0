// SPDX-License-Identifier: Apache-2.0
// Nodes of copies and fills as the driver's calls have them. A device has one context, so that the
// one that is given changes nothing.
#include "graph.h"

static hipError_t set_copy(hipGraphNode_t node, const HIP_MEMCPY3D *p) {
    sim_box box;
    hipError_t error = p ? sim_hip_driver_volume(&box, p) : hipErrorInvalidValue;
    if (error == hipSuccess && (!box.width || !box.height || !box.depth))
        error = hipErrorInvalidValue; // a node copies something
    if (error == hipSuccess)
        error = sim_node_set_box(node, &box, sim_hip_copy_kind(p->dstMemoryType, p->srcMemoryType));
    if (error == hipSuccess) {
        node->driver_copy = *p;
        node->has_driver_copy = true;
    }
    return error == hipErrorInvalidPitchValue ? hipErrorInvalidValue : error;
}

hipError_t hipDrvGraphAddMemcpyNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                    size_t count, const HIP_MEMCPY3D *p, hipCtx_t context) {
    SIM_HIP_START();
    (void)context;
    hipGraphNode_t node = nullptr;
    hipError_t error = out && p ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeMemcpy)
                                : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_copy(node, p)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

/** Gives the parameters of a node that a driver's call made or changed last. */
hipError_t hipDrvGraphMemcpyNodeGetParams(hipGraphNode_t node, HIP_MEMCPY3D *p) {
    SIM_HIP_START();
    if (!p || sim_graph_typed(node, hipGraphNodeTypeMemcpy) != hipSuccess || !node->has_driver_copy)
        return sim_hip_result(hipErrorInvalidValue);
    *p = node->driver_copy;
    return hipSuccess;
}

hipError_t hipDrvGraphMemcpyNodeSetParams(hipGraphNode_t node, const HIP_MEMCPY3D *p) {
    SIM_HIP_START();
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeMemcpy);
    return sim_hip_result(error == hipSuccess ? set_copy(node, p) : error);
}

hipError_t hipDrvGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                              const HIP_MEMCPY3D *p, hipCtx_t context) {
    SIM_HIP_START();
    (void)context;
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeMemcpy);
    return sim_hip_result(error == hipSuccess ? set_copy(copy, p) : error);
}

static hipMemsetParams fill_of(const hipDrvMemsetParams *p) {
    return (hipMemsetParams){p->dst, p->elementSize, p->height, p->pitch, p->value, p->width};
}

hipError_t hipDrvGraphAddMemsetNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                    size_t count, const hipDrvMemsetParams *p, hipCtx_t context) {
    SIM_HIP_START();
    (void)context;
    if (!p)
        return sim_hip_result(hipErrorInvalidValue);
    const hipMemsetParams fill = fill_of(p);
    return hipGraphAddMemsetNode(out, graph, on, count, &fill);
}

hipError_t hipDrvGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                              const hipDrvMemsetParams *p, hipCtx_t context) {
    SIM_HIP_START();
    (void)context;
    if (!p)
        return sim_hip_result(hipErrorInvalidValue);
    const hipMemsetParams fill = fill_of(p);
    return hipGraphExecMemsetNodeSetParams(exec, node, &fill);
}
