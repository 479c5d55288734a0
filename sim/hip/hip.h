// SPDX-License-Identifier: Apache-2.0
// The part of the HIP API that the simulated GPU has: types as in HIP 6 and 7, and our declarations
// of the calls.
//
// Calls that are not here are exported as not supported (unsupported.def). functions.def lists the
// calls once more by name, for hipGetProcAddress and for the test that compares the list with the
// library's exports.
#ifndef SIM_HIP_HIP_H
#define SIM_HIP_HIP_H

#include <stddef.h>
#include <stdint.h>

#define HIP_API [[gnu::visibility("default")]]

typedef enum hipError_t {
#define HIP_ERROR(name, value, text) name = value,
#include "errors.def"
#undef HIP_ERROR
} hipError_t;

typedef struct sim_stream *hipStream_t;
typedef struct sim_event *hipEvent_t;
typedef struct sim_module *hipModule_t;
typedef struct sim_function *hipFunction_t;
typedef void *hipDeviceptr_t;
typedef int hipDevice_t;

enum {
    HIP_VERSION = 70100000, // major * 10^7 + minor * 10^5 + patch
    hipStreamNonBlocking = 1,
    hipEventDisableTiming = 2,
    hipEventInterprocess = 4,
};

typedef enum hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault = 4,
    hipMemcpyDeviceToDeviceNoCU = 1024,
} hipMemcpyKind;

typedef enum hipMemoryType {
    hipMemoryTypeUnregistered = 0,
    hipMemoryTypeHost = 1,
    hipMemoryTypeDevice = 2,
    hipMemoryTypeManaged = 3,
    hipMemoryTypeArray = 10,
    hipMemoryTypeUnified = 11,
} hipMemoryType;

typedef struct hipPointerAttribute_t {
    hipMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;

typedef enum hipPointer_attribute {
    HIP_POINTER_ATTRIBUTE_CONTEXT = 1,
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    HIP_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    HIP_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    HIP_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
    HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    HIP_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    HIP_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE = 10,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    HIP_POINTER_ATTRIBUTE_MAPPED = 13,
    HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
    HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
} hipPointer_attribute;

typedef enum hipFunction_attribute {
    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    HIP_FUNC_ATTRIBUTE_NUM_REGS,
    HIP_FUNC_ATTRIBUTE_PTX_VERSION,
    HIP_FUNC_ATTRIBUTE_BINARY_VERSION,
    HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA,
    HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
} hipFunction_attribute;

typedef enum hipFuncAttribute {
    hipFuncAttributeMaxDynamicSharedMemorySize = 8,
    hipFuncAttributePreferredSharedMemoryCarveout = 9,
} hipFuncAttribute;

typedef struct hipFuncAttributes {
    int binaryVersion, cacheModeCA;
    size_t constSizeBytes, localSizeBytes;
    int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
    size_t sharedSizeBytes;
} hipFuncAttributes;

typedef void (*hipHostFn_t)(void *data);
typedef void (*hipStreamCallback_t)(hipStream_t stream, hipError_t status, void *data);

typedef struct dim3 {
    uint32_t x, y, z;
} dim3;

typedef struct hipHostNodeParams {
    hipHostFn_t fn;
    void *userData;
} hipHostNodeParams;

typedef union hipLaunchAttributeValue {
    alignas(8) char pad[64];
    int number;
    struct {
        void *base_ptr;
        int hit_prop;
        float hit_ratio;
        int miss_prop;
        size_t num_bytes;
    } window; // of addresses that a cache is to keep
} hipLaunchAttributeValue;

typedef struct hipLaunchAttribute {
    int id;
    hipLaunchAttributeValue value;
} hipLaunchAttribute;

typedef struct hipLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    hipStream_t stream;
    hipLaunchAttribute *attrs;
    unsigned numAttrs;
} hipLaunchConfig_t;

typedef struct HIP_LAUNCH_CONFIG {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    hipStream_t hStream;
    hipLaunchAttribute *attrs;
    unsigned numAttrs;
} HIP_LAUNCH_CONFIG;

typedef enum hipDeviceAttribute_t {
#define HIP_ATTRIBUTE(id, name, value) hipDeviceAttribute##name = id,
#include "attributes.def"
#undef HIP_ATTRIBUTE
} hipDeviceAttribute_t;

typedef enum hipDriverProcAddressQueryResult {
    HIP_GET_PROC_ADDRESS_SUCCESS = 0,
    HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
} hipDriverProcAddressQueryResult;

#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)

/** hipDeviceProp_t of HIP 6 and 7. Members that stay zero are here for their place only. */
typedef struct hipDeviceProp_tR0600 {
    char name[256];
    uint8_t uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate; // kHz
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap;
    int multiProcessorCount;
    int kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    int textures_and_surfaces[40]; // maxTexture1D to maxSurfaceCubemapLayered
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID;
    int tccDriver, asyncEngineCount, unifiedAddressing;
    int memoryClockRate, memoryBusWidth; // kHz, bits
    int l2CacheSize, persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
    int hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess;
    int concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
    int cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported_to_unifiedFunctionPointers[13];
    int reserved[63], hipReserved[32];
    char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor;
    int clockInstructionRate; // kHz
    unsigned arch;            // a bit for each feature of hipDeviceArch_t
    unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
    int cooperativeMultiDeviceUnmatched[4];
    int isLargeBar, asicRevision;
} hipDeviceProp_tR0600;

static_assert(sizeof(hipDeviceProp_tR0600) == 1472);
static_assert(offsetof(hipDeviceProp_tR0600, totalGlobalMem) == 288);
static_assert(offsetof(hipDeviceProp_tR0600, multiProcessorCount) == 388);
static_assert(offsetof(hipDeviceProp_tR0600, concurrentKernels) == 576);
static_assert(offsetof(hipDeviceProp_tR0600, l2CacheSize) == 616);
static_assert(offsetof(hipDeviceProp_tR0600, sharedMemPerMultiprocessor) == 640);
static_assert(offsetof(hipDeviceProp_tR0600, cooperativeLaunch) == 688);
static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == 1160);
static_assert(offsetof(hipDeviceProp_tR0600, maxSharedMemoryPerMultiProcessor) == 1416);
static_assert(offsetof(hipDeviceProp_tR0600, asicRevision) == 1468);

/** Adds devices and sets options of the simulated GPU, in QUERN_SIM's syntax:
 *  "arch=gfx942;check=none". Errors: hipErrorInvalidValue, with the reason on standard error. */
HIP_API int
quernsim_configure(const char *options); // a hipError_t, for callers without HIP's headers

/** How the meanings of the instructions that a kernel can reach are known, by the weakest of them:
 *  'm' measured on silicon by a published source, 'i' ISA text, 'l' LLVM's definition, '?'
 *  inferred; 0 if it is no kernel or has instructions that are not executed. `names` gets the
 *  mnemonics known no better, separated by blanks. */
HIP_API char quernsim_evidence(hipFunction_t function, char *names, size_t bytes);

/** Tells what launches took at modelled time, those of a device (-1: of all) since the last call
 *  that told it: as a JSON object of less than 2048 bytes, a profile's member "clock"
 *  (docs/clock.md), whose list of instructions is empty. Null for `json` asks for the answer alone,
 *  and forgets nothing. Returns whether a device's time is modelled: 0 while the clock is off, and
 *  for chips without a model. */
HIP_API int quernsim_clock(int device, char *json, size_t bytes);

/** Writes the chip that a device of the architecture would now be made with as a chip file
 *  (docs/clock.md), of less than 4096 bytes. Returns 1; 0 if no time is modelled for it, or the
 *  text has no room; -1 without memory. */
HIP_API int quernsim_chip(const char *arch, char *text, size_t bytes);

HIP_API hipError_t hipInit(unsigned flags);
HIP_API hipError_t hipDriverGetVersion(int *version);
HIP_API hipError_t hipRuntimeGetVersion(int *version);
HIP_API hipError_t hipGetDeviceCount(int *count);
HIP_API hipError_t hipSetDevice(int device);
HIP_API hipError_t hipGetDevice(int *device);
HIP_API hipError_t hipDeviceGet(hipDevice_t *device, int ordinal);
HIP_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device);
HIP_API hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device);
HIP_API hipError_t hipDeviceGetName(char *name, int bytes, hipDevice_t device);
HIP_API hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device);
HIP_API hipError_t hipDeviceSynchronize(void);
HIP_API hipError_t hipDeviceReset(void);
HIP_API hipError_t hipGetProcAddress(const char *symbol, void **function, int version,
                                     uint64_t flags, hipDriverProcAddressQueryResult *status);

HIP_API hipError_t hipGetLastError(void);
HIP_API hipError_t hipPeekAtLastError(void);
HIP_API const char *hipGetErrorString(hipError_t error);
HIP_API const char *hipGetErrorName(hipError_t error);

HIP_API hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total);
HIP_API hipError_t hipMalloc(void **out, size_t bytes);
HIP_API hipError_t hipFree(void *ptr);
HIP_API hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags);
HIP_API hipError_t hipHostFree(void *ptr);
HIP_API hipError_t hipHostGetDevicePointer(void **out, void *host, unsigned flags);
HIP_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr);
HIP_API hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute,
                                          hipDeviceptr_t ptr);
HIP_API hipError_t hipMemcpy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyAsync(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                  hipStream_t stream);
HIP_API hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void *src, size_t bytes);
HIP_API hipError_t hipMemcpyDtoH(void *dst, hipDeviceptr_t src, size_t bytes);
HIP_API hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes);
HIP_API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void *src, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipMemset(void *dst, int value, size_t bytes);
HIP_API hipError_t hipMemsetAsync(void *dst, int value, size_t bytes, hipStream_t stream);
HIP_API hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count);
HIP_API hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count,
                                    hipStream_t stream);
HIP_API hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, size_t count);
HIP_API hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count,
                                     hipStream_t stream);

HIP_API hipError_t hipStreamCreate(hipStream_t *out);
HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags);
HIP_API hipError_t hipStreamDestroy(hipStream_t stream);
HIP_API hipError_t hipStreamSynchronize(hipStream_t stream);
HIP_API hipError_t hipStreamQuery(hipStream_t stream);
HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);

HIP_API hipError_t hipEventCreate(hipEvent_t *out);
HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags);
HIP_API hipError_t hipEventDestroy(hipEvent_t event);
HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
HIP_API hipError_t hipEventSynchronize(hipEvent_t event);
HIP_API hipError_t hipEventQuery(hipEvent_t event);
HIP_API hipError_t hipEventElapsedTime(float *ms, hipEvent_t start, hipEvent_t stop);

HIP_API hipError_t hipModuleLoad(hipModule_t *out, const char *path);
HIP_API hipError_t hipModuleLoadData(hipModule_t *out, const void *image);
HIP_API hipError_t hipModuleLoadDataEx(hipModule_t *out, const void *image, unsigned num_options,
                                       void *options, void **values);
HIP_API hipError_t hipModuleUnload(hipModule_t module);
HIP_API hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module, const char *name);
HIP_API hipError_t hipModuleGetGlobal(hipDeviceptr_t *out, size_t *bytes, hipModule_t module,
                                      const char *name);
HIP_API hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute,
                                       hipFunction_t function);
HIP_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned dynamic_lds, hipStream_t stream,
                                         void **params, void **extra);
HIP_API hipError_t hipDrvLaunchKernelEx(const HIP_LAUNCH_CONFIG *config, hipFunction_t function,
                                        void **params, void **extra);

// What clang's HIP mode calls: a handle is a registered fat binary.
HIP_API void **__hipRegisterFatBinary(const void *wrapper);
HIP_API void __hipRegisterFunction(void **handle, const void *host, char *stub_name,
                                   const char *name, unsigned max_threads, void *thread_id,
                                   void *block_id, dim3 *block, dim3 *grid, int *wave_size);
HIP_API void __hipRegisterVar(void **handle, void *host, char *host_name, char *name,
                              int is_external, size_t bytes, int is_constant, int is_global);
HIP_API void __hipRegisterManagedVar(void **handle, void **host, void *initial, const char *name,
                                     size_t bytes, unsigned alignment);
HIP_API void __hipRegisterTexture(void **handle, void *host, char *host_name, char *name, int type,
                                  int is_normalized, int is_external);
HIP_API void __hipRegisterSurface(void **handle, void *host, char *host_name, char *name, int type,
                                  int is_external);
HIP_API void __hipUnregisterFatBinary(void **handle);
HIP_API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_lds,
                                              hipStream_t stream);
HIP_API hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic_lds,
                                             hipStream_t *stream);
HIP_API hipError_t hipLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                                   size_t dynamic_lds, hipStream_t stream);
HIP_API hipError_t hipLaunchKernelExC(const hipLaunchConfig_t *config, const void *kernel,
                                      void **args);
HIP_API hipError_t hipGetFuncBySymbol(hipFunction_t *out, const void *kernel);
HIP_API hipError_t hipFuncGetAttributes(hipFuncAttributes *out, const void *kernel);
HIP_API hipError_t hipFuncSetAttribute(const void *kernel, hipFuncAttribute attribute, int value);
HIP_API hipError_t hipFuncSetCacheConfig(const void *kernel, int config);
HIP_API hipError_t hipFuncSetSharedMemConfig(const void *kernel, int config);
HIP_API hipError_t hipGetSymbolAddress(void **out, const void *symbol);
HIP_API hipError_t hipGetSymbolSize(size_t *bytes, const void *symbol);
HIP_API hipError_t hipMemcpyToSymbol(const void *symbol, const void *src, size_t bytes,
                                     size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyToSymbolAsync(const void *symbol, const void *src, size_t bytes,
                                          size_t offset, hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpyFromSymbol(void *dst, const void *symbol, size_t bytes, size_t offset,
                                       hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t bytes,
                                            size_t offset, hipMemcpyKind kind, hipStream_t stream);

HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority);
HIP_API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned flags);
HIP_API hipError_t hipMemsetD16(hipDeviceptr_t dst, unsigned short value, size_t count);
HIP_API hipError_t hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, size_t count,
                                     hipStream_t stream);

HIP_API hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest);
HIP_API hipError_t hipStreamGetFlags(hipStream_t handle, unsigned *flags);
HIP_API hipError_t hipStreamGetPriority(hipStream_t handle, int *priority);
HIP_API hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t *device);
HIP_API hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data);
HIP_API hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback,
                                        void *data, unsigned flags);

HIP_API hipError_t hipHostRegister(void *ptr, size_t bytes, unsigned flags);
HIP_API hipError_t hipHostUnregister(void *ptr);
HIP_API hipError_t hipMallocAsync(void **out, size_t bytes, hipStream_t handle);
HIP_API hipError_t hipFreeAsync(void *ptr, hipStream_t handle);
HIP_API hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t ptr);
HIP_API hipError_t hipMemPtrGetInfo(void *ptr, size_t *bytes);
HIP_API hipError_t hipHostAlloc(void **out, size_t bytes, unsigned flags);
HIP_API hipError_t hipExtHostAlloc(void **out, size_t bytes, unsigned flags);
HIP_API hipError_t hipMallocHost(void **out, size_t bytes);
HIP_API hipError_t hipMemAllocHost(void **out, size_t bytes);
HIP_API hipError_t hipFreeHost(void *ptr);
HIP_API hipError_t hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags);
HIP_API hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                       hipStream_t stream);

HIP_API hipError_t hipMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                               size_t width, size_t height, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                    size_t width, size_t height, hipMemcpyKind kind,
                                    hipStream_t stream);
HIP_API hipError_t hipMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height);
HIP_API hipError_t hipMemset2DAsync(void *dst, size_t pitch, int value, size_t width, size_t height,
                                    hipStream_t stream);
HIP_API hipError_t hipMallocPitch(void **out, size_t *pitch, size_t width, size_t height);
HIP_API hipError_t hipMemAllocPitch(hipDeviceptr_t *out, size_t *pitch, size_t width, size_t height,
                                    unsigned element_bytes);

HIP_API hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
HIP_API hipError_t hipDeviceGetP2PAttribute(int *value, int attribute, int device, int peer);
HIP_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
HIP_API hipError_t hipDeviceDisablePeerAccess(int peer);
HIP_API hipError_t hipMemcpyPeer(void *dst, int to, const void *src, int from, size_t bytes);
HIP_API hipError_t hipMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t bytes,
                                      hipStream_t stream);
HIP_API hipError_t hipSetDeviceFlags(unsigned flags);
HIP_API hipError_t hipGetDeviceFlags(unsigned *flags);
HIP_API hipError_t hipDeviceGetLimit(size_t *value, int limit);
HIP_API hipError_t hipDeviceSetLimit(int limit, size_t value);
HIP_API hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device);
HIP_API hipError_t hipDeviceGetPCIBusId(char *text, int bytes, int device);
HIP_API hipError_t hipDeviceGetByPCIBusId(int *device, const char *text);
HIP_API hipError_t hipDeviceGetUuid(char uuid[16], hipDevice_t device);

HIP_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *groups, hipFunction_t f, int block, size_t dynamic_lds, unsigned flags);
HIP_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, hipFunction_t f,
                                                                      int block,
                                                                      size_t dynamic_lds);
HIP_API hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                                    hipFunction_t f,
                                                                    size_t dynamic_lds, int limit,
                                                                    unsigned flags);
HIP_API hipError_t hipModuleOccupancyMaxPotentialBlockSize(int *grid, int *block, hipFunction_t f,
                                                           size_t dynamic_lds, int limit);
HIP_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *groups, const void *kernel, int block, size_t dynamic_lds, unsigned flags);
HIP_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, const void *kernel,
                                                                int block, size_t dynamic_lds);
HIP_API hipError_t hipOccupancyMaxPotentialBlockSize(int *grid, int *block, const void *kernel,
                                                     size_t dynamic_lds, int limit);

/** A rectangle of hipMemcpyParam2D, in host or device memory. */
typedef struct hip_Memcpy2D {
    size_t srcXInBytes, srcY;
    hipMemoryType srcMemoryType;
    const void *srcHost;
    hipDeviceptr_t srcDevice;
    struct hipArray *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    hipMemoryType dstMemoryType;
    void *dstHost;
    hipDeviceptr_t dstDevice;
    struct hipArray *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} hip_Memcpy2D;

HIP_API hipError_t hipMemcpyParam2D(const hip_Memcpy2D *copy);
HIP_API hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D *copy, hipStream_t stream);
HIP_API hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D *copy);
HIP_API hipError_t hipMemsetD2D8(hipDeviceptr_t dst, size_t pitch, unsigned char value,
                                 size_t width, size_t height);
HIP_API hipError_t hipMemsetD2D8Async(hipDeviceptr_t dst, size_t pitch, unsigned char value,
                                      size_t width, size_t height, hipStream_t stream);
HIP_API hipError_t hipMemsetD2D16(hipDeviceptr_t dst, size_t pitch, unsigned short value,
                                  size_t width, size_t height);
HIP_API hipError_t hipMemsetD2D16Async(hipDeviceptr_t dst, size_t pitch, unsigned short value,
                                       size_t width, size_t height, hipStream_t stream);
HIP_API hipError_t hipMemsetD2D32(hipDeviceptr_t dst, size_t pitch, unsigned value, size_t width,
                                  size_t height);
HIP_API hipError_t hipMemsetD2D32Async(hipDeviceptr_t dst, size_t pitch, unsigned value,
                                       size_t width, size_t height, hipStream_t stream);
HIP_API hipError_t hipHostGetFlags(unsigned *flags, void *host);
HIP_API hipError_t hipDrvPointerGetAttributes(unsigned count, hipPointer_attribute *attributes,
                                              void **data, hipDeviceptr_t ptr);
HIP_API hipError_t hipModuleLoadFatBinary(hipModule_t *out, const void *image);
HIP_API hipError_t hipModuleGetFunctionCount(unsigned *count, hipModule_t module);
HIP_API hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *kernel,
                                                            int groups, int block);
HIP_API hipError_t hipStreamGetId(hipStream_t handle, unsigned long long *id);
HIP_API int hipGetStreamDeviceId(hipStream_t handle);
HIP_API hipError_t hipExtStreamCreateWithCUMask(hipStream_t *out, uint32_t words,
                                                const uint32_t *mask);
HIP_API hipError_t hipExtStreamGetCUMask(hipStream_t handle, uint32_t words, uint32_t *mask);
HIP_API hipError_t hipDrvGetErrorName(hipError_t error, const char **name);
HIP_API hipError_t hipDrvGetErrorString(hipError_t error, const char **text);
HIP_API hipError_t hipExtGetLastError(void);
HIP_API hipError_t hipChooseDeviceR0600(int *device, const hipDeviceProp_tR0600 *wanted);
HIP_API hipError_t hipGetDriverEntryPoint(const char *symbol, void **function, uint64_t flags,
                                          hipDriverProcAddressQueryResult *status);
HIP_API hipError_t hipGetDriverEntryPoint_spt(const char *symbol, void **function, uint64_t flags,
                                              hipDriverProcAddressQueryResult *status);
HIP_API hipError_t hipGetProcAddress_spt(const char *symbol, void **function, int version,
                                         uint64_t flags, hipDriverProcAddressQueryResult *status);

// Between two events; with the grid in work-items.
HIP_API hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t items_x, uint32_t items_y,
                                            uint32_t items_z, uint32_t block_x, uint32_t block_y,
                                            uint32_t block_z, size_t dynamic_lds,
                                            hipStream_t stream, void **params, void **extra,
                                            hipEvent_t start, hipEvent_t stop, uint32_t flags);
HIP_API hipError_t hipHccModuleLaunchKernel(hipFunction_t f, uint32_t items_x, uint32_t items_y,
                                            uint32_t items_z, uint32_t block_x, uint32_t block_y,
                                            uint32_t block_z, size_t dynamic_lds,
                                            hipStream_t stream, void **params, void **extra,
                                            hipEvent_t start, hipEvent_t stop);
HIP_API hipError_t hipExtLaunchKernel(const void *kernel, dim3 g, dim3 b, void **args,
                                      size_t dynamic_lds, hipStream_t handle, hipEvent_t start,
                                      hipEvent_t stop, int flags);
HIP_API const char *hipKernelNameRef(hipFunction_t f);
HIP_API const char *hipKernelNameRefByPtr(const void *kernel, hipStream_t handle);
HIP_API const char *hipApiName(uint32_t id);

// With the thread's own stream as the default (per_thread.c).
HIP_API hipError_t hipMemcpy_spt(void *dst, const void *src, size_t bytes, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyAsync_spt(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                      hipStream_t stream);
HIP_API hipError_t hipMemcpy2D_spt(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                   size_t width, size_t height, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpy2DAsync_spt(void *dst, size_t dst_pitch, const void *src,
                                        size_t src_pitch, size_t width, size_t height,
                                        hipMemcpyKind kind, hipStream_t stream);
HIP_API hipError_t hipMemcpyToSymbol_spt(const void *symbol, const void *src, size_t bytes,
                                         size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyToSymbolAsync_spt(const void *symbol, const void *src, size_t bytes,
                                              size_t offset, hipMemcpyKind kind,
                                              hipStream_t stream);
HIP_API hipError_t hipMemcpyFromSymbol_spt(void *dst, const void *symbol, size_t bytes,
                                           size_t offset, hipMemcpyKind kind);
HIP_API hipError_t hipMemcpyFromSymbolAsync_spt(void *dst, const void *symbol, size_t bytes,
                                                size_t offset, hipMemcpyKind kind,
                                                hipStream_t stream);
HIP_API hipError_t hipMemset_spt(void *dst, int value, size_t bytes);
HIP_API hipError_t hipMemsetAsync_spt(void *dst, int value, size_t bytes, hipStream_t stream);
HIP_API hipError_t hipMemset2D_spt(void *dst, size_t pitch, int value, size_t width, size_t height);
HIP_API hipError_t hipMemset2DAsync_spt(void *dst, size_t pitch, int value, size_t width,
                                        size_t height, hipStream_t stream);
HIP_API hipError_t hipStreamQuery_spt(hipStream_t stream);
HIP_API hipError_t hipStreamSynchronize_spt(hipStream_t stream);
HIP_API hipError_t hipStreamGetFlags_spt(hipStream_t stream, unsigned *flags);
HIP_API hipError_t hipStreamGetPriority_spt(hipStream_t stream, int *priority);
HIP_API hipError_t hipStreamWaitEvent_spt(hipStream_t stream, hipEvent_t event, unsigned flags);
HIP_API hipError_t hipStreamAddCallback_spt(hipStream_t stream, hipStreamCallback_t callback,
                                            void *data, unsigned flags);
HIP_API hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream);
HIP_API hipError_t hipLaunchHostFunc_spt(hipStream_t stream, hipHostFn_t function, void *data);
HIP_API hipError_t hipLaunchKernel_spt(const void *kernel, dim3 grid, dim3 block, void **args,
                                       size_t dynamic_lds, hipStream_t stream);

#include "graph/hip_graph.h"
#include "hip_launch.h"
#include "hip_library.h"
#include "hip_old.h"
#include "memory/hip_memory.h"
#include "memory/hip_virtual.h"
#include "rtc/hip_rtc.h"

#endif
