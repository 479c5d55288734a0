// SPDX-License-Identifier: Apache-2.0
// Several copies by one call, compared with the CPU.
#include "../hip_testing.h"

enum { COUNT = 5, BYTES = 3000, ORDER_STREAM = 1, ORDER_NOW = 2, ORDER_ANY = 3 };

static void hold(void *data) {
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, nullptr);
}

static void test_copies(void **state) {
    (void)state;
    uint8_t from[COUNT][BYTES], to[COUNT][BYTES] = {};
    void *dsts[COUNT], *srcs[COUNT], *device[COUNT];
    size_t sizes[COUNT], starts[] = {0, 2}, failed = 77;
    hipMemcpyAttributes attributes[] = {{.srcAccessOrder = ORDER_STREAM},
                                        {.srcAccessOrder = ORDER_ANY, .flags = 1}};
    hipStream_t stream;
    OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (size_t i = 0; i < sizeof from; i++)
        (&from[0][0])[i] = (uint8_t)random_bits();
    for (size_t i = 0; i < COUNT; i++) {
        sizes[i] = BYTES - i;
        device[i] = dsts[i] = device_alloc(BYTES, nullptr);
        srcs[i] = from[i];
    }
    OK(hip.hipMemcpyBatchAsync(dsts, srcs, sizes, COUNT, attributes, starts, 2, &failed, stream));
    for (size_t i = 0; i < COUNT; i++) { // from device to device, then back
        dsts[i] = device[(i + 1) % COUNT];
        srcs[i] = device[i];
        sizes[i] = 10;
    }
    OK(hip.hipMemcpyBatchAsync(dsts, srcs, sizes, COUNT, nullptr, nullptr, 0, nullptr, stream));
    for (size_t i = 0; i < COUNT; i++) {
        dsts[i] = to[i];
        sizes[i] = BYTES - i;
    }
    OK(hip.hipMemcpyBatchAsync(dsts, srcs, sizes, COUNT, nullptr, nullptr, 0, &failed, stream));
    OK(hip.hipStreamSynchronize(stream));
    assert_int_equal(failed, 77);
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(from[i], from[0], 10); // each took it from the one before
        assert_memory_equal(to[i], from[i], BYTES - i);
        OK(hip.hipFree(device[i]));
    }
    OK(hip.hipStreamDestroy(stream));
}

/** A source that is to be read during the call may change behind it. */
static void test_order(void **state) {
    (void)state;
    hipMemcpyAttributes attributes = {.srcAccessOrder = ORDER_NOW};
    uint32_t *pinned;
    void *d = device_alloc(4, nullptr), *dst = d, *src;
    size_t bytes = 4, first = 0;
    uint32_t got;
    OK(hip.hipHostMalloc((void **)&pinned, 4, 0));
    src = pinned;
    *pinned = 5;
    OK(hip.hipLaunchHostFunc(nullptr, hold, nullptr)); // the copy cannot be made at once
    OK(hip.hipMemcpyBatchAsync(&dst, &src, &bytes, 1, &attributes, &first, 1, nullptr, nullptr));
    *pinned = 6;
    take(&got, d, 4);
    assert_int_equal(got, 5);
    OK(hip.hipHostFree(pinned));
}

static void test_refused(void **state) {
    (void)state;
    uint8_t host[8] = "1234567", got[8];
    uint8_t *d = device_alloc(8, "abcdefg");
    void *dsts[] = {d, d + 4}, *srcs[] = {host, host};
    size_t sizes[] = {2, 5}, starts[] = {0, 1}, failed = 0;
    hipMemcpyAttributes attributes[] = {{.srcAccessOrder = 1}, {.srcAccessOrder = 1}};
    const hipError_t bad = hipErrorInvalidValue;
    assert_int_equal(
        hip.hipMemcpyBatchAsync(dsts, srcs, sizes, 2, nullptr, nullptr, 0, &failed, nullptr), bad);
    assert_int_equal(failed, 1); // behind the end; the first was made
    OK(hip.hipMemcpy(got, d, 8, hipMemcpyDeviceToHost));
    assert_memory_equal(got, "12cdefg", 8);
    sizes[1] = 4;
#define REFUSED(...)                                                                               \
    do {                                                                                           \
        failed = 0;                                                                                \
        assert_int_equal(hip.hipMemcpyBatchAsync(__VA_ARGS__, &failed, nullptr), bad);             \
        assert_int_equal(failed, SIZE_MAX);                                                        \
    } while (0)
    REFUSED(nullptr, srcs, sizes, 2, nullptr, nullptr, 0);
    REFUSED(dsts, nullptr, sizes, 2, nullptr, nullptr, 0);
    REFUSED(dsts, srcs, nullptr, 2, nullptr, nullptr, 0);
    REFUSED(dsts, srcs, sizes, 0, nullptr, nullptr, 0);
    REFUSED(dsts, srcs, sizes, 2, nullptr, starts, 1);
    REFUSED(dsts, srcs, sizes, 2, attributes, nullptr, 1);
    starts[1] = 2;
    REFUSED(dsts, srcs, sizes, 2, attributes, starts, 2); // behind the last copy
    starts[1] = 0;
    REFUSED(dsts, srcs, sizes, 2, attributes, starts, 2); // not behind the first
    starts[0] = starts[1] = 1;
    REFUSED(dsts, srcs, sizes, 2, attributes, starts, 1);
    starts[0] = 0;
    attributes[0].srcAccessOrder = 4;
    REFUSED(dsts, srcs, sizes, 2, attributes, starts, 1);
    attributes[0] = (hipMemcpyAttributes){.srcAccessOrder = 1, .flags = 2};
    REFUSED(dsts, srcs, sizes, 2, attributes, starts, 1);
#undef REFUSED
    assert_int_equal(hip.hipMemcpyBatchAsync(dsts, srcs, sizes, 2, nullptr, nullptr, 0, nullptr,
                                             (hipStream_t)host),
                     hipErrorContextIsDestroyed);
    OK(hip.hipFree(d));
}

// ---- volumes

enum { W = 7, H = 3, D = 2, ROW = 10, LAYER = 5 };

static void fill(float *data, size_t count) {
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(random_bits() % 1000);
}

/** From memory whose rows and layers have room between them to an array, and packed from there. */
static void test_volumes(void **state) {
    (void)state;
    float from[D * LAYER * ROW], to[D * H * W] = {};
    const hipChannelFormatDesc format = {32, 0, 0, 0, 2};
    hipArray_t array;
    fill(from, sizeof from / sizeof *from);
    OK(hip.hipMalloc3DArray(&array, &format, (hipExtent){W + 2, H + 1, D}, 0));
    hipMemcpy3DBatchOp ops[] = {{.src = {.type = 1, .ptr = {from, ROW, LAYER, {}}},
                                 .dst = {.type = 2, .array = {array, {2, 1, 0}}},
                                 .extent = {W, H, D},
                                 .srcAccessOrder = ORDER_STREAM},
                                {.src = {.type = 2, .array = {array, {2, 1, 0}}},
                                 .dst = {.type = 1, .ptr = {to, 0, 0, {}}},
                                 .extent = {W, H, D},
                                 .srcAccessOrder = ORDER_STREAM}};
    OK(hip.hipMemcpy3DBatchAsync(2, ops, nullptr, 0, nullptr));
    OK(hip.hipStreamSynchronize(nullptr));
    for (int z = 0; z < D; z++)
        for (int y = 0; y < H; y++)
            assert_memory_equal(to + (z * H + y) * W, from + (z * LAYER + y) * ROW, W * 4);
    size_t failed = 0;
    ops[1].extent.width = W + 1; // not in the array
    assert_int_equal(hip.hipMemcpy3DBatchAsync(2, ops, &failed, 0, nullptr), hipErrorInvalidValue);
    assert_int_equal(failed, 1);
    ops[0].src.ptr.rowLength = W - 1;
    assert_int_equal(hip.hipMemcpy3DBatchAsync(2, ops, &failed, 0, nullptr), hipErrorInvalidValue);
    assert_int_equal(failed, 0);
    ops[0].src.type = 3;
    assert_int_equal(hip.hipMemcpy3DBatchAsync(1, ops, &failed, 0, nullptr), hipErrorInvalidValue);
    ops[0].dst.array.array = (hipArray_t)from;
    assert_int_equal(hip.hipMemcpy3DBatchAsync(1, ops, &failed, 0, nullptr), hipErrorInvalidHandle);
    assert_int_equal(hip.hipMemcpy3DBatchAsync(1, ops, &failed, 1, nullptr), hipErrorInvalidValue);
    assert_int_equal(failed, SIZE_MAX);
    assert_int_equal(hip.hipMemcpy3DBatchAsync(0, ops, &failed, 0, nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy3DBatchAsync(1, nullptr, nullptr, 0, nullptr),
                     hipErrorInvalidValue);
    OK(hip.hipFreeArray(array));
}

/** Without an array, elements are bytes. */
static void test_memory_volumes(void **state) {
    (void)state;
    uint8_t from[LAYER * ROW], got[H * W];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)random_bits();
    uint8_t *d = device_alloc(H * W, nullptr);
    hipMemcpy3DBatchOp op = {.src = {.type = 1, .ptr = {from, ROW, LAYER, {}}},
                             .dst = {.type = 1, .ptr = {d, W, H, {}}},
                             .extent = {W, H, 1},
                             .srcAccessOrder = ORDER_ANY};
    OK(hip.hipMemcpy3DBatchAsync(1, &op, nullptr, 0, nullptr));
    take(got, d, sizeof got);
    for (int y = 0; y < H; y++)
        assert_memory_equal(got + y * W, from + y * ROW, W);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_copies, start),
        cmocka_unit_test_setup(test_order, start),
        cmocka_unit_test_setup(test_refused, start),
        cmocka_unit_test_setup(test_volumes, start),
        cmocka_unit_test_setup(test_memory_volumes, start),
    };
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
