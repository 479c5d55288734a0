// SPDX-License-Identifier: Apache-2.0
// What the activations' functions refuse, edges, and strides beyond 2^31 elements. families_test
// shows that kernels agree with the definition.
#include "../shared/op_test.h"
#include "activation.h"

#include <sys/mman.h>

static box x, out, scale;

static void make_all(qni_dtype dtype, int64_t n, int64_t h) {
    MAKE(&x, dtype, n, 2 * h);
    MAKE(&out, dtype, n, h);
    MAKE(&scale, QNI_F32, 1);
    fill(&x, 1);
    fill(&scale, 1);
}

static void assert_untouched(void) {
    for (int i = 0; i < 64; i++)
        assert_int_equal(out.data[i], 0xFF);
}

static void test_refusals(void **) {
    make_all(QNI_F16, 3, 8);
    assert_refused(qn_silu_and_mul(nullptr, &out.t, &x.t), QN_E_INVALID, "stream is null");
    assert_refused(qn_silu_and_mul(stream, nullptr, &x.t), QN_E_INVALID,
                   "silu_and_mul: out is null");
    assert_refused(qn_gelu_and_mul(stream, &out.t, nullptr), QN_E_INVALID,
                   "gelu_and_mul: x is null");
    out.shape[1] = 7;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_INVALID,
                   "out has shape [3, 7], needs [3, 8]");
    make_all(QNI_F16, 3, 8);
    x.shape[1] = 15;
    assert_refused(qn_gelu_tanh_and_mul(stream, &out.t, &x.t), QN_E_INVALID,
                   "gelu_tanh_and_mul: x has rows of 15 elements, needs an even number");
    MAKE(&out, QNI_F32, 3, 8);
    x.shape[1] = 16;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_UNSUPPORTED,
                   "out has dtype f32, needs x's, f16");
    make_all(QNI_I32, 3, 8);
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_UNSUPPORTED, "x has dtype i32");
    make_all(QNI_F16, 3, 8);
    x.strides[1] = 2;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_INVALID,
                   "x has stride 2 in its last dimension");
    make_all(QNI_F16, 3, 8);
    out.strides[0] = 4;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_INVALID,
                   "out has stride 4 in dimension 0, needs at least 8");
    make_all(QNI_F16, 3, 8);
    x.t.byte_offset = 1;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_INVALID, "2-byte elements");
    make_all(QNI_F16, 3, 8);
    out.t.data = x.data + 16;
    assert_refused(qn_silu_and_mul(stream, &out.t, &x.t), QN_E_INVALID, "out overlaps x");
    assert_untouched();
}

static void test_scalar_refusals(void **) {
    make_all(QNI_F32, 3, 8);
    assert_refused(qn_act_and_mul(stream, &out.t, &x.t, QN_SILU, -1), QN_E_INVALID, "limit is -1");
    assert_refused(qn_act_and_mul(stream, &out.t, &x.t, QN_SILU, NAN), QN_E_INVALID,
                   "limit is nan");
    assert_refused(qn_act_and_mul(stream, &out.t, &x.t, (qn_activation)3, 0), QN_E_INVALID,
                   "function is 3");
    MAKE(&out, QNI_E4M3FN, 3, 8);
    MAKE(&scale, QNI_F32, 3);
    assert_refused(qn_act_and_mul_dynamic_quant(stream, &out.t, &scale.t, &x.t, QN_SILU, 0, 0),
                   QN_E_INVALID, "scale_eps is 0");
    assert_untouched();
}

static void test_quant_refusals(void **) {
    make_all(QNI_BF16, 3, 8);
    assert_refused(qn_act_and_mul_quant(stream, &out.t, &x.t, &scale.t, QN_SILU, 0),
                   QN_E_UNSUPPORTED, "out has dtype bf16; accepted: e4m3fn");
    MAKE(&out, QNI_E4M3FN, 3, 8);
    assert_refused(qn_act_and_mul_quant(stream, &out.t, &x.t, nullptr, QN_SILU, 0), QN_E_INVALID,
                   "scale is null");
    assert_refused(qn_act_and_mul_dynamic_quant(stream, &out.t, nullptr, &x.t, QN_SILU, 0, 1e-10f),
                   QN_E_INVALID, "scale is null");
    MAKE(&scale, QNI_F16, 1);
    assert_refused(qn_act_and_mul_quant(stream, &out.t, &x.t, &scale.t, QN_SILU, 0),
                   QN_E_UNSUPPORTED, "scale has dtype f16");
    MAKE(&scale, QNI_F32, 3, 2);
    assert_refused(qn_act_and_mul_dynamic_quant(stream, &out.t, &scale.t, &x.t, QN_SILU, 0, 1e-10f),
                   QN_E_INVALID, "scale has shape [3, 2], needs [3, 1]");
    assert_untouched();
}

static void test_empty(void **) {
    make_all(QNI_F16, 0, 8);
    x.t.data = out.t.data = nullptr;
    assert_int_equal(qn_silu_and_mul(stream, &out.t, &x.t), QN_OK);
    make_all(QNI_F16, 3, 0);
    assert_int_equal(qn_gelu_and_mul(stream, &out.t, &x.t), QN_OK);
    assert_untouched();
}

/** NaNs stay where they are; infinities follow the formulas. */
static void test_special_values(void **) {
    static qn_status (*const functions[])(qn_stream *, DLTensor *, const DLTensor *) = {
        qn_silu_and_mul, qn_gelu_and_mul, qn_gelu_tanh_and_mul};
    for (int f = 0; f < 3; f++) {
        make_all(QNI_F32, 1, 37);
        qni_put(QNI_F32, x.data, 0, (double)NAN);
        qni_put(QNI_F32, x.data, 1, (double)INFINITY);
        qni_put(QNI_F32, x.data, 2, (double)-INFINITY);
        qni_put(QNI_F32, x.data, 3, -1e38);
        qni_put(QNI_F32, x.data, 4, 1e38);
        qni_put(QNI_F32, x.data, 36, 0);
        qni_put(QNI_F32, x.data, 37 + 5, (double)NAN);
        assert_int_equal(functions[f](stream, &out.t, &x.t), QN_OK);
        assert_true(isnan(at(&out, 0)) && isinf(at(&out, 1)) && isnan(at(&out, 2)));
        assert_true(at(&out, 3) == 0 && at(&out, 4) == (double)1e38f && isnan(at(&out, 5)));
        assert_true(at(&out, 36) == 0 && at(&out, 6) > 0.73 && at(&out, 6) < 0.85);
    }
}

/** gate is limited only from above, up from both sides. */
static void test_limit(void **) {
    make_all(QNI_F32, 1, 4);
    const double values[] = {50, -50, 50, NAN, 2, -50, 50, 50};
    for (int i = 0; i < 8; i++)
        qni_put(QNI_F32, x.data, i, values[i]);
    assert_int_equal(qn_act_and_mul(stream, &out.t, &x.t, QN_SILU, 10), QN_OK);
    const double ten = 10 / (1 + exp(-10.0));
    assert_true(fabs(at(&out, 0) - 2 * ten) < 1e-5);
    assert_true(at(&out, 1) > 0 && at(&out, 1) < 1e-18); // silu(-50) * -10, not silu(-10)
    assert_true(fabs(at(&out, 2) - 10 * ten) < 1e-4);
    assert_true(isnan(at(&out, 3)));
    assert_int_equal(qn_act_and_mul(stream, &out.t, &x.t, QN_SILU, 0), QN_OK);
    assert_true(at(&out, 0) == 100);
}

/** Results beyond the range of the FP8 kind become its largest value, with either sign. Rows of
 *  zeros have the smallest scale. */
static void test_codes(void **) {
    static const double largest[] = {448, 240, 57344, 57344};
    for (int kind = 0; kind < QNI_NUM_FP8; kind++) {
        make_all(QNI_F32, 2, 4);
        MAKE(&out, (qni_dtype)(QNI_E4M3FN + kind), 2, 4);
        fill(&scale, 1e-6);
        fill(&x, 0);
        for (int i = 0; i < 4; i++) {
            qni_put(QNI_F32, x.data, i, 1);
            qni_put(QNI_F32, x.data, 4 + i, i % 2 ? -1 : 1);
        }
        assert_int_equal(qn_act_and_mul_quant(stream, &out.t, &x.t, &scale.t, QN_GELU, 0), QN_OK);
        for (int i = 0; i < 4; i++)
            assert_true(at(&out, i) == (i % 2 ? -largest[kind] : largest[kind]));
        MAKE(&scale, QNI_F32, 2);
        assert_int_equal(
            qn_act_and_mul_dynamic_quant(stream, &out.t, &scale.t, &x.t, QN_GELU, 0, 1e-4f), QN_OK);
        for (int i = 0; i < 4; i++)
            assert_true(at(&out, i) == (i % 2 ? -largest[kind] : largest[kind]));
        assert_true(at(&out, 4) == 0 && ((float *)scale.data)[1] == 1e-4f / (float)largest[kind]);
    }
}

/** A tensor of four dimensions, of which the first two fold, with dimensions of 1 that have odd
 *  strides, and scales for groups. */
static void test_many_dimensions(void **) {
    enum { H = 130, ROWS = 8, X_GAP = 7 };
    static float xs[ROWS * (2 * H + X_GAP)], flat[ROWS * H], folded[ROWS * H];
    static uint8_t codes[2][ROWS * H];
    static float scales[2][ROWS * 2];
    for (int i = 0; i < (int)(sizeof xs / sizeof *xs); i++)
        xs[i] = (float)sin(i) * 4;
    const int64_t stride = 2 * H + X_GAP;
    int64_t shape4[] = {2, 1, 4, 2 * H}, strides4[] = {4 * stride, 3, stride, 1};
    int64_t shape2[] = {ROWS, 2 * H}, strides2[] = {stride, 1};
    int64_t half4[] = {2, 1, 4, H}, half2[] = {ROWS, H}, groups4[] = {2, 1, 4, 2},
            groups2[] = {ROWS, 2};
#define TENSOR(p, dims, type, sizes, steps)                                                        \
    {                                                                                              \
        .data = (p), .device = qn_device_id(cpu), .ndim = (dims), .dtype = qni_dl_dtype(type),     \
        .shape = (sizes), .strides = (steps)                                                       \
    }
    const DLTensor x4 = TENSOR(xs, 4, QNI_F32, shape4, strides4),
                   x2 = TENSOR(xs, 2, QNI_F32, shape2, strides2);
    DLTensor o4 = TENSOR(folded, 4, QNI_F32, half4, nullptr),
             o2 = TENSOR(flat, 2, QNI_F32, half2, nullptr);
    assert_int_equal(qn_gelu_and_mul(stream, &o4, &x4), QN_OK);
    assert_int_equal(qn_gelu_and_mul(stream, &o2, &x2), QN_OK);
    assert_memory_equal(flat, folded, sizeof flat);
    DLTensor q4 = TENSOR(codes[0], 4, QNI_E4M3FN, half4, nullptr),
             q2 = TENSOR(codes[1], 2, QNI_E4M3FN, half2, nullptr),
             s4 = TENSOR(scales[0], 4, QNI_F32, groups4, nullptr),
             s2 = TENSOR(scales[1], 2, QNI_F32, groups2, nullptr);
    assert_int_equal(qn_act_and_mul_dynamic_quant(stream, &q4, &s4, &x4, QN_GELU, 0, 1e-10f),
                     QN_OK);
    assert_int_equal(qn_act_and_mul_dynamic_quant(stream, &q2, &s2, &x2, QN_GELU, 0, 1e-10f),
                     QN_OK);
    assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
    assert_memory_equal(scales[0], scales[1], sizeof scales[0]);
    int64_t shape3[] = {2, 2, 2, 2 * H}, apart[] = {4 * stride + 1, 2 * stride + 1, stride, 1},
            out3[] = {2, 2, 2, H};
    const DLTensor odd = TENSOR(xs, 4, QNI_F32, shape3, apart);
    DLTensor o3 = TENSOR(folded, 4, QNI_F32, out3, nullptr);
    assert_refused(qn_gelu_and_mul(stream, &o3, &odd), QN_E_UNSUPPORTED, "do not fold");
}

/** Rows lie more than 2^31 elements apart, so offsets need 64 bits. */
static void test_far_rows(void **) {
    const int64_t apart = (1LL << 31) + 40, bytes = (apart + 64) * 2;
    uint16_t *far = mmap(nullptr, (size_t)bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED)
        skip();
    make_all(QNI_BF16, 2, 8);
    for (int i = 0; i < 16; i++)
        qni_put(QNI_BF16, far, apart + i, i - 4);
    x.t.data = far;
    x.strides[0] = apart;
    assert_int_equal(qn_silu_and_mul(stream, &out.t, &x.t), QN_OK);
    assert_true(at(&out, 0) == 0 && at(&out, 8 + 4) == 0);
    assert_true(fabs(at(&out, 8 + 7) - 3 / (1 + exp(-3.0)) * 11) < 0.15);
    munmap(far, (size_t)bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_scalar_refusals),
        cmocka_unit_test(test_quant_refusals), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_special_values), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_codes),          cmocka_unit_test(test_many_dimensions),
        cmocka_unit_test(test_far_rows),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
