// SPDX-License-Identifier: Apache-2.0
// What attention_decode_gpu.c shares with its launch code.
#ifndef QK_ATTENTION_DECODE_ABI_H
#define QK_ATTENTION_DECODE_ABI_H

#include "attention_abi.h"

/** Its arguments. */
typedef struct qk_attention_decode_args {
    qk_attention_args common;
    uint32_t is_whole; // a workgroup takes all chunks of a request and a head, not a work item
    uint32_t merges;   // and merges them
    uint32_t page_factor, page_bits;
} qk_attention_decode_args;

/** Finds the factor and bits by which qk_attention_page_of divides by page_size; 0 stands for one
 *  page that holds all keys. Source: doi:10.1145/178243.178249. */
QK_INLINE void qk_attention_find_page_factor(uint32_t page_size, uint32_t *factor, uint32_t *bits) {
    *bits = page_size > 1 ? 32 - (uint32_t)__builtin_clz(page_size - 1) : 0;
    const uint64_t unit = (uint64_t)1 << (31 + *bits);
    *factor = page_size ? (uint32_t)((unit + page_size - 1) / page_size) : 0;
}

/** Returns key / page_size, for keys below 2^31. */
QK_INLINE uint32_t qk_attention_page_of(uint32_t key, uint32_t factor, uint32_t bits) {
    return (uint32_t)((uint64_t)(2 * key) * factor >> 32) >> bits;
}

#endif
