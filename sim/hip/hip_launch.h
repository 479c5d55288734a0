// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: cooperative launches, contexts, values that streams write and wait for.
#ifndef SIM_HIP_HIP_LAUNCH_H
#define SIM_HIP_HIP_LAUNCH_H

typedef struct sim_device *hipCtx_t; // a device's only context

typedef struct hipLaunchParams {
    void *func;
    dim3 gridDim, blockDim;
    void **args;
    size_t sharedMem;
    hipStream_t stream;
} hipLaunchParams;

typedef struct hipFunctionLaunchParams {
    hipFunction_t function;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    hipStream_t hStream;
    void **kernelParams;
} hipFunctionLaunchParams;

// Launches whose workgroups all run at a time (cooperative.c).
HIP_API hipError_t hipLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block,
                                              void **args, unsigned dynamic_lds,
                                              hipStream_t stream);
HIP_API hipError_t hipLaunchCooperativeKernel_spt(const void *kernel, dim3 grid, dim3 block,
                                                  void **args, unsigned dynamic_lds,
                                                  hipStream_t stream);
HIP_API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned grid_x,
                                                    unsigned grid_y, unsigned grid_z,
                                                    unsigned block_x, unsigned block_y,
                                                    unsigned block_z, unsigned dynamic_lds,
                                                    hipStream_t stream, void **params);
HIP_API hipError_t hipLaunchCooperativeKernelMultiDevice(hipLaunchParams *list, int count,
                                                         unsigned flags);
HIP_API hipError_t hipExtLaunchMultiKernelMultiDevice(hipLaunchParams *list, int count,
                                                      unsigned flags);
HIP_API hipError_t hipModuleLaunchCooperativeKernelMultiDevice(hipFunctionLaunchParams *list,
                                                               unsigned count, unsigned flags);

// Contexts (context.c).
HIP_API hipError_t hipCtxCreate(hipCtx_t *out, unsigned flags, hipDevice_t device);
HIP_API hipError_t hipCtxDestroy(hipCtx_t context);
HIP_API hipError_t hipCtxPushCurrent(hipCtx_t context);
HIP_API hipError_t hipCtxPopCurrent(hipCtx_t *out);
HIP_API hipError_t hipCtxSetCurrent(hipCtx_t context);
HIP_API hipError_t hipCtxGetCurrent(hipCtx_t *out);
HIP_API hipError_t hipCtxGetDevice(hipDevice_t *device);
HIP_API hipError_t hipCtxGetApiVersion(hipCtx_t context, unsigned *version);
HIP_API hipError_t hipCtxGetCacheConfig(int *config);
HIP_API hipError_t hipCtxSetCacheConfig(int config);
HIP_API hipError_t hipCtxGetSharedMemConfig(int *config);
HIP_API hipError_t hipCtxSetSharedMemConfig(int config);
HIP_API hipError_t hipCtxSynchronize(void);
HIP_API hipError_t hipCtxGetFlags(unsigned *flags);
HIP_API hipError_t hipCtxEnablePeerAccess(hipCtx_t peer, unsigned flags);
HIP_API hipError_t hipCtxDisablePeerAccess(hipCtx_t peer);
HIP_API hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned *flags, int *active);
HIP_API hipError_t hipDevicePrimaryCtxRetain(hipCtx_t *out, hipDevice_t device);
HIP_API hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device);
HIP_API hipError_t hipDevicePrimaryCtxReset(hipDevice_t device);
HIP_API hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned flags);
HIP_API hipError_t hipDeviceGetCacheConfig(int *config);
HIP_API hipError_t hipDeviceSetCacheConfig(int config);
HIP_API hipError_t hipDeviceGetSharedMemConfig(int *config);
HIP_API hipError_t hipDeviceSetSharedMemConfig(int config);

// Values (stream_values.c).
HIP_API hipError_t hipStreamWriteValue32(hipStream_t stream, void *ptr, uint32_t value,
                                         unsigned flags);
HIP_API hipError_t hipStreamWriteValue64(hipStream_t stream, void *ptr, uint64_t value,
                                         unsigned flags);
HIP_API hipError_t hipStreamWaitValue32(hipStream_t stream, void *ptr, uint32_t value,
                                        unsigned flags, uint32_t mask);
HIP_API hipError_t hipStreamWaitValue64(hipStream_t stream, void *ptr, uint64_t value,
                                        unsigned flags, uint64_t mask);

/** One of the operations of hipStreamBatchMemOp. */
typedef union hipStreamBatchMemOpParams {
    int operation;
    struct {
        int operation;
        hipDeviceptr_t address;
        union {
            uint32_t value;
            uint64_t value64;
        };
        unsigned flags;
        hipDeviceptr_t alias; // not read
    } value;
    uint64_t pad[6];
} hipStreamBatchMemOpParams;

/** Several of them, of a graph's node. */
typedef struct hipBatchMemOpNodeParams {
    hipCtx_t ctx;
    unsigned count;
    hipStreamBatchMemOpParams *paramArray;
    unsigned flags; // 0
} hipBatchMemOpNodeParams;

HIP_API hipError_t hipStreamBatchMemOp(hipStream_t stream, unsigned count,
                                       hipStreamBatchMemOpParams *operations, unsigned flags);

// Attributes (stream_info.c).
HIP_API hipError_t hipStreamSetAttribute(hipStream_t stream, int attribute,
                                         const hipLaunchAttributeValue *value);
HIP_API hipError_t hipStreamGetAttribute(hipStream_t stream, int attribute,
                                         hipLaunchAttributeValue *value);
HIP_API hipError_t hipStreamCopyAttributes(hipStream_t to, hipStream_t from);

// Devices.
HIP_API hipError_t hipSetValidDevices(int *list, int count);
HIP_API hipError_t hipExtGetLinkTypeAndHopCount(int device, int peer, uint32_t *type,
                                                uint32_t *hops);

#endif
