// SPDX-License-Identifier: Apache-2.0
// The ops that bench measures on rows of bf16, and the memory that each of them must touch.
//
// A new op takes a function that calls the op, and a line in the table: the operands in the
// function's order, and how often each is moved.
#include "call.h"
#include "timing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 6, GROUP = 128, HEAD_DIM = 128, Q_PER_KV = 4 };
static constexpr float eps = 1e-6F, scale_eps = 1e-10F;

/** Shapes of operands, for `rows` rows of `dim`. There is one batch, so its shapes begin with
 *  1. */
typedef enum form {
    NONE,
    ROWS,      // [rows, dim]
    PAIRS,     // [rows, 2 dim]
    BATCH,     // [1, rows, dim]
    ROW,       // [dim]
    BATCH_ROW, // [1, dim]
    PER_TOKEN, // [rows]
    PER_GROUP, // [rows, ceil(dim / 128)]
    SUMS,      // bytes for 4224 rows of sums, or 1056 of 2048 columns or more
    ONE,       // [1]
    HEADS,     // [rows, dim / 128, 128]
    KV_HEADS   // [rows, dim / 512, 128]; both have at least one head
} form;

typedef enum dtype { BF16, F32, FP8, I32, U8 } dtype;

typedef struct operand {
    form form;
    dtype dtype;
    int moves; // 0: memory of the op's own; 1: read or written; 2: both
} operand;

typedef struct rows_run {
    qn_stream *stream;
    const struct rows_op *op;
    cli_tensor tensors[MAX_OPERANDS];
    DLTensor *t[MAX_OPERANDS]; // the tensors of the operands that exist
    void *kept[MAX_OPERANDS];  // what was in tensors that the op changes; null: not kept
    cli_device *device;
} rows_run;

typedef struct rows_op {
    const char *name, *family;
    qn_status (*run)(const rows_run *r);
    operand operands[MAX_OPERANDS];
} rows_op;

// ---- norm

static qn_status rmsnorm(const rows_run *r) {
    return qn_rmsnorm(r->stream, r->t[0], r->t[1], r->t[2], eps);
}
static qn_status fused_add_rmsnorm(const rows_run *r) {
    return qn_fused_add_rmsnorm(r->stream, r->t[0], r->t[1], r->t[2], eps);
}
static qn_status layernorm(const rows_run *r) {
    return qn_layernorm(r->stream, r->t[0], r->t[1], r->t[2], r->t[3], eps);
}
static qn_status rmsnorm_quant(const rows_run *r) {
    return qn_rmsnorm_quant(r->stream, r->t[0], r->t[1], r->t[2], r->t[3], eps);
}
static qn_status rmsnorm_dynamic_quant(const rows_run *r) {
    return qn_rmsnorm_dynamic_quant(r->stream, r->t[0], r->t[3], r->t[1], nullptr, r->t[2], eps,
                                    scale_eps);
}
static qn_status adaptive_layernorm(const rows_run *r) {
    return qn_adaptive_layernorm(r->stream, r->t[0], r->t[1], r->t[2], r->t[3], eps);
}
static qn_status gated_residual_layernorm(const rows_run *r) {
    return qn_gated_residual_layernorm(r->stream, r->t[0], r->t[1], r->t[2], r->t[3], r->t[4],
                                       r->t[5], eps);
}

static qn_status rmsnorm_backward(const rows_run *r) {
    return qn_norm_backward(r->stream,
                            &(qn_norm_backward_args){.struct_size = sizeof(qn_norm_backward_args),
                                                     .dx = r->t[0],
                                                     .d_out = r->t[1],
                                                     .x = r->t[2],
                                                     .weight = r->t[3],
                                                     .dweight = r->t[4],
                                                     .workspace = r->t[5],
                                                     .eps = eps});
}

// ---- activation

static qn_status silu_and_mul(const rows_run *r) {
    return qn_silu_and_mul(r->stream, r->t[0], r->t[1]);
}
static qn_status gelu_tanh_and_mul(const rows_run *r) {
    return qn_gelu_tanh_and_mul(r->stream, r->t[0], r->t[1]);
}
static qn_status silu_and_mul_dynamic_quant(const rows_run *r) {
    return qn_act_and_mul_dynamic_quant(r->stream, r->t[0], r->t[2], r->t[1], QN_SILU, 0,
                                        scale_eps);
}
static qn_status silu_and_mul_backward(const rows_run *r) {
    return qn_activation_backward(r->stream, r->t[0], r->t[1], r->t[2], QN_SILU, 0);
}

// ---- rope

/** Rotates in place, with pairs half a head apart. */
static qn_status rope_pos_ids(const rows_run *r) {
    return qn_apply_rope_pos_ids(r->stream, r->t[0], r->t[1], r->t[0], r->t[1], r->t[2], nullptr);
}

// clang-format off
#define OUT {ROWS, BF16, 1}, {ROWS, BF16, 1}
#define TO_FP8 {ROWS, FP8, 1}, {ROWS, BF16, 1}
#define WEIGHT {ROW, BF16, 1}
static const rows_op ops[] = {
    {"rmsnorm", "norm", rmsnorm, {OUT, WEIGHT}},
    {"fused_add_rmsnorm", "norm", fused_add_rmsnorm, {{ROWS, BF16, 2}, {ROWS, BF16, 2}, WEIGHT}},
    {"layernorm", "norm", layernorm, {OUT, WEIGHT, WEIGHT}},
    {"rmsnorm_quant", "norm", rmsnorm_quant, {TO_FP8, WEIGHT, {ONE, F32, 1}}},
    {"rmsnorm_token_quant", "norm", rmsnorm_dynamic_quant, {TO_FP8, WEIGHT, {PER_TOKEN, F32, 1}}},
    {"rmsnorm_group_quant", "norm", rmsnorm_dynamic_quant, {TO_FP8, WEIGHT, {PER_GROUP, F32, 1}}},
    {"adaptive_layernorm", "norm", adaptive_layernorm,
     {{BATCH, BF16, 1}, {BATCH, BF16, 1}, {BATCH_ROW, BF16, 1}, {BATCH_ROW, BF16, 1}}},
    {"gated_residual_layernorm", "norm", gated_residual_layernorm,
     {{BATCH, BF16, 1}, {BATCH, BF16, 1}, {BATCH, BF16, 2}, {BATCH_ROW, BF16, 1}, {BATCH_ROW, BF16, 1},
      {BATCH_ROW, BF16, 1}}},
    {"rmsnorm_backward", "norm_backward", rmsnorm_backward,
     {OUT, {ROWS, BF16, 1}, WEIGHT, WEIGHT, {SUMS, U8, 0}}},
    {"silu_and_mul", "activation", silu_and_mul, {{ROWS, BF16, 1}, {PAIRS, BF16, 1}}},
    {"gelu_tanh_and_mul", "activation", gelu_tanh_and_mul, {{ROWS, BF16, 1}, {PAIRS, BF16, 1}}},
    {"silu_and_mul_group_quant", "activation", silu_and_mul_dynamic_quant,
     {{ROWS, FP8, 1}, {PAIRS, BF16, 1}, {PER_GROUP, F32, 1}}},
    {"silu_and_mul_backward", "activation_backward", silu_and_mul_backward,
     {{PAIRS, BF16, 1}, {ROWS, BF16, 1}, {PAIRS, BF16, 1}}},
    {"rope_pos_ids", "rope", rope_pos_ids, {{HEADS, BF16, 2}, {KV_HEADS, BF16, 2}, {PER_TOKEN, I32, 1}}},
};
// clang-format on

int rows_count(void) {
    return sizeof ops / sizeof *ops;
}
const char *rows_name(int op) {
    return ops[op].name;
}
const char *rows_family(int op) {
    return ops[op].family;
}

// ---- operands

/** Returns the number of dimensions of an operand; 0: there is no such operand. */
static int shape_of(form form, rows_shape s, int64_t shape[3]) {
    const int64_t groups = (s.dim + GROUP - 1) / GROUP;
    switch (form) {
    case NONE:
        return 0;
    case ROWS:
        return shape[0] = s.rows, shape[1] = s.dim, 2;
    case PAIRS:
        return shape[0] = s.rows, shape[1] = 2 * s.dim, 2;
    case BATCH:
        return shape[0] = 1, shape[1] = s.rows, shape[2] = s.dim, 3;
    case ROW:
        return shape[0] = s.dim, 1;
    case BATCH_ROW:
        return shape[0] = 1, shape[1] = s.dim, 2;
    case PER_TOKEN:
        return shape[0] = s.rows, 1;
    case PER_GROUP:
        return shape[0] = s.rows, shape[1] = groups, 2;
    case SUMS:
        return shape[0] =
                   (s.dim < 2048 ? 4224 : 1056) * (int64_t)sizeof(float) * ((s.dim + 31) / 32 * 32),
               1;
    case ONE:
        return shape[0] = 1, 1;
    case HEADS:
    case KV_HEADS:
        const int64_t heads = s.dim / HEAD_DIM / (form == HEADS ? 1 : Q_PER_KV);
        return shape[0] = s.rows, shape[1] = heads ? heads : 1, shape[2] = HEAD_DIM, 3;
    }
    __builtin_unreachable();
}

static DLDataType dl_dtype(dtype dtype) {
    return dtype == BF16  ? (DLDataType){kDLBfloat, 16, 1}
           : dtype == F32 ? (DLDataType){kDLFloat, 32, 1}
           : dtype == I32 ? (DLDataType){kDLInt, 32, 1}
           : dtype == U8  ? (DLDataType){kDLUInt, 8, 1}
                          : (DLDataType){kDLFloat8_e4m3fn, 8, 1};
}

/** Makes the op's operands; *bytes becomes the bytes that the op must move. */
static qn_status open_rows(rows_run *r, cli_device *device, rows_shape s, int64_t *bytes) {
    cli_random random = {1};
    qn_status st = QN_OK;
    *bytes = 0;
    for (int i = 0; st == QN_OK && i < MAX_OPERANDS; i++) {
        const operand *o = &r->op->operands[i];
        int64_t shape[3], count = 1;
        const int ndim = shape_of(o->form, s, shape);
        if (ndim == 0)
            break;
        for (int k = 0; k < ndim; k++)
            count *= shape[k];
        *bytes += o->moves * count * dl_dtype(o->dtype).bits / 8;
        st = o->dtype == U8 ? cli_tensor_make(&r->tensors[i], device, dl_dtype(U8), ndim, shape)
                            : timing_make_filled(&r->tensors[i], device, dl_dtype(o->dtype), ndim,
                                                 shape, &random);
        r->t[i] = &r->tensors[i].t;
    }
    return st;
}

static rows_shape or_default(rows_shape s, const qn_device_info *info) {
    const bool is_cpu = info->wave_size == 1;
    const rows_shape usual = is_cpu              ? (rows_shape){4096, 7168}
                             : info->is_modelled ? (rows_shape){64, 8192}
                                                 : (rows_shape){16384, 8192};
    return (rows_shape){s.rows ? s.rows : usual.rows, s.dim ? s.dim : usual.dim};
}

/** Returns the operand's elements, in bytes. */
static size_t bytes_of(const cli_tensor *t) {
    size_t bytes = t->t.dtype.bits / 8;
    for (int i = 0; i < t->t.ndim; i++)
        bytes *= (size_t)t->t.shape[i];
    return bytes;
}

static bool is_changed(const operand *o) {
    return o->moves == 2;
}

/** Returns whether the op writes an operand: its first, one that it changes, or the scales that it
 *  finds. */
static bool is_written(const rows_op *op, int i) {
    const operand *o = &op->operands[i];
    return i == 0 || is_changed(o) ||
           (o->dtype == F32 && (o->form == PER_TOKEN || o->form == PER_GROUP));
}

static qn_status keep_changed(rows_run *r) {
    for (int i = 0; i < MAX_OPERANDS && r->t[i]; i++)
        if (is_changed(&r->op->operands[i])) {
            r->kept[i] = cli_alloc(bytes_of(&r->tensors[i]));
            CLI_TRY(cli_tensor_store(r->kept[i], r->device, &r->tensors[i]));
        }
    return QN_OK;
}

static qn_status restore_rows(void *context) {
    rows_run *r = context;
    for (int i = 0; i < MAX_OPERANDS; i++)
        if (r->kept[i])
            CLI_TRY(cli_tensor_load(&r->tensors[i], r->device, r->kept[i]));
    return QN_OK;
}

static void close_rows(void *context) {
    rows_run *r = context;
    for (int i = 0; i < MAX_OPERANDS; i++) {
        cli_tensor_free(&r->tensors[i], r->device);
        free(r->kept[i]);
    }
    free(r);
}

static qn_status run_op(void *context) {
    const rows_run *r = context;
    return r->op->run(r);
}

qn_status rows_call_open(bench_call *out, cli_device *device, int op, rows_shape shape,
                         bool is_compared, int64_t *bytes) {
    constexpr double largest = 16; // values are below 2, and up to four of them make one
    rows_run *r = cli_alloc(sizeof *r);
    *r = (rows_run){.stream = device->stream, .op = &ops[op], .device = device};
    *out = (bench_call){.run = run_op, .close = close_rows, .context = r, .device = device};
    CLI_TRY(open_rows(r, device, shape, bytes));
    for (int i = 0; i < MAX_OPERANDS && r->t[i]; i++)
        if (is_written(r->op, i))
            out->outs[out->num_outs++] = &r->tensors[i];
    out->error = (double)(shape.dim + 16) * 0x1p-24; // of a row's sums, and some roundings
    out->size_limit = largest;
    out->restore = restore_rows;
    return is_compared ? keep_changed(r) : QN_OK;
}

void rows_call_text(rows_shape s, char *buf, size_t room) {
    snprintf(buf, room, "%" PRId64 " x %" PRId64 " bf16", s.rows, s.dim);
}

qn_status measure_rows(measurement *out, cli_device *device, int op, rows_shape shape, int runs) {
    const rows_shape s = or_default(shape, &device->info);
    bench_call call = {0};
    int64_t bytes;
    *out = (measurement){0};
    snprintf(out->op, sizeof out->op, "%s", ops[op].name);
    rows_call_text(s, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(rows_call_open(&call, device, op, s, false, &bytes));
    out->bytes = (double)bytes;
    CLI_TRY_OUT(timing_beside_copy(out, device, call.run, call.context, runs));
out:
    bench_call_close(&call);
    return st;
}
