// SPDX-License-Identifier: Apache-2.0
// Tests of permutations of sixteen lanes, the LDS crossbar, registers by number, with expected
// values written apart from exec/.
#include "../program_testing.h"

static void check_permutation(const program *p, bool other_row, bool fetch, bool bound) {
    const sim_wave *before = &p->t->before;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t selectors = before->s[2] | (uint64_t)before->s[3] << 32;
        unsigned from = (lane & 48) ^ (other_row ? 16 : 0);
        from += selectors >> 4 * (lane % 16) & 15;
        const bool valid = fetch || (before->exec >> from & 1);
        uint32_t want = before->v[20][lane];
        if (before->exec >> lane & 1)
            want = valid ? before->v[2][from] : bound ? 0 : want;
        assert_int_equal(p->t->wave.v[20][lane], want);
    }
}

static void test_permutations(void **) {
    static const char *const texts[] = {"v_permlane16_b32 v20, v2, s2, s3\n",
                                        "v_permlane16_b32 v20, v2, s2, s3 op_sel:[1,0]\n",
                                        "v_permlanex16_b32 v20, v2, s2, s3 op_sel:[0,1]\n",
                                        "v_permlanex16_b32 v20, v2, s2, s3 op_sel:[1,1]\n"};
    for (int i = 0; i < 8; i++) {
        program p = start(i < 4 ? "gfx1151" : "gfx1201", texts[i % 4]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(p.t, (uint32_t)random_exec(round));
            run(&p);
            check_permutation(&p, i % 4 > 1, i % 2, i % 4 > 1);
        }
        stop(&p);
    }
}

static void test_crossbar(void **) {
    program p = start("gfx1201", "ds_bpermute_b32 v20, v2, v3\n v_readlane_b32 s10, v3, s2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const uint32_t from = p.t->before.v[2][lane] / 4 % 32;
            uint32_t want = p.t->before.exec >> from & 1 ? p.t->before.v[3][from] : 0;
            want = p.t->before.exec >> lane & 1 ? want : p.t->before.v[20][lane];
            assert_int_equal(p.t->wave.v[20][lane], want);
        }
        assert_int_equal(p.t->wave.s[10], p.t->before.v[3][p.t->before.s[2] % 32]);
    }
    stop(&p);
}

/** Tests that M0 names the register, and that beyond the file it is register 0. */
static void test_indexed_registers(void **) {
    program p = start("gfx1151", "v_movrels_b32 v20, v2\n v_movreld_b32 v40, v3\n");
    for (unsigned round = 0; round < 40; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        p.t->wave.m0 = round < 20 ? round : 1000 * round;
        const unsigned from = round < 20 ? 2 + round : 0, to = round < 20 ? 40 + round : 0;
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const bool on = p.t->before.exec >> lane & 1;
            assert_int_equal(p.t->wave.v[20][lane], p.t->before.v[on ? from : 20][lane]);
            assert_int_equal(p.t->wave.v[to][lane], p.t->before.v[on ? 3 : to][lane]);
        }
    }
    stop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_permutations),
                                       cmocka_unit_test(test_crossbar),
                                       cmocka_unit_test(test_indexed_registers)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
