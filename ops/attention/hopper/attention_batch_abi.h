// SPDX-License-Identifier: Apache-2.0
// What attention's kernel for batches on Hopper shares with its launch code.
#ifndef QK_ATTENTION_BATCH_ABI_H
#define QK_ATTENTION_BATCH_ABI_H

#include "../../shared/tensor_map_abi.h"
#include "../attention_abi.h"

enum {
    QK_BATCH_BOX = 64, // columns of a box, 128 bytes
    QK_BATCH_PART = 16 // keys of a box of pages
};

/** The keys of a tile that comes in boxes, for head dims of v up to `columns`: as many as a thread
 *  has registers for. */
#define QK_BATCH_KEYS(columns) ((columns) == 64 ? 128 : 80)

/** Maps of [requests, tokens, heads, head_dim], ragged tensors being one request. Boxes have
 *  QK_BATCH_BOX columns, and a team's rows or a tile's keys, of pages QK_BATCH_PART keys. Pages
 *  that such boxes do not divide evenly have no map. */
typedef struct qk_attention_batch_args {
    qk_tensor_map maps[3]; // of q, k and v
    qk_attention_args common;
    uint32_t is_boxed;        // k and v have maps
    uint32_t q_step, kv_step; // from a request to the next one in the maps: 1, ragged 0
    uint32_t pack_shift;      // log2 of the heads in a tile: qk_attention_pack
    float cap_scale;          // soft_cap's tanh is of half of a product times this, base 2
} qk_attention_batch_args;

#endif
