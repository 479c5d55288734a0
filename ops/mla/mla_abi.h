// SPDX-License-Identifier: Apache-2.0
// What MLA's matrix kernel shares with its launch code.
#ifndef QK_MLA_ABI_H
#define QK_MLA_ABI_H

#include "../attention/attention_any_abi.h"

/** The arguments of attention, and where q_pe and kpe lie. */
typedef struct qk_mla_args {
    qk_attention_args common;
    qk_attention_tail tail;
} qk_mla_args;

#endif
