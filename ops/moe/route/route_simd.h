// SPDX-License-Identifier: Apache-2.0
// Routing with vectors of 16 scores: included by route_cpu.c, route_avx2.c and route_avx512.c, each
// for its instructions. The operations are those of score_abi.h, lane by lane.
#ifndef QNI_MOE_ROUTE_SIMD_H
#define QNI_MOE_ROUTE_SIMD_H

#include "../moe.h"

#include <string.h>

enum { LANES = QK_MOE_SUMS };
typedef float f32s __attribute__((vector_size(4 * LANES)));
typedef int32_t i32s __attribute__((vector_size(4 * LANES)));
typedef uint32_t u32s __attribute__((vector_size(4 * LANES)));
typedef uint16_t u16s __attribute__((vector_size(2 * LANES)));
typedef _Float16 f16s __attribute__((vector_size(2 * LANES)));

#define QN_INLINE static inline __attribute__((always_inline))

QN_INLINE f32s all_of(float v) {
    return (f32s){} + v;
}
QN_INLINE f32s select_of(i32s mask, f32s a, f32s b) {
    return (f32s)(((u32s)a & (u32s)mask) | ((u32s)b & ~(u32s)mask));
}
QN_INLINE f32s fma_of(f32s a, f32s b, f32s c) {
    return __builtin_elementwise_fma(a, b, c);
}

/** Loads `count` elements from element i on, up to 16; the other lanes are -infinity. */
QN_INLINE f32s load(qni_dtype dtype, const void *p, int64_t i, int64_t count) {
    f32s v = all_of(-HUGE_VALF);
    u16s bits;
    if (dtype == QNI_F32 && count >= LANES) {
        memcpy(&v, (const float *)p + i, sizeof v);
        return v;
    }
    if (count < LANES) {
        for (int64_t k = 0; k < count; k++)
            v[k] = (float)qni_get(dtype, p, i + k);
        return v;
    }
    memcpy(&bits, (const uint16_t *)p + i, sizeof bits);
    return dtype == QNI_F16 ? __builtin_convertvector((f16s)bits, f32s)
                            : (f32s)(__builtin_convertvector(bits, u32s) << 16);
}

QN_INLINE f32s exp_of(f32s x) {
    static const float c[] = QK_MOE_EXP_TERMS;
    const f32s sum = fma_of(x, all_of(qk_moe_log2_e), all_of(qk_moe_magic));
    const f32s n = sum - qk_moe_magic;
    const f32s r = fma_of(n, all_of(-qk_moe_ln2_low), fma_of(n, all_of(-qk_moe_ln2_high), x));
    f32s p = all_of(c[0]);
    for (int i = 1; i < 6; i++)
        p = fma_of(p, r, all_of(c[i]));
    const f32s y = fma_of(p, r * r, r) + 1.0f;
    const f32s scaled = (f32s)((u32s)y + ((u32s)sum << 23));
    return select_of(x < qk_moe_least, all_of(0), select_of(x != x, x, scaled));
}

QN_INLINE f32s sigmoid_of(f32s x) {
    const f32s e = exp_of(select_of(x > 0.0f, -x, x));
    return select_of(x > 0.0f, all_of(1), e) / (1.0f + e);
}

QN_INLINE u32s key_of(f32s score) {
    const u32s bits = (u32s)(score + 0.0f);
    const u32s is_negative = (u32s)((i32s)bits < 0), is_nan = (u32s)(score != score);
    const u32s key = (~bits & is_negative) | ((bits | 0x80000000) & ~is_negative);
    return (key & ~is_nan) | (1 & is_nan);
}

/** Returns the sum of the lanes, in pairs. */
QN_INLINE float sum_of(f32s v) {
    for (int step = LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            v[i] += v[i + step];
    return v[0];
}

/** Computes a token's scores and keys; those past the last expert are of no expert. */
QN_INLINE void find_keys(const qni_moe_route_problem *p, qni_dtype dtype, const void *logits,
                         f32s *scores, u32s *keys) {
    const int64_t runs = (p->experts + LANES - 1) / LANES;
    f32s tops = all_of(-HUGE_VALF), sums = {};
    for (int64_t i = 0; i < runs; i++) {
        scores[i] = load(dtype, logits, i * LANES, p->experts - i * LANES);
        tops = select_of(scores[i] > tops, scores[i], tops);
    }
    if (p->is_sigmoid) {
        for (int64_t i = 0; i < runs; i++)
            scores[i] = sigmoid_of(scores[i]);
    } else {
        const float top = __builtin_reduce_max(tops);
        for (int64_t i = 0; i < runs; i++) {
            scores[i] = exp_of(scores[i] - top);
            if ((i + 1) * LANES > p->experts) // of no expert, whatever the top is
                for (int64_t k = p->experts - i * LANES; k < LANES; k++)
                    scores[i][k] = 0;
            sums += scores[i];
        }
        const f32s sum = all_of(sum_of(sums));
        for (int64_t i = 0; i < runs; i++)
            scores[i] /= sum;
    }
    for (int64_t i = 0; i < runs; i++)
        keys[i] = key_of(
            p->bias ? scores[i] + load(p->dtype_bias, p->bias, i * LANES, p->experts - i * LANES)
                    : scores[i]);
    for (int64_t e = p->experts; e < runs * LANES; e++)
        ((uint32_t *)keys)[e] = 0;
}

/** Takes the best expert that is left away. Returns it, the lowest of equal ones. */
QN_INLINE int64_t take_best(u32s *keys, int64_t runs) {
    u32s tops = keys[0];
    int64_t at = 0;
    for (int64_t i = 1; i < runs; i++)
        tops = __builtin_elementwise_max(tops, keys[i]);
    const uint32_t top = __builtin_reduce_max(tops);
    while (__builtin_reduce_and((u32s)(keys[at / LANES] != top)) != 0)
        at += LANES;
    while (((uint32_t *)keys)[at] != top)
        at++;
    ((uint32_t *)keys)[at] = 0;
    return at;
}

/** Returns the key of the score of a group, whose experts begin at keys. */
QN_INLINE uint32_t group_key(bool by_two, const uint32_t *keys, int64_t size) {
    u32s first = {}, second = {}, next;
    for (int64_t e = 0; e < size; e += LANES) {
        if (size - e >= LANES) {
            memcpy(&next, keys + e, sizeof next);
        } else {
            next = (u32s){};
            for (int64_t k = 0; k < size - e; k++)
                next[k] = keys[e + k];
        }
        second = __builtin_elementwise_max(second, __builtin_elementwise_min(first, next));
        first = __builtin_elementwise_max(first, next);
    }
    const uint32_t top = __builtin_reduce_max(first);
    int64_t lane = 0;
    while (first[lane] != top)
        lane++;
    first[lane] = second[lane]; // the best of the others is this, or another lane's first
    return qk_moe_group_key(by_two, top, __builtin_reduce_max(first));
}

/** Makes 0 of the keys of experts whose groups are not taken. */
QN_INLINE void drop_groups(const qni_moe_route_problem *p, uint32_t *keys) {
    const int64_t size = p->experts / p->groups;
    alignas(64) uint32_t groups[QK_MOE_MAX_GROUPS] = {};
    for (int64_t g = 0; g < p->groups; g++)
        groups[g] = group_key(p->bias != nullptr, keys + g * size, size);
    for (int64_t i = 0; i < p->topk_groups; i++)
        take_best((u32s *)groups, QK_MOE_MAX_GROUPS / LANES);
    for (int64_t g = 0; g < p->groups; g++)
        if (groups[g] != 0)
            memset(keys + g * size, 0, (size_t)size * sizeof *keys);
}

QN_INLINE void write_experts(const qni_moe_route_problem *p, int64_t token, const float *scores,
                             u32s *keys) {
    float *weights = p->weights + token * p->weights_row, sum = 0;
    int32_t *ids = p->ids + token * p->ids_row;
    for (int64_t j = 0; j < p->top_k; j++) {
        const int64_t e = take_best(keys, (p->experts + LANES - 1) / LANES);
        ids[j] = (int32_t)e;
        weights[j] = scores[e];
        sum += scores[e];
    }
    const float all = p->renormalizes ? sum + qk_moe_tiny_sum : 1.0f;
    for (int64_t j = 0; j < p->top_k; j++)
        weights[j] = weights[j] / all * p->scaling;
    for (int64_t j = 0; j < p->shared; j++) {
        ids[p->top_k + j] = (int32_t)(p->experts + j);
        weights[p->top_k + j] = p->shared_weight;
    }
}

/** Routes tokens first .. end - 1. */
static void route_rows(const qni_moe_route_problem *p, int64_t first, int64_t end, float *scratch) {
    const int64_t room = (p->experts + LANES - 1) / LANES * LANES;
    f32s *scores = (f32s *)(void *)scratch;
    u32s *keys = (u32s *)(void *)(scratch + room);
    const int64_t row = p->logits_row * qni_dtype_bytes(p->dtype);
    for (int64_t t = first; t < end; t++) {
        const char *logits = (const char *)p->logits + t * row;
        if (p->dtype == QNI_F32)
            find_keys(p, QNI_F32, logits, scores, keys);
        else
            find_keys(p, p->dtype, logits, scores, keys);
        if (p->topk_groups < p->groups)
            drop_groups(p, (uint32_t *)keys);
        write_experts(p, t, (const float *)scores, keys);
    }
}

#endif
