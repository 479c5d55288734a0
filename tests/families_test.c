// SPDX-License-Identifier: Apache-2.0
// Checks that every op on a device agrees with its definition, on a simulated GPU under every check
// of the simulator. On GPUs, and with a sanitizer, problems are those of a quick check.
//
//   families_test SPEC
//
// gemm and quantize have longer tests of their own.
#include "../runtime/sanitized.h"

#include <quern/quern.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const tested_elsewhere[] = {"gemm", "gemm_pack", "quantize", "dequantize"};

typedef struct tally {
    int ran, failed;
    bool has_no_image;
} tally;

static void note(void *context, const qn_check_result *result) {
    tally *t = context;
    if (result->reason)
        return;
    t->ran++;
    if (result->passed)
        return;
    // make TARGETS=… builds images for some targets only, and a test may have no compiler.
    if (strstr(result->detail, "image: no "))
        t->has_no_image = true;
    else if (t->failed++ < 5)
        print_error("%s, %s: %s (error %.3g of the tolerance)\n", result->kernel, result->problem,
                    result->detail, result->error);
}

static bool is_tested_elsewhere(const char *op) {
    for (size_t i = 0; i < sizeof tested_elsewhere / sizeof *tested_elsewhere; i++)
        if (strcmp(op, tested_elsewhere[i]) == 0)
            return true;
    return false;
}

static void test_device(void **state) {
    const char *spec = *state;
    const qn_check_options options = {.struct_size = sizeof options,
                                      .seed = 1,
                                      .quick = QNI_IS_SANITIZED || strcmp(spec, "cpu") != 0};
    qn_device *device = nullptr;
    tally t = {};
    if (qn_device_open(&device, spec) != QN_OK) {
        print_message("%s\n", qn_last_error()); // built without the simulator
        skip();
    }
    for (const char *const *op = qn_op_names(); *op; op++)
        if (!is_tested_elsewhere(*op))
            qn_check(device, *op, &options, note, &t);
    qn_device_close(device);
    assert_int_equal(t.failed, 0);
    assert_true(t.ran > 0);
    if (t.has_no_image)
        skip();
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: families_test SPEC, such as cpu or sim:gfx942\n");
        return 2;
    }
    setenv("QUERN_NO_JIT", "1", 1); // only images that ship are tested
    const struct CMUnitTest tests[] = {
        {.name = arguments[1], .test_func = test_device, .initial_state = arguments[1]}};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
