// SPDX-License-Identifier: Apache-2.0
// For tests: runs code in a child process with an environment of the child's own, since a process
// reads its environment only once.
#ifndef QNI_TESTING_H
#define QNI_TESTING_H

#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/** Ends the child process with a message if the condition does not hold. */
#define CHILD_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\nlast error: %s\n", __FILE__, __LINE__,           \
                    #condition, qn_last_error());                                                  \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

typedef struct child {
    pid_t pid;
    char log[80]; // path of the file that takes the child's stderr
} child;

/** Starts body in a child whose environment is changed by `env`, a list that ends with null:
 *  "NAME=value" sets a variable, "NAME" unsets one. */
static inline child child_start(void (*body)(void *context), void *context,
                                const char *const *env) {
    child c = {.log = "/tmp/quern-test-XXXXXX"};
    const int fd = mkstemp(c.log);
    assert_true(fd >= 0);
    fflush(nullptr);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        dup2(fd, STDERR_FILENO);
        for (; env && *env; env++)
            if (strchr(*env, '='))
                putenv(strdup(*env));
            else
                unsetenv(*env);
        body(context);
        fflush(nullptr);
        _exit(0);
    }
    close(fd);
    return c;
}

/** Waits for the child to end. Returns its exit code, or 128 + n if signal n ended it. Sets
 *  *printed to what the child printed to stderr, in a buffer that the next call reuses. */
static inline int child_wait(child *c, const char **printed) {
    static char text[65536];
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    FILE *f = fopen(c->log, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    unlink(c->log);
    if (printed)
        *printed = text;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/** Runs body in a child, which must exit with 0. Returns what the child printed to stderr. */
static inline const char *child_run(void (*body)(void *context), void *context,
                                    const char *const *env) {
    const char *printed;
    child c = child_start(body, context, env);
    const int code = child_wait(&c, &printed);
    if (code != 0)
        fail_msg("child ended with %d:\n%s", code, printed);
    return printed;
}

/** Makes a folder for the test in the system's folder for temporary files. Returns its path. */
static inline const char *make_folder(char *path, size_t room) {
    snprintf(path, room, "/tmp/quern-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline int remove_one(const char *path, const struct stat *, int, struct FTW *) {
    return remove(path);
}

/** Removes a folder and everything in it. */
static inline void remove_folder(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/** Returns how often `word` occurs in `text`. */
static inline int count_text(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/** Skips the test if the build has no images for the target, as after make TARGETS=…. */
static inline void needs_images(const char *target) {
    for (const qni_image *built = qni_images; built->id; built++)
        if (strcmp(built->target, target) == 0)
            return;
    skip();
}

#endif
