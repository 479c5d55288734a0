// SPDX-License-Identifier: Apache-2.0
// Attributes of kernel nodes: whether the launch is cooperative; a priority and a window of
// addresses for a cache, which are kept and told and change nothing.
#include "graph.h"

enum { WINDOW = 1, COOPERATIVE = 2, PRIORITY = 8 }; // hipLaunchAttributeID

static hipError_t set_cooperative(hipGraphNode_t node, int is_cooperative) {
    if (is_cooperative && sim_hip.options.clock != SIM_CLOCK_OFF)
        return hipErrorNotSupported;
    if (is_cooperative && !sim_hip_fits(sim_hip_launch_of(node->op)))
        return hipErrorCooperativeLaunchTooLarge;
    sim_hip_set_cooperative(node->op, is_cooperative);
    node->cooperative = is_cooperative;
    return hipSuccess;
}

/** Returns whether a window can be one: its hits are a share, its properties known, and it has the
 *  size of the device's largest, 0 bytes, as with AMD's runtime. */
static bool is_window(const hipLaunchAttributeValue *v) {
    enum { PERSISTING = 2 };
    return !v->window.num_bytes && v->window.hit_ratio >= 0 && v->window.hit_ratio <= 1 &&
           v->window.hit_prop >= 0 && v->window.hit_prop <= PERSISTING &&
           v->window.miss_prop >= 0 && v->window.miss_prop < PERSISTING;
}

hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t node, int attribute,
                                          const hipLaunchAttributeValue *value) {
    SIM_HIP_START();
    hipError_t error = value ? sim_graph_typed(node, hipGraphNodeTypeKernel) : hipErrorInvalidValue;
    if (error != hipSuccess)
        return sim_hip_result(error);
    if (attribute == COOPERATIVE)
        return sim_hip_result(set_cooperative(node, value->number));
    if (attribute == PRIORITY && value->number >= SIM_GREATEST_PRIORITY &&
        value->number <= SIM_LEAST_PRIORITY)
        node->priority = value->number;
    else if (attribute == WINDOW && is_window(value))
        node->window = *value;
    else
        return sim_hip_result(hipErrorInvalidValue);
    return hipSuccess;
}

hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t node, int attribute,
                                          hipLaunchAttributeValue *value) {
    SIM_HIP_START();
    if (!value || sim_graph_typed(node, hipGraphNodeTypeKernel) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    if (attribute == COOPERATIVE)
        value->number = node->cooperative ? node->cooperative : sim_hip_is_cooperative(node->op);
    else if (attribute == PRIORITY)
        value->number = node->priority;
    else if (attribute == WINDOW)
        *value = node->window;
    else
        return sim_hip_result(hipErrorInvalidValue);
    return hipSuccess;
}

hipError_t hipGraphKernelNodeCopyAttributes(hipGraphNode_t from, hipGraphNode_t to) {
    SIM_HIP_START();
    if (sim_graph_typed(from, hipGraphNodeTypeKernel) != hipSuccess ||
        sim_graph_typed(to, hipGraphNodeTypeKernel) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = set_cooperative(to, sim_hip_is_cooperative(from->op));
    if (error == hipSuccess) {
        to->window = from->window;
        to->priority = from->priority;
        to->cooperative = from->cooperative;
    }
    return sim_hip_result(error);
}
