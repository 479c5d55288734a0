// SPDX-License-Identifier: Apache-2.0
// Measures the speed of the simulator on one core, with checks off. Prints `name value unit` lines,
// or one JSON object with --json.
//
//   sim_bench [--json] [PART]     only the lines whose name contains PART
//
// Each figure is the median of REPEATS timings of at least MIN_SECONDS of the thread's processor
// time each, so that a busy machine changes it little.
#include "../sim/isa/isa.h"
#include "../sim/wave.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 5 };
static constexpr double MIN_SECONDS = 0.05;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/** Returns the units of work a second of `run`, each call of which does `count` units. */
static double rate(void (*run)(void *), void *state, double count) {
    double rates[REPEATS];
    for (double start = seconds(); seconds() - start < MIN_SECONDS;)
        run(state); // warm up
    for (int r = 0; r < REPEATS; r++) {
        double start = seconds(), elapsed = 0, calls = 0;
        for (; elapsed < MIN_SECONDS; elapsed = seconds() - start) {
            run(state);
            calls += count;
        }
        rates[r] = calls / elapsed;
    }
    qsort(rates, REPEATS, sizeof *rates, compare_doubles);
    return rates[REPEATS / 2];
}

// ---- output

static bool as_json, is_first = true;

static void report(const char *name, double value, const char *unit) {
    if (as_json) {
        printf("%s\n  \"%s\": {\"value\": %.4g, \"unit\": \"%s\"}", is_first ? "" : ",", name,
               value, unit);
    } else {
        printf("%-44s %10.4g %s\n", name, value, unit);
    }
    is_first = false;
}

// ---- matrix instructions

/** How inputs are quantised: the bits of the element, the bits of its fraction, the exponent's
 *  bias; 0: integers. */
typedef struct element {
    int bits, fraction, bias;
} element;

typedef struct matrix_line {
    const char *mnemonic;
    sim_arch arch;
    element input;
} matrix_line;

static const matrix_line matrix_lines[] = {
    {"v_mfma_f32_16x16x32_fp8_fp8", SIM_GFX942, {8, 3, 8}},
    {"v_mfma_f32_32x32x16_fp8_fp8", SIM_GFX942, {8, 3, 8}},
    {"v_mfma_f32_16x16x32_bf8_bf8", SIM_GFX942, {8, 2, 16}},
    {"v_mfma_f32_32x32x8_bf16", SIM_GFX942, {16, 7, 127}},
    {"v_mfma_f32_16x16x16_bf16", SIM_GFX942, {16, 7, 127}},
    {"v_mfma_f32_16x16x16_f16", SIM_GFX942, {16, 10, 15}},
    {"v_mfma_f32_16x16x8_xf32", SIM_GFX942, {32, 23, 127}},
    {"v_mfma_f32_16x16x4_f32", SIM_GFX942, {32, 23, 127}},
    {"v_mfma_f64_16x16x4_f64", SIM_GFX942, {64, 52, 1023}},
    {"v_mfma_i32_16x16x32_i8", SIM_GFX942, {8, 0, 0}},
    {"v_mfma_f32_32x32x8bf16_1k", SIM_GFX90A, {16, 7, 127}},
    {"v_mfma_f32_16x16x32_fp8_fp8", SIM_GFX950, {8, 3, 7}},
    {"v_wmma_f32_16x16x16_bf16", SIM_GFX1151, {16, 7, 127}},
    {"v_wmma_f32_16x16x16_f16", SIM_GFX1201, {16, 10, 15}},
    {"v_wmma_f32_16x16x16_fp8_fp8", SIM_GFX1201, {8, 3, 7}},
    {"v_wmma_i32_16x16x16_iu8", SIM_GFX1201, {8, 0, 0}},
};

enum { MATRIX_BATCH = 256, C_REG = 64, D_REG = 256 };

typedef struct matrix_state {
    sim_wave *wave;
    sim_inst with_c, without_c;
} matrix_state;

static double random_normal(void) {
    const double u = (rand() + 1.0) / ((double)RAND_MAX + 2.0), v = rand() / (double)RAND_MAX;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint64_t quantised(element t, double x) {
    if (t.bias == 0)
        return (uint64_t)(int64_t)lrint(x * 40) & ((1ull << t.bits) - 1);
    int smallest = 1 - t.bias, e = x == 0 ? smallest : ilogb(x);
    e = e < smallest ? smallest : e;
    uint64_t m =
        (uint64_t)llrint(ldexp(fabs(x), t.fraction - e)); // 2^(fraction + 1) carries upward
    const uint64_t magnitude = m + ((uint64_t)(e + t.bias - 1) << t.fraction);
    return magnitude == 0 ? 0 : magnitude | (uint64_t)(x < 0) << (t.bits - 1);
}

/** Fills registers: 0 to 63 with inputs, the others with f32 of a few products' size. */
static void fill(sim_wave *wave, element t) {
    for (int i = 0; i < C_REG * SIM_LANES; i++) {
        uint64_t x = 0;
        const int lane = i % SIM_LANES, reg = i / SIM_LANES;
        for (int at = 0; at < 32; at += t.bits)
            x |= quantised(t, random_normal()) << at;
        wave->v[reg][lane] = (uint32_t)(reg % 2 == 1 && t.bits == 64 ? x >> 32 : x);
    }
    for (int i = 0; i < 32 * SIM_LANES; i++) {
        float c = (float)(4 * random_normal());
        memcpy(&wave->v[C_REG][i], &c, sizeof c);
    }
}

static void run_matrix(void *arg) {
    matrix_state *s = arg;
    for (int i = 0; i < MATRIX_BATCH; i += 2) {
        s->with_c.src[0].reg = s->without_c.src[0].reg = (uint16_t)(i * 4 % 32);
        s->with_c.src[1].reg = s->without_c.src[1].reg = (uint16_t)(32 + i * 12 % 32);
        s->with_c.exec(s->wave, &s->with_c);
        s->without_c.exec(s->wave, &s->without_c);
    }
}

static void bench_matrix(const matrix_line *line, bool fast) {
    const sim_opcode *opcode = sim_opcode_find(line->mnemonic, strlen(line->mnemonic), line->arch);
    matrix_state s = {.wave = aligned_alloc(64, sizeof(sim_wave))};
    if (!opcode || !s.wave) {
        fprintf(stderr, "sim_bench: no %s\n", line->mnemonic);
        exit(1);
    }
    memset(s.wave, 0, sizeof *s.wave);
    s.wave->fast_matrix = fast;
    fill(s.wave, line->input);
    s.with_c = (sim_inst){.exec = opcode->exec, .opcode = opcode, .num_dst = 1, .num_src = 3};
    s.with_c.src[0].kind = s.with_c.src[1].kind = s.with_c.src[2].kind = SIM_OP_VGPR;
    s.with_c.src[2].reg = C_REG;
    s.with_c.dst[0].kind = SIM_OP_VGPR;
    s.with_c.dst[0].reg = D_REG;
    s.without_c = s.with_c;
    s.without_c.src[2] = (sim_operand){.kind = SIM_OP_IMM};
    char name[64];
    snprintf(name, sizeof name, "%s.%s%s", line->mnemonic, sim_chip_by_arch(line->arch)->name,
             fast ? ".fast" : "");
    report(name, rate(run_matrix, &s, MATRIX_BATCH) * 1e-6, "million/s");
    free(s.wave);
}

// ---- vector, scalar and LDS instructions, through the wave loop

typedef struct vector_line {
    const char *name;
    uint32_t words[2]; // one instruction's encoding, gfx942
    uint32_t num_words;
    uint64_t exec;
    uint32_t stride; // between the lanes' LDS addresses
} vector_line;

static constexpr uint64_t EVERY = UINT64_MAX, SOME = 0x0f0ff0ff12345678;

static const vector_line vector_lines[] = {
    {"v_add_f32 v1, v2, v3", {0x02020702}, 1, EVERY, 16},
    {"v_add_f32 v1, v2, v3 (masked)", {0x02020702}, 1, SOME, 16},
    {"v_add_f32 v1, s2, v3", {0x02020602}, 1, EVERY, 16},
    {"v_mul_f32 v1, 2.0, v3", {0x0a0206f4}, 1, EVERY, 16},
    {"v_fma_f32 v1, v2, v3, v4", {0xd1cb0001, 0x04120702}, 2, EVERY, 16},
    {"v_fma_f32 v1, v2, v3, v4 (masked)", {0xd1cb0001, 0x04120702}, 2, SOME, 16},
    {"v_fmac_f32 v1, v2, v3", {0x76020702}, 1, EVERY, 16},
    {"v_add_u32 v1, v2, v3", {0x68020702}, 1, EVERY, 16},
    {"v_and_b32 v1, 0xff00, v3", {0x260206ff, 0x0000ff00}, 2, EVERY, 16},
    {"v_lshlrev_b32 v1, 3, v2", {0x24020483}, 1, EVERY, 16},
    {"v_mul_lo_u32 v1, v2, v3", {0xd2850001, 0x00020702}, 2, EVERY, 16},
    {"v_max_f32 v1, v2, v3", {0x16020702}, 1, EVERY, 16},
    {"v_cndmask_b32 v1, v2, v3, vcc", {0x00020702}, 1, EVERY, 16},
    {"v_cmp_lt_f32 vcc, v2, v3", {0x7c820702}, 1, EVERY, 16},
    {"v_mov_b32 v1, v2", {0x7e020302}, 1, EVERY, 16},
    {"v_cvt_f32_u32 v1, v2", {0x7e020d02}, 1, EVERY, 16},
    {"v_lshl_add_u64 v[2:3], v[4:5], 2, v[6:7]", {0xd2080002, 0x04190504}, 2, EVERY, 16},
    {"v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]", {0xd3b04002, 0x1c220d04}, 2, EVERY, 16},
    {"v_exp_f32 v1, v2", {0x7e024102}, 1, EVERY, 16},
    {"v_rcp_f32 v1, v2", {0x7e024502}, 1, EVERY, 16},
    {"v_perm_b32 v1, v2, v3, v4", {0xd1ed0001, 0x04120702}, 2, EVERY, 16},
    {"v_mul_f32_dpp v1, v2, v3 row_newbcast:3", {0x0a0206fa, 0xff015302}, 2, EVERY, 16},
    {"v_cvt_pk_fp8_f32 v1, v2, v3", {0xd2a20001, 0x00020702}, 2, EVERY, 16},
    {"ds_read_b128 v[4:7], v1", {0xd9fe0000, 0x04000001}, 2, EVERY, 16},
    {"ds_read2_b32 v[4:5], v1 offset1:16 (side by side)", {0xd86e1000, 0x04000001}, 2, EVERY, 4},
    {"ds_read2_b32 v[4:5], v1 offset1:16", {0xd86e1000, 0x04000001}, 2, EVERY, 16},
    {"ds_read_b64 v[4:5], v1 (side by side)", {0xd8ec0000, 0x04000001}, 2, EVERY, 8},
    {"ds_read_b64 v[4:5], v1", {0xd8ec0000, 0x04000001}, 2, EVERY, 16},
    {"ds_write_b128 v1, v[4:7]", {0xd9be0000, 0x00000401}, 2, EVERY, 16},
    {"ds_write_b64 v1, v[4:5] (side by side)", {0xd89a0000, 0x00000401}, 2, EVERY, 8},
    {"ds_write_b64 v1, v[4:5]", {0xd89a0000, 0x00000401}, 2, EVERY, 16},
    {"v_bfe_u32 v1, v2, 3, 5", {0xd1c80001, 0x02150702}, 2, EVERY, 16},
    {"v_bfi_b32 v1, v2, v3, v4", {0xd1ca0001, 0x04120702}, 2, EVERY, 16},
    {"v_alignbit_b32 v1, v2, v3, 7", {0xd1ce0001, 0x021e0702}, 2, EVERY, 16},
    {"v_med3_i32 v1, v2, v3, v4", {0xd1d70001, 0x04120702}, 2, EVERY, 16},
    {"v_mul_hi_u32 v1, v2, v3", {0xd2860001, 0x00020702}, 2, EVERY, 16},
    {"v_mad_u32_u24 v1, v2, v3, v4", {0xd1c30001, 0x04120702}, 2, EVERY, 16},
    {"v_bcnt_u32_b32 v1, v2, v3", {0xd28b0001, 0x00020702}, 2, EVERY, 16},
    {"v_ffbh_u32 v1, v2", {0x7e025b02}, 1, EVERY, 16},
    {"v_sad_u8 v1, v2, v3, v4", {0xd1d90001, 0x04120702}, 2, EVERY, 16},
    {"v_med3_f32 v1, v2, v3, v4", {0xd1d60001, 0x04120702}, 2, EVERY, 16},
    {"v_max3_f32 v1, v2, v3, v4", {0xd1d30001, 0x04120702}, 2, EVERY, 16},
    {"v_rndne_f32 v1, v2", {0x7e023d02}, 1, EVERY, 16},
    {"v_ldexp_f32 v1, v2, v3", {0xd2880001, 0x00020702}, 2, EVERY, 16},
    {"v_frexp_mant_f32 v1, v2", {0x7e026902}, 1, EVERY, 16},
    {"v_frexp_exp_i32_f32 v1, v2", {0x7e026702}, 1, EVERY, 16},
    {"v_mul_f32 v1, -v2, |v3|", {0xd1050201, 0x20020702}, 2, EVERY, 16},
    {"v_mul_f32 v1, v2, v3 clamp", {0xd1058001, 0x00020702}, 2, EVERY, 16},
    {"v_add_co_u32 v1, vcc, v2, v3", {0x32020702}, 1, EVERY, 16},
    {"v_addc_co_u32 v1, vcc, v2, v3, vcc", {0x38020702}, 1, EVERY, 16},
    {"v_cmp_lt_u64 vcc, v[2:3], v[4:5]", {0x7dd20902}, 1, EVERY, 16},
    {"v_cmp_class_f32 vcc, v2, v3", {0x7c200702}, 1, EVERY, 16},
    {"v_lshlrev_b64 v[2:3], 3, v[4:5]", {0xd28f0002, 0x00020883}, 2, EVERY, 16},
    {"v_mad_u64_u32 v[2:3], vcc, v4, v5, v[6:7]", {0xd1e86a02, 0x041a0b04}, 2, EVERY, 16},
    {"v_mov_b64 v[2:3], v[4:5]", {0x7e047104}, 1, EVERY, 16},
    {"v_add_f64 v[2:3], v[4:5], v[6:7]", {0xd2800002, 0x00020d04}, 2, EVERY, 16},
    {"v_fma_f64 v[2:3], v[4:5], v[6:7], v[8:9]", {0xd1cc0002, 0x04220d04}, 2, EVERY, 16},
    {"v_cvt_f64_f32 v[2:3], v4", {0x7e042104}, 1, EVERY, 16},
    {"v_rcp_f64 v[2:3], v[4:5]", {0x7e044b04}, 1, EVERY, 16},
    {"v_cvt_i32_f32 v1, v2", {0x7e021102}, 1, EVERY, 16},
    {"v_cvt_u32_f32 v1, v2", {0x7e020f02}, 1, EVERY, 16},
    {"v_cvt_f32_ubyte1 v1, v2", {0x7e022502}, 1, EVERY, 16},
    {"v_cvt_f16_f32 v1, v2", {0x7e021502}, 1, EVERY, 16},
    {"v_cvt_f32_f16 v1, v2", {0x7e021702}, 1, EVERY, 16},
    {"v_cvt_pkrtz_f16_f32 v1, v2, v3", {0xd2960001, 0x00020702}, 2, EVERY, 16},
    {"v_cvt_pk_u8_f32 v1, v2, v3, v4", {0xd1dd0001, 0x04120702}, 2, EVERY, 16},
    {"v_cvt_f32_fp8 v1, v2", {0x7e02a902}, 1, EVERY, 16},
    {"v_cvt_pk_f32_fp8 v[2:3], v4", {0x7e04ad04}, 1, EVERY, 16},
    {"v_cvt_sr_fp8_f32 v1, v2, v3", {0xd2a40001, 0x00020702}, 2, EVERY, 16},
    {"v_add_f16 v1, v2, v3", {0x3e020702}, 1, EVERY, 16},
    {"v_fma_f16 v1, v2, v3, v4", {0xd2060001, 0x04120702}, 2, EVERY, 16},
    {"v_add_u16 v1, v2, v3", {0x4c020702}, 1, EVERY, 16},
    {"v_max_f16 v1, v2, v3", {0x5a020702}, 1, EVERY, 16},
    {"v_pk_fma_f16 v1, v2, v3, v4", {0xd38e4001, 0x1c120702}, 2, EVERY, 16},
    {"v_pk_add_f16 v1, v2, v3", {0xd38f4001, 0x18020702}, 2, EVERY, 16},
    {"v_pk_max_f16 v1, v2, v3", {0xd3924001, 0x18020702}, 2, EVERY, 16},
    {"v_pk_mul_f32 v[2:3], v[4:5], v[6:7]", {0xd3b14002, 0x18020d04}, 2, EVERY, 16},
    {"v_pk_add_u16 v1, v2, v3", {0xd38a4001, 0x18020702}, 2, EVERY, 16},
    {"v_pk_lshlrev_b16 v1, v2, v3", {0xd3844001, 0x18020702}, 2, EVERY, 16},
    {"v_pk_mov_b32 v[2:3], v[4:5], v[6:7]", {0xd3b34002, 0x18020d04}, 2, EVERY, 16},
    {"v_fma_mix_f32 v1, v2, v3, v4", {0xd3a00001, 0x04120702}, 2, EVERY, 16},
    {"v_dot4_i32_i8 v1, v2, v3, v4", {0xd3a84001, 0x1c120702}, 2, EVERY, 16},
    {"v_dot2_f32_f16 v1, v2, v3, v4", {0xd3a34001, 0x1c120702}, 2, EVERY, 16},
    {"v_dot2c_f32_f16 v1, v2, v3", {0x6e020702}, 1, EVERY, 16},
    {"v_log_f32 v1, v2", {0x7e024302}, 1, EVERY, 16},
    {"v_rsq_f32 v1, v2", {0x7e024902}, 1, EVERY, 16},
    {"v_sqrt_f32 v1, v2", {0x7e024f02}, 1, EVERY, 16},
    {"v_sin_f32 v1, v2", {0x7e025302}, 1, EVERY, 16},
    {"v_cos_f32 v1, v2", {0x7e025502}, 1, EVERY, 16},
    {"v_rcp_f16 v1, v2", {0x7e027b02}, 1, EVERY, 16},
    {"v_div_scale_f32 v1, vcc, v2, v3, v4", {0xd1e06a01, 0x04120702}, 2, EVERY, 16},
    {"v_div_fmas_f32 v1, v2, v3, v4", {0xd1e20001, 0x04120702}, 2, EVERY, 16},
    {"v_div_fixup_f32 v1, v2, v3, v4", {0xd1de0001, 0x04120702}, 2, EVERY, 16},
    {"v_add_f32_dpp v1, v2, v3 row_shr:1", {0x020206fa, 0xff011102}, 2, EVERY, 16},
    {"v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2]", {0x7e0202fa, 0xff00b102}, 2, EVERY, 16},
    {"v_add_f32_dpp v1, v2, v3 row_bcast:15 row_mask:0xa bank_mask:0xf",
     {0x020206fa, 0xaf014202},
     2,
     EVERY,
     16},
    {"v_add_u32_sdwa v1, v2, v3 src0_sel:BYTE_1 src1_sel:DWORD",
     {0x680206f9, 0x06010602},
     2,
     EVERY,
     16},
    {"v_lshlrev_b32_sdwa v1, v2, v3 src0_sel:DWORD src1_sel:WORD_1",
     {0x240206f9, 0x05060602},
     2,
     EVERY,
     16},
    {"v_add_f16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 "
     "src1_sel:WORD_0",
     {0x3e0206f9, 0x04051502},
     2,
     EVERY,
     16},
    {"v_readfirstlane_b32 s1, v2", {0x7e020502}, 1, EVERY, 16},
    {"v_readlane_b32 s1, v2, 5", {0xd2890001, 0x00010b02}, 2, EVERY, 16},
    {"v_writelane_b32 v1, s2, 5", {0xd28a0001, 0x00010a02}, 2, EVERY, 16},
    {"v_mbcnt_lo_u32_b32 v1, s2, v3", {0xd28c0001, 0x00020602}, 2, EVERY, 16},
    {"v_mbcnt_hi_u32_b32 v1, s2, v3", {0xd28d0001, 0x00020602}, 2, EVERY, 16},
    {"v_swap_b32 v2, v3", {0x7e04a303}, 1, EVERY, 16},
    {"v_accvgpr_write_b32 a1, v2", {0xd3d94001, 0x18000102}, 2, EVERY, 16},
    {"v_accvgpr_read_b32 v1, a2", {0xd3d84001, 0x18000102}, 2, EVERY, 16},
    {"ds_bpermute_b32 v2, v1, v3", {0xd87e0000, 0x02000301}, 2, EVERY, 16},
    {"ds_permute_b32 v2, v1, v3", {0xd87c0000, 0x02000301}, 2, EVERY, 16},
    {"ds_swizzle_b32 v2, v3 offset:swizzle(SWAP,16)", {0xd87a401f, 0x02000003}, 2, EVERY, 16},
    {"ds_read_b32 v2, v1 (side by side)", {0xd86c0000, 0x02000001}, 2, EVERY, 4},
    {"ds_read_b32 v2, v1", {0xd86c0000, 0x02000001}, 2, EVERY, 16},
    {"ds_write_b32 v1, v2 (side by side)", {0xd81a0000, 0x00000201}, 2, EVERY, 4},
    {"ds_write_b32 v1, v2", {0xd81a0000, 0x00000201}, 2, EVERY, 16},
    {"ds_read2_b64 v[4:7], v1 offset1:16", {0xd8ee1000, 0x04000001}, 2, EVERY, 16},
    {"ds_write2_b32 v1, v2, v3 offset1:16 (side by side)", {0xd81c1000, 0x00030201}, 2, EVERY, 4},
    {"ds_write2_b32 v1, v2, v3 offset1:16", {0xd81c1000, 0x00030201}, 2, EVERY, 16},
    {"ds_read_u16 v2, v1", {0xd8780000, 0x02000001}, 2, EVERY, 16},
    {"ds_write_b16 v1, v2", {0xd83e0000, 0x00000201}, 2, EVERY, 16},
    {"ds_read_u8 v2, v1", {0xd8740000, 0x02000001}, 2, EVERY, 16},
    {"ds_add_u32 v1, v2", {0xd8000000, 0x00000201}, 2, EVERY, 16},
    {"s_add_u32 s1, s2, s3", {0x80010302}, 1, EVERY, 16},
};

enum { VECTOR_BATCH = 1024, LDS_BYTES = 4096 };

typedef struct vector_state {
    uint32_t code[2 * VECTOR_BATCH + 1]; // the instruction many times, then s_endpgm
    sim_text text;
    sim_dispatch dispatch;
    sim_workgroup group;
    sim_wave wave;
    uint8_t lds[LDS_BYTES];
} vector_state;

static void run_vector(void *arg) {
    vector_state *s = arg;
    s->wave.pc = s->text.start;
    s->wave.state = SIM_RUNNING;
    s->wave.num_executed = 0;
    sim_wave_run(&s->wave);
}

/** Prepares a wave whose registers hold floats near 1, except v1, whose lanes are LDS
 *  addresses. */
static void prepare_wave(vector_state *s, const vector_line *line) {
    sim_wave *w = &s->wave;
    for (uint32_t i = 0; i < 16 * SIM_LANES; i++) {
        float x = 1.0f + (float)(i % 97) / 128;
        memcpy(&w->v[i / SIM_LANES][i % SIM_LANES], &x, sizeof x);
    }
    for (uint32_t lane = 0; lane < SIM_LANES; lane++)
        w->v[1][lane] = line->stride * lane;
    w->exec = line->exec;
    w->vcc = SOME;
    w->mode = SIM_MODE_FLOAT_PLAIN | SIM_MODE_IEEE | SIM_MODE_DX10_CLAMP;
    w->group = &s->group;
    s->group = (sim_workgroup){.dispatch = &s->dispatch, .num_waves = 1, .lds = s->lds, .waves = w};
    s->dispatch.chip = sim_chip_by_name("gfx942");
    s->dispatch.text = &s->text;
    s->dispatch.lds_bytes = LDS_BYTES;
}

static void bench_vector(const vector_line *line) {
    static const uint32_t s_endpgm = 0xbf810000;
    vector_state *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s)
        exit(1);
    memset(s, 0, sizeof *s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < VECTOR_BATCH; i++) {
        memcpy(s->code + n, line->words, 4 * line->num_words);
        n += line->num_words;
    }
    s->code[n++] = s_endpgm;
    prepare_wave(s, line);
    s->text = (sim_text){.chip = s->dispatch.chip,
                         .bytes = (const uint8_t *)s->code,
                         .start = 0x1000,
                         .size = 4 * (uint64_t)n,
                         .slots = calloc(n, sizeof *s->text.slots)};
    report(line->name, rate(run_vector, s, VECTOR_BATCH) * 1e-6, "million/s");
    sim_text_deinit(&s->text);
    free(s);
}

static const char usage[] = "usage: sim_bench [--json] [PART]\n"
                            "Speed of the simulator, of the lines whose name contains PART.\n";

/** Reads the arguments; returns PART. */
static const char *read_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"json", no_argument, nullptr, 'j'}, {"help", no_argument, nullptr, 'h'}, {}};
    for (int c; (c = getopt_long(argc, argv, "h", options, nullptr)) != -1;) {
        as_json |= c == 'j';
        if (c != 'j') {
            fputs(usage, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    if (argc - optind > 1) {
        fputs(usage, stderr);
        exit(2);
    }
    return optind < argc ? argv[optind] : "";
}

int main(int argc, char **argv) {
    const char *part = read_arguments(argc, argv);
    printf("%s", as_json ? "{" : "");
    for (size_t i = 0; i < sizeof matrix_lines / sizeof *matrix_lines; i++) {
        if (strstr(matrix_lines[i].mnemonic, part)) {
            bench_matrix(&matrix_lines[i], false);
            bench_matrix(&matrix_lines[i], true);
        }
    }
    for (size_t i = 0; i < sizeof vector_lines / sizeof *vector_lines; i++)
        if (strstr(vector_lines[i].name, part))
            bench_vector(&vector_lines[i]);
    printf("%s", as_json ? "\n}\n" : "");
    return 0;
}
