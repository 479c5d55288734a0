// SPDX-License-Identifier: Apache-2.0
// What the lanes of a wave tell each other: shuffles, votes, reductions, with all lanes active and with some; waves of
// 32 lanes on RDNA, or 64 if so compiled, and of 64 on CDNA.
#define HIP_ENABLE_WARP_SYNC_BUILTINS 1
#include "testing.h"

constexpr int BLOCK = 128;

template <typename T> __global__ void shuffles(const T *x, T *out, int width) {
    int t = threadIdx.x;
    T value = x[t];
    out[0 * BLOCK + t] = __shfl(value, t * 7, width);
    out[1 * BLOCK + t] = __shfl_up(value, 3, width);
    out[2 * BLOCK + t] = __shfl_down(value, 5, width);
    out[3 * BLOCK + t] = __shfl_xor(value, 9 % width, width);
}

__global__ void votes(const int *x, unsigned long long *out, int *wave_size) {
    int t = threadIdx.x, wave = t / warpSize;
    bool odd = x[t] % 2 != 0;
    out[0 * BLOCK + t] = __ballot(odd);
    out[1 * BLOCK + t] = __all(odd) | __any(odd) << 1 | __all(wave == 0) << 2 | __any(wave == 1) << 3;
    out[2 * BLOCK + t] = __activemask();
    if (odd) { // some lanes only
        out[3 * BLOCK + t] = __ballot(x[t] % 4 == 1);
        out[4 * BLOCK + t] = __activemask();
    }
    out[5 * BLOCK + t] = __lane_id();
    if (t == 0)
        *wave_size = warpSize;
}

__global__ void with_masks(const int *x, int *out) {
    int t = threadIdx.x, lane = t % warpSize;
    unsigned long long all = warpSize == 64 ? ~0ull : 0xFFFFFFFFull;
    out[0 * BLOCK + t] = __shfl_sync(all, x[t], 0);
    out[1 * BLOCK + t] = __shfl_xor_sync(all, x[t], 1);
    out[2 * BLOCK + t] = __popcll(__ballot_sync(all, x[t] % 3 == 0));
    out[3 * BLOCK + t] = __any_sync(all, x[t] == -1) + 2 * __all_sync(all, x[t] >= 0);
    unsigned long long half = lane % 2 ? all & 0xAAAAAAAAAAAAAAAAull : all & 0x5555555555555555ull;
    out[4 * BLOCK + t] = __popcll(__match_any_sync(all, x[t] % 4));
    out[5 * BLOCK + t] = __popcll(half);
    __syncwarp();
}

__global__ void bit_tricks(const unsigned *x, int *out) {
    int t = threadIdx.x;
    unsigned v = x[t];
    unsigned long long w = (unsigned long long)v << 20;
    out[t * 8 + 0] = __popc(v);
    out[t * 8 + 1] = __clz(v);
    out[t * 8 + 2] = __ffs(v);
    out[t * 8 + 3] = int(__brev(v));
    out[t * 8 + 4] = __popcll(w);
    out[t * 8 + 5] = __clzll(w);
    out[t * 8 + 6] = __ffsll(w);
    out[t * 8 + 7] = int(__umulhi(v, 0x87654321u));
}

static int wave_size() {
    Buffer<int> x(std::vector<int>(BLOCK, 0)), size(1);
    Buffer<unsigned long long> out(6 * BLOCK);
    votes<<<1, BLOCK>>>(x.data, out.data, size.data);
    return size.read()[0];
}

template <typename T> static void test_shuffles(int wave) {
    std::vector<int> from = random_ints(BLOCK, -100000, 100000);
    std::vector<T> x(from.begin(), from.end());
    Buffer<T> dx(x), out(4 * BLOCK);
    for (int width = 2; width <= wave; width *= 2) {
        shuffles<<<1, BLOCK>>>(dx.data, out.data, width);
        std::vector<T> got = out.read();
        for (int t = 0; t < BLOCK; t++) {
            int first = t / width * width, at = t % width, other = at ^ (9 % width);
            CHECK(got[0 * BLOCK + t] == x[first + t * 7 % width]);
            CHECK(got[1 * BLOCK + t] == x[at >= 3 ? t - 3 : t]);
            CHECK(got[2 * BLOCK + t] == x[at + 5 < width ? t + 5 : t]);
            CHECK(got[3 * BLOCK + t] == x[first + other]);
        }
    }
}

static void test_votes(int wave) {
    std::vector<int> x = random_ints(BLOCK, 0, 1000);
    for (int t = 0; t < wave; t++)
        x[t] |= 1; // the first wave votes as one
    Buffer<int> dx(x), size(1);
    Buffer<unsigned long long> out(6 * BLOCK);
    votes<<<1, BLOCK>>>(dx.data, out.data, size.data);
    std::vector<unsigned long long> got = out.read();
    unsigned long long everyone = wave == 64 ? ~0ull : 0xFFFFFFFFull;
    for (int t = 0; t < BLOCK; t++) {
        int first = t / wave * wave;
        unsigned long long odd = 0, one = 0;
        for (int lane = 0; lane < wave; lane++) {
            odd |= (unsigned long long)(x[first + lane] % 2 != 0) << lane;
            one |= (unsigned long long)(x[first + lane] % 4 == 1) << lane;
        }
        CHECK(got[t] == odd && got[2 * BLOCK + t] == everyone && got[5 * BLOCK + t] == unsigned(t % wave));
        CHECK(got[BLOCK + t] == unsigned((odd == everyone) | (odd != 0) << 1 | (first == 0) << 2 | (first == wave) << 3));
        if (x[t] % 2 != 0)
            CHECK(got[3 * BLOCK + t] == one && got[4 * BLOCK + t] == odd);
    }
}

static void test_masks(int wave) {
    std::vector<int> x = random_ints(BLOCK, 0, 1000);
    Buffer<int> dx(x), out(6 * BLOCK);
    with_masks<<<1, BLOCK>>>(dx.data, out.data);
    std::vector<int> got = out.read();
    for (int t = 0; t < BLOCK; t++) {
        int first = t / wave * wave, threes = 0, same = 0;
        for (int lane = 0; lane < wave; lane++) {
            threes += x[first + lane] % 3 == 0;
            same += x[first + lane] % 4 == x[t] % 4;
        }
        CHECK(got[t] == x[first] && got[BLOCK + t] == x[t ^ 1] && got[2 * BLOCK + t] == threes);
        CHECK(got[3 * BLOCK + t] == 2 && got[4 * BLOCK + t] == same && got[5 * BLOCK + t] == wave / 2);
    }
}

static void test_bits() {
    std::vector<unsigned> x(BLOCK);
    for (int t = 0; t < BLOCK; t++)
        x[t] = t < 33 ? t < 32 ? 1u << t : 0 : unsigned(generator()());
    Buffer<unsigned> dx(x);
    Buffer<int> out(8 * BLOCK);
    bit_tricks<<<1, BLOCK>>>(dx.data, out.data);
    std::vector<int> got = out.read();
    for (int t = 0; t < BLOCK; t++) {
        unsigned v = x[t], reversed = 0;
        unsigned long long w = (unsigned long long)v << 20;
        for (int bit = 0; bit < 32; bit++)
            reversed |= (v >> bit & 1) << (31 - bit);
        const int *g = &got[t * 8];
        CHECK(g[0] == __builtin_popcount(v) && g[1] == (v ? __builtin_clz(v) : 32) && g[2] == __builtin_ffs(int(v)));
        CHECK(unsigned(g[3]) == reversed && g[4] == __builtin_popcount(v) && g[5] == (w ? __builtin_clzll(w) : 64));
        CHECK(g[6] == __builtin_ffsll((long long)w) && unsigned(g[7]) == unsigned((unsigned long long)v * 0x87654321u >> 32));
    }
}

static int expected_size; // 0: as the device says

int main(int argc, char **argv) {
    expected_size = argc > 1 ? atoi(argv[1]) : 0;
    return on_each_device([] {
        int wave = wave_size();
        CHECK(wave == (expected_size ? expected_size : properties().warpSize));
        test_shuffles<int>(wave);
        test_shuffles<float>(wave);
        test_shuffles<double>(wave);
        test_shuffles<long long>(wave);
        test_votes(wave);
        test_masks(wave);
        test_bits();
    });
}
