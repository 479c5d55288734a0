// SPDX-License-Identifier: Apache-2.0
// Tensors are described and read: what is found, what is refused, and what may overlap.
#include "../testing.h"
#include "read.h"

static qn_device *device;
static qn_stream *stream;
static qni_call call;
static float data[64];
static int64_t shape[2], strides[2];
static DLTensor t;

static int open_cpu(void **) {
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    call = (qni_call){"op", stream};
    return 0;
}

static int close_cpu(void **) {
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}

/** Four rows of six floats in rows of eight. */
static int make_tensor(void **) {
    shape[0] = 4, shape[1] = 6;
    strides[0] = 8, strides[1] = 1;
    t = (DLTensor){.data = data,
                   .device = {kDLCPU, 0},
                   .ndim = 2,
                   .dtype = {kDLFloat, 32, 1},
                   .shape = shape,
                   .strides = strides};
    return 0;
}

static void assert_read(qni_tensor x, qn_status status, const char *message) {
    assert_int_equal(qni_read_tensors(&call, &x, 1), status);
    if (status != QN_OK)
        assert_string_equal(qn_last_error(), message);
}

static void test_what_is_found(void **) {
    qni_tensor x[] = {{"x", &t, 2, qni_of_floats, .has_rows = true},
                      {"y", nullptr, 2, qni_of_floats, .may_be_null = true}};
    t.byte_offset = 64;
    strides[0] = -8;
    assert_int_equal(qni_read_tensors(&call, x, 2), QN_OK);
    assert_ptr_equal(x[0].data, data + 16);
    assert_int_equal(x[0].dtype, QNI_F32);
    assert_ptr_equal(x[0].size, shape);
    assert_int_equal(x[0].stride[0], -8);
    assert_int_equal(x[0].begin, (uintptr_t)(data + 16 - 24));
    assert_int_equal(x[0].end, (uintptr_t)(data + 16 + 6));
    assert_null(x[1].data);
    t.strides = nullptr;
    assert_int_equal(qni_read_tensors(&call, x, 1), QN_OK);
    assert_int_equal(x[0].stride[0], 6);
    assert_int_equal(x[0].stride[1], 1);
    shape[0] = 0; // empty: strides do not matter, and no byte is touched
    strides[0] = INT64_MAX;
    t.strides = strides;
    assert_int_equal(qni_read_tensors(&call, x, 1), QN_OK);
    assert_int_equal(x[0].begin, x[0].end);
    shape[0] = 1; // one row: no element lies at its stride
    assert_int_equal(qni_read_tensors(&call, x, 1), QN_OK);
    assert_int_equal(x[0].stride[0], 6);
}

static void test_dtypes(void **) {
    const qni_tensor like = {.name = "q", .dtype = QNI_BF16};
    qni_tensor x = {.name = "x", .t = &t, .ndim = 2};
    assert_read(x, QN_OK, nullptr);
    x.dtypes = qni_of_i32 | 1u << QNI_BOOL;
    assert_read(x, QN_E_UNSUPPORTED, "op: x has dtype f32; accepted: i32, bool");
    x.like = &like;
    assert_read(x, QN_E_UNSUPPORTED, "op: x has dtype f32; accepted: q's (bf16) and i32, bool");
    x.dtypes = 0;
    assert_read(x, QN_E_UNSUPPORTED, "op: x has dtype f32, needs q's, bf16");
    t.dtype = (DLDataType){kDLBfloat, 16, 1};
    assert_read(x, QN_OK, nullptr);
}

static void test_shape_and_strides(void **) {
    qni_tensor x = {"x", &t, 2, qni_of_f32, .shape = (const int64_t[]){-1, 5}};
    assert_read(x, QN_E_INVALID, "op: x has shape [4, 6], needs [any, 5]");
    x.shape = (const int64_t[]){4, -1};
    strides[1] = 2;
    assert_read(x, QN_OK, nullptr);
    x.has_rows = true;
    assert_read(x, QN_E_INVALID, "op: x has stride 2 in its last dimension, needs 1");
    strides[0] = 3, strides[1] = 1;
    assert_read(x, QN_OK, nullptr);
    x.is_written = true;
    assert_read(x, QN_E_INVALID, "op: x has stride 3 in dimension 0, needs at least 6");
    assert_read((qni_tensor){.name = "x", .ndim = 2}, QN_E_INVALID, "op: x is null");
    assert_read((qni_tensor){.name = "x", .t = &t, .ndim = 3}, QN_E_INVALID,
                "op: x has 2 dimensions, needs 3");
}

static void test_alignment(void **) {
    char message[96];
    qni_tensor x = {"x", &t, 2, .dtypes = qni_of_f32};
    t.byte_offset = 2;
    snprintf(message, sizeof message, "op: x begins at %p, needs a multiple of its 4-byte elements",
             qni_data(&t));
    assert_read(x, QN_E_INVALID, message);
    t.byte_offset = 4;
    assert_read(x, QN_OK, nullptr);
    x.align = 8;
    snprintf(message, sizeof message, "op: x begins at %p, needs a multiple of 8 bytes",
             qni_data(&t));
    assert_read(x, QN_E_INVALID, message);
}

static void assert_apart(qni_tensor *x, int count, const char *message) {
    assert_int_equal(qni_read_tensors(&call, x, count), QN_OK);
    assert_int_equal(qni_check_apart(&call, x, count), message ? QN_E_INVALID : QN_OK);
    if (message)
        assert_string_equal(qn_last_error(), message);
}

static void test_apart(void **) {
    DLTensor other = t;
    qni_tensor x[] = {{"x", &t, 2, .dtypes = qni_of_f32},
                      {"y", nullptr, 2, qni_of_f32, .may_be_null = true},
                      {"out", &other, 2, qni_of_f32, .is_written = true},
                      {"lse", &other, 2, qni_of_f32, .is_written = true}};
    assert_apart(x, 2, nullptr);
    assert_apart(x, 3, "op: out overlaps x");
    x[2].may_be = &x[0];
    assert_apart(x, 3, nullptr); // in place
    assert_apart(x, 4, "op: lse overlaps x");
    x[3].may_be = &x[0];
    assert_apart(x, 4, "op: lse overlaps out");
    other.byte_offset = sizeof(float);
    assert_apart(x, 3, "op: out overlaps x without being x itself");
    other.byte_offset = 6 * sizeof(float); // columns 6 and on, side by side with x's
    shape[1] = 2;
    assert_apart(x, 3, nullptr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_is_found, make_tensor),
        cmocka_unit_test_setup(test_dtypes, make_tensor),
        cmocka_unit_test_setup(test_shape_and_strides, make_tensor),
        cmocka_unit_test_setup(test_alignment, make_tensor),
        cmocka_unit_test_setup(test_apart, make_tensor),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
