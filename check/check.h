// SPDX-License-Identifier: Apache-2.0
// The check harness: every kernel of an op on made-up problems, against the op's definition. What
// the families' checks are written with, and the list of families.
#ifndef QNI_CHECK_H
#define QNI_CHECK_H

#include "../runtime/runtime.h"

#include <quern/check.h>

// ---- one problem (check.c)

typedef struct qni_trial_run qni_trial_run; // device, stream, options, callback

/** How an op's family compares what a variant wrote with the reference. */
typedef struct qni_trial_problem {
    const qni_op *op;
    const char *text;    // "m=1 n=129 k=129 e4m3fn->bf16"
    const void *problem; // handed to supports and run
    void *context;
    /** Poisons the outputs before each run. */
    qn_status (*reset)(void *context, qn_stream *stream);
    /** Fetches and compares: *error is the largest error over tolerance (NaN counts as failed);
     * detail says where the worst element is, with both values. */
    qn_status (*compare)(void *context, qn_stream *stream, double *error, char *detail,
                         size_t room);
    /** What the op writes: both runs of a variant must leave the same bits there. May be null. */
    const DLTensor *const *outputs;
    int32_t num_outputs;
    bool is_choice_alone; // only the kernel that a plain call would use
} qni_trial_problem;

/** Runs every variant of the op (or the choice alone) on the problem, each twice from a fresh
 *  reset, times it if asked, and reports. Not QN_OK: the check itself could not be carried out (a
 *  wrong result is reported, not returned). */
qn_status qni_trial_problem_run(qni_trial_run *run, const qni_trial_problem *problem);
/** Reports that no variant ran on a problem, and why. */
void qni_trial_problem_leave_out(qni_trial_run *run, const qni_op *op, const char *text,
                                 const char *why);
/** Batches of an op that have some rows or requests in common. The bits of those rows must not
 *  depend on what else is in a batch. Zeroed but for run and op, it takes the batches one after
 *  another. */
typedef struct qni_trial_batches {
    qni_trial_run *run;
    const qni_op *op;
    int count;           // batches so far
    uint64_t first_hash; // of the first batch's outputs
    char first[160];     // the first batch: its text and kernel
} qni_trial_batches;
/** Runs the kernel that a plain call would use on a batch. problem->outputs are the rows in common,
 *  and no bytes between them that differ. From the second batch on it reports whether their bits
 *  are the first batch's; a batch that no kernel takes is reported as left out. Not QN_OK: the
 *  batch could not be run. */
qn_status qni_trial_batches_add(qni_trial_batches *batches, const qni_trial_problem *problem);
qn_stream *qni_trial_stream(const qni_trial_run *run);
uint64_t qni_trial_seed(const qni_trial_run *run);
bool qni_trial_is_quick(const qni_trial_run *run);

// ---- families

/** An op family: what families.def lists. */
typedef struct qni_family {
    const char *name;
    const qni_op *const *ops;                               // null-terminated
    qn_status (*try)(qni_trial_run *run, const qni_op *op); // all problems of one op
} qni_family;

/** Every family, null-terminated (families.c). */
extern const qni_family *const qni_families[];
/** qn_check, over the given families. */
qn_status qni_trial_families(const qni_family *const *families, qn_device *device, const char *op,
                             const qn_check_options *options, qn_check_fn report, void *context);

#endif
