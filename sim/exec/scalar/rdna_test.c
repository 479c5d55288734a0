// SPDX-License-Identifier: Apache-2.0
// RDNA's scalar floats, EXEC's 32-bit forms, split barriers, permutations of sixteen lanes, indexed
// registers, compare and store in LDS, assembled by LLVM, with expected values written apart from
// exec/.
#include "../exec.h"
#include "../exec_testing.h"

#include <math.h>

enum { ROUNDS = 200 };

/** One assembled program and a wave of 32 lanes to run it. */
typedef struct program {
    const char *chip;
    uint8_t *text;
    size_t size;
    test_wave *t;
} program;

static program start(const char *chip, const char *source) {
    program p = {.chip = chip};
    p.text = assemble(chip, source, &p.size);
    p.t = make_wave(chip);
    p.t->kernel.wave32 = p.t->wave.wave32 = true;
    return p;
}

static void stop(program *p) {
    free(p->text);
    free(p->t);
}

/** Runs instruction after instruction as they lie. */
static void run(program *p) {
    for (size_t at = 0; at < p->size;) {
        sim_inst inst = decode_at(p->chip, p->text, p->size, at);
        inst.exec(&p->t->wave, &inst);
        at += inst.bytes;
        sim_inst_deinit(&inst);
    }
}

static bool same_float(uint32_t got, float want) {
    return isnan(want) ? isnan(as_f32(got)) : got == f32_bits(want);
}

// ---- scalar floats

static void check_scalar_floats(const char *chip) {
    program p =
        start(chip, "s_add_f32 s10, s2, s3\n s_mul_f32 s11, s2, s3\n s_sub_f32 s12, s2, s3\n"
                    "s_fmaak_f32 s13, s2, s3, 0x40490fdb\n s_cvt_f32_i32 s14, s2\n"
                    "s_cvt_f32_u32 s15, s2\n s_cvt_i32_f32 s16, s2\n s_cvt_u32_f32 s17, s2\n"
                    "s_floor_f32 s18, s2\n s_rndne_f32 s19, s2\n s_fmac_f32 s20, s2, s3\n"
                    "s_cvt_f16_f32 s21, s2\n s_add_f16 s22, s2, s3\n s_cvt_hi_f32_f16 s23, s2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, UINT32_MAX);
        const uint32_t *s = p.t->wave.s, *old = p.t->before.s;
        const float a = as_f32(old[2]), b = as_f32(old[3]);
        run(&p);
        assert_true(same_float(s[10], a + b));
        assert_true(same_float(s[11], a * b));
        assert_true(same_float(s[12], a - b));
        assert_true(same_float(s[13], fmaf(a, b, 0x1.921fb6p+1f)));
        assert_int_equal(s[14], f32_bits((float)(int32_t)old[2]));
        assert_int_equal(s[15], f32_bits((float)old[2]));
        const double x = trunc((double)a);
        const double i = isnan(x) ? 0 : fmin(fmax(x, INT32_MIN), INT32_MAX);
        const double u = isnan(x) ? 0 : fmin(fmax(x, 0), UINT32_MAX);
        assert_int_equal((int32_t)s[16], (int32_t)i);
        assert_int_equal(s[17], (uint32_t)u);
        assert_true(same_float(s[18], floorf(a)));
        assert_true(same_float(s[19], rintf(a)));
        assert_true(same_float(s[20], fmaf(a, b, as_f32(old[20]))));
        _Float16 half[2], sum = (_Float16)a;
        uint16_t bits;
        memcpy(&bits, &sum, sizeof bits);
        assert_true(isnan(a) ? (s[21] & 0x7fff) > 0x7c00 : s[21] == bits);
        memcpy(&half[0], &old[2], 2);
        memcpy(&half[1], &old[3], 2);
        sum = half[0] + half[1];
        memcpy(&bits, &sum, sizeof bits);
        assert_true(isnan((float)sum) ? (s[22] & 0x7fff) > 0x7c00 : s[22] == bits);
        memcpy(&half[0], (const char *)&old[2] + 2, 2);
        assert_true(same_float(s[23], (float)half[0]));
    }
    stop(&p);
}

static void test_scalar_floats(void **) {
    check_scalar_floats("gfx1151");
    check_scalar_floats("gfx1201");
}

static bool compares(int condition, float a, float b) {
    const bool unordered = isnan(a) || isnan(b);
    bool held[] = {a < b, !unordered && a == b, a <= b, a > b, a < b || a > b, a >= b, !unordered};
    return condition < 7 ? held[condition] : !held[condition - 7];
}

static void test_scalar_compares(void **) {
    static const char *const texts[] = {
        "s_cmp_lt_f32 s2, s3\n",  "s_cmp_eq_f32 s2, s3\n",  "s_cmp_le_f32 s2, s3\n",
        "s_cmp_gt_f32 s2, s3\n",  "s_cmp_lg_f32 s2, s3\n",  "s_cmp_ge_f32 s2, s3\n",
        "s_cmp_o_f32 s2, s3\n",   "s_cmp_nlt_f32 s2, s3\n", "s_cmp_neq_f32 s2, s3\n",
        "s_cmp_nle_f32 s2, s3\n", "s_cmp_ngt_f32 s2, s3\n", "s_cmp_nlg_f32 s2, s3\n",
        "s_cmp_nge_f32 s2, s3\n", "s_cmp_u_f32 s2, s3\n"};
    for (int i = 0; i < 14; i++) {
        program p = start("gfx1201", texts[i]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(p.t, UINT32_MAX);
            p.t->wave.s[3] = round % 4 ? p.t->wave.s[3] : p.t->wave.s[2];
            run(&p);
            const bool want = compares(i, as_f32(p.t->wave.s[2]), as_f32(p.t->wave.s[3]));
            assert_int_equal(p.t->wave.scc, want);
        }
        stop(&p);
    }
}

// ---- integers of scalars, EXEC

static void test_scalar_integers(void **) {
    program p = start("gfx1201",
                      "s_mul_u64 s[10:11], s[2:3], s[4:5]\n s_add_nc_u64 s[12:13], s[2:3], s[4:5]\n"
                      "s_sub_nc_u64 s[14:15], s[2:3], s[4:5]\n s_and_not1_b32 s16, s2, s3\n"
                      "s_ctz_i32_b32 s17, s2\n s_clz_i32_u32 s18, s2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, UINT32_MAX);
        const uint32_t *s = p.t->wave.s;
        run(&p);
        const uint64_t a = s[2] | (uint64_t)s[3] << 32, b = s[4] | (uint64_t)s[5] << 32;
        assert_true((s[10] | (uint64_t)s[11] << 32) == a * b);
        assert_true((s[12] | (uint64_t)s[13] << 32) == a + b);
        assert_true((s[14] | (uint64_t)s[15] << 32) == a - b);
        assert_int_equal(s[16], s[2] & ~s[3]);
        assert_int_equal(s[17], s[2] ? (uint32_t)__builtin_ctz(s[2]) : UINT32_MAX);
        assert_int_equal(s[18], s[2] ? (uint32_t)__builtin_clz(s[2]) : UINT32_MAX);
    }
    stop(&p);
}

static void test_exec(void **) {
    static const char *const texts[] = {
        "s_and_saveexec_b32 s10, s2\n",      "s_or_saveexec_b32 s10, s2\n",
        "s_xor_saveexec_b32 s10, s2\n",      "s_and_not1_saveexec_b32 s10, s2\n",
        "s_and_not0_saveexec_b32 s10, s2\n", "s_or_not1_saveexec_b32 s10, s2\n",
        "s_nand_saveexec_b32 s10, s2\n"};
    for (int i = 0; i < 7; i++) {
        program p = start(i % 2 ? "gfx1151" : "gfx1201", texts[i]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(p.t, (uint32_t)random_exec(round));
            const uint32_t a = p.t->before.s[2], e = (uint32_t)p.t->before.exec;
            uint32_t want[] = {a & e, a | e, a ^ e, a & ~e, ~a & e, a | ~e, ~(a & e)};
            run(&p);
            assert_true(p.t->wave.exec == want[i]); // the upper half stays 0
            assert_int_equal(p.t->wave.s[10], e);
            assert_int_equal(p.t->wave.scc, want[i] != 0);
        }
        stop(&p);
    }
}

/** With 32 lanes a compare writes one register, and vccz looks at VCC_LO alone. */
static void test_masks(void **) {
    program p = start("gfx1151", "v_cmp_lt_u32_e32 vcc_lo, v2, v3\n v_cmp_lt_i32_e64 s10, v2, v3\n"
                                 "s_cbranch_vccz 3\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        uint32_t lower = 0, less = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            const uint32_t a = p.t->before.v[2][lane], b = p.t->before.v[3][lane];
            const uint32_t bit = (uint32_t)p.t->before.exec & 1u << lane;
            lower |= a < b ? bit : 0;
            less |= (int32_t)a < (int32_t)b ? bit : 0;
        }
        run(&p);
        assert_int_equal(p.t->wave.s[106], lower);
        assert_int_equal(p.t->wave.s[107], p.t->before.s[107]);
        assert_int_equal(p.t->wave.s[10], less);
        assert_int_equal(p.t->wave.s[11], p.t->before.s[11]);
        assert_int_equal(p.t->wave.pc, lower ? p.t->before.pc : 0x1000 + 4 + 12);
    }
    stop(&p);
}

/** The clock that delays spin on goes on; RDNA4's upper half hardly. */
static void test_clock(void **) {
    program p = start("gfx1201", "s_getreg_b32 s10, hwreg(HW_REG_SHADER_CYCLES_LO)\n"
                                 "s_getreg_b32 s11, hwreg(HW_REG_SHADER_CYCLES_HI)\n"
                                 "s_sendmsg_rtn_b64 s[12:13], sendmsg(MSG_RTN_GET_REALTIME)\n");
    uint64_t cycles[2], ticks[2];
    for (int i = 0; i < 2; i++) {
        run(&p);
        const uint32_t *s = p.t->wave.s;
        cycles[i] = s[10] | (uint64_t)s[11] << 32;
        ticks[i] = s[12] | (uint64_t)s[13] << 32;
        usleep(2000);
    }
    assert_true(ticks[1] - ticks[0] >= 200000); // of 10 ns
    assert_true(cycles[1] - cycles[0] >= 2 * 2970000);
    assert_true(cycles[1] - cycles[0] < UINT64_C(2970000) * 100000);
    stop(&p);
}

// ---- lanes

static void check_permutation(const program *p, bool other_row, bool fetch, bool bound) {
    const sim_wave *before = &p->t->before;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t selectors = before->s[2] | (uint64_t)before->s[3] << 32;
        unsigned from = (lane & 48) ^ (other_row ? 16 : 0);
        from += selectors >> 4 * (lane % 16) & 15;
        const bool valid = fetch || (before->exec >> from & 1);
        uint32_t want = before->v[20][lane];
        if (before->exec >> lane & 1)
            want = valid ? before->v[2][from] : bound ? 0 : want;
        assert_int_equal(p->t->wave.v[20][lane], want);
    }
}

static void test_permutations(void **) {
    static const char *const texts[] = {"v_permlane16_b32 v20, v2, s2, s3\n",
                                        "v_permlane16_b32 v20, v2, s2, s3 op_sel:[1,0]\n",
                                        "v_permlanex16_b32 v20, v2, s2, s3 op_sel:[0,1]\n",
                                        "v_permlanex16_b32 v20, v2, s2, s3 op_sel:[1,1]\n"};
    for (int i = 0; i < 8; i++) {
        program p = start(i < 4 ? "gfx1151" : "gfx1201", texts[i % 4]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise(p.t, (uint32_t)random_exec(round));
            run(&p);
            check_permutation(&p, i % 4 > 1, i % 2, i % 4 > 1);
        }
        stop(&p);
    }
}

static void test_crossbar(void **) {
    program p = start("gfx1201", "ds_bpermute_b32 v20, v2, v3\n v_readlane_b32 s10, v3, s2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const uint32_t from = p.t->before.v[2][lane] / 4 % 32;
            uint32_t want = p.t->before.exec >> from & 1 ? p.t->before.v[3][from] : 0;
            want = p.t->before.exec >> lane & 1 ? want : p.t->before.v[20][lane];
            assert_int_equal(p.t->wave.v[20][lane], want);
        }
        assert_int_equal(p.t->wave.s[10], p.t->before.v[3][p.t->before.s[2] % 32]);
    }
    stop(&p);
}

/** M0 names the register; beyond the file it is register 0. */
static void test_indexed_registers(void **) {
    program p = start("gfx1151", "v_movrels_b32 v20, v2\n v_movreld_b32 v40, v3\n");
    for (unsigned round = 0; round < 40; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        p.t->wave.m0 = round < 20 ? round : 1000 * round;
        const unsigned from = round < 20 ? 2 + round : 0, to = round < 20 ? 40 + round : 0;
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const bool on = p.t->before.exec >> lane & 1;
            assert_int_equal(p.t->wave.v[20][lane], p.t->before.v[on ? from : 20][lane]);
            assert_int_equal(p.t->wave.v[to][lane], p.t->before.v[on ? 3 : to][lane]);
        }
    }
    stop(&p);
}

// ---- barriers: who has signalled for a barrier may pass it once all have

static void test_split_barrier(void **) {
    program p = start("gfx1201", "s_barrier_signal -1\n s_barrier_wait -1\n");
    sim_inst signal = decode_at("gfx1201", p.text, p.size, 0);
    sim_inst wait = decode_at("gfx1201", p.text, p.size, signal.bytes);
    sim_wave *waves = aligned_alloc(64, 2 * sizeof *waves);
    memset(waves, 0, 2 * sizeof *waves);
    p.t->group.waves = waves;
    p.t->group.num_waves = 2;
    waves[0].group = waves[1].group = &p.t->group;
    signal.exec(&waves[0], &signal);
    wait.exec(&waves[0], &wait);
    assert_int_equal(waves[0].state, SIM_AT_BARRIER);
    signal.exec(&waves[1], &signal); // works on before it waits
    assert_true(sim_barrier_is_complete(&waves[0]));
    wait.exec(&waves[1], &wait);
    assert_int_equal(waves[1].state, SIM_RUNNING);
    signal.exec(&waves[1], &signal);
    wait.exec(&waves[1], &wait); // the next one, while the first wave still stands at the last
    assert_int_equal(waves[1].state, SIM_AT_BARRIER);
    assert_true(sim_barrier_is_complete(&waves[0]));
    assert_false(sim_barrier_is_complete(&waves[1]));
    waves[0].state = SIM_ENDED; // no longer counts
    assert_true(sim_barrier_is_complete(&waves[1]));
    free(waves);
    stop(&p);
}

// ---- LDS

static void test_compare_store(void **) {
    program p =
        start("gfx1151",
              "ds_store_b32 v2, v3\n ds_cmpstore_rtn_b32 v20, v2, v5, v6\n ds_load_b32 v21, v2\n");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(p.t, (uint32_t)random_exec(round));
        for (unsigned lane = 0; lane < 32; lane++) {
            p.t->wave.v[2][lane] = 4 * lane;
            p.t->wave.v[6][lane] = next_random() & 1 ? p.t->wave.v[3][lane] : 77;
        }
        memcpy(&p.t->before, &p.t->wave, sizeof p.t->wave);
        run(&p);
        for (unsigned lane = 0; lane < 32; lane++) {
            const sim_wave *b = &p.t->before;
            const bool on = b->exec >> lane & 1, equal = b->v[3][lane] == b->v[6][lane];
            assert_int_equal(p.t->wave.v[20][lane], b->v[on ? 3 : 20][lane]);
            assert_int_equal(p.t->wave.v[21][lane], b->v[!on ? 21 : equal ? 5 : 3][lane]);
        }
    }
    stop(&p);
}

// ---- buffers: what OOB_SELECT checks, by the manual's table

enum { BUFFER_BYTES = 4096, STRIDE = 16 };

static bool in_range(unsigned select, uint32_t index, uint32_t offset, uint32_t records) {
    bool held[] = {index < records && offset + 4 <= STRIDE, index < records, records != 0,
                   offset + 4 <= records};
    return held[select];
}

static void check_ranges(program *p, const sim_region *region, unsigned select, uint32_t records) {
    randomise(p->t, UINT32_MAX);
    const uint32_t srd[] = {(uint32_t)region->base,
                            (uint32_t)(region->base >> 32) | (uint32_t)STRIDE << 16, records,
                            select << 28 | 0x31000};
    memcpy(&p->t->wave.s[4], srd, sizeof srd);
    for (unsigned lane = 0; lane < 32; lane++) {
        p->t->wave.v[2][lane] = lane % 8;
        p->t->wave.v[3][lane] = lane / 8 * 8;
    }
    run(p);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t index = lane % 8, offset = lane / 8 * 8 + 4, want;
        memcpy(&want, region->host + index * STRIDE + offset, sizeof want);
        want = in_range(select, index, offset, records) ? want : 0;
        assert_int_equal(p->t->wave.v[20][lane], want);
    }
}

static void test_buffer_ranges(void **) {
    static const char source[] = "buffer_load_b32 v20, v[2:3], s[4:7], 0 idxen offen offset:4\n";
    sim_memory *memory = sim_memory_create();
    assert_non_null(memory);
    const sim_region *region = sim_memory_alloc(memory, BUFFER_BYTES, SIM_REGION_DEVICE, 0);
    assert_non_null(region);
    for (unsigned i = 0; i < BUFFER_BYTES; i++)
        region->host[i] = (uint8_t)(1 + i % 255);
    program p = start("gfx1151", source);
    p.t->dispatch.memory = memory;
    for (unsigned select = 0; select < 4; select++)
        for (uint32_t records = 0; records < 36; records += 5)
            check_ranges(&p, region, select, records);
    stop(&p);
    sim_memory_destroy(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scalar_floats),
                                       cmocka_unit_test(test_scalar_compares),
                                       cmocka_unit_test(test_scalar_integers),
                                       cmocka_unit_test(test_exec),
                                       cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_clock),
                                       cmocka_unit_test(test_permutations),
                                       cmocka_unit_test(test_crossbar),
                                       cmocka_unit_test(test_indexed_registers),
                                       cmocka_unit_test(test_split_barrier),
                                       cmocka_unit_test(test_compare_store),
                                       cmocka_unit_test(test_buffer_ranges)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
