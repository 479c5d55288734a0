// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the folder UNREADABLE can be opened, but not read, as on a failing disk.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
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
