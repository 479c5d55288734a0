// SPDX-License-Identifier: Apache-2.0
// A program without code for the device: an error at the launch, and the host's part goes on.
#include "mini.h"

__global__ void store(int *out) {
    *out = 1;
}

int main() {
    enum { NO_BINARY_FOR_GPU = 209 };
    int *d = device_array<int>(1);
    store<<<1, 1>>>(d);
    CHECK(hipGetLastError() == NO_BINARY_FOR_GPU);
    store<<<1, 1>>>(d);
    CHECK(hipGetLastError() == NO_BINARY_FOR_GPU);
    OK(hipMemset(d, 0, sizeof *d));
    OK(hipDeviceSynchronize());
    return 0;
}
