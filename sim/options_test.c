// SPDX-License-Identifier: Apache-2.0
// QUERN_SIM's syntax: accepted options act, and refusals say what would be accepted.
#include "chip/chip.h"
#include "options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char error[256];

static void test_accepted(void **state) {
    (void)state;
    sim_options o = {.check = SIM_CHECK_BOUNDS};
    assert_true(sim_options_parse(&o, "", error, sizeof error));
    assert_true(sim_options_parse(&o, "arch=gfx942;;threads=3;", error, sizeof error));
    assert_int_equal(o.num_archs, 1);
    assert_int_equal(o.archs[0], SIM_GFX942);
    assert_int_equal(o.threads, 3);
    assert_int_equal(o.check, SIM_CHECK_BOUNDS);
    assert_true(sim_options_parse(&o, "check=barrier,bounds;arch=gfx942,gfx942;limit=12345678901",
                                  error, sizeof error));
    assert_int_equal(o.num_archs, 3); // architectures are added
    assert_int_equal(o.check, SIM_CHECK_BOUNDS | SIM_CHECK_BARRIER);
    assert_int_equal(o.limit, 12345678901);
    assert_true(sim_options_parse(&o, "check=all", error, sizeof error));
    assert_int_equal(o.check, SIM_CHECK_ALL);
    assert_true(sim_options_parse(&o, "check=none;mfma=exact;clock=off", error, sizeof error));
    assert_int_equal(o.check, 0);
    assert_false(o.fast_matrix);
    assert_true(sim_options_parse(&o, "mfma=fast", error, sizeof error));
    assert_true(o.fast_matrix);
    assert_true(sim_options_parse(&o, "mfma=exact", error, sizeof error));
    assert_false(o.fast_matrix);
    assert_true(sim_options_parse(&o, "exec=best", error, sizeof error));
    assert_int_equal(o.exec, SIM_EXEC_BEST);
    assert_true(
        sim_options_parse(&o, "faults=7;report=a b.jsonl;errorcode=255", error, sizeof error));
    assert_int_equal(o.faults, 7);
    assert_string_equal(o.report, "a b.jsonl");
    assert_int_equal(o.errorcode, 255);
    assert_true(sim_options_parse(&o, "overread=report", error, sizeof error));
    assert_true(o.passes_overreads);
    assert_true(sim_options_parse(&o, "overread=fail", error, sizeof error));
    assert_false(o.passes_overreads);
    assert_true(sim_options_parse(&o, "trace=_Z3add*;trace_file=a b.txt;profile=p-%p.json", error,
                                  sizeof error));
    assert_string_equal(o.look.trace, "_Z3add*");
    assert_int_equal(o.look.trace_wave, 0);
    assert_string_equal(o.look.trace_file, "a b.txt");
    assert_string_equal(o.look.profile, "p-%p.json");
    assert_true(sim_options_parse(&o, "turn=1", error, sizeof error));
    assert_int_equal(o.turn, 1);
    assert_true(sim_options_parse(&o, "trace=add:17", error, sizeof error));
    assert_string_equal(o.look.trace, "add");
    assert_int_equal(o.look.trace_wave, 17);
    assert_true(sim_options_parse(&o, "trace=*:*", error, sizeof error));
    assert_string_equal(o.look.trace, "*");
    assert_true(o.look.trace_wave == SIM_ALL_WAVES);
}

static void test_builds(void **) {
    static const char *const texts[] = {"exec=best", "exec=baseline", "exec=avx2", "exec=avx512"};
    char accepted[64] = "accepted: ";
    for (sim_exec_build i = SIM_EXEC_BEST; i < SIM_NUM_EXECS; i++) {
        sim_options o = {};
        const char *lacks = sim_exec_lacks(i);
        assert_true(sim_options_parse(&o, texts[i], error, sizeof error) == !lacks);
        if (lacks) {
            assert_non_null(strstr(error, lacks));
            continue;
        }
        assert_int_equal(o.exec, i);
        strcat(strcat(accepted, i ? ", " : ""), strchr(texts[i], '=') + 1);
    }
    sim_options o = {};
    assert_false(sim_options_parse(&o, "exec=sse", error, sizeof error));
    assert_string_equal(strstr(error, "accepted: "), accepted);
    assert_null(sim_exec_lacks(SIM_EXEC_BEST));
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"colour=red", "unknown key 'colour'; accepted: arch, chip, check"},
        {"arch", "'arch' is not of the form key=value"},
        {"arch=", "arch=: no such chip"},
        {"arch=gfx942,", "arch=: no such chip"},
        {"arch=gfx9421", "arch=gfx9421: no such chip"},
        {"arch=gfx1030", "arch=gfx1030: no such chip; accepted: gfx90a, gfx942, gfx950, gfx1151"},
        {"check=rage", "check=rage: no such check; accepted: none"},
        {"mfma=rough", "mfma=rough: no such mode; accepted: exact, fast"},
        {"mfma=", "accepted: exact, fast"},
        {"exec=sse", "exec=sse: no such build; accepted: best"},
        {"exec=", "exec=: no such build; accepted: best"},
        {"clock=yes", "clock=yes: no such mode; accepted: off, on, full, sample, xcd"},
        {"chip=", "chip=: accepted: a file's name"},
        {"threads=0", "accepted: 1 to 1024"},
        {"threads=-1", "accepted: 1 to 1024"},
        {"threads=2x", "accepted: 1 to 1024"},
        {"threads=99999999999999999999", "accepted: 1 to 1024"},
        {"turn=0", "1 to 4294967295"},
        {"turn=4294967296", "1 to 4294967295"},
        {"limit=", "instructions a wave may execute"},
        {"limit=99999999999999999999", "instructions a wave may execute"},
        {"faults=0", "faults=0: accepted: 1 to 10000"},
        {"faults=10001", "accepted: 1 to 10000"},
        {"errorcode=256", "errorcode=256: accepted: 0 to 255"},
        {"errorcode=-1", "accepted: 0 to 255"},
        {"overread=yes", "overread=yes: no such choice; accepted: fail, report"},
        {"report=", "report=: accepted: a file's name"},
        {"threads=2;speed=9", "unknown key 'speed'"},
        {"trace=", "trace=: accepted: KERNEL[:WAVE]"},
        {"trace=:3", "trace=:3: accepted: KERNEL[:WAVE]"},
        {"trace=add:x", "trace=add:x: after the colon accepted: a wave's number, or * for all"},
        {"trace=add:-1", "after the colon accepted"},
        {"trace_file=", "trace_file=: accepted: a file's name"},
        {"profile=", "profile=: accepted: a file's name"},
        {"arch=gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,gfx942,"
         "gfx942,gfx942,gfx942,gfx942,gfx942,gfx942",
         "device 17; accepted: at most 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_options o = {.threads = 7}, before = o;
        assert_false(sim_options_parse(&o, cases[i].text, error, sizeof error));
        if (!strstr(error, cases[i].message))
            fail_msg("%s: '%s' does not contain '%s'", cases[i].text, error, cases[i].message);
        assert_memory_equal(&o, &before, sizeof o); // options are set all or not at all
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_accepted),
                                       cmocka_unit_test(test_builds),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
