// SPDX-License-Identifier: Apache-2.0
// What programs use around their kernels: streams with callbacks and events, memory of every kind, rectangles, peers,
// occupancy. Needs two devices.
#include "mini.h"

#include <atomic>
#include <cstring>
#include <thread>

extern "C" {
hipError_t hipLaunchHostFunc(hipStream_t, void (*)(void *), void *);
hipError_t hipStreamAddCallback(hipStream_t, void (*)(hipStream_t, hipError_t, void *), void *,
                                unsigned);
hipError_t hipStreamCreateWithPriority(hipStream_t *, unsigned, int);
hipError_t hipStreamGetFlags(hipStream_t, unsigned *);
hipError_t hipStreamGetPriority(hipStream_t, int *);
hipError_t hipStreamGetDevice(hipStream_t, int *);
hipError_t hipDeviceGetStreamPriorityRange(int *, int *);
hipError_t hipEventRecordWithFlags(hipEvent_t, hipStream_t, unsigned);
hipError_t hipHostRegister(void *, size_t, unsigned);
hipError_t hipHostUnregister(void *);
hipError_t hipHostGetDevicePointer(void **, void *, unsigned);
hipError_t hipMallocAsync(void **, size_t, hipStream_t);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipMallocPitch(void **, size_t *, size_t, size_t);
hipError_t hipMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
hipError_t hipMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int, hipStream_t);
hipError_t hipMemset2D(void *, size_t, int, size_t, size_t);
hipError_t hipMemGetAddressRange(void **, size_t *, void *);
hipError_t hipMemcpyPeer(void *, int, const void *, int, size_t);
hipError_t hipDeviceCanAccessPeer(int *, int, int);
hipError_t hipDeviceEnablePeerAccess(int, unsigned);
hipError_t hipDeviceDisablePeerAccess(int);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
hipError_t hipOccupancyMaxPotentialBlockSize(int *, int *, const void *, size_t, int);
hipError_t hipDeviceGetPCIBusId(char *, int, int);
hipError_t hipDeviceGetByPCIBusId(int *, const char *);
hipError_t hipSetDeviceFlags(unsigned);
hipError_t hipGetDeviceFlags(unsigned *);
hipError_t hipDeviceGetLimit(size_t *, int);
hipError_t hipConfigureCall(dim3, dim3, size_t, hipStream_t);
hipError_t hipSetupArgument(const void *, size_t, size_t);
hipError_t hipLaunchByPtr(const void *);
}

enum {
    INVALID_VALUE = 1,
    INVALID_PITCH = 12,
    INVALID_HANDLE = 400,
    MISSING_CONFIGURATION = 52,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_ENABLED = 704,
    NOT_ENABLED = 705,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
};

__global__ void add(int *data, int n, int value) {
    int i = (int)global_id();
    if (i < n)
        data[i] += value;
}

// ---- streams, events, the program's functions

static std::atomic<int> go, steps;

static void wait_for_go(void *data) {
    while (!go.load()) {
    }
    *(int *)data = 1 + steps++;
}

static void note_step(hipStream_t, hipError_t status, void *data) {
    *(int *)data = status ? -1 : 1 + steps++;
}

static void test_streams() {
    hipStream_t a, b;
    hipEvent_t event;
    int first = 0, second = 0, least, greatest, priority, device;
    unsigned flags;
    OK(hipDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least > greatest);
    OK(hipStreamCreateWithPriority(&a, 1, greatest - 100));
    OK(hipStreamCreateWithFlags(&b, 1));
    OK(hipStreamGetPriority(a, &priority));
    OK(hipStreamGetFlags(a, &flags));
    OK(hipStreamGetDevice(a, &device));
    CHECK(priority == greatest && flags == 1 && device == 0);
    OK(hipEventCreateWithFlags(&event, 2));
    int *d;
    OK(hipMallocAsync((void **)&d, 1000 * sizeof(int), a));
    OK(hipLaunchHostFunc(a, wait_for_go, &first)); // holds stream a
    OK(hipMemsetAsync(d, 0, 1000 * sizeof(int), a));
    add<<<4, 256, 0, a>>>(d, 1000, 5);
    OK(hipEventRecordWithFlags(event, a, 0));
    OK(hipStreamWaitEvent(b, event, 0));
    add<<<4, 256, 0, b>>>(d, 1000, 7);
    OK(hipStreamAddCallback(b, note_step, &second, 0));
    CHECK(hipStreamQuery(b) == NOT_READY && hipEventQuery(event) == NOT_READY && first == 0);
    go = 1;
    OK(hipStreamSynchronize(b));
    CHECK(first == 1 && second == 2);
    int got[1000];
    OK(hipMemcpy(got, d, sizeof got, hipMemcpyDefault));
    for (int i = 0; i < 1000; i++)
        CHECK(got[i] == 12);
    OK(hipFreeAsync(d, b));
    OK(hipStreamSynchronize(b));
    CHECK(hipMemcpy(got, d, 4, hipMemcpyDefault) == INVALID_VALUE);
    CHECK(hipFreeAsync(d, b) == INVALID_VALUE);
    OK(hipEventDestroy(event));
    OK(hipStreamDestroy(a));
    OK(hipStreamDestroy(b));
}

// ---- a stream for each thread

static void use_own_stream() {
    hipStream_t own = (hipStream_t)2;
    int *d, got = 0;
    OK(hipMallocAsync((void **)&d, sizeof *d, own));
    OK(hipMemsetAsync(d, 0, sizeof *d, own));
    add<<<1, 1, 0, own>>>(d, 1, 9);
    OK(hipMemcpyAsync(&got, d, sizeof got, hipMemcpyDefault, own));
    OK(hipFreeAsync(d, own));
    CHECK(got == 9);
    CHECK(hipStreamDestroy(own) == INVALID_HANDLE);
}

static void test_own_streams() {
    std::thread threads[4];
    for (std::thread &t : threads)
        t = std::thread(use_own_stream);
    for (std::thread &t : threads)
        t.join();
    use_own_stream();
    hipGetLastError();
}

// ---- the program's own memory

static void test_registered() {
    static int data[100000];
    int *part = data + 5, *other = data + 3001; // neither at a page
    void *on_device;
    OK(hipHostRegister(part, 3000 * sizeof(int) - 16, 2));
    CHECK(hipHostRegister(data, sizeof data, 0) == ALREADY_REGISTERED);
    OK(hipHostRegister(other, 90000 * sizeof(int), 0));
    OK(hipHostGetDevicePointer(&on_device, part, 0));
    CHECK(on_device == part);
    add<<<12, 256>>>((int *)on_device, 2996, 3);
    add<<<352, 256>>>(other, 90000, 4);
    OK(hipDeviceSynchronize());
    for (int i = 0; i < 100000; i++)
        CHECK(data[i] == (i >= 5 && i < 3001 ? 3 : i >= 3001 && i < 93001 ? 4 : 0));
    OK(hipHostUnregister(part));
    CHECK(hipHostUnregister(part) == NOT_REGISTERED);
    CHECK(hipHostUnregister(other + 1) == NOT_REGISTERED);
    OK(hipMemcpyAsync(data, other, 4, hipMemcpyDefault, nullptr));
    OK(hipHostUnregister(other));
    CHECK(hipHostGetDevicePointer(&on_device, part, 0) == INVALID_VALUE);
    add<<<1, 1>>>(other, 1, 1); // not the device's any more
    CHECK(hipDeviceSynchronize() == ILLEGAL_ADDRESS);
    OK(hipDeviceReset());
    hipGetLastError();
}

// ---- rectangles

static void test_rectangles() {
    enum { W = 100, H = 37 };
    char from[H][W], to[H][W + 3];
    char *d;
    size_t pitch;
    OK(hipMallocPitch((void **)&d, &pitch, W, H));
    CHECK(pitch >= W && pitch % 256 == 0);
    for (int i = 0; i < W * H; i++)
        from[i / W][i % W] = (char)(i * 31 % 127);
    OK(hipMemset2D(d, pitch, 0x55, W, H));
    OK(hipMemcpy2D(d + 1, pitch, from, W, W - 2, H, hipMemcpyHostToDevice));
    memset(to, 0x11, sizeof to);
    OK(hipMemcpy2DAsync(to, W + 3, d, pitch, W, H, hipMemcpyDefault, nullptr));
    for (int y = 0; y < H; y++) {
        CHECK(to[y][0] == 0x55 && to[y][W - 1] == 0x55 && to[y][W] == 0x11 && to[y][W + 2] == 0x11);
        CHECK(memcmp(to[y] + 1, from[y], W - 2) == 0);
    }
    CHECK(hipMemcpy2D(d, W - 1, from, W, W, H, hipMemcpyHostToDevice) == INVALID_PITCH);
    CHECK(hipMemcpy2D(d, pitch, from, W, W, 2 * H, hipMemcpyHostToDevice) == INVALID_VALUE);
    CHECK(hipMemset2D(d + 200, pitch, 0, W, H) == INVALID_VALUE);
    CHECK(hipMemset2D(d, (size_t)1 << 63, 0, W, H) == INVALID_VALUE);
    void *base;
    size_t bytes;
    OK(hipMemGetAddressRange(&base, &bytes, d + 77));
    CHECK(base == d && bytes == pitch * H);
    OK(hipFree(d));
    hipGetLastError();
}

// ---- two devices

static void test_peers() {
    int can, value = 41, *near = device_array(1, &value), *far;
    OK(hipDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can);
    OK(hipDeviceCanAccessPeer(&can, 0, 0));
    CHECK(!can);
    OK(hipDeviceEnablePeerAccess(1, 0));
    CHECK(hipDeviceEnablePeerAccess(1, 0) == ALREADY_ENABLED);
    OK(hipSetDevice(1));
    far = device_array<int>(1);
    OK(hipMemcpyPeer(far, 1, near, 0, sizeof value));
    add<<<1, 1>>>(far, 1, 1);
    OK(hipDeviceSynchronize());
    OK(hipSetDevice(0));
    add<<<1, 1>>>(far, 1, 100); // the other device's memory
    read_back(&value, far, 1);
    CHECK(value == 142);
    OK(hipDeviceDisablePeerAccess(1));
    CHECK(hipDeviceDisablePeerAccess(1) == NOT_ENABLED);
    OK(hipFree(near));
    OK(hipFree(far));
    hipGetLastError();
}

// ---- occupancy, settings

__global__ void uses_lds(int *out) {
    __shared__ int data[5000]; // 20,000 bytes: three workgroups on a unit
    data[thread_id()] = *out;
    sync_threads();
    out[thread_id()] = data[(thread_id() + 1) % 64];
}

static void test_occupancy() {
    int groups, grid, block;
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void *)add, 1024, 0));
    CHECK(groups == 2); // 32 waves of a unit
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void *)add, 65, 0));
    CHECK(groups == 16);
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void *)add, 256, 40000));
    CHECK(groups == 1);
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void *)uses_lds, 64, 0));
    CHECK(groups == 3);
    OK(hipOccupancyMaxPotentialBlockSize(&grid, &block, (const void *)add, 0, 0));
    CHECK(block == 1024 && grid == 2 * 304);
    OK(hipOccupancyMaxPotentialBlockSize(&grid, &block, (const void *)uses_lds, 0, 256));
    CHECK(block == 256 && grid == 3 * 304);
    CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void *)add, 0, 0) ==
          INVALID_VALUE);
}

// ---- launches by three calls

static void test_launch_by_parts() {
    int *d, got[100];
    const int n = 100;
    OK(hipMalloc((void **)&d, sizeof got));
    OK(hipMemset(d, 0, sizeof got));
    CHECK(hipLaunchByPtr((const void *)add) == MISSING_CONFIGURATION);
    CHECK(hipSetupArgument(&n, 4, 0) == MISSING_CONFIGURATION);
    for (int value = 1; value <= 2; value++) { // the second one is begun while the first one waits
        OK(hipConfigureCall(dim3(1), dim3(128), 0, nullptr));
        OK(hipSetupArgument(&value, 4, 12));
        OK(hipSetupArgument(&n, 4, 8));
        OK(hipSetupArgument(&d, 8, 0));
    }
    CHECK(hipSetupArgument(&n, 4, 4093) == INVALID_VALUE);
    CHECK(hipSetupArgument(nullptr, 4, 0) == INVALID_VALUE);
    OK(hipLaunchByPtr((const void *)add));
    OK(hipMemcpy(got, d, sizeof got, hipMemcpyDefault));
    CHECK(got[0] == 2 && got[99] == 2);
    OK(hipLaunchByPtr((const void *)add));
    OK(hipMemcpy(got, d, sizeof got, hipMemcpyDefault));
    CHECK(got[0] == 3 && got[99] == 3);
    CHECK(hipLaunchByPtr((const void *)add) == MISSING_CONFIGURATION);
    OK(hipFree(d));
    hipGetLastError();
}

static void test_settings() {
    char bus[32];
    int device;
    unsigned flags;
    size_t limit;
    OK(hipDeviceGetPCIBusId(bus, sizeof bus, 1));
    OK(hipDeviceGetByPCIBusId(&device, bus));
    CHECK(device == 1);
    OK(hipSetDeviceFlags(4));
    OK(hipGetDeviceFlags(&flags));
    CHECK(flags == 4 && hipSetDeviceFlags(3) == INVALID_VALUE);
    OK(hipDeviceGetLimit(&limit, 0));
    CHECK(limit == 1024 && hipDeviceGetLimit(&limit, 3) == 215);
}

int main() {
    test_streams();
    test_own_streams();
    test_registered();
    test_rectangles();
    test_peers();
    test_occupancy();
    test_launch_by_parts();
    test_settings();
    return 0;
}
