// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: qn_attention_plan, qn_attention, the merges and dropout's mask on the CPU. The
// bytes make a small problem (dense, ragged or paged), then change what they like of it: any field
// of any tensor, any scalar, the plan's arrays, and the plan itself, which may come from a file.
// Fuzzes: libquern
#include "../../ops/attention/attention.h"
#include "fuzz_tensors.h"

#include <quern/quern.h>

enum { MAX_BATCHES = 4 };
constexpr double max_work = 0x1p27; // products of elements of q and k: a call takes less than a
                                    // second
enum {
    O,
    LSE,
    WORKSPACE,
    NUM_WRITTEN,
    Q = NUM_WRITTEN,
    K,
    V,
    INDICES,
    SCHEDULE,
    CUSTOM_MASK,
    MASK
};
enum { Q_SCALES = MASK + 1, K_SCALES, V_SCALES, SINKS, NUM_TENSORS };

typedef struct problem {
    qn_attention_plan_args plan_args;
    qn_attention_args args;
    tensor tensors[NUM_TENSORS];
    uint64_t *plan; // aligned as plans need
    int64_t plan_bytes, workspace_bytes;
    int64_t heads, kv_heads, dim, dim_vo, q_tokens, kv_tokens, batches, page_size, pages;
    bool is_ragged_q, is_ragged_kv, has_plan;
} problem;

// ---- a problem

static int32_t *make_indptr(input *in, int64_t batches, int64_t most) {
    int32_t *indptr = malloc((size_t)(batches + 1) * sizeof *indptr);
    if (!indptr)
        abort();
    for (int64_t b = 0, sum = 0; b <= batches; b++) {
        indptr[b] = (int32_t)sum;
        sum += take(in, 256) % (most + 1);
    }
    return indptr;
}

static int32_t *make_lengths(input *in, int64_t batches, int64_t most) {
    int32_t *lengths = malloc((size_t)batches * sizeof *lengths);
    for (int64_t b = 0; b < batches && lengths; b++)
        lengths[b] =
            take(in, 64) == 63 ? (int32_t)take_wild(in) : 1 + (int32_t)(take(in, 256) % most);
    return lengths;
}

static void make_sizes(problem *p, input *in) {
    static const uint8_t dims[] = {8, 1, 2, 3, 16, 24, 32, 40, 64, 72};
    const uint32_t kind = take(in, 8);
    p->is_ragged_q = kind & 1;
    p->is_ragged_kv = kind & 2;
    p->page_size = kind >= 6 ? 1 + take(in, 5) : 0;
    p->has_plan = kind != 0;
    p->kv_heads = 1 + take(in, 3);
    p->heads = p->kv_heads * (1 + take(in, 5));
    p->dim = dims[take(in, sizeof dims)];
    p->dim_vo = take(in, 2) ? dims[take(in, sizeof dims)] : p->dim;
    p->batches = take(in, MAX_BATCHES + 1);
    p->q_tokens = take(in, 4) ? take(in, 8) : take(in, 40);
    p->kv_tokens = take(in, 4) ? take(in, 24) : 2 * (int64_t)take(in, 256);
}

/** Makes the plan's arrays, each of exactly its length, and its numbers. */
static void make_plan_args(problem *p, input *in) {
    static const int64_t chunks[] = {0, 0, -1, 1, 3, 16, 64, 100};
    qn_attention_plan_args *a = &p->plan_args;
    *a = (qn_attention_plan_args){.struct_size = sizeof *a,
                                  .batches = p->batches,
                                  .qo_len = p->q_tokens,
                                  .kv_len = p->kv_tokens,
                                  .page_size = p->page_size,
                                  .num_qo_heads = p->heads,
                                  .num_kv_heads = p->kv_heads,
                                  .head_dim_vo = p->dim_vo,
                                  .kv_chunk = chunks[take(in, 8)],
                                  .max_kv_splits = take(in, 4)};
    if (p->is_ragged_q) {
        a->qo_indptr = make_indptr(in, p->batches, p->q_tokens);
        p->q_tokens = a->qo_indptr[p->batches] + (take(in, 8) == 0);
    }
    if (p->is_ragged_kv || p->page_size) {
        a->kv_indptr = make_indptr(in, p->batches, p->page_size ? 5 : p->kv_tokens);
        p->kv_tokens = a->kv_indptr[p->batches] + (int32_t)take(in, 2);
    } else if (take(in, 2)) {
        a->kv_lens = make_lengths(in, p->batches, p->kv_tokens + 1);
    }
    if (p->page_size)
        a->kv_last_page_len = make_lengths(in, p->batches, p->page_size);
}

static void change_plan_args(problem *p, input *in) {
    qn_attention_plan_args *a = &p->plan_args;
    int64_t *const numbers[] = {&a->qo_len,       &a->kv_len,        &a->page_size,
                                &a->num_qo_heads, &a->num_kv_heads,  &a->head_dim_vo,
                                &a->kv_chunk,     &a->max_kv_splits, &a->q_tile,
                                &a->max_qo_len,   &a->max_kv_len,    &a->num_compute_units};
    int32_t *const arrays[] = {(int32_t *)a->qo_indptr, (int32_t *)a->kv_indptr};
    const uint32_t which = take(in, 16);
    if (which < 12)
        *numbers[which] = take_wild(in);
    else if (which < 14 && arrays[which - 12])
        arrays[which - 12][take(in, (uint32_t)p->batches + 1)] = (int32_t)take_wild(in);
    else if (which == 14)
        a->batches = take(in, 2) ? INT64_MIN : (int64_t)INT32_MAX + 1;
    else
        a->struct_size = take(in, 8);
}

/** Makes the plan if it is not too large; both calls must tell equal sizes. */
static void make_plan(problem *p) {
    int64_t bytes = 0, workspace_bytes = 0;
    if (qn_attention_plan(nullptr, &bytes, &workspace_bytes, &p->plan_args) != QN_OK) {
        if (strncmp(qn_last_error(), "attention_plan: ", 16) != 0)
            abort();
        return;
    }
    if (bytes < 0 || workspace_bytes < 0)
        abort();
    if (bytes > MAX_BYTES)
        return;
    p->plan = malloc((size_t)bytes);
    p->plan_bytes = bytes;
    if (!p->plan ||
        qn_attention_plan(p->plan, &p->plan_bytes, &p->workspace_bytes, &p->plan_args) != QN_OK ||
        p->plan_bytes != bytes || p->workspace_bytes != workspace_bytes)
        abort();
}

static void change_plan(problem *p, input *in) {
    const uint32_t words = (uint32_t)p->plan_bytes / 4;
    if (!words)
        return;
    uint32_t *word = (uint32_t *)p->plan + (take(in, 256) * 256 + take(in, 256)) % words;
    switch (take(in, 6)) {
    case 0:
        *word ^= 1u << take(in, 32);
        break;
    case 1:
        *word = (uint32_t)take_wild(in);
        break;
    case 2:
        *word += take(in, 2) ? 1 : UINT32_MAX;
        break;
    case 3:
        memcpy(word, &(int64_t){take_wild(in)}, word + 1 < (uint32_t *)p->plan + words ? 8 : 4);
        break;
    case 4:
        *word = take(in, 256);
        break;
    default: // the plan and its memory are cut off
        p->plan_bytes = (take(in, 256) * 256 + take(in, 256)) % (p->plan_bytes + 1);
        p->plan = realloc(p->plan, (size_t)p->plan_bytes + !p->plan_bytes);
    }
}

static void make_tensors(problem *p, input *in) {
    const DLDataType dtype = take_float_dtype(in);
    tensor *t = p->tensors;
    const int64_t pages = 1 + take(in, 6), b = p->batches, n = p->q_tokens, kv = p->kv_tokens;
    if (p->is_ragged_q && p->has_plan) {
        SET(&t[Q], dtype, n, p->heads, p->dim);
        SET(&t[O], dtype, n, p->heads, p->dim_vo);
        SET(&t[LSE], f32, n, p->heads);
    } else {
        SET(&t[Q], dtype, b, n, p->heads, p->dim);
        SET(&t[O], dtype, b, n, p->heads, p->dim_vo);
        SET(&t[LSE], f32, b, n, p->heads);
    }
    if (p->page_size) {
        SET(&t[K], dtype, pages, p->page_size, p->kv_heads, p->dim);
        SET(&t[V], dtype, pages, p->page_size, p->kv_heads, p->dim_vo);
        SET(&t[INDICES], i32, kv);
        p->pages = pages;
    } else if (p->is_ragged_kv && p->has_plan) {
        SET(&t[K], dtype, kv, p->kv_heads, p->dim);
        SET(&t[V], dtype, kv, p->kv_heads, p->dim_vo);
    } else {
        SET(&t[K], dtype, b, kv, p->kv_heads, p->dim);
        SET(&t[V], dtype, b, kv, p->kv_heads, p->dim_vo);
    }
    const uint32_t extras = take(in, 256);
    t[LSE].is_there = extras & 1;
    if ((extras & 6) == 6)
        SET(&t[MASK], extras & 8 ? u8 : f32, b, p->heads, n, kv);
    t[CUSTOM_MASK].is_there = (extras & 48) == 48;
    if ((extras & 192) == 192) {
        SET(&t[Q_SCALES], f32, p->heads);
        SET(&t[K_SCALES], f32, p->kv_heads);
        SET(&t[V_SCALES], f32, p->kv_heads);
        SET(&t[SINKS], f32, p->heads);
    }
}

static void make_args(problem *p, input *in) {
    qn_attention_args *a = &p->args;
    const uint32_t flags = take(in, 256);
    *a = (qn_attention_args){.struct_size = sizeof *a,
                             .is_causal = flags & 1,
                             .is_top_left = flags >> 1 & 1,
                             .has_window_left = (flags & 12) == 12,
                             .has_window_right = (flags & 48) == 48,
                             .window_left = take(in, 64),
                             .window_right = take(in, 8),
                             .pos_encoding =
                                 (flags & 192) == 192 ? (qn_pos_encoding)take(in, 3) : 0};
    a->dropout_p = take(in, 8) == 7 ? 0.25f : 0;
    a->logits_soft_cap = take(in, 8) == 7 ? 30 : 0;
}

static void change_args(problem *p, input *in) {
    qn_attention_args *a = &p->args;
    int32_t *const ints[] = {&a->layout,          &a->is_causal,        &a->is_top_left,
                             &a->has_window_left, &a->has_window_right, &a->pos_encoding,
                             &a->lse_base};
    float *const floats[] = {&a->rope_scale, &a->rope_theta, &a->sm_scale, &a->logits_soft_cap,
                             &a->q_scale,    &a->k_scale,    &a->v_scale,  &a->dropout_p};
    const uint32_t which = take(in, 20);
    if (which < 7)
        *ints[which] = (int32_t)take_wild(in);
    else if (which < 15)
        *floats[which - 7] = take_float(in);
    else if (which == 15)
        a->window_left = take_wild(in);
    else if (which == 16)
        a->window_right = take_wild(in);
    else if (which == 17)
        a->struct_size = (size_t)take_wild(in);
    else
        a->dropout_seed = a->dropout_offset = (uint64_t)take_wild(in);
}

// ---- the call

/** Bounds the work of a run, as tensors with strides of 0 may be of any size. */
static void bound_work(problem *p) {
    const tensor *q = &p->tensors[Q], *k = &p->tensors[K];
    double work = 1;
    for (int i = 0; i < MAX_NDIM; i++)
        work *= (double)(q->shape[i] > 0 && i < q->t.ndim ? q->shape[i] : 1) *
                (double)(k->shape[i] > 0 && i < k->t.ndim ? k->shape[i] : 1);
    if (work > max_work)
        p->tensors[Q].is_there = false;
}

static void put_indices(problem *p, input *in) {
    tensor *x = &p->tensors[INDICES];
    const uint32_t bad = take(in, 256);
    for (int64_t i = 0; i < x->bytes / 4; i++)
        put_i32(x, i, bad == (uint32_t)i + 1 ? take_wild(in) : i * 7 % p->pages);
}

static void connect(problem *p, input *in) {
    qn_attention_args *a = &p->args;
    const DLTensor **const read[] = {&a->q,        &a->k,           &a->v,    &a->kv_indices,
                                     &a->schedule, &a->custom_mask, &a->mask, &a->q_scales,
                                     &a->k_scales, &a->v_scales,    &a->sinks};
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

static void free_problem(problem *p) {
    free_tensors(p->tensors, NUM_TENSORS);
    free((void *)p->plan_args.qo_indptr);
    free((void *)p->plan_args.kv_indptr);
    free((void *)p->plan_args.kv_last_page_len);
    free((void *)p->plan_args.kv_lens);
    free(p->plan);
}

static void fuzz_attention(input *in) {
    problem p = {.pages = 1};
    int64_t dense_bytes = 0;
    make_sizes(&p, in);
    make_plan_args(&p, in);
    make_tensors(&p, in);
    make_args(&p, in);
    for (uint32_t i = take(in, 4); i == 3 && in->at < in->end; i = take(in, 4))
        change_plan_args(&p, in);
    if (p.has_plan)
        make_plan(&p);
    SET(&p.tensors[WORKSPACE], u8, p.workspace_bytes);
    if (p.tensors[CUSTOM_MASK].is_there)
        SET(&p.tensors[CUSTOM_MASK], u8,
            p.plan ? ((const qk_attention_schedule *)p.plan)->mask_bytes
                   : p.batches * ((p.q_tokens * p.kv_tokens + 7) / 8));
    if (take(in, 2))
        for (uint32_t i = take(in, 6); i > 0; i--)
            change_plan(&p, in);
    change_tensors(p.tensors, NUM_TENSORS, in);
    for (uint32_t i = take(in, 8); i > 5; i--)
        change_args(&p, in);
    bound_work(&p);
    p.args.q = &p.tensors[Q].t, p.args.k = &p.tensors[K].t, p.args.v = &p.tensors[V].t;
    if (!p.plan && qn_attention_workspace_bytes(&dense_bytes, &p.args) == QN_OK && take(in, 8))
        SET(&p.tensors[WORKSPACE], u8, dense_bytes);
    p.args.q = p.args.k = p.args.v = nullptr;
    connect(&p, in);
    check_call("attention", qn_attention(stream, &p.args), p.tensors, NUM_TENSORS);
    free_problem(&p);
}

// ---- merges and dropout's mask

static void fuzz_merge(input *in) {
    enum { OUT, LSE_OUT, A, LSE_A, B, LSE_B, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 6), heads = take(in, 4), dim = take(in, 24), states = take(in, 5);
    const bool is_pair = take(in, 2);
    const DLDataType dtype = take(in, 2) ? f32 : (DLDataType){kDLBfloat, 16, 1};
    SET_WRITTEN(&t[OUT], dtype, n, heads, dim);
    SET_WRITTEN(&t[LSE_OUT], f32, n, heads);
    for (int i = A; i < COUNT; i += 2) {
        if (is_pair) {
            SET(&t[i], dtype, n, heads, dim);
            SET(&t[i + 1], f32, n, heads);
        } else {
            SET(&t[i], dtype, n, states, heads, dim);
            SET(&t[i + 1], f32, n, states, heads);
        }
    }
    t[OUT].source = &t[A], t[LSE_OUT].source = &t[LSE_A];
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    const qn_lse_base base = take(in, 16) ? QN_LSE_BASE_2 : (qn_lse_base)take_wild(in);
    if (is_pair)
        check_call("merge_state",
                   qn_merge_state(stream, given(&t[OUT]), given(&t[LSE_OUT]), given(&t[A]),
                                  given(&t[LSE_A]), given(&t[B]), given(&t[LSE_B]), base),
                   t, COUNT);
    else
        check_call("merge_states",
                   qn_merge_states(stream, given(&t[OUT]), given(&t[LSE_OUT]), given(&t[A]),
                                   given(&t[LSE_A]), base),
                   t, COUNT);
    free_tensors(t, COUNT);
}

static void fuzz_dropout(input *in) {
    tensor r = {};
    SET_WRITTEN(&r, take_dtype(in), take(in, 3), take(in, 4), take(in, 8), take(in, 40));
    change_tensors(&r, 1, in);
    give_memory(&r, in);
    const uint64_t seed = take(in, 256), offset = (uint64_t)take_wild(in);
    if (take(in, 2))
        check_call("attention_dropout_mask",
                   qn_attention_dropout_mask(stream, given(&r), take_float(in), seed, offset), &r,
                   1);
    else
        check_call("attention_dropout_rng",
                   qn_attention_dropout_rng(stream, given(&r), seed, offset), &r, 1);
    free_tensors(&r, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
    take_cpu(&in);
    switch (take(&in, 16)) {
    case 14:
        fuzz_merge(&in);
        break;
    case 15:
        fuzz_dropout(&in);
        break;
    default:
        fuzz_attention(&in);
    }
    return 0;
}
