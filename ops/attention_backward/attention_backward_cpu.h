// SPDX-License-Identifier: Apache-2.0
// What the backward pass's CPU kernels share: the loop over blocks of keys, their turns, and a
// block's memory.
#ifndef QNI_ATTENTION_BACKWARD_CPU_H
#define QNI_ATTENTION_BACKWARD_CPU_H

#include "attention_backward.h"

#include <sched.h>
#include <stdatomic.h>

enum { QNI_BACKWARD_BLOCK = 64 * 128, QNI_BACKWARD_SCORES = 64 * 64 };

/** A thread's blocks: up to 64 rows of up to 128 elements, 32 of 256, 16 of 512. Where cells are
 *  pairs of bf16, q, d_o and k have room for rows and for rows in pairs. */
typedef struct qni_backward_scratch {
    alignas(64) float q[QNI_BACKWARD_BLOCK], d_o[QNI_BACKWARD_BLOCK], k[QNI_BACKWARD_BLOCK];
    alignas(64) float k_columns[QNI_BACKWARD_BLOCK], v_columns[QNI_BACKWARD_BLOCK];
    alignas(64) float dk[QNI_BACKWARD_BLOCK], dv[QNI_BACKWARD_BLOCK];
    alignas(64) float s[QNI_BACKWARD_SCORES], dp[QNI_BACKWARD_SCORES]; // then p, dx
    alignas(64) uint16_t dx_rows[QNI_BACKWARD_SCORES];                 // of bf16
} qni_backward_scratch;

/** Returns the rows of a block of queries or keys. */
static inline int64_t qni_backward_block_rows(const qni_backward_problem *p) {
    const qk_attention_args *g = &p->args.common;
    const int64_t most = g->head_dim_qk > g->head_dim_vo ? g->head_dim_qk : g->head_dim_vo;
    return most <= 128 ? 64 : most <= 256 ? 32 : 16;
}

/** Returns the bytes of a row of sums of the mask's gradient: one for each key, in whole
 *  vectors. */
static inline int64_t qni_backward_mask_bytes(const qni_backward_problem *p) {
    return ((int64_t)p->args.max_kv + 16) * (int64_t)sizeof(float);
}

/** The turns of an item's blocks of keys, each of which adds to the same dq: a block may add to a
 *  row when the block before it has passed that row. Rows count from the first one of the kv head's
 *  first head, head after head. */
typedef struct qni_backward_turn {
    _Atomic int64_t *before; // how many rows the block before has passed; null: there is none
    _Atomic int64_t *own;
} qni_backward_turn;

/** Waits until the block before has passed so many rows. It is running or has ended, since blocks
 *  begin in their order. */
static inline void qni_backward_await(const qni_backward_turn *turn, int64_t rows) {
    while (turn->before && atomic_load_explicit(turn->before, memory_order_acquire) < rows)
        sched_yield();
}
static inline void qni_backward_pass(const qni_backward_turn *turn, int64_t rows) {
    atomic_store_explicit(turn->own, rows, memory_order_release);
}

typedef struct qni_backward_functions {
    /** Begins a query's row of one head, before all blocks of keys; ends it after them. */
    void (*run_row)(const qni_backward_problem *p, uint32_t index, uint32_t head, uint32_t query,
                    bool begins);
    /** Runs the block of keys from `first` on of a request and kv head. */
    void (*run_keys)(const qni_backward_problem *p, uint32_t index, uint32_t kv_head,
                     uint32_t first, const qni_backward_turn *turn, void *scratch);
    void (*run_mask_row)(const qni_backward_problem *p, int64_t row, void *scratch);
} qni_backward_functions;
/** Runs all blocks, then the gradients of mask and sinks, on the CPU's threads. */
qn_status qni_backward_on_threads(const qni_backward_problem *p,
                                  const qni_backward_functions *functions);

#endif
