// SPDX-License-Identifier: Apache-2.0
// Part of hip.h: what programs of HIP 5 and before call.
#ifndef SIM_HIP_HIP_OLD_H
#define SIM_HIP_HIP_OLD_H

/** hipDeviceProp_t of HIP 5. */
typedef struct hipDeviceProp_tR0000 {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int clockRate, memoryClockRate, memoryBusWidth; // kHz, kHz, bits
    size_t totalConstMem;
    int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode;
    int clockInstructionRate; // kHz
    unsigned arch;            // a bit for each feature of hipDeviceArch_t
    int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
    size_t maxSharedMemoryPerMultiProcessor;
    int isMultiGpuBoard, canMapHostMemory;
    int gcnArch; // 942: the chip's number without a letter
    char gcnArchName[256];
    int integrated, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    int textures[7]; // maxTexture1DLinear to maxTexture3D
    unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
    size_t memPitch, textureAlignment, texturePitchAlignment;
    int kernelExecTimeoutEnabled, ECCEnabled, tccDriver;
    int cooperativeMultiDeviceUnmatched[4];
    int isLargeBar, asicRevision;
    int managedMemory, directManagedMemAccessFromHost, concurrentManagedAccess;
    int pageableMemoryAccess, pageableMemoryAccessUsesHostPageTables;
} hipDeviceProp_tR0000;

static_assert(sizeof(hipDeviceProp_tR0000) == 792);
static_assert(offsetof(hipDeviceProp_tR0000, multiProcessorCount) == 336);
static_assert(offsetof(hipDeviceProp_tR0000, gcnArchName) == 396);
static_assert(offsetof(hipDeviceProp_tR0000, memPitch) == 712);
static_assert(offsetof(hipDeviceProp_tR0000, isLargeBar) == 764);

HIP_API hipError_t hipGetDevicePropertiesR0000(hipDeviceProp_tR0000 *out, int device);
HIP_API hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000 *out, int device);
HIP_API hipError_t hipChooseDeviceR0000(int *device, const hipDeviceProp_tR0000 *wanted);
HIP_API hipError_t hipChooseDevice(int *device, const hipDeviceProp_tR0000 *wanted);

// A launch by three calls (launch_old.c).
HIP_API hipError_t hipConfigureCall(dim3 grid, dim3 block, size_t dynamic_lds, hipStream_t stream);
HIP_API hipError_t hipSetupArgument(const void *argument, size_t bytes, size_t offset);
HIP_API hipError_t hipLaunchByPtr(const void *kernel);

#endif
