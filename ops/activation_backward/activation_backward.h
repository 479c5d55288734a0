// SPDX-License-Identifier: Apache-2.0
// What the files of activations' backward pass share: its problem, and its definition.
#ifndef QNI_ACTIVATION_BACKWARD_H
#define QNI_ACTIVATION_BACKWARD_H

#include "../activation/activation.h"

#include <quern/activation_backward.h>

/** A valid problem: activation_backward.c has checked everything. A row of x is gate, then up, h
 *  elements each; a row of dx their gradients. */
typedef struct qni_activation_backward_problem {
    qni_dtype dtype;
    int64_t rows, inner, h;
    qni_activation_rows x, d_out, dx;
    qn_activation function;
    float limit; // infinity: none
} qni_activation_backward_problem;

extern const qni_op qni_op_activation_backward;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Returns where row r begins. */
static inline int64_t qni_activation_backward_at(const qni_activation_backward_problem *p,
                                                 const qni_activation_rows *rows, int64_t r) {
    return r / p->inner * rows->batch + r % p->inner * rows->row;
}

/** An element's gradients, and how far off f32 arithmetic may be. */
typedef struct qni_activation_gradients {
    double gate, up, gate_bound, up_bound;
} qni_activation_gradients;

/** Computes one element by the definition, in double precision. activation_backward_ref.c. */
qni_activation_gradients qni_activation_backward_ref(const qni_activation_backward_problem *p,
                                                     double gate, double up, double d);

/** Shares rows among the CPU's threads: activation_backward_cpu.c. `rows` computes rows first ..
 *  last - 1. */
typedef void (*qni_activation_backward_fn)(const qni_activation_backward_problem *p, int64_t first,
                                           int64_t last);
qn_status qni_activation_backward_on_threads(const qni_activation_backward_problem *p,
                                             qni_activation_backward_fn rows);

#endif
