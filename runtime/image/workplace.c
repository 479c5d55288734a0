// SPDX-License-Identifier: Apache-2.0
// The private folder in which the JIT compiles. A killed process cannot remove its folder, but its
// lock on the folder dies with it. The process that next compiles in that place removes every
// folder of this user that no process holds.
#include "workplace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "quern-jit-";
enum { RANDOM = 6, MAX_TRIES = 16 };

static int remove_one(const char *path, const struct stat *, int, struct FTW *) {
    remove(path); // what cannot be removed now is found again by the next process
    return 0;
}

static void remove_tree(const char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/** Opens the folder and locks it. Returns -1, with errno, on failure: EWOULDBLOCK if another
 *  process holds the folder, ENOENT if one has removed it or it is not this user's. A new folder is
 *  also taken if the file system has no locks, as then nobody else can lock it. */
static int lock_folder(const char *path, bool is_new) {
    struct stat s;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = ENOENT;
    if (fd < 0)
        return -1;
    if (fstat(fd, &s) == 0 && s.st_uid == geteuid()) {
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && (!is_new || errno == EWOULDBLOCK))
            error = errno;
        else if (fstat(fd, &s) == 0 && s.st_nlink > 0)
            return fd;
    }
    close(fd);
    errno = error;
    return -1;
}

static void clear_abandoned(const char *top) {
    char path[400];
    DIR *folder = opendir(top);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
            strlen(e->d_name) != strlen(prefix) + RANDOM)
            continue;
        const int n = snprintf(path, sizeof path, "%s/%s", top, e->d_name);
        const int lock = n < (int)sizeof path ? lock_folder(path, false) : -1;
        if (lock < 0)
            continue;
        remove_tree(path);
        close(lock);
        qni_log(QNI_LOG_JIT, "removed %s, which a killed process had left", path);
    }
    if (folder)
        closedir(folder);
}

/** Makes a locked folder in `top`. Returns false, with errno, on failure. If another process takes
 *  the folder for abandoned before it is locked, another folder is made. */
static bool make_in(qni_workplace *out, const char *top) {
    const int n = snprintf(out->path, sizeof out->path, "%s/%sXXXXXX", top, prefix);
    if (n >= (int)sizeof out->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    clear_abandoned(top);
    for (int i = 0; i < MAX_TRIES; i++) {
        memset(out->path + n - RANDOM, 'X', RANDOM);
        if (!mkdtemp(out->path))
            return false;
        out->lock = lock_folder(out->path, true);
        if (out->lock >= 0)
            return true;
        if (errno != EWOULDBLOCK && errno != ENOENT) {
            const int error = errno;
            rmdir(out->path);
            errno = error;
            return false;
        }
    }
    return false;
}

qn_status qni_workplace_make(qni_workplace *out) {
    const char *tmp = qni_env_get()->tmp_dir;
    out->lock = -1;
    if (make_in(out, tmp))
        return QN_OK;
    const int error = errno;
    if (make_in(out, "/dev/shm"))
        return QN_OK;
    return QN_FAIL(QN_E_IO, "jit: no folder for temporary files in %s or /dev/shm: %s", tmp,
                   strerror(error));
}

void qni_workplace_remove(qni_workplace *place) {
    remove_tree(place->path);
    close(place->lock);
}
