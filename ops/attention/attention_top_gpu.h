// SPDX-License-Identifier: Apache-2.0
// The largest of chunks' log-sum-exps, or a NaN among them, which a maximum would pass over.
#ifndef QK_ATTENTION_TOP_GPU_H
#define QK_ATTENTION_TOP_GPU_H

#include "reduce.h"

/** Returns the larger number, or a NaN. */
QD_INLINE float larger(float a, float b) {
    return b > a || b != b ? b : a;
}

/** Returns the largest of the lanes' numbers, or a NaN. */
QD_INLINE float wave_max(float v) {
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 8)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 4)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 2)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 1)));
    float max = -__builtin_inff();
    QD_UNROLL for (uint32_t lane = 0; lane < QD_WAVE; lane += QD_ROW)
        max = larger(max, qd_as_f32(qd_read_lane(qd_as_u32(v), lane)));
    return max;
}

#endif
