// SPDX-License-Identifier: Apache-2.0
// Streams, events and callbacks: what is queued runs in order within a stream, after what an event stands for, and
// not in the thread that queued it.
#include "testing.h"

#include <atomic>
#include <chrono>
#include <thread>

// Goes on when the host has raised the flag.
__global__ void wait_for(const int *flag, int *out, int value) {
    while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) == 0)
        __builtin_amdgcn_s_sleep(1);
    *out = value;
}

__global__ void add(const int *x, int *y, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + value;
}

// A flag that both sides see.
struct Flag {
    int *host, *device;
    Flag() {
        OK(hipHostMalloc(&host, sizeof *host, hipHostMallocCoherent));
        *host = 0;
        void *address;
        OK(hipHostGetDevicePointer(&address, host, 0));
        device = static_cast<int *>(address);
    }
    ~Flag() { OK(hipHostFree(host)); }
    void raise() { __atomic_store_n(host, 1, __ATOMIC_RELEASE); }
};

static void test_asynchronous() {
    Flag flag;
    hipStream_t stream;
    hipEvent_t event;
    OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    OK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    Buffer<int> out(std::vector<int>{0});
    wait_for<<<1, 1, 0, stream>>>(flag.device, out.data, 7);
    OK(hipEventRecord(event, stream));
    CHECK(hipStreamQuery(stream) == hipErrorNotReady);
    CHECK(hipEventQuery(event) == hipErrorNotReady);
    (void)hipGetLastError();
    flag.raise();
    OK(hipEventSynchronize(event));
    OK(hipStreamQuery(stream));
    CHECK(out.read()[0] == 7);
    OK(hipEventDestroy(event));
    OK(hipStreamDestroy(stream));
}

// Two streams, each a pipeline of copies and kernels; the second takes over where an event says so.
static void test_pipeline() {
    constexpr int n = 5000;
    int *host_in, *host_out;
    OK(hipHostMalloc(&host_in, n * sizeof(int), hipHostMallocDefault));
    OK(hipHostMalloc(&host_out, n * sizeof(int), hipHostMallocDefault));
    for (int i = 0; i < n; i++)
        host_in[i] = i;
    Buffer<int> a(n), b(n);
    hipStream_t first, second;
    hipEvent_t half;
    OK(hipStreamCreate(&first));
    OK(hipStreamCreateWithPriority(&second, hipStreamNonBlocking, 0));
    OK(hipEventCreate(&half));
    OK(hipMemcpyAsync(a.data, host_in, n * sizeof(int), hipMemcpyHostToDevice, first));
    add<<<(n + 255) / 256, 256, 0, first>>>(a.data, a.data, n, 1);
    OK(hipEventRecord(half, first));
    OK(hipStreamWaitEvent(second, half, 0));
    add<<<(n + 255) / 256, 256, 0, second>>>(a.data, b.data, n, 10);
    OK(hipMemcpyAsync(host_out, b.data, n * sizeof(int), hipMemcpyDeviceToHost, second));
    OK(hipStreamSynchronize(second));
    for (int i = 0; i < n; i++)
        CHECK(host_out[i] == i + 11);
    OK(hipEventDestroy(half));
    OK(hipStreamDestroy(first));
    OK(hipStreamDestroy(second));
    OK(hipHostFree(host_in));
    OK(hipHostFree(host_out));
}

struct Notes {
    std::atomic<int> count{0};
    std::atomic<bool> in_order{true}, other_thread{true};
    std::thread::id caller = std::this_thread::get_id();
    void take(int expected) {
        in_order = in_order && count++ == expected;
        other_thread = other_thread && std::this_thread::get_id() != caller;
    }
};

static void callback(hipStream_t, hipError_t status, void *notes) {
    static_cast<Notes *>(notes)->take(status == hipSuccess ? 0 : -1);
}

static void host_function(void *notes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<Notes *>(notes)->take(1);
}

static void test_callbacks() {
    Flag flag;
    Notes notes;
    hipStream_t stream;
    OK(hipStreamCreate(&stream));
    Buffer<int> out(std::vector<int>{0});
    wait_for<<<1, 1, 0, stream>>>(flag.device, out.data, 3);
    OK(hipStreamAddCallback(stream, callback, &notes, 0));
    OK(hipLaunchHostFunc(stream, host_function, &notes));
    OK(hipStreamAddCallback(stream, [](hipStream_t, hipError_t, void *n) { static_cast<Notes *>(n)->take(2); }, &notes, 0));
    CHECK(notes.count == 0);
    flag.raise();
    OK(hipStreamSynchronize(stream));
    CHECK(notes.count == 3 && notes.in_order && notes.other_thread);
    OK(hipStreamDestroy(stream));
}

// The default stream waits for the others that are not non-blocking, and they for it.
static void test_default_stream() {
    Flag flag;
    hipStream_t stream;
    OK(hipStreamCreate(&stream));
    Buffer<int> out(std::vector<int>{0, 0});
    wait_for<<<1, 1, 0, stream>>>(flag.device, out.data, 5);
    add<<<1, 1>>>(out.data, out.data + 1, 1, 1);
    CHECK(hipStreamQuery(nullptr) == hipErrorNotReady);
    (void)hipGetLastError();
    flag.raise();
    std::vector<int> got = out.read();
    CHECK(got[0] == 5 && got[1] == 6);
    OK(hipStreamDestroy(stream));
}

int main() {
    return on_each_device([] {
        test_asynchronous();
        test_pipeline();
        test_callbacks();
        test_default_stream();
    });
}
