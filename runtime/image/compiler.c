// SPDX-License-Identifier: Apache-2.0
// Finds clang and runs it: an argument vector, never a shell.
#include "compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OLDEST_CLANG = 22, MAX_ANSWER_S = 60 }; // MAX_ANSWER_S: for --version

// ---- running a program

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/** Returns whether there is something to read, or the end, before the time is up. */
static bool can_read(int fd, int64_t until_ms) {
    for (int64_t left; (left = until_ms - now_ms()) > 0;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, left < INT_MAX ? (int)left : INT_MAX) > 0)
            return true;
    }
    return false;
}

/** Reads until the writers are gone or the time is up. Output that does not fit is read and
 *  dropped, so that writers never block. */
static void drain(int fd, int64_t until_ms, char *output, size_t room) {
    char rest[4096];
    size_t used = 0;
    while (can_read(fd, until_ms)) {
        const bool fits = used + 1 < room;
        const ssize_t n =
            read(fd, fits ? output + used : rest, fits ? room - used - 1 : sizeof rest);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (fits)
            used += (size_t)n;
    }
    output[used] = 0;
}

/** Waits for the program. Kills it, and all that it has started, when the time is up. Returns 0,
 *  ETIME if it was killed, or another errno. */
static int wait_for(pid_t child, int64_t until_ms, int *exit_code) {
    int status, error = 0;
    for (pid_t ended; (ended = waitpid(child, &status, error ? 0 : WNOHANG)) != child;) {
        if (ended < 0 && errno != EINTR)
            return errno;
        if (ended == 0 && now_ms() >= until_ms) {
            kill(-child, SIGKILL);
            error = ETIME;
        } else if (ended == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, nullptr);
        }
    }
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return error;
}

/** Starts the program with stdin empty and both outputs into `fd`, in a process group of its own,
 *  so that the whole group can be killed. Returns an errno. */
static int start(pid_t *child, char *const *argv, char *const *environment, int fd) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    posix_spawnattr_init(&attributes); // neither this call nor setting the group can fail on Linux
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, fd, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, fd, 2);
    if (!error)
        error = posix_spawn(child, argv[0], &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/** Returns whether a variable is kept from clang: it would change clang's output, which the cache's
 *  key cannot know; or it is TMPDIR, which is set anew. */
static bool is_kept_from_clang(const char *variable) {
    static const char *const names[] = {
        "TMPDIR=", "CPATH=", "C_INCLUDE_PATH=", "COMPILER_PATH=", "CCC_OVERRIDE_OPTIONS="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/** Returns this process's environment with another TMPDIR; the caller frees it. Null: out of
 *  memory. */
static char **environment_with(char *tmp_variable) {
    size_t count = 0, used = 0;
    while (environ[count])
        count++;
    char **copy = malloc((count + 2) * sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (!is_kept_from_clang(environ[i]))
            copy[used++] = environ[i];
    if (copy) {
        copy[used++] = tmp_variable;
        copy[used] = nullptr;
    }
    return copy;
}

/** Runs a program to its end, or to the time limit. Returns an errno, ETIME for the limit. */
static int run(char *const *argv, char *const *environment, int limit_s, char *output, size_t room,
               int *exit_code) {
    const int64_t until_ms = now_ms() + limit_s * INT64_C(1000);
    int ends[2];
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    int error = start(&child, argv, environment, ends[1]);
    close(ends[1]);
    if (!error) {
        drain(ends[0], until_ms, output, room);
        error = wait_for(child, until_ms, exit_code);
    }
    close(ends[0]);
    return error;
}

qn_status qni_spawn(char *const *argv, const char *tmp_dir, int limit_s, char *output, size_t room,
                    int *exit_code) {
    char variable[512];
    char **copy = nullptr;
    if (tmp_dir) {
        snprintf(variable, sizeof variable, "TMPDIR=%s", tmp_dir);
        copy = environment_with(variable);
        if (!copy)
            return QN_FAIL(QN_E_MEMORY, "%s: out of memory", argv[0]);
    }
    const int error = run(argv, copy ? copy : environ, limit_s, output, room, exit_code);
    free(copy);
    if (error == ETIME)
        return QN_FAIL(QN_E_IO, "%s: did not end within %d s, and was killed", argv[0], limit_s);
    if (error)
        return QN_FAIL(QN_E_IO, "%s: cannot be run: %s%s", argv[0], strerror(error),
                       error == ECHILD ? " (does the program ignore SIGCHLD?)" : "");
    return QN_OK;
}

// ---- finding clang

/** The programs that were tried in vain, for the error. */
typedef struct search {
    qni_compiler *found;
    char tried[1024];
} search;

__attribute__((format(printf, 2, 3))) static void note(search *s, const char *format, ...) {
    const size_t used = strlen(s->tried);
    va_list args;
    va_start(args, format);
    vsnprintf(s->tried + used, sizeof s->tried - used, format, args);
    va_end(args);
}

/** Returns the major version, 22 for "Debian clang version 22.1.0 …"; 0 if the text is no
 *  clang's. */
static int major_version(const char *text) {
    const char *at = strstr(text, "clang version ");
    return at ? atoi(at + strlen("clang version ")) : 0;
}

/** Asks the program at `path` for its version. Returns true if the version is new enough. */
static bool try_path(search *s, const char *path) {
    char version[700], real[PATH_MAX];
    char *const argv[] = {(char *)path, "--version", nullptr};
    struct stat info;
    int exit_code = 0, limit_s = qni_env_get()->jit_timeout_s;
    limit_s = limit_s < MAX_ANSWER_S ? limit_s : MAX_ANSWER_S;
    if (!realpath(path, real) || stat(real, &info) != 0 || access(real, X_OK) != 0)
        return false;
    const qn_status st = qni_spawn(argv, nullptr, limit_s, version, sizeof version, &exit_code);
    const int major = st == QN_OK && exit_code == 0 ? major_version(version) : 0;
    if (major < OLDEST_CLANG) {
        if (major)
            note(s, "; %s is version %d", path, major);
        else if (st != QN_OK)
            note(s, "; %s", qn_last_error());
        else
            note(s, "; %s did not say that it is clang", path);
        return false;
    }
    qni_compiler *c = s->found;
    snprintf(c->path, sizeof c->path, "%s", path);
    snprintf(c->identity, sizeof c->identity, "%s|%.200s|%ld|%ld.%09ld", version, real,
             (long)info.st_size, (long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return true;
}

static bool try_path_variable(search *s) {
    static const char *const names[] = {"clang-22", "clang-23", "clang-24", "clang-25", "clang"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *at = qni_env_get()->path; *at;) {
            const size_t length = strcspn(at, ":");
            const int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, at, names[i]);
            // A relative folder in PATH would make the compiler depend on where the program stands.
            if (*at == '/' && n < (int)sizeof path && try_path(s, path))
                return true;
            at += length + (at[length] == ':');
        }
    return false;
}

/** Tries ROCm's own clang: in its folder by variable, by its usual name, and by version. */
static bool try_rocm(search *s) {
    const qni_env *env = qni_env_get();
    const char *const folders[] = {env->rocm_path, env->hip_path, "/opt/rocm"};
    char path[512];
    glob_t found = {};
    bool is_found = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !is_found; i++)
        is_found =
            *folders[i] &&
            snprintf(path, sizeof path, "%s/llvm/bin/clang", folders[i]) < (int)sizeof path &&
            try_path(s, path);
    if (!is_found && glob("/opt/rocm-*/llvm/bin/clang", 0, nullptr, &found) == 0)
        for (size_t i = found.gl_pathc; i > 0 && !is_found; i--)
            is_found = try_path(s, found.gl_pathv[i - 1]);
    globfree(&found);
    return is_found;
}

static bool search_all(search *s) {
    const char *chosen = qni_env_get()->clang;
    if (*chosen) {
        if (try_path(s, chosen))
            return true;
        if (!*s->tried)
            note(s, "; QUERN_CLANG=%s is not a program", chosen);
        return false;
    }
    return try_path_variable(s) || try_rocm(s);
}

static qni_compiler compiler;
static char search_error[1400]; // "": found
static pthread_once_t search_once = PTHREAD_ONCE_INIT;

static void find_once(void) {
    search s = {.found = &compiler};
    if (!search_all(&s))
        snprintf(
            search_error, sizeof search_error,
            "no clang %d or later%s (looked at QUERN_CLANG, PATH, and llvm/bin in ROCM_PATH, HIP_PATH, "
            "/opt/rocm and /opt/rocm-*); install clang-%d and lld-%d, or set QUERN_CLANG",
            OLDEST_CLANG, s.tried, OLDEST_CLANG, OLDEST_CLANG);
}

qn_status qni_compiler_find(const qni_compiler **out) {
    pthread_once(&search_once, find_once);
    if (*search_error)
        return QN_FAIL(QN_E_NOT_FOUND, "%s", search_error);
    *out = &compiler;
    return QN_OK;
}
