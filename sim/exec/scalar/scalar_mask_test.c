// SPDX-License-Identifier: Apache-2.0
// Tests of EXEC and masks of 32 lanes, clocks, split barriers, with expected values written apart
// from exec/.
#include "../program_testing.h"

static void test_exec(void **) {
    static const char *const texts[] = {
        "s_and_saveexec_b32 s10, s2\n",      "s_or_saveexec_b32 s10, s2\n",
        "s_xor_saveexec_b32 s10, s2\n",      "s_and_not1_saveexec_b32 s10, s2\n",
        "s_and_not0_saveexec_b32 s10, s2\n", "s_or_not1_saveexec_b32 s10, s2\n",
        "s_nand_saveexec_b32 s10, s2\n"};
    for (int i = 0; i < 7; i++) {
        program p = start(i % 2 ? "gfx1151" : "gfx1201", texts[i]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(p.t, (uint32_t)random_exec(round));
            const uint32_t a = p.t->before.s[2], e = (uint32_t)p.t->before.exec;
            uint32_t want[] = {a & e, a | e, a ^ e, a & ~e, ~a & e, a | ~e, ~(a & e)};
            run(&p);
            assert_true(p.t->wave.exec == want[i]); // the upper half stays 0
            assert_int_equal(p.t->wave.s[10], e);
            assert_int_equal(p.t->wave.scc, want[i] != 0);
        }
        stop(&p);
    }
}

/** Tests that with 32 lanes a compare writes one register, and vccz depends on VCC_LO alone. */
static void test_masks(void **) {
    program p = start("gfx1151", "v_cmp_lt_u32_e32 vcc_lo, v2, v3\n v_cmp_lt_i32_e64 s10, v2, v3\n"
                                 "s_cbranch_vccz 3\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        uint32_t lower = 0, less = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            const uint32_t a = p.t->before.v[2][lane], b = p.t->before.v[3][lane];
            const uint32_t bit = (uint32_t)p.t->before.exec & 1u << lane;
            lower |= a < b ? bit : 0;
            less |= (int32_t)a < (int32_t)b ? bit : 0;
        }
        run(&p);
        assert_int_equal(p.t->wave.s[106], lower);
        assert_int_equal(p.t->wave.s[107], p.t->before.s[107]);
        assert_int_equal(p.t->wave.s[10], less);
        assert_int_equal(p.t->wave.s[11], p.t->before.s[11]);
        assert_int_equal(p.t->wave.pc, lower ? p.t->before.pc : 0x1000 + 4 + 12);
    }
    stop(&p);
}

/** Tests that the clock that delays spin on runs, and that RDNA4's upper half hardly changes. */
static void test_clock(void **) {
    program p = start("gfx1201", "s_getreg_b32 s10, hwreg(HW_REG_SHADER_CYCLES_LO)\n"
                                 "s_getreg_b32 s11, hwreg(HW_REG_SHADER_CYCLES_HI)\n"
                                 "s_sendmsg_rtn_b64 s[12:13], sendmsg(MSG_RTN_GET_REALTIME)\n");
    uint64_t cycles[2], ticks[2];
    for (int i = 0; i < 2; i++) {
        run(&p);
        const uint32_t *s = p.t->wave.s;
        cycles[i] = s[10] | (uint64_t)s[11] << 32;
        ticks[i] = s[12] | (uint64_t)s[13] << 32;
        usleep(2000);
    }
    assert_true(ticks[1] - ticks[0] >= 200000); // of 10 ns
    assert_true(cycles[1] - cycles[0] >= 2 * 2970000);
    assert_true(cycles[1] - cycles[0] < UINT64_C(2970000) * 100000);
    stop(&p);
}

static void test_split_barrier(void **) {
    program p = start("gfx1201", "s_barrier_signal -1\n s_barrier_wait -1\n");
    sim_inst signal = decode_at("gfx1201", p.text, p.size, 0);
    sim_inst wait = decode_at("gfx1201", p.text, p.size, signal.bytes);
    sim_wave *waves = aligned_alloc(64, 2 * sizeof *waves);
    memset(waves, 0, 2 * sizeof *waves);
    p.t->group.waves = waves;
    p.t->group.num_waves = 2;
    waves[0].group = waves[1].group = &p.t->group;
    signal.exec(&waves[0], &signal);
    wait.exec(&waves[0], &wait);
    assert_int_equal(waves[0].state, SIM_AT_BARRIER);
    signal.exec(&waves[1], &signal); // works on before it waits
    assert_true(sim_barrier_is_complete(&waves[0]));
    wait.exec(&waves[1], &wait);
    assert_int_equal(waves[1].state, SIM_RUNNING);
    signal.exec(&waves[1], &signal);
    wait.exec(&waves[1], &wait); // the next one, while the first wave still stands at the last
    assert_int_equal(waves[1].state, SIM_AT_BARRIER);
    assert_true(sim_barrier_is_complete(&waves[0]));
    assert_false(sim_barrier_is_complete(&waves[1]));
    waves[0].state = SIM_ENDED; // no longer counts
    assert_true(sim_barrier_is_complete(&waves[1]));
    free(waves);
    stop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exec), cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_clock),
                                       cmocka_unit_test(test_split_barrier)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
