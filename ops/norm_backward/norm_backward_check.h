// SPDX-License-Identifier: Apache-2.0
// The check problems of norms' backward pass, for the check and a fuzzer.
#ifndef QNI_NORM_BACKWARD_CHECK_H
#define QNI_NORM_BACKWARD_CHECK_H

#include "../../check/case.h"

/** What is asked for, of which norm. */
typedef struct qni_norm_backward_form {
    const char *name;
    bool subtracts_mean, has_sum, has_no_weight, has_dweight, has_dbeta;
    float weight_plus;
    bool has_f32;                             // dweight, dbeta and dgate are f32, else of x's dtype
    bool has_batches, has_d_gated, has_dgate; // a row of weights for each batch; a gate
} qni_norm_backward_form;

typedef struct qni_norm_backward_shape {
    int64_t batches, inner, h;
    int64_t gap, offset; // elements between rows; elements before the first row
    bool has_no_eps;
} qni_norm_backward_shape;

/** Tries every kernel on a problem with x of `dtype` and weights of `weight`, which is `dtype` or
 *  f32. dweight needs a weight. */
qn_status qni_norm_backward_check(qni_trial_run *run, const qni_norm_backward_form *form,
                                  const qni_norm_backward_shape *shape, qni_dtype dtype,
                                  qni_dtype weight, uint64_t seed);

#endif
