// SPDX-License-Identifier: Apache-2.0
// The disk cache of JIT-built images. An entry is whole, sound and the user's own, or it counts as
// absent.
//
// Many processes share the folder. Readers take no lock: an entry appears by rename, complete or
// not at all. Writers of one entry take turns by a lock on one byte of the file ".lock", which the
// kernel releases when a process dies. A killed writer's file has the entry's only temporary name,
// and the next writer replaces it.
#include "cache.h"

#include <quern/cache.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SUFFIX ".image"
#define PARTIAL ".partial." // before an entry's name while it is written
#define LOCK_FILE ".lock"

/** The header before the payload. It is little-endian, as every host of this library is. */
typedef struct entry_header {
    char magic[8];
    uint64_t bytes; // of the payload
    uint64_t key_low, key_high;
    uint64_t sum_low, sum_high; // XXH3-128 of the payload
} entry_header;
static const char magic[8] = {'q', 'u', 'e', 'r', 'n', 'j', '0', '1'};
static_assert(sizeof(entry_header) == 48);

constexpr int64_t max_payload_bytes = INT64_C(1) << 28;

// ---- the folder

/** Makes every missing part of a path, for the user alone. */
static bool make_folders(const char *path) {
    char part[4096];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

/** Returns null if only this user can write the file, else what is wrong. */
static const char *distrust(const struct stat *s) {
    if (s->st_uid != geteuid())
        return "it belongs to another user";
    return s->st_mode & (S_IWGRP | S_IWOTH) ? "others can write to it" : nullptr;
}

static void open_folder(qni_cache *cache, const char *path, bool make) {
    struct stat s;
    *cache = (qni_cache){.folder = -1, .lock = -1};
    if (!*path) {
        snprintf(cache->problem, sizeof cache->problem, "no QUERN_CACHE_DIR and no home");
        return;
    }
    const int fd =
        !make || make_folders(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const char *fault = fd < 0 || fstat(fd, &s) != 0 ? strerror(errno) : distrust(&s);
    if (!fault) {
        cache->folder = fd;
        return;
    }
    snprintf(cache->problem, sizeof cache->problem, "%.160s: %s", path, fault);
    if (fd >= 0)
        close(fd);
}

void qni_cache_open(qni_cache *cache) {
    open_folder(cache, qni_env_get()->cache_dir, true);
}

void qni_cache_close(qni_cache *cache) {
    qni_cache_unlock(cache);
    if (cache->folder >= 0)
        close(cache->folder);
    cache->folder = -1;
}

void qni_cache_name(char *out, size_t room, const char *image, const char *target,
                    qni_cache_key key) {
    snprintf(out, room, "%s.%s.%016lx%016lx" SUFFIX, image, target, (unsigned long)key.high,
             (unsigned long)key.low);
}

/** Removes a file, or an empty folder that stands in its place. */
static int remove_name(int folder, const char *name) {
    const int failed = unlinkat(folder, name, 0);
    return failed && errno == EISDIR ? unlinkat(folder, name, AT_REMOVEDIR) : failed;
}

// ---- reading

/** Opens an entry. O_NONBLOCK is for a pipe, which is no entry: without it the call would wait for
 *  a writer. */
static int open_entry(const qni_cache *cache, const char *name) {
    return openat(cache->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static bool read_all(int fd, void *to, size_t bytes) {
    for (char *at = to; bytes > 0;) {
        const ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/** Reads an open entry. Returns null, and *data, if it is sound, else what is wrong with it. */
static const char *read_entry(int fd, const qni_cache_key *key, void **data, size_t *bytes) {
    struct stat s;
    entry_header header;
    if (fstat(fd, &s) != 0)
        return strerror(errno);
    if (!S_ISREG(s.st_mode))
        return "it is not a file";
    const char *fault = distrust(&s);
    if (fault)
        return fault;
    if (s.st_size < (off_t)sizeof header || !read_all(fd, &header, sizeof header))
        return "it is shorter than its header";
    if (memcmp(header.magic, magic, sizeof magic) != 0)
        return "it is not an entry of this version";
    if (header.bytes > (uint64_t)max_payload_bytes ||
        s.st_size != (off_t)(sizeof header + header.bytes))
        return "its size is not what its header says";
    if (key && (header.key_low != key->low || header.key_high != key->high))
        return "it was built from something else";
    void *payload = malloc(header.bytes + 1);
    if (!payload)
        return "out of memory";
    XXH128_hash_t sum = {0};
    const bool is_whole = read_all(fd, payload, header.bytes);
    if (is_whole)
        sum = XXH3_128bits(payload, header.bytes);
    if (!is_whole || sum.low64 != header.sum_low || sum.high64 != header.sum_high) {
        free(payload);
        return "its checksum is wrong";
    }
    *data = payload;
    *bytes = header.bytes;
    return nullptr;
}

bool qni_cache_load(qni_cache *cache, const char *name, qni_cache_key key, void **data,
                    size_t *bytes, char *problem, size_t room) {
    const char *fault = "absent";
    const int fd = cache->folder < 0 ? -1 : open_entry(cache, name);
    if (fd >= 0) {
        fault = read_entry(fd, &key, data, bytes);
        close(fd);
    } else if (cache->folder >= 0 && errno != ENOENT) {
        fault = strerror(errno);
    }
    snprintf(problem, room, "%s", fault ? fault : "");
    return !fault;
}

// ---- writing

bool qni_cache_lock(qni_cache *cache, qni_cache_key key, int wait_ms) {
    if (cache->folder < 0)
        return false;
    const int fd = openat(cache->folder, LOCK_FILE,
                          O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    // Each key locks a byte of the (empty) file. The lock belongs to the descriptor, so threads
    // exclude each other too.
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(key.low >> 2), .l_len = 1};
    constexpr int step_ms = 10;
    for (int waited = 0; fcntl(fd, F_OFD_SETLK, &byte) != 0; waited += step_ms) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || waited >= wait_ms) {
            close(fd);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = step_ms * 1000000L}, nullptr);
    }
    cache->lock = fd;
    return true;
}

void qni_cache_unlock(qni_cache *cache) {
    if (cache->lock >= 0)
        close(cache->lock);
    cache->lock = -1;
}

static bool write_all(int fd, const void *from, size_t bytes) {
    for (const char *at = from; bytes > 0;) {
        const ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_entry(int fd, const entry_header *header, const void *data) {
    return write_all(fd, header, sizeof *header) && write_all(fd, data, header->bytes) &&
           fsync(fd) == 0;
}

/** Gives a whole entry its name, and replaces what has the name, save a folder. */
static bool put_in_place(const qni_cache *cache, const char *partial, const char *name,
                         int *error) {
    if (renameat(cache->folder, partial, cache->folder, name) == 0 ||
        (errno == EISDIR && unlinkat(cache->folder, name, AT_REMOVEDIR) == 0 &&
         renameat(cache->folder, partial, cache->folder, name) == 0))
        return true;
    *error = errno;
    return false;
}

bool qni_cache_store(qni_cache *cache, const char *name, qni_cache_key key, const void *data,
                     size_t bytes, char *problem, size_t room) {
    char partial[512];
    XXH128_hash_t sum = XXH3_128bits(data, bytes);
    entry_header header = {.bytes = bytes,
                           .key_low = key.low,
                           .key_high = key.high,
                           .sum_low = sum.low64,
                           .sum_high = sum.high64};
    memcpy(header.magic, magic, sizeof magic);
    snprintf(partial, sizeof partial, PARTIAL "%s", name);
    // Removes what a killed writer left; the lock says that no writer is at work.
    remove_name(cache->folder, partial);
    int fd =
        openat(cache->folder, partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool is_stored = fd >= 0 && write_entry(fd, &header, data);
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && is_stored) {
        is_stored = false;
        error = errno;
    }
    if (is_stored)
        is_stored = put_in_place(cache, partial, name, &error);
    if (is_stored)
        fsync(cache->folder); // the rename, too; without it a power cut costs one compilation
    else if (fd >= 0)
        unlinkat(cache->folder, partial, 0);
    snprintf(problem, room, "%s", is_stored ? "" : strerror(error));
    return is_stored;
}

// ---- the user's view

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), wanted = strlen(end);
    return length >= wanted && strcmp(name + length - wanted, end) == 0;
}

static bool is_entry(const char *name) {
    return *name != '.' && ends_with(name, SUFFIX);
}

/** Returns whether the cache wrote a file, finished or not. The lock's file is not removed: its
 *  holder must go on excluding others. */
static bool is_ours(const char *name) {
    return is_entry(name) ||
           (strncmp(name, PARTIAL, strlen(PARTIAL)) == 0 && ends_with(name, SUFFIX));
}

qn_status qn_cache_path(char *buf, size_t room) {
    const char *path = qni_env_get()->cache_dir;
    if (!buf)
        return QN_FAIL(QN_E_INVALID, "cache_path: buf is null");
    if (qni_env_get()->lacks_memory)
        return QN_FAIL(QN_E_MEMORY, "cache: out of memory");
    if (!*path)
        return QN_FAIL(QN_E_NOT_FOUND, "cache: no QUERN_CACHE_DIR, XDG_CACHE_HOME or HOME is set");
    if (strlen(path) >= room)
        return QN_FAIL(QN_E_INVALID, "cache_path: room is %zu, %zu are needed", room,
                       strlen(path) + 1);
    memcpy(buf, path, strlen(path) + 1);
    return QN_OK;
}

/** Opens the folder to look at it. *exists becomes false if there is no folder. */
static qn_status open_view(qni_cache *cache, bool *exists) {
    const char *path = qni_env_get()->cache_dir;
    if (qni_env_get()->lacks_memory)
        return QN_FAIL(QN_E_MEMORY, "cache: out of memory");
    *exists = *path && access(path, F_OK) == 0;
    *cache = (qni_cache){.folder = -1, .lock = -1};
    if (!*exists)
        return QN_OK;
    open_folder(cache, path, false);
    return cache->folder >= 0 ? QN_OK : QN_FAIL(QN_E_IO, "cache: %s", cache->problem);
}

static void report_entry(const qni_cache *cache, const char *name, qn_cache_fn each,
                         void *context) {
    struct stat s = {0};
    qn_cache_entry entry = {.name = name};
    void *data = nullptr;
    size_t bytes;
    const int fd = open_entry(cache, name);
    if (fd < 0 && errno == ENOENT)
        return; // removed since the folder was read
    entry.problem = fd < 0 ? strerror(errno) : read_entry(fd, nullptr, &data, &bytes);
    if (fd >= 0 && fstat(fd, &s) == 0) {
        entry.bytes = s.st_size;
        entry.modified_unix = s.st_mtime;
    }
    each(context, &entry);
    free(data);
    if (fd >= 0)
        close(fd);
}

static int select_entries(const struct dirent *file) {
    return is_entry(file->d_name);
}

qn_status qn_cache_list(qn_cache_fn each, void *context) {
    qni_cache cache;
    struct dirent **files;
    bool exists;
    if (!each)
        return QN_FAIL(QN_E_INVALID, "cache_list: each is null");
    qn_status st = open_view(&cache, &exists);
    if (st != QN_OK || !exists)
        return st;
    const int count = scandirat(cache.folder, ".", &files, select_entries, alphasort);
    if (count < 0)
        st = QN_FAIL(QN_E_IO, "cache: %s: %s", qni_env_get()->cache_dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        report_entry(&cache, files[i]->d_name, each, context);
        free(files[i]);
    }
    if (count >= 0)
        free(files);
    qni_cache_close(&cache);
    return st;
}

static int select_ours(const struct dirent *file) {
    return is_ours(file->d_name);
}

qn_status qn_cache_clear(int64_t *removed) {
    qni_cache cache;
    struct dirent **files;
    bool exists;
    int64_t entries = 0;
    qn_status st = open_view(&cache, &exists);
    if (st == QN_OK && exists) {
        const int count = scandirat(cache.folder, ".", &files, select_ours, alphasort);
        if (count < 0)
            st = QN_FAIL(QN_E_IO, "cache: %s: %s", qni_env_get()->cache_dir, strerror(errno));
        for (int i = 0; i < count; i++) {
            const char *name = files[i]->d_name;
            if (remove_name(cache.folder, name) == 0)
                entries += is_entry(name);
            else if (errno != ENOENT)
                st = QN_FAIL(QN_E_IO, "cache: %s: %s", name, strerror(errno));
            free(files[i]);
        }
        if (count >= 0)
            free(files);
        qni_cache_close(&cache);
    }
    if (removed)
        *removed = entries;
    return st;
}
