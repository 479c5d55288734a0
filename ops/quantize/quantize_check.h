// SPDX-License-Identifier: Apache-2.0
// Parts of the quantize family's check; each tries all problems of an op.
#ifndef QNI_QUANTIZE_CHECK_H
#define QNI_QUANTIZE_CHECK_H

#include "../../check/check.h"

/** Tries the fixed vectors of both ops on blocks: vectors_check.c. */
qn_status qni_quantize_vectors_try(qni_trial_run *run, const qni_op *op);
qn_status qni_quantize_rows_try(qni_trial_run *run, const qni_op *op);

#endif
