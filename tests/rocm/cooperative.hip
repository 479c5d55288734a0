// SPDX-License-Identifier: Apache-2.0
// Cooperative launches: workgroups that wait for each other at the device library's barriers; also grids of all devices.
#include "testing.h"

extern "C" __device__ void __ockl_grid_sync(void);
extern "C" __device__ int __ockl_grid_is_valid(void);
extern "C" __device__ void __ockl_multi_grid_sync(void);
extern "C" __device__ unsigned __ockl_multi_grid_grid_rank(void);

// Each step, every workgroup adds what its neighbour wrote in the step before.
__global__ void ring(unsigned *values, unsigned steps, int *valid) {
    const unsigned n = gridDim.x, me = blockIdx.x;
    if (threadIdx.x == 0 && me == 0)
        *valid = __ockl_grid_is_valid();
    for (unsigned step = 0; step < steps; step++) {
        const unsigned *old = values + step % 2 * n;
        if (threadIdx.x == 0)
            values[(step + 1) % 2 * n + me] = old[me] + old[(me + 1) % n];
        __ockl_grid_sync();
    }
}

static bool has_barriers() {
    return properties().cooperativeLaunch;
}

static void test_ring(unsigned n) {
    unsigned steps = 9;
    std::vector<unsigned> want(2 * n);
    for (unsigned i = 0; i < n; i++)
        want[i] = i * i + 1;
    Buffer<unsigned> values(want);
    Buffer<int> valid(1);
    for (unsigned step = 0; step < steps; step++)
        for (unsigned i = 0; i < n; i++)
            want[(step + 1) % 2 * n + i] = want[step % 2 * n + i] + want[step % 2 * n + (i + 1) % n];
    void *args[] = {(void *)&values.data, &steps, (void *)&valid.data};
    OK(hipLaunchCooperativeKernel((const void *)ring, dim3(n), dim3(96), args, 0, nullptr));
    CHECK(values.read() == want);
    CHECK(valid.read()[0] == 1);
}

static void test_grids() {
    if (!has_barriers()) // gfx90a's are an instruction that is not executed
        return;
    for (unsigned n : {1u, 7u, 40u})
        test_ring(n);
    Buffer<int> valid(1);
    ring<<<1, 96>>>(nullptr, 0, valid.data);
    CHECK(valid.read()[0] == 0);
}

static void test_too_large() {
    int a_unit;
    unsigned steps = 0;
    Buffer<int> valid(1);
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&a_unit, ring, 96, 0));
    void *args[] = {(void *)&valid.data, &steps, (void *)&valid.data};
    dim3 most(unsigned(a_unit * properties().multiProcessorCount)), more(most.x + 1);
    CHECK(hipLaunchCooperativeKernel((const void *)ring, more, dim3(96), args, 0, nullptr) == hipErrorCooperativeLaunchTooLarge);
    CHECK(hipGetLastError() == hipErrorCooperativeLaunchTooLarge);
}

// Every grid adds up what all grids wrote before the barrier; `all` is memory of the host.
__global__ void meet(unsigned *all, unsigned *sum, unsigned grids) {
    if (threadIdx.x == 0 && blockIdx.x == 0)
        all[__ockl_multi_grid_grid_rank()] = 10 + __ockl_multi_grid_grid_rank();
    __ockl_multi_grid_sync();
    if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) {
        *sum = 0;
        for (unsigned i = 0; i < grids; i++)
            *sum += all[i];
    }
}

static void test_devices() {
    std::vector<hipLaunchParams> list;
    std::vector<std::vector<void *>> args(16);
    unsigned *all, *sums, *sum_at[16], grids = 0, want = 0;
    int count;
    OK(hipGetDeviceCount(&count));
    OK(hipHostMalloc((void **)&all, 16 * sizeof *all, 0));
    OK(hipHostMalloc((void **)&sums, 16 * sizeof *sums, 0));
    for (int device = 0; device < count; device++) {
        OK(hipSetDevice(device));
        if (!has_barriers())
            continue;
        hipStream_t stream;
        OK(hipStreamCreate(&stream));
        sum_at[grids] = sums + grids;
        args[grids] = {&all, &sum_at[grids], &grids};
        list.push_back({(void *)meet, dim3(3), dim3(64), args[grids].data(), 0, stream});
        want += 10 + grids++;
    }
    OK(hipLaunchCooperativeKernelMultiDevice(list.data(), int(list.size()), 0));
    for (unsigned i = 0; i < grids; i++) {
        OK(hipStreamSynchronize(list[i].stream));
        CHECK(sums[i] == want);
    }
    for (hipLaunchParams &p : list)
        OK(hipStreamDestroy(p.stream));
    OK(hipHostFree(all));
    OK(hipHostFree(sums));
}

int main() {
    on_each_device(test_grids);
    on_each_device(test_too_large);
    test_devices();
}
