// SPDX-License-Identifier: Apache-2.0
// The guest's address space: which addresses are inside, which are outside, and what reports say of
// them.
#include "memory.h"
#include "wave.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(sim_memory *m, uint64_t addr, uint64_t bytes, const char *want) {
    char text[256];
    assert_null(sim_memory_host(m, addr, bytes));
    sim_region near;
    sim_memory_nearest(m, addr, &near);
    sim_region_describe(&near, addr, bytes, text, sizeof text);
    if (strncmp(text, want, strlen(want)) != 0)
        fail_msg("0x%llx: '%s', expected '%s'", (unsigned long long)addr, text, want);
}

static void test_bounds(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 255, 256, 4096, 65535, 65536, 65537, 10000000};
    sim_memory *m = sim_memory_create();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t n = sizes[i];
        const sim_region *r = sim_memory_alloc(m, n, SIM_REGION_DEVICE, 0);
        assert_non_null(r);
        assert_int_equal(r->base % 256, 0);
        assert_true(sim_memory_is_guest(r->base));
        uint8_t *host = sim_memory_host(m, r->base, n);
        assert_non_null(host);
        assert_true((uintptr_t)host != r->base);
        assert_int_equal(host[0] | host[n - 1], 0);
        memset(host, 0xAB, n);
        assert_ptr_equal(sim_memory_host(m, r->base + n - 1, 1), host + n - 1);
        assert_non_null(sim_memory_find(m, r->base + n - 1));
        assert_null(sim_memory_find(m, r->base + n));
        assert_null(sim_memory_host(m, r->base, n + 1));
        assert_null(sim_memory_host(m, r->base + n, 1));
        assert_null(sim_memory_host(m, r->base - 1, 1));
        assert_null(sim_memory_host(m, r->base + 1, UINT64_MAX)); // wraps
    }
    sim_memory_destroy(m);
}

static void test_no_address_is_ever_mapped_by_chance(void **state) {
    (void)state;
    sim_memory *m = sim_memory_create();
    sim_memory_alloc(m, 1 << 20, SIM_REGION_DEVICE, 0);
    static const uint64_t wild[] = {0,
                                    1,
                                    0xFFFF,
                                    UINT64_C(1) << 32,
                                    (UINT64_C(1) << 47) - 1,
                                    UINT64_C(1) << 47,
                                    SIM_SHARED_APERTURE,
                                    SIM_PRIVATE_APERTURE,
                                    UINT64_MAX};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++)
        expect(m, wild[i], 1, "no allocation is near");
    expect(m, (uintptr_t)&wild, 4, "no allocation is near");
    sim_memory_destroy(m);
}

static void test_reports(void **state) {
    (void)state;
    sim_memory *m = sim_memory_create();
    const sim_region *r = sim_memory_alloc(m, 4096, SIM_REGION_DEVICE, 0);
    const uint64_t base = r->base;
    expect(m, base + 4096 + 12, 4, "12 bytes past the end of a 4096-byte allocation at 0x");
    expect(m, base + 4094, 4, "the last 2 of its bytes are past the end of a 4096-byte allocation");
    expect(m, base - 8, 4, "8 bytes before a 4096-byte allocation");
    const sim_region *code = sim_memory_alloc(m, 100, SIM_REGION_CODE, 0);
    expect(m, code->base + 100, 1, "0 bytes past the end of a 100-byte code object");
    assert_true(sim_memory_free(m, base));
    expect(m, base + 40, 4, "40 bytes into a 4096-byte allocation at 0x");
    expect(m, base + 5000, 4, "904 bytes past the end of a 4096-byte freed allocation");
    sim_memory_destroy(m);
}

static void test_freed(void **state) {
    (void)state;
    sim_memory *m = sim_memory_create();
    const sim_region *r = sim_memory_alloc(m, 1000, SIM_REGION_DEVICE, 3);
    const uint64_t base = r->base;
    assert_int_equal(sim_memory_used(m, 3), 1000);
    assert_int_equal(sim_memory_used(m, 0), 0);
    assert_false(sim_memory_free(m, base + 256));
    assert_false(sim_memory_free(m, base - 1));
    assert_false(sim_memory_free(m, 0));
    assert_true(sim_memory_free(m, base));
    assert_false(sim_memory_free(m, base));
    assert_int_equal(sim_memory_used(m, 3), 0);
    assert_null(sim_memory_alloc(m, 0, SIM_REGION_DEVICE, 0));
    assert_null(sim_memory_alloc(m, UINT64_MAX, SIM_REGION_DEVICE, 0));
    // Addresses are not given out again soon, and the list of freed allocations does not grow for
    // ever.
    for (int i = 0; i < 200000; i++) {
        r = sim_memory_alloc(m, 8, SIM_REGION_DEVICE, 0);
        assert_true(r->base != base);
        assert_true(sim_memory_free(m, r->base));
    }
    expect(m, base, 1, "no allocation is near");
    sim_memory_destroy(m);
}

static void test_host_memory_keeps_its_address(void **state) {
    (void)state;
    sim_memory *m = sim_memory_create();
    for (int i = 0; i < 100; i++) {
        const sim_region *a = sim_memory_alloc(m, 100, SIM_REGION_HOST, 0);
        const sim_region *b = sim_memory_alloc(m, 70000, SIM_REGION_HOST, 0);
        assert_int_equal(a->base, (uintptr_t)a->host);
        memset(a->host, 1, 100);
        memset(b->host, 2, 70000);
        assert_ptr_equal(sim_memory_host(m, a->base + 99, 1), a->host + 99);
        assert_null(sim_memory_host(m, a->base + 100, 1));
        assert_null(sim_memory_host(m, b->base + 69999, 2));
        assert_true(sim_memory_free(m, a->base));
        if (i % 3) // the host gives addresses out again; the new owner must win
            assert_true(sim_memory_free(m, b->base));
    }
    sim_memory_destroy(m);
}

static sim_memory *shared;

static void *allocate_and_free(void *unused) {
    for (int i = 0; i < 3000; i++) {
        const sim_region *r = sim_memory_alloc(shared, 1 + (uint64_t)i * 37 % 5000,
                                               i % 5 ? SIM_REGION_DEVICE : SIM_REGION_HOST, 0);
        sim_memory_enter(shared);
        uint8_t *host = sim_memory_host(shared, r->base, r->bytes);
        assert_non_null(host);
        memset(host, i, r->bytes);
        sim_memory_leave(shared);
        assert_true(sim_memory_free(shared, r->base));
    }
    return unused;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t threads[4];
    shared = sim_memory_create();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], nullptr, allocate_and_free, nullptr), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], nullptr);
    assert_int_equal(sim_memory_used(shared, 0), 0);
    sim_memory_destroy(shared);
}

/** Freeing waits for no thread, and takes no memory that a thread is using. */
static void test_freed_while_in_use(void **state) {
    (void)state;
    sim_memory *m = sim_memory_create();
    for (int kind = SIM_REGION_DEVICE; kind <= SIM_REGION_HOST; kind++) {
        const sim_region *r = sim_memory_alloc(m, 100000, (sim_region_kind)kind, 0);
        const uint64_t base = r->base;
        sim_memory_enter(m);
        uint8_t *host = sim_memory_host(m, base, 100000);
        assert_true(sim_memory_free(m, base));
        assert_false(sim_memory_free(m, base));
        assert_null(sim_memory_host(m, base, 1));
        assert_true(sim_memory_was_freed(m, base));
        memset(host, 1, 100000); // still there
        assert_ptr_equal(r->host, host);
        sim_memory_leave(m);
        assert_null(r->host);
    }
    const sim_region *large = sim_memory_alloc(m, 2 << 20, SIM_REGION_DEVICE, 0);
    assert_int_equal(large->base % (2 << 20), 0);
    sim_memory_destroy(m);
}

// ---- which bytes have been written

enum { TRACKED = 700, STEPS = 4000 };

/** A pair of allocations, and the bytes that should be known as written. */
typedef struct tracked {
    const sim_region *region;
    bool is_written[TRACKED];
} tracked;

static uint32_t next_random(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % limit;
}

static void expect_written(const tracked *t, uint64_t offset, uint64_t bytes) {
    uint64_t want = 0;
    for (uint64_t i = offset; i < offset + bytes; i++)
        want += t->is_written[i];
    assert_int_equal(sim_region_num_written(t->region, offset, bytes), want);
}

/** Writes and copies any bytes, and keeps a list of them to compare. */
static void test_written(void **) {
    sim_memory *m = sim_memory_create();
    sim_memory_note_writes(m, true);
    tracked t[2] = {};
    uint32_t seed = 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2 && step % 100 == 0; i++) // they would soon be written whole
            t[i] = (tracked){.region = sim_memory_alloc(m, TRACKED, SIM_REGION_DEVICE, 0)};
        tracked *to = &t[next_random(&seed, 2)], *from = &t[next_random(&seed, 2)];
        const uint32_t bytes = 1 + next_random(&seed, 200),
                       at = next_random(&seed, TRACKED - bytes),
                       source = next_random(&seed, TRACKED - bytes);
        if (next_random(&seed, 4)) {
            sim_memory_copied(m, to->region->base + at, from->region->base + source, bytes);
            memmove(to->is_written + at, from->is_written + source, bytes);
        } else {
            sim_memory_wrote(m, to->region->base + at, bytes);
            memset(to->is_written + at, true, bytes);
        }
        expect_written(to, at, bytes);
        expect_written(to, 0, TRACKED);
    }
    sim_memory_destroy(m);
}

/** All memory counts as written where writes are not noted, and outside device memory. */
static void test_not_noted(void **) {
    sim_memory *m = sim_memory_create();
    const sim_region *before = sim_memory_alloc(m, 100, SIM_REGION_DEVICE, 0);
    sim_memory_note_writes(m, true);
    const sim_region *during = sim_memory_alloc(m, 100, SIM_REGION_DEVICE, 0);
    const sim_region *host = sim_memory_alloc(m, 100, SIM_REGION_HOST, 0);
    assert_true(sim_region_is_written(before) && sim_region_is_written(host));
    assert_int_equal(sim_region_num_written(during, 0, 100), 0);
    uint32_t own = 0;
    sim_memory_copied(m, during->base, (uintptr_t)&own, sizeof own);
    sim_memory_copied(m, during->base + 4, before->base, 4);
    assert_int_equal(sim_region_num_written(during, 0, 100), 8);
    assert_int_equal(sim_region_num_written(during, 90, 20), 20); // nothing is known behind the end
    assert_false(sim_region_is_written(during));
    sim_memory_note_writes(m, false);
    assert_true(sim_region_is_written(during));
    sim_memory_note_writes(m, true);
    assert_true(sim_region_is_written(during));
    sim_memory_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_while_in_use),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_no_address_is_ever_mapped_by_chance),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_freed),
        cmocka_unit_test(test_host_memory_keeps_its_address),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_not_noted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
