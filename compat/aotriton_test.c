// SPDX-License-Identifier: Apache-2.0
// AOTriton's calls on the CPU and on simulated GPUs: bit by bit what qn_attention gives for the same data, within f32's
// rounding what softmax is, dropout by the mask that the debug calls tell; and what they refuse, in which words.
#include "compat_test.h"

#include <quern/attention.h>
#include <quern/compat/aotriton.h>

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- a call

/** What both calls take; null and 0 where a test does not care. */
typedef struct problem {
    box *q, *k, *v, *b, *lse, *out, *encoded, *seed_out, *offset_out, *workspace;
    const DLTensor *seed, *offset1;
    int64_t offset2;
    float scale, p;
    bool is_causal;
} problem;

static DLTensor *tensor(box *b) {
    return b ? &b->t : nullptr;
}

static qn_status call_dense(const problem *c) {
    const qn_aotriton_ext ext = {sizeof ext, tensor(c->workspace)};
    return qn_aotriton_attn_fwd(tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), c->scale,
                                tensor(c->lse), tensor(c->out), c->p, c->seed, c->offset1,
                                c->offset2, tensor(c->seed_out), tensor(c->offset_out),
                                tensor(c->encoded), c->is_causal, nullptr, stream, &ext);
}

static qn_status call_varlen(const problem *c, const DLTensor *cu_q, const DLTensor *cu_k,
                             int32_t max_q, int32_t max_k) {
    const qn_aotriton_ext ext = {sizeof ext, tensor(c->workspace)};
    return qn_aotriton_attn_fwd_compact_varlen(
        tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), cu_q, cu_k, max_q, max_k, c->scale,
        tensor(c->lse), tensor(c->out), c->p, c->seed, c->offset1, c->offset2, tensor(c->seed_out),
        tensor(c->offset_out), tensor(c->encoded), c->is_causal, nullptr, stream, &ext);
}

/** Batch 2, 4 heads on 2, in the order [batch, token, head] in memory if is_nhd. */
static problem make_problem(DLDataType dtype, int64_t n, int64_t m, int64_t dim, bool is_nhd) {
    problem c = {.scale = 0.125f};
    const int64_t second = is_nhd ? n : 4, third = is_nhd ? 4 : n;
    c.q = randomize(MAKE(dtype, 2, second, third, dim));
    c.k = randomize(MAKE(dtype, 2, is_nhd ? m : 2, is_nhd ? 2 : m, dim));
    c.v = randomize(MAKE(dtype, 2, is_nhd ? m : 2, is_nhd ? 2 : m, dim));
    c.out = MAKE(dtype, 2, second, third, dim);
    c.lse = MAKE(f32, 8, n);
    if (is_nhd) {
        exchange(c.q, 1, 2), exchange(c.k, 1, 2);
        exchange(c.v, 1, 2), exchange(c.out, 1, 2);
    }
    return c;
}

// ---- the definition, of f32

/** Where a sequence lies in the tensors. */
typedef struct place {
    int64_t batch, q_begin, n, k_begin, m;
    int64_t index; // in the mask of dropout
} place;

typedef struct row {
    double max, sum, off; // off: of the worst score, as in attention_ref.c
} row;

/** Weights of a row in x, before they are divided by their sum. */
static row weigh(const problem *c, const place *s, int64_t h, int64_t i, double *x) {
    const double u = 0x1p-24;
    const int64_t dim = c->q->shape[3], kv_head = h / (c->q->shape[1] / c->k->shape[1]);
    row r = {.max = -HUGE_VAL};
    for (int64_t j = 0; j < s->m; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t d = 0; d < dim; d++) {
            const double product = at(c->q, s->batch, h, s->q_begin + i, d) *
                                   at(c->k, s->batch, kv_head, s->k_begin + j, d);
            sum += product, magnitude += fabs(product);
        }
        x[j] = sum * (double)c->scale + (c->b ? at(c->b, s->batch, h, i, j) : 0);
        if (c->is_causal && j > i)
            x[j] = -HUGE_VAL;
        const double off = u * ((double)(dim + 8) * magnitude * (double)c->scale + 16 * fabs(x[j]));
        r.off = x[j] > -HUGE_VAL && off > r.off ? off : r.off;
        r.max = x[j] > r.max ? x[j] : r.max;
    }
    for (int64_t j = 0; j < s->m; j++)
        r.sum += x[j] = x[j] > -HUGE_VAL ? exp(x[j] - r.max) : 0;
    return r;
}

static void assert_near(const char *what, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance) && got != want)
        fail_msg("%s is %.9g, wanted %.9g within %.3g", what, got, want, tolerance);
}

/** One query: o and the natural log-sum-exp, within attention_ref.c's bound. `keep` may be null: no dropout. */
static void check_row(const problem *c, const place *s, int64_t h, int64_t i, const box *keep) {
    const double u = 0x1p-24, undropped = 1 / (1 - (double)c->p);
    const int64_t kv_head = h / (c->q->shape[1] / c->k->shape[1]);
    double x[512];
    assert_true(s->m <= 512);
    const row r = weigh(c, s, h, i, x);
    const double relative = 4 * r.off + (double)(s->m + 34) * u;
    for (int64_t d = 0; d < c->v->shape[3]; d++) {
        double o = 0, magnitude = 0;
        for (int64_t j = 0; j < s->m; j++) {
            const double v = at(c->v, s->batch, kv_head, s->k_begin + j, d);
            const double weight =
                !keep || at(keep, s->index, h, i, j) > 0 ? x[j] / r.sum * undropped : 0;
            o += r.sum > 0 ? weight * v : 0, magnitude += r.sum > 0 ? weight * fabs(v) : 0;
        }
        assert_near("out", at(c->out, s->batch, h, s->q_begin + i, d), o,
                    relative * magnitude + u * fabs(o));
    }
    assert_near("lse", at(c->lse, s->batch * c->q->shape[1] + h, s->q_begin + i, 0, 0),
                r.sum > 0 ? r.max + log(r.sum) : -HUGE_VAL,
                r.sum > 0 ? relative + 8 * u * (fabs(r.max) + 32) : 0);
}

static void check_sequence(const problem *c, const place *s, const box *keep) {
    for (int64_t h = 0; h < c->q->shape[1]; h++)
        for (int64_t i = 0; i < s->n; i++)
            check_row(c, s, h, i, keep);
}

static void check_dense(problem *c, const box *keep) {
    ok(call_dense(c));
    fetch(c->out), fetch(c->lse);
    for (int64_t b = 0; b < c->q->shape[0]; b++)
        check_sequence(
            c, &(place){.batch = b, .n = c->q->shape[2], .m = c->k->shape[2], .index = b}, keep);
}

// ---- dense

static void test_definition(void **) {
    problem c = make_problem(f32, 7, 19, 64, false);
    check_dense(&c, nullptr);
    c.is_causal = true;
    check_dense(&c, nullptr);
    c = make_problem(f32, 5, 9, 40, true);
    c.b = randomize(MAKE(f32, 1, 4, 1, 9)); // for all batches and queries
    c.b->shape[0] = 2, c.b->shape[2] = 5;
    c.b->strides[0] = c.b->strides[2] = 0;
    check_dense(&c, nullptr);
    box *whole = c.out;
    c.out = MAKE(f32, 2, 5, 4, 40);
    exchange(c.out, 1, 2);
    c.b->shape[0] = c.b->shape[2] = 1;
    ok(call_dense(&c));
    assert_same_bytes(c.out, whole);
    free_boxes();
}

/** A key that nobody sees: zeros and minus infinity, where AOTriton stores plus infinity; and no key, no query. */
static void test_nothing_to_see(void **) {
    problem c = make_problem(f32, 3, 5, 64, false);
    c.b = MAKE(f32, 2, 4, 3, 5);
    for (int64_t i = 0; i < 2 * 4 * 3 * 5; i++)
        put(c.b, i, -HUGE_VALF);
    send(c.b);
    check_dense(&c, nullptr);
    c.b = nullptr;
    c.k->shape[2] = c.v->shape[2] = 0;
    check_dense(&c, nullptr);
    c.q->shape[2] = c.out->shape[2] = 0;
    c.lse->shape[1] = 0;
    ok(call_dense(&c));
    free_boxes();
}

/** The same bits as qn_attention's, in every dtype and either order of memory. */
static void test_bits(void **) {
    static const DLDataType dtypes[] = {f32, f16, bf16};
    for (int i = 0; i < 12; i++) {
        problem c = make_problem(dtypes[i % 3], 17, 33, 64, i & 1);
        box *out = MAKE(dtypes[i % 3], 2, i & 1 ? 17 : 4, i & 1 ? 4 : 17, 64),
            *lse = MAKE(f32, 2, 4, 17);
        if (i & 1)
            exchange(out, 1, 2);
        c.is_causal = i & 2;
        c.b = i & 4 && !c.is_causal ? randomize(MAKE(dtypes[i % 3], 2, 4, 17, 33)) : nullptr;
        ok(call_dense(&c));
        ok(qn_attention(stream, &(qn_attention_args){.struct_size = sizeof(qn_attention_args),
                                                     .o = &out->t,
                                                     .lse = &lse->t,
                                                     .q = &c.q->t,
                                                     .k = &c.k->t,
                                                     .v = &c.v->t,
                                                     .layout = QN_HND,
                                                     .is_causal = c.is_causal,
                                                     .is_top_left = 1,
                                                     .mask = tensor(c.b),
                                                     .sm_scale = c.scale,
                                                     .lse_base = QN_LSE_BASE_E}));
        assert_same_bytes(c.out, out);
        assert_same_bytes(c.lse, lse);
        free_boxes();
    }
}

/** Few queries and many keys: chunks in a workspace, whose size is told, to the byte. */
static void test_workspace(void **) {
    problem c = make_problem(f32, 2, 300, 64, false);
    int64_t bytes;
    ok(qn_aotriton_attn_fwd_workspace_bytes(&bytes, &c.q->t, &c.k->t, &c.v->t));
    assert_true(bytes > 0);
    char words[128];
    snprintf(words, sizeof words, "ext has no workspace, needs one of %ld bytes", (long)bytes);
    assert_refused(call_dense(&c), QN_E_INVALID, words);
    c.workspace = MAKE(u8, bytes - 1);
    snprintf(words, sizeof words, "aotriton_attn_fwd: workspace has %ld bytes, needs %ld",
             (long)bytes - 1, (long)bytes);
    assert_refused(call_dense(&c), QN_E_INVALID, words);
    fetch(c.out);
    assert_int_equal(*element(c.out, 0), 0xFF);
    c.workspace = MAKE(u8, bytes);
    check_dense(&c, nullptr);
    fetch(c.workspace); // for its guards
    c.workspace->t.byte_offset += 8;
    c.workspace->shape[0] -= 8;
    assert_refused(call_dense(&c), QN_E_INVALID, "accepted: u8 at a multiple of 16");
    assert_refused(qn_aotriton_attn_fwd_workspace_bytes(nullptr, &c.q->t, &c.q->t, &c.q->t),
                   QN_E_INVALID, "aotriton_attn_fwd_workspace_bytes: attention: bytes is null");
    free_boxes();
}

// ---- dropout

static void test_dropout(void **) {
    const uint64_t seed = (UINT64_C(1) << 63) + 9, offset = (UINT64_C(1) << 33) + 5;
    uint64_t offset1 = offset + 3;
    int64_t one = 1;
    const DLTensor host = {
        .data = &offset1, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = &one};
    problem c = make_problem(f32, 5, 37, 64, false);
    c.p = 0.25f, c.offset2 = -3, c.offset1 = &host;
    c.seed = &number(u64, seed)->t;
    c.seed_out = number(u64, 0), c.offset_out = number(i64, 0);
    box *mask = MAKE(f32, 2, 4, 5, 37), *words = MAKE(i32, 2, 4, 5, 37),
        *uniform = MAKE(f32, 2, 4, 5, 37);
    ok(qn_aotriton_debug_simulate_encoded_softmax(&mask->t, c.p, c.seed, &host, (uint64_t)-3,
                                                  stream));
    ok(qn_aotriton_debug_fill_dropout_rng(&words->t, seed, offset, stream));
    offset1 -= 3;
    ok(qn_aotriton_debug_fill_dropout_rng_tensor(&uniform->t, c.seed, &host, stream));
    offset1 += 3;
    fetch(mask), fetch(words), fetch(uniform);
    const int32_t threshold = (int32_t)((0.25 - 0.5) * 0xFFFFFFFFp0);
    for (int64_t i = 0; i < 2 * 4 * 5 * 37; i++) {
        int32_t word;
        float kept, number;
        memcpy(&word, element(words, i), 4), memcpy(&kept, element(mask, i), 4);
        memcpy(&number, element(uniform, i), 4);
        assert_true(kept == (word > threshold ? 0.5f : -0.5f));
        assert_true(number == (float)word * 2.32830658e-10f + 0.5f);
    }
    check_dense(&c, mask);
    assert_true(number_in(c.seed_out) == seed && number_in(c.offset_out) == offset);
    c.p = 0; // then nothing is said of seeds
    put(c.seed_out, 0, 1), send(c.seed_out);
    check_dense(&c, nullptr);
    assert_true(number_in(c.seed_out) != seed);
    free_boxes();
}

/** Of counter and key 0, as Philox's authors publish them; absent numbers are 0. */
static void test_words(void **) {
    static const uint32_t want[] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
    box *r = MAKE(i32, 1, 1, 1, 4);
    ok(qn_aotriton_debug_fill_dropout_rng_tensor(&r->t, nullptr, nullptr, stream));
    fetch(r);
    assert_memory_equal(element(r, 0), want, sizeof want);
    r->t.dtype = i64, r->shape[3] = 2;
    assert_refused(qn_aotriton_debug_fill_dropout_rng(&r->t, 0, 0, stream), QN_E_UNSUPPORTED,
                   "aotriton_debug_fill_dropout_rng: attention_dropout_rng: r has dtype i64; "
                   "accepted: i32, f32");
    assert_refused(
        qn_aotriton_debug_simulate_encoded_softmax(&r->t, 0.5f, nullptr, nullptr, 0, stream),
        QN_E_UNSUPPORTED, "r has dtype i64; accepted: f32, f16, bf16");
    assert_refused(
        qn_aotriton_debug_simulate_encoded_softmax(&r->t, 0.5f, nullptr, nullptr, 0, nullptr),
        QN_E_INVALID, "aotriton_debug_simulate_encoded_softmax: stream is null");
    assert_refused(qn_aotriton_debug_fill_dropout_rng_tensor(&r->t, nullptr, &r->t, stream),
                   QN_E_INVALID, "philox_offset has 4 dimensions, needs 1");
    free_boxes();
}

// ---- sequences one after another

enum { SEQUENCES = 4, TOKENS = 27, KEYS = 320, MAX_Q = 20, MAX_K = 304 };
static const int32_t begins_q[] = {0, 3, 3, 20, 25}, begins_k[] = {0, 300, 304, 319, 319};

/** Sequences of 3, 0, 17 and 5 queries on 300 (in chunks), 4, 15 and no keys; the last two tokens are nobody's. */
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

/** Tokens of no sequence keep their poison. */
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

/** The sequence's tokens `begin` to `begin + count` of a tensor. */
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

/** The same bits as each sequence alone; lengths on the host or on the device. */
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
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, "cu_seqlens_k has no entry");
    cu_k->shape[0] = 5;
    cu_k->t.dtype = f32;
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_UNSUPPORTED,
                   "cu_seqlens_k is [5] f32 strides [1]; accepted: i32");
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
    exchange(c.q, 0, 1), exchange(c.out, 0, 1);
    assert_refused(call_varlen(&c, q, k, MAX_Q, MAX_K), QN_E_INVALID, "q has shape [4, 1, 27, 64]");
    fetch(c.out);
    assert_int_equal(*element(c.out, 0), 0xFF);
    free_boxes();
}

// ---- what is refused

static void test_refusals(void **) {
    problem c = make_problem(f16, 4, 6, 64, false), good = c;
    c.b = randomize(MAKE(f16, 2, 4, 4, 6)), c.is_causal = true;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: b and is_causal are both given; accepted: one of them");
    c.is_causal = false, c.b->shape[3] = 5;
    assert_refused(call_dense(&c), QN_E_INVALID, "its dimension 3 needs to be 1 or 6");
    c.b->shape[3] = 6, c.b->t.dtype = i32;
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED, "accepted: f32, f16, bf16");
    c = good, c.encoded = c.q;
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: encoded_softmax is given, and must be absent");
    c = good, c.scale = 0;
    assert_refused(call_dense(&c), QN_E_INVALID, "sm_scale is 0; accepted: any finite number");
    c.scale = NAN;
    assert_refused(call_dense(&c), QN_E_INVALID, "sm_scale is nan");
    c = good, c.p = 1;
    assert_refused(call_dense(&c), QN_E_INVALID, "dropout_p is 1; accepted: 0 to below 1");
    c.p = 0.5f, c.seed = &MAKE(i64, 2)->t;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "philox_seed is [2] i64 strides [1]; accepted: one u64 or i64");
    c.seed = nullptr, c.offset_out = MAKE(i32, 1);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED, "philox_offset_output is [1] i32");
    c = good, c.q = nullptr;
    assert_refused(call_dense(&c), QN_E_INVALID, "aotriton_attn_fwd: q is null");
    c = good, c.v = MAKE(i32, 2, 2, 6, 64);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED, "v is [2, 2, 6, 64] i32");
    c.v = MAKE(f16, 2, 2, 5, 64);
    assert_refused(call_dense(&c), QN_E_INVALID, "all but head_dim need to be the same");
    c = good, c.lse = MAKE(f32, 4, 4);
    assert_refused(call_dense(&c), QN_E_INVALID, "softmax_lse has shape [4, 4], needs [8, 4]");
    c.lse = MAKE(f16, 8, 4);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED, "softmax_lse is [8, 4] f16");
    c = good, c.out = MAKE(f16, 2, 4, 4, 32);
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "out has shape [2, 4, 4, 32], needs [2, 4, 4, 64]");
    fetch(good.out), fetch(good.lse);
    assert_int_equal(*element(good.out, 0), 0xFF);
    assert_int_equal(*element(good.lse, 0), 0xFF);
    free_boxes();
}

/** What is no tensor's fault; and tensors without data count as absent. */
static void test_absent(void **) {
    problem c = make_problem(f16, 4, 6, 64, false);
    DLTensor nothing = {.device = qn_device_id(device), .ndim = 4, .dtype = f16};
    const qn_aotriton_ext wrong = {.struct_size = 3};
    nothing.shape = c.q->shape;
    ok(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, &nothing, 1, &nothing, &c.out->t, 0.5f,
                            &nothing, &nothing, 0, &nothing, &nothing, &nothing, 1, &nothing,
                            stream, nullptr));
    assert_refused(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, nullptr, 1, nullptr, &c.out->t,
                                        0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0,
                                        nullptr, stream, &wrong),
                   QN_E_INVALID, "ext.struct_size is 3; set it to sizeof(qn_aotriton_ext)");
    assert_refused(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, nullptr, 1, nullptr, &c.out->t,
                                        0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0,
                                        nullptr, nullptr, nullptr),
                   QN_E_INVALID, "aotriton_attn_fwd: stream is null");
    c.k->t.device = (DLDevice){kDLVulkan, 3};
    assert_refused(call_dense(&c), QN_E_INVALID, "k is on DLPack device (7, 3)");
    free_boxes();
}

// ---- check_gpu

static void test_check_gpu(void **) {
    ok(qn_aotriton_check_gpu(stream));
    assert_refused(qn_aotriton_check_gpu(nullptr), QN_E_INVALID,
                   "aotriton_check_gpu: stream is null");
}

/** In a process where no kernel of the CPU may be chosen: 0 if that is what check_gpu says. */
static int check_without_kernels(void) {
    setenv("QUERN_DISABLE", "cpu", 1);
    if (qn_device_open(&device, "cpu") == QN_OK && qn_stream_create(&stream, device) == QN_OK &&
        qn_aotriton_check_gpu(stream) == QN_E_UNSUPPORTED &&
        strstr(qn_last_error(), "aotriton_check_gpu: attention: no kernel"))
        return 0;
    fprintf(stderr, "%s\n", qn_last_error());
    return 1;
}

/** Before the library's first use here, as it reads the environment once. */
static void test_no_kernel(void **) {
    int state = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(check_without_kernels());
    assert_true(child > 0 && waitpid(child, &state, 0) == child);
    assert_int_equal(state, 0);
}

// ---- devices

static int open_device(void **state) {
    random_state = 1;
    if (qn_device_open(&device, *state) != QN_OK) {
        print_message("%s\n", qn_last_error()); // built without the simulator
        device = nullptr;
        return 0;
    }
    return qn_stream_create(&stream, device) != QN_OK;
}

static int close_device(void **) {
    if (!device)
        return 0;
    free_boxes();
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}

int main(void) {
    static const char *const specs[] = {"cpu", "sim:gfx942", "sim:gfx1151"};
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } each[] = {{"definition", test_definition},
                {"nothing_to_see", test_nothing_to_see},
                {"bits", test_bits},
                {"workspace", test_workspace},
                {"dropout", test_dropout},
                {"words", test_words},
                {"varlen_definition", test_varlen_definition},
                {"varlen_bits", test_varlen_bits},
                {"varlen_refusals", test_varlen_refusals},
                {"refusals", test_refusals},
                {"absent", test_absent},
                {"check_gpu", test_check_gpu}};
    enum { EACH = sizeof each / sizeof *each, SPECS = sizeof specs / sizeof *specs };
    static char names[SPECS * EACH][64];
    struct CMUnitTest tests[1 + SPECS * EACH] = {cmocka_unit_test(test_no_kernel)};
    for (int i = 0; i < SPECS * EACH; i++) {
        snprintf(names[i], sizeof names[i], "%s on %s", each[i % EACH].name, specs[i / EACH]);
        tests[1 + i] = (struct CMUnitTest){.name = names[i],
                                           .test_func = each[i % EACH].run,
                                           .setup_func = open_device,
                                           .teardown_func = close_device,
                                           .initial_state = (void *)(uintptr_t)specs[i / EACH]};
    }
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
