// SPDX-License-Identifier: Apache-2.0
// HIP's own names for hiprtc's linker.
#include "../runtime.h"

static hipError_t error_of(hiprtcResult result) {
    switch (result) {
    case HIPRTC_SUCCESS:
        return hipSuccess;
    case HIPRTC_ERROR_OUT_OF_MEMORY:
        return hipErrorOutOfMemory;
    case HIPRTC_ERROR_PROGRAM_CREATION_FAILURE:
        return hipErrorFileNotFound;
    case HIPRTC_ERROR_LINKING:
        return hipErrorInvalidImage;
    case HIPRTC_ERROR_INTERNAL_ERROR:
        return hipErrorOperatingSystem;
    default:
        return hipErrorInvalidValue;
    }
}

hipError_t hipLinkCreate(unsigned num_options, int *options, void **values, hipLinkState_t *out) {
    SIM_HIP_START();
    return sim_hip_result(error_of(hiprtcLinkCreate(num_options, options, values, out)));
}

hipError_t hipLinkAddData(hipLinkState_t link, int type, void *data, size_t bytes, const char *name,
                          unsigned num_options, int *options, void **values) {
    SIM_HIP_START();
    return sim_hip_result(
        error_of(hiprtcLinkAddData(link, type, data, bytes, name, num_options, options, values)));
}

hipError_t hipLinkAddFile(hipLinkState_t link, int type, const char *path, unsigned num_options,
                          int *options, void **values) {
    SIM_HIP_START();
    return sim_hip_result(
        error_of(hiprtcLinkAddFile(link, type, path, num_options, options, values)));
}

hipError_t hipLinkComplete(hipLinkState_t link, void **code, size_t *bytes) {
    SIM_HIP_START();
    return sim_hip_result(error_of(hiprtcLinkComplete(link, code, bytes)));
}

hipError_t hipLinkDestroy(hipLinkState_t link) {
    SIM_HIP_START();
    return sim_hip_result(error_of(hiprtcLinkDestroy(link)));
}
