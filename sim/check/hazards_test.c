// SPDX-License-Identifier: Apache-2.0
// Wait states of gfx9: programs in pairs, as in check_test.c. The first program of a pair has one
// wait state too few.
#include "check_testing.h"

#define THREE(reg)                                                                                 \
    "v_mov_b32_e32 v4, 0\n v_mov_b32_e32 v5, 0\n v_mov_b32_e32 " reg ", 0\n s_nop 1\n"
#define FOUR THREE("v6") "v_mov_b32_e32 v7, 0\n v_mov_b32_e32 v3, 1\n s_nop 1\n"
#define SMALL "v_mfma_f32_4x4x4f16 v[4:7], v[2:3], v[2:3], v[4:7]\n"
#define TILE "v_mfma_f32_16x16x16f16 v[4:7], v[2:3], v[2:3], v[4:7]\n"

static void test_wait_states(void **) {
    static const pair pairs[] = {
        {"sum read", CDNA, 1, FOUR SMALL "s_nop 3\n v_add_u32_e32 v8, v7, v2",
         FOUR SMALL "s_nop 4\n v_add_u32_e32 v8, v7, v2",
         "missing wait states: v7 is read 4 after v_mfma_f32_4x4x4"},
        {"sum stored", CDNA, 1, FOUR TILE "s_nop 4\n global_store_dword v1, v4, s[4:5]",
         FOUR TILE "s_nop 9\n s_nop 0\n global_store_dword v1, v4, s[4:5]", "wrote it: "},
        {"sum to LDS", CDNA, 1, FOUR TILE "ds_write_b32 v1, v4",
         FOUR TILE "s_nop 9\n s_nop 0\n ds_write_b32 v1, v4", "v4 is read 0 after"},
        {"sum as A", CDNA, 1, FOUR TILE "v_mfma_f32_16x16x16f16 v[8:11], v[4:5], v[2:3], 0",
         FOUR TILE "s_nop 9\n s_nop 0\n v_mfma_f32_16x16x16f16 v[8:11], v[4:5], v[2:3], 0",
         "v4 is read "},
        {"part of the sum as C", CDNA, 1,
         FOUR TILE "v_mov_b32_e32 v8, 0\n v_mov_b32_e32 v9, 0\n s_nop 1\n"
                   "v_mfma_f32_16x16x16f16 v[6:9], v[2:3], v[2:3], v[6:9]",
         FOUR TILE "v_mov_b32_e32 v8, 0\n v_mov_b32_e32 v9, 0\n s_nop 7\n"
                   "v_mfma_f32_16x16x16f16 v[6:9], v[2:3], v[2:3], v[6:9]",
         "v6 is read "},
        {"overwritten", CDNA, 1, FOUR TILE "s_nop 2\n v_mov_b32_e32 v5, 1",
         FOUR TILE "s_nop 9\n s_nop 0\n v_mov_b32_e32 v5, 1", "v5 is written 3 after"},
        {"C overwritten", CDNA, 1,
         FOUR "v_mfma_f32_16x16x16f16 v[8:11], v[2:3], v[2:3], v[4:7]\n v_mov_b32_e32 v5, 1",
         FOUR
         "v_mfma_f32_16x16x16f16 v[8:11], v[2:3], v[2:3], v[4:7]\n s_nop 6\n v_mov_b32_e32 v5, 1",
         "took it as C"},
        {"a matrix instruction waits for the one before", CDNA, 1,
         FOUR TILE
         "v_mfma_f32_16x16x16f16 v[8:11], v[2:3], v[2:3], 0\n s_nop 1\n v_mov_b32_e32 v12, v8",
         FOUR TILE
         "v_mfma_f32_16x16x16f16 v[8:11], v[2:3], v[2:3], 0\n s_nop 5\n v_mov_b32_e32 v12, v4",
         "v8 is read 2 after"},
        {"operand", CDNA, 1, FOUR "v_mov_b32_e32 v3, 2\n" SMALL,
         FOUR "v_mov_b32_e32 v3, 2\n s_nop 1\n" SMALL,
         "v3 is read 0 after v_mov_b32 at program+0x"},
        {"EXEC, then a matrix", CDNA, 1, FOUR "v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 2\n" SMALL,
         FOUR "v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 3\n" SMALL, "exec is read 3 after v_cmpx"},
        {"f64", CDNA, 1,
         FOUR "v_mfma_f64_4x4x4f64 v[4:5], v[2:3], v[2:3], v[4:5]\n s_nop 7\n global_store_dword "
              "v1, v4, s[4:5]",
         FOUR "v_mfma_f64_4x4x4f64 v[4:5], v[2:3], v[2:3], v[4:5]\n s_nop 8\n global_store_dword "
              "v1, v4, s[4:5]",
         "v4 is read 8 after"},
        {"lane from a lane", CDNA, 1,
         "v_readfirstlane_b32 s12, v0\n s_nop 2\n v_readlane_b32 s13, v2, s12",
         "v_readfirstlane_b32 s12, v0\n s_nop 3\n v_readlane_b32 s13, v2, s12",
         "s12 is read 3 after v_readfirstlane_b32"},
        {"address from a lane", CDNA, 1,
         "v_readfirstlane_b32 s12, v0\n s_nop 3\n buffer_load_dword v3, v1, s[8:11], s12 offen",
         "v_readfirstlane_b32 s12, v0\n s_nop 4\n buffer_load_dword v3, v1, s[8:11], s12 offen",
         "s12 is read 4 after v_readfirstlane_b32"},
        {"neighbour", CDNA, 1, "v_mov_b32_e32 v3, v2\n s_nop 0\n v_mov_b32_dpp v4, v3 row_shr:1",
         "v_mov_b32_e32 v4, v2\n v_mov_b32_e32 v3, v2\n s_nop 1\n v_mov_b32_dpp v4, v3 row_shr:1",
         "v3 is read 1 after v_mov_b32"},
        {"EXEC, then a neighbour", CDNA, 1,
         "v_mov_b32_e32 v4, v2\n v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 3\n v_mov_b32_dpp v4, v2 "
         "row_shr:1",
         "v_mov_b32_e32 v4, v2\n v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 4\n v_mov_b32_dpp v4, v2 "
         "row_shr:1",
         "exec is read 4 after v_cmpx"},
        {"division", CDNA, 1,
         "v_cmp_gt_u32_e32 vcc, 60, v0\n s_nop 2\n v_div_fmas_f32 v3, v2, v2, v2",
         "v_cmp_gt_u32_e32 vcc, 60, v0\n s_nop 3\n v_div_fmas_f32 v3, v2, v2, v2",
         "vcc_lo is read 3 after v_cmp_gt_u32"},
        {"M0, then LDS DMA", CDNA, 1,
         "s_mov_b32 m0, 0\n buffer_load_dword v1, s[8:11], 0 offen lds",
         "s_mov_b32 m0, 0\n s_nop 0\n buffer_load_dword v1, s[8:11], 0 offen lds",
         "is read 0 after s_mov_b32"},
        {"stored data overwritten", CDNA, 1,
         FOUR "global_store_dwordx4 v1, v[4:7], s[4:5]\n v_mov_b32_e32 v5, 1",
         FOUR "global_store_dwordx4 v1, v[4:7], s[4:5]\n s_nop 1\n v_mov_b32_e32 v5, 1",
         "stored it"},
    };
    CHECK_PAIRS(pairs, SIM_CHECK_WAIT);
}

/** Wait states that only gfx942 and gfx950 need; gfx90a's hardware waits by itself. */
static void test_new_wait_states(void **) {
    static const struct {
        const char *bad, *good, *report;
    } pairs[] = {
        {"v_rcp_f32_e32 v3, v2\n v_add_f32_e32 v4, v3, v2",
         "v_rcp_f32_e32 v3, v2\n v_rcp_f32_e32 v3, v3\n s_nop 0\n v_add_f32_e32 v4, v3, v2",
         "v3 is read 0 after v_rcp_f32"},
        {"v_cmp_gt_u32_e32 vcc, 60, v0\n s_nop 0\n v_cndmask_b32_e32 v3, v2, v1, vcc",
         "v_cmp_gt_u32_e32 vcc, 60, v0\n s_nop 1\n v_cndmask_b32_e32 v3, v2, v1, vcc",
         "vcc_lo is read 1 after v_cmp_gt_u32"},
        {"v_add_u32_e32 v3, v0, v2\n v_readfirstlane_b32 s12, v3",
         "v_add_u32_e32 v3, v0, v2\n s_nop 0\n v_readfirstlane_b32 s12, v3",
         "v3 is read 0 after v_add_u32"},
        {"v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 2\n v_readfirstlane_b32 s12, v2",
         "v_cmpx_ne_u32_e32 vcc, 70, v0\n s_nop 3\n v_readfirstlane_b32 s12, v2",
         "exec is read 3 after v_cmpx_ne_u32"},
    };
    for (size_t i = 0; i < 3 * sizeof pairs / sizeof *pairs; i++) {
        const chip *c = &chips[i % 3]; // the CDNA ones
        program bad = make_program(c, pairs[i / 3].bad), good = make_program(c, pairs[i / 3].good);
        outcome found = run_program(&bad, 1, SIM_CHECK_ALL);
        assert_int_equal(found.ok, !strcmp(c->name, "gfx90a"));
        assert_true(found.ok || strstr(found.text, pairs[i / 3].report));
        assert_true(run_program(&good, 1, SIM_CHECK_ALL).ok);
        free(bad.code);
        free(good.code);
    }
}

/** Wait states between a matrix instruction and a use of its sum: one too few is reported, enough
 *  are not. */
static void test_passes(void **) {
    static const struct {
        const char *chip, *inst;
        unsigned states; // for a vector instruction
    } sums[] = {
        {"gfx90a", "v_mfma_f32_4x4x4f16 a[0:3], v[2:3], v[4:5], 0", 5},
        {"gfx90a", "v_mfma_f32_16x16x16f16 a[0:3], v[2:3], v[4:5], 0", 11},
        {"gfx90a", "v_mfma_f32_32x32x8f16 a[0:15], v[2:3], v[4:5], 0", 19},
        {"gfx90a", "v_mfma_f64_16x16x4f64 a[0:7], v[2:3], v[4:5], 0", 11},
        {"gfx942", "v_mfma_f32_4x4x1_16b_f32 a[0:3], v2, v4, 0", 4},
        {"gfx942", "v_mfma_f32_16x16x4_f32 a[0:3], v2, v4, 0", 10},
        {"gfx942", "v_mfma_f32_32x32x2_f32 a[0:15], v2, v4, 0", 18},
        {"gfx942", "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], 0", 7},
        {"gfx942", "v_mfma_f32_16x16x4_4b_f16 a[0:15], v[2:3], v[4:5], 0", 11},
        {"gfx942", "v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], 0", 11},
        {"gfx942", "v_mfma_f32_32x32x4_2b_f16 a[0:31], v[2:3], v[4:5], 0", 19},
        {"gfx942", "v_mfma_f32_16x16x8_xf32 a[0:3], v[2:3], v[4:5], 0", 7},
        {"gfx942", "v_mfma_f32_32x32x4_xf32 a[0:15], v[2:3], v[4:5], 0", 11},
        {"gfx942", "v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[2:3], v[4:5], 0", 7},
        {"gfx942", "v_mfma_f64_16x16x4_f64 a[0:7], v[2:3], v[4:5], 0", 11},
        {"gfx942", "v_mfma_f64_4x4x4_4b_f64 a[0:1], v[2:3], v[4:5], 0", 6},
        {"gfx950", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[2:3], v[4:5], 0", 5},
        {"gfx950", "v_mfma_f32_16x16x32_f16 a[0:3], v[2:5], v[2:5], 0", 8},
        {"gfx950", "v_mfma_f32_32x32x16_f16 a[0:15], v[2:5], v[2:5], 0", 12},
        {"gfx950", "v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[2:9], v[2:9], 0", 12},
        {"gfx950", "v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[2:5], v[2:5], 0 cbsz:4 blgp:4", 8},
        {"gfx950", "v_mfma_f32_32x32x64_f8f6f4 a[0:15], v[2:9], v[2:9], 0", 19},
        {"gfx950", "v_mfma_f64_16x16x4_f64 a[0:7], v[2:3], v[4:5], 0", 19}};
    for (size_t i = 0; i < 2 * sizeof sums / sizeof *sums; i++) {
        char body[1024], report[64];
        const unsigned states = sums[i / 2].states - (i % 2 == 0);
        snprintf(body, sizeof body, "%s\n .rept %u\n s_nop 0\n .endr\n v_accvgpr_read_b32 v12, a0",
                 sums[i / 2].inst, states);
        snprintf(report, sizeof report, ": %u must lie between", sums[i / 2].states);
        const chip *c = chips;
        while (strcmp(c->name, sums[i / 2].chip))
            c++;
        program p = make_program(c, body);
        outcome out = run_program(&p, 1, SIM_CHECK_WAIT);
        if (out.ok != i % 2 || (!out.ok && !strstr(out.text, report)))
            fail_msg("%s, %s, %u: '%s'", c->name, sums[i / 2].inst, states, out.text);
        free(p.code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wait_states),
                                       cmocka_unit_test(test_new_wait_states),
                                       cmocka_unit_test(test_passes)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
