// SPDX-License-Identifier: Apache-2.0
// Threads that share a module, a pool, streams and events and have graphs and hiprtc's programs of
// their own; threads that all destroy the same handles; a process that leaves them. `make tsan` and
// `make asan` run it too.
#include "hip_testing.h"

#include <pthread.h>
#include <stdatomic.h>

enum { USED = 7 }; // hipMemPoolAttrUsedMemCurrent
enum { NUM_THREADS = 6, ITEMS = 256, ROUNDS = 8, HANDLES = 16 };

static hipModule_t module;
static hipMemPool_t pool;
static hipEvent_t shared_event;
static hipStream_t shared_stream;
static _Atomic int wrong_line; // the first check that failed in any thread; 0: none

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        int none = 0;                                                                              \
        if (!(condition)) {                                                                        \
            atomic_compare_exchange_strong(&wrong_line, &none, __LINE__);                          \
            return nullptr;                                                                        \
        }                                                                                          \
    } while (0)
#define WELL(call) CHECK((call) == hipSuccess)

static void run_threads(void *(*work)(void *)) {
    pthread_t threads[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], nullptr, work, (void *)(intptr_t)i), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        pthread_join(threads[i], nullptr);
    assert_int_equal(wrong_line, 0);
}

// ---- work side by side

/** Captures a fill, counts by a kernel of the shared module, and a copy, in memory of the graph's
 *  own, and launches the graph. */
static void *work_with_graphs(void *id) {
    const uint32_t first = (uint32_t)(intptr_t)id;
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipFunction_t f;
    uint32_t out[ITEMS], *d;
    WELL(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        WELL(hip.hipModuleGetFunction(&f, module, "t_count"));
        WELL(hip.hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
        WELL(hip.hipMallocAsync((void **)&d, sizeof out, stream));
        WELL(hip.hipMemsetD32Async(d, (int)(first + round), ITEMS, stream));
        WELL(launch(f, 2, 64, stream, &d, sizeof d));
        WELL(hip.hipMemcpyAsync(out, d, sizeof out, hipMemcpyDeviceToHost, stream));
        WELL(hip.hipFreeAsync(d, stream));
        WELL(hip.hipStreamEndCapture(stream, &graph));
        WELL(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
        WELL(hip.hipGraphLaunch(exec, stream));
        WELL(hip.hipStreamSynchronize(stream));
        CHECK(out[0] == first + round + 128 && out[ITEMS - 1] == first + round);
        WELL(hip.hipGraphExecDestroy(exec));
        WELL(hip.hipGraphDestroy(graph));
    }
    WELL(hip.hipStreamDestroy(stream));
    return nullptr;
}

/** Takes memory from the shared pool in the shared stream's order, and uses the shared event. */
static void *work_with_pool(void *id) {
    const int value = (int)(intptr_t)id;
    uint32_t *d, out[ITEMS];
    for (int round = 0; round < ROUNDS; round++) {
        WELL(hip.hipMallocFromPoolAsync((void **)&d, sizeof out, pool, shared_stream));
        WELL(hip.hipMemsetD32Async(d, value, ITEMS, shared_stream));
        WELL(hip.hipEventRecord(shared_event, shared_stream));
        WELL(hip.hipStreamWaitEvent(nullptr, shared_event, 0));
        WELL(hip.hipMemcpyAsync(out, d, sizeof out, hipMemcpyDeviceToHost, shared_stream));
        CHECK(out[ITEMS - 1] == (uint32_t)value);
        WELL(hip.hipFreeAsync(d, shared_stream));
        WELL(hip.hipEventSynchronize(shared_event));
    }
    return nullptr;
}

/** Compiles what is wrong, so that no headers are needed. */
static void *work_with_programs(void *id) {
    char source[64], log[65536] = "";
    size_t bytes = 0;
    hiprtcProgram program;
    snprintf(source, sizeof source, "no_such_type_%d x;", (int)(intptr_t)id);
    CHECK(hip.hiprtcCreateProgram(&program, source, "wrong", 0, nullptr, nullptr) ==
          HIPRTC_SUCCESS);
    CHECK(hip.hiprtcCompileProgram(program, 0, nullptr) == HIPRTC_ERROR_COMPILATION);
    CHECK(hip.hiprtcGetProgramLogSize(program, &bytes) == HIPRTC_SUCCESS);
    CHECK(bytes && bytes <= sizeof log);
    CHECK(hip.hiprtcGetProgramLog(program, log) == HIPRTC_SUCCESS && *log);
    CHECK(hip.hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
    return nullptr;
}

static void test_side_by_side(void **state) {
    (void)state;
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    uint64_t used = 1;
    module = load("O3");
    OK(hip.hipMemPoolCreate(&pool, &props));
    OK(hip.hipStreamCreate(&shared_stream));
    OK(hip.hipEventCreateWithFlags(&shared_event, hipEventDisableTiming));
    run_threads(work_with_graphs);
    run_threads(work_with_pool);
    run_threads(work_with_programs);
    OK(hip.hipDeviceSynchronize());
    OK(hip.hipMemPoolGetAttribute(pool, USED, &used));
    assert_int_equal(used, 0);
    OK(hip.hipMemPoolDestroy(pool));
    OK(hip.hipStreamDestroy(shared_stream));
    OK(hip.hipEventDestroy(shared_event));
    OK(hip.hipModuleUnload(module));
}

// ---- rivals

static struct {
    hipStream_t streams[HANDLES];
    hipEvent_t events[HANDLES];
    hipModule_t modules[HANDLES];
    hipMemPool_t pools[HANDLES];
    hipArray_t arrays[HANDLES];
    hiprtcProgram programs[HANDLES];
    hipLibrary_t libraries[HANDLES];
} all;
static atomic_int destroyed[7];

static void make_all(void) {
    static char path[4096];
    const hipMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    const hipChannelFormatDesc word = {32, 0, 0, 0, 1};
    snprintf(path, sizeof path, "%s/testdata/kernels.O3.co", build_dir());
    for (int i = 0; i < HANDLES; i++) {
        OK(hip.hipStreamCreate(&all.streams[i]));
        OK(hip.hipEventCreate(&all.events[i]));
        OK(hip.hipModuleLoad(&all.modules[i], path));
        OK(hip.hipMemPoolCreate(&all.pools[i], &props));
        OK(hip.hipMallocArray(&all.arrays[i], &word, 8, 8, 0));
        OK(hip.hipLibraryLoadFromFile(&all.libraries[i], path, nullptr, nullptr, 0, nullptr,
                                      nullptr, 0));
        assert_int_equal(
            hip.hiprtcCreateProgram(&all.programs[i], "", nullptr, 0, nullptr, nullptr), 0);
    }
}

/** Uses and destroys every handle; a thread that comes late gets an error. */
static void *destroy_all(void *id) {
    (void)id;
    for (int i = 0; i < HANDLES; i++) {
        hipFunction_t f;
        hiprtcProgram program = all.programs[i];
        hip.hipEventRecord(all.events[i], all.streams[i]);
        hip.hipStreamWaitEvent(all.streams[i], all.events[i], 0);
        hip.hipModuleGetFunction(&f, all.modules[i], "t_count");
        destroyed[0] += hip.hipStreamDestroy(all.streams[i]) == hipSuccess;
        destroyed[1] += hip.hipEventDestroy(all.events[i]) == hipSuccess;
        destroyed[2] += hip.hipModuleUnload(all.modules[i]) == hipSuccess;
        destroyed[3] += hip.hipMemPoolDestroy(all.pools[i]) == hipSuccess;
        destroyed[4] += hip.hipFreeArray(all.arrays[i]) == hipSuccess;
        destroyed[5] += hip.hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS;
        destroyed[6] += hip.hipLibraryUnload(all.libraries[i]) == hipSuccess;
    }
    return nullptr;
}

static void test_rivals(void **state) {
    (void)state;
    make_all();
    run_threads(destroy_all);
    for (size_t kind = 0; kind < sizeof destroyed / sizeof *destroyed; kind++)
        assert_int_equal(destroyed[kind], HANDLES);
}

// ---- the end

/** Leaves a handle of each kind, and ends. */
static int leave_handles(void) {
    hipGraph_t graph;
    hipGraphNode_t node;
    hipGraphExec_t exec;
    hiprtcLinkState link;
    char data[4] = "abc";
    module = load("O3");
    make_all();
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddEventRecordNode(&node, graph, nullptr, 0, all.events[0]));
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    assert_int_equal(hip.hiprtcLinkCreate(0, nullptr, nullptr, &link), HIPRTC_SUCCESS);
    assert_int_equal(hip.hiprtcLinkAddData(link, 100, data, 3, "a", 0, nullptr, nullptr), 0);
#if !__has_feature(thread_sanitizer) // which takes a lock that is made anew for one that is held
    pid_t child = fork();            // whose end must leave the parent's files alone
    if (child == 0)
        exit(0);
    waitpid(child, nullptr, 0);
#endif
    return hip.hiprtcLinkAddData(link, 100, data, 3, "a", 0, nullptr, nullptr) != 0;
}

/** A process that leaves all its handles to the runtime leaves no files, and ends well. */
static void test_left_handles(void **state) {
    (void)state;
    char folder[] = "/tmp/quern-test-XXXXXX";
    int status;
    assert_non_null(mkdtemp(folder));
    pid_t child = fork();
    if (child == 0) {
        setenv("TMPDIR", folder, 1);
        execl("/proc/self/exe", "shared_threads_test", "leave", nullptr);
        _exit(126);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(int argc, char **argv) {
    (void)argv;
    open_library();
    if (argc > 1)
        return leave_handles();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_left_handles),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
