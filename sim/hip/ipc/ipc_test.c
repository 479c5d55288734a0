// SPDX-License-Identifier: Apache-2.0
// Two processes, each with a runtime of its own, that see each other's memory and events. The other
// process is this program, started anew with a part to play; pipes join the two.
#include "../hip_testing.h"

#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

enum { COUNT = 5000, BYTES = 4 * COUNT };

typedef struct letter {
    hipIpcMemHandle_t memory, middle;
    hipIpcEventHandle_t event;
    hipMemPoolPtrExportData pointer;
    uint32_t seed;
    int fd; // of memory without an address, which the other process inherits
} letter;

/** The other process: its input and output. */
typedef struct other {
    pid_t pid;
    int to, from;
} other;

static other begin(const char *part) {
    int in[2], out[2];
    assert_int_equal(pipe(in) | pipe(out), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    char *const argv[] = {"ipc_test", (char *)part, nullptr};
    other o = {.to = in[1], .from = out[0]};
    assert_int_equal(posix_spawn(&o.pid, "/proc/self/exe", &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    return o;
}

static void say(int fd, const void *what, size_t bytes) {
    if (write(fd, what, bytes) != (ssize_t)bytes)
        abort();
}

/** Returns false if the other process has ended. */
static bool hear(int fd, void *what, size_t bytes) {
    for (size_t have = 0; have < bytes;) {
        const ssize_t n = read(fd, (char *)what + have, bytes - have);
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

static void end(other *o) {
    int status;
    close(o->to);
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(o->from);
}

/** Ends the other process with the line of a check that failed. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "ipc_test: line %d in the other process\n", __LINE__);                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define WELL(call) MUST((call) == hipSuccess)

// ---- memory

/** Checks what the first process wrote, adds one to each word by a kernel, says so. */
static int other_memory(void) {
    letter l;
    uint32_t *all, *again, *middle, words[COUNT];
    MUST(hear(0, &l, sizeof l));
    WELL(hip.hipIpcOpenMemHandle((void **)&all, l.memory, 1));
    WELL(hip.hipIpcOpenMemHandle((void **)&again, l.memory, 1));
    WELL(hip.hipIpcOpenMemHandle((void **)&middle, l.middle, 1));
    MUST(again == all && middle == all + COUNT / 2);
    WELL(hip.hipMemcpy(words, all, BYTES, hipMemcpyDeviceToHost));
    for (uint32_t i = 0; i < COUNT; i++)
        MUST(words[i] == l.seed * i);
    hipModule_t module = load("O3");
    hipFunction_t f = kernel(module, "t_count");
    void *p = middle;
    WELL(launch(f, 3, 64, nullptr, &p, sizeof p)); // 192 times
    WELL(hip.hipDeviceSynchronize());
    say(1, "k", 1);
    char go;
    MUST(hear(0, &go, 1));
    WELL(hip.hipMemcpy(words, all, BYTES, hipMemcpyDeviceToHost));
    MUST(words[COUNT / 2] == 77);
    MUST(hip.hipFree(all) == hipErrorInvalidValue);
    WELL(hip.hipIpcCloseMemHandle(all));
    WELL(hip.hipIpcCloseMemHandle(all));
    WELL(hip.hipMemcpy(words, middle, 4, hipMemcpyDeviceToHost)); // still open
    WELL(hip.hipIpcCloseMemHandle(middle));
    MUST(hip.hipIpcCloseMemHandle(middle) == hipErrorInvalidValue);
    MUST(hip.hipMemcpy(words, all, 4, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
    return 0;
}

static void share(size_t bytes) {
    letter l = {.seed = (uint32_t)random_bits()};
    uint32_t words[COUNT], *d;
    for (uint32_t i = 0; i < COUNT; i++)
        words[i] = l.seed * i;
    OK(hip.hipMalloc((void **)&d, bytes));
    OK(hip.hipMemcpy(d, words, BYTES, hipMemcpyHostToDevice)); // before it is shared
    OK(hip.hipIpcGetMemHandle(&l.memory, d));
    OK(hip.hipIpcGetMemHandle(&l.middle, d + COUNT / 2));
    other o = begin("memory");
    say(o.to, &l, sizeof l);
    char done = 0;
    hear(o.from, &done, 1);
    assert_int_equal(done, 'k');
    OK(hip.hipMemcpy(words, d, BYTES, hipMemcpyDeviceToHost));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(words[i], l.seed * i + (i == COUNT / 2 ? 192 : 0));
    OK(hip.hipMemsetD32(d + COUNT / 2, 77, 1)); // after it was
    say(o.to, "g", 1);
    end(&o);
    OK(hip.hipFree(d));
}

static void test_memory(void **state) {
    (void)state;
    share(BYTES);        // less than a page of the guest's
    share(BYTES + 1000); // and of a size of its own
    share(1 << 20);
}

static int other_late(void) {
    letter l;
    void *p;
    MUST(hear(0, &l, sizeof l));
    MUST(hip.hipIpcOpenMemHandle(&p, l.memory, 1) == hipErrorInvalidDevicePointer);
    return 0;
}

/** Memory that was freed before the other process opens it. */
static void test_freed(void **state) {
    (void)state;
    letter l = {};
    void *d, *p;
    OK(hip.hipMalloc(&d, BYTES));
    OK(hip.hipIpcGetMemHandle(&l.memory, d));
    assert_int_equal(hip.hipIpcOpenMemHandle(&p, l.memory, 1), hipErrorInvalidContext); // its own
    assert_int_equal(hip.hipIpcOpenMemHandle(&p, l.memory, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipIpcOpenMemHandle(nullptr, l.memory, 1), hipErrorInvalidValue);
    OK(hip.hipFree(d));
    other o = begin("late");
    say(o.to, &l, sizeof l);
    end(&o);
    assert_int_equal(hip.hipIpcGetMemHandle(&l.memory, d), hipErrorInvalidValue);
    memset(&l.memory, 0x5a, sizeof l.memory);
    assert_int_equal(hip.hipIpcOpenMemHandle(&p, l.memory, 1), hipErrorInvalidValue);
    assert_int_equal(hip.hipIpcGetMemHandle(&l.memory, &l), hipErrorInvalidValue); // the program's
    assert_int_equal(hip.hipIpcCloseMemHandle(&l), hipErrorInvalidValue);
}

// ---- events

/** Waits for the first process's event, then for its own next record of it. */
static int other_event(void) {
    letter l;
    hipEvent_t event;
    uint32_t *d, word;
    MUST(hear(0, &l, sizeof l));
    WELL(hip.hipIpcOpenMemHandle((void **)&d, l.memory, 1));
    WELL(hip.hipIpcOpenEventHandle(&event, l.event));
    MUST(hip.hipEventQuery(event) == hipErrorNotReady);
    say(1, "q", 1);
    WELL(hip.hipStreamWaitEvent(nullptr, event, 0));
    WELL(hip.hipMemcpyAsync(&word, d, 4, hipMemcpyDeviceToHost, nullptr));
    WELL(hip.hipStreamSynchronize(nullptr));
    MUST(word == 123);
    WELL(hip.hipEventQuery(event));
    WELL(hip.hipMemsetD32Async(d, 456, 1, nullptr));
    WELL(hip.hipEventRecord(event, nullptr));
    say(1, "r", 1);
    WELL(hip.hipEventSynchronize(event));
    WELL(hip.hipEventDestroy(event));
    WELL(hip.hipIpcCloseMemHandle(d));
    return 0;
}

static void wait_for_flag(void *flag) {
    while (!atomic_load((atomic_bool *)flag))
        usleep(100);
}

static void test_events(void **state) {
    (void)state;
    letter l = {};
    hipEvent_t event, plain;
    uint32_t *d, word;
    atomic_bool flag = false;
    assert_int_equal(hip.hipEventCreateWithFlags(&event, hipEventInterprocess),
                     hipErrorInvalidValue); // it would have a time
    OK(hip.hipEventCreateWithFlags(&event, hipEventInterprocess | hipEventDisableTiming));
    OK(hip.hipEventCreate(&plain));
    assert_int_equal(hip.hipIpcGetEventHandle(&l.event, plain), hipErrorInvalidConfiguration);
    OK(hip.hipEventDestroy(plain));
    OK(hip.hipMalloc((void **)&d, 4));
    OK(hip.hipIpcGetMemHandle(&l.memory, d));
    OK(hip.hipIpcGetEventHandle(&l.event, event));
    OK(hip.hipLaunchHostFunc(nullptr, wait_for_flag, &flag));
    OK(hip.hipMemsetD32Async(d, 123, 1, nullptr));
    OK(hip.hipEventRecord(event, nullptr));
    other o = begin("event");
    say(o.to, &l, sizeof l);
    char said = 0;
    hear(o.from, &said, 1);
    assert_int_equal(said, 'q'); // it saw that the event was not ready
    atomic_store(&flag, true);
    hear(o.from, &said, 1);
    assert_int_equal(said, 'r');
    OK(hip.hipEventSynchronize(event)); // of the other's record
    OK(hip.hipMemcpy(&word, d, 4, hipMemcpyDeviceToHost));
    assert_int_equal(word, 456);
    end(&o);
    hipEvent_t opened;
    assert_int_equal(hip.hipIpcOpenEventHandle(&opened, l.event), hipErrorInvalidContext);
    memset(&l.event, 0, sizeof l.event);
    assert_int_equal(hip.hipIpcOpenEventHandle(&opened, l.event), hipErrorInvalidValue);
    OK(hip.hipEventDestroy(event));
    OK(hip.hipFree(d));
}

// ---- memory without an address

static int other_physical(void) {
    letter l;
    hipMemGenericAllocationHandle_t m;
    const hipMemAccessDesc access = {{1, 0}, 3};
    void *p;
    MUST(hear(0, &l, sizeof l));
    WELL(hip.hipMemImportFromShareableHandle(&m, (void *)(uintptr_t)l.fd, 1));
    WELL(hip.hipMemAddressReserve(&p, 1 << 16, 0, nullptr, 0));
    WELL(hip.hipMemMap(p, 1 << 16, 0, m, 0));
    WELL(hip.hipMemSetAccess(p, 1 << 16, &access, 1));
    WELL(hip.hipMemsetD32(p, 99, 1));
    WELL(hip.hipDeviceSynchronize());
    return 0;
}

static void test_physical(void **state) {
    (void)state;
    letter l = {};
    const hipMemAllocationProp prop = {1, 1, {1, 0}, nullptr, {0, 0, 0}};
    const hipMemAccessDesc access = {{1, 0}, 3};
    hipMemGenericAllocationHandle_t m;
    void *p;
    uint32_t word;
    int exported;
    OK(hip.hipMemCreate(&m, 1 << 16, &prop, 0));
    OK(hip.hipMemAddressReserve(&p, 1 << 16, 0, nullptr, 0));
    OK(hip.hipMemMap(p, 1 << 16, 0, m, 0));
    OK(hip.hipMemSetAccess(p, 1 << 16, &access, 1));
    OK(hip.hipMemExportToShareableHandle(&exported, m, 1, 0));
    l.fd = dup(exported); // unlike the one that was exported, a child has it
    other o = begin("physical");
    say(o.to, &l, sizeof l);
    end(&o);
    close(exported);
    close(l.fd);
    OK(hip.hipMemcpy(&word, p, 4, hipMemcpyDeviceToHost));
    assert_int_equal(word, 99);
    OK(hip.hipMemUnmap(p, 1 << 16));
    OK(hip.hipMemRelease(m));
    OK(hip.hipMemAddressFree(p, 1 << 16));
}

// ---- pools

/** Checks what the first process wrote to its pool's memory, and writes there. */
static int other_pool(void) {
    letter l;
    uint32_t *d, words[COUNT];
    void *own;
    hipMemPool_t pool;
    MUST(hear(0, &l, sizeof l));
    WELL(hip.hipMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)l.fd, 1, 0));
    WELL(hip.hipMemPoolImportPointer((void **)&d, pool, &l.pointer));
    MUST(hip.hipMallocFromPoolAsync(&own, 4, pool, nullptr) == hipErrorInvalidValue);
    MUST(hip.hipDeviceSetMemPool(0, pool) == hipErrorInvalidValue);
    WELL(hip.hipMemcpy(words, d, BYTES, hipMemcpyDeviceToHost));
    for (uint32_t i = 0; i < COUNT; i++)
        MUST(words[i] == l.seed * i);
    WELL(hip.hipMemsetD32(d + 1, 88, 1));
    WELL(hip.hipDeviceSynchronize());
    WELL(hip.hipFreeAsync(d, nullptr));
    WELL(hip.hipDeviceSynchronize());
    MUST(hip.hipMemcpy(words, d, 4, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
    WELL(hip.hipMemPoolImportPointer((void **)&d, pool, &l.pointer)); // once more
    WELL(hip.hipFree(d));
    WELL(hip.hipMemPoolDestroy(pool));
    return 0;
}

static void test_pool(void **state) {
    (void)state;
    letter l = {.seed = (uint32_t)random_bits()};
    hipMemPoolProps props = {.allocType = 1, .handleTypes = 1, .location = {1, 0}};
    hipMemPool_t pool, plain, mine;
    uint32_t words[COUNT], *d, *p;
    int exported;
    for (uint32_t i = 0; i < COUNT; i++)
        words[i] = l.seed * i;
    OK(hip.hipMemPoolCreate(&pool, &props));
    OK(hip.hipMallocFromPoolAsync((void **)&d, BYTES, pool, nullptr));
    OK(hip.hipMemcpy(d, words, BYTES, hipMemcpyHostToDevice));
    OK(hip.hipMemPoolExportToShareableHandle(&exported, pool, 1, 0));
    OK(hip.hipMemPoolExportPointer(&l.pointer, d));
    l.fd = dup(exported); // a child has it
    other o = begin("pool");
    say(o.to, &l, sizeof l);
    end(&o);
    OK(hip.hipMemcpy(words, d, 8, hipMemcpyDeviceToHost));
    assert_int_equal(words[1], 88);
    // In the process itself.
    OK(hip.hipMemPoolImportFromShareableHandle(&mine, (void *)(intptr_t)exported, 1, 0));
    OK(hip.hipMemPoolImportPointer((void **)&p, mine, &l.pointer));
    assert_ptr_not_equal(p, d);
    OK(hip.hipMemsetD32(p + 2, 99, 1));
    OK(hip.hipMemcpy(words, d, 12, hipMemcpyDeviceToHost));
    assert_int_equal(words[2], 99);
    OK(hip.hipFree(p));
    assert_int_equal(hip.hipFree(p), hipErrorInvalidValue);
    const hipError_t bad = hipErrorInvalidValue;
    assert_int_equal(hip.hipMemPoolImportPointer((void **)&p, pool, &l.pointer), bad);
    assert_int_equal(hip.hipMemPoolImportPointer((void **)&p, mine, nullptr), bad);
    assert_int_equal(hip.hipMemPoolImportPointer(nullptr, mine, &l.pointer), bad);
    assert_int_equal(hip.hipMemPoolExportPointer(&l.pointer, d + 1), bad); // not the beginning
    assert_int_equal(hip.hipMemPoolExportToShareableHandle(&exported, mine, 1, 0), bad);
    assert_int_equal(hip.hipMemPoolExportToShareableHandle(&exported, pool, 0, 0), bad);
    assert_int_equal(hip.hipMemPoolExportToShareableHandle(nullptr, pool, 1, 0), bad);
    assert_int_equal(hip.hipMemPoolExportToShareableHandle(&exported, pool, 1, 1), bad);
    assert_int_equal(hip.hipMemPoolImportFromShareableHandle(&mine, nullptr, 1, 0), bad);
    assert_int_equal(hip.hipMemPoolImportFromShareableHandle(&mine, (void *)1000, 1, 0), bad);
    OK(hip.hipFree(d));
    assert_int_equal(hip.hipMemPoolExportPointer(&l.pointer, d), bad);
    props.handleTypes = 0;
    OK(hip.hipMemPoolCreate(&plain, &props));
    assert_int_equal(hip.hipMemPoolExportToShareableHandle(&exported, plain, 1, 0), bad);
    OK(hip.hipMallocFromPoolAsync((void **)&d, BYTES, plain, nullptr));
    assert_int_equal(hip.hipMemPoolExportPointer(&l.pointer, d), bad);
    OK(hip.hipFree(d));
    OK(hip.hipMemPoolDestroy(plain));
    OK(hip.hipMemPoolDestroy(mine));
    OK(hip.hipMemPoolDestroy(pool));
    close(exported);
    close(l.fd);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_memory, start), cmocka_unit_test_setup(test_freed, start),
        cmocka_unit_test_setup(test_events, start), cmocka_unit_test_setup(test_physical, start),
        cmocka_unit_test_setup(test_pool, start),
    };
    open_library();
    if (argc == 2)
        return strcmp(argv[1], "memory") == 0  ? other_memory()
               : strcmp(argv[1], "late") == 0  ? other_late()
               : strcmp(argv[1], "pool") == 0  ? other_pool()
               : strcmp(argv[1], "event") == 0 ? other_event()
                                               : other_physical();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
