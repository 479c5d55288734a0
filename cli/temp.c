// SPDX-License-Identifier: Apache-2.0
// Temporary files and folders, which are removed however the command ends. What a killed command
// left is known by its name and by the lock that died with the process; it is removed when a
// command next begins that output.
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARK ".quern-" // stands with six characters behind the name of the output
enum { RANDOM = 6, MAX_DEPTH = 64, MAX_TRIES = 16 };

static cli_temp *alive;

// ---- removing, without memory, whose lack may have ended the command

static void remove_at(int parent, const char *name, int depth);

/** Removes what a folder holds. Returns true if anything was removed. */
static bool remove_entries(int folder, int depth) {
    alignas(struct dirent64) char entries[4096];
    bool any = false;
    lseek(folder, 0, SEEK_SET);
    // (glibc 2.28 has no getdents64 of its own.)
    for (long n; (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;)
        for (long at = 0; at < n;) {
            const struct dirent64 *e = (const void *)(entries + at);
            at += e->d_reclen;
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            remove_at(folder, e->d_name, depth + 1);
            any = any || faccessat(folder, e->d_name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
        }
    return any;
}

static void remove_at(int parent, const char *name, int depth) {
    if (unlinkat(parent, name, 0) == 0 || (errno != EISDIR && errno != EPERM) || depth == MAX_DEPTH)
        return;
    const int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    while (remove_entries(folder, depth)) // a folder that changes may not be read whole at once
        ;
    close(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_alive(void) {
    for (cli_temp *t = alive; t; t = t->next)
        remove_at(AT_FDCWD, t->path, 0);
}

// ---- what killed processes have left

static bool is_left(const char *name, const char *what) {
    const size_t length = strlen(what), mark = strlen(MARK);
    return strncmp(name, what, length) == 0 && strncmp(name + length, MARK, mark) == 0 &&
           strlen(name + length + mark) == RANDOM &&
           strspn(name + length + mark,
                  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == RANDOM;
}

/** Returns whether a file is this user's and of no living process. The lock that tells is held
 *  until the descriptor is closed. */
static bool is_abandoned(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) &&
           info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void clear_one(int parent, const char *folder, const char *name) {
    const int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (is_abandoned(fd)) {
        remove_at(parent, name, 0);
        fprintf(stderr, "quern: removed %s/%s, which a killed run had left\n", folder, name);
    }
    close(fd);
}

/** Clears what earlier runs left in place of path. */
static void clear_left(const char *path) {
    char *slash = strrchr(path, '/');
    char *folder = !slash          ? cli_text(".")
                   : slash == path ? cli_text("/")
                                   : cli_text("%.*s", (int)(slash - path), path);
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOMEM)
        cli_out_of_memory();
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (is_left(e->d_name, slash ? slash + 1 : path))
            clear_one(dirfd(dir), folder, e->d_name);
    if (dir)
        closedir(dir);
    free(folder);
}

// ---- making

/** Locks the file. Returns false if another process has taken it for abandoned in the meantime, and
 *  removed it. */
static bool lock(int fd) {
    struct stat info;
    return flock(fd, LOCK_EX) != 0 || (fstat(fd, &info) == 0 && info.st_nlink > 0);
}

static int make_file(char *path) {
    return mkostemp(path, O_CLOEXEC);
}

static int make_folder(char *path) {
    if (!mkdtemp(path))
        return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = errno;
    if (fd < 0)
        rmdir(path);
    errno = error;
    return fd;
}

static cli_temp *begin(const char *path, int (*make)(char *path)) {
    cli_temp *t = cli_alloc(sizeof *t);
    *t = (cli_temp){.path = cli_text("%s" MARK "XXXXXX", path), .fd = -1};
    static bool is_watched;
    if (!is_watched && atexit(remove_alive) != 0)
        cli_out_of_memory();
    is_watched = true;
    clear_left(path);
    for (int i = 0; i < MAX_TRIES; i++) {
        memset(t->path + strlen(t->path) - RANDOM, 'X', RANDOM);
        t->fd = make(t->path);
        if (t->fd < 0 ? errno != ENOENT : lock(t->fd))
            break;
        if (t->fd >= 0)
            close(t->fd);
        t->fd = -1;
    }
    if (t->fd < 0) {
        const int error = errno;
        free(t->path);
        free(t);
        errno = error;
        return nullptr;
    }
    t->next = alive;
    return alive = t;
}

cli_temp *cli_temp_file(const char *path) {
    return begin(path, make_file);
}

cli_temp *cli_temp_folder(const char *path) {
    return begin(path, make_folder);
}

void cli_temp_forget(cli_temp *temp) {
    cli_temp **at = &alive;
    if (!temp)
        return;
    while (*at != temp)
        at = &(*at)->next;
    *at = temp->next;
    close(temp->fd);
    free(temp->path);
    free(temp);
}

void cli_temp_remove(cli_temp *temp) {
    if (temp)
        remove_at(AT_FDCWD, temp->path, 0);
    cli_temp_forget(temp);
}
