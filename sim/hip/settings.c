// SPDX-License-Identifier: Apache-2.0
// What a program asks of a device and sets on it: peers, limits, flags, the device's place on the
// bus.
#include "../clock/report.h"
#include "runtime.h"

#include <stdio.h>
#include <string.h>

// ---- peers: all devices share one address space

static hipError_t check_peers(int device, int peer) {
    return sim_hip_device_at(device) && sim_hip_device_at(peer) ? hipSuccess
                                                                : hipErrorInvalidDevice;
}

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) {
    SIM_HIP_START();
    hipError_t error = can ? check_peers(device, peer) : hipErrorInvalidValue;
    if (error == hipSuccess)
        *can = device != peer;
    return sim_hip_result(error);
}

hipError_t hipDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    enum { RANK, ACCESS, ATOMICS, ARRAYS };
    SIM_HIP_START();
    const bool known = value && attribute >= RANK && attribute <= ARRAYS && device != peer;
    hipError_t error = known ? check_peers(device, peer) : hipErrorInvalidValue;
    if (error == hipSuccess)
        *value = attribute == ACCESS || attribute == ATOMICS;
    return sim_hip_result(error);
}

/** Tells a link as cards have it: XGMI between CDNA chips of one kind, else PCIe by way of the
 *  processor. */
hipError_t hipExtGetLinkTypeAndHopCount(int device, int peer, uint32_t *type, uint32_t *hops) {
    enum { PCIE = 2, XGMI = 4 };
    SIM_HIP_START();
    if (!type || !hops || device == peer || device < 0 || peer < 0)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = check_peers(device, peer);
    if (error != hipSuccess)
        return sim_hip_result(error);
    const sim_chip *a = sim_hip.devices[device].chip, *b = sim_hip.devices[peer].chip;
    const bool is_direct = a->arch == b->arch && a->gfx_major == 9;
    *type = is_direct ? XGMI : PCIE;
    *hops = is_direct ? 1 : 2;
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    SIM_HIP_START();
    sim_device *device = sim_hip_device();
    if (flags || !sim_hip_device_at(peer) || (uint32_t)peer == device->id)
        return sim_hip_result(flags ? hipErrorInvalidValue : hipErrorInvalidDevice);
    const bool was = atomic_fetch_or(&device->peers, 1u << peer) >> peer & 1;
    return sim_hip_result(was ? hipErrorPeerAccessAlreadyEnabled : hipSuccess);
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
    SIM_HIP_START();
    sim_device *device = sim_hip_device();
    if (!sim_hip_device_at(peer))
        return sim_hip_result(hipErrorInvalidDevice);
    const bool was = atomic_fetch_and(&device->peers, ~(1u << peer)) >> peer & 1;
    return sim_hip_result(was ? hipSuccess : hipErrorPeerAccessNotEnabled);
}

static hipError_t copy_peer(void *dst, int to, const void *src, int from, size_t bytes,
                            hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    hipError_t error = check_peers(to, from);
    return sim_hip_result(
        error == hipSuccess
            ? sim_hip_copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream, is_async)
            : error);
}

hipError_t hipMemcpyPeer(void *dst, int to, const void *src, int from, size_t bytes) {
    return copy_peer(dst, to, src, from, bytes, nullptr, false);
}

hipError_t hipMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t bytes,
                              hipStream_t stream) {
    return copy_peer(dst, to, src, from, bytes, stream, true);
}

// ---- flags and limits

/** Accepts flags that change nothing: the host always waits in one way here, host memory is always
 *  mapped, and scratch is always kept. */
hipError_t hipSetDeviceFlags(unsigned flags) {
    enum { SCHEDULE = 7, BLOCKING = 4, KNOWN = 0x1f };
    SIM_HIP_START();
    const unsigned schedule = flags & SCHEDULE;
    if (flags & ~(unsigned)KNOWN || schedule == 3 || schedule > BLOCKING)
        return sim_hip_result(hipErrorInvalidValue);
    atomic_store(&sim_hip_device()->flags, flags);
    return hipSuccess;
}

hipError_t hipGetDeviceFlags(unsigned *flags) {
    SIM_HIP_START();
    if (!flags)
        return sim_hip_result(hipErrorInvalidValue);
    enum { SCHEDULE = 7 }; // other flags are not told, as with AMD's runtime
    *flags = atomic_load(&sim_hip_device()->flags) & SCHEDULE;
    return hipSuccess;
}

enum { MAX_STACK = (128 << 10) - 16, DEFAULT_STACK = 1024 };
enum { DEFAULT_PRINTF = 4 << 20, MIN_PRINTF = 1 << 12, MAX_PRINTF = 1 << 30 };
enum { DEFAULT_HEAP = 8 << 20 }; // of AMD's runtime

hipError_t hipDeviceGetLimit(size_t *value, int limit) {
    static const size_t initial[SIM_HIP_LIMITS] = {DEFAULT_STACK, DEFAULT_PRINTF, DEFAULT_HEAP};
    SIM_HIP_START();
    if (!value || limit < 0 || limit >= SIM_HIP_LIMITS)
        return sim_hip_result(value ? hipErrorUnsupportedLimit : hipErrorInvalidValue);
    const size_t set = atomic_load(&sim_hip_device()->limits[limit]);
    *value = set ? set : initial[limit];
    return hipSuccess;
}

/** Sets a limit. A kernel gets the stack that its code object asks for, whatever the limit. A new
 *  size of printf's buffer, for code that uses one, holds from the next launch on. malloc's heap
 *  grows as it has to: its size is the one to begin with, which is kept and told. */
hipError_t hipDeviceSetLimit(int limit, size_t value) {
    static const size_t least[SIM_HIP_LIMITS] = {0, MIN_PRINTF, 0},
                        most[SIM_HIP_LIMITS] = {MAX_STACK, MAX_PRINTF, SIZE_MAX};
    SIM_HIP_START();
    if (limit < 0 || limit >= SIM_HIP_LIMITS)
        return sim_hip_result(limit < 0 ? hipErrorUnsupportedLimit : hipErrorInvalidValue);
    if (value < least[limit] || value > most[limit])
        return sim_hip_result(hipErrorInvalidValue);
    atomic_store(&sim_hip_device()->limits[limit], value);
    return hipSuccess;
}

// ---- who a device is

hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device) {
    SIM_HIP_START();
    if (!major || !minor || !sim_hip_device_at(device))
        return sim_hip_result(major && minor ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *major = (int)sim_hip_device_at(device)->chip->gfx_major;
    *minor = (int)sim_hip_device_at(device)->chip->gfx_minor;
    return hipSuccess;
}

/** Gives the bus of hipDeviceProp_t.pciBusID: with hipErrorInvalidValue as much as there is room
 *  for. */
hipError_t hipDeviceGetPCIBusId(char *text, int bytes, int device) {
    SIM_HIP_START();
    if (!text || bytes <= 0)
        return sim_hip_result(hipErrorInvalidValue);
    if (!sim_hip_device_at(device))
        return sim_hip_result(hipErrorInvalidDevice);
    const int needed = snprintf(text, (size_t)bytes, "0000:%02x:00.0",
                                (unsigned)sim_hip_device_at(device)->number + 1);
    return sim_hip_result(needed < bytes ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipDeviceGetByPCIBusId(int *device, const char *text) {
    SIM_HIP_START();
    unsigned domain, bus, slot, function = 0;
    if (!device || !text || sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
        return sim_hip_result(hipErrorInvalidValue);
    for (uint32_t i = 0; i < sim_hip.num_devices && !(domain | slot | function); i++) {
        if (sim_hip.devices[i].number + 1 == bus) {
            *device = (int)i;
            return hipSuccess;
        }
    }
    return sim_hip_result(hipErrorInvalidDevice);
}

hipError_t hipDeviceGetUuid(char uuid[16], hipDevice_t device) {
    SIM_HIP_START();
    hipDeviceProp_tR0600 properties;
    if (!uuid)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = hipGetDevicePropertiesR0600(&properties, device);
    if (error == hipSuccess)
        memcpy(uuid, properties.uuid, sizeof properties.uuid);
    return error;
}

// ---- modelled time

int quernsim_clock(int id, char *json, size_t bytes) {
    sim_clock_result sum = {};
    bool found = false;
    if (sim_hip_start() != hipSuccess)
        return false;
    for (uint32_t i = 0; i < sim_hip.num_devices; i++) {
        sim_device *device = &sim_hip.devices[i];
        if ((id >= 0 && device->id != (uint32_t)id) || !sim_hip_is_modelled(device))
            continue;
        found = true;
        if (json)
            sim_clock_tell(&device->clock, &sum);
    }
    FILE *to = found && json ? fmemopen(json, bytes, "w") : nullptr;
    if (to) {
        fputc('{', to);
        sim_clock_write(to, &sum);
        fputc('}', to);
        fclose(to);
    }
    return found && (!json || to);
}
