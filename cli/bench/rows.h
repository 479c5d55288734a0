// SPDX-License-Identifier: Apache-2.0
// The ops that bench measures on rows of bf16: a table with a line for each op.
#ifndef CLI_ROWS_H
#define CLI_ROWS_H

#include "measure.h"

/** Sizes of the rows; 0: the device's default. */
typedef struct rows_shape {
    int64_t rows, dim;
} rows_shape;

int rows_count(void);
const char *rows_name(int op);
/** Returns the family of an op. Ops of one family stand together. */
const char *rows_family(int op);
/** Measures the op's median beside a copy that reads and writes as many bytes. */
qn_status measure_rows(measurement *out, cli_device *device, int op, rows_shape shape, int runs);

#endif
