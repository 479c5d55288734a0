// SPDX-License-Identifier: Apache-2.0
// A kernel to test: it reverses the numbers of each workgroup. With -DNO_BARRIER it is wrong.
//
// The kernel is plain C, as clang's own header is all that it needs. hipcc --genco makes such a
// file of a HIP kernel.
#include <gpuintrin.h>

enum { COUNT = 256 }; // work-items of a workgroup

[[clang::loader_uninitialized]] static __gpu_local int tile[COUNT];

static void wait_for_all(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __gpu_sync_threads();
}

__gpu_kernel void reverse(const int *in, int *out) {
    const unsigned i = __gpu_thread_id_x();
    const unsigned first = __gpu_block_id_x() * COUNT;
    tile[i] = in[first + i];
#ifndef NO_BARRIER
    wait_for_all();
#endif
    out[first + i] = tile[COUNT - 1 - i];
}
