// SPDX-License-Identifier: Apache-2.0
// What MLA's kernel for Hopper shares with its launch code.
#ifndef QK_MLA_WGMMA_ABI_H
#define QK_MLA_WGMMA_ABI_H

#include "../mla_abi.h"

enum {
    QK_MLA_ROWS = 64, // of a workgroup: queries times heads
    QK_MLA_DIM = 512, // of ckv; the rope part has QK_ATTENTION_MAX_TAIL elements
    QK_MLA_TEAMS = 2, // that multiply; a third one loads
    QK_MLA_THREADS = (QK_MLA_TEAMS + 1) * 128
};

#endif
