// SPDX-License-Identifier: Apache-2.0
// The definition of what acts on an expert's halves, in double precision without rounding, and the
// error that f32 may have.
#include "../shared/activated.h"
#include "moe.h"

double qni_moe_activate_ref(const qni_moe_activate_problem *p, double gate, double up,
                            double *error) {
    const double limit = (double)p->limit;
    double relative, y;
    gate = gate > limit ? limit : gate; // a NaN stays
    up = up > limit ? limit : up < -limit ? -limit : up;
    if (p->function == QN_MOE_SWIGLU) {
        y = qni_logistic(gate, (double)p->alpha * gate, 3, &relative) * (up + 1);
        relative += 2;
    } else {
        y = qni_activated((qn_activation)p->function, gate, &relative) * up;
    }
    const double size = fabs(gate) * (fabs(up) + (p->function == QN_MOE_SWIGLU));
    *error = fabs(y) * fmin(relative * 0x1p-24, 1) + size * 0x1p-124;
    if (p->dtype_out == QNI_BF16 && fabs(y) < 0x1p-126)
        *error = fmax(*error, fabs(y)); // a conversion may take denormals for zeros
    return y;
}
