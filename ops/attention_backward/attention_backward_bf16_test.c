// SPDX-License-Identifier: Apache-2.0
// The kernel for AVX-512 BF16 on processors without it: its source, in plain vectors that compute
// what the instructions do, must agree with the definition on all problems of bf16. Where the
// processor has the instructions, families_test shows the same of the kernel itself.
#define QN_LANES 16
#define QN_BF16
#include "attention_backward_simd.h"

static const qni_op in_plain_vectors;
#define qni_op_attention_backward in_plain_vectors
#define qni_family_attention_backward family_in_plain_vectors
#define qni_backward_check check_in_plain_vectors
#include "attention_backward_check.c"
#undef qni_op_attention_backward

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static qn_status run(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_backward_on_threads(problem, &these_functions);
}

static const qni_variant variants[] = {
    {"attention_backward.plain", {.all = 0}, true, qni_backward_bf16_supports, nullptr, run, {}}};
static const qni_op in_plain_vectors = {"attention_backward", variants, 1, nullptr, nullptr};

typedef struct counts {
    int passed, left_out;
} counts;

static void count(void *context, const qn_check_result *result) {
    counts *c = context;
    if (result->reason)
        c->left_out++;
    else if (result->passed)
        c->passed++;
    else
        print_message("%s: %s\n", result->problem, result->detail);
}

static void test_problems(void **) {
    static const qni_family *const families[] = {&family_in_plain_vectors, nullptr};
    counts c = {};
    qn_device *device;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_trial_families(families, device, "attention_backward", nullptr, count, &c),
                     QN_OK);
    assert_true(c.passed > 20 && c.left_out > 10);
    qn_device_close(device);
}

/** Where the instructions are no faster than others, the kernel is left to those who force it. */
static void test_choice(void **) {
    qn_device amd = {.info.name = "AMD EPYC 9575F"}, intel = {.info.name = "Intel(R) Xeon(R)"};
    assert_true(qni_backward_bf16_cost(nullptr, &amd, nullptr) < HUGE_VAL);
    assert_true(qni_backward_bf16_cost(nullptr, &intel, nullptr) == HUGE_VAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problems),
                                       cmocka_unit_test(test_choice)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
