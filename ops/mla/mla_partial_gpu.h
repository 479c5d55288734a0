// SPDX-License-Identifier: Apache-2.0
// The results of a split request's chunks, which CDNA's kernels of latent attention write and
// mla_merge_gpu.c reads, in the place of the other kernels' f32.
//
// A value of e4m3 is at most 448, and so is a chunk's result, a mean of them before the cache's
// scale: f16 holds it, and rounds it by an eighth of what bf16 rounds weights by, or by 2^-25 if
// that is more. A NaN stays one. Half of the bytes go to memory and back.
#ifndef QK_MLA_PARTIAL_GPU_H
#define QK_MLA_PARTIAL_GPU_H

#include "../attention/attention_abi.h"
#include "elements.h"

/** A pointer to what nobody writes while the kernel runs, and all lanes load alike. */
#define CONSTANT_TO(type) const __attribute__((address_space(4))) type *
#define CONSTANT(type, p) ((CONSTANT_TO(type))(uintptr_t)(p))

enum { DIM = 512, PARTIAL = QK_FP8 ? QD_F16 : QD_F32 };

/** Returns where partial row `at` begins. */
QD_INLINE char *partial_row(const qk_attention_args *g, int64_t at) {
    return (char *)g->partial_o + at * DIM * qd_element_bytes(PARTIAL);
}

#endif
