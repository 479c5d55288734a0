// SPDX-License-Identifier: Apache-2.0
// What the files of the activation family share: one problem for all of the family's functions, and
// the definition.
#ifndef QNI_ACTIVATION_H
#define QNI_ACTIVATION_H

#include "../shared/elements.h"

#include <quern/activation.h>

/** How the result is quantised; the values are those of activation_abi.h. */
typedef enum qni_activation_quant {
    QNI_ACTIVATION_PLAIN,
    QNI_ACTIVATION_STATIC,    // scale is given
    QNI_ACTIVATION_PER_TOKEN, // a scale for each row is written
    QNI_ACTIVATION_PER_GROUP  // one for each 128 of a row
} qni_activation_quant;
enum { QNI_ACTIVATION_GROUP = 128 };

/** Rows of one tensor: row r is r % inner of batch r / inner. Strides are in elements. */
typedef struct qni_activation_rows {
    void *data;
    int64_t batch, row;
} qni_activation_rows;

/** A valid problem: activation.c has checked everything. A row of x is gate, then up, h elements
 *  each. */
typedef struct qni_activation_problem {
    qni_dtype dtype, dtype_out;
    int64_t rows, inner, h;
    qni_activation_rows x, out;
    qn_activation function;
    qni_activation_quant quant;
    float limit; // infinity: none
    float scale_eps;
    float *scale;
    int64_t scale_row; // rows of scale are numbered as those of x
} qni_activation_problem;

extern const qni_op qni_op_activation;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE
// Flags of GPU kernels: for so few elements that each element's latency counts; a row is loaded
// while the one before is computed.
enum { QNI_ACTIVATION_FEW = 1, QNI_ACTIVATION_AHEAD = 2 };

/** Returns where row r begins. */
static inline int64_t qni_activation_at(const qni_activation_problem *p,
                                        const qni_activation_rows *rows, int64_t r) {
    return r / p->inner * rows->batch + r % p->inner * rows->row;
}
static inline int64_t qni_activation_groups(const qni_activation_problem *p) {
    return (p->h + QNI_ACTIVATION_GROUP - 1) / QNI_ACTIVATION_GROUP;
}

/** Computes one element by the definition, in double precision, before quantising. *error gets how
 *  far f32 arithmetic may be off: the bound of include/quern/activation.h. activation_ref.c. */
double qni_activation_ref(const qni_activation_problem *p, double gate, double up, double *error);

/** Shares rows among the CPU's threads: activation_cpu.c. `rows` computes rows first .. last - 1;
 *  `scratch` has room for the h elements of a row. */
typedef void (*qni_activation_rows_fn)(const qni_activation_problem *p, int64_t first, int64_t last,
                                       float *scratch);
qn_status qni_activation_on_threads(const qni_activation_problem *p, qni_activation_rows_fn rows);

#endif
