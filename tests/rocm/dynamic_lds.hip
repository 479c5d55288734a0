// SPDX-License-Identifier: Apache-2.0
// LDS whose size the launch gives, beside LDS whose size the kernel gives, up to all that a workgroup may have.
#include "testing.h"

extern __shared__ int dynamic[];

__global__ void reverse(int *x) {
    int n = blockDim.x, t = threadIdx.x;
    dynamic[t] = x[blockIdx.x * n + t];
    __syncthreads();
    x[blockIdx.x * n + t] = dynamic[n - 1 - t];
}

// Two arrays in the dynamic part, a third of fixed size.
__global__ void mixed(const int *x, double *out) {
    __shared__ int fixed[64];
    HIP_DYNAMIC_SHARED(double, wide);
    float *narrow = reinterpret_cast<float *>(wide + blockDim.x);
    int t = threadIdx.x, other = (t + 1) % blockDim.x;
    fixed[t] = x[t];
    wide[t] = 0.5 * x[t];
    narrow[t] = 0.25f * x[t];
    __syncthreads();
    out[t] = fixed[other] + wide[other] + narrow[other];
}

__global__ void fill(int *sum, int words) {
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        dynamic[i] = i;
    __syncthreads();
    int part = 0;
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        part += dynamic[words - 1 - i] % 7;
    atomicAdd(sum, part);
}

static void test_reverse() {
    for (int n : {1, 64, 100, 1024}) {
        std::vector<int> x = random_ints(3 * n, -1000, 1000);
        Buffer<int> dx(x);
        reverse<<<3, n, n * sizeof(int)>>>(dx.data);
        std::vector<int> got = dx.read();
        for (int i = 0; i < 3 * n; i++)
            CHECK(got[i] == x[i / n * n + n - 1 - i % n]);
    }
}

static void test_mixed() {
    std::vector<int> x = random_ints(64, -1000, 1000);
    Buffer<int> dx(x);
    Buffer<double> out(64);
    mixed<<<1, 64, 64 * (sizeof(double) + sizeof(float))>>>(dx.data, out.data);
    std::vector<double> got = out.read();
    for (int i = 0; i < 64; i++)
        CHECK(got[i] == 1.75 * x[(i + 1) % 64]);
}

static void test_all_of_it() {
    size_t most = properties().sharedMemPerBlock;
    CHECK(most >= 65536);
    OK(hipFuncSetAttribute(reinterpret_cast<const void *>(fill), hipFuncAttributeMaxDynamicSharedMemorySize, int(most)));
    Buffer<int> sum(std::vector<int>{0});
    int words = int(most / 4), want = 0;
    for (int i = 0; i < words; i++)
        want += i % 7;
    fill<<<1, 256, most>>>(sum.data, words);
    OK(hipGetLastError());
    CHECK(sum.read()[0] == want);
    fill<<<1, 256, most + 1>>>(sum.data, words);
    CHECK(hipGetLastError() != hipSuccess);
    int blocks = 0;
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, most));
    CHECK(blocks >= 1);
}

int main() {
    return on_each_device([] {
        test_reverse();
        test_mixed();
        test_all_of_it();
    });
}
