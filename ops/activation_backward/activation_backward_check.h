// SPDX-License-Identifier: Apache-2.0
// The check problems of activations' backward pass, for the check and a fuzzer.
#ifndef QNI_ACTIVATION_BACKWARD_CHECK_H
#define QNI_ACTIVATION_BACKWARD_CHECK_H

#include "../../check/case.h"

#include <quern/activation.h>

typedef struct qni_activation_backward_shape {
    int64_t batches, inner, h;
    int64_t gap, offset; // elements between rows; elements before the first row
} qni_activation_backward_shape;

/** Tries every kernel on a problem. limit: infinite for none. */
qn_status qni_activation_backward_check(qni_trial_run *run,
                                        const qni_activation_backward_shape *shape, qni_dtype dtype,
                                        qn_activation function, float limit, uint64_t seed);

#endif
