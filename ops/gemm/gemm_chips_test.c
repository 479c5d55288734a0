// SPDX-License-Identifier: Apache-2.0
// The gemm family's GPU kernels on the other simulated chips: every check problem, and each kernel
// as clang compiles it at other levels of optimisation. gemm_sim_test.c has the long problems.
#include "gemm_test_case.h"

static int open_gfx90a(void **) {
    return open_device("sim:gfx90a");
}
static int open_gfx950(void **) {
    return open_device("sim:gfx950");
}

static int open_gfx1151(void **) {
    return open_device("sim:gfx1151");
}
static int open_gfx1201(void **) {
    return open_device("sim:gfx1201");
}

static void problems_agree(void **) {
    try_op(&qni_op_gemm);
    try_op(&qni_op_gemm_pack);
}

#define BF QNI_BF16
#define PLAIN(M, N, K, AB, ...)                                                                    \
    {.m = M, .n = N, .k = K, .dtype_a = AB, .dtype_b = AB, .dtype_d = BF, __VA_ARGS__}
#define PACKED(M, N, K, D)                                                                         \
    {.m = M,                                                                                       \
     .n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = QNI_E4M3FN,                                                                        \
     .dtype_b = QNI_E4M3FN,                                                                        \
     .dtype_d = D,                                                                                 \
     .fill = QNI_FILL_ANY,                                                                         \
     .is_packed = true}

static void levels_agree(void **) {
    static const qni_gemm_spec specs[] = {
        PACKED(130, 140, 412, BF),
        PLAIN(70, 66, 200, QNI_E4M3FN),
        PLAIN(70, 140, 200, QNI_E4M3FN, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ONE),
        PLAIN(70, 66, 200, BF),
        PLAIN(70, 66, 200, QNI_F16),
        PLAIN(70, 66, 200, QNI_F32),
        CASES_ACROSS(BF),
        CASES_ACROSS(QNI_F16)};
    run_levels(specs, sizeof specs / sizeof *specs);
}

/** Runs the kernels that convert FP8 to bf16 on the way to LDS. */
static void fp8_through_bf16_agrees(void **) {
    static const qni_gemm_spec fp8 = PLAIN(40, 66, 130, QNI_E4M3FN);
    qni_gemm_case c;
    int ran = 0;
    assert_int_equal(qni_gemm_case_create(&c, stream, &fp8, 4), QN_OK);
    for (int i = 0; i < qni_op_gemm.num_variants; i++) {
        const qni_variant *variant = &qni_op_gemm.variants[i];
        if (variant->is_cpu || !qni_variant_fits(variant, device, &c.problem, nullptr))
            continue;
        run_kernel_levels(variant, &c, 1);
        ran++;
    }
    assert_in_range(ran, 2, MAX_KERNELS); // gemm.any, gemm.any_mixed
    qni_gemm_case_destroy(&c);
}

int main(void) {
    const struct CMUnitTest all[] = {cmocka_unit_test(problems_agree),
                                     cmocka_unit_test(levels_agree)};
    const struct CMUnitTest of_bf16[] = {cmocka_unit_test(problems_agree),
                                         cmocka_unit_test(levels_agree),
                                         cmocka_unit_test(fp8_through_bf16_agrees)};
    int failed = cmocka_run_group_tests(of_bf16, open_gfx90a, close_device);
    failed += cmocka_run_group_tests(all, open_gfx950, close_device);
    failed += cmocka_run_group_tests(of_bf16, open_gfx1151, close_device);
    return failed + cmocka_run_group_tests(all, open_gfx1201, close_device);
}
