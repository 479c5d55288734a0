// SPDX-License-Identifier: Apache-2.0
// Parts of the rope family's check.
#ifndef QNI_ROPE_CHECK_H
#define QNI_ROPE_CHECK_H

#include "../../check/check.h"

/** Tries tokens in batches of several sizes: rope_batches_check.c. */
qn_status qni_rope_try_batches(qni_trial_run *run);

#endif
