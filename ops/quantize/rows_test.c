// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows: the vectors of UE8M0 and of lone values, and what the functions refuse.
// families_test shows that kernels agree with the definition.
#include "../shared/op_test.h"
#include "rows.h"

static box x, q, scale, workspace;

static void make_all(qni_dtype dtype, qni_dtype codes, int64_t rows, int64_t cols, int64_t groups) {
    MAKE(&x, dtype, rows, cols);
    MAKE(&q, codes, rows, cols);
    MAKE(&scale, QNI_F32, rows, groups);
    MAKE(&workspace, QNI_U8, ROOM);
    fill(&x, 1);
}

/** UE8M0 rounds up to powers of two: 0, the smallest number, 1, the number above 1, and the
 *  largest. */
static void test_ue8m0(void **) {
    static const struct {
        float scale;
        uint32_t exponent;
    } vectors[] = {{0, 1},      {0x1p-149f, 1},         {0x1p-127f, 1},  {0x1.8p-127f, 1},
                   {1, 127},    {0x1.000002p0f, 128},   {0x1p-126f, 1},  {0x1.000002p-126f, 2},
                   {2, 128},    {0x1.fffffep126f, 254}, {0x1p127f, 254}, {0x1.fffffep127f, 254},
                   {0.75f, 127}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (qni_ue8m0_up(vectors[i].scale) != vectors[i].exponent)
            fail_msg("%a gives %u, must give %u", (double)vectors[i].scale,
                     qni_ue8m0_up(vectors[i].scale), vectors[i].exponent);
}

/** Rows of five groups, 448 times a power of two each, become packed bytes with zeros behind
 *  them. */
static void test_packed_words(void **) {
    make_all(QNI_F32, QNI_E4M3FN, 1, 5 * 8, 5);
    MAKE(&scale, QNI_I32, 1, 2);
    const double tops[] = {448, 449, 448 * 0x1p-20, 1e-30, 3e38};
    const uint8_t want[] = {127, 128, 107, 19, 247, 0, 0, 0};
    for (int i = 0; i < 40; i++)
        qni_put(QNI_F32, x.data, i, i % 8 == 0 ? tops[i / 8] : 0);
    assert_int_equal(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 8, 0, 1e-30f), QN_OK);
    assert_memory_equal(scale.data, want, sizeof want);
    assert_true(at(&q, 0) == 448 && at(&q, 8) == 224 && at(&q, 16) == 448 && at(&q, 1) == 0);
}

/** A row with one largest value among zeros; and a row of zeros, which gets the smallest scale and
 *  codes of exact zero. */
static void test_lone_value_and_zeros(void **) {
    make_all(QNI_BF16, QNI_E4M3FN, 2, 128, 1);
    fill(&x, 0);
    qni_put(QNI_BF16, x.data, 77, 448);
    assert_int_equal(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 128, 0, 1e-4f), QN_OK);
    assert_true(at(&scale, 0) == 1 && ((float *)scale.data)[1] == 1e-4f / 448.0f);
    for (int i = 0; i < 256; i++)
        assert_true(at(&q, i) == (i == 77 ? 448 : 0));
}

/** int8 rounds ties to even, saturates at both ends of its range, and takes a NaN for 0. */
static void test_int8(void **) {
    make_all(QNI_F32, QNI_I8, 1, 8, 1);
    MAKE(&scale, QNI_F32, 1);
    fill(&scale, 0.5);
    const double values[] = {0.25, 0.75, -1.25, 63.5, 64, -100, (double)NAN, 1};
    const double want[] = {0, 2, -2, 127, 127, -127, 0, 2};
    for (int i = 0; i < 8; i++)
        qni_put(QNI_F32, x.data, i, values[i]);
    assert_int_equal(qn_quantize_static(stream, &q.t, &x.t, &scale.t), QN_OK);
    for (int i = 0; i < 8; i++)
        assert_true(at(&q, i) == want[i]);
}

/** The tensor's scale does not depend on what the workspace held. */
static void test_tensor(void **) {
    make_all(QNI_F16, QNI_E5M2, 5, 40, 1);
    MAKE(&scale, QNI_F32, 1);
    qni_put(QNI_F16, x.data, 4 * 40 + 39, -57344);
    assert_int_equal(qn_quantize_tensor(stream, &q.t, &scale.t, &x.t, &workspace.t, 1e-10f), QN_OK);
    assert_true(at(&scale, 0) == 1 && at(&q, 0) == 1 && at(&q, 199) == -57344);
}

static void test_refusals(void **) {
    make_all(QNI_F16, QNI_E4M3FN, 3, 64, 2);
    assert_refused(qn_quantize_groups(stream, nullptr, &scale.t, &x.t, 32, 0, 1e-4f), QN_E_INVALID,
                   "quantize_groups: q is null");
    assert_refused(qn_quantize_groups(stream, &q.t, nullptr, &x.t, 32, 0, 1e-4f), QN_E_INVALID,
                   "scale is null");
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 16, 0, 1e-4f), QN_E_INVALID,
                   "scale has shape [3, 2], needs [3, 4]");
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, -1, 0, 1e-4f), QN_E_INVALID,
                   "group is -1");
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 32, 2, 1e-4f), QN_E_INVALID,
                   "round_scale is 2");
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 32, 0, 0), QN_E_INVALID,
                   "eps is 0");
    scale.strides[1] = 0;
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 32, 0, 1e-4f), QN_E_INVALID,
                   "scale has stride 0");
    MAKE(&scale, QNI_F16, 3, 2);
    assert_refused(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 32, 0, 1e-4f), QN_E_UNSUPPORTED,
                   "scale has dtype f16; accepted: f32, i32");
    MAKE(&scale, QNI_F32, 1);
    workspace.shape[0] = 100;
    assert_refused(qn_quantize_tensor(stream, &q.t, &scale.t, &x.t, &workspace.t, 1e-4f),
                   QN_E_INVALID, "workspace has 100 bytes, needs 4096");
    assert_refused(qn_quantize_static(stream, &q.t, &x.t, nullptr), QN_E_INVALID, "scale is null");
    x.t.data = q.data;
    assert_refused(qn_quantize_static(stream, &q.t, &x.t, &scale.t), QN_E_INVALID, "q overlaps x");
    MAKE(&q, QNI_F16, 3, 64);
    MAKE(&x, QNI_F16, 3, 64);
    assert_refused(qn_quantize_static(stream, &q.t, &x.t, &scale.t), QN_E_UNSUPPORTED,
                   "q has dtype f16");
    for (int i = 0; i < 3 * 64; i++)
        assert_int_equal(q.data[i], 0xFF); // nothing was written
}

static void test_empty(void **) {
    make_all(QNI_F16, QNI_E4M3FN, 0, 64, 2);
    assert_int_equal(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 32, 0, 1e-4f), QN_OK);
    make_all(QNI_F16, QNI_E4M3FN, 3, 0, 0);
    assert_int_equal(qn_quantize_groups(stream, &q.t, &scale.t, &x.t, 0, 1, 1e-4f), QN_OK);
    MAKE(&scale, QNI_F32, 1);
    assert_int_equal(qn_quantize_tensor(stream, &q.t, &scale.t, &x.t, &workspace.t, 1e-4f), QN_OK);
    assert_int_equal(scale.data[0], 0xFF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ue8m0),  cmocka_unit_test(test_packed_words),
        cmocka_unit_test(test_int8),   cmocka_unit_test(test_lone_value_and_zeros),
        cmocka_unit_test(test_tensor), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
