// SPDX-License-Identifier: Apache-2.0
// AMD's own launches: between two events, or with the grid counted in work-items; and the names of
// kernels.
#include "runtime.h"

/** Launches between two events, each of which may be null. `flags` may allow launches of one stream
 *  to overtake each other, which never happens here. */
static hipError_t launch_between(hipFunction_t f, const uint32_t grid[3], const uint32_t block[3],
                                 size_t dynamic_lds, hipStream_t stream, void **params,
                                 void **extra, hipEvent_t start, hipEvent_t stop) {
    hipError_t error = start ? hipEventRecord(start, stream) : hipSuccess;
    error = error == hipSuccess ? sim_hip_launch(f, grid, block, dynamic_lds, stream, params, extra)
                                : error;
    return error == hipSuccess && stop ? hipEventRecord(stop, stream) : error;
}

hipError_t hipExtModuleLaunchKernel(hipFunction_t f, uint32_t items_x, uint32_t items_y,
                                    uint32_t items_z, uint32_t block_x, uint32_t block_y,
                                    uint32_t block_z, size_t dynamic_lds, hipStream_t stream,
                                    void **params, void **extra, hipEvent_t start, hipEvent_t stop,
                                    uint32_t flags) {
    enum { ANY_ORDER = 1 };
    SIM_HIP_START();
    const uint32_t items[3] = {items_x, items_y, items_z}, block[3] = {block_x, block_y, block_z};
    uint32_t grid[3];
    if (flags > ANY_ORDER)
        return sim_hip_result(hipErrorInvalidValue);
    for (int i = 0; i < 3;
         i++) { // a last workgroup that is smaller than the others is not supported
        if (block[i] == 0 || items[i] % block[i])
            return sim_hip_result(f ? hipErrorInvalidValue : hipErrorInvalidHandle);
        grid[i] = items[i] / block[i];
    }
    return sim_hip_result(
        launch_between(f, grid, block, dynamic_lds, stream, params, extra, start, stop));
}

hipError_t hipHccModuleLaunchKernel(hipFunction_t f, uint32_t items_x, uint32_t items_y,
                                    uint32_t items_z, uint32_t block_x, uint32_t block_y,
                                    uint32_t block_z, size_t dynamic_lds, hipStream_t stream,
                                    void **params, void **extra, hipEvent_t start,
                                    hipEvent_t stop) {
    return hipExtModuleLaunchKernel(f, items_x, items_y, items_z, block_x, block_y, block_z,
                                    dynamic_lds, stream, params, extra, start, stop, 0);
}

hipError_t hipExtLaunchKernel(const void *kernel, dim3 g, dim3 b, void **args, size_t dynamic_lds,
                              hipStream_t handle, hipEvent_t start, hipEvent_t stop, int flags) {
    SIM_HIP_START();
    const uint32_t grid[3] = {g.x, g.y, g.z}, block[3] = {b.x, b.y, b.z};
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream || flags < 0 || flags > 1)
        return sim_hip_result(stream ? hipErrorInvalidValue : hipErrorContextIsDestroyed);
    hipFunction_t f;
    hipError_t error = sim_hip_registered(&f, kernel, stream->device);
    return sim_hip_result(error == hipSuccess ? launch_between(f, grid, block, dynamic_lds, handle,
                                                               args, nullptr, start, stop)
                                              : error);
}

// ---- names

const char *hipKernelNameRef(hipFunction_t f) {
    return sim_hip_is_function(f) ? f->kernel->name : nullptr;
}

const char *hipKernelNameRefByPtr(const void *kernel, hipStream_t handle) {
    hipFunction_t f;
    const sim_stream *stream = sim_hip_start() == hipSuccess ? sim_hip_stream(handle) : nullptr;
    const bool found = stream && sim_hip_registered(&f, kernel, stream->device) == hipSuccess;
    return found ? f->kernel->name : nullptr;
}

/** Returns no name: numbers of calls belong to tracing, which does not exist here. */
const char *hipApiName(uint32_t id) {
    (void)id;
    return "unknown";
}
