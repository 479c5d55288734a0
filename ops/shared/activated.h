// SPDX-License-Identifier: Apache-2.0
// The definition of transformers' activation functions in double precision without rounding, and
// the error that f32 may have.
//
// Sources: arXiv:1606.08415 (GELU), arXiv:1702.03118 (SiLU).
#ifndef QNI_ACTIVATED_H
#define QNI_ACTIVATED_H

#include <quern/activation.h>

#include <math.h>

/** Returns x / (1 + exp(-s)); `steps` is the number of roundings on the way to s. */
static inline double qni_logistic(double x, double s, double steps, double *relative) {
    const double e = exp(-s), weight = isinf(e) ? 1 : e / (1 + e);
    *relative = 8 + (4 + steps * fabs(s)) * weight;
    return x / (1 + e);
}

/** Returns function(x). *relative becomes the relative error that a kernel may make, in units of
 *  2^-24. Results below 2^-124 |x| may be lost as well: they are below exp's smallest. */
static inline double qni_activated(qn_activation function, double x, double *relative) {
    if (function == QN_SILU)
        return qni_logistic(x, x, 2, relative);
    if (function == QN_GELU_TANH) {
        const double root = 0.79788456080286535588; // sqrt(2 / pi)
        return qni_logistic(x, 2 * root * (x + 0.044715 * x * x * x), 6, relative);
    }
    *relative = 24 + 2 * x * x;
    return x / 2 * erfc(-x * 0.70710678118654752440);
}

#endif
