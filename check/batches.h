// SPDX-License-Identifier: Apache-2.0
// For checks of row ops: the same rows alone, inside a batch, and inside a larger one must get the
// same bits.
#ifndef QNI_BATCHES_H
#define QNI_BATCHES_H

#include "../ops/shared/elements.h"
#include "check.h"

/** A tensor of a row op, its rows one behind the other. Floats are filled with random values, i32
 *  with small numbers, or with 0, 1, 2, … what all rows share. */
typedef struct qni_batch_tensor {
    const char *name;
    qni_dtype dtype;
    int64_t width;   // elements of a row; 0: there is no such tensor
    bool is_common;  // one row, which all share: weights, tables
    bool is_written; // its rows are compared
} qni_batch_tensor;

/** An op on rows. */
typedef struct qni_row_op {
    const qni_op *op;
    const char *text; // names the problem
    const qni_batch_tensor *tensors;
    int num_tensors;
    /** The problem of `rows` rows whose tensors' first rows are at data[0], data[1], … on the
     *  device. It stays valid until the next call. */
    const void *(*make)(void *context, void *const *data, int64_t rows);
    void *context;
} qni_row_op;

/** Runs a row, and then 16, alone, among 200, and among more than two for each compute unit (on the
 *  CPU: enough that results go past the caches), and compares their bits: by the kernels that plain
 *  calls would use; on the CPU the 16 also by each kernel. */
qn_status qni_trial_row_batches(qni_trial_run *run, const qni_row_op *what);

#endif
