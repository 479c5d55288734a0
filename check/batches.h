// SPDX-License-Identifier: Apache-2.0
// For checks of row ops: rows must get equal bits alone, inside a batch, and inside a larger batch.
#ifndef QNI_BATCHES_H
#define QNI_BATCHES_H

#include "../ops/shared/elements.h"
#include "check.h"

/** A tensor of a row op; its rows lie one behind the other. Floats are filled with random values,
 *  i32 with small numbers; an i32 tensor that all rows share is filled with 0, 1, 2, …. */
typedef struct qni_batch_tensor {
    const char *name;
    qni_dtype dtype;
    int64_t width;   // elements of a row; 0: there is no such tensor
    bool is_common;  // one row, which all rows of the op share: weights, tables
    bool is_written; // the tensor's rows are compared
} qni_batch_tensor;

/** An op on rows. */
typedef struct qni_row_op {
    const qni_op *op;
    const char *text; // names the problem
    const qni_batch_tensor *tensors;
    int num_tensors;
    /** Makes the problem of `rows` rows whose tensors begin at data[0], data[1], … on the device.
     *  The problem stays valid until the next call. */
    const void *(*make)(void *context, void *const *data, int64_t rows);
    void *context;
} qni_row_op;

/** Runs one row, and then 16 rows, in three batches: alone, among 200 rows, and among more than two
 *  rows for each compute unit (on the CPU: enough rows that results go past the caches). Compares
 *  the bits of these rows between the batches. The kernels are those that plain calls would use; on
 *  the CPU each kernel runs the 16 rows as well. */
qn_status qni_trial_row_batches(qni_trial_run *run, const qni_row_op *what);

#endif
