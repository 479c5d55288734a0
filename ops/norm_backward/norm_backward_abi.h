// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels of norms' backward pass and their launch code share.
#ifndef QK_NORM_BACKWARD_ABI_H
#define QK_NORM_BACKWARD_ABI_H

#include "../norm/norm_abi.h"

/** Rows of one tensor: row r is r % inner of batch r / inner. Strides are in elements. */
typedef struct qk_norm_rows {
    const void *data;
    int64_t batch, row;
} qk_norm_rows;

/** The sums of dweight and dbeta are made of parts, each of rows_per_part rows side by side. */
typedef struct qk_norm_backward_args {
    qk_norm_rows x, d_out, d_sum, dx; // d_sum null: none
    const void *weight;               // null: ones
    float *weight_sums, *beta_sums;   // [parts, pad]; null: not asked for
    void *dweight, *dbeta;
    uint32_t rows, inner, h, pad, parts, rows_per_part;
    float eps, per_h, weight_plus;
    uint32_t weight_dtype, dweight_dtype, dbeta_dtype, subtracts_mean;
} qk_norm_backward_args;

#endif
