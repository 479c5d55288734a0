// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels of activations' backward pass and their launch code share.
#ifndef QK_ACTIVATION_BACKWARD_ABI_H
#define QK_ACTIVATION_BACKWARD_ABI_H

#include "../activation/activation_abi.h"

/** Strides are in elements. Row r is r % inner of batch r / inner; a row of x is gate and up, h
 *  elements each, a row of dx their gradients. */
typedef struct qk_activation_backward_args {
    const void *x, *d_out;
    void *dx;
    int64_t x_batch, x_row, d_out_batch, d_out_row, dx_batch, dx_row;
    uint32_t rows, inner, h;
    float limit; // infinity: none
    uint32_t function;
    uint32_t
        lanes_log2; // lanes side by side along a row; the workgroup's others take the next rows
} qk_activation_backward_args;

#endif
