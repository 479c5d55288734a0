// SPDX-License-Identifier: Apache-2.0
// Which tensors a tensor map takes, and by which words the others are refused.
#include "../runtime.h"
#include "../testing.h"

static alignas(16) uint8_t memory[64];

/** Two groups of 100 rows of 48 bf16, boxes of 64 rows of 32. */
static qni_tensor_map good_map(void) {
    return (qni_tensor_map){.name = "a",
                            .data = memory,
                            .dtype = QNI_BF16,
                            .rank = 3,
                            .size = {48, 100, 2},
                            .stride = {1, 56, 5600},
                            .box = {32, 64, 1},
                            .swizzle_bytes = 64};
}

static void assert_refused(const qni_tensor_map *map, const char *words) {
    qni_reason why = {""};
    assert_false(qni_tensor_map_fits(map, &why));
    if (!strstr(why.text, words))
        fail_msg("\"%s\" lacks \"%s\"", why.text, words);
    assert_false(qni_tensor_map_fits(map, nullptr));
}

static void good_maps_fit(void **) {
    qni_tensor_map map = good_map();
    qni_reason why;
    assert_true(qni_tensor_map_fits(&map, &why));
    map.size[1] = INT64_C(1) << 32;
    map.box[1] = 256;
    map.swizzle_bytes = 0;
    map.box[0] = 256;
    assert_true(qni_tensor_map_fits(&map, &why));
    map.size[2] = 1; // of one element any stride
    map.stride[2] = -3;
    assert_true(qni_tensor_map_fits(&map, &why));
}

static void bad_tensors_are_refused(void **) {
    qni_tensor_map map = good_map();
    map.data = memory + 2;
    assert_refused(&map, "a is not aligned to 16 bytes");
    map = good_map(), map.stride[1] = 52;
    assert_refused(&map, "stride 52 of a is 104 bytes, needs a multiple of 16");
    map = good_map(), map.stride[2] = 0;
    assert_refused(&map, "stride 0 of a");
    map = good_map(), map.stride[1] = INT64_C(1) << 39;
    assert_refused(&map, "below 2^40");
    map = good_map(), map.stride[1] = INT64_MAX - 7;
    assert_refused(&map, "2^40");
    map = good_map(), map.size[0] = 0;
    assert_refused(&map, "a has 0 in dimension 0");
    map = good_map(), map.size[2] = (INT64_C(1) << 32) + 1;
    assert_refused(&map, "a has 4294967297 in dimension 2");
}

static void bad_boxes_are_refused(void **) {
    qni_tensor_map map = good_map();
    map.box[1] = 257;
    assert_refused(&map, "257 in dimension 1, takes 1 to 256");
    map = good_map(), map.box[2] = 0;
    assert_refused(&map, "0 in dimension 2");
    map = good_map(), map.box[0] = 12;
    assert_refused(&map, "has 24 bytes, needs a multiple of 16");
    map = good_map(), map.box[0] = 64;
    assert_refused(&map, "has 128 bytes, the swizzle 64");
}

/** The CPU has no copies of boxes, and says so. */
static void the_cpu_has_none(void **) {
    qn_device *device = nullptr;
    const qni_tensor_map map = good_map();
    alignas(64) uint64_t words[16] = {7};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_tensor_map_encode(device, &map, words), QN_E_UNSUPPORTED);
    assert_string_equal(qn_last_error(), "tensor map of a: cpu has no copies of boxes");
    assert_int_equal(words[0], 7);
    qn_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_maps_fit),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(bad_boxes_are_refused),
        cmocka_unit_test(the_cpu_has_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
