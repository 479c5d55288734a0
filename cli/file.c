// SPDX-License-Identifier: Apache-2.0
// Output files, which appear under their own name only when they are whole.
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- signals

static volatile sig_atomic_t caught;

static void on_signal(int number) {
    caught = number;
}

/** Returns the name of a signal that is caught. (sigabbrev_np is younger than glibc 2.28.) */
static const char *signal_name(int number) {
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

void cli_catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGHUP, &action, nullptr);
    signal(SIGXFSZ, SIG_IGN); // past the file size limit, writing fails like on a full disk
}

qn_status cli_check_signals(void) {
    return caught ? cli_fail(QN_E_IO, "interrupted by %s; nothing was written", signal_name(caught))
                  : cli_check_pages();
}

// ---- outputs

qn_status cli_fail_exists(const char *path) {
    return cli_fail(QN_E_INVALID, "%s: exists already (--force replaces it)", path);
}

qn_status cli_output_check(const char *path, bool force) {
    if (!path)
        return QN_OK;
    if (!force && cli_exists(path))
        return cli_fail_exists(path);
    char *copy = cli_text("%s", path);
    const bool fits = access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return fits ? QN_OK : cli_fail(QN_E_IO, "%s: cannot be created: %s", path, strerror(errno));
}

/** Syncs the folder that holds path, so that a rename in the folder lasts. */
static void sync_parent(const char *path) {
    char parent[PATH_MAX]; // asks for no more memory, as the result exists
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    const int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

qn_status cli_put_in_place(const char *temp, const char *path, unsigned flags) {
    int failed = renameat2(AT_FDCWD, temp, AT_FDCWD, path, flags);
    if (failed && errno == EINVAL && flags == RENAME_NOREPLACE) { // this file system lacks it
        if (cli_exists(path))
            return cli_fail_exists(path);
        failed = rename(temp, path);
    }
    if (failed && errno == EEXIST)
        return cli_fail_exists(path);
    if (failed)
        return cli_fail_path(path, "cannot be created");
    sync_parent(path);
    return QN_OK;
}

static qn_status reserve(const cli_output *out, int64_t bytes) {
    if (bytes > 0 && fallocate(out->temp->fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return cli_fail_path(out->path, "cannot be written");
    return QN_OK;
}

qn_status cli_output_open(cli_output *out, const char *path, int64_t bytes, bool force) {
    *out = (cli_output){.may_replace = force};
    if (!force && cli_exists(path))
        return cli_fail_exists(path);
    if (cli_is_folder(path))
        return cli_fail(QN_E_INVALID, "%s: is a folder, a file is to be written there", path);
    out->path = cli_text("%s", path);
    cli_catch_signals();
    out->temp = cli_temp_file(path);
    const qn_status st = out->temp ? reserve(out, bytes) : cli_fail_path(path, "cannot be created");
    if (st != QN_OK)
        cli_output_discard(out);
    return st;
}

qn_status cli_output_write(cli_output *out, const void *data, int64_t bytes, int64_t offset) {
    const char *from = data;
    while (bytes > 0) {
        const qn_status st = cli_check_signals();
        if (st != QN_OK)
            return st;
        const size_t step = bytes < 16 << 20 ? (size_t)bytes : 16 << 20;
        const ssize_t done = pwrite(out->temp->fd, from, step, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return cli_fail_path(out->path, "cannot be written");
        from += done;
        offset += done;
        bytes -= done;
    }
    return QN_OK;
}

mode_t cli_usual_mode(mode_t all) {
    mode_t mask = umask(0);
    umask(mask);
    return all & ~mask;
}

qn_status cli_output_commit(cli_output *out) {
    qn_status st = cli_check_signals();
    if (st == QN_OK)
        st = cli_check_inputs();
    if (st == QN_OK &&
        (fchmod(out->temp->fd, cli_usual_mode(0666)) != 0 || fsync(out->temp->fd) != 0))
        st = cli_fail_path(out->path, "cannot be written");
    if (st == QN_OK)
        st = cli_put_in_place(out->temp->path, out->path, out->may_replace ? 0 : RENAME_NOREPLACE);
    if (st == QN_OK) {
        cli_temp_forget(out->temp);
        out->temp = nullptr;
    }
    cli_output_discard(out);
    return st;
}

void cli_output_discard(cli_output *out) {
    cli_temp_remove(out->temp);
    free(out->path);
    *out = (cli_output){0};
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

qn_status cli_output_text(cli_output *out, const char *path, const char *text, bool force) {
    qn_status st = cli_output_open(out, path, 0, force);
    if (st == QN_OK && (st = cli_output_write(out, text, (int64_t)strlen(text), 0)) != QN_OK)
        cli_output_discard(out);
    return st;
}

qn_status cli_write_text(const char *path, const char *text, bool force) {
    cli_output out;
    const qn_status st = cli_output_text(&out, path, text, force);
    return st == QN_OK ? cli_output_commit(&out) : st;
}
