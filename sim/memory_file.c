// SPDX-License-Identifier: Apache-2.0
// Files in memory, through which processes share device memory. Their name says what they are.
#include "memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "quern-device-memory"

int sim_memory_file(uint64_t bytes) {
    constexpr uint64_t PAGE = UINT64_C(1) << 16;
    const int fd = memfd_create(NAME, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)((bytes + PAGE - 1) & ~(PAGE - 1))) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool sim_memory_is_file(int fd, uint64_t *bytes) {
    char path[64], name[128];
    struct stat info;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, name, sizeof name - 1);
    if (n <= 0 || fstat(fd, &info) != 0 || info.st_size <= 0)
        return false;
    name[n] = 0;
    *bytes = (uint64_t)info.st_size;
    return strncmp(name, "/memfd:" NAME " ", sizeof "/memfd:" NAME) == 0;
}

void *sim_memory_map_file(void *host, int fd, uint64_t bytes) {
    void *at = mmap(host, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | (host ? MAP_FIXED : 0), fd, 0);
    return at == MAP_FAILED ? nullptr : at;
}
