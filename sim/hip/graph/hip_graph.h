// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: graphs, explicit and captured.
#ifndef SIM_HIP_HIP_GRAPH_H
#define SIM_HIP_HIP_GRAPH_H

#include "../hip_launch.h"
#include "../memory/hip_memory.h"

typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;

typedef enum hipGraphNodeType {
    hipGraphNodeTypeKernel = 0,
    hipGraphNodeTypeMemcpy = 1,
    hipGraphNodeTypeMemset = 2,
    hipGraphNodeTypeHost = 3,
    hipGraphNodeTypeGraph = 4,
    hipGraphNodeTypeEmpty = 5,
    hipGraphNodeTypeWaitEvent = 6,
    hipGraphNodeTypeEventRecord = 7,
    hipGraphNodeTypeMemAlloc = 10,
    hipGraphNodeTypeMemFree = 11,
    hipGraphNodeTypeBatchMemOp = 14,
} hipGraphNodeType;

typedef struct hipKernelNodeParams {
    dim3 blockDim;
    void **extra;
    void *func; // as the program knows the kernel, or a hipFunction_t
    dim3 gridDim;
    void **kernelParams;
    unsigned sharedMemBytes;
} hipKernelNodeParams;

typedef struct hipMemsetParams {
    void *dst;
    unsigned elementSize; // 1, 2 or 4
    size_t height, pitch;
    unsigned value;
    size_t width; // elements
} hipMemsetParams;

typedef struct hipMemAllocNodeParams {
    hipMemPoolProps poolProps;
    const hipMemAccessDesc *accessDescs;
    size_t accessDescCount, bytesize;
    void *dptr; // written by the call
} hipMemAllocNodeParams;

/** Parameters of a node of any type. */
typedef struct hipGraphNodeParams {
    hipGraphNodeType type;
    int reserved0[3];
    union {
        long long reserved1[29];
        hipKernelNodeParams kernel;
        struct {
            int flags, reserved[3];
            hipMemcpy3DParms copyParams;
        } memcpy;
        hipMemsetParams memset;
        hipHostNodeParams host;
        struct {
            hipGraph_t graph;
        } graph;
        struct {
            hipEvent_t event;
        } eventWait, eventRecord;
        hipMemAllocNodeParams alloc;
        struct {
            void *dptr;
        } free;
    };
    long long reserved2;
} hipGraphNodeParams;

typedef struct hipUserObject *hipUserObject_t;

/** HIP_MEMSET_NODE_PARAMS */
typedef struct hipDrvMemsetParams {
    hipDeviceptr_t dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
} hipDrvMemsetParams;

typedef enum hipGraphExecUpdateResult {
    hipGraphExecUpdateSuccess = 0,
    hipGraphExecUpdateError = 1,
    hipGraphExecUpdateErrorTopologyChanged = 2,
    hipGraphExecUpdateErrorNodeTypeChanged = 3,
    hipGraphExecUpdateErrorFunctionChanged = 4,
    hipGraphExecUpdateErrorParametersChanged = 5,
} hipGraphExecUpdateResult;

typedef struct hipGraphInstantiateParams {
    hipGraphNode_t errNode_out;
    unsigned long long flags;
    int result_out;
    hipStream_t uploadStream;
} hipGraphInstantiateParams;

typedef enum hipStreamCaptureMode {
    hipStreamCaptureModeGlobal,
    hipStreamCaptureModeThreadLocal,
    hipStreamCaptureModeRelaxed,
} hipStreamCaptureMode;

typedef enum hipStreamCaptureStatus {
    hipStreamCaptureStatusNone,
    hipStreamCaptureStatusActive,
    hipStreamCaptureStatusInvalidated,
} hipStreamCaptureStatus;

// Graphs and how their nodes depend on each other (graph.c).
HIP_API hipError_t hipGraphCreate(hipGraph_t *out, unsigned flags);
HIP_API hipError_t hipGraphDestroy(hipGraph_t graph);
HIP_API hipError_t hipGraphClone(hipGraph_t *out, hipGraph_t graph);
HIP_API hipError_t hipGraphNodeFindInClone(hipGraphNode_t *out, hipGraphNode_t node,
                                           hipGraph_t clone);
HIP_API hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from,
                                           const hipGraphNode_t *to, size_t count);
HIP_API hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t *from,
                                              const hipGraphNode_t *to, size_t count);
HIP_API hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
HIP_API hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
HIP_API hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to,
                                    size_t *count);
HIP_API hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *nodes,
                                               size_t *count);
HIP_API hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t *nodes,
                                                 size_t *count);
HIP_API hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type);
HIP_API hipError_t hipGraphDestroyNode(hipGraphNode_t node);

// Nodes (nodes.c, copies.c).
HIP_API hipError_t hipGraphAddEmptyNode(hipGraphNode_t *out, hipGraph_t graph,
                                        const hipGraphNode_t *on, size_t count);
HIP_API hipError_t hipGraphAddKernelNode(hipGraphNode_t *out, hipGraph_t graph,
                                         const hipGraphNode_t *on, size_t count,
                                         const hipKernelNodeParams *params);
HIP_API hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams *params);
HIP_API hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node,
                                               const hipKernelNodeParams *params);
HIP_API hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                   const hipKernelNodeParams *params);
HIP_API hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t node, int attribute,
                                                  const hipLaunchAttributeValue *value);
HIP_API hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t node, int attribute,
                                                  hipLaunchAttributeValue *value);
HIP_API hipError_t hipGraphKernelNodeCopyAttributes(hipGraphNode_t from, hipGraphNode_t to);
HIP_API hipError_t hipGraphAddHostNode(hipGraphNode_t *out, hipGraph_t graph,
                                       const hipGraphNode_t *on, size_t count,
                                       const hipHostNodeParams *params);
HIP_API hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams *params);
HIP_API hipError_t hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams *params);
HIP_API hipError_t hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                 const hipHostNodeParams *params);
HIP_API hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *out, hipGraph_t graph,
                                             const hipGraphNode_t *on, size_t count,
                                             hipGraph_t child);
HIP_API hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t *out);
HIP_API hipError_t hipGraphExecChildGraphNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                       hipGraph_t child);
HIP_API hipError_t hipGraphAddEventRecordNode(hipGraphNode_t *out, hipGraph_t graph,
                                              const hipGraphNode_t *on, size_t count,
                                              hipEvent_t event);
HIP_API hipError_t hipGraphAddEventWaitNode(hipGraphNode_t *out, hipGraph_t graph,
                                            const hipGraphNode_t *on, size_t count,
                                            hipEvent_t event);
HIP_API hipError_t hipGraphEventRecordNodeGetEvent(hipGraphNode_t node, hipEvent_t *out);
HIP_API hipError_t hipGraphEventRecordNodeSetEvent(hipGraphNode_t node, hipEvent_t event);
HIP_API hipError_t hipGraphEventWaitNodeGetEvent(hipGraphNode_t node, hipEvent_t *out);
HIP_API hipError_t hipGraphEventWaitNodeSetEvent(hipGraphNode_t node, hipEvent_t event);
HIP_API hipError_t hipGraphExecEventRecordNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                                       hipEvent_t event);
HIP_API hipError_t hipGraphExecEventWaitNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node,
                                                     hipEvent_t event);
HIP_API hipError_t hipGraphAddBatchMemOpNode(hipGraphNode_t *out, hipGraph_t graph,
                                             const hipGraphNode_t *on, size_t count,
                                             const hipBatchMemOpNodeParams *params);
HIP_API hipError_t hipGraphBatchMemOpNodeGetParams(hipGraphNode_t node,
                                                   hipBatchMemOpNodeParams *params);
HIP_API hipError_t hipGraphBatchMemOpNodeSetParams(hipGraphNode_t node,
                                                   hipBatchMemOpNodeParams *params);
HIP_API hipError_t hipGraphExecBatchMemOpNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                       const hipBatchMemOpNodeParams *params);
HIP_API hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *out, hipGraph_t graph,
                                         const hipGraphNode_t *on, size_t count,
                                         const hipMemcpy3DParms *params);
HIP_API hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms *params);
HIP_API hipError_t hipGraphMemcpyNodeSetParams(hipGraphNode_t node, const hipMemcpy3DParms *params);
HIP_API hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                   hipMemcpy3DParms *params);
HIP_API hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *out, hipGraph_t graph,
                                           const hipGraphNode_t *on, size_t count, void *dst,
                                           const void *src, size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void *dst, const void *src,
                                                 size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node,
                                                     void *dst, const void *src, size_t bytes,
                                                     hipMemcpyKind kind);
HIP_API hipError_t hipGraphAddMemcpyNodeToSymbol(hipGraphNode_t *out, hipGraph_t graph,
                                                 const hipGraphNode_t *on, size_t count,
                                                 const void *symbol, const void *src, size_t bytes,
                                                 size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipGraphAddMemcpyNodeFromSymbol(hipGraphNode_t *out, hipGraph_t graph,
                                                   const hipGraphNode_t *on, size_t count,
                                                   void *dst, const void *symbol, size_t bytes,
                                                   size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipGraphMemcpyNodeSetParamsToSymbol(hipGraphNode_t node, const void *symbol,
                                                       const void *src, size_t bytes, size_t offset,
                                                       hipMemcpyKind kind);
HIP_API hipError_t hipGraphMemcpyNodeSetParamsFromSymbol(hipGraphNode_t node, void *dst,
                                                         const void *symbol, size_t bytes,
                                                         size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipGraphExecMemcpyNodeSetParamsToSymbol(hipGraphExec_t exec, hipGraphNode_t node,
                                                           const void *symbol, const void *src,
                                                           size_t bytes, size_t offset,
                                                           hipMemcpyKind kind);
HIP_API hipError_t hipGraphExecMemcpyNodeSetParamsFromSymbol(hipGraphExec_t exec,
                                                             hipGraphNode_t node, void *dst,
                                                             const void *symbol, size_t bytes,
                                                             size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipGraphAddMemsetNode(hipGraphNode_t *out, hipGraph_t graph,
                                         const hipGraphNode_t *on, size_t count,
                                         const hipMemsetParams *params);
HIP_API hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams *params);
HIP_API hipError_t hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams *params);
HIP_API hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                   const hipMemsetParams *params);

// Memory (memory.c).
HIP_API hipError_t hipGraphAddMemAllocNode(hipGraphNode_t *out, hipGraph_t graph,
                                           const hipGraphNode_t *on, size_t count,
                                           hipMemAllocNodeParams *params);
HIP_API hipError_t hipGraphAddMemFreeNode(hipGraphNode_t *out, hipGraph_t graph,
                                          const hipGraphNode_t *on, size_t count, void *ptr);
HIP_API hipError_t hipDrvGraphAddMemFreeNode(hipGraphNode_t *out, hipGraph_t graph,
                                             const hipGraphNode_t *on, size_t count,
                                             hipDeviceptr_t ptr);
HIP_API hipError_t hipGraphMemAllocNodeGetParams(hipGraphNode_t node,
                                                 hipMemAllocNodeParams *params);
HIP_API hipError_t hipGraphMemFreeNodeGetParams(hipGraphNode_t node, void *out);
HIP_API hipError_t hipDeviceGetGraphMemAttribute(int device, int attribute, void *value);
HIP_API hipError_t hipDeviceSetGraphMemAttribute(int device, int attribute, void *value);
HIP_API hipError_t hipDeviceGraphMemTrim(int device);

// Nodes of any type (any.c), nodes as the driver's calls have them (driver.c).
HIP_API hipError_t hipGraphAddNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                   size_t count, hipGraphNodeParams *params);
HIP_API hipError_t hipGraphNodeSetParams(hipGraphNode_t node, hipGraphNodeParams *params);
HIP_API hipError_t hipGraphExecNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                             hipGraphNodeParams *params);
HIP_API hipError_t hipDrvGraphAddMemcpyNode(hipGraphNode_t *out, hipGraph_t graph,
                                            const hipGraphNode_t *on, size_t count,
                                            const HIP_MEMCPY3D *params, hipCtx_t context);
HIP_API hipError_t hipDrvGraphMemcpyNodeGetParams(hipGraphNode_t node, HIP_MEMCPY3D *params);
HIP_API hipError_t hipDrvGraphMemcpyNodeSetParams(hipGraphNode_t node, const HIP_MEMCPY3D *params);
HIP_API hipError_t hipDrvGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const HIP_MEMCPY3D *params, hipCtx_t context);
HIP_API hipError_t hipDrvGraphAddMemsetNode(hipGraphNode_t *out, hipGraph_t graph,
                                            const hipGraphNode_t *on, size_t count,
                                            const hipDrvMemsetParams *params, hipCtx_t context);
HIP_API hipError_t hipDrvGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const hipDrvMemsetParams *params,
                                                      hipCtx_t context);

// What graphs keep for the program (objects.c), and how they look (dot.c).
HIP_API hipError_t hipUserObjectCreate(hipUserObject_t *out, void *data, hipHostFn_t destroy,
                                       unsigned count, unsigned flags);
HIP_API hipError_t hipUserObjectRetain(hipUserObject_t object, unsigned count);
HIP_API hipError_t hipUserObjectRelease(hipUserObject_t object, unsigned count);
HIP_API hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object,
                                            unsigned count, unsigned flags);
HIP_API hipError_t hipGraphReleaseUserObject(hipGraph_t graph, hipUserObject_t object,
                                             unsigned count);
HIP_API hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char *path, unsigned flags);

// Execution (exec.c).
HIP_API hipError_t hipGraphInstantiate(hipGraphExec_t *out, hipGraph_t graph,
                                       hipGraphNode_t *error_node, char *log, size_t log_bytes);
HIP_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t graph,
                                                unsigned long long flags);
HIP_API hipError_t hipGraphInstantiateWithParams(hipGraphExec_t *out, hipGraph_t graph,
                                                 hipGraphInstantiateParams *params);
HIP_API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
HIP_API hipError_t hipGraphLaunch_spt(hipGraphExec_t exec, hipStream_t stream);
HIP_API hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t stream);
HIP_API hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
HIP_API hipError_t hipGraphExecGetFlags(hipGraphExec_t exec, unsigned long long *flags);
HIP_API hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph,
                                      hipGraphNode_t *error_node, hipGraphExecUpdateResult *result);
HIP_API hipError_t hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node,
                                          unsigned enabled);
HIP_API hipError_t hipGraphNodeGetEnabled(hipGraphExec_t exec, hipGraphNode_t node,
                                          unsigned *enabled);

// Capture (capture.c).
HIP_API hipError_t hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph,
                                                const hipGraphNode_t *on, const void *edges,
                                                size_t count, hipStreamCaptureMode mode);
HIP_API hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
HIP_API hipError_t hipStreamBeginCapture_spt(hipStream_t stream, hipStreamCaptureMode mode);
HIP_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *out);
HIP_API hipError_t hipStreamEndCapture_spt(hipStream_t stream, hipGraph_t *out);
HIP_API hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status);
HIP_API hipError_t hipStreamIsCapturing_spt(hipStream_t stream, hipStreamCaptureStatus *status);
HIP_API hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status,
                                           unsigned long long *id);
HIP_API hipError_t hipStreamGetCaptureInfo_spt(hipStream_t stream, hipStreamCaptureStatus *status,
                                               unsigned long long *id);
HIP_API hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status,
                                              unsigned long long *id, hipGraph_t *graph,
                                              const hipGraphNode_t **nodes, size_t *count);
HIP_API hipError_t hipStreamGetCaptureInfo_v2_spt(hipStream_t stream,
                                                  hipStreamCaptureStatus *status,
                                                  unsigned long long *id, hipGraph_t *graph,
                                                  const hipGraphNode_t **nodes, size_t *count);
HIP_API hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *nodes,
                                                      size_t count, unsigned flags);
HIP_API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);

#endif
