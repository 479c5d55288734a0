// SPDX-License-Identifier: Apache-2.0
// Allocations, copies and fills.
//
// A device pointer is a guest address; hipHostMalloc's memory has the same address on both sides.
// Ranges are checked when a call is made, and looked up again when the stream comes to it.
#include "../runtime.h"

// ---- allocations

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total) {
    SIM_HIP_START();
    if (!free_bytes || !total)
        return sim_hip_result(hipErrorInvalidValue);
    sim_device *device = sim_hip_device();
    *total = device->chip->memory_bytes;
    *free_bytes = *total - sim_memory_used(sim_hip.memory, device->id);
    return hipSuccess;
}

hipError_t sim_hip_alloc(sim_device *device, void **out, size_t bytes) {
    if (!out)
        return hipErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0)
        return hipSuccess;
    if (bytes > device->chip->memory_bytes - sim_memory_used(sim_hip.memory, device->id))
        return hipErrorOutOfMemory;
    const sim_region *region =
        sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_DEVICE, device->id);
    if (!region)
        return hipErrorOutOfMemory;
    *out = (void *)region->base;
    return hipSuccess;
}

hipError_t hipMalloc(void **out, size_t bytes) {
    SIM_HIP_START_UNCAPTURED();
    return sim_hip_result(sim_hip_alloc(sim_hip_device(), out, bytes));
}

/** Frees an allocation of one kind, once its device (for host memory every device) has finished its
 *  queued work. */
static hipError_t free_memory(void *ptr, sim_region_kind kind) {
    if (!ptr)
        return hipSuccess;
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!region || region->kind != kind || region->base != (uintptr_t)ptr)
        return hipErrorInvalidValue;
    const uint32_t device = region->device;
    sim_pointer_forget(region->base);
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        if (kind != SIM_REGION_DEVICE || i == device)
            sim_hip_drain(&sim_hip.devices[i]); // even if a kernel failed, the memory is freed
    return sim_memory_free(sim_hip.memory, (uintptr_t)ptr) ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipFree(void *ptr) {
    SIM_HIP_START_UNCAPTURED();
    for (uint32_t i = 0; sim_block_is_out(ptr) && i < sim_hip.num_devices; i++)
        sim_hip_drain(&sim_hip.devices[i]); // a graph's memory may not be there yet
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (region && sim_pool_has_freed(region->base))
        return sim_hip_result(hipErrorInvalidValue); // freed in a stream's order
    const bool is_managed = region && region->kind == SIM_REGION_MANAGED;
    if (region && region->kind == SIM_REGION_HOST)
        return hipHostFree(ptr); // as AMD's runtime does
    const sim_region_kind kind = is_managed                   ? SIM_REGION_MANAGED
                                 : sim_pool_is_opened(region) ? SIM_REGION_IMPORTED
                                                              : SIM_REGION_DEVICE;
    if (is_managed)
        sim_managed_forget((uintptr_t)ptr);
    else if (region && region->base == (uintptr_t)ptr)
        sim_pool_freed(region->base), sim_block_freed(region->base);
    return sim_hip_result(free_memory(ptr, kind));
}

hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags) {
    // Memory of one kind serves all flags: portable, mapped, write-combined, NUMA and coherence
    // hints.
    constexpr unsigned KNOWN = 0x7 | 0xf0000000, BOTH_COHERENCES = 0xc0000000;
    SIM_HIP_START_UNCAPTURED();
    if (!out || flags & ~KNOWN || (flags & BOTH_COHERENCES) == BOTH_COHERENCES)
        return sim_hip_result(hipErrorInvalidValue);
    *out = nullptr;
    if (bytes == 0)
        return hipSuccess;
    const sim_region *region =
        sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_HOST, sim_hip_device()->id);
    if (!region)
        return sim_hip_result(hipErrorOutOfMemory);
    sim_memory_tag(sim_hip.memory, region->base, flags);
    *out = region->host;
    return hipSuccess;
}

hipError_t hipHostFree(void *ptr) {
    SIM_HIP_START_UNCAPTURED();
    return sim_hip_result(free_memory(ptr, SIM_REGION_HOST));
}

/** Returns whether memory has one address on both sides. */
static bool is_host_memory(const sim_region *region) {
    return sim_is_shared_kind(region->kind) || region->kind == SIM_REGION_REGISTERED;
}

hipError_t hipHostGetDevicePointer(void **out, void *host, unsigned flags) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)host);
    if (!out || flags || !region || !is_host_memory(region))
        return sim_hip_result(hipErrorInvalidValue);
    *out = host;
    return hipSuccess;
}

// ---- what a pointer is

/** Gives the allocation that an address lies in; in a reserved range, the part that one call gave
 *  its memory. */
void sim_hip_extent(const sim_region *region, const void *ptr, uint64_t *base, uint64_t *bytes) {
    *base = region->base;
    *bytes = region->size;
    if (region->kind == SIM_REGION_VIRTUAL)
        sim_virtual_find((uintptr_t)ptr, base, bytes);
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr) {
    SIM_HIP_START();
    if (!attributes || !ptr)
        return sim_hip_result(hipErrorInvalidValue);
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    *attributes = (hipPointerAttribute_t){.device = -2};
    if (region) {
        const bool is_host = is_host_memory(region);
        const bool is_managed = region->kind == SIM_REGION_MANAGED;
        attributes->type = is_managed ? hipMemoryTypeManaged
                           : is_host  ? hipMemoryTypeHost
                                      : hipMemoryTypeDevice;
        attributes->isManaged = is_managed;
        attributes->device = (int)region->device;
        attributes->devicePointer = (void *)ptr;
        attributes->hostPointer = is_host ? (void *)ptr : nullptr;
        attributes->allocationFlags = region->flags;
    }
    return hipSuccess;
}

hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute, hipDeviceptr_t ptr) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!data || !region)
        return sim_hip_result(hipErrorInvalidValue);
    const bool is_host = is_host_memory(region);
    uint64_t base, bytes;
    sim_hip_extent(region, ptr, &base, &bytes);
    switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = region->kind == SIM_REGION_MANAGED ? hipMemoryTypeManaged
                            : is_host                          ? hipMemoryTypeHost
                                                               : hipMemoryTypeDevice;
        break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(void **)data = ptr;
        break;
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host)
            return sim_hip_result(hipErrorInvalidValue);
        *(void **)data = ptr;
        break;
    case HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(bool *)data = sim_pointer_is_synced(ptr);
        break;
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned *)data = sim_pointer_id(region);
        break;
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
        *(bool *)data = region->kind == SIM_REGION_MANAGED;
        break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = (int)region->device;
        break;
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(void **)data = (void *)base;
        break;
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(uint32_t *)data = (uint32_t)bytes; // as AMD's runtime writes it
        break;
    case HIP_POINTER_ATTRIBUTE_MAPPED:
        *(bool *)data = true;
        break;
    case HIP_POINTER_ATTRIBUTE_CONTEXT: // AMD's runtime knows the names of these
    case HIP_POINTER_ATTRIBUTE_P2P_TOKENS:
    case HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE:
    case HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return sim_hip_result(hipErrorNotSupported);
    default:
        return sim_hip_result(hipErrorInvalidValue);
    }
    return hipSuccess;
}

/** Gives each attribute as hipPointerGetAttribute does; an attribute that a pointer lacks is
 *  zero. */
hipError_t hipDrvPointerGetAttributes(unsigned count, hipPointer_attribute *attributes, void **data,
                                      hipDeviceptr_t ptr) {
    SIM_HIP_START();
    if (!count || !attributes || !data || !sim_memory_find(sim_hip.memory, (uintptr_t)ptr))
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = hipSuccess;
    for (unsigned i = 0; error == hipSuccess && i < count; i++) {
        error = hipPointerGetAttribute(data[i], attributes[i], ptr);
        if (error != hipSuccess && data[i] && attributes[i] == HIP_POINTER_ATTRIBUTE_HOST_POINTER) {
            *(void **)data[i] = nullptr;
            error = hipSuccess;
        }
    }
    return sim_hip_result(error);
}

// ---- copies

/** The side, host or device, that a pointer belongs to. */
typedef enum side { SIDE_HOST, SIDE_DEVICE, SIDE_BAD } side;

/** Returns the side on which a range lies. Device pointers are never host addresses. So a range
 *  that does not fit its allocation is bad, and one that belongs to no allocation is the program's
 *  own memory. */
static side side_of(const void *ptr, size_t bytes) {
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!region)
        return !sim_memory_is_guest((uintptr_t)ptr) ? SIDE_HOST
               : sim_block_has(ptr, bytes)          ? SIDE_DEVICE
                                                    : SIDE_BAD;
    return sim_memory_host(sim_hip.memory, (uintptr_t)ptr, bytes) ? SIDE_DEVICE : SIDE_BAD;
}

static hipError_t check_kind(side dst, side src, hipMemcpyKind kind) {
    const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice ||
                           kind == hipMemcpyDeviceToDeviceNoCU;
    const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice ||
                             kind == hipMemcpyDeviceToDeviceNoCU;
    if (dst == SIDE_BAD || src == SIDE_BAD || (to_device && dst != SIDE_DEVICE) ||
        (from_device && src != SIDE_DEVICE)) {
        return hipErrorInvalidValue;
    }
    if (kind != hipMemcpyHostToHost && kind != hipMemcpyDefault && !to_device && !from_device)
        return hipErrorInvalidMemcpyDirection;
    return hipSuccess;
}

void *sim_hip_resolve(const void *ptr, size_t bytes) {
    void *host = sim_memory_host(sim_hip.memory, (uintptr_t)ptr, bytes);
    return host || sim_memory_is_guest((uintptr_t)ptr) ? host : (void *)ptr;
}

hipError_t sim_hip_check_copy(const void *dst, size_t dst_bytes, const void *src, size_t src_bytes,
                              hipMemcpyKind kind, bool *waits) {
    if (!dst || !src)
        return hipErrorInvalidValue;
    side to = side_of(dst, dst_bytes), from = side_of(src, src_bytes);
    *waits = to == SIDE_HOST || from == SIDE_HOST || kind == hipMemcpyHostToHost;
    return check_kind(to, from, kind);
}

/** Queues a copy and waits for it, unless it is asynchronous, by name not from host to host, and no
 *  side is the program's own memory, which may change or go as soon as the call returns. */
hipError_t sim_hip_copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                        hipStream_t handle, bool is_async) {
    if (bytes && (!dst || !src))
        return hipErrorInvalidValue;
    const sim_box row = {.dst = dst,
                         .src = src,
                         .dst_pitch = bytes,
                         .src_pitch = bytes,
                         .width = bytes,
                         .height = 1,
                         .depth = 1};
    return sim_hip_box(&row, kind, handle, is_async);
}

hipError_t hipMemcpy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_copy(dst, src, bytes, kind, nullptr, false));
}

hipError_t hipMemcpyAsync(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_copy(dst, src, bytes, kind, stream, true));
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void *src, size_t bytes) {
    return hipMemcpy(dst, src, bytes, hipMemcpyHostToDevice);
}

hipError_t hipMemcpyDtoH(void *dst, hipDeviceptr_t src, size_t bytes) {
    return hipMemcpy(dst, src, bytes, hipMemcpyDeviceToHost);
}

hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes) {
    return hipMemcpy(dst, src, bytes, hipMemcpyDeviceToDevice);
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void *src, size_t bytes,
                              hipStream_t stream) {
    return hipMemcpyAsync(dst, src, bytes, hipMemcpyHostToDevice, stream);
}

hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream) {
    return hipMemcpyAsync(dst, src, bytes, hipMemcpyDeviceToHost, stream);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes,
                              hipStream_t stream) {
    return hipMemcpyAsync(dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}

// ---- fills

/** Fills memory. As with AMD's runtime, calls without a stream return when the fill is done. */
static hipError_t fill(void *dst, uint32_t value, size_t count, size_t unit, hipStream_t handle,
                       bool is_async) {
    SIM_HIP_START();
    sim_box row = {.dst = dst, .height = 1, .depth = 1, .value = value, .unit = unit};
    if (__builtin_mul_overflow(count, unit, &row.width))
        return sim_hip_result(hipErrorInvalidValue);
    row.dst_pitch = row.width;
    return sim_hip_result(sim_hip_box(&row, hipMemcpyDefault, handle, is_async));
}

hipError_t hipMemset(void *dst, int value, size_t bytes) {
    return fill(dst, (uint8_t)value, bytes, 1, nullptr, false);
}

hipError_t hipMemsetAsync(void *dst, int value, size_t bytes, hipStream_t stream) {
    return fill(dst, (uint8_t)value, bytes, 1, stream, true);
}

hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count) {
    return fill(dst, value, count, 1, nullptr, false);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count,
                            hipStream_t stream) {
    return fill(dst, value, count, 1, stream, true);
}

hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, size_t count) {
    return fill(dst, (uint32_t)value, count, 4, nullptr, false);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream) {
    return fill(dst, (uint32_t)value, count, 4, stream, true);
}

hipError_t hipMemsetD16(hipDeviceptr_t dst, unsigned short value, size_t count) {
    return fill(dst, value, count, 2, nullptr, false);
}

hipError_t hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, size_t count,
                             hipStream_t stream) {
    return fill(dst, value, count, 2, stream, true);
}
