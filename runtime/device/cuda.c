// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs through the CUDA driver API, opened at run time; images are PTX, which the driver
// compiles.
//
// Work happens in the device's primary context, which PyTorch and the CUDA runtime use too, so
// their pointers and streams are good here. CUDA has a current context for each thread; every call
// here makes the device's current and puts the caller's back.
#include "../image/object.h"
#include "../runtime.h"
#include "cuda_api.h"
#include "search.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// As in hip.c: the driver declares its functions with its own types.
#pragma clang attribute push(__attribute__((no_sanitize("function"))), apply_to = function)

// ---- the driver

static cuda_api driver; // filled once, under device.c's lock; never unloaded

static bool take_functions(cuda_api *api, const char **missing) {
#define X(name, symbol, parameters)                                                                \
    if (!(api->name = (typeof(api->name))dlsym(api->handle, symbol))) {                            \
        *missing = symbol;                                                                         \
        return false;                                                                              \
    }
    CUDA_FUNCTIONS(X)
#undef X
    return true;
}

/** The message of a failed driver call, and its status. Bring the call's name and what it was
 *  about. */
__attribute__((format(printf, 3, 4))) static qn_status failed(const cuda_api *api, CUresult error,
                                                              const char *format, ...) {
    char call[256];
    const char *name = nullptr, *words = nullptr;
    va_list args;
    va_start(args, format);
    vsnprintf(call, sizeof call, format, args);
    va_end(args);
    api->GetErrorName(error, &name);
    api->GetErrorString(error, &words);
    return QN_FAIL(error == CUDA_ERROR_OUT_OF_MEMORY ? QN_E_MEMORY : QN_E_DEVICE,
                   "cuda: %s: %s (%s)", call, name ? name : "unknown error", words ? words : "?");
}

const qni_search *qni_cuda_search(void) {
    static const char *const names[] = {"libcuda.so.1", nullptr};
    static const qni_folder folders[] = {{"WSL", "/usr/lib/wsl", "/lib"}, {}};
    static qni_search search;
    search = (qni_search){.kind = "cuda",
                          .variable = "QUERN_CUDA_LIBRARY",
                          .chosen = qni_env_get()->cuda_library,
                          .names = names,
                          .folders = folders,
                          .remedy = "install NVIDIA's driver"};
    return &search;
}

static qn_status open_driver(void) {
    char path[QNI_PATH_BYTES];
    const char *missing = nullptr;
    cuda_api opened = {};
    const qn_status st = qni_search_open(qni_cuda_search(), &opened.handle, path);
    if (st != QN_OK) // without memory it is not known whether there is a driver
        return st == QN_E_MEMORY ? QN_E_IO : st;
    snprintf(opened.path, sizeof opened.path, "%s", path);
    if (!take_functions(&opened, &missing)) {
        dlclose(opened.handle);
        return QN_FAIL(QN_E_DEVICE, "cuda: %s has no %s; a driver of CUDA 12.0 or later is needed",
                       path, missing);
    }
    CUresult e = opened.Init(0);
    if (e == CUDA_ERROR_NO_DEVICE)
        return QN_FAIL(QN_E_NOT_FOUND, "cuda: the driver %s shows no device", path);
    if (e != CUDA_SUCCESS)
        return failed(&opened, e, "cuInit");
    opened.DriverGetVersion(&opened.version);
    driver = opened;
    return QN_OK;
}

// ---- the state of an open device

typedef struct cuda_state {
    CUdevice device;
    CUcontext context; // the primary one, retained while the device is open
} cuda_state;

static const cuda_state *state_of(const qn_device *device) {
    return device->state;
}

/** Makes the device's context current. *before is the one to be made current again by leave(). */
static CUresult enter(const qn_device *device, CUcontext *before) {
    CUresult e = driver.CtxGetCurrent(before);
    if (e != CUDA_SUCCESS || *before == state_of(device)->context)
        return e;
    return driver.CtxSetCurrent(state_of(device)->context);
}

static void leave(const qn_device *device, CUcontext before) {
    if (before != state_of(device)->context)
        driver.CtxSetCurrent(before);
}

/** Calls a driver function in the device's context; the value is its CUresult. */
#define ON_DEVICE(device, function, ...)                                                           \
    ({                                                                                             \
        CUcontext before_ = nullptr;                                                               \
        CUresult error_ = enter(device, &before_);                                                 \
        if (error_ == CUDA_SUCCESS) {                                                              \
            error_ = driver.function(__VA_ARGS__);                                                 \
            leave(device, before_);                                                                \
        }                                                                                          \
        error_;                                                                                    \
    })
#define DRIVER_FAILED(device, error, call, ...) failed(&driver, error, "cu" call, __VA_ARGS__)
typedef CUfunction driver_function;
#include "driver_calls.h"

static void close_cuda(qn_device *device) {
    driver.PrimaryCtxRelease(state_of(device)->device);
    free(device->state);
}

static int attribute(CUdevice device, int which) {
    int value = 0;
    return driver.DeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

// ---- memory

static qn_status mem_alloc(qn_device *device, void **out, int64_t bytes) {
    CUdeviceptr ptr = 0; // the driver aligns to 256 bytes and more
    TRY_ON(device, MemAlloc, (&ptr, (size_t)bytes), " of %ld bytes", (long)bytes);
    *out = (void *)ptr;
    return QN_OK;
}

static void mem_free(qn_device *device, void *ptr) {
    ON_DEVICE(device, MemFree, (CUdeviceptr)ptr);
}

static qn_status copy(qn_stream *stream, void *dst, const void *src, int64_t bytes,
                      qni_copy_kind kind) {
    // One address space: the driver sees from the addresses which way to copy.
    TRY_ON(stream->device, MemcpyAsync,
           ((CUdeviceptr)dst, (CUdeviceptr)src, (size_t)bytes, stream->native), " of %ld bytes",
           (long)bytes);
    // The host side is the caller's again when the call returns.
    return kind == QNI_COPY_ON_DEVICE ? QN_OK : stream_sync(stream);
}

static qn_status fill(qn_stream *stream, void *dst, uint8_t value, int64_t bytes) {
    TRY_ON(stream->device, MemsetD8Async, ((CUdeviceptr)dst, value, (size_t)bytes, stream->native),
           " of %ld bytes", (long)bytes);
    return QN_OK;
}

// ---- streams and events

static qn_status stream_create(qn_device *device, void **native) {
    CUstream stream = nullptr;
    TRY_ON(device, StreamCreate, (&stream, CU_STREAM_NON_BLOCKING), "");
    *native = stream;
    return QN_OK;
}

static qn_status event_create(qn_device *device, void **native) {
    CUevent event = nullptr;
    TRY_ON(device, EventCreate, (&event, 0), "");
    *native = event;
    return QN_OK;
}

// ---- images and launches

static qn_status image_load(qn_device *device, void **native_module, const void *image,
                            size_t bytes) {
    char log[1024] = "";
    int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUmodule module = nullptr;
    char *bounded = nullptr;
    const qn_status st = qni_ptx_bound(&bounded, image, bytes);
    if (st != QN_OK)
        return st;
    CUresult e = ON_DEVICE(device, ModuleLoadDataEx, &module, bounded, 2, options, values);
    free(bounded);
    if (e != CUDA_SUCCESS)
        return failed(&driver, e, "cuModuleLoadDataEx of %zu bytes of PTX on %s: %.160s", bytes,
                      device->info.spec, log);
    *native_module = module;
    return QN_OK;
}

/** Lets launches of the kernel give it as much LDS as it wants, which may be more than a kernel can
 *  declare. */
static qn_status allow_lds(qn_device *device, void *native_kernel, const qni_kernel_usage *usage) {
    const int wanted = usage->lds_bytes + usage->launch_lds_bytes;
    const int most =
        attribute(state_of(device)->device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (usage->launch_lds_bytes == 0)
        return QN_OK;
    if (wanted > most)
        return QN_FAIL(QN_E_UNSUPPORTED, "cuda: a kernel wants %d bytes of LDS; %s gives %d",
                       wanted, device->info.spec, most);
    TRY_ON(
        device, FuncSetAttribute,
        (native_kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, usage->launch_lds_bytes),
        " of %d bytes of LDS", usage->launch_lds_bytes);
    return QN_OK;
}

/** Registers, local memory and the most threads: the driver chose them when it compiled the PTX. */
static qn_status kernel_usage(qn_device *device, void *native_kernel, qni_kernel_usage *usage) {
    const struct {
        int attribute;
        int32_t *value;
    } wanted[] = {{CU_FUNC_ATTRIBUTE_NUM_REGS, &usage->vgprs},
                  {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &usage->scratch_bytes},
                  {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &usage->lds_bytes},
                  {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &usage->max_threads}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        CUresult e = ON_DEVICE(device, FuncGetAttribute, wanted[i].value, wanted[i].attribute,
                               native_kernel);
        if (e != CUDA_SUCCESS)
            return failed(&driver, e, "cuFuncGetAttribute on %s", device->info.spec);
    }
    return allow_lds(device, native_kernel, usage);
}

/** Starts the kernel before the one before it on the stream has ended; it waits for that itself. */
static CUresult launch_early(qn_stream *stream, CUfunction kernel, const uint32_t grid[3],
                             uint32_t threads, uint32_t lds_bytes, void **structs) {
    cuda_launch_attribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                       .value = 1};
    const cuda_launch_config config = {grid[0], grid[1],   grid[2],        threads,    1,
                                       1,       lds_bytes, stream->native, &attribute, 1};
    return ON_DEVICE(stream->device, LaunchKernelEx, &config, kernel, structs, nullptr);
}

static qn_status launch(qn_stream *stream, void *native_kernel, const qni_kernel_usage *usage,
                        const uint32_t grid[3], uint32_t threads, const void *args,
                        size_t args_bytes) {
    constexpr int captures_early_launches = 12030; // into graphs
    // By its address, not as a buffer of all: the driver then minds the gap that may lie before it.
    void *structs[] = {(void *)(uintptr_t)args};
    if (args_bytes != (size_t)usage->kernarg_bytes)
        return QN_FAIL(QN_E_UNSUPPORTED, "cuda: %zu bytes of arguments for a kernel that takes %d",
                       args_bytes, usage->kernarg_bytes);
    const uint32_t lds_bytes = (uint32_t)usage->launch_lds_bytes;
    CUresult e =
        usage->waits_itself && driver.version >= captures_early_launches
            ? launch_early(stream, native_kernel, grid, threads, lds_bytes, structs)
            : ON_DEVICE(stream->device, LaunchKernel, native_kernel, grid[0], grid[1], grid[2],
                        threads, 1, 1, lds_bytes, stream->native, structs, nullptr);
    if (e != CUDA_SUCCESS)
        return failed(&driver, e, "cuLaunchKernel of %ux%ux%u blocks of %u on %s", grid[0], grid[1],
                      grid[2], threads, stream->device->info.spec);
    return QN_OK;
}

// ---- tensor maps

/** The driver's word for elements of the dtype; codes of FP8 are bytes to it. -1: it has none. */
static int map_kind(qni_dtype dtype) {
    switch (dtype) {
    case QNI_F32:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case QNI_F16:
        return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case QNI_BF16:
        return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case QNI_I32:
        return CU_TENSOR_MAP_DATA_TYPE_INT32;
    default:
        return qni_dtype_bytes(dtype) == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : -1;
    }
}

static int map_swizzle(uint32_t bytes) {
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                         : CU_TENSOR_MAP_SWIZZLE_NONE;
}

/** Bytes from one element of dimension i to the next; of a dimension of one element any that the
 *  driver takes. */
static uint64_t map_stride(const qni_tensor_map *map, int i) {
    return map->size[i] == 1 ? 16 : (uint64_t)(map->stride[i] * qni_dtype_bytes(map->dtype));
}

static qn_status tensor_map_encode(const qn_device *device, const qni_tensor_map *map, void *out) {
    static const uint32_t steps[5] = {1, 1, 1, 1, 1};
    const int kind = map_kind(map->dtype);
    uint64_t sizes[5], strides[5]; // strides begin with that of dimension 1
    if (kind < 0)
        return QN_FAIL(QN_E_UNSUPPORTED, "cuda: no tensor map has elements of %s, as %s has",
                       qni_dtype_name(map->dtype), map->name);
    for (int i = 0; i < map->rank; i++) {
        sizes[i] = (uint64_t)map->size[i];
        strides[i] = i + 1 < map->rank ? map_stride(map, i + 1) : 0;
    }
    TRY_ON(device, TensorMapEncodeTiled,
           (out, kind, (uint32_t)map->rank, (void *)(uintptr_t)map->data, sizes, strides, map->box,
            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, map_swizzle(map->swizzle_bytes),
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
           " of %s", map->name);
    return QN_OK;
}

static const qni_backend cuda_backend = {
    .name = "cuda",
    .close = close_cuda,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .image_load = image_load,
    .image_unload = image_unload,
    .kernel_get = kernel_get,
    .kernel_usage = kernel_usage,
    .tensor_map_encode = tensor_map_encode,
    .launch = launch,
};

// ---- opening

static void fill_info(qn_device *device, CUdevice handle, int major, int minor) {
    qn_device_info *info = &device->info;
    size_t memory = 0;
    driver.DeviceTotalMem(&memory, handle);
    if (driver.DeviceGetName(info->name, sizeof info->name, handle) != CUDA_SUCCESS)
        snprintf(info->name, sizeof info->name, "?");
    snprintf(info->arch, sizeof info->arch, "sm_%d%d", major, minor);
    snprintf(info->driver, sizeof info->driver, "%.96s, CUDA %d.%d", driver.path,
             driver.version / 1000, driver.version / 10 % 100);
    info->memory_bytes = (int64_t)memory;
    info->lds_bytes = attribute(handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    info->num_compute_units = attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    info->wave_size = attribute(handle, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    info->clock_khz = attribute(handle, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    info->has_clock = 1;
}

static qn_status open_handle(qn_device *device, CUdevice handle) {
    const int major = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    const int minor = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    device->target = qni_target_of_capability(major, minor);
    if (!device->target)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "cuda: the device has compute capability %d.%d; 8.0 or later is needed",
                       major, minor);
    cuda_state *state = malloc(sizeof *state);
    if (!state)
        return QN_FAIL(QN_E_MEMORY, "cuda: out of memory");
    *state = (cuda_state){.device = handle};
    CUresult e = driver.PrimaryCtxRetain(&state->context, handle);
    if (e != CUDA_SUCCESS) {
        free(state);
        return failed(&driver, e, "cuDevicePrimaryCtxRetain");
    }
    device->state = state;
    device->backend = &cuda_backend;
    device->features = device->target->features;
    fill_info(device, handle, major, minor);
    return QN_OK;
}

qn_status qni_cuda_open(qn_device *device, const char *arg) {
    int ordinal = atoi(arg), count = 0;
    CUdevice handle = 0;
    const qn_status st = driver.handle ? QN_OK : open_driver();
    if (st != QN_OK)
        return st;
    CUresult e = driver.DeviceGetCount(&count);
    if (e != CUDA_SUCCESS)
        return failed(&driver, e, "cuDeviceGetCount");
    if (ordinal >= count)
        return QN_FAIL(QN_E_NOT_FOUND, "cuda: no device %d; the driver %s shows %d", ordinal,
                       driver.path, count);
    e = driver.DeviceGet(&handle, ordinal);
    if (e != CUDA_SUCCESS)
        return failed(&driver, e, "cuDeviceGet of device %d", ordinal);
    QN_TRY(open_handle(device, handle));
    snprintf(device->info.spec, sizeof device->info.spec, "cuda:%d", ordinal);
    device->id = (DLDevice){kDLCUDA, ordinal};
    return st;
}

#pragma clang attribute pop
