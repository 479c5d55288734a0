// SPDX-License-Identifier: Apache-2.0
// Queries of FP8 for attention's kernels on Hopper, which become bf16 on their way to LDS.
//
// An image says QK_FP8, 1 where k and v are codes of e4m3fn; only then q may be of FP8.
#ifndef QK_ATTENTION_QUERY_GPU_H
#define QK_ATTENTION_QUERY_GPU_H

#include "../attention_abi.h"
#include "elements.h"
#include "halves.h"

/** Returns whether q holds codes, of e4m3fn or e5m2. */
QD_INLINE bool are_codes(const qk_attention_args *g) {
#if QK_FP8 && !defined(QK_F16)
    return g->dtype_q > QD_BF16;
#else
    (void)g;
    return false;
#endif
}

/** Puts eight codes, at a multiple of 8 bytes, into LDS as bf16; zeros unless `is_in`. */
QD_INLINE void put_codes(uint32_t to, uint32_t dtype, const void *from, bool is_in) {
    const qd_u32x2 codes = is_in ? *(const qd_u32x2 *)from : (qd_u32x2)0;
    *(QD_LDS qd_u32x4 *)(uintptr_t)to = (int)dtype - 3 == QD_E5M2 // 3: e4m3fn
                                            ? qd_widen8(QD_E5M2, false, codes)
                                            : qd_widen8(QD_E4M3FN, false, codes);
}

#endif
