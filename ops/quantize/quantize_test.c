// SPDX-License-Identifier: Apache-2.0
// Tests of the quantize family: every kernel on every device against the definition, the edge
// values that the public header names, and the errors of bad arguments.
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
    if (!r->passed && t->failed++ < 5)
        print_error("%s, %s: %s\n", r->kernel, r->problem, r->detail);
}

/** Checks all problems of both ops; every kernel for the device must run at least once. */
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

/** Makes a matrix over the caller's memory; it is contiguous unless its strides are changed. */
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

/** Rows of one 448 and 127 zeros, and rows of zeros. */
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

/** A NaN changes no other element; an infinity becomes a NaN and makes the rest zero. */
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

// ---- conversion between the e4m3 kinds

/** Two blocks of 1 x 128, of which q and scales of one kind are converted to the other. */
typedef struct conversion_case {
    uint8_t q[2 * QNI_BLOCK], q_out[2 * QNI_BLOCK];
    float scale[2], scale_out[2];
    matrix mq, mq_out, ms, ms_out;
    qn_convert_report report;
} conversion_case;

/** An address that no float has, which is equal in all runs. */
static void *const odd = (void *)0x1001;

static qn_status convert(conversion_case *c, qni_dtype from, qni_dtype to, int32_t rounding) {
    matrix_init(&c->mq, c->q, from, 1, 2 * QNI_BLOCK);
    matrix_init(&c->mq_out, c->q_out, to, 1, 2 * QNI_BLOCK);
    matrix_init(&c->ms, c->scale, QNI_F32, 1, 2);
    matrix_init(&c->ms_out, c->scale_out, QNI_F32, 1, 2);
    c->report = (qn_convert_report){.struct_size = sizeof c->report, .inexact_blocks = -1};
    return qn_convert_fp8(stream, &c->mq_out.t, &c->ms_out.t, &c->mq.t, &c->ms.t, rounding,
                          &c->report);
}

static void assert_same_values(const conversion_case *c, qni_fp8 from, qni_fp8 to) {
    for (int i = 0; i < 2 * QNI_BLOCK; i++) {
        const float before = qni_fp8_decode(from, c->q[i]) * c->scale[i / QNI_BLOCK];
        const float after = qni_fp8_decode(to, c->q_out[i]) * c->scale_out[i / QNI_BLOCK];
        if (!(before == after || (isnan(before) && isnan(after))))
            fail_msg("code 0x%02x: %a became %a", c->q[i], (double)before, (double)after);
    }
}

/** Converts every code from fn to fnuz. */
static void test_convert_to_fnuz(void **state) {
    (void)state;
    conversion_case c = {.scale = {0.75f, 0x1p-149f}};
    for (int i = 0; i < 256; i++)
        c.q[i] = (uint8_t)i;
    assert_int_equal(convert(&c, QNI_E4M3FN, QNI_E4M3FNUZ, 0), QN_OK);
    assert_same_values(&c, QNI_FP8_E4M3FN, QNI_FP8_E4M3FNUZ);
    assert_int_equal(c.report.inexact_blocks, 0);
    assert_true(c.report.max_rel_error == 0);
    assert_true(c.scale_out[0] == 1.5f);
    assert_int_equal(c.q_out[0x80], 0);
    assert_int_equal(c.q_out[0x7F], 0x80);
    assert_int_equal(convert(&c, QNI_E4M3FN, QNI_E4M3FNUZ, 2), QN_E_INVALID);
    c.ms.t.data = odd;
    assert_int_equal(qn_convert_fp8(stream, &c.mq_out.t, &c.ms_out.t, &c.mq.t, &c.ms.t, 0, nullptr),
                     QN_E_INVALID);
}

/** On the way back, a block with 240 must keep its scale, and a block with 2^-10 must halve it. */
static void test_convert_to_fn(void **state) {
    (void)state;
    conversion_case c = {.scale = {0.75f, 3.0f}};
    for (int i = 0; i < 128; i++) {
        c.q[i] = (uint8_t)(i < 16 ? i & ~1 : i);
        c.q[QNI_BLOCK + i] = (uint8_t)(i == 127 ? 0x80 : i ^ (i > 64 ? 0x80 : 0));
    }
    assert_int_equal(convert(&c, QNI_E4M3FNUZ, QNI_E4M3FN, 0), QN_OK);
    assert_same_values(&c, QNI_FP8_E4M3FNUZ, QNI_FP8_E4M3FN);
    assert_true(c.scale_out[0] == 0.75f && c.scale_out[1] == 1.5f);
}

/** A block with 240 and an odd multiple of 2^-10 has no exact form: it gives an error, and nothing
 *  is written, or it is rounded. */
static void test_convert_rounds_when_asked(void **state) {
    (void)state;
    conversion_case c = {
        .q = {0x7F, 3, [QNI_BLOCK] = 0xFF, 9}, .scale = {1.0f, 1.0f}, .scale_out = {-1.0f, -1.0f}};
    memset(c.q_out, 0xA5, sizeof c.q_out);
    assert_int_equal(convert(&c, QNI_E4M3FNUZ, QNI_E4M3FN, 0), QN_E_UNSUPPORTED);
    assert_string_equal(qn_last_error(),
                        "convert_fp8: 2 of 2 blocks have no exact e4m3fn form (neither keeping nor "
                        "halving the scale is exact); rounding must be asked for");
    assert_int_equal(c.report.inexact_blocks, 2);
    for (int i = 0; i < 2 * QNI_BLOCK; i++)
        assert_int_equal(c.q_out[i], 0xA5);
    assert_true(c.scale_out[0] == -1.0f && c.scale_out[1] == -1.0f);
    assert_int_equal(convert(&c, QNI_E4M3FNUZ, QNI_E4M3FN, 1), QN_OK);
    assert_int_equal(c.q_out[0], qni_fp8_encode(QNI_FP8_E4M3FN, 240.0f));
    assert_int_equal(c.q_out[1], qni_fp8_encode(QNI_FP8_E4M3FN, 0x1p-8f));
    assert_int_equal(c.q_out[QNI_BLOCK + 1], qni_fp8_encode(QNI_FP8_E4M3FN, 0x1p-7f));
    assert_true(c.scale_out[0] == 1.0f && c.scale_out[1] == 1.0f);
    assert_true(fabs(c.report.max_rel_error - 1.0 / 3) < 1e-6);
}

/** Converts 130 x 200 in blocks of 128 x 128 in place, there and back. */
static void test_convert_in_place(void **state) {
    (void)state;
    enum { ROWS = 130, COLS = 200 };
    static uint8_t q[ROWS * COLS], before[ROWS * COLS];
    float scale[4] = {1, 2, 3, 4};
    for (int i = 0; i < ROWS * COLS; i++)
        before[i] = q[i] = (uint8_t)(i % 251 % 0x7F); // no NaN, no negative zero
    matrix fn, fnuz, ms;
    matrix_init(&fn, q, QNI_E4M3FN, ROWS, COLS);
    matrix_init(&fnuz, q, QNI_E4M3FNUZ, ROWS, COLS);
    matrix_init(&ms, scale, QNI_F32, 2, 2);
    assert_int_equal(qn_convert_fp8(stream, &fnuz.t, &ms.t, &fn.t, &ms.t, 0, nullptr), QN_OK);
    assert_true(scale[0] == 2 && scale[3] == 8);
    assert_int_equal(qn_convert_fp8(stream, &fn.t, &ms.t, &fnuz.t, &ms.t, 0, nullptr), QN_OK);
    assert_true(scale[0] == 1 && scale[3] == 4);
    assert_memory_equal(q, before, sizeof q);
}

// ---- bad arguments

/** Valid tensors for every argument, of which a test spoils one. */
typedef struct good_args {
    float x[2 * 200], scale[4];
    uint8_t q[2 * 200];
    matrix mx, mq, ms;
} good_args;

static void init_good_args(good_args *a) {
    *a = (good_args){};
    matrix_init(&a->mx, a->x, QNI_F32, 2, 200);
    matrix_init(&a->mq, a->q, QNI_E4M3FN, 2, 200);
    matrix_init(&a->ms, a->scale, QNI_F32, 2, 2);
    memset(a->q, 0xA5, sizeof a->q);
}

static void spoil_x_dtype(good_args *a) {
    a->mx.t.dtype = qni_dl_dtype(QNI_F64);
}
static void spoil_q_dtype(good_args *a) {
    a->mq.t.dtype = qni_dl_dtype(QNI_U8);
}
static void spoil_scale_dtype(good_args *a) {
    a->ms.t.dtype = qni_dl_dtype(QNI_BF16);
}
static void spoil_q_shape(good_args *a) {
    a->mq.shape[1] = 199;
}
static void spoil_scale_shape(good_args *a) {
    a->ms.shape[0] = 1;
}
static void spoil_negative(good_args *a) {
    a->mx.shape[0] = -1;
}
static void spoil_null(good_args *a) {
    a->mq.t.data = nullptr;
}
static void spoil_ndim(good_args *a) {
    a->ms.t.ndim = 1;
}
static void spoil_x_columns(good_args *a) {
    a->mx.strides[1] = 2;
}
static void spoil_q_rows(good_args *a) {
    a->mq.strides[0] = 150;
}
static void spoil_scale_rows(good_args *a) {
    a->ms.strides[0] = 0;
}

static void spoil_x_alignment(good_args *a) {
    a->mx.t.data = odd;
}
static void spoil_scale_alignment(good_args *a) {
    a->ms.t.data = odd;
}

static void spoil_q_overlap(good_args *a) {
    a->mq.t.data = a->x + 1;
}
static void spoil_scale_overlap(good_args *a) {
    a->ms.t.data = a->x;
}
static void spoil_both_overlap(good_args *a) {
    a->ms.t.data = a->q;
}

static const struct {
    void (*spoil)(good_args *a);
    qn_status status;
    const char *message;
} bad_tensors[] = {
    {spoil_x_dtype, QN_E_UNSUPPORTED, "quantize_fp8: x has dtype f64; accepted: f32, f16, bf16"},
    {spoil_q_dtype, QN_E_UNSUPPORTED,
     "quantize_fp8: q has dtype u8; accepted: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz"},
    {spoil_scale_dtype, QN_E_UNSUPPORTED, "quantize_fp8: scale has dtype bf16; accepted: f32"},
    {spoil_q_shape, QN_E_INVALID, "quantize_fp8: q has shape [2, 199], needs [2, 200]"},
    {spoil_scale_shape, QN_E_INVALID, "quantize_fp8: scale has shape [1, 2], needs [2, 2]"},
    {spoil_negative, QN_E_INVALID,
     "quantize_fp8: x is [-1, 200] f32 strides [200, 1]; sizes must be at least 0"},
    {spoil_null, QN_E_INVALID,
     "quantize_fp8: q is [2, 200] e4m3fn strides [200, 1] with null data"},
    {spoil_ndim, QN_E_INVALID, "quantize_fp8: scale has 1 dimensions, needs 2"},
    {spoil_x_columns, QN_E_INVALID, "quantize_fp8: x has stride 2 in its last dimension, needs 1"},
    {spoil_q_rows, QN_E_INVALID,
     "quantize_fp8: q has stride 150 in dimension 0, needs at least 200"},
    {spoil_scale_rows, QN_E_INVALID,
     "quantize_fp8: scale has stride 0 in dimension 0, needs at least 1"},
    {spoil_x_alignment, QN_E_INVALID,
     "quantize_fp8: x begins at 0x1001, needs a multiple of its 4-byte elements"},
    {spoil_scale_alignment, QN_E_INVALID,
     "quantize_fp8: scale begins at 0x1001, needs a multiple of its 4-byte elements"},
    {spoil_q_overlap, QN_E_INVALID, "quantize_fp8: q overlaps x"},
    {spoil_scale_overlap, QN_E_INVALID, "quantize_fp8: scale overlaps x"},
    {spoil_both_overlap, QN_E_INVALID, "quantize_fp8: scale overlaps q"},
};

static void assert_refused(const good_args *a, qn_status got, qn_status want, const char *message) {
    assert_string_equal(qn_last_error(), message);
    assert_int_equal(got, want);
    for (size_t i = 0; i < sizeof a->q; i++)
        assert_int_equal(a->q[i], 0xA5);
}

static void test_bad_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_tensors / sizeof *bad_tensors; i++) {
        good_args a;
        init_good_args(&a);
        bad_tensors[i].spoil(&a);
        const qn_status st =
            qn_quantize_fp8(stream, &a.mq.t, &a.ms.t, &a.mx.t, 1, QNI_BLOCK, 1e-4f);
        assert_refused(&a, st, bad_tensors[i].status, bad_tensors[i].message);
    }
}

static void test_bad_scalars(void **state) {
    (void)state;
    good_args a;
    init_good_args(&a);
    assert_refused(&a, qn_quantize_fp8(stream, &a.mq.t, &a.ms.t, &a.mx.t, 64, QNI_BLOCK, 1e-4f),
                   QN_E_UNSUPPORTED,
                   "quantize_fp8: blocks of 64 x 128; accepted: 1 x 128 and 128 x 128");
    assert_refused(&a, qn_quantize_fp8(stream, &a.mq.t, &a.ms.t, &a.mx.t, 1, QNI_BLOCK, 0),
                   QN_E_INVALID, "quantize_fp8: eps is 0; accepted: 1e-30 or more, finite");
    assert_refused(&a, qn_quantize_fp8(stream, &a.mq.t, &a.ms.t, &a.mx.t, 1, QNI_BLOCK, NAN),
                   QN_E_INVALID, "quantize_fp8: eps is nan; accepted: 1e-30 or more, finite");
    assert_refused(&a, qn_quantize_fp8(stream, &a.mq.t, nullptr, &a.mx.t, 1, QNI_BLOCK, 1e-4f),
                   QN_E_INVALID, "quantize_fp8: scale is null");
    assert_refused(&a, qn_dequantize_fp8(stream, nullptr, &a.mq.t, &a.ms.t, 1, QNI_BLOCK),
                   QN_E_INVALID, "dequantize_fp8: x is null");
    spoil_scale_overlap(&a);
    assert_refused(&a, qn_dequantize_fp8(stream, &a.mx.t, &a.mq.t, &a.ms.t, 1, QNI_BLOCK),
                   QN_E_INVALID, "dequantize_fp8: x overlaps scale");
    spoil_q_overlap(&a);
    assert_refused(&a, qn_dequantize_fp8(stream, &a.mx.t, &a.mq.t, &a.ms.t, 1, QNI_BLOCK),
                   QN_E_INVALID, "dequantize_fp8: x overlaps q");
}

static void test_bad_conversions(void **state) {
    (void)state;
    conversion_case c = {.scale = {1.0f, 2e38f}, .scale_out = {-1.0f, -1.0f}};
    assert_int_equal(convert(&c, QNI_E4M3FN, QNI_E4M3FNUZ, 0), QN_E_INVALID);
    assert_string_equal(qn_last_error(),
                        "convert_fp8: scale[0, 1] is 2e+38; accepted: what f32 can double");
    assert_true(c.scale_out[0] == -1.0f);
    assert_int_equal(convert(&c, QNI_E5M2, QNI_E4M3FNUZ, 0), QN_E_UNSUPPORTED);
    assert_string_equal(qn_last_error(), "convert_fp8: q has dtype e5m2 and q_out e4m3fnuz; "
                                         "accepted: e4m3fn and e4m3fnuz, either way");
    c.ms.shape[1] = 1;
    c.mq.t.dtype = qni_dl_dtype(QNI_E4M3FN);
    assert_int_equal(qn_convert_fp8(stream, &c.mq_out.t, &c.ms_out.t, &c.mq.t, &c.ms.t, 0, nullptr),
                     QN_E_INVALID);
    assert_string_equal(qn_last_error(),
                        "convert_fp8: scale has shape [1, 1], needs [1, 2] (blocks of 1 x 128) or "
                        "[1, 2] (128 x 128)");
}

/** No rows, no columns: nothing is touched, nothing fails. */
static void test_empty(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        good_args a;
        init_good_args(&a);
        a.mx.shape[i] = a.mq.shape[i] = a.ms.shape[i] = 0;
        a.scale[0] = -1;
        assert_int_equal(qn_quantize_fp8(stream, &a.mq.t, &a.ms.t, &a.mx.t, 1, QNI_BLOCK, 1e-4f),
                         QN_OK);
        assert_int_equal(qn_dequantize_fp8(stream, &a.mx.t, &a.mq.t, &a.ms.t, 1, QNI_BLOCK), QN_OK);
        assert_int_equal(a.q[0], 0xA5);
        assert_true(a.scale[0] == -1);
    }
}

// ---- many blocks, many threads

enum { LARGE_ROWS = 263, LARGE_COLS = 2048, LARGE_BLOCKS = LARGE_ROWS * LARGE_COLS / QNI_BLOCK };

typedef struct large_result {
    uint8_t q[LARGE_ROWS * LARGE_COLS];
    float scale[LARGE_BLOCKS];
    qn_status status;
} large_result;

static uint16_t large_x[LARGE_ROWS * LARGE_COLS];
static large_result large_results[3];

/** Quantises large_x into result i. */
static void quantize_large(void *context, int64_t i) {
    (void)context;
    large_result *r = &large_results[i];
    matrix mx, mq, ms;
    matrix_init(&mx, large_x, QNI_BF16, LARGE_ROWS, LARGE_COLS);
    matrix_init(&mq, r->q, QNI_E4M3FNUZ, LARGE_ROWS, LARGE_COLS);
    matrix_init(&ms, r->scale, QNI_F32, LARGE_ROWS, LARGE_COLS / QNI_BLOCK);
    r->status = qn_quantize_fp8(stream, &mq.t, &ms.t, &mx.t, 1, QNI_BLOCK, 1e-4f);
}

/** A matrix that all threads share, and two that are quantised at the same time on one thread each,
 *  have the definition's bits. */
static void test_threads(void **state) {
    (void)state;
    static large_result want;
    uint32_t random = 1;
    for (int64_t i = 0; i < LARGE_ROWS * LARGE_COLS; i++) { // bf16 of about 1e-3 .. 60
        random = random * 1664525 + 1013904223;
        large_x[i] = (uint16_t)((random >> 31 << 15) | (0x3A80 + (random >> 20) % 2048));
    }
    const qni_quantize_problem p = {.dtype_x = QNI_BF16,
                                    .kind = QNI_FP8_E4M3FNUZ,
                                    .rows = LARGE_ROWS,
                                    .cols = LARGE_COLS,
                                    .block_rows = 1,
                                    .x = large_x,
                                    .q = want.q,
                                    .scale = want.scale,
                                    .x_row = LARGE_COLS,
                                    .q_row = LARGE_COLS,
                                    .scale_row = LARGE_COLS / QNI_BLOCK,
                                    .eps = 1e-4f};
    qni_quantize_ref(&p);
    quantize_large(nullptr, 2);
    qni_parallel(2, quantize_large, nullptr); // what a task calls runs on the task's own thread
    for (int i = 0; i < 3; i++) {
        assert_int_equal(large_results[i].status, QN_OK);
        assert_memory_equal(large_results[i].q, want.q, sizeof want.q);
        assert_memory_equal(large_results[i].scale, want.scale, sizeof want.scale);
    }
}

// ---- codes so many that they are stored past the caches

enum {
    HUGE_ROWS = 4000,
    HUGE_COLS = 2112,
    HUGE_SCALES = 32 * 17
}; // the edges cut blocks at the right and at the bottom

static uint16_t huge_x[HUGE_ROWS * HUGE_COLS];
alignas(64) static uint8_t huge_q[HUGE_ROWS * HUGE_COLS], huge_want[HUGE_ROWS * HUGE_COLS];

static void assert_huge(qni_run_fn run, qni_quantize_problem p, const float want[HUGE_SCALES]) {
    static float scale[HUGE_SCALES];
    memset(huge_q, 0xFF, sizeof huge_q);
    memset(scale, 0xFF, sizeof scale);
    p.q = huge_q, p.scale = scale;
    assert_int_equal(run(nullptr, stream, &p), QN_OK);
    assert_memory_equal(huge_q, huge_want, sizeof huge_q);
    assert_memory_equal(scale, want, sizeof scale);
}

/** Blocks of 128 x 128, one of which has an infinity, get the definition's bits from each
 *  kernel. */
static void test_past_the_caches(void **state) {
    (void)state;
    static float want[HUGE_SCALES];
    uint32_t random = 1;
    for (int64_t i = 0; i < HUGE_ROWS * HUGE_COLS; i++) {
        random = random * 1664525 + 1013904223;
        huge_x[i] = (uint16_t)((random >> 31 << 15) | (0x3A80 + (random >> 20) % 2048));
    }
    huge_x[200 * HUGE_COLS + 300] = 0x7F80;
    const qni_quantize_problem p = {.dtype_x = QNI_BF16,
                                    .kind = QNI_FP8_E4M3FN,
                                    .rows = HUGE_ROWS,
                                    .cols = HUGE_COLS,
                                    .block_rows = QNI_BLOCK,
                                    .x = huge_x,
                                    .q = huge_want,
                                    .scale = want,
                                    .x_row = HUGE_COLS,
                                    .q_row = HUGE_COLS,
                                    .scale_row = 17,
                                    .eps = 1e-4f};
    qni_quantize_ref(&p);
    if (__builtin_cpu_supports("avx2"))
        assert_huge(qni_quantize_avx2, p, want);
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        assert_huge(qni_quantize_avx512, p, want);
}

/** The kernel for large tensors takes whole, aligned blocks, and is the better one where four for
 *  each compute unit are at work. */
static void test_wide_blocks(void **) {
    static const char name[] = "quantize.gpu_wide_blocks";
    const qni_variant *wide = qni_variant_find(&qni_op_quantize, name, sizeof name - 1);
    const qn_device chip = {.info = {.num_compute_units = 4}};
    qni_quantize_problem p = {.dtype_x = QNI_BF16,
                              .rows = 4 * QNI_BLOCK,
                              .cols = 4 * QNI_BLOCK,
                              .block_rows = QNI_BLOCK,
                              .x_row = 4 * QNI_BLOCK,
                              .q_row = 4 * QNI_BLOCK};
    qni_reason why;
    assert_true(wide->supports(wide, &chip, &p, nullptr));
    assert_true(wide->cost(wide, &chip, &p) < INFINITY);
    p.rows = 3 * QNI_BLOCK;
    assert_true(isinf(wide->cost(wide, &chip, &p)));
    p.rows++;
    assert_false(wide->supports(wide, &chip, &p, &why));
    assert_string_equal(why.text, "[385, 512] is not of whole blocks of 128 x 128");
    p.rows = 4 * QNI_BLOCK, p.x_row++;
    assert_false(wide->supports(wide, &chip, &p, &why));
    assert_non_null(strstr(why.text, "runs of 8 elements are not aligned"));
    p.x_row--, p.block_rows = 1;
    assert_false(wide->supports(wide, &chip, &p, &why));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_blocks),
        cmocka_unit_test(test_kernels_on_cpu),
        cmocka_unit_test(test_kernels_on_simulated_gpu),
        cmocka_unit_test(test_lone_value_and_zeros),
        cmocka_unit_test(test_range_is_used),
        cmocka_unit_test(test_nan_and_infinity),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_past_the_caches),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_convert_to_fnuz),
        cmocka_unit_test(test_convert_to_fn),
        cmocka_unit_test(test_convert_rounds_when_asked),
        cmocka_unit_test(test_convert_in_place),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_bad_scalars),
        cmocka_unit_test(test_bad_conversions),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
