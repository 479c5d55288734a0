// SPDX-License-Identifier: Apache-2.0
// Launches whose counts follow from the source: each of N work-items reads an int, and writes it doubled. Two threads
// for each device launch on streams of their own. Started with an argument, the program aborts behind the last launch.
#include "mini.h"

#include <thread>
#include <vector>

constexpr int N = 1 << 14, BLOCK = 256, LAUNCHES = 5, THREADS = 2;

__global__ void twice(int *x) {
    x[block_id() * BLOCK + thread_id()] *= 2;
}

static void launch(int device) {
    hipStream_t stream;
    OK(hipSetDevice(device));
    int *x = device_array<int>(N);
    OK(hipMemset(x, 0, N * sizeof *x));
    OK(hipStreamCreateWithFlags(&stream, 0));
    for (int i = 0; i < LAUNCHES; i++)
        twice<<<dim3(N / BLOCK), dim3(BLOCK), 0, stream>>>(x);
    OK(hipStreamSynchronize(stream));
    OK(hipFree(x));
}

int main(int argc, char **) {
    int devices;
    std::vector<std::thread> threads;
    OK(hipGetDeviceCount(&devices));
    for (int i = 0; i < devices * THREADS; i++)
        threads.emplace_back(launch, i / THREADS);
    for (auto &t : threads)
        t.join();
    if (argc > 1)
        abort();
    return 0;
}
