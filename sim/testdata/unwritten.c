// SPDX-License-Identifier: Apache-2.0
// Pairs of kernels (pair.h) that use values that nothing has written, in LDS and in memory.
#include "pair.h"

// ---- LDS that nobody has written

PAIR(tile_half_written) {
    if (!faulty || TID % 2)
        tile[TID] = in[TID];
    sync_threads();
    out[ID] = tile[THREADS - 1 - TID];
}

PAIR(count_from_nothing) {
    if (!faulty && TID == 0)
        counter = 0;
    sync_threads();
    __scoped_atomic_fetch_add(&counter, TID, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

PAIR(byte_never_written) {
    ((LOCAL volatile uint8_t *)tile)[4 * TID] = 1;
    ((LOCAL volatile uint8_t *)tile)[4 * TID + 1] = 1;
    ((LOCAL volatile uint8_t *)tile)[4 * TID + 2] = 1;
    if (!faulty)
        ((LOCAL volatile uint8_t *)tile)[4 * TID + 3] = 1;
    out[ID] = *(LOCAL volatile word *)(tile + TID);
}

// ---- memory that nobody has written: the test says which, for the faulty kernel alone unless the
// twins differ

PAIR(input_of_nothing) {
    out[ID] = in[ID] + one;
}

PAIR(element_of_nothing) {
    out[ID] = in[ID] + one;
}

PAIR(input_half_filled) {
    out[ID] = in[ID + SIZE / 2 - THREADS / 2] + one;
}

PAIR(copy_of_nothing) {
    out[ID] = in[ID] + one;
}

PAIR(bytes_of_nothing) {
    out[ID] = ((const uint8_t GLOBAL *)in)[ID] + one;
}

PAIR(branch_on_nothing) {
    if (*((const volatile word CONSTANT *)in + one))
        out[ID] = one;
}

PAIR(address_from_nothing) {
    out[in[ID] % SIZE] = one;
}

/** Four words, of which the last is padding that is loaded with the others. */
typedef word quad __attribute__((ext_vector_type(4)));

PAIR(padding_is_used) {
    quad q = ((const volatile quad GLOBAL *)in)[ID];
    out[ID] = q.x + (faulty ? q.w : q.z);
}

[[clang::loader_uninitialized]] static LOCAL quad quads[THREADS];

PAIR(padding_is_used_through_lds) {
    quads[TID] = ((const volatile quad GLOBAL *)in)[ID];
    sync_threads();
    out[ID] = quads[THREADS - 1 - TID][faulty ? 3 * one : 2 * one];
}

PAIR(used_by_some_and_twice) {
    const word value = ((const volatile word GLOBAL *)in)[TID];
    if (TID >= 5) {
        out[TID] = value;
        out[TID + THREADS] = value + 1;
    }
}

/** Reads, in the faulty kernel, the byte beside a written one. A whole dword counts as written if
 *  any of its bytes is. */
PAIR(byte_beside) {
    out[ID] = faulty ? ((const uint8_t GLOBAL *)in)[4 * ID + 1] : in[ID] + one;
}

[[clang::loader_uninitialized]] static LOCAL word halves[2 * THREADS], rest[THREADS];

/** Passes on two words that one instruction writes, and another one reads. */
PAIR(two_words_at_once) {
    quad q = ((const volatile quad GLOBAL *)in)[TID];
    halves[TID] = q.x;
    halves[TID + THREADS] = q.w;
    sync_threads();
    const word there = halves[THREADS - 1 - TID], nothing = halves[2 * THREADS - 1 - TID];
    out[ID] = faulty ? nothing : there;
    rest[TID] = faulty ? there : nothing;
}

PAIR(exchange_with_nothing) {
    if (TID == 0) {
        const word old =
            __scoped_atomic_exchange_n(shared, one, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
        out[0] = faulty ? old : one;
    }
}

PAIR(swap_with_nothing) {
    word expected = 0;
    if (TID == 0 && !faulty)
        __scoped_atomic_exchange_n(shared, 0, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    if (TID == 0) {
        __scoped_atomic_compare_exchange_n(shared, &expected, one, false, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    }
}

/** Copies unwritten memory to LDS. A single byte written over a word makes the word count as
 *  written. */
PAIR(tile_of_nothing) {
    tile[TID] = in[ID];
    sync_threads();
    if (!faulty)
        ((LOCAL uint8_t *)tile)[4 * TID + 2] = 1;
    sync_threads();
    out[ID] = tile[THREADS - 1 - TID];
}

/** Loads straight to LDS on chips that can. */
PAIR(tile_of_nothing_by_dma) {
#ifdef __GFX9__
    LOCAL word *to = tile + 64 * wave();
    __builtin_amdgcn_global_load_lds((word GLOBAL *)in + ID, to, sizeof(word), 0, 0);
    __builtin_amdgcn_s_waitcnt(0);
#else
    tile[TID] = in[ID];
#endif
    sync_threads();
    out[ID] = tile[TID] + one;
}

/** Counts on an unwritten word. A count reads the old value; an exchange does not use it. */
PAIR(count_on_nothing) {
    if (!faulty && TID == 0)
        __scoped_atomic_exchange_n(shared, 0, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    sync_threads();
    __scoped_atomic_fetch_add(shared, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

typedef float floats4 __attribute__((ext_vector_type(4)));
typedef float floats8 __attribute__((ext_vector_type(8)));
typedef _Float16 halves8 __attribute__((ext_vector_type(8)));
typedef _Float16 halves16 __attribute__((ext_vector_type(16)));

PAIR(matrix_of_nothing) {
#if defined __GFX9__
    float a = ((const float GLOBAL *)in)[TID];
    floats4 d = __builtin_amdgcn_mfma_f32_16x16x4f32(a, (float)one, (floats4){}, 0, 0, 0);
#elif defined __GFX11__
    halves16 a = ((const halves16 GLOBAL *)in)[TID];
    floats8 d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, (halves16)(_Float16)one, (floats8){});
#else
    halves8 a = ((const halves8 GLOBAL *)in)[TID];
    floats8 d =
        __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, (halves8)(_Float16)one, (floats8){});
#endif
    ((float GLOBAL *)out)[ID] = d[0];
}
