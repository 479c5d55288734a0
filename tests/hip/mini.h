// SPDX-License-Identifier: Apache-2.0
// The little of HIP that these programs need, so that clang compiles them without ROCm and without
// AMD's headers.
#ifndef MINI_H
#define MINI_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

struct dim3 {
    uint32_t x, y, z;
    constexpr dim3(uint32_t a = 1, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};

typedef int hipError_t; // the values are in sim/hip/errors.def
typedef struct stream *hipStream_t;
typedef struct event *hipEvent_t;
typedef struct module *hipModule_t;
typedef struct function *hipFunction_t;
enum {
    hipMemcpyHostToHost,
    hipMemcpyHostToDevice,
    hipMemcpyDeviceToHost,
    hipMemcpyDeviceToDevice,
    hipMemcpyDefault
};

struct hipFuncAttributes {
    int binaryVersion, cacheModeCA;
    size_t constSizeBytes, localSizeBytes;
    int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
    size_t sharedSizeBytes;
};

extern "C" {
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = nullptr);
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
hipError_t hipMalloc(void **, size_t);
hipError_t hipFree(void *);
hipError_t hipHostMalloc(void **, size_t, unsigned);
hipError_t hipHostFree(void *);
hipError_t hipMemcpy(void *, const void *, size_t, int);
hipError_t hipMemcpyAsync(void *, const void *, size_t, int, hipStream_t);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t);
hipError_t hipMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
hipError_t hipMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
hipError_t hipGetSymbolAddress(void **, const void *);
hipError_t hipGetSymbolSize(size_t *, const void *);
hipError_t hipFuncGetAttributes(hipFuncAttributes *, const void *);
hipError_t hipFuncSetAttribute(const void *, int, int);
hipError_t hipGetFuncBySymbol(hipFunction_t *, const void *);
hipError_t hipModuleLoad(hipModule_t *, const char *);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t *, hipModule_t, const char *);
hipError_t hipModuleGetGlobal(void **, size_t *, hipModule_t, const char *);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, hipStream_t, void **, void **);
hipError_t hipDeviceSynchronize();
hipError_t hipDeviceReset();
hipError_t hipGetDeviceCount(int *);
hipError_t hipSetDevice(int);
hipError_t hipGetLastError();
const char *hipGetErrorName(hipError_t);
const char *hipGetErrorString(hipError_t);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned);
hipError_t hipEventCreateWithFlags(hipEvent_t *, unsigned);
hipError_t hipEventRecord(hipEvent_t, hipStream_t);
hipError_t hipEventQuery(hipEvent_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventDestroy(hipEvent_t);
}

/** Ends the program, and prints the line that failed. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call)                                                                                   \
    do {                                                                                           \
        hipError_t error_ = (call);                                                                \
        if (error_) {                                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    hipGetErrorName(error_));                                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

__device__ static inline uint32_t thread_id() {
    return __builtin_amdgcn_workitem_id_x();
}

__device__ static inline uint32_t block_id() {
    return __builtin_amdgcn_workgroup_id_x();
}

__device__ static inline uint32_t block_size() {
    return __builtin_amdgcn_workgroup_size_x();
}

__device__ static inline uint32_t global_id() {
    return block_id() * block_size() + thread_id();
}

/** Waits at a barrier that orders LDS and memory, as __syncthreads does. */
__device__ static inline void sync_threads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class T> static T *device_array(size_t count, const T *contents = nullptr) {
    void *p;
    OK(hipMalloc(&p, count * sizeof(T)));
    if (contents)
        OK(hipMemcpy(p, contents, count * sizeof(T), hipMemcpyHostToDevice));
    return static_cast<T *>(p);
}

template <class T> static void read_back(T *host, const T *device, size_t count) {
    OK(hipMemcpy(host, device, count * sizeof(T), hipMemcpyDeviceToHost));
}

#endif
