// SPDX-License-Identifier: Apache-2.0
// Tests of the times that events give: modelled time while the clock is on, to the nanosecond what
// a profile says; the host's time while it is off.
#include "elapsed_testing.h"

// ---- the cases, in the child

/** Prints the times of a launch, of a second one, and of both. */
static void run_launches(void) {
    work w = make_work(load("O3"));
    hipEvent_t events[3];
    for (int i = 0; i < 3; i++)
        events[i] = new_event();
    for (int i = 0; i < 3; i++) {
        OK(hip.hipEventRecord(events[i], nullptr));
        if (i < 2)
            OK(start_work(&w, nullptr));
    }
    OK(hip.hipDeviceSynchronize());
    printf("%lld %lld %lld", elapsed(events[0], events[1]), elapsed(events[1], events[2]),
           elapsed(events[0], events[2]));
    for (int i = 0; i < 3; i++)
        destroy(events[i]);
}

/** Prints the times of one launch, and of two on two streams: to the end of each. The memory-side
 *  cache and the caches of instructions have what they need. */
static void run_pair(unsigned groups) {
    work w = make_work(load("O3"));
    start_large(&w, groups, nullptr);
    OK(hip.hipDeviceSynchronize());
    pair one = begin_pair();
    start_large(&w, groups, one.streams[0]);
    end_pair(&one);
    assert_int_equal(one.ns[1], 0);
    pair two = begin_pair();
    for (int i = 0; i < 2; i++)
        start_large(&w, groups, two.streams[i]);
    end_pair(&two);
    printf("%lld %lld %lld", one.ns[0], two.ns[0], two.ns[1]);
}

static void run_halves(void) {
    run_pair(UNITS / 2);
}

static void run_wholes(void) {
    run_pair(UNITS);
}

/** Prints the time to the end of two streams, of which the first launches once and the second
 *  twice; and to the end of the first if it waits for the second's first launch. */
static void run_order(void) {
    work w = make_work(load("O3"));
    start_large(&w, 8, nullptr);
    OK(hip.hipDeviceSynchronize());
    pair p = begin_pair();
    for (int i = 0; i < 3; i++)
        start_large(&w, 8, p.streams[i > 0]);
    end_pair(&p);
    pair waits = begin_pair();
    const hipEvent_t event = new_event();
    start_large(&w, 8, waits.streams[1]);
    OK(hip.hipEventRecord(event, waits.streams[1]));
    start_large(&w, 8, waits.streams[1]);
    OK(hip.hipStreamWaitEvent(waits.streams[0], event, 0));
    start_large(&w, 8, waits.streams[0]);
    end_pair(&waits);
    destroy(event);
    printf("%lld %lld %lld", p.ns[0], p.ns[1], waits.ns[0]);
}

/** Prints the time from one stream's end to that of another that the program filled when it had
 *  waited for the first; and how long that takes by itself. */
static void run_waited(void) {
    work w = make_work(load("O3"));
    start_large(&w, 8, nullptr);
    OK(hip.hipDeviceSynchronize());
    pair p = begin_pair();
    start_large(&w, 8, p.streams[0]);
    OK(hip.hipEventRecord(p.ends[0], p.streams[0]));
    OK(hip.hipEventSynchronize(p.ends[0]));
    start_large(&w, 8, p.streams[1]);
    OK(hip.hipEventRecord(p.ends[1], p.streams[1]));
    OK(hip.hipStreamSynchronize(p.streams[1]));
    const long long after = elapsed(p.ends[0], p.ends[1]);
    OK(hip.hipEventRecord(p.first, p.streams[0])); // later than all that the program knows of
    OK(hip.hipEventSynchronize(p.first));
    printf("%lld %lld %lld", after, elapsed(p.first, p.ends[1]), 0LL);
    for (int i = 0; i < 2; i++) {
        destroy(p.ends[i]);
        OK(hip.hipStreamDestroy(p.streams[i]));
    }
    destroy(p.first);
}

/** Prints the time between two events while the host sleeps. */
static void run_pause(void) {
    const hipEvent_t from = new_event(), to = new_event();
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    OK(hip.hipEventRecord(from, nullptr));
    OK(hip.hipEventSynchronize(from));
    nanosleep(&pause, nullptr);
    OK(hip.hipEventRecord(to, nullptr));
    OK(hip.hipEventSynchronize(to));
    printf("%lld 0 0", elapsed(from, to));
    destroy(from);
    destroy(to);
}

static void run_refusal(void) {
    work w = make_work(load("gfx12-generic.O3"));
    printf("%d 0 0", start_work(&w, nullptr));
}

/** Prints what quernsim_clock tells of a launch, and then of none; and whether it tells of anything
 *  at all. */
static void run_told(void) {
    const auto clock = (typeof(quernsim_clock) *)dlsym(library, "quernsim_clock");
    char first[2048] = "", second[2048] = "";
    work w = make_work(load("O3"));
    OK(start_work(&w, nullptr));
    OK(hip.hipDeviceSynchronize());
    const int answers = clock(0, nullptr, 0) + 2 * clock(-1, nullptr, 0) + 4 * clock(1, nullptr, 0);
    clock(0, first, sizeof first);
    clock(-1, second, sizeof second);
    printf("%lld %lld %d", atoll(first + strcspn(first, "0123456789")),
           atoll(second + strcspn(second, "0123456789")), answers);
}

/** Prints the time of a launch in a child that was forked while a launch ran. */
static void run_fork(void) {
    const hipModule_t module = load("O3");
    work w = make_work(module);
    const hipStream_t stream = new_stream();
    void *flag;
    OK(hip.hipHostMalloc(&flag, 4, 0));
    *(volatile uint32_t *)flag = 0;
    OK(launch(kernel(module, "t_spin"), 1, 64, stream, &flag, sizeof flag));
    const struct timespec pause = {.tv_nsec = PAUSE_NS}; // the launch has begun
    nanosleep(&pause, nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const hipEvent_t from = new_event(), to = new_event();
        OK(hip.hipEventRecord(from, nullptr));
        OK(start_work(&w, nullptr));
        OK(hip.hipEventRecord(to, nullptr));
        OK(hip.hipDeviceSynchronize());
        printf("%lld 0 0", elapsed(from, to));
        destroy(from);
        destroy(to);
        fflush(stdout);
        _exit(0); // what the parent's threads held is nobody's in the child
    }
    int status;
    waitpid(child, &status, 0);
    *(volatile uint32_t *)flag = 1;
    OK(hip.hipStreamSynchronize(stream));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"launches", run_launches}, {"halves", run_halves},   {"wholes", run_wholes},
             {"order", run_order},       {"waited", run_waited},   {"told", run_told},
             {"pause", run_pause},       {"refusal", run_refusal}, {"fork", run_fork}};

static int run_case(const char *name) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0)
            cases[i].run();
    return 0;
}

// ---- the tests

/** Returns the modelled time of all launches in a profile, which it removes. */
static long long take_profile(const char *path) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unlink(path);
    const char *member = strstr(text, "\"clock\": {\"ns\": ");
    assert_non_null(member);
    assert_null(strstr(member + 1, "\"clock\"")); // of one kernel
    return atoll(member + strlen("\"clock\": {\"ns\": "));
}

static void profiled(output *o, long long *ns, const char *name, const char *options) {
    char path[] = "/tmp/elapsed_test.XXXXXX", all[256];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    snprintf(all, sizeof all, "%s;profile=%s", options, path);
    *o = run(name, all);
    *ns = take_profile(path);
}

/** Tests that launches take what the profile says, and together the sum; and that neither threads
 *  nor another run change a digit. */
static void test_launches(void **) {
    static const char *const modes[] = {"clock=on;threads=1", "clock=full;threads=1"};
    for (int i = 0; i < 2; i++) {
        output first, again;
        long long ns, ns_again;
        profiled(&first, &ns, "launches", modes[i]);
        const long long *t = first.numbers;
        assert_true(t[0] > LAUNCH_NS && t[1] > LAUNCH_NS);
        assert_int_equal(t[0] + t[1], t[2]);
        assert_int_equal(t[2], ns);
        assert_true(t[1] < t[0]); // code and data are warm
        profiled(&again, &ns_again, "launches", i ? "clock=full;threads=2" : "clock=on;threads=2");
        assert_memory_equal(again.numbers, first.numbers, sizeof first.numbers);
        assert_int_equal(ns_again, ns);
        again = run("launches", modes[i]);
        assert_memory_equal(again.numbers, first.numbers, sizeof first.numbers);
    }
}

static void expect_ns(const char *name, long long found, long long expected) {
    if (llabs(found - expected) > expected / 50)
        fail_msg("%s: %lld ns; expected %lld", name, found, expected);
}

/** Runs a case and checks that nothing changes with the number of threads. */
static output run_twice(const char *name) {
    const output o = run(name, "clock=on;threads=1"), again = run(name, "clock=on;threads=2");
    assert_memory_equal(o.numbers, again.numbers, sizeof o.numbers);
    return o;
}

/** Tests that launches on two streams share the chip if it has room for both, and else follow each
 *  other: then the second one's start is hidden behind the first. */
static void test_streams(void **) {
    const output halves = run_twice("halves"), wholes = run_twice("wholes");
    const long long *h = halves.numbers, *w = wholes.numbers;
    expect_ns("the first half", h[1], h[0]);
    expect_ns("the second half", h[2], h[0]);
    expect_ns("the first whole", w[1], w[0]);
    expect_ns("the second whole", w[2], 2 * w[0] - LAUNCH_NS);
}

/** Tests that a stream waits for no other one unless it is told to, that launches of a stream
 *  follow each other, and that none begins before what the program had waited for. */
static void test_order(void **) {
    const output order = run_twice("order"), waited = run_twice("waited");
    const long long *t = order.numbers, *w = waited.numbers;
    expect_ns("two launches of a stream", t[1], 2 * t[0]);
    expect_ns("a launch that waits for one", t[2], 2 * t[0]);
    expect_ns("a launch after a wait of the program", w[0], t[0]);
    assert_int_equal(w[1], 0);
}

/** Tests that a program is told what its launches took, once. */
static void test_told(void **) {
    const output o = run("told", "clock=on");
    assert_int_equal(o.numbers[0], run("launches", "clock=on").numbers[0]);
    assert_int_equal(o.numbers[1], 0);
    assert_int_equal(o.numbers[2], 1 + 2); // there is no second device
    assert_int_equal(run("told", "arch=gfx942,gfx1151;clock=on").numbers[2], 1 + 2 + 4);
    assert_int_equal(run("told", "arch=gfx942,gfx11-generic;clock=on").numbers[2], 1 + 2);
    assert_int_equal(run("told", "clock=off").numbers[2], 0);
}

/** Tests that the host's time is no modelled time. */
static void test_pause(void **) {
    assert_int_equal(run("pause", "clock=on").numbers[0], 0);
    assert_true(run("pause", "clock=off").numbers[0] >= PAUSE_NS);
    assert_true(run("launches", "clock=off").numbers[2] > 0);
}

static void test_refusal(void **) {
    const output o = run("refusal", "arch=gfx12-generic;clock=on");
    assert_int_equal(o.numbers[0], hipErrorNotSupported);
    assert_non_null(strstr(o.errors, "no time is modelled for gfx12-generic; accepted: any but"));
    assert_int_equal(run("refusal", "arch=gfx12-generic").numbers[0], hipSuccess);
}

/** Tests that a child that is forked while a launch runs models its own launches. */
static void test_fork(void **) {
#if __has_feature(thread_sanitizer)
    skip(); // the sanitizer does not let a forked child start threads
#endif
    const long long alone = run("launches", "clock=on").numbers[0];
    const long long ns = run("fork", "clock=on").numbers[0];
    assert_true(ns > LAUNCH_NS && ns < 2 * alone);
}

int main(int argc, char **argv) {
    open_library();
    if (argc > 1)
        return run_case(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches), cmocka_unit_test(test_streams),
        cmocka_unit_test(test_order),    cmocka_unit_test(test_pause),
        cmocka_unit_test(test_refusal),  cmocka_unit_test(test_fork),
        cmocka_unit_test(test_told)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
