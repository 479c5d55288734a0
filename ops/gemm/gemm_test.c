// SPDX-License-Identifier: Apache-2.0
// Tests of the gemm family: every check problem on the CPU.
#include "gemm_case.h"

#include <quern/check.h>

// clang-format off: cmocka.h needs what stands before it
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
// clang-format on

static void print_failure(void *context, const qn_check_result *r) {
    int *ran = context;
    *ran += r->reason == nullptr;
    if (!r->reason && !r->passed)
        print_error("%s on %s: error %g: %s\n", r->kernel, r->problem, r->error, r->detail);
}

static void kernels_agree_with_the_reference(void **) {
    qn_device *device = nullptr;
    int ran = 0;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    qn_check_options options = {.struct_size = sizeof options, .seed = 1};
    assert_int_equal(qn_check(device, "gemm", &options, print_failure, &ran), QN_OK);
    assert_int_equal(qn_check(device, "gemm_pack", &options, print_failure, &ran), QN_OK);
    assert_true(ran > 80);
    qn_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
