// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs that copy and fill memory.
#include "graph.h"

hipError_t sim_node_set_box(hipGraphNode_t node, const sim_box *box, hipMemcpyKind kind) {
    sim_op *op;
    bool waits;
    hipError_t error = sim_hip_box_op(&op, box, kind, &waits);
    if (error == hipSuccess && !sim_node_set_op(node, op))
        error = hipErrorOutOfMemory;
    return error;
}

static hipError_t set_copy(hipGraphNode_t node, const hipMemcpy3DParms *p) {
    sim_box box;
    hipError_t error = sim_hip_volume(&box, p);
    if (error == hipSuccess && (!box.width || !box.height || !box.depth))
        error = hipErrorInvalidValue; // a node copies something
    error = error == hipSuccess ? sim_node_set_box(node, &box, p->kind) : error;
    if (error == hipSuccess) {
        node->copy = *p;
        node->has_driver_copy = false;
    }
    return error == hipErrorInvalidPitchValue ? hipErrorInvalidValue : error;
}

/** A row's copy as one of three dimensions. */
static hipMemcpy3DParms row_of(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
    return (hipMemcpy3DParms){.dstPtr = {dst, bytes, bytes, 1},
                              .srcPtr = {(void *)src, bytes, bytes, 1},
                              .extent = {bytes, 1, 1},
                              .kind = kind};
}

static hipError_t add(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on, size_t count,
                      const hipMemcpy3DParms *p) {
    hipGraphNode_t node = nullptr;
    hipError_t error = out ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeMemcpy)
                           : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_copy(node, p)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

static hipError_t set(hipGraphNode_t node, const hipMemcpy3DParms *p) {
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeMemcpy);
    return sim_hip_result(error == hipSuccess ? set_copy(node, p) : error);
}

/** The copy's direction may not change by its name, as with AMD's runtime. */
static hipError_t set_exec(hipGraphExec_t exec, hipGraphNode_t node, const hipMemcpy3DParms *p) {
    hipGraphNode_t copy;
    hipError_t error =
        p ? sim_exec_typed(&copy, exec, node, hipGraphNodeTypeMemcpy) : hipErrorInvalidValue;
    if (error == hipSuccess && !copy->has_driver_copy && copy->copy.kind != p->kind)
        error = hipErrorInvalidValue;
    return sim_hip_result(error == hipSuccess ? set_copy(copy, p) : error);
}

hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                 size_t count, const hipMemcpy3DParms *params) {
    SIM_HIP_START();
    return add(out, graph, on, count, params);
}

hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms *params) {
    SIM_HIP_START();
    if (!params || sim_graph_typed(node, hipGraphNodeTypeMemcpy) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *params = node->copy;
    return hipSuccess;
}

hipError_t hipGraphMemcpyNodeSetParams(hipGraphNode_t node, const hipMemcpy3DParms *params) {
    SIM_HIP_START();
    return set(node, params);
}

hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                           hipMemcpy3DParms *params) {
    SIM_HIP_START();
    return set_exec(exec, node, params);
}

// ---- rows, which are not copied onto themselves, unlike boxes

static bool is_idle(const hipMemcpy3DParms *row) {
    return row->dstPtr.ptr == row->srcPtr.ptr;
}

static hipError_t add_row(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                          size_t count, const hipMemcpy3DParms *row) {
    return is_idle(row) ? sim_hip_result(hipErrorInvalidValue) : add(out, graph, on, count, row);
}

static hipError_t set_row(hipGraphNode_t node, const hipMemcpy3DParms *row) {
    return is_idle(row) ? sim_hip_result(hipErrorInvalidValue) : set(node, row);
}

static hipError_t set_exec_row(hipGraphExec_t exec, hipGraphNode_t node,
                               const hipMemcpy3DParms *row) {
    return is_idle(row) ? sim_hip_result(hipErrorInvalidValue) : set_exec(exec, node, row);
}

hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                   size_t count, void *dst, const void *src, size_t bytes,
                                   hipMemcpyKind kind) {
    SIM_HIP_START();
    const hipMemcpy3DParms row = row_of(dst, src, bytes, kind);
    return add_row(out, graph, on, count, &row);
}

hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void *dst, const void *src,
                                         size_t bytes, hipMemcpyKind kind) {
    SIM_HIP_START();
    const hipMemcpy3DParms row = row_of(dst, src, bytes, kind);
    return set_row(node, &row);
}

hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void *dst,
                                             const void *src, size_t bytes, hipMemcpyKind kind) {
    SIM_HIP_START();
    const hipMemcpy3DParms row = row_of(dst, src, bytes, kind);
    return set_exec_row(exec, node, &row);
}

// ---- variables

/** Finds the row that copies to a variable or, if `dst` is not null, from it. */
static hipError_t symbol_row(hipMemcpy3DParms *out, void *dst, const void *src, const void *symbol,
                             size_t bytes, size_t offset, hipMemcpyKind kind) {
    void *at;
    hipError_t error = sim_hip_symbol(symbol, bytes, offset, &at);
    if (error == hipSuccess)
        *out = dst ? row_of(dst, at, bytes, kind) : row_of(at, src, bytes, kind);
    return error;
}

hipError_t hipGraphAddMemcpyNodeToSymbol(hipGraphNode_t *out, hipGraph_t graph,
                                         const hipGraphNode_t *on, size_t count, const void *symbol,
                                         const void *src, size_t bytes, size_t offset,
                                         hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error = symbol_row(&row, nullptr, src, symbol, bytes, offset, kind);
    return error == hipSuccess ? add_row(out, graph, on, count, &row) : sim_hip_result(error);
}

hipError_t hipGraphAddMemcpyNodeFromSymbol(hipGraphNode_t *out, hipGraph_t graph,
                                           const hipGraphNode_t *on, size_t count, void *dst,
                                           const void *symbol, size_t bytes, size_t offset,
                                           hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error =
        dst ? symbol_row(&row, dst, nullptr, symbol, bytes, offset, kind) : hipErrorInvalidValue;
    return error == hipSuccess ? add_row(out, graph, on, count, &row) : sim_hip_result(error);
}

hipError_t hipGraphMemcpyNodeSetParamsToSymbol(hipGraphNode_t node, const void *symbol,
                                               const void *src, size_t bytes, size_t offset,
                                               hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error = symbol_row(&row, nullptr, src, symbol, bytes, offset, kind);
    return error == hipSuccess ? set_row(node, &row) : sim_hip_result(error);
}

hipError_t hipGraphMemcpyNodeSetParamsFromSymbol(hipGraphNode_t node, void *dst, const void *symbol,
                                                 size_t bytes, size_t offset, hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error =
        dst ? symbol_row(&row, dst, nullptr, symbol, bytes, offset, kind) : hipErrorInvalidValue;
    return error == hipSuccess ? set_row(node, &row) : sim_hip_result(error);
}

hipError_t hipGraphExecMemcpyNodeSetParamsToSymbol(hipGraphExec_t exec, hipGraphNode_t node,
                                                   const void *symbol, const void *src,
                                                   size_t bytes, size_t offset,
                                                   hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error = symbol_row(&row, nullptr, src, symbol, bytes, offset, kind);
    return error == hipSuccess ? set_exec_row(exec, node, &row) : sim_hip_result(error);
}

hipError_t hipGraphExecMemcpyNodeSetParamsFromSymbol(hipGraphExec_t exec, hipGraphNode_t node,
                                                     void *dst, const void *symbol, size_t bytes,
                                                     size_t offset, hipMemcpyKind kind) {
    SIM_HIP_START();
    hipMemcpy3DParms row;
    hipError_t error =
        dst ? symbol_row(&row, dst, nullptr, symbol, bytes, offset, kind) : hipErrorInvalidValue;
    return error == hipSuccess ? set_exec_row(exec, node, &row) : sim_hip_result(error);
}

// ---- fills

static hipError_t set_fill(hipGraphNode_t node, const hipMemsetParams *p) {
    if (!p || !p->dst || !p->width || !p->height ||
        (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)) {
        return hipErrorInvalidValue;
    }
    sim_box box = {.dst = p->dst,
                   .height = p->height,
                   .depth = 1,
                   .value = p->elementSize == 1 ? (uint8_t)p->value : p->value,
                   .unit = p->elementSize};
    if (__builtin_mul_overflow(p->width, (size_t)p->elementSize, &box.width))
        return hipErrorInvalidValue;
    box.dst_pitch = p->height == 1 && p->pitch < box.width ? box.width : p->pitch;
    hipError_t error = sim_node_set_box(node, &box, hipMemcpyDefault);
    if (error == hipSuccess)
        node->fill = *p;
    return error == hipErrorInvalidPitchValue ? hipErrorInvalidValue : error;
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                 size_t count, const hipMemsetParams *params) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    hipError_t error = out ? sim_graph_place(&node, graph, on, count, hipGraphNodeTypeMemset)
                           : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_graph_keep(&node, set_fill(node, params)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams *params) {
    SIM_HIP_START();
    if (!params || sim_graph_typed(node, hipGraphNodeTypeMemset) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *params = node->fill;
    return hipSuccess;
}

hipError_t hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams *params) {
    SIM_HIP_START();
    hipError_t error = sim_graph_typed(node, hipGraphNodeTypeMemset);
    return sim_hip_result(error == hipSuccess ? set_fill(node, params) : error);
}

hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                           const hipMemsetParams *params) {
    SIM_HIP_START();
    hipGraphNode_t copy;
    hipError_t error = sim_exec_typed(&copy, exec, node, hipGraphNodeTypeMemset);
    return sim_hip_result(error == hipSuccess ? set_fill(copy, params) : error);
}

// ---- what a stream captured

void sim_graph_describe_box(hipGraphNode_t node) {
    const sim_box *b = sim_hip_box_of(node->op);
    if (node->type == hipGraphNodeTypeMemset) {
        node->fill = (hipMemsetParams){b->dst,       (unsigned)b->unit, b->height,
                                       b->dst_pitch, b->value,          b->width / b->unit};
        return;
    }
    const size_t dst_rows = b->dst_pitch ? b->dst_slice / b->dst_pitch : 0;
    const size_t src_rows = b->src_pitch ? b->src_slice / b->src_pitch : 0;
    node->copy = (hipMemcpy3DParms){
        .dstPtr = {b->dst, b->dst_pitch, b->width, dst_rows ? dst_rows : b->height},
        .srcPtr = {(void *)b->src, b->src_pitch, b->width, src_rows ? src_rows : b->height},
        .extent = {b->width, b->height, b->depth},
        .kind = b->kind};
}
