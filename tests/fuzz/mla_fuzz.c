// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: qn_mla_decode on the CPU. The bytes make a small paged problem and its plan,
// then change what they like of it: any field of any tensor, any scalar, the plan's numbers, and
// the plan itself, which may come from a file.
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

enum { MAX_BATCHES = 4 };
constexpr double max_work = 0x1p27; // products of elements of q and ckv: a call takes less than a
                                    // second
enum { O, LSE, WORKSPACE, NUM_WRITTEN, Q_NOPE = NUM_WRITTEN, Q_PE, CKV, KPE, CKV_SCALES };
enum { INDICES = CKV_SCALES + 1, SCHEDULE };
enum { Q_SCALES = SCHEDULE + 1, KV_SCALES, NUM_TENSORS };

typedef struct problem {
    int32_t qo_indptr[MAX_BATCHES + 1], kv_indptr[MAX_BATCHES + 1], last[MAX_BATCHES];
    qn_attention_plan_args plan_args;
    qn_mla_args args;
    tensor tensors[NUM_TENSORS];
    uint64_t *plan; // aligned as plans need
    int64_t plan_bytes, workspace_bytes;
    int64_t heads, dim, rope_dim, page_size, pages;
} problem;

// ---- a problem

static void make_plan_args(problem *p, input *in) {
    static const int64_t chunks[] = {0, 0, -1, 1, 3, 16, 64, 100};
    static const int16_t dims[] = {8, 1, 3, 16, 33, 64, 128, 512},
                         rope_dims[] = {8, 1, 3, 16, 24, 64};
    const int64_t batches = take(in, MAX_BATCHES + 1), most = take(in, 4) ? 4 : 30;
    p->heads = 1 + take(in, 20);
    p->dim = TAKE_ONE(in, dims);
    p->rope_dim = TAKE_ONE(in, rope_dims);
    p->page_size = 1 + take(in, 5);
    p->pages = 1 + take(in, 6);
    for (int64_t b = 0; b < batches; b++) {
        p->qo_indptr[b + 1] = p->qo_indptr[b] + (int32_t)(take(in, 256) % most);
        p->kv_indptr[b + 1] = p->kv_indptr[b] + (int32_t)take(in, 12);
        p->last[b] = 1 + (int32_t)(take(in, 256) % p->page_size);
    }
    p->plan_args = (qn_attention_plan_args){.struct_size = sizeof p->plan_args,
                                            .batches = batches,
                                            .qo_indptr = p->qo_indptr,
                                            .kv_indptr = p->kv_indptr,
                                            .kv_last_page_len = p->last,
                                            .page_size = p->page_size,
                                            .num_qo_heads = p->heads,
                                            .num_kv_heads = 1,
                                            .head_dim_vo = p->dim,
                                            .kv_chunk = TAKE_ONE(in, chunks),
                                            .max_kv_splits = take(in, 4),
                                            .is_for_graph = take(in, 8) == 7};
}

/** Makes the plan, sometimes one for other tensors. */
static void make_plan(problem *p, input *in) {
    qn_attention_plan_args *a = &p->plan_args;
    int64_t *const numbers[] = {&a->page_size, &a->num_qo_heads, &a->num_kv_heads, &a->head_dim_vo,
                                &a->q_tile};
    int64_t bytes = 0;
    if (take(in, 8) == 7)
        *TAKE_ONE(in, numbers) = take_wild(in);
    if (qn_attention_plan(nullptr, &bytes, &p->workspace_bytes, a) != QN_OK || bytes > MAX_BYTES)
        return;
    p->plan = malloc((size_t)bytes);
    p->plan_bytes = bytes;
    if (!p->plan || qn_attention_plan(p->plan, &p->plan_bytes, &p->workspace_bytes, a) != QN_OK)
        abort();
}

static void change_plan(problem *p, input *in) {
    const uint32_t words = (uint32_t)p->plan_bytes / 4;
    if (!words)
        return;
    uint32_t *word = (uint32_t *)p->plan + (take(in, 256) * 256 + take(in, 256)) % words;
    switch (take(in, 4)) {
    case 0:
        *word ^= 1u << take(in, 32);
        break;
    case 1:
        *word = (uint32_t)take_wild(in);
        break;
    case 2:
        *word += take(in, 2) ? 1 : UINT32_MAX;
        break;
    default: // the plan and its memory are cut off
        p->plan_bytes = (take(in, 256) * 256 + take(in, 256)) % (p->plan_bytes + 1);
        p->plan = realloc(p->plan, (size_t)p->plan_bytes + !p->plan_bytes);
    }
}

static void make_tensors(problem *p, input *in) {
    const DLDataType dtype = take_float_dtype(in),
                     cache = take_bool(in) ? take_fp8_dtype(in) : dtype;
    const bool has_groups = take(in, 4) == 3;
    const int64_t tokens = p->qo_indptr[p->plan_args.batches] + (take(in, 8) == 0);
    tensor *t = p->tensors;
    SET(&t[Q_NOPE], dtype, tokens, p->heads, p->dim);
    SET(&t[Q_PE], dtype, tokens, p->heads, p->rope_dim);
    SET(&t[CKV], cache, p->pages, p->page_size, p->dim);
    SET(&t[KPE], has_groups ? take_float_dtype(in) : cache, p->pages, p->page_size, p->rope_dim);
    SET(&t[CKV_SCALES], f32, p->pages, p->page_size, (p->dim + 127) / 128);
    t[CKV_SCALES].is_there = has_groups;
    SET(&t[O], take_float_dtype(in), tokens, p->heads, p->dim);
    SET(&t[LSE], f32, tokens, p->heads);
    SET(&t[INDICES], i32, p->kv_indptr[p->plan_args.batches]);
    SET(&t[WORKSPACE], u8, p->workspace_bytes);
    SET(&t[Q_SCALES], f32, p->heads);
    SET(&t[KV_SCALES], f32, 1);
    t[LSE].is_there = take_bool(in);
    t[Q_SCALES].is_there = t[KV_SCALES].is_there = take(in, 4) == 3;
}

static void make_args(problem *p, input *in) {
    qn_mla_args *a = &p->args;
    float *const scales[] = {&a->sm_scale, &a->q_scale, &a->kv_scale};
    *a = (qn_mla_args){
        .struct_size = sizeof *a, .is_causal = take_bool(in), .sm_scale = 0.125f, .kv_scale = 2};
    if (take(in, 16) == 15)
        *TAKE_ONE(in, scales) = take_float(in);
    if (take(in, 16) == 15)
        a->lse_base = (qn_lse_base)take_wild(in);
    if (take(in, 64) == 63)
        a->struct_size = (size_t)take_wild(in);
}

// ---- the call

/** Bounds the work of a run, as tensors with strides of 0 may be of any size. */
static void bound_work(problem *p) {
    const tensor *q = &p->tensors[Q_NOPE], *ckv = &p->tensors[CKV];
    double work = 1;
    for (int i = 0; i < 3; i++)
        work *= (double)(q->shape[i] > 0 ? q->shape[i] : 1) *
                (double)(ckv->shape[i] > 0 ? ckv->shape[i] : 1);
    if (work > max_work)
        p->tensors[Q_NOPE].is_there = false;
}

static void put_indices(problem *p, input *in) {
    tensor *x = &p->tensors[INDICES];
    const uint32_t bad = take(in, 256);
    for (int64_t i = 0; i < x->bytes / 4; i++)
        put_i32(x, i, bad == (uint32_t)i + 1 ? take_wild(in) : i * 7 % p->pages);
}

static void connect(problem *p, input *in) {
    qn_mla_args *a = &p->args;
    const DLTensor **const read[] = {&a->q_nope,   &a->q_pe,       &a->ckv,
                                     &a->kpe,      &a->ckv_scales, &a->kv_indices,
                                     &a->schedule, &a->q_scales,   &a->kv_scales};
    DLTensor **const written[] = {&a->o, &a->lse, &a->workspace};
    for (int i = 0; i < NUM_WRITTEN; i++)
        p->tensors[i].is_written = true;
    give_memories(p->tensors, NUM_TENSORS, in);
    put_indices(p, in);
    for (int i = 0; i < NUM_TENSORS; i++)
        if (i < NUM_WRITTEN)
            *written[i] = given(&p->tensors[i]);
        else
            *read[i - NUM_WRITTEN] = given(&p->tensors[i]);
    a->plan = p->plan;
    a->plan_bytes = p->plan_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
    problem p = {};
    take_cpu(&in);
    make_plan_args(&p, &in);
    make_plan(&p, &in);
    make_tensors(&p, &in);
    make_args(&p, &in);
    if (take_bool(&in))
        for (uint32_t i = take(&in, 4); i > 0; i--)
            change_plan(&p, &in);
    change_tensors(p.tensors, NUM_TENSORS, &in);
    bound_work(&p);
    connect(&p, &in);
    check_call("mla_decode", qn_mla_decode(stream, &p.args), p.tensors, NUM_TENSORS);
    free_tensors(p.tensors, NUM_TENSORS);
    free(p.plan);
    return 0;
}
