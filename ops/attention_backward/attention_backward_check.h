// SPDX-License-Identifier: Apache-2.0
// What a fuzzer takes of the check of attention's backward pass.
#ifndef QNI_ATTENTION_BACKWARD_CHECK_H
#define QNI_ATTENTION_BACKWARD_CHECK_H

#include "../attention/attention_case.h"

/** Tries every kernel on a case, whose lse is there and which has no pages. */
qn_status qni_backward_check(qni_trial_run *run, const qni_attention_spec *spec, uint64_t seed);

#endif
