// SPDX-License-Identifier: Apache-2.0
// Scales of FP8 results: the largest magnitude of a run, and the scale that brings it to the kind's
// largest value.
#ifndef QD_SCALE_H
#define QD_SCALE_H

#include "elements.h"

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

/** Stores the first `count` of eight codes, at any address. */
QD_INLINE void qd_store_codes_part(uint8_t *q, uint32_t count, qd_u32x2 codes) {
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < count)
            q[i] = (uint8_t)(codes[i / 4] >> (i % 4 * 8));
}

#endif
