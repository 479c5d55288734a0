// SPDX-License-Identifier: Apache-2.0
// Products for bench and tune: FP8 with block scales, by packed weights where the device has them,
// and bf16.
#include "call.h"
#include "timing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, MAX_WEIGHTS = 8 };

static const DLDataType bf16 = {kDLBfloat, 16, 1}, f32 = {kDLFloat, 32, 1},
                        fp8 = {kDLFloat8_e4m3fn, 8, 1};

typedef struct weight {
    cli_tensor b, scale;
} weight;

typedef struct gemm_run {
    cli_device *device;
    gemm_shape shape;
    cli_tensor a, scale_a, d;
    int64_t scale_a_strides[2];
    weight weights[MAX_WEIGHTS];
    double *row_size, *column_size; // if is_compared: norms of a's rows and of the first weight's
    bool is_packed, is_compared;
    bool is_empty;         // tensors have no values
    int turn, num_weights; // weights that are open
    cli_random random;
} gemm_run;

static int64_t blocks_of(int64_t count) {
    return (count + BLOCK - 1) / BLOCK;
}

static bool is_scaled(const gemm_shape *s) {
    return s->dtype.bits == 8;
}

static qn_status run_gemm(void *context) {
    gemm_run *r = context;
    weight *w = &r->weights[r->turn++ % r->num_weights];
    const bool has_scales = is_scaled(&r->shape);
    qn_gemm_args args = {.struct_size = sizeof args,
                         .d = &r->d.t,
                         .a = &r->a.t,
                         .b = &w->b.t,
                         .scale_a = has_scales ? &r->scale_a.t : nullptr,
                         .scale_b = has_scales ? &w->scale.t : nullptr,
                         .b_is_packed = r->is_packed};
    return qn_gemm(r->device->stream, &args);
}

// ---- how large a product's sums are

/** Returns the norms of the rows of a factor, dequantised: a scale for each `block_rows` rows and
 *  128 columns. `scale` has memory without gaps. */
static qn_status find_sizes(double **out, cli_device *device, const cli_tensor *x,
                            const cli_tensor *scale, int64_t block_rows) {
    const int64_t rows = x->t.shape[0], cols = x->t.shape[1], blocks = blocks_of(cols);
    const int64_t *strides = scale->t.strides ? scale->t.strides : (int64_t[]){blocks, 1};
    const size_t bytes = x->t.dtype.bits / 8;
    uint8_t *values = cli_alloc((size_t)(rows * cols) * bytes);
    float *scales = cli_alloc((size_t)(rows * blocks) * sizeof *scales);
    double *table = cli_alloc(sizeof(double[1 << 16]));
    qn_status st;
    *out = cli_alloc((size_t)rows * sizeof **out);
    for (int code = 0; code < 1 << x->t.dtype.bits; code++)
        table[code] = cli_number_get(x->t.dtype, &(uint16_t){(uint16_t)code}, 0);
    CLI_TRY_OUT(cli_tensor_store(values, device, x));
    cli_tensor stored = *scale;
    stored.t.strides = nullptr; // as they lie
    if (scale->t.data)
        CLI_TRY_OUT(cli_tensor_store(scales, device, &stored));
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < cols; j++) {
            const int64_t at = i * cols + j;
            const double factor =
                scale->t.data ? (double)scales[i / block_rows * strides[0] + j / BLOCK * strides[1]]
                              : 1;
            const double value =
                factor * table[bytes == 1 ? values[at] : ((const uint16_t *)values)[at]];
            sum += value * value;
        }
        (*out)[i] = sqrt(sum);
    }
out:
    free(values);
    free(scales);
    free(table);
    return st;
}

// ---- tensors

static qn_status make(gemm_run *r, cli_tensor *out, DLDataType dtype, int64_t rows, int64_t cols) {
    const int64_t shape[] = {rows, cols};
    return r->is_empty ? cli_tensor_make(out, r->device, dtype, 2, shape)
                       : timing_make_filled(out, r->device, dtype, 2, shape, &r->random);
}

/** Moves a tensor, whose shape moves with the struct. */
static void move(cli_tensor *to, cli_tensor *from) {
    *to = *from;
    to->t.shape = to->shape;
    *from = (cli_tensor){0};
}

/** Puts a weight into the device's own order if it has one. */
static qn_status pack(gemm_run *r, weight *to, weight *from) {
    int64_t shape[3];
    DLDataType dtype;
    const qn_status st = qn_gemm_packed_shape(r->device->device, &from->b.t, shape, &dtype);
    r->is_packed = st == QN_OK;
    if (st == QN_E_UNSUPPORTED) {
        move(&to->b, &from->b);
        move(&to->scale, &from->scale);
        return QN_OK;
    }
    CLI_TRY(st);
    CLI_TRY(cli_tensor_make(&to->b, r->device, dtype, 3, shape));
    CLI_TRY(cli_tensor_make(&to->scale, r->device, f32, 2, from->scale.shape));
    if (r->is_empty)
        return QN_OK;
    CLI_TRY(qn_gemm_pack(r->device->stream, &to->b.t, &to->scale.t, &from->b.t, &from->scale.t));
    return qn_stream_sync(r->device->stream);
}

/** Opens the next weight. */
static qn_status open_weight(gemm_run *r) {
    const gemm_shape *s = &r->shape;
    // A checkpoint's FP8 is e4m3fn, whatever the activations' kind is.
    const DLDataType dtype = is_scaled(s) ? fp8 : s->dtype;
    weight raw = {0};
    qn_status st;
    CLI_TRY_OUT(make(r, &raw.b, dtype, s->n, s->k));
    if (is_scaled(s))
        CLI_TRY_OUT(make(r, &raw.scale, f32, blocks_of(s->n), blocks_of(s->k)));
    if (r->num_weights == 0 && r->is_compared)
        CLI_TRY_OUT(find_sizes(&r->column_size, r->device, &raw.b, &raw.scale, BLOCK));
    CLI_TRY_OUT(pack(r, &r->weights[r->num_weights], &raw));
    r->num_weights++;
out:
    cli_tensor_free(&raw.b, r->device);
    cli_tensor_free(&raw.scale, r->device);
    return st;
}

/** Makes the scales of a: on GPUs with rows side by side, as engines give them there. */
static qn_status make_scale_a(gemm_run *r) {
    const int64_t rows = r->shape.m, blocks = blocks_of(r->shape.k);
    CLI_TRY(make(r, &r->scale_a, f32, rows, blocks));
    if (r->scale_a.t.device.device_type != kDLCPU) {
        r->scale_a_strides[0] = 1;
        r->scale_a_strides[1] = rows;
        r->scale_a.t.strides = r->scale_a_strides;
    }
    return QN_OK;
}

static qn_status open_tensors(gemm_run *r, int num_weights) {
    const gemm_shape *s = &r->shape;
    CLI_TRY(make(r, &r->a, s->dtype, s->m, s->k));
    if (is_scaled(s))
        CLI_TRY(make_scale_a(r));
    if (r->is_compared)
        CLI_TRY(find_sizes(&r->row_size, r->device, &r->a, &r->scale_a, 1));
    CLI_TRY(cli_tensor_make(&r->d, r->device, bf16, 2, (const int64_t[]){s->m, s->n}));
    const int wanted = num_weights ? num_weights : 1;
    while (r->num_weights < wanted && r->num_weights < MAX_WEIGHTS)
        CLI_TRY(open_weight(r));
    return QN_OK;
}

static void close_gemm(void *context) {
    gemm_run *r = context;
    cli_tensor_free(&r->a, r->device);
    cli_tensor_free(&r->scale_a, r->device);
    cli_tensor_free(&r->d, r->device);
    for (int w = 0; w < MAX_WEIGHTS; w++) {
        cli_tensor_free(&r->weights[w].b, r->device);
        cli_tensor_free(&r->weights[w].scale, r->device);
    }
    free(r->row_size);
    free(r->column_size);
    free(r);
}

/** Returns what a kernel may be off, for sums of a magnitude of 1 (ops/gemm/gemm_ref.c). */
static double error_of(const gemm_shape *s, const qn_device_info *info) {
    const bool is_cut = is_scaled(s) && strncmp(info->arch, "sm_9", 4) == 0;
    return 2 * ((double)s->k + 4) * 0x1p-24 + (is_cut ? 33 * 0x1p-13 : 0);
}

qn_status gemm_call_open(bench_call *out, cli_device *device, const gemm_shape *shape,
                         int num_weights, bool is_compared) {
    gemm_run *r = cli_alloc(sizeof *r);
    *r = (gemm_run){.device = device, .shape = *shape, .is_compared = is_compared, .random = {1}};
    *out = (bench_call){.run = run_gemm, .close = close_gemm, .context = r, .device = device};
    CLI_TRY(open_tensors(r, num_weights));
    out->outs[out->num_outs++] = &r->d;
    out->error = error_of(shape, &device->info);
    out->row_size = r->row_size;
    out->column_size = r->column_size;
    return QN_OK;
}

qn_status gemm_call_begin(bench_call *call, int weight) {
    gemm_run *r = call->context;
    r->turn = weight < MAX_WEIGHTS ? weight : MAX_WEIGHTS - 1;
    while (r->num_weights <= r->turn)
        CLI_TRY(open_weight(r));
    return QN_OK;
}

static const char *dtype_name(DLDataType dtype) {
    return dtype.code == kDLBfloat            ? "bf16"
           : dtype.code == kDLFloat8_e4m3fnuz ? "e4m3fnuz"
                                              : "e4m3fn";
}

void gemm_call_text(const gemm_shape *s, char *buf, size_t room) {
    snprintf(buf, room, "m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " %s->bf16", s->m, s->n, s->k,
             dtype_name(s->dtype));
}

// ---- bench

qn_status measure_gemm(measurement *out, cli_device *device, const cli_limits *limits, int64_t m,
                       int64_t n, int64_t k, int runs) {
    const gemm_shape shape = {m, n, k, fp8};
    const double read = (double)m * (double)k + (double)n * (double)k +
                        4 * (double)blocks_of(k) * (double)(m + blocks_of(n));
    bench_call call = {0};
    *out = (measurement){.op = "gemm",
                         .bytes = read + 2 * (double)m * (double)n,
                         .flops = 2 * (double)m * (double)n * (double)k};
    gemm_call_text(&shape, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(gemm_call_open(&call, device, &shape, runs + timing_warm_up(device), false));
    CLI_TRY_OUT(timing_alone(out, device, call.run, call.context, runs));
    timing_set_limit(out, limits->flops, limits->read_bytes);
out:
    bench_call_close(&call);
    return st;
}
