// SPDX-License-Identifier: Apache-2.0
// What the tests of the GPU kernels on simulated chips share: the device, the check problems, single kernels at other
// levels of optimisation.
#ifndef QNI_GEMM_SIM_CASE_H
#define QNI_GEMM_SIM_CASE_H

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
    exit(77); // built without the simulator
}

static inline int close_device(void **) {
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}

/** How often each of the op's kernels ran. */
typedef struct tally {
    const qni_op *op;
    int ran[16];
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

/** Checks every problem of the op on every kernel; `wanted` (null: all of the op's) name those that must run. */
static inline void check_op(const qni_op *op, const char *wanted) {
    tally t = {.op = op};
    qn_check_options options = {.struct_size = sizeof options, .seed = 2};
    assert_in_range(op->num_variants, 1, 16);
    assert_int_equal(qn_check(device, op->name, &options, count, &t), QN_OK);
    // A kernel that no problem reaches would pass unseen.
    for (int i = 0; i < op->num_variants; i++)
        if (!op->variants[i].is_cpu && t.ran[i] < 4 &&
            (!wanted || strstr(wanted, op->variants[i].name)))
            fail_msg("%s ran on %d problems", op->variants[i].name, t.ran[i]);
}

/** The image with another optimisation, which the JIT compiles. Unoptimised code keeps variables in scratch. */
static inline qni_gemm_kernel at_level(qni_gemm_kernel_id id, const char *level) {
    qni_gemm_kernel kernel = qni_gemm_kernels[id];
    kernel.ref.defines = level;
    kernel.ref.max_scratch_bytes = kernel.ref.max_sgpr_spills = INT32_MAX;
    return kernel;
}

static inline void run_kernel(const qni_gemm_kernel *kernel, const qni_gemm_spec *spec) {
    qni_gemm_case c;
    double error;
    char detail[256] = "";
    assert_int_equal(qni_gemm_case_create(&c, stream, spec, 4), QN_OK);
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    if (qni_gemm_launch(stream, kernel, &c.problem) != QN_OK)
        fail_msg("%s %s: %s", kernel->ref.image, kernel->ref.defines, qn_last_error());
    assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
    if (!(error <= 1))
        fail_msg("%s %s on %s: error %g: %s", kernel->ref.image, kernel->ref.defines, c.text, error,
                 detail);
    qni_gemm_case_destroy(&c);
}

#endif
