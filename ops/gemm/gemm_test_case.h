// SPDX-License-Identifier: Apache-2.0
// What gemm's tests share: the device, a small case, and for simulated chips the check problems on
// all kernels, and single kernels at other levels of optimisation.
#ifndef QNI_GEMM_TEST_CASE_H
#define QNI_GEMM_TEST_CASE_H

#include "../../runtime/sanitized.h"
#include "gemm_case.h"

#include <quern/check.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static qn_device *device;
static qn_stream *stream;

static inline int open_device(const char *spec) {
    if (qn_device_open(&device, spec) == QN_OK)
        return qn_stream_create(&stream, device);
    print_message("%s\n", qn_last_error());
    if (strncmp(spec, "sim:", 4) != 0)
        return 1;
    exit(77); // built without the simulator
}

static inline int open_cpu(void **) {
    return open_device("cpu");
}

static inline int close_device(void **) {
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}

/** Returns a small problem that still has two groups, unless it is dense, and more than one
 *  K-block. */
static inline qni_gemm_spec small_spec(qn_gemm_grouping grouping) {
    return (qni_gemm_spec){.grouping = grouping,
                           .groups = grouping == QN_GEMM_DENSE ? 0 : 2,
                           .m = 3,
                           .n = 5,
                           .k = 130,
                           .dtype_a = QNI_E4M3FN,
                           .dtype_b = QNI_E4M3FN,
                           .dtype_d = QNI_BF16};
}

enum { MAX_KERNELS = 96, MAX_CASES = 17 }; // of an op

/** How often each of the op's kernels ran. */
typedef struct tally {
    const qni_op *op;
    int ran[MAX_KERNELS];
} tally;

static inline void count(void *context, const qn_check_result *r) {
    tally *t = context;
    if (r->reason)
        return;
    if (!r->passed)
        print_error("%s on %s: error %g: %s\n", r->kernel, r->problem, r->error, r->detail);
    for (int i = 0; i < t->op->num_variants; i++)
        t->ran[i] += strcmp(t->op->variants[i].name, r->kernel) == 0;
}

/** Runs every check problem of the op on every kernel; those of a quick check with a sanitizer. */
static inline void try_op(const qni_op *op) {
    tally t = {.op = op};
    qn_check_options options = {
        .struct_size = sizeof options, .seed = 2, .quick = QNI_IS_SANITIZED};
    assert_in_range(op->num_variants, 1, MAX_KERNELS);
    assert_int_equal(qn_check(device, op->name, &options, count, &t), QN_OK);
    // A kernel that no problem reaches would pass without being tested.
    for (int i = 0; i < op->num_variants && !QNI_IS_SANITIZED; i++)
        if (!op->variants[i].is_cpu && t.ran[i] < 4 &&
            qni_device_meets(device, op->variants[i].needs))
            fail_msg("%s ran on %d problems", op->variants[i].name, t.ran[i]);
}

/** Runs the kernel on the case and compares. Returns false if the kernel does not take the
 *  case. */
static inline bool run_kernel(const qni_variant *variant, qni_gemm_case *c) {
    const char *defines = variant->config.kernel[0].defines; // as of all its kernels
    double error;
    char detail[256] = "";
    if (!qni_variant_fits(variant, device, &c->problem, nullptr))
        return false;
    assert_int_equal(qni_gemm_case_reset(c), QN_OK);
    if (variant->run(variant, stream, &c->problem) != QN_OK)
        fail_msg("%s %s: %s", variant->name, defines ? defines : "", qn_last_error());
    assert_int_equal(qni_gemm_case_compare(c, &error, detail, sizeof detail), QN_OK);
    if (!(error <= 1))
        fail_msg("%s %s on %s: error %g: %s", variant->name, defines ? defines : "", c->text, error,
                 detail);
    return true;
}

// Cases of a type whose rows of a, of b, or of both lie across k: what kernels for those layouts
// take.
#define CASE_ACROSS(TYPE, A, B)                                                                    \
    {.m = 70,                                                                                      \
     .n = 66,                                                                                      \
     .k = 200,                                                                                     \
     .dtype_a = TYPE,                                                                              \
     .dtype_b = TYPE,                                                                              \
     .dtype_d = QNI_BF16,                                                                          \
     .a_transposed = A,                                                                            \
     .b_transposed = B}
#define CASES_ACROSS(TYPE)                                                                         \
    CASE_ACROSS(TYPE, false, true), CASE_ACROSS(TYPE, true, false), CASE_ACROSS(TYPE, true, true)

/** Returns the kernel with an image of another optimisation, which the JIT compiles. */
static inline qni_variant at_level(const qni_variant *variant, const char *level) {
    qni_variant copy = *variant;
    for (size_t i = 0; i < sizeof copy.config.kernel / sizeof *copy.config.kernel; i++) {
        copy.config.kernel[i].defines = level;
        copy.config.kernel[i].max_scratch_bytes = copy.config.kernel[i].max_sgpr_spills = INT32_MAX;
    }
    return copy;
}

/** Runs the kernel at both other levels, each on the first of the cases that it takes. */
static inline void run_kernel_levels(const qni_variant *variant, qni_gemm_case *cases,
                                     size_t count) {
    const char *const levels[] = {"-O0", "-O1"};
    for (int l = 0; l < 2; l++) {
        const qni_variant copy = at_level(variant, levels[l]);
        size_t i = 0;
        while (i < count && !run_kernel(&copy, &cases[i]))
            i++;
        if (i == count && qni_device_meets(device, copy.needs))
            fail_msg("no case for %s", copy.name);
    }
}

/** Runs each GPU kernel that the device can run, with a sanitizer every third, as clang compiles it
 *  at other levels of optimisation. Unoptimised code keeps its variables in scratch. */
static inline void run_levels(const qni_gemm_spec *specs, size_t count) {
    qni_gemm_case cases[MAX_CASES];
    assert_in_range(count, 1, MAX_CASES);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(qni_gemm_case_create(&cases[i], stream, &specs[i], 4), QN_OK);
    for (int i = 0; i < qni_op_gemm.num_variants; i += QNI_IS_SANITIZED ? 3 : 1)
        if (!qni_op_gemm.variants[i].is_cpu)
            run_kernel_levels(&qni_op_gemm.variants[i], cases, count);
    for (size_t i = 0; i < count; i++)
        qni_gemm_case_destroy(&cases[i]);
}

#endif
