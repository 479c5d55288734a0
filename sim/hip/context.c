// SPDX-License-Identifier: Apache-2.0
// Contexts, of which a device has one: making one chooses its device. Each thread has a stack of
// them.
#include "runtime.h"

enum { MAX_DEPTH = 64 };
static thread_local hipCtx_t stack[MAX_DEPTH];
static thread_local unsigned depth;

static bool is_context(hipCtx_t context) {
    return context >= sim_hip.devices && context < sim_hip.devices + sim_hip.num_devices &&
           ((uintptr_t)context - (uintptr_t)sim_hip.devices) % sizeof *context == 0;
}

/** Makes the context's device the thread's, and puts the context on the stack. */
static hipError_t push(hipCtx_t context) {
    if (depth == MAX_DEPTH)
        return hipErrorOutOfMemory;
    stack[depth++] = context;
    return hipSetDevice((int)context->id);
}

/** Takes the uppermost context off; the one below it becomes the thread's. */
static void pop(void) {
    if (--depth)
        hipSetDevice((int)stack[depth - 1]->id);
}

static bool are_flags(unsigned flags) {
    enum { SCHEDULE = 7, BLOCKING = 4, KNOWN = 0x1f };
    const unsigned schedule = flags & SCHEDULE;
    return !(flags & ~(unsigned)KNOWN) && schedule != 3 && schedule <= BLOCKING;
}

hipError_t hipCtxCreate(hipCtx_t *out, unsigned flags, hipDevice_t device) {
    SIM_HIP_START();
    if (!out || !sim_hip_device_at(device) || !are_flags(flags))
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = push(sim_hip_device_at(device));
    if (error == hipSuccess) {
        atomic_store(&sim_hip_device()->flags, flags);
        *out = sim_hip_device();
    }
    return sim_hip_result(error);
}

hipError_t hipCtxDestroy(hipCtx_t context) {
    SIM_HIP_START();
    if (!is_context(context))
        return sim_hip_result(hipErrorInvalidValue);
    if (depth && stack[depth - 1] == context)
        pop();
    return hipSuccess;
}

hipError_t hipCtxPushCurrent(hipCtx_t context) {
    SIM_HIP_START();
    return sim_hip_result(is_context(context) ? push(context) : hipErrorInvalidContext);
}

hipError_t hipCtxPopCurrent(hipCtx_t *out) {
    SIM_HIP_START();
    if (!depth)
        return sim_hip_result(hipErrorInvalidContext);
    if (out)
        *out = stack[depth - 1];
    pop();
    return hipSuccess;
}

/** Replaces the uppermost context; null takes it off. */
hipError_t hipCtxSetCurrent(hipCtx_t context) {
    SIM_HIP_START();
    if (context && !is_context(context))
        return sim_hip_result(hipErrorInvalidContext);
    if (depth)
        pop();
    return sim_hip_result(context ? push(context) : hipSuccess);
}

hipError_t hipCtxGetCurrent(hipCtx_t *out) {
    SIM_HIP_START();
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    *out = sim_hip_device();
    return hipSuccess;
}

hipError_t hipCtxGetDevice(hipDevice_t *device) {
    return hipGetDevice(device);
}

/** Gives the major version of HIP, which is all that the number says. */
hipError_t hipCtxGetApiVersion(hipCtx_t context, unsigned *version) {
    SIM_HIP_START();
    if (!version || (context && !is_context(context)))
        return sim_hip_result(version ? hipErrorInvalidContext : hipErrorInvalidValue);
    *version = HIP_VERSION / 10000000;
    return hipSuccess;
}

hipError_t hipCtxSynchronize(void) {
    return hipDeviceSynchronize();
}

hipError_t hipCtxGetFlags(unsigned *flags) {
    return hipGetDeviceFlags(flags);
}

hipError_t hipCtxEnablePeerAccess(hipCtx_t peer, unsigned flags) {
    SIM_HIP_START();
    return is_context(peer) ? hipDeviceEnablePeerAccess((int)peer->id, flags)
                            : sim_hip_result(hipErrorInvalidContext);
}

hipError_t hipCtxDisablePeerAccess(hipCtx_t peer) {
    SIM_HIP_START();
    return is_context(peer) ? hipDeviceDisablePeerAccess((int)peer->id)
                            : sim_hip_result(hipErrorInvalidContext);
}

// ---- a device's primary context, which is the only one and always active

static hipError_t check_device(hipDevice_t device) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_device_at(device) ? hipSuccess : hipErrorInvalidDevice);
}

hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned *flags, int *active) {
    hipError_t error = check_device(device);
    if (error != hipSuccess)
        return error;
    if (flags)
        *flags = atomic_load(&sim_hip_device_at(device)->flags);
    if (active)
        *active = 1;
    return hipSuccess;
}

hipError_t hipDevicePrimaryCtxRetain(hipCtx_t *out, hipDevice_t device) {
    hipError_t error = check_device(device);
    if (error == hipSuccess && !out)
        return sim_hip_result(hipErrorInvalidValue);
    if (error == hipSuccess)
        *out = sim_hip_device_at(device);
    return error;
}

hipError_t hipDevicePrimaryCtxRelease(hipDevice_t device) {
    return check_device(device);
}

hipError_t hipDevicePrimaryCtxReset(hipDevice_t device) {
    hipError_t error = check_device(device);
    if (error != hipSuccess)
        return error;
    const uint32_t current = sim_hip_device()->id;
    hipSetDevice(device);
    error = hipDeviceReset();
    hipSetDevice((int)current);
    return error;
}

/** Refuses flags for a context that is active, as AMD's runtime does. */
hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t device, unsigned flags) {
    hipError_t error = check_device(device);
    (void)flags;
    return error == hipSuccess ? sim_hip_result(hipErrorContextAlreadyInUse) : error;
}

// ---- caches and banks: AMD's chips have nothing to configure; a wish for the cache is told

enum { PREFER_EQUAL = 3, BANKS_4_BYTES = 1, BANKS_8_BYTES = 2 };
static atomic_int cache_configs[SIM_MAX_DEVICES];

static hipError_t give(int *out, int value) {
    SIM_HIP_START();
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    *out = value;
    return hipSuccess;
}

static hipError_t accept(int config, int max) {
    SIM_HIP_START();
    return sim_hip_result(config >= 0 && config <= max ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipDeviceGetCacheConfig(int *config) {
    return give(config, atomic_load(&cache_configs[sim_hip_device()->id]));
}

hipError_t hipDeviceSetCacheConfig(int config) {
    hipError_t error = accept(config, PREFER_EQUAL);
    if (error == hipSuccess)
        atomic_store(&cache_configs[sim_hip_device()->id], config);
    return error;
}

hipError_t hipDeviceGetSharedMemConfig(int *config) {
    return give(config, BANKS_4_BYTES);
}

hipError_t hipDeviceSetSharedMemConfig(int config) {
    return accept(config, BANKS_8_BYTES);
}

hipError_t hipCtxGetCacheConfig(int *config) {
    return hipDeviceGetCacheConfig(config);
}

hipError_t hipCtxSetCacheConfig(int config) {
    return hipDeviceSetCacheConfig(config);
}

hipError_t hipCtxGetSharedMemConfig(int *config) {
    return give(config, BANKS_4_BYTES);
}

hipError_t hipCtxSetSharedMemConfig(int config) {
    return accept(config, BANKS_8_BYTES);
}
