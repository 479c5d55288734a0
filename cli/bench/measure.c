// SPDX-License-Identifier: Apache-2.0
// Times quantize for bench with the device's own events. Messages are left with the library.
#include "measure.h"

#include "../number.h"
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

qn_status measure_quantize(measurement *out, cli_device *device, int64_t rows, int64_t cols,
                           int64_t block_rows, int runs) {
    quantize_run r = {.device = device, .block_rows = block_rows};
    const int64_t scales = (rows + block_rows - 1) / block_rows * blocks_of(cols);
    int64_t bytes = 3 * rows * cols + 4 * scales; // two bytes read, one written, and the scales
    *out = (measurement){.op = "quantize", .bytes = (double)bytes};
    snprintf(out->problem, sizeof out->problem,
             "%" PRId64 " x %" PRId64 " bf16, blocks of %" PRId64 " x %d", rows, cols, block_rows,
             BLOCK);
    qn_status st;
    CLI_TRY_OUT(open_quantize(&r, rows, cols));
    CLI_TRY_OUT(timing_beside_copy(out, device, run_quantize, &r, runs));
out:
    cli_tensor_free(&r.x, device);
    cli_tensor_free(&r.q, device);
    cli_tensor_free(&r.scale, device);
    return st;
}
