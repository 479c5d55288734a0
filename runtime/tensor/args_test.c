// SPDX-License-Identifier: Apache-2.0
// The messages on a caller's struct that is missing or of another size.
#include "../runtime.h"
#include "../testing.h"

typedef struct two_members {
    size_t struct_size;
    int32_t first, second;
} two_members;

static void assert_message(qn_status st, const char *message) {
    assert_int_equal(st, QN_E_INVALID);
    assert_string_equal(qn_last_error(), message);
}

static void test_own_size_only(void **state) {
    (void)state;
    two_members args = {.struct_size = sizeof args};
    assert_int_equal(QNI_CHECK_STRUCT("op", "args", two_members, &args), QN_OK);
    args.struct_size = sizeof args + 1;
    assert_message(QNI_CHECK_STRUCT("op", "args", two_members, &args),
                   "op: args.struct_size is 17; set it to sizeof(two_members)");
    args.struct_size = sizeof args - 1;
    assert_message(QNI_CHECK_STRUCT("op", "args", two_members, &args),
                   "op: args.struct_size is 15; set it to sizeof(two_members)");
    assert_message(QNI_CHECK_STRUCT("op", "args", two_members, nullptr), "op: args is null");
}

static void test_other_versions_sizes(void **state) {
    (void)state;
    two_members info = {.struct_size = offsetof(two_members, second)};
    assert_int_equal(QNI_CHECK_STRUCT_FROM("op", "info", two_members, &info, first), QN_OK);
    assert_message(QNI_CHECK_STRUCT_FROM("op", "info", two_members, &info, second),
                   "op: info.struct_size is 12; set it to sizeof(two_members)");
    info.struct_size = 2 * sizeof info;
    assert_int_equal(QNI_CHECK_STRUCT_FROM("op", "info", two_members, &info, second), QN_OK);
    info.struct_size = offsetof(two_members, first);
    assert_message(QNI_CHECK_STRUCT_FROM("op", "info", two_members, &info, first),
                   "op: info.struct_size is 8; set it to sizeof(two_members)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_size_only),
        cmocka_unit_test(test_other_versions_sizes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
