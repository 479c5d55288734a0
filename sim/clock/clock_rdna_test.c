// SPDX-License-Identifier: Apache-2.0
// Tests of the clock on RDNA: small programs, each of which must take the time that the chip's
// parameters say.
#include "clock_testing.h"

/** What differs between the chips' programs. */
typedef struct words {
    const char *arch, *wmma, *wmma_8_bit, *barrier, *wait_lds, *wait_vector, *wait_scalar;
    unsigned passes, passes_8_bit;
} words;

static const words rdna[] = {
    {.arch = "gfx1151",
     .wmma = "v_wmma_f32_16x16x16_bf16 v[8:15], v[16:23], v[24:31], v[8:15]\n",
     .wmma_8_bit = "v_wmma_i32_16x16x16_iu8 v[8:15], v[16:19], v[24:27], v[8:15]\n",
     .barrier = "s_barrier",
     .wait_lds = "s_waitcnt lgkmcnt(0)",
     .wait_vector = "s_waitcnt vmcnt(0)",
     .wait_scalar = "s_waitcnt lgkmcnt(0)",
     .passes = 8,
     .passes_8_bit = 8},
    {.arch = "gfx1201",
     .wmma = "v_wmma_f32_16x16x16_bf16 v[8:15], v[16:19], v[24:27], v[8:15]\n",
     .wmma_8_bit = "v_wmma_i32_16x16x16_iu8 v[8:15], v[16:17], v[24:25], v[8:15]\n",
     .barrier = "s_barrier_signal -1\n s_barrier_wait -1",
     .wait_lds = "s_wait_dscnt 0x0",
     .wait_vector = "s_wait_loadcnt 0x0",
     .wait_scalar = "s_wait_kmcnt 0x0",
     .passes = 4,
     .passes_8_bit = 2},
};
static const words *chip; // on which the tests run

#define ADD "v_add_f32 v1, v2, v3\n"
#define DUAL "v_dual_add_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6\n"
#define DUAL_CHAIN "v_dual_add_f32 v1, v1, v3 :: v_dual_mul_f32 v4, v6, v5\n"

static void test_issue(void **) {
    const double turn = timing->issue_cycles, valu = timing->valu_cycles;
    const double result = timing->valu_result_cycles;
    const struct {
        const char *body;
        double cycles;
    } probes[] = {
        {ADD, valu},
        {"v_add_f32 v1, v1, v3", result},
        {DUAL, valu},
        {DUAL_CHAIN, result},
        {"v_dual_mov_b32 v2, v3 :: v_dual_mov_b32 v3, v2", result}, // each reads the other's
        {"v_exp_f32 v1, v2", timing->trans_cycles},
        {"v_exp_f32 v1, v1", timing->trans_result_cycles},
        {"v_exp_f32 v4, v2\n" ADD ADD ADD, timing->trans_cycles}, // beside it
        {"v_exp_f32 v4, v2\n" ADD ADD ADD ADD, timing->trans_shadow_cycles + 4 * valu},
        {"s_add_u32 s10, s11, s12", turn},
        {"s_add_u32 s10, s10, s12", timing->scalar_result_cycles},
        {"v_readfirstlane_b32 s10, v1\n v_mov_b32 v1, s10", 2 * result},
        {"v_cmp_gt_u32 vcc_lo, v1, v2\n v_cndmask_b32 v1, v2, v3, vcc_lo", 2 * result},
        {"s_nop 3", 4 * turn},
        {"s_sleep 2", 2.0 * timing->sleep_cycles},
        {"s_branch 1\n s_nop 0", timing->branch_cycles},
        {chip->barrier, timing->barrier_cycles},
    };
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        expect_cycles(probes[i].body, cycles_of("", probes[i].body, false), probes[i].cycles);
}

/** Tests that a wave of 64 lanes takes two turns of the lanes for an instruction. */
static void test_wave64(void **) {
    one_wave.wave64 = true;
    one_wave.threads = 64;
    expect_cycles("64 lanes", cycles_of("", ADD, false), 2 * timing->valu_cycles);
    expect_cycles("exp of 64 lanes", cycles_of("", "v_exp_f32 v1, v2", false),
                  2 * timing->trans_cycles);
    one_wave.wave64 = false;
    one_wave.threads = 32;
}

/** Tests the rates of matrix instructions, beside which no vector instruction runs. */
static void test_matrix(void **) {
    const double pass = timing->pass_cycles;
    char body[256];
    expect_cycles("a chain", cycles_of("", chip->wmma, false), chip->passes * pass);
    expect_cycles("8 bits", cycles_of("", chip->wmma_8_bit, false), chip->passes_8_bit * pass);
    snprintf(body, sizeof body, "%s" ADD, chip->wmma);
    expect_cycles(body, cycles_of("", body, false), chip->passes * pass + timing->valu_cycles);
    snprintf(body, sizeof body, "%s v_add_f32 v1, v8, v8\n v_add_f32 v8, v1, v1", chip->wmma);
    expect_cycles(body, cycles_of("", body, false),
                  chip->passes * pass + 2 * timing->valu_result_cycles);
}

/** Tests latencies by chains in which each access waits for the one before. */
static void test_latencies(void **) {
    const double ghz = sim_chip_by_name(one_wave.arch)->clock_khz * 1e-6;
    const double next = 2.0 * timing->valu_result_cycles; // the address of the next line
    char lds[128], scalar[128], base[256], vector[128], far[256];
    static char passes[SOURCE_BYTES];
    snprintf(lds, sizeof lds, "ds_load_b32 v1, v1\n %s", chip->wait_lds);
    snprintf(scalar, sizeof scalar, "s_load_b32 s10, s[0:1], 0x0\n %s", chip->wait_scalar);
    snprintf(base, sizeof base, "s_load_b64 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0\n %s",
             chip->wait_scalar);
    snprintf(vector, sizeof vector, "global_load_b32 v2, v1, s[0:1]\n %s", chip->wait_vector);
    snprintf(far, sizeof far, "%s\n v_add_nc_u32 v1, 0x80, v1\n v_and_b32 v1, 0xffff, v1", vector);
    // Through all of the buffer, which is twice what the vector cache holds.
    write_loop(passes, base, far, REPEATS, 64);
    *strstr(passes, "s_endpgm") = 0;
    char *label;
    while ((label = strstr(passes, "loop")))
        memcpy(label, "pass", 4);
    expect_cycles("LDS", cycles_of("v_mov_b32 v1, 0", lds, false), timing->lds_cycles);
    expect_cycles("scalar", cycles_of("", scalar, false), timing->scalar_hit_cycles);
    expect_cycles("vector cache", cycles_of(base, vector, false), timing->l1_hit_cycles);
    expect_cycles("behind it", cycles_of(passes, far, false),
                  (timing->mid_bytes ? timing->mid_hit_cycles : timing->l2_hit_cycles) + next);
    expect_cycles("memory-side cache", cycles_of(base, far, true), timing->mall_ns * ghz + next);
    expect_cycles("memory", cycles_of(base, far, false), timing->hbm_ns * ghz + next);
}

/** Tests the rates of LDS and of the vector cache: accesses that nobody waits for. */
static void test_rates(void **) {
    char base[256];
    const double bytes = 16 * 32, port = bytes / timing->lds_pair_bytes;
    static const char lds[] = "v_lshlrev_b32 v1, 4, v0";
    // The cache has the lines before the loads that count.
    snprintf(base, sizeof base,
             "s_load_b64 s[0:1], s[0:1], 0x0\n v_lshlrev_b32 v1, 4, v0\n %s\n"
             "global_load_b128 v[4:7], v1, s[0:1]\n %s",
             chip->wait_scalar, chip->wait_vector);
    expect_cycles("LDS loads", cycles_of(lds, "ds_load_b128 v[4:7], v1", false), port);
    expect_cycles("LDS stores", cycles_of(lds, "ds_store_b128 v1, v[4:7]", false),
                  port + timing->lds_store_cycles);
    expect_cycles("vector cache", cycles_of(base, "global_load_b128 v[4:7], v1, s[0:1]", false),
                  bytes / timing->l1_port_bytes);
}

/** Returns the cycles of a workgroup in which each wave does the same, on one unit or on two joint
 *  ones. */
static double cycles_of_group(uint32_t waves, bool is_joint, const char *before, const char *body) {
    static char source[SOURCE_BYTES];
    test_launch launch = one_wave;
    launch.threads = 32 * waves;
    launch.is_joint = is_joint;
    write_loop(source, before, body, 8 * REPEATS, 50);
    return (double)run_new(&launch, source).cycles;
}

/** Tests that the waves of a workgroup share the SIMDs and the LDS of one compute unit, or of
 *  two. */
static void test_joint_units(void **) {
    static const char adds[] = ADD ADD ADD ADD;
    static const char lds[] = "v_lshlrev_b32 v1, 4, v0", load[] = "ds_load_b128 v[4:7], v1\n";
    const double one = cycles_of_group(1, false, "", adds);
    expect_cycles("two SIMDs", cycles_of_group(2, false, "", adds), one);
    expect_cycles("four SIMDs", cycles_of_group(4, true, "", adds), one);
    assert_true(cycles_of_group(4, false, "", adds) > 1.6 * one);
    const double four = cycles_of_group(4, false, lds, load);
    const double apart = cycles_of_group(4, true, lds, load);
    assert_true(four > 1.6 * apart);
}

/** Tests that times do not depend on how many workgroups the host runs at once. */
static void test_again(void **) {
    static char source[SOURCE_BYTES];
    test_launch launch = one_wave;
    launch.groups = 100;
    launch.threads = 256;
    write_loop(source, "", chip->wmma, REPEATS, 20);
    const sim_clock_result first = run_new(&launch, source), second = run_new(&launch, source);
    assert_int_equal(first.groups_run, 100);
    assert_int_equal(first.cycles, second.cycles);
    assert_int_equal(run_in(SIM_CLOCK_ON, &launch, source).cycles, first.cycles); // one XCD
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_issue),  cmocka_unit_test(test_wave64),
        cmocka_unit_test(test_matrix), cmocka_unit_test(test_latencies),
        cmocka_unit_test(test_rates),  cmocka_unit_test(test_joint_units),
        cmocka_unit_test(test_again)};
    int failed = 0;
    for (size_t i = 0; i < sizeof rdna / sizeof *rdna; i++) {
        chip = &rdna[i];
        use(chip->arch);
        failed += cmocka_run_group_tests(tests, nullptr, nullptr);
    }
    return failed;
}
