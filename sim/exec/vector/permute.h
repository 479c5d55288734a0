// SPDX-License-Identifier: Apache-2.0
// Moves any lane's value to any lane, for DPP, the permutes and the swizzles.
#ifndef SIM_PERMUTE_H
#define SIM_PERMUTE_H

#include "../exec.h"

#include <immintrin.h>

typedef uint8_t u8x16 __attribute__((vector_size(16)));

/** Returns sixteen lane numbers, each below SIM_LANES. */
SIM_INLINE u32x16 lane_numbers(const uint8_t *lanes) {
    u8x16 bytes;
    memcpy(&bytes, lanes, sizeof bytes);
    return __builtin_convertvector(bytes, u32x16);
}

/** Returns block[from[i]] in lane i; `from` is below 16. */
SIM_INLINE u32x16 pick_within(u32x16 block, u32x16 from) {
#ifdef __AVX512F__
    return (u32x16)_mm512_permutexvar_epi32((__m512i)from, (__m512i)block);
#else
    u32x16 out;
    for (unsigned i = 0; i < 16; i++)
        out[i] = block[from[i]];
    return out;
#endif
}

/** Returns row[from[i]] in lane i; `from` is below SIM_LANES. */
SIM_INLINE u32x16 pick16(const uint32_t *row, u32x16 from) {
#ifdef __AVX512F__
    __m512i index = (__m512i)from;
    __m512i low = _mm512_permutex2var_epi32((__m512i)load16(row), index, (__m512i)load16(row + 16));
    __m512i high =
        _mm512_permutex2var_epi32((__m512i)load16(row + 32), index, (__m512i)load16(row + 48));
    return (u32x16)_mm512_mask_blend_epi32(_mm512_test_epi32_mask(index, _mm512_set1_epi32(32)),
                                           low, high);
#else
    u32x16 out;
    for (unsigned i = 0; i < 16; i++)
        out[i] = row[from[i]];
    return out;
#endif
}

/** Returns, within each sixteen bytes, of[index[i]] in byte i; `index` is below 16. */
SIM_INLINE u32x16 pick_bytes(u32x16 of, u32x16 index) {
#ifdef __AVX512BW__
    return (u32x16)_mm512_shuffle_epi8((__m512i)of, (__m512i)index);
#else
    __m128i bytes[4], from[4];
    memcpy(bytes, &of, sizeof bytes);
    memcpy(from, &index, sizeof from);
    for (unsigned i = 0; i < 4; i++)
        bytes[i] = _mm_shuffle_epi8(bytes[i], from[i]);
    memcpy(&of, bytes, sizeof of);
    return of;
#endif
}

/** Returns all ones in lanes i where bit from[i] of `mask` is set. */
SIM_INLINE u32x16 picked_bits16(uint64_t mask, u32x16 from) {
    u32x16 low = (u32x16){} + (uint32_t)mask, high = (u32x16){} + (uint32_t)(mask >> 32);
    u32x16 word = select16((u32x16)((from & 32) != 0), high, low);
    return (u32x16)((word >> (from & 31) & 1) != 0);
}

#endif
