// SPDX-License-Identifier: Apache-2.0
// Times ops for bench with the device's own events. Messages are left with the library.
#include "measure.h"

#include "../number.h"
#include "timing.h"

#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK = 128, NUM_WEIGHTS = 8 };

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

// ---- gemm

typedef struct gemm_run {
    cli_device *device;
    cli_tensor a, scale_a, d, b[NUM_WEIGHTS], scale_b[NUM_WEIGHTS];
    bool is_packed;
    int turn, num_weights;
} gemm_run;

static qn_status run_gemm(void *context) {
    gemm_run *r = context;
    const int w = r->turn++ % r->num_weights;
    qn_gemm_args args = {.struct_size = sizeof args,
                         .d = &r->d.t,
                         .a = &r->a.t,
                         .b = &r->b[w].t,
                         .scale_a = &r->scale_a.t,
                         .scale_b = &r->scale_b[w].t,
                         .b_is_packed = r->is_packed};
    return qn_gemm(r->device->stream, &args);
}

/** Makes a weight, in the device's own order if it has one. */
static qn_status open_weight(gemm_run *r, int w, int64_t n, int64_t k, cli_random *random) {
    cli_tensor b = {0}, scale = {0};
    int64_t shape[3], blocks[2] = {blocks_of(n), blocks_of(k)};
    DLDataType dtype;
    qn_status st;
    CLI_TRY_OUT(make_filled(&b, r->device, fp8, n, k, random));
    CLI_TRY_OUT(make_filled(&scale, r->device, f32, blocks[0], blocks[1], random));
    st = qn_gemm_packed_shape(r->device->device, &b.t, shape, &dtype);
    r->is_packed = st == QN_OK;
    if (st == QN_E_UNSUPPORTED) {
        r->b[w] = b;
        r->scale_b[w] = scale;
        r->b[w].t.shape = r->b[w].shape; // the shape moves with the struct
        r->scale_b[w].t.shape = r->scale_b[w].shape;
        return QN_OK;
    }
    CLI_TRY_OUT(st);
    CLI_TRY_OUT(cli_tensor_make(&r->b[w], r->device, dtype, 3, shape));
    CLI_TRY_OUT(cli_tensor_make(&r->scale_b[w], r->device, f32, 2, blocks));
    CLI_TRY_OUT(qn_gemm_pack(r->device->stream, &r->b[w].t, &r->scale_b[w].t, &b.t, &scale.t));
    CLI_TRY_OUT(qn_stream_sync(r->device->stream));
out:
    cli_tensor_free(&b, r->device);
    cli_tensor_free(&scale, r->device);
    return st;
}

static qn_status open_gemm(gemm_run *r, int64_t m, int64_t n, int64_t k) {
    int64_t shape[2] = {m, n};
    cli_random random = {1};
    CLI_TRY(make_filled(&r->a, r->device, fp8, m, k, &random));
    CLI_TRY(make_filled(&r->scale_a, r->device, f32, m, blocks_of(k), &random));
    CLI_TRY(cli_tensor_make(&r->d, r->device, bf16, 2, shape));
    for (int w = 0; w < r->num_weights; w++)
        CLI_TRY(open_weight(r, w, n, k, &random));
    return QN_OK;
}

static void close_gemm(gemm_run *r) {
    cli_tensor_free(&r->a, r->device);
    cli_tensor_free(&r->scale_a, r->device);
    cli_tensor_free(&r->d, r->device);
    for (int w = 0; w < NUM_WEIGHTS; w++) {
        cli_tensor_free(&r->b[w], r->device);
        cli_tensor_free(&r->scale_b[w], r->device);
    }
}

qn_status measure_gemm(measurement *out, cli_device *device, const cli_limits *limits, int64_t m,
                       int64_t n, int64_t k, int runs) {
    const int all_runs = runs + timing_warm_up(device);
    gemm_run r = {.device = device, .num_weights = all_runs < NUM_WEIGHTS ? all_runs : NUM_WEIGHTS};
    const double read = (double)m * (double)k + (double)n * (double)k +
                        4 * (double)blocks_of(k) * (double)(m + blocks_of(n));
    *out = (measurement){.op = "gemm",
                         .bytes = read + 2 * (double)m * (double)n,
                         .flops = 2 * (double)m * (double)n * (double)k};
    snprintf(out->problem, sizeof out->problem,
             "m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " e4m3fn->bf16", m, n, k);
    qn_status st;
    CLI_TRY_OUT(open_gemm(&r, m, n, k));
    CLI_TRY_OUT(timing_alone(out, device, run_gemm, &r, runs));
    timing_set_limit(out, limits->flops, limits->read_bytes);
out:
    close_gemm(&r);
    return st;
}
