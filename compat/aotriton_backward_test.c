// SPDX-License-Identifier: Apache-2.0
// AOTriton's backward calls on the CPU and on simulated GPUs. They must be within f32's rounding of
// the gradients of softmax, drop what the forward call dropped, and give the bits of
// qn_attention_backward; sequences must get the bits of their own dense calls. Refusals must have
// the right words.
#include "aotriton_test.h"

#include <quern/attention_backward.h>

/** The arguments of the backward calls, with those of the forward call. */
typedef struct backward {
    problem of;
    box *dout, *dq, *dk, *dv, *db;
    const DLTensor *cu_q, *cu_k; // null: dense
    int32_t max_q, max_k;
    bool is_fused;
} backward;

static qn_status call_backward(const backward *x) {
    const problem *c = &x->of;
    const qn_aotriton_ext ext = {sizeof ext, tensor(c->workspace)};
    if (x->cu_q)
        return qn_aotriton_attn_bwd_compact_varlen(
            tensor(c->q), tensor(c->k), tensor(c->v), x->cu_q, x->cu_k, x->max_q, x->max_k,
            tensor(c->b), c->scale, tensor(c->out), tensor(x->dout), tensor(x->dq), tensor(x->dk),
            tensor(x->dv), tensor(x->db), tensor(c->lse), nullptr, c->p, c->seed, c->offset1,
            c->offset2, c->is_causal, stream, &ext);
    if (x->is_fused)
        return qn_aotriton_attn_bwd_fused(
            tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), c->scale, tensor(c->out),
            tensor(x->dout), tensor(x->dq), tensor(x->dk), tensor(x->dv), tensor(x->db),
            tensor(c->lse), c->p, c->seed, c->offset1, c->offset2, c->is_causal, stream, &ext);
    return qn_aotriton_attn_bwd(tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), c->scale,
                                tensor(c->out), tensor(x->dout), tensor(x->dq), tensor(x->dk),
                                tensor(x->dv), tensor(x->db), tensor(c->lse), nullptr, c->p,
                                c->seed, c->offset1, c->offset2, c->is_causal, stream, &ext);
}

static int64_t count_bytes(const backward *x) {
    const problem *c = &x->of;
    int64_t bytes;
    if (x->cu_q)
        ok(qn_aotriton_attn_bwd_compact_varlen_workspace_bytes(stream, &bytes, &c->q->t, &c->k->t,
                                                               &c->v->t, &c->out->t, &c->lse->t,
                                                               x->cu_q, x->cu_k));
    else
        ok(qn_aotriton_attn_bwd_workspace_bytes(stream, &bytes, &c->q->t, &c->k->t, &c->v->t,
                                                &c->out->t, &c->lse->t));
    return bytes;
}

/** Makes a box that lies in memory as another one does. */
static box *make_like(const box *of) {
    const int ndim = of->t.ndim;
    int64_t shape[MAX_DIMS];
    memcpy(shape, of->shape, sizeof shape);
    const bool is_exchanged = ndim == 4 && of->strides[1] < of->strides[2];
    if (is_exchanged)
        shape[1] = of->shape[2], shape[2] = of->shape[1];
    box *b = make(of->t.dtype, ndim, shape);
    if (is_exchanged)
        exchange(b, 1, 2);
    return b;
}

/** Makes the gradients' tensors and the workspace. */
static backward make_backward(const problem *c) {
    backward x = {.of = *c};
    x.dout = randomize(make_like(c->out));
    x.dq = make_like(c->q), x.dk = make_like(c->k), x.dv = make_like(c->v);
    x.db = c->b ? make_like(c->b) : nullptr;
    x.of.workspace = MAKE(u8, count_bytes(&x));
    return x;
}

// ---- the definition, of f32

enum { MOST = 64 }; // keys, queries, elements of a head

/** A sum, and how far off one in f32 may be. */
typedef struct sum {
    double value, off;
} sum;

/** What a kv head of a sequence gives. */
typedef struct sums {
    sum dk[MOST][MOST], dv[MOST][MOST];
} sums;

static sum db[4 * MOST * MOST]; // of the whole call, in db's own shape

static void add(sum *to, double value, double off) {
    to->value += value, to->off += off;
}

/** A row: its weights p, dropout's factors of them, and the gradients of its scores. */
typedef struct gradient_row {
    double p[MOST], kept[MOST], p_off;
    sum ds[MOST];
} gradient_row;

static double d_out_of(const backward *x, const place *s, int64_t h, int64_t i, int64_t d) {
    return at(x->dout, s->batch, h, s->q_begin + i, d);
}
static double value_of(const backward *x, const place *s, int64_t h, int64_t j, int64_t d) {
    const int64_t kv_head = h / (x->of.q->shape[1] / x->of.k->shape[1]);
    return at(x->of.v, s->batch, kv_head, s->k_begin + j, d);
}

/** Computes a row. A kernel takes o and the log-sum-exp in f32 from the forward call. */
static void find_row(const backward *x, const place *s, int64_t h, int64_t i, const box *keep,
                     gradient_row *r) {
    const double u = 0x1p-24, undropped = 1 / (1 - (double)x->of.p);
    const int64_t dim = x->of.v->shape[3];
    const row weights = weigh(&x->of, s, h, i, r->p);
    sum dp[MOST] = {}, delta = {};
    r->p_off = 8 * weights.off + (double)(s->m + 128) * u + 8 * u * fabs(weights.max);
    for (int64_t j = 0; j < s->m; j++) {
        r->p[j] = weights.sum > 0 ? r->p[j] / weights.sum : 0;
        r->kept[j] = !keep || at(keep, s->index, h, i, j) > 0 ? undropped : 0;
        for (int64_t d = 0; d < dim; d++) {
            const double product = d_out_of(x, s, h, i, d) * value_of(x, s, h, j, d) * r->kept[j];
            add(&dp[j], product, (double)(dim + 8) * u * fabs(product));
            add(&delta, r->p[j] * product,
                (r->p_off + (double)(dim + 16) * u) * r->p[j] * fabs(product));
        }
    }
    for (int64_t j = 0; j < s->m; j++) {
        const double gap = dp[j].value - delta.value;
        r->ds[j] = (sum){r->p[j] * gap,
                         r->p[j] * ((r->p_off + 4 * u) * fabs(gap) + dp[j].off + delta.off)};
    }
}

/** Adds a row to the gradients of its kv head and of b, and checks dq. */
static void add_row(const backward *x, const place *s, int64_t h, int64_t i, const gradient_row *r,
                    sums *to) {
    const problem *c = &x->of;
    const double u = 0x1p-24, scale = (double)c->scale;
    const int64_t group = c->q->shape[1] / c->k->shape[1], kv_head = h / group;
    const double keys = (double)(s->m + 8) * u, rows = (double)(s->n * group + 8) * u;
    sum dq[MOST] = {};
    for (int64_t j = 0; j < s->m; j++) {
        const double dx = r->ds[j].value * scale, off = r->ds[j].off * scale, p = r->p[j];
        for (int64_t d = 0; d < c->q->shape[3]; d++) {
            const double k = at(c->k, s->batch, kv_head, s->k_begin + j, d);
            const double q = at(c->q, s->batch, h, s->q_begin + i, d);
            add(&dq[d], dx * k, (off + keys * fabs(dx)) * fabs(k));
            add(&to->dk[j][d], dx * q, (off + rows * fabs(dx)) * fabs(q));
        }
        for (int64_t d = 0; d < c->v->shape[3]; d++) {
            const double part = p * r->kept[j] * d_out_of(x, s, h, i, d);
            add(&to->dv[j][d], part, (r->p_off + rows) * fabs(part));
        }
    }
    for (int64_t d = 0; d < c->q->shape[3]; d++)
        assert_near("dq", at(x->dq, s->batch, h, s->q_begin + i, d), dq[d].value,
                    dq[d].off + u * fabs(dq[d].value));
}

/** Returns an index into a dimension that may be repeated. */
static int64_t within(const box *b, int dim, int64_t i) {
    return b->shape[dim] > 1 ? i : 0;
}

static void add_db(const backward *x, const place *s, int64_t h, int64_t i, const gradient_row *r) {
    const double terms = 2.0 * (double)(x->of.q->shape[1] * s->n * s->m);
    for (int64_t j = 0; x->db && j < s->m; j++) {
        const box *b = x->db;
        const int64_t row = (within(b, 0, s->batch) * b->shape[1] + within(b, 1, h)) * b->shape[2];
        sum *to = &db[(row + within(b, 2, i)) * b->shape[3] + within(b, 3, j)];
        add(to, r->ds[j].value, r->ds[j].off + (terms + 8) * 0x1p-24 * fabs(r->ds[j].value));
    }
}

static void check_keys(const box *b, const place *s, int64_t kv_head, const sum want[MOST][MOST]) {
    for (int64_t j = 0; j < s->m; j++)
        for (int64_t d = 0; d < b->shape[3]; d++)
            assert_near("dk or dv", at(b, s->batch, kv_head, s->k_begin + j, d), want[j][d].value,
                        want[j][d].off + 0x1p-24 * fabs(want[j][d].value));
}

/** Checks a sequence's gradients. `keep` may be null: no dropout. */
static void check_gradients(const backward *x, const place *s, const box *keep) {
    static sums of;
    const int64_t group = x->of.q->shape[1] / x->of.k->shape[1];
    gradient_row r;
    for (int64_t h = 0; h < x->of.q->shape[1]; h++) {
        if (h % group == 0)
            of = (sums){};
        for (int64_t i = 0; i < s->n; i++) {
            find_row(x, s, h, i, keep, &r);
            add_row(x, s, h, i, &r, &of);
            add_db(x, s, h, i, &r);
        }
        if (h % group == group - 1) {
            check_keys(x->dk, s, h / group, of.dk);
            check_keys(x->dv, s, h / group, of.dv);
        }
    }
}

static void fetch_gradients(const backward *x) {
    box *const written[] = {x->dq, x->dk, x->dv, x->db, x->of.workspace};
    for (int i = 0; i < 5; i++)
        if (written[i])
            fetch(written[i]);
}

static void check_dense(const backward *x, const box *keep) {
    const problem *c = &x->of;
    memset(db, 0, sizeof db);
    ok(call_backward(x));
    fetch_gradients(x);
    for (int64_t b = 0; b < c->q->shape[0]; b++)
        check_gradients(
            x, &(place){.batch = b, .n = c->q->shape[2], .m = c->k->shape[2], .index = b}, keep);
    for (int64_t i = 0; x->db && i < x->db->shape[0] * x->db->shape[1] * x->db->shape[2]; i++)
        for (int64_t j = 0; j < x->db->shape[3]; j++) {
            const sum *want = &db[i * x->db->shape[3] + j];
            float got;
            memcpy(&got, element(x->db, i * x->db->shape[3] + j), sizeof got);
            assert_near("db", (double)got, want->value, want->off + 0x1p-24 * fabs(want->value));
        }
}

static void test_definition(void **) {
    for (int is_causal = 0; is_causal < 2; is_causal++) {
        problem c = make_problem(f32, 7, 19, 40, is_causal);
        c.is_causal = is_causal;
        ok(call_dense(&c));
        backward x = make_backward(&c);
        x.is_fused = is_causal;
        check_dense(&x, nullptr);
        free_boxes();
    }
}

/** db is whole, or summed over batches and queries. */
static void test_bias(void **) {
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        problem c = make_problem(f32, 5, 9, 32, true);
        c.b = randomize(MAKE(f32, is_shared ? 1 : 2, 4, is_shared ? 1 : 5, 9));
        if (is_shared)
            c.b->strides[0] = c.b->strides[2] = 0; // for at()
        ok(call_dense(&c));
        const backward x = make_backward(&c);
        check_dense(&x, nullptr);
        free_boxes();
    }
}

/** The numbers that the forward call wrote say what it dropped. */
static void test_dropout(void **) {
    problem c = make_problem(f32, 6, 21, 32, false);
    box *mask = MAKE(f32, 2, 4, 6, 21);
    c.p = 0.25f, c.offset2 = 11;
    c.seed = &number(u64, (UINT64_C(1) << 63) + 9)->t, c.offset1 = &number(i64, 5)->t;
    c.seed_out = number(u64, 0), c.offset_out = number(i64, 0);
    ok(qn_aotriton_debug_simulate_encoded_softmax(&mask->t, c.p, c.seed, c.offset1, 11, stream));
    fetch(mask);
    ok(call_dense(&c));
    c.seed = &c.seed_out->t, c.offset1 = &c.offset_out->t, c.offset2 = 0;
    backward x = make_backward(&c);
    check_dense(&x, mask);
    free_boxes();
}

/** Queries that see no key have no gradients; calls without keys, and without queries. */
static void test_nothing_to_see(void **) {
    problem c = make_problem(f32, 3, 5, 64, false);
    c.b = MAKE(f32, 2, 4, 3, 5);
    for (int64_t i = 0; i < 2 * 4 * 3 * 5; i++)
        put(c.b, i, -HUGE_VALF);
    send(c.b);
    ok(call_dense(&c));
    backward x = make_backward(&c);
    check_dense(&x, nullptr);
    x.of.b = x.db = nullptr;
    c.k->shape[2] = c.v->shape[2] = x.dk->shape[2] = x.dv->shape[2] = 0;
    check_dense(&x, nullptr);
    c.q->shape[2] = c.out->shape[2] = x.dout->shape[2] = x.dq->shape[2] = c.lse->shape[1] = 0;
    ok(call_backward(&x));
    free_boxes();
}

// ---- bits

/** Runs qn_attention_backward into tensors of its own, and compares. */
static void compare_bits(const backward *x) {
    const problem *c = &x->of;
    box *dq = make_like(x->dq), *dk = make_like(x->dk), *dv = make_like(x->dv);
    box *d_mask = x->db ? make_like(x->db) : nullptr;
    const int64_t shape[] = {c->q->shape[0], c->q->shape[1], c->q->shape[2]};
    DLTensor lse = c->lse->t;
    lse.ndim = 3, lse.shape = (int64_t *)(uintptr_t)shape, lse.strides = nullptr;
    const qn_attention_args forward = {.struct_size = sizeof forward,
                                       .o = &c->out->t,
                                       .lse = &lse,
                                       .q = &c->q->t,
                                       .k = &c->k->t,
                                       .v = &c->v->t,
                                       .layout = QN_HND,
                                       .is_causal = c->is_causal,
                                       .is_top_left = 1,
                                       .mask = tensor(c->b),
                                       .sm_scale = c->scale,
                                       .lse_base = QN_LSE_BASE_E};
    ok(qn_attention_backward(
        stream, &(qn_attention_backward_args){.struct_size = sizeof(qn_attention_backward_args),
                                              .forward = &forward,
                                              .d_o = &x->dout->t,
                                              .dq = &dq->t,
                                              .dk = &dk->t,
                                              .dv = &dv->t,
                                              .dmask = tensor(d_mask),
                                              .workspace = tensor(c->workspace)}));
    assert_same_bytes(x->dq, dq);
    assert_same_bytes(x->dk, dk);
    assert_same_bytes(x->dv, dv);
    if (d_mask)
        assert_same_bytes(x->db, d_mask);
}

/** Bits equal those of qn_attention_backward, in every dtype and either order of memory. */
static void test_bits(void **) {
    static const DLDataType dtypes[] = {f32, f16, bf16};
    for (int i = 0; i < 6; i++) {
        problem c = make_problem(dtypes[i % 3], 17, 33, 64, i & 1);
        c.is_causal = i < 3;
        c.b = c.is_causal ? nullptr : randomize(MAKE(dtypes[i % 3], 2, 4, 17, 33));
        ok(call_dense(&c));
        backward x = make_backward(&c);
        x.is_fused = i & 1;
        ok(call_backward(&x));
        compare_bits(&x);
        free_boxes();
    }
}

// ---- sequences

enum { SEQUENCES = 4, TOKENS = 27, KEYS = 60, MAX_Q = 20, MAX_K = 40 };
static const int32_t begins_q[] = {0, 3, 3, 20, 25}, begins_k[] = {0, 40, 44, 57, 57};

static box *indices(const int32_t *values) {
    box *b = MAKE(i32, SEQUENCES + 1);
    memcpy(element(b, 0), values, (SEQUENCES + 1) * sizeof *values);
    send(b);
    return b;
}

static place place_of(int64_t s) {
    return (place){.q_begin = begins_q[s],
                   .n = begins_q[s + 1] - begins_q[s],
                   .k_begin = begins_k[s],
                   .m = begins_k[s + 1] - begins_k[s],
                   .index = s};
}

/** Runs the forward call of sequences of 3, 0, 17 and 5 queries on 40, 4, 13 and no keys; the last
 *  tokens are in no sequence. Makes the backward call. */
static backward make_varlen(DLDataType dtype, bool is_causal, float p) {
    problem c = {.scale = 0.125f,
                 .q = randomize(MAKE(dtype, 1, 4, TOKENS, 32)),
                 .k = randomize(MAKE(dtype, 1, 2, KEYS, 32)),
                 .v = randomize(MAKE(dtype, 1, 2, KEYS, 32)),
                 .out = MAKE(dtype, 1, 4, TOKENS, 32),
                 .lse = MAKE(f32, 4, TOKENS),
                 .seed = &number(i64, 7)->t,
                 .p = p,
                 .is_causal = is_causal};
    backward x = {.of = c,
                  .cu_q = &indices(begins_q)->t,
                  .cu_k = &indices(begins_k)->t,
                  .max_q = MAX_Q,
                  .max_k = MAX_K,
                  .dout = randomize(MAKE(dtype, 1, 4, TOKENS, 32)),
                  .dq = MAKE(dtype, 1, 4, TOKENS, 32),
                  .dk = MAKE(dtype, 1, 2, KEYS, 32),
                  .dv = MAKE(dtype, 1, 2, KEYS, 32)};
    int64_t bytes;
    ok(qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(stream, &bytes, &c.q->t, &c.k->t,
                                                           &c.v->t, x.cu_q, x.cu_k));
    box *workspace = MAKE(u8, bytes);
    ok(qn_aotriton_attn_fwd_compact_varlen(
        &c.q->t, &c.k->t, &c.v->t, nullptr, x.cu_q, x.cu_k, MAX_Q, MAX_K, c.scale, &c.lse->t,
        &c.out->t, p, c.seed, nullptr, 0, nullptr, nullptr, nullptr, is_causal, nullptr, stream,
        &(qn_aotriton_ext){sizeof(qn_aotriton_ext), &workspace->t}));
    x.of.workspace = MAKE(u8, count_bytes(&x));
    return x;
}

/** Checks that gradients of tokens of no sequence keep their poison. */
static void check_nobodys(const backward *x) {
    for (int64_t i = begins_q[SEQUENCES]; i < TOKENS; i++)
        assert_true(isnan(at(x->dq, 0, 3, i, 0)));
    for (int64_t j = begins_k[SEQUENCES]; j < KEYS; j++)
        assert_true(isnan(at(x->dk, 0, 1, j, 0)) && isnan(at(x->dv, 0, 1, j, 0)));
}

static void test_varlen_definition(void **) {
    for (int i = 0; i < 3; i++) {
        backward x = make_varlen(f32, i == 1, i == 2 ? 0.25f : 0);
        box *mask = MAKE(f32, SEQUENCES, 4, MAX_Q, MAX_K);
        ok(qn_aotriton_debug_simulate_encoded_softmax(&mask->t, 0.25f, x.of.seed, nullptr, 0,
                                                      stream));
        fetch(mask);
        ok(call_backward(&x));
        fetch_gradients(&x);
        for (int64_t s = 0; s < SEQUENCES; s++) {
            const place where = place_of(s);
            check_gradients(&x, &where, i == 2 ? mask : nullptr);
        }
        check_nobodys(&x);
        free_boxes();
    }
}

/** Returns the tokens of a sequence. */
static box part_of(const box *b, int64_t begin, int64_t count) {
    const int tokens = b->t.ndim == 4 ? 2 : 1;
    box part = *b;
    part.shape[tokens] = count;
    part.t.byte_offset += (uint64_t)(begin * b->strides[tokens] * b->t.dtype.bits / 8);
    return part;
}

/** Runs the dense call of one sequence. */
static void run_alone(const backward *x, int64_t s, box *dq, box *dk, box *dv, box *workspace) {
    const place p = place_of(s);
    enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, COUNT };
    const box *const whole[] = {x->of.q, x->of.k, x->of.v, x->of.out, x->of.lse,
                                x->dout, dq,      dk,      dv};
    box part[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const bool is_of_keys = i == K || i == V || i == DK || i == DV;
        part[i] = part_of(whole[i], is_of_keys ? p.k_begin : p.q_begin, is_of_keys ? p.m : p.n);
        part[i].t.shape = part[i].shape, part[i].t.strides = part[i].strides;
    }
    backward alone = {.of = x->of, .dout = &part[DOUT], .dq = &part[DQ]};
    alone.of.q = &part[Q], alone.of.k = &part[K], alone.of.v = &part[V];
    alone.of.out = &part[OUT], alone.of.lse = &part[LSE], alone.of.workspace = workspace;
    alone.dk = &part[DK], alone.dv = &part[DV];
    ok(call_backward(&alone));
}

static void test_varlen_bits(void **) {
    static const DLDataType dtypes[] = {f32, f16, bf16};
    for (int i = 0; i < 3; i++) {
        const backward x = make_varlen(dtypes[i], i > 0, 0);
        box *dq = make_like(x.dq), *dk = make_like(x.dk), *dv = make_like(x.dv);
        box *workspace = MAKE(u8, 1 << 16);
        ok(call_backward(&x));
        for (int64_t s = 0; s < SEQUENCES; s++)
            run_alone(&x, s, dq, dk, dv, workspace);
        assert_same_bytes(x.dq, dq);
        assert_same_bytes(x.dk, dk);
        assert_same_bytes(x.dv, dv);
        free_boxes();
    }
}

// ---- what is refused

/** Refuses the call, which must not have written. */
static void assert_backward_refused(const backward *x, qn_status want, const char *words) {
    assert_refused(call_backward(x), want, words);
    fetch(x->dk);
    assert_int_equal(*element(x->dk, 0), 0xFF);
}

static void assert_workspace_refused(const backward *x, const char *op) {
    backward y = *x;
    const int64_t bytes = count_bytes(x);
    char words[128];
    y.of.workspace = nullptr;
    snprintf(words, sizeof words, "%s: ext has no workspace, needs one of %ld bytes", op,
             (long)bytes);
    assert_backward_refused(&y, QN_E_INVALID, words);
    y.of.workspace = MAKE(u8, bytes - 1);
    snprintf(words, sizeof words, "%s: workspace has %ld bytes, needs %ld", op, (long)bytes - 1,
             (long)bytes);
    assert_backward_refused(&y, QN_E_INVALID, words);
}

static void test_refusals(void **) {
    problem c = make_problem(f16, 4, 6, 64, false);
    const backward good = make_backward(&c);
    backward x = good;
    assert_workspace_refused(&good, "aotriton_attn_bwd");
    x.of.lse = nullptr;
    assert_backward_refused(&x, QN_E_INVALID, "aotriton_attn_bwd: softmax_lse is null");
    x.of.lse = MAKE(f32, 8, 5);
    assert_backward_refused(&x, QN_E_INVALID, "softmax_lse has shape [8, 5], needs [8, 4]");
    x = good, x.of.out = nullptr, x.is_fused = true;
    assert_backward_refused(&x, QN_E_INVALID, "aotriton_attn_bwd_fused: out is null");
    x = good, x.dout = MAKE(bf16, 2, 4, 4, 64);
    assert_backward_refused(&x, QN_E_UNSUPPORTED,
                            "aotriton_attn_bwd: dout has dtype bf16, needs out's, f16");
    x = good, x.dq = nullptr;
    assert_backward_refused(&x, QN_E_INVALID, "aotriton_attn_bwd: dq is null");
    x = good, x.dv = MAKE(f16, 2, 2, 5, 64);
    assert_backward_refused(&x, QN_E_INVALID, "dv has shape [2, 2, 5, 64], needs [2, 2, 6, 64]");
    x = good, x.dq = MAKE(i32, 2, 4, 4, 64);
    assert_backward_refused(&x, QN_E_UNSUPPORTED, "dq has dtype i32; accepted: f32, f16, bf16");
    x = good, x.dq = good.dout;
    assert_backward_refused(&x, QN_E_INVALID, "dq overlaps dout");
    x = good, x.dv = good.dk;
    assert_backward_refused(&x, QN_E_INVALID, "dv overlaps dk");
    x = good, x.db = MAKE(f16, 2, 4, 4, 6);
    assert_backward_refused(&x, QN_E_INVALID, "aotriton_attn_bwd: db is given, b is not");
    x.of.b = randomize(MAKE(f16, 1, 4, 4, 6));
    assert_backward_refused(&x, QN_E_INVALID, "db has shape [2, 4, 4, 6], needs [1, 4, 4, 6]");
    x.of.is_causal = true;
    assert_backward_refused(&x, QN_E_INVALID, "b and is_causal are both given");
    x = good, x.of.p = 1;
    assert_backward_refused(&x, QN_E_INVALID, "dropout_p is 1; accepted: 0 to below 1");
    x.of.p = 0.5f, x.of.seed = &MAKE(f32, 1)->t;
    assert_backward_refused(&x, QN_E_UNSUPPORTED, "philox_seed has dtype f32; accepted: i64, u64");
    x = good, x.of.scale = 0;
    assert_backward_refused(&x, QN_E_INVALID, "sm_scale is 0; accepted: any finite number");
    assert_refused(qn_aotriton_attn_bwd_workspace_bytes(stream, nullptr, &c.q->t, &c.k->t, &c.v->t,
                                                        &c.out->t, &c.lse->t),
                   QN_E_INVALID, "aotriton_attn_bwd_workspace_bytes: bytes is null");
    free_boxes();
}

static void test_varlen_refusals(void **) {
    const backward good = make_varlen(f16, false, 0);
    backward x = good;
    assert_workspace_refused(&good, "aotriton_attn_bwd_compact_varlen");
    x.max_q = 16;
    assert_backward_refused(&x, QN_E_INVALID, "max_seqlen_q is 16, sequence 2 has 17");
    x = good, x.of.b = x.of.q;
    assert_backward_refused(&x, QN_E_UNSUPPORTED, "b is given, and must be absent");
    x = good, x.db = x.of.q;
    assert_backward_refused(&x, QN_E_UNSUPPORTED, "db is given, and must be absent");
    x = good, x.cu_k = &indices((const int32_t[]){0, 40, 39, 57, 57})->t;
    assert_backward_refused(&x, QN_E_INVALID, "cu_seqlens_k[2] is 39; accepted: 40 to 60");
    x = good, x.of.workspace = good.dq;
    assert_backward_refused(&x, QN_E_INVALID, "workspace has 4 dimensions, needs 1");
    x = good, x.dk = good.of.k;
    assert_refused(call_backward(&x), QN_E_INVALID, "dk overlaps k");
    free_boxes();
}

int main(void) {
    static const device_test each[] = {{"definition", test_definition},
                                       {"bias", test_bias},
                                       {"dropout", test_dropout},
                                       {"nothing_to_see", test_nothing_to_see},
                                       {"bits", test_bits},
                                       {"refusals", test_refusals},
                                       {"varlen_definition", test_varlen_definition},
                                       {"varlen_bits", test_varlen_bits},
                                       {"varlen_refusals", test_varlen_refusals}};
    return RUN_ON_EACH_DEVICE(each);
}
