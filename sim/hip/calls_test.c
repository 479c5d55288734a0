// SPDX-License-Identifier: Apache-2.0
// Calls of the HIP runtime that programs seldom use, each compared with the CPU; and bad arguments
// to all other calls.
#include "hip_testing.h"

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
                     hipErrorInvalidConfiguration);
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
        CASE(hipErrorHostMemoryNotRegistered, hip.hipHostUnregister(host)),
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
        CASE(hipErrorInvalidHandle,
             hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_NUM_REGS, nullptr)),
        CASE(hipErrorInvalidDeviceFunction, hip.hipFuncGetAttributes(&(hipFuncAttributes){}, host)),
        CASE(hipErrorInvalidSymbol, hip.hipGetSymbolAddress(&p, host)),
        CASE(hipErrorInvalidSymbol, hip.hipMemcpyToSymbol(host, host, 4, 0, hipMemcpyDefault)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(0, SIZE_MAX)),
        CASE(hipErrorInvalidValue, hip.hipDeviceSetLimit(1, 8)),
        CASE(hipErrorUnsupportedLimit, hip.hipDeviceSetLimit(2, 1 << 20)),
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
        cmocka_unit_test_setup(test_bad_arguments, start),
        cmocka_unit_test_setup(test_two_devices, start),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
