// SPDX-License-Identifier: Apache-2.0
// What bench measures: one op on one problem, its median beside a copy of as many bytes and beside
// the limit.
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "limits.h"

/** Attention of bf16 tensors [batch, heads, length, dim]. */
typedef struct attention_shape {
    int64_t batch, qo_heads, kv_heads, dim, qo_len, kv_len;
    bool is_causal;
} attention_shape;

typedef struct measurement {
    char op[40], problem[80];
    const char *kernel;
    int64_t median_ns, fastest_ns;
    double bytes, flops; // bytes moved at least, and operations
    int64_t copy_ns; // median of a copy that reads and writes as many bytes in all; 0: not compared
    double limit_ns; // what the device's limits allow; 0: not known
    const char *bound;         // "memory" or "arithmetic"
    attention_shape attention; // for attention alone
    json_t *clock;             // where the last run's modelled time went; null: times are measured
} measurement;

/** Measures bf16 [rows, cols] to e4m3fn by blocks of block_rows x 128; runs alternate with
 *  copies. */
qn_status measure_quantize(measurement *out, cli_device *device, int64_t rows, int64_t cols,
                           int64_t block_rows, int runs);
/** Measures FP8 by packed FP8 weights, going round eight weight matrices so that none stays in a
 *  cache. */
qn_status measure_gemm(measurement *out, cli_device *device, const cli_limits *limits, int64_t m,
                       int64_t n, int64_t k, int runs);

qn_status measure_attention(measurement *out, cli_device *device, const cli_limits *limits,
                            const attention_shape *shape, int runs);
/** Measures the gradients by q, k and v of such a prompt. */
qn_status measure_attention_backward(measurement *out, cli_device *device, const cli_limits *limits,
                                     const attention_shape *shape, int runs);
/** Measures a token of 16 heads for each of eight paged caches of 4096 keys of 512 + 64 elements,
 *  of bf16 or of e4m3fn. */
qn_status measure_mla(measurement *out, cli_device *device, const cli_limits *limits, bool is_fp8,
                      int runs);

#endif
