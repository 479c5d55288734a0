// SPDX-License-Identifier: Apache-2.0
// Runs the clang of this machine for hiprtc: an argument vector, never a shell.
#include "clang.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// ---- arguments

void rtc_arg(rtc_args *args, const char *format, ...) {
    va_list list;
    va_start(list, format);
    char *text = nullptr;
    if (args->count == RTC_MAX_ARGS || vasprintf(&text, format, list) < 0)
        args->is_short_of_room = true;
    else
        args->list[args->count++] = text;
    va_end(list);
}

void rtc_args_clear(rtc_args *args) {
    for (int i = 0; i < args->count; i++)
        free(args->list[i]);
    *args = (rtc_args){};
}

const char *rtc_rocm(void) {
    const char *rocm = getenv("ROCM_PATH"), *hip = getenv("HIP_PATH");
    return rocm && *rocm ? rocm : hip && *hip ? hip : "/opt/rocm";
}

// ---- files

bool rtc_folder_create(char path[RTC_PATH_BYTES]) {
    const char *tmp = getenv("TMPDIR");
    const int n =
        snprintf(path, RTC_PATH_BYTES, "%s/quern-hiprtc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return n > 0 && n < RTC_PATH_BYTES && mkdtemp(path);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw) {
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

void rtc_folder_remove(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/** Returns whether a name stays in its folder. */
static bool is_inside(const char *name) {
    return *name && *name != '/' && strncmp(name, "../", 3) != 0 && !strstr(name, "/../");
}

/** Makes the folders that lead to a file. */
static void make_folders(char *path, size_t from) {
    for (char *at = strchr(path + from, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
}

bool rtc_write(const char *folder, const char *name, const void *data, size_t bytes) {
    char path[2 * RTC_PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!is_inside(name) || n < 0 || n >= (int)sizeof path)
        return false;
    make_folders(path, strlen(folder) + 1);
    FILE *file = fopen(path, "wb");
    const bool ok = file && fwrite(data, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && ok;
}

char *rtc_read(const char *folder, const char *name, size_t *bytes) {
    char path[2 * RTC_PATH_BYTES];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    const bool is_known = file && fstat(fileno(file), &info) == 0;
    char *text = is_known ? malloc((size_t)info.st_size + 1) : nullptr;
    if (text) {
        *bytes = fread(text, 1, (size_t)info.st_size, file);
        text[*bytes] = 0;
    }
    if (file)
        fclose(file);
    return text;
}

// ---- clang

/** Starts the first clang that there is. Returns false if there is none. */
static bool start(pid_t *child, const posix_spawn_file_actions_t *files, char **arguments) {
    const char *const names[] = {getenv("QUERN_CLANG"), "clang-22", "clang-23", "amdclang",
                                 "clang"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!names[i] || !*names[i])
            continue;
        arguments[0] = (char *)names[i];
        if (posix_spawnp(child, names[i], files, nullptr, arguments, environ) == 0)
            return true;
    }
    return false;
}

bool rtc_run_clang(const char *folder, rtc_args *args) {
    char log[RTC_PATH_BYTES + 8];
    char *arguments[RTC_MAX_ARGS + 2] = {};
    snprintf(log, sizeof log, "%s/log", folder);
    memcpy(arguments + 1, args->list, (size_t)args->count * sizeof *arguments);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t child;
    int status = -1;
    const bool has_started = !args->is_short_of_room && start(&child, &files, arguments);
    posix_spawn_file_actions_destroy(&files);
    if (!has_started) {
        const char *text =
            "quernsim: hiprtc: no clang on this machine; accepted: clang-22 or later in PATH, or "
            "QUERN_CLANG\n";
        rtc_write(folder, "log", text, strlen(text));
        return false;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
