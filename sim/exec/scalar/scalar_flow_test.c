// SPDX-License-Identifier: Apache-2.0
// Tests of branches with a stack, loops over half waves, messages, state of barriers, each against
// a model written for the test from the ISA documents.
#include "../run_testing.h"

/** Tests that the smaller half runs first, the other one after the first join, and both after the
 *  second. */
static void test_fork(void **) {
    size_t size;
    uint8_t *text = assemble("gfx942",
                             "s_cbranch_g_fork s[60:61], s[62:63]\n s_cbranch_join s64\n"
                             "s_cbranch_i_fork s[60:61], 16\n",
                             &size);
    start("gfx942");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, random_exec(round));
        uint64_t mask = pair(t->wave.s, 60), exec = t->wave.exec, target = 0x77770000 + 4 * round;
        const bool is_immediate = round % 2;
        memcpy(&t->wave.s[62], &target, sizeof target);
        t->wave.s[64] = t->wave.mode >> 29;
        sim_inst fork = decode_at("gfx942", text, size, is_immediate ? 8 : 0);
        sim_inst join = decode_at("gfx942", text, size, 4);
        t->wave.pc = 0x1004;
        target = is_immediate ? 0x1004 + 4 * 16 : target;
        fork.exec(&t->wave, &fork);
        const uint64_t pass = mask & exec, fail = ~mask & exec;
        const bool pass_last = __builtin_popcountll(fail) < __builtin_popcountll(pass);
        if (pass == exec || fail == exec) {
            assert_true(t->wave.exec == exec && t->wave.pc == (pass == exec ? target : 0x1004));
            continue;
        }
        assert_true(t->wave.exec == (pass_last ? fail : pass));
        assert_true(t->wave.pc == (pass_last ? 0x1004 : target));
        join.exec(&t->wave, &join);
        assert_true(t->wave.exec == (pass_last ? pass : fail));
        assert_true(t->wave.pc == (pass_last ? target : 0x1004));
        const uint64_t pc = t->wave.pc;
        join.exec(&t->wave, &join);
        assert_true(t->wave.pc == pc && t->wave.exec == (pass_last ? pass : fail));
    }
    free(text);
}

/** Tests that the body runs once for each half of EXEC that has lanes. */
static void test_subvector_loop(void **) {
    size_t size;
    uint8_t *text = assemble(
        "gfx1151", "s_subvector_loop_begin s10, 5\n s_subvector_loop_end s10, -3\n", &size);
    start("gfx1151");
    t->wave.wave32 = false;
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, round % 3 == 1 ? (uint32_t)next_random() : random_exec(round));
        uint64_t exec = t->wave.exec, ran = 0, body = 0x1004;
        sim_inst begin = decode_at("gfx1151", text, size, 0),
                 end = decode_at("gfx1151", text, size, 4);
        t->wave.pc = body;
        begin.exec(&t->wave, &begin);
        for (unsigned turns = 0; exec && turns < 3; turns++) {
            assert_true(turns < 2 && t->wave.exec &&
                        !((uint32_t)t->wave.exec && t->wave.exec >> 32));
            ran |= t->wave.exec;
            t->wave.pc = 0x2000;
            end.exec(&t->wave, &end);
            if (t->wave.pc == 0x2000)
                break;
        }
        assert_true(ran == exec && t->wave.exec == exec);
        assert_true(exec || t->wave.pc == begin.target);
    }
    free(text);
}

static void check_message(void) {
    const uint32_t passed = S(11) - S(10);
    assert_true(passed < 100000000); // a clock of 100 MHz
}

static void test_message(void **) {
    run("gfx1201",
        "s_sendmsg_rtn_b32 s10, sendmsg(MSG_RTN_GET_REALTIME)\n"
        "s_sendmsg_rtn_b32 s11, sendmsg(MSG_RTN_GET_REALTIME)\n",
        nullptr, check_message);
}

// ---- barriers

static uint32_t barrier_state(sim_wave *w, const sim_inst *inst) {
    inst->exec(w, inst);
    return w->s[10];
}

static void test_barrier_state(void **) {
    size_t size;
    uint8_t *text = assemble("gfx1201",
                             "s_get_barrier_state s10, -1\n s_barrier_signal -1\n"
                             "s_barrier_signal 0\n s_barrier_init 1\n",
                             &size);
    start("gfx1201");
    sim_wave *waves = aligned_alloc(64, 3 * sizeof *waves);
    assert_non_null(waves);
    memset(waves, 0, 3 * sizeof *waves);
    t->group.waves = waves;
    t->group.num_waves = 3;
    for (int i = 0; i < 3; i++) {
        waves[i].group = &t->group;
        waves[i].index = (uint32_t)i;
    }
    sim_inst get = decode_at("gfx1201", text, size, 0),
             signal = decode_at("gfx1201", text, size, 4);
    sim_inst nothing = decode_at("gfx1201", text, size, 8);
    assert_int_equal(barrier_state(&waves[0], &get), 3 << 4 | 1);
    signal.exec(&waves[1], &signal);
    nothing.exec(&waves[0], &nothing);
    assert_int_equal(barrier_state(&waves[0], &get), 1 << 16 | 3 << 4 | 1);
    signal.exec(&waves[0], &signal);
    assert_int_equal(barrier_state(&waves[2], &get), 2 << 16 | 3 << 4 | 1);
    signal.exec(&waves[2], &signal);
    assert_int_equal(barrier_state(&waves[2], &get), 3 << 4 | 1);
    waves[1].state = SIM_ENDED;
    assert_int_equal(barrier_state(&waves[2], &get), 2 << 4 | 1);
    free(waves);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork), cmocka_unit_test(test_subvector_loop),
        cmocka_unit_test(test_message), cmocka_unit_test(test_barrier_state)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
