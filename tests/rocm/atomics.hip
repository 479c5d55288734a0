// SPDX-License-Identifier: Apache-2.0
// Atomics on global memory, LDS and the host's: every operation of HIP's headers, by many lanes on few words.
#include "testing.h"

#include <algorithm>

constexpr int BLOCKS = 4, BLOCK = 128, THREADS = BLOCKS * BLOCK;

__device__ int thread_index() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}

template <typename T> __global__ void arithmetic(T *w, T *old) {
    int i = thread_index();
    old[i] = atomicAdd(&w[0], T(1));
    atomicSub(&w[1], T(i));
    atomicMax(&w[2], T(i * 37 % THREADS));
    atomicMin(&w[3], T(i * 37 % THREADS));
}

template <typename T> __global__ void bits(T *w) {
    int i = thread_index();
    T bit = T(1) << (i % 32);
    atomicOr(&w[0], bit);
    atomicAnd(&w[1], ~bit | T(0xF0F0));
    atomicXor(&w[2], bit);
    atomicExch(&w[3], T(i + 1));
}

__global__ void counters(unsigned *w) {
    atomicInc(&w[0], 99);
    atomicDec(&w[1], 99);
}

// Multiplication by compare and swap, and a lock.
__global__ void swaps(unsigned *product, unsigned long long *wide, unsigned *lock, int *guarded) {
    unsigned seen = *product, before;
    do {
        before = seen;
        seen = atomicCAS(product, before, before * 3);
    } while (seen != before);
    unsigned long long wide_seen = *wide, wide_before;
    do {
        wide_before = wide_seen;
        wide_seen = atomicCAS(wide, wide_before, wide_before + (1ull << 33));
    } while (wide_seen != wide_before);
    if (threadIdx.x == 0) { // lanes of one wave must not spin for each other
        while (atomicCAS(lock, 0u, 1u) != 0)
            ;
        __threadfence();
        int value = __hip_atomic_load(guarded, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        __hip_atomic_store(guarded, value + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        __threadfence();
        atomicExch(lock, 0u);
    }
}

template <typename T> __global__ void floats(T *w) {
    int i = thread_index();
    atomicAdd(&w[0], T(0.5) * (i % 8));
    unsafeAtomicAdd(&w[1], T(2));
    safeAtomicAdd(&w[2], T(3));
    atomicMax(&w[3], T(i) - T(100.5));
    atomicMin(&w[4], T(i) - T(100.5));
}

// A histogram in LDS, added up in global memory.
__global__ void histogram(const int *keys, unsigned *counts, unsigned long long *sums, float *weights) {
    __shared__ unsigned local[16];
    __shared__ unsigned long long local_sums[16];
    __shared__ float local_weights[16];
    int t = threadIdx.x;
    if (t < 16) {
        local[t] = 0;
        local_sums[t] = 0;
        local_weights[t] = 0;
    }
    __syncthreads();
    int key = keys[thread_index()];
    atomicAdd(&local[key % 16], 1u);
    atomicAdd(&local_sums[key % 16], (unsigned long long)key << 20);
    atomicAdd(&local_weights[key % 16], 0.25f);
    __syncthreads();
    if (t < 16) {
        atomicAdd(&counts[t], local[t]);
        atomicAdd(&sums[t], local_sums[t]);
        atomicAdd(&weights[t], local_weights[t]);
    }
}

__global__ void on_the_host(int *w) {
    atomicAdd_system(&w[0], 1);
    __hip_atomic_fetch_add(&w[1], 2, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
}

template <typename T> static void test_arithmetic() {
    Buffer<T> w(std::vector<T>{0, T(1000000), 0, T(5000)}), old(THREADS);
    arithmetic<<<BLOCKS, BLOCK>>>(w.data, old.data);
    std::vector<T> got = w.read(), seen = old.read();
    CHECK(got[0] == THREADS && got[1] == T(1000000 - THREADS * (THREADS - 1) / 2));
    CHECK(got[2] == THREADS - 1 && got[3] == 0);
    std::sort(seen.begin(), seen.end());
    for (int i = 0; i < THREADS; i++)
        CHECK(seen[i] == T(i));
}

template <typename T> static void test_bits() {
    Buffer<T> w(std::vector<T>{0, T(~T(0)), 0, 0});
    bits<<<BLOCKS, BLOCK>>>(w.data);
    std::vector<T> got = w.read();
    CHECK(got[0] == T(0xFFFFFFFFu) && got[1] == T(~0xFFFFFFFFull | 0xF0F0));
    CHECK(got[2] == 0 && got[3] >= 1 && got[3] <= THREADS);
}

static void test_swaps() {
    Buffer<unsigned> product(std::vector<unsigned>{1}), lock(std::vector<unsigned>{0}), pair(std::vector<unsigned>{0, 0});
    Buffer<unsigned long long> wide(std::vector<unsigned long long>{0});
    Buffer<int> guarded(std::vector<int>{0});
    swaps<<<BLOCKS, BLOCK>>>(product.data, wide.data, lock.data, guarded.data);
    unsigned want = 1;
    for (int i = 0; i < THREADS; i++)
        want *= 3;
    CHECK(product.read()[0] == want && wide.read()[0] == (unsigned long long)THREADS << 33);
    CHECK(guarded.read()[0] == BLOCKS && lock.read()[0] == 0);
    counters<<<BLOCKS, BLOCK>>>(pair.data);
    CHECK(pair.read()[0] == THREADS % 100 && pair.read()[1] == (100 - THREADS % 100) % 100);
}

template <typename T> static void test_floats() {
    Buffer<T> w(std::vector<T>{0, 0, 0, 0, 0});
    floats<<<BLOCKS, BLOCK>>>(w.data);
    std::vector<T> got = w.read();
    CHECK(got[0] == T(0.5 * 3.5 * THREADS) && got[1] == T(2 * THREADS) && got[2] == T(3 * THREADS));
    CHECK(got[3] == T(THREADS - 1 - 100.5) && got[4] == T(-100.5));
}

static void test_histogram() {
    std::vector<int> keys = random_ints(THREADS, 0, 1000);
    Buffer<int> dkeys(keys);
    Buffer<unsigned> counts(std::vector<unsigned>(16));
    Buffer<unsigned long long> sums(std::vector<unsigned long long>(16));
    Buffer<float> weights(std::vector<float>(16));
    histogram<<<BLOCKS, BLOCK>>>(dkeys.data, counts.data, sums.data, weights.data);
    std::vector<unsigned> got = counts.read();
    for (int bin = 0; bin < 16; bin++) {
        unsigned count = 0;
        unsigned long long sum = 0;
        for (int key : keys)
            if (key % 16 == bin) {
                count++;
                sum += (unsigned long long)key << 20;
            }
        CHECK(got[bin] == count && sums.read()[bin] == sum && weights.read()[bin] == 0.25f * count);
    }
}

static void test_host_memory() {
    int *w;
    OK(hipHostMalloc(&w, 2 * sizeof(int), hipHostMallocMapped | hipHostMallocCoherent));
    w[0] = w[1] = 10;
    on_the_host<<<BLOCKS, BLOCK>>>(w);
    for (int i = 0; i < 100; i++)
        __atomic_fetch_add(&w[0], 1, __ATOMIC_SEQ_CST); // while the kernel runs
    OK(hipDeviceSynchronize());
    CHECK(w[0] == 110 + THREADS && w[1] == 10 + 2 * THREADS);
    OK(hipHostFree(w));
}

int main() {
    return on_each_device([] {
        test_arithmetic<int>();
        test_arithmetic<unsigned>();
        test_arithmetic<unsigned long long>();
        test_bits<int>();
        test_bits<unsigned>();
        test_bits<unsigned long long>();
        test_swaps();
        test_floats<float>();
        test_floats<double>();
        test_histogram();
        test_host_memory();
    });
}
