// SPDX-License-Identifier: Apache-2.0
// Packing of bits: numpy's results for lengths around a byte, empty segments, and what the
// functions refuse. families_test shows that kernels agree with the definition.
#include "../shared/op_test.h"
#include "pack.h"

static box x, out, indptr, starts;

static void make_all(int64_t count, int64_t bytes, int64_t segments) {
    MAKE(&x, QNI_U8, count);
    MAKE(&out, QNI_U8, bytes);
    MAKE(&indptr, QNI_I32, segments + 1);
    MAKE(&starts, QNI_I32, segments + 1);
    for (int i = 0; i < count; i++)
        x.data[i] = i % 3 == 0 || i == 1; // 1 1 0 1 0 0 1 0  0 1 …
}

/** numpy.packbits gives these bytes for the first 0, 1, 8 and 9 of 1 1 0 1 0 0 1 0 0. */
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
    MAKE(&indptr, QNI_I64, 3);
    assert_refused(qn_segment_packbits(stream, &out.t, &starts.t, &x.t, &indptr.t, QN_BITS_BIG),
                   QN_E_UNSUPPORTED, "indptr has dtype i64; accepted: i32");
    MAKE(&x, QNI_I32, 9);
    assert_refused(qn_packbits(stream, &out.t, &x.t, QN_BITS_BIG), QN_E_UNSUPPORTED,
                   "x has dtype i32; accepted: u8, bool");
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
