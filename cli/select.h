// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint are quantised.
#ifndef CLI_SELECT_H
#define CLI_SELECT_H

#include "checkpoint/checkpoint.h"

typedef struct cli_selection {
    cli_list include, exclude;
    bool include_used[CLI_LIST_MAX], exclude_used[CLI_LIST_MAX];
} cli_selection;

/** Returns whether a tensor is quantised: a 2-D floating-point *.weight whose name matches none of
 *  the kept parts (or matches an --include), and no --exclude. Notes which patterns have matched
 *  something. */
bool cli_select(cli_selection *selection, const st_tensor *tensor);
/** Checks that every pattern has matched a tensor; one that has not is a mistake. Errors:
 *  QN_E_INVALID. */
qn_status cli_select_check(const cli_selection *selection);
/** Returns whether the dtype is F64, F32, F16 or BF16. */
bool cli_is_float(const st_tensor *tensor);

#endif
