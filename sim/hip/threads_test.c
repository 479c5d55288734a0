// SPDX-License-Identifier: Apache-2.0
// Everyone uses the HIP runtime at once: eight host threads on devices of five architectures, each
// with its own streams, modules, events and callbacks, in several processes. `make tsan` runs it
// too.
#include "hip_testing.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NUM_ARCHS = 5, NUM_THREADS = 8, ITEMS = 320 };

#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { ROUNDS = 5 };
#else
enum { ROUNDS = 20 };
#endif

static const char *const archs[NUM_ARCHS] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};
static const char *const files[NUM_ARCHS][2] = {{"gfx90a.O0", "gfx90a.O3"},
                                                {"O0", "O3"},
                                                {"gfx950.O0", "gfx950.O3"},
                                                {"gfx1151.O0", "gfx1151.O3"},
                                                {"gfx1201.O0", "gfx1201.O3"}};
static char *images[NUM_ARCHS][2];

/** What one thread does; cmocka's assertions are for the main thread alone. */
typedef struct worker {
    pthread_t thread;
    unsigned id;
    int device;
    int wrong_line; // the first check that failed; 0: none
    hipStream_t first, second;
    hipModule_t module;
    hipEvent_t event;
    uint32_t *in, *out; // pinned
    void *device_in, *device_out;
    atomic_uint calls; // of the callback
} worker;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            w->wrong_line = __LINE__;                                                              \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define WELL(call) CHECK((call) == hipSuccess)

static void count_call(hipStream_t stream, hipError_t status, void *data) {
    (void)stream;
    worker *w = data;
    atomic_fetch_add(&w->calls, status == hipSuccess ? 1 : 1000);
}

static void count_host(void *data) {
    worker *w = data;
    atomic_fetch_add(&w->calls, 1);
}

static bool acquire(worker *w, unsigned round) {
    WELL(hip.hipSetDevice(w->device));
    WELL(hip.hipModuleLoadData(&w->module, images[w->device % NUM_ARCHS][round % 2]));
    WELL(hip.hipStreamCreateWithFlags(&w->first, hipStreamNonBlocking));
    WELL(hip.hipStreamCreate(&w->second));
    WELL(hip.hipEventCreateWithFlags(&w->event, hipEventDisableTiming));
    WELL(hip.hipHostMalloc((void **)&w->in, ITEMS * 4, 0));
    WELL(hip.hipHostMalloc((void **)&w->out, ITEMS * 4, 0));
    WELL(hip.hipMalloc(&w->device_in, ITEMS * 4));
    WELL(hip.hipMallocAsync(&w->device_out, ITEMS * 4, w->second));
    return true;
}

static bool release(worker *w) {
    WELL(hip.hipFreeAsync(w->device_out, w->second));
    WELL(hip.hipFree(w->device_in));
    WELL(hip.hipHostFree(w->in));
    WELL(hip.hipHostFree(w->out));
    WELL(hip.hipEventDestroy(w->event));
    WELL(hip.hipStreamDestroy(w->first));
    WELL(hip.hipStreamDestroy(w->second));
    WELL(hip.hipModuleUnload(w->module));
    CHECK(hip.hipModuleUnload(w->module) == hipErrorNotFound);
    return true;
}

/** Makes an error of the thread's own, which stays until the thread asks for it, whatever other
 *  threads do meanwhile. */
static hipError_t err(const worker *w) {
    return w->id % 2 ? hip.hipSetDevice(-1) : hip.hipModuleUnload(nullptr);
}

/** Copies in through one stream, computes and copies out through another, then calls functions of
 *  this program. */
static bool pipeline(worker *w) {
    hipFunction_t f;
    void *args[2] = {w->device_out, w->device_in};
    WELL(hip.hipModuleGetFunction(&f, w->module, "t_stack"));
    WELL(hip.hipMemcpyAsync(w->device_in, w->in, ITEMS * 4, hipMemcpyHostToDevice, w->first));
    WELL(hip.hipEventRecord(w->event, w->first));
    WELL(hip.hipStreamWaitEvent(w->second, w->event, 0));
    WELL(hip.hipMemsetAsync(w->device_out, 0xEE, ITEMS * 4, w->second));
    WELL(launch(f, ITEMS / 64, 64, w->second, args, sizeof args));
    WELL(hip.hipMemcpyAsync(w->out, w->device_out, ITEMS * 4, hipMemcpyDeviceToHost, w->second));
    WELL(hip.hipStreamAddCallback(w->second, count_call, w, 0));
    WELL(hip.hipLaunchHostFunc(w->second, count_host, w));
    WELL(hip.hipStreamSynchronize(w->second));
    WELL(hip.hipEventQuery(w->event));
    return true;
}

static uint32_t weigh(uint32_t v) {
    uint32_t sum = 0, n = 1;
    do {
        sum += v % 10 * n++;
        v /= 10;
    } while (v);
    return sum;
}

/** A module has variables of its own, even if other modules were loaded from its file. */
static bool use_variables(worker *w) {
    hipFunction_t f;
    uint32_t value;
    WELL(hip.hipModuleGetFunction(&f, w->module, "t_globals"));
    for (uint32_t count = 7; count < 9; count++) {
        WELL(launch(f, 1, 1, w->second, &w->device_out, sizeof w->device_out));
        WELL(hip.hipMemcpyAsync(&value, w->device_out, 4, hipMemcpyDeviceToHost, w->second));
        CHECK(value == count * 15);
    }
    return true;
}

static bool work_once(worker *w, unsigned round) {
    w->device = (int)((w->id + round) % NUM_ARCHS);
    if (!acquire(w, round))
        return false;
    hipError_t error = err(w);
    CHECK(error == (w->id % 2 ? hipErrorInvalidDevice : hipErrorInvalidHandle));
    for (uint32_t i = 0; i < ITEMS; i++)
        w->in[i] = (i + 1) * (w->id + 1) * (round + 3) * 7919;
    if (!pipeline(w))
        return false;
    CHECK(atomic_load(&w->calls) == 2 * (round + 1));
    for (uint32_t i = 0; i < ITEMS; i++)
        CHECK(w->out[i] == weigh(w->in[i]));
    CHECK(hip.hipGetLastError() == error);
    return use_variables(w) && release(w);
}

static void *work(void *data) {
    worker *w = data;
    for (unsigned round = 0; round < ROUNDS && work_once(w, round); round++) {
    }
    return nullptr;
}

/** Runs the threads. Returns the line of the first check that failed in any of them; 0: none. */
static int work_together(unsigned num_threads) {
    worker workers[NUM_THREADS] = {};
    int wrong_line = 0;
    for (unsigned i = 0; i < num_threads; i++) {
        workers[i].id = i;
        if (pthread_create(&workers[i].thread, nullptr, work, &workers[i]) != 0)
            return __LINE__;
    }
    for (unsigned i = 0; i < num_threads; i++) {
        pthread_join(workers[i].thread, nullptr);
        wrong_line = wrong_line ? wrong_line : workers[i].wrong_line;
    }
    return wrong_line;
}

/** Starts a new process of this program, which runs as many threads. */
static pid_t start_process(void) {
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "threads_test", "child", nullptr);
        _exit(126);
    }
    return child;
}

static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void test_threads_and_processes(void **state) {
    (void)state;
    pid_t children[2] = {start_process(), start_process()};
    assert_int_equal(work_together(NUM_THREADS), 0);
    assert_int_equal(status_of(children[0]), 0);
    assert_int_equal(status_of(children[1]), 0);
}

/** Both sides of a fork go on, with threads of their own. */
static void test_both_sides_of_a_fork(void **state) {
    (void)state;
#if __has_feature(thread_sanitizer)
    skip(); // the sanitizer does not let a forked child start threads
#endif
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        exit(work_together(3) != 0);
    }
    assert_int_equal(work_together(3), 0);
    assert_int_equal(status_of(child), 0);
}

/** While a kernel waits for the host, calls that do not concern the kernel must not wait for
 *  it. */
static void test_beside_a_waiting_kernel(void **state) {
    (void)state;
    hipModule_t waiting, other;
    hipStream_t streams[2];
    void *memory, *flag;
    alarm(60);
    OK(hip.hipSetDevice(1));
    OK(hip.hipHostMalloc(&flag, 4, 0));
    memset(flag, 0, 4);
    OK(hip.hipModuleLoadData(&waiting, images[1][1]));
    OK(hip.hipStreamCreateWithFlags(&streams[0], hipStreamNonBlocking));
    OK(launch(kernel(waiting, "t_spin"), 1, 64, streams[0], &flag, sizeof flag));
    OK(hip.hipStreamCreateWithFlags(&streams[1], hipStreamNonBlocking));
    OK(hip.hipMallocAsync(&memory, 1000, streams[1]));
    OK(launch(kernel(waiting, "t_set"), 1, 1, streams[1], &memory, sizeof memory));
    OK(hip.hipFreeAsync(memory, streams[1]));
    OK(hip.hipStreamSynchronize(streams[1]));
    OK(hip.hipStreamDestroy(streams[1]));
    OK(hip.hipSetDevice(0));
    OK(hip.hipMalloc(&memory, 1000));
    OK(hip.hipModuleLoadData(&other, images[0][0]));
    OK(hip.hipModuleUnload(other));
    OK(hip.hipFree(memory));
    OK(hip.hipSetDevice(1));
    assert_int_equal(hip.hipStreamQuery(streams[0]), hipErrorNotReady);
    *(volatile uint32_t *)flag = 1;
    OK(hip.hipStreamSynchronize(streams[0]));
    OK(hip.hipStreamDestroy(streams[0]));
    OK(hip.hipModuleUnload(waiting));
    OK(hip.hipHostFree(flag));
    alarm(0);
}

static char *read_image(const char *way) {
    char path[4096];
    snprintf(path, sizeof path, "%s/testdata/kernels.%s.co", build_dir(), way);
    FILE *file = fopen(path, "rb");
    enum { MAX_BYTES = 1 << 20 };
    char *image = calloc(1, MAX_BYTES);
    if (!file || !image || fread(image, 1, MAX_BYTES, file) == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    return image;
}

static void set_up(void) {
    open_library();
    for (int i = 0; i < NUM_ARCHS; i++) {
        char option[32];
        snprintf(option, sizeof option, "arch=%s", archs[i]);
        if (hip.quernsim_configure(option) != hipSuccess)
            exit(1);
        images[i][0] = read_image(files[i][0]);
        images[i][1] = read_image(files[i][1]);
    }
    int count;
    if (hip.quernsim_configure("check=all;threads=2") != hipSuccess ||
        hip.hipGetDeviceCount(&count) != hipSuccess || count != NUM_ARCHS) {
        exit(1);
    }
}

static void tear_down(void) {
    for (int i = 0; i < NUM_ARCHS; i++) {
        free(images[i][0]);
        free(images[i][1]);
    }
}

int main(int argc, char **argv) {
    (void)argv;
    set_up();
    int failed;
    if (argc > 1) {
        failed = work_together(NUM_THREADS) != 0;
    } else {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_beside_a_waiting_kernel),
            cmocka_unit_test(test_threads_and_processes),
            cmocka_unit_test(test_both_sides_of_a_fork),
        };
        failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    }
    tear_down();
    return failed;
}
