// SPDX-License-Identifier: Apache-2.0
// The checker on faulty programs as compilers make them: the pairs of kernels of testdata/faults.c
// and unwritten.c, on three chips. The faulty kernel of a pair must be found under the right check
// and with the right kind, and its repaired twin must run clean under all checks.
#include "../exec/exec_testing.h"
#include "../options.h"
#include "../pool.h"

enum { SIZE = 1024, THREADS = 128, RUNS = 3 }; // as in testdata/pair.h

/** What the faulty kernel finds in memory; from PADDED on, the repaired kernel too. */
typedef enum state {
    LIVE, // everything exists and is written
    FREE_IN,
    FREE_OUT,
    EMPTY,     // `in` was never written
    GAP,       // all of `in` is written but one word
    HALF,      // behind the first half
    COPY,      // the device copied it from memory that was never written
    PADDED,    // each fourth word of `in` was never written
    BYTES,     // of each word of `in` but the first byte
    NO_IN,     // `in` was never written
    NO_COUNTER // `shared` was never written
} state;

typedef struct pair {
    const char *name;
    uint32_t check; // that finds it
    sim_fault_kind kind;
    const char *message; // part of the report
    enum { GROUP = 1, GROUPS = 2 } groups;
    state state;
} pair;

// clang-format off
static const pair pairs[] = {
    // out of bounds, whatever is checked
    {"store_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "store of 4 bytes at", GROUP, LIVE},
    {"load_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "bytes past the end of a 4096-byte allocation", GROUP, LIVE},
    {"load_before_the_start", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "4 bytes before a 4096-byte allocation", GROUP, LIVE},
    {"store_across_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "the last 4 of its bytes are past the end of a 4096-byte allocation", GROUP, LIVE},
    {"atomic_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "0 bytes past the end", GROUP, LIVE},
    {"scalar_load_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "load of 4 bytes at", GROUP, LIVE},
    {"null_pointer", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "no allocation is near", GROUP, LIVE},
    {"buffer_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "0 bytes past the end", GROUP, LIVE},
    {"buffer_store_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_BOUNDS, "store of 4 bytes at", GROUP, LIVE},
    {"stack_store_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_SCRATCH, "scratch store of 4 bytes", GROUP, LIVE},
    {"stack_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_SCRATCH, "scratch load of 4 bytes", GROUP, LIVE},
    {"store_over_code", SIM_CHECK_BOUNDS, SIM_FAULT_CODE, "over code: of bad_store_over_code+0x", GROUP, LIVE},
    {"lds_past_the_end", SIM_CHECK_BOUNDS, SIM_FAULT_LDS, "LDS store of 4 bytes at 0x", GROUP, LIVE},
    {"load_from_freed", SIM_CHECK_BOUNDS, SIM_FAULT_FREED, "is a use after free", GROUP, FREE_IN},
    {"store_to_freed", SIM_CHECK_BOUNDS, SIM_FAULT_FREED, "is a use after free", GROUP, FREE_OUT},
    // LDS between the waves of a workgroup
    {"read_of_another_wave", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on LDS", GROUP, LIVE},
    {"tile_overwritten_too_early", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on LDS", GROUP, LIVE},
    {"reduction_without_a_barrier", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on LDS", GROUP, LIVE},
    {"count_without_atomics", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on LDS", GROUP, LIVE},
    // memory between workgroups, and between the waves of one
    {"two_writers", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory: wave ", GROUPS, LIVE},
    {"two_writers_and_a_barrier", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"byte_of_two_writers", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"sum_without_atomics", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"in_place_shift", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"read_without_looking_at_the_flag", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"flag_before_the_value", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"part_after_the_count", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"one_lock_each", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"counter_read_plainly", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"flag_of_a_third_wave", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"flag_of_a_mate", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"counter_of_its_own", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"first_of_two_stores", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"first_of_a_loop", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"write_behind_a_read", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no release and acquire between", GROUPS, LIVE},
    {"count_in_bytes", SIM_CHECK_RACE, SIM_FAULT_RACE, "race on memory", GROUPS, LIVE},
    {"memory_without_a_barrier", SIM_CHECK_RACE, SIM_FAULT_RACE, "with no barrier between", GROUPS, LIVE},
    // memory that nobody has written
    {"tile_half_written", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "no wave of the workgroup has written", GROUP, LIVE},
    {"count_from_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "no wave of the workgroup has written", GROUP, LIVE},
    {"byte_never_written", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "read of LDS address 0x3,", GROUP, LIVE},
    {"input_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, EMPTY},
    {"element_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 308 bytes into a 4096-byte allocation at", GROUP, GAP},
    {"input_half_filled", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 2048 bytes into a 4096-byte allocation at", GROUP, HALF},
    {"copy_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 308 bytes into a 4096-byte allocation at", GROUP, COPY},
    {"bytes_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 1 bytes at 0x", GROUP, EMPTY},
    {"branch_on_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "a branch depends on 4 bytes at 0x", GROUP, EMPTY},
    {"address_from_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the address depends on 4 bytes at 0x", GROUP, EMPTY},
    {"padding_is_used", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 12 bytes into", GROUP, PADDED},
    {"padding_is_used_through_lds", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, PADDED},
    {"used_by_some_and_twice", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 20 bytes into", GROUP, EMPTY},
    {"byte_beside", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "which were never written: 1 bytes into", GROUP, BYTES},
    {"two_words_at_once", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, PADDED},
    {"exchange_with_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the atomic depends on 4 bytes at 0x", GROUP, NO_COUNTER},
    {"swap_with_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the atomic depends on 4 bytes at 0x", GROUP, NO_COUNTER},
    {"tile_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, NO_IN},
    {"tile_of_nothing_by_dma", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, EMPTY},
    {"count_on_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the atomic depends on 4 bytes at 0x", GROUPS, NO_COUNTER},
    {"matrix_of_nothing", SIM_CHECK_UNINIT, SIM_FAULT_UNINIT, "the stored value depends on 4 bytes at 0x", GROUP, EMPTY},
    // barriers
    {"barrier_on_both_sides", SIM_CHECK_BARRIER, SIM_FAULT_BARRIER, "divergent barrier", GROUP, LIVE},
    {"barrier_left_out_by_one_wave", SIM_CHECK_BARRIER, SIM_FAULT_BARRIER, "divergent barrier", GROUP, LIVE},
    {"one_turn_more", SIM_CHECK_BARRIER, SIM_FAULT_BARRIER, "divergent barrier", GROUP, LIVE},
    // alignment
    {"tile_at_an_odd_byte", SIM_CHECK_ALIGN, SIM_FAULT_ALIGN, "misaligned: 4 bytes at LDS address 0x1", GROUP, LIVE},
    {"wide_store_at_two_bytes", SIM_CHECK_ALIGN, SIM_FAULT_ALIGN, "misaligned: 8 bytes at LDS address 0x2", GROUP, LIVE},
    {"scalar_load_at_two_bytes", SIM_CHECK_ALIGN, SIM_FAULT_ALIGN, "misaligned: scalar access at", GROUP, LIVE},
};
// clang-format on

// ---- one launch

typedef struct chip {
    const char *name, *object;
} chip;

typedef struct outcome {
    bool ok;
    sim_fault_kind kind; // of the first fault
    uint32_t count;
    char text[8192];
} outcome;

static sim_object *load_object(const chip *c, const char *name, sim_memory *memory) {
    static uint8_t bytes[1 << 20];
    const char *folder = getenv("QUERN_BUILD_DIR");
    char path[4096], error[256];
    snprintf(path, sizeof path, "%s/testdata/%s.%s.co", folder ? folder : ".", name, c->object);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    sim_object *object;
    assert_int_equal(sim_object_load(&object, memory, sim_chip_by_name(c->name), 0, bytes, size,
                                     error, sizeof error),
                     SIM_OBJECT_OK);
    return object;
}

/** Writes `in`, whose words are their indices, as far as `what` wants. */
static void fill_in(sim_memory *memory, const sim_region *in, state what) {
    const sim_region *source = sim_memory_alloc(memory, SIZE * 4, SIM_REGION_DEVICE, 0);
    assert_non_null(source);
    for (uint32_t k = 0; k < SIZE; k++) {
        const bool is_written = what == EMPTY || what == NO_IN ? false
                                : what == HALF                 ? k < SIZE / 2
                                : what == PADDED               ? k % 4 != 3
                                : what == GAP || what == COPY  ? k != 77
                                                               : true;
        memcpy(source->host + 4 * k, &k, 4);
        if (is_written) {
            const uint64_t bytes = what == BYTES ? 1 : 4;
            sim_memory_wrote(memory, (what == COPY ? source : in)->base + 4 * k, bytes);
        }
    }
    memcpy(in->host, source->host, SIZE * 4);
    if (what == COPY)
        sim_memory_copied(memory, in->base, source->base, SIZE * 4);
}

/** The kernel's arguments in guest memory: out, in, shared, one. */
static uint64_t make_arguments(sim_memory *memory, state what) {
    uint64_t args[4] = {};
    for (int i = 0; i < 3; i++) {
        const sim_region *buffer = sim_memory_alloc(memory, SIZE * 4, SIM_REGION_DEVICE, 0);
        assert_non_null(buffer);
        args[i] = buffer->base;
        if (i == 1)
            fill_in(memory, buffer, what);
        else if (what != NO_COUNTER)
            sim_memory_wrote(memory, buffer->base, SIZE * 4);
    }
    args[3] = 1;
    if (what == FREE_IN || what == FREE_OUT)
        assert_true(sim_memory_free(memory, args[what == FREE_IN ? 1 : 0]));
    const sim_region *kernarg = sim_memory_alloc(memory, 4096, SIM_REGION_KERNARG, 0);
    assert_non_null(kernarg);
    memcpy(kernarg->host, args, sizeof args);
    uint16_t threads = THREADS; // hidden_group_size_x, behind three hidden_block_count
    uint32_t groups = GROUPS;
    memcpy(kernarg->host + 32, &groups, 4);
    memcpy(kernarg->host + 32 + 12, &threads, 2);
    return kernarg->base;
}

static outcome launch(const chip *c, const pair *p, bool faulty, uint32_t check) {
    char name[128];
    snprintf(name, sizeof name, "%s_%s", faulty ? "bad" : "good", p->name);
    sim_memory *memory = sim_memory_create();
    sim_memory_note_writes(memory, check & SIM_CHECK_UNINIT);
    const bool is_of_nothing = p->kind == SIM_FAULT_UNINIT;
    sim_object *object = load_object(c, is_of_nothing ? "unwritten" : "faults", memory);
    const sim_kernel *kernel = sim_object_kernel(object, name);
    assert_non_null(kernel);
    sim_dispatch d = {
        .chip = sim_chip_by_name(c->name),
        .memory = memory,
        .kernel = kernel,
        .object = object,
        .text = sim_object_text(object),
        .grid = {p->groups, 1, 1},
        .block = {THREADS, 1, 1},
        .lds_bytes = kernel->lds_bytes,
        .kernarg = make_arguments(memory, faulty || p->state >= PADDED ? p->state : LIVE),
        .check = check,
        .limit = 1000000000}; // a workgroup may wait long for one whose thread does not run
    outcome out = {.ok = sim_dispatch_run(&d)};
    out.count = d.faults.count;
    out.kind = d.faults.count ? d.faults.list[0].kind : SIM_NUM_FAULTS;
    char *text = sim_faults_text(&d);
    snprintf(out.text, sizeof out.text, "%s", text);
    free(text);
    sim_faults_deinit(&d.faults);
    sim_object_unload(object);
    sim_memory_destroy(memory);
    return out;
}

// ---- the tests

/** Returns whether a pair behaves as it should; prints how it does not. */
static bool check_pair(const chip *c, const pair *p) {
    outcome bad = launch(c, p, true, p->check), good = launch(c, p, false, SIM_CHECK_ALL);
    const bool is_told_once = p->state < EMPTY || bad.count == 1; // even if other instructions
                                                                  // depend on the value
    const bool is_found =
        !bad.ok && bad.kind == p->kind && strstr(bad.text, p->message) && is_told_once;
    if (!is_found) {
        print_error("%s, %s: wanted %s, '%s', found '%s'\n", c->name, p->name,
                    sim_fault_name(p->kind), p->message, bad.text);
    }
    if (!good.ok)
        print_error("%s, %s: the repaired one is not clean: %s\n", c->name, p->name, good.text);
    return is_found && good.ok;
}

/** Checks a chip, also on several host threads, which run the workgroups in any order. */
static void check_chip(const char *name, const char *object) {
    chip c = {name, object};
    bool ok = true;
    for (uint32_t run = 0; run < RUNS; run++) {
        sim_pool_configure(run + 1);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            ok &= check_pair(&c, &pairs[i]);
    }
    assert_true(ok);
}

static void test_gfx942(void **) {
    check_chip("gfx942", "O3");
}
static void test_gfx1151(void **) {
    check_chip("gfx1151", "gfx1151.O3");
}
static void test_gfx1201(void **) {
    check_chip("gfx1201", "gfx1201.O3");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gfx942),
                                       cmocka_unit_test(test_gfx1151),
                                       cmocka_unit_test(test_gfx1201)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
