// SPDX-License-Identifier: Apache-2.0
// Memory in three dimensions, arrays, pools, contexts, wrong handles.
#include "../hip_testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { W = 37, H = 5, D = 4, VOLUME = W * H * D };

static void fill_random(uint8_t *to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)random_bits();
}

/** Returns where a byte of a pitched volume lies. */
static uint8_t *at(uint8_t *base, size_t pitch, size_t rows, size_t x, size_t y, size_t z) {
    return base + (z * rows + y) * pitch + x;
}

// ---- volumes

static void test_copies(void **state) {
    (void)state;
    uint8_t host[VOLUME], got[VOLUME], want[VOLUME];
    const hipExtent all = {W, H, D}, part = {9, 3, 2};
    hipPitchedPtr d;
    fill_random(host, VOLUME);
    OK(hip.hipMalloc3D(&d, all));
    assert_true(d.pitch >= W && d.xsize == W && d.ysize == H);
    OK(hip.hipMemset3D(d, 0x1A5, all)); // the value is a byte
    hipMemcpy3DParms in = {.srcPtr = {host, W, W, H},
                           .srcPos = {4, 1, 1},
                           .dstPtr = d,
                           .dstPos = {20, 2, 2},
                           .extent = part,
                           .kind = hipMemcpyHostToDevice};
    OK(hip.hipMemcpy3D(&in));
    hipMemcpy3DParms out = {
        .srcPtr = d, .dstPtr = {got, W, W, H}, .extent = all, .kind = hipMemcpyDeviceToHost};
    OK(hip.hipMemcpy3DAsync(&out, nullptr));
    OK(hip.hipStreamSynchronize(nullptr));
    memset(want, 0xA5, VOLUME);
    for (size_t z = 0; z < 2; z++)
        for (size_t y = 0; y < 3; y++)
            memcpy(at(want, W, H, 20, y + 2, z + 2), at(host, W, H, 4, y + 1, z + 1), 9);
    assert_memory_equal(got, want, VOLUME);
    in.dstPos.z = D; // behind the end
    assert_int_equal(hip.hipMemcpy3D(&in), hipErrorInvalidValue);
    in.dstPos.z = 0;
    in.kind = hipMemcpyDeviceToDevice; // the source is the host's
    assert_int_equal(hip.hipMemcpy3D(&in), hipErrorInvalidValue);
    in.srcPtr.pitch = 8;
    assert_int_equal(hip.hipMemcpy3D(&in), hipErrorInvalidPitchValue);
    in.srcPtr.ptr = nullptr;
    assert_int_equal(hip.hipMemcpy3D(&in), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy3D(nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemset3D(d, 0, (hipExtent){W, H, D + 1}), hipErrorInvalidValue);
    OK(hip.hipMemset3D(d, 0, (hipExtent){W, 0, D}));
    OK(hip.hipFree(d.ptr));
}

static void test_driver_copies(void **state) {
    (void)state;
    uint8_t host[VOLUME], got[VOLUME];
    fill_random(host, VOLUME);
    uint8_t *d = device_alloc(VOLUME, nullptr);
    HIP_MEMCPY3D copy = {.srcMemoryType = hipMemoryTypeHost,
                         .srcHost = host,
                         .dstMemoryType = hipMemoryTypeDevice,
                         .dstDevice = d,
                         .WidthInBytes = W,
                         .Height = H,
                         .Depth = D}; // pitches of 0: rows lie close
    OK(hip.hipDrvMemcpy3D(&copy));
    OK(hip.hipMemcpy(got, d, VOLUME, hipMemcpyDeviceToHost));
    assert_memory_equal(got, host, VOLUME);
    copy.Depth = D + 1;
    assert_int_equal(hip.hipDrvMemcpy3D(&copy), hipErrorInvalidValue);
    copy.dstMemoryType = hipMemoryTypeArray;
    assert_int_equal(hip.hipDrvMemcpy3DAsync(&copy, nullptr), hipErrorInvalidValue);
    OK(hip.hipFree(d));
}

// ---- arrays

static void test_arrays(void **state) {
    (void)state;
    const hipChannelFormatDesc floats = hip.hipCreateChannelDesc(32, 32, 0, 0, 2);
    uint64_t host[H][W], got[H][W];
    hipArray_t array, wrong;
    fill_random((uint8_t *)host, sizeof host);
    OK(hip.hipMallocArray(&array, &floats, W, H, 0));
    OK(hip.hipMemcpy2DToArray(array, 0, 0, host, W * 8, W * 8, H, hipMemcpyHostToDevice));
    memset(got, 0, sizeof got);
    OK(hip.hipMemcpy2DFromArray(&got[1][2], W * 8, array, 3 * 8, 2, 10 * 8, 3,
                                hipMemcpyDeviceToHost));
    for (int y = 0; y < 3; y++)
        assert_memory_equal(&got[y + 1][2], &host[y + 2][3], 10 * 8);
    assert_int_equal(got[0][2] | got[1][1] | got[1][12], 0);
    for (int own = 0; own < 2; own++) { // bytes that go on in the next row
        memset(got, 0, sizeof got);
        OK((own ? hip.hipMemcpyFromArray_spt
                : hip.hipMemcpyFromArray)(got, array, 8, 1, (W - 1) * 8, hipMemcpyDeviceToHost));
        assert_memory_equal(got, &host[1][1], (W - 1) * 8);
        assert_int_equal(got[0][W - 1], 0);
        assert_int_equal((own ? hip.hipMemcpyFromArray_spt : hip.hipMemcpyFromArray)(
                             nullptr, array, 8, 1, 8, hipMemcpyDeviceToHost),
                         hipErrorInvalidValue);
    }
    assert_int_equal(
        hip.hipMemcpy2DFromArray(got, W * 8, array, 8, 0, W * 8, 1, hipMemcpyDeviceToHost),
        hipErrorInvalidValue); // past the row's end
    hipMemcpy3DParms copy = {.srcArray = array,
                             .srcPos = {1, 0, 0}, // elements
                             .dstPtr = {got, W * 8, W, H},
                             .extent = {W - 1, H, 1},
                             .kind = hipMemcpyDeviceToHost};
    OK(hip.hipMemcpy3D(&copy));
    for (int y = 0; y < H; y++)
        assert_memory_equal(got[y], &host[y][1], (W - 1) * 8);
    hipChannelFormatDesc desc;
    hipExtent extent;
    unsigned flags;
    OK(hip.hipArrayGetInfo(&desc, &extent, &flags, array));
    assert_memory_equal(&desc, &floats, sizeof desc);
    assert_true(extent.width == W && extent.height == H && extent.depth == 0 && flags == 0);
    const hipChannelFormatDesc odd = {24, 0, 0, 0, 1}, three = {8, 8, 8, 0, 1};
    assert_int_equal(hip.hipMallocArray(&wrong, &odd, W, H, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipMallocArray(&wrong, &three, W, H, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipMallocArray(&wrong, &floats, 0, H, 0), hipErrorInvalidValue);
    OK(hip.hipFreeArray(array));
    assert_int_equal(hip.hipFreeArray(array), hipErrorContextIsDestroyed);
    assert_int_equal(hip.hipArrayGetInfo(&desc, &extent, &flags, array), hipErrorInvalidHandle);
    assert_int_equal(hip.hipMemcpy3D(&copy), hipErrorInvalidHandle);
    assert_int_equal(hip.hipFreeArray(nullptr), hipErrorInvalidValue);
}

// ---- pools

static uint64_t pool_word(hipMemPool_t pool, int attribute) {
    uint64_t value = UINT64_MAX;
    OK(hip.hipMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void test_pools(void **state) {
    (void)state;
    enum { THRESHOLD = 4, USED = 7, USED_HIGH = 8 };
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}, .maxSize = 10000};
    hipMemPool_t pool, first, now;
    void *a, *b, *c;
    OK(hip.hipMemPoolCreate(&pool, &props));
    OK(hip.hipDeviceGetDefaultMemPool(&first, 0));
    OK(hip.hipDeviceSetMemPool(0, pool));
    OK(hip.hipDeviceGetMemPool(&now, 0));
    assert_ptr_equal(now, pool);
    const uint64_t before = pool_word(first, USED);
    OK(hip.hipMallocAsync(&a, 6000, nullptr));
    OK(hip.hipMallocFromPoolAsync(&b, 4000, pool, nullptr));
    assert_int_equal(hip.hipMallocAsync(&c, 1, nullptr), hipErrorOutOfMemory);
    assert_int_equal(pool_word(pool, USED), 10000);
    OK(hip.hipFreeAsync(a, nullptr));
    OK(hip.hipStreamSynchronize(nullptr));
    assert_int_equal(hip.hipFreeAsync(a, nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipFreeAsync(nullptr, nullptr), hipErrorInvalidValue);
    assert_int_equal(pool_word(pool, USED), 4000);
    assert_int_equal(pool_word(pool, USED_HIGH), 10000);
    uint64_t word = 1;
    assert_int_equal(hip.hipMemPoolSetAttribute(pool, USED_HIGH, &word), hipErrorInvalidValue);
    word = 0;
    OK(hip.hipMemPoolSetAttribute(pool, USED_HIGH, &word));
    assert_int_equal(pool_word(pool, USED_HIGH), 4000);
    word = 77;
    OK(hip.hipMemPoolSetAttribute(pool, THRESHOLD, &word));
    assert_int_equal(pool_word(pool, THRESHOLD), 77);
    assert_int_equal(hip.hipMemPoolGetAttribute(pool, 9, &word), hipErrorInvalidValue);
    OK(hip.hipMemPoolDestroy(pool)); // b keeps its memory
    assert_int_equal(hip.hipMemPoolDestroy(pool), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemPoolDestroy(first), hipErrorInvalidValue);
    OK(hip.hipDeviceGetMemPool(&now, 0));
    assert_ptr_equal(now, first);
    OK(hip.hipMemset(b, 1, 4000));
    OK(hip.hipFree(b));
    OK(hip.hipMallocAsync(&a, 100, nullptr));
    assert_int_equal(pool_word(first, USED), before + 100);
    OK(hip.hipFree(a));
    assert_int_equal(pool_word(first, USED), before);
    hipMemPoolProps wrong = props;
    wrong.location.id = 99;
    assert_int_equal(hip.hipMemPoolCreate(&pool, &wrong), hipErrorInvalidValue);
    wrong = props;
    wrong.handleTypes = 2; // a handle of Windows
    assert_int_equal(hip.hipMemPoolCreate(&pool, &wrong), hipErrorNotSupported);
}

// ---- contexts

static void test_contexts(void **state) {
    (void)state;
    hipCtx_t context, other;
    int device = -1, active = 0;
    unsigned version, flags;
    assert_int_equal(hip.hipCtxPopCurrent(&other), hipErrorInvalidContext);
    OK(hip.hipCtxCreate(&context, 0, 0));
    OK(hip.hipCtxGetCurrent(&other));
    assert_ptr_equal(other, context);
    OK(hip.hipCtxGetDevice(&device));
    assert_int_equal(device, 0);
    OK(hip.hipCtxGetApiVersion(context, &version));
    assert_int_equal(version, HIP_VERSION / 10000000);
    OK(hip.hipCtxPopCurrent(&other));
    assert_ptr_equal(other, context);
    OK(hip.hipCtxPushCurrent(context));
    OK(hip.hipCtxSetCurrent(nullptr));
    OK(hip.hipCtxSynchronize());
    OK(hip.hipCtxDestroy(context));
    assert_int_equal(hip.hipCtxPushCurrent((hipCtx_t)&device), hipErrorInvalidContext);
    assert_int_equal(hip.hipCtxCreate(&context, 0, 99), hipErrorInvalidValue);
    OK(hip.hipDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    assert_int_equal(hip.hipDevicePrimaryCtxRetain(&context, 99), hipErrorInvalidDevice);
}

/** Handles of nothing, or of another kind, are errors everywhere. */
static void test_wrong_handles(void **state) {
    (void)state;
    hipGraph_t graph;
    hipGraphNode_t node;
    hipGraphExec_t exec;
    size_t count = 0;
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddEmptyNode(&node, graph, nullptr, 0));
    assert_int_equal(hip.hipGraphAddEmptyNode(&node, (hipGraph_t)node, nullptr, 0),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphDestroyNode((hipGraphNode_t)graph), hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphInstantiate(&exec, (hipGraph_t)node, nullptr, nullptr, 0),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphLaunch((hipGraphExec_t)graph, nullptr), hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphGetNodes(nullptr, nullptr, &count), hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphAddKernelNode(&node, graph, nullptr, 0, nullptr),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipMemPoolDestroy((hipMemPool_t)graph), hipErrorInvalidValue);
    assert_int_equal(hip.hipFreeArray((hipArray_t)graph), hipErrorContextIsDestroyed);
    OK(hip.hipGraphGetNodes(graph, nullptr, &count));
    assert_int_equal(count, 1); // the node that was refused is not there
    OK(hip.hipGraphDestroy(graph));
    assert_int_equal(hip.hipGraphDestroy(graph), hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphDestroyNode(node), hipErrorInvalidValue);
}

/** What two threads share: they take the pools in turn, each pool at the same time. */
typedef struct rivals {
    hipMemPool_t pools[2000];
    atomic_uint ready, destroyed, refused;
} rivals;

static void *destroy_pools(void *argument) {
    rivals *r = argument;
    for (unsigned i = 0; i < sizeof r->pools / sizeof *r->pools; i++) {
        atomic_fetch_add(&r->ready, 1);
        while (atomic_load(&r->ready) < 2 * (i + 1))
            sched_yield();
        const hipError_t error = hip.hipMemPoolDestroy(r->pools[i]);
        atomic_fetch_add(error == hipSuccess ? &r->destroyed : &r->refused,
                         error == hipSuccess || error == hipErrorInvalidValue);
    }
    return nullptr;
}

/** Of two threads that destroy a pool, one gets the error. */
static void test_rivals(void **state) {
    (void)state;
    rivals r = {};
    const size_t count = sizeof r.pools / sizeof *r.pools;
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    pthread_t threads[2];
    for (size_t i = 0; i < count; i++)
        OK(hip.hipMemPoolCreate(&r.pools[i], &props));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], nullptr, destroy_pools, &r), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], nullptr);
    assert_int_equal(r.destroyed, count);
    assert_int_equal(r.refused, count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_copies, start),
        cmocka_unit_test_setup(test_driver_copies, start),
        cmocka_unit_test_setup(test_arrays, start),
        cmocka_unit_test_setup(test_pools, start),
        cmocka_unit_test_setup(test_rivals, start),
        cmocka_unit_test_setup(test_contexts, start),
        cmocka_unit_test_setup(test_wrong_handles, start),
    };
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
