// SPDX-License-Identifier: Apache-2.0
// Products of 16 x 16 by half an operand, for kernels that place each instruction (gfx9).
#ifndef QD_MMA_CDNA_HALVES_H
#define QD_MMA_CDNA_HALVES_H

#include "../mma.h"

/** Returns d + x y^T over half of k: qd_mma16 is these two products, half 0 first. */
QD_INLINE qd_mma16_acc qd_mma16_half(bool is_f16, qd_mma16_operand x, qd_mma16_operand y, int half,
                                     qd_mma16_acc d) {
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y);
        return __builtin_amdgcn_mfma_f32_16x16x16f16(half ? a.hi : a.lo, half ? b.hi : b.lo, d, 0,
                                                     0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(half ? a.hi : a.lo, half ? b.hi : b.lo, d, 0,
                                                     0, 0);
}

#endif
