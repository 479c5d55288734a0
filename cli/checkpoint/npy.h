// SPDX-License-Identifier: Apache-2.0
// Reads and writes matrices as NumPy's .npy files.
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include "../file.h"

typedef struct npy {
    cli_map map;
    const void *data; // any alignment
    DLDataType dtype;
    int64_t rows, cols;
} npy;

/** Opens a matrix of f32, f16 or bf16 (which ml_dtypes stores as V2) in C order. Errors:
 *  QN_E_NOT_FOUND, QN_E_IO, QN_E_INVALID; the message says what was found and what is accepted. */
qn_status npy_open(npy *out, const char *path);
/** Reads the header of a whole file of `bytes` bytes, named `path` in messages; data must outlive
 *  it. */
qn_status npy_parse(npy *out, const char *path, const void *data, int64_t bytes);
void npy_close(npy *array);
/** Opens the output and writes a matrix of f32, for the caller to commit or discard. Errors: those
 *  of cli_output_open. */
qn_status npy_write(cli_output *out, const char *path, const float *data, int64_t rows,
                    int64_t cols, bool force);

#endif
