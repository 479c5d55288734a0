// SPDX-License-Identifier: Apache-2.0
// Number formats as doubles, read from any address. The command computes its own references from
// them. The code follows the formats' definitions and shares nothing with the library's, so that
// one checks the other.
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include "cli.h"

/** Returns element `index` of an array of dtype (float 16, 32 or 64, bfloat, e4m3fn, e4m3fnuz) as a
 *  double. */
double cli_number_get(DLDataType dtype, const void *array, int64_t index);
/** Returns the nearest bf16, ties to even; NaN stays NaN. */
uint16_t cli_to_bf16(float value);
bool cli_same_dtype(DLDataType a, DLDataType b);

/** Random numbers by seed, equal on every machine. */
typedef struct cli_random {
    uint64_t state;
} cli_random;

uint64_t cli_random_next(cli_random *random);
/** Returns a standard normal number. */
double cli_random_normal(cli_random *random);

#endif
