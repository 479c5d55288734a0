// SPDX-License-Identifier: Apache-2.0
// Tests of the timeline's limits: too many events, too many waits, launches that end in the middle.
// tests/cli/test_timeline.py tests what is in the file.
#include "../look/look_testing.h"
#include "timeline.h"

#include <sys/wait.h>

static const test_launch some = {.arch = "gfx942", .groups = 8, .threads = 256, .lds_bytes = 64};

static void run_in(sim_clock_mode mode, const test_launch *launch, const char *source) {
    sim_clock clock;
    test_launch timed = *launch;
    sim_clock_init(&clock);
    timed.clock = &clock;
    timed.clock_mode = mode;
    run_program(&timed, source);
    sim_clock_deinit(&clock);
}

static void run_timed(const test_launch *launch, const char *source) {
    run_in(SIM_CLOCK_FULL, launch, source);
}

static void begin(char path[64]) {
    sim_look_options options = {};
    make_path(path);
    strcpy(options.timeline, path);
    configure(&options);
}

/** Returns how many lines have a text. A sanitizer's strstr would measure all of the rest each
 *  time. */
static size_t count(const char *text, const char *wanted) {
    size_t found = 0;
    for (size_t length; *text; text += length) {
        const char *end = strchr(text, '\n');
        length = (size_t)(end - text) + 1;
        found += memmem(text, length, wanted, strlen(wanted)) != nullptr;
    }
    return found;
}

/** Returns the file, whole, which the caller frees. */
static char *finish(const char *path) {
    sim_look_finish();
    FILE *file = fopen(path, "r");
    char *text = nullptr;
    size_t room = 0;
    assert_non_null(file);
    assert_true(getdelim(&text, &room, 0, file) > 0);
    fclose(file);
    unlink(path);
    assert_int_equal(strncmp(text, "[\n", 2), 0);
    assert_string_equal(strrchr(text, '}'), "}\n]\n");
    return text;
}

/** Runs launches until the events are used up: most by waits, which cost little, the last by waves.
 *  Returns what was told on standard error, which the caller frees. */
static char *use_up(void) {
    static const char waits[] = "s_movk_i32 s20, 600\nloop:\n s_sleep 2\n s_sub_u32 s20, s20, 1\n"
                                "s_cmp_lg_u32 s20, 0\n s_cbranch_scc1 loop\n s_endpgm\n";
    const test_launch waves = {.arch = "gfx942", .groups = 64, .threads = 1024};
    char told[64];
    make_path(told);
    fflush(stderr);
    const int before = dup(STDERR_FILENO);
    assert_non_null(freopen(told, "w", stderr));
    for (int i = 0; i < 10; i++)
        run_timed(&some, waits);
    for (int i = 0; i < 16; i++)
        run_timed(&waves, "s_endpgm");
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    char *errors = read_file(told);
    unlink(told);
    return errors;
}

/** Tests that a process's events end at the limit, and that this is told once. */
static void test_too_many_events(void **) {
    char path[64];
    begin(path);
    char *errors = use_up(), *text = finish(path);
    const size_t slices = count(text, "\"ph\":\"X\""), samples = count(text, "\"ph\":\"C\"");
    assert_true(slices + samples > SIM_TIMELINE_EVENTS - 1000);
    assert_true(slices + samples <= SIM_TIMELINE_EVENTS + 1);
    assert_true(count(text, "\"grid\":") > 10 && count(text, "\"grid\":") < 26);
    assert_int_equal(count(errors, "stopped after 200000 events"), 1);
    assert_int_equal(count(errors, "\n"), 1);
    free(text);
    free(errors);
}

/** Tests that of too many waits the longest are kept. */
static void test_too_many_waits(void **) {
    enum { LONG = 3, SHORT = 1000 };
    char path[64], source[1024];
    begin(path);
    snprintf(source, sizeof source,
             "s_movk_i32 s20, %u\nshort:\n s_sleep 2\n s_sub_u32 s20, s20, 1\n"
             "s_cmp_lg_u32 s20, 0\n s_cbranch_scc1 short\n s_movk_i32 s20, %u\n"
             "long:\n s_sleep 100\n s_sub_u32 s20, s20, 1\n"
             "s_cmp_lg_u32 s20, 0\n s_cbranch_scc1 long\n s_endpgm\n",
             SHORT, LONG);
    run_timed(&some, source);
    char *text = finish(path);
    const size_t waits = count(text, "\"wait_wave\"");
    assert_true(waits >= LONG * 8 * 4 && waits < SIM_TIMELINE_WAITS);
    assert_int_equal(count(text, "\"wave\":"), 8 * 4);
    free(text);
}

/** Tests a launch that is stopped: its waves are there as far as they came. */
static void test_stopped(void **) {
    char path[64];
    test_launch fails = some;
    fails.fails = true;
    begin(path);
    run_timed(&fails, "s_nop 0\n s_trap 2\n s_endpgm");
    run_timed(&some, "s_nop 0\n s_endpgm");
    char *text = finish(path);
    assert_int_equal(count(text, "\"grid\":"), 2);
    assert_true(count(text, "\"wave\":") > 8 * 4);
    free(text);
}

/** Tests that a sample's launch says how long the rounds take that did not run. */
static void test_sample(void **) {
    enum { ROUNDS = 6, SLOTS = 304 };
    char path[64];
    const test_launch launch = {
        .arch = "gfx942", .groups = ROUNDS * SLOTS, .threads = 64, .lds_bytes = 65536};
    begin(path);
    run_in(SIM_CLOCK_SAMPLE, &launch, "s_sleep 100\n s_endpgm");
    char *text = finish(path);
    const char *rest = strstr(text, "\"rounds that did not run\"");
    assert_non_null(rest);
    while (*rest != '\n')
        rest--;
    double whole, left_out;
    assert_int_equal(sscanf(strstr(text, "\"dur\":"), "\"dur\":%lf", &whole), 1);
    assert_int_equal(sscanf(strstr(rest, "\"dur\":"), "\"dur\":%lf", &left_out), 1);
    assert_true(left_out > 0.25 * whole && left_out < 0.6 * whole);
    assert_int_equal(count(text, "\"wave\":"), 4 * SLOTS / 8);
    free(text);
}

/** Tests that a child has a file of its own, also when the parent has used up its events. */
static void test_fork(void **) {
#if __has_feature(thread_sanitizer)
    skip(); // the sanitizer does not let a forked child start threads
#endif
    char path[64], childs[80];
    int status;
    begin(path);
    free(use_up());
    sim_pool_fork_prepare();
    sim_look_fork_prepare();
    sim_decode_fork_prepare();
    const pid_t child = fork();
    sim_decode_fork_done();
    if (child == 0) {
        sim_look_fork_child();
        sim_pool_fork_child();
        run_timed(&some, "s_endpgm");
        sim_look_finish();
        _exit(0);
    }
    sim_look_fork_parent();
    sim_pool_fork_parent();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(finish(path));
    snprintf(childs, sizeof childs, "%s.%d", path, (int)child);
    char *of_child = finish(childs);
    assert_int_equal(count(of_child, "\"wave\":"), 8 * 4);
    free(of_child);
}

/** Tests that nothing is kept where nothing is wanted. */
static void test_off(void **) {
    assert_null(sim_timeline_begin());
    run_timed(&some, "s_endpgm");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_too_many_events),
                                       cmocka_unit_test(test_too_many_waits),
                                       cmocka_unit_test(test_stopped),
                                       cmocka_unit_test(test_sample),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_off)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
