// SPDX-License-Identifier: Apache-2.0
// Files: mapped inputs, and outputs that appear under their own name only when they are whole.
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- signals

static volatile sig_atomic_t caught;

static void on_signal(int number) {
    caught = number;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGHUP, &action, nullptr);
    signal(SIGXFSZ, SIG_IGN); // past the file size limit, writing fails like on a full disk
}

qn_status cli_check_signals(void) {
    return caught ? cli_fail(QN_E_IO, "interrupted by SIG%s; nothing was written",
                             sigabbrev_np(caught))
                  : QN_OK;
}

// ---- inputs

static qn_status fail_path(const char *path, const char *action) {
    int code = errno;
    return cli_fail(code == ENOENT ? QN_E_NOT_FOUND : QN_E_IO, "%s: %s: %s", path, action,
                    strerror(code));
}

static qn_status map_fd(cli_map *out, int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fail_path(out->path, "cannot read");
    if (!S_ISREG(info.st_mode))
        return cli_fail(QN_E_INVALID, "%s: not a regular file", out->path);
    out->bytes = info.st_size;
    if (!out->bytes)
        return QN_OK;
    void *data = mmap(nullptr, (size_t)out->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail_path(out->path, "cannot map");
    out->data = data;
    return QN_OK;
}

qn_status cli_map_open(cli_map *out, const char *path) {
    *out = (cli_map){.path = cli_text("%s", path)};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused, not waited for
    qn_status st = fd < 0 ? fail_path(path, "cannot open") : map_fd(out, fd);
    if (fd >= 0)
        close(fd);
    if (st != QN_OK)
        cli_map_close(out);
    return st;
}

void cli_map_close(cli_map *map) {
    if (map->data)
        munmap((void *)map->data, (size_t)map->bytes);
    free(map->path);
    *map = (cli_map){0};
}

void cli_map_release(const cli_map *map, int64_t begin, int64_t end) {
    int64_t page = sysconf(_SC_PAGESIZE);
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (end > begin)
        madvise((void *)(map->data + begin), (size_t)(end - begin), MADV_DONTNEED);
}

char *cli_path(const char *folder, const char *name) {
    return cli_text("%s/%s", folder, name);
}

bool cli_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool cli_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

// ---- outputs

static qn_status fail_exists(const char *path) {
    return cli_fail(QN_E_INVALID, "%s: exists already (--force replaces it)", path);
}

qn_status cli_output_check(const char *path, bool force) {
    if (!path)
        return QN_OK;
    if (!force && cli_exists(path))
        return fail_exists(path);
    char *copy = cli_text("%s", path);
    bool fits = access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return fits ? QN_OK : cli_fail(QN_E_IO, "%s: cannot be created: %s", path, strerror(errno));
}

/** A name beside path, for mkstemp and mkdtemp. */
static char *temp_name(const char *path) {
    return cli_text("%s.quern-XXXXXX", path);
}

/** Syncs the folder that holds path, so that a rename in it lasts. */
static void sync_parent(const char *path) {
    char *slash = strrchr(path, '/');
    char *parent = !slash ? cli_text(".") : cli_text("%.*s", (int)(slash - path + 1), path);
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(parent);
}

/** Gives temp its final name: replaces what is there only if it may. */
static qn_status put_in_place(const char *temp, const char *path, unsigned flags) {
    int failed = renameat2(AT_FDCWD, temp, AT_FDCWD, path, flags);
    if (failed && errno == EINVAL && flags == RENAME_NOREPLACE) { // not on this file system
        if (cli_exists(path))
            return fail_exists(path);
        failed = rename(temp, path);
    }
    if (failed && errno == EEXIST)
        return fail_exists(path);
    if (failed)
        return fail_path(path, "cannot be created");
    sync_parent(path);
    return QN_OK;
}

static qn_status reserve(const cli_output *out, int64_t bytes) {
    if (bytes > 0 && fallocate(out->fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return fail_path(out->path, "cannot be written");
    return QN_OK;
}

qn_status cli_output_open(cli_output *out, const char *path, int64_t bytes, bool force) {
    *out = (cli_output){.fd = -1, .may_replace = force};
    if (!force && cli_exists(path))
        return fail_exists(path);
    if (cli_is_folder(path))
        return cli_fail(QN_E_INVALID, "%s: is a folder, a file is to be written there", path);
    out->path = cli_text("%s", path);
    out->temp = temp_name(path);
    catch_signals();
    out->fd = mkostemp(out->temp, O_CLOEXEC);
    qn_status st = out->fd < 0 ? fail_path(path, "cannot be created") : reserve(out, bytes);
    if (st != QN_OK)
        cli_output_discard(out);
    return st;
}

qn_status cli_output_write(cli_output *out, const void *data, int64_t bytes, int64_t offset) {
    const char *from = data;
    while (bytes > 0) {
        qn_status st = cli_check_signals();
        if (st != QN_OK)
            return st;
        size_t step = bytes < 16 << 20 ? (size_t)bytes : 16 << 20;
        ssize_t done = pwrite(out->fd, from, step, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail_path(out->path, "cannot be written");
        from += done;
        offset += done;
        bytes -= done;
    }
    return QN_OK;
}

/** mkstemp makes files that only the user can read; a result is like any other file. */
static mode_t usual_mode(mode_t all) {
    mode_t mask = umask(0);
    umask(mask);
    return all & ~mask;
}

qn_status cli_output_commit(cli_output *out) {
    qn_status st = cli_check_signals();
    if (st == QN_OK && (fchmod(out->fd, usual_mode(0666)) != 0 || fsync(out->fd) != 0))
        st = fail_path(out->path, "cannot be written");
    if (st == QN_OK)
        st = put_in_place(out->temp, out->path, out->may_replace ? 0 : RENAME_NOREPLACE);
    if (st == QN_OK) {
        free(out->temp);
        out->temp = nullptr;
    }
    cli_output_discard(out);
    return st;
}

void cli_output_discard(cli_output *out) {
    if (out->fd >= 0)
        close(out->fd);
    if (out->temp)
        unlink(out->temp);
    free(out->temp);
    free(out->path);
    *out = (cli_output){.fd = -1};
}

// ---- folders

static int remove_entry(const char *path, const struct stat *, int, struct FTW *) {
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/** --force replaces checkpoints, not whatever a mistyped name points to. */
static bool holds_checkpoint(const char *path) {
    static const char *const marks[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    bool found = false;
    for (int i = 0; i < 3 && !found; i++) {
        char *mark = cli_path(path, marks[i]);
        found = cli_exists(mark);
        free(mark);
    }
    return found;
}

qn_status cli_folder_open(cli_folder *out, const char *path, bool force) {
    *out = (cli_folder){.may_replace = force && cli_exists(path)};
    if (!force && cli_exists(path))
        return fail_exists(path);
    if (out->may_replace && (!cli_is_folder(path) || !holds_checkpoint(path)))
        return cli_fail(QN_E_INVALID, "%s: is no checkpoint folder, --force replaces nothing else",
                        path);
    out->path = cli_text("%s", path);
    for (size_t n = strlen(out->path); n > 1 && out->path[n - 1] == '/'; n--)
        out->path[n - 1] = '\0';
    out->temp = temp_name(out->path);
    catch_signals();
    if (mkdtemp(out->temp) && chmod(out->temp, usual_mode(0777)) == 0)
        return QN_OK;
    qn_status st = fail_path(path, "cannot be created");
    cli_folder_discard(out);
    return st;
}

qn_status cli_folder_commit(cli_folder *folder) {
    qn_status st = cli_check_signals();
    if (st == QN_OK)
        st = put_in_place(folder->temp, folder->path,
                          folder->may_replace ? RENAME_EXCHANGE : RENAME_NOREPLACE);
    // After an exchange the temporary name holds the old folder.
    if (st == QN_OK && !folder->may_replace) {
        free(folder->temp);
        folder->temp = nullptr;
    }
    cli_folder_discard(folder);
    return st;
}

void cli_folder_discard(cli_folder *folder) {
    if (folder->temp)
        remove_tree(folder->temp);
    free(folder->temp);
    free(folder->path);
    *folder = (cli_folder){0};
}

qn_status cli_copy_file(const char *from, const char *to) {
    cli_map map;
    qn_status st = cli_map_open(&map, from);
    if (st != QN_OK)
        return st;
    cli_output out;
    if ((st = cli_output_open(&out, to, map.bytes, false)) == QN_OK) {
        st = cli_output_write(&out, map.data, map.bytes, 0);
        if (st == QN_OK)
            st = cli_output_commit(&out);
        else
            cli_output_discard(&out);
    }
    cli_map_close(&map);
    return st;
}

qn_status cli_write_text(const char *path, const char *text, bool force) {
    cli_output out;
    qn_status st = cli_output_open(&out, path, 0, force);
    if (st != QN_OK)
        return st;
    if ((st = cli_output_write(&out, text, (int64_t)strlen(text), 0)) == QN_OK)
        return cli_output_commit(&out);
    cli_output_discard(&out);
    return st;
}
