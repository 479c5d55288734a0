// SPDX-License-Identifier: Apache-2.0
// The decoder: every instruction that clang makes of the test kernels must bind, random words must
// never crash it, and text must be read to the last token.
#include "../exec/exec_testing.h"

static const char *const chips[] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};

enum { NUM_CHIPS = sizeof chips / sizeof *chips };

/** Compiles the simulator's test kernels; skips the test if there is no clang. */
static uint8_t *compile(const char *chip, const char *level, size_t *size) {
    static const char *const names[] = {"clang-22", "clang-23", "clang", nullptr};
    const char *folder = getenv("QUERN_SOURCE_DIR");
    char source[512], cpu[64], output[] = "/tmp/quern-obj-XXXXXX";
    snprintf(source, sizeof source, "%s/sim/testdata/kernels.c", folder ? folder : ".");
    snprintf(cpu, sizeof cpu, "-mcpu=%s", chip);
    const int out = mkstemp(output);
    const char *argv[] = {nullptr,
                          "-std=gnu23",
                          "-ffreestanding",
                          "-nogpulib",
                          "--target=amdgcn-amd-amdhsa",
                          level,
                          cpu,
                          "-o",
                          output,
                          source,
                          nullptr};
    const int status = run_tool(names, argv);
    uint8_t *text = status ? nullptr : read_text(output, size);
    close(out);
    unlink(output);
    if (!text) {
        print_message("no clang on PATH, or no %s: skipped\n", source);
        skip();
    }
    return text;
}

static size_t check_text(const char *chip, const uint8_t *text, size_t size) {
    size_t count = 0;
    for (size_t at = 0; at < size; count++) {
        sim_inst inst = decode_at(chip, text, size, at);
        assert_non_null(inst.exec);
        at += inst.bytes;
        sim_inst_deinit(&inst);
    }
    return count;
}

static void test_compiled_kernels(void **) {
    static const char *const levels[] = {"-O0", "-O1", "-O3"};
    for (size_t c = 0; c < NUM_CHIPS; c++) {
        for (size_t l = 0; l < 3; l++) {
            size_t size, count;
            uint8_t *text = compile(chips[c], levels[l], &size);
            count = check_text(chips[c], text, size);
            assert_true(count > 300);
            free(text);
        }
    }
}

static void test_random_words(void **) {
    for (unsigned i = 0; i < 30000; i++) {
        uint64_t words[2] = {next_random(), next_random()};
        char error[SIM_ERROR_BYTES] = "";
        sim_inst inst;
        const size_t size = 4 + 4 * (i % 4);
        if (sim_decode(sim_chip_by_name(chips[i % NUM_CHIPS]), (const uint8_t *)words, size, 64,
                       &inst, error)) {
            assert_non_null(inst.exec);
            assert_true(inst.bytes <= size);
            sim_inst_deinit(&inst);
        } else {
            assert_true(strlen(error) > 10);
        }
    }
}

/** Fields that the text has are read back. */
static void test_fields(void **) {
    size_t size, at = 0;
    uint8_t *text = assemble(
        "gfx942",
        "v_add_f32_e64 v1, |v2|, -v3 clamp mul:4\n"
        "v_mov_b32_dpp v1, v2 row_shr:3 row_mask:0xa bank_mask:0x5 bound_ctrl:1\n"
        "v_add_u32_sdwa v1, sext(v2), v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE "
        "src0_sel:BYTE_2 src1_sel:WORD_1\n"
        "buffer_load_dword v9, v[2:3], s[4:7], s8 idxen offen offset:16 sc0\n"
        "v_add_f64 v[2:3], v[4:5], 1.0\n v_add_f16 v1, 1.0, v2\n s_mov_b64 s[2:3], 0xfffffff0\n"
        "s_mov_b64 s[2:3], -16\n ds_read2_b32 v[2:3], v1 offset0:7 offset1:9\n s_branch -3\n",
        &size);
    sim_inst inst = decode_at("gfx942", text, size, at);
    assert_int_equal(inst.src[0].mods, SIM_ABS);
    assert_int_equal(inst.src[1].mods, SIM_NEG);
    assert_true((inst.flags & SIM_CLAMP) && inst.omod == 2 && !inst.plain && inst.dst[0].reg == 1);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.dpp_ctrl, 0x113);
    assert_true(inst.dpp_row_mask == 10 && inst.dpp_bank_mask == 5 &&
                (inst.flags & SIM_DPP_BOUND_CTRL));
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.src[0].mods, SIM_SEXT);
    assert_true(inst.src[0].sdwa_sel == 2 && inst.src[1].sdwa_sel == 5 && inst.sdwa_dst_sel == 5);
    assert_int_equal(inst.sdwa_dst_unused, 2);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.flags & (SIM_OFFEN | SIM_IDXEN | SIM_GLC),
                     SIM_OFFEN | SIM_IDXEN | SIM_GLC);
    assert_true(inst.offset == 16 && inst.src[1].reg == 4 && inst.src[2].reg == 8 &&
                inst.dst[0].reg == 9);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.src[1].value64, UINT64_C(0x3ff0000000000000));
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.src[0].value, 0x3c00);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.src[0].value64, 0xfffffff0);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.src[0].value64, (uint64_t)-16);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_true(inst.offset == 7 && inst.offset1 == 9 && inst.dst[0].count == 2);
    inst = decode_at("gfx942", text, size, at += inst.bytes);
    assert_int_equal(inst.target, inst.pc + 4 - 12);
    free(text);
}

/** The constant 1.0 in an operand of 16 bits: as f16, for packed integers as f32, as bf16. */
static void test_constants_of_16_bits(void **) {
    static const struct {
        const char *chip;
        uint32_t word[2];
        unsigned source;
        uint32_t value;
    } cases[] = {
        {"gfx1151", {0xcc0a4000, 0x180202f2}, 0, 0x3f800000}, // v_pk_add_u16
        {"gfx942", {0xd38f4000, 0x180202f2}, 0, 0x3c00},      // v_pk_add_f16
        {"gfx942", {0xd1330000, 0x0001e501}, 1, 0x3c00},      // v_ldexp_f16
        {"gfx950", {0x7e00b6f2}, 0, 0x3f80},                  // v_cvt_f32_bf16
        {"gfx1151", {0xd6670000, 0x040a02f2}, 0, 0x3f80},     // v_dot2_bf16_bf16
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_inst inst = decode_at(cases[i].chip, (const uint8_t *)cases[i].word, 8, 0);
        assert_int_equal(inst.src[cases[i].source].value, cases[i].value);
    }
}

static void test_unknown(void **) {
    static const uint32_t interp = 0xd4000000; // v_interp_p1_f32 of graphics chips
    char error[SIM_ERROR_BYTES] = "";
    sim_inst inst;
    assert_false(
        sim_decode(sim_chip_by_name("gfx942"), (const uint8_t *)&interp, 4, 0x1234, &inst, error));
    assert_non_null(strstr(error, "d4000000"));
    assert_non_null(strstr(error, "0x1234"));
}

/** Halves with a literal whose first source is no operand are refused. */
static void test_refused_words(void **) {
    static const char *const rdna[] = {"gfx1151", "gfx1201"};
    static const uint32_t words[][2] = {{0x6e0202d1, 0xff}, {0x700202fa, 0xff}};
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 2; i++) {
            sim_inst inst;
            char error[SIM_ERROR_BYTES];
            assert_false(sim_decode(sim_chip_by_name(rdna[c]), (const uint8_t *)words[i],
                                    sizeof words[i], 0, &inst, error));
            assert_non_null(strstr(error, rdna[c]));
        }
}

/** For every chip, an instruction that exists but is not executed is reported with its name, bytes
 *  and address. */
static void test_unimplemented(void **) {
    static const struct {
        const char *chip, *source, *name;
    } words[] = {
        {"gfx90a", "s_rfe_b64 s[2:3]\n", "s_rfe_b64"},
        {"gfx942", "s_setkill 1\n", "s_setkill"},
        {"gfx950", "s_cbranch_cdbgsys 4\n", "s_cbranch_cdbgsys"},
        {"gfx1151", "ds_bvh_stack_rtn_b32 v1, v2, v3, v[4:7]\n", "ds_bvh_stack_rtn_b32"},
        {"gfx1201", "global_atomic_ordered_add_b64 v0, v[2:3], s[0:1] th:TH_ATOMIC_RETURN\n",
         "global_atomic_ordered_add_b64"},
        {"gfx1201", "image_load v[0:3], [v4, v5], s[8:15] dmask:0xf dim:SQ_RSRC_IMG_2D\n",
         "image_load"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size;
        uint8_t *text = assemble(words[i].chip, words[i].source, &size);
        char error[SIM_ERROR_BYTES], bytes[16];
        uint32_t word;
        sim_inst inst;
        memcpy(&word, text, sizeof word);
        snprintf(bytes, sizeof bytes, "%08x", word);
        assert_false(sim_decode(sim_chip_by_name(words[i].chip), text, size, 0x1230, &inst, error));
        if (!strstr(error, words[i].name) || !strstr(error, bytes) || !strstr(error, "0x1230") ||
            !strstr(error, words[i].chip)) {
            fail_msg("%s of %s: %s", words[i].name, words[i].chip, error);
        }
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiled_kernels),
                                       cmocka_unit_test(test_random_words),
                                       cmocka_unit_test(test_fields),
                                       cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_constants_of_16_bits),
                                       cmocka_unit_test(test_refused_words),
                                       cmocka_unit_test(test_unimplemented)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
