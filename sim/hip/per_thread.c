// SPDX-License-Identifier: Apache-2.0
// The calls that clang's -fgpu-default-stream=per-thread makes: they use the thread's own stream in
// place of the default stream.
#include "runtime.h"

#define PER_THREAD ((hipStream_t)2)

static hipStream_t own(hipStream_t stream) {
    return stream ? stream : PER_THREAD;
}

/** Waits for a call's work: a call without a stream returns when its work is done. */
static hipError_t finish(hipError_t queued) {
    return queued == hipSuccess ? hipStreamSynchronize(PER_THREAD) : queued;
}

// ---- copies and fills

hipError_t hipMemcpy_spt(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
    return finish(hipMemcpyAsync(dst, src, bytes, kind, PER_THREAD));
}

hipError_t hipMemcpyAsync_spt(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                              hipStream_t stream) {
    return hipMemcpyAsync(dst, src, bytes, kind, own(stream));
}

hipError_t hipMemcpy2D_spt(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                           size_t width, size_t height, hipMemcpyKind kind) {
    return finish(
        hipMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, PER_THREAD));
}

hipError_t hipMemcpy2DAsync_spt(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                size_t width, size_t height, hipMemcpyKind kind,
                                hipStream_t stream) {
    return hipMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, own(stream));
}

hipError_t hipMemcpy2DToArray_spt(hipArray_t dst, size_t x, size_t y, const void *src, size_t pitch,
                                  size_t width, size_t height, hipMemcpyKind kind) {
    return finish(hipMemcpy2DToArrayAsync(dst, x, y, src, pitch, width, height, kind, PER_THREAD));
}

hipError_t hipMemcpy2DToArrayAsync_spt(hipArray_t dst, size_t x, size_t y, const void *src,
                                       size_t pitch, size_t width, size_t height,
                                       hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpy2DToArrayAsync(dst, x, y, src, pitch, width, height, kind, own(stream));
}

hipError_t hipMemcpy2DFromArray_spt(void *dst, size_t pitch, hipArray_const_t src, size_t x,
                                    size_t y, size_t width, size_t height, hipMemcpyKind kind) {
    return finish(
        hipMemcpy2DFromArrayAsync(dst, pitch, src, x, y, width, height, kind, PER_THREAD));
}

hipError_t hipMemcpy2DFromArrayAsync_spt(void *dst, size_t pitch, hipArray_const_t src, size_t x,
                                         size_t y, size_t width, size_t height, hipMemcpyKind kind,
                                         hipStream_t stream) {
    return hipMemcpy2DFromArrayAsync(dst, pitch, src, x, y, width, height, kind, own(stream));
}

hipError_t hipMemcpyToSymbol_spt(const void *symbol, const void *src, size_t bytes, size_t offset,
                                 hipMemcpyKind kind) {
    return finish(hipMemcpyToSymbolAsync(symbol, src, bytes, offset, kind, PER_THREAD));
}

hipError_t hipMemcpyToSymbolAsync_spt(const void *symbol, const void *src, size_t bytes,
                                      size_t offset, hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpyToSymbolAsync(symbol, src, bytes, offset, kind, own(stream));
}

hipError_t hipMemcpyFromSymbol_spt(void *dst, const void *symbol, size_t bytes, size_t offset,
                                   hipMemcpyKind kind) {
    return finish(hipMemcpyFromSymbolAsync(dst, symbol, bytes, offset, kind, PER_THREAD));
}

hipError_t hipMemcpyFromSymbolAsync_spt(void *dst, const void *symbol, size_t bytes, size_t offset,
                                        hipMemcpyKind kind, hipStream_t stream) {
    return hipMemcpyFromSymbolAsync(dst, symbol, bytes, offset, kind, own(stream));
}

hipError_t hipMemset_spt(void *dst, int value, size_t bytes) {
    return finish(hipMemsetAsync(dst, value, bytes, PER_THREAD));
}

hipError_t hipMemsetAsync_spt(void *dst, int value, size_t bytes, hipStream_t stream) {
    return hipMemsetAsync(dst, value, bytes, own(stream));
}

hipError_t hipMemset2D_spt(void *dst, size_t pitch, int value, size_t width, size_t height) {
    return finish(hipMemset2DAsync(dst, pitch, value, width, height, PER_THREAD));
}

hipError_t hipMemset2DAsync_spt(void *dst, size_t pitch, int value, size_t width, size_t height,
                                hipStream_t stream) {
    return hipMemset2DAsync(dst, pitch, value, width, height, own(stream));
}

// ---- streams, events, launches

hipError_t hipStreamQuery_spt(hipStream_t stream) {
    return hipStreamQuery(own(stream));
}

hipError_t hipStreamSynchronize_spt(hipStream_t stream) {
    return hipStreamSynchronize(own(stream));
}

hipError_t hipStreamGetFlags_spt(hipStream_t stream, unsigned *flags) {
    return hipStreamGetFlags(own(stream), flags);
}

hipError_t hipStreamGetPriority_spt(hipStream_t stream, int *priority) {
    return hipStreamGetPriority(own(stream), priority);
}

hipError_t hipStreamWaitEvent_spt(hipStream_t stream, hipEvent_t event, unsigned flags) {
    return hipStreamWaitEvent(own(stream), event, flags);
}

hipError_t hipStreamAddCallback_spt(hipStream_t stream, hipStreamCallback_t callback, void *data,
                                    unsigned flags) {
    return hipStreamAddCallback(own(stream), callback, data, flags);
}

hipError_t hipEventRecord_spt(hipEvent_t event, hipStream_t stream) {
    return hipEventRecord(event, own(stream));
}

hipError_t hipLaunchHostFunc_spt(hipStream_t stream, hipHostFn_t function, void *data) {
    return hipLaunchHostFunc(own(stream), function, data);
}

hipError_t hipLaunchKernel_spt(const void *kernel, dim3 grid, dim3 block, void **args,
                               size_t dynamic_lds, hipStream_t stream) {
    return hipLaunchKernel(kernel, grid, block, args, dynamic_lds, own(stream));
}
