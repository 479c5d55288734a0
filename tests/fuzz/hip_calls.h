// SPDX-License-Identifier: Apache-2.0
// The calls that the fuzzer of HIP makes on devices, streams, events and memory. Each takes its
// arguments from the input, notes what it is given, and returns the call's error, 0 for success.
//
// Left out are waits for a value that nobody writes.
#ifndef FUZZ_HIP_CALLS_H
#define FUZZ_HIP_CALLS_H

#include "fuzz_hip.h"

#include <unistd.h>

enum { RANGE_BYTES = 4 << 16 };

static void do_nothing(void *data) {
    (void)data;
}

static void call_back(hipStream_t stream, hipError_t error, void *data) {
    (void)stream, (void)error, (void)data;
}

/** Takes a device's number, which may be none's. */
static int take_device(void) {
    return (int)take(4) - 1;
}

// ---- devices

static hipError_t set_device(void) {
    return hipSetDevice(take_device());
}

static hipError_t synchronize(void) {
    return hipDeviceSynchronize();
}

static hipError_t ask_device(void) {
    int value;
    const int device = take_device();
    hipDeviceProp_tR0600 p;
    char text[16];
    hipDeviceProp_tR0000 old = {};
    int list[] = {take_device(), take_device()};
    uint32_t type, hops;
    switch (take(10)) {
    case 6:
        return hipGetDevicePropertiesR0000(take_out(&old), device);
    case 7:
        return hipChooseDevice(take_out(&value), take_out(&old));
    case 8:
        return hipSetValidDevices(take_out(list), (int)take(4) - 1);
    case 9:
        return hipExtGetLinkTypeAndHopCount(device, take_device(), take_out(&type),
                                            take_out(&hops));
    case 0:
        return hipDeviceGetAttribute(take_out(&value), (hipDeviceAttribute_t)take_count(), device);
    case 1:
        return hipGetDevicePropertiesR0600(take_out(&p), device);
    case 2:
        return hipDeviceGetPCIBusId(take_out(text), (int)take(17), device);
    case 3:
        return hipDeviceCanAccessPeer(take_out(&value), device, take_device());
    case 4:
        return hipDeviceEnablePeerAccess(device, take(2));
    default:
        return hipDeviceDisablePeerAccess(device);
    }
}

static hipError_t change_context(void) {
    hipCtx_t context = any(STREAM);
    switch (take(5)) {
    case 0:
        return hipDevicePrimaryCtxRetain(take_out(&context), take_device());
    case 1:
        return hipCtxPushCurrent(context);
    case 2:
        return hipCtxPopCurrent(take_out(&context));
    case 3:
        return hipCtxSetCurrent(context);
    default:
        return hipCtxDestroy(context);
    }
}

// ---- streams and events

static hipError_t create_stream(void) {
    const uint32_t mask[] = {take(4), take(4)};
    hipStream_t stream = nullptr;
    if (take(4) == 0)
        return made(
            STREAM, &stream,
            hipExtStreamCreateWithCUMask(take_out(&stream), take(3), take_out((void *)mask)));
    return made(STREAM, &stream,
                hipStreamCreateWithPriority(take_out(&stream), take(3), (int)take(5) - 2));
}

static hipError_t ask_stream(void) {
    hipStream_t stream = any(STREAM);
    unsigned flags;
    int number;
    unsigned long long id;
    uint32_t mask[16];
    hipLaunchAttributeValue value = {.number = (int)take(6)};
    switch (take(9)) {
    case 8:
        return hipStreamCopyAttributes(stream, any(STREAM));
    case 7:
        return hipStreamSetAttribute(stream, (int)take(12), take_out(&value));
    case 6:
        return hipStreamGetAttribute(stream, (int)take(12), take_out(&value));
    case 5:
        return hipExtStreamGetCUMask(stream, take(17), take_out(mask));
    case 0:
        return hipStreamGetFlags(stream, take_out(&flags));
    case 1:
        return hipStreamGetPriority(stream, take_out(&number));
    case 2:
        return hipStreamGetDevice(stream, take_out(&number));
    case 3:
        return hipStreamGetId(stream, take_out(&id));
    default:
        return hipStreamQuery(stream);
    }
}

static hipError_t wait_for_stream(void) {
    return take(2) ? hipStreamSynchronize(any(STREAM))
                   : hipStreamWaitEvent(any(STREAM), any(EVENT), take(8) == 7);
}

static hipError_t call_from_stream(void) {
    return take(2) ? hipLaunchHostFunc(any(STREAM), take(8) ? do_nothing : nullptr, nullptr)
                   : hipStreamAddCallback(any(STREAM), call_back, nullptr, take(8) == 7);
}

static hipError_t use_value(void) {
    enum { GREATER_OR_EQUAL = 0, UNKNOWN = 9 };
    hipStream_t stream = any(STREAM);
    void *at = take_memory();
    const unsigned flags = take(8) ? GREATER_OR_EQUAL : UNKNOWN;
    hipStreamBatchMemOpParams ops[2] = {
        {.value = {.operation = (int)take(8), .address = at, .flags = flags}},
        {.value = {.operation = 2, .address = at, .value = 1}}};
    switch (is_own(at) ? 5 : take(5)) {
    case 4:
        return hipStreamBatchMemOp(stream, take(3), take_out(ops), take(8) == 7);
    case 0:
        return hipStreamWriteValue32(stream, at, 1, take(2));
    case 1:
        return hipStreamWriteValue64(stream, at, 1, take(2));
    case 2:
        return hipStreamWaitValue32(stream, at, 0, flags, UINT32_MAX);
    case 3:
        return hipStreamWaitValue64(stream, at, 0, flags, UINT64_MAX);
    default:
        return hipSuccess;
    }
}

static hipError_t create_event(void) {
    hipEvent_t event = nullptr;
    return made(EVENT, &event, hipEventCreateWithFlags(take_out(&event), take(8)));
}

static hipError_t use_event(void) {
    hipEvent_t event = any(EVENT);
    float ms;
    switch (take(5)) {
    case 0:
    case 1:
        return hipEventRecord(event, any(STREAM));
    case 2:
        return hipEventSynchronize(event);
    case 3:
        return hipEventQuery(event);
    default:
        return hipEventElapsedTime(take_out(&ms), event, any(EVENT));
    }
}

/** Other processes' memory and events, which this process's own cannot be. */
static hipError_t share_with_processes(void) {
    hipIpcEventHandle_t of_event = {};
    hipIpcMemHandle_t of_memory = {};
    hipEvent_t event = nullptr;
    void *memory = nullptr;
    hipError_t error;
    switch (take(4)) {
    case 0:
        error = hipIpcGetEventHandle(take_out(&of_event), any(EVENT));
        return error != hipSuccess ? error
                                   : made(EVENT, &event, hipIpcOpenEventHandle(&event, of_event));
    case 1:
        error = hipIpcGetMemHandle(take_out(&of_memory), take_memory());
        return error != hipSuccess
                   ? error
                   : made(MEMORY, &memory, hipIpcOpenMemHandle(&memory, of_memory, 1));
    case 2:
        memset(&of_memory, (int)take(256), sizeof of_memory);
        return hipIpcOpenMemHandle(&memory, of_memory, take(2));
    default:
        return hipIpcCloseMemHandle(take_memory());
    }
}

// ---- memory

/** Notes memory that a stream allocates; if a graph does, it is not the program's to free. */
static hipError_t made_in_stream(void *const *out, hipError_t error) {
    return sim_block_has(*out, 1) ? shown(MEMORY, out, error) : made(MEMORY, out, error);
}

static hipError_t create_memory(void) {
    void *out = nullptr;
    size_t pitch;
    switch (take(7)) {
    case 0:
        return made(MEMORY, &out, hipMallocManaged(&out, take_count(), take(3)));
    case 1:
        return made_in_stream(&out, hipMallocAsync(take_out(&out), take_count(), any(STREAM)));
    case 2:
        return made_in_stream(
            &out, hipMallocFromPoolAsync(take_out(&out), take_count(), any(POOL), any(STREAM)));
    case 3:
        return made(PINNED, &out, hipHostMalloc(take_out(&out), take_count() % 65536, take(4)));
    case 4:
        return made(MEMORY, &out,
                    hipMemAllocPitch(&out, take_out(&pitch), take_count(), take_count(), take(9)));
    default:
        return made(MEMORY, &out, hipMalloc(take_out(&out), take_count()));
    }
}

static hipError_t copy(void) {
    void *dst = take_memory();
    const void *src = take_memory();
    const size_t bytes = take_bytes(dst, src);
    hipStream_t stream = any(STREAM);
    switch (take(5)) {
    case 0:
        return hipMemcpy(dst, src, bytes, take_direction());
    case 1:
        return hipMemcpyAsync(dst, src, bytes, take_direction(), stream);
    case 2:
        return is_own(dst) ? hipSuccess : hipMemsetAsync(dst, (int)take(256), bytes, stream);
    case 3:
        return is_own(dst) ? hipSuccess : hipMemsetD32Async(dst, 7, bytes, stream);
    default:
        return hipMemcpyPeerAsync(dst, take_device(), src, take_device(), bytes, stream);
    }
}

/** Takes a copy of a few rows, which fits the program's own memory. */
static hipMemcpy3DParms take_box(void) {
    void *dst = take_memory(), *src = take_memory();
    return (hipMemcpy3DParms){.dstArray = take(3) ? nullptr : any(ARRAY),
                              .srcArray = take(3) ? nullptr : any(ARRAY),
                              .dstPos = {take(4), take(2), take(2)},
                              .srcPos = {take(4), take(2), take(2)},
                              .dstPtr = {dst, take(2) ? 64 : take(80), 64, 8},
                              .srcPtr = {src, take(2) ? 64 : take(80), 64, 8},
                              .extent = {take(70), take(8), take(3)},
                              .kind = take_direction()};
}

static hipError_t copy_box(void) {
    hipMemcpy3DParms p = take_box();
    hipStream_t stream = any(STREAM);
    switch (take(6)) {
    case 4:
        return hipMemcpyFromArray_spt(p.dstPtr.ptr, p.srcArray, p.srcPos.x, p.srcPos.y,
                                      p.extent.width, p.kind);
    case 0:
        return hipMemcpy3DAsync(take_out(&p), stream);
    case 1:
        return hipMemcpy2DAsync(p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch,
                                p.extent.width, p.extent.height, p.kind, stream);
    case 2:
        return is_own(p.dstPtr.ptr) ? hipSuccess : hipMemset3DAsync(p.dstPtr, 1, p.extent, stream);
    case 3:
        return hipMemcpy2DToArray(p.dstArray, p.dstPos.x, p.dstPos.y, p.srcPtr.ptr, p.srcPtr.pitch,
                                  p.extent.width, p.extent.height, p.kind);
    default:
        return hipMemcpy2DArrayToArray(p.dstArray, p.dstPos.x, p.dstPos.y, p.srcArray, p.srcPos.x,
                                       p.srcPos.y, p.extent.width, p.extent.height, p.kind);
    }
}

static hipError_t ask_memory(void) {
    void *ptr = take(4) ? take_memory() : any(MEMORY), *base;
    hipPointerAttribute_t attributes;
    size_t bytes, word[2];
    unsigned flags;
    const unsigned wish = take(3);
    switch (take(7)) {
    case 6:
        return hipPointerSetAttribute(take_out((void *)&wish), (hipPointer_attribute)(5 + take(3)),
                                      ptr);
    case 0:
        return hipPointerGetAttributes(take_out(&attributes), ptr);
    case 1:
        return hipPointerGetAttribute(take_out(word), (hipPointer_attribute)take(18), ptr);
    case 2:
        return hipMemGetAddressRange(take_out(&base), take_out(&bytes), ptr);
    case 3:
        return hipHostGetFlags(take_out(&flags), ptr);
    case 4:
        return hipHostGetDevicePointer(take_out(&base), ptr, take(2));
    default:
        return hipMemPtrGetInfo(ptr, take_out(&bytes));
    }
}

static hipError_t advise(void) {
    void *ptr = take_memory();
    const size_t bytes = take_count();
    int answers[4];
    switch (take(4)) {
    case 0:
        return hipMemAdvise(ptr, bytes, (int)take(10), take_device());
    case 1:
        return hipMemPrefetchAsync(ptr, bytes, take_device(), any(STREAM));
    case 2:
        return hipMemRangeGetAttribute(take_out(answers), 4 * take(5), (int)take(6), ptr, bytes);
    default:
        return hipStreamAttachMemAsync(any(STREAM), ptr, bytes, take(5));
    }
}

/** The program's own memory is registered, and its registration ended. */
static hipError_t register_memory(void) {
    uint8_t *at = take(2) ? host + 64 * take(8) : take_memory();
    return take(2) && is_own(at) ? hipHostRegister(at, 64 * take(9), take(4))
                                 : hipHostUnregister(at);
}

static hipError_t create_array(void) {
    static const int formats[] = {HIP_AD_FORMAT_UNSIGNED_INT8, HIP_AD_FORMAT_FLOAT,
                                  HIP_AD_FORMAT_HALF, 77};
    const HIP_ARRAY3D_DESCRIPTOR d = {.Width = take_count(),
                                      .Height = take_count(),
                                      .Depth = take_count(),
                                      .Format = (hipArray_Format)formats[take(4)],
                                      .NumChannels = take(5),
                                      .Flags = take(2)};
    hipArray_t array = nullptr;
    return made(ARRAY, &array, hipArray3DCreate(take_out(&array), &d));
}

static hipError_t ask_array(void) {
    hipArray_t array = any(ARRAY);
    HIP_ARRAY3D_DESCRIPTOR d;
    hipChannelFormatDesc channels;
    hipExtent extent;
    unsigned flags;
    return take(2)
               ? hipArray3DGetDescriptor(take_out(&d), array)
               : hipArrayGetInfo(take_out(&channels), take_out(&extent), take_out(&flags), array);
}

static hipError_t create_pool(void) {
    hipMemPoolProps props = {.allocType = take(8) ? 1 : 0,
                             .handleTypes = (int)take(2),
                             .location = {take(8) ? 1 : 2, (int)take(3)},
                             .maxSize = take(3) * 4096};
    hipMemPool_t pool = nullptr;
    if (take(4) == 0)
        return shown(POOL, &pool, hipDeviceGetDefaultMemPool(take_out(&pool), take_device()));
    return made(POOL, &pool, hipMemPoolCreate(take_out(&pool), take_out(&props)));
}

static hipError_t use_pool(void) {
    hipMemPool_t pool = any(POOL);
    hipMemLocation location = {(int)take(3), take_device()};
    hipMemAccessDesc access = {location, (int)take(4)};
    uint64_t word = take(2);
    int flags;
    switch (take(6)) {
    case 0:
        return hipDeviceSetMemPool(take_device(), pool);
    case 1:
        return hipMemPoolSetAttribute(pool, (int)take(9), take_out(&word));
    case 2:
        return hipMemPoolGetAttribute(pool, (int)take(9), take_out(&word));
    case 3:
        return hipMemPoolSetAccess(pool, take_out(&access), take(2));
    case 4:
        return hipMemPoolGetAccess(take_out(&flags), pool, take_out(&location));
    default:
        return hipMemPoolTrimTo(pool, take_count());
    }
}

// ---- ranges of addresses, and memory without one

/** Opens a pool, or an allocation of one, in the process that has it. */
static hipError_t share_pool(void) {
    hipMemPool_t pool = any(POOL), opened = nullptr;
    hipMemPoolPtrExportData data = {};
    void *memory = nullptr;
    int fd = 0;
    hipError_t error;
    if (take(2)) {
        error = hipMemPoolExportToShareableHandle(take_out(&fd), pool, (int)take(3), take(8) == 7);
        if (error == hipSuccess) {
            error = made(POOL, &opened,
                         hipMemPoolImportFromShareableHandle(&opened, (void *)(intptr_t)fd, 1, 0));
            close(fd);
        }
        return error;
    }
    error = hipMemPoolExportPointer(take_out(&data), take_memory());
    return error != hipSuccess && take(4)
               ? error
               : made(MEMORY, &memory, hipMemPoolImportPointer(take_out(&memory), pool, &data));
}

/** Copies by the batch: of memory, or of memory and arrays. */
static hipError_t copy_batch(void) {
    void *a = take_memory(), *b = take_memory(), *dsts[] = {a, b}, *srcs[] = {b, a};
    size_t sizes[] = {take_bytes(a, b), take_bytes(a, b)}, starts[] = {take(2), take(3)}, failed;
    hipMemcpyAttributes attributes[] = {{.srcAccessOrder = (int)take(5), .flags = take(3)},
                                        {.srcAccessOrder = 1}};
    if (take(2))
        return hipMemcpyBatchAsync(take_out(dsts), take_out(srcs), take_out(sizes), take(3),
                                   take_out(attributes), take_out(starts), take(3),
                                   take_out(&failed), any(STREAM));
    hipMemcpy3DBatchOp op = {.src = {.type = 1, .ptr = {b, take(9), take(5), {}}},
                             .dst = {.type = 1, .ptr = {a, take(9), take(5), {}}},
                             .extent = {take(9), take(5), take(3)},
                             .srcAccessOrder = (int)take(5)};
    if (take(2)) {
        op.dst.type = (int)take(4);
        op.dst.array.array = any(ARRAY);
        op.dst.array.offset.x = take_count();
    }
    return hipMemcpy3DBatchAsync(take(3) ? 1 : 0, take_out(&op), take_out(&failed), take(8) == 7,
                                 any(STREAM));
}

/** A launch by parts of what is no kernel. */
static hipError_t launch_by_parts(void) {
    const uint64_t argument = 0;
    switch (take(3)) {
    case 0:
        return hipConfigureCall((dim3){take(3), 1, 1}, (dim3){take(3), 1, 1}, take_count(),
                                any(STREAM));
    case 1:
        return hipSetupArgument(take_out((void *)&argument), take(9), take_count());
    default:
        return hipLaunchByPtr(any(FUNCTION));
    }
}

static hipError_t create_range(void) {
    void *range = nullptr;
    return made(RANGE, &range,
                hipMemAddressReserve(take_out(&range), take(8) ? RANGE_BYTES : take_count() | 1,
                                     take(8) ? 0 : take_count(), nullptr, take(8) == 7));
}

static hipError_t create_physical(void) {
    hipMemGenericAllocationHandle_t memory = nullptr;
    hipMemAllocationProp prop = {.type = take(8) ? 1 : 0,
                                 .requestedHandleType = (int)take(2),
                                 .location = {1, (int)take(3)}};
    const size_t bytes = take(8) ? RANGE_BYTES / (1 + take(2)) : take_count();
    if (take(3) == 0)
        return made(PHYSICAL, &memory,
                    hipMemRetainAllocationHandle(take_out(&memory), take_memory()));
    return made(PHYSICAL, &memory,
                hipMemCreate(take_out(&memory), bytes, take_out(&prop), take(8) == 7));
}

static hipError_t use_range(void) {
    void *at = (void *)((uintptr_t)any(RANGE) + (take(4) ? 0 : RANGE_BYTES / 2));
    const size_t bytes = take(4) ? RANGE_BYTES / (1 + take(2)) : take_count();
    hipMemAccessDesc access = {{take(8) ? 1 : 2, (int)take(3)}, (int)take(4)};
    unsigned long long flags;
    switch (take(5)) {
    case 0:
    case 1:
        return hipMemMap(at, bytes, take(8) == 7, any(PHYSICAL), take(8) == 7);
    case 2:
        return hipMemUnmap(at, bytes);
    case 3:
        return hipMemSetAccess(at, bytes, &access, take(2));
    default:
        return hipMemGetAccess(take_out(&flags), take_out(&access.location), at);
    }
}

/** Exports memory and imports it again. */
static hipError_t pass_physical(void) {
    hipMemGenericAllocationHandle_t memory = any(PHYSICAL);
    hipMemAllocationProp prop;
    int fd = -1;
    if (take(2))
        return hipMemGetAllocationPropertiesFromHandle(take_out(&prop), memory);
    hipError_t error =
        hipMemExportToShareableHandle(take_out(&fd), memory, (int)take(3), take(8) == 7);
    memory = nullptr;
    if (error == hipSuccess)
        error = made(PHYSICAL, &memory, hipMemImportFromShareableHandle(&memory, &fd, 1));
    if (fd >= 0)
        close(fd);
    return error;
}

#endif
