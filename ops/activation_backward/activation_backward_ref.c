// SPDX-License-Identifier: Apache-2.0
// The definition of the gated activations' backward pass, in double precision without rounding, as
// the top of include/quern/activation_backward.h has it, and the error that f32 may have.
#include "../shared/activated.h"
#include "activation_backward.h"

static constexpr double unit = 0x1p-24;  // half an ulp
static constexpr double tiny = 0x1p-124; // exp's smallest results may be lost

/** A derivative, and how far off f32 may be. */
typedef struct slope {
    double value, bound;
} slope;

/** The derivative of x s(x), where s is the logistic function of a number whose derivative is
 *  `inner`, rest is 1 - s, and `relative` the error of s in units. */
static slope logistic_slope(double x, double s, double rest, double inner, double relative) {
    const double across = x * s * rest * inner, error = fmin(relative * unit, 1);
    const double of_rest = fabs(x * s * inner) * (error * s + 4 * unit);
    return (slope){s + across, (error + 8 * unit) * (s + fabs(across)) + of_rest +
                                   tiny * (1 + fabs(x * inner))};
}

/** Returns f'(x). */
static slope slope_of(qn_activation function, double x) {
    double relative;
    qni_activated(function, x, &relative);
    if (function == QN_GELU) {
        const double own = erfc(-x * 0.70710678118654752440) / 2;
        const double across = x * 0.39894228040143267794 * exp(-x * x / 2);
        return (slope){own + across, fmin((relative + 8) * unit, 1) * (own + fabs(across)) +
                                         tiny * (1 + fabs(x))};
    }
    const double root = 0.79788456080286535588; // sqrt(2 / pi)
    const double y = function == QN_SILU ? x : 2 * root * (x + 0.044715 * x * x * x);
    const double inner = function == QN_SILU ? 1 : 2 * root * (1 + 3 * 0.044715 * x * x);
    return logistic_slope(x, 1 / (1 + exp(-y)), 1 / (1 + exp(y)), inner, relative);
}

qni_activation_gradients qni_activation_backward_ref(const qni_activation_backward_problem *p,
                                                     double gate, double up, double d) {
    const double limit = (double)p->limit;
    const double x = gate > limit ? limit : gate; // a NaN stays
    const double y = up > limit ? limit : up < -limit ? -limit : up;
    double relative;
    const double f = qni_activated(p->function, x, &relative);
    const slope s = slope_of(p->function, x);
    qni_activation_gradients out = {
        .gate = gate > limit ? 0 : d * y * s.value,
        .up = up > limit || up < -limit ? 0 : d * f,
    };
    out.gate_bound = gate > limit ? 0 : fabs(d * y) * s.bound + 3 * unit * fabs(out.gate);
    out.up_bound =
        fabs(d) * (fabs(f) * fmin(relative * unit, 1) + tiny * fabs(x)) + 2 * unit * fabs(out.up);
    if (p->dtype == QNI_BF16 && fabs(out.gate) < 0x1p-126)
        out.gate_bound = fmax(out.gate_bound, fabs(out.gate)); // a conversion may give zero
    if (p->dtype == QNI_BF16 && fabs(out.up) < 0x1p-126)
        out.up_bound = fmax(out.up_bound, fabs(out.up));
    return out;
}
