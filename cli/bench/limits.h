// SPDX-License-Identifier: Apache-2.0
// What a device can do at best: measured on the CPU, from data sheets for GPUs.
#ifndef CLI_LIMITS_H
#define CLI_LIMITS_H

#include "../cli.h"

typedef struct cli_limits {
    double flops;       // matrix products of FP8 weights, operations a second; 0: not known
    double bf16_flops;  // that of bf16
    double read_bytes;  // from memory, bytes a second; 0: not known
    const char *source; // "measured: AVX-512 BF16, 2 threads", "data sheet"
} cli_limits;

void cli_limits_get(cli_limits *out, const qn_device_info *info);

/** The unit of a device's speed of arithmetic. */
typedef struct cli_unit {
    const char *name;
    double a_second; // operations
    int digits;      // behind the point
} cli_unit;

/** Returns GFLOP/s for a CPU, TFLOP/s for a GPU. */
cli_unit cli_flops_unit(const qn_device_info *info);

#endif
