// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: AOTriton's calls (include/quern/compat/aotriton.h) on the CPU. The bytes make
// small dense or ragged attention, or its gradients, then change what they like of it: any field of
// any tensor, any scalar, where sequences begin, the numbers of dropout, the workspace.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/compat/aotriton.h>

enum {
    OUT,
    LSE,
    SEED_OUTPUT,
    OFFSET_OUTPUT,
    NUM_WRITTEN,
    Q = NUM_WRITTEN,
    K,
    V,
    B,
    CU_Q,
    CU_K,
    SEED,
    OFFSET,
    ENCODED,
    DOUT,
    DQ,
    DK,
    DV,
    DB,
    WORKSPACE, // made last, as a call tells its size
    COUNT
};

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])

typedef struct attention_sizes {
    int64_t batch, heads, kv_heads, n, m, dim, dim_vo;
} attention_sizes;

typedef struct attention_scalars {
    float sm_scale, dropout_p;
    int64_t offset2;
    int32_t is_causal, max_q, max_k;
    qn_aotriton_ext ext;
} attention_scalars;

static attention_sizes take_sizes(input *in, bool is_ragged) {
    static const uint8_t dims[] = {8, 1, 2, 3, 16, 24, 32, 64, 72};
    attention_sizes s = {.batch = is_ragged ? 1 : take(in, 4),
                         .kv_heads = 1 + take(in, 2),
                         .n = take(in, 12),
                         .m = take(in, 4) ? take(in, 24) : 2 * (int64_t)take(in, 256),
                         .dim = TAKE_ONE(in, dims)};
    s.heads = s.kv_heads * (1 + take(in, 3));
    s.dim_vo = take_bool(in) ? TAKE_ONE(in, dims) : s.dim;
    return s;
}

/** Makes a number: a tensor of one element, with one dimension or none. */
static void set_number(tensor *x, input *in) {
    static const DLDataType u64 = {kDLUInt, 64, 1};
    set_tensor(x, take_bool(in) ? i64 : u64, (int)take(in, 2), (const int64_t[]){1});
}

static void set_attention(tensor *t, const attention_sizes *s, input *in) {
    const DLDataType dtype = take_float_dtype(in);
    SET(&t[OUT], dtype, s->batch, s->heads, s->n, s->dim_vo);
    SET(&t[LSE], f32, s->batch * s->heads, s->n);
    SET(&t[Q], dtype, s->batch, s->heads, s->n, s->dim);
    SET(&t[K], dtype, s->batch, s->kv_heads, s->m, s->dim);
    SET(&t[V], dtype, s->batch, s->kv_heads, s->m, s->dim_vo);
    SET(&t[B], take_bool(in) ? dtype : take_float_dtype(in), take_bool(in) ? s->batch : 1,
        take_bool(in) ? s->heads : 1, s->n, s->m);
    const int numbers[] = {SEED, OFFSET, SEED_OUTPUT, OFFSET_OUTPUT};
    for (int i = 0; i < 4; i++) {
        set_number(&t[numbers[i]], in);
        t[numbers[i]].is_there = take_bool(in);
    }
    const uint32_t extras = take(in, 256);
    t[LSE].is_there = extras & 1;
    t[B].is_there = (extras & 6) == 6;
    if ((extras & 0xF8) == 0xF8)
        SET(&t[ENCODED], dtype, s->batch, s->heads, s->n, extras & 1 ? s->m : 0);
    for (int i = 0; i < NUM_WRITTEN; i++)
        t[i].is_written = true;
}

static attention_scalars take_scalars(const tensor *t, input *in) {
    attention_scalars a = {.sm_scale = take(in, 8) == 7 ? take_float(in) : 0.125f,
                           .dropout_p = take(in, 4) == 3 ? 0.25f : 0,
                           .offset2 = take(in, 8) == 7 ? take_wild(in) : 3,
                           .is_causal = t[B].is_there ? take(in, 16) == 15 : take_bool(in),
                           .ext = {.struct_size = sizeof a.ext}};
    if (take(in, 16) == 15)
        a.dropout_p = take_float(in);
    if (take(in, 16) == 15)
        a.ext.struct_size = (size_t)take_wild(in);
    return a;
}

/** Makes the workspace as large as the call told, or nearly. */
static void set_workspace(tensor *t, qn_status st, int64_t bytes, input *in) {
    if (st == QN_OK && bytes < 0)
        abort();
    SET_WRITTEN(&t[WORKSPACE], u8, st == QN_OK && bytes < MAX_BYTES ? bytes : 0);
    t[WORKSPACE].is_there = bytes > 0 || take_bool(in);
    if (take(in, 32) == 31)
        change_tensor(&t[WORKSPACE], in);
}

/** Gives the workspace memory; malloc aligns by 16, as workspaces need. */
static void give_workspace(tensor *t, input *in) {
    give_memory(&t[WORKSPACE], in);
    if (take(in, 32) == 31)
        lay_upon(&t[WORKSPACE], &t[take(in, COUNT)], 0);
}

static void bound_work(tensor *t) {
    double work = 1;
    for (int i = 0; i < 4; i++)
        work *= (t[Q].shape[i] > 1 ? (double)t[Q].shape[i] : 1) *
                (t[K].shape[i] > 1 ? (double)t[K].shape[i] : 1);
    if (work > 0x1p26)
        t[Q].is_there = false;
}

/** Leaves out tensors that the call does not look at: dropout's numbers without dropout, and a
 *  workspace that is not needed. */
static void leave_out(tensor *t, bool drops, int64_t bytes) {
    const int numbers[] = {SEED, OFFSET, SEED_OUTPUT, OFFSET_OUTPUT};
    for (int i = 0; i < 4 && !drops; i++)
        t[numbers[i]].is_given = false;
    if (bytes == 0)
        t[WORKSPACE].is_given = false;
}

static void fuzz_dense(input *in) {
    tensor t[COUNT] = {};
    const attention_sizes s = take_sizes(in, false);
    int64_t bytes = 0;
    set_attention(t, &s, in);
    change_tensors(t, WORKSPACE, in);
    bound_work(t);
    give_memories(t, WORKSPACE, in);
    attention_scalars a = take_scalars(t, in);
    const qn_status told = qn_aotriton_attn_fwd_workspace_bytes(&bytes, T(Q), T(K), T(V));
    check_call("aotriton_attn_fwd_workspace_bytes", told, t, COUNT);
    set_workspace(t, told, bytes, in);
    give_workspace(t, in);
    a.ext.workspace = T(WORKSPACE);
    const qn_status st = qn_aotriton_attn_fwd(
        T(Q), T(K), T(V), T(B), a.sm_scale, T(LSE), T(OUT), a.dropout_p, T(SEED), T(OFFSET),
        a.offset2, T(SEED_OUTPUT), T(OFFSET_OUTPUT), T(ENCODED), a.is_causal, nullptr, stream,
        take(in, 8) ? &a.ext : nullptr);
    leave_out(t, a.dropout_p > 0, bytes);
    check_call("aotriton_attn_fwd", st, t, COUNT);
    free_tensors(t, COUNT);
}

/** Writes begins that rise to `tokens` at most. Returns the longest sequence. */
static int32_t put_begins(tensor *x, int64_t count, int64_t tokens, input *in) {
    int64_t longest = 0;
    for (int64_t i = 0, at = 0, last = 0; i < count; i++) {
        put_i32(x, i, take_mostly(in, at));
        longest = at - last > longest ? at - last : longest;
        last = at;
        const int64_t next = at + take(in, 256);
        at = next < tokens ? next : tokens;
    }
    return (int32_t)(take(in, 16) == 15 ? take_wild(in) : longest);
}

static void fuzz_ragged(input *in) {
    tensor t[COUNT] = {};
    const attention_sizes s = take_sizes(in, true);
    const int64_t begins = 1 + take(in, 4);
    int64_t bytes = 0;
    set_attention(t, &s, in);
    t[B].is_there = take(in, 16) == 15;
    SET(&t[CU_Q], i32, begins);
    SET(&t[CU_K], i32, begins);
    change_tensors(t, WORKSPACE, in);
    bound_work(t);
    give_memories(t, WORKSPACE, in);
    attention_scalars a = take_scalars(t, in);
    a.max_q = put_begins(&t[CU_Q], begins, s.n, in);
    a.max_k = put_begins(&t[CU_K], begins, s.m, in);
    const qn_status told = qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(
        stream, &bytes, T(Q), T(K), T(V), T(CU_Q), T(CU_K));
    check_call("aotriton_attn_fwd_compact_varlen_workspace_bytes", told, t, COUNT);
    set_workspace(t, told, bytes, in);
    give_workspace(t, in);
    a.ext.workspace = T(WORKSPACE);
    const qn_status st = qn_aotriton_attn_fwd_compact_varlen(
        T(Q), T(K), T(V), T(B), T(CU_Q), T(CU_K), a.max_q, a.max_k, a.sm_scale, T(LSE), T(OUT),
        a.dropout_p, T(SEED), T(OFFSET), a.offset2, T(SEED_OUTPUT), T(OFFSET_OUTPUT), T(ENCODED),
        a.is_causal, nullptr, stream, take(in, 8) ? &a.ext : nullptr);
    leave_out(t, a.dropout_p > 0, bytes);
    check_call("aotriton_attn_fwd_compact_varlen", st, t, COUNT);
    free_tensors(t, COUNT);
}

// ---- gradients

/** Makes the tensors of a backward call, which reads what the forward call wrote; begins: of
 *  sequences, 0: dense. */
static void set_backward(tensor *t, const attention_sizes *s, int64_t begins, input *in) {
    set_attention(t, s, in);
    t[B].is_there = t[B].is_there && (begins == 0 || take(in, 16) == 15);
    t[LSE].is_there = take(in, 32) != 31;
    t[SEED_OUTPUT].is_there = t[OFFSET_OUTPUT].is_there = t[ENCODED].is_there = false;
    t[OUT].is_written = t[LSE].is_written = false;
    SET(&t[DOUT], t[OUT].t.dtype, s->batch, s->heads, s->n, s->dim_vo);
    SET_WRITTEN(&t[DQ], take_float_dtype(in), s->batch, s->heads, s->n, s->dim);
    SET_WRITTEN(&t[DK], take_float_dtype(in), s->batch, s->kv_heads, s->m, s->dim);
    SET_WRITTEN(&t[DV], take_float_dtype(in), s->batch, s->kv_heads, s->m, s->dim_vo);
    SET_WRITTEN(&t[DB], take_float_dtype(in), t[B].shape[0], t[B].shape[1], s->n, s->m);
    t[DB].is_there = t[B].is_there ? take_bool(in) : take(in, 16) == 15;
    if (begins > 0) {
        SET(&t[CU_Q], i32, begins);
        SET(&t[CU_K], i32, begins);
    }
    change_tensors(t, WORKSPACE, in);
    bound_work(t);
    give_memories(t, WORKSPACE, in);
}

static void fuzz_dense_backward(input *in) {
    tensor t[COUNT] = {};
    const attention_sizes s = take_sizes(in, false);
    int64_t bytes = 0;
    set_backward(t, &s, 0, in);
    attention_scalars a = take_scalars(t, in);
    const qn_status told =
        qn_aotriton_attn_bwd_workspace_bytes(stream, &bytes, T(Q), T(K), T(V), T(OUT), T(LSE));
    check_call("aotriton_attn_bwd_workspace_bytes", told, t, COUNT);
    set_workspace(t, told, bytes, in);
    give_workspace(t, in);
    a.ext.workspace = T(WORKSPACE);
    const bool is_fused = take_bool(in);
    const qn_aotriton_ext *ext = take(in, 8) ? &a.ext : nullptr;
    const qn_status st =
        is_fused
            ? qn_aotriton_attn_bwd_fused(T(Q), T(K), T(V), T(B), a.sm_scale, T(OUT), T(DOUT), T(DQ),
                                         T(DK), T(DV), T(DB), T(LSE), a.dropout_p, T(SEED),
                                         T(OFFSET), a.offset2, a.is_causal, stream, ext)
            : qn_aotriton_attn_bwd(T(Q), T(K), T(V), T(B), a.sm_scale, T(OUT), T(DOUT), T(DQ),
                                   T(DK), T(DV), T(DB), T(LSE), nullptr, a.dropout_p, T(SEED),
                                   T(OFFSET), a.offset2, a.is_causal, stream, ext);
    leave_out(t, a.dropout_p > 0, bytes);
    check_call(is_fused ? "aotriton_attn_bwd_fused" : "aotriton_attn_bwd", st, t, COUNT);
    free_tensors(t, COUNT);
}

static void fuzz_ragged_backward(input *in) {
    tensor t[COUNT] = {};
    const attention_sizes s = take_sizes(in, true);
    const int64_t begins = 1 + take(in, 4);
    int64_t bytes = 0;
    set_backward(t, &s, begins, in);
    attention_scalars a = take_scalars(t, in);
    a.max_q = put_begins(&t[CU_Q], begins, s.n, in);
    a.max_k = put_begins(&t[CU_K], begins, s.m, in);
    const qn_status told = qn_aotriton_attn_bwd_compact_varlen_workspace_bytes(
        stream, &bytes, T(Q), T(K), T(V), T(OUT), T(LSE), T(CU_Q), T(CU_K));
    check_call("aotriton_attn_bwd_compact_varlen_workspace_bytes", told, t, COUNT);
    set_workspace(t, told, bytes, in);
    give_workspace(t, in);
    a.ext.workspace = T(WORKSPACE);
    const qn_status st = qn_aotriton_attn_bwd_compact_varlen(
        T(Q), T(K), T(V), T(CU_Q), T(CU_K), a.max_q, a.max_k, T(B), a.sm_scale, T(OUT), T(DOUT),
        T(DQ), T(DK), T(DV), T(DB), T(LSE), nullptr, a.dropout_p, T(SEED), T(OFFSET), a.offset2,
        a.is_causal, stream, take(in, 8) ? &a.ext : nullptr);
    leave_out(t, a.dropout_p > 0, bytes);
    check_call("aotriton_attn_bwd_compact_varlen", st, t, COUNT);
    free_tensors(t, COUNT);
}

static void fuzz_dropout(input *in) {
    tensor t[COUNT] = {};
    SET_WRITTEN(&t[OUT], take_dtype(in), take(in, 3), take(in, 4), take(in, 8), take(in, 40));
    set_number(&t[SEED], in);
    set_number(&t[OFFSET], in);
    change_tensors(t, WORKSPACE, in);
    for (int i = 0; i < WORKSPACE;
         i++) // kept apart: nothing is promised of numbers that r was written over
        give_memory(&t[i], in);
    const uint64_t seed = (uint64_t)take_wild(in), offset = (uint64_t)take_wild(in);
    switch (take(in, 3)) {
    case 0:
        check_call("aotriton_debug_fill_dropout_rng",
                   qn_aotriton_debug_fill_dropout_rng(T(OUT), seed, offset, stream), t, COUNT);
        break;
    case 1:
        check_call("aotriton_debug_fill_dropout_rng_tensor",
                   qn_aotriton_debug_fill_dropout_rng_tensor(T(OUT), T(SEED), T(OFFSET), stream), t,
                   COUNT);
        break;
    default:
        check_call("aotriton_debug_simulate_encoded_softmax",
                   qn_aotriton_debug_simulate_encoded_softmax(T(OUT), take_float(in), T(SEED),
                                                              T(OFFSET), offset, stream),
                   t, COUNT);
    }
    free_tensors(t, COUNT);
}

static void check_gpu(input *) {
    if (qn_aotriton_check_gpu(stream) != QN_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const calls[])(input *) = {fuzz_dense,          fuzz_ragged,
                                             fuzz_dense_backward, fuzz_ragged_backward,
                                             fuzz_dropout,        check_gpu};
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, calls)(&in);
    return 0;
}
