// SPDX-License-Identifier: Apache-2.0
// Routing: what the function refuses, and how near its scores are to double precision.
// families_test shows that kernels have the definition's bits.
#include "../../shared/op_test.h"
#include "../moe.h"

enum { TOKENS = 5, EXPERTS = 16, TOP_K = 3 };

static box logits, bias, weights, ids;
static qn_moe_route_args args;

static void make_all(void) {
    uint64_t seed = 7;
    MAKE(&logits, QNI_F32, TOKENS, EXPERTS);
    MAKE(&bias, QNI_F32, EXPERTS);
    MAKE(&weights, QNI_F32, TOKENS, TOP_K);
    MAKE(&ids, QNI_I32, TOKENS, TOP_K);
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        seed = seed * 6364136223846793005 + 1442695040888963407;
        qni_put(QNI_F32, logits.data, i, (double)(seed >> 40) * 0x1p-21 - 4);
    }
    fill(&bias, 0);
    args = (qn_moe_route_args){
        .struct_size = sizeof args, .weights = &weights.t, .ids = &ids.t, .logits = &logits.t};
}

static qn_status route(void) {
    return qn_moe_route(stream, &args);
}

static int32_t id_at(int64_t i) {
    return ((const int32_t *)ids.data)[i];
}

static void refused(qn_status status, const char *words) {
    assert_refused(route(), status, words);
    for (int i = 0; i < TOKENS * TOP_K; i++)
        assert_true(((const uint32_t *)weights.data)[i] == 0xFFFFFFFF && id_at(i) == -1);
    make_all();
}

static void test_refusals(void **) {
    make_all();
    args.struct_size = 4, refused(QN_E_INVALID, "moe_route: args");
    args.logits = nullptr, refused(QN_E_INVALID, "moe_route: logits is null");
    args.ids = nullptr, refused(QN_E_INVALID, "moe_route: ids is null");
    args.scoring = (qn_moe_scoring)2,
    refused(QN_E_INVALID, "scoring is 2; accepted: QN_MOE_SOFTMAX (0), QN_MOE_SIGMOID (1)");
    args.renormalize = 2, refused(QN_E_INVALID, "renormalize is 2; accepted: 0, 1");
    args.scaling = NAN, refused(QN_E_INVALID, "scaling is nan; accepted: above 0 and finite");
    args.scaling = -1, refused(QN_E_INVALID, "scaling is -1");
    args.shared_weight = HUGE_VALF, refused(QN_E_INVALID, "shared_weight is inf");
    args.shared_experts = -1, refused(QN_E_INVALID, "shared_experts is -1, needs at least 0");
    args.shared_experts = TOP_K,
    refused(QN_E_INVALID, "weights have 3 columns, 3 of shared experts; accepted for the others: "
                          "1 to 16");
    args.groups = 3, refused(QN_E_INVALID, "groups is 3; accepted: 1 to 64 that divide 16 experts");
    args.groups = 8, args.topk_groups = 9,
    refused(QN_E_INVALID, "topk_groups is 9; accepted: 1 to groups, 8");
    args.groups = 8, args.topk_groups = 1, refused(QN_E_INVALID, "1 to 2, the experts of topk");
    MAKE(&logits, QNI_F32, TOKENS, 2), refused(QN_E_INVALID, "accepted for the others: 1 to 2");
    MAKE(&logits, QNI_F32, TOKENS, 0), refused(QN_E_INVALID, "logits are of 0 experts");
    MAKE(&logits, QNI_I32, TOKENS, EXPERTS), refused(QN_E_UNSUPPORTED, "logits has dtype i32");
    MAKE(&bias, QNI_F32, 3), args.bias = &bias.t, refused(QN_E_INVALID, "bias has shape [3]");
    ids.t.data = weights.data, refused(QN_E_INVALID, "overlap");
    qni_put(QNI_F32, logits.data, 2 * EXPERTS + 5, NAN);
    refused(QN_E_INVALID, "moe_route: logits[2, 5] is NaN; accepted: numbers");
}

static void test_nan_of_16_bits(void **) {
    for (int dtype = QNI_F16; dtype <= QNI_BF16; dtype++) {
        make_all();
        MAKE(&logits, (qni_dtype)dtype, TOKENS, EXPERTS);
        fill(&logits, HUGE_VAL); // no NaN
        assert_int_equal(route(), QN_OK);
        make_all();
        MAKE(&logits, (qni_dtype)dtype, TOKENS, EXPERTS);
        fill(&logits, 1);
        qni_put((qni_dtype)dtype, logits.data, TOKENS * EXPERTS - 1, NAN);
        refused(QN_E_INVALID, "logits[4, 15] is NaN");
    }
}

static void test_nothing(void **) {
    make_all();
    MAKE(&logits, QNI_F32, 0, EXPERTS);
    MAKE(&weights, QNI_F32, 0, TOP_K);
    MAKE(&ids, QNI_I32, 0, TOP_K);
    assert_int_equal(route(), QN_OK);
}

/** Of equal scores the lower expert comes first; the choice is by score and bias, the weight by
 *  score alone; shared experts come last. */
static void test_choice(void **) {
    make_all();
    fill(&logits, 0.25);
    assert_int_equal(route(), QN_OK);
    for (int j = 0; j < TOP_K; j++)
        assert_true(id_at(j) == j && at(&weights, j) == 1.0 / (double)EXPERTS);
    make_all();
    fill(&logits, 0);
    qni_put(QNI_F32, bias.data, 9, 0.5);
    args.bias = &bias.t, args.scoring = QN_MOE_SIGMOID, args.scaling = 2, args.shared_experts = 1;
    args.shared_weight = 0.25f;
    assert_int_equal(route(), QN_OK);
    assert_true(id_at(0) == 9 && at(&weights, 0) == 1);
    assert_true(id_at(1) == 0 && at(&weights, 1) == 1);
    assert_true(id_at(2) == EXPERTS && at(&weights, 2) == 0.25);
}

/** A group's score is its best expert's without a bias, and the sum of its two best with one. */
static void test_groups(void **) {
    make_all();
    fill(&logits, -9);
    qni_put(QNI_F32, logits.data, 1, 2);  // group 0 has the best expert,
    qni_put(QNI_F32, logits.data, 13, 1); // group 3 the two that are best together
    qni_put(QNI_F32, logits.data, 14, 1);
    args.groups = 4, args.topk_groups = 1, args.scoring = QN_MOE_SIGMOID;
    assert_int_equal(route(), QN_OK);
    assert_true(id_at(0) == 1 && id_at(1) == 0 && id_at(2) == 2);
    args.bias = &bias.t;
    assert_int_equal(route(), QN_OK);
    assert_true(id_at(0) == 13 && id_at(1) == 14 && id_at(2) == 12);
}

/** Returns whether got is within `units` of 2^-24, relative, of want. */
static bool is_near(double got, double want, double units) {
    return fabs(got - want) <= units * 0x1p-24 * fabs(want);
}

/** Scores are as near to double precision as the header says. */
static void test_exact(void **) {
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        make_all();
        args.scoring = (qn_moe_scoring)sigmoid, args.renormalize = 1, args.scaling = 2.5f;
        assert_int_equal(route(), QN_OK);
        for (int t = 0; t < TOKENS; t++) {
            double s[TOP_K], sum = 0, top = -9;
            for (int e = 0; e < EXPERTS; e++)
                top = fmax(top, at(&logits, t * EXPERTS + e));
            for (int j = 0; j < TOP_K; j++) {
                const double x = at(&logits, t * EXPERTS + id_at(t * TOP_K + j));
                sum += s[j] = sigmoid ? 1 / (1 + exp(-x)) : exp(x - top);
            }
            for (int j = 0; j < TOP_K; j++)
                assert_true(is_near(at(&weights, t * TOP_K + j), 2.5 * s[j] / sum,
                                    2 * (24 + 8 + 1) + TOP_K + 4));
        }
    }
}

static void test_functions(void **) {
    for (uint32_t bits = 0; bits < 0x42B00000; bits += 4093) {
        const float x = __builtin_bit_cast(float, bits);
        if (x > 87)
            continue;
        assert_true(is_near((double)qk_moe_exp(-x), exp(-(double)x), 2));
        assert_true(is_near((double)qk_moe_sigmoid(x), 1 / (1 + exp(-(double)x)), 6));
        assert_true(is_near((double)qk_moe_sigmoid(-x), 1 / (1 + exp((double)x)), 6));
    }
    assert_true(qk_moe_exp(-88) == 0 && qk_moe_exp(-HUGE_VALF) == 0 && qk_moe_exp(0) == 1);
    assert_true(qk_moe_sigmoid(HUGE_VALF) == 1 && qk_moe_sigmoid(-HUGE_VALF) == 0);
    assert_true(qk_moe_key(NAN) < qk_moe_key(-HUGE_VALF) && qk_moe_key(-0.0f) == qk_moe_key(0));
    assert_true(qk_moe_score_of(qk_moe_key(-1.5f)) == -1.5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_nan_of_16_bits),
        cmocka_unit_test(test_nothing),   cmocka_unit_test(test_choice),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_exact),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
