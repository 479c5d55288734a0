// SPDX-License-Identifier: Apache-2.0
// Times attention's backward pass for bench, on prompts as the forward pass has them.
#include "call.h"
#include "timing.h"

#include <stdlib.h>

static const DLDataType bf16 = {kDLBfloat, 16, 1}, f32 = {kDLFloat, 32, 1}, u8 = {kDLUInt, 8, 1};

typedef struct backward_run {
    cli_device *device;
    cli_tensor q, k, v, o, lse, d_o, dq, dk, dv, workspace, forward_workspace;
    qn_attention_args forward;
    qn_attention_backward_args args;
} backward_run;

static qn_status run_backward(void *context) {
    backward_run *r = context;
    return qn_attention_backward(r->device->stream, &r->args);
}

static qn_status open_forward(backward_run *r, const attention_shape *s) {
    const int64_t q[] = {s->batch, s->qo_heads, s->qo_len, s->dim};
    const int64_t kv[] = {s->batch, s->kv_heads, s->kv_len, s->dim};
    cli_random random = {1};
    int64_t bytes;
    CLI_TRY(timing_make_filled(&r->q, r->device, bf16, 4, q, &random));
    CLI_TRY(timing_make_filled(&r->k, r->device, bf16, 4, kv, &random));
    CLI_TRY(timing_make_filled(&r->v, r->device, bf16, 4, kv, &random));
    CLI_TRY(timing_make_filled(&r->d_o, r->device, bf16, 4, q, &random));
    CLI_TRY(cli_tensor_make(&r->o, r->device, bf16, 4, q));
    CLI_TRY(cli_tensor_make(&r->lse, r->device, f32, 3, q));
    r->forward = (qn_attention_args){.struct_size = sizeof r->forward,
                                     .o = &r->o.t,
                                     .lse = &r->lse.t,
                                     .q = &r->q.t,
                                     .k = &r->k.t,
                                     .v = &r->v.t,
                                     .layout = QN_HND,
                                     .is_causal = s->is_causal};
    CLI_TRY(qn_attention_workspace_bytes(&bytes, &r->forward));
    CLI_TRY(cli_tensor_make(&r->forward_workspace, r->device, u8, 1, &bytes));
    r->forward.workspace = bytes ? &r->forward_workspace.t : nullptr;
    return qn_attention(r->device->stream, &r->forward);
}

static qn_status open_backward(backward_run *r, const attention_shape *s) {
    const int64_t q[] = {s->batch, s->qo_heads, s->qo_len, s->dim};
    const int64_t kv[] = {s->batch, s->kv_heads, s->kv_len, s->dim};
    int64_t bytes;
    CLI_TRY(open_forward(r, s));
    CLI_TRY(cli_tensor_make(&r->dq, r->device, bf16, 4, q));
    CLI_TRY(cli_tensor_make(&r->dk, r->device, bf16, 4, kv));
    CLI_TRY(cli_tensor_make(&r->dv, r->device, bf16, 4, kv));
    r->args = (qn_attention_backward_args){.struct_size = sizeof r->args,
                                           .forward = &r->forward,
                                           .d_o = &r->d_o.t,
                                           .dq = &r->dq.t,
                                           .dk = &r->dk.t,
                                           .dv = &r->dv.t};
    CLI_TRY(qn_attention_backward_workspace_bytes(&bytes, r->device->stream, &r->args));
    CLI_TRY(cli_tensor_make(&r->workspace, r->device, u8, 1, &bytes));
    r->args.workspace = &r->workspace.t;
    return QN_OK;
}

static void close_backward(backward_run *r) {
    cli_tensor *const all[] = {&r->q,
                               &r->k,
                               &r->v,
                               &r->o,
                               &r->lse,
                               &r->d_o,
                               &r->dq,
                               &r->dk,
                               &r->dv,
                               &r->workspace,
                               &r->forward_workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cli_tensor_free(all[i], r->device);
    free(r);
}

qn_status measure_attention_backward(measurement *out, cli_device *device, const cli_limits *limits,
                                     const attention_shape *s, int runs) {
    backward_run *r = cli_alloc(sizeof *r);
    const double rows = (double)(s->batch * s->dim);
    const double of_queries = (double)(s->qo_heads * s->qo_len);
    const double of_keys = (double)(s->kv_heads * s->kv_len);
    // Read: q, o, d_o, k, v; written: dq, dk, dv. Five products where the forward pass has two.
    *out = (measurement){.op = "attention_backward",
                         .bytes = 2 * rows * (4 * of_queries + 4 * of_keys),
                         .flops = 2.5 * attention_flops(s),
                         .attention = *s};
    r->device = device;
    attention_call_text(s, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(open_backward(r, s));
    CLI_TRY_OUT(timing_alone(out, device, run_backward, r, runs));
    timing_set_limit(out, limits->bf16_flops, limits->read_bytes);
out:
    close_backward(r);
    return st;
}
