// SPDX-License-Identifier: Apache-2.0
// Variables of the device: global, constant, of a struct, zero at first, changed by both sides; each device has its own.
#include "testing.h"

#include <cstring>

struct Point {
    double x;
    int name;
    char text[12];
};

__device__ int counter = 5;
__device__ float table[100];
__device__ Point point = {1.5, 7, "initial"};
__constant__ int factors[4] = {1, 2, 3, 4};
__device__ __constant__ const int fixed[3] = {10, 20, 30};
static __device__ int local[2] = {8, 9};
template <typename T> __device__ T variable = T(2.5);

__global__ void use(double *out) {
    int i = threadIdx.x;
    table[i] = table[i] + factors[i % 4] + fixed[i % 3] + local[i % 2];
    if (i == 0) {
        counter += 1;
        *out = point.x + point.name + point.text[0] + variable<double>;
        point.name = 99;
    }
}

static void test_values() {
    int count;
    std::vector<float> values(100, 0.5f);
    int changed[2] = {-3, -4};
    Point before, after;
    Buffer<double> out(1);
    OK(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), sizeof count));
    CHECK(count == 5);
    OK(hipMemcpyToSymbol(HIP_SYMBOL(table), values.data(), 100 * sizeof(float)));
    OK(hipMemcpyToSymbol(HIP_SYMBOL(factors), changed, sizeof changed, 2 * sizeof(int)));
    OK(hipMemcpyFromSymbol(&before, HIP_SYMBOL(point), sizeof before));
    CHECK(before.x == 1.5 && before.name == 7 && !strcmp(before.text, "initial"));
    use<<<1, 100>>>(out.data);
    CHECK(out.read()[0] == 1.5 + 7 + 'i' + 2.5);
    OK(hipMemcpyFromSymbol(values.data(), HIP_SYMBOL(table), 100 * sizeof(float)));
    int factors_now[4] = {1, 2, -3, -4}, fixed_now[3] = {10, 20, 30}, local_now[2] = {8, 9};
    for (int i = 0; i < 100; i++)
        CHECK(values[i] == 0.5f + factors_now[i % 4] + fixed_now[i % 3] + local_now[i % 2]);
    OK(hipMemcpyFromSymbol(&after.name, HIP_SYMBOL(point), sizeof(int), offsetof(Point, name)));
    CHECK(after.name == 99);
    OK(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), sizeof count));
    CHECK(count == 6);
}

static void test_addresses() {
    void *address;
    size_t bytes;
    std::vector<float> pattern = random_floats(100), back(100);
    OK(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
    OK(hipGetSymbolSize(&bytes, HIP_SYMBOL(table)));
    CHECK(bytes == 400);
    OK(hipMemcpy(address, pattern.data(), bytes, hipMemcpyHostToDevice));
    OK(hipMemcpyFromSymbolAsync(back.data(), HIP_SYMBOL(table), 400, 0, hipMemcpyDeviceToHost, nullptr));
    OK(hipStreamSynchronize(nullptr));
    CHECK(back == pattern);
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(table), pattern.data(), 8, 396) == hipErrorInvalidValue);
    CHECK(hipMemcpyToSymbol(&bytes, pattern.data(), 4) == hipErrorInvalidSymbol);
    CHECK(hipGetSymbolSize(&bytes, nullptr) == hipErrorInvalidSymbol);
    (void)hipGetLastError();
}

int main() {
    return on_each_device([] {
        test_values();
        test_addresses();
    });
}
