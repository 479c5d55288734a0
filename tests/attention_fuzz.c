// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: qn_attention_plan, qn_attention, the merges and dropout's mask on the CPU. The bytes make a small
// problem (dense, ragged or paged), then change what they like of it: any field of any tensor, any scalar, the plan's
// arrays, and the plan itself, which may come from a file. Tensors have no byte of memory beyond what their shape and
// strides name, so AddressSanitizer sees all that goes outside.
// Fuzzes: libquern
#include "../ops/attention/attention.h"

#include <quern/quern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_NDIM = 4, MAX_BATCHES = 4, MAX_BYTES = 1 << 16 };
constexpr double max_work = 0x1p27; // of elements of q and k together: a call within a second
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

typedef struct input {
    const uint8_t *at, *end;
} input;

/** A tensor; its memory is made at last, when its shape is known. */
typedef struct tensor {
    DLTensor t;
    int64_t shape[MAX_NDIM], strides[MAX_NDIM];
    uint8_t *memory, *copy;
    int64_t bytes;
    bool is_there;
} tensor;

typedef struct problem {
    qn_attention_plan_args plan_args;
    qn_attention_args args;
    tensor tensors[NUM_TENSORS];
    uint64_t *plan; // aligned as plans need it
    int64_t plan_bytes, workspace_bytes;
    int64_t heads, kv_heads, dim, dim_vo, q_tokens, kv_tokens, batches, page_size, pages;
    bool is_ragged_q, is_ragged_kv, has_plan;
} problem;

static qn_stream *stream;

// ---- what the bytes say

static uint32_t take(input *in, uint32_t below) {
    return in->at < in->end ? *in->at++ % below : 0;
}

/** A number that somebody might get wrong, or any. */
static int64_t take_wild(input *in) {
    static const int64_t wild[] = {0,
                                   1,
                                   2,
                                   -1,
                                   3,
                                   7,
                                   16,
                                   64,
                                   255,
                                   256,
                                   257,
                                   INT32_MAX,
                                   INT32_MIN,
                                   1ll << 31,
                                   1ll << 32,
                                   1ll << 40,
                                   -8,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX / 2,
                                   INT64_MIN / 4};
    const uint32_t which = take(in, 2 * sizeof wild / sizeof *wild);
    int64_t value = 0;
    if (which < sizeof wild / sizeof *wild)
        return wild[which];
    for (int i = 0; i < 3; i++)
        value = value * 256 + take(in, 256);
    return value;
}

static float take_float(input *in) {
    static const float wild[] = {0,
                                 1,
                                 -1,
                                 0.5f,
                                 2,
                                 1e-45f,
                                 1e-38f,
                                 3e38f,
                                 -3e38f,
                                 1e30f,
                                 0x1p-126f,
                                 30,
                                 __builtin_inff(),
                                 -__builtin_inff(),
                                 __builtin_nanf("")};
    return wild[take(in, sizeof wild / sizeof *wild)];
}

static DLDataType take_dtype(input *in) {
    static const DLDataType types[] = {{kDLFloat, 32, 1},
                                       {kDLFloat, 16, 1},
                                       {kDLBfloat, 16, 1},
                                       {kDLFloat8_e4m3fn, 8, 1},
                                       {kDLFloat8_e4m3fnuz, 8, 1},
                                       {kDLFloat8_e5m2, 8, 1},
                                       {kDLFloat8_e5m2fnuz, 8, 1},
                                       {kDLInt, 32, 1},
                                       {kDLUInt, 8, 1},
                                       {kDLBool, 8, 1},
                                       {kDLFloat, 64, 1},
                                       {kDLFloat4_e2m1fn, 4, 2},
                                       {kDLFloat, 16, 2},
                                       {255, 255, 65535},
                                       {kDLFloat, 0, 0}};
    return types[take(in, sizeof types / sizeof *types)];
}

// ---- tensors

static void set_tensor(tensor *x, DLDataType dtype, int ndim, const int64_t *shape) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        x->shape[i] = shape[i];
        x->strides[i] = stride;
        stride *= shape[i];
    }
    x->t = (DLTensor){.device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = dtype,
                      .shape = x->shape,
                      .strides = x->strides};
    x->is_there = true;
}
#define SET(x, dtype, ...)                                                                         \
    set_tensor(x, dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                       \
               (int64_t[]){__VA_ARGS__})

/** Bytes from the first element down to the lowest and up behind the highest one. False: more than there is room for. */
static bool get_reach(const DLTensor *t, int64_t *low, int64_t *high) {
    const int64_t size = (t->dtype.bits * t->dtype.lanes + 7) / 8;
    __int128 down = 0, up = size, stride = 1;
    bool is_empty = !t->shape || t->ndim < 0 || t->ndim > MAX_NDIM;
    for (int i = is_empty ? -1 : t->ndim - 1; i >= 0; i--) {
        is_empty |= t->shape[i] <= 0;
        const __int128 far =
            (t->strides ? t->strides[i] : stride) * ((__int128)t->shape[i] - 1) * size;
        *(far < 0 ? &down : &up) += far;
        stride = t->shape[i] > MAX_BYTES ? MAX_BYTES * (__int128)MAX_BYTES : stride * t->shape[i];
    }
    *low = (int64_t)down, *high = (int64_t)up;
    if (is_empty)
        *low = *high = 0;
    return is_empty || (up - down <= MAX_BYTES && down >= -MAX_BYTES && up <= MAX_BYTES);
}

/** Memory of exactly the tensor's reach, of any bytes; none where it reaches too far, which is to be refused. */
static void give_memory(tensor *x, input *in, bool is_written) {
    int64_t low, high;
    if (!x->is_there || !get_reach(&x->t, &low, &high))
        return;
    const int64_t shift = take(in, 64) == 63; // not aligned
    uint32_t random = take(in, 256);
    x->bytes = high - low + shift;
    x->memory = malloc((size_t)x->bytes);
    x->copy = malloc((size_t)x->bytes);
    if (!x->memory || !x->copy)
        abort();
    for (int64_t i = 0; i < x->bytes; i++) {
        random = random * 1664525 + 1013904223;
        x->memory[i] = is_written ? 0xFF : (uint8_t)(random >> 24);
    }
    memcpy(x->copy, x->memory, (size_t)x->bytes);
    x->t.byte_offset = take(in, 4) == 3 ? 64 : 0;
    x->t.data = (void *)((uintptr_t)x->memory + (uintptr_t)(shift - low) - x->t.byte_offset);
}

static void change_tensor(tensor *x, input *in) {
    const uint32_t i = take(in, MAX_NDIM);
    switch (take(in, 8)) {
    case 0:
        x->is_there = !x->is_there;
        break;
    case 1:
        x->shape[i] = take_wild(in);
        break;
    case 2:
        x->strides[i] = take_wild(in);
        break;
    case 3:
        x->t.dtype = take_dtype(in);
        break;
    case 4:
        x->t.strides = nullptr;
        break;
    case 5:
        x->t.ndim = (int32_t)take_wild(in);
        break;
    case 6:
        x->t.device.device_type = (DLDeviceType)take(in, 16);
        break;
    default:
        x->shape[i] = take(in, 8);
    }
}

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

/** The plan's arrays, each of exactly its length, and its numbers. */
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
        p->q_tokens = a->qo_indptr[p->batches] + (int32_t)take(in, 2);
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
    if (which < 12) {
        *numbers[which] = take_wild(in);
    } else if (which < 14 && arrays[which - 12]) {
        arrays[which - 12][take(in, (uint32_t)p->batches + 1)] = (int32_t)take_wild(in);
    } else if (which == 14) {
        a->batches = take(in, 2) ? INT64_MIN : (int64_t)INT32_MAX + 1;
    } else {
        a->struct_size = take(in, 8);
    }
}

/** The plan, where it is not too large; sizes are told the same twice. */
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
    default: // cut off, memory and all
        p->plan_bytes = (take(in, 256) * 256 + take(in, 256)) % (p->plan_bytes + 1);
        p->plan = realloc(p->plan, (size_t)p->plan_bytes + !p->plan_bytes);
    }
}

static void make_tensors(problem *p, input *in) {
    static const DLDataType f32 = {kDLFloat, 32, 1}, u8 = {kDLUInt, 8, 1}, i32 = {kDLInt, 32, 1};
    static const DLDataType kinds[] = {{kDLBfloat, 16, 1}, {kDLFloat, 16, 1}, {kDLFloat, 32, 1}};
    const DLDataType dtype = kinds[take(in, 3)];
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

/** No more work than a run is to take: tensors with strides of 0 are as large as they like. */
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
    for (int64_t i = 0; x->memory && i < x->bytes / 4; i++) {
        const int32_t page =
            bad == (uint32_t)i + 1 ? (int32_t)take_wild(in) : (int32_t)(i * 7 % p->pages);
        memcpy(x->memory + 4 * i, &page, 4);
    }
    if (x->memory)
        memcpy(x->copy, x->memory, (size_t)x->bytes);
}

static void connect(problem *p, input *in) {
    qn_attention_args *a = &p->args;
    const DLTensor **const read[] = {&a->q,        &a->k,           &a->v,    &a->kv_indices,
                                     &a->schedule, &a->custom_mask, &a->mask, &a->q_scales,
                                     &a->k_scales, &a->v_scales,    &a->sinks};
    DLTensor **const written[] = {&a->o, &a->lse, &a->workspace};
    for (int i = 0; i < NUM_TENSORS; i++)
        give_memory(&p->tensors[i], in, i < NUM_WRITTEN);
    put_indices(p, in);
    if (take(in, 32) == 31) { // one lies upon another
        tensor *x = &p->tensors[take(in, NUM_TENSORS)], *y = &p->tensors[take(in, NUM_TENSORS)];
        if (x->memory && y->bytes >= x->bytes)
            x->t.data = y->t.data, x->t.byte_offset = y->t.byte_offset;
    }
    for (int i = 0; i < NUM_TENSORS; i++)
        if (p->tensors[i].is_there) {
            if (i < NUM_WRITTEN)
                *written[i] = &p->tensors[i].t;
            else
                *read[i - NUM_WRITTEN] = &p->tensors[i].t;
        }
    a->plan = p->plan;
    a->plan_bytes = p->plan_bytes;
}

/** The call ends well, or with a message and nothing written; what is read stays as it is either way. */
static void call(problem *p) {
    const qn_status st = qn_attention(stream, &p->args);
    if (st != QN_OK && strncmp(qn_last_error(), "attention: ", 11) != 0)
        abort();
    for (int i = st == QN_OK ? NUM_WRITTEN : 0; i < NUM_TENSORS; i++) {
        const tensor *x = &p->tensors[i];
        if (x->memory && memcmp(x->memory, x->copy, (size_t)x->bytes) != 0)
            abort();
    }
}

static void free_problem(problem *p) {
    for (int i = 0; i < NUM_TENSORS; i++) {
        free(p->tensors[i].memory);
        free(p->tensors[i].copy);
    }
    free((void *)p->plan_args.qo_indptr);
    free((void *)p->plan_args.kv_indptr);
    free((void *)p->plan_args.kv_last_page_len);
    free((void *)p->plan_args.kv_lens);
    free(p->plan);
}

static void fuzz_attention(input *in) {
    static const DLDataType u8 = {kDLUInt, 8, 1};
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
    for (uint32_t i = take(in, 8); i > 4; i--)
        change_tensor(&p.tensors[take(in, NUM_TENSORS)], in);
    for (uint32_t i = take(in, 8); i > 5; i--)
        change_args(&p, in);
    bound_work(&p);
    p.args.q = &p.tensors[Q].t, p.args.k = &p.tensors[K].t, p.args.v = &p.tensors[V].t;
    if (!p.plan && qn_attention_workspace_bytes(&dense_bytes, &p.args) == QN_OK && take(in, 8))
        SET(&p.tensors[WORKSPACE], u8, dense_bytes);
    p.args.q = p.args.k = p.args.v = nullptr;
    connect(&p, in);
    call(&p);
    free_problem(&p);
}

// ---- merges and dropout's mask

static void fuzz_merge(input *in) {
    enum { OUT, LSE_OUT, A, LSE_A, B, LSE_B, COUNT };
    static const DLDataType f32 = {kDLFloat, 32, 1};
    tensor t[COUNT] = {};
    DLTensor *to[COUNT] = {};
    const int64_t n = take(in, 6), heads = take(in, 4), dim = take(in, 24), states = take(in, 5);
    const bool is_pair = take(in, 2);
    const DLDataType dtype = take(in, 2) ? f32 : (DLDataType){kDLBfloat, 16, 1};
    SET(&t[OUT], dtype, n, heads, dim);
    SET(&t[LSE_OUT], f32, n, heads);
    for (int i = A; i < COUNT; i += 2) {
        if (is_pair) {
            SET(&t[i], dtype, n, heads, dim);
            SET(&t[i + 1], f32, n, heads);
        } else {
            SET(&t[i], dtype, n, states, heads, dim);
            SET(&t[i + 1], f32, n, states, heads);
        }
    }
    for (uint32_t i = take(in, 4); i > 1; i--)
        change_tensor(&t[take(in, COUNT)], in);
    for (int i = 0; i < COUNT; i++) {
        give_memory(&t[i], in, i < A);
        to[i] = t[i].is_there ? &t[i].t : nullptr;
    }
    const qn_lse_base base = take(in, 16) ? QN_LSE_BASE_2 : (qn_lse_base)take_wild(in);
    if (is_pair)
        qn_merge_state(stream, to[OUT], to[LSE_OUT], to[A], to[LSE_A], to[B], to[LSE_B], base);
    else
        qn_merge_states(stream, to[OUT], to[LSE_OUT], to[A], to[LSE_A], base);
    for (int i = 0; i < COUNT; i++) {
        free(t[i].memory);
        free(t[i].copy);
    }
}

static void fuzz_dropout(input *in) {
    tensor r = {};
    SET(&r, take_dtype(in), take(in, 3), take(in, 4), take(in, 8), take(in, 40));
    if (take(in, 2))
        change_tensor(&r, in);
    give_memory(&r, in, true);
    DLTensor *const to = r.is_there ? &r.t : nullptr;
    const uint64_t seed = take(in, 256), offset = (uint64_t)take_wild(in);
    if (take(in, 2))
        qn_attention_dropout_mask(stream, to, take_float(in), seed, offset);
    else
        qn_attention_dropout_rng(stream, to, seed, offset);
    free(r.memory);
    free(r.copy);
}

int LLVMFuzzerInitialize(int *, char ***) {
    qn_device *cpu = nullptr;
    setenv("QUERN_VALIDATE", "1", 1); // pages outside the pool are to be refused, too
    setenv("QUERN_NUM_THREADS", "1", 1);
    if (qn_device_open(&cpu, "cpu") != QN_OK || qn_stream_create(&stream, cpu) != QN_OK)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
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
