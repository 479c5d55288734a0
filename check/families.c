// SPDX-License-Identifier: Apache-2.0
// The table of op families, from families.def, and functions that need all families.
#include "check.h"

#include <assert.h>

#define QN_FAMILY(name) extern const qni_family qni_family_##name;
#include "families.def"
#undef QN_FAMILY

const qni_family *const qni_families[] = {
#define QN_FAMILY(name) &qni_family_##name,
#include "families.def"
#undef QN_FAMILY
    nullptr,
};

enum { MAX_OPS = 256 };
static const qni_op *ops[MAX_OPS + 1];
static const char *op_names[MAX_OPS + 1];

/** Runs when the library is loaded: tells the runtime, which knows no op by itself, the ops that
 *  the environment may name. */
__attribute__((constructor)) static void hand_over_ops(void) {
    int count = 0;
    for (const qni_family *const *family = qni_families; *family; family++)
        for (const qni_op *const *op = (*family)->ops; *op; op++) {
            assert(count < MAX_OPS);
            op_names[count] = (*op)->name;
            ops[count++] = *op;
        }
    qni_choice_set_ops(ops);
}

const char *const *qn_op_names(void) {
    return op_names;
}

qn_status qn_check(qn_device *device, const char *op, const qn_check_options *options,
                   qn_check_fn report, void *context) {
    return qni_trial_families(qni_families, device, op, options, report, context);
}
