// SPDX-License-Identifier: Apache-2.0
// The layout family, for the check harness.
#include "layout_check.h"

#include "pack.h"
#include "scales.h"

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    return op == &qni_op_packbits ? qni_pack_try(run, op) : qni_scales_try(run, op);
}

static const qni_op *const ops[] = {&qni_op_packbits, &qni_op_scales, &qni_op_scales_k_grouped,
                                    nullptr};
const qni_family qni_family_layout = {"layout", ops, try_op};
