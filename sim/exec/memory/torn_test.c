// SPDX-License-Identifier: Apache-2.0
// Tests that 64 bits are loaded and stored at once: workgroups on other host threads poll a flag
// that lies beside a value, as a scan over all workgroups does.
#include "memory_testing.h"

#include <pthread.h>

enum { CHANGES = 60000 };

typedef struct other_side {
    _Atomic bool is_over;
    uint64_t torn; // that the other thread has seen
} other_side;

/** Writes pairs of equal dwords to all lanes' places, over and over. */
static void *change(void *arg) {
    other_side *side = arg;
    for (uint64_t i = 1; !side->is_over; i++)
        __atomic_store_n((uint64_t *)(void *)memory + i % SIM_LANES, (uint32_t)i * 0x100000001ull,
                         __ATOMIC_RELAXED);
    return nullptr;
}

/** Counts the places whose dwords differ. */
static void *watch(void *arg) {
    other_side *side = arg;
    for (uint64_t i = 0; !side->is_over; i++) {
        const uint64_t pair =
            __atomic_load_n((uint64_t *)(void *)memory + i % SIM_LANES, __ATOMIC_RELAXED);
        side->torn += (uint32_t)pair != pair >> 32;
    }
    return nullptr;
}

/** Points each lane at a place of its own; all lanes or all but one are active. */
static void point(bool is_whole) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t address = guest + 8 * lane;
        t->wave.v[2][lane] = (uint32_t)address, t->wave.v[3][lane] = (uint32_t)(address >> 32);
    }
    t->wave.exec = is_whole ? UINT64_MAX : UINT64_MAX - 2;
}

/** Executes an instruction while another thread works on its memory. Returns how many pairs of
 *  v[4:5] differ after it, and how many the other thread has seen. */
static uint64_t run(const char *source, void *(*other)(void *), bool is_whole, bool is_portable) {
    size_t size;
    uint8_t *code = assemble("gfx942", source, &size);
    start("gfx942");
    const sim_inst inst = decode_at("gfx942", code, size, 0);
    other_side side = {};
    pthread_t thread;
    memset(memory, 0, BYTES);
    point(is_whole);
    assert_int_equal(pthread_create(&thread, nullptr, other, &side), 0);
    t->before.exec = t->wave.exec;
    for (uint32_t i = 0; i < CHANGES; i++) {
        for (unsigned lane = 0; other == watch && lane < SIM_LANES; lane++)
            t->wave.v[4][lane] = t->wave.v[5][lane] = i;
        (is_portable ? sim_opcode_portable(inst.opcode)->exec : inst.exec)(&t->wave, &inst);
        for (unsigned lane = 0; other == change && lane < SIM_LANES; lane++)
            side.torn += active(lane) && t->wave.v[4][lane] != t->wave.v[5][lane];
    }
    side.is_over = true;
    pthread_join(thread, nullptr);
    free(code);
    return side.torn;
}

static void test_loads(void **) {
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(run("global_load_dwordx2 v[4:5], v[2:3], off\n", change, i & 1, i & 2), 0);
        assert_int_equal(run("flat_load_dwordx2 v[4:5], v[2:3]\n", change, i & 1, i & 2), 0);
    }
}

static void test_stores(void **) {
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(run("global_store_dwordx2 v[2:3], v[4:5], off\n", watch, i & 1, i & 2), 0);
        assert_int_equal(run("flat_store_dwordx2 v[2:3], v[4:5]\n", watch, i & 1, i & 2), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loads), cmocka_unit_test(test_stores)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
