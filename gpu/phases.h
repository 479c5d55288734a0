// SPDX-License-Identifier: Apache-2.0
// For kernels of CDNA that say where each instruction stands: single matrix instructions, values
// that stay on their side of a point, barriers that wait for nothing.
#ifndef QD_PHASES_H
#define QD_PHASES_H

#include "copy.h"
#include "mma.h"

/** Returns d + x y^T over eight of the operands' 16 k, the lower or the upper half of each lane's
 *  bytes: one of the two instructions of qd_mma. */
QD_INLINE qd_f32x16 qd_mma_half(bool is_f16, uint32_t half, qd_u32x4 x, qd_u32x4 y, qd_f32x16 d) {
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y);
        return half ? __builtin_amdgcn_mfma_f32_32x32x8f16(a.hi, b.hi, d, 0, 0, 0)
                    : __builtin_amdgcn_mfma_f32_32x32x8f16(a.lo, b.lo, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y);
    return half ? __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.hi, b.hi, d, 0, 0, 0)
                : __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.lo, b.lo, d, 0, 0, 0);
}

/** Keeps what a variable's value is computed from before this point, and what uses it behind. The
 *  compiler moves what is computed, and not used yet, over branches and barriers. */
#define QD_ANCHOR(x) asm volatile("" : "+v"(x))

/** As qd_meet, and keeps every instruction on its side. */
QD_INLINE void qd_meet_pinned(void) {
    qd_pin();
    __builtin_amdgcn_s_barrier();
    qd_pin();
}

/** Returns x, which is the same in all lanes, as a scalar of which the compiler knows nothing else:
 *  clang 22 computes differences that stop at 0 in vector registers. */
QD_INLINE uint32_t qd_scalar(uint32_t x) {
    asm("" : "+s"(x));
    return x;
}

/** Loads into a scalar register a number that is the same in all lanes, and that nobody writes
 *  while the kernel runs. */
QD_INLINE int32_t qd_const_i32(const int32_t *p) {
    return *(const __attribute__((address_space(4))) int32_t *)(uintptr_t)p;
}

#endif
