// SPDX-License-Identifier: Apache-2.0
// What the host and the GPU kernels of the quantize family share: the arguments and the shape of
// the grid.
#ifndef QK_QUANTIZE_ABI_H
#define QK_QUANTIZE_ABI_H

#include <stdint.h>

/** A workgroup has 256 threads: 16 teams of 16 lanes. A team takes 128 columns of a row, a lane 8
 *  of them; quantising blocks of 1 x 128, it takes four rows. */
enum {
    QK_THREADS = 256,
    QK_TEAM = 16,
    QK_TEAMS = QK_THREADS / QK_TEAM,
    QK_RUN = 8,
    QK_BLOCK = 128,
    QK_ROWS = 4
};

/** Strides are in elements. Quantising reads x; dequantising writes it. */
typedef struct qk_quantize_args {
    void *x;      // [rows, cols]  f32, f16 or bf16, as the entry point's name says
    uint8_t *q;   // [rows, cols]
    float *scale; // [ceil(rows / block_rows), ceil(cols / 128)]
    int64_t x_row, q_row, scale_row;
    uint32_t rows, cols;
    uint32_t kind; // of q, as in gpu/fp8.h
    /** 2^teams_log2 teams lie side by side; the other teams take the rows below. */
    uint32_t teams_log2;
    uint32_t block_rows_log2;
    float eps;
    /** 1: every row's runs of 8 elements are aligned to their size in q, to 16 bytes in x. */
    uint32_t has_runs;
} qk_quantize_args;

#endif
