// SPDX-License-Identifier: Apache-2.0
// Tests of the clock: small programs, each of which must take the time that the chip's parameters
// say.
#include "clock_testing.h"
#include "streams/overlap.h"
#include "tags.h"

/** What a chip's matrix instructions are called, and their passes. */
typedef struct words {
    const char *arch, *mfma16, *mfma32, *mfma_f32;
    unsigned passes16, passes32;
    bool has_f32_unit;     // nothing runs beside matrix instructions of f32
    bool loads_lds;        // a load may go to LDS
    bool has_long_factors; // matrix instructions of which a lane has 16 bytes of a factor
} words;

#define TO_16 " a[0:3], v[2:3], v[4:5], a[0:3]\n"
#define TO_32 " a[0:15], v[2:3], v[4:5], a[0:15]\n"
static const words cdna[] = {
    {"gfx90a", "v_mfma_f32_16x16x16bf16_1k" TO_16, "v_mfma_f32_32x32x8bf16_1k" TO_32,
     "v_mfma_f32_16x16x4f32", 8, 16, false, false, false},
    {"gfx950", "v_mfma_f32_16x16x16_bf16" TO_16, "v_mfma_f32_32x32x8_bf16" TO_32,
     "v_mfma_f32_16x16x4_f32", 4, 8, true, true, true},
    {"gfx942", "v_mfma_f32_16x16x16_bf16" TO_16, "v_mfma_f32_32x32x8_bf16" TO_32,
     "v_mfma_f32_16x16x4_f32", 4, 8, true, true, false},
};
static const words *chip; // on which the tests run

#define MFMA16 "v_mfma_f32_16x16x16_bf16" TO_16
#define MFMA32 "v_mfma_f32_32x32x8_bf16" TO_32
#define ADD "v_add_f32 v1, v2, v3\n"

/** Tests what vector instructions fit behind a matrix instruction. */
static void test_shadow(void **) {
    const double turn = timing->issue_cycles, pass = timing->pass_cycles;
    char body[1024];
    strcpy(body, chip->mfma16);
    expect_cycles(body, cycles_of("", body, false), chip->passes16 * pass);
    for (unsigned i = 1; i < chip->passes16; i++)
        strcat(body, ADD);
    expect_cycles(body, cycles_of("", body, false), chip->passes16 * pass);
    strcat(body, ADD); // one too many
    expect_cycles(body, cycles_of("", body, false), chip->passes16 * pass + turn);
    snprintf(body, sizeof body, "%s a[0:3], v2, v4, a[0:3]\n", chip->mfma_f32);
    expect_cycles(body, cycles_of("", body, false), 8 * pass);
    strcat(body, ADD);
    expect_cycles(body, cycles_of("", body, false), 8 * pass + (chip->has_f32_unit ? turn : 0));
    expect_cycles(chip->mfma32, cycles_of("", chip->mfma32, false), chip->passes32 * pass);
}

/** Tests what waits until a matrix instruction is over, and that longer factors keep vector
 *  instructions waiting longer. */
static void test_alone(void **) {
    const double turn = timing->issue_cycles, pass = timing->pass_cycles;
    const double alone = chip->passes16 * pass + timing->packed_wait_cycles + turn;
    static const char *const words[] = {"v_pk_mul_f32 v[8:9], v[10:11], v[12:13]\n",
                                        "v_dot2_f32_f16 v8, v9, v10, v11\n"};
    char body[1024];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(body, sizeof body, "%s%s", chip->mfma16, words[i]);
        expect_cycles(body, cycles_of("", body, false), alone);
    }
    snprintf(body, sizeof body, "%sv_pk_mul_f16 v8, v9, v10\n", chip->mfma16);
    expect_cycles(body, cycles_of("", body, false), chip->passes16 * pass);
    if (!chip->has_long_factors)
        return;
    strcpy(body, "v_mfma_f32_16x16x32_bf16 a[0:3], v[2:5], v[6:9], a[0:3]\n");
    for (unsigned i = 0; i < 3; i++) // one too many beside four passes
        strcat(body, ADD);
    expect_cycles(body, cycles_of("", body, false), 4 * pass + turn);
}

static void test_issue(void **) {
    const double turn = timing->issue_cycles;
    const struct {
        const char *body;
        double cycles;
    } probes[] = {
        {ADD, timing->valu_cycles},
        {"v_exp_f32 v1, v2", timing->trans_cycles},
        {"s_add_u32 s10, s11, s12", turn},
        {"s_nop 3", 4 * turn},
        {"s_sleep 2", 2.0 * timing->sleep_cycles},
        {"s_setprio 1\n s_add_u32 s10, s11, s12", turn},
        {"s_branch 1\n s_nop 0", timing->branch_cycles},
        {"s_barrier", timing->barrier_cycles},
    };
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        expect_cycles(probes[i].body, cycles_of("", probes[i].body, false), probes[i].cycles);
}

/** Tests latencies by chains in which each access waits for the one before. */
static void test_latencies(void **) {
    const double ghz = sim_chip_by_name(one_wave.arch)->clock_khz * 1e-6;
    const double next = 2.0 * timing->valu_cycles; // the address of the next line
    static const char lds[] = "ds_read_b32 v1, v1\n s_waitcnt lgkmcnt(0)";
    static const char vector[] = "global_load_dword v2, v1, s[0:1]\n s_waitcnt vmcnt(0)";
    static const char far[] = "global_load_dword v2, v1, s[0:1]\n s_waitcnt vmcnt(0)\n"
                              "v_add_u32 v1, 0x1080, v1\n v_and_b32 v1, 0xffff, v1";
    static const char base[] = "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0\n"
                               "s_waitcnt lgkmcnt(0)";
    static char passes[SOURCE_BYTES];
    // Through all of the buffer, which is twice what the vector cache holds, and through all stacks
    // of memory in turn.
    write_loop(passes, base, far, REPEATS, 64);
    *strstr(passes, "s_endpgm") = 0;
    char *label;
    while ((label = strstr(passes, "loop")))
        memcpy(label, "pass", 4);
    expect_cycles("LDS", cycles_of("v_mov_b32 v1, 0", lds, false), timing->lds_cycles);
    expect_cycles("scalar",
                  cycles_of("", "s_load_dword s10, s[0:1], 0x0\n s_waitcnt lgkmcnt(0)", false),
                  timing->scalar_hit_cycles);
    expect_cycles("vector cache", cycles_of(base, vector, false), timing->l1_hit_cycles);
    expect_cycles("second level", cycles_of(passes, far, false), timing->l2_hit_cycles + next);
    if (timing->mall_mib)
        expect_cycles("memory-side cache", cycles_of(base, far, true),
                      timing->mall_ns * ghz + next);
    expect_cycles("memory", cycles_of(base, far, false), timing->hbm_ns * ghz + next);
}

/** Tests that a load to LDS that is under way does not keep others from LDS. */
static void test_loads_to_lds(void **) {
    if (!chip->loads_lds)
        skip();
    const double next = 2.0 * timing->valu_cycles;
    static const char to_lds[] =
        "global_load_lds_dword v1, s[0:1]\n ds_read_b32 v2, v3\n s_waitcnt lgkmcnt(0)\n"
        "v_add_u32 v1, 0x80, v1\n v_and_b32 v1, 0xfff, v1";
    expect_cycles(
        "LDS beside a load to it",
        cycles_of("s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0\n v_mov_b32 v3, 0\n"
                  "s_mov_b32 m0, 0\n s_waitcnt lgkmcnt(0)",
                  to_lds, false),
        timing->issue_cycles + timing->lds_cycles + next);
}

/** Tests that loads to LDS take the banks for as long as the vector cache's port gives their bytes:
 *  four waves keep the banks busy. */
static void test_rate_to_lds(void **) {
    if (!chip->loads_lds)
        skip();
    constexpr int WAVES = 4, DMA_BYTES = 64 * 4, LDS_BYTES = 64 * 16;
    static const char body[] = ".rept 2\n ds_read_b128 v[4:7], v2\n"
                               "global_load_lds_dword v1, s[0:1]\n .endr";
    static const char base[] =
        "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_and_b32 v0, 63, v0\n v_lshlrev_b32 v1, 2, v0\n"
        "v_lshlrev_b32 v2, 4, v0\n s_mov_b32 m0, 0\n s_waitcnt lgkmcnt(0)";
    const uint32_t threads = one_wave.threads;
    const double banks = 4.0 * sim_chip_by_name(one_wave.arch)->lds_banks;
    one_wave.threads = WAVES * 64;
    const double cycles = cycles_of(base, body, false);
    one_wave.threads = threads;
    expect_cycles("LDS beside loads to it", cycles,
                  2 * WAVES * (LDS_BYTES / banks + (double)DMA_BYTES / timing->l1_port_bytes));
}

/** Tests the rates of LDS and of the vector cache: accesses that nobody waits for. */
static void test_rates(void **) {
    static const char lds[] = "v_lshlrev_b32 v1, 4, v0";
    static const char base[] = "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_lshlrev_b32 v1, 4, v0\n"
                               "s_waitcnt lgkmcnt(0)";
    const double bytes = 16 * 64, port = bytes / timing->lds_pair_bytes;
    expect_cycles("LDS loads", cycles_of(lds, "ds_read_b128 v[4:7], v1", false), port);
    expect_cycles("LDS stores", cycles_of(lds, "ds_write_b128 v1, v[4:7]", false),
                  port + timing->lds_store_cycles);
    expect_cycles("vector cache", cycles_of(base, "global_load_dwordx4 v[4:7], v1, s[0:1]", false),
                  bytes / timing->l1_port_bytes);
}

/** Tests what a channel of the second level takes of atomics: their bytes, and lanes that add to
 *  one word one after the other. */
static void test_atomics(void **) {
    static const char add[] = ".rept 8\n global_atomic_add_f32 v1, v2, s[0:1]\n .endr";
    static const char base[] = "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_lshlrev_b32 v1, 2, v0\n"
                               "v_and_b32 v1, %s, v1\n s_waitcnt lgkmcnt(0)";
    char line[256], word[256];
    snprintf(line, sizeof line, base, "0x7c");
    snprintf(word, sizeof word, base, "0");
    expect_cycles("atomics on a line", cycles_of(line, add, false),
                  8 * 64.0 * 4 / timing->l2_write_bytes);
    expect_cycles("atomics on a word", cycles_of(word, add, false), 8 * 64);
}

/** Tests that memory's latency grows with the hops to the stack that has the page. */
static void test_hops(void **) {
    static char source[SOURCE_BYTES];
    double least = INFINITY, most = 0;
    for (unsigned page = 0; page < 8; page++) {
        char base[128];
        snprintf(base, sizeof base,
                 "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0x%x\n s_waitcnt lgkmcnt(0)",
                 page * 4096 + 0x400);
        write_loop(source, base,
                   "global_load_dword v2, v1, s[0:1]\n s_waitcnt vmcnt(0)\n v_add_u32 v1, 0x80, v1",
                   REPEATS, 1);
        const double cycles = (double)run_new(&one_wave, source).cycles;
        least = fmin(least, cycles);
        most = fmax(most, cycles);
    }
    const double ghz = sim_chip_by_name(one_wave.arch)->clock_khz * 1e-6;
    expect_cycles("hops", (most - least) / REPEATS, timing->most_hops * timing->hop_ns * ghz);
}

/** Tests that two waves of a SIMD share its lanes, and that those of four SIMDs do not. */
static void test_waves(void **) {
    static char source[SOURCE_BYTES];
    write_loop(source, "", ADD ADD ADD ADD, REPEATS, 50);
    test_launch launch = one_wave;
    uint64_t cycles[3];
    for (unsigned i = 0; i < 3; i++) {
        launch.threads = 64u << (i ? i + 1 : 0); // 1, 4, 8 waves
        cycles[i] = run_new(&launch, source).cycles;
    }
    expect_cycles("four SIMDs", (double)cycles[1], (double)cycles[0]);
    assert_true((double)cycles[2] > 1.6 * (double)cycles[1]);
}

/** Tests that a launch of more workgroups than the units hold takes rounds, and that every
 *  workgroup ran. */
static void test_rounds(void **) {
    static char source[SOURCE_BYTES];
    write_loop(source, "", MFMA32, REPEATS, 20);
    test_launch launch = {.arch = "gfx942", .groups = 304, .threads = 64, .lds_bytes = 65536};
    const sim_clock_result one = run_new(&launch, source);
    launch.groups = 3 * 304;
    const sim_clock_result three = run_new(&launch, source);
    assert_int_equal(one.groups_run, 304);
    assert_int_equal(three.groups_run, 3 * 304);
    const double rounds = (double)three.cycles / (double)one.cycles;
    assert_true(rounds > 2.7 && rounds < 3.2);
}

#define COUNT_ONE                                                                                  \
    "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0\n v_mov_b32 v2, 1\n"                     \
    "s_mov_b64 exec, 1\n s_waitcnt lgkmcnt(0)\n global_atomic_add v1, v2, s[0:1]\n"                \
    "s_mov_b64 exec, -1\n v_lshlrev_b32 v1, 4, v0\n"

/** Goes on if a word is 0, which it then makes 1: what must not happen twice. */
#define SAY_ONE                                                                                    \
    "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mov_b32 v1, 0\n v_mov_b32 v2, 1\n"                     \
    "s_lshl_b32 s21, s2, 2\n s_waitcnt lgkmcnt(0)\n s_add_u32 s0, s0, s21\n"                       \
    "s_addc_u32 s1, s1, 0\n again:\n s_load_dword s22, s[0:1], 0x0 glc\n"                          \
    "s_waitcnt lgkmcnt(0)\n s_cmp_lg_u32 s22, 0\n s_cbranch_scc1 again\n"                          \
    "global_store_dword v1, v2, s[0:1] sc0 sc1\n"

#define STREAM                                                                                     \
    "global_load_dwordx4 v[4:7], v1, s[0:1]\n v_add_u32 v1, 0x400, v1\n"                           \
    "v_and_b32 v1, 0xfff0, v1\n s_waitcnt vmcnt(4)"

/** Tests that a sample stands for all workgroups, in time, and that each workgroup runs once. */
static void test_samples(void **) {
    static const char *const bodies[] = {
        MFMA32,
        MFMA16 "ds_read_b128 v[4:7], v1\n s_waitcnt lgkmcnt(0)",
        STREAM,
    };
    static char source[SOURCE_BYTES];
    const uint32_t groups = 6 * 304 + 100;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        uint32_t count[5];
        double ns[5];
        write_loop(source, COUNT_ONE, bodies[i], REPEATS, 6);
        for (sim_clock_mode mode = SIM_CLOCK_ON; mode <= SIM_CLOCK_XCD; mode++) {
            const test_launch launch = {.arch = "gfx942",
                                        .groups = groups,
                                        .threads = 256,
                                        .lds_bytes = 65536,
                                        .result = &count[mode]};
            ns[mode] = (double)run_in(mode, &launch, source).ns;
        }
        expect_cycles(bodies[i], ns[SIM_CLOCK_ON], ns[SIM_CLOCK_FULL]);
        assert_true(ns[SIM_CLOCK_ON] == ns[SIM_CLOCK_SAMPLE]);
        assert_int_equal(count[SIM_CLOCK_ON], 4 * groups);
        assert_int_equal(count[SIM_CLOCK_FULL], 4 * groups);
        assert_true(count[SIM_CLOCK_SAMPLE] < groups);
        expect_cycles(bodies[i], ns[SIM_CLOCK_XCD], ns[SIM_CLOCK_FULL]);
        assert_int_equal(count[SIM_CLOCK_XCD], 4 * ((groups + 7) / 8));
    }
}

/** Tests that a part of long workgroups stands for all of it, if they are alike and do nothing that
 *  must not be done twice. */
static void test_long_groups(void **) {
    static const struct {
        const char *before, *body;
        bool is_settled;
    } programs[] = {
        {"v_mov_b32 v1, 0", ADD ADD MFMA16 "ds_read_b32 v1, v1\n s_waitcnt lgkmcnt(0)\n", true},
        {"s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_lshlrev_b32 v1, 4, v0\n s_waitcnt lgkmcnt(0)",
         STREAM "\n s_barrier", true},
        {"s_cmp_gt_u32 s2, 300\n s_cselect_b32 s21, 1, 0", // not alike: the last take a third
         "s_sub_u32 s20, s20, s21\n" ADD ADD ADD ADD ADD ADD, false},
        {COUNT_ONE, ADD ADD ADD ADD ADD ADD, false},
        {SAY_ONE, ADD ADD ADD ADD ADD ADD, false},
    };
    static char source[SOURCE_BYTES];
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const test_launch launch = {
            .arch = "gfx942", .groups = 8 * (38 + 6), .threads = 64, .lds_bytes = 65536};
        write_loop(source, programs[i].before, programs[i].body, 2, 7800);
        const sim_clock_result all = run_in(SIM_CLOCK_ON, &launch, source);
        const sim_clock_result part = run_in(SIM_CLOCK_SAMPLE, &launch, source);
        assert_true(all.part_run == 1);
        assert_true((part.part_run < 0.6) == programs[i].is_settled);
        expect_cycles(programs[i].body, (double)part.ns, (double)all.ns);
        expect_cycles("waves", (double)part.wave_cycles, (double)all.wave_cycles);
        expect_cycles("matrix", (double)part.matrix_ops, (double)all.matrix_ops);
        expect_cycles("lanes", (double)part.spent[SIM_SPENT_VALU],
                      (double)all.spent[SIM_SPENT_VALU]);
        expect_cycles("idle", (double)part.spent[SIM_SPENT_IDLE],
                      (double)all.spent[SIM_SPENT_IDLE]);
        expect_cycles("lines", (double)part.traffic.l1_lines, (double)all.traffic.l1_lines);
        assert_int_equal(part.groups_run, all.groups_run);
    }
}

/** Tests that the board's limit lowers the clock of dense matrix work and of nothing else. */
static void test_power(void **) {
    static char source[SOURCE_BYTES];
    const test_launch launch = {
        .arch = "gfx942", .groups = 304, .threads = 256, .lds_bytes = 65536};
    write_loop(source, "", MFMA32, REPEATS, 50);
    const sim_clock_result dense = run_new(&launch, source);
    assert_true(dense.mhz > 1100 && dense.mhz < 1300 && dense.ns > dense.unlimited_ns);
    assert_true(fabs(dense.watts - timing->limit_w) < 1);
    write_loop(source, "", "s_sleep 1", REPEATS, 50);
    const sim_clock_result idle = run_new(&launch, source);
    assert_true(idle.mhz == 2100 && idle.ns == idle.unlimited_ns && idle.watts < 300);
}

/** Returns the share of a launch's time that memory's own clock sets: memory is busy, and SIMDs
 *  that have waves wait for it. */
static double share_of(const sim_clock_result *r, double *busy, double *waits) {
    const double peak_mhz = sim_chip_by_name("gfx942")->clock_khz * 1e-3;
    const double bytes = (double)r->traffic.hbm_lines * SIM_LINE;
    uint64_t all = 0;
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        all += i == SIM_SPENT_IDLE ? 0 : r->spent[i];
    *busy = bytes / (timing->hbm_channels * (double)timing->hbm_mb_per_s) /
            ((double)r->cycles / peak_mhz);
    *waits = (double)(r->spent[SIM_SPENT_WAIT_VMEM] + r->spent[SIM_SPENT_WAIT_QUEUE]) / (double)all;
    return fmin(*busy, *waits);
}

/** Runs matrix instructions beside loads from memory, and tests that only the other part of the
 *  time grows when the board's limit lowers the clock. */
static void run_beside_memory(const char *load, unsigned lane_bytes, double *busy, double *waits) {
    constexpr int GROUPS = 608, TURNS = 24, TURN_BYTES = 4096;
    static char source[SOURCE_BYTES];
    char base[256], body[256];
    const test_launch launch = {.arch = "gfx942",
                                .groups = GROUPS,
                                .threads = 256,
                                .lds_bytes = 32768,
                                .buffer_bytes = GROUPS * TURNS * TURN_BYTES};
    snprintf(base, sizeof base,
             "s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_mul_u32_u24 v1, %u, v0\n"
             "s_mul_i32 s4, s2, %d\n v_add_u32 v1, s4, v1\n s_waitcnt lgkmcnt(0)",
             lane_bytes, TURNS * TURN_BYTES);
    snprintf(body, sizeof body,
             "%s, v1, s[0:1]\n v_add_u32 v1, %d, v1\n .rept 12\n" MFMA32
             ".endr\n s_waitcnt vmcnt(0)",
             load, TURN_BYTES);
    write_loop(source, base, body, 1, TURNS);
    const sim_clock_result r = run_new(&launch, source);
    const double share = share_of(&r, busy, waits), peak_mhz = 2100;
    const double ns = (double)r.cycles * ((1 - share) / r.mhz + share / peak_mhz) * 1e3;
    expect_cycles(load, (double)r.ns - timing->launch_ns, ns);
    assert_true(r.mhz < 0.9 * peak_mhz); // so that another share would take another time
}

static void test_memory_share(void **) {
    double busy, waits;
    run_beside_memory("global_load_dwordx4 v[4:7]", 16, &busy, &waits);
    assert_true(waits > 0.1 && busy > 1.5 * waits); // work hides memory
    run_beside_memory("global_load_ubyte v4", 1, &busy, &waits);
    assert_true(busy > 0.05 && waits > 1.5 * busy); // memory is not all that waits are for
}

/** Tests what a launch says that it asks of the chip: kernels that keep one part busy. */
static void test_demand(void **) {
    static const struct {
        const char *before, *body;
        sim_part part;
    } probes[] = {
        {"", MFMA32, SIM_PART_MATRIX},
        {"", ADD ADD ADD ADD, SIM_PART_LANES},
        {"v_lshlrev_b32 v1, 4, v0", "ds_read_b128 v[4:7], v1", SIM_PART_LDS},
        {"s_load_dwordx2 s[0:1], s[0:1], 0x0\n v_lshlrev_b32 v1, 4, v0\n s_waitcnt lgkmcnt(0)",
         "global_load_dwordx4 v[4:7], v1, s[0:1]", SIM_PART_VECTOR_CACHE},
    };
    static char source[SOURCE_BYTES];
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        sim_demand *d = nullptr;
        const test_launch launch = {
            .arch = "gfx942", .groups = 304, .threads = 512, .lds_bytes = 32768, .demand = &d};
        write_loop(source, probes[i].before, probes[i].body, REPEATS, 50);
        const sim_clock_result r = run_new(&launch, source);
        assert_int_equal(d->ns, r.ns);
        assert_true(d->units == 38 && d->groups == 38 && d->num_spans == 38);
        expect_cycles("room", d->room[SIM_LIMIT_LDS], 0.5);
        expect_cycles("room", d->room[SIM_LIMIT_WAVES], 1.0 / 4);
        expect_cycles("span", d->spans[0] + d->tail_ns, (double)(r.ns - timing->launch_ns));
        if (d->busy[probes[i].part] < 0.85 || d->busy[probes[i].part] > 1)
            fail_msg("%s: busy %.3f", probes[i].body, d->busy[probes[i].part]);
        free(d);
    }
}

/** Tests that the lines of a range, and those at a stride, keep to no few sets or channels. */
static void test_spread(void **) {
    enum { COUNT = 2048, FIRST = 12345, ROUNDS = 12 };
    static uint32_t found[2][COUNT];
    for (uint64_t i = 0; i < ROUNDS * COUNT; i++) {
        found[0][sim_spread(FIRST + i, COUNT)]++;
        found[1][sim_spread(FIRST + i * COUNT, COUNT)]++;
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_in_range(found[0][i], ROUNDS - 1, ROUNDS + 1);
        assert_in_range(found[1][i], 0, 3 * ROUNDS);
    }
}

/** Tests that each cycle of a SIMD is counted once. */
static void test_spent(void **) {
    static char source[SOURCE_BYTES];
    write_loop(source, "v_mov_b32 v1, 0", MFMA16 "ds_read_b32 v1, v1\n s_waitcnt lgkmcnt(0)",
               REPEATS, 10);
    const sim_clock_result r = run_new(&one_wave, source);
    uint64_t sum = 0;
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        sum += r.spent[i];
    const uint64_t simds = 38 * 4;
    assert_true(sum <= simds * r.cycles && sum >= simds * r.cycles * 99 / 100);
    assert_int_equal(r.spent[SIM_SPENT_MATRIX], 10 * REPEATS * timing->issue_cycles);
    assert_true(r.spent[SIM_SPENT_WAIT_LDS] > 10ull * REPEATS * (timing->lds_cycles / 2));
}

/** Tests that a profile says what each instruction cost: two launches add up. */
static void test_profile(void **) {
    static char source[SOURCE_BYTES];
    sim_look_options options = {};
    char path[64], cost[160];
    make_path(path);
    strcpy(options.profile, path);
    write_loop(source, "", "v_exp_f32 v1, v2", 1, 100);
    configure(&options);
    const sim_clock_result r = run_new(&one_wave, source);
    run_new(&one_wave, source);
    sim_look_finish();
    char *text = read_file(path);
    snprintf(cost, sizeof cost,
             "{\"offset\": 4, \"instruction\": \"v_exp_f32\", \"simd_cycles\": "
             "{\"issued_valu\": %u",
             2 * 100 * timing->issue_cycles);
    if (!strstr(text, cost))
        fail_msg("no %s in %s", cost, text);
    assert_null(strstr(text, "s_nop"));
    assert_true(r.cycles > 0);
    free(text);
    unlink(path);
}

/** Tests that a kernel reads modelled time. */
static void test_kernel_clock(void **) {
    static const char source[] = "s_memtime s[4:5]\n"
                                 "s_waitcnt lgkmcnt(0)\n s_sleep 10\n s_memtime s[6:7]\n"
                                 "s_waitcnt lgkmcnt(0)\n s_sub_u32 s4, s6, s4\n"
                                 "s_cmp_ge_u32 s4, 640\n s_cselect_b32 s5, 1, 0\n"
                                 "s_cmp_lt_u32 s4, 900\n s_cselect_b32 s6, s5, 0\n"
                                 "s_cmp_eq_u32 s6, 1\n s_cbranch_scc1 right\n"
                                 "s_trap 2\nright:\n s_endpgm";
    run_new(&one_wave, source);
}

/** Tests that launches which end in the middle are reported as without a clock. */
static void test_faults(void **) {
    test_launch launch = {.arch = "gfx942", .groups = 400, .threads = 256, .fails = true};
    run_new(&launch, "s_nop 0\n s_trap 2\n s_endpgm");
    launch.groups = 1;
    run_new(&launch, "loop:\n s_branch loop"); // to the limit of instructions
    run_new(&launch, "v_cmp_gt_u32 vcc, 64, v0\n s_cbranch_vccz wait\n s_endpgm\n"
                     "wait:\n s_load_dword s4, s[0:1], 0xffffc\n s_barrier\n s_endpgm");
}

int main(void) {
    const struct CMUnitTest parameters[] = {
        cmocka_unit_test(test_issue),        cmocka_unit_test(test_shadow),
        cmocka_unit_test(test_alone),        cmocka_unit_test(test_latencies),
        cmocka_unit_test(test_loads_to_lds), cmocka_unit_test(test_rate_to_lds),
        cmocka_unit_test(test_rates),        cmocka_unit_test(test_waves),
        cmocka_unit_test(test_atomics),      cmocka_unit_test(test_hops)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),      cmocka_unit_test(test_samples),
        cmocka_unit_test(test_long_groups), cmocka_unit_test(test_power),
        cmocka_unit_test(test_spent),       cmocka_unit_test(test_memory_share),
        cmocka_unit_test(test_demand),      cmocka_unit_test(test_faults),
        cmocka_unit_test(test_profile),     cmocka_unit_test(test_kernel_clock),
        cmocka_unit_test(test_spread)};
    int failed = 0;
    for (size_t i = 0; i < sizeof cdna / sizeof *cdna; i++) {
        chip = &cdna[i];
        use(chip->arch);
        failed += cmocka_run_group_tests(parameters, nullptr, nullptr);
    }
    return failed + cmocka_run_group_tests(tests, nullptr, nullptr); // on gfx942, the last one
}
