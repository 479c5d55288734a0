// SPDX-License-Identifier: Apache-2.0
// Pairs of kernels (pair.h) that reach out of bounds, race, part at barriers, or access misaligned
// addresses.
#include "pair.h"

// ---- out of bounds

PAIR(store_past_the_end) {
    out[ID + (faulty ? SIZE : 0)] = one;
}

PAIR(load_past_the_end) {
    out[TID] = in[TID + (faulty ? SIZE - 1 : 0)];
}

PAIR(load_before_the_start) {
    out[TID] = in[(int)TID - (faulty ? (int)one : 0)];
}

/** Stores eight bytes, of which the first four lie in the allocation. */
PAIR(store_across_the_end) {
    typedef struct [[gnu::packed, gnu::aligned(4)]] {
        uint64_t value;
    } wide;
    ((wide GLOBAL *)(out + SIZE - (faulty ? 1 : 2)))->value = one;
}

PAIR(atomic_past_the_end) {
    __scoped_atomic_fetch_add(out + (faulty ? SIZE * one : 0), 1, __ATOMIC_RELAXED,
                              __MEMORY_SCOPE_DEVICE);
}

PAIR(scalar_load_past_the_end) {
    out[TID] = ((const word CONSTANT *)in)[faulty ? SIZE * one : 0];
}

PAIR(null_pointer) {
    const word GLOBAL *from = faulty ? (const word GLOBAL *)((uintptr_t)one - 1) : in;
    out[TID] = from[TID];
}

/** Uses a descriptor that claims more memory than there is. */
PAIR(buffer_past_the_end) {
#ifdef __GFX9__
    int flags = 0x27000;
#else
    int flags = 0x31004000; // raw, 32-bit words
#endif
    const int bytes = (faulty ? 2 : 1) * SIZE * (int)sizeof(word), at = SIZE * (int)sizeof(word);
    __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)in, 0, bytes, flags);
    out[TID] = __builtin_amdgcn_raw_buffer_load_b32(r, (int)TID * 4 + at * (int)one, 0, 0);
}

PAIR(buffer_store_past_the_end) {
#ifdef __GFX9__
    int flags = 0x27000;
#else
    const int flags = 0x31004000;
#endif
    const int bytes = (faulty ? 2 : 1) * SIZE * (int)sizeof(word), at = SIZE * (int)sizeof(word);
    __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc(out, 0, bytes, flags);
    __builtin_amdgcn_raw_buffer_store_b32(one, r, (int)TID * 4 + at * (int)one, 0, 0);
}

PAIR(stack_store_past_the_end) {
    volatile word values[256]; // too many for registers
    for (word i = 0; i < 256; i++)
        values[i] = i;
    values[(faulty ? 4096 : 255) * one] = in[TID];
    out[TID] = values[7 * one];
}

PAIR(stack_past_the_end) {
    word values[256]; // too many for registers
    for (word i = 0; i < 256; i++)
        values[i] = in[i + TID];
    out[TID] = values[(faulty ? 4096 : 255) * one];
}

/** Stores over the kernel's own instructions. */
PAIR(store_over_code) {
    uintptr_t at = faulty ? __builtin_amdgcn_s_getpc() & ~UINT64_C(3) : (uintptr_t)out;
    if (TID == 0)
        *(volatile word GLOBAL *)at = one;
}

PAIR(lds_past_the_end) {
    LOCAL volatile word *at = tile + (faulty ? SIZE : 0) * one;
    at[TID] = in[TID];
    out[TID] = at[TID];
}

/** Loads from freed memory: the test frees what the faulty kernel reads, and what the next one
 *  writes. */
PAIR(load_from_freed) {
    out[TID] = in[TID];
}

PAIR(store_to_freed) {
    out[TID] = one;
}

// ---- LDS between the waves of a workgroup

PAIR(read_of_another_wave) {
    tile[TID] = in[TID];
    if (!faulty)
        sync_threads();
    out[ID] = tile[THREADS - 1 - TID];
}

PAIR(tile_overwritten_too_early) {
    word sum = 0;
    for (word step = 0; step < 4; step++) {
        tile[TID] = in[TID + step];
        sync_threads();
        sum += tile[THREADS - 1 - TID];
        if (!faulty)
            sync_threads();
    }
    out[ID] = sum;
}

PAIR(reduction_without_a_barrier) {
    tile[TID] = in[TID];
    sync_threads();
    for (word half = THREADS / 2; half; half /= 2) {
        if (TID < half)
            tile[TID] += tile[TID + half];
        if (!faulty || half > 1)
            sync_threads();
    }
    out[ID] = tile[0];
}

PAIR(count_without_atomics) {
    if (TID == 0)
        counter = 0;
    sync_threads();
    if (faulty)
        counter = counter + TID;
    else
        __scoped_atomic_fetch_add(&counter, TID, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    sync_threads();
    out[ID] = counter;
}

// ---- global memory between workgroups

static inline word add(word GLOBAL *at, word value, int order) {
    return __scoped_atomic_fetch_add(at, value, order, __MEMORY_SCOPE_DEVICE);
}
static inline word look(word GLOBAL *at) {
    return __scoped_atomic_load_n(at, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE);
}
static inline void raise(word GLOBAL *at) {
    __scoped_atomic_store_n(at, 1, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
}

PAIR(two_writers) {
    out[faulty ? TID : ID] = GROUP;
}

/** Writes in the second workgroup behind a barrier that does not order it after the first one. */
PAIR(two_writers_and_a_barrier) {
    if (GROUP == 0)
        out[TID] = 1;
    sync_threads();
    if (GROUP == 1)
        out[faulty ? TID : ID] = 2;
}

PAIR(byte_of_two_writers) {
    ((uint8_t GLOBAL *)out)[faulty ? TID + GROUP : TID + THREADS * GROUP] = (uint8_t)(1 + GROUP);
}

PAIR(sum_without_atomics) {
    if (TID == 0) {
        if (faulty)
            out[0] += 1 + GROUP;
        else
            add(out, 1 + GROUP, __ATOMIC_RELAXED);
    }
}

PAIR(in_place_shift) {
    out[ID] = (faulty ? out[ID + 1] : in[ID + 1]) + 1;
}

/** Reads in the second workgroup what the first one wrote before it raised a flag. */
PAIR(read_without_looking_at_the_flag) {
    if (GROUP == 0) {
        shared[1 + TID] = in[TID];
        sync_threads();
        if (TID == 0)
            raise(shared);
        return;
    }
    while (!faulty && !look(shared)) {
    }
    out[TID] = shared[1 + TID];
}

/** Raises a flag before the value is there. The value has a line of its own, because the checker
 *  remembers five accesses to a line, and all waves read the flag. */
PAIR(flag_before_the_value) {
    constexpr word VALUE = 32;
    if (GROUP == 0 && TID == 0) {
        if (faulty) {
            raise(shared);
            shared[VALUE] = 7;
        } else {
            shared[VALUE] = 7;
            raise(shared);
        }
    }
    while (!look(shared)) {
    }
    out[ID] = shared[VALUE];
}

/** Adds up the parts of all workgroups in the one that counts last, as split-K does. */
PAIR(part_after_the_count) {
    word last = 0;
    if (TID == 0) {
        if (!faulty)
            out[1 + GROUP] = 5 + GROUP;
        last = add(shared, 1, __ATOMIC_ACQ_REL) == __gpu_num_blocks_x() - 1;
        if (faulty)
            out[1 + GROUP] = 5 + GROUP;
    }
    if (last) {
        word sum = 0;
        for (word g = 0; g < __gpu_num_blocks_x(); g++)
            sum += out[1 + g];
        out[0] = sum;
        shared[0] = 0; // for the next launch
    }
}

/** Takes a lock that differs from workgroup to workgroup. */
PAIR(one_lock_each) {
    word GLOBAL *lock = shared + (faulty ? GROUP : 0);
    if (TID == 0) {
        while (__scoped_atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE)) {
        }
        out[0] += 1 + GROUP;
        __scoped_atomic_store_n(lock, 0, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
    }
}

PAIR(counter_read_plainly) {
    if (TID == 0) {
        add(shared, 1, __ATOMIC_RELAXED);
        out[ID] = faulty ? shared[0] : look(shared);
    }
}

/** Raises the flag of a value in a third wave, which does not wait for the value. */
PAIR(flag_of_a_third_wave) {
    if (GROUP == 0) {
        if (TID == 0) {
            add(shared + 64, 1, __ATOMIC_RELAXED);
            out[0] = one;
            if (!faulty)
                add(shared, 1, __ATOMIC_RELEASE);
        }
    } else if (wave() == 1 && __gpu_lane_id() == 0) {
        add(shared, 1, __ATOMIC_RELEASE);
    } else if (TID == 0) {
        while (look(shared) < (faulty ? 1 : 2)) {
        }
        out[1] = out[0] + one;
    }
}

/** Raises the flag in another wave of the writer's workgroup, and reads the value in another wave
 *  of the receiver's workgroup, with barriers between. */
PAIR(flag_of_a_mate) {
    typedef word wide __attribute__((ext_vector_type(4))); // too wide for a flag
    if (GROUP == 0) {
        if (TID == 0)
            *(wide GLOBAL *)out = (wide)one;
        if (!faulty)
            sync_threads();
        if (wave() == 1 && __gpu_lane_id() == 0)
            raise(shared);
        return;
    }
    while (wave() == 0 && !look(shared)) {
    }
    sync_threads();
    if (wave() == 1 && __gpu_lane_id() == 0)
        out[8] = out[0] + one;
}

PAIR(counter_of_its_own) {
    if (TID == 0 && GROUP == 0) {
        out[0] = one;
        add(shared, 1, __ATOMIC_RELEASE);
    } else if (TID == 0) {
        add(shared + 64, 1, __ATOMIC_ACQ_REL);
        add(shared + 64, 1, __ATOMIC_ACQ_REL);
        while (!faulty && !look(shared)) {
        }
        out[1] = out[0] + one;
    }
}

/** Reads the first of two words in a line, which one wave wrote by two stores and, in the next
 *  kernel, by one store in a loop. */
PAIR(first_of_two_stores) {
    if (TID == 0 && GROUP == 0) {
        out[0] = one;
        out[2] = one;
    } else if (TID == 0) {
        out[8] = out[faulty ? 0 : 4];
    }
}

PAIR(first_of_a_loop) {
    if (TID == 0 && GROUP == 0) {
#pragma clang loop unroll(disable) vectorize(disable)
        for (word i = 0; i < 2 * one; i++)
            out[2 * i] = one;
    } else if (TID == 0) {
        out[8] = out[faulty ? 0 : 4];
    }
}

/** Reads the value in a wave of the same workgroup, which is allowed, and must not hide the write
 *  from a race with others. */
PAIR(write_behind_a_read) {
    if (GROUP == 0) {
        if (TID == 0)
            out[0] = one;
        sync_threads();
        if (wave() == 1 && __gpu_lane_id() == 0)
            out[1] = out[0] + one;
    } else if (TID == 0) {
        out[8] = out[faulty ? 0 : 4];
    }
}

/** Counts in bytes. No chip has atomics of bytes, so a loop compares and swaps words. */
PAIR(count_in_bytes) {
    uint8_t GLOBAL *at = (uint8_t GLOBAL *)shared;
    if (TID == 0 && faulty)
        at[0] = (uint8_t)(at[0] + 1 + GROUP);
    else if (TID == 0)
        __scoped_atomic_fetch_add(at + GROUP, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/** Passes values between waves of one workgroup through memory. */
PAIR(memory_without_a_barrier) {
    shared[ID] = in[TID];
    if (!faulty)
        sync_threads();
    out[ID] = shared[GROUP * THREADS + THREADS - 1 - TID];
}

// ---- barriers

PAIR(barrier_on_both_sides) {
    if (faulty) {
        if (wave() == 0) {
            out[0] = 1;
            __builtin_amdgcn_s_barrier();
        } else {
            __builtin_amdgcn_s_barrier();
            out[1] = 1;
        }
    } else {
        __builtin_amdgcn_s_barrier();
    }
}

PAIR(barrier_left_out_by_one_wave) {
    tile[TID] = in[TID];
    if (!faulty || wave() == 0)
        sync_threads();
    out[TID] = 1;
    sync_threads();
    out[TID + THREADS] = 1;
}

PAIR(one_turn_more) {
    for (word i = 0; i < (faulty ? 2 + wave() : 2 * one); i++) {
        out[ID] = i;
        __builtin_amdgcn_s_barrier();
    }
    out[ID] = 9;
    __builtin_amdgcn_s_barrier();
    out[ID] = 10;
}

// ---- alignment

PAIR(tile_at_an_odd_byte) {
    tile[TID] = one;
    sync_threads();
    LOCAL char *at = (LOCAL char *)tile + (faulty ? one : 0);
    out[ID] = *(LOCAL volatile word *)at;
}

PAIR(wide_store_at_two_bytes) {
    LOCAL char *at = (LOCAL char *)tile + (faulty ? 2 * one : 0);
    if (TID == 0)
        *(LOCAL volatile uint64_t *)at = 1;
}

PAIR(scalar_load_at_two_bytes) {
    const char CONSTANT *at = (const char CONSTANT *)in + (faulty ? 2 * one : 0);
    out[TID] = *(const word CONSTANT *)at;
}
