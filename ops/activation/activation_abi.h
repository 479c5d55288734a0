// SPDX-License-Identifier: Apache-2.0
// What the activations' GPU kernels and their launch code share: one struct of arguments.
#ifndef QK_ACTIVATION_ABI_H
#define QK_ACTIVATION_ABI_H

#include <stdint.h>

enum { QK_SILU, QK_GELU, QK_GELU_TANH };

/** How the result is quantised. */
enum {
    QK_ACTIVATION_PLAIN,
    QK_ACTIVATION_STATIC,
    QK_ACTIVATION_PER_TOKEN,
    QK_ACTIVATION_PER_GROUP
};

/** Strides are in elements. Row r is r % inner of batch r / inner; a row of x is gate and up, h
 *  elements each. */
typedef struct qk_activation_args {
    const void *x;
    void *out;
    float *scale; // read by STATIC, written by PER_TOKEN and PER_GROUP
    int64_t x_batch, x_row, out_batch, out_row, scale_row;
    uint32_t rows, inner, h;
    float limit, scale_eps; // limit infinity: none
    uint32_t function, quant;
    uint32_t kind; // the FP8 kind of out
    uint32_t
        lanes_log2; // lanes side by side along a row; the workgroup's other lanes take the next
                    // rows
} qk_activation_args;

#endif
