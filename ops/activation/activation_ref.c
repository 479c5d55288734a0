// SPDX-License-Identifier: Apache-2.0
// The definition of the gated activations, in double precision without rounding, and the error that
// f32 may have.
//
//   y = f(min(gate, limit)) * clamp(up, -limit, limit)
//
// Source: arXiv:2002.05202; ../shared/activated.h has f.
#include "../shared/activated.h"
#include "activation.h"

double qni_activation_ref(const qni_activation_problem *p, double gate, double up, double *error) {
    const double limit = (double)p->limit;
    double relative;
    gate = gate > limit ? limit : gate; // a NaN stays
    up = up > limit ? limit : up < -limit ? -limit : up;
    const double y = qni_activated(p->function, gate, &relative) * up;
    *error = fabs(y) * fmin(relative * 0x1p-24, 1) + fabs(gate) * fabs(up) * 0x1p-124;
    if (p->dtype_out == QNI_BF16 && fabs(y) < 0x1p-126)
        *error = fmax(*error, fabs(y)); // a conversion may take denormals for zeros
    return y;
}
