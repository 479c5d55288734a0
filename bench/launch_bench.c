// SPDX-License-Identifier: Apache-2.0
// Measures what a call costs the host beyond the driver's own launch. Rounds of qn_rmsnorm of one
// short row take turns with rounds of an empty kernel launched through the CUDA driver. Prints
// microseconds a call, as medians of the rounds.
//
//   launch_bench [DEVICE]      default: cuda:0
#include <quern/norm.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 200, ROUNDS = 21, H = 1024 };

static const char empty_kernel[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";

/** The driver's functions that are needed, by their exported names. */
typedef struct cuda {
    int (*module_load)(void **module, const void *image);
    int (*get_function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared_bytes, void *stream, void **params, void **extra);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    void *function, *stream;
} cuda;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "launch_bench: %s: %s\n", what, why);
    exit(1);
}

static void check(qn_status st, const char *what) {
    if (st != QN_OK)
        fail(what, qn_last_error());
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        fail(name, "not in libcuda.so.1");
    return found;
}

static cuda open_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context = nullptr, *module = nullptr;
    if (!library)
        fail("libcuda.so.1", dlerror());
    cuda c = {.module_load = symbol(library, "cuModuleLoadData"),
              .get_function = symbol(library, "cuModuleGetFunction"),
              .launch = symbol(library, "cuLaunchKernel"),
              .retain = symbol(library, "cuDevicePrimaryCtxRetain"),
              .set_current = symbol(library, "cuCtxSetCurrent"),
              .stream_create = symbol(library, "cuStreamCreate")};
    if (c.retain(&context, 0) || c.set_current(context) || c.stream_create(&c.stream, 1) ||
        c.module_load(&module, empty_kernel) || c.get_function(&c.function, module, "empty"))
        fail("the empty kernel", "the driver refused it");
    return c;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times) {
    qsort(times, ROUNDS, sizeof *times, compare);
    return times[ROUNDS / 2];
}

static DLTensor bf16(void *data, DLDevice device, int ndim, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = device, .ndim = ndim, .dtype = {kDLBfloat, 16, 1}, .shape = shape};
}

int main(int argc, char **argv) {
    const char *spec = argc > 1 ? argv[1] : "cuda:0";
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    void *memory = nullptr;
    double ours[ROUNDS], empty[ROUNDS];
    check(qn_device_open(&device, spec), spec);
    check(qn_malloc(device, &memory, 3 * 2 * H), "qn_malloc");
    cuda c = open_cuda();
    check(qn_stream_wrap(&stream, device, c.stream), "qn_stream_wrap");
    int64_t shape[] = {1, H}, width[] = {H};
    const DLDevice id = qn_device_id(device);
    DLTensor x = bf16(memory, id, 2, shape), out = bf16((char *)memory + 2 * H, id, 2, shape);
    DLTensor weight = bf16((char *)memory + 4 * H, id, 1, width);
    for (int round = -2; round < ROUNDS; round++) { // two to warm up
        const double start = now_us();
        for (int i = 0; i < CALLS; i++)
            check(qn_rmsnorm(stream, &out, &x, &weight, 1e-6f), "qn_rmsnorm");
        const double middle = now_us();
        check(qn_stream_sync(stream), "qn_stream_sync");
        const double again = now_us();
        for (int i = 0; i < CALLS; i++)
            c.launch(c.function, 1, 1, 1, 32, 1, 1, 0, c.stream, nullptr, nullptr);
        const double end = now_us();
        check(qn_stream_sync(stream), "qn_stream_sync");
        if (round >= 0) {
            ours[round] = (middle - start) / (double)CALLS;
            empty[round] = (end - again) / (double)CALLS;
        }
    }
    const double a = median(ours), b = median(empty);
    printf("{\"device\": \"%s\", \"qn_rmsnorm_us\": %.3f, \"empty_kernel_us\": %.3f, "
           "\"beyond_us\": %.3f}\n",
           spec, a, b, a - b);
    qn_free(device, memory);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}
