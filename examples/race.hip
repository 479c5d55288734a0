// SPDX-License-Identifier: Apache-2.0
// A kernel with a mistake, for `quern sim` to find: docs/simulator.md, "The first report".
#include <hip/hip_runtime.h>

__global__ void rotate(int *data) {
    __shared__ int part[256];
    int i = threadIdx.x;
    part[i] = data[i];
    data[i] = part[(i + 64) % 256]; // a __syncthreads() is missing before it
}

int main() {
    int *data;
    if (hipMalloc(&data, 256 * sizeof(int)) != hipSuccess || hipMemset(data, 0, 256 * sizeof(int)) != hipSuccess)
        return 1;
    rotate<<<1, 256>>>(data);
    return hipDeviceSynchronize() != hipSuccess;
}
