// SPDX-License-Identifier: Apache-2.0
// What the files of norms' backward pass share: its problem, and its definition.
#ifndef QNI_NORM_BACKWARD_H
#define QNI_NORM_BACKWARD_H

#include "../norm/norm.h"
#include "norm_backward_abi.h"

#include <quern/norm_backward.h>

/** What is summed up over the rows of a group. */
typedef struct qni_norm_sum {
    void *to; // a row for each group, `batch` elements apart; null: not asked for
    int64_t batch;
    qni_dtype dtype;
    float *parts; // in the workspace: [groups, parts_per_group, pad]
} qni_norm_sum;

/** A valid problem: norm_backward.c has checked everything. Row r of a tensor is r % inner of batch
 *  r / inner. */
typedef struct qni_norm_backward_problem {
    qni_dtype dtype, dtype_weight; // of all rows; of weight and gate
    int64_t rows, inner, h;
    int64_t groups; // of equally many rows, which share a row of weight and gate, and of sums
    qni_norm_rows x, d_out, d_sum, gated, dx, d_gated; // null but x, d_out and dx: none
    qni_norm_weights weight, gate;                     // null: ones, none
    qni_norm_sum sums[QK_NORM_SUMS];
    int64_t parts_per_group, rows_per_part, pad; // pad: elements of a part's sums
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
 *  which there are 0 to 3 a column and part. */
int64_t qni_norm_backward_divide(qni_norm_backward_problem *p, int sums, bool is_cpu);
/** Puts the sums into the workspace. */
void qni_norm_backward_place(qni_norm_backward_problem *p, float *workspace);

/** Returns where row r begins. */
static inline int64_t qni_norm_backward_at(const qni_norm_backward_problem *p,
                                           const qni_norm_rows *rows, int64_t r) {
    return r / p->inner * rows->batch + r % p->inner * rows->row;
}

/** A part's rows. */
typedef struct qni_norm_part {
    int64_t group, first, end;
} qni_norm_part;

static inline bool qni_norm_backward_has_sums(const qni_norm_backward_problem *p) {
    return p->sums[QK_DWEIGHT].to || p->sums[QK_DBETA].to || p->sums[QK_DGATE].to;
}

static inline int64_t qni_norm_backward_group_rows(const qni_norm_backward_problem *p) {
    return p->groups ? p->rows / p->groups : 0;
}

static inline qni_norm_part qni_norm_backward_part(const qni_norm_backward_problem *p,
                                                   int64_t part) {
    const int64_t group = part / p->parts_per_group, rows = qni_norm_backward_group_rows(p);
    const int64_t first = part % p->parts_per_group * p->rows_per_part;
    const int64_t end = first + p->rows_per_part;
    return (qni_norm_part){group, group * rows + first, group * rows + (end < rows ? end : rows)};
}

/** Values, and how far off a kernel's may be before they are rounded. */
typedef struct qni_norm_bounded {
    double *value, *bound;
} qni_norm_bounded;

/** Gradients by the definition, in double precision: a row's dx and d_gated, of h elements, and the
 *  sums of its group, to which the row is added. Null values but dx's are not computed. */
typedef struct qni_norm_gradients {
    qni_norm_bounded dx, d_gated, sums[QK_NORM_SUMS];
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
