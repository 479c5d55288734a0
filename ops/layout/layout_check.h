// SPDX-License-Identifier: Apache-2.0
// Parts of the layout family's check; each tries all problems of an op.
#ifndef QNI_LAYOUT_CHECK_H
#define QNI_LAYOUT_CHECK_H

#include "../../check/check.h"

qn_status qni_pack_try(qni_trial_run *run, const qni_op *op);
qn_status qni_scales_try(qni_trial_run *run, const qni_op *op); // one of the two ops on scales

#endif
