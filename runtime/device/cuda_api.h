// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that quern calls, declared here so that no toolkit is needed to
// build.
//
// Names are the symbols that libcuda.so.1 exports (CUDA 12.0 and later); cuda.c alone includes
// this.
#ifndef QNI_CUDA_API_H
#define QNI_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

/** CUlaunchAttribute and CUlaunchConfig of CUDA 12. */
typedef struct cuda_launch_attribute {
    int id;
    alignas(8) union {
        char room[64];
        int value;
    };
} cuda_launch_attribute;
typedef struct cuda_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    cuda_launch_attribute *attributes;
    unsigned count;
} cuda_launch_config;
enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
};

enum {
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, // kHz
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97, // static and a launch's together
};

enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

/** CUtensorMap's kinds of elements, swizzles, and what else quern says of each map. */
enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_INT32 = 4,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B,
};
enum {
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0, // zeros
};

enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };

/** X(name, symbol, parameters): every function that quern takes from the driver. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(Init, "cuInit", (unsigned flags))                                                            \
    X(DriverGetVersion, "cuDriverGetVersion", (int *version))                                      \
    X(DeviceGetCount, "cuDeviceGetCount", (int *count))                                            \
    X(DeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                  \
    X(DeviceGetName, "cuDeviceGetName", (char *name, int room, CUdevice device))                   \
    X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice device))                     \
    X(DeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))    \
    X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))        \
    X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                        \
    X(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext * context))                                     \
    X(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext context))                                       \
    X(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr * ptr, size_t bytes))                                \
    X(MemFree, "cuMemFree_v2", (CUdeviceptr ptr))                                                  \
    X(MemcpyAsync, "cuMemcpyAsync",                                                                \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                           \
    X(MemsetD8Async, "cuMemsetD8Async",                                                            \
      (CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream))                       \
    X(StreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                         \
    X(StreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                      \
    X(StreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                 \
    X(EventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                             \
    X(EventDestroy, "cuEventDestroy_v2", (CUevent event))                                          \
    X(EventRecord, "cuEventRecord", (CUevent event, CUstream stream))                              \
    X(EventSynchronize, "cuEventSynchronize", (CUevent event))                                     \
    X(EventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent start, CUevent end))             \
    X(ModuleLoadDataEx, "cuModuleLoadDataEx",                                                      \
      (CUmodule * module, const void *image, unsigned count, int *options, void **values))         \
    X(ModuleUnload, "cuModuleUnload", (CUmodule module))                                           \
    X(ModuleGetFunction, "cuModuleGetFunction",                                                    \
      (CUfunction * function, CUmodule module, const char *name))                                  \
    X(FuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))    \
    X(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))     \
    X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                              \
      (void *map, int kind, uint32_t rank, void *data, const uint64_t *sizes,                      \
       const uint64_t *strides_bytes, const uint32_t *box, const uint32_t *steps, int interleave,  \
       int swizzle, int l2_promotion, int outside))                                                \
    X(LaunchKernel, "cuLaunchKernel",                                                              \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,  \
       void **extra))                                                                              \
    X(LaunchKernelEx, "cuLaunchKernelEx",                                                          \
      (const cuda_launch_config *config, CUfunction function, void **params, void **extra))        \
    X(GetErrorName, "cuGetErrorName", (CUresult error, const char **text))                         \
    X(GetErrorString, "cuGetErrorString", (CUresult error, const char **text))

/** An opened driver: its functions by name. */
typedef struct cuda_api {
    void *handle;
#define X(name, symbol, parameters) CUresult(*name) parameters;
    CUDA_FUNCTIONS(X)
#undef X
    char path[512];
    int version; // major * 1000 + minor * 10
} cuda_api;

#endif
