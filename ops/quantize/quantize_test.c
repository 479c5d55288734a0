// SPDX-License-Identifier: Apache-2.0
// Tests of the quantize family: every kernel on every device against the definition, the edge values that
// docs/kernels.md names, and what bad arguments are told.
#include "quantize.h"

#include <quern/check.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static qn_device *cpu;
static qn_stream *stream;

static int open_cpu(void **state) {
    (void)state;
    return qn_device_open(&cpu, "cpu") != QN_OK || qn_stream_create(&stream, cpu) != QN_OK;
}

static int close_cpu(void **state) {
    (void)state;
    qn_stream_destroy(stream);
    qn_device_close(cpu);
    return 0;
}

typedef struct tally {
    int ran, failed, passed_over;
} tally;

static void count_result(void *context, const qn_check_result *r) {
    tally *t = context;
    if (r->reason) {
        t->passed_over++;
        return;
    }
    t->ran++;
    if (!r->passed) {
        t->failed++;
        print_error("%s, %s: %s\n", r->kernel, r->problem, r->detail);
    }
}

/** All problems of both ops; every kernel for such a device must have run at least once. */
static void check_device(qn_device *device) {
    static const qni_op *const ops[] = {&qni_op_quantize, &qni_op_dequantize};
    const qn_check_options options = {.struct_size = sizeof options, .seed = 7};
    for (int i = 0; i < 2; i++) {
        tally t = {};
        const qn_status st = qn_check(device, ops[i]->name, &options, count_result, &t);
        if (st != QN_OK)
            fail_msg("%s: %s", ops[i]->name, qn_last_error());
        assert_int_equal(t.failed, 0);
        assert_true(t.ran >= 100);
    }
}

static void test_kernels_on_cpu(void **state) {
    (void)state;
    check_device(cpu);
}

static void test_kernels_on_simulated_gpu(void **state) {
    (void)state;
    qn_device *device = nullptr;
    if (qn_device_open(&device, "sim:gfx942") != QN_OK) {
        print_message("%s\n", qn_last_error());
        skip();
    }
    check_device(device);
    qn_device_close(device);
}

// ---- tensors in host memory

typedef struct matrix {
    DLTensor t;
    int64_t shape[2], strides[2];
} matrix;

/** A matrix over the caller's memory, contiguous unless its strides are changed. */
static matrix *matrix_init(matrix *m, void *data, qni_dtype dtype, int64_t rows, int64_t cols) {
    *m = (matrix){.shape = {rows, cols}, .strides = {cols, 1}};
    m->t = (DLTensor){.data = data,
                      .device = qn_device_id(cpu),
                      .ndim = 2,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = m->shape,
                      .strides = m->strides};
    return m;
}

/** Quantises one row of 128 f32. */
static float quantize_row(qni_dtype kind, const float x[QNI_BLOCK], uint8_t q[QNI_BLOCK]) {
    matrix mx, mq, ms;
    float scale = -1;
    matrix_init(&mx, (void *)x, QNI_F32, 1, QNI_BLOCK);
    matrix_init(&mq, q, kind, 1, QNI_BLOCK);
    matrix_init(&ms, &scale, QNI_F32, 1, 1);
    if (qn_quantize_fp8(stream, &mq.t, &ms.t, &mx.t, 1, QNI_BLOCK, 1e-4f) != QN_OK)
        fail_msg("%s", qn_last_error());
    return scale;
}

/** One 448 and 127 zeros; nothing but zeros. */
static void test_lone_value_and_zeros(void **state) {
    (void)state;
    float x[QNI_BLOCK] = {[77] = 448.0f};
    uint8_t q[QNI_BLOCK];
    assert_true(quantize_row(QNI_E4M3FN, x, q) == 1.0f);
    for (int i = 0; i < QNI_BLOCK; i++)
        assert_int_equal(q[i], i == 77 ? 0x7E : 0);
    x[77] = 0;
    assert_true(quantize_row(QNI_E4M3FN, x, q) == 1e-4f / 448.0f);
    for (int i = 0; i < QNI_BLOCK; i++)
        assert_int_equal(q[i], 0);
}

/** The largest magnitudes of either sign take the largest codes, in each kind. */
static void test_range_is_used(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++) {
        const qni_fp8_format f = qni_fp8_format_of((qni_fp8)kind);
        float x[QNI_BLOCK] = {3.7e5f, -3.7e5f};
        uint8_t q[QNI_BLOCK];
        assert_true(quantize_row((qni_dtype)(QNI_E4M3FN + kind), x, q) == 3.7e5f / f.max);
        assert_int_equal(q[0], f.max_code);
        assert_int_equal(q[1], f.max_code | 0x80);
    }
}

/** A NaN stays alone; an infinity makes itself NaN and the rest zero. */
static void test_nan_and_infinity(void **state) {
    (void)state;
    uint8_t q[QNI_BLOCK];
    float x[QNI_BLOCK] = {-1.0f, -NAN, 1.0f};
    assert_true(quantize_row(QNI_E4M3FN, x, q) == 1.0f / 448.0f);
    assert_int_equal(q[0], 0xFE);
    assert_int_equal(q[1], 0x7F);
    assert_int_equal(q[2], 0x7E);
    x[1] = -INFINITY;
    assert_true(isinf(quantize_row(QNI_E4M3FNUZ, x, q)));
    assert_int_equal(q[0], 0);
    assert_int_equal(q[1], 0x80);
    assert_int_equal(q[2], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_on_cpu),
        cmocka_unit_test(test_kernels_on_simulated_gpu),
        cmocka_unit_test(test_lone_value_and_zeros),
        cmocka_unit_test(test_range_is_used),
        cmocka_unit_test(test_nan_and_infinity),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
