// SPDX-License-Identifier: Apache-2.0
// Results of products on their way to the next product, on every target (phases.h has what CDNA's
// large kernels need besides).
#ifndef QD_RESULTS_H
#define QD_RESULTS_H

#include "halves.h"
#include "mma.h"

/** Keeps a product before what follows: the compiler would move it behind a branch, and leave the
 *  loads of its operands, which then wait in registers. */
QD_INLINE void qd_keep_result([[maybe_unused]] qd_mma_acc *d) {
#if !defined(__NVPTX__)
    asm volatile("" : "+v"(*d));
#endif
}

/** Rounds two f32 to the 16-bit kind and returns them in a word, a low. On gfx950 and NVIDIA an
 *  instruction rounds to bf16, to nearest even; elsewhere ties go away from zero, as in qd_round2,
 *  for negative numbers too. */
QD_INLINE uint32_t qd_round_results(bool is_f16, float a, float b) {
#if defined(__gfx950__)
    if (!is_f16)
        return __builtin_bit_cast(uint32_t, (qd_bf16x2){(__bf16)a, (__bf16)b});
#endif
    return qd_round2(is_f16, a, b);
}

#endif
