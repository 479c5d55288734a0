// SPDX-License-Identifier: Apache-2.0
// The kernel of tinygrad_emulator.py: c = a b, all [n][n] f32, by tiles of 16 x 16 through LDS; n
// is a multiple of 16.
#include <stdint.h>

#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))

enum { TILE = 16 };

[[clang::loader_uninitialized]] static LOCAL float left[TILE][TILE], right[TILE][TILE];

static void meet(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(256, 256))) void
matmul(float GLOBAL *c, const float GLOBAL *a, const float GLOBAL *b, uint32_t n) {
    const uint32_t column = __builtin_amdgcn_workitem_id_x() % TILE;
    const uint32_t row = __builtin_amdgcn_workitem_id_x() / TILE;
    const uint32_t x = __builtin_amdgcn_workgroup_id_x() * TILE + column;
    const uint32_t y = __builtin_amdgcn_workgroup_id_y() * TILE + row;
    float sum = 0;
    for (uint32_t k = 0; k < n; k += TILE) {
        left[row][column] = a[y * n + k + column];
        right[row][column] = b[(k + row) * n + x];
        meet();
        for (uint32_t i = 0; i < TILE; i++)
            sum = __builtin_fmaf(left[row][i], right[i][column], sum);
        meet();
    }
    c[y * n + x] = sum;
}
