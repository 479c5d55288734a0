// SPDX-License-Identifier: Apache-2.0
// Tests of scalar stores, atomics and narrow loads, against a model of bytes written for the test.
#include "memory_testing.h"

static void check_scalar_memory(uint64_t address) {
    uint32_t *m = (uint32_t *)(void *)(model + (address - guest));
    const uint32_t *s = t->before.s, *got = t->wave.s;
    m[0] = s[20], m[1] = s[21];
    memcpy(m + 2, s + 20, 16);
    assert_int_equal(got[24], m[8]);
    m[8] = (int32_t)m[8] < (int32_t)s[24] ? m[8] : s[24];
    assert_int_equal(got[26], m[9]);
    m[9] = m[9] == s[27] ? s[26] : m[9];
    uint64_t wide, data = s[28] | (uint64_t)s[29] << 32;
    memcpy(&wide, m + 10, 8);
    assert_true((got[28] | (uint64_t)got[29] << 32) == wide);
    wide += data;
    memcpy(m + 10, &wide, 8);
    assert_int_equal(got[30], m[12]);
    m[12] ^= s[30];
    assert_int_equal(got[31], 0); // outside the buffer
    assert_memory_equal(memory, model, BYTES);
}

static void test_scalar_memory(void **) {
    static const char *const archs[] = {"gfx90a", "gfx942"};
    for (size_t a = 0; a < 2; a++) {
        size_t size;
        uint8_t *code = assemble(archs[a],
                                 "s_store_dwordx2 s[20:21], s[2:3], 0x0\n"
                                 "s_buffer_store_dwordx4 s[20:23], s[8:11], 0x8\n"
                                 "s_buffer_store_dword s20, s[8:11], 0x40\n"
                                 "s_atomic_smin s24, s[2:3], 0x20 glc\n"
                                 "s_atomic_cmpswap s[26:27], s[2:3], 0x24 glc\n"
                                 "s_atomic_add_x2 s[28:29], s[2:3], 0x28 glc\n"
                                 "s_buffer_atomic_xor s30, s[8:11], 0x30 glc\n"
                                 "s_buffer_atomic_swap s31, s[8:11], 0x40 glc\n",
                                 &size);
        start(archs[a]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise_all(round);
            uint64_t address = guest + 64 * (next_random() % 900);
            memcpy(&t->wave.s[2], &address, sizeof address);
            set_descriptor(0, 64, 0, 0);
            memcpy(&t->wave.s[SRD], &address, sizeof address);
            if (round % 2)
                t->wave.s[27] = (uint32_t)at(memory, address - guest + 36, 4);
            execute(archs[a], code, size, round);
            check_scalar_memory(address);
        }
        free(code);
    }
}

static void test_narrow_scalar_loads(void **) {
    size_t size;
    uint8_t *code =
        assemble("gfx1201",
                 "s_buffer_load_i8 s20, s[8:11], 0x1\n s_buffer_load_u8 s21, s[8:11], 0x3f\n"
                 "s_buffer_load_i16 s22, s[8:11], 0x2\n s_buffer_load_u16 s23, s[8:11], 0x3f\n",
                 &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(0, 64, 0, 0);
        execute("gfx1201", code, size, round);
        assert_int_equal((int32_t)t->wave.s[20], (int8_t)model[1]);
        assert_int_equal(t->wave.s[21], model[63]);
        assert_int_equal((int32_t)t->wave.s[22], (int16_t)at(model, 2, 2));
        assert_int_equal(t->wave.s[23], 0); // half of it is outside
    }
    free(code);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scalar_memory),
                                       cmocka_unit_test(test_narrow_scalar_loads)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
