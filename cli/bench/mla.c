// SPDX-License-Identifier: Apache-2.0
// Times MLA for bench: a token for each of eight caches, of bf16 and of FP8.
#include "measure.h"
#include "timing.h"

#include <stdlib.h>

enum {
    BATCH = 8,
    HEADS = 16,
    KEYS = 4096,
    DIM = 512,
    ROPE_DIM = 64,
    PAGE = 64,
    PAGES = KEYS / PAGE, // of a request
    CHUNK = 1024
};
static const DLDataType bf16 = {kDLBfloat, 16, 1}, fp8 = {kDLFloat8_e4m3fn, 8, 1},
                        i32 = {kDLInt, 32, 1}, u8 = {kDLUInt, 8, 1};

typedef struct mla_run {
    cli_device *device;
    cli_tensor q_nope, q_pe, ckv, kpe, o, indices, schedule, workspace;
    void *plan;
    qn_mla_args args;
} mla_run;

static qn_status run_mla(void *context) {
    mla_run *r = context;
    return qn_mla_decode(r->device->stream, &r->args);
}

/** Makes the plan, its copy on the device and the workspace. */
static qn_status open_plan(mla_run *r) {
    int32_t qo_indptr[BATCH + 1], kv_indptr[BATCH + 1], last[BATCH];
    int64_t bytes = 0, workspace_bytes;
    for (int b = 0; b <= BATCH; b++)
        qo_indptr[b] = b, kv_indptr[b] = b * PAGES;
    for (int b = 0; b < BATCH; b++)
        last[b] = PAGE;
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = BATCH,
                                      .qo_indptr = qo_indptr,
                                      .kv_indptr = kv_indptr,
                                      .kv_last_page_len = last,
                                      .page_size = PAGE,
                                      .num_qo_heads = HEADS,
                                      .num_kv_heads = 1,
                                      .head_dim_vo = DIM,
                                      .kv_chunk = CHUNK,
                                      .num_compute_units = r->device->info.num_compute_units};
    CLI_TRY(qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a));
    r->plan = cli_alloc((size_t)bytes);
    CLI_TRY(qn_attention_plan(r->plan, &bytes, &workspace_bytes, &a));
    CLI_TRY(cli_tensor_make(&r->schedule, r->device, u8, 1, &bytes));
    CLI_TRY(cli_tensor_load(&r->schedule, r->device, r->plan));
    CLI_TRY(cli_tensor_make(&r->workspace, r->device, u8, 1, &workspace_bytes));
    r->args.plan = r->plan;
    r->args.plan_bytes = bytes;
    return QN_OK;
}

static qn_status open_mla(mla_run *r, DLDataType cache) {
    const int64_t pages = BATCH * PAGES;
    const int64_t q[] = {BATCH, HEADS, DIM}, q_pe[] = {BATCH, HEADS, ROPE_DIM};
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
                            .sm_scale = 0x1.279A74p-4f}; // 1 / sqrt(192)
    return open_plan(r);
}

static void close_mla(mla_run *r) {
    cli_tensor *const all[] = {&r->q_nope, &r->q_pe,    &r->ckv,      &r->kpe,
                               &r->o,      &r->indices, &r->schedule, &r->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cli_tensor_free(all[i], r->device);
    free(r->plan);
}

qn_status measure_mla(measurement *out, cli_device *device, const cli_limits *limits, bool is_fp8,
                      int runs) {
    mla_run r = {.device = device};
    const int64_t rows = BATCH * HEADS, width = 2 * DIM + ROPE_DIM; // of q and o, or of q, k and v
    const int64_t cache = (int64_t)BATCH * KEYS * (DIM + ROPE_DIM) * (is_fp8 ? 1 : 2);
    *out = (measurement){.op = "mla",
                         .bytes = (double)(cache + 2 * rows * width),
                         .flops = (double)(2 * rows * KEYS * width)};
    snprintf(out->problem, sizeof out->problem, "b=%d heads=%d d=%d+%d kv=%d page=%d bf16,%s",
             BATCH, HEADS, DIM, ROPE_DIM, KEYS, PAGE, is_fp8 ? "e4m3fn" : "bf16");
    qn_status st;
    CLI_TRY_OUT(open_mla(&r, is_fp8 ? fp8 : bf16));
    CLI_TRY_OUT(timing_alone(out, device, run_mla, &r, runs));
    timing_set_limit(out, limits->bf16_flops, limits->read_bytes);
out:
    close_mla(&r);
    return st;
}
