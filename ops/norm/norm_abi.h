// SPDX-License-Identifier: Apache-2.0
// What norm's GPU kernels and their launch code share: one struct of arguments.
#ifndef QK_NORM_ABI_H
#define QK_NORM_ABI_H

#include <stdint.h>

/** How the result is quantised. */
enum { QK_NORM_PLAIN, QK_NORM_STATIC, QK_NORM_PER_TOKEN, QK_NORM_PER_GROUP };

/** Strides are in elements. Row r is r % inner of batch r / inner; weight, beta and gate have a row
 *  for each batch (stride 0: one row for all). */
typedef struct qk_norm_args {
    const void *x;
    void *out, *residual;             // residual null: none
    const void *weight, *beta, *gate; // null: ones, zeros, ones
    float *scale;                     // read by STATIC, written by PER_TOKEN and PER_GROUP
    int64_t x_batch, x_row, out_batch, out_row, residual_batch, residual_row;
    int64_t weight_batch, beta_batch, gate_batch;
    int64_t scale_batch, scale_row, scale_col; // scale_col: from group to group
    uint32_t rows, inner, h;
    uint32_t first; // row of the first workgroup
    float eps;
    float per_h, per_most, least_scale; // 1 / h; 1 / the kind's largest; the scale of zeros
    float weight_plus;                  // added to weight: 0 or 1
    uint32_t weight_dtype;              // of weight, beta and gate
    uint32_t quant, kind;               // kind: the FP8 kind of out
    uint32_t subtracts_mean, rounds_first;
} qk_norm_args;

/** Returns the factor by which a row's elements are multiplied before its sums are computed again,
 *  because squares left f32's range; 1: the sums are right. The mean square with eps tells: below
 *  2^-110 squares may have lost bits, and a NaN may come of infinities. Elements whose mean is 1 or
 *  more and whose squared distances from the mean are so small are equal. */
static inline float qk_norm_factor(float mean_square, float mean) {
    if (mean_square < 0x1p-110f)
        return mean < 1 && mean > -1 ? 0x1p100f : 1.0f;
    return mean_square <= __FLT_MAX__ ? 1.0f : 0x1p-90f;
}

#endif
