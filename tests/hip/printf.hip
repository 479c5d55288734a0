// SPDX-License-Identifier: Apache-2.0
// printf and a failed assertion, with the device library of an installed Triton (ockl.bc). argument: "assert" for the latter.
// tests/hip_test.sh compares what it prints.
#include "mini.h"

#include <cstring>

extern "C" __device__ int printf(const char *, ...);

extern "C" { // as HIP's headers use them for assert
__device__ uint64_t __ockl_fprintf_stderr_begin();
__device__ uint64_t __ockl_fprintf_append_string_n(uint64_t, const char *, uint64_t, uint32_t);
}

__global__ void talk(int *counts, const char *name) {
    int i = (int)thread_id();
    counts[i] = printf("lane %d of %s: %5.2f|%-6s|%06x|%c|%lld|%u|%%|%*d\n", i, name, i * 1.5, "ab",
                       i * 77, 'a' + i, -5000000000ll - i, (unsigned)-1 - (unsigned)i, 4 + i, -i);
    if (i == 1)
        printf("%s%hhd %.3s|%g|%p\n", "only one, ", 300, "abcdef", 1e300, (void *)0x1234);
}

__global__ void many(int n) {
    int i = (int)global_id();
    if (i < n)
        printf("<%d>\n", i);
}

__global__ void fail(int value) {
    if (thread_id() == 3 && value == 7) {
        static const char text[] = "value != 7 failed\n";
        uint64_t message = __ockl_fprintf_stderr_begin();
        __ockl_fprintf_append_string_n(message, text, sizeof text, 1);
        __builtin_trap();
    }
}

int main(int argc, char **) {
    enum { LAUNCH_FAILURE = 719 };
    if (argc > 1) {
        fail<<<1, 64>>>(7);
        CHECK(hipDeviceSynchronize() == LAUNCH_FAILURE);
        return 0;
    }
    int counts[3], *d = device_array<int>(3);
    char *name = device_array(5, "some");
    printf("first\n");
    talk<<<1, 3>>>(d, name);
    OK(hipDeviceSynchronize());
    printf("then\n");
    read_back(counts, d, 3);
    printf("%d %d %d\n", counts[0], counts[1], counts[2]);
    many<<<20, 64>>>(1200);
    OK(hipDeviceSynchronize());
    return 0;
}
