// SPDX-License-Identifier: Apache-2.0
// A matrix product through tiles in LDS, any shape, in float, double and int.
#include "testing.h"

constexpr int TILE = 16;

// c[m,n] = a[m,k] b[k,n], row by row
template <typename T> __global__ void matmul(T *c, const T *a, const T *b, int m, int n, int k) {
    __shared__ T left[TILE][TILE], right[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx;
    T sum = 0;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        left[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : T(0);
        right[ty][tx] = column < n && k0 + ty < k ? b[(k0 + ty) * n + column] : T(0);
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += left[ty][i] * right[i][tx];
        __syncthreads();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}

template <typename T> static void test_shape(int m, int n, int k, double unit) {
    std::vector<float> a_from = random_floats(size_t(m) * k, -9, 9), b_from = random_floats(size_t(k) * n, -9, 9);
    std::vector<T> a(a_from.begin(), a_from.end()), b(b_from.begin(), b_from.end());
    Buffer<T> da(a), db(b), dc(size_t(m) * n);
    dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    matmul<<<grid, dim3(TILE, TILE)>>>(dc.data, da.data, db.data, m, n, k);
    std::vector<T> got = dc.read();
    for (int i = 0; i < m * n; i++) {
        double want = 0, size = 0;
        for (int j = 0; j < k; j++) {
            double product = double(a[i / n * k + j]) * double(b[j * n + i % n]);
            want += product;
            size += fabs(product);
        }
        CHECK(fabs(got[i] - want) <= (k + 1) * unit * size);
    }
}

static void test() {
    static const int shapes[][3] = {{1, 1, 1}, {16, 16, 16}, {17, 33, 50}, {40, 5, 100}};
    for (auto [m, n, k] : shapes) {
        test_shape<float>(m, n, k, 0x1p-24);
        test_shape<double>(m, n, k, 0x1p-52); // the expected value is rounded too
        test_shape<int>(m, n, k, 0);
    }
}

int main() {
    return on_each_device(test);
}
