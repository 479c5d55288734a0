// SPDX-License-Identifier: Apache-2.0
// The scores of experts in f32, for host and device: every operation is one that all targets round
// alike, so that all devices get equal bits and choose the same experts.
#ifndef QK_MOE_SCORE_ABI_H
#define QK_MOE_SCORE_ABI_H

#include <stdint.h>

enum {
    QK_MOE_SUMS = 16, // partial sums of a softmax: sum i has experts i, i + 16, …, in this order
    QK_MOE_MAX_GROUPS = 64 // of experts
};

/** What is added to a sum of weights before they are divided by it. */
constexpr float qk_moe_tiny_sum = 1e-20f;

/** The numbers of qk_moe_exp: ln(2) as a sum, and exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2) /
 *  2. */
constexpr float qk_moe_ln2_high = 0x1.62e400p-1f, qk_moe_ln2_low = 0x1.7f7d1cp-20f,
                qk_moe_log2_e = 0x1.715476p+0f, qk_moe_magic = 0x1.8p23f, qk_moe_least = -87.0f;
#define QK_MOE_EXP_TERMS                                                                           \
    {0x1.9fca98p-13f, 0x1.6d968ap-10f, 0x1.1111e2p-7f, 0x1.555480p-5f, 0x1.555554p-3f, 0x1p-1f}

/** Returns exp(x) for x <= 0, with a relative error of at most 2^-23; 0 below -87. Adding 1.5 *
 *  2^23 rounds x / ln(2) to an integer in the low bits of the sum, which then goes to the
 *  exponent. */
static inline float qk_moe_exp(float x) {
    const float c[] = QK_MOE_EXP_TERMS;
    const float sum = __builtin_fmaf(x, qk_moe_log2_e, qk_moe_magic), n = sum - qk_moe_magic;
    const float r = __builtin_fmaf(n, -qk_moe_ln2_low, __builtin_fmaf(n, -qk_moe_ln2_high, x));
    float p = c[0];
    for (int i = 1; i < 6; i++)
        p = __builtin_fmaf(p, r, c[i]);
    const float y = __builtin_fmaf(p, r * r, r) + 1.0f;
    const uint32_t bits =
        __builtin_bit_cast(uint32_t, y) + (__builtin_bit_cast(uint32_t, sum) << 23);
    return x < qk_moe_least ? 0.0f : x != x ? x : __builtin_bit_cast(float, bits);
}

/** Returns 1 / (1 + exp(-x)). */
static inline float qk_moe_sigmoid(float x) {
    const float e = qk_moe_exp(x > 0 ? -x : x);
    return (x > 0 ? 1.0f : e) / (1.0f + e);
}

/** Returns a number that has the order of scores; that of a NaN is the least, 1. 0 is left for
 *  experts that cannot be chosen. */
static inline uint32_t qk_moe_key(float score) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, score + 0.0f); // -0 becomes 0
    return score != score ? 1 : bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/** Returns the score of a key above 1. */
static inline float qk_moe_score_of(uint32_t key) {
    return __builtin_bit_cast(float, key & 0x80000000 ? key & 0x7FFFFFFF : ~key);
}

/** Returns the key of a group's score: of the sum of its two largest, or of its largest. `second`
 *  0: it has one expert. */
static inline uint32_t qk_moe_group_key(bool by_two, uint32_t first, uint32_t second) {
    if (!by_two || second == 0 || first == 1)
        return first;
    return second == 1 ? 1 : qk_moe_key(qk_moe_score_of(first) + qk_moe_score_of(second));
}

#endif
