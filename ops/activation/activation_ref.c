// SPDX-License-Identifier: Apache-2.0
// The definition of the gated activations, in double precision without rounding, and the error that
// f32 may have.
//
//   y = f(min(gate, limit)) * clamp(up, -limit, limit)
//
// Sources: arXiv:1606.08415 (GELU), arXiv:1702.03118 (SiLU), arXiv:2002.05202 (gating).
#include "activation.h"

/** Returns x / (1 + exp(-s)); `steps` is the number of roundings on the way to s. */
static double logistic(double x, double s, double steps, double *relative) {
    const double e = exp(-s), weight = isinf(e) ? 1 : e / (1 + e);
    *relative = 8 + (4 + steps * fabs(s)) * weight;
    return x / (1 + e);
}

static double activated(qn_activation function, double x, double *relative) {
    if (function == QN_SILU)
        return logistic(x, x, 2, relative);
    if (function == QN_GELU_TANH) {
        const double root = 0.79788456080286535588; // sqrt(2 / pi)
        return logistic(x, 2 * root * (x + 0.044715 * x * x * x), 6, relative);
    }
    *relative = 24 + 2 * x * x;
    return x / 2 * erfc(-x * 0.70710678118654752440);
}

double qni_activation_ref(const qni_activation_problem *p, double gate, double up, double *error) {
    const double limit = (double)p->limit;
    double relative;
    gate = gate > limit ? limit : gate; // a NaN stays
    up = up > limit ? limit : up < -limit ? -limit : up;
    const double y = activated(p->function, gate, &relative) * up;
    // Results far below the rest of the product's range may be lost: exp's smallest.
    *error = fabs(y) * fmin(relative * 0x1p-24, 1) + fabs(gate) * fabs(up) * 0x1p-124;
    if (p->dtype_out == QNI_BF16 && fabs(y) < 0x1p-126)
        *error = fmax(*error, fabs(y)); // a conversion may take denormals for zeros
    return y;
}
