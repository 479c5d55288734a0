// SPDX-License-Identifier: Apache-2.0
// AOTriton's call for sequences one after another, on the CPU and on simulated GPUs. It must give
// the bits of the dense call on each sequence alone, and be within f32's rounding of softmax, with
// dropout too. Refusals must have the right words.
#include "aotriton_test.h"

static qn_status call_varlen(const problem *c, const DLTensor *cu_q, const DLTensor *cu_k,
                             int32_t max_q, int32_t max_k) {
    const qn_aotriton_ext ext = {sizeof ext, tensor(c->workspace)};
    return qn_aotriton_attn_fwd_compact_varlen(
        tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), cu_q, cu_k, max_q, max_k, c->scale,
        tensor(c->lse), tensor(c->out), c->p, c->seed, c->offset1, c->offset2, tensor(c->seed_out),
        tensor(c->offset_out), tensor(c->encoded), c->is_causal, nullptr, stream, &ext);
}

enum { SEQUENCES = 4, TOKENS = 27, KEYS = 320, MAX_Q = 20, MAX_K = 304 };
static const int32_t begins_q[] = {0, 3, 3, 20, 25}, begins_k[] = {0, 300, 304, 319, 319};

/** Sequences of 3, 0, 17 and 5 queries on 300 (in chunks), 4, 15 and no keys; the last two tokens
 *  are in no sequence. */
static problem make_varlen(DLDataType dtype) {
    return (problem){.scale = 0.125f,
                     .q = randomize(MAKE(dtype, 1, 4, TOKENS, 64)),
                     .k = randomize(MAKE(dtype, 1, 2, KEYS, 64)),
                     .v = randomize(MAKE(dtype, 1, 2, KEYS, 64)),
                     .out = MAKE(dtype, 1, 4, TOKENS, 64),
                     .lse = MAKE(f32, 4, TOKENS)};
}

static box *indices(const int32_t *values) {
    box *b = MAKE(i32, SEQUENCES + 1);
    memcpy(element(b, 0), values, (SEQUENCES + 1) * sizeof *values);
    send(b);
    return b;
}

static int64_t varlen_bytes(const problem *c, const DLTensor *cu_q, const DLTensor *cu_k) {
    int64_t bytes;
    ok(qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(stream, &bytes, &c->q->t, &c->k->t,
                                                           &c->v->t, cu_q, cu_k));
    return bytes;
}

static place place_of(int64_t s) {
    return (place){.q_begin = begins_q[s],
                   .n = begins_q[s + 1] - begins_q[s],
                   .k_begin = begins_k[s],
                   .m = begins_k[s + 1] - begins_k[s],
                   .index = s};
}

/** Checks that tokens of no sequence keep their poison. */
static void check_nobodys(const problem *c) {
    for (int64_t h = 0; h < 4; h++)
        for (int64_t i = begins_q[SEQUENCES]; i < TOKENS; i++)
            assert_true(isnan(at(c->out, 0, h, i, 0)) && isnan(at(c->lse, h, i, 0, 0)));
}

static void test_varlen_definition(void **) {
    problem c = make_varlen(f32);
    const box *cu_q = indices(begins_q), *cu_k = indices(begins_k);
    box *mask = MAKE(f32, SEQUENCES, 4, MAX_Q, MAX_K);
    c.workspace = MAKE(u8, varlen_bytes(&c, &cu_q->t, &cu_k->t));
    c.seed = &number(i64, 7)->t;
    ok(qn_aotriton_debug_simulate_encoded_softmax(&mask->t, 0.25f, c.seed, nullptr, 11, stream));
    fetch(mask);
    c.offset2 = 11;
    c.seed_out = number(u64, 0), c.offset_out = number(u64, 0);
    for (int i = 0; i < 3; i++) {
        c.is_causal = i == 1;
        c.p = i == 2 ? 0.25f : 0;
        ok(call_varlen(&c, &cu_q->t, &cu_k->t, MAX_Q, MAX_K));
        fetch(c.out), fetch(c.lse), fetch(c.workspace);
        for (int64_t s = 0; s < SEQUENCES; s++) {
            const place where = place_of(s);
            check_sequence(&c, &where, c.p > 0 ? mask : nullptr);
        }
        check_nobodys(&c);
    }
    assert_true(number_in(c.seed_out) == 7 && number_in(c.offset_out) == 11);
    free_boxes();
}

/** Returns the tokens `begin` to `begin + count` of a tensor, a sequence's. */
static DLTensor part_of(const box *b, int64_t begin, int64_t count, int64_t shape[MAX_DIMS]) {
    const int tokens = b->t.ndim == 4 ? 2 : 1;
    DLTensor part = b->t;
    memcpy(shape, b->shape, MAX_DIMS * sizeof *shape);
    shape[tokens] = count;
    part.shape = shape;
    part.byte_offset += (uint64_t)(begin * b->strides[tokens] * b->t.dtype.bits / 8);
    return part;
}

/** Runs one sequence as a dense batch of one, into out and lse. */
static void attend_alone(const problem *c, int64_t s, box *out, box *lse, box *workspace) {
    const place p = place_of(s);
    int64_t shapes[5][MAX_DIMS];
    const DLTensor q = part_of(c->q, p.q_begin, p.n, shapes[0]);
    const DLTensor k = part_of(c->k, p.k_begin, p.m, shapes[1]);
    const DLTensor v = part_of(c->v, p.k_begin, p.m, shapes[2]);
    DLTensor o = part_of(out, p.q_begin, p.n, shapes[3]);
    DLTensor l = part_of(lse, p.q_begin, p.n, shapes[4]);
    ok(qn_aotriton_attn_fwd(&q, &k, &v, nullptr, c->scale, &l, &o, 0, nullptr, nullptr, 0, nullptr,
                            nullptr, nullptr, c->is_causal, nullptr, stream,
                            &(qn_aotriton_ext){sizeof(qn_aotriton_ext), &workspace->t}));
}

/** Bits equal those of each sequence alone, with lengths on the host or on the device. */
static void test_varlen_bits(void **) {
    static const DLDataType dtypes[] = {f32, f16, bf16};
    int64_t count = SEQUENCES + 1;
    const DLTensor host_q = {
        .data = (void *)begins_q, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i32, .shape = &count};
    DLTensor host_k = host_q;
    host_k.data = (void *)begins_k;
    for (int i = 0; i < 6; i++) {
        problem c = make_varlen(dtypes[i % 3]);
        box *out = MAKE(dtypes[i % 3], 1, 4, TOKENS, 64), *lse = MAKE(f32, 4, TOKENS);
        const DLTensor *cu_q = i & 1 ? &indices(begins_q)->t : &host_q;
        const DLTensor *cu_k = i & 2 ? &indices(begins_k)->t : &host_k;
        c.is_causal = i > 2;
        c.workspace = MAKE(u8, varlen_bytes(&c, cu_q, cu_k));
        ok(call_varlen(&c, cu_q, cu_k, MAX_Q, MAX_K));
        fetch(c.workspace);
        for (int64_t s = 0; s < SEQUENCES; s++)
            attend_alone(&c, s, out, lse, c.workspace);
        assert_same_bytes(c.out, out);
        assert_same_bytes(c.lse, lse);
        free_boxes();
    }
}

static void test_varlen_refusals(void **) {
    problem c = make_varlen(f16);
    box *cu_q = indices(begins_q), *cu_k = indices(begins_k);
    const DLTensor *q = &cu_q->t, *k = &cu_k->t;
    const int64_t bytes = varlen_bytes(&c, q, k);
    char words[128];
    assert_refused(call_varlen(&c, q, k, 16, MAX_K), QN_E_INVALID,
                   "aotriton_attn_fwd_compact_varlen: max_seqlen_q is 16, sequence 2 has 17");
    assert_refused(call_varlen(&c, q, k, MAX_Q, 299), QN_E_INVALID,
                   "max_seqlen_k is 299, sequence 0 has 300");
    assert_refused(call_varlen(&c, q, k, -1, MAX_K), QN_E_INVALID, "max_seqlen_q is -1");
    snprintf(words, sizeof words, "ext has no workspace, needs one of %ld bytes", (long)bytes);
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, words);
    c.workspace = MAKE(u8, bytes - 1);
    snprintf(words, sizeof words, "workspace has %ld bytes, needs %ld", (long)bytes - 1,
             (long)bytes);
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, words);
    box overlapping = *c.q;
    overlapping.t.ndim = 1, overlapping.t.dtype = u8, overlapping.t.shape = &(int64_t){1 << 20};
    overlapping.t.strides = nullptr;
    c.workspace = &overlapping;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, "workspace overlaps q");
    assert_refused(call_varlen(&c, nullptr, k, MAX_Q, MAX_K), QN_E_INVALID, "cu_seqlens_q is null");
    cu_k->shape[0] = 3;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID,
                   "cu_seqlens_k has shape [3], needs [5]");
    cu_k->shape[0] = 0;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID,
                   "cu_seqlens_k has shape [0], needs [5]");
    cu_k->shape[0] = 5;
    cu_q->shape[0] = 0;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID,
                   "cu_seqlens_q has no entry, needs one more than sequences");
    cu_q->shape[0] = 5;
    cu_k->t.dtype = f32;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_UNSUPPORTED,
                   "cu_seqlens_k has dtype f32; accepted: i32");
    cu_k->t.dtype = i32;
    const DLTensor *falls = &indices((const int32_t[]){0, 3, 2, 20, 25})->t,
                   *beyond = &indices((const int32_t[]){0, 300, 304, 319, 321})->t;
    assert_refused(call_varlen(&c, falls, k, MAX_Q, MAX_K), QN_E_INVALID,
                   "cu_seqlens_q[2] is 2; accepted: 3 to 27, the tokens of q");
    assert_refused(call_varlen(&c, q, beyond, MAX_Q, MAX_K), QN_E_INVALID,
                   "cu_seqlens_k[4] is 321; accepted: 319 to 320, the tokens of k");
    c.b = c.q;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_UNSUPPORTED,
                   "b is given, and must be absent");
    c.b = nullptr;
    c.out->strides[3] = 2;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID,
                   "aotriton_attn_fwd_compact_varlen: out has stride 2 in its last dimension");
    c.out->strides[3] = 1;
    exchange(c.q, 0, 1), exchange(c.out, 0, 1);
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, "q has shape [4, 1, 27, 64]");
    fetch(c.out);
    assert_int_equal(*element(c.out, 0), 0xFF);
    free_boxes();
}

int main(void) {
    static const device_test each[] = {{"definition", test_varlen_definition},
                                       {"bits", test_varlen_bits},
                                       {"refusals", test_varlen_refusals}};
    return RUN_ON_EACH_DEVICE(each);
}
