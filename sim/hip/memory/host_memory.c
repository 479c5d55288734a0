// SPDX-License-Identifier: Apache-2.0
// The program's memory as the device sees it, allocations in stream order, and other names of
// memory.c's calls.
#include "../runtime.h"

#include <stdlib.h>

// ---- registered memory

hipError_t hipHostRegister(void *ptr, size_t bytes, unsigned flags) {
    constexpr unsigned KNOWN = 0x3; // portable, mapped: the memory is both in any case
    SIM_HIP_START_UNCAPTURED();
    if (!ptr || bytes == 0 || (uintptr_t)ptr + bytes < (uintptr_t)ptr || flags & ~KNOWN)
        return sim_hip_result(hipErrorInvalidValue);
    bool is_known;
    if (sim_memory_is_guest((uintptr_t)ptr) ||
        (!sim_memory_register(sim_hip.memory, ptr, bytes, sim_hip_device()->id, &is_known) &&
         !is_known)) {
        return sim_hip_result(sim_memory_is_guest((uintptr_t)ptr) ? hipErrorInvalidValue
                                                                  : hipErrorOutOfMemory);
    }
    if (!is_known)
        sim_memory_tag(sim_hip.memory, (uintptr_t)ptr, flags);
    return sim_hip_result(is_known ? hipErrorHostMemoryAlreadyRegistered : hipSuccess);
}

hipError_t hipHostUnregister(void *ptr) {
    SIM_HIP_START_UNCAPTURED();
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        sim_hip_drain(&sim_hip.devices[i]);
    return sim_hip_result(
        sim_memory_unregister(sim_hip.memory, ptr) ? hipSuccess : hipErrorHostMemoryNotRegistered);
}

hipError_t hipHostGetFlags(unsigned *flags, void *host) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)host);
    bool is_host =
        region && (region->kind == SIM_REGION_HOST || region->kind == SIM_REGION_REGISTERED);
    if (!flags || !is_host)
        return sim_hip_result(hipErrorInvalidValue);
    *flags = region->flags;
    return hipSuccess;
}

// ---- in stream order

typedef struct free_op {
    sim_op op;
    void *ptr;
} free_op;

static hipError_t run_free(sim_stream *stream, sim_op *op) {
    (void)stream;
    void *ptr = ((free_op *)op)->ptr;
    sim_pool_freed((uintptr_t)ptr);
    sim_block_freed((uintptr_t)ptr);
    const bool ok = sim_memory_free(sim_hip.memory, (uintptr_t)ptr);
    return ok ? hipSuccess : hipErrorInvalidValue; // freed twice
}

static void forget_free(sim_op *op) {
    sim_handle_remove(SIM_HANDLE_FREEING, ((free_op *)op)->ptr);
}

/** Allocates. The memory exists at once, which is earlier than the stream's order asks for. */
hipError_t hipMallocAsync(void **out, size_t bytes, hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (stream && stream->capture)
        return sim_hip_result(sim_capture_alloc(stream, out, bytes));
    return sim_hip_result(stream ? sim_pool_alloc(sim_pool_of(stream->device), out, bytes)
                                 : hipErrorInvalidHandle);
}

hipError_t hipFreeAsync(void *ptr, hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!stream)
        return sim_hip_result(hipErrorInvalidHandle);
    if (stream->capture)
        return sim_hip_result(sim_capture_free(stream, ptr));
    const bool is_there =
        region && region->kind == SIM_REGION_DEVICE && region->base == (uintptr_t)ptr;
    if (!is_there && !sim_block_is_out(ptr))
        return sim_hip_result(hipErrorInvalidValue);
    if (sim_handle_is(SIM_HANDLE_FREEING, ptr)) // freed twice
        return sim_hip_result(hipErrorInvalidValue);
    free_op *op = malloc(sizeof *op);
    if (!op || !sim_handle_add(SIM_HANDLE_FREEING, ptr)) {
        free(op);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    sim_block_freeing((uintptr_t)ptr);
    *op = (free_op){{.run = run_free, .destroy = forget_free, .is_marker = true}, ptr};
    return sim_hip_result(sim_hip_queue(stream, &op->op, nullptr));
}

// ---- what a pointer belongs to

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t ptr) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!region)
        return sim_hip_result(hipErrorNotFound);
    uint64_t first, size;
    sim_hip_extent(region, ptr, &first, &size);
    if (base)
        *base = (void *)first;
    if (bytes)
        *bytes = size;
    return hipSuccess;
}

hipError_t hipMemPtrGetInfo(void *ptr, size_t *bytes) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!bytes || !region)
        return sim_hip_result(hipErrorInvalidValue);
    uint64_t base, size;
    sim_hip_extent(region, ptr, &base, &size);
    *bytes = size;
    return hipSuccess;
}

// ---- other names

hipError_t hipHostAlloc(void **out, size_t bytes, unsigned flags) {
    return hipHostMalloc(out, bytes, flags);
}

hipError_t hipExtHostAlloc(void **out, size_t bytes, unsigned flags) {
    return hipHostMalloc(out, bytes, flags);
}

hipError_t hipMallocHost(void **out, size_t bytes) {
    return hipHostMalloc(out, bytes, 0);
}

hipError_t hipMemAllocHost(void **out, size_t bytes) {
    return hipHostMalloc(out, bytes, 0);
}

hipError_t hipFreeHost(void *ptr) {
    return hipHostFree(ptr);
}

/** Allocates. The one kind of memory is fine-grained, uncached and contiguous. A signal is
 *  eight bytes that the host reaches too. */
hipError_t hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags) {
    enum { SIGNAL = 2, CONTIGUOUS = 4, SIGNAL_BYTES = 8, GLOBAL = 1 };
    SIM_HIP_START();
    if (!out || flags > CONTIGUOUS || (flags == SIGNAL && bytes != SIGNAL_BYTES))
        return sim_hip_result(hipErrorInvalidValue);
    return flags == SIGNAL ? hipMallocManaged(out, bytes, GLOBAL) : hipMalloc(out, bytes);
}

/** Copies in the order of the stream; the copy is done on return. */
hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                               hipStream_t stream) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_copy(dst, src, bytes, kind, stream, false));
}
