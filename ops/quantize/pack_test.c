// SPDX-License-Identifier: Apache-2.0
// Packing of bits: numpy's results for lengths around a byte, empty segments, what the functions refuse. That kernels
// agree with the definition is families_test's to show.
#include "pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_DIMS = 3, ROOM = 4096 };

/** A tensor on the CPU, with its shape and memory. */
typedef struct box {
    DLTensor t;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
    alignas(64) uint8_t data[ROOM];
} box;

static qn_device *cpu;
static qn_stream *stream;

static int open_cpu(void **) {
    return qn_device_open(&cpu, "cpu") != QN_OK || qn_stream_create(&stream, cpu) != QN_OK;
}
static int close_cpu(void **) {
    qn_stream_destroy(stream);
    qn_device_close(cpu);
    return 0;
}

static DLTensor *make(box *b, qni_dtype dtype, int ndim, int64_t d0, int64_t d1, int64_t d2) {
    const int64_t shape[] = {d0, d1, d2};
    memset(b, 0xFF, sizeof *b);
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        b->shape[i] = shape[i];
        b->strides[i] = stride;
        stride *= shape[i];
    }
    b->t = (DLTensor){.data = b->data,
                      .device = qn_device_id(cpu),
                      .ndim = ndim,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = b->shape,
                      .strides = b->strides};
    return &b->t;
}

static void assert_refused(qn_status st, qn_status want, const char *words) {
    assert_int_equal(st, want);
    if (!strstr(qn_last_error(), words))
        fail_msg("the message lacks \"%s\": %s", words, qn_last_error());
}

static box x, out, indptr, starts;

static void make_all(int64_t count, int64_t bytes, int64_t segments) {
    make(&x, QNI_U8, 1, count, 0, 0);
    make(&out, QNI_U8, 1, bytes, 0, 0);
    make(&indptr, QNI_I32, 1, segments + 1, 0, 0);
    make(&starts, QNI_I32, 1, segments + 1, 0, 0);
    for (int i = 0; i < count; i++)
        x.data[i] = i % 3 == 0 || i == 1; // 1 1 0 1 0 0 1 0  0 1 …
}

/** numpy.packbits of the first 0, 1, 8 and 9 of 1 1 0 1 0 0 1 0 0. */
static void test_lengths(void **) {
    static const struct {
        int64_t count;
        uint8_t big[2], little[2];
    } vectors[] = {{0, {0xFF, 0xFF}, {0xFF, 0xFF}},
                   {1, {0x80, 0xFF}, {0x01, 0xFF}},
                   {8, {0xD2, 0xFF}, {0x4B, 0xFF}},
                   {9, {0xD2, 0x00}, {0x4B, 0x00}}};
    for (int i = 0; i < 4; i++) {
        const int64_t n = vectors[i].count;
        make_all(n, (n + 7) / 8, 0);
        assert_int_equal(qn_packbits(stream, &out.t, &x.t, QN_BITS_BIG), QN_OK);
        assert_memory_equal(out.data, vectors[i].big, 2);
        x.t.dtype = (DLDataType){kDLBool, 8, 1};
        assert_int_equal(qn_packbits(stream, &out.t, &x.t, QN_BITS_LITTLE), QN_OK);
        assert_memory_equal(out.data, vectors[i].little, 2);
    }
}

/** Segments of 3, 0, 9 and 0 values. */
static void test_segments(void **) {
    static const int32_t ends[] = {0, 3, 3, 12, 12}, want[] = {0, 1, 1, 3, 3};
    static const uint8_t big[] = {0xC0, 0x92, 0x00, 0xFF}, little[] = {0x03, 0x49, 0x00, 0xFF};
    make_all(12, 12 / 8 + 4, 4);
    memcpy(indptr.data, ends, sizeof ends);
    x.data[3] = 1, x.data[11] = 0;
    assert_int_equal(qn_segment_packbits(stream, &out.t, &starts.t, &x.t, &indptr.t, QN_BITS_BIG),
                     QN_OK);
    assert_memory_equal(starts.data, want, sizeof want);
    assert_memory_equal(out.data, big, sizeof big);
    assert_int_equal(
        qn_segment_packbits(stream, &out.t, &starts.t, &x.t, &indptr.t, QN_BITS_LITTLE), QN_OK);
    assert_memory_equal(out.data, little, sizeof little);
}

static void test_refusals(void **) {
    make_all(9, 1, 2);
    assert_refused(qn_packbits(stream, &out.t, &x.t, QN_BITS_BIG), QN_E_INVALID,
                   "packbits: out has shape [1], needs [2]");
    assert_refused(qn_packbits(stream, &out.t, nullptr, QN_BITS_BIG), QN_E_INVALID, "x is null");
    assert_refused(qn_packbits(stream, &out.t, &x.t, (qn_bit_order)2), QN_E_INVALID, "order is 2");
    assert_refused(qn_segment_packbits(stream, &out.t, &starts.t, &x.t, &indptr.t, QN_BITS_BIG),
                   QN_E_INVALID, "out has 1 bytes, needs 3 for 9 values in 2 segments");
    make(&indptr, QNI_I64, 1, 3, 0, 0);
    assert_refused(qn_segment_packbits(stream, &out.t, &starts.t, &x.t, &indptr.t, QN_BITS_BIG),
                   QN_E_UNSUPPORTED, "indptr has dtype i64; accepted: i32");
    make(&x, QNI_I32, 1, 9, 0, 0);
    assert_refused(qn_packbits(stream, &out.t, &x.t, QN_BITS_BIG), QN_E_UNSUPPORTED,
                   "x has dtype i32; accepted: bool, u8");
    assert_int_equal(out.data[0], 0xFF); // nothing was written
    assert_int_equal(starts.data[0], 0xFF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
