// SPDX-License-Identifier: Apache-2.0
// Mapped inputs, and what other programs do to them meanwhile. If a file is cut short, reading past
// its end gives an error with the file's name, instead of ending the process by SIGBUS.
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/** A mapped file as it was when it was opened. */
struct cli_source {
    char *path;
    const uint8_t *data;
    struct stat was;
    struct cli_source *next;
};

static struct cli_source *sources;
/** The last file of which a page could not be read. It is only compared, as it may have been
 *  closed. */
static const struct cli_source *_Atomic broken;

// ---- pages that no longer exist

static struct cli_source *source_at(const uint8_t *address) {
    struct cli_source *s = sources;
    while (s && (address < s->data || address - s->data >= s->was.st_size))
        s = s->next;
    return s;
}

/** Puts zeros in place of the missing page and all after it, so that the reader goes on to where
 *  the error is noticed. Any thread may come here; no thread changes the list meanwhile. */
static void on_missing_page(int number, siginfo_t *info, void *) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *from = (uint8_t *)((uintptr_t)info->si_addr / page * page);
    const struct cli_source *s = source_at(info->si_addr);
    const size_t bytes = s ? (size_t)(s->data + s->was.st_size - from) : 0;
    if (!s || mmap(from, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                   -1, 0) == MAP_FAILED)
        signal(number, SIG_DFL); // the signal comes again, and ends the process
    else
        atomic_store(&broken, s);
}

static void watch_pages(void) {
    struct sigaction action = {.sa_sigaction = on_missing_page, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, nullptr);
}

// ---- changes of the files

static qn_status fail_broken(const struct cli_source *s) {
    return cli_fail(QN_E_IO, "%s: cannot be read to its end: it was cut short, or the disk failed",
                    s->path);
}

/** Checks that a file did not change. If another file has taken its name, the mapping still has the
 *  old one. */
static qn_status check_source(const struct cli_source *s) {
    struct stat now;
    if (stat(s->path, &now) != 0 || now.st_dev != s->was.st_dev || now.st_ino != s->was.st_ino)
        return QN_OK;
    if (now.st_size != s->was.st_size)
        return cli_fail(QN_E_IO,
                        "%s: changed while it was read: it had %lld bytes, now it has %lld",
                        s->path, (long long)s->was.st_size, (long long)now.st_size);
    const bool is_unwritten = now.st_mtim.tv_sec == s->was.st_mtim.tv_sec &&
                              now.st_mtim.tv_nsec == s->was.st_mtim.tv_nsec;
    return is_unwritten ? QN_OK
                        : cli_fail(QN_E_IO, "%s: was written to while it was read", s->path);
}

qn_status cli_check_pages(void) {
    const struct cli_source *found = atomic_load(&broken);
    for (const struct cli_source *s = found ? sources : nullptr; s; s = s->next)
        if (s == found)
            return fail_broken(s);
    return QN_OK;
}

qn_status cli_check_inputs(void) {
    qn_status st = QN_OK;
    for (const struct cli_source *s = sources; st == QN_OK && s; s = s->next)
        st = check_source(s);
    return st == QN_OK ? cli_check_pages() : st; // the first message says more
}

// ---- opening

qn_status cli_fail_path(const char *path, const char *action) {
    const int code = errno;
    const qn_status status = code == ENOENT   ? QN_E_NOT_FOUND
                             : code == ENOMEM ? QN_E_MEMORY
                                              : QN_E_IO;
    return cli_fail(status, "%s: %s: %s", path, action, strerror(code));
}

static struct cli_source *source_add(const char *path, const struct stat *was, const void *data) {
    struct cli_source *s = cli_alloc(sizeof *s);
    *s = (struct cli_source){cli_text("%s", path), data, *was, sources};
    watch_pages();
    return sources = s;
}

static void source_remove(struct cli_source *gone) {
    struct cli_source **at = &sources;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    free(gone->path);
    free(gone);
}

static qn_status map_fd(cli_map *out, int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return cli_fail_path(out->path, "cannot read");
    if (!S_ISREG(info.st_mode))
        return cli_fail(QN_E_INVALID, "%s: not a regular file", out->path);
    out->bytes = info.st_size;
    if (!out->bytes)
        return QN_OK;
    void *data = mmap(nullptr, (size_t)out->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return cli_fail_path(out->path, "cannot map");
    out->data = data;
    out->source = source_add(out->path, &info, data);
    return QN_OK;
}

qn_status cli_map_open(cli_map *out, const char *path) {
    *out = (cli_map){.path = cli_text("%s", path)};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused, not waited for
    const qn_status st = fd < 0 ? cli_fail_path(path, "cannot open") : map_fd(out, fd);
    if (fd >= 0)
        close(fd);
    if (st != QN_OK)
        cli_map_close(out);
    return st;
}

void cli_map_close(cli_map *map) {
    if (map->data) {
        source_remove(map->source);
        munmap((void *)map->data, (size_t)map->bytes);
    }
    free(map->path);
    *map = (cli_map){0};
}

void cli_map_release(const cli_map *map, int64_t begin, int64_t end) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (end > begin)
        madvise((void *)(map->data + begin), (size_t)(end - begin), MADV_DONTNEED);
}

// ---- paths

char *cli_path(const char *folder, const char *name) {
    return cli_text("%s/%s", folder, name);
}

char *cli_real_path(const char *path) {
    char *real = realpath(path, nullptr);
    if (!real && errno == ENOMEM)
        cli_out_of_memory();
    return real;
}

bool cli_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *cli_next_entry(DIR *folder, const char *path, qn_status *st) {
    const struct dirent *e;
    do {
        errno = 0;
        e = readdir(folder);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    if (!e && errno)
        *st = cli_fail_path(path, "cannot be read");
    return e ? e->d_name : nullptr;
}

bool cli_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}
