// SPDX-License-Identifier: Apache-2.0
// The weakest source that a kernel relies on: over branches and loops, past what is never reached,
// in both wave sizes.
#include "../exec/exec_testing.h"

/** Returns the evidence of a program at 0x1000; names are those of sim_kernel_evidence. */
static char evidence_of(const char *chip, const char *source, char names[256]) {
    size_t size;
    uint8_t *bytes = assemble(chip, source, &size);
    sim_kernel kernel = {.entry = 0x1000, .wave32 = sim_chip_by_name(chip)->wave_size == 32};
    sim_text text = {.chip = sim_chip_by_name(chip), .bytes = bytes, .start = 0x1000, .size = size};
    const char known = sim_kernel_evidence(&text, &kernel, names, 256);
    free(bytes);
    return known;
}

static void test_weakest(void **) {
    char names[256];
    static const char plain[] = "v_add_u32_e32 v1, v2, v3\n s_endpgm\n";
    assert_int_equal(evidence_of("gfx942", plain, names), 'i');
    assert_non_null(strstr(names, "v_add_u32"));
    assert_non_null(strstr(names, "s_endpgm"));
    static const char exact[] = "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]\n"
                                "v_exp_f32_e32 v1, v2\n v_exp_f32_e32 v3, v2\n s_endpgm\n";
    assert_int_equal(evidence_of("gfx942", exact, names), 'l');
    assert_string_equal(names, "v_exp_f32");
    static const char inferred[] =
        "v_exp_f32_e32 v1, v2\n v_sin_f32_e32 v1, v2\n v_cos_f32_e32 v1, v2\n"
        "s_endpgm\n";
    assert_int_equal(evidence_of("gfx942", inferred, names), '?');
    assert_string_equal(names, "v_sin_f32 v_cos_f32");
}

static void test_flow(void **) {
    char names[256];
    static const char loop[] = "s_nop 0\n s_branch 2\n v_sin_f32_e32 v1, v2\n s_endpgm\n" // dead
                               "s_cbranch_scc0 2\n s_cbranch_execz -6\n s_endpgm\n"
                               "v_exp_f32_e32 v1, v2\n s_cbranch_scc1 -5\n s_endpgm\n";
    assert_int_equal(evidence_of("gfx942", loop, names), 'l');
    assert_string_equal(names, "v_exp_f32");
    static char longer[8192] = "";
    for (int i = 0; i < 300; i++)
        strcat(longer, "v_mov_b32_e32 v1, v2\n");
    strcat(longer, "v_sin_f32_e32 v1, v2\n s_endpgm\n");
    assert_int_equal(evidence_of("gfx90a", longer, names), '?');
    assert_string_equal(names, "v_sin_f32");
}

static void test_dual(void **) {
    char names[256];
    static const char dual[] =
        "v_dual_mov_b32 v1, v2 :: v_dual_add_f32 v4, v5, v7\n"
        "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]\n s_endpgm\n";
    assert_int_equal(evidence_of("gfx1201", dual, names), '?');
    assert_string_equal(names, "v_wmma_f32_16x16x16_f16");
}

static void test_not_executed(void **) {
    char names[256];
    assert_int_equal(evidence_of("gfx942", "s_setkill 1\n s_endpgm\n", names), 0);
    assert_int_equal(evidence_of("gfx942", "s_branch 1\n s_setkill 1\n s_endpgm\n", names), 'i');
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weakest), cmocka_unit_test(test_flow),
                                       cmocka_unit_test(test_dual),
                                       cmocka_unit_test(test_not_executed)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
