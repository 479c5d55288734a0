// SPDX-License-Identifier: Apache-2.0
// Measures how long a process takes from its start to the end of its first kernel on the simulated
// GPU. Prints `name value unit` lines.
//
//   sim_load [--json] LIBRARY OBJECT
//
// OBJECT is straight_gpu.c's, of 100 KB. Its kernel executes every instruction once, which is the
// worst case, since instructions are decoded when they are first reached. Each of RUNS processes
// loads the library and the module, runs one wave, and runs it again. Times are medians by the wall
// clock. The lanes' results are compared with the host's.
#include "../sim/hip/hip.h"
#include "straight.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 11, MAX_OBJECT = 1 << 20 };

typedef enum phase { OPEN_LIBRARY, LOAD_MODULE, FIRST_LAUNCH, SECOND_LAUNCH, NUM_PHASES } phase;
static const char *const names[NUM_PHASES] = {"open the library, hipInit", "hipModuleLoadData",
                                              "first launch", "second launch"};

static uint8_t object[MAX_OBJECT];

static struct {
#define HIP_FUNCTION(name) typeof(name) *name;
#include "../sim/hip/functions.def"
#undef HIP_FUNCTION
} hip;

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "sim_load: %s\n", what);
        exit(1);
    }
}

static void open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    need(library, "cannot open the library");
#define HIP_FUNCTION(name) hip.name = (typeof(hip.name))dlsym(library, #name);
#include "../sim/hip/functions.def"
#undef HIP_FUNCTION
    need(hip.hipInit(0) == hipSuccess, "hipInit failed");
}

static uint32_t expected(uint32_t lane) {
    uint32_t x = lane, y = 1;
    for (uint32_t i = 0; i < STRAIGHT_STEPS; i++)
        x = straight_step(x, &y, i);
    return x;
}

static void launch(hipFunction_t kernel, void *out) {
    void *args[] = {&out};
    need(hip.hipModuleLaunchKernel(kernel, 1, 1, 1, STRAIGHT_LANES, 1, 1, 0, nullptr, args,
                                   nullptr) == hipSuccess &&
             hip.hipDeviceSynchronize() == hipSuccess,
         "the launch failed");
}

/** Measures one process's times, in milliseconds. */
static void measure(const char *library, double times[NUM_PHASES]) {
    hipModule_t module;
    hipFunction_t kernel = nullptr;
    void *out = nullptr;
    uint32_t got[STRAIGHT_LANES];
    double at[NUM_PHASES + 1] = {milliseconds()};
    open_library(library);
    at[1] = milliseconds();
    need(hip.hipModuleLoadData(&module, object) == hipSuccess &&
             hip.hipModuleGetFunction(&kernel, module, "straight") == hipSuccess,
         "the object does not load");
    at[2] = milliseconds();
    need(hip.hipMalloc(&out, sizeof got) == hipSuccess, "no memory");
    launch(kernel, out);
    at[3] = milliseconds();
    launch(kernel, out);
    at[4] = milliseconds();
    need(hip.hipMemcpy(got, out, sizeof got, hipMemcpyDeviceToHost) == hipSuccess, "no copy");
    for (uint32_t lane = 0; lane < STRAIGHT_LANES; lane++)
        need(got[lane] == expected(lane), "a wrong result");
    for (int i = 0; i < NUM_PHASES; i++)
        times[i] = at[i + 1] - at[i];
}

/** Calls measure() in a process of its own. */
static bool measure_cold(const char *library, double times[NUM_PHASES]) {
    int ends[2], status = 1;
    need(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    if (child == 0) {
        measure(library, times);
        const bool sent = write(ends[1], times, NUM_PHASES * sizeof *times) > 0;
        _exit(!sent);
    }
    const bool ok = child > 0 && waitpid(child, &status, 0) == child && status == 0 &&
                    read(ends[0], times, NUM_PHASES * sizeof *times) > 0;
    close(ends[0]);
    close(ends[1]);
    return ok;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double times[RUNS]) {
    qsort(times, RUNS, sizeof *times, compare_doubles);
    return times[RUNS / 2];
}

static void report(bool as_json, const char *name, double value, bool is_last) {
    if (as_json) {
        printf("  \"%s\": {\"value\": %.4g, \"unit\": \"ms\"}%s\n", name, value,
               is_last ? "" : ",");
    } else {
        printf("%-44s %10.4g ms\n", name, value);
    }
}

int main(int argc, char **argv) {
    const bool as_json = argc > 1 && !strcmp(argv[1], "--json");
    need(argc == 3 + as_json, "usage: sim_load [--json] LIBRARY OBJECT");
    FILE *file = fopen(argv[2 + as_json], "rb");
    need(file && fread(object, 1, sizeof object, file) > 0, "cannot read the object");
    const long bytes = ftell(file);
    double times[NUM_PHASES + 1][RUNS];
    for (int run = 0; run < RUNS; run++) {
        double one[NUM_PHASES];
        need(measure_cold(argv[1 + as_json], one), "a run failed");
        times[NUM_PHASES][run] = 0;
        for (int i = 0; i < NUM_PHASES; i++) {
            times[i][run] = one[i];
            times[NUM_PHASES][run] += i < SECOND_LAUNCH ? one[i] : 0;
        }
    }
    char all[80];
    snprintf(all, sizeof all, "cold load of %ld bytes and first launch", bytes);
    printf("%s", as_json ? "{\n" : "");
    for (int i = 0; i < NUM_PHASES; i++)
        report(as_json, names[i], median(times[i]), false);
    report(as_json, all, median(times[NUM_PHASES]), true);
    printf("%s", as_json ? "}\n" : "");
    return 0;
}
