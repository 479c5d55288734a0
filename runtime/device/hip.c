// SPDX-License-Identifier: Apache-2.0
// AMD GPUs through HIP: the system's driver for hip:N, the simulated GPU's library for sim:ARCH.
//
// A driver is opened at run time and its functions are kept in a table of its own, so that a real
// and a simulated GPU can be open at once. Nothing but the table tells them apart. HIP has a
// current device for each thread; every call here sets it and puts the caller's back.
#include "../runtime.h"
#include "hip_api.h"
#include "search.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

// The driver declares its functions with its own enums and structs, so a sanitizer that compares
// the types of caller and callee finds them different; the calling convention finds them the same.
#pragma clang attribute push(__attribute__((no_sanitize("function"))), apply_to = function)

// ---- the driver

static hip_api real_driver, sim_driver; // filled once, under device.c's lock; never unloaded

static bool take_functions(hip_api *api, const char **missing) {
#define X(name, parameters)                                                                        \
    if (!(api->name = (typeof(api->name))dlsym(api->handle, "hip" #name))) {                       \
        *missing = "hip" #name;                                                                    \
        return false;                                                                              \
    }
    HIP_FUNCTIONS(X)
    X(GetErrorName, )
    X(GetErrorString, )
#undef X
    api->configure = (typeof(api->configure))dlsym(api->handle, "quernsim_configure");
    api->evidence = (typeof(api->evidence))dlsym(api->handle, "quernsim_evidence");
    api->clock = (typeof(api->clock))dlsym(api->handle, "quernsim_clock");
    return true;
}

/** Takes the library's functions into *api. A library without one of them is not the driver that it
 *  seems. */
static qn_status open_driver(hip_api *api, void *handle, const char *path) {
    hip_api opened = {.handle = handle};
    const char *missing = nullptr;
    snprintf(opened.path, sizeof opened.path, "%s", path);
    if (!take_functions(&opened, &missing)) {
        dlclose(handle);
        return QN_FAIL(QN_E_DEVICE, "hip: %s has no %s; ROCm 6 or later is needed", path, missing);
    }
    *api = opened;
    return QN_OK;
}

/** Why a library was not opened. */
typedef struct open_fault {
    char text[256];
    bool is_memory; // the library may be good
} open_fault;

static void *open_library(const char *path, int flags, open_fault *why) {
    errno = 0;
    void *handle = dlopen(path, flags | RTLD_LOCAL);
    if (!handle) {
        const int error = errno;
        const char *text = dlerror();
        snprintf(why->text, sizeof why->text, "%.250s", text ? text : "out of memory");
        why->is_memory = error == ENOMEM || !text || strstr(text, "memory");
    }
    return handle;
}

/** Opens the library that an environment variable names. */
static qn_status open_named(hip_api *api, const char *variable, const char *path) {
    open_fault why;
    void *handle = open_library(path, RTLD_NOW, &why);
    if (handle)
        return open_driver(api, handle, path);
    return QN_FAIL(why.is_memory ? QN_E_MEMORY : QN_E_NOT_FOUND, "%s: %s%s", variable,
                   why.is_memory ? "out of memory: " : "", why.text);
}

const qni_search *qni_hip_search(void) {
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so",
                                        nullptr};
    static char own[QNI_PATH_BYTES];
    static qni_folder folders[7];
    static qni_search search;
    const qni_env *env = qni_env_get();
    if (!qni_own_folder(own, sizeof own))
        *own = 0;
    const qni_folder all[] = {{"ROCM_PATH", env->rocm_path, "/lib"},
                              {"HIP_PATH", env->hip_path, "/lib"},
                              {"/opt/rocm", "/opt/rocm", "/lib"},
                              {"/opt/rocm-*", "/opt", "/rocm-*/lib"},
                              // TheRock's wheels: the running Python's, which quern's package
                              // names, and those beside the wheel that this library came in
                              {"_rocm_sdk_*", env->rocm_wheels, "/_rocm_sdk_*/lib"},
                              {"_rocm_sdk_*", own, "/../../../_rocm_sdk_*/lib"},
                              {}};
    memcpy(folders, all, sizeof all);
    search = (qni_search){.kind = "hip",
                          .variable = "QUERN_HIP_LIBRARY",
                          .chosen = env->hip_library,
                          .names = names,
                          .folders = folders,
                          .remedy = "install ROCm"};
    return &search;
}

static qn_status open_real_driver(hip_api *api) {
    void *handle;
    char path[QNI_PATH_BYTES];
    const qn_status st = qni_search_open(qni_hip_search(), &handle, path);
    return st == QN_OK ? open_driver(api, handle, path) : st;
}

static qn_status open_sim_driver(hip_api *api) {
    static const char *const places[] = {"", "/../lib", "/../lib64", "/../lib/x86_64-linux-gnu"};
    char folder[200], path[256];
    const char *chosen = qni_env_get()->sim_library;
    if (*chosen)
        return open_named(api, "sim: QUERN_SIM_LIBRARY", chosen);
    open_fault why;
    if (!qni_own_folder(folder, sizeof folder))
        return QN_FAIL(QN_E_NOT_FOUND,
                       "sim: cannot tell where libquern lies; set QUERN_SIM_LIBRARY");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s/libquernsim.so.0", folder, places[i]);
        void *handle = open_library(path, RTLD_NOW, &why);
        if (handle)
            return open_driver(api, handle, path);
        if (why.is_memory)
            return QN_FAIL(QN_E_MEMORY, "sim: out of memory: %s", why.text);
    }
    return QN_FAIL(QN_E_NOT_FOUND,
                   "sim: no libquernsim.so.0 in %s or the lib folders beside it; build it "
                   "(QUERN_SIM=ON), or set QUERN_SIM_LIBRARY",
                   folder);
}

/** Makes the message of a failed driver call, and returns its status. `format` has the call's name
 *  and what it was about. */
__attribute__((format(printf, 3, 4))) static qn_status failed(const hip_api *api, hipError_t error,
                                                              const char *format, ...) {
    char call[256];
    va_list args;
    va_start(args, format);
    vsnprintf(call, sizeof call, format, args);
    va_end(args);
    return QN_FAIL(error == hipErrorOutOfMemory ? QN_E_MEMORY : QN_E_DEVICE, "hip: %s: %s (%s)",
                   call, api->GetErrorName(error), api->GetErrorString(error));
}

// ---- the state of an open device

typedef struct hip_state {
    const hip_api *api;
    int ordinal; // the driver's own number
} hip_state;

static const hip_state *state_of(const qn_device *device) {
    return device->state;
}

/** Makes the device current. *before becomes the device that leave() makes current again, -1 if
 *  there is none. */
static hipError_t enter(const qn_device *device, int *before) {
    const hip_state *state = state_of(device);
    hipError_t e = state->api->GetDevice(before);
    if (e == hipSuccess && *before != state->ordinal)
        return state->api->SetDevice(state->ordinal);
    *before = -1;
    return e;
}

static void leave(const qn_device *device, int before) {
    if (before >= 0)
        state_of(device)->api->SetDevice(before);
}

/** Calls a driver function on the device. The value is the call's hipError_t. */
#define ON_DEVICE(device, function, ...)                                                           \
    ({                                                                                             \
        int before_;                                                                               \
        hipError_t error_ = enter(device, &before_);                                               \
        if (error_ == hipSuccess)                                                                  \
            error_ = state_of(device)->api->function(__VA_ARGS__);                                 \
        leave(device, before_);                                                                    \
        error_;                                                                                    \
    })
#define DRIVER_FAILED(device, error, call, ...)                                                    \
    failed(state_of(device)->api, error, "hip" call, __VA_ARGS__)
typedef hipFunction_t driver_function;
#include "driver_calls.h"

static void close_hip(qn_device *device) {
    free(device->state);
}

// ---- memory

static qn_status mem_alloc(qn_device *device, void **out, int64_t bytes) {
    // HIP aligns to 256 bytes and more.
    TRY_ON(device, Malloc, (out, (size_t)bytes), " of %ld bytes", (long)bytes);
    return QN_OK;
}

static void mem_free(qn_device *device, void *ptr) {
    ON_DEVICE(device, Free, ptr);
}

static qn_status copy(qn_stream *stream, void *dst, const void *src, int64_t bytes,
                      qni_copy_kind kind) {
    static const int kinds[] = {[QNI_COPY_TO_DEVICE] = hipMemcpyHostToDevice,
                                [QNI_COPY_TO_HOST] = hipMemcpyDeviceToHost,
                                [QNI_COPY_ON_DEVICE] = hipMemcpyDeviceToDevice};
    TRY_ON(stream->device, MemcpyAsync, (dst, src, (size_t)bytes, kinds[kind], stream->native),
           " of %ld bytes", (long)bytes);
    // The caller may reuse the host's side when the call returns.
    return kind == QNI_COPY_ON_DEVICE ? QN_OK : stream_sync(stream);
}

static qn_status fill(qn_stream *stream, void *dst, uint8_t value, int64_t bytes) {
    TRY_ON(stream->device, MemsetAsync, (dst, value, (size_t)bytes, stream->native),
           " of %ld bytes", (long)bytes);
    return QN_OK;
}

// ---- streams and events

static qn_status stream_create(qn_device *device, void **native) {
    hipStream_t stream = nullptr;
    TRY_ON(device, StreamCreateWithFlags, (&stream, hipStreamNonBlocking), "");
    *native = stream;
    return QN_OK;
}

static qn_status event_create(qn_device *device, void **native) {
    hipEvent_t event = nullptr;
    TRY_ON(device, EventCreateWithFlags, (&event, 0), "");
    *native = event;
    return QN_OK;
}

// ---- images and launches

static qn_status image_load(qn_device *device, void **native_module, const void *image,
                            size_t bytes) {
    hipModule_t module = nullptr;
    TRY_ON(device, ModuleLoadData, (&module, image), " of %zu bytes", bytes);
    *native_module = module;
    return QN_OK;
}

static char kernel_evidence(qn_device *device, void *native_kernel, char *names, size_t bytes) {
    const hip_api *api = state_of(device)->api;
    return api->evidence ? api->evidence(native_kernel, names, bytes) : 0;
}

static qn_status launch(qn_stream *stream, void *native_kernel, const qni_kernel_usage *usage,
                        const uint32_t grid[3], uint32_t threads, const void *args,
                        size_t args_bytes) {
    (void)usage;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, (void *)args, HIP_LAUNCH_PARAM_BUFFER_SIZE,
                     &args_bytes, HIP_LAUNCH_PARAM_END};
    TRY_ON(stream->device, ModuleLaunchKernel,
           (native_kernel, grid[0], grid[1], grid[2], threads, 1, 1, 0, stream->native, nullptr,
            extra),
           " of %ux%ux%u groups of %u", grid[0], grid[1], grid[2], threads);
    return QN_OK;
}

static const qni_backend hip_backend = {
    .name = "hip",
    .close = close_hip,
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
    .kernel_evidence = kernel_evidence,
    .launch = launch,
};

// ---- opening

static qn_status find_target(const qni_target **out, const char *gcn_arch) {
    *out = qni_target_of_arch(gcn_arch);
    if (*out)
        return QN_OK;
    char known[256] = "";
    for (int t = 0; t < QNI_NUM_TARGETS && !qni_target_is_ptx(&qni_targets[t]); t++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", qni_targets[t].name);
    return QN_FAIL(QN_E_UNSUPPORTED, "hip: no image for %s; quern is built for:%s", gcn_arch,
                   known);
}

static void fill_info(qn_device *device, const hip_api *api, const hip_properties *properties) {
    qn_device_info *info = &device->info;
    int version = 0;
    api->RuntimeGetVersion(&version);
    snprintf(info->name, sizeof info->name, "%.127s", properties->name);
    snprintf(info->arch, sizeof info->arch, "%.*s", (int)strcspn(properties->gcnArchName, ":"),
             properties->gcnArchName);
    // HIP's encoding: major * 10^7 + minor * 10^5 + patch.
    snprintf(info->driver, sizeof info->driver, "%.96s, HIP %d.%d", api->path, version / 10000000,
             version / 100000 % 100);
    info->memory_bytes = (int64_t)properties->totalGlobalMem;
    info->lds_bytes = (int64_t)properties->sharedMemPerBlock;
    info->num_compute_units = properties->multiProcessorCount;
    info->wave_size = properties->warpSize;
    info->clock_khz = properties->clockRate;
    info->is_modelled = api->configure != nullptr; // QUERN_HIP_LIBRARY may name the simulator
}

static qn_status open_ordinal(qn_device *device, const hip_api *api, int ordinal,
                              const hip_properties *properties) {
    const qn_status st = find_target(&device->target, properties->gcnArchName);
    if (st != QN_OK)
        return st;
    hip_state *state = malloc(sizeof *state);
    if (!state)
        return QN_FAIL(QN_E_MEMORY, "hip: out of memory");
    *state = (hip_state){.api = api, .ordinal = ordinal};
    device->state = state;
    device->backend = &hip_backend;
    device->features = device->target->features;
    fill_info(device, api, properties);
    device->info.has_clock =
        !device->info.is_modelled || (api->clock && api->clock(ordinal, nullptr, 0));
    return QN_OK;
}

static qn_status count_devices(const hip_api *api, int *count) {
    *count = 0;
    hipError_t e = api->GetDeviceCount(count);
    if (e == hipErrorNoDevice) {
        *count = 0;
        return QN_OK;
    }
    return e == hipSuccess ? QN_OK : failed(api, e, "hipGetDeviceCount");
}

static qn_status get_properties(const hip_api *api, int ordinal, hip_properties *properties) {
    memset(properties, 0, sizeof *properties);
    hipError_t e = api->GetDevicePropertiesR0600(properties, ordinal);
    properties->name[sizeof properties->name - 1] = 0;
    properties->gcnArchName[sizeof properties->gcnArchName - 1] = 0;
    return e == hipSuccess ? QN_OK : failed(api, e, "hipGetDeviceProperties of device %d", ordinal);
}

qn_status qni_hip_open(qn_device *device, const char *arg) {
    hip_properties properties;
    int ordinal = atoi(arg), count;
    const qn_status st = real_driver.handle ? QN_OK : open_real_driver(&real_driver);
    if (st != QN_OK)
        return st;
    QN_TRY(count_devices(&real_driver, &count));
    if (ordinal >= count)
        return QN_FAIL(QN_E_NOT_FOUND, "hip: no device %d; the driver %s shows %d", ordinal,
                       real_driver.path, count);
    QN_TRY(get_properties(&real_driver, ordinal, &properties));
    QN_TRY(open_ordinal(device, &real_driver, ordinal, &properties));
    snprintf(device->info.spec, sizeof device->info.spec, "hip:%d", ordinal);
    device->id = (DLDevice){kDLROCM, ordinal};
    return st;
}

/** Looks for the n-th device of an architecture (n from 1). *ordinal becomes the driver's number of
 *  it, -1 if there are fewer; *count becomes the number of such devices, up to the n-th. */
static qn_status find_nth(const hip_api *api, const qni_target *target, int n, int *ordinal,
                          int *count, hip_properties *properties) {
    int devices;
    qn_status st = count_devices(api, &devices);
    *ordinal = -1;
    *count = 0;
    for (int i = 0; st == QN_OK && i < devices && *count < n; i++) {
        st = get_properties(api, i, properties);
        const size_t length = strcspn(properties->gcnArchName, ":");
        if (st == QN_OK && length == strlen(target->name) &&
            strncmp(properties->gcnArchName, target->name, length) == 0 && ++*count == n)
            *ordinal = i;
    }
    return st;
}

int qni_sim_count(const qni_target *target) {
    hip_properties properties;
    int ordinal, count = 0;
    if (!sim_driver.handle && open_sim_driver(&sim_driver) != QN_OK)
        return 0;
    find_nth(&sim_driver, target, INT_MAX, &ordinal, &count, &properties);
    return count;
}

/** Adds a device of the target to the simulated GPU's library. */
static qn_status add_sim_device(const hip_api *api, const qni_target *target) {
    char options[64];
    if (!api->configure)
        return QN_FAIL(QN_E_DEVICE, "sim: %s has no quernsim_configure: not the simulated GPU",
                       api->path);
    snprintf(options, sizeof options, "arch=%s", target->name);
    hipError_t e = api->configure(options);
    if (e == hipErrorOutOfMemory)
        return failed(api, e, "quernsim_configure of \"%s\"", options);
    if (e != hipSuccess)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "sim: %s refuses \"%s\" (%s); it gives its reason on stderr", api->path,
                       options, api->GetErrorName(e));
    return QN_OK;
}

qn_status qni_sim_open(qn_device *device, const char *arg) {
    hip_properties properties;
    const qni_target *target = qni_target_find(arg, strcspn(arg, ":"));
    const int n = strchr(arg, ':') ? atoi(strchr(arg, ':') + 1) : 1;
    int ordinal, count, devices;
    const qn_status st = sim_driver.handle ? QN_OK : open_sim_driver(&sim_driver);
    if (st != QN_OK)
        return st;
    QN_TRY(find_nth(&sim_driver, target, n, &ordinal, &count, &properties));
    QN_TRY(count_devices(&sim_driver, &devices));
    if (devices + n - count > QNI_MAX_SIM_DEVICES)
        return QN_FAIL(
            QN_E_UNSUPPORTED,
            "sim: sim:%s would be simulated GPU %d of this process; accepted: at most %d, "
            "of all kinds",
            arg, devices + n - count, QNI_MAX_SIM_DEVICES);
    for (int missing = n - count; missing > 0; missing--)
        QN_TRY(add_sim_device(&sim_driver, target));
    QN_TRY(find_nth(&sim_driver, target, n, &ordinal, &count, &properties));
    if (ordinal < 0)
        return QN_FAIL(QN_E_DEVICE, "sim: %s made %d devices of %s, not %d", sim_driver.path, count,
                       target->name, n);
    QN_TRY(open_ordinal(device, &sim_driver, ordinal, &properties));
    snprintf(device->info.spec, sizeof device->info.spec, "sim:%s", arg);
    // Ids in this process are 1000 and up, a hundred for each architecture.
    device->id = (DLDevice){kDLROCM, 1000 + 100 * (int32_t)(target - qni_targets) + n - 1};
    return st;
}

#pragma clang attribute pop
