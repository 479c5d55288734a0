// SPDX-License-Identifier: Apache-2.0
// What tests of modelled time share. Each case runs in a process of its own, with a QUERN_SIM of
// its own: the test's program runs itself again with the case's name, and reads what the case
// prints.
#ifndef SIM_ELAPSED_TESTING_H
#define SIM_ELAPSED_TESTING_H

#include "hip_testing.h"

#include <math.h>

enum {
    GROUPS = 700,
    BLOCK = 128,
    ITEMS = GROUPS * BLOCK,
    LAUNCH_NS = 2000,
    UNITS = 304,
    PAUSE_NS = 20000000
};

// ---- what cases do, in the child

static inline hipEvent_t new_event(void) {
    hipEvent_t event;
    OK(hip.hipEventCreate(&event));
    return event;
}

static inline void destroy(hipEvent_t event) {
    OK(hip.hipEventDestroy(event));
}

static inline hipStream_t new_stream(void) {
    hipStream_t stream;
    OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    return stream;
}

static inline long long elapsed(hipEvent_t from, hipEvent_t to) {
    float ms;
    OK(hip.hipEventElapsedTime(&ms, from, to));
    return llround((double)ms * 1e6);
}

/** A kernel whose waves take different times, and its arguments. */
typedef struct work {
    hipFunction_t function;
    struct {
        void *steps, *start;
        uint32_t count;
    } args;
} work;

static inline work make_work(hipModule_t module) {
    static uint32_t start[ITEMS];
    for (uint32_t i = 0; i < ITEMS; i++)
        start[i] = i % 97 + 1;
    return (work){kernel(module, "t_collatz"),
                  {device_alloc(sizeof start, nullptr), device_alloc(sizeof start, start), ITEMS}};
}

static inline hipError_t start_work(work *w, hipStream_t stream) {
    return launch(w->function, GROUPS, BLOCK, stream, &w->args, sizeof w->args);
}

/** Starts some workgroups, of which a compute unit holds one: it takes all of LDS. */
static inline void start_large(work *w, unsigned groups, hipStream_t stream) {
    enum { LDS = 65536 };
    size_t bytes = sizeof w->args;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &w->args, HIP_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, HIP_LAUNCH_PARAM_END};
    OK(hip.hipModuleLaunchKernel(w->function, groups, 1, 1, BLOCK, 1, 1, LDS, stream, nullptr,
                                 extra));
}

/** Streams that begin together, and events at their ends. */
typedef struct pair {
    hipStream_t streams[2];
    hipEvent_t first, ends[2];
    long long ns[2]; // from the first event to the ends
} pair;

static inline pair begin_pair(void) {
    const pair p = {{new_stream(), new_stream()}, new_event(), {new_event(), new_event()}, {}};
    OK(hip.hipEventRecord(p.first, p.streams[0]));
    OK(hip.hipStreamWaitEvent(p.streams[1], p.first, 0));
    return p;
}

static inline void end_pair(pair *p) {
    for (int i = 0; i < 2; i++)
        OK(hip.hipEventRecord(p->ends[i], p->streams[i]));
    OK(hip.hipDeviceSynchronize());
    for (int i = 0; i < 2; i++) {
        p->ns[i] = elapsed(p->first, p->ends[i]);
        destroy(p->ends[i]);
        OK(hip.hipStreamDestroy(p->streams[i]));
    }
    destroy(p->first);
}

// ---- runs of cases

typedef struct output {
    long long numbers[3];
    char errors[512];
} output;

/** Becomes this program again, for a case, with its output in the two files. */
[[noreturn]] static inline void become(const char *name, const char *options, FILE *out,
                                       FILE *errors) {
    setenv("QUERN_SIM", options, 1);
    dup2(fileno(out), 1);
    dup2(fileno(errors), 2);
    execl("/proc/self/exe", "case", name, nullptr);
    _exit(126);
}

/** Runs a case. */
static inline output run(const char *name, const char *options) {
    output o = {};
    FILE *out = tmpfile(), *errors = tmpfile();
    const pid_t child = fork();
    if (child == 0)
        become(name, options, out, errors);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(out);
    rewind(errors);
    o.errors[fread(o.errors, 1, sizeof o.errors - 1, errors)] = 0;
    if (status || fscanf(out, "%lld %lld %lld", &o.numbers[0], &o.numbers[1], &o.numbers[2]) != 3)
        fail_msg("%s with %s ends with %d: %s", name, options, status, o.errors);
    fclose(out);
    fclose(errors);
    return o;
}

#endif
