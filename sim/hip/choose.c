// SPDX-License-Identifier: Apache-2.0
// Choosing a device by its properties, those of HIP 5 too.
#include "runtime.h"

#include <string.h>

/** Returns how many of the wishes a device fulfils; a zero is no wish. */
static int num_met(const hipDeviceProp_tR0600 *wanted, const hipDeviceProp_tR0600 *p) {
    const bool named = wanted->gcnArchName[0];
    return (named && strcmp(wanted->gcnArchName, p->gcnArchName) == 0) +
           (wanted->major && p->major >= wanted->major) +
           (wanted->minor && p->minor >= wanted->minor) +
           (wanted->totalGlobalMem && p->totalGlobalMem >= wanted->totalGlobalMem) +
           (wanted->sharedMemPerBlock && p->sharedMemPerBlock >= wanted->sharedMemPerBlock) +
           (wanted->warpSize && p->warpSize == wanted->warpSize) +
           (wanted->multiProcessorCount && p->multiProcessorCount >= wanted->multiProcessorCount);
}

/** Chooses the device that fulfils most wishes, the first if there are several. */
hipError_t hipChooseDeviceR0600(int *device, const hipDeviceProp_tR0600 *wanted) {
    SIM_HIP_START();
    if (!device || !wanted)
        return sim_hip_result(hipErrorInvalidValue);
    int best = -1;
    for (uint32_t i = 0; i < sim_hip.num_devices; i++) {
        hipDeviceProp_tR0600 properties;
        hipGetDevicePropertiesR0600(&properties, (int)i);
        const int met = num_met(wanted, &properties);
        *device = met > best ? (int)i : *device;
        best = met > best ? met : best;
    }
    return hipSuccess;
}

// ---- as programs of HIP 5 know properties

/** Gives a device's properties. */
hipError_t hipGetDevicePropertiesR0000(hipDeviceProp_tR0000 *out, int device) {
    hipDeviceProp_tR0600 p;
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = hipGetDevicePropertiesR0600(&p, device);
    if (error != hipSuccess)
        return error;
    *out = (hipDeviceProp_tR0000){
#define SAME(member) .member = p.member,
#include "properties_5.def"
#undef SAME
        .maxThreadsDim = {p.maxThreadsDim[0], p.maxThreadsDim[1], p.maxThreadsDim[2]},
        .maxGridSize = {p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2]},
        .gcnArch = 100 * p.major + 10 * p.minor,
    };
    memcpy(out->name, p.name, sizeof out->name);
    memcpy(out->gcnArchName, p.gcnArchName, sizeof out->gcnArchName);
    return hipSuccess;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000 *out, int device) {
    return hipGetDevicePropertiesR0000(out, device);
}

hipError_t hipChooseDeviceR0000(int *device, const hipDeviceProp_tR0000 *wanted) {
    if (!wanted)
        return sim_hip_result(hipErrorInvalidValue);
    hipDeviceProp_tR0600 all = {
#define SAME(member) .member = wanted->member,
#include "properties_5.def"
#undef SAME
    };
    memcpy(all.gcnArchName, wanted->gcnArchName, sizeof all.gcnArchName);
    return hipChooseDeviceR0600(device, &all);
}

hipError_t hipChooseDevice(int *device, const hipDeviceProp_tR0000 *wanted) {
    return hipChooseDeviceR0000(device, wanted);
}
