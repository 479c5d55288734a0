// SPDX-License-Identifier: Apache-2.0
// Activations and the layer of experts: refusals, the workspace, and small layers by hand.
// moe_test.py compares the layer with double precision.
#include "../shared/op_test.h"
#include "moe.h"

enum { TOKENS = 5, TOP_K = 2, EXPERTS = 3, HIDDEN = 16, INNER = 8 };

static box x, x_scale, w1, w2, w1_scale, w2_scale, bias1, bias2, weights, ids, addend, out,
    workspace;
static qn_fused_moe_args args;

static void make_layer(qni_dtype of_x, qni_dtype of_w1, qni_dtype of_w2) {
    MAKE(&x, of_x, TOKENS, HIDDEN);
    MAKE(&x_scale, QNI_F32, TOKENS, 1);
    MAKE(&w1, of_w1, EXPERTS, 2 * INNER, HIDDEN);
    MAKE(&w2, of_w2, EXPERTS, HIDDEN, INNER);
    MAKE(&w1_scale, QNI_F32, EXPERTS);
    MAKE(&w2_scale, QNI_F32, EXPERTS);
    MAKE(&bias1, QNI_F32, EXPERTS, 2 * INNER);
    MAKE(&bias2, QNI_F32, EXPERTS, HIDDEN);
    MAKE(&weights, QNI_F32, TOKENS, TOP_K);
    MAKE(&addend, QNI_F32, TOKENS, HIDDEN);
    MAKE(&out, QNI_F32, TOKENS, HIDDEN);
    INDICES(&ids, 0, 1, 2, -1, 1, 1, 0, 2, -1, -1);
    ids.t.ndim = 2, ids.shape[0] = TOKENS, ids.shape[1] = TOP_K;
    ids.strides[0] = TOP_K, ids.strides[1] = 1;
    fill(&x, 0), fill(&x_scale, 1), fill(&w1, 0), fill(&w2, 1), fill(&w1_scale, 1);
    fill(&w2_scale, 1), fill(&bias1, 0), fill(&bias2, 0), fill(&weights, 1), fill(&addend, 0.5);
    // Gates are 32, where silu is the identity, and ups 1 plus the expert.
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < INNER; i++) {
            qni_put(QNI_F32, bias1.data, 2 * INNER * e + i, 32);
            qni_put(QNI_F32, bias1.data, 2 * INNER * e + INNER + i, 1 + e);
        }
    const int64_t bytes = qn_fused_moe_workspace(TOKENS, TOP_K, HIDDEN, INNER, EXPERTS);
    MAKE(&workspace, QNI_U8, bytes - 7); // it begins at no multiple
    workspace.t.byte_offset = 7;
    args = (qn_fused_moe_args){.struct_size = sizeof args,
                               .out = &out.t,
                               .x = &x.t,
                               .x_scale = qni_is_fp8(of_x) ? &x_scale.t : nullptr,
                               .w1 = &w1.t,
                               .w2 = &w2.t,
                               .w1_scale = qni_is_fp8(of_w1) ? &w1_scale.t : nullptr,
                               .w2_scale = qni_is_fp8(of_w2) ? &w2_scale.t : nullptr,
                               .bias1 = &bias1.t,
                               .bias2 = &bias2.t,
                               .weights = &weights.t,
                               .ids = &ids.t,
                               .addend = &addend.t,
                               .workspace = &workspace.t};
}

static qn_status run(void) {
    return qn_fused_moe(stream, &args);
}

/** Every mix of types has room in the workspace that the function tells, less what it may waste on
 *  an odd address. */
static void test_layer(void **) {
    static const qni_dtype of_x[] = {QNI_BF16, QNI_F16, QNI_E4M3FN};
    static const qni_dtype of_w[] = {QNI_BF16, QNI_F16, QNI_E4M3FN, QNI_E5M2};
    for (int i = 0; i < 3 * 4 * 4; i++) {
        make_layer(of_x[i % 3], of_w[i / 3 % 4], of_w[i / 12]);
        assert_int_equal(run(), QN_OK);
        // Sums of 8 inner elements of 32 (1 + expert); tokens have experts 0 1, 2, 1 1, 0 2, none.
        static const double sums[TOKENS] = {3, 3, 4, 4, 0};
        for (int t = 0; t < TOKENS; t++)
            assert_true(at(&out, t * HIDDEN + 3) == INNER * 32 * sums[t] + 0.5);
    }
}

static void refused(qn_status status, const char *words) {
    assert_refused(run(), status, words);
    assert_true(*(uint32_t *)out.data == 0xFFFFFFFF && workspace.data[300] == 0xFF);
    make_layer(QNI_BF16, QNI_BF16, QNI_BF16);
}

static void test_refusals(void **) {
    make_layer(QNI_BF16, QNI_BF16, QNI_BF16);
    args.struct_size = 8, refused(QN_E_INVALID, "fused_moe: args");
    args.x = nullptr, refused(QN_E_INVALID, "fused_moe: x is null");
    args.w2 = nullptr, refused(QN_E_INVALID, "fused_moe: w2 is null");
    args.ids = nullptr, refused(QN_E_INVALID, "fused_moe: ids is null");
    args.out = nullptr, refused(QN_E_INVALID, "fused_moe: out is null");
    args.workspace = nullptr;
    assert_refused(run(), QN_E_INVALID, "fused_moe: workspace is null");
    make_layer(QNI_BF16, QNI_BF16, QNI_BF16);
    workspace.shape[0] = 512, refused(QN_E_INVALID, "workspace has 512 bytes; accepted: at least");
    args.function = (qn_moe_function)4,
    refused(QN_E_INVALID, "function is 4; accepted: QN_MOE_SILU");
    args.limit = NAN, refused(QN_E_INVALID, "limit is nan");
    args.alpha = 1, refused(QN_E_INVALID, "alpha is 1; accepted");
    args.is_interleaved = 2, refused(QN_E_INVALID, "is_interleaved is 2; accepted: 0, 1");
    args.w_is_packed = 2, refused(QN_E_INVALID, "w_is_packed is 2; accepted: 0, 1");
    args.w_is_packed = 1, refused(QN_E_INVALID, "inner is 0; accepted: 1 to 2^31 - 1");
    args.inner = 8, refused(QN_E_INVALID, "inner is 8; accepted: 0, as weights are not packed");
    args.x_scale = &x_scale.t, refused(QN_E_INVALID, "x_scale is given; needed with x of FP8");
    args.w1_scale = &x.t, refused(QN_E_UNSUPPORTED, "fused_moe: product of w1, w1_scale, bias1");
    MAKE(&bias2, QNI_F32, EXPERTS, 3), refused(QN_E_INVALID, "product of w2, w2_scale, bias2");
    MAKE(&addend, QNI_BF16, TOKENS, HIDDEN), refused(QN_E_UNSUPPORTED, "addend has dtype bf16");
    MAKE(&ids, QNI_I32, TOKENS - 1, TOP_K), refused(QN_E_INVALID, "ids has shape [4, 2]");
    MAKE(&ids, QNI_I32, TOKENS, 0),
        refused(QN_E_INVALID, "ids have 0 columns; accepted: 1 or more");
    out.t.data = workspace.data, out.t.byte_offset = 512;
    refused(QN_E_INVALID, "overlap");
    ((int32_t *)ids.data)[3] = 3,
              refused(QN_E_INVALID, "fused_moe: ids[3] is 3; accepted: -1 to 2");
}

static void test_workspace(void **) {
    assert_int_equal(qn_fused_moe_workspace(-1, 1, 1, 1, 1), -1);
    assert_int_equal(qn_fused_moe_workspace(1 << 30, 1 << 30, 1 << 30, 1, 1), -1);
    assert_true(qn_fused_moe_workspace(0, 0, 0, 0, 0) >= 0);
    make_layer(QNI_BF16, QNI_BF16, QNI_BF16);
    x.shape[0] = out.shape[0] = ids.shape[0] = weights.shape[0] = addend.shape[0] = 0;
    assert_int_equal(run(), QN_OK);
}

static qn_moe_activate_args activation;

static void make_activation(void) {
    MAKE(&x, QNI_F32, 2, 4);
    MAKE(&out, QNI_F32, 2, 2);
    INDICES(&ids, -1, 0);
    static const float values[] = {9, 9, 9, 9, 40, 1, -9, 3};
    memcpy(x.data, values, sizeof values);
    activation = (qn_moe_activate_args){.struct_size = sizeof activation,
                                        .out = &out.t,
                                        .x = &x.t,
                                        .expert_of_row = &ids.t,
                                        .function = QN_MOE_SWIGLU,
                                        .limit = 7};
}

/** Row 0 is of no expert. Row 1 has halves 40, 1 and -9, 3, or pairs 40, 1 and -9, 3. */
static void test_activation(void **) {
    make_activation();
    assert_int_equal(qn_moe_activate(stream, &activation), QN_OK);
    assert_true(isnan(at(&out, 0)) && fabs(at(&out, 2) + 42) < 1e-3); // 7 sigmoid(11.9) (-7 + 1)
    activation.is_interleaved = 1;
    assert_int_equal(qn_moe_activate(stream, &activation), QN_OK);
    assert_true(fabs(at(&out, 2) - 14) < 1e-3 && fabs(at(&out, 3)) < 1e-4);
    activation.scale = &x_scale.t;
    assert_refused(qn_moe_activate(stream, &activation), QN_E_UNSUPPORTED,
                   "moe_activate: out has dtype f32; accepted: e4m3fn");
    activation.scale = nullptr, activation.scale_eps = 1e-31f;
    assert_refused(qn_moe_activate(stream, &activation), QN_E_INVALID, "scale_eps is 1e-31");
    make_activation();
    INDICES(&ids, 0);
    assert_refused(qn_moe_activate(stream, &activation), QN_E_INVALID,
                   "expert_of_row has shape [1]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_activation),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
