// SPDX-License-Identifier: Apache-2.0
// Tests of the gemm family's GPU kernels on the simulated MI300X: every check problem, and shapes
// with long loops, with many tiles, or with groups like those of a real model. Each shape takes at
// most 0.3 GMAC.
#include "gemm_test_case.h"

static int open_gfx942(void **) {
    return open_device("sim:gfx942");
}

static void check_problems_agree(void **) {
    try_op(&qni_op_gemm);
    try_op(&qni_op_gemm_pack);
}

static void run_all_kernels(const qni_gemm_spec *spec) {
    qni_gemm_case c;
    int ran = 0;
    assert_int_equal(qni_gemm_case_create(&c, stream, spec, 4), QN_OK);
    for (int i = 0; i < qni_op_gemm.num_variants; i++)
        ran += run_kernel(&qni_op_gemm.variants[i], &c);
    assert_int_not_equal(ran, 0);
    qni_gemm_case_destroy(&c);
}

#define FNUZ QNI_E4M3FNUZ
#define FN QNI_E4M3FN
#define BF QNI_BF16
#define F32 QNI_F32
#define PACKED(M, N, K, A, D, ...)                                                                 \
    {.m = M,                                                                                       \
     .n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = A,                                                                                 \
     .dtype_b = FNUZ,                                                                              \
     .dtype_d = D,                                                                                 \
     .is_packed = true,                                                                            \
     __VA_ARGS__}

#define UNPACKED(M, N, K, AB, D, ...)                                                              \
    {.m = M, .n = N, .k = K, .dtype_a = AB, .dtype_b = AB, .dtype_d = D, __VA_ARGS__}

static const qni_gemm_spec long_loops[] = {
    PACKED(512, 256, 640, FNUZ, BF),
    PACKED(384, 300, 768, FNUZ, F32, .is_strided = true),
    PACKED(257, 130, 2180, FNUZ, F32),
    PACKED(260, 256, 640, FN, BF),
    PACKED(40, 256, 7168, FNUZ, BF),
    PACKED(1, 1056, 7168, FN, F32),
    PACKED(8, 576, 4100, FNUZ, BF, .is_strided = true, .adds_c = true),
    UNPACKED(300, 260, 1172, FNUZ, BF),
    UNPACKED(129, 140, 640, FN, F32, .is_strided = true, .adds_c = true),
};

/** Problems with many tiles: the order in which workgroups take them has full runs, a rest, and
 *  bands of several heights. */
static const qni_gemm_spec many_tiles[] = {
    PACKED(2304, 2176, 8, FNUZ, BF),
    PACKED(1408, 1408, 12, FN, BF),
    UNPACKED(2304, 2176, 8, FNUZ, BF),
};

static const qni_gemm_spec groups[] = {
    PACKED(0, 256, 384, FNUZ, BF, .grouping = QN_GEMM_GROUPED_INDEX, .groups = 6),
    PACKED(0, 256, 384, FNUZ, BF, .grouping = QN_GEMM_GROUPED_ENDS, .groups = 6, .m_alignment = 16,
           .zero_padding = true),
    PACKED(320, 128, 512, FNUZ, BF, .grouping = QN_GEMM_GROUPED_MASKED, .groups = 8),
    // More groups than a wave has lanes.
    PACKED(0, 64, 40, FNUZ, BF, .grouping = QN_GEMM_GROUPED_ENDS, .groups = 150, .m_alignment = 8),
    PACKED(64, 256, 768, FN, BF, .grouping = QN_GEMM_GROUPED_MASKED, .groups = 16, .expected_m = 4),
    UNPACKED(0, 256, 384, FNUZ, BF, .grouping = QN_GEMM_GROUPED_INDEX, .groups = 6),
    UNPACKED(0, 256, 384, FN, BF, .grouping = QN_GEMM_GROUPED_ENDS, .groups = 6, .m_alignment = 16,
             .zero_padding = true),
    UNPACKED(320, 128, 512, FNUZ, BF, .grouping = QN_GEMM_GROUPED_MASKED, .groups = 8),
};

/** Runs all problems of a table, with a sanitizer every third. */
static void run_table(const qni_gemm_spec *specs, size_t num) {
    for (size_t i = 0; i < num; i += QNI_IS_SANITIZED ? 3 : 1) {
        assert_true(specs[i].m * specs[i].n * specs[i].k <= 300'000'000);
        run_all_kernels(&specs[i]);
    }
}

static void long_loops_agree(void **) {
    run_table(long_loops, sizeof long_loops / sizeof *long_loops);
}
static void many_tiles_agree(void **) {
    run_table(many_tiles, sizeof many_tiles / sizeof *many_tiles);
}
static void groups_agree(void **) {
    run_table(groups, sizeof groups / sizeof *groups);
}

// ---- the choice: pairs of kernels, so that another one changes no line here

typedef struct preference {
    int64_t m, n, groups;
    qn_gemm_grouping grouping;
    qni_dtype dtype_a;
    const char *kernel, *dearer;
} preference;

static const qni_variant *named(const char *name) {
    const qni_variant *found = qni_variant_find(&qni_op_gemm, name, strlen(name));
    assert_non_null(found);
    return found;
}

/** What a kernel states for the problem; without end if it cannot run or states nothing. */
static double cost_of(const char *name, const qni_gemm_problem *p) {
    const qni_variant *variant = named(name);
    if (!variant->cost || !qni_variant_fits(variant, device, p, nullptr))
        return INFINITY;
    return variant->cost(variant, device, p);
}

enum { K = 7168 };

/** Fails unless a problem, of which `form` has the rest, costs less by the preferred kernel. */
static void prefers(const preference *c, const qni_gemm_problem *form) {
    qni_gemm_problem p = *form;
    p.grouping = c->grouping, p.groups = c->groups;
    p.m_alignment = 128, p.expected_m = c->m / c->groups;
    p.dtype_a = c->dtype_a, p.dtype_d = BF;
    p.m = c->m, p.n = c->n, p.k = K;
    p.a_row = p.b_n = K, p.a_k = p.b_k = 1;
    const double cost = cost_of(c->kernel, &p), other = cost_of(c->dearer, &p);
    if (!(cost < other))
        fail_msg("m %ld n %ld: %s %g, %s %g", (long)c->m, (long)c->n, c->kernel, cost, c->dearer,
                 other);
}

static void choices_are_kept(void **) {
    static const preference table[] = {
        {1, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_16x32", "gemm.fp8_decode"},
        {64, 512, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_split_16x16", "gemm.fp8_rows_16x32"},
        {256, 512, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_16x32", "gemm.fp8_split_16x16"},
        {1, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_16x32", "gemm.fp8_split_16x16"},
        {64, 4096, 1, QN_GEMM_DENSE, FN, "gemm.fp8_decode", "gemm.fp8_mfma_fn_128x128"},
        {65, 576, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_16x32", "gemm.fp8_mfma_128x128"},
        {128, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_32x64", "gemm.fp8_mfma_128x128"},
        {512, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_rows_32x64", "gemm.fp8_mfma_128x128"},
        {1024, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_128x128", "gemm.fp8_rows_32x64"},
        {65, 4096, 1, QN_GEMM_DENSE, FN, "gemm.fp8_mfma_fn_128x128", "gemm.any_fp8"},
        // 304 units have one workgroup each, or fewer: deep stages
        {512, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_64x128", "gemm.fp8_rows_32x64"},
        {1024, 3072, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_96x128", "gemm.fp8_mfma_64x128"},
        {1024, 4608, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_128x128_alone",
         "gemm.fp8_mfma_128x128"},
        // two share a unit
        {4096, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_128x128",
         "gemm.fp8_mfma_128x128_alone"},
        {4096, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_128x128", "gemm.fp8_mfma_256x128"},
        // 5 tiles of 128 rows, 3 of 256
        {640, 65536, 1, QN_GEMM_DENSE, FNUZ, "gemm.fp8_mfma_128x128", "gemm.fp8_mfma_256x128"},
        {8192, 7168, 8, QN_GEMM_GROUPED_INDEX, FNUZ, "gemm.fp8_mfma_128x128",
         "gemm.fp8_mfma_256x128"},
        // 32 rows a group on average, of 128: half of the groups are empty or have more
        {8192, 7168, 256, QN_GEMM_GROUPED_ENDS, FNUZ, "gemm.fp8_mfma_64x128", "gemm.fp8_decode"},
        {8192, 7168, 256, QN_GEMM_GROUPED_MASKED, FNUZ, "gemm.fp8_rows_32x64",
         "gemm.fp8_mfma_64x128"},
        {2048, 7168, 32, QN_GEMM_GROUPED_MASKED, FNUZ, "gemm.fp8_mfma_64x128",
         "gemm.fp8_rows_32x64"},
        {8192, 7168, 32, QN_GEMM_GROUPED_MASKED, FNUZ, "gemm.fp8_mfma_128x128",
         "gemm.fp8_mfma_256x128"},
        {16384, 7168, 256, QN_GEMM_GROUPED_ENDS, FNUZ, "gemm.fp8_mfma_64x128",
         "gemm.fp8_mfma_128x128"},
        {64, 4096, 1, QN_GEMM_DENSE, FNUZ, "gemm.any_fp8", "gemm.any"},
    };
    static const float scales[1]; // nothing reads them
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        prefers(&table[i], &(qni_gemm_problem){.dtype_b = FNUZ,
                                               .scale_a = scales,
                                               .scale_b = scales,
                                               .scale_a_group = table[i].m * (K / 128),
                                               .scale_a_row = K / 128,
                                               .scale_a_kb = 1,
                                               .scale_b_group = table[i].n / 128 * (K / 128),
                                               .scale_b_nb = K / 128,
                                               .scale_b_kb = 1,
                                               .scale_b_columns = 128,
                                               .is_packed = true});
}

/** Products of bf16 and f16: what few rows of narrow and wide matrices, and many rows, go to. */
static void choices_of_halves_are_kept(void **) {
    static const preference table[] = {
        {1, 128, 1, QN_GEMM_DENSE, BF, "gemm.bf16_rows_16x16", "gemm.bf16_mfma_64x64"},
        {16, 4096, 1, QN_GEMM_DENSE, BF, "gemm.bf16_rows_16x16", "gemm.bf16_rows_32x32"},
        {16, 131072, 1, QN_GEMM_DENSE, BF, "gemm.bf16_rows_16x16", "gemm.bf16_rows_32x32"},
        {16, 131072, 1, QN_GEMM_DENSE, QNI_F16, "gemm.f16_rows_16x16", "gemm.f16_mfma_64x64"},
        {32, 4096, 1, QN_GEMM_DENSE, BF, "gemm.bf16_rows_16x16", "gemm.bf16_rows_32x32"},
        {64, 4096, 1, QN_GEMM_DENSE, QNI_F16, "gemm.f16_rows_32x32", "gemm.f16_rows_16x16"},
        {128, 4096, 1, QN_GEMM_DENSE, BF, "gemm.bf16_rows_32x32", "gemm.bf16_mfma_64x64"},
        {128, 28672, 1, QN_GEMM_DENSE, BF, "gemm.bf16_mfma_64x64", "gemm.bf16_rows_32x32"},
        {512, 4096, 1, QN_GEMM_DENSE, BF, "gemm.bf16_mfma_64x64", "gemm.bf16_rows_32x32"},
        {8192, 7168, 256, QN_GEMM_GROUPED_ENDS, BF, "gemm.bf16_mfma_64x64", // 32 rows a group
         "gemm.bf16_rows_16x16"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        prefers(&table[i], &(qni_gemm_problem){.dtype_b = table[i].dtype_a});
}

// ---- other levels of optimisation, other kernels than the choice

static void every_level_agrees(void **) {
    static const qni_gemm_spec specs[] = {
        PACKED(130, 140, 412, FNUZ, BF, .fill = QNI_FILL_ANY),
        PACKED(130, 140, 412, FN, BF, .fill = QNI_FILL_ANY),
        UNPACKED(130, 140, 412, FNUZ, BF, .fill = QNI_FILL_ANY),
        UNPACKED(130, 140, 412, FN, BF, .fill = QNI_FILL_ANY),
        UNPACKED(130, 140, 412, FNUZ, BF, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ONE),
        {.m = 70, .n = 66, .k = 200, .dtype_a = BF, .dtype_b = BF, .dtype_d = BF},
        {.m = 70, .n = 66, .k = 200, .dtype_a = QNI_F16, .dtype_b = QNI_F16, .dtype_d = BF},
        {.m = 70, .n = 66, .k = 200, .dtype_a = QNI_F16, .dtype_b = FN, .dtype_d = BF},
        {.m = 70, .n = 66, .k = 200, .dtype_a = F32, .dtype_b = QNI_F16, .dtype_d = F32},
        CASES_ACROSS(BF),
        CASES_ACROSS(QNI_F16)};
    run_levels(specs, sizeof specs / sizeof *specs);
}

/** On gfx942 plain calls of FP8 go to the FP8 cores. This test forces gemm.any, which converts FP8
 *  to bf16, as on targets without such cores. */
static void fp8_through_bf16_agrees(void **) {
    static const qni_gemm_spec specs[] = {
        {.m = 70, .n = 66, .k = 200, .dtype_a = FN, .dtype_b = FNUZ, .dtype_d = F32},
        PACKED(65, 130, 260, FN, BF, .fill = QNI_FILL_ANY),
        PACKED(33, 66, 130, FNUZ, BF, .fill = QNI_FILL_NAN),
        {.m = 40,
         .n = 70,
         .k = 150,
         .dtype_a = FN,
         .dtype_b = FN,
         .dtype_d = F32,
         .fill = QNI_FILL_TINY,
         .a_transposed = true,
         .b_transposed = true},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        run_all_kernels(&specs[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_problems_agree), cmocka_unit_test(long_loops_agree),
        cmocka_unit_test(many_tiles_agree),     cmocka_unit_test(groups_agree),
        cmocka_unit_test(choices_are_kept),     cmocka_unit_test(choices_of_halves_are_kept),
        cmocka_unit_test(every_level_agrees),   cmocka_unit_test(fp8_through_bf16_agrees),
    };
    return cmocka_run_group_tests(tests, open_gfx942, close_device);
}
