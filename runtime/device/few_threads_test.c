// SPDX-License-Identifier: Apache-2.0
// The CPU's threads where the system has too few: fewer threads do the work.
#include "../runtime.h"
#include "../testing.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { ITEMS = 1000, WANTED = 64, TIME_S = 30 };

static int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHILD_CHECK(tasks);
    for (const struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/** Returns whether the process has `want` threads, once those that ended have left the system's
 *  list. */
static bool are_threads(int want) {
    if (__has_feature(thread_sanitizer)) // the sanitizer keeps threads of its own
        return true;
    for (int i = 0; i < 2000 && count_threads() > want; i++)
        usleep(1000);
    return count_threads() == want;
}

// Threads that somebody else takes between the library's look and the pool: this process's threads,
// one by one, from number taken_from on.
static atomic_int num_made, taken_from, taken_to;

#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_CREATE_TAKEN 1 // the sanitizer has replaced pthread_create
#else
#define IS_CREATE_TAKEN 0
// The function is visible, so that pthreadpool calls it.
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*body)(void *), void *argument) {
    typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    const int n = atomic_fetch_add(&num_made, 1);
    if (n >= atomic_load(&taken_from) && n < atomic_load(&taken_to))
        return EAGAIN;
    return ((create_fn)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, body, argument);
}
#endif

static void note_item(void *done, int64_t i) {
    atomic_fetch_add(&((atomic_int *)done)[i], 1);
}

/** Does each item once, two times over. The fault would be to wait for a thread that cannot be
 *  made; the alarm ends that. */
static void work(void) {
    static atomic_int done[ITEMS];
    alarm(TIME_S);
    for (int round = 1; round <= 2; round++) {
        qni_parallel(ITEMS, note_item, done);
        for (int i = 0; i < ITEMS; i++)
            CHILD_CHECK(atomic_load(&done[i]) == round);
    }
}

static const char *const env[] = {"QUERN_NUM_THREADS=64", "QUERN_LOG=kernel", nullptr};

/** Returns how many threads the device says that it has. */
static int threads_told(void) {
    qn_device *cpu = nullptr;
    qn_device_info info = {.struct_size = sizeof info};
    CHILD_CHECK(qn_device_open(&cpu, "cpu") == QN_OK);
    CHILD_CHECK(qn_device_get_info(cpu, &info) == QN_OK);
    qn_device_close(cpu);
    return info.num_compute_units;
}

static void work_freely(void *) {
    CHILD_CHECK(threads_told() == WANTED);
    work();
    CHILD_CHECK(are_threads(WANTED)); // the caller is one of them
    CHILD_CHECK(threads_told() == WANTED);
}

static void test_all_threads(void **) {
    assert_int_equal(count_text(child_run(work_freely, nullptr, env), "threads in place of"), 0);
}

/** Returns this process's address space, in bytes. */
static rlim_t space_now(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    CHILD_CHECK(f && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/** Leaves room for the stacks of seven threads or so. */
static void work_in_little_space(void *) {
    const rlim_t space = space_now() + (60 << 20);
    CHILD_CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){space, space}) == 0);
    work();
    const int told = threads_told();
    CHILD_CHECK(told < WANTED && are_threads(told));
    void *room = malloc(16 << 20); // the pool has not taken all space
    CHILD_CHECK(room);
    free(room);
}

static void test_little_space(void **) {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip(); // the sanitizer's own memory is larger than any such limit
#endif
    assert_int_equal(
        count_text(child_run(work_in_little_space, nullptr, env), "threads in place of 64"), 1);
}

static void work_as_nobody(void *) {
    CHILD_CHECK(setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}) == 0);
    CHILD_CHECK(setuid(65534) == 0);
    work();
    CHILD_CHECK(are_threads(1) && threads_told() == 1);
}

static void test_no_threads(void **) {
    if (geteuid() != 0) {
        print_message("another user, whose processes can be limited, needs root\n");
        skip();
    }
    assert_int_equal(
        count_text(child_run(work_as_nobody, nullptr, env), "1 threads in place of 64"), 1);
}

/** After the look (WANTED threads) and the thread that makes the pool, the pool's tenth thread
 *  cannot be made, nor can those after it. */
static void work_as_others_take_threads(void *) {
    atomic_store(&taken_from, WANTED + 10);
    atomic_store(&taken_to, 2 * WANTED);
    work();
    CHILD_CHECK(threads_told() == WANTED / 2);
}

static void test_race(void **) {
    if (IS_CREATE_TAKEN)
        skip();
    assert_int_equal(count_text(child_run(work_as_others_take_threads, nullptr, env),
                                "32 threads in place of 64"),
                     1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_threads),
        cmocka_unit_test(test_little_space),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_race),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
