// SPDX-License-Identifier: Apache-2.0
// Times attention for bench: prompts of several lengths, whole and causal, and decoding from a
// cache.
#include "call.h"
#include "timing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const DLDataType bf16 = {kDLBfloat, 16, 1}, u8 = {kDLUInt, 8, 1};

typedef struct attention_run {
    cli_device *device;
    cli_tensor q, k, v, o, workspace;
    qn_attention_args args;
} attention_run;

static qn_status run_attention(void *context) {
    attention_run *r = context;
    return qn_attention(r->device->stream, &r->args);
}

static qn_status open_attention(attention_run *r, const attention_shape *s) {
    const int64_t q[] = {s->batch, s->qo_heads, s->qo_len, s->dim};
    const int64_t kv[] = {s->batch, s->kv_heads, s->kv_len, s->dim};
    cli_random random = {1};
    int64_t bytes;
    CLI_TRY(timing_make_filled(&r->q, r->device, bf16, 4, q, &random));
    CLI_TRY(timing_make_filled(&r->k, r->device, bf16, 4, kv, &random));
    CLI_TRY(timing_make_filled(&r->v, r->device, bf16, 4, kv, &random));
    CLI_TRY(cli_tensor_make(&r->o, r->device, bf16, 4, q));
    r->args = (qn_attention_args){.struct_size = sizeof r->args,
                                  .o = &r->o.t,
                                  .q = &r->q.t,
                                  .k = &r->k.t,
                                  .v = &r->v.t,
                                  .layout = QN_HND,
                                  .is_causal = s->is_causal};
    CLI_TRY(qn_attention_workspace_bytes(&bytes, &r->args));
    if (bytes)
        CLI_TRY(cli_tensor_make(&r->workspace, r->device, u8, 1, &bytes));
    if (bytes)
        r->args.workspace = &r->workspace.t;
    return QN_OK;
}

static void close_attention(void *context) {
    attention_run *r = context;
    cli_tensor_free(&r->q, r->device);
    cli_tensor_free(&r->k, r->device);
    cli_tensor_free(&r->v, r->device);
    cli_tensor_free(&r->o, r->device);
    cli_tensor_free(&r->workspace, r->device);
    free(r);
}

/** Returns what a kernel may be off, for values of a magnitude of 1, as
 *  ops/attention/attention_ref.c has it; elements of q, k and v are below 2. */
static double error_of(const attention_shape *s) {
    const double u = 0x1p-24, dim = (double)s->dim;
    const double of_score = u * (dim + 24) * 4 * dim / sqrt(dim); // sm_scale is 1 / sqrt(dim)
    return 4 * of_score + 32 * u + 0x1p-8 + (double)s->kv_len * u;
}

qn_status attention_call_open(bench_call *out, cli_device *device, const attention_shape *shape) {
    attention_run *r = cli_alloc(sizeof *r);
    r->device = device;
    *out = (bench_call){
        .run = run_attention, .close = close_attention, .context = r, .device = device};
    CLI_TRY(open_attention(r, shape));
    out->outs[out->num_outs++] = &r->o;
    out->size_limit = 2;
    out->error = error_of(shape);
    return QN_OK;
}

void attention_call_text(const attention_shape *s, char *buf, size_t room) {
    snprintf(buf, room,
             "b=%" PRId64 " heads=%" PRId64 "/%" PRId64 " d=%" PRId64 " qo=%" PRId64 " kv=%" PRId64
             " bf16%s",
             s->batch, s->qo_heads, s->kv_heads, s->dim, s->qo_len, s->kv_len,
             s->is_causal ? " causal" : "");
}

/** With causality there are the scores of query i and keys 0 .. i + kv_len - qo_len. */
double attention_flops(const attention_shape *s) {
    const double n = (double)s->qo_len, all = n * (double)s->kv_len;
    const double scores = s->is_causal ? all - n * (n - 1) / 2 : all;
    return 4 * (double)(s->batch * s->qo_heads * s->dim) * scores;
}

qn_status measure_attention(measurement *out, cli_device *device, const cli_limits *limits,
                            const attention_shape *s, int runs) {
    bench_call call = {0};
    const double rows = (double)(s->batch * s->dim);
    *out = (measurement){.op = "attention",
                         .bytes =
                             4 * rows * (double)(s->qo_heads * s->qo_len + s->kv_heads * s->kv_len),
                         .flops = attention_flops(s),
                         .attention = *s};
    attention_call_text(s, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(attention_call_open(&call, device, s));
    CLI_TRY_OUT(timing_alone(out, device, call.run, call.context, runs));
    timing_set_limit(out, limits->bf16_flops, limits->read_bytes);
out:
    bench_call_close(&call);
    return st;
}
