// SPDX-License-Identifier: Apache-2.0
// What the family's GPU kernels and their launch code share: the structs of arguments.
#ifndef QK_MOE_ABI_H
#define QK_MOE_ABI_H

#include "score_abi.h"

/** LDS of a routing workgroup: a word for each expert of each of its tokens. */
enum { QK_MOE_ROUTE_WORDS = 8192, QK_MOE_ROUTE_TOKENS = 16, QK_MOE_MAX_EXPERTS = 2048 };

/** Pairs that one workgroup sorts. */
enum { QK_MOE_FEW_PAIRS = 1024 };

typedef struct qk_moe_route_args {
    const void *logits, *bias; // bias null: none
    float *weights;
    int32_t *ids;
    int64_t logits_row, weights_row, ids_row; // strides in elements
    uint32_t tokens, experts, top_k, shared, groups, topk_groups;
    uint32_t dtype, bias_dtype;
    uint32_t is_sigmoid, renormalizes;
    float scaling, shared_weight;
} qk_moe_route_args;

/** Pairs, their ids, and where the rows of experts begin. A pointer to an output that is not wanted
 *  is null. */
typedef struct qk_moe_sort_args {
    const int32_t *ids, *expert_map; // expert_map null: ids are this device's
    int32_t *ends, *row_of_pair, *pair_of_row, *expert_of_row, *expert_of_block, *num_rows;
    int64_t ids_row, row_of_pair_row;                        // strides in elements
    uint32_t pairs, top_k, mapped, experts, alignment, rows; // mapped: entries of expert_map
} qk_moe_sort_args;

/** Returns the place of a pair in an array whose rows are `row` elements apart. */
static inline int64_t qk_moe_pair_at(uint32_t pair, uint32_t top_k, int64_t row) {
    return row == (int64_t)top_k ? pair : pair / top_k * row + pair % top_k;
}

/** Returns this device's number of a pair's expert; -1: the pair has no row. */
static inline int32_t qk_moe_expert_of_id(const qk_moe_sort_args *g, int32_t id) {
    if (g->expert_map)
        id = id >= 0 && (uint32_t)id < g->mapped ? g->expert_map[id] : -1;
    return id >= 0 && (uint32_t)id < g->experts ? id : -1;
}
static inline int32_t qk_moe_expert_of(const qk_moe_sort_args *g, uint32_t pair) {
    return qk_moe_expert_of_id(g, g->ids[qk_moe_pair_at(pair, g->top_k, g->ids_row)]);
}

/** Returns x rounded up to a multiple of n. */
static inline uint32_t qk_moe_round_up(uint32_t x, uint32_t n) {
    const uint32_t over = x % n;
    return over ? x + (n - over) : x;
}

/** Strides of rows are in items of item_bytes (16, 4 or 1), of scales in elements. */
typedef struct qk_moe_permute_args {
    const void *x;
    void *out;
    const float *scale; // null: none
    float *scale_out;
    const int32_t *pair_of_row;
    int64_t x_row, out_row, scale_row, scale_column, scale_out_row, scale_out_column;
    uint32_t rows, pairs, top_k, items, item_bytes, groups;
} qk_moe_permute_args;

/** Strides are in elements. */
typedef struct qk_moe_sum_args {
    const void *x, *addend; // addend null: none
    void *out;
    const float *weights;       // null: 1
    const int32_t *row_of_pair; // null: pair p's row is p
    int64_t x_row, addend_row, out_row, weights_row, row_of_pair_row;
    uint32_t tokens, top_k, n, rows;
    uint32_t x_dtype, out_dtype;
    uint32_t is_aligned; // rows begin at multiples of 16 bytes
} qk_moe_sum_args;

/** Largest sizes of a layer that few tokens pass by two launches. */
enum { QK_MOE_FEW_HIDDEN = 8192, QK_MOE_FEW_INNER = 2048, QK_MOE_FEW_TOP_K = 32 };

/** Packed weights of experts and their scales of 128 x 128, of which a row's lie side by side;
 *  strides in elements. */
typedef struct qk_moe_few_weights {
    const void *codes;
    const float *scale;
    int64_t group, scale_group, scale_nb;
    uint32_t packed_k;
} qk_moe_few_weights;

/** A layer of experts, of bf16 and FP8. Strides of rows are in elements. */
typedef struct qk_moe_few_args {
    const void *x, *addend; // addend null: none
    void *between, *out;    // between: [pairs, 2 inner], bf16
    const float *weights;
    qk_moe_few_weights w1, w2;
    qk_moe_sort_args sort; // ids, expert_map, their sizes and numbers
    int64_t x_row, addend_row, out_row, weights_row;
    uint32_t tokens, hidden, inner, out_dtype;
    float eps; // the least largest magnitude of a scale's group
} qk_moe_few_args;

/** Functions of an expert's halves, in the order of qn_moe_function. */
enum { QK_MOE_SILU, QK_MOE_GELU, QK_MOE_GELU_TANH, QK_MOE_SWIGLU };

/** Strides are in elements. */
typedef struct qk_moe_activate_args {
    const void *x;
    void *out;
    float *scale;                 // null: out has x's dtype
    const int32_t *expert_of_row; // null: all rows count
    int64_t x_row, out_row, scale_row, scale_column;
    uint32_t rows, h;
    uint32_t dtype, kind, function, is_interleaved;
    uint32_t is_aligned; // rows begin at multiples of 16 bytes, of codes at multiples of 8
    float limit, alpha, scale_eps; // limit infinity: none
} qk_moe_activate_args;

#endif
