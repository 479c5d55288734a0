// SPDX-License-Identifier: Apache-2.0
// What the any-shape kernel for latent attention whose caches have scales of groups shares with its
// launch code.
#ifndef QK_ATTENTION_GROUPS_ABI_H
#define QK_ATTENTION_GROUPS_ABI_H

#include "attention_any_abi.h"

enum { QK_ATTENTION_GROUP = 128 }; // elements of a key, in front of its tail, with a scale of their
                                   // own

typedef struct qk_attention_groups_args {
    qk_attention_any_args any;
    qk_attention_rows scales; // f32; a key's lie together
    uint32_t dtype_tail, unused;
} qk_attention_groups_args;

#endif
