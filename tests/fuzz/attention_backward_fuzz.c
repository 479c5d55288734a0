// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: qn_attention_backward on the CPU. The bytes make a small dense or ragged
// problem, then change what they like of it: any field of any tensor, any scalar, and the plan's
// numbers.
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

enum { MAX_BATCHES = 3 };
constexpr double max_work = 0x1p26; // products of elements of q and k: a call takes less than a
                                    // second
enum { DQ, DK, DV, DMASK, DSINKS, WORKSPACE, NUM_WRITTEN, D_O = NUM_WRITTEN, O, LSE, Q, K, V };
enum { SCHEDULE = V + 1, CUSTOM_MASK, MASK, Q_SCALES, K_SCALES, V_SCALES, SINKS, NUM_TENSORS };

typedef struct problem {
    int32_t qo_indptr[MAX_BATCHES + 1], kv_indptr[MAX_BATCHES + 1];
    int64_t batches, qo_len, kv_len, group, kv_heads, dim, dim_vo;
    bool is_ragged;
    qn_attention_args forward;
    qn_attention_backward_args args;
    tensor tensors[NUM_TENSORS];
    uint64_t *plan; // aligned as plans need
    int64_t plan_bytes;
} problem;

// ---- a problem

static void make_sizes(problem *p, input *in) {
    static const int16_t dims[] = {8, 1, 3, 16, 33, 64, 130, 300};
    p->is_ragged = take_bool(in);
    p->batches = 1 + take(in, MAX_BATCHES);
    p->qo_len = take(in, 256) % 80;
    p->kv_len = take(in, 256) % 80;
    p->group = 1 + take(in, 3);
    p->kv_heads = 1 + take(in, 3);
    p->dim = TAKE_ONE(in, dims);
    p->dim_vo = take_bool(in) ? p->dim : TAKE_ONE(in, dims);
    for (int64_t b = 0; b < p->batches; b++) {
        p->qo_indptr[b + 1] = p->qo_indptr[b] + (int32_t)(take(in, 256) % 20);
        p->kv_indptr[b + 1] = p->kv_indptr[b] + (int32_t)(take(in, 256) % 20);
    }
}

static void make_plan(problem *p, input *in) {
    qn_attention_plan_args a = {.struct_size = sizeof a,
                                .batches = p->batches,
                                .qo_indptr = p->qo_indptr,
                                .kv_indptr = p->kv_indptr,
                                .num_qo_heads = p->group * p->kv_heads,
                                .num_kv_heads = p->kv_heads,
                                .head_dim_vo = p->dim_vo,
                                .is_for_graph = take(in, 8) == 7};
    int64_t *const numbers[] = {&a.page_size, &a.num_qo_heads, &a.num_kv_heads, &a.head_dim_vo};
    int64_t bytes = 0, workspace_bytes;
    if (take(in, 8) == 7)
        *TAKE_ONE(in, numbers) = take_wild(in);
    if (!p->is_ragged || qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a) != QN_OK ||
        bytes > MAX_BYTES)
        return;
    p->plan = malloc((size_t)bytes);
    p->plan_bytes = bytes;
    if (!p->plan || qn_attention_plan(p->plan, &p->plan_bytes, &workspace_bytes, &a) != QN_OK)
        abort();
}

/** Sets a tensor of queries or of keys. */
static void set_rows(const problem *p, tensor *t, DLDataType dtype, bool is_of_keys, int64_t dim) {
    const int64_t heads = p->kv_heads * (is_of_keys ? 1 : p->group);
    if (p->is_ragged)
        SET(t, dtype, is_of_keys ? p->kv_indptr[p->batches] : p->qo_indptr[p->batches], heads, dim);
    else
        SET(t, dtype, p->batches, is_of_keys ? p->kv_len : p->qo_len, heads, dim);
}

static void make_masks(problem *p, input *in) {
    tensor *t = p->tensors;
    const int64_t heads = p->group * p->kv_heads;
    const DLDataType types[] = {f32, f16, bf16, boolean};
    SET(&t[MASK], TAKE_ONE(in, types), take_bool(in) ? 1 : p->batches, take_bool(in) ? 1 : heads,
        take_bool(in) ? 1 : p->qo_len, take_bool(in) ? 1 : p->kv_len);
    SET(&t[DMASK], take_float_dtype(in), t[MASK].shape[0], t[MASK].shape[1], t[MASK].shape[2],
        t[MASK].shape[3]);
    SET(&t[CUSTOM_MASK], u8, p->batches * ((p->qo_len * p->kv_len + 7) / 8));
    const uint32_t kind = take(in, 6);
    t[MASK].is_there = kind == 1 || kind == 2;
    t[DMASK].is_there = kind == 2;
    t[CUSTOM_MASK].is_there = kind == 3;
}

static void make_tensors(problem *p, input *in) {
    const DLDataType dtype = take_float_dtype(in),
                     dtype_kv = take_bool(in) ? dtype : take_float_dtype(in),
                     dtype_o = take_bool(in) ? dtype : take_float_dtype(in);
    const int64_t heads = p->group * p->kv_heads;
    tensor *t = p->tensors;
    set_rows(p, &t[Q], dtype, false, p->dim);
    set_rows(p, &t[K], dtype_kv, true, p->dim);
    set_rows(p, &t[V], dtype_kv, true, p->dim_vo);
    set_rows(p, &t[O], dtype_o, false, p->dim_vo);
    set_rows(p, &t[D_O], dtype_o, false, p->dim_vo);
    set_rows(p, &t[DQ], take_float_dtype(in), false, p->dim);
    set_rows(p, &t[DK], take_float_dtype(in), true, p->dim);
    set_rows(p, &t[DV], take_float_dtype(in), true, p->dim_vo);
    if (p->is_ragged)
        SET(&t[LSE], f32, p->qo_indptr[p->batches], heads);
    else
        SET(&t[LSE], f32, p->batches, p->qo_len, heads);
    make_masks(p, in);
    SET(&t[SINKS], f32, heads);
    SET(&t[DSINKS], f32, heads);
    SET(&t[Q_SCALES], f32, heads);
    SET(&t[K_SCALES], f32, p->kv_heads);
    SET(&t[V_SCALES], f32, p->kv_heads);
    t[SINKS].is_there = take_bool(in);
    t[DSINKS].is_there = t[SINKS].is_there && take_bool(in);
    t[Q_SCALES].is_there = t[K_SCALES].is_there = t[V_SCALES].is_there = take(in, 4) == 3;
    SET(&t[WORKSPACE], u8, 1 << 15);
}

static void make_args(problem *p, input *in) {
    qn_attention_args *a = &p->forward;
    float *const scales[] = {&a->sm_scale, &a->logits_soft_cap, &a->q_scale,   &a->k_scale,
                             &a->v_scale,  &a->dropout_p,       &a->rope_scale};
    *a = (qn_attention_args){.struct_size = sizeof *a,
                             .is_causal = take_bool(in),
                             .is_top_left = take_bool(in),
                             .has_window_left = take(in, 4) == 3,
                             .has_window_right = take(in, 4) == 3,
                             .window_left = take(in, 30),
                             .window_right = take(in, 30),
                             .logits_soft_cap = take(in, 4) == 3 ? 2 : 0,
                             .dropout_p = take(in, 4) == 3 ? 0.25f : 0};
    if (take(in, 8) == 7)
        a->pos_encoding = (qn_pos_encoding)take(in, 4);
    if (take(in, 16) == 15)
        *TAKE_ONE(in, scales) = take_float(in);
    if (take(in, 16) == 15)
        a->lse_base = (qn_lse_base)take(in, 3);
    p->args = (qn_attention_backward_args){.struct_size = sizeof p->args, .forward = a};
    if (take(in, 64) == 63)
        a->struct_size = (size_t)take_wild(in);
    if (take(in, 64) == 63)
        p->args.struct_size = (size_t)take_wild(in);
}

// ---- the call

/** Bounds the work of a run, as tensors with strides of 0 may be of any size. */
static void bound_work(problem *p) {
    const tensor *q = &p->tensors[Q], *k = &p->tensors[K];
    double work = 1;
    for (int i = 0; i < (p->is_ragged ? 3 : 4); i++)
        work *= (double)(q->shape[i] > 0 ? q->shape[i] : 1) *
                (double)(k->shape[i] > 0 ? k->shape[i] : 1);
    if (work > max_work)
        p->tensors[Q].is_there = false;
}

static void connect(problem *p, input *in) {
    qn_attention_args *f = &p->forward;
    qn_attention_backward_args *a = &p->args;
    const DLTensor **const read[] = {&a->d_o,
                                     (const DLTensor **)&f->o,
                                     (const DLTensor **)&f->lse,
                                     &f->q,
                                     &f->k,
                                     &f->v,
                                     &f->schedule,
                                     &f->custom_mask,
                                     &f->mask,
                                     &f->q_scales,
                                     &f->k_scales,
                                     &f->v_scales,
                                     &f->sinks};
    DLTensor **const written[] = {&a->dq, &a->dk, &a->dv, &a->dmask, &a->dsinks, &a->workspace};
    for (int i = 0; i < NUM_WRITTEN; i++)
        p->tensors[i].is_written = true;
    give_memories(p->tensors, NUM_TENSORS, in);
    for (int i = 0; i < NUM_TENSORS; i++)
        if (i < NUM_WRITTEN)
            *written[i] = given(&p->tensors[i]);
        else
            *read[i - NUM_WRITTEN] = given(&p->tensors[i]);
    f->plan = p->plan;
    f->plan_bytes = p->plan_bytes;
}

/** Makes the workspace as large as the call says, most of the time. */
static void size_workspace(problem *p, input *in) {
    int64_t bytes;
    problem measured = *p;
    input none = {};
    measured.args.forward = &measured.forward;
    connect(&measured, &none);
    const bool is_known =
        qn_attention_backward_workspace_bytes(&bytes, stream, &measured.args) == QN_OK;
    free_tensors(measured.tensors, NUM_TENSORS);
    if (is_known && bytes <= MAX_BYTES)
        SET(&p->tensors[WORKSPACE], u8, bytes - (take(in, 16) == 15));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
    problem p = {};
    take_cpu(&in);
    make_sizes(&p, &in);
    make_plan(&p, &in);
    make_tensors(&p, &in);
    make_args(&p, &in);
    size_workspace(&p, &in);
    change_tensors(p.tensors, NUM_TENSORS, &in);
    bound_work(&p);
    connect(&p, &in);
    check_call("attention_backward", qn_attention_backward(stream, &p.args), p.tensors,
               NUM_TENSORS);
    free_tensors(p.tensors, NUM_TENSORS);
    free(p.plan);
    return 0;
}
