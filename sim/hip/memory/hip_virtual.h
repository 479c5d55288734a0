// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: ranges of addresses and the memory behind them, and what processes share.
#ifndef SIM_HIP_HIP_VIRTUAL_H
#define SIM_HIP_HIP_VIRTUAL_H

#include "hip_memory.h"

typedef struct sim_physical *hipMemGenericAllocationHandle_t;

typedef struct hipMemAllocationProp {
    int type;                // 1: pinned, the only kind
    int requestedHandleType; // 0: none, 1: a file descriptor
    hipMemLocation location; // a device
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
    } allocFlags;
} hipMemAllocationProp;

typedef struct hipIpcMemHandle_t {
    char reserved[64];
} hipIpcMemHandle_t;

typedef struct hipIpcEventHandle_t {
    char reserved[64];
} hipIpcEventHandle_t;

// Ranges (virtual.c).
HIP_API hipError_t hipMemGetAllocationGranularity(size_t *out, const hipMemAllocationProp *prop,
                                                  int option);
HIP_API hipError_t hipMemAddressReserve(void **out, size_t bytes, size_t alignment, void *wish,
                                        unsigned long long flags);
HIP_API hipError_t hipMemAddressFree(void *ptr, size_t bytes);
HIP_API hipError_t hipMemMap(void *ptr, size_t bytes, size_t offset,
                             hipMemGenericAllocationHandle_t handle, unsigned long long flags);
HIP_API hipError_t hipMemUnmap(void *ptr, size_t bytes);
HIP_API hipError_t hipMemSetAccess(void *ptr, size_t bytes, const hipMemAccessDesc *list,
                                   size_t count);
HIP_API hipError_t hipMemGetAccess(unsigned long long *flags, const hipMemLocation *location,
                                   void *ptr);

// Memory without an address (physical.c).
HIP_API hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *out, size_t bytes,
                                const hipMemAllocationProp *prop, unsigned long long flags);
HIP_API hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle);
HIP_API hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *out, void *ptr);
HIP_API hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *prop,
                                                           hipMemGenericAllocationHandle_t handle);
HIP_API hipError_t hipMemExportToShareableHandle(void *out, hipMemGenericAllocationHandle_t handle,
                                                 int type, unsigned long long flags);
HIP_API hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *out,
                                                   void *handle, int type);

// Other processes' memory and events (ipc.c, ipc_events.c).
HIP_API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *ptr);
HIP_API hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags);
HIP_API hipError_t hipIpcCloseMemHandle(void *ptr);
HIP_API hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t *out, hipEvent_t event);
HIP_API hipError_t hipIpcOpenEventHandle(hipEvent_t *out, hipIpcEventHandle_t handle);

#endif
