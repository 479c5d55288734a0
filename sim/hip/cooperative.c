// SPDX-License-Identifier: Apache-2.0
// Cooperative launches: workgroups, and grids of several devices, that wait for each other at
// barriers. All workgroups must fit on the device at a time, and here all of them do run at a time.
//
// The barriers are the device library's and work through memory, but on gfx90a, where they are an
// instruction (GWS) that is not executed.
#include "runtime.h"

#include <stdlib.h>

static uint64_t count_groups(const sim_launch *l) {
    return (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
}

bool sim_hip_fits(const sim_launch *l) {
    const sim_chip *chip = l->function->module->device->chip;
    const sim_kernel *k = l->function->kernel;
    const uint64_t block = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    if (block == 0 || block > k->max_threads || l->dynamic_lds > chip->lds_bytes)
        return true; // the launch itself says what is wrong
    const uint32_t a_unit =
        sim_find_occupancy(chip, k, (uint32_t)block, k->lds_bytes + (uint32_t)l->dynamic_lds)
            .groups;
    return count_groups(l) <= (uint64_t)a_unit * chip->compute_units;
}

static uint64_t count_items(const sim_launch *l) {
    return count_groups(l) * l->block[0] * l->block[1] * l->block[2];
}

hipError_t sim_hip_cooperative(hipStream_t handle, sim_launch *l) {
    if (!sim_hip_is_function(l->function))
        return hipErrorInvalidHandle;
    if (!sim_hip_fits(l))
        return hipErrorCooperativeLaunchTooLarge;
    const sim_grids alone = {.num_items = count_items(l)};
    l->grids = l->grids ? l->grids : &alone;
    return sim_hip_queue_launch(handle, l);
}

static hipError_t launch_kernel(const void *kernel, dim3 g, dim3 b, void **args, size_t dynamic_lds,
                                hipStream_t handle) {
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return hipErrorContextIsDestroyed;
    sim_launch l = {.grid = {g.x, g.y, g.z},
                    .block = {b.x, b.y, b.z},
                    .dynamic_lds = dynamic_lds,
                    .params = args};
    hipError_t error = sim_hip_registered(&l.function, kernel, stream->device);
    return error == hipSuccess ? sim_hip_cooperative(handle, &l) : error;
}

hipError_t hipLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                                      unsigned dynamic_lds, hipStream_t stream) {
    SIM_HIP_START();
    return sim_hip_result(launch_kernel(kernel, grid, block, args, dynamic_lds, stream));
}

hipError_t hipLaunchCooperativeKernel_spt(const void *kernel, dim3 grid, dim3 block, void **args,
                                          unsigned dynamic_lds, hipStream_t stream) {
    return hipLaunchCooperativeKernel(kernel, grid, block, args, dynamic_lds,
                                      stream ? stream : (hipStream_t)2);
}

hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned grid_x,
                                            unsigned grid_y, unsigned grid_z, unsigned block_x,
                                            unsigned block_y, unsigned block_z,
                                            unsigned dynamic_lds, hipStream_t stream,
                                            void **params) {
    SIM_HIP_START();
    sim_launch l = {.function = function,
                    .grid = {grid_x, grid_y, grid_z},
                    .block = {block_x, block_y, block_z},
                    .dynamic_lds = dynamic_lds,
                    .params = params};
    if (!sim_hip_stream(stream))
        return sim_hip_result(hipErrorInvalidValue); // as AMD's runtime has it
    return sim_hip_result(sim_hip_cooperative(stream, &l));
}

// ---- grids of several devices

/** One of the launches, with its stream. */
typedef struct part {
    sim_launch launch;
    hipStream_t stream;
} part;

/** Checks that each launch has a stream of a device of its own. */
static hipError_t check_parts(const part *parts, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const sim_stream *a = parts[i].stream ? sim_hip_stream(parts[i].stream) : nullptr;
        if (!a)
            return hipErrorContextIsDestroyed;
        for (unsigned k = 0; k < i; k++)
            if (sim_hip_stream(parts[k].stream)->device == a->device)
                return hipErrorInvalidDevice;
    }
    return hipSuccess;
}

/** Waits for what is queued on the streams' devices: a grid must not wait for one that stands
 *  behind other work for ever. */
static void settle(const part *parts, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        sim_hip_drain(sim_hip_stream(parts[i].stream)->device);
}

static hipError_t share(sim_shared_grids **out, unsigned count) {
    sim_shared_grids *shared = calloc(1, sizeof *shared);
    const sim_region *region =
        shared ? sim_memory_alloc(sim_hip.memory, sizeof(uint64_t), SIM_REGION_HOST, 0) : nullptr;
    if (!region) {
        free(shared);
        return hipErrorOutOfMemory;
    }
    *shared = (sim_shared_grids){region->base, count};
    *out = shared;
    return hipSuccess;
}

/** Returns the error of a device that has failed, if one of the streams' has. */
static hipError_t find_failure(sim_stream *const *streams, unsigned count) {
    hipError_t error = hipSuccess;
    pthread_mutex_lock(&sim_hip.lock);
    for (unsigned i = 0; error == hipSuccess && i < count; i++)
        error = streams[i]->device->error;
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

/** Queues all parts or, if one of them cannot be, none: the others would wait for it for ever. */
static hipError_t queue_parts(part *parts, unsigned count, sim_grids *grids) {
    sim_stream *streams[SIM_MAX_DEVICES];
    sim_op *ops[SIM_MAX_DEVICES];
    unsigned made = 0;
    hipError_t error = hipSuccess;
    while (error == hipSuccess && made < count) {
        part *p = &parts[made];
        streams[made] = sim_hip_stream(p->stream);
        p->launch.grids = grids;
        error = streams[made] ? sim_hip_launch_op(&ops[made], streams[made]->device, &p->launch)
                              : hipErrorContextIsDestroyed;
        made += error == hipSuccess;
        if (grids) {
            grids->index++;
            grids->first_item += count_items(&p->launch);
        }
    }
    error = error == hipSuccess ? find_failure(streams, count) : error;
    for (unsigned i = 0; i < made; i++)
        if (error == hipSuccess)
            error = sim_hip_queue(streams[i], ops[i], nullptr);
        else
            sim_hip_drop(streams[i], ops[i]);
    pthread_mutex_lock(&sim_hip.lock);
    sim_hip_release_grids(grids ? grids->shared : nullptr, count - made);
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

/** Launches all parts; if all wait for each other, each fits its device. */
static hipError_t launch_parts(part *parts, unsigned count, bool is_cooperative) {
    hipError_t error = check_parts(parts, count);
    sim_grids grids = {.count = count};
    for (unsigned i = 0; error == hipSuccess && i < count; i++) {
        if (is_cooperative && !sim_hip_is_function(parts[i].launch.function))
            error = hipErrorInvalidHandle;
        else if (is_cooperative && !sim_hip_fits(&parts[i].launch))
            error = hipErrorCooperativeLaunchTooLarge;
        grids.num_items += count_items(&parts[i].launch);
    }
    if (error == hipSuccess && is_cooperative)
        error = share(&grids.shared, count);
    if (error != hipSuccess)
        return error;
    settle(parts, count);
    return queue_parts(parts, count, is_cooperative ? &grids : nullptr);
}

static hipError_t launch_kernels(const hipLaunchParams *list, int count, unsigned flags,
                                 bool is_cooperative) {
    enum { KNOWN_FLAGS = 3 }; // launches that do not wait for what came before, nor hold up others
    SIM_HIP_START();
    if (!list || count <= 0 || (uint32_t)count > sim_hip.num_devices || flags > KNOWN_FLAGS)
        return sim_hip_result(hipErrorInvalidValue);
    part parts[SIM_MAX_DEVICES] = {};
    for (int i = 0; i < count; i++) {
        const hipLaunchParams *p = &list[i];
        const sim_stream *stream = p->stream ? sim_hip_stream(p->stream) : nullptr;
        if (!stream)
            return sim_hip_result(hipErrorContextIsDestroyed);
        parts[i] = (part){{.grid = {p->gridDim.x, p->gridDim.y, p->gridDim.z},
                           .block = {p->blockDim.x, p->blockDim.y, p->blockDim.z},
                           .dynamic_lds = p->sharedMem,
                           .params = p->args},
                          p->stream};
        hipError_t error = sim_hip_registered(&parts[i].launch.function, p->func, stream->device);
        if (error != hipSuccess)
            return sim_hip_result(error);
    }
    return sim_hip_result(launch_parts(parts, (unsigned)count, is_cooperative));
}

hipError_t hipLaunchCooperativeKernelMultiDevice(hipLaunchParams *list, int count, unsigned flags) {
    return launch_kernels(list, count, flags, true);
}

hipError_t hipExtLaunchMultiKernelMultiDevice(hipLaunchParams *list, int count, unsigned flags) {
    return launch_kernels(list, count, flags, false);
}

hipError_t hipModuleLaunchCooperativeKernelMultiDevice(hipFunctionLaunchParams *list,
                                                       unsigned count, unsigned flags) {
    enum { KNOWN_FLAGS = 3 };
    SIM_HIP_START();
    if (!list || !count || count > sim_hip.num_devices || flags > KNOWN_FLAGS)
        return sim_hip_result(hipErrorInvalidValue);
    part parts[SIM_MAX_DEVICES] = {};
    for (unsigned i = 0; i < count; i++) {
        const hipFunctionLaunchParams *p = &list[i];
        parts[i] = (part){{.function = p->function,
                           .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                           .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                           .dynamic_lds = p->sharedMemBytes,
                           .params = p->kernelParams},
                          p->hStream};
    }
    return sim_hip_result(launch_parts(parts, count, true));
}
