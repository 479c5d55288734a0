// SPDX-License-Identifier: Apache-2.0
// For the tests of the HIP runtime: opens the library as any program would, and has kernels in
// every form.
#ifndef SIM_HIP_TESTING_H
#define SIM_HIP_TESTING_H

#include "hip.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
#define HIP_FUNCTION(name) typeof(name) *name;
#include "functions.def"
#undef HIP_FUNCTION
    typeof(quernsim_configure) *quernsim_configure;
} hip;
static void *library;

/** How the kernels were compiled: level, code object version 4, arguments in registers. */
enum { NUM_LEVELS = 5 };
static const char *const gfx942_levels[NUM_LEVELS] = {"O0", "O1", "O3", "v4", "preload"};
static const char *const *levels = gfx942_levels;
static int num_levels = NUM_LEVELS;
static hipModule_t modules[NUM_LEVELS];

#define OK(call) assert_int_equal((call), hipSuccess)

static inline const char *build_dir(void) {
    const char *dir = getenv("QUERN_BUILD_DIR");
    return dir ? dir : ".";
}

static inline void open_library(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libquernsim.so", build_dir());
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define HIP_FUNCTION(name) hip.name = (typeof(hip.name))dlsym(library, #name);
#include "functions.def"
#undef HIP_FUNCTION
    hip.quernsim_configure = (typeof(hip.quernsim_configure))dlsym(library, "quernsim_configure");
}

static inline hipModule_t load(const char *level) {
    char path[4096];
    snprintf(path, sizeof path, "%s/testdata/kernels.%s.co", build_dir(), level);
    hipModule_t module;
    OK(hip.hipModuleLoad(&module, path));
    return module;
}

static inline hipFunction_t kernel(hipModule_t module, const char *name) {
    hipFunction_t f;
    OK(hip.hipModuleGetFunction(&f, module, name));
    return f;
}

/** Launches with the arguments packed in a struct, as quern's own runtime does. */
static inline hipError_t launch(hipFunction_t f, unsigned grid, unsigned block, hipStream_t stream,
                                void *args, size_t bytes) {
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     HIP_LAUNCH_PARAM_END};
    return hip.hipModuleLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, nullptr, extra);
}

static inline void *device_alloc(size_t bytes, const void *contents) {
    void *p;
    OK(hip.hipMalloc(&p, bytes));
    if (contents)
        OK(hip.hipMemcpy(p, contents, bytes, hipMemcpyHostToDevice));
    else
        OK(hip.hipMemset(p, 0xEE, bytes));
    return p;
}

/** Copies device memory out and frees it. */
static inline void take(void *host, void *device, size_t bytes) {
    OK(hip.hipMemcpy(host, device, bytes, hipMemcpyDeviceToHost));
    OK(hip.hipFree(device));
}

[[maybe_unused]] static uint64_t random_state = 0x9E3779B97F4A7C15;

static inline uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline void reset(void) {
    OK(hip.hipDeviceReset());
    for (int l = 0; l < num_levels; l++)
        modules[l] = load(levels[l]);
    hip.hipGetLastError();
}

/** Called before each test, so that what an earlier test broke does not fail this one. */
static inline int start(void **state) {
    (void)state;
    if (!modules[0] || hip.hipDeviceSynchronize() != hipSuccess)
        reset();
    hip.hipGetLastError();
    return 0;
}

#endif
