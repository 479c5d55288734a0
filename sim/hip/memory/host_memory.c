// SPDX-License-Identifier: Apache-2.0
// The program's memory as the device sees it, allocations in stream order, and other names of
// memory.c's calls.
#include "../runtime.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- registered memory

/** Ends that memory is registered which begins here, as AMD's runtime lets programs register
 *  memory anew that they freed meanwhile. */
static void forget_registered(const void *ptr) {
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!region || region->kind != SIM_REGION_REGISTERED || region->base != (uintptr_t)ptr)
        return;
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        sim_hip_drain(&sim_hip.devices[i]);
    sim_memory_unregister(sim_hip.memory, (void *)ptr);
}

/** Returns whether the program has all of the memory. */
static bool is_mapped(const void *ptr, size_t bytes) {
    enum { PART_PAGES = 4096 };
    unsigned char resident[PART_PAGES];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)ptr + bytes;
    for (uintptr_t at = (uintptr_t)ptr / page * page; at < end; at += PART_PAGES * page) {
        const size_t left = end - at;
        if (mincore((void *)at, left < PART_PAGES * page ? left : PART_PAGES * page, resident) != 0)
            return false;
    }
    return true;
}

hipError_t hipHostRegister(void *ptr, size_t bytes, unsigned flags) {
    // Portable, mapped, of a device, read-only: the memory is the first two in any case.
    constexpr unsigned KNOWN = 0xf;
    SIM_HIP_START_UNCAPTURED();
    if (!ptr || bytes == 0 || (uintptr_t)ptr + bytes < (uintptr_t)ptr || flags & ~KNOWN ||
        !is_mapped(ptr, bytes)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    bool is_known;
    forget_registered(ptr);
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
    if (!ptr)
        return sim_hip_result(hipErrorInvalidValue);
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
    uint64_t serial; // if a pool has the memory back; else 0
} free_op;

static hipError_t run_free(sim_stream *stream, sim_op *op) {
    (void)stream;
    void *ptr = ((free_op *)op)->ptr;
    if (((free_op *)op)->serial) {
        sim_pool_reach(((free_op *)op)->serial);
        return hipSuccess;
    }
    sim_pool_freed((uintptr_t)ptr);
    sim_block_freed((uintptr_t)ptr);
    sim_pointer_forget((uintptr_t)ptr);
    const bool ok = sim_memory_free(sim_hip.memory, (uintptr_t)ptr);
    return ok ? hipSuccess : hipErrorInvalidValue; // freed twice
}

static void forget_free(sim_op *op) {
    if (!((free_op *)op)->serial)
        sim_handle_remove(SIM_HANDLE_FREEING, ((free_op *)op)->ptr);
}

/** Allocates. The memory exists at once, which is earlier than the stream's order asks for. */
hipError_t hipMallocAsync(void **out, size_t bytes, hipStream_t handle) {
    SIM_HIP_START();
    sim_stream *stream = sim_hip_stream(handle);
    if (stream && stream->capture)
        return sim_hip_result(sim_capture_alloc(stream, out, bytes));
    return sim_hip_result(stream ? sim_pool_alloc(sim_pool_of(stream->device), out, bytes, stream)
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
    const bool is_there = region && region->base == (uintptr_t)ptr &&
                          (region->kind == SIM_REGION_DEVICE || sim_pool_is_opened(region));
    if (!is_there && !sim_block_is_out(ptr))
        return sim_hip_result(hipErrorInvalidValue);
    if (sim_handle_is(SIM_HANDLE_FREEING, ptr) || sim_pool_has_freed((uintptr_t)ptr))
        return sim_hip_result(hipErrorInvalidValue); // freed twice
    free_op *op = malloc(sizeof *op);
    const uint64_t serial = op ? sim_pool_free_later((uintptr_t)ptr, stream) : 0;
    if (!op || (!serial && !sim_handle_add(SIM_HANDLE_FREEING, ptr))) {
        free(op);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    sim_block_freeing((uintptr_t)ptr);
    *op = (free_op){{.run = run_free, .destroy = forget_free, .is_marker = true}, ptr, serial};
    hipError_t error = sim_hip_queue(stream, &op->op, nullptr);
    if (error != hipSuccess && serial)
        sim_pool_reach(serial); // nothing comes before it any more
    return sim_hip_result(error);
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
