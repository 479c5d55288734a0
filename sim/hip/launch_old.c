// SPDX-License-Identifier: Apache-2.0
// Launches in steps. Programs of old compilers give the shape, each argument, then launch; clang's
// <<<>>> gives the shape, and the kernel's stub takes it back. A thread may begin further launches
// before it ends one, if computing arguments launches kernels.
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PENDING = 64, MAX_ARGUMENTS = 4096 };

typedef struct pending {
    dim3 grid, block;
    size_t dynamic_lds;
    hipStream_t stream;
    size_t bytes; // of the arguments so far
    alignas(16) uint8_t arguments[MAX_ARGUMENTS];
} pending;

static thread_local pending *list; // of MAX_PENDING; null: the thread has begun none
static thread_local unsigned count;
static pthread_key_t key; // frees the list at the thread's end
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void make_key(void) {
    pthread_key_create(&key, free);
}

static bool make_list(void) {
    pthread_once(&key_once, make_key);
    list = malloc(MAX_PENDING * sizeof *list);
    return list && pthread_setspecific(key, list) == 0;
}

hipError_t hipConfigureCall(dim3 grid, dim3 block, size_t dynamic_lds, hipStream_t stream) {
    SIM_HIP_START();
    return __hipPushCallConfiguration(grid, block, dynamic_lds, stream);
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_lds,
                                      hipStream_t stream) {
    if (count == MAX_PENDING || !(list || make_list()))
        return sim_hip_result(hipErrorOutOfMemory);
    pending *p = &list[count++];
    p->grid = grid;
    p->block = block;
    p->dynamic_lds = dynamic_lds;
    p->stream = stream;
    p->bytes = 0;
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic_lds,
                                     hipStream_t *stream) {
    if (!count)
        return sim_hip_result(hipErrorMissingConfiguration);
    const pending *p = &list[--count];
    *grid = p->grid;
    *block = p->block;
    *dynamic_lds = p->dynamic_lds;
    *stream = p->stream;
    return hipSuccess;
}

/** Sets bytes of the arguments, of which a launch has at most 4096. */
hipError_t hipSetupArgument(const void *argument, size_t bytes, size_t offset) {
    SIM_HIP_START();
    if (!count)
        return sim_hip_result(hipErrorMissingConfiguration);
    if (!argument || offset > MAX_ARGUMENTS || bytes > MAX_ARGUMENTS - offset)
        return sim_hip_result(hipErrorInvalidValue);
    pending *p = &list[count - 1];
    if (offset > p->bytes)
        memset(p->arguments + p->bytes, 0, offset - p->bytes);
    memcpy(p->arguments + offset, argument, bytes);
    p->bytes = offset + bytes > p->bytes ? offset + bytes : p->bytes;
    return hipSuccess;
}

/** Launches with the shape and arguments that the thread gave last. */
hipError_t hipLaunchByPtr(const void *kernel) {
    SIM_HIP_START();
    if (!count)
        return sim_hip_result(hipErrorMissingConfiguration);
    pending *p = &list[--count];
    const sim_stream *stream = sim_hip_stream(p->stream);
    if (!stream)
        return sim_hip_result(hipErrorContextIsDestroyed);
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, p->arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE,
                     &p->bytes, HIP_LAUNCH_PARAM_END};
    sim_launch launch = {.grid = {p->grid.x, p->grid.y, p->grid.z},
                         .block = {p->block.x, p->block.y, p->block.z},
                         .dynamic_lds = p->dynamic_lds,
                         .extra = extra,
                         .host = kernel};
    hipError_t error = sim_hip_registered(&launch.function, kernel, stream->device);
    return sim_hip_result(error == hipSuccess ? sim_hip_queue_launch(p->stream, &launch) : error);
}
