// SPDX-License-Identifier: Apache-2.0
// Memory in three dimensions: allocations, fills, and copies of memory and arrays.
#include "arrays.h"

#define PER_THREAD ((hipStream_t)2)

/** Allocates rows that begin at multiples of 256 bytes. */
hipError_t hipMalloc3D(hipPitchedPtr *out, hipExtent extent) {
    SIM_HIP_START_UNCAPTURED();
    size_t rows;
    if (!out || __builtin_mul_overflow(extent.height, extent.depth, &rows))
        return sim_hip_result(out ? hipErrorOutOfMemory : hipErrorInvalidValue);
    hipPitchedPtr p = {.xsize = extent.width, .ysize = extent.height};
    hipError_t error = hipMallocPitch(&p.ptr, &p.pitch, extent.width, rows);
    if (error == hipSuccess)
        *out = p;
    return error;
}

// ---- fills

static hipError_t fill(hipPitchedPtr dst, int value, hipExtent extent, hipStream_t stream,
                       bool is_async) {
    SIM_HIP_START();
    sim_box box = {.dst = dst.ptr,
                   .dst_pitch = dst.pitch,
                   .width = extent.width,
                   .height = extent.height,
                   .depth = extent.depth,
                   .value = (uint8_t)value,
                   .unit = 1};
    if (__builtin_mul_overflow(dst.pitch, dst.ysize, &box.dst_slice) ||
        (extent.depth > 1 && extent.height > dst.ysize)) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    return sim_hip_result(sim_hip_box(&box, hipMemcpyDefault, stream, is_async));
}

hipError_t hipMemset3D(hipPitchedPtr dst, int value, hipExtent extent) {
    return fill(dst, value, extent, nullptr, false);
}

hipError_t hipMemset3DAsync(hipPitchedPtr dst, int value, hipExtent extent, hipStream_t stream) {
    return fill(dst, value, extent, stream, true);
}

// ---- copies

/** Finds where a side in plain memory begins; positions are in bytes. Returns false if that
 *  overflows. */
static bool memory_side(sim_side *out, const void *base, size_t pitch, size_t rows, hipPos pos) {
    size_t z, y, offset;
    *out = (sim_side){.pitch = pitch};
    if (__builtin_mul_overflow(pitch, rows, &out->slice) ||
        __builtin_mul_overflow(out->slice, pos.z, &z) || __builtin_mul_overflow(pitch, pos.y, &y) ||
        __builtin_add_overflow(z, y, &offset) || __builtin_add_overflow(offset, pos.x, &offset)) {
        return false;
    }
    out->base = (uint8_t *)base + offset;
    return true;
}

/** Finds a side, which is an array or else memory. An array counts x in elements. */
static hipError_t find_side(sim_side *out, hipArray_const_t array, hipPitchedPtr memory, hipPos pos,
                            hipExtent extent) {
    if (array && memory.ptr)
        return hipErrorInvalidValue;
    if (!array)
        return memory.ptr && memory_side(out, memory.ptr, memory.pitch, memory.ysize, pos)
                   ? hipSuccess
                   : hipErrorInvalidValue;
    struct hipArray a;
    if (!sim_array_read(&a, array))
        return hipErrorInvalidHandle;
    if (__builtin_mul_overflow(pos.x, a.element, &pos.x))
        return hipErrorInvalidValue;
    return sim_array_side(out, array, pos, extent);
}

/** Counts the extent's width in bytes: it is in elements of the array that takes part. */
static hipError_t in_bytes(const hipMemcpy3DParms *c, hipExtent *extent) {
    hipArray_const_t array = c->dstArray ? c->dstArray : c->srcArray;
    *extent = c->extent;
    if (!array)
        return hipSuccess;
    struct hipArray a;
    if (!sim_array_read(&a, array))
        return hipErrorInvalidHandle;
    return __builtin_mul_overflow(extent->width, a.element, &extent->width) ? hipErrorInvalidValue
                                                                            : hipSuccess;
}

static sim_box box_of(sim_side to, sim_side from, hipExtent extent) {
    return (sim_box){.dst = to.base,
                     .src = from.base,
                     .dst_pitch = to.pitch,
                     .src_pitch = from.pitch,
                     .dst_slice = to.slice,
                     .src_slice = from.slice,
                     .width = extent.width,
                     .height = extent.height,
                     .depth = extent.depth};
}

hipError_t sim_hip_volume(sim_box *out, const hipMemcpy3DParms *c) {
    if (!c)
        return hipErrorInvalidValue;
    sim_side to, from;
    hipExtent extent;
    hipError_t error = in_bytes(c, &extent);
    if (error == hipSuccess)
        error = find_side(&to, c->dstArray, c->dstPtr, c->dstPos, extent);
    if (error == hipSuccess)
        error = find_side(&from, c->srcArray, c->srcPtr, c->srcPos, extent);
    if (error == hipSuccess)
        *out = box_of(to, from, extent);
    return error;
}

static hipError_t copy(const hipMemcpy3DParms *c, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    sim_box box;
    hipError_t error = sim_hip_volume(&box, c);
    return sim_hip_result(error == hipSuccess ? sim_hip_box(&box, c->kind, stream, is_async)
                                              : error);
}

hipError_t hipMemcpy3D(const hipMemcpy3DParms *c) {
    return copy(c, nullptr, false);
}

hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *c, hipStream_t stream) {
    return copy(c, stream, true);
}

static hipError_t copy_peer(const hipMemcpy3DPeerParms *c, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    if (!c || !sim_hip_device_at(c->srcDevice) || !sim_hip_device_at(c->dstDevice))
        return sim_hip_result(c ? hipErrorInvalidDevice : hipErrorInvalidValue);
    const hipMemcpy3DParms p = {c->srcArray, c->srcPos, c->srcPtr, c->dstArray,
                                c->dstPos,   c->dstPtr, c->extent, hipMemcpyDeviceToDevice};
    return copy(&p, stream, is_async);
}

hipError_t hipMemcpy3DPeer(hipMemcpy3DPeerParms *c) {
    return copy_peer(c, nullptr, false);
}

hipError_t hipMemcpy3DPeerAsync(hipMemcpy3DPeerParms *c, hipStream_t stream) {
    return copy_peer(c, stream, true);
}

// ---- copies of the driver's form

/** Finds a side by its kind of memory; positions are in bytes. */
static hipError_t find_typed(sim_side *out, hipMemoryType type, const void *host,
                             const void *device, hipArray_const_t array, size_t pitch, size_t rows,
                             hipPos pos, hipExtent extent) {
    if (type == hipMemoryTypeArray)
        return sim_array_side(out, array, pos, extent);
    const void *base = type == hipMemoryTypeHost ? host : device;
    const bool known =
        type == hipMemoryTypeHost || type == hipMemoryTypeDevice || type == hipMemoryTypeUnified;
    pitch = pitch ? pitch : extent.width;
    rows = rows ? rows : extent.height;
    return known && base && memory_side(out, base, pitch, rows, pos) ? hipSuccess
                                                                     : hipErrorInvalidValue;
}

static bool is_device(hipMemoryType type) {
    return type == hipMemoryTypeDevice || type == hipMemoryTypeArray;
}

hipMemcpyKind sim_hip_copy_kind(hipMemoryType to, hipMemoryType from) {
    if (to == hipMemoryTypeUnified || from == hipMemoryTypeUnified)
        return hipMemcpyDefault;
    if (is_device(from))
        return is_device(to) ? hipMemcpyDeviceToDevice : hipMemcpyDeviceToHost;
    return is_device(to) ? hipMemcpyHostToDevice : hipMemcpyHostToHost;
}

hipError_t sim_hip_driver_volume(sim_box *out, const HIP_MEMCPY3D *c) {
    if (!c)
        return hipErrorInvalidValue;
    const hipExtent extent = {c->WidthInBytes, c->Height, c->Depth};
    sim_side to, from;
    hipError_t error =
        find_typed(&to, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstPitch,
                   c->dstHeight, (hipPos){c->dstXInBytes, c->dstY, c->dstZ}, extent);
    if (error == hipSuccess)
        error =
            find_typed(&from, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcPitch,
                       c->srcHeight, (hipPos){c->srcXInBytes, c->srcY, c->srcZ}, extent);
    if (error == hipSuccess)
        *out = box_of(to, from, extent);
    return error;
}

static hipError_t copy_driver(const HIP_MEMCPY3D *c, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    sim_box box;
    hipError_t error = sim_hip_driver_volume(&box, c);
    if (error == hipSuccess)
        error = sim_hip_box(&box, sim_hip_copy_kind(c->dstMemoryType, c->srcMemoryType), stream,
                            is_async);
    return sim_hip_result(error);
}

hipError_t hipDrvMemcpy3D(const HIP_MEMCPY3D *c) {
    return copy_driver(c, nullptr, false);
}

hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D *c, hipStream_t stream) {
    return copy_driver(c, stream, true);
}

// ---- the thread's own stream as the default

hipError_t hipMemset3D_spt(hipPitchedPtr dst, int value, hipExtent extent) {
    return fill(dst, value, extent, PER_THREAD, false);
}

hipError_t hipMemset3DAsync_spt(hipPitchedPtr dst, int value, hipExtent extent,
                                hipStream_t stream) {
    return fill(dst, value, extent, stream ? stream : PER_THREAD, true);
}

hipError_t hipMemcpy3D_spt(const hipMemcpy3DParms *c) {
    return copy(c, PER_THREAD, false);
}

hipError_t hipMemcpy3DAsync_spt(const hipMemcpy3DParms *c, hipStream_t stream) {
    return copy(c, stream ? stream : PER_THREAD, true);
}
