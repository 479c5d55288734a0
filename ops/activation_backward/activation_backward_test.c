// SPDX-License-Identifier: Apache-2.0
// The definition of the activations' backward pass beside central differences of their own
// definition, and what qn_activation_backward refuses, on the CPU. families_test shows that kernels
// agree with the definition on every device.
#include "../shared/op_test.h"
#include "activation_backward.h"

enum { ROWS = 2, H = 33 };

static box x, d_out, dx;

static void make_call(qni_dtype dtype) {
    MAKE(&x, dtype, ROWS, 2 * H);
    MAKE(&d_out, dtype, ROWS, H);
    MAKE(&dx, dtype, ROWS, 2 * H);
    for (int i = 0; i < ROWS * 2 * H; i++)
        qni_put(dtype, x.data, i, 3 * sin(i) + (i % 5) - 1);
    for (int i = 0; i < ROWS * H; i++)
        qni_put(dtype, d_out.data, i, cos(i));
}

// ---- central differences

static double loss(const qni_activation_problem *p, double gate, double up, double d) {
    double error;
    return d * qni_activation_ref(p, gate, up, &error);
}

/** Returns the loss's derivative by gate, or by up, from four steps. */
static double derivative(const qni_activation_problem *p, double gate, double up, double d,
                         bool by_up) {
    double by[2];
    for (int i = 0; i < 2; i++) {
        const double step = 0x1p-10 * (1 + i), g = by_up ? 0 : step, u = by_up ? step : 0;
        by[i] = (loss(p, gate + g, up + u, d) - loss(p, gate - g, up - u, d)) / (2 * step);
    }
    return (4 * by[0] - by[1]) / 3;
}

/** Compares all elements but those next to the limit, where the derivative jumps. A gradient is
 *  made of some 30 f32 operations on numbers up to 6; the differences' own error is below 2^-30. */
static void test_central_differences(void **) {
    constexpr double tolerance = 36 * 30 * 0x1p-24;
    for (int form = 0; form < 6; form++) {
        const qni_activation_problem p = {.function = (qn_activation)(form / 2),
                                          .limit = form % 2 ? 1.5f : HUGE_VALF};
        make_call(QNI_F32);
        assert_int_equal(qn_activation_backward(stream, &dx.t, &d_out.t, &x.t, p.function,
                                                form % 2 ? p.limit : 0),
                         QN_OK);
        for (int i = 0; i < ROWS * 2 * H; i++) {
            const int row = i / (2 * H), column = i % H;
            const bool by_up = i % (2 * H) >= H;
            const double gate = at(&x, row * 2 * H + column), up = at(&x, row * 2 * H + H + column);
            const double from_limit = fabs(fabs(by_up ? up : gate) - (double)p.limit);
            const double want = derivative(&p, gate, up, at(&d_out, row * H + column), by_up);
            if (from_limit > 0x1p-8 && !(fabs(at(&dx, i) - want) <= tolerance))
                fail_msg("form %d: element %d is %.9g, the difference %.9g", form, i, at(&dx, i),
                         want);
        }
    }
}

/** The gradient passes at the limit itself, as min's and clamp's does in PyTorch. */
static void test_limit(void **) {
    MAKE(&x, QNI_F32, 4, 2);
    MAKE(&d_out, QNI_F32, 4, 1);
    MAKE(&dx, QNI_F32, 4, 2);
    const double values[] = {2, 2, 2.25, -2, 1, 2.25, 1, -2.25};
    for (int i = 0; i < 8; i++)
        qni_put(QNI_F32, x.data, i, values[i]);
    fill(&d_out, 1);
    assert_int_equal(qn_activation_backward(stream, &dx.t, &d_out.t, &x.t, QN_SILU, 2), QN_OK);
    assert_true(at(&dx, 0) > 0 && at(&dx, 1) > 0);
    assert_true(at(&dx, 2) == 0 && at(&dx, 3) > 0);
    assert_true(at(&dx, 4) > 0 && at(&dx, 5) == 0);
    assert_true(at(&dx, 6) < 0 && at(&dx, 7) == 0);
}

/** A NaN stays in its element. */
static void test_nan(void **) {
    make_call(QNI_F32);
    ((float *)x.data)[3] = NAN;
    ((float *)d_out.data)[H + 5] = NAN;
    assert_int_equal(qn_activation_backward(stream, &dx.t, &d_out.t, &x.t, QN_GELU, 0), QN_OK);
    for (int i = 0; i < ROWS * 2 * H; i++)
        assert_int_equal(!!isnan(at(&dx, i)), i % H == (i < 2 * H ? 3 : 5));
}

static void test_refusals(void **) {
    box other;
    const struct {
        DLTensor *dx, *d_out, *x;
        int function;
        float limit;
        qn_status want;
        const char *words;
    } cases[] = {
        {nullptr, &d_out.t, &x.t, 0, 0, QN_E_INVALID, "dx is null"},
        {&dx.t, nullptr, &x.t, 0, 0, QN_E_INVALID, "d_out is null"},
        {&dx.t, &d_out.t, nullptr, 0, 0, QN_E_INVALID, "x is null"},
        {&dx.t, &x.t, &x.t, 0, 0, QN_E_INVALID, "d_out"},
        {&d_out.t, &d_out.t, &x.t, 0, 0, QN_E_INVALID, "dx"},
        {&x.t, &d_out.t, &x.t, 0, 0, QN_E_INVALID, "overlap"},
        {&dx.t, &d_out.t, &d_out.t, 0, 0, QN_E_INVALID, "even number"},
        {&dx.t, &d_out.t, &x.t, 3, 0, QN_E_INVALID, "function is 3"},
        {&dx.t, &d_out.t, &x.t, 0, -1, QN_E_INVALID, "limit is -1"},
        {&dx.t, &d_out.t, &x.t, 0, NAN, QN_E_INVALID, "limit is nan"},
        {MAKE(&other, QNI_BF16, ROWS, 2 * H), &d_out.t, &x.t, 0, 0, QN_E_UNSUPPORTED,
         "dx has dtype"},
    };
    make_call(QNI_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(qn_activation_backward(stream, cases[i].dx, cases[i].d_out, cases[i].x,
                                              (qn_activation)cases[i].function, cases[i].limit),
                       cases[i].want, cases[i].words);
    assert_refused(qn_activation_backward(nullptr, &dx.t, &d_out.t, &x.t, QN_SILU, 0), QN_E_INVALID,
                   "stream is null");
    assert_int_equal(dx.data[0], 0xFF); // nothing was written
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
