// SPDX-License-Identifier: Apache-2.0
// The definition of norms' backward pass beside central differences of the norms' own definition,
// and what qn_norm_backward refuses, on the CPU. families_test shows that kernels agree with the
// definition on every device.
#include "../../check/area.h"
#include "../shared/op_test.h"
#include "norm_backward.h"

enum { ROWS = 3, H = 7, BATCHES = 2 };

static box x, weight, beta, d_out, d_sum, dx, dweight, dbeta, workspace;
static box gate, gated, residual, d_gated, dgate; // of qn_gated_residual_layernorm
static qn_norm_backward_args args;

/** Fills a tensor with multiples of 2^-12, so that f32 holds them with small steps added. */
static void fill_steps(box *b, uint64_t seed) {
    for (int64_t i = 0; i < qni_numel(&b->t); i++)
        ((float *)b->data)[i] = (float)(rint(qni_random_normal(&seed) * 4096) / 4096);
}

static void make_call(bool subtracts_mean) {
    box *const filled[] = {&x, &d_out, &d_sum, &weight, &beta};
    int64_t bytes;
    for (int i = 0; i < 3; i++)
        MAKE(filled[i], QNI_F32, ROWS, H);
    MAKE(&dx, QNI_F32, ROWS, H);
    MAKE(&weight, QNI_F32, H);
    MAKE(&beta, QNI_F32, H);
    MAKE(&dweight, QNI_F32, H);
    MAKE(&dbeta, QNI_F32, H);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        fill_steps(filled[i], i + 1);
    args = (qn_norm_backward_args){.struct_size = sizeof args,
                                   .dx = &dx.t,
                                   .dweight = &dweight.t,
                                   .dbeta = subtracts_mean ? &dbeta.t : nullptr,
                                   .d_out = &d_out.t,
                                   .x = &x.t,
                                   .weight = &weight.t,
                                   .d_sum = &d_sum.t,
                                   .eps = 0.125f,
                                   .subtracts_mean = subtracts_mean,
                                   .adds_one = !subtracts_mean};
    assert_int_equal(qn_norm_backward_workspace_bytes(&bytes, stream, &args), QN_OK);
    MAKE(&workspace, QNI_U8, bytes);
    args.workspace = &workspace.t;
}

/** Makes the call behind qn_gated_residual_layernorm: x is what that call leaves in its residual,
 *  and all weights have a row for each batch. */
static void make_gated_call(void) {
    box *const filled[] = {&gate, &gated, &residual}, *const rows[] = {&x, &d_out, &d_sum, &dx};
    int64_t bytes;
    make_call(true);
    for (int i = 0; i < 4; i++)
        MAKE(rows[i], QNI_F32, BATCHES, ROWS, H);
    box *const weights[] = {&weight, &beta, &gate, &dweight, &dbeta, &dgate};
    for (int i = 0; i < 6; i++)
        MAKE(weights[i], QNI_F32, BATCHES, H);
    MAKE(&gated, QNI_F32, BATCHES, ROWS, H);
    MAKE(&residual, QNI_F32, BATCHES, ROWS, H);
    MAKE(&d_gated, QNI_F32, BATCHES, ROWS, H);
    for (int i = 0; i < 3; i++) {
        fill_steps(filled[i], (uint64_t)i + 10);
        fill_steps(i < 2 ? rows[i + 1] : &weight, (uint64_t)i + 20);
    }
    fill_steps(&beta, 30);
    args.d_gated = &d_gated.t;
    args.dgate = &dgate.t;
    args.gate = &gate.t;
    args.gated = &gated.t;
    args.adds_one = 1;
    assert_int_equal(qn_norm_backward_workspace_bytes(&bytes, stream, &args), QN_OK);
    MAKE(&workspace, QNI_U8, bytes);
}

// ---- central differences

/** Returns the loss whose gradient by the norm's result is d_out, and by what it norms d_sum. */
static double loss(void) {
    const int64_t batches = args.gate ? BATCHES : 1, step = args.gate ? H : 0;
    const qni_norm_rows rows = {x.data, ROWS * H, H};
    const qni_norm_problem p = {.rows = batches * ROWS,
                                .inner = ROWS,
                                .h = H,
                                .x = args.gate ? (qni_norm_rows){gated.data, ROWS * H, H} : rows,
                                .residual = {args.gate ? residual.data : nullptr, ROWS * H, H},
                                .weight = {weight.data, step},
                                .gate = {args.gate ? gate.data : nullptr, step},
                                .beta = {args.subtracts_mean ? beta.data : nullptr, step},
                                .subtracts_mean = args.subtracts_mean,
                                .weight_plus = (float)args.adds_one,
                                .eps = args.eps};
    double t[H], y[H], sum = 0;
    for (int64_t r = 0; r < p.rows; r++) {
        qni_norm_ref_row(&p, r, t, y);
        for (int i = 0; i < H; i++)
            sum += y[i] * at(&d_out, r * H + i) + t[i] * at(&d_sum, r * H + i);
    }
    return sum;
}

/** Returns the loss's derivative by an input, from four steps; off by the fifth derivative times
 *  step^4 / 30. */
static double derivative(float *of) {
    constexpr double step = 0x1p-7;
    const float before = *of;
    double by[2];
    for (int i = 0; i < 2; i++) {
        *of = before + (float)(step * (1 + i));
        by[i] = loss();
        *of = before - (float)(step * (1 + i));
        by[i] = (by[i] - loss()) / (2 * step * (1 + i));
    }
    *of = before;
    return (4 * by[0] - by[1]) / 3;
}

/** A gradient is made of at most 60 f32 operations on numbers of order 1; the differences' own
 *  error is below 2^-20, as fifth derivatives are below 2^12 with this eps. */
static void assert_is_gradient(const box *gradient, box *of) {
    constexpr double tolerance = 60 * 0x1p-24 + 0x1p-20;
    for (int64_t i = 0; i < qni_numel(&of->t); i++) {
        const double want = derivative((float *)of->data + i), got = at(gradient, i);
        if (!(fabs(want - got) < tolerance))
            fail_msg("element %ld is %.9g, the difference %.9g", (long)i, got, want);
    }
}

static void test_central_differences(void **) {
    for (int subtracts_mean = 0; subtracts_mean < 2; subtracts_mean++) {
        make_call(subtracts_mean);
        assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
        assert_is_gradient(&dx, &x);
        assert_is_gradient(&dweight, &weight);
        if (subtracts_mean)
            assert_is_gradient(&dbeta, &beta);
    }
}

/** x, what the forward pass left in its residual, is rounded to f32 once, which the tolerance has
 *  room for. */
static void test_central_differences_of_gates(void **) {
    make_gated_call();
    for (int64_t i = 0; i < BATCHES * ROWS * H; i++)
        ((float *)x.data)[i] =
            (float)(at(&residual, i) + at(&gate, i / (ROWS * H) * H + i % H) * at(&gated, i));
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    assert_is_gradient(&dx, &residual);
    assert_is_gradient(&d_gated, &gated);
    assert_is_gradient(&dgate, &gate);
    assert_is_gradient(&dweight, &weight);
    assert_is_gradient(&dbeta, &beta);
}

// ---- edges

/** A batch's gradients have the bits of a call on that batch alone, and all batches may share a row
 *  of weights. */
static void test_batches_alone(void **) {
    float whole[3][BATCHES * H];
    box *const sums[] = {&dweight, &dbeta, &dgate}, *const rows[] = {&x,  &d_out, &d_sum,
                                                                     &dx, &gated, &d_gated};
    make_gated_call();
    fill_steps(&x, 40);
    weight.strides[0] = gate.strides[0] = 0;
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    for (int i = 0; i < 3; i++)
        memcpy(whole[i], sums[i]->data, sizeof whole[i]);
    for (int i = 0; i < 6; i++) {
        rows[i]->shape[0] = 1;
        rows[i]->t.byte_offset = ROWS * H * sizeof(float);
    }
    weight.shape[0] = gate.shape[0] = dweight.shape[0] = dbeta.shape[0] = dgate.shape[0] = 1;
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(sums[i]->data, whole[i] + H, H * sizeof(float));
}

static void test_no_rows_in_batches(void **) {
    box *const rows[] = {&x, &d_out, &d_sum, &dx, &gated, &d_gated};
    make_gated_call();
    for (int i = 0; i < 6; i++)
        rows[i]->shape[1] = 0;
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    for (int i = 0; i < BATCHES * H; i++)
        assert_true(at(&dweight, i) == 0 && at(&dbeta, i) == 0 && at(&dgate, i) == 0);
}

static void test_no_rows(void **) {
    make_call(true);
    x.shape[0] = d_out.shape[0] = d_sum.shape[0] = dx.shape[0] = 0;
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    for (int i = 0; i < H; i++)
        assert_true(at(&dweight, i) == 0 && at(&dbeta, i) == 0);
    assert_int_equal(dx.data[0], 0xFF);
}

/** A row that a norm takes for 0 / 0 has no gradient; a NaN stays within its row of dx. */
static void test_zeros_and_nans(void **) {
    make_call(false);
    args.eps = 0;
    args.d_sum = nullptr;
    memset(x.data, 0, H * sizeof(float));
    ((float *)x.data)[H] = NAN;
    assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
    for (int i = 0; i < H; i++) {
        assert_true(at(&dx, i) == 0);
        assert_true(isnan(at(&dx, H + i)));
        assert_false(isnan(at(&dx, 2 * H + i)));
    }
}

/** A row whose squares leave f32's range has the gradient of the row of order 1 whose elements it
 *  has times a power of two, divided by that power. */
static void test_far_squares(void **) {
    float near[ROWS * H];
    for (int power = -100; power <= 100; power += 200) {
        make_call(true);
        args.eps = 0;
        args.d_sum = nullptr;
        assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
        memcpy(near, dx.data, sizeof near);
        for (int i = 0; i < ROWS * H; i++)
            ((float *)x.data)[i] = ldexpf(((float *)x.data)[i], power);
        assert_int_equal(qn_norm_backward(stream, &args), QN_OK);
        for (int i = 0; i < ROWS * H; i++) {
            const double want = ldexp((double)near[i], -power);
            assert_true(fabs(at(&dx, i) - want) <= ldexp(64 * 0x1p-24, -power));
        }
    }
}

// ---- refusals

static void assert_backward_refused(qn_status want, const char *words) {
    assert_refused(qn_norm_backward(stream, &args), want, words);
    assert_int_equal(dx.data[0], 0xFF); // nothing was written
    assert_int_equal(dweight.data[0], 0xFF);
    make_call(true);
}

static void assert_gated_refused(qn_status want, const char *words) {
    assert_refused(qn_norm_backward(stream, &args), want, words);
    assert_int_equal(d_gated.data[0], 0xFF);
    assert_int_equal(dgate.data[0], 0xFF);
    make_gated_call();
}

static void test_refusals_of_gates(void **) {
    box other;
    make_gated_call();
    args.gate = nullptr;
    assert_gated_refused(QN_E_INVALID, "d_gated is given, and gate is null");
    args.d_gated = nullptr;
    assert_gated_refused(QN_E_INVALID, "gate is given, and d_gated is null");
    args.gated = nullptr;
    assert_gated_refused(QN_E_INVALID, "dgate is given, and gated is null");
    args.dgate = nullptr;
    assert_gated_refused(QN_E_INVALID, "gated is given, and dgate is null");
    args.gate = MAKE(&other, QNI_F32, H);
    assert_gated_refused(QN_E_INVALID, "gate has 1 dimensions");
    args.dbeta = MAKE(&other, QNI_F32, BATCHES + 1, H);
    assert_gated_refused(QN_E_INVALID, "dbeta");
    args.gate = MAKE(&other, QNI_BF16, BATCHES, H);
    assert_gated_refused(QN_E_UNSUPPORTED, "gate has dtype");
    args.gated = MAKE(&other, QNI_F32, BATCHES, ROWS + 1, H);
    assert_gated_refused(QN_E_INVALID, "gated");
    args.d_gated = &gated.t;
    assert_gated_refused(QN_E_INVALID, "overlap");
    workspace.shape[0]--;
    assert_gated_refused(QN_E_INVALID, "workspace has");
}

static void test_refusals(void **) {
    box other;
    make_call(true);
    args.x = nullptr;
    assert_backward_refused(QN_E_INVALID, "x is null");
    args.d_out = nullptr;
    assert_backward_refused(QN_E_INVALID, "d_out is null");
    args.dx = nullptr;
    assert_backward_refused(QN_E_INVALID, "dx is null");
    args.weight = nullptr;
    assert_backward_refused(QN_E_INVALID, "dweight is given, and weight is null");
    args.subtracts_mean = 0;
    assert_backward_refused(QN_E_INVALID, "dbeta is given");
    args.adds_one = 2;
    assert_backward_refused(QN_E_INVALID, "adds_one 2");
    args.eps = -1;
    assert_backward_refused(QN_E_INVALID, "eps is -1");
    args.d_out = MAKE(&other, QNI_F32, ROWS, H + 1);
    assert_backward_refused(QN_E_INVALID, "d_out");
    args.d_sum = MAKE(&other, QNI_BF16, ROWS, H);
    assert_backward_refused(QN_E_UNSUPPORTED, "d_sum has dtype");
    args.dweight = MAKE(&other, QNI_BF16, H);
    assert_backward_refused(QN_E_UNSUPPORTED, "dweight has dtype");
    args.x = MAKE(&other, QNI_E4M3FN, ROWS, H);
    assert_backward_refused(QN_E_UNSUPPORTED, "x has dtype");
    args.dx = &x.t;
    assert_backward_refused(QN_E_INVALID, "overlap");
    args.workspace = nullptr;
    assert_backward_refused(QN_E_INVALID, "workspace");
    workspace.shape[0]--;
    assert_backward_refused(QN_E_INVALID, "workspace has");
    args.struct_size = 3;
    assert_backward_refused(QN_E_INVALID, "struct_size");
    assert_refused(qn_norm_backward(nullptr, &args), QN_E_INVALID, "stream is null");
    assert_refused(qn_norm_backward_workspace_bytes(nullptr, stream, &args), QN_E_INVALID,
                   "bytes is null");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_central_differences),
        cmocka_unit_test(test_central_differences_of_gates),
        cmocka_unit_test(test_batches_alone),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_no_rows_in_batches),
        cmocka_unit_test(test_zeros_and_nans),
        cmocka_unit_test(test_far_squares),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_of_gates),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
