// SPDX-License-Identifier: Apache-2.0
// The gemm family's GPU kernels on the other simulated chips: every check problem, and each kernel as clang
// makes it at other levels of optimisation. gemm_sim_test.c has the long problems.
#include "gemm_sim_case.h"

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

static void gfx90a_problems_agree(void **) {
    check_op(&qni_op_gemm, "gemm.any");
    check_op(&qni_op_gemm_pack, nullptr);
}

static void gfx950_problems_agree(void **) {
    check_op(&qni_op_gemm, "gemm.any gemm.fp8_decode gemm.fp8_mfma gemm.fp8_mfma_256");
    check_op(&qni_op_gemm_pack, nullptr);
}

/** RDNA has the kernel for any shape, with WMMA: bf16, and FP8 by gfx12's own instruction. */
static void rdna_problems_agree(void **) {
    check_op(&qni_op_gemm, "gemm.any");
    check_op(&qni_op_gemm_pack, nullptr);
}

#define BF QNI_BF16
#define PLAIN(M, N, K, AB) {.m = M, .n = N, .k = K, .dtype_a = AB, .dtype_b = AB, .dtype_d = BF}
#define PACKED(M, N, K, D)                                                                         \
    {.m = M,                                                                                       \
     .n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = QNI_E4M3FN,                                                                        \
     .dtype_b = QNI_E4M3FN,                                                                        \
     .dtype_d = D,                                                                                 \
     .fill = QNI_FILL_ANY,                                                                         \
     .is_packed = true}

/** Unoptimised code keeps its variables in scratch, which gfx90a finds by a buffer descriptor. */
static void run_levels(qni_gemm_kernel_id id, const qni_gemm_spec *spec) {
    static qni_gemm_kernel kernels[2][QNI_NUM_GEMM_KERNELS];
    static const char *const levels[] = {"-O0", "-O1"};
    for (int l = 0; l < 2; l++) {
        kernels[l][id] = at_level(id, levels[l]);
        run_kernel(&kernels[l][id], spec);
    }
}

/** Where FP8 becomes bf16 on the way to LDS. */
static void converted_levels_agree(void **) {
    static const qni_gemm_spec bf16 = PLAIN(70, 66, 200, BF), fp8 = PLAIN(40, 66, 130, QNI_E4M3FN);
    run_levels(QNI_GEMM_ANY, &bf16);
    run_levels(QNI_GEMM_ANY, &fp8);
}

static void gfx1201_levels_agree(void **) {
    static const qni_gemm_spec bf16 = PLAIN(70, 66, 200, BF), fp8 = PLAIN(40, 66, 130, QNI_E4M3FN);
    run_levels(QNI_GEMM_ANY, &bf16);
    run_levels(QNI_GEMM_ANY_FP8, &fp8);
}

static void gfx950_levels_agree(void **) {
    static const qni_gemm_spec specs[QNI_NUM_GEMM_KERNELS] = {
        [QNI_GEMM_ANY] = PLAIN(70, 66, 200, BF),
        [QNI_GEMM_ANY_FP8] = PLAIN(70, 66, 200, QNI_E4M3FN),
        [QNI_GEMM_DECODE] = PACKED(20, 66, 1100, BF),
        [QNI_GEMM_FP8_128] = PACKED(130, 140, 412, BF),
        [QNI_GEMM_FP8_256] = PACKED(130, 140, 412, QNI_F32),
    };
    for (int i = 0; i < QNI_NUM_GEMM_KERNELS; i++) {
        if (i != QNI_GEMM_FP8_FN) { // which repairs what gfx942 reads as FNUZ
            run_levels((qni_gemm_kernel_id)i, &specs[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest gfx90a[] = {cmocka_unit_test(gfx90a_problems_agree),
                                        cmocka_unit_test(converted_levels_agree)};
    const struct CMUnitTest gfx950[] = {cmocka_unit_test(gfx950_problems_agree),
                                        cmocka_unit_test(gfx950_levels_agree)};
    const struct CMUnitTest gfx1151[] = {cmocka_unit_test(rdna_problems_agree),
                                         cmocka_unit_test(converted_levels_agree)};
    const struct CMUnitTest gfx1201[] = {cmocka_unit_test(rdna_problems_agree),
                                         cmocka_unit_test(gfx1201_levels_agree)};
    int failed = cmocka_run_group_tests(gfx90a, open_gfx90a, close_device);
    failed += cmocka_run_group_tests(gfx950, open_gfx950, close_device);
    failed += cmocka_run_group_tests(gfx1151, open_gfx1151, close_device);
    return failed + cmocka_run_group_tests(gfx1201, open_gfx1201, close_device);
}
