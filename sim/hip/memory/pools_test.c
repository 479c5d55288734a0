// SPDX-License-Identifier: Apache-2.0
// Memory that streams free and pools hand out again.
#include "../hip_testing.h"

enum { BYTES = 1 << 20, FOLLOW_EVENTS = 1, OPPORTUNISTIC = 2, THRESHOLD = 4 };
enum { RESERVED = 5, RESERVED_HIGH = 6, USED = 7 };

static hipStream_t a, b; // neither waits for the other
static hipMemPool_t pool;
static int go;

static void wait_for_go(void *data) {
    (void)data;
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        ;
}

static int set_up(void **state) {
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    start(state);
    OK(hip.quernsim_configure("check=none")); // else what is freed goes at once
    OK(hip.hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
    OK(hip.hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    OK(hip.hipMemPoolCreate(&pool, &props));
    go = 0;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipStreamDestroy(a));
    OK(hip.hipStreamDestroy(b));
    OK(hip.hipMemPoolDestroy(pool));
    return 0;
}

static uint64_t word(int attribute) {
    uint64_t value;
    OK(hip.hipMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void set(int attribute, int value) {
    OK(hip.hipMemPoolSetAttribute(pool, attribute, &value));
}

static void *take_from(hipStream_t stream, size_t bytes) {
    void *p;
    OK(hip.hipMallocFromPoolAsync(&p, bytes, pool, stream));
    return p;
}

/** Allocates on stream a, which then does not come to the end of the memory before `go` is set. */
static void *freed_behind_wait(void) {
    void *p = take_from(a, BYTES);
    OK(hip.hipLaunchHostFunc(a, wait_for_go, nullptr));
    OK(hip.hipMemsetAsync(p, 1, BYTES, a));
    OK(hip.hipFreeAsync(p, a));
    return p;
}

static void finish(void *p, hipStream_t stream) {
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipFreeAsync(p, stream));
    OK(hip.hipStreamSynchronize(a));
    OK(hip.hipStreamSynchronize(b));
    assert_int_equal(word(RESERVED), 0);
}

static void test_same_stream(void **state) {
    (void)state;
    void *first = freed_behind_wait();
    assert_int_equal(word(USED), 0);
    assert_int_equal(word(RESERVED), BYTES);
    assert_int_equal(hip.hipFreeAsync(first, a), hipErrorInvalidValue); // twice
    assert_int_equal(hip.hipFree(first), hipErrorInvalidValue);
    void *other = take_from(a, BYTES - 1); // of another size
    assert_ptr_not_equal(other, first);
    void *again = take_from(a, BYTES);
    assert_ptr_equal(again, first);
    uint8_t got = 0;
    OK(hip.hipMemsetAsync(again, 2, BYTES, a));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipStreamSynchronize(a)); // the first end of the memory does not end it now
    OK(hip.hipMemcpy(&got, (char *)again + BYTES - 1, 1, hipMemcpyDeviceToHost));
    assert_int_equal(got, 2);
    OK(hip.hipFreeAsync(other, a));
    finish(again, a);
    assert_int_equal(hip.hipMemcpy(&got, again, 1, hipMemcpyDeviceToHost), hipErrorInvalidValue);
    assert_int_equal(word(RESERVED_HIGH), 2 * BYTES - 1);
}

static void test_other_stream(void **state) {
    (void)state;
    hipEvent_t event;
    void *first = freed_behind_wait(), *p;
    OK(hip.hipEventCreate(&event));
    assert_ptr_not_equal(p = take_from(b, BYTES), first); // is not behind it
    OK(hip.hipEventRecord(event, a));
    OK(hip.hipStreamWaitEvent(b, event, 0));
    set(FOLLOW_EVENTS, 0);
    void *q = take_from(b, BYTES);
    assert_ptr_not_equal(q, first);
    set(FOLLOW_EVENTS, 1);
    void *again = take_from(b, BYTES);
    assert_ptr_equal(again, first);
    OK(hip.hipFreeAsync(p, b));
    OK(hip.hipFreeAsync(q, b));
    finish(again, b);
    OK(hip.hipEventDestroy(event));
}

/** An event that was recorded before the memory was freed says nothing. */
static void test_early_event(void **state) {
    (void)state;
    hipEvent_t event;
    void *first = take_from(a, BYTES);
    OK(hip.hipEventCreate(&event));
    OK(hip.hipLaunchHostFunc(a, wait_for_go, nullptr));
    OK(hip.hipEventRecord(event, a));
    OK(hip.hipFreeAsync(first, a));
    OK(hip.hipStreamWaitEvent(b, event, 0));
    void *p = take_from(b, BYTES);
    assert_ptr_not_equal(p, first);
    finish(p, b);
    OK(hip.hipEventDestroy(event));
}

static void test_opportunity(void **state) {
    (void)state;
    void *first = freed_behind_wait();
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    while (hip.hipStreamQuery(a) == hipErrorNotReady)
        ;
    set(OPPORTUNISTIC, 0);
    void *p = take_from(b, BYTES);
    assert_ptr_not_equal(p, first);
    set(OPPORTUNISTIC, 1);
    void *again = take_from(b, BYTES);
    assert_ptr_equal(again, first);
    OK(hip.hipFreeAsync(p, b));
    finish(again, b);
}

static void test_threshold(void **state) {
    (void)state;
    uint64_t threshold = 2 * BYTES;
    void *all[4];
    OK(hip.hipMemPoolSetAttribute(pool, THRESHOLD, &threshold));
    for (int i = 0; i < 4; i++)
        all[i] = take_from(a, BYTES);
    OK(hip.hipLaunchHostFunc(a, wait_for_go, nullptr));
    for (int i = 1; i < 4; i++)
        OK(hip.hipFreeAsync(all[i], a));
    OK(hip.hipMemPoolTrimTo(pool, 0)); // none is at its end yet
    assert_int_equal(word(RESERVED), 4 * BYTES);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipStreamSynchronize(a));
    assert_int_equal(word(RESERVED), 2 * BYTES);
    assert_int_equal(word(USED), BYTES);
    OK(hip.hipMemPoolTrimTo(pool, BYTES + 1));
    assert_int_equal(word(RESERVED), BYTES);
    OK(hip.hipFreeAsync(all[0], a));
    OK(hip.hipDeviceSynchronize());
    assert_int_equal(word(RESERVED), BYTES);
    OK(hip.hipMemPoolTrimTo(pool, 0));
    assert_int_equal(word(RESERVED), 0);
}

/** A pool that is destroyed goes with its memory's last use. */
static void test_destroyed(void **state) {
    (void)state;
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    hipMemPool_t other;
    size_t before, after, all;
    OK(hip.hipMemGetInfo(&before, &all));
    void *p;
    OK(hip.hipMemPoolCreate(&other, &props));
    OK(hip.hipMallocFromPoolAsync(&p, BYTES, other, a));
    OK(hip.hipLaunchHostFunc(a, wait_for_go, nullptr));
    OK(hip.hipFreeAsync(p, a));
    OK(hip.hipMemPoolDestroy(other));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(hip.hipStreamSynchronize(a));
    OK(hip.hipMemGetInfo(&after, &all));
    assert_int_equal(after, before);
}

/** Under checks memory goes where the stream frees it. */
static void test_checked(void **state) {
    (void)state;
    OK(hip.quernsim_configure("check=all"));
    void *first = freed_behind_wait(), *again = take_from(a, BYTES);
    assert_ptr_not_equal(again, first);
    finish(again, a);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_same_stream), TEST(test_other_stream), TEST(test_early_event),
        TEST(test_opportunity), TEST(test_threshold),    TEST(test_destroyed),
        TEST(test_checked),
    };
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
