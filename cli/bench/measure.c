// SPDX-License-Identifier: Apache-2.0
// Times quantize for bench with the device's own events. Messages are left with the library.
#include "../number.h"
#include "call.h"
#include "timing.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK = 128 };

static const DLDataType bf16 = {kDLBfloat, 16, 1}, f32 = {kDLFloat, 32, 1},
                        fp8 = {kDLFloat8_e4m3fn, 8, 1};

static qn_status make_filled(cli_tensor *out, cli_device *device, DLDataType dtype, int64_t rows,
                             int64_t cols, cli_random *random) {
    return timing_make_filled(out, device, dtype, 2, (const int64_t[]){rows, cols}, random);
}

static int64_t blocks_of(int64_t count) {
    return (count + BLOCK - 1) / BLOCK;
}

// ---- quantize

typedef struct quantize_run {
    cli_device *device;
    cli_tensor x, q, scale;
    int64_t block_rows;
} quantize_run;

static qn_status run_quantize(void *context) {
    quantize_run *r = context;
    return qn_quantize_fp8(r->device->stream, &r->q.t, &r->scale.t, &r->x.t, r->block_rows, BLOCK,
                           1e-4F);
}

static qn_status open_quantize(quantize_run *r, int64_t rows, int64_t cols) {
    int64_t shape[2] = {rows, cols},
            blocks[2] = {(rows + r->block_rows - 1) / r->block_rows, blocks_of(cols)};
    cli_random random = {1};
    CLI_TRY(make_filled(&r->x, r->device, bf16, rows, cols, &random));
    CLI_TRY(cli_tensor_make(&r->q, r->device, fp8, 2, shape));
    return cli_tensor_make(&r->scale, r->device, f32, 2, blocks);
}

static void close_quantize(void *context) {
    quantize_run *r = context;
    cli_tensor_free(&r->x, r->device);
    cli_tensor_free(&r->q, r->device);
    cli_tensor_free(&r->scale, r->device);
    free(r);
}

qn_status quantize_call_open(bench_call *out, cli_device *device, rows_shape shape,
                             int64_t block_rows) {
    quantize_run *r = cli_alloc(sizeof *r);
    *r = (quantize_run){.device = device, .block_rows = block_rows};
    *out = (bench_call){.run = run_quantize,
                        .close = close_quantize,
                        .context = r,
                        .device = device,
                        .outs = {&r->q, &r->scale},
                        .num_outs = 2,
                        .is_exact = true};
    return open_quantize(r, shape.rows, shape.dim);
}

void quantize_call_text(rows_shape s, int64_t block_rows, char *buf, size_t room) {
    snprintf(buf, room, "%" PRId64 " x %" PRId64 " bf16, blocks of %" PRId64 " x %d", s.rows, s.dim,
             block_rows, BLOCK);
}

qn_status measure_quantize(measurement *out, cli_device *device, int64_t rows, int64_t cols,
                           int64_t block_rows, int runs) {
    const rows_shape shape = {rows, cols};
    const int64_t scales = (rows + block_rows - 1) / block_rows * blocks_of(cols);
    const int64_t bytes = 3 * rows * cols + 4 * scales; // two read, one written, and the scales
    bench_call call = {0};
    *out = (measurement){.op = "quantize", .bytes = (double)bytes};
    quantize_call_text(shape, block_rows, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(quantize_call_open(&call, device, shape, block_rows));
    CLI_TRY_OUT(timing_beside_copy(out, device, call.run, call.context, runs));
out:
    bench_call_close(&call);
    return st;
}
