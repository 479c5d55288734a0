// SPDX-License-Identifier: Apache-2.0
// Tests of transposing loads, blocks of registers, a dword for each lane, against a model of bytes
// written for the test.
#include "memory_testing.h"

/** Tests that a 16 x 16 matrix is read by rows, and lane l gets eight rows of column l % 16. */
static void test_transposing_loads(void **) {
    size_t size;
    uint8_t *code = assemble("gfx1201",
                             "global_load_tr_b128 v[20:23], v[2:3], off\n"
                             "global_load_tr_b64 v[24:25], v[4:5], off\n",
                             &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        for (unsigned lane = 0; lane < 32;
             lane++) { // addresses as published kernels for gfx1201 give them
            const uint64_t halves = guest + (8 * (lane / 16) + lane % 8) * 64 + lane / 8 % 2 * 16;
            const uint64_t bytes =
                guest + 4096 + ((lane / 8) * 4 + (lane & 3)) * 48 + (lane & 4 ? 8 : 0);
            t->wave.v[2][lane] = (uint32_t)halves, t->wave.v[3][lane] = (uint32_t)(halves >> 32);
            t->wave.v[4][lane] = (uint32_t)bytes, t->wave.v[5][lane] = (uint32_t)(bytes >> 32);
        }
        t->wave.exec = UINT32_MAX;
        execute("gfx1201", code, size, round);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned e = 0; e < 8; e++) {
                const unsigned row = 8 * (lane / 16) + e, column = lane % 16;
                const uint32_t half = t->wave.v[20 + e / 2][lane] >> 16 * (e % 2) & 0xffff;
                const uint32_t byte = t->wave.v[24 + e / 4][lane] >> 8 * (e % 4) & 0xff;
                assert_int_equal(half, at(model, row * 64 + column * 2, 2));
                assert_int_equal(byte, model[4096 + row * 48 + column]);
            }
        }
    }
    free(code);
}

static void test_blocks(void **) {
    size_t size;
    uint8_t *code = assemble("gfx1201",
                             "global_store_block v[2:3], v[40:71], off offset:8\n"
                             "global_load_block v[2:33], v[2:3], off offset:8\n",
                             &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        t->wave.m0 = (uint32_t)next_random();
        for (unsigned lane = 0; lane < 32; lane++) {
            const uint64_t address = guest + 256 * lane;
            t->wave.v[2][lane] = (uint32_t)address, t->wave.v[3][lane] = (uint32_t)(address >> 32);
        }
        execute("gfx1201", code, size, round);
        for (unsigned i = 0; i < 32 * 32; i++) {
            const unsigned lane = i / 32, reg = i % 32;
            const bool moved = active(lane) && t->before.m0 >> reg & 1;
            if (moved)
                memcpy(model + 256 * lane + 8 + 4 * reg, &t->before.v[40 + reg][lane], 4);
            const uint32_t want = moved ? t->before.v[40 + reg][lane] : t->before.v[2 + reg][lane];
            assert_int_equal(t->wave.v[2 + reg][lane], want);
        }
        assert_memory_equal(memory, model, BYTES);
    }
    free(code);
}

static void test_addtid(void **) {
    static const char *const archs[] = {"gfx1151", "gfx1201"};
    for (size_t a = 0; a < 2; a++) {
        size_t size;
        uint8_t *code = assemble(archs[a],
                                 "global_load_addtid_b32 v20, s[2:3] offset:8\n"
                                 "global_store_addtid_b32 v4, s[2:3] offset:512\n",
                                 &size);
        start(archs[a]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise_all(round);
            memcpy(&t->wave.s[2], &guest, sizeof guest);
            execute(archs[a], code, size, round);
            for (unsigned lane = 0; lane < 32; lane++) {
                uint32_t want =
                    active(lane) ? (uint32_t)at(model, 8 + 4 * lane, 4) : t->before.v[20][lane];
                assert_int_equal(t->wave.v[20][lane], want);
            }
            for (unsigned lane = 0; lane < 32; lane++)
                if (active(lane))
                    memcpy(model + 512 + 4 * lane, &t->before.v[4][lane], 4);
            assert_memory_equal(memory, model, BYTES);
        }
        free(code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transposing_loads),
                                       cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_addtid)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
