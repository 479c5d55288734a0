// SPDX-License-Identifier: Apache-2.0
// Copies and fills of rows that lie a pitch apart.
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

typedef struct rectangle_op {
    sim_op op;
    uint8_t *dst;
    const uint8_t *src; // null: a fill
    size_t dst_pitch, src_pitch, width, height;
    size_t dst_bytes, src_bytes; // from the first byte to the last
    uint32_t value;              // of a fill, in units of 1, 2 or 4 bytes
    size_t unit;
} rectangle_op;

static void fill_row(uint8_t *dst, const rectangle_op *r) {
    if (r->unit == 1) {
        memset(dst, (int)r->value, r->width);
        return;
    }
    for (size_t x = 0; x < r->width; x += r->unit)
        memcpy(dst + x, &r->value, r->unit);
}

static hipError_t run_rectangle(sim_stream *stream, sim_op *op) {
    (void)stream;
    const rectangle_op *r = (rectangle_op *)op;
    sim_memory_enter(sim_hip.memory);
    uint8_t *dst = sim_hip_resolve(r->dst, r->dst_bytes);
    const uint8_t *src = r->src ? sim_hip_resolve(r->src, r->src_bytes) : dst;
    for (size_t y = 0; dst && src && y < r->height; y++) {
        const uintptr_t to = (uintptr_t)r->dst + y * r->dst_pitch;
        if (r->src) {
            memmove(dst + y * r->dst_pitch, src + y * r->src_pitch, r->width);
            sim_memory_copied(sim_hip.memory, to, (uintptr_t)r->src + y * r->src_pitch, r->width);
        } else {
            fill_row(dst + y * r->dst_pitch, r);
            sim_memory_wrote(sim_hip.memory, to, r->width);
        }
    }
    sim_memory_leave(sim_hip.memory);
    return dst && src ? hipSuccess : hipErrorIllegalAddress;
}

/** Computes the bytes that rows cover. Returns false if they overflow. */
static bool cover(size_t pitch, size_t width, size_t height, size_t *bytes) {
    return !__builtin_mul_overflow(pitch, height - 1, bytes) &&
           !__builtin_add_overflow(*bytes, width, bytes);
}

static hipError_t queue(hipStream_t handle, const rectangle_op *what, bool must_wait) {
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return hipErrorInvalidHandle;
    rectangle_op *op = malloc(sizeof *op);
    if (!op)
        return hipErrorOutOfMemory;
    *op = *what;
    op->op = (sim_op){.run = run_rectangle};
    uint64_t ticket;
    hipError_t error = sim_hip_queue(stream, &op->op, &ticket);
    return error == hipSuccess && must_wait ? sim_hip_wait(stream, ticket) : error;
}

static hipError_t copy(rectangle_op r, hipMemcpyKind kind, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    if (r.width == 0 || r.height == 0)
        return hipSuccess;
    if (r.width > r.dst_pitch || r.width > r.src_pitch)
        return sim_hip_result(hipErrorInvalidPitchValue);
    bool waits;
    if (!cover(r.dst_pitch, r.width, r.height, &r.dst_bytes) ||
        !cover(r.src_pitch, r.width, r.height, &r.src_bytes)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    hipError_t error = sim_hip_check_copy(r.dst, r.dst_bytes, r.src, r.src_bytes, kind, &waits);
    return sim_hip_result(error == hipSuccess ? queue(stream, &r, !is_async || waits) : error);
}

hipError_t hipMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                       size_t height, hipMemcpyKind kind) {
    return copy((rectangle_op){.dst = dst,
                               .src = src,
                               .dst_pitch = dst_pitch,
                               .src_pitch = src_pitch,
                               .width = width,
                               .height = height},
                kind, nullptr, false);
}

hipError_t hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                            size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream) {
    return copy((rectangle_op){.dst = dst,
                               .src = src,
                               .dst_pitch = dst_pitch,
                               .src_pitch = src_pitch,
                               .width = width,
                               .height = height},
                kind, stream, true);
}

/** Returns where a rectangle of hipMemcpyParam2D begins; null if its kind of memory does not
 *  exist. */
static uint8_t *corner(hipMemoryType type, const void *host, const void *device, size_t pitch,
                       size_t x, size_t y) {
    const uint8_t *base = type == hipMemoryTypeHost ? host : device;
    size_t offset;
    bool known =
        type == hipMemoryTypeHost || type == hipMemoryTypeDevice || type == hipMemoryTypeUnified;
    if (!known || !base || __builtin_mul_overflow(pitch, y, &offset) ||
        __builtin_add_overflow(offset, x, &offset)) {
        return nullptr;
    }
    return (uint8_t *)base + offset;
}

static hipMemcpyKind kind_of(const hip_Memcpy2D *c) {
    const bool to_device = c->dstMemoryType == hipMemoryTypeDevice;
    if (c->srcMemoryType == hipMemoryTypeUnified || c->dstMemoryType == hipMemoryTypeUnified)
        return hipMemcpyDefault;
    if (c->srcMemoryType == hipMemoryTypeDevice)
        return to_device ? hipMemcpyDeviceToDevice : hipMemcpyDeviceToHost;
    return to_device ? hipMemcpyHostToDevice : hipMemcpyHostToHost;
}

static hipError_t copy_param(const hip_Memcpy2D *c, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    if (!c)
        return sim_hip_result(hipErrorInvalidValue);
    if (c->srcMemoryType == hipMemoryTypeArray || c->dstMemoryType == hipMemoryTypeArray)
        return sim_hip_result(hipErrorNotSupported);
    rectangle_op r = {.dst = corner(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch,
                                    c->dstXInBytes, c->dstY),
                      .src = corner(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcPitch,
                                    c->srcXInBytes, c->srcY),
                      .dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes,
                      .src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes,
                      .width = c->WidthInBytes,
                      .height = c->Height};
    if (!r.dst || !r.src)
        return sim_hip_result(hipErrorInvalidValue);
    return copy(r, kind_of(c), stream, is_async);
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
    rectangle_op r = {
        .dst = dst, .dst_pitch = pitch, .height = height, .value = value, .unit = unit};
    if (columns == 0 || height == 0)
        return hipSuccess;
    if (__builtin_mul_overflow(columns, unit, &r.width) || r.width > pitch)
        return sim_hip_result(hipErrorInvalidPitchValue);
    if (!cover(pitch, r.width, height, &r.dst_bytes) ||
        !sim_memory_host(sim_hip.memory, (uintptr_t)dst, r.dst_bytes)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    return sim_hip_result(queue(stream, &r, !is_async));
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
    SIM_HIP_START();
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
