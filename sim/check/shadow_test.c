// SPDX-License-Identifier: Apache-2.0
// The checker's own memory is bounded, however many workgroups a launch has and however much memory
// they touch.
#include "../exec/exec_testing.h"
#include "check.h"
#include "hooks.h"

#include <sys/resource.h>

// A sanitizer keeps memory of its own beside all that is touched.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool is_measured = false;
#else
constexpr bool is_measured = true;
#endif

enum { GROUPS = 1 << 14, STRIDE_SHIFT = 12, MIB = 1 << 20 };

/** Each lane of a launch reads a page of its own, and all add to a counter behind these. */
static const char source[] = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"
                             "s_load_dwordx2 s[6:7], s[0:1], 0x8\n"
                             "v_lshl_add_u32 v2, s2, 6, v0\n"
                             "v_mov_b32 v3, 0\n"
                             "v_lshlrev_b64 v[2:3], 12, v[2:3]\n"
                             "s_waitcnt lgkmcnt(0)\n"
                             "v_lshl_add_u64 v[2:3], v[2:3], 0, s[4:5]\n"
                             "global_load_dword v4, v[2:3], off\n"
                             "v_mov_b32 v5, 0\n"
                             "v_mov_b32 v6, 1\n"
                             "global_atomic_add v5, v6, s[6:7]\n"
                             "s_waitcnt vmcnt(0)\n"
                             "s_endpgm\n";

/** Runs so many workgroups under all checks. Returns the counter. */
static uint32_t run(const uint8_t *code, size_t size, uint32_t groups) {
    sim_memory *memory = sim_memory_create();
    const sim_region *kernarg = sim_memory_alloc(memory, 64, SIM_REGION_KERNARG, 0);
    const sim_region *data =
        sim_memory_alloc(memory, (uint64_t)groups * 64 << STRIDE_SHIFT, SIM_REGION_DEVICE, 0);
    const sim_region *counter = sim_memory_alloc(memory, 4, SIM_REGION_DEVICE, 0);
    assert_true(kernarg && data && counter);
    memcpy(kernarg->host, (uint64_t[]){data->base, counter->base}, 16);
    enum { KERNARG = 8, TWO_USERS = 2 << 1, GROUP_ID = 1 << 7 };
    sim_kernel kernel = {.name = (char *)(uintptr_t)"program",
                         .entry = 0x10000,
                         .rsrc1 = 63,
                         .rsrc2 = TWO_USERS | GROUP_ID,
                         .rsrc3 = 15,
                         .properties = KERNARG};
    sim_text text = {.chip = sim_chip_by_name("gfx942"),
                     .bytes = code,
                     .start = kernel.entry,
                     .size = size,
                     .slots = calloc(size / 4 + 1, sizeof(void *))};
    sim_dispatch d = {.chip = text.chip,
                      .memory = memory,
                      .kernel = &kernel,
                      .text = &text,
                      .grid = {groups, 1, 1},
                      .block = {64, 1, 1},
                      .kernarg = kernarg->base,
                      .check = SIM_CHECK_ALL};
    if (!sim_dispatch_run(&d))
        fail_msg("%s", sim_faults_text(&d));
    uint32_t count;
    memcpy(&count, counter->host, 4);
    sim_faults_deinit(&d.faults);
    sim_text_deinit(&text);
    sim_memory_destroy(memory);
    return count;
}

/** Returns the most memory that the process has had so far. */
static long peak_mib(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss / 1024;
}

/** 4 GiB in a million lines fill the table of races; twice as many take no more. */
static void test_huge_launch(void **) {
    size_t size;
    uint8_t *code = assemble("gfx942", source, &size);
    const long before = peak_mib();
    assert_int_equal(run(code, size, GROUPS), GROUPS * 64);
    const long full = peak_mib();
    assert_int_equal(run(code, size, 2 * GROUPS), 2 * GROUPS * 64);
    const long twice = peak_mib();
    print_message("%ld MiB, then %ld MiB more\n", full - before, twice - full);
    if (is_measured) {
        assert_in_range(full - before, 100, 200);
        assert_in_range(twice - full, 0, 8);
    }
    free(code);
}

/** The memory beside a workgroup is bounded by the most that a chip has. */
static void test_workgroup(void **) {
    enum { MAX_WAVES = 32, MAX_LDS = 160 << 10 };
    assert_in_range(sim_check_bytes(SIM_CHECK_ALL, MAX_WAVES, MAX_LDS), 1 * MIB, 16 * MIB);
    assert_int_equal(sim_check_bytes(SIM_CHECK_BOUNDS, MAX_WAVES, MAX_LDS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_huge_launch),
                                       cmocka_unit_test(test_workgroup)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
