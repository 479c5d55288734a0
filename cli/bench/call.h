// SPDX-License-Identifier: Apache-2.0
// Calls of ops on tensors of their own, which bench times and tune compares.
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include "measure.h"
#include "rows.h"

enum { BENCH_MAX_OUTS = 3 };

/** A call that can be repeated. Zero: none. */
typedef struct bench_call {
    qn_status (*run)(void *context);
    void (*close)(void *context);
    void *context;
    cli_device *device;
    qn_status (*restore)(void *context);    // undoes what runs did to tensors read; null: nothing
    const cli_tensor *outs[BENCH_MAX_OUTS]; // what the call writes
    int num_outs;
    bool is_exact; // by the op's definition all kernels write the same bits
    // An element, before it is rounded, may be off by `error` times the sum of its magnitudes. That
    // is at most row_size[i] * column_size[j], the norms of both factors, or size_limit where these
    // are null.
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
 *  num_weights matrices (8 at most), so that none stays in a cache; 0: one without values, as is a,
 *  for a call that will not run. The sizes that a comparison needs are found if is_compared. */
qn_status gemm_call_open(bench_call *out, cli_device *device, const gemm_shape *shape,
                         int num_weights, bool is_compared);
/** Makes the next run take a certain weight, or the last of the 8, and the ones after it follow. */
qn_status gemm_call_begin(bench_call *call, int weight);
/** Writes "m=1 n=4096 k=7168 e4m3fn->bf16" to buf. */
void gemm_call_text(const gemm_shape *shape, char *buf, size_t room);

/** MLA's step of decoding: a token for each of `batch` paged caches of 512 + 64 elements. */
typedef struct mla_shape {
    int64_t batch, heads, kv_len;
    bool is_fp8; // the cache is of e4m3fn, else of bf16
} mla_shape;

qn_status mla_call_open(bench_call *out, cli_device *device, const mla_shape *shape);
/** Writes "b=8 heads=16 d=512+64 kv=4096 page=64 bf16,e4m3fn" to buf. */
void mla_call_text(const mla_shape *shape, char *buf, size_t room);

/** Opens quantisation to e4m3fn by blocks of block_rows x 128. */
qn_status quantize_call_open(bench_call *out, cli_device *device, rows_shape shape,
                             int64_t block_rows);
void quantize_call_text(rows_shape shape, int64_t block_rows, char *buf, size_t room);

/** Opens a row op, by its number in rows.c. It can be restored if is_compared. *bytes becomes the
 *  bytes that it must move. */
qn_status rows_call_open(bench_call *out, cli_device *device, int op, rows_shape shape,
                         bool is_compared, int64_t *bytes);
void rows_call_text(rows_shape shape, char *buf, size_t room);

qn_status attention_call_open(bench_call *out, cli_device *device, const attention_shape *shape);
/** Writes "b=1 heads=24/24 d=128 qo=1024 kv=1024 bf16 causal" to buf. */
void attention_call_text(const attention_shape *shape, char *buf, size_t room);
/** Returns the operations of the forward pass's two products, of the scores that causality
 *  leaves. */
double attention_flops(const attention_shape *shape);

#endif
