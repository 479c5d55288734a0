// SPDX-License-Identifier: Apache-2.0
// malloc, free, new and delete in kernels: small blocks, whole slabs, blocks that live on from kernel to kernel.
#include "testing.h"

constexpr int THREADS = 256;

__device__ int fill_of(int thread, int i) {
    return thread * 1000 + i;
}

// Each thread has blocks of several sizes at once, all of them apart.
__global__ void many_sizes(int *wrong) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    const int sizes[] = {1 + t % 5, 16, 40 + t % 64, 300};
    int *blocks[4];
    for (int b = 0; b < 4; b++) {
        blocks[b] = static_cast<int *>(malloc(sizes[b] * sizeof(int)));
        for (int i = 0; blocks[b] && i < sizes[b]; i++)
            blocks[b][i] = fill_of(t, b * 300 + i);
    }
    for (int b = 0; b < 4; b++) {
        for (int i = 0; i < sizes[b]; i++)
            if (!blocks[b] || blocks[b][i] != fill_of(t, b * 300 + i))
                atomicAdd(wrong, 1);
        free(blocks[b]);
    }
    free(nullptr);
}

struct Node {
    Node *next;
    int value;
    __device__ Node(Node *n, int v) : next(n), value(v) {}
};

// A list for each thread, made by one kernel, summed and deleted by another.
__global__ void make_lists(Node **heads, int length) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    heads[t] = nullptr;
    for (int i = 0; i < length; i++)
        heads[t] = new Node(heads[t], fill_of(t, i));
}

__global__ void sum_lists(Node **heads, int *sums) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    sums[t] = 0;
    for (Node *node = heads[t]; node;) {
        Node *next = node->next;
        sums[t] += node->value;
        delete node;
        node = next;
    }
}

__global__ void large(size_t bytes, int *wrong) {
    if (threadIdx.x != 0)
        return;
    char *block = static_cast<char *>(malloc(bytes));
    if (!block) {
        *wrong = 1;
        return;
    }
    for (size_t i = 0; i < bytes; i += 4096)
        block[i] = char(i >> 12);
    block[bytes - 1] = 77;
    for (size_t i = 0; i + 1 < bytes; i += 4096)
        *wrong += block[i] != char(i >> 12);
    *wrong += block[bytes - 1] != 77;
    free(block);
}

__global__ void too_much(void **out) {
    *out = malloc(size_t(1) << 50);
}

static void test() {
    Buffer<int> wrong(std::vector<int>{0});
    for (int run = 0; run < 2; run++) {
        many_sizes<<<THREADS / 64, 64>>>(wrong.data);
        CHECK(wrong.read()[0] == 0);
    }
    Buffer<Node *> heads(THREADS);
    Buffer<int> sums(THREADS);
    make_lists<<<THREADS / 64, 64>>>(heads.data, 20);
    sum_lists<<<THREADS / 64, 64>>>(heads.data, sums.data);
    std::vector<int> got = sums.read();
    for (int t = 0; t < THREADS; t++)
        CHECK(got[t] == 20 * 1000 * t + 190);
    for (size_t bytes : {size_t(5000), size_t(3) << 20}) {
        large<<<1, 64>>>(bytes, wrong.data);
        CHECK(wrong.read()[0] == 0);
    }
    Buffer<void *> none(std::vector<void *>{&wrong});
    too_much<<<1, 1>>>(none.data);
    CHECK(none.read()[0] == nullptr);
}

int main() {
    return on_each_device(test);
}
