// SPDX-License-Identifier: Apache-2.0
// The part of the HIP API that quern calls, declared here so that no SDK is needed to build.
//
// Values and layouts are those of ROCm 6 and 7 (hip_runtime_api.h); hip.c alone includes this.
#ifndef QNI_HIP_API_H
#define QNI_HIP_API_H

#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;

enum {
    hipSuccess = 0,
    hipErrorOutOfMemory = 2,
    hipErrorNoDevice = 100,
};

enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2, hipMemcpyDeviceToDevice = 3 };
enum { hipStreamNonBlocking = 1 };

// hipModuleLaunchKernel's `extra`: markers before the argument buffer's address and before its
// size.
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)

/** The driver's hipDeviceProp_tR0600. Members that quern does not read are only room. */
typedef struct hip_properties {
    char name[256];
    char unused_a[288 - 256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    char unused_b[348 - 312];
    int clockRate; // kHz
    char unused_c[388 - 352];
    int multiProcessorCount;
    char unused_d[1160 - 392];
    char gcnArchName[256];
    char unused_e[4096 - 1416]; // the driver writes 1472 bytes; later versions may write more
} hip_properties;

static_assert(offsetof(hip_properties, totalGlobalMem) == 288);
static_assert(offsetof(hip_properties, warpSize) == 308);
static_assert(offsetof(hip_properties, clockRate) == 348);
static_assert(offsetof(hip_properties, multiProcessorCount) == 388);
static_assert(offsetof(hip_properties, gcnArchName) == 1160);

/** X(name without hip, parameters): every function that quern takes from the driver. */
#define HIP_FUNCTIONS(X)                                                                           \
    X(GetDeviceCount, (int *count))                                                                \
    X(GetDevicePropertiesR0600, (hip_properties * properties, int device))                         \
    X(GetDevice, (int *device))                                                                    \
    X(SetDevice, (int device))                                                                     \
    X(RuntimeGetVersion, (int *version))                                                           \
    X(Malloc, (void **ptr, size_t bytes))                                                          \
    X(Free, (void *ptr))                                                                           \
    X(MemcpyAsync, (void *dst, const void *src, size_t bytes, int kind, hipStream_t stream))       \
    X(MemsetAsync, (void *dst, int value, size_t bytes, hipStream_t stream))                       \
    X(StreamCreateWithFlags, (hipStream_t * stream, unsigned flags))                               \
    X(StreamDestroy, (hipStream_t stream))                                                         \
    X(StreamSynchronize, (hipStream_t stream))                                                     \
    X(EventCreateWithFlags, (hipEvent_t * event, unsigned flags))                                  \
    X(EventDestroy, (hipEvent_t event))                                                            \
    X(EventRecord, (hipEvent_t event, hipStream_t stream))                                         \
    X(EventSynchronize, (hipEvent_t event))                                                        \
    X(EventElapsedTime, (float *ms, hipEvent_t start, hipEvent_t end))                             \
    X(ModuleLoadData, (hipModule_t * module, const void *image))                                   \
    X(ModuleUnload, (hipModule_t module))                                                          \
    X(ModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char *name))         \
    X(ModuleLaunchKernel, (hipFunction_t function, unsigned grid_x, unsigned grid_y,               \
                           unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,  \
                           unsigned lds_bytes, hipStream_t stream, void **params, void **extra))

/** An opened driver: its functions by name. */
typedef struct hip_api {
    void *handle;
#define X(name, parameters) hipError_t(*name) parameters;
    HIP_FUNCTIONS(X)
#undef X
    const char *(*GetErrorName)(hipError_t error);
    const char *(*GetErrorString)(hipError_t error);
    int (*configure)(const char *options); // only of the simulated GPU; null for a real driver
    char (*evidence)(void *function, char *names, size_t bytes); // only of the simulated GPU
    int (*clock)(int device, char *json, size_t bytes);          // only of the simulated GPU
    char path[512];
} hip_api;

#endif
