// SPDX-License-Identifier: Apache-2.0
// Sums: along a tree in LDS, by shuffles within a wave, and over the whole grid by the last block to arrive.
#include "testing.h"

constexpr int BLOCK = 256;

__global__ void tree(const float *x, float *sums, int n) {
    __shared__ float part[BLOCK];
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
    part[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}

template <typename T> __device__ T wave_sum(T value) {
    for (int distance = warpSize / 2; distance > 0; distance /= 2)
        value += __shfl_down(value, distance);
    return value;
}

template <typename T> __device__ T block_sum(T value) {
    __shared__ T part[BLOCK / 32];
    value = wave_sum(value);
    if (threadIdx.x % warpSize == 0)
        part[threadIdx.x / warpSize] = value;
    __syncthreads();
    int waves = blockDim.x / warpSize;
    value = int(threadIdx.x) < waves ? part[threadIdx.x] : T(0);
    return threadIdx.x < unsigned(warpSize) ? wave_sum(value) : value;
}

template <typename T> __global__ void shuffled(const T *x, T *total, int n) {
    T value = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK)
        value += x[i];
    value = block_sum(value);
    if (threadIdx.x == 0)
        atomicAdd(total, value);
}

__device__ unsigned arrived;

// One kernel: each block leaves its sum, the last one adds them in order.
__global__ void whole(const double *x, double *parts, double *total, int n) {
    __shared__ bool is_last;
    double value = 0;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK)
        value += x[i];
    value = block_sum(value);
    if (threadIdx.x == 0) {
        __hip_atomic_store(&parts[blockIdx.x], value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        __threadfence();
        is_last = atomicAdd(&arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        __threadfence();
        *total = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            *total += __hip_atomic_load(&parts[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        arrived = 0;
    }
}

// Whole numbers whose sums floats hold exactly, so that no order of adding changes them.
template <typename T> static std::vector<T> whole_numbers(int n, double *sum) {
    std::vector<int> ints = random_ints(n, -100, 100);
    *sum = 0;
    for (int v : ints)
        *sum += v;
    return std::vector<T>(ints.begin(), ints.end());
}

template <typename T> static void test_shuffled(int n) {
    double want;
    Buffer<T> x(whole_numbers<T>(n, &want)), total(std::vector<T>{0});
    shuffled<<<3, BLOCK>>>(x.data, total.data, n);
    CHECK(total.read()[0] == T(want));
}

static void test() {
    for (int n : {1, 255, 256, 257, 2000}) {
        double want, got = 0;
        int blocks = (n + BLOCK - 1) / BLOCK;
        Buffer<float> x(whole_numbers<float>(n, &want)), sums(blocks);
        tree<<<blocks, BLOCK>>>(x.data, sums.data, n);
        for (float sum : sums.read())
            got += sum;
        CHECK(got == want);
        test_shuffled<int>(n);
        test_shuffled<float>(n);
        test_shuffled<double>(n);
        for (int run = 0; run < 2; run++) {
            Buffer<double> wide(whole_numbers<double>(n, &want)), parts(8), total(1);
            whole<<<8, BLOCK>>>(wide.data, parts.data, total.data, n);
            CHECK(total.read()[0] == want);
        }
    }
}

int main() {
    return on_each_device(test);
}
