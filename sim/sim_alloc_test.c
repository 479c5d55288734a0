// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the simulator: the n-th allocation fails, for every n, alone or with all
// later ones. An object must load or say why not, a launch must end or have a fault; no failure may
// count as success, and nothing may leak.
#include "../tests/failing_malloc.h"
#include "chip/chip.h"
#include "clock/clock.h"
#include "memory.h"
#include "object/object.h"
#include "options.h"
#include "pool.h"
#include "report/fault.h"
#include "wave.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if IS_MALLOC_TAKEN

int main(void) {
    return 77; // the sanitizer has replaced malloc already
}

#else

// ---- what needs memory

static uint8_t *image;
static size_t image_bytes;

/** The result of a run. */
typedef enum outcome { DONE, REFUSED, FAULTY } outcome;

/** Runs a launch under a clock of its own, if it is to be timed. */
static bool dispatch(sim_dispatch *d, bool is_timed) {
    sim_clock clock;
    if (!is_timed)
        return sim_dispatch_run(d);
    sim_clock_init(&clock);
    d->clock = &clock;
    d->clock_mode = SIM_CLOCK_FULL;
    const bool ok = sim_dispatch_run(d);
    static uint64_t usual; // the time of the first launch, in which no allocation fails
    usual = usual ? usual : clock.ns;
    assert_true(!ok || (clock.ns && clock.ns == usual));
    sim_clock_deinit(&clock);
    return ok;
}

/** Launches a kernel that sums the 1024 bytes that it reads, of which only `bytes` exist. */
static outcome launch(sim_memory *memory, sim_object *object, uint64_t bytes, bool is_timed) {
    const sim_kernel *kernel = sim_object_kernel(object, "t_reduce");
    const sim_region *data = sim_memory_alloc(memory, bytes, SIM_REGION_DEVICE, 0);
    const sim_region *args = sim_memory_alloc(memory, 4096, SIM_REGION_KERNARG, 0);
    if (!data || !args)
        return REFUSED;
    uint64_t pointers[] = {data->base, data->base};
    memcpy(args->host, pointers, sizeof pointers);
    sim_dispatch d = {.chip = sim_chip_by_name("gfx942"),
                      .memory = memory,
                      .kernel = kernel,
                      .object = object,
                      .text = sim_object_text(object),
                      .grid = {1, 1, 1},
                      .block = {256, 1, 1},
                      .lds_bytes = kernel->lds_bytes,
                      .kernarg = args->base,
                      .check = SIM_CHECK_ALL};
    const bool ok = dispatch(&d, is_timed);
    const bool has_fault = d.faults.count || d.faults.are_lost;
    free(sim_faults_text(&d));
    free(sim_faults_json(&d));
    sim_faults_deinit(&d.faults);
    assert_true(ok != has_fault); // never neither done nor at fault
    return ok ? DONE : FAULTY;
}

/** Runs everything, from an empty address space to the space's end. */
static outcome run(uint64_t bytes, bool is_timed) {
    outcome result = REFUSED;
    char why[256] = "";
    sim_object *object = nullptr;
    sim_memory *memory = sim_memory_create();
    if (memory) {
        sim_object_status status = sim_object_load(&object, memory, sim_chip_by_name("gfx942"), 0,
                                                   image, image_bytes, why, sizeof why);
        assert_true(status == SIM_OBJECT_OK || *why);
        result = status == SIM_OBJECT_OK ? launch(memory, object, bytes, is_timed) : REFUSED;
        sim_object_unload(object);
        sim_memory_destroy(memory);
    }
    sim_pool_shutdown();
    return result;
}

/** Fails the first allocation of a run, its second, … until it needs no more than were granted. */
static void fail_each(uint64_t bytes, outcome wanted, bool is_timed, bool all_after) {
    for_good = all_after;
    assert_int_equal(run(bytes, is_timed), wanted); // makes what a process makes once
    bool has_failed = true;
    int64_t n = 0;
    for (; has_failed; n++) {
        num_alive = 0;
        left = n;
        is_counting = true;
        outcome result = run(bytes, is_timed);
        is_counting = false;
        has_failed = left < 0;
        if (wanted == FAULTY ? result == DONE : !has_failed && result != DONE)
            fail_msg("allocation %ld failed: outcome %d", (long)n, result);
        if (num_alive)
            fail_msg("allocation %ld failed and %ld blocks leaked", (long)n, (long)num_alive);
    }
    print_message("%ld allocations\n", (long)n - 1);
    assert_true(n > 50);
}

static void test_good_kernel(void **) {
    fail_each(1024, DONE, false, false);
    fail_each(1024, DONE, false, true);
}

/** Either the time is what it always is, or the launch fails. */
static void test_timed_kernel(void **) {
    fail_each(1024, DONE, true, false);
    fail_each(1024, DONE, true, true);
}

/** A kernel's fault is not lost: without memory to record it the launch still fails. */
static void test_faulty_kernel(void **) {
    fail_each(1000, FAULTY, false, false);
    fail_each(1000, FAULTY, false, true);
}

static int read_image(void **) {
    char path[4096];
    const char *dir = getenv("QUERN_BUILD_DIR");
    snprintf(path, sizeof path, "%s/testdata/kernels.O1.co", dir ? dir : ".");
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    image = malloc(1 << 20);
    image_bytes = fread(image, 1, 1 << 20, file);
    fclose(file);
    sim_pool_configure(1);
    return image_bytes ? 0 : -1;
}

static int free_image(void **) {
    free(image);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good_kernel),
                                       cmocka_unit_test(test_timed_kernel),
                                       cmocka_unit_test(test_faulty_kernel)};
    return cmocka_run_group_tests(tests, read_image, free_image);
}

#endif
