// SPDX-License-Identifier: Apache-2.0
// The check harness: runs every kernel of an op on made-up problems and compares it with the op's
// definition. The families' checks use this header; it also has the list of families.
#ifndef QNI_CHECK_H
#define QNI_CHECK_H

#include "../runtime/runtime.h"

#include <quern/check.h>

// ---- one problem (check.c)

typedef struct qni_trial_run qni_trial_run; // device, stream, options, callback

/** A problem, and how its family compares what a variant wrote with the reference. */
typedef struct qni_trial_problem {
    const qni_op *op;
    const char *text;    // "m=1 n=129 k=129 e4m3fn->bf16"
    const void *problem; // handed to supports and run
    void *context;
    /** Poisons the outputs before each run. */
    qn_status (*reset)(void *context, qn_stream *stream);
    /** Fetches the outputs and compares them with the reference. *error becomes the largest
     *  quotient of error and tolerance, where NaN counts as failed; detail says where the worst
     *  element is, with both values. */
    qn_status (*compare)(void *context, qn_stream *stream, double *error, char *detail,
                         size_t room);
    /** Tensors that the op writes: both runs of a variant must leave equal bits there. May be
     *  null. */
    const DLTensor *const *outputs;
    int32_t num_outputs;
    bool is_choice_alone; // runs only the kernel that a plain call would use
    /** Does what a plain call does with the problem, where that is more than to run one kernel;
     *  else null. The check runs it like a kernel. */
    qn_status (*call)(qn_stream *stream, const void *problem);
} qni_trial_problem;

/** Runs every variant of the op (or the choice alone) on the problem, twice, each time after a
 *  reset; times the variant if the options ask for it; reports the result. Returns an error only if
 *  the check could not be carried out: a wrong result is reported, not returned. */
qn_status qni_trial_problem_run(qni_trial_run *run, const qni_trial_problem *problem);
/** Reports that no variant ran on a problem, and why. */
void qni_trial_problem_leave_out(qni_trial_run *run, const qni_op *op, const char *text,
                                 const char *why);
/** Batches of an op that have some rows or requests in common. The bits of these rows must not
 *  depend on what else is in a batch. All members but run and op are zero before the first batch is
 *  added. */
typedef struct qni_trial_batches {
    qni_trial_run *run;
    const qni_op *op;
    int count;           // batches so far
    uint64_t first_hash; // hash of the first batch's outputs
    char first[160];     // the first batch: its text and kernel
} qni_trial_batches;
/** Runs the kernel that a plain call would use on a batch. problem->outputs are the common rows;
 *  bytes between the rows must not differ between batches. From the second batch on, reports
 *  whether the outputs have the first batch's bits. A batch that no kernel takes is reported as
 *  left out. Returns an error only if the batch could not be run. */
qn_status qni_trial_batches_add(qni_trial_batches *batches, const qni_trial_problem *problem);
qn_stream *qni_trial_stream(const qni_trial_run *run);
uint64_t qni_trial_seed(const qni_trial_run *run);
bool qni_trial_is_quick(const qni_trial_run *run);

// ---- families

/** An op family: a line of families.def. */
typedef struct qni_family {
    const char *name;
    const qni_op *const *ops;                               // ends with null
    qn_status (*try)(qni_trial_run *run, const qni_op *op); // runs all problems of one op
} qni_family;

/** All families; the list ends with null (families.c). */
extern const qni_family *const qni_families[];
/** Does what qn_check does, with the given families. */
qn_status qni_trial_families(const qni_family *const *families, qn_device *device, const char *op,
                             const qn_check_options *options, qn_check_fn report, void *context);

#endif
