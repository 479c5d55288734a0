// SPDX-License-Identifier: Apache-2.0
// Layouts of scales: fixed vectors and what the functions refuse. families_test shows that kernels
// agree with the definition.
#include "../shared/op_test.h"
#include "scales.h"

static box scale, out, layout;

static void put(box *b, const void *values, size_t bytes) {
    memcpy(b->data, values, bytes);
}

static qn_status transform(int64_t block_rows, int32_t rounds) {
    return qn_transform_scales(stream, &out.t, &scale.t, nullptr, block_rows, 0, rounds);
}

/** Zero, a denormal, 1, the next number, the largest, infinity and NaN become these exponents. */
static void test_rounding_up(void **) {
    static const uint32_t bits[] = {0,          1,          0x3F800000, 0x3F800001, 0x7F7FFFFF,
                                    0x7F800000, 0x7FC00000, 0x3F7FFFFF, 0xC0000000};
    static const uint32_t exponents[] = {1, 1, 127, 128, 254, 254, 254, 127, 128};
    enum { COUNT = sizeof bits / sizeof *bits };
    MAKE(&scale, QNI_F32, 1, COUNT);
    put(&scale, bits, sizeof bits);
    MAKE(&out, QNI_F32, 1, COUNT);
    assert_int_equal(transform(1, 1), QN_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(((uint32_t *)out.data)[i], exponents[i] << 23);
    MAKE(&out, QNI_I32, 1, 3);
    assert_int_equal(transform(1, 1), QN_OK);
    for (int i = 0; i < 12; i++)
        assert_int_equal(out.data[i], i < COUNT ? exponents[i] : 0);
    assert_int_equal(out.data[12], 0xFF);
}

/** 2, 4, 8, 16, 32 side by side become words 0x83828180 and 0x84, and come back. */
static void test_packing(void **) {
    static const float scales[] = {2, 4, 8, 16, 32};
    static const uint32_t words[] = {0x83828180, 0x84};
    MAKE(&scale, QNI_F32, 1, 5);
    put(&scale, scales, sizeof scales);
    MAKE(&out, QNI_I32, 1, 2);
    assert_int_equal(transform(1, 0), QN_OK);
    assert_memory_equal(out.data, words, sizeof words);
    MAKE(&scale, QNI_I32, 1, 2);
    put(&scale, words, sizeof words);
    MAKE(&out, QNI_F32, 1, 5);
    assert_int_equal(transform(1, 0), QN_OK);
    assert_memory_equal(out.data, scales, sizeof scales);
    assert_int_equal(out.data[sizeof scales], 0xFF);
}

/** Scales [3, 2] become MN-major columns of 4; each row of scales serves two rows. */
static void test_layout(void **) {
    static const float scales[] = {1, 2, 3, 4};
    MAKE(&scale, QNI_F32, 2, 2);
    put(&scale, scales, sizeof scales);
    MAKE(&out, QNI_F32, 3, 2);
    out.strides[0] = 1, out.strides[1] = qn_tma_aligned_size(3, 4);
    assert_int_equal(transform(2, 0), QN_OK);
    static const float columns[2][3] = {{1, 1, 3}, {2, 2, 4}};
    assert_memory_equal(out.data, columns[0], 12);
    assert_memory_equal(out.data + 16, columns[1], 12);
    assert_int_equal(out.data[12], 0xFF); // between the columns
    assert_int_equal(qn_tma_aligned_size(4097, 2), 4104);
    assert_int_equal(qn_tma_aligned_size(0, 16), 0);
    assert_int_equal(qn_tma_aligned_size(5, 3), -1);
}

/** Rows 0 and 1, and 4, belong to groups. */
static void test_ends(void **) {
    static const float scales[] = {1, 2, 4, 8, 16, 32};
    static const int32_t ends[] = {2, 5};
    MAKE(&scale, QNI_F32, 6, 1);
    put(&scale, scales, sizeof scales);
    MAKE(&out, QNI_I32, 6, 1);
    MAKE(&layout, QNI_I32, 2);
    put(&layout, ends, sizeof ends);
    assert_int_equal(qn_transform_scales(stream, &out.t, &scale.t, &layout.t, 1, 4, 0), QN_OK);
    static const int32_t want[] = {127, 128, -1, -1, 131, -1};
    assert_memory_equal(out.data, want, sizeof want);
}

/** Groups of 5 and 1 scales. */
static void test_k_grouped(void **) {
    static const float scales[] = {1, 2, 4, 8, 16, 32};
    static const uint32_t want[] = {0x8281807F, 0x83, 0x84, 0};
    static const int32_t ks[] = {640, 128}, ends[] = {513, 890};
    MAKE(&scale, QNI_F32, 6, 1);
    put(&scale, scales, sizeof scales);
    MAKE(&layout, QNI_I32, 2);
    for (int by_ends = 0; by_ends < 2; by_ends++) {
        put(&layout, by_ends ? ends : ks, sizeof ks);
        MAKE(&out, QNI_I32, 4, 1);
        assert_int_equal(
            qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 128, 256, by_ends, 0),
            QN_OK);
        assert_memory_equal(out.data, want, sizeof want);
    }
}

/** The scale behind the only one would lie beyond all addresses. Forming its address is undefined,
 *  which sanitizers report. */
static void test_far_scales(void **) {
    static const float scales[] = {4, 8};
    static const int32_t ks[] = {128};
    static const uint32_t want[] = {0x81, 0x82, 0, 0};
    MAKE(&scale, QNI_F32, 1, 2);
    put(&scale, scales, sizeof scales);
    scale.t.strides = (int64_t[]){INT64_MAX / 4, 1};
    MAKE(&layout, QNI_I32, 1);
    put(&layout, ks, sizeof ks);
    MAKE(&out, QNI_I32, 2, 2);
    assert_int_equal(qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 128, 0, 0, 0),
                     QN_OK);
    assert_memory_equal(out.data, want, sizeof want);
    MAKE(&scale, QNI_F32, 0, 2); // no scale, so no row has an address
    scale.t.strides = (int64_t[]){2, INT64_MAX / 4};
    put(&layout, (const int32_t[]){0}, sizeof ks);
    assert_int_equal(qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 128, 0, 0, 0),
                     QN_OK);
    assert_int_equal(out.data[0], 0);
}

static void test_refusals(void **) {
    MAKE(&scale, QNI_F32, 3, 5);
    MAKE(&out, QNI_I32, 3, 1);
    MAKE(&layout, QNI_I32, 2);
    assert_refused(transform(1, 0), QN_E_INVALID, "scale has shape [3, 5], needs [3, 4]");
    MAKE(&out, QNI_I32, 3, 2);
    assert_refused(transform(2, 0), QN_E_INVALID, "scale has shape [3, 5], needs [2, 5]");
    assert_refused(transform(0, 0), QN_E_INVALID, "block_rows is 0");
    assert_refused(transform(1, 2), QN_E_INVALID, "round_scale is 2");
    out.strides[0] = out.strides[1] = 1;
    assert_refused(transform(1, 0), QN_E_INVALID, "out has stride 1 in dimension 1");
    MAKE(&out, QNI_I32, 3, 2);
    out.t.byte_offset = 2;
    assert_refused(transform(1, 0), QN_E_INVALID, "out begins at");
    MAKE(&out, QNI_F16, 3, 5);
    assert_refused(transform(1, 0), QN_E_UNSUPPORTED, "out has dtype f16; accepted: f32, i32");
    MAKE(&out, QNI_F32, 3, 5);
    out.t.data = scale.data;
    assert_refused(transform(1, 0), QN_E_INVALID, "out overlaps scale");
    layout.t.shape = nullptr;
    assert_refused(qn_transform_scales(stream, &out.t, &scale.t, &layout.t, 1, 0, 0), QN_E_INVALID,
                   "ends has a null shape");
    MAKE(&layout, QNI_I32, 2);
    MAKE(&scale, QNI_F32, 1, 3, 5);
    MAKE(&out, QNI_F32, 1, 3, 5);
    assert_refused(qn_transform_scales(stream, &out.t, &scale.t, &layout.t, 1, 0, 0), QN_E_INVALID,
                   "ends is given and out has 3 dimensions, needs 2");
    assert_refused(qn_transform_scales(stream, nullptr, &scale.t, nullptr, 1, 0, 0), QN_E_INVALID,
                   "out is null");
    assert_int_equal(out.data[0], 0xFF); // nothing was written
}

/** Contents of index tensors are checked. */
static void test_validation(void **) {
    static const int32_t falling[] = {2, 1}, too_long[] = {2, 9}, ks[] = {512, 640};
    MAKE(&scale, QNI_F32, 6, 4);
    MAKE(&out, QNI_I32, 6, 1);
    MAKE(&layout, QNI_I32, 2);
    put(&layout, falling, sizeof falling);
    assert_refused(qn_transform_scales(stream, &out.t, &scale.t, &layout.t, 1, 4, 0), QN_E_INVALID,
                   "ends[1] is 1; accepted: 2 to 6");
    put(&layout, too_long, sizeof too_long);
    assert_refused(qn_transform_scales(stream, &out.t, &scale.t, &layout.t, 1, 4, 0), QN_E_INVALID,
                   "ends[1] is 9; accepted: 2 to 6");
    put(&layout, ks, sizeof ks);
    MAKE(&out, QNI_I32, 3, 4);
    assert_refused(qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 128, 0, 0, 0),
                   QN_E_INVALID, "group_layout needs 9 scales and 3 words; scale has 6, out 3");
    assert_refused(qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 0, 0, 0, 0),
                   QN_E_INVALID, "gran_k is 0");
    put(&layout, falling, sizeof falling);
    assert_refused(qn_pack_k_grouped_scales(stream, &out.t, &scale.t, &layout.t, 128, 0, 1, 0),
                   QN_E_INVALID, "group_layout[1] is 1; accepted: 128 or more");
    assert_int_equal(out.data[0], 0xFF);
}

static void test_empty(void **) {
    MAKE(&scale, QNI_F32, 0, 5);
    MAKE(&out, QNI_I32, 0, 2);
    scale.t.data = out.t.data = nullptr;
    assert_int_equal(transform(1, 0), QN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_up), cmocka_unit_test(test_packing),
        cmocka_unit_test(test_layout),      cmocka_unit_test(test_ends),
        cmocka_unit_test(test_k_grouped),   cmocka_unit_test(test_far_scales),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_validation),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
