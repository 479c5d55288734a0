// SPDX-License-Identifier: Apache-2.0
// What attention's kernel for Hopper shares with its launch code.
#ifndef QK_ATTENTION_WGMMA_ABI_H
#define QK_ATTENTION_WGMMA_ABI_H

#include "../../shared/tensor_map_abi.h"
#include "../attention_abi.h"

enum {
    QK_WGMMA_TEAMS = 3, // that multiply; each has 64 queries of a tile
    QK_WGMMA_ROWS = 64 * QK_WGMMA_TEAMS,
    QK_WGMMA_BOX = 64, // columns of a box, 128 bytes
    QK_WGMMA_THREADS = (QK_WGMMA_TEAMS + 1) * 128
};

/** The keys of a tile, for head dims up to `columns`: as many as a thread has registers for. */
#define QK_WGMMA_KEYS(columns) ((columns) == 64 ? 128 : 80)

/** Maps of [requests, tokens, heads, head_dim] with boxes of QK_WGMMA_BOX columns: 64 queries, or
 *  a tile's keys. */
typedef struct qk_attention_wgmma_args {
    qk_tensor_map maps[4]; // of q, k, v and o
    qk_attention_args common;
} qk_attention_wgmma_args;

#endif
