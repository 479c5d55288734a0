// SPDX-License-Identifier: Apache-2.0
// How fast the runtime is when the GPU has nothing to do: launches of an empty kernel, copies of
// 64 MiB beside memcpy. Prints `name value unit` lines.
#include "mini.h"

#include <string.h>
#include <time.h>

enum { LAUNCHES = 100000, COPIES = 8 };
static const size_t BYTES = (size_t)64 << 20;

static __global__ void nothing() {}

static double seconds(clockid_t clock = CLOCK_MONOTONIC) {
    timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_launches() {
    nothing<<<1, 64>>>();
    OK(hipDeviceSynchronize());
    const double start = seconds();
    for (int i = 0; i < LAUNCHES; i++)
        nothing<<<1, 64>>>();
    OK(hipDeviceSynchronize());
    printf("launches %.0f 1/s\n", LAUNCHES / (seconds() - start));
}

/** Times copies, and memcpy of as much in turn with them, as the fastest of some, by the thread's own
 *  time, as the copies are made in the thread that waits for them. The first of each, which touches
 *  the pages, is for nothing. */
template <typename copy>
static void time_copy(const char *name, char *to, const char *from, copy run) {
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 2 * (COPIES + 1); i++) {
        const double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        if (i % 2)
            run();
        else
            memcpy(to, from, BYTES);
        asm volatile("" ::"r"(to) : "memory"); // nobody may read the copy
        const double took = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
        if (i > 1 && took < best[i % 2])
            best[i % 2] = took;
    }
    CHECK(best[1] < 2 * best[0]);
    printf("%s %.2f GB/s\n%s_memcpy %.2f GB/s\n", name, (double)BYTES / best[1] * 1e-9, name,
           (double)BYTES / best[0] * 1e-9);
}

static void time_small_copies(char *d) {
    int word = 0;
    const double start = seconds();
    for (int i = 0; i < LAUNCHES; i++)
        OK(hipMemcpy(d, &word, sizeof word, hipMemcpyHostToDevice));
    printf("small_copies %.0f 1/s\n", LAUNCHES / (seconds() - start));
}

int main() {
    char *a = (char *)malloc(BYTES), *b = (char *)malloc(BYTES), *c = (char *)malloc(BYTES), *d, *e;
    OK(hipMalloc((void **)&d, BYTES));
    OK(hipMalloc((void **)&e, BYTES));
    memset(a, 1, BYTES);
    time_launches();
    time_small_copies(d);
    time_copy("to_device", b, a, [&] { OK(hipMemcpy(d, a, BYTES, hipMemcpyHostToDevice)); });
    time_copy("on_device", b, a, [&] {
        OK(hipMemcpy(e, d, BYTES, hipMemcpyDeviceToDevice));
        OK(hipDeviceSynchronize());
    });
    memset(b, 2, BYTES);
    time_copy("from_device", c, a, [&] { OK(hipMemcpy(b, e, BYTES, hipMemcpyDeviceToHost)); });
    for (size_t i = 0; i < BYTES; i++)
        CHECK(b[i] == 1);
    return 0;
}
