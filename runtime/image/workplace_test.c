// SPDX-License-Identifier: Apache-2.0
// The JIT's private folder where locks or descriptors are lacking: work goes on, or is refused, and
// nothing stays behind.
#include "../testing.h"
#include "workplace.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static bool has_locks = true;

/** Replaces the C library's function; a file system without locks answers so. */
int flock(int fd, int operation) {
    if (has_locks)
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *e; (e = readdir(folder));)
        count += e->d_name[0] != '.';
    closedir(folder);
    return count;
}

/** Runs body in a child with an empty TMPDIR, which has to be empty again afterwards. */
static void run_in_empty_folder(void (*body)(void *)) {
    char folder[64], variable[80];
    make_folder(folder, sizeof folder);
    snprintf(variable, sizeof variable, "TMPDIR=%s", folder);
    child_run(body, folder, (const char *const[]){variable, nullptr});
    assert_int_equal(count_entries(folder), 0);
    remove_folder(folder);
}

static void work(void *folder) {
    qni_workplace place;
    CHILD_CHECK(qni_workplace_make(&place) == QN_OK);
    CHILD_CHECK(strncmp(place.path, folder, strlen(folder)) == 0);
    CHILD_CHECK(count_entries(folder) == 1);
    qni_workplace_remove(&place);
}

static void work_without_locks(void *folder) {
    has_locks = false;
    work(folder);
}

static void test_locks(void **) {
    run_in_empty_folder(work);
}

static void test_no_locks(void **) {
    run_in_empty_folder(work_without_locks);
}

/** A folder can be made, but not opened. */
static void work_without_descriptors(void *) {
    qni_workplace place;
    CHILD_CHECK(*qni_env_get()->tmp_dir); // read before
    const int next = dup(0);
    CHILD_CHECK(next >= 0 && close(next) == 0);
    CHILD_CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, (rlim_t)next}) == 0);
    CHILD_CHECK(qni_workplace_make(&place) == QN_E_IO);
    CHILD_CHECK(strstr(qn_last_error(), "Too many open files"));
}

static void test_no_descriptors(void **) {
    run_in_empty_folder(work_without_descriptors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks),
        cmocka_unit_test(test_no_locks),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
