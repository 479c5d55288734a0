// SPDX-License-Identifier: Apache-2.0
// Kernels that do wrong, for the tests of reports: fault_test.c looks for what the comments at the
// ends of lines say.
#include <gpuintrin.h>
#include <stdint.h>

#define KERNEL __attribute__((amdgpu_kernel)) void
#define LOCAL __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
#define PUBLIC __attribute__((visibility("protected")))

static uint32_t global_id(void) {
    return __gpu_block_id_x() * __gpu_num_threads_x() + __gpu_thread_id_x();
}

/** Three faults, and a result that must be right nevertheless. */
KERNEL r_three(uint32_t GLOBAL *out, uint32_t count, const uint32_t GLOBAL *freed) {
    const uint32_t i = global_id();
    uint32_t past = out[count + i];   // load past the end
    out[count + 64 + i] = i;          // store past the end
    uint32_t gone = freed[i];         // load of freed memory
    out[i] = past + gone + 3 * i + 1; // fine
}

[[gnu::noinline]] static void put(uint32_t GLOBAL *at, uint32_t value) {
    *at = value; // store in a function
}

KERNEL r_function(uint32_t GLOBAL *out, uint32_t count) {
    put(out + count + global_id(), 1);
}

PUBLIC uint32_t GLOBAL table[4096];

KERNEL r_table(uint32_t GLOBAL *out, uint32_t at) {
    out[global_id()] = table[at]; // load past the end of table
}

[[clang::loader_uninitialized]] static LOCAL uint32_t part[256];

KERNEL r_race(uint32_t GLOBAL *out) {
    const uint32_t i = __gpu_thread_id_x();
    part[i] = i;
    out[i] = part[(i + 64) & 255]; // read of another wave's
}

KERNEL r_code(uint32_t GLOBAL *out) {
    uintptr_t at = __builtin_amdgcn_s_getpc() & ~UINT64_C(3);
    out[global_id()] = 7;
    *(volatile uint32_t GLOBAL *)at = 1; // store over code
}

KERNEL r_past(uint32_t GLOBAL *out, uint32_t count) {
    const uint32_t i = global_id();
    out[i] = 5 + out[count + i]; // load past the end, in the page
}

KERNEL r_lds(uint32_t GLOBAL *out, uint32_t at) {
    out[global_id()] = *(volatile uint32_t LOCAL *)&part[at]; // load past LDS
}

/** Waits for a store that is dropped. */
KERNEL r_endless(volatile uint32_t GLOBAL *out, uint32_t count) {
    out[count] = 1;
    while (out[count] != 1) {
    }
}

KERNEL r_stack(uint32_t GLOBAL *out, uint32_t at) {
    volatile uint32_t own[4] = {1, 2, 3, 4};
    out[global_id()] = own[at]; // load past the stack
}

KERNEL r_trap(uint32_t GLOBAL *out, uint32_t count) {
    if (count)
        __builtin_trap();
    out[0] = 1;
}
