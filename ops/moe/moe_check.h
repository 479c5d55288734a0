// SPDX-License-Identifier: Apache-2.0
// Parts of the moe family's check.
#ifndef QNI_MOE_CHECK_H
#define QNI_MOE_CHECK_H

#include "../../check/check.h"

/** Tries op moe_route: route_check.c. */
qn_status qni_moe_try_route(qni_trial_run *run);
/** Tries op moe_sort: sort_check.c. */
qn_status qni_moe_try_sort(qni_trial_run *run);
/** Tries op moe_activate: activate_check.c. */
qn_status qni_moe_try_activate(qni_trial_run *run);
/** Try ops moe_permute and moe_sum: rows_check.c. */
qn_status qni_moe_try_permute(qni_trial_run *run);
qn_status qni_moe_try_sum(qni_trial_run *run);
/** Tries op moe_few: few/few_check.c. */
qn_status qni_moe_try_few(qni_trial_run *run);

#endif
