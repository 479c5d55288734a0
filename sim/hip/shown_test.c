// SPDX-License-Identifier: Apache-2.0
// Tests of what traces and profiles show of several streams: launches begin and end as
// hipEventElapsedTime says, whatever host threads run the program.
#include "elapsed_testing.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

// ---- the cases, in the child

static atomic_bool is_passed;

static void pass(void *) {
    is_passed = true;
}

/** Waits until the default stream's launches have run, which the runtime does not learn. */
static void watch(void) {
    OK(hip.hipLaunchHostFunc(nullptr, pass, nullptr));
    while (!is_passed)
        sched_yield();
}

/** Starts a launch that keeps the lanes of all compute units busy, and leaves room for another. */
static void start_busy(hipStream_t stream) {
    enum { THREADS = 1024, COUNT = UNITS * THREADS };
    static uint32_t start[COUNT];
    static work w;
    if (!w.function) {
        for (uint32_t i = 0; i < COUNT; i++)
            start[i] = 97;
        w = (work){kernel(load("O3"), "t_collatz"),
                   {device_alloc(sizeof start, nullptr), device_alloc(sizeof start, start), COUNT}};
    }
    OK(launch(w.function, UNITS, THREADS, stream, &w.args, sizeof w.args));
}

/** Prints the times of two launches on two streams, from one event to the end of each. */
static void print_pair(const pair *p) {
    printf("%lld %lld %lld", p->ns[0], p->ns[1], 0LL);
}

static void run_busy(void) {
    pair p = begin_pair();
    for (int i = 0; i < 2; i++)
        start_busy(p.streams[i]);
    end_pair(&p);
    print_pair(&p);
}

/** The first stream's launch, a short one, waits for the second's first one, of two. */
static void run_chain(void) {
    work w = make_work(load("O3")), nothing = w;
    nothing.args.count = 0;
    pair p = begin_pair();
    const hipEvent_t event = new_event();
    start_large(&w, 8, p.streams[1]);
    OK(hip.hipEventRecord(event, p.streams[1]));
    start_large(&w, 16, p.streams[1]);
    OK(hip.hipStreamWaitEvent(p.streams[0], event, 0));
    start_large(&nothing, 24, p.streams[0]);
    end_pair(&p);
    destroy(event);
    print_pair(&p);
}

/** Waits for a launch that has ended before, and then launches on another stream. */
static void run_late(void) {
    const struct timespec pause = {.tv_nsec = 20L * PAUSE_NS};
    work w = make_work(load("O3"));
    const hipStream_t streams[] = {new_stream(), new_stream()};
    for (int i = 0; i < 2; i++) {
        start_large(&w, 8, streams[i]);
        nanosleep(&pause, nullptr);
        OK(hip.hipDeviceSynchronize());
    }
    fputs("0 0 0", stdout);
}

/** Ends when a launch has, for which it does not wait. */
static void run_left(void) {
    work w = make_work(load("O3"));
    start_large(&w, 8, nullptr);
    watch();
    fputs("0 0 0", stdout);
}

/** Kills itself when it has waited for two launches of three. */
static void run_killed(void) {
    work w = make_work(load("O3"));
    pair p = begin_pair();
    for (int i = 0; i < 2; i++)
        start_large(&w, 8, p.streams[i]);
    OK(hip.hipDeviceSynchronize());
    start_large(&w, 8, p.streams[0]);
    fputs("0 0 0", stdout);
    fflush(stdout);
    raise(SIGKILL);
}

/** Fails in the second launch, and leaves another one on the first stream unfinished. */
static void run_failed(void) {
    work w = make_work(load("O3"));
    const hipStream_t streams[] = {new_stream(), new_stream()};
    void *flag = device_alloc(4, "\0\0\0");
    start_large(&w, 8, streams[0]);
    OK(launch(kernel(load("O3"), "t_spin"), 1, 64, streams[1], &flag, sizeof flag));
    assert_int_not_equal(hip.hipStreamSynchronize(streams[1]), hipSuccess);
    fputs("0 0 0", stdout);
}

/** Launches in a child after fork, while the parent has a launch that no one has waited for. */
static void run_fork(void) {
    work w = make_work(load("O3"));
    start_large(&w, 8, nullptr);
    watch();
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        start_large(&w, 16, nullptr);
        OK(hip.hipDeviceSynchronize());
        _exit(0); // what the parent's threads held is nobody's in the child
    }
    int status;
    waitpid(child, &status, 0);
    OK(hip.hipDeviceSynchronize());
    printf("%d %d 0", (int)child, status);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"busy", run_busy},     {"chain", run_chain},   {"late", run_late}, {"left", run_left},
             {"killed", run_killed}, {"failed", run_failed}, {"fork", run_fork}};

static int run_case(const char *name) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0)
            cases[i].run();
    return 0;
}

// ---- what is in the files

enum { MAX_LAUNCHES = 8 };

/** A launch in a trace; times in nanoseconds. */
typedef struct slice {
    long long begin, end, waves_end, shared;
    unsigned stream, threads;
} slice;

typedef struct trace {
    slice launches[MAX_LAUNCHES]; // in the order in which they are written
    int count;
    char *text;
} trace;

static char *read_all(const char *path) {
    char *text = nullptr;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(getdelim(&text, &room, 0, file) > 0);
    fclose(file);
    unlink(path);
    return text;
}

/** Reads a slice's place and times. Returns whether the line has one. */
static bool read_slice(const char *line, unsigned *thread, long long *begin, long long *end) {
    double from, length;
    unsigned process;
    if (sscanf(line, "{\"pid\":%u,\"tid\":%u,\"ph\":\"X\",\"ts\":%lf,\"dur\":%lf", &process, thread,
               &from, &length) != 4)
        return false;
    *begin = llround(1000 * from);
    *end = llround(1000 * (from + length));
    return true;
}

/** Reads a line of a trace. Waves come behind their launch. */
static void read_line(trace *t, const char *line, size_t length) {
    enum { PLACES = 64 }; // of a compute unit
    unsigned thread;
    long long begin, end;
    if (!read_slice(line, &thread, &begin, &end))
        return;
    if (memmem(line, length, "\"grid\":", 7)) {
        assert_true(t->count < MAX_LAUNCHES);
        const char *shared = strstr(line, "\"shared_ns\":");
        t->launches[t->count++] =
            (slice){begin, end, begin, atoll(shared + strlen("\"shared_ns\":")), thread, 0};
    } else if (memmem(line, length, "\"wave\":", 7)) {
        slice *l = &t->launches[t->count - 1];
        assert_int_equal(thread / PLACES, l->stream);
        assert_true(begin >= l->begin + LAUNCH_NS && end <= l->end);
        l->waves_end = end > l->waves_end ? end : l->waves_end;
        l->threads++;
    }
}

static trace read_trace(const char *path) {
    trace t = {.text = read_all(path)};
    for (const char *line = t.text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        read_line(&t, line, (size_t)(end - line));
    }
    return t;
}

static long long number_of(const char *text, const char *name) {
    const char *at = strstr(text, name);
    assert_non_null(at);
    return atoll(at + strlen(name));
}

/** Tests that a profile of one kernel has a trace's launches. */
static void expect_profile(const char *path, const trace *t) {
    char *text = read_all(path), wanted[128];
    long long sum = 0, shared = 0;
    for (int i = 0; i < t->count; i++) {
        const slice *l = &t->launches[i];
        sum += l->end - l->begin;
        shared += l->shared;
        snprintf(wanted, sizeof wanted, "\"stream\": %u, \"start_ns\": %lld, \"end_ns\": %lld,",
                 l->stream, l->begin, l->end);
        assert_non_null(strstr(text, wanted));
    }
    assert_int_equal(number_of(text, "\"elapsed_launches\": "), t->count);
    assert_int_equal(number_of(text, "\"elapsed_ns\": "), sum);
    assert_int_equal(number_of(text, "\"shared_ns\": "), shared);
    free(text);
}

/** Runs a case. Returns its trace, whose text the caller frees. */
static trace run_traced(const char *name, const char *options, output *o, bool has_profile) {
    char path[] = "/tmp/shown_test.XXXXXX", profile[64], all[256];
    close(mkstemp(path));
    snprintf(profile, sizeof profile, "%s.profile", path);
    snprintf(all, sizeof all, "%s;timeline=%s;profile=%s", options, path, profile);
    *o = run(name, all);
    const trace t = read_trace(path);
    if (has_profile)
        expect_profile(profile, &t);
    unlink(profile);
    return t;
}

/** Runs a case and tests that neither trace nor times change with the host's threads. */
static trace run_twice(const char *name, output *o) {
    output again;
    const trace t = run_traced(name, "clock=sample;threads=1", o, true);
    const trace other = run_traced(name, "clock=sample;threads=2", &again, true);
    assert_memory_equal(o->numbers, again.numbers, sizeof again.numbers);
    assert_string_equal(t.text, other.text);
    free(other.text);
    return t;
}

static size_t count_lines(const char *text, const char *wanted) {
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, wanted)); at += strlen(wanted))
        found++;
    return found;
}

// ---- the tests

/** Tests that two launches that share the chip begin and end as events say, and that their waves
 *  take the time that they then have. */
static void test_overlap(void **) {
    output o;
    const trace t = run_twice("busy", &o);
    assert_int_equal(t.count, 2);
    for (int i = 0; i < 2; i++) {
        const slice *l = &t.launches[i], *other = &t.launches[1 - i];
        assert_int_equal(l->end, o.numbers[l->stream - 1]); // from 0 on
        assert_true(l->begin < other->end && l->stream != other->stream);
        assert_true(l->shared > (l->end - l->begin) / 2);
        assert_true(l->threads > 0);
        assert_in_range(l->waves_end, l->end - (l->end - l->begin) / 20, l->end);
    }
    assert_int_equal(count_lines(t.text, "\"args\":{\"name\":\"stream 1\"}"), 1);
    assert_int_equal(count_lines(t.text, "\"args\":{\"name\":\"stream 2\"}"), 1);
    free(t.text);
}

/** Returns for how long workgroups of two launches may run at once. */
static long long both_ns(const slice *a, const slice *b) {
    const long long begin = a->begin > b->begin ? a->begin : b->begin;
    return (a->end < b->end ? a->end : b->end) - begin - LAUNCH_NS + 1; // of rounding
}

/** Tests that a launch that waits for another begins when that has ended, and runs beside what it
 *  does not wait for. */
static void test_chain(void **) {
    output o;
    const trace t = run_twice("chain", &o);
    assert_int_equal(t.count, 3);
    const slice *first = &t.launches[0];
    assert_true(first->begin == 0 && first->shared == 0 && first->stream == 2);
    for (int i = 1; i < 3; i++) {
        const slice *l = &t.launches[i];
        assert_in_range(l->begin, first->end, first->end + LAUNCH_NS / 10); // the dispatcher is one
        assert_in_range(l->shared, 1, both_ns(l, &t.launches[3 - i]));
        assert_int_equal(l->end, o.numbers[l->stream - 1]);
    }
    assert_int_equal(t.launches[1].stream + t.launches[2].stream, 1 + 2);
    free(t.text);
}

/** Tests that a launch begins after those for which the program waited, also if they had ended
 *  when it did. */
static void test_late(void **) {
    output o;
    const trace t = run_twice("late", &o);
    assert_int_equal(t.count, 2);
    assert_true(t.launches[1].begin == t.launches[0].end);
    free(t.text);
}

/** Tests that a launch for which the program does not wait is there when the program has ended. */
static void test_left(void **) {
    output o;
    const trace t = run_twice("left", &o);
    assert_int_equal(t.count, 1);
    assert_true(t.launches[0].begin == 0 && t.launches[0].threads > 0);
    free(t.text);
}

/** Tests that a program that is killed leaves all launches for which it has waited. */
static void test_killed(void **) {
    char path[] = "/tmp/shown_test.XXXXXX", options[64];
    close(mkstemp(path));
    snprintf(options, sizeof options, "clock=sample;timeline=%s", path);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        become("killed", options, tmpfile(), stderr);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const trace t = read_trace(path);
    assert_int_equal(t.count, 2);
    assert_null(strstr(t.text, "\n]\n"));
    free(t.text);
}

/** Tests that a launch that fails is there as far as it came, and what ran before it. */
static void test_failed(void **) {
    output o;
    const trace t = run_traced("failed", "clock=sample;limit=20000", &o, false);
    assert_int_equal(t.count, 2);
    assert_true(t.launches[0].stream == 1 && t.launches[1].stream == 2);
    assert_true(t.launches[1].end > t.launches[1].begin + LAUNCH_NS && t.launches[1].threads == 1);
    free(t.text);
}

/** Tests that a child shows its own launches, and the parent all of its. */
static void test_fork(void **) {
#if __has_feature(thread_sanitizer)
    skip(); // the sanitizer does not let a forked child start threads
#endif
    char path[] = "/tmp/shown_test.XXXXXX", options[64], childs[80];
    close(mkstemp(path));
    snprintf(options, sizeof options, "clock=sample;timeline=%s", path);
    const output o = run("fork", options);
    assert_int_equal(o.numbers[1], 0);
    snprintf(childs, sizeof childs, "%s.%lld", path, o.numbers[0]);
    const trace parent = read_trace(path), child = read_trace(childs);
    assert_int_equal(parent.count, 1);
    assert_int_equal(child.count, 1);
    assert_non_null(strstr(child.text, "\"grid\":[16,1,1]"));
    free(parent.text);
    free(child.text);
}

/** Tests that what cannot be written is told once. */
static void test_full(void **) {
    const output o = run("chain", "clock=sample;timeline=/dev/full");
    assert_int_equal(count_lines(o.errors, "timeline=/dev/full: cannot be written"), 1);
    assert_int_equal(count_lines(o.errors, "\n"), 1);
}

int main(int argc, char **argv) {
    open_library();
    if (argc > 1)
        return run_case(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap), cmocka_unit_test(test_chain),
        cmocka_unit_test(test_late),    cmocka_unit_test(test_left),
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_failed),
        cmocka_unit_test(test_fork),    cmocka_unit_test(test_full)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
