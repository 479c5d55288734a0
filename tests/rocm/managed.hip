// SPDX-License-Identifier: Apache-2.0
// Managed memory and variables, which the host and every device reach at one address; values that streams write and wait for.
#include "testing.h"

__managed__ int total = 7;
__managed__ float table[64];

__global__ void count(const int *values, int n) {
    if (int(threadIdx.x) < n)
        atomicAdd(&total, values[threadIdx.x]);
    table[threadIdx.x] += threadIdx.x;
}

static void test_variables() {
    int *values, want = total;
    OK(hipMallocManaged((void **)&values, 50 * sizeof *values));
    for (int i = 0; i < 50; i++) {
        values[i] = 3 * i - 20;
        want += values[i];
    }
    for (int i = 0; i < 64; i++)
        table[i] = 0.5f * i;
    count<<<1, 64>>>(values, 50);
    OK(hipDeviceSynchronize());
    CHECK(total == want);
    for (int i = 0; i < 64; i++)
        CHECK(table[i] == 1.5f * i);
    hipPointerAttribute_t a;
    OK(hipPointerGetAttributes(&a, values));
    CHECK(a.type == hipMemoryTypeManaged && a.isManaged && a.devicePointer == values && a.hostPointer == values);
    OK(hipFree(values));
}

static void test_advice() {
    const size_t bytes = 3 << 12;
    char *p;
    int answer, devices[3];
    int device = the_device();
    OK(hipMallocManaged((void **)&p, bytes));
    OK(hipMemRangeGetAttribute(&answer, sizeof answer, hipMemRangeAttributePreferredLocation, p, bytes));
    CHECK(answer == hipInvalidDeviceId);
    OK(hipMemAdvise(p, bytes, hipMemAdviseSetPreferredLocation, device));
    OK(hipMemRangeGetAttribute(&answer, sizeof answer, hipMemRangeAttributePreferredLocation, p, bytes));
    CHECK(answer == device);
    OK(hipMemAdvise(p, 1, hipMemAdviseSetPreferredLocation, hipCpuDeviceId));
    OK(hipMemRangeGetAttribute(&answer, sizeof answer, hipMemRangeAttributePreferredLocation, p, bytes));
    CHECK(answer == hipInvalidDeviceId); // the pages differ
    OK(hipMemAdvise(p, bytes, hipMemAdviseSetAccessedBy, hipCpuDeviceId));
    OK(hipMemAdvise(p, bytes, hipMemAdviseSetAccessedBy, device));
    OK(hipMemRangeGetAttribute(devices, sizeof devices, hipMemRangeAttributeAccessedBy, p, bytes));
    CHECK(devices[0] == hipCpuDeviceId && devices[1] == device && devices[2] == hipInvalidDeviceId);
    OK(hipMemPrefetchAsync(p, bytes, device, nullptr));
    OK(hipMemRangeGetAttribute(&answer, sizeof answer, hipMemRangeAttributeLastPrefetchLocation, p, bytes));
    CHECK(answer == device);
    CHECK(hipMemAdvise(p, bytes + 1, hipMemAdviseSetReadMostly, device) == hipErrorInvalidValue);
    CHECK(hipMemPrefetchAsync(p, bytes, 99, nullptr) == hipErrorInvalidDevice);
    OK(hipFree(p));
}

static void test_stream_values() {
    uint32_t *flag;
    uint64_t *wide;
    hipStream_t writes, waits;
    OK(hipHostMalloc((void **)&flag, sizeof *flag, 0));
    OK(hipHostMalloc((void **)&wide, sizeof *wide, 0));
    *flag = 0;
    *wide = 0;
    OK(hipStreamCreateWithFlags(&writes, hipStreamNonBlocking));
    OK(hipStreamCreateWithFlags(&waits, hipStreamNonBlocking));
    OK(hipStreamWaitValue32(waits, flag, 5, hipStreamWaitValueGte));
    OK(hipStreamWriteValue64(waits, wide, 0x123456789abcdef0, 0));
    CHECK(hipStreamQuery(waits) == hipErrorNotReady);
    OK(hipStreamWriteValue32(writes, flag, 6, 0));
    OK(hipStreamSynchronize(waits));
    CHECK(*wide == 0x123456789abcdef0 && *flag == 6);
    OK(hipStreamWaitValue64(waits, wide, 0xf00, hipStreamWaitValueAnd, 0xfff));
    OK(hipStreamWaitValue32(waits, flag, 6, hipStreamWaitValueEq, 0xf));
    OK(hipStreamWaitValue32(waits, flag, 0xfffffff0, hipStreamWaitValueNor));
    OK(hipStreamSynchronize(waits));
    OK(hipStreamDestroy(writes));
    OK(hipStreamDestroy(waits));
    OK(hipHostFree(flag));
    OK(hipHostFree(wide));
}

int main() {
    CHECK(total == 7);
    on_each_device(test_variables);
    on_each_device(test_advice);
    on_each_device(test_stream_values);
}
