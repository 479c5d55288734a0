// SPDX-License-Identifier: Apache-2.0
// Tests of vector instructions that do not work lane by lane, or not on one register: compares,
// carries, selects, moves between lanes, packed forms, FP8, division.
#include "../exec_testing.h"
#include "refs.h"

static test_wave *t;
static const uint8_t *program;
static size_t program_size, program_at;

typedef enum build { BEST, PORTABLE } build;
static build tested;

static int set_up(void **) {
    t = make_wave("gfx942");
    return 0;
}

static int tear_down(void **) {
    free(t);
    return 0;
}

/** Runs the instruction at *at on the wave. */
static void run_at(size_t *at) {
    sim_inst inst = decode_at(t->dispatch.chip->name, program, program_size, *at);
    (tested == BEST ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
    *at += inst.bytes;
}

/** Assembles `source` and calls `check`, which runs instructions and checks them, many times in
 *  the best build and the portable one. */
static void with_program(const char *source, unsigned rounds, void (*check)(unsigned round)) {
    uint8_t *text = assemble(t->dispatch.chip->name, source, &program_size);
    program = text;
    for (tested = BEST; tested <= PORTABLE; tested++) {
        for (unsigned round = 0; round < rounds; round++) {
            program_at = 0;
            randomise(t, random_exec(round));
            check(round);
        }
    }
    free(text);
}

static void run_next(void) {
    run_at(&program_at);
}

#define LANES(lane) for (unsigned lane = 0; lane < SIM_LANES; lane++)
#define B(reg, lane) (t->before.v[reg][lane])
#define V(reg, lane) (t->wave.v[reg][lane])

static bool active(unsigned lane) {
    return t->before.exec >> lane & 1;
}
static uint64_t wide(const sim_wave *w, int reg, unsigned lane) {
    return w->v[reg][lane] | (uint64_t)w->v[reg + 1][lane] << 32;
}

// ---- compares

static void check_compares(unsigned) {
    uint64_t want[7] = {};
    LANES(lane) {
        const float x = f32(B(1, lane)), y = f32(B(2, lane));
        const double p = f64(wide(&t->before, 4, lane)), q = f64(wide(&t->before, 6, lane));
        bool results[7] = {x<y, !(x >= y), (int32_t)B(1, lane)>(int32_t) B(2, lane),
                           (uint16_t)B(1, lane) <= (uint16_t)B(2, lane),
                           (double)f16(B(1, lane)) != (double)f16(B(2, lane)), p <= q,
                           wide(&t->before, 4, lane) < wide(&t->before, 6, lane)};
        for (int i = 0; i < 7; i++)
            want[i] |= (uint64_t)(results[i] && active(lane)) << lane;
    }
    for (int i = 0; i < 7; i++) {
        run_next();
        assert_int_equal(t->wave.s[20] | (uint64_t)t->wave.s[21] << 32, want[i]);
        assert_int_equal(t->wave.exec, t->before.exec);
    }
    run_next(); // v_cmpx writes its mask and EXEC
    assert_int_equal(t->wave.vcc, want[0]);
    assert_int_equal(t->wave.exec, want[0]);
}

static void test_compares(void **) {
    with_program("v_cmp_lt_f32 s[20:21], v1, v2\n v_cmp_nge_f32 s[20:21], v1, v2\n"
                 "v_cmp_gt_i32 s[20:21], v1, v2\n v_cmp_le_u16 s[20:21], v1, v2\n"
                 "v_cmp_neq_f16 s[20:21], v1, v2\n v_cmp_le_f64 s[20:21], v[4:5], v[6:7]\n"
                 "v_cmp_lt_u64 s[20:21], v[4:5], v[6:7]\n v_cmpx_lt_f32 vcc, v1, v2\n",
                 100, check_compares);
}

static void check_class(unsigned) {
    uint64_t want = 0;
    LANES(lane) {
        const float x = f32(B(1, lane));
        int kind = fpclassify(x), down = signbit(x) != 0, bit = 0;
        bit = kind == FP_NAN ? (B(1, lane) >> 22 & 1) : bit;
        bit = kind == FP_INFINITE ? (down ? 2 : 9) : bit;
        bit = kind == FP_NORMAL ? (down ? 3 : 8) : bit;
        bit = kind == FP_SUBNORMAL ? (down ? 4 : 7) : bit;
        bit = kind == FP_ZERO ? (down ? 5 : 6) : bit;
        want |= (uint64_t)((B(2, lane) >> bit & 1) && active(lane)) << lane;
    }
    run_next();
    assert_int_equal(t->wave.vcc, want);
}

static void test_class(void **) {
    with_program("v_cmp_class_f32 vcc, v1, v2\n", 200, check_class);
}

// ---- carries and selects

static void check_carries(unsigned) {
    uint64_t sum_carry = 0, borrow = 0;
    run_next();
    run_next();
    run_next();
    LANES(lane) {
        const uint64_t carry_in = t->before.vcc >> lane & 1;
        const uint64_t sum = (uint64_t)B(1, lane) + B(2, lane) + carry_in;
        const uint64_t difference = (uint64_t)B(2, lane) - B(1, lane);
        sum_carry |= (uint64_t)(sum >> 32 && active(lane)) << lane;
        borrow |= (uint64_t)(difference >> 63 && active(lane)) << lane;
        assert_int_equal(V(20, lane), active(lane) ? (uint32_t)sum : B(20, lane));
        assert_int_equal(V(21, lane), active(lane) ? (uint32_t)difference : B(21, lane));
        assert_int_equal(V(22, lane), !active(lane) ? B(22, lane)
                                      : carry_in    ? B(2, lane)
                                                    : B(1, lane));
    }
    assert_int_equal(t->wave.s[8] | (uint64_t)t->wave.s[9] << 32, sum_carry);
    assert_int_equal(t->wave.s[10] | (uint64_t)t->wave.s[11] << 32, borrow);
}

static void test_carries(void **) {
    with_program("v_addc_co_u32 v20, s[8:9], v1, v2, vcc\n v_subrev_co_u32 v21, s[10:11], v1, v2\n"
                 "v_cndmask_b32 v22, v1, v2, vcc\n",
                 100, check_carries);
}

static void check_multiply_add(unsigned) {
    uint64_t over = 0;
    run_next();
    LANES(lane) {
        unsigned __int128 sum =
            (unsigned __int128)B(1, lane) * B(2, lane) + wide(&t->before, 4, lane);
        over |= (uint64_t)((sum >> 64) && active(lane)) << lane;
        assert_int_equal(wide(&t->wave, 20, lane),
                         active(lane) ? (uint64_t)sum : wide(&t->before, 20, lane));
    }
    assert_int_equal(t->wave.vcc, over);
}

static void test_multiply_add(void **) {
    with_program("v_mad_u64_u32 v[20:21], vcc, v1, v2, v[4:5]\n", 100, check_multiply_add);
}

// ---- lanes

static void check_scalars(unsigned round) {
    const unsigned first = t->before.exec ? (unsigned)__builtin_ctzll(t->before.exec) : 0;
    t->wave.s[2] = t->before.s[2] = round; // lane numbers wrap at 64
    for (int i = 0; i < 5; i++)
        run_next();
    assert_int_equal(t->wave.s[20], B(1, first));
    assert_int_equal(t->wave.s[21], B(1, round % 64));
    LANES(lane) {
        assert_int_equal(V(20, lane), lane == 37 ? t->before.s[4] : B(20, lane));
        assert_int_equal(V(21, lane), active(lane) ? lane : B(21, lane));
    }
}

static void test_scalars(void **) {
    with_program(
        "v_readfirstlane_b32 s20, v1\n v_readlane_b32 s21, v1, s2\n v_writelane_b32 v20, s4, 37\n"
        "v_mbcnt_lo_u32_b32 v21, -1, 0\n v_mbcnt_hi_u32_b32 v21, -1, v21\n",
        130, check_scalars);
}

static void check_crossbar(unsigned) {
    uint32_t sent[SIM_LANES] = {};
    LANES(lane) {
        if (active(lane))
            sent[(B(1, lane) + 8) / 4 % 64] = B(2, lane);
    }
    for (int i = 0; i < 5; i++)
        run_next();
    LANES(lane) {
        if (!active(lane)) {
            assert_int_equal(V(20, lane), B(20, lane));
            continue;
        }
        const unsigned from = (B(1, lane) + 8) / 4 % 64, quad = lane / 4 * 4 + (lane + 1) % 4,
                       swap = lane ^ 16;
        const unsigned spread = lane / 8 * 8 + 3;
        assert_int_equal(V(20, lane), active(from) ? B(2, from) : 0);
        assert_int_equal(V(21, lane), sent[lane]);
        assert_int_equal(V(22, lane), active(quad) ? B(2, quad) : 0);
        assert_int_equal(V(23, lane), active(swap) ? B(2, swap) : 0);
        assert_int_equal(V(24, lane), active(spread) ? B(2, spread) : 0);
    }
}

static void test_crossbar(void **) {
    with_program("ds_bpermute_b32 v20, v1, v2 offset:8\n ds_permute_b32 v21, v1, v2 offset:8\n"
                 "ds_swizzle_b32 v22, v2 offset:swizzle(QUAD_PERM,1,2,3,0)\n"
                 "ds_swizzle_b32 v23, v2 offset:swizzle(SWAP,16)\n"
                 "ds_swizzle_b32 v24, v2 offset:swizzle(BROADCAST,8,3)\n",
                 60, check_crossbar);
}

// ---- packed

static bool same_f16(uint64_t a, uint64_t b) {
    a &= 0xffff;
    b &= 0xffff;
    return a == b || (isnan((double)f16(a)) && isnan((double)f16(b)));
}

static bool same_f32(uint64_t a, uint64_t b) {
    return (uint32_t)a == (uint32_t)b || (isnan(f32(a)) && isnan(f32(b)));
}

static void check_packed16(unsigned) {
    for (int i = 0; i < 3; i++)
        run_next();
    LANES(lane) {
        if (!active(lane)) {
            assert_int_equal(V(20, lane), B(20, lane));
            continue;
        }
        const uint64_t a = B(1, lane), b = B(2, lane), c = B(3, lane);
        assert_true(same_f16(V(20, lane), r_add_f16(a, b, 0)));
        assert_true(same_f16(V(20, lane) >> 16, r_add_f16(a >> 16, b >> 16, 0)));
        assert_true(same_f16(V(21, lane), r_fma_f16(a >> 16, b ^ 0x8000, c)));
        assert_true(same_f16(V(21, lane) >> 16, r_fma_f16(a >> 16, b >> 16, (c >> 16) ^ 0x8000)));
        assert_int_equal(V(22, lane), (uint16_t)(a * b + c) |
                                          (uint32_t)(uint16_t)((a >> 16) * b + (c >> 16)) << 16);
    }
}

static void test_packed16(void **) {
    with_program("v_pk_add_f16 v20, v1, v2\n"
                 "v_pk_fma_f16 v21, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,1,1] neg_lo:[0,1,0] "
                 "neg_hi:[0,0,1]\n"
                 "v_pk_mad_u16 v22, v1, v2, v3 op_sel_hi:[1,0,1]\n",
                 100, check_packed16);
}

static void check_packed32(unsigned) {
    for (int i = 0; i < 6; i++)
        run_next();
    LANES(lane) {
        if (!active(lane)) {
            assert_int_equal(V(20, lane), B(20, lane));
            continue;
        }
        const uint32_t a0 = B(2, lane), a1 = B(3, lane), b0 = B(4, lane), b1 = B(5, lane);
        const uint32_t s0 = t->before.s[6], s1 = t->before.s[7];
        assert_true(same_f32(V(20, lane), r_fma_f32(a0, b0 ^ 0x80000000, s0)));
        assert_true(same_f32(V(21, lane), r_fma_f32(a1, b0, s1)));
        assert_true(same_f32(V(22, lane), r_mul_f32(a1, b0, 0)));
        assert_true(same_f32(V(23, lane), r_mul_f32(a0, b1, 0)));
        assert_int_equal(V(24, lane), a1);
        assert_int_equal(V(25, lane), b0);
        assert_true(
            same_f32(V(26, lane), of_f32(fmaf((float)f16(a0 >> 16), -f32(b0), (float)f16(b1)))));
        assert_true(same_f32(V(27, lane), of_f32((float)f16(a0) + (float)f16(b1))));
        assert_true(same_f32(V(28, lane), of_f32(fmaf((float)f16(0x3118), f32(b0), 4))));
    }
}

static void test_packed32(void **) {
    with_program("v_pk_fma_f32 v[20:21], v[2:3], v[4:5], s[6:7] op_sel_hi:[1,0,1] neg_lo:[0,1,0]\n"
                 "v_pk_mul_f32 v[22:23], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]\n"
                 "v_pk_mov_b32 v[24:25], v[2:3], v[4:5] op_sel:[1,0]\n"
                 "v_fma_mix_f32 v26, v2, -v4, v5 op_sel:[1,0,0] op_sel_hi:[1,0,1]\n"
                 "v_fma_mix_f32 v27, v2, 1.0, v5 op_sel_hi:[1,1,1]\n" // constants are halves too
                 "v_fma_mix_f32 v28, 0.15915494, v4, 4.0 op_sel_hi:[1,0,0]\n",
                 100, check_packed32);
}

// ---- FP8

/** Returns the value of an FNUZ byte, by the format's definition. */
static double fnuz_value(uint32_t byte, int fraction, int bias) {
    const int magnitude = (int)(byte & 127), exponent = magnitude >> fraction;
    const int part = magnitude & ((1 << fraction) - 1);
    const double x = exponent ? ldexp(1 + ldexp(part, -fraction), exponent - bias)
                              : ldexp(part, 1 - bias - fraction);
    return byte == 0x80 ? NAN : byte & 0x80 ? -x : x;
}

/** Returns the nearest byte, ties to even, by search, or NaN beyond the largest number's rounding
 *  range. */
static uint32_t fnuz_nearest(double x, int fraction, int bias) {
    double largest = fnuz_value(127, fraction, bias), next = fnuz_value(127, fraction, bias);
    next += largest - fnuz_value(126, fraction, bias);
    if (isnan(x) || fabs(x) >= (largest + next) / 2)
        return 0x80;
    uint32_t best = 0;
    for (uint32_t byte = 1; byte < 128; byte++) {
        const double d = fabs(fabs(x) - fnuz_value(byte, fraction, bias)),
                     least = fabs(fabs(x) - fnuz_value(best, fraction, bias));
        if (d < least || (d == least && !(byte & 1)))
            best = byte;
    }
    return best && signbit(x) ? best | 0x80 : best;
}

/** Fills a register with f32 of every size that an 8-bit float can have, and some ties. */
static void fill_small_floats(int reg) {
    LANES(lane) {
        const uint64_t r = next_random();
        float x = (float)ldexp((double)(r % 64) + (double)(r >> 8 & 1) * 0x1p-18,
                               (int)(r >> 16 & 31) - 24);
        x = r >> 24 & 1 ? -x : x;
        t->wave.v[reg][lane] = (r >> 32 & 15) ? (uint32_t)of_f32(x) : (uint32_t)next_biased();
    }
}

static void check_fp8(unsigned) {
    fill_small_floats(1);
    fill_small_floats(2);
    memcpy(&t->before, &t->wave, sizeof t->wave);
    for (int i = 0; i < 5; i++)
        run_next();
    LANES(lane) {
        if (!active(lane)) {
            assert_int_equal(V(20, lane), B(20, lane));
            continue;
        }
        const double a = (double)f32(B(1, lane)), b = (double)f32(B(2, lane));
        const uint32_t e4m3 = fnuz_nearest(a, 3, 8) | fnuz_nearest(b, 3, 8) << 8;
        const uint32_t e5m2 = fnuz_nearest(a, 2, 16) | fnuz_nearest(b, 2, 16) << 8;
        assert_int_equal(V(20, lane), (B(20, lane) & 0xffff0000) | e4m3);
        assert_int_equal(V(21, lane), (B(21, lane) & 0xffff) | e5m2 << 16);
        assert_true(same_f32(V(22, lane), of_f32((float)fnuz_value(B(3, lane) >> 16 & 255, 3, 8))));
        assert_true(
            same_f32(V(24, lane), of_f32((float)fnuz_value(B(3, lane) >> 16 & 255, 2, 16))));
        assert_true(same_f32(V(25, lane), of_f32((float)fnuz_value(B(3, lane) >> 24, 2, 16))));
        const uint32_t random = V(26, lane) >> 8 & 255; // one of the two neighbours
        const double got = fnuz_value(random, 3, 8);
        assert_int_equal(V(26, lane) & 0xffff00ff, B(26, lane) & 0xffff00ff);
        if (fabs(a) < 240 && !isnan(a)) {
            const double step = fmax(fabs(a) / 8, 0x1p-10);
            assert_true(fabs(got - a) <= step && (got == 0 || (got < 0) == (a < 0)));
        }
    }
}

static void test_fp8(void **) {
    with_program("v_cvt_pk_fp8_f32 v20, v1, v2\n v_cvt_pk_bf8_f32 v21, v1, v2 op_sel:[0,0,1]\n"
                 "v_cvt_f32_fp8_sdwa v22, v3 src0_sel:BYTE_2\n v_cvt_pk_f32_bf8_sdwa v[24:25], v3 "
                 "src0_sel:WORD_1\n"
                 "v_cvt_sr_fp8_f32 v26, v1, v2 op_sel:[0,0,1,0]\n",
                 60, check_fp8);
}

static double ocp_value(uint32_t byte, int fraction, int bias) {
    const int magnitude = (int)(byte & 127), exponent = magnitude >> fraction,
              part = magnitude & ((1 << fraction) - 1);
    double x = exponent ? ldexp(1 + ldexp(part, -fraction), exponent - bias)
                        : ldexp(part, 1 - bias - fraction);
    if (fraction == 3)
        x = magnitude == 127 ? NAN : x;
    else if (exponent == 31)
        x = part ? NAN : INFINITY;
    return byte & 0x80 ? -x : x;
}

/** Checks every byte of gfx950's OCP kinds: it decodes by the definition, and encoding gives the
 *  byte back. */
static void check_ocp(unsigned round) {
    LANES(lane) {
        t->wave.v[1][lane] = t->before.v[1][lane] = round % 4 * 64 + lane;
    }
    for (int i = 0; i < 4; i++)
        run_next();
    LANES(lane) {
        if (active(lane)) {
            const uint32_t byte = B(1, lane);
            const double e4m3 = ocp_value(byte, 3, 7), e5m2 = ocp_value(byte, 2, 15);
            assert_true(same_f32(V(20, lane), of_f32((float)e4m3)));
            assert_true(same_f32(V(21, lane), of_f32((float)e5m2)));
            assert_int_equal(V(22, lane) & 127, isnan(e4m3) ? 127 : byte & 127);
            assert_true(isnan(e5m2) ? (V(23, lane) & 127) > 0x7c : (V(23, lane) & 255) == byte);
        }
    }
}

static void test_ocp(void **) {
    t->dispatch.chip = sim_chip_by_name("gfx950");
    with_program("v_cvt_f32_fp8 v20, v1\n v_cvt_f32_bf8 v21, v1\n v_cvt_pk_fp8_f32 v22, v20, v20\n"
                 "v_cvt_pk_bf8_f32 v23, v21, v21\n",
                 40, check_ocp);
    t->dispatch.chip = sim_chip_by_name("gfx942");
}

// ---- integers that saturate

static int64_t limited(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

/** Computes the results that lane `lane` should have in v20 to v24, v25 to v29 and v30 to v33. */
static void expect_saturated(unsigned lane, uint32_t want[14]) {
    const uint32_t a = B(1, lane), b = B(2, lane);
    const int64_t x = (int32_t)a, y = (int32_t)b, p = (int16_t)a, q = (int16_t)b, i = (uint16_t)a,
                  j = (uint16_t)b, r = (int16_t)(a >> 16), s = (int16_t)(b >> 16), k = a >> 16,
                  l = b >> 16;
    const int64_t full[5] = {
        limited((int64_t)a + b, 0, UINT32_MAX), limited((int64_t)a - b, 0, UINT32_MAX),
        limited((int64_t)b - a, 0, UINT32_MAX), limited(x + y, INT32_MIN, INT32_MAX),
        limited(x - y, INT32_MIN, INT32_MAX)};
    const int64_t half[5] = {limited(i + j, 0, 65535), limited(i - j, 0, 65535),
                             limited(j - i, 0, 65535), limited(p + q, -32768, 32767),
                             limited(p - q, -32768, 32767)};
    const int64_t high[4] = {limited(k + l, 0, 65535), limited(k - l, 0, 65535),
                             limited(r + s, -32768, 32767), limited(r - s, -32768, 32767)};
    for (int n = 0; n < 5; n++) {
        want[n] = (uint32_t)full[n];
        const uint32_t kept =
            n < 3 ? 0 : B(25 + n, lane) & 0xffff0000; // only VOP3 keeps the other half
        want[5 + n] = (uint32_t)(uint16_t)half[n] | kept;
    }
    for (int n = 0; n < 4; n++)
        want[10 + n] = (uint32_t)(uint16_t)half[n < 2 ? n : n + 1] | (uint32_t)high[n] << 16;
}

static void check_saturation(unsigned) {
    for (int n = 0; n < 14; n++)
        run_next();
    LANES(lane) {
        uint32_t want[14];
        expect_saturated(lane, want);
        for (int n = 0; n < 14; n++)
            assert_int_equal(V(20 + n, lane), active(lane) ? want[n] : B(20 + n, lane));
    }
}

static void test_saturation(void **) {
    with_program("v_add_u32 v20, v1, v2 clamp\n v_sub_u32 v21, v1, v2 clamp\n"
                 "v_subrev_u32 v22, v1, v2 clamp\n v_add_i32 v23, v1, v2 clamp\n"
                 "v_sub_i32 v24, v1, v2 clamp\n v_add_u16 v25, v1, v2 clamp\n"
                 "v_sub_u16 v26, v1, v2 clamp\n v_subrev_u16 v27, v1, v2 clamp\n"
                 "v_add_i16 v28, v1, v2 clamp\n v_sub_i16 v29, v1, v2 clamp\n"
                 "v_pk_add_u16 v30, v1, v2 clamp\n v_pk_sub_u16 v31, v1, v2 clamp\n"
                 "v_pk_add_i16 v32, v1, v2 clamp\n v_pk_sub_i16 v33, v1, v2 clamp\n",
                 200, check_saturation);
}

/** Tests that clamp is refused rather than ignored if saturation is not implemented. */
static void test_clamp_refused(void **) {
    size_t size;
    uint8_t *text = assemble("gfx942", "v_mul_u32_u24 v2, v4, v5 clamp\n", &size);
    char error[SIM_ERROR_BYTES] = "";
    sim_inst inst;
    assert_false(sim_decode(sim_chip_by_name("gfx942"), text, size, 0, &inst, error));
    assert_non_null(strstr(error, "clamp is not implemented"));
    free(text);
}

static void check_bitop(unsigned) {
    run_next();
    LANES(lane) {
        const uint32_t a = B(1, lane), b = B(2, lane), c = B(3, lane), want = (a & b) ^ ~c;
        assert_int_equal(V(20, lane), active(lane) ? want : B(20, lane));
    }
}

/** Tests the table of (a & b) ^ ~c: a is 0xf0, b 0xcc, c 0xaa. */
static void test_bitop(void **) {
    t->dispatch.chip = sim_chip_by_name("gfx950");
    with_program("v_bitop3_b32 v20, v1, v2, v3 bitop3:0x95\n", 40, check_bitop);
    t->dispatch.chip = sim_chip_by_name("gfx942");
}

static double e2m1_value(uint32_t bits) {
    const int exponent = bits >> 1 & 3, part = bits & 1;
    const double x = exponent ? ldexp(1 + part * 0.5, exponent - 1) : part * 0.5;
    return bits & 8 ? -x : x;
}

/** Checks every pair of 4-bit floats to f32 and back, at scales that keep f32 exact. */
static void check_scaled(unsigned round) {
    LANES(lane) {
        V(1, lane) = (uint32_t)(round % 4 * 64 + lane) << 16 | 0x38 << 8 | 0x40; // e4m3: 1 and 2
        V(2, lane) = (uint32_t)of_f32(ldexpf(1.5f, (int)lane - 32)); // only its exponent counts
        V(22, lane) = 0xaabbccdd;
    }
    memcpy(&t->before, &t->wave, sizeof t->wave);
    for (int i = 0; i < 3; i++)
        run_next();
    LANES(lane) {
        const uint32_t byte = B(1, lane) >> 16;
        const float by = ldexpf(1, (int)lane - 32);
        if (!active(lane)) {
            assert_int_equal(V(22, lane), 0xaabbccdd);
            continue;
        }
        assert_true(f32(V(20, lane)) == (float)e2m1_value(byte & 15) * by);
        assert_true(f32(V(21, lane)) == (float)e2m1_value(byte >> 4) * by);
        assert_int_equal(V(22, lane), 0xaa00ccdd | byte << 16);
        assert_int_equal(V(23, lane), of_f32(2 * by) >> 16 | (of_f32(by) >> 16) << 16);
    }
}

static void test_scaled(void **) {
    t->dispatch.chip = sim_chip_by_name("gfx950");
    with_program("v_cvt_scalef32_pk_f32_fp4 v[20:21], v1, v2 op_sel:[0,1,0]\n"
                 "v_cvt_scalef32_pk_fp4_f32 v22, v20, v21, v2 op_sel:[0,0,0,1]\n"
                 "v_cvt_scalef32_pk_bf16_fp8 v23, v1, v2\n",
                 40, check_scaled);
    t->dispatch.chip = sim_chip_by_name("gfx942");
}

// ---- division: what the compiler emits for a quotient is the correctly rounded one

static void check_division(unsigned) {
    while (program_at < program_size)
        run_next();
    LANES(lane) {
        if (!active(lane))
            continue;
        const float want = f32(B(1, lane)) / f32(B(2, lane));
        const double want64 = f64(wide(&t->before, 4, lane)) / f64(wide(&t->before, 6, lane));
        const double got64 = f64(wide(&t->wave, 40, lane));
        if (!same_f32(V(20, lane), of_f32(want))) {
            fail_msg("%a / %a: got %a, want %a", (double)f32(B(1, lane)), (double)f32(B(2, lane)),
                     (double)f32(V(20, lane)), (double)want);
        }
        if (of_f64(got64) != of_f64(want64) && !(isnan(got64) && isnan(want64))) {
            fail_msg("%a / %a: got %a, want %a", f64(wide(&t->before, 4, lane)),
                     f64(wide(&t->before, 6, lane)), got64, want64);
        }
    }
}

static void test_division(void **) {
    with_program(
        "v_div_scale_f32 v10, s[0:1], v2, v2, v1\n v_div_scale_f32 v11, vcc, v1, v2, v1\n"
        "v_rcp_f32 v12, v10\n v_fma_f32 v13, -v10, v12, 1.0\n v_fmac_f32 v12, v13, v12\n"
        "v_mul_f32 v13, v11, v12\n v_fma_f32 v14, -v10, v13, v11\n v_fmac_f32 v13, v14, v12\n"
        "v_fma_f32 v10, -v10, v13, v11\n v_div_fmas_f32 v10, v10, v12, v13\n"
        "v_div_fixup_f32 v20, v10, v2, v1\n"
        "v_div_scale_f64 v[10:11], s[0:1], v[6:7], v[6:7], v[4:5]\n v_rcp_f64 v[12:13], v[10:11]\n"
        "v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0\n v_fma_f64 v[12:13], v[12:13], v[14:15], "
        "v[12:13]\n"
        "v_fma_f64 v[14:15], -v[10:11], v[12:13], 1.0\n v_fma_f64 v[12:13], v[12:13], v[14:15], "
        "v[12:13]\n"
        "v_div_scale_f64 v[14:15], vcc, v[4:5], v[6:7], v[4:5]\n v_mul_f64 v[16:17], v[14:15], "
        "v[12:13]\n"
        "v_fma_f64 v[10:11], -v[10:11], v[16:17], v[14:15]\n"
        "v_div_fmas_f64 v[10:11], v[10:11], v[12:13], v[16:17]\n"
        "v_div_fixup_f64 v[40:41], v[10:11], v[6:7], v[4:5]\n",
        300, check_division);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compares),      cmocka_unit_test(test_class),
        cmocka_unit_test(test_carries),       cmocka_unit_test(test_multiply_add),
        cmocka_unit_test(test_scalars),       cmocka_unit_test(test_crossbar),
        cmocka_unit_test(test_packed16),      cmocka_unit_test(test_packed32),
        cmocka_unit_test(test_fp8),           cmocka_unit_test(test_ocp),
        cmocka_unit_test(test_bitop),         cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_clamp_refused), cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_division),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
