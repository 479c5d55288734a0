// SPDX-License-Identifier: Apache-2.0
// The disassembler's process is started when needed, and again when it was killed; it serves
// threads and forked children, and is nobody's child. A library without the program says so.
#include "../exec/exec_testing.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

static const uint32_t code[] = {0x7e020302, 0xd1c30001, 0x040e0702, 0xbf810000, 0x7e020302};
// Two vector instructions and s_endpgm; words behind s_endpgm are not looked at.

/** Disassembles a move. Returns the number of lines that came. */
static unsigned list(sim_line lines[SIM_MAX_LISTING], char error[SIM_ERROR_BYTES]) {
    return sim_disassemble(sim_chip_by_name("gfx942"), true, (const uint8_t *)code, sizeof code,
                           0x1000, SIM_MAX_LISTING, lines, error);
}

static bool works(void) {
    sim_line lines[SIM_MAX_LISTING];
    char error[SIM_ERROR_BYTES];
    return list(lines, error) == 3 && !strcmp(lines[0].text, "\tv_mov_b32_e32 v1, v2") &&
           lines[1].bytes == 8 && strstr(lines[2].text, "s_endpgm");
}

/** Returns the inode of the memory that this process shares with its decoder. */
static ino_t shared_inode(void) {
    char line[1024];
    unsigned long inode = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:quern-decoder"))
            assert_int_equal(sscanf(line, "%*s %*s %*s %*s %lu", &inode), 1);
    fclose(maps);
    return inode;
}

/** Returns the decoder of this process: the other process that has the shared memory open. */
static pid_t find_decoder(void) {
    ino_t inode = shared_inode();
    DIR *dir = opendir("/proc");
    pid_t found = 0;
    assert_true(dir && inode);
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char path[300];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%s/fd/1", entry->d_name);
        if (atoi(entry->d_name) > 0 && stat(path, &status) == 0 && status.st_ino == inode)
            found = (pid_t)atoi(entry->d_name);
    }
    closedir(dir);
    return found;
}

/** Counts the files that a process has open, and the folder's own two names; of this process, the
 *  folder itself as well. */
static int count_files_of(const char *process) {
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int count_files(void) {
    return count_files_of("self");
}

/** A pipe that the program has open must end when the program closes it. */
static void test_holds_no_files(void **) {
    int ends[2];
    char decoder[16];
    sim_disassemble_shutdown();
    assert_int_equal(pipe(ends), 0); // without O_CLOEXEC
    assert_true(works());
    snprintf(decoder, sizeof decoder, "%d", find_decoder());
    assert_int_equal(count_files_of(decoder), 2 + 3); // the standard ones
    close(ends[0]);
    close(ends[1]);
}

static void test_killed(void **) {
    assert_true(works());
    const int files = count_files();
    for (int i = 0; i < 3; i++) {
        pid_t decoder = find_decoder();
        assert_true(decoder > 0 && kill(decoder, SIGKILL) == 0);
        sim_line lines[SIM_MAX_LISTING];
        char error[SIM_ERROR_BYTES];
        assert_int_equal(list(lines, error), 1); // careful from now on
        assert_string_equal(lines[0].text, "\tv_mov_b32_e32 v1, v2");
        assert_true(find_decoder() != decoder);
    }
    assert_int_equal(count_files(), files);
    sim_disassemble_shutdown();
    assert_int_equal(count_files(), files - 1);
    assert_int_equal(shared_inode(), 0);
}

static void test_is_nobodys_child(void **) {
    assert_true(works());
    errno = 0;
    assert_int_equal(wait(nullptr), -1);
    assert_int_equal(errno, ECHILD);
}

/** Runs `body` in a forked child. Returns what `body` returned. */
static bool in_child(bool (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(body() ? 0 : 1);
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static bool works_without_stdio(void) {
    sim_disassemble_shutdown();
    return close(0) == 0 && close(1) == 0 && close(2) == 0 && works();
}

static bool works_beside_parent(void) {
    ino_t inode = shared_inode();
    return works() && shared_inode() != inode;
}

static void test_fork(void **) {
    assert_true(works());
    ino_t inode = shared_inode();
    assert_true(in_child(works_beside_parent));
    assert_true(works() && shared_inode() == inode);
    assert_true(in_child(works_without_stdio));
}

static void *work_for_long(void *result) {
    bool *ok = result;
    *ok = true;
    for (int i = 0; i < 200; i++)
        *ok &= works();
    return nullptr;
}

static void test_threads(void **) {
    pthread_t threads[8];
    bool ok[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], nullptr, work_for_long, &ok[i]), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], nullptr);
        assert_true(ok[i]);
    }
}

static int run_alone(void) {
    sim_line lines[SIM_MAX_LISTING];
    char error[SIM_ERROR_BYTES];
    return list(lines, error) == 0 && strstr(error, "the disassembler is missing") ? 0 : 1;
}

/** Runs a copy of this program in a folder without the decoder. */
static void test_missing(void **) {
    char folder[] = "/tmp/quern-decoder-XXXXXX", path[64], alone[] = "alone";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/test", folder);
    size_t size;
    FILE *self = fopen("/proc/self/exe", "rb"), *copy = fopen(path, "wb");
    assert_true(self && copy);
    char buffer[65536];
    while ((size = fread(buffer, 1, sizeof buffer, self)) > 0)
        assert_int_equal(fwrite(buffer, 1, size, copy), size);
    fclose(self);
    assert_true(fclose(copy) == 0 && chmod(path, 0700) == 0);
    pid_t child;
    int status = 1;
    assert_int_equal(
        posix_spawn(&child, path, nullptr, nullptr, (char *[]){path, alone, nullptr}, environ), 0);
    waitpid(child, &status, 0);
    unlink(path);
    rmdir(folder);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "alone"))
        return run_alone();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_nobodys_child),
        cmocka_unit_test(test_holds_no_files),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_killed)}; // must be last, as it makes the process careful
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
