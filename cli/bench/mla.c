// SPDX-License-Identifier: Apache-2.0
// Times MLA for bench: a token for each of eight caches, of bf16 and of FP8.
#include "call.h"
#include "timing.h"

#include <inttypes.h>
#include <stdlib.h>

enum { DIM = 512, ROPE_DIM = 64, PAGE = 64, CHUNK = 1024 };
static const DLDataType bf16 = {kDLBfloat, 16, 1}, fp8 = {kDLFloat8_e4m3fn, 8, 1},
                        i32 = {kDLInt, 32, 1}, u8 = {kDLUInt, 8, 1};

static constexpr float sm_scale = 0x1.279A74p-4f; // 1 / sqrt(192)

typedef struct mla_run {
    cli_device *device;
    mla_shape shape;
    cli_tensor q_nope, q_pe, ckv, kpe, o, indices, schedule, workspace;
    void *plan;
    qn_mla_args args;
} mla_run;

static qn_status run_mla(void *context) {
    mla_run *r = context;
    return qn_mla_decode(r->device->stream, &r->args);
}

static int64_t pages_of(const mla_shape *s) {
    return (s->kv_len + PAGE - 1) / PAGE; // of a request
}

/** Makes the plan, its copy on the device and the workspace. */
static qn_status open_plan(mla_run *r) {
    const int64_t batch = r->shape.batch, pages = pages_of(&r->shape);
    const int32_t last_len = (int32_t)(r->shape.kv_len - (pages - 1) * PAGE);
    int32_t *lists = cli_alloc(3 * ((size_t)batch + 1) * sizeof *lists);
    int32_t *qo_indptr = lists, *kv_indptr = lists + batch + 1, *last = lists + 2 * (batch + 1);
    for (int32_t b = 0; b <= batch; b++)
        qo_indptr[b] = b, kv_indptr[b] = b * (int32_t)pages, last[b] = last_len;
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = batch,
                                      .qo_indptr = qo_indptr,
                                      .kv_indptr = kv_indptr,
                                      .kv_last_page_len = last,
                                      .page_size = PAGE,
                                      .num_qo_heads = r->shape.heads,
                                      .num_kv_heads = 1,
                                      .head_dim_vo = DIM,
                                      .kv_chunk = CHUNK,
                                      .num_compute_units = r->device->info.num_compute_units};
    int64_t bytes = 0, workspace_bytes;
    qn_status st = qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a);
    if (st == QN_OK) {
        r->plan = cli_alloc((size_t)bytes);
        st = qn_attention_plan(r->plan, &bytes, &workspace_bytes, &a);
    }
    free(lists);
    CLI_TRY(st);
    CLI_TRY(cli_tensor_make(&r->schedule, r->device, u8, 1, &bytes));
    CLI_TRY(cli_tensor_load(&r->schedule, r->device, r->plan));
    CLI_TRY(cli_tensor_make(&r->workspace, r->device, u8, 1, &workspace_bytes));
    r->args.plan = r->plan;
    r->args.plan_bytes = bytes;
    return QN_OK;
}

static qn_status open_mla(mla_run *r) {
    const mla_shape *s = &r->shape;
    const DLDataType cache = s->is_fp8 ? fp8 : bf16;
    const int64_t pages = s->batch * pages_of(s);
    const int64_t q[] = {s->batch, s->heads, DIM}, q_pe[] = {s->batch, s->heads, ROPE_DIM};
    const int64_t ckv[] = {pages, PAGE, DIM}, kpe[] = {pages, PAGE, ROPE_DIM};
    cli_random random = {1};
    CLI_TRY(timing_make_filled(&r->q_nope, r->device, bf16, 3, q, &random));
    CLI_TRY(timing_make_filled(&r->q_pe, r->device, bf16, 3, q_pe, &random));
    CLI_TRY(timing_make_filled(&r->ckv, r->device, cache, 3, ckv, &random));
    CLI_TRY(timing_make_filled(&r->kpe, r->device, cache, 3, kpe, &random));
    CLI_TRY(timing_make_filled(&r->indices, r->device, i32, 1, &pages, &random));
    CLI_TRY(cli_tensor_make(&r->o, r->device, bf16, 3, q));
    r->args = (qn_mla_args){.struct_size = sizeof r->args,
                            .o = &r->o.t,
                            .q_nope = &r->q_nope.t,
                            .q_pe = &r->q_pe.t,
                            .ckv = &r->ckv.t,
                            .kpe = &r->kpe.t,
                            .kv_indices = &r->indices.t,
                            .schedule = &r->schedule.t,
                            .workspace = &r->workspace.t,
                            .sm_scale = sm_scale};
    return open_plan(r);
}

static void close_mla(void *context) {
    mla_run *r = context;
    cli_tensor *const all[] = {&r->q_nope, &r->q_pe,    &r->ckv,      &r->kpe,
                               &r->o,      &r->indices, &r->schedule, &r->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cli_tensor_free(all[i], r->device);
    free(r->plan);
    free(r);
}

/** Returns what a kernel may be off, for values of v of a magnitude of 1, as
 *  ops/attention/attention_ref.c has it; `largest` is the largest product of q's and k's elements,
 *  scaled. */
static double error_of(const mla_shape *s, double largest) {
    const double u = 0x1p-24, dim = DIM + ROPE_DIM, of_score = u * (dim + 24) * dim * largest;
    return 4 * of_score + 32 * u + 0x1p-8 + (double)s->kv_len * u;
}

qn_status mla_call_open(bench_call *out, cli_device *device, const mla_shape *shape) {
    const double largest = shape->is_fp8 ? 448 : 2; // of the cache's elements; q's are below 2
    mla_run *r = cli_alloc(sizeof *r);
    r->device = device;
    r->shape = *shape;
    *out = (bench_call){.run = run_mla, .close = close_mla, .context = r, .device = device};
    CLI_TRY(open_mla(r));
    out->outs[out->num_outs++] = &r->o;
    out->size_limit = largest;
    out->error = error_of(shape, 2 * largest * (double)sm_scale);
    return QN_OK;
}

void mla_call_text(const mla_shape *s, char *buf, size_t room) {
    snprintf(buf, room, "b=%" PRId64 " heads=%" PRId64 " d=%d+%d kv=%" PRId64 " page=%d bf16,%s",
             s->batch, s->heads, DIM, ROPE_DIM, s->kv_len, PAGE, s->is_fp8 ? "e4m3fn" : "bf16");
}

qn_status measure_mla(measurement *out, cli_device *device, const cli_limits *limits, bool is_fp8,
                      int runs) {
    const mla_shape s = {.batch = 8, .heads = 16, .kv_len = 4096, .is_fp8 = is_fp8};
    const int64_t rows = s.batch * s.heads, width = 2 * DIM + ROPE_DIM; // q and o, or q, k and v
    const int64_t cache = s.batch * s.kv_len * (DIM + ROPE_DIM) * (is_fp8 ? 1 : 2);
    bench_call call = {0};
    *out = (measurement){.op = "mla",
                         .bytes = (double)(cache + 2 * rows * width),
                         .flops = (double)(2 * rows * s.kv_len * width)};
    mla_call_text(&s, out->problem, sizeof out->problem);
    qn_status st;
    CLI_TRY_OUT(mla_call_open(&call, device, &s));
    CLI_TRY_OUT(timing_alone(out, device, call.run, call.context, runs));
    timing_set_limit(out, limits->bf16_flops, limits->read_bytes);
out:
    bench_call_close(&call);
    return st;
}
