// SPDX-License-Identifier: Apache-2.0
// What the backward pass's CPU kernels share: the loop over items, and an item's memory.
#ifndef QNI_ATTENTION_BACKWARD_CPU_H
#define QNI_ATTENTION_BACKWARD_CPU_H

#include "attention_backward.h"

enum { QNI_BACKWARD_BLOCK = 64 * 128, QNI_BACKWARD_SCORES = 64 * 64 };

/** A thread's blocks: up to 64 rows of up to 128 elements, 32 of 256, 16 of 512. */
typedef struct qni_backward_scratch {
    alignas(64) float q[QNI_BACKWARD_BLOCK], d_o[QNI_BACKWARD_BLOCK], k[QNI_BACKWARD_BLOCK];
    alignas(64) float k_columns[QNI_BACKWARD_BLOCK], v_columns[QNI_BACKWARD_BLOCK];
    alignas(64) float dk[QNI_BACKWARD_BLOCK], dv[QNI_BACKWARD_BLOCK];
    alignas(64) float s[QNI_BACKWARD_SCORES], dp[QNI_BACKWARD_SCORES]; // then p, dx
} qni_backward_scratch;

/** Returns the bytes of a row of sums of the mask's gradient: one for each key, in whole
 *  vectors. */
static inline int64_t qni_backward_mask_bytes(const qni_backward_problem *p) {
    return ((int64_t)p->args.max_kv + 16) * (int64_t)sizeof(float);
}

typedef struct qni_backward_functions {
    void (*run_item)(const qni_backward_problem *p, uint32_t index, uint32_t kv_head,
                     void *scratch);
    void (*run_mask_row)(const qni_backward_problem *p, int64_t row, void *scratch);
} qni_backward_functions;
/** Runs all items, then the gradients of mask and sinks, on the CPU's threads. */
qn_status qni_backward_on_threads(const qni_backward_problem *p,
                                  const qni_backward_functions *functions);

#endif
