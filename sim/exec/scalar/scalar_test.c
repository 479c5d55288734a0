// SPDX-License-Identifier: Apache-2.0
// Tests of scalar arithmetic, compares, EXEC and control flow, against references written apart
// from exec/.
#include "../exec_testing.h"

enum { ROUNDS = 50 };

typedef struct answer {
    uint64_t value;
    int scc; // -1: unchanged
} answer;

typedef __int128 i128;

static int nonzero(uint64_t x) {
    return x != 0;
}
static uint32_t low(uint64_t x) {
    return (uint32_t)x;
}
static int64_t sign(uint64_t x) {
    return (int32_t)x;
}
static answer logic(uint64_t x) {
    return (answer){low(x), nonzero(low(x))};
}
static answer logic64(uint64_t x) {
    return (answer){x, nonzero(x)};
}
static answer only(uint64_t x) {
    return (answer){x, -1};
}
static answer carry(uint64_t x) {
    return (answer){low(x), x >> 32 != 0};
}
static answer overflow(int64_t x) {
    return (answer){low((uint64_t)x), x != sign((uint64_t)x)};
}

// a and b are 32-bit values zero-extended, or 64-bit ones; c is SCC.
static answer r_add_u32(uint64_t a, uint64_t b, int) {
    return carry(a + b);
}
static answer r_sub_u32(uint64_t a, uint64_t b, int) {
    return carry(a - b);
}
static answer r_addc(uint64_t a, uint64_t b, int c) {
    return carry(a + b + (uint64_t)c);
}
static answer r_subb(uint64_t a, uint64_t b, int c) {
    return carry(a - b - (uint64_t)c);
}
static answer r_add_i32(uint64_t a, uint64_t b, int) {
    return overflow(sign(a) + sign(b));
}
static answer r_sub_i32(uint64_t a, uint64_t b, int) {
    return overflow(sign(a) - sign(b));
}
static answer r_min_i32(uint64_t a, uint64_t b, int) {
    return (answer){sign(a) < sign(b) ? a : b, sign(a) < sign(b)};
}
static answer r_max_u32(uint64_t a, uint64_t b, int) {
    return (answer){a > b ? a : b, a >= b};
}
static answer r_cselect(uint64_t a, uint64_t b, int c) {
    return only(c ? a : b);
}
static answer r_and(uint64_t a, uint64_t b, int) {
    return logic(a & b);
}
static answer r_andn2(uint64_t a, uint64_t b, int) {
    return logic(a & ~b);
}
static answer r_nor(uint64_t a, uint64_t b, int) {
    return logic(~(a | b));
}
static answer r_lshl(uint64_t a, uint64_t b, int) {
    return logic(a << b % 32);
}
static answer r_lshr(uint64_t a, uint64_t b, int) {
    return logic(a >> b % 32);
}
static answer r_ashr(uint64_t a, uint64_t b, int) {
    return logic((uint64_t)(sign(a) >> b % 32));
}
static answer r_bfm(uint64_t a, uint64_t b, int) {
    return only(low(((UINT64_C(1) << a % 32) - 1) << b % 32));
}
static answer r_mul(uint64_t a, uint64_t b, int) {
    return only(low(a * b));
}
static answer r_mul_hi_u32(uint64_t a, uint64_t b, int) {
    return only(a * b >> 32);
}
static answer r_mul_hi_i32(uint64_t a, uint64_t b, int) {
    return only(low((uint64_t)(sign(a) * sign(b) >> 32)));
}
static answer r_lshl3_add(uint64_t a, uint64_t b, int) {
    return carry((a << 3) + b);
}
static answer r_pack_lh(uint64_t a, uint64_t b, int) {
    return only((a & 0xffff) | (b >> 16) << 16);
}

static answer r_bfe_u32(uint64_t a, uint64_t b, int) {
    i128 size = (i128)1 << (b >> 16 & 127 & (b >> 16 & 64 ? 64 : 63));
    return logic((uint64_t)((i128)(a >> b % 32) % size));
}

static answer r_bfe_i32(uint64_t a, uint64_t b, int) {
    const unsigned width = b >> 16 & 127;
    i128 size = (i128)1 << (width < 126 ? width : 126),
         field = (i128)((uint64_t)(sign(a) >> b % 32) & UINT64_MAX) & (size - 1);
    return logic((uint64_t)(width && field & size >> 1 ? field - size : field));
}

static answer r_mov(uint64_t a, uint64_t, int) {
    return only(a);
}
static answer r_not(uint64_t a, uint64_t, int) {
    return logic(~a);
}
static answer r_abs(uint64_t a, uint64_t, int) {
    return logic((uint64_t)(sign(a) < 0 ? -sign(a) : sign(a)));
}
static answer r_sext8(uint64_t a, uint64_t, int) {
    return only(low((uint64_t)(int8_t)a));
}

static answer r_brev(uint64_t a, uint64_t, int) {
    uint64_t out = 0;
    for (int i = 0; i < 32; i++)
        out = out << 1 | (a >> i & 1);
    return only(out);
}

static answer r_bcnt1_64(uint64_t a, uint64_t, int) {
    uint64_t n = 0;
    for (; a; a >>= 1)
        n += a & 1;
    return logic(n);
}

static answer r_ff1_64(uint64_t a, uint64_t, int) {
    for (unsigned i = 0; i < 64; i++)
        if (a >> i & 1)
            return only(i);
    return only(UINT32_MAX);
}

static answer r_flbit_32(uint64_t a, uint64_t, int) {
    for (unsigned i = 0; i < 32; i++)
        if (a >> (31 - i) & 1)
            return only(i);
    return only(UINT32_MAX);
}

static answer r_cselect64(uint64_t a, uint64_t b, int c) {
    return only(c ? a : b);
}
static answer r_xor64(uint64_t a, uint64_t b, int) {
    return logic64(a ^ b);
}
static answer r_orn264(uint64_t a, uint64_t b, int) {
    return logic64(a | ~b);
}
static answer r_lshl64(uint64_t a, uint64_t b, int) {
    return logic64(a << (b & 63));
}
static answer r_ashr64(uint64_t a, uint64_t b, int) {
    return logic64((uint64_t)((int64_t)a >> (b & 63)));
}
static answer r_mov64(uint64_t a, uint64_t, int) {
    return only(a);
}
static answer r_not64(uint64_t a, uint64_t, int) {
    return logic64(~a);
}
static answer r_cmp_lt_i32(uint64_t a, uint64_t b, int) {
    return (answer){0, sign(a) < sign(b)};
}
static answer r_cmp_gt_u32(uint64_t a, uint64_t b, int) {
    return (answer){0, a > b};
}
static answer r_cmp_lg_u64(uint64_t a, uint64_t b, int) {
    return (answer){0, a != b};
}
static answer r_bitcmp1(uint64_t a, uint64_t b, int) {
    return (answer){0, a >> b % 32 & 1};
}

/** Sources are s2 and s4 (or pairs), the destination s20. */
static const struct {
    const char *text;
    int dst, src0, src1; // dwords; dst 0: SCC alone
    answer (*ref)(uint64_t, uint64_t, int);
} cases[] = {
    {"s_add_u32 s20, s2, s4", 1, 1, 1, r_add_u32},
    {"s_sub_u32 s20, s2, s4", 1, 1, 1, r_sub_u32},
    {"s_addc_u32 s20, s2, s4", 1, 1, 1, r_addc},
    {"s_subb_u32 s20, s2, s4", 1, 1, 1, r_subb},
    {"s_add_i32 s20, s2, s4", 1, 1, 1, r_add_i32},
    {"s_sub_i32 s20, s2, s4", 1, 1, 1, r_sub_i32},
    {"s_min_i32 s20, s2, s4", 1, 1, 1, r_min_i32},
    {"s_max_u32 s20, s2, s4", 1, 1, 1, r_max_u32},
    {"s_cselect_b32 s20, s2, s4", 1, 1, 1, r_cselect},
    {"s_and_b32 s20, s2, s4", 1, 1, 1, r_and},
    {"s_andn2_b32 s20, s2, s4", 1, 1, 1, r_andn2},
    {"s_nor_b32 s20, s2, s4", 1, 1, 1, r_nor},
    {"s_lshl_b32 s20, s2, s4", 1, 1, 1, r_lshl},
    {"s_lshr_b32 s20, s2, s4", 1, 1, 1, r_lshr},
    {"s_ashr_i32 s20, s2, s4", 1, 1, 1, r_ashr},
    {"s_bfm_b32 s20, s2, s4", 1, 1, 1, r_bfm},
    {"s_mul_i32 s20, s2, s4", 1, 1, 1, r_mul},
    {"s_mul_hi_u32 s20, s2, s4", 1, 1, 1, r_mul_hi_u32},
    {"s_mul_hi_i32 s20, s2, s4", 1, 1, 1, r_mul_hi_i32},
    {"s_lshl3_add_u32 s20, s2, s4", 1, 1, 1, r_lshl3_add},
    {"s_pack_lh_b32_b16 s20, s2, s4", 1, 1, 1, r_pack_lh},
    {"s_bfe_u32 s20, s2, s4", 1, 1, 1, r_bfe_u32},
    {"s_bfe_i32 s20, s2, s4", 1, 1, 1, r_bfe_i32},
    {"s_mov_b32 s20, s2", 1, 1, 0, r_mov},
    {"s_not_b32 s20, s2", 1, 1, 0, r_not},
    {"s_abs_i32 s20, s2", 1, 1, 0, r_abs},
    {"s_sext_i32_i8 s20, s2", 1, 1, 0, r_sext8},
    {"s_brev_b32 s20, s2", 1, 1, 0, r_brev},
    {"s_bcnt1_i32_b64 s20, s[2:3]", 1, 2, 0, r_bcnt1_64},
    {"s_ff1_i32_b64 s20, s[2:3]", 1, 2, 0, r_ff1_64},
    {"s_flbit_i32_b32 s20, s2", 1, 1, 0, r_flbit_32},
    {"s_cselect_b64 s[20:21], s[2:3], s[4:5]", 2, 2, 2, r_cselect64},
    {"s_xor_b64 s[20:21], s[2:3], s[4:5]", 2, 2, 2, r_xor64},
    {"s_orn2_b64 s[20:21], s[2:3], s[4:5]", 2, 2, 2, r_orn264},
    {"s_lshl_b64 s[20:21], s[2:3], s4", 2, 2, 1, r_lshl64},
    {"s_ashr_i64 s[20:21], s[2:3], s4", 2, 2, 1, r_ashr64},
    {"s_mov_b64 s[20:21], s[2:3]", 2, 2, 0, r_mov64},
    {"s_not_b64 s[20:21], s[2:3]", 2, 2, 0, r_not64},
    {"s_cmp_lt_i32 s2, s4", 0, 1, 1, r_cmp_lt_i32},
    {"s_cmp_gt_u32 s2, s4", 0, 1, 1, r_cmp_gt_u32},
    {"s_cmp_lg_u64 s[2:3], s[4:5]", 0, 2, 2, r_cmp_lg_u64},
    {"s_bitcmp1_b32 s2, s4", 0, 1, 1, r_bitcmp1},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

static uint64_t scalar(const sim_wave *w, int reg, int dwords) {
    return w->s[reg] | (dwords == 2 ? (uint64_t)w->s[reg + 1] << 32 : 0);
}

static void check_case(test_wave *t, size_t i, sim_exec_fn exec, const sim_inst *inst) {
    randomise(t, next_random());
    if (next_random() & 1) { // equal sources, now and then
        memcpy(&t->wave.s[4], &t->wave.s[2], 8);
        memcpy(&t->before, &t->wave, sizeof t->wave);
    }
    exec(&t->wave, inst);
    const uint64_t a = scalar(&t->before, 2, cases[i].src0),
                   b = scalar(&t->before, 4, cases[i].src1);
    answer want = cases[i].ref(a, b, (int)t->before.scc);
    const uint64_t got = cases[i].dst ? scalar(&t->wave, 20, cases[i].dst) : 0;
    const uint32_t scc = want.scc < 0 ? t->before.scc : (uint32_t)want.scc;
    if (got != want.value || t->wave.scc != scc) {
        fail_msg("%s: %llx, %llx: got %llx scc %u, want %llx scc %u", cases[i].text,
                 (unsigned long long)a, (unsigned long long)b, (unsigned long long)got, t->wave.scc,
                 (unsigned long long)want.value, scc);
    }
    memcpy(&t->wave.s[20], &t->before.s[20], 8);
    t->wave.scc = t->before.scc;
    assert_memory_equal(&t->wave, &t->before, sizeof t->wave);
}

static void test_arithmetic(void **) {
    char source[8192] = "";
    for (size_t i = 0; i < NUM_CASES; i++)
        strcat(strcat(source, cases[i].text), "\n");
    size_t size, at = 0;
    uint8_t *text = assemble("gfx942", source, &size);
    test_wave *t = make_wave("gfx942");
    for (size_t i = 0; i < NUM_CASES; i++) {
        sim_inst inst = decode_at("gfx942", text, size, at);
        for (int round = 0; round < ROUNDS; round++) {
            check_case(t, i, inst.exec, &inst);
            check_case(t, i, sim_opcode_portable(inst.opcode)->exec, &inst);
        }
        at += inst.bytes;
    }
    free(t);
    free(text);
}

// ---- programs: what they leave in registers

static void run_program(test_wave *t, const char *source) {
    size_t size;
    uint8_t *bytes = assemble("gfx942", source, &size);
    sim_text text = {.chip = t->dispatch.chip,
                     .bytes = bytes,
                     .start = 0x1000,
                     .size = size,
                     .slots = calloc(size / 4, sizeof *text.slots)};
    t->dispatch.text = &text;
    t->wave.pc = text.start;
    t->wave.state = SIM_RUNNING;
    sim_wave_run(&t->wave);
    sim_text_deinit(&text);
    free(bytes);
}

static void test_loop(void **) {
    test_wave *t = make_wave("gfx942");
    run_program(t, "s_movk_i32 s0, 10\n s_mov_b32 s1, 0\n"
                   "loop: s_add_i32 s1, s1, s0\n s_addk_i32 s0, -1\n s_cmpk_lg_i32 s0, 0\n"
                   "s_cbranch_scc1 loop\n s_endpgm\n");
    assert_int_equal(t->wave.state, SIM_ENDED);
    assert_int_equal(t->wave.s[1], 55);
    free(t);
}

/** Tests calls. s_getpc_b64 gives the address of s_add_u32, which is what "." stands for there. */
static void test_calls(void **) {
    test_wave *t = make_wave("gfx942");
    run_program(t, "s_getpc_b64 s[0:1]\n s_add_u32 s0, s0, callee-.\n s_addc_u32 s1, s1, 0\n"
                   "s_swappc_b64 s[30:31], s[0:1]\n s_mov_b32 s5, 7\n s_endpgm\n"
                   "callee: s_mov_b32 s4, 9\n s_setpc_b64 s[30:31]\n");
    assert_int_equal(t->wave.state, SIM_ENDED);
    assert_int_equal(t->wave.s[4], 9);
    assert_int_equal(t->wave.s[5], 7);
    free(t);
}

static void test_saveexec(void **) {
    test_wave *t = make_wave("gfx942");
    t->wave.exec = 0xff00ff00ff00ff00;
    t->wave.vcc = 0x0ff00ff00ff00ff0;
    run_program(t, "s_and_saveexec_b64 s[0:1], vcc\n s_xor_b64 s[2:3], exec, s[0:1]\n"
                   "s_cbranch_execz skip\n v_mov_b32 v0, 5\n skip: s_or_saveexec_b64 s[4:5], "
                   "s[2:3]\n s_endpgm\n");
    assert_int_equal(scalar(&t->wave, 0, 2), 0xff00ff00ff00ff00);
    assert_int_equal(scalar(&t->wave, 2, 2), 0xf000f000f000f000);
    assert_int_equal(scalar(&t->wave, 4, 2), 0x0f000f000f000f00);
    assert_int_equal(t->wave.exec, 0xff00ff00ff00ff00);
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        assert_int_equal(t->wave.v[0][lane], UINT64_C(0x0f000f000f000f00) >> lane & 1 ? 5 : 0);
    free(t);
}

/** Tests MODE, set by s_setreg: truncating sums, flushed denormals. */
static void test_mode(void **) {
    test_wave *t = make_wave("gfx942");
    t->wave.exec = UINT64_MAX;
    run_program(
        t,
        "v_mov_b32 v1, 1.0\n v_mov_b32 v2, 0x337fffff\n v_mov_b32 v3, 0x00000123\n"
        "v_add_f32 v4, v1, v2\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\n"
        "v_add_f32 v5, v1, v2\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3\n"
        "v_sub_f32 v6, v1, v2\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0\n"
        "v_add_f32 v7, v3, v3\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n"
        "v_add_f32 v8, v3, v3\n v_and_b32 v9, v3, v3\n s_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 4)\n"
        "s_endpgm\n");
    assert_int_equal(t->wave.v[4][0], 0x3f800000); // to nearest
    assert_int_equal(t->wave.v[5][0], 0x3f800001); // upward
    assert_int_equal(t->wave.v[6][0], 0x3f7fffff); // toward zero
    assert_int_equal(t->wave.v[7][0], 0x246);      // denormals kept
    assert_int_equal(t->wave.v[8][0], 0);          // flushed
    assert_int_equal(t->wave.v[9][0], 0x123);      // not a float operation
    assert_int_equal(t->wave.s[0], 0xc);
    free(t);
}

static void test_gpr_index(void **) {
    test_wave *t = make_wave("gfx942");
    for (unsigned r = 0; r < 16; r++)
        t->wave.v[r][3] = 100 + r;
    t->wave.exec = 8;
    run_program(t, "s_mov_b32 s0, 5\n s_set_gpr_idx_on s0, gpr_idx(SRC0)\n v_mov_b32 v20, v2\n "
                   "s_set_gpr_idx_off\n"
                   "s_set_gpr_idx_on s0, gpr_idx(DST)\n v_mov_b32 v21, v3\n s_set_gpr_idx_off\n "
                   "v_mov_b32 v22, v4\n"
                   "s_endpgm\n");
    assert_int_equal(t->wave.v[20][3], 107);
    assert_int_equal(t->wave.v[26][3], 103);
    assert_int_equal(t->wave.v[22][3], 104);
    assert_int_equal(t->wave.v[20][2], 0);
    free(t);
}

static void test_vskip(void **) {
    test_wave *t = make_wave("gfx942");
    t->wave.exec = UINT64_MAX;
    run_program(t, "s_mov_b32 s0, 4\n s_setvskip s0, 2\n v_mov_b32 v0, 1\n s_mov_b32 s1, 3\n "
                   "s_setvskip s0, 0\n"
                   "v_mov_b32 v1, 1\n s_endpgm\n");
    assert_int_equal(t->wave.v[0][0], 0);
    assert_int_equal(t->wave.v[1][0], 1);
    assert_int_equal(t->wave.s[1], 3);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_loop),
        cmocka_unit_test(test_calls),      cmocka_unit_test(test_saveexec),
        cmocka_unit_test(test_mode),       cmocka_unit_test(test_gpr_index),
        cmocka_unit_test(test_vskip),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
