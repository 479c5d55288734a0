// SPDX-License-Identifier: Apache-2.0
// Copies into and out of arrays, of one and two dimensions.
#include "arrays.h"

/** Copies between two sides. */
static hipError_t copy(sim_side to, sim_side from, size_t width, size_t height, hipMemcpyKind kind,
                       hipStream_t stream, bool is_async) {
    const sim_box box = {.dst = to.base,
                         .src = from.base,
                         .dst_pitch = to.pitch,
                         .src_pitch = from.pitch,
                         .width = width,
                         .height = height,
                         .depth = 1};
    return sim_hip_box(&box, kind, stream, is_async);
}

static hipError_t to_array(hipArray_t dst, size_t x, size_t y, const void *src, size_t pitch,
                           size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream,
                           bool is_async) {
    SIM_HIP_START();
    sim_side to, from = {(uint8_t *)src, pitch, 0};
    hipError_t error =
        src && dst ? sim_array_side(&to, dst, (hipPos){x, y, 0}, (hipExtent){width, height, 1})
        : dst      ? hipErrorInvalidValue
                   : hipErrorInvalidHandle; // as AMD's runtime has it
    return sim_hip_result(
        error == hipSuccess ? copy(to, from, width, height, kind, stream, is_async) : error);
}

static hipError_t from_array(void *dst, size_t pitch, hipArray_const_t src, size_t x, size_t y,
                             size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream,
                             bool is_async) {
    SIM_HIP_START();
    sim_side to = {dst, pitch, 0}, from;
    hipError_t error =
        src && dst ? sim_array_side(&from, src, (hipPos){x, y, 0}, (hipExtent){width, height, 1})
        : src      ? hipErrorInvalidValue
                   : hipErrorInvalidHandle;
    return sim_hip_result(
        error == hipSuccess ? copy(to, from, width, height, kind, stream, is_async) : error);
}

hipError_t hipMemcpy2DToArray(hipArray_t dst, size_t x, size_t y, const void *src, size_t pitch,
                              size_t width, size_t height, hipMemcpyKind kind) {
    return to_array(dst, x, y, src, pitch, width, height, kind, nullptr, false);
}

hipError_t hipMemcpy2DToArrayAsync(hipArray_t dst, size_t x, size_t y, const void *src,
                                   size_t pitch, size_t width, size_t height, hipMemcpyKind kind,
                                   hipStream_t stream) {
    return to_array(dst, x, y, src, pitch, width, height, kind, stream, true);
}

hipError_t hipMemcpy2DFromArray(void *dst, size_t pitch, hipArray_const_t src, size_t x, size_t y,
                                size_t width, size_t height, hipMemcpyKind kind) {
    return from_array(dst, pitch, src, x, y, width, height, kind, nullptr, false);
}

hipError_t hipMemcpy2DFromArrayAsync(void *dst, size_t pitch, hipArray_const_t src, size_t x,
                                     size_t y, size_t width, size_t height, hipMemcpyKind kind,
                                     hipStream_t stream) {
    return from_array(dst, pitch, src, x, y, width, height, kind, stream, true);
}

hipError_t hipMemcpy2DArrayToArray(hipArray_t dst, size_t dst_x, size_t dst_y, hipArray_const_t src,
                                   size_t src_x, size_t src_y, size_t width, size_t height,
                                   hipMemcpyKind kind) {
    SIM_HIP_START();
    sim_side from;
    hipError_t error =
        sim_array_side(&from, src, (hipPos){src_x, src_y, 0}, (hipExtent){width, height, 1});
    if (error != hipSuccess)
        return sim_hip_result(error);
    return to_array(dst, dst_x, dst_y, from.base, from.pitch, width, height, kind, nullptr, false);
}

/** Copies bytes that begin in a row and may go on in the next ones. */
hipError_t hipMemcpyToArray(hipArray_t dst, size_t x, size_t y, const void *src, size_t bytes,
                            hipMemcpyKind kind) {
    SIM_HIP_START();
    uint8_t *at;
    hipError_t error = src ? sim_array_at(&at, dst, x, y) : hipErrorInvalidValue;
    return sim_hip_result(error == hipSuccess ? sim_hip_copy(at, src, bytes, kind, nullptr, false)
                                              : error);
}

static hipError_t bytes_from_array(void *dst, hipArray_const_t src, size_t x, size_t y,
                                   size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    SIM_HIP_START();
    uint8_t *at;
    hipError_t error = dst ? sim_array_at(&at, src, x, y) : hipErrorInvalidValue;
    return sim_hip_result(error == hipSuccess ? sim_hip_copy(dst, at, bytes, kind, stream, false)
                                              : error);
}

hipError_t hipMemcpyFromArray(void *dst, hipArray_const_t src, size_t x, size_t y, size_t bytes,
                              hipMemcpyKind kind) {
    return bytes_from_array(dst, src, x, y, bytes, kind, nullptr);
}

/** Copies in the thread's own stream. */
hipError_t hipMemcpyFromArray_spt(void *dst, hipArray_const_t src, size_t x, size_t y, size_t bytes,
                                  hipMemcpyKind kind) {
    return bytes_from_array(dst, src, x, y, bytes, kind, (hipStream_t)2);
}

// ---- by a byte's offset into a row

hipError_t hipMemcpyHtoA(hipArray_t dst, size_t offset, const void *src, size_t bytes) {
    return to_array(dst, offset, 0, src, bytes, bytes, 1, hipMemcpyHostToDevice, nullptr, false);
}

hipError_t hipMemcpyHtoAAsync(hipArray_t dst, size_t offset, const void *src, size_t bytes,
                              hipStream_t stream) {
    return to_array(dst, offset, 0, src, bytes, bytes, 1, hipMemcpyHostToDevice, stream, true);
}

hipError_t hipMemcpyAtoH(void *dst, hipArray_t src, size_t offset, size_t bytes) {
    return from_array(dst, bytes, src, offset, 0, bytes, 1, hipMemcpyDeviceToHost, nullptr, false);
}

hipError_t hipMemcpyAtoHAsync(void *dst, hipArray_t src, size_t offset, size_t bytes,
                              hipStream_t stream) {
    return from_array(dst, bytes, src, offset, 0, bytes, 1, hipMemcpyDeviceToHost, stream, true);
}

hipError_t hipMemcpyDtoA(hipArray_t dst, size_t offset, hipDeviceptr_t src, size_t bytes) {
    return to_array(dst, offset, 0, src, bytes, bytes, 1, hipMemcpyDeviceToDevice, nullptr, false);
}

hipError_t hipMemcpyAtoD(hipDeviceptr_t dst, hipArray_t src, size_t offset, size_t bytes) {
    return from_array(dst, bytes, src, offset, 0, bytes, 1, hipMemcpyDeviceToDevice, nullptr,
                      false);
}

hipError_t hipMemcpyAtoA(hipArray_t dst, size_t dst_offset, hipArray_t src, size_t src_offset,
                         size_t bytes) {
    return hipMemcpy2DArrayToArray(dst, dst_offset, 0, src, src_offset, 0, bytes, 1,
                                   hipMemcpyDeviceToDevice);
}
