// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the folder UNREADABLE can be opened but not read, as on a failing disk; and files
// and folders with UNOPENABLE in their path can be made but not opened, as when descriptors run
// out.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dirent *readdir(DIR *folder) {
    char link[64], path[4096] = "";
    const char *unreadable = getenv("UNREADABLE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(folder));
    if (readlink(link, path, sizeof path - 1) > 0 && unreadable && strcmp(path, unreadable) == 0) {
        errno = EIO;
        return NULL;
    }
    return ((struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir"))(folder);
}

int open(const char *path, int flags, ...) {
    const char *unopenable = getenv("UNOPENABLE");
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (unopenable && strstr(path, unopenable)) {
        errno = EMFILE;
        return -1;
    }
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
