// SPDX-License-Identifier: Apache-2.0
// The profile's counters, for programs whose counts follow from their source: how often each
// instruction runs, and on how many lanes; and the profile of launches and of occupancy.
#include "../pool.h"
#include "profile_testing.h"

#include <pthread.h>

// ---- instructions

/** A loop of 10 turns, in 3 workgroups of 2 waves. */
static void test_kinds(void **) {
    enum { TURNS = 10, WAVES = 6 };
    for (size_t i = 0; i < NUM_ARCHS; i++) {
        const char *arch = archs[i];
        const bool split = is_gfx12(arch);
        char source[1024];
        snprintf(source, sizeof source,
                 "s_movk_i32 s6, 10\n"
                 "loop: v_mov_b32 v1, 1\n v_mov_b32 v2, 1\n v_mov_b32 v3, 1\n s_nop 0\n"
                 "s_sub_u32 s6, s6, 1\n s_cmp_lg_u32 s6, 0\n s_cbranch_scc1 loop\n"
                 "%s\n %s\n s_load_dword s7, s[0:1], 0x0\n s_endpgm\n",
                 split ? "s_wait_loadcnt 0" : "s_waitcnt 0",
                 split ? "s_barrier_signal -1\n s_barrier_wait -1" : "s_barrier");
        char *json = profile(
            &(test_launch){.arch = arch, .groups = 3, .threads = 2 * lanes_of(arch)}, source);
        const uint64_t barriers = split ? 2 : 1, all = 1 + 7 * TURNS + 1 + barriers + 1 + 1;
        expect(arch, json, "launches", 1);
        expect(arch, json, "failed_launches", 0);
        expect(arch, json, "workgroups", 3);
        expect(arch, json, "SQ_WAVES", WAVES);
        expect(arch, json, is_rdna(arch) ? "SQ_WAVE32_INSTS" : "SQ_INSTS", WAVES * all);
        expect(arch, json, "SQ_INSTS_VALU", WAVES * 3 * TURNS);
        expect(arch, json, "SQ_INSTS_SALU", WAVES * (1 + 2 * TURNS));
        expect(arch, json, "SQ_INSTS_SMEM", WAVES);
        expect(arch, json, "SQ_INSTS_LDS", 0);
        expect(arch, json, is_rdna(arch) ? "insts_branch" : "SQ_INSTS_BRANCH", WAVES * TURNS);
        expect(arch, json, is_rdna(arch) ? "insts_sendmsg" : "SQ_INSTS_SENDMSG", WAVES);
        expect(arch, json, "insts_internal", WAVES * TURNS);
        expect(arch, json, "insts_wait", WAVES);
        expect(arch, json, "insts_barrier", WAVES * barriers);
        expect(arch, json, "scalar_bytes", WAVES * 4);
        expect(arch, json, "scalar_lines", WAVES);
        free(json);
    }
}

static void test_vector_memory_kinds(void **) {
    for (size_t i = 0; i < NUM_ARCHS; i++) {
        const char *arch = archs[i];
        const bool rdna = is_rdna(arch);
        char source[1024];
        snprintf(
            source, sizeof source,
            "s_load_dwordx2 s[4:5], s[0:1], 0x0\n v_lshlrev_b32 v1, 2, v0\n"
            "v_mov_b32 v4, s4\n v_mov_b32 v5, s5\n s_mov_b32 s8, s4\n s_mov_b32 s9, s5\n"
            "s_mov_b32 s10, 0x1000\n s_mov_b32 s11, %s\n s_mov_b32 s12, 0\n"
            "global_load_dword v3, v1, s[4:5]\n global_load_dwordx2 v[6:7], v1, s[4:5]\n"
            "flat_load_dword v3, v[4:5]\n buffer_load_dword v3, v1, s[8:11], s12 offen\n"
            "global_store_dword v1, v3, s[4:5]\n buffer_store_dword v3, v1, s[8:11], s12 offen\n"
            "global_atomic_add v1, v0, s[4:5]\n global_atomic_add v3, v1, v0, s[4:5] %s\n"
            "ds_write_b32 v1, v0\n ds_read_b32 v3, v1\n ds_add_u32 v1, v0\n s_endpgm\n",
            rdna ? "0x31016000" : "0x27000",
            is_gfx12(arch)                    ? "th:TH_ATOMIC_RETURN"
            : rdna || !strcmp(arch, "gfx90a") ? "glc"
                                              : "sc0");
        char *json = profile(
            &(test_launch){.arch = arch, .groups = 1, .threads = lanes_of(arch), .lds_bytes = 1024},
            source);
        const uint64_t lanes = lanes_of(arch);
        expect(arch, json, rdna ? "SQ_INSTS_TEX_LOAD" : "SQ_INSTS_VMEM_RD", 5);
        expect(arch, json, rdna ? "SQ_INSTS_TEX_STORE" : "SQ_INSTS_VMEM_WR", 3);
        expect(arch, json, rdna ? "insts_vmem" : "SQ_INSTS_VMEM", 8);
        expect(arch, json, "SQ_INSTS_FLAT", 6);
        expect(arch, json, "SQ_INSTS_LDS", 3);
        expect(arch, json, "memory_load_bytes", lanes * (4 + 8 + 4 + 4));
        expect(arch, json, "memory_store_bytes", lanes * 8);
        expect(arch, json, "memory_atomic_bytes", lanes * 8);
        expect(arch, json, "lds_load_bytes", lanes * 4);
        expect(arch, json, "lds_store_bytes", lanes * 4);
        expect(arch, json, "lds_atomic_bytes", lanes * 4);
        free(json);
    }
}

static void test_matrix_kinds(void **) {
    static const struct {
        const char *arch, *source, *counters[4];
        uint64_t wanted[4];
    } cases[] = {
        {"gfx942",
         "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], 0\n"
         "v_mfma_f32_16x16x32_bf8_fp8 v[0:3], v[4:5], v[6:7], 0\n"
         "v_smfmac_f32_16x16x64_fp8_fp8 v[0:3], v[4:5], v[8:11], v12\n"
         "v_mfma_f32_32x32x8_f16 a[0:15], v[4:5], v[6:7], 0\n"
         "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0\n",
         {"SQ_INSTS_MFMA", "SQ_INSTS_VALU_MFMA_F8", "SQ_INSTS_VALU_MFMA_F16",
          "SQ_INSTS_VALU_MFMA_BF16"},
         {5, 3, 1, 1}},
        {"gfx942",
         "v_mfma_i32_16x16x32_i8 v[0:3], v[4:5], v[6:7], 0\n"
         "v_mfma_f32_16x16x4_f32 v[0:3], v4, v6, 0\n"
         "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], 0\n"
         "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0\n v_mov_b32 v1, v2\n",
         {"SQ_INSTS_VALU", "SQ_INSTS_VALU_MFMA_I8", "SQ_INSTS_VALU_MFMA_F32",
          "SQ_INSTS_VALU_MFMA_XF32"},
         {5, 1, 1, 1}},
        {"gfx942",
         "v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], 0\n",
         {"SQ_INSTS_VALU_MFMA_F64", "SQ_INSTS_VALU_MFMA_F32", "SQ_INSTS_VALU_MFMA_F8",
          "valu_lanes"},
         {1, 0, 0, 0}},
        {"gfx942", // 2 * 16 * 16 * 32 / 512, twice that for k = 64, 2 * 32 * 32 * 8 / 512
         "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], 0\n"
         "v_smfmac_f32_16x16x64_fp8_fp8 v[0:3], v[4:5], v[8:11], v12\n"
         "v_mfma_f32_32x32x8_f16 a[0:15], v[4:5], v[6:7], 0\n",
         {"SQ_INSTS_VALU_MFMA_MOPS_F8", "SQ_INSTS_VALU_MFMA_MOPS_F16",
          "SQ_INSTS_VALU_MFMA_MOPS_BF16", "matrix_ops"},
         {32 + 64, 32, 0, 512 * 128}},
        {"gfx90a", // 16 blocks of 4 x 4, 4 of 4 x 4 in double, 2 of 32 x 32
         "v_mfma_f32_4x4x1f32 v[0:3], v4, v6, 0\n"
         "v_mfma_f64_4x4x4f64 v[0:1], v[8:9], v[10:11], 0\n"
         "v_mfma_f32_32x32x1f32 a[0:31], v4, v6, 0\n",
         {"SQ_INSTS_VALU_MFMA_MOPS_F32", "SQ_INSTS_VALU_MFMA_MOPS_F64",
          "SQ_INSTS_VALU_MFMA_MOPS_I8", "matrix_ops"},
         {1 + 8, 1, 0, 512 * 10}},
        {"gfx1201",
         "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[16:19], v[0:7]\n"
         "v_wmma_f16_16x16x16_f16 v[0:3], v[8:11], v[16:19], v[0:3]\n",
         {"insts_wmma_f16", "insts_wmma", "matrix_ops", "insts_wmma_f8"},
         {2, 2, 2 * 8192, 0}},
        {"gfx90a",
         "v_mfma_f32_32x32x8bf16_1k a[0:15], v[4:5], v[6:7], 0\n"
         "v_mfma_f32_4x4x1f32 v[0:3], v4, v6, 0\n v_mfma_i32_16x16x16i8 v[0:3], v4, v6, 0\n",
         {"SQ_INSTS_VALU_MFMA_BF16", "SQ_INSTS_VALU_MFMA_F32", "SQ_INSTS_VALU_MFMA_I8",
          "SQ_INSTS_VALU_MFMA_F16"},
         {1, 1, 1, 0}},
        {"gfx950",
         "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], 0\n"
         "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:13], v[16:23], 0 cbsz:2\n"
         "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[16:21], 0 cbsz:4 blgp:3\n"
         "v_mfma_f32_16x16x32_f16 v[0:3], v[8:11], v[12:15], 0\n",
         {"SQ_INSTS_VALU_MFMA_F8", "SQ_INSTS_VALU_MFMA_F6F4", "SQ_INSTS_VALU_MFMA_F16",
          "SQ_INSTS_MFMA"},
         {2, 1, 1, 4}},
        {"gfx1151",
         "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]\n"
         "v_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7]\n"
         "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[16:19], v[0:7]\n",
         {"insts_wmma", "insts_wmma_f16", "insts_wmma_bf16", "insts_wmma_i8"},
         {3, 1, 1, 1}},
        {"gfx1201",
         "v_wmma_f32_16x16x16_fp8_bf8 v[0:7], v[8:9], v[16:17], v[0:7]\n"
         "v_wmma_i32_16x16x16_iu4 v[0:7], v8, v16, v[0:7]\n",
         {"insts_wmma", "insts_wmma_f8", "insts_wmma_i8", "SQ_INSTS_VALU"},
         {2, 1, 1, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[1024];
        snprintf(source, sizeof source, "%ss_endpgm\n", cases[i].source);
        char *json = profile(
            &(test_launch){.arch = cases[i].arch, .groups = 1, .threads = lanes_of(cases[i].arch)},
            source);
        for (int k = 0; k < 4; k++)
            expect(cases[i].arch, json, cases[i].counters[k], cases[i].wanted[k]);
        free(json);
    }
}

/** A third wave of 8 work-items; EXEC cut to 16 lanes for two instructions of four. */
static void test_divergence(void **) {
    for (size_t i = 0; i < NUM_ARCHS; i++) {
        const uint32_t lanes = lanes_of(archs[i]);
        char source[256];
        snprintf(source, sizeof source,
                 "v_mov_b32 v1, 1\n v_mov_b32 v2, 1\n s_mov_b32 exec_lo, 0x%x\n"
                 "v_mov_b32 v3, 1\n v_mov_b32 v4, 1\n s_endpgm\n",
                 0xffff);
        char *json = profile(
            &(test_launch){.arch = archs[i], .groups = 1, .threads = 2 * lanes + 8}, source);
        uint64_t cut = lanes == 64 ? 16 + 32 : 16; // the upper half stays, and the third wave has 0
        expect(archs[i], json, "valu_lanes", 3 * 4 * lanes);
        expect(archs[i], json, "valu_active_lanes", 2 * (2 * lanes + 8) + 2 * (2 * cut + 16));
        free(json);
    }
}

// ---- launches

static const char one_move[] = "v_mov_b32 v1, 1\n s_endpgm\n";

static const char *record_of(const char *json, const char *name, const char *arch, int device) {
    char key[128];
    snprintf(key, sizeof key, "{\"name\": \"%s\", \"arch\": \"%s\", \"device\": %d,", name, arch,
             device);
    const char *at = strstr(json, key);
    if (!at)
        fail_msg("no %s in %.3000s", key, json);
    return at;
}

static void test_records(void **) {
    char path[64];
    begin_profile(path);
    test_launch a = {.arch = "gfx942", .name = "a", .groups = 2, .threads = 64};
    test_launch again = a, wide = a, other = a, odd = a;
    again.groups = 5; // the same record
    wide.threads = 128;
    other.device = 1;
    odd.arch = "gfx1201";
    odd.name = "\"\\\n\xff";
    const test_launch *launches[] = {&a, &wide, &other, &odd, &again};
    for (int i = 0; i < 5; i++)
        run_program(launches[i], one_move);
    run_program(&a, "v_mov_b32 v1, 2\n v_mov_b32 v1, 2\n s_endpgm\n"); // other code of that name
    char *json = end_profile(path);
    const char *first = record_of(json, "a", "gfx942", 0);
    expect("a", first, "launches", 2);
    expect("a", first, "workgroups", 7);
    expect("a", first, "SQ_INSTS_VALU", 7);
    const char *second = strstr(first + 1, "{\"name\"");
    expect("wide", second, "SQ_INSTS_VALU", 4);
    expect("other code", record_of(second + 1, "a", "gfx942", 0), "SQ_INSTS_VALU", 4);
    expect("other", record_of(json, "a", "gfx942", 1), "SQ_INSTS_VALU", 2);
    expect("odd", record_of(json, "\\\"\\\\\\u000a\\u00ff", "gfx1201", 0), "SQ_INSTS_VALU", 4);
    free(json);
}

static void *run_many(void *launch) {
    for (int i = 0; i < 5; i++)
        run_program(launch, one_move);
    return nullptr;
}

static void test_threads(void **) {
    enum { THREADS = 4, GROUPS = 37 };
    char path[64];
    pthread_t threads[THREADS];
    test_launch launch = {.arch = "gfx942", .name = "many", .groups = GROUPS, .threads = 256};
    begin_profile(path);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], nullptr, run_many, &launch), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], nullptr);
    char *json = end_profile(path);
    expect("threads", json, "launches", THREADS * 5);
    expect("threads", json, "SQ_WAVES", THREADS * 5 * GROUPS * 4);
    expect("threads", json, "SQ_INSTS_VALU", THREADS * 5 * GROUPS * 4);
    free(json);
}

/** Counters are equal under every check; instructions that VSKIP skips are not counted. */
static void test_other_modes(void **) {
    static const char source[] = "v_lshlrev_b32 v1, 2, v0\n ds_write_b32 v1, v0\n"
                                 "ds_read_b32 v2, v1\n s_waitcnt 0\n s_mov_b32 s2, 1\n"
                                 "s_setvskip s2, 0\n v_mov_b32 v1, 1\n ds_read_b32 v2, v1\n"
                                 "s_setvskip s2, 1\n s_endpgm\n";
    test_launch launch = {.arch = "gfx942", .groups = 1, .threads = 64, .lds_bytes = 256};
    char *plain = profile(&launch, source);
    launch.check = SIM_CHECK_ALL;
    char *checked = profile(&launch, source);
    assert_string_equal(plain, checked);
    expect("vskip", plain, "SQ_INSTS_VSKIPPED", 2);
    expect("vskip", plain, "SQ_INSTS_VALU", 1);
    expect("vskip", plain, "SQ_INSTS_LDS", 2);
    expect("vskip", plain, "SQ_INSTS", 10);
    free(plain);
    free(checked);
}

static void test_failed_launch(void **) {
    char path[64];
    test_launch good = {.arch = "gfx942", .groups = 1, .threads = 64}, bad = good;
    bad.fails = true;
    begin_profile(path);
    static const char source[] = "v_mov_b32 v2, 0\n v_mov_b32 v3, 1\n s_cmp_eq_u32 s2, 0\n"
                                 "s_cbranch_scc1 end\n flat_load_dword v4, v[2:3]\n"
                                 "end: s_endpgm\n";
    bad.groups = 2;
    run_program(&good, source);
    run_program(&bad, source);
    char *early = read_file(path); // written though the process goes on
    char *json = end_profile(path);
    expect("failed", json, "launches", 2);
    expect("failed", json, "failed_launches", 1);
    expect("failed", json, "SQ_INSTS_VALU", 6);
    assert_string_equal(early, json);
    free(early);
    free(json);
}

static void fork_prepare(void) {
    sim_pool_fork_prepare();
    sim_look_fork_prepare();
    sim_decode_fork_prepare();
}

/** A child counts for itself, in a file of its own. */
static void test_fork(void **) {
    char path[64], childs[80];
    int status;
    const test_launch launch = {.arch = "gfx942", .groups = 1, .threads = 64};
    begin_profile(path);
    run_program(&launch, one_move);
    fork_prepare();
    pid_t child = fork();
    sim_decode_fork_done();
    if (child == 0) {
        sim_look_fork_child();
        sim_pool_fork_child();
        run_program(&launch, one_move);
        run_program(&launch, one_move);
        sim_look_finish();
        _exit(0);
    }
    sim_look_fork_parent();
    sim_pool_fork_parent();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char *json = end_profile(path);
    snprintf(childs, sizeof childs, "%s.%d", path, (int)child);
    char *of_child = read_file(childs);
    expect("parent", json, "launches", 1);
    expect("child", of_child, "launches", 2);
    unlink(childs);
    free(of_child);
    free(json);
}

static void test_files(void **) {
    char error[SIM_PATH_BYTES + 256], path[64], name[128];
    sim_look_options options = {.profile = "/nowhere/at/all"};
    assert_false(sim_look_configure(&options, error, sizeof error));
    assert_non_null(strstr(error, "profile=/nowhere/at/all: cannot be written: No such file"));
    make_path(path);
    snprintf(options.profile, sizeof options.profile, "%s-%%p.json", path);
    configure(&options);
    run_program(&(test_launch){.arch = "gfx942", .groups = 1, .threads = 64}, one_move);
    sim_look_finish();
    snprintf(name, sizeof name, "%s-%d.json", path, (int)getpid());
    char *json = read_file(name);
    expect("named", json, "SQ_WAVES", 1);
    free(json);
    unlink(name);
    unlink(path);
}

// ---- occupancy

/** Vector registers and waves for each SIMD: LLVM's tables for gfx90a and later; 64 KiB of LDS, 800
 *  scalar registers. */
static void test_occupancy(void **) {
    static const struct {
        const char *arch;
        uint32_t vgprs, sgprs, threads, lds, groups;
        sim_limit limit;
    } cases[] = {
        {"gfx942", 64, 32, 256, 0, 8, SIM_LIMIT_WAVES},
        {"gfx942", 65, 32, 256, 0, 7, SIM_LIMIT_VGPRS},
        {"gfx942", 80, 32, 256, 0, 6, SIM_LIMIT_VGPRS},
        {"gfx942", 128, 32, 256, 0, 4, SIM_LIMIT_VGPRS},
        {"gfx942", 512, 32, 256, 0, 1, SIM_LIMIT_VGPRS},
        {"gfx942", 32, 102, 256, 0, 7, SIM_LIMIT_SGPRS},
        {"gfx942", 32, 32, 256, 16384, 4, SIM_LIMIT_LDS},
        {"gfx942", 32, 32, 256, 16385, 3, SIM_LIMIT_LDS},
        {"gfx942", 32, 32, 1024, 0, 2, SIM_LIMIT_WAVES},
        {"gfx942", 32, 32, 64, 0, 32, SIM_LIMIT_WAVES},
        {"gfx950", 32, 32, 256, 16385, 8, SIM_LIMIT_WAVES},
        {"gfx950", 32, 32, 256, 40960, 4, SIM_LIMIT_LDS},
        {"gfx1151", 96, 32, 256, 0, 4, SIM_LIMIT_WAVES},
        {"gfx1151", 120, 32, 256, 0, 3, SIM_LIMIT_VGPRS},
        {"gfx1201", 256, 32, 32, 0, 10, SIM_LIMIT_VGPRS},
        {"gfx1201", 32, 32, 32, 0, 32, SIM_LIMIT_WAVES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_kernel kernel = {
            .num_vgprs = cases[i].vgprs, .num_sgprs = cases[i].sgprs, .wave32 = true};
        sim_occupancy o = sim_find_occupancy(sim_chip_by_name(cases[i].arch), &kernel,
                                             cases[i].threads, cases[i].lds);
        if (o.groups != cases[i].groups || o.limit != cases[i].limit) {
            fail_msg("%s, %u VGPRs, %u work-items, %u of LDS: %u workgroups by limit %d, wanted %u "
                     "by %d",
                     cases[i].arch, cases[i].vgprs, cases[i].threads, cases[i].lds, o.groups,
                     o.limit, cases[i].groups, cases[i].limit);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_vector_memory_kinds),
        cmocka_unit_test(test_matrix_kinds), cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_records),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_other_modes),  cmocka_unit_test(test_failed_launch),
        cmocka_unit_test(test_fork),         cmocka_unit_test(test_files),
        cmocka_unit_test(test_occupancy),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
