// SPDX-License-Identifier: Apache-2.0
// The CPU's threads where the system has too few: work is done all the same, by fewer.
#include "runtime.h"
#include "testing.h"

#include <dirent.h>
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

static void note_item(void *done, int64_t i) {
    atomic_fetch_add(&((atomic_int *)done)[i], 1);
}

/** Does each item once, twice over. Waiting for a thread that cannot be made is the fault; the alarm ends that. */
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

static void work_freely(void *) {
    work();
    CHILD_CHECK(count_threads() == WANTED); // the caller is one of them
}

static void test_all_threads(void **) {
    assert_int_equal(count_text(child_run(work_freely, nullptr, env), "threads in place of"), 0);
}

/** This process's address space, in bytes. */
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
    CHILD_CHECK(count_threads() < WANTED);
    void *room = malloc(16 << 20); // the pool has not taken it all
    CHILD_CHECK(room);
    free(room);
}

static void test_little_space(void **) {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip(); // the sanitizer's own memory is beyond any such limit
#endif
    assert_int_equal(
        count_text(child_run(work_in_little_space, nullptr, env), "threads in place of 64"), 1);
}

static void work_as_nobody(void *) {
    CHILD_CHECK(setrlimit(RLIMIT_NPROC, &(struct rlimit){1, 1}) == 0);
    CHILD_CHECK(setuid(65534) == 0);
    work();
    CHILD_CHECK(count_threads() == 1);
}

static void test_no_threads(void **) {
    if (geteuid() != 0) {
        print_message("another user, whose processes can be limited, needs root\n");
        skip();
    }
    assert_int_equal(
        count_text(child_run(work_as_nobody, nullptr, env), "1 threads in place of 64"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_threads),
        cmocka_unit_test(test_little_space),
        cmocka_unit_test(test_no_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
