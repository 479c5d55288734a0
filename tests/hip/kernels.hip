// SPDX-License-Identifier: Apache-2.0
// Kernels of ordinary programs, launched with <<<>>>: saxpy, reduction, matmul through LDS, dynamic LDS, atomics,
// lanes of a wave, arguments of every size, variables of the device.
#include "mini.h"

#include <cstring>
#include <vector>

// ---- saxpy, with arguments of several sizes

struct scale {
    float a;
    char unused;
    short b;
};

__global__ void saxpy(int n, scale s, const float *x, float *y) {
    int i = (int)global_id();
    if (i < n)
        y[i] = s.a * x[i] + y[i] + s.b;
}

static void test_saxpy() {
    enum { N = 1000 };
    float x[N], y[N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = (float)(N - i);
    }
    float *dx = device_array(N, x), *dy = device_array(N, y);
    saxpy<<<dim3((N + 255) / 256), dim3(256)>>>(N, scale{2.0f, 'x', 3}, dx, dy);
    OK(hipGetLastError());
    read_back(got, dy, N);
    for (int i = 0; i < N; i++)
        CHECK(got[i] == 2.0f * x[i] + y[i] + 3.0f);
    OK(hipFree(dx));
    OK(hipFree(dy));
}

// ---- reduction: a tree in LDS, then an atomic for each block

__global__ void reduce(const int *in, int n, int *sum) {
    __shared__ int part[256];
    uint32_t t = thread_id();
    int i = (int)global_id();
    part[t] = i < n ? in[i] : 0;
    sync_threads();
    for (uint32_t half = 128; half; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        sync_threads();
    }
    if (t == 0)
        __atomic_fetch_add(sum, part[0], __ATOMIC_RELAXED);
}

static void test_reduce() {
    enum { N = 100003 };
    std::vector<int> in(N);
    int want = 0, got;
    for (int i = 0; i < N; i++)
        want += in[(size_t)i] = i % 1013 - 500;
    int *d = device_array(N, in.data()), *sum = device_array<int>(1);
    OK(hipMemset(sum, 0, sizeof *sum));
    reduce<<<(N + 255) / 256, 256>>>(d, N, sum);
    read_back(&got, sum, 1);
    CHECK(got == want);
    OK(hipFree(d));
    OK(hipFree(sum));
}

// ---- matmul: 16 x 16 tiles in LDS, a block of two dimensions

template <int TILE> __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[TILE][TILE], tb[TILE][TILE];
    int x = (int)__builtin_amdgcn_workitem_id_x(), y = (int)__builtin_amdgcn_workitem_id_y();
    int col = (int)__builtin_amdgcn_workgroup_id_x() * TILE + x;
    int row = (int)__builtin_amdgcn_workgroup_id_y() * TILE + y;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + col];
        sync_threads();
        for (int i = 0; i < TILE; i++)
            sum += ta[y][i] * tb[i][x];
        sync_threads();
    }
    c[row * n + col] = sum;
}

static void test_matmul() {
    enum { N = 64 };
    static float a[N * N], b[N * N], got[N * N];
    for (int i = 0; i < N * N; i++) { // small whole numbers: every sum is exact
        a[i] = (float)(i * 7 % 11 - 5);
        b[i] = (float)(i * 5 % 13 - 6);
    }
    float *da = device_array(N * N, a), *db = device_array(N * N, b),
          *dc = device_array<float>(N * N);
    matmul<16><<<dim3(N / 16, N / 16), dim3(16, 16)>>>(da, db, dc, N);
    read_back(got, dc, N * N);
    for (int r = 0; r < N; r++) {
        for (int c = 0; c < N; c++) {
            float want = 0;
            for (int k = 0; k < N; k++)
                want += a[r * N + k] * b[k * N + c];
            CHECK(got[r * N + c] == want);
        }
    }
    OK(hipFree(da));
    OK(hipFree(db));
    OK(hipFree(dc));
}

// ---- dynamic LDS: as much as the launch says

extern __shared__ int dynamic[];

__global__ void reverse(int *data, int n) {
    int t = (int)thread_id();
    for (int i = t; i < n; i += (int)block_size())
        dynamic[i] = data[i];
    sync_threads();
    for (int i = t; i < n; i += (int)block_size())
        data[i] = dynamic[n - 1 - i];
}

static void test_dynamic_lds() {
    enum { N = 16384, INVALID_VALUE = 1 }; // 64 KiB: all there is
    static int data[N];
    for (int i = 0; i < N; i++)
        data[i] = i * 3;
    int *d = device_array(N, data);
    hipFuncAttributes attributes;
    OK(hipFuncGetAttributes(&attributes, (const void *)reverse));
    CHECK(attributes.sharedSizeBytes == 0 && attributes.maxDynamicSharedSizeBytes == 65536);
    CHECK(attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0);
    OK(hipFuncGetAttributes(&attributes, (const void *)reduce));
    CHECK(attributes.sharedSizeBytes == 1024 && attributes.maxDynamicSharedSizeBytes == 64512);
    OK(hipFuncSetAttribute((const void *)reverse, 8, 65536));
    CHECK(hipFuncSetAttribute((const void *)reverse, 8, 65537) == INVALID_VALUE);
    CHECK(hipGetLastError() == INVALID_VALUE);
    reverse<<<1, 256, N * sizeof(int)>>>(d, N);
    OK(hipGetLastError());
    read_back(data, d, N);
    for (int i = 0; i < N; i++)
        CHECK(data[i] == (N - 1 - i) * 3);
    reverse<<<1, 256, N * sizeof(int) + 4>>>(d, N);
    CHECK(hipGetLastError() == INVALID_VALUE);
    OK(hipFree(d));
}

// ---- atomics

__global__ void count(uint32_t *histogram, uint32_t *max, unsigned long long *sum) {
    uint32_t i = global_id();
    __atomic_fetch_add(&histogram[i % 7], 1u, __ATOMIC_RELAXED);
    __atomic_fetch_max(max, i * 2654435761u, __ATOMIC_RELAXED);
    __atomic_fetch_add(sum, (unsigned long long)i << 20, __ATOMIC_RELAXED);
    uint32_t *slot = &histogram[7]; // a sum by compare and swap
    uint32_t old = __atomic_load_n(slot, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(slot, &old, old + i, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
}

static void test_atomics() {
    enum { N = 2048 };
    uint32_t histogram[8] = {}, max = 0, want_max = 0, want_sum = 0;
    unsigned long long sum = 0;
    uint32_t *dh = device_array(8, histogram), *dm = device_array(1, &max);
    unsigned long long *ds = device_array(1, &sum);
    count<<<N / 128, 128>>>(dh, dm, ds);
    read_back(histogram, dh, 8);
    read_back(&max, dm, 1);
    read_back(&sum, ds, 1);
    for (uint32_t i = 0; i < N; i++) {
        want_max = i * 2654435761u > want_max ? i * 2654435761u : want_max;
        want_sum += i;
    }
    for (uint32_t i = 0; i < 7; i++)
        CHECK(histogram[i] == (N + 6 - i) / 7);
    CHECK(histogram[7] == want_sum && max == want_max && sum == (unsigned long long)want_sum << 20);
    OK(hipFree(dh));
    OK(hipFree(dm));
    OK(hipFree(ds));
}

// ---- what lanes of a wave tell each other

__global__ void lanes(const int *in, int *rotated, uint64_t *votes, int *sums) {
    uint32_t lane = thread_id();
    int x = in[lane];
    rotated[lane] = __builtin_amdgcn_ds_bpermute((int)((lane + 5) % 64 * 4), x);
    uint64_t vote = __builtin_amdgcn_ballot_w64(x > 0);
    if (lane == 0)
        votes[0] = vote;
    for (int step = 1; step < 64; step *= 2) // a butterfly: every lane has the sum in the end
        x += __builtin_amdgcn_ds_bpermute((int)((lane ^ (uint32_t)step) * 4), x);
    sums[lane] = x;
}

static void test_lanes() {
    int in[64], rotated[64], sums[64], sum = 0;
    uint64_t votes, want = 0;
    for (int i = 0; i < 64; i++) {
        in[i] = i * 37 % 41 - 20;
        sum += in[i];
        want |= (uint64_t)(in[i] > 0) << i;
    }
    int *di = device_array(64, in), *dr = device_array<int>(64), *ds = device_array<int>(64);
    uint64_t *dv = device_array<uint64_t>(1);
    lanes<<<1, 64>>>(di, dr, dv, ds);
    read_back(rotated, dr, 64);
    read_back(sums, ds, 64);
    read_back(&votes, dv, 1);
    for (int i = 0; i < 64; i++)
        CHECK(rotated[i] == in[(i + 5) % 64] && sums[i] == sum);
    CHECK(votes == want);
    OK(hipFree(di));
    OK(hipFree(dr));
    OK(hipFree(ds));
    OK(hipFree(dv));
}

// ---- variables of the device

__device__ int table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float factor = 0.5f;
__device__ int *behind;

__global__ void use_variables(float *out) {
    uint32_t i = thread_id();
    out[i] = (float)table[i] * factor;
    table[i] += 100;
    behind[i] = table[i];
}

static void test_variables() {
    enum { INVALID_VALUE = 1, INVALID_SYMBOL = 13 };
    float *out = device_array<float>(8), got[8], two = 2.0f;
    int *d = device_array<int>(8), values[8], changed[2] = {30, 40};
    size_t bytes;
    void *addr;
    OK(hipGetSymbolSize(&bytes, table));
    CHECK(bytes == sizeof table);
    OK(hipMemcpyToSymbol(table, changed, sizeof changed, 2 * sizeof(int), hipMemcpyHostToDevice));
    OK(hipMemcpyToSymbol(&factor, &two, sizeof two, 0, hipMemcpyHostToDevice));
    OK(hipMemcpyToSymbol(&behind, &d, sizeof d, 0, hipMemcpyHostToDevice));
    use_variables<<<1, 8>>>(out);
    read_back(got, out, 8);
    const int want[8] = {1, 2, 30, 40, 5, 6, 7, 8};
    OK(hipMemcpyFromSymbol(values, table, sizeof values, 0, hipMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++)
        CHECK(got[i] == 2.0f * (float)want[i] && values[i] == want[i] + 100);
    read_back(changed, d + 2, 2);
    CHECK(changed[0] == 130 && changed[1] == 140);
    OK(hipGetSymbolAddress(&addr, table));
    read_back(values, (int *)addr + 7, 1);
    CHECK(values[0] == 108);
    CHECK(hipMemcpyToSymbol(table, values, sizeof values, 4, hipMemcpyHostToDevice) ==
          INVALID_VALUE);
    CHECK(hipGetSymbolAddress(&addr, values) == INVALID_SYMBOL);
    CHECK(hipGetLastError() == INVALID_SYMBOL);
    OK(hipFree(out));
    OK(hipFree(d));
}

// ---- the code comes again after a reset; a kernel is found by its address

static void test_reset() {
    enum { INVALID_DEVICE_FUNCTION = 98 };
    OK(hipDeviceReset());
    int value;
    OK(hipMemcpyFromSymbol(&value, table, sizeof value, 0, hipMemcpyDeviceToHost));
    CHECK(value == 1); // as the file has it
    test_saxpy();
    hipFunction_t f;
    OK(hipGetFuncBySymbol(&f, (const void *)reduce));
    CHECK(hipGetFuncBySymbol(&f, &value) == INVALID_DEVICE_FUNCTION);
    CHECK(hipLaunchKernel(&value, dim3(1), dim3(1), nullptr, 0, nullptr) ==
          INVALID_DEVICE_FUNCTION);
}

static int nested_launch() {
    test_saxpy();
    return 5;
}

__global__ void store(int *out, int value) {
    *out = value;
}

/** An argument that launches kernels itself: configurations nest. */
static void test_nested() {
    int *d = device_array<int>(1), got;
    store<<<1, 1>>>(d, nested_launch());
    read_back(&got, d, 1);
    CHECK(got == 5);
    OK(hipFree(d));
}

int main() {
    test_saxpy();
    test_reduce();
    test_matmul();
    test_dynamic_lds();
    test_atomics();
    test_lanes();
    test_variables();
    test_nested();
    test_reset();
    return 0;
}
