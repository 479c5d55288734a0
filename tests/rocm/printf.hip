// SPDX-License-Identifier: Apache-2.0
// printf on every device; or, with the argument "assert", an assertion that fails on each, which hipDeviceReset cures.
// tests/rocm_test.sh compares what is printed.
#undef NDEBUG
#include "testing.h"

#include <cassert>
#include <cstring>

__global__ void print(const char *name, int *counts) {
    int i = threadIdx.x;
    counts[i] = printf("%s %d: %5.2f|%-6s|%06x|%c|%lld|%u|%%|%*d|%.3s|%p\n", name, i, i * 1.5, "ab", i * 77, 'a' + i,
                       -5000000000ll - i, 4000000000u, 4 + i, -i, "abcdef", reinterpret_cast<void *>(0x1234));
    if (i == 2)
        printf("only lane 2\n");
}

__global__ void each_prints(int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        printf("item %d of %d\n", i, n);
}

__global__ void holds(const int *x) {
    assert(x[threadIdx.x] == 7);
}

static void test_print() {
    Buffer<int> counts(3);
    Buffer<char> name(std::vector<char>{'l', 'a', 'n', 'e', 0});
    print<<<1, 3>>>(name.data, counts.data);
    OK(hipDeviceSynchronize());
    for (int count : counts.read())
        CHECK(count >= 0);
    each_prints<<<3, 100>>>(250);
}

static int *device_array(const std::vector<int> &from) {
    int *data;
    OK(hipMalloc(&data, from.size() * sizeof(int)));
    OK(hipMemcpy(data, from.data(), from.size() * sizeof(int), hipMemcpyHostToDevice));
    return data;
}

static void test_assert() {
    std::vector<int> right(128, 7), wrong = right;
    wrong[70] = 8;
    for (int round = 0; round < 2; round++) {
        int *x = device_array(right), *y = device_array(wrong);
        holds<<<1, 128>>>(x);
        OK(hipDeviceSynchronize());
        holds<<<1, 128>>>(y);
        CHECK(hipDeviceSynchronize() == hipErrorLaunchFailure);
        CHECK(hipMemcpy(wrong.data(), y, 4, hipMemcpyDeviceToHost) == hipErrorLaunchFailure);
        OK(hipDeviceReset());
        CHECK(hipFree(x) == hipErrorInvalidValue); // gone with the reset
        CHECK(hipGetLastError() == hipErrorInvalidValue);
    }
}

int main(int argc, char **argv) {
    return on_each_device(argc > 1 && !strcmp(argv[1], "assert") ? test_assert : test_print);
}
