// SPDX-License-Identifier: Apache-2.0
// Copies between places in host memory. The CPU device's threads share large copies and write them
// past the caches, so that a line is not first read from memory only to be overwritten.
#include "../runtime.h"

#include <string.h>

typedef uint64_t chunk __attribute__((vector_size(16)));

constexpr int64_t large_bytes = 4 << 20, part_bytes = 256 << 10, cache_line = 64;

typedef struct large_copy {
    char *to; // at a cache line
    const char *from;
    int64_t bytes; // whole cache lines
} large_copy;

static void copy_part(void *context, int64_t i) {
    const large_copy *c = context;
    const int64_t first = i * part_bytes, rest = c->bytes - first;
    const int64_t end = first + (rest < part_bytes ? rest : part_bytes);
    for (int64_t at = first; at < end; at += cache_line) {
        chunk line[cache_line / sizeof(chunk)];
        memcpy(line, c->from + at, sizeof line);
        for (size_t k = 0; k < sizeof line / sizeof *line; k++)
            __builtin_nontemporal_store(line[k], (chunk *)(c->to + at) + k);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); // nothing less orders stores past the caches
}

void qni_copy_host(void *to, const void *from, int64_t bytes) {
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    const bool overlaps = a < b + (uintptr_t)bytes && b < a + (uintptr_t)bytes;
    if (overlaps || bytes < large_bytes) {
        memmove(to, from, (size_t)bytes);
        return;
    }
    const int64_t head = -(int64_t)a & (cache_line - 1);
    const int64_t body = (bytes - head) / cache_line * cache_line, tail = bytes - head - body;
    large_copy c = {(char *)to + head, (const char *)from + head, body};
    memcpy(to, from, (size_t)head);
    qni_parallel((body + part_bytes - 1) / part_bytes, copy_part, &c);
    memcpy(c.to + body, c.from + body, (size_t)tail);
}
