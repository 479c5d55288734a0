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
#define UNPACKED(M, N, K, AB, ...)                                                                 \
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
        UNPACKED(70, 66, 200, QNI_E4M3FN),
        UNPACKED(70, 140, 200, QNI_E4M3FN, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ONE),
        UNPACKED(70, 66, 200, BF),
        UNPACKED(70, 66, 200, QNI_F16),
        UNPACKED(70, 66, 200, QNI_F32),
        CASES_ACROSS(BF),
        CASES_ACROSS(QNI_F16)};
    run_levels(specs, sizeof specs / sizeof *specs);
}

// ---- RDNA's kernels of 16 bits, whose images have one for each layout

static const struct {
    const char *name;
    qni_dtype dtype;
} of_layouts[] = {{"gemm.bf16_wmma_32x64", BF},
                  {"gemm.bf16_wmma_128x128", BF},
                  {"gemm.f16_wmma_32x64", QNI_F16},
                  {"gemm.f16_wmma_128x128", QNI_F16}};
enum { OF_LAYOUTS = sizeof of_layouts / sizeof *of_layouts };

static const qni_variant *variant_of_layouts(int i) {
    const char *name = of_layouts[i].name;
    const qni_variant *found = qni_variant_find(&qni_op_gemm, name, strlen(name));
    assert_non_null(found);
    return found;
}

static void layouts_agree_at_levels(void **) {
    for (int i = 0; i < OF_LAYOUTS; i++)
        for (int layout = 1; layout < 4; layout++) {
            const qni_gemm_spec spec = CASE_ACROSS(of_layouts[i].dtype, layout & 1, layout >> 1);
            qni_gemm_case c;
            assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 4), QN_OK);
            run_kernel_levels(variant_of_layouts(i), &c, 1);
            qni_gemm_case_destroy(&c);
        }
}

/** Returns zeros behind which memory ends. */
static void *zeros_at_end(int64_t bytes) {
    void *out, *host = calloc(1, (size_t)bytes);
    assert_non_null(host);
    assert_int_equal(qn_malloc(device, &out, bytes), QN_OK);
    assert_int_equal(device->backend->copy(stream, out, host, bytes, QNI_COPY_TO_DEVICE), QN_OK);
    assert_int_equal(qn_stream_sync(stream), QN_OK);
    free(host);
    return out;
}

/** Runs a kernel on operands behind which memory ends, where the simulator lets nobody read. */
static void run_to_end_of_memory(const qni_variant *variant, const qni_gemm_spec *spec) {
    const int64_t row = spec->k * qni_dtype_bytes(spec->dtype_a);
    qni_gemm_case c;
    assert_int_equal(qni_gemm_case_create(&c, stream, spec, 4), QN_OK);
    void *a = zeros_at_end(spec->m * row), *b = zeros_at_end(spec->n * row);
    qni_gemm_problem p = c.problem;
    p.a = a, p.b = b;
    if (variant->run(variant, stream, &p) != QN_OK || qn_stream_sync(stream) != QN_OK)
        fail_msg("%s on %s: %s", variant->name, c.text, qn_last_error());
    qn_free(device, a);
    qn_free(device, b);
    qni_gemm_case_destroy(&c);
}

/** Runs of rows pass the end of the operands here, and whole lines the end of k. */
static void nothing_behind_operands_is_read(void **) {
    static const int64_t sizes[][3] = {{301, 141, 192}, {3, 5, 136}};
    for (int i = 0; i < OF_LAYOUTS; i++)
        for (int layout = 0; layout < 4; layout++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                qni_gemm_spec spec = CASE_ACROSS(of_layouts[i].dtype, layout & 1, layout >> 1);
                spec.m = sizes[s][0], spec.n = sizes[s][1], spec.k = sizes[s][2];
                run_to_end_of_memory(variant_of_layouts(i), &spec);
            }
}

/** Runs the kernels that convert FP8 to bf16 on the way to LDS. */
static void fp8_through_bf16_agrees(void **) {
    static const qni_gemm_spec fp8 = UNPACKED(40, 66, 130, QNI_E4M3FN);
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
    const struct CMUnitTest of_rdna4[] = {cmocka_unit_test(problems_agree),
                                          cmocka_unit_test(levels_agree),
                                          cmocka_unit_test(layouts_agree_at_levels),
                                          cmocka_unit_test(nothing_behind_operands_is_read)};
    const struct CMUnitTest all[] = {of_rdna4[0], of_rdna4[1]};
    const struct CMUnitTest of_bf16[] = {all[0], all[1], cmocka_unit_test(fp8_through_bf16_agrees)};
    const struct CMUnitTest of_rdna3[] = {of_rdna4[0], of_rdna4[1], of_rdna4[2], of_rdna4[3],
                                          of_bf16[2]};
    int failed = cmocka_run_group_tests(of_bf16, open_gfx90a, close_device);
    failed += cmocka_run_group_tests(all, open_gfx950, close_device);
    failed += cmocka_run_group_tests(of_rdna3, open_gfx1151, close_device);
    return failed + cmocka_run_group_tests(of_rdna4, open_gfx1201, close_device);
}
