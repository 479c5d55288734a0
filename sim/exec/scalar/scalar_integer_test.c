// SPDX-License-Identifier: Apache-2.0
// Tests of scalar integers, registers by number, WREXEC, each against a formula written for the
// test from the ISA documents.
#include "../run_testing.h"

static void prepare_m0(void) {
    t->wave.m0 = (uint32_t)next_random() % 20;
}

static void check_scalars(void) {
    uint32_t quads = 0, m0 = OLD(124);
    for (unsigned i = 0; i < 8; i++)
        quads |= (uint32_t)((OLD(2) >> 4 * i & 15) != 0) << i;
    assert_int_equal(S(10), quads);
    assert_int_equal(S(11), OLD(20 + m0));
    assert_true(pair(t->wave.s, 12) == pair(t->before.s, 20 + m0 / 2 * 2));
    assert_int_equal(S(50 + m0), OLD(3));
    assert_true(pair(t->wave.s, 80 + m0 / 2 * 2) == pair(t->before.s, 4));
}

static void test_scalars(void **) {
    static const char *const archs[] = {"gfx90a", "gfx942", "gfx1151", "gfx1201"};
    for (size_t i = 0; i < 4; i++) {
        run(archs[i],
            "s_quadmask_b32 s10, s2\n s_movrels_b32 s11, s20\n s_movreld_b32 s50, s3\n"
            "s_and_b32 m0, m0, -2\n s_movrels_b64 s[12:13], s[20:21]\n"
            "s_movreld_b64 s[80:81], s[4:5]\n",
            prepare_m0, check_scalars);
    }
}

static void prepare_two_indices(void) {
    t->wave.m0 = (uint32_t)(next_random() % 10 | next_random() % 10 << 16);
}

static void check_movrelsd_2(void) {
    const uint32_t from = OLD(124) & 0x3ff, to = OLD(124) >> 16 & 0x3ff;
    assert_int_equal(S(30 + to), OLD(10 + from));
    ACTIVE_LANES(lane) {
        assert_int_equal(t->wave.v[40 + to][lane], t->before.v[20 + from][lane]);
        assert_int_equal(t->wave.v[20 + from][lane], t->before.v[40 + to][lane]);
    }
}

static void test_movrelsd_2(void **) {
    run("gfx1151", "s_movrelsd_2_b32 s30, s10\n v_swaprel_b32 v40, v20\n", prepare_two_indices,
        check_movrelsd_2);
    run("gfx1201", "s_movrelsd_2_b32 s30, s10\n v_swaprel_b32 v40, v20\n", prepare_two_indices,
        check_movrelsd_2);
}

static void check_wrexec(void) {
    const uint64_t first = ~pair(t->before.s, 2) & t->before.exec,
                   second = pair(t->before.s, 4) & ~first;
    assert_true(pair(t->wave.s, 10) == first && pair(t->wave.s, 12) == second);
    assert_true(t->wave.exec == second && t->wave.scc == (second != 0));
}

static void test_wrexec(void **) {
    run("gfx942", "s_andn1_wrexec_b64 s[10:11], s[2:3]\n s_andn2_wrexec_b64 s[12:13], s[4:5]\n",
        nullptr, check_wrexec);
}

static void check_scalar(unsigned) {
    uint64_t value = t->before.s[2] | (uint64_t)t->before.s[3] << 32, groups = 0, twice = 0;
    for (int i = 0; i < 64; i++) {
        groups |= (value >> i & 1) << i / 4;
        twice |= (uint64_t)(t->before.s[2] >> i / 2 & 1) << i;
    }
    const uint64_t bit = UINT64_C(1) << (t->before.s[4] & 63);
    const uint64_t set = t->before.s[14] | (uint64_t)t->before.s[15] << 32;
    const uint64_t clear = t->before.s[16] | (uint64_t)t->before.s[17] << 32;
    const uint64_t want[] = {groups, twice, set | bit, clear & ~bit};
    for (int i = 0; i < 4; i++) {
        const uint64_t got = t->wave.s[10 + 2 * i] | (uint64_t)t->wave.s[11 + 2 * i] << 32;
        assert_int_equal(got, want[i]);
    }
    assert_int_equal(t->wave.scc, groups != 0);
}

static void test_bits(void **) {
    run_lanes("gfx950",
              "s_quadmask_b64 s[10:11], s[2:3]\n s_bitreplicate_b64_b32 s[12:13], s2\n"
              "s_bitset1_b64 s[14:15], s4\n s_bitset0_b64 s[16:17], s4\n",
              nullptr, check_scalar);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scalars),
                                       cmocka_unit_test(test_movrelsd_2),
                                       cmocka_unit_test(test_wrexec), cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
