// SPDX-License-Identifier: Apache-2.0
// Calls of ops on tensors of their own, which bench times and tune compares.
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include "measure.h"

/** A call that can be repeated. Zero: none. */
typedef struct bench_call {
    qn_status (*run)(void *context);
    void (*close)(void *context);
    void *context;
    cli_device *device;
    const cli_tensor *out; // what the call writes
    // An element may be off by `error` times the sum of its magnitudes. That is at most row_size[i]
    // * column_size[j], the norms of both factors, or size_limit where these are null.
    double error, size_limit;
    const double *row_size, *column_size;
} bench_call;

/** The call's tensors go. Does nothing with a call of zeros. */
void bench_call_close(bench_call *call);

typedef struct gemm_shape {
    int64_t m, n, k;
    DLDataType dtype; // of a, and of b before it is packed: FP8 with block scales, or bf16
} gemm_shape;

/** Opens products by packed weights where the device has them. Successive runs go round
 *  num_weights matrices (8 at most), so that none stays in a cache. The sizes that a comparison
 *  needs are found if is_compared. */
qn_status gemm_call_open(bench_call *out, cli_device *device, const gemm_shape *shape,
                         int num_weights, bool is_compared);
/** Makes the next run take a certain weight, or the last of the 8, and the ones after it follow. */
qn_status gemm_call_begin(bench_call *call, int weight);
/** Writes "m=1 n=4096 k=7168 e4m3fn->bf16" to buf. */
void gemm_call_text(const gemm_shape *shape, char *buf, size_t room);

qn_status attention_call_open(bench_call *out, cli_device *device, const attention_shape *shape);
/** Writes "b=1 heads=24/24 d=128 qo=1024 kv=1024 bf16 causal" to buf. */
void attention_call_text(const attention_shape *shape, char *buf, size_t room);

#endif
