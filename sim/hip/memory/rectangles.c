// SPDX-License-Identifier: Apache-2.0
// Copies and fills of rows that lie a pitch apart.
#include "../runtime.h"

static hipError_t copy(sim_box box, hipMemcpyKind kind, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    box.depth = 1;
    return sim_hip_result(sim_hip_box(&box, kind, stream, is_async));
}

hipError_t hipMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                       size_t height, hipMemcpyKind kind) {
    return copy((sim_box){.dst = dst,
                          .src = src,
                          .dst_pitch = dst_pitch,
                          .src_pitch = src_pitch,
                          .width = width,
                          .height = height},
                kind, nullptr, false);
}

hipError_t hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                            size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream) {
    return copy((sim_box){.dst = dst,
                          .src = src,
                          .dst_pitch = dst_pitch,
                          .src_pitch = src_pitch,
                          .width = width,
                          .height = height},
                kind, stream, true);
}

/** Copies a rectangle as a volume of one slice. */
static hipError_t copy_param(const hip_Memcpy2D *c, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    if (!c)
        return sim_hip_result(hipErrorInvalidValue);
    const HIP_MEMCPY3D volume = {.srcXInBytes = c->srcXInBytes,
                                 .srcY = c->srcY,
                                 .srcMemoryType = c->srcMemoryType,
                                 .srcHost = c->srcHost,
                                 .srcDevice = c->srcDevice,
                                 .srcArray = c->srcArray,
                                 .srcPitch = c->srcPitch,
                                 .dstXInBytes = c->dstXInBytes,
                                 .dstY = c->dstY,
                                 .dstMemoryType = c->dstMemoryType,
                                 .dstHost = c->dstHost,
                                 .dstDevice = c->dstDevice,
                                 .dstArray = c->dstArray,
                                 .dstPitch = c->dstPitch,
                                 .WidthInBytes = c->WidthInBytes,
                                 .Height = c->Height,
                                 .Depth = 1};
    sim_box box;
    hipError_t error = sim_hip_driver_volume(&box, &volume);
    if (error == hipSuccess)
        error = sim_hip_box(&box, sim_hip_copy_kind(c->dstMemoryType, c->srcMemoryType), stream,
                            is_async);
    return sim_hip_result(error);
}

hipError_t hipMemcpyParam2D(const hip_Memcpy2D *c) {
    return copy_param(c, nullptr, false);
}

hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D *c, hipStream_t stream) {
    return copy_param(c, stream, true);
}

hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D *c) {
    return copy_param(c, nullptr, false);
}

/** Fills `columns` of `unit` bytes each. */
static hipError_t fill(void *dst, size_t pitch, uint32_t value, size_t unit, size_t columns,
                       size_t height, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    sim_box box = {
        .dst = dst, .dst_pitch = pitch, .height = height, .depth = 1, .value = value, .unit = unit};
    if (__builtin_mul_overflow(columns, unit, &box.width))
        return sim_hip_result(hipErrorInvalidPitchValue);
    return sim_hip_result(sim_hip_box(&box, hipMemcpyDefault, stream, is_async));
}

hipError_t hipMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height) {
    return fill(dst, pitch, (uint8_t)value, 1, width, height, nullptr, false);
}

hipError_t hipMemset2DAsync(void *dst, size_t pitch, int value, size_t width, size_t height,
                            hipStream_t stream) {
    return fill(dst, pitch, (uint8_t)value, 1, width, height, stream, true);
}

hipError_t hipMemsetD2D8(hipDeviceptr_t dst, size_t pitch, unsigned char value, size_t width,
                         size_t height) {
    return fill(dst, pitch, value, 1, width, height, nullptr, false);
}

hipError_t hipMemsetD2D8Async(hipDeviceptr_t dst, size_t pitch, unsigned char value, size_t width,
                              size_t height, hipStream_t stream) {
    return fill(dst, pitch, value, 1, width, height, stream, true);
}

hipError_t hipMemsetD2D16(hipDeviceptr_t dst, size_t pitch, unsigned short value, size_t width,
                          size_t height) {
    return fill(dst, pitch, value, 2, width, height, nullptr, false);
}

hipError_t hipMemsetD2D16Async(hipDeviceptr_t dst, size_t pitch, unsigned short value, size_t width,
                               size_t height, hipStream_t stream) {
    return fill(dst, pitch, value, 2, width, height, stream, true);
}

hipError_t hipMemsetD2D32(hipDeviceptr_t dst, size_t pitch, unsigned value, size_t width,
                          size_t height) {
    return fill(dst, pitch, value, 4, width, height, nullptr, false);
}

hipError_t hipMemsetD2D32Async(hipDeviceptr_t dst, size_t pitch, unsigned value, size_t width,
                               size_t height, hipStream_t stream) {
    return fill(dst, pitch, value, 4, width, height, stream, true);
}

/** Allocates rows that begin at multiples of 256 bytes. */
hipError_t hipMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    enum { ALIGNMENT = 256 };
    SIM_HIP_START_UNCAPTURED();
    size_t bytes, rounded;
    if (!out || !pitch || __builtin_add_overflow(width, ALIGNMENT - 1, &rounded))
        return sim_hip_result(hipErrorInvalidValue);
    rounded &= ~(size_t)(ALIGNMENT - 1);
    if (__builtin_mul_overflow(rounded, height, &bytes))
        return sim_hip_result(hipErrorOutOfMemory);
    hipError_t error = sim_hip_alloc(sim_hip_device(), out, bytes);
    if (error == hipSuccess)
        *pitch = rounded;
    return sim_hip_result(error);
}

hipError_t hipMemAllocPitch(hipDeviceptr_t *out, size_t *pitch, size_t width, size_t height,
                            unsigned element_bytes) {
    if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
        return sim_hip_result(hipErrorInvalidValue);
    return hipMallocPitch(out, pitch, width, height);
}
