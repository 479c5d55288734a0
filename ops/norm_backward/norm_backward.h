// SPDX-License-Identifier: Apache-2.0
// What the files of norms' backward pass share: its problem, and its definition.
#ifndef QNI_NORM_BACKWARD_H
#define QNI_NORM_BACKWARD_H

#include "../norm/norm.h"
#include "norm_backward_abi.h"

#include <quern/norm_backward.h>

/** A valid problem: norm_backward.c has checked everything. Row r of a tensor is r % inner of batch
 *  r / inner. */
typedef struct qni_norm_backward_problem {
    qni_dtype dtype, dtype_weight, dtype_dweight, dtype_dbeta; // dtype: of all rows
    int64_t rows, inner, h;
    qni_norm_rows x, d_out, d_sum, dx; // d_sum null: none
    const void *weight;                // null: ones
    void *dweight, *dbeta;             // null: not asked for
    float *weight_sums, *beta_sums;    // in the workspace: [parts, pad]
    int64_t parts, rows_per_part, pad; // parts: of the rows, which are summed up one by one
    float eps, weight_plus;
    bool subtracts_mean;
} qni_norm_backward_problem;

extern const qni_op qni_op_norm_backward;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Divides the rows into parts, as the device's type demands. Returns the bytes of the sums, of
 *  which there are 0 to 2 a column and part. */
int64_t qni_norm_backward_divide(qni_norm_backward_problem *p, int sums, bool is_cpu);
/** Puts the sums into the workspace. */
void qni_norm_backward_place(qni_norm_backward_problem *p, float *workspace);

/** Returns where row r begins. */
static inline int64_t qni_norm_backward_at(const qni_norm_backward_problem *p,
                                           const qni_norm_rows *rows, int64_t r) {
    return r / p->inner * rows->batch + r % p->inner * rows->row;
}

/** Values, and how far off a kernel's may be before they are rounded. */
typedef struct qni_norm_bounded {
    double *value, *bound;
} qni_norm_bounded;

/** Gradients by the definition, in double precision: a row's dx, of h elements, and the sums, to
 *  which the row is added. Null sums are not computed. */
typedef struct qni_norm_gradients {
    qni_norm_bounded dx, dweight, dbeta;
    double *n, *n_bound, *g; // room for h elements each
} qni_norm_gradients;

/** Computes one row by the definition. Reads host memory. norm_backward_ref.c. */
void qni_norm_backward_ref_row(const qni_norm_backward_problem *p, int64_t r,
                               const qni_norm_gradients *out);

/** Shares parts among the CPU's threads and adds up their sums: norm_backward_cpu.c. `part`
 *  computes the rows of one part; `scratch` has room for two rows of pad elements. */
typedef void (*qni_norm_backward_part_fn)(const qni_norm_backward_problem *p, int64_t part,
                                          float *scratch);
qn_status qni_norm_backward_on_threads(const qni_norm_backward_problem *p,
                                       qni_norm_backward_part_fn part);

#endif
