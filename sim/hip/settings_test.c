// SPDX-License-Identifier: Apache-2.0
// Tests of what programs set and are told, and of calls in which AMD's runtime does more than HIP's
// documentation says.
#include "hip_testing.h"

/** The heap's size is kept; a limit that there is not has the error of its sign. */
static void test_limits(void **state) {
    (void)state;
    enum { STACK, PRINTF, HEAP, RANGE };
    size_t value;
    OK(hip.hipDeviceGetLimit(&value, HEAP));
    assert_int_equal(value, 8 << 20);
    OK(hip.hipDeviceSetLimit(HEAP, (size_t)5 << 30));
    OK(hip.hipDeviceGetLimit(&value, HEAP));
    assert_int_equal(value, (size_t)5 << 30);
    OK(hip.hipDeviceGetLimit(&value, PRINTF));
    assert_int_equal(value, 4 << 20);
    OK(hip.hipDeviceGetLimit(&value, STACK));
    assert_int_equal(value, 1024);
    assert_int_equal(hip.hipDeviceGetLimit(&value, RANGE), hipErrorUnsupportedLimit);
    assert_int_equal(hip.hipDeviceSetLimit(RANGE, 1), hipErrorInvalidValue);
    assert_int_equal(hip.hipDeviceSetLimit(-1, 1), hipErrorUnsupportedLimit);
}

/** A buffer that is too short gets the beginning, and nothing behind it. */
static void test_short_bus(void **state) {
    (void)state;
    char whole[32], part[32];
    OK(hip.hipDeviceGetPCIBusId(whole, sizeof whole, 0));
    memset(part, 1, sizeof part);
    assert_int_equal(hip.hipDeviceGetPCIBusId(part, 6, 0), hipErrorInvalidValue);
    assert_memory_equal(part, whole, 5);
    assert_int_equal(part[5], 0);
    assert_int_equal(part[6], 1);
    assert_int_equal(hip.hipDeviceGetPCIBusId(part, 0, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipDeviceGetPCIBusId(part, 32, 99), hipErrorInvalidDevice);
}

/** Attributes tell what the properties tell; there are no images. */
static void test_attributes(void **state) {
    (void)state;
    enum { NO_FEATURE = 1 << 11 | 1 << 13 | 1 << 14 | 1 << 16 };
    hipDeviceProp_tR0600 p;
    OK(hip.hipGetDevicePropertiesR0600(&p, 0));
    assert_int_equal(p.arch, 0x1ffff & ~NO_FEATURE);
    const struct {
        hipDeviceAttribute_t which;
        int want;
    } cases[] = {{hipDeviceAttributeMaxTexture2DHeight, 0},
                 {hipDeviceAttributeMaxSurface1D, 0},
                 {hipDeviceAttributeTexturePitchAlignment, (int)p.texturePitchAlignment},
                 {hipDeviceAttributeHdpMemFlushCntl, 0},
                 {hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int value = -1;
        OK(hip.hipDeviceGetAttribute(&value, cases[i].which, 0));
        assert_int_equal(value, cases[i].want);
    }
}

/** Both ways to begin a launch use one stack. */
static void test_configurations(void **state) {
    (void)state;
    dim3 grid, block;
    size_t lds;
    hipStream_t stream;
    OK(hip.hipConfigureCall((dim3){1, 2, 3}, (dim3){4, 5, 6}, 7, (hipStream_t)2));
    OK(hip.__hipPushCallConfiguration((dim3){8, 1, 1}, (dim3){9, 1, 1}, 0, nullptr));
    uint32_t argument = 0;
    OK(hip.hipSetupArgument(&argument, sizeof argument, 0));
    OK(hip.__hipPopCallConfiguration(&grid, &block, &lds, &stream));
    assert_int_equal(grid.x * 100 + block.x, 809);
    OK(hip.__hipPopCallConfiguration(&grid, &block, &lds, &stream));
    assert_int_equal(grid.z * 100 + block.z * 10 + lds, 367);
    assert_ptr_equal(stream, (hipStream_t)2);
    assert_int_equal(hip.hipSetupArgument(&argument, 4, 0), hipErrorMissingConfiguration);
}

static void hold(void *data) {
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, nullptr);
}

/** hipFree takes pinned memory too; a copy from host to host is done when the call returns. */
static void test_pinned(void **state) {
    (void)state;
    int *a, *b;
    OK(hip.hipHostMalloc((void **)&a, sizeof *a, 0));
    OK(hip.hipHostMalloc((void **)&b, sizeof *b, 0));
    *a = 5;
    *b = 6;
    OK(hip.hipLaunchHostFunc(nullptr, hold, nullptr));
    OK(hip.hipMemcpyAsync(b, a, sizeof *a, hipMemcpyHostToHost, nullptr));
    OK(hip.hipStreamQuery(nullptr));
    assert_int_equal(*b, 5);
    assert_int_equal(hip.hipFree(a + 1), hipErrorInvalidValue);
    OK(hip.hipFree(a));
    assert_int_equal(hip.hipFree(a), hipErrorInvalidValue);
    OK(hip.hipHostFree(b));
}

/** A stream that was destroyed is a bad argument to this launch, not a context that has gone. */
static void test_cooperative_stream(void **state) {
    (void)state;
    hipStream_t stream;
    OK(hip.hipStreamCreate(&stream));
    OK(hip.hipStreamDestroy(stream));
    uint32_t *d = device_alloc(4, nullptr);
    void *params[] = {&d};
    hipFunction_t f = kernel(modules[2], "t_count");
    assert_int_equal(hip.hipModuleLaunchCooperativeKernel(f, 1, 1, 1, 64, 1, 1, 0, stream, params),
                     hipErrorInvalidValue);
    OK(hip.hipFree(d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_limits, start),
        cmocka_unit_test_setup(test_short_bus, start),
        cmocka_unit_test_setup(test_attributes, start),
        cmocka_unit_test_setup(test_configurations, start),
        cmocka_unit_test_setup(test_pinned, start),
        cmocka_unit_test_setup(test_cooperative_stream, start),
    };
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
