// SPDX-License-Identifier: Apache-2.0
// What these HIP programs share. Each uses HIP's own headers, compares the GPU's results with the
// CPU's, and runs its tests on every device.
#ifndef TESTING_H
#define TESTING_H

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <hip/hip_runtime.h>
#include <random>
#include <vector>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: device %d: %s is false\n", __FILE__, __LINE__, the_device(),   \
                    #condition);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call)                                                                                   \
    do {                                                                                           \
        hipError_t error_ = (call);                                                                \
        if (error_ != hipSuccess) {                                                                \
            fprintf(stderr, "%s:%d: device %d: %s gave %s: %s\n", __FILE__, __LINE__,              \
                    the_device(), #call, hipGetErrorName(error_), hipGetErrorString(error_));      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

inline int the_device() {
    int device = -1;
    return hipGetDevice(&device) == hipSuccess ? device : -1;
}

inline hipDeviceProp_t properties() {
    hipDeviceProp_t p;
    OK(hipGetDeviceProperties(&p, the_device()));
    return p;
}

// Runs a test on each device; there must be at least one.
inline int on_each_device(void (*test)()) {
    int count = 0;
    OK(hipGetDeviceCount(&count));
    CHECK(count > 0);
    for (int device = 0; device < count; device++) {
        OK(hipSetDevice(device));
        test();
        OK(hipDeviceSynchronize());
    }
    return 0;
}

// Device memory, freed at the end of its scope.
template <typename T> struct Buffer {
    T *data = nullptr;
    size_t count;

    explicit Buffer(size_t n) : count(n) { OK(hipMalloc(&data, n * sizeof(T))); }
    explicit Buffer(const std::vector<T> &from) : Buffer(from.size()) {
        OK(hipMemcpy(data, from.data(), count * sizeof(T), hipMemcpyHostToDevice));
    }
    ~Buffer() { OK(hipFree(data)); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    std::vector<T> read() const {
        std::vector<T> host(count);
        OK(hipMemcpy(host.data(), data, count * sizeof(T), hipMemcpyDeviceToHost));
        return host;
    }
};

inline std::mt19937 &generator() {
    static std::mt19937 g(1);
    return g;
}

inline std::vector<float> random_floats(size_t n, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> value(low, high);
    std::vector<float> v(n);
    for (float &x : v)
        x = value(generator());
    return v;
}

inline std::vector<int> random_ints(size_t n, int low, int high) {
    std::uniform_int_distribution<int> value(low, high);
    std::vector<int> v(n);
    for (int &x : v)
        x = value(generator());
    return v;
}

// Returns whether got is within `ulps` units in the last place of float of the exact value.
inline bool near(double got, double exact, double ulps) {
    const double unit = std::fmax(std::fabs(exact), 0x1p-126) * 0x1p-23;
    return std::fabs(got - exact) <= ulps * unit;
}

#endif
