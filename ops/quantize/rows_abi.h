// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels that quantise along rows and their launch code share.
#ifndef QK_ROWS_ABI_H
#define QK_ROWS_ABI_H

#include <stdint.h>

enum { QK_SCALE_GIVEN, QK_SCALE_F32, QK_SCALE_POWER, QK_SCALE_PACKED, QK_SCALE_TENSOR };
enum { QK_KIND_I8 = 4, QK_ROWS_THREADS = 256, QK_ROWS_MAXIMA = 1024 }; // FP8 kinds as in gpu/fp8.h

/** Strides are in elements. */
typedef struct qk_rows_args {
    const void *x;    // [rows, cols]
    uint8_t *q;       // [rows, cols]
    void *scale;      // [rows, groups], or one f32
    uint32_t *maxima; // TENSOR: QK_ROWS_MAXIMA of them
    int64_t x_row, q_row, scale_row, scale_col;
    uint32_t rows, cols, group, groups;
    uint32_t form, kind;
    float eps;
    uint32_t
        lanes_log2; // lanes side by side along a row; the workgroup's other lanes take the next
                    // rows
    uint32_t group_lanes; // lanes that share a group, 1 .. 16; a power of two
    uint32_t has_runs;    // rows' runs of 8 elements are whole and aligned
} qk_rows_args;

#endif
