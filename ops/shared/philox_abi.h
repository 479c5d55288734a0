// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based random generator of dropout and of sampling, and its words as
// numbers, for host and device.
#ifndef QK_PHILOX_ABI_H
#define QK_PHILOX_ABI_H

#include <stdint.h>

/** Computes four words of the stream `seed` at `counter` of one of the stream's subsequences.
 *  Source: Salmon et al., doi:10.1145/2063384.2063405. */
static inline __attribute__((always_inline)) void qk_philox_of(uint64_t seed, uint64_t subsequence,
                                                               uint64_t counter, uint32_t out[4]) {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * c0, b = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)a;
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/** Computes four words of the stream `seed` at `counter`. */
static inline __attribute__((always_inline)) void qk_philox(uint64_t seed, uint64_t counter,
                                                            uint32_t out[4]) {
    qk_philox_of(seed, 0, counter, out);
}

/** Returns a word, read as signed, as a number from 0 to 1; both ends occur, and rounding may pass
 *  them by 2^-24. The factor is the least f32 with which the largest word reaches 1. Product and
 *  sum are rounded one by one. Source: AOTriton's debug_fill_dropout_rng. */
static inline __attribute__((always_inline)) float qk_philox_uniform(uint32_t word) {
    return (float)(int32_t)word * 2.32830658e-10f + 0.5f;
}

#endif
