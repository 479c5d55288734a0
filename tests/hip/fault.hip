// SPDX-License-Identifier: Apache-2.0
// A kernel that stores past the end of its array: reported, and an error at the next synchronisation.
#include "mini.h"

__global__ void fill(int *out, int n) {
    int i = (int)global_id();
    if (i <= n) // one too many
        out[i] = i;
}

int main() {
    enum { ILLEGAL_ADDRESS = 700 };
    int *d = device_array<int>(1000);
    fill<<<4, 256>>>(d, 1000);
    CHECK(hipDeviceSynchronize() == ILLEGAL_ADDRESS);
    return 0;
}
