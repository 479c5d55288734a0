// SPDX-License-Identifier: Apache-2.0
// Rounds runs of eight f32 to bf16 and to FP8 in fewer instructions than elements.h, where
// something is known of the values.
#ifndef QD_NARROW_H
#define QD_NARROW_H

#include "elements.h"
#include "halves.h"

#if !defined(__NVPTX__) && !defined(__gfx950__)
#define QD_ROUNDS_BY_ADDING 1 // no instruction makes bf16
#endif

#if QD_ROUNDS_BY_ADDING
/** Returns the bits of x, with which the upper half is x rounded to bf16, ties to even. */
QD_INLINE uint32_t qd_upper_rounded(float x) {
    const uint32_t bits = qd_as_u32(x);
    return bits + (bits >> 16 & 1) + 0x7FFF;
}
#endif

/** Returns what qd_to_16 does. For bf16 the bits of each NaN in v have a lower half below 0x8000:
 *  such NaNs arithmetic makes itself, or keeps of operands that were bf16. The addition then cannot
 *  carry a NaN past the largest one, and NaNs need no instructions of their own. */
QD_INLINE qd_u32x4 qd_short_to_16(int dtype, qd_f32x8 v) {
#if QD_ROUNDS_BY_ADDING
    if (dtype == QD_BF16) {
        qd_u32x4 w;
        QD_UNROLL for (int i = 0; i < 4; i++)
            w[i] = qd_halves(qd_upper_rounded(v[2 * i]), qd_upper_rounded(v[2 * i + 1]), true);
        return w;
    }
#endif
    return qd_to_16(dtype, v);
}

/** Returns v with each NaN replaced by the one that arithmetic makes. */
QD_INLINE qd_f32x8 qd_with_short_nans(qd_f32x8 v) {
    QD_UNROLL for (int i = 0; i < QD_RUN; i++)
        if ((qd_as_u32(v[i]) & 0x7FFFFFFF) > 0x7F800000)
            v[i] = qd_as_f32(0x7FC00000);
    return v;
}

/** Returns what qd_encode8 does, if the values are NaN or at most the kind's largest, but for a few
 *  units in the last place: those of a group over its scale. */
QD_INLINE qd_u32x2 qd_encode8_bounded(int kind, qd_f32x8 v) {
#if QD_HAS_FP8_FNUZ // its instruction makes the one NaN code of every NaN
    if (qd_fp8_is_native(kind)) {
        qd_u32x2 codes;
        QD_UNROLL for (int i = 0; i < 2; i++) {
            const int low = QD_FP8_CVT_PK(kind, v[4 * i], v[4 * i + 1], 0, false);
            codes[i] = (uint32_t)QD_FP8_CVT_PK(kind, v[4 * i + 2], v[4 * i + 3], low, true);
        }
        return codes;
    }
#endif
    return qd_encode8(kind, v);
}

#endif
