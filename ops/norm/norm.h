// SPDX-License-Identifier: Apache-2.0
// What the files of the norm family share: one problem for all of the family's functions, and the
// definition.
#ifndef QNI_NORM_H
#define QNI_NORM_H

#include "../shared/elements.h"

#include <quern/norm.h>

/** How the result is quantised; the values are those of norm_abi.h. */
typedef enum qni_norm_quant {
    QNI_NORM_PLAIN,
    QNI_NORM_STATIC,    // scale is given
    QNI_NORM_PER_TOKEN, // a scale for each row is written
    QNI_NORM_PER_GROUP  // one for each 128 elements of a row
} qni_norm_quant;
enum { QNI_NORM_GROUP = 128 };

/** Rows of one tensor: row r is r % inner of batch r / inner. Strides are in elements. */
typedef struct qni_norm_rows {
    void *data;
    int64_t batch, row;
} qni_norm_rows;

/** Weights, a row for each batch (stride 0: one row for all batches); data null: none. */
typedef struct qni_norm_weights {
    const void *data;
    int64_t batch;
} qni_norm_weights;

/** A valid problem: norm.c has checked everything.
 *
 *    t = residual + gate * x          residual, if any, becomes t rounded
 *    y = (t - mean) / sqrt(mean((t - mean)^2) + eps) * (weight + weight_plus) + beta
 *    out = y, or y quantised          mean is 0 unless subtracts_mean */
typedef struct qni_norm_problem {
    qni_dtype dtype, dtype_weights, dtype_out;
    int64_t rows, inner, h;
    qni_norm_rows x, out, residual;
    qni_norm_weights weight, beta, gate;
    bool subtracts_mean, rounds_first; // rounds_first: to x's dtype, before quantising
    float weight_plus, eps, scale_eps;
    qni_norm_quant quant;
    float *scale;
    int64_t scale_batch, scale_row, scale_col; // scale_col: from a row's group to the next
} qni_norm_problem;

extern const qni_op qni_op_norm;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE
/** Flags of what a GPU kernel is made for: LayerNorm, FP8 results, a residual or a gate; or any
 *  operands, at a cost. */
enum { QNI_NORM_LAYER = 1, QNI_NORM_QUANT = 2, QNI_NORM_SUM = 4, QNI_NORM_GENERAL = 8 };

/** Returns where row r begins. */
static inline int64_t qni_norm_at(const qni_norm_problem *p, const qni_norm_rows *rows, int64_t r) {
    return r / p->inner * rows->batch + r % p->inner * rows->row;
}
static inline int64_t qni_norm_groups(const qni_norm_problem *p) {
    return (p->h + QNI_NORM_GROUP - 1) / QNI_NORM_GROUP;
}

/** Computes one row by the definition, in double precision; t and y have room for h elements. Reads
 *  host memory. norm_ref.c. */
void qni_norm_ref_row(const qni_norm_problem *p, int64_t r, double *t, double *y);

/** Shares rows among the CPU's threads: norm_cpu.c. `rows` computes rows first .. last - 1. */
typedef void (*qni_norm_rows_fn)(const qni_norm_problem *p, int64_t first, int64_t last);
qn_status qni_norm_on_threads(const qni_norm_problem *p, qni_norm_rows_fn rows);

#endif
