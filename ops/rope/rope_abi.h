// SPDX-License-Identifier: Apache-2.0
// What rope's GPU kernels and their launch code share: one struct of arguments.
#ifndef QK_ROPE_ABI_H
#define QK_ROPE_ABI_H

#include "../kvcache/pages_abi.h"

#include <stdint.h>

/** Where angles come from: see rope.h. */
enum { QK_ROPE_BY_FREQUENCY, QK_ROPE_BY_POSITION, QK_ROPE_BY_TOKEN };
/** Parts of a call: q and k turn, the others are only scaled. */
enum { QK_ROPE_Q, QK_ROPE_K, QK_ROPE_Q_NOPE, QK_ROPE_K_NOPE, QK_ROPE_V, QK_ROPE_PARTS };
enum { QK_ROPE_MAX_PAIRS = 256 }; // pairs whose frequencies travel with the arguments

/** Rows of [batch, token, head, width]. Strides are in elements; heads 0: there are no such
 *  rows. */
typedef struct qk_rope_rows {
    const void *in;
    void *out;
    const void *weight; // of the heads' RMSNorm; null: none
    int64_t in_batch, in_token, in_head;
    int64_t out_batch, out_token, out_head; // paged: of a page, a place in it, a head
    uint32_t heads, width;
    float scale; // FP8: elements are multiplied by it
    uint32_t is_paged;
} qk_rope_rows;

typedef struct qk_rope_args {
    qk_rope_rows parts[QK_ROPE_PARTS];
    qk_pages pages;
    const int32_t *pos_ids;          // [n]; null: by segments
    const int32_t *indptr, *offsets; // of segments: position = offsets[b] + t - indptr[b]
    const void *cos, *sin;           // tables of rows of pairs
    int64_t table_row;
    uint32_t table_step, table_dtype; // elements from pair to pair; one of x's dtypes
    uint32_t angles;
    uint32_t n, inner, batches; // tokens; tokens a batch; segments of indptr
    uint32_t rotary_dim, is_interleaved;
    uint32_t is_quant, kind; // out is FP8 of that kind
    uint32_t chunks;         // waves that share a token
    float eps;
    uint64_t turns[QK_ROPE_MAX_PAIRS]; // each pair's turns a position, in units of 2^-64
} qk_rope_args;

#endif
