// SPDX-License-Identifier: Apache-2.0
// Calls of the HIP runtime that programs seldom use, each compared with the CPU; and bad arguments
// to all other calls.
#include "hip_testing.h"

#include <pthread.h>

#define PER_THREAD ((hipStream_t)2)
enum { PITCH = 64, ROWS = 5, AREA = PITCH * ROWS };

// ---- rectangles

/** Fills columns 1 to 1 + width, in units of 1, 2 or 4 bytes, of rows 1 to 3. */
static void expect_fill(unsigned unit, uint32_t value, size_t width, bool is_async) {
    uint8_t got[AREA], want[AREA];
    memset(want, 0xEE, AREA);
    for (size_t y = 1; y < 4; y++)
        for (size_t x = 0; x < width; x++)
            memcpy(want + y * PITCH + (x + 1) * unit, &value, unit);
    uint8_t *d = device_alloc(AREA, nullptr), *at = d + PITCH + unit;
    if (is_async) {
        OK(unit == 1   ? hip.hipMemsetD2D8Async(at, PITCH, (uint8_t)value, width, 3, PER_THREAD)
           : unit == 2 ? hip.hipMemsetD2D16Async(at, PITCH, (uint16_t)value, width, 3, PER_THREAD)
                       : hip.hipMemsetD2D32Async(at, PITCH, value, width, 3, PER_THREAD));
        OK(hip.hipStreamSynchronize(PER_THREAD));
    } else {
        OK(unit == 1   ? hip.hipMemsetD2D8(at, PITCH, (uint8_t)value, width, 3)
           : unit == 2 ? hip.hipMemsetD2D16(at, PITCH, (uint16_t)value, width, 3)
                       : hip.hipMemsetD2D32(at, PITCH, value, width, 3));
    }
    take(got, d, AREA);
    assert_memory_equal(got, want, AREA);
}

static void test_fills(void **state) {
    (void)state;
    for (int is_async = 0; is_async < 2; is_async++) {
        expect_fill(1, 0xA5, 13, is_async);
        expect_fill(2, 0xB6C7, 13, is_async);
        expect_fill(4, 0x12345678, 13, is_async);
        expect_fill(4, 0x12345678, 0, is_async);
    }
    uint8_t *d = device_alloc(AREA, nullptr);
    assert_int_equal(hip.hipMemsetD2D32(d, PITCH, 1, 17, 1), hipErrorInvalidPitchValue);
    assert_int_equal(hip.hipMemsetD2D8(d, PITCH, 1, PITCH, ROWS + 1), hipErrorInvalidValue);
    OK(hip.hipFree(d));
}

static void test_param_copies(void **state) {
    (void)state;
    uint8_t host[AREA], got[AREA], want[AREA];
    for (int i = 0; i < AREA; i++)
        host[i] = (uint8_t)random_bits();
    uint8_t *d = device_alloc(AREA, nullptr);
    hip_Memcpy2D in = {.srcXInBytes = 3,
                       .srcY = 1,
                       .srcMemoryType = hipMemoryTypeHost,
                       .srcHost = host,
                       .srcPitch = PITCH,
                       .dstXInBytes = 7,
                       .dstY = 2,
                       .dstMemoryType = hipMemoryTypeDevice,
                       .dstDevice = d,
                       .dstPitch = PITCH,
                       .WidthInBytes = 40,
                       .Height = 3};
    memset(want, 0xEE, AREA);
    for (size_t y = 0; y < 3; y++)
        memcpy(want + (y + 2) * PITCH + 7, host + (y + 1) * PITCH + 3, 40);
    OK(hip.hipMemcpyParam2D(&in));
    OK(hip.hipMemcpy(got, d, AREA, hipMemcpyDeviceToHost));
    assert_memory_equal(got, want, AREA);
    OK(hip.hipMemset(d, 0xEE, AREA));
    in.srcMemoryType = hipMemoryTypeUnified;
    in.srcDevice = host;
    OK(hip.hipMemcpyParam2DAsync(&in, PER_THREAD));
    OK(hip.hipStreamSynchronize(PER_THREAD));
    OK(hip.hipMemcpy(got, d, AREA, hipMemcpyDeviceToHost));
    assert_memory_equal(got, want, AREA);
    in.WidthInBytes = PITCH + 1;
    assert_int_equal(hip.hipMemcpyParam2D(&in), hipErrorInvalidPitchValue);
    in.WidthInBytes = 40;
    in.Height = 10;
    assert_int_equal(hip.hipDrvMemcpy2DUnaligned(&in), hipErrorInvalidValue);
    in.dstMemoryType = hipMemoryTypeArray;
    assert_int_equal(hip.hipMemcpyParam2D(&in), hipErrorInvalidValue); // no array
    assert_int_equal(hip.hipMemcpyParam2D(nullptr), hipErrorInvalidValue);
    OK(hip.hipFree(d));
}

// ---- the thread's own stream

static void test_per_thread(void **state) {
    (void)state;
    uint8_t host[AREA], got[AREA];
    for (int i = 0; i < AREA; i++)
        host[i] = (uint8_t)random_bits();
    void *found, *d = device_alloc(AREA, nullptr);
    OK(hip.hipMemset_spt(d, 1, AREA));
    OK(hip.hipMemcpy_spt(got, d, AREA, hipMemcpyDeviceToHost));
    assert_true(got[0] == 1 && got[AREA - 1] == 1);
    OK(hip.hipMemcpyAsync_spt(d, host, AREA, hipMemcpyHostToDevice, nullptr));
    OK(hip.hipMemset2DAsync_spt((uint8_t *)d + 1, PITCH, 9, 2, ROWS, nullptr));
    OK(hip.hipStreamSynchronize_spt(nullptr));
    OK(hip.hipStreamQuery_spt(nullptr));
    OK(hip.hipMemcpy2D_spt(got, PITCH, d, PITCH, PITCH, ROWS, hipMemcpyDeviceToHost));
    for (size_t i = 0; i < AREA; i++)
        assert_int_equal(got[i], i % PITCH == 1 || i % PITCH == 2 ? 9 : host[i]);
    OK(hip.hipGetProcAddress("hipMemcpy", &found, 70100000, 2, nullptr));
    assert_ptr_equal(found, hip.hipMemcpy_spt);
    OK(hip.hipGetProcAddress("hipMemcpy", &found, 70100000, 0, nullptr));
    assert_ptr_equal(found, hip.hipMemcpy);
    OK(hip.hipGetDriverEntryPoint_spt("hipGetDeviceCount", &found, 0,
                                      nullptr)); // has no other form
    assert_ptr_equal(found, hip.hipGetDeviceCount);
    OK(hip.hipFree(d));
}

// ---- launches, names

static void test_extended_launches(void **state) {
    (void)state;
    uint32_t count = 0;
    hipEvent_t first, last;
    OK(hip.hipEventCreate(&first));
    OK(hip.hipEventCreate(&last));
    void *d = device_alloc(4, &count);
    void *params[] = {&d};
    hipFunction_t f = kernel(modules[2], "t_count");
    OK(hip.hipExtModuleLaunchKernel(f, 192, 2, 1, 64, 1, 1, 0, nullptr, params, nullptr, first,
                                    last, 0));
    OK(hip.hipHccModuleLaunchKernel(f, 64, 1, 3, 64, 1, 3, 0, nullptr, params, nullptr, nullptr,
                                    nullptr));
    OK(hip.hipEventSynchronize(last));
    OK(hip.hipEventQuery(first));
    assert_int_equal(hip.hipExtModuleLaunchKernel(f, 100, 1, 1, 64, 1, 1, 0, nullptr, params,
                                                  nullptr, nullptr, nullptr, 0),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipExtLaunchKernel(&count, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 0,
                                            nullptr, nullptr, nullptr, 0),
                     hipErrorInvalidDeviceFunction);
    take(&count, d, 4);
    assert_int_equal(count, 192 * 2 + 64 * 3);
    OK(hip.hipEventDestroy(first));
    OK(hip.hipEventDestroy(last));
}

static void test_names(void **state) {
    (void)state;
    const char *text;
    unsigned count = 0;
    unsigned long long ids[2];
    assert_string_equal(hip.hipKernelNameRef(kernel(modules[0], "t_count")), "t_count");
    assert_null(hip.hipKernelNameRef(nullptr));
    assert_null(hip.hipKernelNameRefByPtr(&count, nullptr));
    OK(hip.hipModuleGetFunctionCount(&count, modules[0]));
    assert_true(count > 10);
    OK(hip.hipStreamGetId(nullptr, &ids[0]));
    OK(hip.hipStreamGetId(PER_THREAD, &ids[1]));
    assert_true(ids[0] != ids[1]);
    assert_int_equal(hip.hipGetStreamDeviceId(PER_THREAD), 0);
#define HIP_ERROR(name, value, message)                                                            \
    assert_string_equal(hip.hipGetErrorName(value), #name);                                        \
    OK(hip.hipDrvGetErrorName(value, &text));                                                      \
    assert_string_equal(text, #name);                                                              \
    assert_string_equal(hip.hipGetErrorString(value), message);
#include "errors.def"
#undef HIP_ERROR
    assert_int_equal(hip.hipDrvGetErrorName((hipError_t)12345, &text), hipErrorInvalidValue);
    assert_int_equal(hip.hipExtGetLastError(), hipErrorInvalidValue);
    OK(hip.hipExtGetLastError());
}

// ---- memory and devices

static void test_flags(void **state) {
    (void)state;
    enum { COHERENT = 0x40000000, MAPPED = 2 };
    static uint8_t page[8192];
    unsigned flags;
    void *host, *values[2], *data[] = {&values[0], &values[1]};
    hipPointer_attribute wanted[] = {HIP_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                     HIP_POINTER_ATTRIBUTE_HOST_POINTER};
    OK(hip.hipHostMalloc(&host, 100, COHERENT | MAPPED));
    OK(hip.hipHostGetFlags(&flags, host));
    assert_int_equal(flags, COHERENT | MAPPED);
    OK(hip.hipDrvPointerGetAttributes(2, wanted, data, host));
    assert_true(values[0] == host && values[1] == host);
    OK(hip.hipHostFree(host));
    assert_int_equal(hip.hipHostGetFlags(&flags, host), hipErrorInvalidValue);
    OK(hip.hipHostRegister(page, sizeof page, MAPPED));
    OK(hip.hipHostGetFlags(&flags, page));
    assert_int_equal(flags, MAPPED);
    OK(hip.hipHostUnregister(page));
    void *d = device_alloc(10, nullptr);
    OK(hip.hipDrvPointerGetAttributes(2, wanted, data, d));
    assert_true(values[0] == d && !values[1]);
    assert_int_equal(hip.hipHostGetFlags(&flags, d), hipErrorInvalidValue);
    OK(hip.hipFree(d));
}

// ---- attributes of streams and pointers, values by the batch

static void test_stream_attributes(void **state) {
    (void)state;
    enum { POLICY = 3, PRIORITY = 8, WINDOW = 1 };
    hipStream_t a, b;
    hipGraph_t graph;
    hipLaunchAttributeValue value = {.number = 4};
    OK(hip.hipStreamCreateWithPriority(&a, hipStreamNonBlocking, -1));
    OK(hip.hipStreamCreate(&b));
    OK(hip.hipStreamSetAttribute(a, POLICY, &value));
    OK(hip.hipStreamGetAttribute(b, POLICY, &value));
    assert_int_equal(value.number, 1); // as it was made
    OK(hip.hipStreamCopyAttributes(b, a));
    OK(hip.hipStreamGetAttribute(b, POLICY, &value));
    assert_int_equal(value.number, 4);
    OK(hip.hipStreamGetAttribute(a, PRIORITY, &value));
    assert_int_equal(value.number, -1);
    assert_int_equal(hip.hipStreamSetAttribute(a, PRIORITY, &value), hipErrorInvalidValue);
    value.number = 5;
    assert_int_equal(hip.hipStreamSetAttribute(a, POLICY, &value), hipErrorInvalidValue);
    assert_int_equal(hip.hipStreamSetAttribute(a, POLICY, nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipStreamGetAttribute(a, WINDOW, &value), hipErrorInvalidValue);
    value.number = 2;
    OK(hip.hipStreamBeginCapture(a, 0));
    assert_int_equal(hip.hipStreamSetAttribute(a, POLICY, &value),
                     hipErrorStreamCaptureUnsupported);
    OK(hip.hipStreamEndCapture(a, &graph));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipStreamDestroy(b));
    assert_int_equal(hip.hipStreamGetAttribute(b, POLICY, &value), hipErrorInvalidHandle);
    assert_int_equal(hip.hipStreamSetAttribute(b, POLICY, &value), hipErrorInvalidHandle);
    assert_int_equal(hip.hipStreamCopyAttributes(a, b), hipErrorInvalidHandle);
    assert_int_equal(hip.hipStreamCopyAttributes(b, a), hipErrorInvalidHandle);
    OK(hip.hipStreamDestroy(a));
}

/** A batch waits for a value that the program writes, and only then writes its own. */
static void test_value_batch(void **state) {
    (void)state;
    enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, EQUAL = 1 };
    hipStream_t stream;
    uint64_t *words;
    OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    OK(hip.hipHostMalloc((void **)&words, 4 * sizeof *words, 0));
    memset(words, 0, 4 * sizeof *words);
    hipStreamBatchMemOpParams ops[4] = {
        {.value = {.operation = WRITE_32, .address = &words[0], .value = 7}},
        {.value = {.operation = WAIT_64, .address = &words[1], .value64 = 9, .flags = EQUAL}},
        {.value = {.operation = WRITE_64, .address = &words[2], .value64 = UINT64_MAX}},
        {.value = {.operation = WAIT_32, .address = &words[2], .value = 3}}};
    OK(hip.hipStreamBatchMemOp(stream, 4, ops, 0));
    while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) != 7)
        ;
    assert_int_equal(hip.hipStreamQuery(stream), hipErrorNotReady);
    assert_int_equal(words[2], 0);
    ops[3].value.value = 1; // the call has its own copy
    __atomic_store_n(&words[1], 9, __ATOMIC_RELEASE);
    while (__atomic_load_n(&words[2], __ATOMIC_ACQUIRE) != UINT64_MAX)
        ;
    __atomic_store_n((uint32_t *)&words[2], 3, __ATOMIC_RELEASE);
    OK(hip.hipStreamSynchronize(stream));
    const hipError_t bad = hipErrorInvalidValue;
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 0, ops, 0), bad);
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 257, ops, 0), bad);
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 4, nullptr, 0), bad);
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 4, ops, 1), bad);
    ops[2].operation = FLUSH;
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 4, ops, 0), bad);
    ops[2].operation = WRITE_64;
    ops[2].value.address = (char *)&words[2] + 4;
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 4, ops, 0), bad);
    OK(hip.hipStreamDestroy(stream));
    assert_int_equal(hip.hipStreamBatchMemOp(stream, 1, ops, 0), hipErrorContextIsDestroyed);
    OK(hip.hipHostFree(words));
}

static void wait_for_word(void *word) {
    while (!__atomic_load_n((int *)word, __ATOMIC_ACQUIRE))
        ;
}

/** An allocation has a number of its own, also if it has the address of one that was freed. */
static void test_ids(char *d) {
    unsigned seen[8];
    OK(hip.hipPointerGetAttribute(&seen[0], HIP_POINTER_ATTRIBUTE_BUFFER_ID, d));
    OK(hip.hipPointerGetAttribute(&seen[1], HIP_POINTER_ATTRIBUTE_BUFFER_ID, d + 4));
    assert_int_equal(seen[0], seen[1]);
    for (int i = 1; i < 8; i++) {
        void *p = device_alloc(8, nullptr);
        OK(hip.hipPointerGetAttribute(&seen[i], HIP_POINTER_ATTRIBUTE_BUFFER_ID, p));
        OK(hip.hipFree(p));
        for (int j = 0; j < i; j++)
            assert_int_not_equal(seen[i], seen[j]);
    }
    assert_int_equal(hip.hipPointerGetAttribute(seen, HIP_POINTER_ATTRIBUTE_CONTEXT, d),
                     hipErrorNotSupported);
}

/** Copies between device memory return before they are made, unless the program asks for more. */
static void test_synced_memory(void **state) {
    (void)state;
    int go = 0;
    const unsigned on = 1, off = 0, wrong = 2;
    bool is_on;
    hipStream_t stream;
    char *d = device_alloc(8, "abcdefg"), got[8];
    OK(hip.hipStreamCreate(&stream)); // the default stream waits for it
    OK(hip.hipLaunchHostFunc(stream, wait_for_word, &go));
    OK(hip.hipMemcpy(d + 4, d, 4, hipMemcpyDeviceToDevice));
    assert_int_equal(hip.hipStreamQuery(nullptr), hipErrorNotReady);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipMemcpy(got, d, 8, hipMemcpyDeviceToHost));
    assert_memory_equal(got, "abcdabcd", 8);
    OK(hip.hipPointerSetAttribute(&on, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d + 4));
    OK(hip.hipPointerGetAttribute(&is_on, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d));
    assert_true(is_on);
    test_ids(d);
    OK(hip.hipLaunchHostFunc(stream, wait_for_word, &go)); // is set
    OK(hip.hipMemsetAsync(d, 0, 8, stream));
    OK(hip.hipStreamQuery(stream));
    OK(hip.hipPointerSetAttribute(&off, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d));
    OK(hip.hipPointerGetAttribute(&is_on, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d));
    assert_false(is_on);
    assert_int_equal(hip.hipPointerSetAttribute(&wrong, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipPointerSetAttribute(&on, HIP_POINTER_ATTRIBUTE_IS_MANAGED, d),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipPointerSetAttribute(&on, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, &go),
                     hipErrorInvalidDevicePointer);
    OK(hip.hipStreamDestroy(stream));
    OK(hip.hipFree(d));
    assert_int_equal(hip.hipPointerSetAttribute(&on, HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS, d),
                     hipErrorInvalidDevicePointer);
}

// ---- devices

static void test_old_properties(void) {
    hipDeviceProp_tR0000 old;
    hipDeviceProp_tR0600 now;
    int device;
    OK(hip.hipGetDeviceProperties(&old, 1));
    OK(hip.hipGetDevicePropertiesR0600(&now, 1));
    assert_string_equal(old.name, now.name);
    assert_string_equal(old.gcnArchName, now.gcnArchName);
    assert_int_equal(old.gcnArch, 1200);
    assert_int_equal(old.totalGlobalMem, now.totalGlobalMem);
    assert_int_equal(old.maxGridSize[1], now.maxGridSize[1]);
    assert_int_equal(old.multiProcessorCount, now.multiProcessorCount);
    OK(hip.hipChooseDevice(&device, &old));
    assert_int_equal(device, 1);
    assert_int_equal(hip.hipChooseDevice(nullptr, &old), hipErrorInvalidValue);
    assert_int_equal(hip.hipChooseDeviceR0000(&device, nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipGetDevicePropertiesR0000(nullptr, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipGetDevicePropertiesR0000(&old, 2), hipErrorInvalidDevice);
}

static void *ask_device(void *out) {
    return hip.hipGetDevice(out) == hipSuccess ? out : nullptr;
}

/** A list says which device threads have that choose none. */
static void test_valid_devices(void) {
    int list[] = {1, 0, 1}, device = -1;
    pthread_t thread;
    OK(hip.hipSetValidDevices(list, 2));
    assert_int_equal(pthread_create(&thread, nullptr, ask_device, &device), 0);
    pthread_join(thread, nullptr);
    assert_int_equal(device, 1);
    OK(hip.hipGetDevice(&device));
    assert_int_equal(device, 0); // this thread has chosen
    OK(hip.hipSetValidDevices(nullptr, 0));
    assert_int_equal(hip.hipSetValidDevices(list, 3), hipErrorInvalidValue);
    assert_int_equal(hip.hipSetValidDevices(nullptr, 1), hipErrorInvalidValue);
    list[1] = 2;
    assert_int_equal(hip.hipSetValidDevices(list, 2), hipErrorInvalidDevice);
}

static void test_links(void) {
    enum { PCIE = 2, XGMI = 4 };
    uint32_t type, hops;
    OK(hip.hipExtGetLinkTypeAndHopCount(0, 1, &type, &hops));
    assert_true(type == PCIE && hops == 2);
    OK(hip.quernsim_configure("arch=gfx942"));
    OK(hip.hipExtGetLinkTypeAndHopCount(2, 0, &type, &hops));
    assert_true(type == XGMI && hops == 1);
    assert_int_equal(hip.hipExtGetLinkTypeAndHopCount(0, 0, &type, &hops), hipErrorInvalidValue);
    assert_int_equal(hip.hipExtGetLinkTypeAndHopCount(0, -1, &type, &hops), hipErrorInvalidValue);
    assert_int_equal(hip.hipExtGetLinkTypeAndHopCount(0, 3, &type, &hops), hipErrorInvalidDevice);
    assert_int_equal(hip.hipExtGetLinkTypeAndHopCount(0, 1, nullptr, &hops), hipErrorInvalidValue);
    assert_int_equal(hip.hipExtGetLinkTypeAndHopCount(0, 1, &type, nullptr), hipErrorInvalidValue);
}

static void test_two_devices(void **state) {
    (void)state;
    int device;
    hipEvent_t event;
    hipDeviceProp_tR0600 wanted = {.warpSize = 32};
    OK(hip.quernsim_configure("arch=gfx1201"));
    OK(hip.hipChooseDeviceR0600(&device, &wanted));
    assert_int_equal(device, 1);
    OK(hip.hipGetDevicePropertiesR0600(&wanted, 0));
    OK(hip.hipChooseDeviceR0600(&device, &wanted));
    assert_int_equal(device, 0);
    OK(hip.hipEventCreate(&event)); // of device 0
    OK(hip.hipSetDevice(1));
    assert_int_equal(hip.hipEventRecord(event, nullptr), hipErrorInvalidHandle);
    assert_int_equal(launch(kernel(modules[0], "t_count"), 1, 1, nullptr, nullptr, 0),
                     hipErrorInvalidHandle);       // a module of device 0
    OK(hip.hipStreamWaitEvent(nullptr, event, 0)); // waiting is for anyone
    OK(hip.hipSetDevice(0));
    OK(hip.hipEventRecord(event, nullptr));
    OK(hip.hipEventSynchronize(event));
    OK(hip.hipEventDestroy(event));
    test_old_properties();
    test_valid_devices();
    test_links();
}

// ---- bad arguments

/** Each call here must be refused with the error that HIP documents, and do nothing. */
static void test_bad_arguments(void **state) {
    (void)state;
    uint8_t host[16];
    int value;
    size_t bytes;
    void *p, *d = device_alloc(16, nullptr);
    hipStream_t stream;
    hipEvent_t event;
    const struct {
        hipError_t got, want;
        const char *call;
    } cases[] = {
#define CASE(want, call) {(call), want, #call}
        CASE(hipErrorInvalidValue, hip.hipGetDeviceCount(nullptr)),
        CASE(hipErrorInvalidDevice, hip.hipSetDevice(100)),
        CASE(hipErrorInvalidDevice, hip.hipDeviceGet(&value, 100)),
        CASE(hipErrorInvalidDevice,
             hip.hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 9)),
        CASE(hipErrorInvalidValue,
             hip.hipDeviceGetAttribute(nullptr, hipDeviceAttributeWarpSize, 0)),
        CASE(hipErrorInvalidValue, hip.hipGetDevicePropertiesR0600(nullptr, 0)),
        CASE(hipErrorInvalidValue, hip.hipDriverGetVersion(nullptr)),
        CASE(hipErrorInvalidValue, hip.hipMalloc(nullptr, 4)),
        CASE(hipErrorOutOfMemory, hip.hipMalloc(&p, SIZE_MAX)),
        CASE(hipErrorInvalidValue, hip.hipFree(host)),
        CASE(hipErrorInvalidValue, hip.hipFree((uint8_t *)d + 1)),
        CASE(hipErrorInvalidValue, hip.hipHostFree(d)),
        CASE(hipErrorInvalidValue, hip.hipHostMalloc(nullptr, 4, 0)),
        CASE(hipErrorInvalidValue, hip.hipHostMalloc(&p, 4, 0x100)),
        CASE(hipErrorInvalidValue, hip.hipHostMalloc(&p, 4, 0xc0000000)),
        CASE(hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(host)),
        CASE(hipErrorInvalidValue, hip.hipHostUnregister(nullptr)),
        CASE(hipErrorInvalidValue, hip.hipHostRegister(host, 4, 0x10)),
        CASE(hipErrorInvalidValue, hip.hipHostRegister(nullptr, 4, 0)),
        CASE(hipErrorInvalidValue, hip.hipMemcpy(nullptr, host, 4, hipMemcpyDefault)),
        CASE(hipErrorInvalidValue, hip.hipMemcpy(d, nullptr, 4, hipMemcpyDefault)),
        CASE(hipErrorInvalidMemcpyDirection, hip.hipMemcpy(d, host, 4, (hipMemcpyKind)77)),
        CASE(hipErrorInvalidValue, hip.hipMemcpy(d, host, 17, hipMemcpyHostToDevice)),
        CASE(hipErrorInvalidValue, hip.hipMemset(nullptr, 0, 4)),
        CASE(hipErrorInvalidValue, hip.hipMemset(host, 0, 4)),
        CASE(hipErrorInvalidPitchValue, hip.hipMemcpy2D(d, 2, host, 4, 4, 2, hipMemcpyDefault)),
        CASE(hipErrorInvalidValue, hip.hipMemcpy2D(d, 4, nullptr, 4, 4, 2, hipMemcpyDefault)),
        CASE(hipErrorInvalidValue, hip.hipMallocPitch(nullptr, &bytes, 4, 4)),
        CASE(hipErrorInvalidValue, hip.hipMemGetInfo(nullptr, &bytes)),
        CASE(hipErrorInvalidValue, hip.hipPointerGetAttributes(nullptr, d)),
        CASE(hipErrorInvalidValue, hip.hipStreamCreate(nullptr)),
        CASE(hipErrorInvalidValue, hip.hipStreamCreateWithFlags(&stream, 0x10)),
        CASE(hipErrorInvalidValue, hip.hipStreamGetFlags(nullptr, (unsigned *)&value)),
        CASE(hipErrorInvalidHandle, hip.hipStreamDestroy(nullptr)),
        CASE(hipErrorContextIsDestroyed, hip.hipStreamSynchronize((hipStream_t)host)),
        CASE(hipErrorContextIsDestroyed,
             hip.hipMemcpyAsync(d, host, 4, hipMemcpyDefault, (hipStream_t)host)),
        CASE(hipErrorContextIsDestroyed, hip.hipEventDestroy((hipEvent_t)8)),
        CASE(hipErrorInvalidHandle, hip.hipEventQuery((hipEvent_t)8)),
        CASE(hipErrorInvalidHandle,
             hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_NUM_REGS, (hipFunction_t)8)),
        CASE(hipErrorInvalidValue, hip.hipEventCreate(nullptr)),
        CASE(hipErrorInvalidValue, hip.hipEventCreateWithFlags(&event, 0x100)),
        CASE(hipErrorInvalidHandle, hip.hipEventDestroy(nullptr)),
        CASE(hipErrorInvalidHandle, hip.hipEventRecord(nullptr, nullptr)),
        CASE(hipErrorInvalidHandle, hip.hipEventSynchronize(nullptr)),
        CASE(hipErrorInvalidHandle, hip.hipStreamWaitEvent(nullptr, nullptr, 0)),
        CASE(hipErrorInvalidValue, hip.hipStreamAddCallback(nullptr, nullptr, nullptr, 0)),
        CASE(hipErrorInvalidValue, hip.hipLaunchHostFunc(nullptr, nullptr, nullptr)),
        CASE(hipErrorInvalidValue, hip.hipModuleLoad(nullptr, "file")),
        CASE(hipErrorInvalidValue, hip.hipModuleLoadData((hipModule_t *)&p, nullptr)),
        CASE(hipErrorNotFound, hip.hipModuleUnload((hipModule_t)host)),
        CASE(hipErrorInvalidHandle, hip.hipModuleGetFunction((hipFunction_t *)&p, nullptr, "f")),
        CASE(hipErrorInvalidValue,
             hip.hipModuleGetFunction((hipFunction_t *)&p, modules[0], nullptr)),
        CASE(hipErrorNotFound, hip.hipModuleGetGlobal(&p, &bytes, modules[0], "none")),
        CASE(hipErrorInvalidValue, hip.hipModuleGetGlobal(nullptr, nullptr, modules[0], "none")),
        CASE(hipErrorInvalidHandle,
             hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_NUM_REGS, nullptr)),
        CASE(hipErrorInvalidDeviceFunction, hip.hipFuncGetAttributes(&(hipFuncAttributes){}, host)),
        CASE(hipErrorInvalidSymbol, hip.hipGetSymbolAddress(&p, host)),
        CASE(hipErrorInvalidSymbol, hip.hipMemcpyToSymbol(host, host, 4, 0, hipMemcpyDefault)),
        CASE(hipErrorInvalidMemcpyDirection,
             hip.hipMemcpyToSymbol(host, host, 4, 0, hipMemcpyDeviceToHost)),
        CASE(hipErrorInvalidMemcpyDirection,
             hip.hipMemcpyFromSymbol(host, host, 4, 0, hipMemcpyHostToDevice)),
        CASE(hipErrorInvalidValue, hip.hipHostRegister(host, (size_t)1 << 46, 0)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(0, SIZE_MAX)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(1, 8)),
        CASE(hipErrorUnsupportedLimit, hip.hipDeviceSetLimit(-1, 1 << 20)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(3, 1 << 20)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(77, 1 << 20)),
        CASE(hipErrorInvalidValue, hip.hipModuleLoad((hipModule_t *)&p, "")),
        CASE(hipErrorInvalidHandle,
             hip.hipMemcpy2DToArray(nullptr, 0, 0, host, 4, 4, 1, hipMemcpyDefault)),
        CASE(hipErrorInvalidValue, hip.hipMemPrefetchAsync(nullptr, 4, 0, nullptr)),
        CASE(hipErrorInvalidDevice, hip.hipDeviceEnablePeerAccess(0, 0)),
        CASE(hipErrorInvalidValue, hip.hipGetProcAddress(nullptr, &p, 0, 0, nullptr)),
        CASE(hipErrorNotFound, hip.hipGetProcAddress("hipNone", &p, 0, 0, nullptr)),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].got != cases[i].want) {
            fail_msg("%s gave %s, expected %s", cases[i].call, hip.hipGetErrorName(cases[i].got),
                     hip.hipGetErrorName(cases[i].want));
        }
    }
    OK(hip.hipFree(nullptr));
    OK(hip.hipHostFree(nullptr));
    OK(hip.hipMalloc(&p, 0));
    assert_null(p);
    OK(hip.hipMemcpy(nullptr, nullptr, 0, hipMemcpyDefault)); // a copy of no bytes has no wrong
                                                              // arguments
    OK(hip.hipFree(d));
}

int main(void) {
    open_library();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_fills, start),
        cmocka_unit_test_setup(test_param_copies, start),
        cmocka_unit_test_setup(test_per_thread, start),
        cmocka_unit_test_setup(test_extended_launches, start),
        cmocka_unit_test_setup(test_names, start),
        cmocka_unit_test_setup(test_flags, start),
        cmocka_unit_test_setup(test_stream_attributes, start),
        cmocka_unit_test_setup(test_value_batch, start),
        cmocka_unit_test_setup(test_synced_memory, start),
        cmocka_unit_test_setup(test_bad_arguments, start),
        cmocka_unit_test_setup(test_two_devices, start),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
