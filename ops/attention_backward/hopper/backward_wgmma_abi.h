// SPDX-License-Identifier: Apache-2.0
// What the backward pass's kernels for Hopper share with their launch code.
#ifndef QK_BACKWARD_WGMMA_ABI_H
#define QK_BACKWARD_WGMMA_ABI_H

#include "../../shared/tensor_map_abi.h"
#include "../attention_backward_abi.h"

enum {
    QK_BACKWARD_TEAMS = 2, // that multiply; each has 64 keys of a tile
    QK_BACKWARD_KEYS = 64 * QK_BACKWARD_TEAMS,
    QK_BACKWARD_BOX = 64, // columns of a box, 128 bytes
    QK_BACKWARD_THREADS = (QK_BACKWARD_TEAMS + 1) * 128,
    QK_BACKWARD_END_THREADS = 256 // of the kernels before and after
};

/** The queries of a block, for head dims up to `columns`: as many as a thread has registers for. */
#define QK_BACKWARD_QUERIES(columns) ((columns) == 64 ? 128 : 64)

/** Blocks of queries are numbered for each head, request after request; each has sums of dq, its
 *  rows' log-sum-exp and delta, and a count of the tiles of keys that have been added to dq.
 *
 *  Maps are of [requests, tokens, heads, head_dim], ragged tensors being one request, with boxes of
 *  QK_BACKWARD_BOX columns, and a block's queries or a tile's keys. */
typedef struct qk_backward_wgmma_args {
    qk_tensor_map maps[4]; // of q, k, v and d_o
    qk_backward_args common;
    float *sums;              // [heads, blocks, queries of a block * columns], as threads hold them
    float *rows;              // [heads, blocks, 2, queries of a block]
    uint64_t *done;           // [heads, blocks]
    uint32_t blocks;          // of all requests
    uint32_t block_step;      // from a request's first block to the next one's; 0: ragged
    uint32_t most_blocks;     // of the longest request
    uint32_t requests;        // of all
    uint32_t q_step, kv_step; // from a request to the next one in the maps: 1, ragged 0
} qk_backward_wgmma_args;

/** Returns a request's first block. A ragged request has one block more than its tokens fill, so
 *  that blocks of different requests are different ones wherever requests begin. */
QK_INLINE uint32_t qk_backward_first_block(const qk_backward_wgmma_args *p,
                                           const qk_attention_request *r, uint32_t request,
                                           uint32_t queries) {
    return p->block_step ? request * p->block_step : (uint32_t)r->qo_begin / queries + request;
}

#endif
