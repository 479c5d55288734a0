// SPDX-License-Identifier: Apache-2.0
// y = a x + y at sizes around a block's, in one and three dimensions, and the mathematical functions of ocml.
#include "testing.h"

__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = fmaf(a, x[i], y[i]);
}

// The same, with a grid smaller than the work and a launch bound.
__global__ void __launch_bounds__(64) daxpy(size_t n, double a, const double *x, double *y) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = fma(a, x[i], y[i]);
}

__global__ void index3(int *out, dim3 size) {
    dim3 at(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
            blockIdx.z * blockDim.z + threadIdx.z);
    if (at.x < size.x && at.y < size.y && at.z < size.z)
        out[(at.z * size.y + at.y) * size.x + at.x] = at.x + 1000 * at.y + 1000000 * at.z;
}

enum { FUNCTIONS = 14 };

template <typename T> __host__ __device__ void functions(T x, T *out) {
    out[0] = sin(x);
    out[1] = cos(x);
    out[2] = tan(x);
    out[3] = exp(x);
    out[4] = log(fabs(x));
    out[5] = pow(fabs(x), T(1.7));
    out[6] = sqrt(fabs(x));
    out[7] = cbrt(x);
    out[8] = atan2(x, T(0.3));
    out[9] = tanh(x);
    out[10] = erf(x);
    out[11] = fmod(x, T(0.7));
    out[12] = rint(x);
    out[13] = x / T(3) + T(1) / x;
}

template <typename T> __global__ void evaluate(int n, const T *x, T *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        functions(x[i], out + i * FUNCTIONS);
}

static void test_saxpy() {
    for (int n : {1, 63, 64, 65, 255, 1000}) {
        std::vector<float> x = random_floats(n), y = random_floats(n);
        Buffer<float> dx(x), dy(y);
        saxpy<<<(n + 127) / 128, 128>>>(n, 2.5f, dx.data, dy.data);
        OK(hipGetLastError());
        std::vector<float> got = dy.read();
        for (int i = 0; i < n; i++)
            CHECK(got[i] == fmaf(2.5f, x[i], y[i]));
    }
}

static void test_daxpy() {
    std::vector<double> x(777), y(777);
    for (int i = 0; i < 777; i++) {
        x[i] = 1.0 / (i + 1);
        y[i] = i * 0.1;
    }
    Buffer<double> dx(x), dy(y);
    daxpy<<<3, 64>>>(777, -0.3, dx.data, dy.data);
    std::vector<double> got = dy.read();
    for (int i = 0; i < 777; i++)
        CHECK(got[i] == fma(-0.3, x[i], y[i]));
}

static void test_index3() {
    dim3 size(13, 7, 5);
    Buffer<int> out(size.x * size.y * size.z);
    index3<<<dim3(2, 2, 3), dim3(8, 4, 2)>>>(out.data, size);
    std::vector<int> got = out.read();
    for (size_t i = 0; i < got.size(); i++)
        CHECK(got[i] == int(i % 13 + 1000 * (i / 13 % 7) + 1000000 * (i / 91)));
}

// The bounds that OpenCL gives, which ocml keeps; for values of over 1, of the value, else of 1.
static void test_functions() {
    int n = 300;
    std::vector<float> x = random_floats(n, -8, 8);
    std::vector<double> wide(x.begin(), x.end());
    Buffer<float> dx(x), out(n * FUNCTIONS);
    Buffer<double> dwide(wide), wide_out(n * FUNCTIONS);
    evaluate<<<5, 64>>>(n, dx.data, out.data);
    evaluate<<<5, 64>>>(n, dwide.data, wide_out.data);
    std::vector<float> got = out.read();
    std::vector<double> wide_got = wide_out.read();
    for (int i = 0; i < n; i++) {
        double want[FUNCTIONS];
        functions(wide[i], want);
        for (int f = 0; f < FUNCTIONS; f++) {
            double got_wide = wide_got[i * FUNCTIONS + f];
            CHECK(fabs(got_wide - want[f]) <= 16 * 0x1p-52 * fmax(1, fabs(want[f])));
            double exact = f == 11 ? fmodf(x[i], 0.7f) : f == 5 ? pow(fabs(wide[i]), double(1.7f))
                         : f == 8 ? atan2(wide[i], double(0.3f)) : want[f];
            CHECK(near(got[i * FUNCTIONS + f], exact, 16 / fmin(1, fabs(exact) + 0x1p-100)));
        }
    }
}

int main() {
    return on_each_device([] {
        test_saxpy();
        test_daxpy();
        test_index3();
        test_functions();
    });
}
