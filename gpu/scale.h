// SPDX-License-Identifier: Apache-2.0
// Scales of FP8 results: the largest magnitude of a run, the scale that brings it to the kind's
// largest value, and groups of 128 elements as codes.
#ifndef QD_SCALE_H
#define QD_SCALE_H

#include "elements.h"
#include "reduce.h"

/** Returns the bits of the largest magnitude in v. As integers, such bits have the order of the
 *  magnitudes. NaNs do not count. */
QD_INLINE uint32_t qd_run_top(qd_f32x8 v) {
    float top = 0;
    QD_UNROLL for (int i = 0; i < QD_RUN; i++)
        top = __builtin_fmaxf(top, __builtin_fabsf(v[i]));
    return qd_as_u32(top);
}

/** Returns max(amax, eps) / most; `top` is the bits of amax. */
QD_INLINE float qd_scale_of(uint32_t top, float eps, float most) {
    const float amax = qd_as_f32(top);
    return (amax > eps ? amax : eps) / most;
}

/** Returns what qd_run_top does for a run of f16 or bf16, whose bits are w. */
QD_INLINE uint32_t qd_run_top_16(int dtype, qd_u32x4 w) {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 800
    typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
    typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
    uint32_t top = w.x & 0x7FFF7FFF;
    QD_UNROLL for (int i = 1; i < 4; i++) { // two elements at a time
        const uint32_t next = w[i] & 0x7FFF7FFF;
        if (dtype == QD_BF16)
            top = __builtin_bit_cast(uint32_t,
                                     __builtin_elementwise_max(__builtin_bit_cast(bf16x2, top),
                                                               __builtin_bit_cast(bf16x2, next)));
        else
            top = __builtin_bit_cast(uint32_t,
                                     __builtin_elementwise_max(__builtin_bit_cast(f16x2, top),
                                                               __builtin_bit_cast(f16x2, next)));
    }
    const float low = qd_load1(dtype, &top), high = qd_load1(dtype, (const char *)&top + 2);
    return qd_as_u32(__builtin_fmaxf(__builtin_fmaxf(low, high), 0));
#else
    return qd_run_top(qd_from_16(dtype, w));
#endif
}

// ---- four groups of 128 elements of 16 bits at once

enum { QD_GROUPS = 4 };

/** Returns the largest magnitude of group lane % 4, whose groups' runs 16 neighbouring lanes have:
 *  lanes exchange halves of what they have, so that a maximum of four groups takes five exchanges,
 *  and one lane in four computes each scale. The whole wave takes part. */
QD_INLINE uint32_t qd_four_tops(const uint32_t top[QD_GROUPS]) {
    const bool upper = qd_lane() & 2, odd = qd_lane() & 1;
    uint32_t pair[2];
    QD_UNROLL for (int i = 0; i < 2; i++) {
        const uint32_t own = upper ? top[i + 2] : top[i], other = upper ? top[i] : top[i + 2];
        pair[i] = qd_max(own, qd_swap_lanes(other, 2));
    }
    uint32_t v = qd_max(odd ? pair[1] : pair[0], qd_swap_lanes(odd ? pair[0] : pair[1], 1));
    v = qd_max(v, QD_ROW_PARTNER(v, 8));
    return qd_max(v, QD_ROW_PARTNER(v, 4));
}

/** Quantises four groups, of each of which this lane has the run raw[i]. Returns the scale of group
 *  lane % 4. The whole wave takes part. */
QD_INLINE float qd_quantize_four(int dtype, int kind, float eps, const qd_u32x4 raw[QD_GROUPS],
                                 qd_u32x2 codes[QD_GROUPS]) {
    uint32_t top[QD_GROUPS];
    QD_UNROLL for (int i = 0; i < QD_GROUPS; i++)
        top[i] = qd_run_top_16(dtype, raw[i]);
    const float scale = qd_scale_of(qd_four_tops(top), eps, qd_fp8_max(kind));
    const uint32_t inverse = qd_as_u32(1.0f / scale);
    QD_UNROLL for (uint32_t i = 0; i < QD_GROUPS; i++)
        codes[i] =
            qd_encode8(kind, qd_from_16(dtype, raw[i]) * qd_as_f32(qd_lane_of_four(inverse, i)));
    return scale;
}

/** Stores the first `count` of eight codes, at any address. */
QD_INLINE void qd_store_codes_part(uint8_t *q, uint32_t count, qd_u32x2 codes) {
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < count)
            q[i] = (uint8_t)(codes[i / 4] >> (i % 4 * 8));
}

#endif
