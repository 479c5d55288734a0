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

/** What is summed up over rows. */
enum { QK_DWEIGHT, QK_DBETA, QK_DGATE, QK_NORM_SUMS };
typedef struct qk_norm_sum {
    float *parts; // [groups, parts_per_group, pad]; null: not asked for
    void *to;     // [groups, h], rows `batch` elements apart
    int64_t batch;
    uint32_t dtype;
} qk_norm_sum;

/** A group of rows, a batch or all rows, shares a row of weight and of gate, and has sums of its
 *  own. They are made of parts, each of rows_per_part rows side by side. */
typedef struct qk_norm_backward_args {
    qk_norm_rows x, d_out, d_sum, gated, dx, d_gated; // null but x, d_out and dx: none
    const void *weight, *gate;                        // null: ones, none
    int64_t weight_batch, gate_batch;                 // from a group's row to the next
    qk_norm_sum sums[QK_NORM_SUMS];
    uint32_t rows_per_group, parts_per_group, rows_per_part, inner, h, pad;
    float eps, per_h, weight_plus;
    uint32_t weight_dtype, subtracts_mean; // weight_dtype: gate's too
} qk_norm_backward_args;

/** Most times that a row's mean and mean square are found. */
enum { QK_NORM_TURNS = 3 };

/** Returns whether a row's mean and mean square, with eps, are to be found once more: by elements
 *  times the factor, which is then set, or from elements less the mean found first, as the error of
 *  that mean may be larger than what the elements differ by. */
static inline bool qk_norm_again(float square, float *mean, float *factor) {
    const float wanted = *factor == 1.0f ? qk_norm_factor(square, *mean) : 1.0f;
    *mean = wanted < 1 ? 0 : *mean * wanted;
    *factor *= wanted;
    return wanted != 1.0f || *mean * *mean * 0x1p-16f > square;
}

#endif
