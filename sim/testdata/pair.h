// SPDX-License-Identifier: Apache-2.0
// For kernels with a planted fault, each beside its repaired twin: PAIR(name) makes bad_name and
// good_name of one body, which asks `faulty` at the one place where they differ.
// check/faults_test.c says what must be found in each.
//
// All take the same arguments: out, in and shared are allocations of SIZE words, in holds its
// indices, the others zeros; `one` is 1, which the compiler does not know.
#ifndef QUERN_PAIR_H
#define QUERN_PAIR_H

#include <gpuintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define KERNEL __attribute__((amdgpu_kernel)) void
#define LOCAL __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
#define CONSTANT __attribute__((address_space(4)))
#define INLINE static inline __attribute__((always_inline)) void

typedef uint32_t word;
#define ARGS word GLOBAL *out, const word GLOBAL *in, word GLOBAL *shared, word one
#define PAIR(name)                                                                                 \
    INLINE name([[maybe_unused]] bool faulty, [[maybe_unused]] word GLOBAL *out,                   \
                [[maybe_unused]] const word GLOBAL *in, [[maybe_unused]] word GLOBAL *shared,      \
                [[maybe_unused]] word one);                                                        \
    KERNEL bad_##name(ARGS) {                                                                      \
        name(true, out, in, shared, one);                                                          \
    }                                                                                              \
    KERNEL good_##name(ARGS) {                                                                     \
        name(false, out, in, shared, one);                                                         \
    }                                                                                              \
    INLINE name([[maybe_unused]] bool faulty, [[maybe_unused]] word GLOBAL *out,                   \
                [[maybe_unused]] const word GLOBAL *in, [[maybe_unused]] word GLOBAL *shared,      \
                [[maybe_unused]] word one)

enum { SIZE = 1024, THREADS = 128 };

// ---- where a work-item is

#define TID __gpu_thread_id_x()
#define GROUP __gpu_block_id_x()
#define ID (GROUP * __gpu_num_threads_x() + TID)

/** The number of the wave, as a scalar: branches on it are taken by whole waves. */
static inline word wave(void) {
    return (word)__builtin_amdgcn_readfirstlane((int)TID) / __builtin_amdgcn_wavefrontsize();
}

static inline void sync_threads(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

[[clang::loader_uninitialized]] static LOCAL word tile[THREADS];
[[clang::loader_uninitialized]] static LOCAL word counter;

#endif
