// SPDX-License-Identifier: Apache-2.0
// The definition of attention's backward pass beside central differences of the forward pass's, and
// what qn_attention_backward refuses and leaves alone, on the CPU. families_test shows that kernels
// agree with the definition on every device.
#include "../../check/area.h"
#include "../shared/op_test.h"
#include "attention_backward.h"

enum { QUERIES = 5, KEYS = 7, Q_HEADS = 4, KV_HEADS = 2, DIM = 6, DIM_VO = 4 };

static box q, k, v, o, lse, mask, sinks, d_o, dq, dk, dv, dmask, dsinks, workspace;
static qn_attention_args forward;
static qn_attention_backward_args args;

/** Fills a tensor with multiples of 2^-12, so that f32 holds them with small steps added. */
static void fill_steps(box *b, uint64_t seed) {
    for (int64_t i = 0; i < qni_numel(&b->t); i++)
        ((float *)b->data)[i] = (float)(rint(qni_random_normal(&seed) * 4096) / 4096);
}

static void make_inputs(void) {
    box *const filled[] = {&q, &k, &v, &d_o, &mask, &sinks};
    MAKE(&q, QNI_F32, 1, QUERIES, Q_HEADS, DIM);
    MAKE(&k, QNI_F32, 1, KEYS, KV_HEADS, DIM);
    MAKE(&v, QNI_F32, 1, KEYS, KV_HEADS, DIM_VO);
    MAKE(&o, QNI_F32, 1, QUERIES, Q_HEADS, DIM_VO);
    MAKE(&lse, QNI_F32, 1, QUERIES, Q_HEADS);
    MAKE(&mask, QNI_F32, 1, 1, QUERIES, KEYS);
    MAKE(&sinks, QNI_F32, Q_HEADS);
    MAKE(&d_o, QNI_F32, 1, QUERIES, Q_HEADS, DIM_VO);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        fill_steps(filled[i], i + 1);
}

/** Makes a call with everything that changes scores. */
static void make_call(void) {
    int64_t bytes;
    make_inputs();
    MAKE(&dq, QNI_F32, 1, QUERIES, Q_HEADS, DIM);
    MAKE(&dk, QNI_F32, 1, KEYS, KV_HEADS, DIM);
    MAKE(&dv, QNI_F32, 1, KEYS, KV_HEADS, DIM_VO);
    MAKE(&dmask, QNI_F32, 1, 1, QUERIES, KEYS);
    MAKE(&dsinks, QNI_F32, Q_HEADS);
    forward = (qn_attention_args){.struct_size = sizeof forward,
                                  .o = &o.t,
                                  .lse = &lse.t,
                                  .q = &q.t,
                                  .k = &k.t,
                                  .v = &v.t,
                                  .has_window_left = 1,
                                  .window_left = 4,
                                  .mask = &mask.t,
                                  .sinks = &sinks.t,
                                  .logits_soft_cap = 2,
                                  .dropout_p = 0.25f,
                                  .dropout_seed = 7,
                                  .v_scale = 0.5f,
                                  .lse_base = QN_LSE_BASE_E};
    args = (qn_attention_backward_args){.struct_size = sizeof args,
                                        .forward = &forward,
                                        .d_o = &d_o.t,
                                        .dq = &dq.t,
                                        .dk = &dk.t,
                                        .dv = &dv.t,
                                        .dmask = &dmask.t,
                                        .dsinks = &dsinks.t};
    assert_int_equal(qn_attention_backward_workspace_bytes(&bytes, stream, &args), QN_OK);
    MAKE(&workspace, QNI_U8, bytes);
    args.workspace = &workspace.t;
}

// ---- central differences

/** Returns <d_o, o> of one row by the forward pass's definition. */
static double row_loss(const qni_attention_problem *p, const qni_attention_row *row,
                       const qni_attention_keys *keys) {
    double x[KEYS], out[DIM_VO], bound[DIM_VO], row_lse, lse_bound, sum = 0;
    qni_attention_ref(p, row, keys, x, out, &row_lse, bound, &lse_bound);
    for (int64_t d = 0; d < DIM_VO; d++)
        sum += out[d] * at(&d_o, ((int64_t)row->query * Q_HEADS + row->head) * DIM_VO + d);
    return sum;
}

/** Returns the loss whose gradient by o is d_o: <d_o, o>. */
static double loss(void) {
    qni_attention_problem p;
    double sum = 0;
    assert_int_equal(qni_attention_make(stream, &forward, &p), QN_OK);
    const qk_attention_request r = {.qo_len = QUERIES, .kv_len = KEYS};
    for (uint32_t kv_head = 0; kv_head < KV_HEADS; kv_head++) {
        const qni_attention_keys keys = qni_attention_load_keys(&p, &r, 0, kv_head);
        for (uint32_t i = 0; i < QUERIES * Q_HEADS / KV_HEADS; i++)
            sum += row_loss(
                &p,
                &(qni_attention_row){r, 0, i / (Q_HEADS / KV_HEADS),
                                     kv_head * (Q_HEADS / KV_HEADS) + i % (Q_HEADS / KV_HEADS)},
                &keys);
        free(keys.k);
    }
    return sum;
}

/** Returns the loss's derivative by an input, from four steps; off by the fifth derivative times
 *  step^4 / 30. */
static double derivative(float *x) {
    constexpr double step = 0x1p-7;
    const float before = *x;
    double by[2];
    for (int i = 0; i < 2; i++) {
        *x = before + (float)(step * (1 + i));
        by[i] = loss();
        *x = before - (float)(step * (1 + i));
        by[i] = (by[i] - loss()) / (2 * step * (1 + i));
    }
    *x = before;
    return (4 * by[0] - by[1]) / 3;
}

/** A gradient is a sum of at most 60 terms of order 1 from o and lse in f32. */
static void assert_is_gradient(const box *gradient, box *of) {
    constexpr double tolerance = 60 * 0x1p-24;
    for (int64_t i = 0; i < qni_numel(&of->t); i++) {
        const double want = derivative((float *)of->data + i), got = at(gradient, i);
        if (!(fabs(want - got) < tolerance))
            fail_msg("element %ld is %.9g, the difference %.9g", (long)i, got, want);
    }
}

static void test_central_differences(void **) {
    make_call();
    assert_int_equal(qn_attention(stream, &forward), QN_OK);
    assert_int_equal(qn_attention_backward(stream, &args), QN_OK);
    assert_is_gradient(&dq, &q);
    assert_is_gradient(&dk, &k);
    assert_is_gradient(&dv, &v);
    assert_is_gradient(&dmask, &mask);
    assert_is_gradient(&dsinks, &sinks);
}

/** Queries and keys that see nothing have zeros. */
static void test_nothing_seen(void **) {
    make_call();
    args.dmask = args.dsinks = nullptr;
    forward.mask = nullptr, forward.sinks = nullptr;
    forward.window_left = 0, forward.is_causal = forward.is_top_left = 1; // query i sees key i
    assert_int_equal(qn_attention(stream, &forward), QN_OK);
    assert_int_equal(qn_attention_backward(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES * Q_HEADS * DIM; i++)
        assert_true(fabs(at(&dq, i)) < 1e-6); // a weight of 1 has no gradient
    for (int64_t i = QUERIES * KV_HEADS * DIM; i < KEYS * KV_HEADS * DIM; i++)
        assert_true(at(&dk, i) == 0);
    for (int64_t i = QUERIES * KV_HEADS * DIM_VO; i < KEYS * KV_HEADS * DIM_VO; i++)
        assert_true(at(&dv, i) == 0);
    assert_true(at(&dv, 0) != 0);
}

// ---- refusals

static void assert_backward_refused(qn_status want, const char *words) {
    assert_refused(qn_attention_backward(stream, &args), want, words);
    assert_int_equal(dq.data[0], 0xFF); // nothing was written
    make_call();
}

static void test_refusals(void **) {
    box other;
    make_call();
    args.forward = nullptr;
    assert_backward_refused(QN_E_INVALID, "forward is null");
    forward.lse = nullptr;
    assert_backward_refused(QN_E_INVALID, "lse is null");
    forward.pos_encoding = QN_POS_ROPE_LLAMA;
    assert_backward_refused(QN_E_UNSUPPORTED, "QN_POS_ROPE_LLAMA");
    forward.mask = nullptr;
    assert_backward_refused(QN_E_INVALID, "dmask is given, forward has no mask");
    forward.sinks = nullptr;
    assert_backward_refused(QN_E_INVALID, "dsinks is given");
    args.d_o = nullptr;
    assert_backward_refused(QN_E_INVALID, "d_o is null");
    args.dv = MAKE(&other, QNI_F32, 1, KEYS, KV_HEADS, DIM);
    assert_backward_refused(QN_E_INVALID, "dv");
    args.dq = MAKE(&other, QNI_E4M3FN, 1, QUERIES, Q_HEADS, DIM);
    assert_backward_refused(QN_E_UNSUPPORTED, "dq has dtype");
    args.d_o = MAKE(&other, QNI_BF16, 1, QUERIES, Q_HEADS, DIM_VO);
    assert_backward_refused(QN_E_UNSUPPORTED, "d_o has dtype");
    args.dq = &q.t;
    assert_backward_refused(QN_E_INVALID, "dq overlaps q");
    args.dv = MAKE(&other, QNI_F32, 1, KEYS, KV_HEADS, DIM_VO);
    d_o.t.data = other.t.data;
    assert_backward_refused(QN_E_INVALID, "dv overlaps d_o");
    forward.lse = MAKE(&other, QNI_F32, 1, QUERIES + 1, Q_HEADS);
    assert_backward_refused(QN_E_INVALID, "lse has shape [1, 6, 4], needs [1, 5, 4]");
    forward.mask = MAKE(&other, QNI_BOOL, 1, 1, QUERIES, KEYS);
    assert_backward_refused(QN_E_INVALID,
                            "dmask is given, forward has a boolean mask; it needs a mask that is "
                            "added");
    args.dmask = MAKE(&other, QNI_F32, 1, Q_HEADS, QUERIES, KEYS);
    assert_backward_refused(QN_E_INVALID, "dmask has shape [1, 4, 5, 7], needs [1, 1, 5, 7]");
    args.workspace = nullptr;
    assert_backward_refused(QN_E_INVALID, "workspace");
    workspace.shape[0]--;
    assert_backward_refused(QN_E_INVALID, "workspace has");
    forward.dropout_p = 1;
    assert_backward_refused(QN_E_INVALID, "dropout_p");
    args.struct_size = 3;
    assert_backward_refused(QN_E_INVALID, "struct_size");
    assert_refused(qn_attention_backward(nullptr, &args), QN_E_INVALID, "stream is null");
    assert_refused(qn_attention_backward_workspace_bytes(nullptr, stream, &args), QN_E_INVALID,
                   "bytes is null");
}

/** d_o may be o itself. */
static void test_gradient_is_o(void **) {
    make_call();
    args.d_o = &o.t;
    assert_int_equal(qn_attention(stream, &forward), QN_OK);
    assert_int_equal(qn_attention_backward(stream, &args), QN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_nothing_seen),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gradient_is_o),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
