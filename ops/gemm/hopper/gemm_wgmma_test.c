// SPDX-License-Identifier: Apache-2.0
// The kernels for Hopper's tensor cores, as far as no such card is needed: which tile costs least,
// and by which words problems are refused. quern check runs them on a card.
#include "../gemm_test_case.h"

static alignas(16) uint8_t memory[64];

/** What the choice sees of an H200. */
static qn_device h200(void) {
    qn_device chip = {.target = qni_target_find("sm_90a", 6)};
    chip.features = chip.target->features;
    chip.info.num_compute_units = 132;
    return chip;
}

/** FP8 comes with scales of blocks, for up to as many groups as the tests have. */
static qni_gemm_problem dense(qni_dtype dtype, int64_t m, int64_t n, int64_t k) {
    const int64_t kb = qni_pieces(k, 128);
    qni_gemm_problem p = {.dtype_a = dtype,
                          .dtype_b = dtype,
                          .dtype_d = QNI_BF16,
                          .groups = 1,
                          .m = m,
                          .n = n,
                          .k = k,
                          .d = memory,
                          .a = memory,
                          .b = memory,
                          .d_row = n,
                          .a_row = k,
                          .a_k = 1,
                          .b_n = k,
                          .b_k = 1,
                          .m_alignment = 128};
    if (dtype == QNI_E4M3FN) {
        p.scale_a = p.scale_b = (const float *)memory;
        p.scale_a_group = m * kb, p.scale_a_row = kb, p.scale_a_kb = 1;
        p.scale_b_group = qni_pieces(n, 128) * kb, p.scale_b_nb = kb, p.scale_b_kb = 1;
        p.scale_b_columns = 128;
    }
    return p;
}

static const qni_variant *named(const char *name) {
    const qni_variant *variant = qni_variant_find(&qni_op_gemm, name, strlen(name));
    assert_non_null(variant);
    return variant;
}

/** The fitting kernel of least cost; the first of equals. */
static const char *cheapest(const qni_gemm_problem *p) {
    const qn_device chip = h200();
    const char *best = "none";
    double least = INFINITY;
    for (int v = 0; v < qni_op_gemm.num_variants; v++) {
        const qni_variant *variant = &qni_op_gemm.variants[v];
        if (variant->cost && qni_device_meets(&chip, variant->needs) &&
            variant->supports(variant, &chip, p, nullptr) &&
            variant->cost(variant, &chip, p) < least) {
            least = variant->cost(variant, &chip, p);
            best = variant->name;
        }
    }
    return best;
}

/** Shapes whose best tile was measured, and is ahead of the next one by more than 2 %. */
static void tiles_are_those_that_were_fastest(void **) {
    static const struct {
        qni_dtype dtype;
        int64_t m, n, k;
        const char *kernel;
    } cases[] = {
        {QNI_E4M3FN, 4096, 24576, 1536, "gemm.fp8_wgmma_128x192"},
        {QNI_E4M3FN, 4096, 7168, 16384, "gemm.fp8_wgmma_256x128"},
        {QNI_E4M3FN, 128, 2112, 7168, "gemm.fp8_wgmma_64x32"},
        {QNI_E4M3FN, 128, 4096, 7168, "gemm.fp8_wgmma_64x64"},
        {QNI_E4M3FN, 64, 2112, 7168, "gemm.fp8_wgmma_64x32"},
        {QNI_E4M3FN, 64, 32768, 512, "gemm.fp8_wgmma_64x128"},
        {QNI_BF16, 4608, 3072, 12288, "gemm.bf16_wgmma_192x192"},
        {QNI_BF16, 4096, 4096, 7168, "gemm.bf16_wgmma_128x256"},
        {QNI_BF16, 512, 12288, 3072, "gemm.bf16_wgmma_128x192"},
        {QNI_BF16, 512, 4096, 4096, "gemm.bf16_wgmma_128x128"},
        {QNI_BF16, 128, 4096, 7168, "gemm.bf16_wgmma_64x64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qni_gemm_problem p = dense(cases[i].dtype, cases[i].m, cases[i].n, cases[i].k);
        assert_string_equal(cheapest(&p), cases[i].kernel);
    }
}

/** Groups that have a row or none take tiles with a workgroup each, and others do not. */
static void groups_of_few_rows_have_a_tile(void **) {
    qni_gemm_problem p = dense(QNI_E4M3FN, 128, 4096, 7168);
    p.grouping = QN_GEMM_GROUPED_ENDS, p.groups = 256, p.b_group = p.n * p.k, p.m_alignment = 1;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_16x128");
    p.m = 2048;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_64x128");
}

/** Products with an epilogue take the tiles, too. */
static void epilogues_are_taken(void **) {
    qni_gemm_problem p = dense(QNI_BF16, 4608, 12288, 3072);
    p.bias = memory, p.activation = QN_GEMM_GELU_TANH;
    assert_non_null(strstr(cheapest(&p), "gemm.bf16_wgmma_"));
    p = dense(QNI_E4M3FN, 64, 4096, 7168);
    p.gate = memory, p.gate_rows = 64, p.c = memory, p.c_row = p.n;
    assert_non_null(strstr(cheapest(&p), "gemm.fp8_wgmma_"));
}

/** So do dense products whose d is e4m3fn. */
static void codes_are_taken(void **) {
    qni_gemm_problem p = dense(QNI_E4M3FN, 4608, 12288, 3072);
    p.dtype_d = QNI_E4M3FN, p.bias = memory, p.activation = QN_GEMM_GELU_TANH;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_192x128");
    p.m = 512;
    assert_non_null(strstr(cheapest(&p), "gemm.fp8_wgmma_"));
    p.m = 1;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_64x128");
}

/** And those with SiLU-and-multiply, of any grouping; of codes where two tiles side by side fit. */
static void pairs_are_taken(void **) {
    qni_gemm_problem p = dense(QNI_BF16, 4096, 28672, 4096);
    p.activation = QN_GEMM_SILU_AND_MUL, p.bias = memory;
    assert_string_equal(cheapest(&p), "gemm.bf16_wgmma_silu_128x256");
    p.dtype_d = QNI_F16, p.gate = memory, p.gate_rows = 1, p.c = memory, p.c_row = p.n / 2 + 1;
    assert_non_null(strstr(cheapest(&p), "gemm.bf16_wgmma_silu_"));
    p = dense(QNI_E4M3FN, 32768, 4096, 7168);
    p.activation = QN_GEMM_SILU_AND_MUL, p.bias = memory;
    p.grouping = QN_GEMM_GROUPED_INDEX, p.groups = 8, p.b_group = p.n * p.k;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_silu_128x192");
    p.dtype_d = QNI_E4M3FN;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_silu_128x128");
    p = dense(QNI_E4M3FN, 64, 4096, 7168), p.activation = QN_GEMM_SILU_AND_MUL;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_silu_64x32");
    p.dtype_d = QNI_E4M3FN;
    assert_string_equal(cheapest(&p), "gemm.fp8_wgmma_silu_64x128");
}

/** The same product with m contiguous in a, n contiguous in b. */
static qni_gemm_problem across(qni_gemm_problem p, bool is_a, bool is_b) {
    if (is_a)
        p.a_row = 1, p.a_k = p.m;
    if (is_b)
        p.b_n = 1, p.b_k = p.n;
    return p;
}

static void assert_tile_of(const char *family, qni_gemm_problem p) {
    const char *name = cheapest(&p);
    if (!strstr(name, family))
        fail_msg("%s, not %s", name, family);
}

/** bf16 takes the tiles in each layout, with an epilogue and in groups too. */
static void layouts_have_tiles(void **) {
    static const char *const families[] = {"", "gemm.bf16_wgmma_tt_", "gemm.bf16_wgmma_nn_",
                                           "gemm.bf16_wgmma_tn_"};
    for (int i = 1; i < 4; i++) {
        const char *family = families[i];
        qni_gemm_problem p = across(dense(QNI_BF16, 4096, 4096, 7168), i & 1, i & 2);
        assert_tile_of(family, p);
        p.bias = memory, p.activation = QN_GEMM_GELU_TANH;
        assert_tile_of(family, p);
        p = across(dense(QNI_BF16, 64, 2112, 7168), i & 1, i & 2);
        assert_int_equal(named(cheapest(&p))->config.rows, 64);
        p.grouping = QN_GEMM_GROUPED_INDEX, p.groups = 4, p.b_group = p.n * p.k;
        assert_tile_of(family, p);
    }
}

static void assert_refused(const char *kernel, const qni_gemm_problem *p, const char *words) {
    const qn_device chip = h200();
    const qni_variant *variant = named(kernel);
    qni_reason why = {""};
    assert_false(variant->supports(variant, &chip, p, &why));
    if (!strstr(why.text, words))
        fail_msg("%s: \"%s\" lacks \"%s\"", kernel, why.text, words);
}

/** Heads whose rows take turns in a and d, as in MLA's absorbed products. */
static qni_gemm_problem heads(qni_dtype dtype, int64_t count, int64_t m, int64_t n, int64_t k) {
    qni_gemm_problem p = dense(dtype, m, n, k);
    p.grouping = QN_GEMM_GROUPED_MASKED, p.groups = count, p.expected_m = m;
    p.a_row = count * k, p.a_group = k;
    p.d_row = count * n, p.d_group = n;
    p.b_group = n * k;
    return p;
}

static void groups_may_lie_anywhere(void **) {
    assert_tile_of("gemm.bf16_wgmma_128x128", heads(QNI_BF16, 128, 4096, 128, 512));
    assert_tile_of("gemm.bf16_wgmma_64x", heads(QNI_BF16, 128, 32, 128, 512));
    assert_tile_of("gemm.bf16_wgmma_nn_",
                   across(heads(QNI_BF16, 128, 4096, 512, 128), false, true));
    assert_tile_of("gemm.fp8_wgmma_128x128", heads(QNI_E4M3FN, 8, 4096, 1024, 4096));
    qni_gemm_problem p = dense(QNI_BF16, 128, 128, 128);
    p.grouping = QN_GEMM_GROUPED_INDEX, p.groups = 2, p.b_group = 128 * 128 + 8;
    assert_tile_of("gemm.bf16_wgmma_", p);
    p.b_group = INT64_C(1) << 38; // too many rows, one below the other
    assert_tile_of("gemm.bf16_wgmma_", p);
}

/** Batches are groups whose rows are all real, and may share b. */
static void batches_are_taken(void **) {
    qni_gemm_problem p = dense(QNI_BF16, 256, 1, 512);
    p.grouping = QN_GEMM_GROUPED_MASKED, p.groups = 64, p.expected_m = p.m;
    p.a_group = p.m * p.k, p.d_group = p.m * p.n + 8;
    assert_tile_of("gemm.bf16_wgmma_", p); // of one row of b, which all share
    p.b_group = p.k;
    assert_tile_of("gemm.bf16_wgmma_", p);
    p = dense(QNI_E4M3FN, 256, 512, 512);
    p.grouping = QN_GEMM_GROUPED_MASKED, p.groups = 64, p.expected_m = p.m;
    p.a_group = p.m * p.k, p.d_group = p.m * p.n, p.b_group = p.n * p.k;
    assert_tile_of("gemm.fp8_wgmma_", p);
    p.dtype_scale_b = QNI_I32;
    assert_refused("gemm.fp8_wgmma_128x128", &p, "scale_b is i32, takes f32");
    p.dtype_scale_a = QNI_E8M0FNU;
    assert_refused("gemm.fp8_wgmma_128x128", &p, "scale_a is e8m0fnu, takes f32");
    p = heads(QNI_BF16, 8, 64, 128, 128), p.c = memory;
    assert_refused("gemm.bf16_wgmma_128x128", &p, "takes no c of batches");
    p.activation = QN_GEMM_SILU_AND_MUL;
    assert_refused("gemm.bf16_wgmma_silu_64x64", &p, "takes no c of batches");
}

/** Groups count by the rows that each is likely to have. */
static void groups_count_by_their_rows(void **) {
    qni_gemm_problem p = dense(QNI_E4M3FN, 4096, 4096, 7168);
    p.grouping = QN_GEMM_GROUPED_MASKED;
    p.groups = 32;
    p.expected_m = 20;
    p.a_group = p.m * p.k, p.b_group = p.n * p.k, p.d_group = p.m * p.n;
    assert_int_equal(named(cheapest(&p))->config.rows, 64);
    p.expected_m = 4096;
    assert_int_equal(named(cheapest(&p))->config.rows, 256);
    p.grouping = QN_GEMM_GROUPED_INDEX; // groups begin at multiples of 128
    assert_true(named(cheapest(&p))->config.rows <= 128);
}

static void others_are_refused_by_name(void **) {
    const char *fp8 = "gemm.fp8_wgmma_128x128", *bf16 = "gemm.bf16_wgmma_128x192";
    qni_gemm_problem p = dense(QNI_E4M3FN, 64, 128, 136);
    assert_refused(fp8, &p, "stride 136 of a is 136 bytes, needs a multiple of 16");
    p = dense(QNI_E4M3FN, 1, 128, 136);
    assert_refused(fp8, &p, "stride 136 of b is 136 bytes");
    p = dense(QNI_E4M3FN, 64, 128, 0);
    assert_refused(fp8, &p, "a has 0 in dimension 0");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.is_packed = true;
    assert_refused(fp8, &p, "b is packed");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.b_n = 1, p.b_k = 128;
    assert_refused(fp8, &p, "k is not contiguous in b");
    p = across(dense(QNI_E4M3FN, 64, 128, 128), true, false);
    assert_refused(fp8, &p, "k is not contiguous in a");
    assert_refused("gemm.bf16_wgmma_tt_64x64", &p, "b e4m3fn; takes bf16");
    p = dense(QNI_BF16, 64, 128, 128);
    assert_refused("gemm.bf16_wgmma_nn_64x64", &p, "n is not contiguous in b");
    assert_refused("gemm.bf16_wgmma_tt_64x64", &p, "m is not contiguous in a");
    p = across(dense(QNI_BF16, 68, 132, 128), false, true);
    assert_refused(bf16, &p, "k is not contiguous in b");
    assert_refused("gemm.bf16_wgmma_nn_64x64", &p, "stride 132 of b is 264 bytes");
    p = across(dense(QNI_BF16, 68, 132, 128), true, false);
    assert_refused("gemm.bf16_wgmma_tt_64x64", &p, "stride 68 of a is 136 bytes");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.a = memory + 8;
    assert_refused(fp8, &p, "a is not aligned to 16 bytes");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.dtype_b = QNI_E4M3FNUZ;
    assert_refused(fp8, &p, "a is e4m3fn, b e4m3fnuz; takes e4m3fn");
    p = dense(QNI_E4M3FN, 64, 128, 128);
    assert_refused(bf16, &p, "b e4m3fn; takes bf16");
    p.grouping = QN_GEMM_GROUPED_INDEX;
    assert_refused("gemm.fp8_wgmma_256x128", &p, "multiples of 128 rows, the tile has 256");
    p = dense(QNI_BF16, 64, 128, 128), p.activation = QN_GEMM_SILU_AND_MUL;
    assert_refused(bf16, &p, "takes no SiLU-and-multiply");
    p.dtype_d = QNI_E4M3FN;
    assert_refused("gemm.bf16_wgmma_silu_64x64", &p, "d is e4m3fn with 64 columns; takes no FP8");
    p = dense(QNI_E4M3FN, 64, 256, 128), p.dtype_d = QNI_E4M3FN;
    assert_refused("gemm.fp8_wgmma_silu_64x128", &p, "takes SiLU-and-multiply alone");
    p.activation = QN_GEMM_SILU_AND_MUL, p.d = memory + 8;
    assert_refused("gemm.fp8_wgmma_silu_64x128", &p, "takes rows at multiples of 16 bytes");
    p.d = memory, p.gate = memory, p.gate_rows = 64;
    assert_refused("gemm.fp8_wgmma_silu_64x128", &p, "d is e4m3fn; then takes no gate");
    p.gate = nullptr, p.n = 128;
    assert_refused("gemm.fp8_wgmma_silu_64x128", &p, "64 columns; takes e4m3fn with a multiple of");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.dtype_d = QNI_F16;
    assert_refused(fp8, &p, "takes no bias or activation of groups, and d of bf16");
    p = dense(QNI_E4M3FN, 64, 144, 128), p.dtype_d = QNI_E4M3FN;
    assert_refused(fp8, &p, "d is e4m3fn with 144 columns; takes e4m3fn with a multiple of 128");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.dtype_d = QNI_E4M3FN, p.gate = memory, p.gate_rows = 64;
    assert_refused(fp8, &p, "d is e4m3fn; then takes no gate");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.dtype_d = QNI_E4M3FN, p.d = memory + 8;
    assert_refused(fp8, &p, "d is not aligned to 16 bytes");
    p = dense(QNI_BF16, 64, 128, 128), p.dtype_d = QNI_E4M3FN;
    assert_refused(bf16, &p, "d is e4m3fn with 128 columns; takes no FP8");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.grouping = QN_GEMM_GROUPED_MASKED, p.bias = memory;
    assert_refused(fp8, &p, "no bias or activation of groups");
    p = dense(QNI_E4M3FN, 64, 128, 128), p.bias = memory;
    assert_refused("gemm.fp8_wgmma_256x128", &p, "takes no bias, activation or gate");
    p = dense(QNI_BF16, 64, 128, 128), p.groups = 2, p.b_group = 128 * 128 + 8;
    p.grouping = QN_GEMM_GROUPED_INDEX;
    assert_refused(bf16, &p, "groups of b are 16392 elements apart, no multiple of its rows' 128");
    p.b_group = INT64_C(1) << 38;
    assert_refused(bf16, &p, "b has 2147483776 rows in all, needs fewer than 2^31");
    p.b_group = 128 * 128 + 4;
    assert_refused("gemm.bf16_wgmma_128x128", &p, "stride 16388 of b is 32776 bytes");
    p = dense(QNI_BF16, 64, 128, 100);
    assert_refused(bf16, &p, "stride 100 of a is 200 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_those_that_were_fastest),
        cmocka_unit_test(groups_of_few_rows_have_a_tile),
        cmocka_unit_test(epilogues_are_taken),
        cmocka_unit_test(codes_are_taken),
        cmocka_unit_test(pairs_are_taken),
        cmocka_unit_test(layouts_have_tiles),
        cmocka_unit_test(groups_may_lie_anywhere),
        cmocka_unit_test(batches_are_taken),
        cmocka_unit_test(groups_count_by_their_rows),
        cmocka_unit_test(others_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
