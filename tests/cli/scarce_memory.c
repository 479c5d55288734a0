// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: one allocation of a process fails, the SCARCE_AT-th (from 0; none if unset), or
// with SCARCE_ON all from that one on. The number of allocations is written to the file
// SCARCE_COUNT. The process's children are left alone.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long asked;
static long fails_at = -1;
static int fails_on, is_watching;
static char count_file[256];

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("SCARCE_AT"), *count = getenv("SCARCE_COUNT");
    fails_at = at ? atol(at) : -1;
    fails_on = getenv("SCARCE_ON") != NULL;
    snprintf(count_file, sizeof count_file, "%s", count ? count : "/dev/null");
    unsetenv("LD_PRELOAD");
    is_watching = 1;
}

__attribute__((destructor)) static void end(void) {
    char text[32];
    const int fd = open(count_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&asked));
    if (fd < 0 || write(fd, text, (size_t)length) != length || close(fd) != 0)
        _exit(99);
}

/** Ends the count, as the program is replaced. */
int execvp(const char *file, char *const argv[]) {
    end();
    is_watching = 0;
    return execvpe(file, argv, environ);
}

static int fails(void) {
    const long n = is_watching ? atomic_fetch_add(&asked, 1) : -1;
    const int is_failing = n >= 0 && fails_at >= 0 && (fails_on ? n >= fails_at : n == fails_at);
    if (is_failing)
        errno = ENOMEM;
    return is_failing;
}

void *malloc(size_t bytes) {
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    return fails() ? NULL : __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    void *memory = memalign(alignment, bytes);
    if (memory)
        *out = memory;
    return memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return fails() ? MAP_FAILED
                   : (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
