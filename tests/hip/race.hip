// SPDX-License-Identifier: Apache-2.0
// A kernel without the barrier that it needs: found by --check race, not seen without.
#include "mini.h"

__global__ void rotate(int *data) {
    __shared__ int part[256];
    uint32_t t = thread_id();
    part[t] = data[t];
    data[t] = part[(t + 64) % 256]; // of another wave
}

int main() {
    int *d = device_array<int>(256);
    OK(hipMemset(d, 0, 256 * sizeof(int)));
    rotate<<<1, 256>>>(d);
    return hipDeviceSynchronize() ? 3 : 0;
}
