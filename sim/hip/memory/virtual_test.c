// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses and their memory: kernels and copies see it where it is mapped, and nowhere
// else.
#include "../hip_testing.h"

enum { G = 1 << 16 };

static const hipMemAllocationProp shareable = {1, 1, {1, 0}, nullptr, {0, 0, 0}};
static const hipMemAllocationProp private = {1, 0, {1, 0}, nullptr, {0, 0, 0}};
static const hipMemAccessDesc both_ways = {{1, 0}, 3}, no_way = {{1, 0}, 0};

static hipMemGenericAllocationHandle_t physical(size_t bytes) {
    hipMemGenericAllocationHandle_t m;
    OK(hip.hipMemCreate(&m, bytes, &shareable, 0));
    return m;
}

static uint8_t *reserve(size_t bytes) {
    void *p;
    OK(hip.hipMemAddressReserve(&p, bytes, 0, nullptr, 0));
    return p;
}

/** Adds one to a word by a kernel. Returns the kernel's error. */
static hipError_t count_at(void *p) {
    OK(launch(kernel(modules[2], "t_count"), 1, 1, nullptr, &p, sizeof p));
    return hip.hipDeviceSynchronize();
}

static uint32_t word_at(void *p) {
    uint32_t word;
    OK(hip.hipMemcpy(&word, p, sizeof word, hipMemcpyDeviceToHost));
    return word;
}

static void test_map(void **state) {
    (void)state;
    size_t before, after, total;
    OK(hip.hipMemGetInfo(&before, &total));
    hipMemGenericAllocationHandle_t m = physical(2 * G);
    OK(hip.hipMemGetInfo(&after, &total));
    assert_int_equal(before - after, 2 * G);
    uint8_t *p = reserve(8 * G);
    OK(hip.hipMemMap(p + G, 2 * G, 0, m, 0));
    OK(hip.hipMemRelease(m)); // the mapping keeps it
    OK(hip.hipMemSetAccess(p + G, 2 * G, &both_ways, 1));
    OK(hip.hipMemset(p + G, 7, 2 * G));
    assert_int_equal(word_at(p + 2 * G), 0x07070707);
    OK(count_at(p + 3 * G - 4));
    assert_int_equal(word_at(p + 3 * G - 4), 0x07070708);
    OK(hip.hipMemUnmap(p + G, 2 * G));
    OK(hip.hipMemAddressFree(p, 8 * G));
    OK(hip.hipMemGetInfo(&after, &total));
    assert_int_equal(before, after);
}

/** Memory that has two addresses, one of them beside other memory. */
static void test_aliases(void **state) {
    (void)state;
    hipMemGenericAllocationHandle_t m = physical(G), n = physical(G), again;
    uint8_t *p = reserve(4 * G), image[2 * G];
    OK(hip.hipMemMap(p, G, 0, m, 0));
    OK(hip.hipMemMap(p + G, G, 0, n, 0));
    OK(hip.hipMemMap(p + 3 * G, G, 0, m, 0));
    OK(hip.hipMemSetAccess(p, 2 * G, &both_ways, 1));
    OK(hip.hipMemSetAccess(p + 3 * G, G, &both_ways, 1));
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)random_bits();
    OK(hip.hipMemcpy(p, image, sizeof image, hipMemcpyHostToDevice)); // over both
    OK(count_at(p + 3 * G));
    uint32_t first;
    memcpy(&first, image, sizeof first);
    assert_int_equal(word_at(p), first + 1);
    assert_int_equal(hip.hipMemcpy(p, image, sizeof image + 1, hipMemcpyHostToDevice),
                     hipErrorInvalidValue);
    OK(hip.hipMemRetainAllocationHandle(&again, p + 3 * G + 5));
    assert_ptr_equal(again, m);
    void *base;
    size_t bytes;
    OK(hip.hipMemGetAddressRange(&base, &bytes, p + G + 1));
    assert_true(base == p + G && bytes == G);
    OK(hip.hipMemRelease(m));
    OK(hip.hipMemRelease(m));
    assert_int_equal(hip.hipMemRelease(m), hipErrorInvalidValue);
    OK(hip.hipMemRelease(n));
    OK(hip.hipMemUnmap(p, 2 * G));
    assert_int_equal(word_at(p + 3 * G), first + 1);
    OK(hip.hipMemUnmap(p + 3 * G, G));
    assert_int_equal(hip.hipMemRetainAllocationHandle(&again, p), hipErrorInvalidValue);
    OK(hip.hipMemAddressFree(p, 4 * G));
}

/** A kernel that touches what has no memory, or no access, fails. */
static void expect_fault(void *p) {
    assert_int_not_equal(count_at(p), hipSuccess);
    OK(hip.hipDeviceReset());
    for (int l = 0; l < num_levels; l++)
        modules[l] = load(levels[l]);
    hip.hipGetLastError();
}

static void test_no_memory(void **state) {
    (void)state;
    unsigned long long flags;
    uint8_t *p = reserve(2 * G);
    expect_fault(p);
    hipMemGenericAllocationHandle_t m = physical(G);
    OK(hip.hipMemMap(p, G, 0, m, 0));
    expect_fault(p); // which also takes the memory away
    assert_int_equal(hip.hipMemGetAccess(&flags, &both_ways.location, p), hipErrorInvalidValue);
    m = physical(G);
    OK(hip.hipMemMap(p, G, 0, m, 0));
    OK(hip.hipMemGetAccess(&flags, &both_ways.location, p));
    assert_int_equal(flags, 0);
    OK(hip.hipMemSetAccess(p, G, &both_ways, 1));
    OK(hip.hipMemGetAccess(&flags, &both_ways.location, p));
    assert_int_equal(flags, 3);
    OK(count_at(p));
    OK(hip.hipMemSetAccess(p, G, &no_way, 1));
    assert_int_equal(hip.hipMemset(p, 0, G), hipErrorInvalidValue);
    OK(hip.hipMemSetAccess(p, G, &both_ways, 1));
    assert_int_equal(word_at(p), 1); // it was there all the time
    OK(hip.hipMemUnmap(p, G));
    OK(hip.hipMemRelease(m));
    expect_fault(p);
    OK(hip.hipMemAddressFree(p, 2 * G));
}

/** Less memory than a granule: what lies behind it is not there. */
static void test_small(void **state) {
    (void)state;
    hipMemGenericAllocationHandle_t m = physical(4096);
    uint8_t *p = reserve(4096);
    OK(hip.hipMemMap(p, 4096, 0, m, 0));
    OK(hip.hipMemSetAccess(p, 4096, &both_ways, 1));
    OK(hip.hipMemset(p, 1, 4096));
    assert_int_equal(hip.hipMemset(p, 1, 4097), hipErrorInvalidValue);
    OK(count_at(p + 4092));
    assert_int_equal(word_at(p + 4092), 0x01010102);
    expect_fault(p + 4096);
    OK(hip.hipMemAddressFree(p, 4096));
}

static void test_descriptors(void **state) {
    (void)state;
    hipMemGenericAllocationHandle_t m = physical(G), old, new, kept;
    int fd = -1;
    OK(hip.hipMemExportToShareableHandle(&fd, m, 1, 0));
    OK(hip.hipMemImportFromShareableHandle(&old, &fd, 1));                   // HIP 6
    OK(hip.hipMemImportFromShareableHandle(&new, (void *)(uintptr_t)fd, 1)); // HIP 7
    close(fd);
    uint8_t *p = reserve(2 * G);
    OK(hip.hipMemMap(p, G, 0, m, 0));
    OK(hip.hipMemMap(p + G, G, 0, new, 0));
    OK(hip.hipMemSetAccess(p, 2 * G, &both_ways, 1));
    OK(count_at(p));
    assert_int_equal(word_at(p + G), 1);
    assert_int_equal(hip.hipMemImportFromShareableHandle(&new, &fd, 1), hipErrorInvalidValue);
    fd = 0; // standard input
    assert_int_equal(hip.hipMemImportFromShareableHandle(&new, &fd, 1), hipErrorInvalidValue);
    OK(hip.hipMemCreate(&kept, G, &private, 0));
    assert_int_equal(hip.hipMemExportToShareableHandle(&fd, kept, 1, 0), hipErrorInvalidValue);
    hipMemAllocationProp prop;
    OK(hip.hipMemGetAllocationPropertiesFromHandle(&prop, m));
    assert_memory_equal(&prop, &shareable, sizeof prop);
    OK(hip.hipMemUnmap(p, 2 * G));
    OK(hip.hipMemAddressFree(p, 2 * G));
    OK(hip.hipMemRelease(kept));
    OK(hip.hipMemRelease(old));
    OK(hip.hipMemRelease(new));
    OK(hip.hipMemRelease(m));
}

#define WRONG(call) assert_int_equal((call), hipErrorInvalidValue)

static void test_arguments(void **state) {
    (void)state;
    size_t granularity;
    void *q;
    hipMemAllocationProp managed = shareable, far = shareable;
    managed.type = 2;
    far.location.id = 99;
    OK(hip.hipMemGetAllocationGranularity(&granularity, &shareable, 0));
    assert_int_equal(granularity, G);
    OK(hip.hipMemGetAllocationGranularity(&granularity, &shareable, 1));
    assert_int_equal(granularity % G, 0);
    WRONG(hip.hipMemGetAllocationGranularity(&granularity, &shareable, 2));
    WRONG(hip.hipMemGetAllocationGranularity(nullptr, &shareable, 0));
    WRONG(hip.hipMemGetAllocationGranularity(&granularity, &managed, 0));
    assert_int_equal(hip.hipMemAddressReserve(&q, G + 1, 0, nullptr, 0), hipErrorOutOfMemory);
    assert_int_equal(hip.hipMemAddressReserve(&q, G, 3, nullptr, 0), hipErrorOutOfMemory);
    WRONG(hip.hipMemAddressReserve(&q, G, 0, nullptr, 1));
    hipMemGenericAllocationHandle_t m;
    WRONG(hip.hipMemCreate(&m, G + 1, &shareable, 0));
    WRONG(hip.hipMemCreate(&m, G, &far, 0));
    WRONG(hip.hipMemCreate(&m, G, nullptr, 0));
    assert_int_equal(hip.hipMemCreate(&m, (size_t)1 << 46, &shareable, 0), hipErrorOutOfMemory);
    managed = shareable;
    managed.requestedHandleType = 2;
    assert_int_equal(hip.hipMemCreate(&m, G, &managed, 0), hipErrorNotSupported);
    m = physical(G);
    uint8_t *p = reserve(4 * G);
    WRONG(hip.hipMemMap(p, 2 * G, 0, m, 0)); // more than there is
    WRONG(hip.hipMemMap(p, G, G, m, 0));
    WRONG(hip.hipMemMap(p + 4, G, 0, m, 0));
    WRONG(hip.hipMemMap(p, 4095, 0, m, 0));
    WRONG(hip.hipMemMap(p + 4096, 4096, 0, m, 0)); // beside no granule's begin
    WRONG(hip.hipMemMap(p + 4 * G, G, 0, m, 0));
    WRONG(hip.hipMemMap(p, G, 0, (void *)p, 0));
    OK(hip.hipMemMap(p + G, G, 0, m, 0));
    WRONG(hip.hipMemMap(p + G, G, 0, m, 0));
    WRONG(hip.hipMemSetAccess(p, 2 * G, &both_ways, 1)); // one has no memory
    WRONG(hip.hipMemSetAccess(p + G, G / 2, &both_ways, 1));
    WRONG(hip.hipMemSetAccess(p + G, G, nullptr, 1));
    WRONG(hip.hipMemUnmap(p, G));
    WRONG(hip.hipMemUnmap(p + G, 2 * G));
    WRONG(hip.hipMemAddressFree(p, 4 * G)); // still in use
    OK(hip.hipMemUnmap(p + G, G));
    WRONG(hip.hipMemAddressFree(p, 2 * G));
    WRONG(hip.hipFree(p));
    OK(hip.hipMemAddressFree(p, 4 * G));
    WRONG(hip.hipMemAddressFree(p, 4 * G));
    OK(hip.hipMemRelease(m));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_map, start),
        cmocka_unit_test_setup(test_aliases, start),
        cmocka_unit_test_setup(test_no_memory, start),
        cmocka_unit_test_setup(test_descriptors, start),
        cmocka_unit_test_setup(test_small, start),
        cmocka_unit_test_setup(test_arguments, start),
    };
    setenv("QUERN_SIM", "arch=gfx942", 0);
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
