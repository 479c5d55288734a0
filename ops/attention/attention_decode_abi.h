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
} qk_attention_decode_args;

#endif
