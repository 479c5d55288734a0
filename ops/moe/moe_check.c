// SPDX-License-Identifier: Apache-2.0
// The check of the moe family: the problems of each op stand in files of their own.
#include "moe_check.h"

#include "moe.h"

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    return op == &qni_op_moe_route      ? qni_moe_try_route(run)
           : op == &qni_op_moe_sort     ? qni_moe_try_sort(run)
           : op == &qni_op_moe_permute  ? qni_moe_try_permute(run)
           : op == &qni_op_moe_activate ? qni_moe_try_activate(run)
           : op == &qni_op_moe_few      ? qni_moe_try_few(run)
                                        : qni_moe_try_sum(run);
}

static const qni_op *const ops[] = {
    &qni_op_moe_route, &qni_op_moe_sort, &qni_op_moe_permute, &qni_op_moe_activate, &qni_op_moe_sum,
    &qni_op_moe_few,   nullptr};
const qni_family qni_family_moe = {"moe", ops, try_op};
