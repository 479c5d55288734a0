// SPDX-License-Identifier: Apache-2.0
// What the checks of activations and of their gradients fill x with.
#ifndef QNI_ACTIVATION_CHECK_H
#define QNI_ACTIVATION_CHECK_H

#include "../../check/area.h"

#include <math.h>

/** Returns an element of x. Each row has a scale of its own: one is zeros, one lies where exp ends
 *  its range, one has the largest values, one the smallest. */
static inline double qni_activation_check_value(uint64_t *random, qni_dtype dtype, int64_t row) {
    const double normal = qni_random_normal(random);
    switch (row % 8) {
    case 1:
        return 0;
    case 2:
        return 40 * normal;
    case 4:
        return dtype == QNI_F16 ? copysign(65504, normal) : ldexp(normal, 50);
    case 6:
        return ldexp(normal, dtype == QNI_F16 ? -14 : -60);
    default:
        return 3 * normal;
    }
}

#endif
