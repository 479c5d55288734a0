// SPDX-License-Identifier: Apache-2.0
// The arguments of gemm kernels for products that take few microseconds.
#ifndef QK_GEMM_WORDS_GPU_H
#define QK_GEMM_WORDS_GPU_H

#include "gemm_gpu.h"

/** Returns the arguments with bytes that share a word taken out of that word: each by itself is
 *  loaded by lanes, which takes as long as a load of a. */
QD_INLINE qk_gemm_args qk_gemm_by_words(const qk_gemm_args *given) {
    qk_gemm_args g = *given;
    uint32_t word;
    __builtin_memcpy(&word, __builtin_assume_aligned(&given->grouping, 4), sizeof word);
    g.grouping = (uint8_t)word;
    g.type_d = (uint8_t)(word >> 24);
    __builtin_memcpy(&word, __builtin_assume_aligned(&given->is_packed, 4), sizeof word);
    g.zero_padding = (uint8_t)(word >> 8);
    g.has_epilogue = (uint8_t)(word >> 16);
    g.activation = (uint8_t)(word >> 24);
    __builtin_memcpy(&word, __builtin_assume_aligned(&given->type_bias, 4), sizeof word);
    g.type_bias = (uint8_t)word;
    g.type_gate = (uint8_t)(word >> 8);
    return g;
}

#endif
