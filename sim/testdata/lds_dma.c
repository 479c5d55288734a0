// SPDX-License-Identifier: Apache-2.0
// Loads straight to LDS. clang 22 waits for them before it reads an array of known size (t_known),
// but not before an extern one (t_extern): the checker must find the missing wait in t_extern, and
// nothing in t_known.
#include <gpuintrin.h>
#include <stdint.h>

#ifdef __GFX9__ // RDNA has no such loads

#define KERNEL __attribute__((amdgpu_kernel)) void
#define LOCAL __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))

[[clang::loader_uninitialized]] static LOCAL uint8_t a[1024] __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static LOCAL uint8_t b[1024] __attribute__((aligned(128)));
extern LOCAL uint8_t whole[];

static void copy(const void *from, LOCAL uint8_t *first, LOCAL uint8_t *second) {
    __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)from, 0, 4096, 0x27000);
    const int at = (int)__gpu_lane_id() * 4;
    __builtin_amdgcn_raw_ptr_buffer_load_lds(r, (LOCAL void *)first, 4, at, 0, 0, 0);
    __builtin_amdgcn_raw_ptr_buffer_load_lds(r, (LOCAL void *)second, 4, at, 256, 0, 0);
}

KERNEL t_known(const void *from, uint32_t GLOBAL *out) {
    copy(from, a, b);
    out[__gpu_lane_id()] = *(LOCAL uint32_t *)(a + __gpu_lane_id() * 4);
}

KERNEL t_extern(const void *from, uint32_t GLOBAL *out) {
    copy(from, whole, whole + 1024);
    out[__gpu_lane_id()] = *(LOCAL uint32_t *)(whole + __gpu_lane_id() * 4);
}

#endif
