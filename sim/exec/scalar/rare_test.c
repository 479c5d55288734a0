// SPDX-License-Identifier: Apache-2.0
// Instructions that compilers rarely emit: scalar ones, branches with a stack, LDS exchanges, cube
// maps, halves with literals, barriers' state. Each against a formula written for the test from the
// ISA documents.
#include "../exec_testing.h"

#include <math.h>

static test_wave *t;

enum { ROUNDS = 60 };

static void start(const char *arch) {
    free(t);
    t = make_wave(arch);
    t->wave.wave32 = sim_chip_by_name(arch)->wave_size == 32;
}

/** Runs `source` for many random states, in both builds of exec/, each time `check`ing. */
static void run(const char *arch, const char *source, void (*prepare)(void), void (*check)(void)) {
    size_t size;
    uint8_t *text = assemble(arch, source, &size);
    start(arch);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint64_t exec = random_exec(round / 2);
        randomise(t, t->wave.wave32 ? (uint32_t)exec : exec);
        for (unsigned i = 0; i < TEST_LDS_BYTES; i++)
            t->lds[i] = (uint8_t)next_random();
        if (prepare)
            prepare();
        memcpy(&t->before, &t->wave, sizeof t->wave);
        memcpy(t->lds_before, t->lds, sizeof t->lds);
        for (size_t at = 0; at < size && t->wave.state == SIM_RUNNING;) {
            sim_inst inst = decode_at(arch, text, size, at);
            (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
            at += inst.bytes;
        }
        assert_int_equal(t->wave.state, SIM_RUNNING);
        check();
    }
    free(text);
}

#define S(i) (t->wave.s[i])
#define OLD(i) (t->before.s[i])

static uint64_t pair(const uint32_t *s, unsigned i) {
    return s[i] | (uint64_t)s[i + 1] << 32;
}

#define ACTIVE_LANES(lane)                                                                         \
    for (unsigned lane = 0; lane < SIM_LANES; lane++)                                              \
        if (t->before.exec >> lane & 1)

// ---- scalars

static void prepare_m0(void) {
    t->wave.m0 = (uint32_t)next_random() % 20;
}

static void check_scalars(void) {
    uint32_t quads = 0, m0 = OLD(124);
    for (unsigned i = 0; i < 8; i++)
        quads |= (uint32_t)((OLD(2) >> 4 * i & 15) != 0) << i;
    assert_int_equal(S(10), quads);
    assert_int_equal(S(11), OLD(20 + m0));
    assert_true(pair(t->wave.s, 12) == pair(t->before.s, 20 + m0 / 2 * 2));
    assert_int_equal(S(50 + m0), OLD(3));
    assert_true(pair(t->wave.s, 80 + m0 / 2 * 2) == pair(t->before.s, 4));
}

static void test_scalars(void **) {
    static const char *const archs[] = {"gfx90a", "gfx942", "gfx1151", "gfx1201"};
    for (size_t i = 0; i < 4; i++) {
        run(archs[i],
            "s_quadmask_b32 s10, s2\n s_movrels_b32 s11, s20\n s_movreld_b32 s50, s3\n"
            "s_and_b32 m0, m0, -2\n s_movrels_b64 s[12:13], s[20:21]\n"
            "s_movreld_b64 s[80:81], s[4:5]\n",
            prepare_m0, check_scalars);
    }
}

static void prepare_two_indices(void) {
    t->wave.m0 = (uint32_t)(next_random() % 10 | next_random() % 10 << 16);
}

static void check_movrelsd_2(void) {
    const uint32_t from = OLD(124) & 0x3ff, to = OLD(124) >> 16 & 0x3ff;
    assert_int_equal(S(30 + to), OLD(10 + from));
    ACTIVE_LANES(lane) {
        assert_int_equal(t->wave.v[40 + to][lane], t->before.v[20 + from][lane]);
        assert_int_equal(t->wave.v[20 + from][lane], t->before.v[40 + to][lane]);
    }
}

static void test_movrelsd_2(void **) {
    run("gfx1151", "s_movrelsd_2_b32 s30, s10\n v_swaprel_b32 v40, v20\n", prepare_two_indices,
        check_movrelsd_2);
    run("gfx1201", "s_movrelsd_2_b32 s30, s10\n v_swaprel_b32 v40, v20\n", prepare_two_indices,
        check_movrelsd_2);
}

static void check_wrexec(void) {
    const uint64_t first = ~pair(t->before.s, 2) & t->before.exec,
                   second = pair(t->before.s, 4) & ~first;
    assert_true(pair(t->wave.s, 10) == first && pair(t->wave.s, 12) == second);
    assert_true(t->wave.exec == second && t->wave.scc == (second != 0));
}

static void test_wrexec(void **) {
    run("gfx942", "s_andn1_wrexec_b64 s[10:11], s[2:3]\n s_andn2_wrexec_b64 s[12:13], s[4:5]\n",
        nullptr, check_wrexec);
}

/** The smaller half first; the other one at the first join, both together after the second. */
static void test_fork(void **) {
    size_t size;
    uint8_t *text = assemble("gfx942",
                             "s_cbranch_g_fork s[60:61], s[62:63]\n s_cbranch_join s64\n"
                             "s_cbranch_i_fork s[60:61], 16\n",
                             &size);
    start("gfx942");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, random_exec(round));
        uint64_t mask = pair(t->wave.s, 60), exec = t->wave.exec, target = 0x77770000 + 4 * round;
        const bool is_immediate = round % 2;
        memcpy(&t->wave.s[62], &target, sizeof target);
        t->wave.s[64] = t->wave.mode >> 29;
        sim_inst fork = decode_at("gfx942", text, size, is_immediate ? 8 : 0);
        sim_inst join = decode_at("gfx942", text, size, 4);
        t->wave.pc = 0x1004;
        target = is_immediate ? 0x1004 + 4 * 16 : target;
        fork.exec(&t->wave, &fork);
        const uint64_t pass = mask & exec, fail = ~mask & exec;
        const bool pass_last = __builtin_popcountll(fail) < __builtin_popcountll(pass);
        if (pass == exec || fail == exec) {
            assert_true(t->wave.exec == exec && t->wave.pc == (pass == exec ? target : 0x1004));
            continue;
        }
        assert_true(t->wave.exec == (pass_last ? fail : pass));
        assert_true(t->wave.pc == (pass_last ? 0x1004 : target));
        join.exec(&t->wave, &join);
        assert_true(t->wave.exec == (pass_last ? pass : fail));
        assert_true(t->wave.pc == (pass_last ? target : 0x1004));
        const uint64_t pc = t->wave.pc;
        join.exec(&t->wave, &join);
        assert_true(t->wave.pc == pc && t->wave.exec == (pass_last ? pass : fail));
    }
    free(text);
}

/** The body runs once for each half of EXEC that has lanes. */
static void test_subvector_loop(void **) {
    size_t size;
    uint8_t *text = assemble(
        "gfx1151", "s_subvector_loop_begin s10, 5\n s_subvector_loop_end s10, -3\n", &size);
    start("gfx1151");
    t->wave.wave32 = false;
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise(t, round % 3 == 1 ? (uint32_t)next_random() : random_exec(round));
        uint64_t exec = t->wave.exec, ran = 0, body = 0x1004;
        sim_inst begin = decode_at("gfx1151", text, size, 0),
                 end = decode_at("gfx1151", text, size, 4);
        t->wave.pc = body;
        begin.exec(&t->wave, &begin);
        for (unsigned turns = 0; exec && turns < 3; turns++) {
            assert_true(turns < 2 && t->wave.exec &&
                        !((uint32_t)t->wave.exec && t->wave.exec >> 32));
            ran |= t->wave.exec;
            t->wave.pc = 0x2000;
            end.exec(&t->wave, &end);
            if (t->wave.pc == 0x2000)
                break;
        }
        assert_true(ran == exec && t->wave.exec == exec);
        assert_true(exec || t->wave.pc == begin.target);
    }
    free(text);
}

static void check_message(void) {
    const uint32_t passed = S(11) - S(10);
    assert_true(passed < 100000000); // a clock of 100 MHz
}

static void test_message(void **) {
    run("gfx1201",
        "s_sendmsg_rtn_b32 s10, sendmsg(MSG_RTN_GET_REALTIME)\n"
        "s_sendmsg_rtn_b32 s11, sendmsg(MSG_RTN_GET_REALTIME)\n",
        nullptr, check_message);
}

// ---- LDS: lanes have 64 bytes of their own, so that their order does not matter

static void prepare_lds(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        t->wave.v[1][lane] = 64 * lane;
}

static uint64_t lds(const uint8_t *from, unsigned at, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, from + at, bytes);
    return value;
}

static uint64_t wide(const sim_wave *w, unsigned reg, unsigned lane) {
    return w->v[reg][lane] | (uint64_t)w->v[reg + 1][lane] << 32;
}

static void check_exchanges(void) {
    ACTIVE_LANES(lane) {
        const unsigned at = 64 * lane;
        assert_int_equal(t->wave.v[20][lane], lds(t->lds_before, at + 4, 4));
        assert_int_equal(t->wave.v[21][lane], lds(t->lds_before, at + 8, 4));
        assert_int_equal(lds(t->lds, at + 4, 4), t->before.v[2][lane]);
        assert_int_equal(lds(t->lds, at + 8, 4), t->before.v[3][lane]);
        assert_true(wide(&t->wave, 22, lane) == lds(t->lds_before, at + 16, 8));
        assert_true(wide(&t->wave, 24, lane) == lds(t->lds_before, at + 24, 8));
        assert_true(lds(t->lds, at + 16, 8) == wide(&t->before, 4, lane));
        assert_true(lds(t->lds, at + 24, 8) == wide(&t->before, 6, lane));
        uint64_t old = lds(t->lds_before, at + 32, 8), data = wide(&t->before, 8, lane), want = old;
        for (unsigned shift = 0; shift < 64; shift += 32) {
            if (data >> (shift + 31) & 1) {
                want &= ~(UINT64_C(0xffffffff) << shift);
                want |= (data >> shift & 0x7fffffff) << shift;
            }
        }
        assert_true(wide(&t->wave, 26, lane) == old && lds(t->lds, at + 32, 8) == want);
    }
}

static void test_exchanges(void **) {
    run("gfx942",
        "ds_wrxchg2_rtn_b32 v[20:21], v1, v2, v3 offset0:1 offset1:2\n"
        "ds_wrxchg2_rtn_b64 v[22:25], v1, v[4:5], v[6:7] offset0:2 offset1:3\n"
        "ds_condxchg32_rtn_b64 v[26:27], v1, v[8:9] offset:32\n",
        prepare_lds, check_exchanges);
    run("gfx1201",
        "ds_storexchg_2addr_rtn_b32 v[20:21], v1, v2, v3 offset0:1 offset1:2\n"
        "ds_storexchg_2addr_rtn_b64 v[22:25], v1, v[4:5], v[6:7] offset0:2 offset1:3\n"
        "ds_condxchg32_rtn_b64 v[26:27], v1, v[8:9] offset:32\n",
        prepare_lds, check_exchanges);
}

static void check_gfx12_atomics(void) {
    ACTIVE_LANES(lane) {
        const unsigned at = 64 * lane;
        const uint32_t old = (uint32_t)lds(t->lds_before, at, 4), data = t->before.v[2][lane];
        assert_int_equal(lds(t->lds, at, 4), old > data ? old - data : 0);
        const uint32_t second = (uint32_t)lds(t->lds_before, at + 4, 4);
        assert_int_equal(t->wave.v[20][lane], second);
        assert_int_equal(lds(t->lds, at + 4, 4), second >= data ? second - data : second);
        const uint64_t third = lds(t->lds_before, at + 8, 8), mask = wide(&t->before, 4, lane);
        assert_true(lds(t->lds, at + 8, 8) == ((third & ~mask) | wide(&t->before, 6, lane)));
        double x, y, z;
        memcpy(&x, t->lds_before + at + 16, sizeof x);
        uint64_t bits = wide(&t->before, 8, lane);
        memcpy(&y, &bits, sizeof y);
        memcpy(&z, t->lds + at + 16, sizeof z);
        assert_true(isnan(x) || isnan(y) || z == fmax(x, y));
    }
}

static void test_gfx12_atomics(void **) {
    run("gfx1201",
        "ds_sub_clamp_u32 v1, v2\n ds_cond_sub_rtn_u32 v20, v1, v2 offset:4\n"
        "ds_mskor_b64 v1, v[4:5], v[6:7] offset:8\n ds_max_num_f64 v1, v[8:9] offset:16\n",
        prepare_lds, check_gfx12_atomics);
}

static void check_cmpstore(void) {
    ACTIVE_LANES(lane) {
        float old, compare, stored;
        memcpy(&old, t->lds_before + 64 * lane, 4);
        memcpy(&compare, &t->before.v[3][lane], 4);
        memcpy(&stored, t->lds + 64 * lane, 4);
        uint32_t want =
            old == compare ? t->before.v[2][lane] : (uint32_t)lds(t->lds_before, 64 * lane, 4);
        assert_int_equal(lds(t->lds, 64 * lane, 4), want);
    }
}

static void prepare_equal(void) {
    prepare_lds();
    for (unsigned lane = 0; lane < SIM_LANES; lane += 2)
        t->wave.v[3][lane] = (uint32_t)lds(t->lds, 64 * lane, 4);
}

static void test_cmpstore(void **) {
    run("gfx1151", "ds_cmpstore_f32 v1, v2, v3\n", prepare_equal, check_cmpstore);
}

static void prepare_direct(void) {
    static const uint32_t types[] = {0, 1, 2, 4, 5};
    t->wave.m0 = (uint32_t)(next_random() % 1024 * 4) | types[next_random() % 5] << 16;
}

static void check_direct(void) {
    const uint32_t type = OLD(124) >> 16, x = (uint32_t)lds(t->lds_before, OLD(124) & 0xffff, 4);
    const uint32_t want = type == 0   ? x & 255
                          : type == 1 ? x & 0xffff
                          : type == 2 ? x
                          : type == 4 ? (uint32_t)(int8_t)x
                                      : (uint32_t)(int16_t)x;
    ACTIVE_LANES(lane) {
        assert_int_equal(t->wave.v[20][lane], want);
    }
}

static void test_direct(void **) {
    run("gfx1151", "lds_direct_load v20 wait_vdst:15\n", prepare_direct, check_direct);
    run("gfx1201", "ds_direct_load v20 wait_va_vdst:15 wait_vm_vsrc:1\n", prepare_direct,
        check_direct);
}

// ---- vector instructions

static float f(unsigned reg, unsigned lane) {
    float value;
    memcpy(&value, &t->before.v[reg][lane], sizeof value);
    return value;
}

static float result(unsigned reg, unsigned lane) {
    float value;
    memcpy(&value, &t->wave.v[reg][lane], sizeof value);
    return value;
}

/** Denormals and NaNs are left to the tests of plain arithmetic. */
static void prepare_cube(void) {
    for (unsigned reg = 1; reg < 4; reg++) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            float x = (float)((int)(next_random() % 9) - 4);
            memcpy(&t->wave.v[reg][lane], &x, sizeof x);
        }
    }
}

static void check_cube(void) {
    ACTIVE_LANES(lane) {
        float x = f(1, lane), y = f(2, lane), z = f(3, lane), id, sc, tc, ma;
        if (fabsf(z) >= fabsf(x) && fabsf(z) >= fabsf(y))
            id = z < 0 ? 5 : 4, sc = z < 0 ? -x : x, tc = -y, ma = 2 * z;
        else if (fabsf(y) >= fabsf(x))
            id = y < 0 ? 3 : 2, sc = x, tc = y < 0 ? -z : z, ma = 2 * y;
        else
            id = x < 0 ? 1 : 0, sc = x < 0 ? z : -z, tc = -y, ma = 2 * x;
        assert_true(result(20, lane) == id && result(21, lane) == sc);
        assert_true(result(22, lane) == tc && result(23, lane) == ma);
    }
}

static void test_cube(void **) {
    static const char *const archs[] = {"gfx942", "gfx1201"};
    for (size_t i = 0; i < 2; i++) {
        run(archs[i],
            "v_cubeid_f32 v20, v1, v2, v3\n v_cubesc_f32 v21, v1, v2, v3\n"
            "v_cubetc_f32 v22, v1, v2, v3\n v_cubema_f32 v23, v1, v2, v3\n",
            prepare_cube, check_cube);
    }
}

static void check_mullit(void) {
    ACTIVE_LANES(lane) {
        const float a = f(1, lane), b = f(2, lane), c = f(3, lane);
        const bool dark = b == -0x1.fffffep127f || b == -INFINITY || isnan(b) || !(c > 0);
        const float want = dark ? -0x1.fffffep127f : a * b, got = result(20, lane);
        assert_true(got == want || (isnan(got) && isnan(want)));
        const float zero = a == 0 || b == 0 ? f(21, lane) : fmaf(a, b, f(21, lane));
        assert_true(result(21, lane) == zero || (isnan(zero) && isnan(result(21, lane))));
    }
}

static void test_mullit(void **) {
    run("gfx1151", "v_mullit_f32 v20, v1, v2, v3\n v_fmac_dx9_zero_f32 v21, v1, v2\n", nullptr,
        check_mullit);
}

static void check_mqsad(void) {
    ACTIVE_LANES(lane) {
        for (unsigned n = 0; n < 4; n++) {
            uint32_t sum = t->before.v[8 + n][lane];
            for (unsigned i = 0; i < 4; i++) {
                const int x = (int)(wide(&t->before, 2, lane) >> 8 * (n + i) & 255);
                const int y = (int)(t->before.v[4][lane] >> 8 * i & 255);
                sum += y ? (uint32_t)abs(x - y) : 0;
            }
            assert_int_equal(t->wave.v[20 + n][lane], sum);
        }
    }
}

static void test_mqsad(void **) {
    run("gfx942", "v_mqsad_u32_u8 v[20:23], v[2:3], v4, v[8:11]\n", nullptr, check_mqsad);
    run("gfx1201", "v_mqsad_u32_u8 v[20:23], v[2:3], v4, v[8:11]\n", nullptr, check_mqsad);
}

// ---- clamp: the exact sum, as near as 32 bits come

static int64_t signed_bits(uint32_t x, unsigned bits) {
    return (int64_t)((uint64_t)x << (64 - bits)) >> (64 - bits);
}

static void check_clamps(void) {
    ACTIVE_LANES(lane) {
        const uint32_t a = t->before.v[1][lane], b = t->before.v[2][lane], c = t->before.v[3][lane];
        uint64_t sums[6] = {(uint64_t)(a & 0xffffff) * (b & 0xffffff),
                            (uint64_t)(a & 0xffff) * (b & 0xffff),
                            0,
                            0,
                            a > b ? a - b : b - a,
                            0};
        for (unsigned shift = 0; shift < 32; shift += 8) {
            const int x = (int)(a >> shift & 255), y = (int)(b >> shift & 255);
            sums[2] += (unsigned)abs(x - y);
            sums[3] += y ? (unsigned)abs(x - y) : 0;
        }
        sums[5] = sums[2] << 16;
        for (unsigned i = 0; i < 6; i++) {
            const uint64_t want = sums[i] + c;
            assert_int_equal(t->wave.v[20 + i][lane], want > UINT32_MAX ? UINT32_MAX : want);
        }
        for (unsigned i = 0; i < 2; i++) {
            const unsigned bits = i ? 16 : 24;
            int64_t want = signed_bits(a, bits) * signed_bits(b, bits) + (int32_t)c;
            want = want > INT32_MAX ? INT32_MAX : want < INT32_MIN ? INT32_MIN : want;
            assert_int_equal((int32_t)t->wave.v[26 + i][lane], want);
        }
    }
}

static void test_clamps(void **) {
    static const char *const archs[] = {"gfx942", "gfx1201"};
    for (size_t i = 0; i < 2; i++) {
        char source[640];
        const char *half = i ? ".l" : ""; // true16
        snprintf(source, sizeof source,
                 "v_mad_u32_u24 v20, v1, v2, v3 clamp\n"
                 "v_mad_u32_u16 v21, v1%s, v2%s, v3 clamp\n"
                 "v_sad_u8 v22, v1, v2, v3 clamp\n v_msad_u8 v23, v1, v2, v3 clamp\n"
                 "v_sad_u32 v24, v1, v2, v3 clamp\n v_sad_hi_u8 v25, v1, v2, v3 clamp\n"
                 "v_mad_i32_i24 v26, v1, v2, v3 clamp\n"
                 "v_mad_i32_i16 v27, v1%s, v2%s, v3 clamp\n",
                 half, half, half, half);
        run(archs[i], source, nullptr, check_clamps);
    }
}

// ---- halves with a literal

static double half_at(const sim_wave *w, unsigned reg, bool high, unsigned lane) {
    uint16_t bits = (uint16_t)(w->v[reg][lane] >> (high ? 16 : 0));
    _Float16 value;
    memcpy(&value, &bits, sizeof bits);
    return (double)value;
}

/** An exact sum in double has 53 bits, so that only its rounding to odd could differ: halves are
 *  kept moderate. */
static void prepare_halves(void) {
    for (unsigned reg = 1; reg < 24; reg++)
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            t->wave.v[reg][lane] = ((uint32_t)next_random() & 0x8fff8fff) | 0x30003000;
}

static bool same_half(double got, double want) {
    return got == (double)(_Float16)want;
}

static void check_literals(void) {
    const sim_wave *b = &t->before, *w = &t->wave;
    ACTIVE_LANES(lane) {
        const double k = 1.5, a = half_at(b, 1, true, lane), c = half_at(b, 3, false, lane);
        assert_true(same_half(half_at(w, 20, false, lane), a * k + c));
        assert_int_equal(w->v[20][lane] >> 16, b->v[20][lane] >> 16);
        assert_true(same_half(half_at(w, 21, true, lane), 0.5 * c + k));
        assert_int_equal(w->v[21][lane] & 0xffff, b->v[21][lane] & 0xffff);
        assert_true(same_half(half_at(w, 22, false, lane), k * c + k));
    }
}

static void test_literals(void **) {
    static const char *const archs[] = {"gfx1151", "gfx1201"};
    for (size_t i = 0; i < 2; i++) {
        run(archs[i],
            "v_fmamk_f16 v20.l, v1.h, 0x3e00, v3.l\n v_fmaak_f16 v21.h, 0.5, v3.l, 0x3e00\n"
            "v_fmaak_f16 v22.l, 0x3e00, v3.l, 0x3e00\n",
            prepare_halves, check_literals);
    }
}

/** gfx9's, which LLVM does not assemble: v20 = v1 * 1.5 + v3 and v21 = v1 * v3 + 1.5, upper halves
 *  0. */
static void test_gfx9_literals(void **) {
    static const uint32_t words[] = {0x48280701, 0x3e00, 0x4a2a0701, 0x3e00};
    start("gfx942");
    randomise(t, UINT64_MAX);
    prepare_halves();
    memcpy(&t->before, &t->wave, sizeof t->wave);
    for (size_t at = 0; at < sizeof words; at += 8) {
        sim_inst inst = decode_at("gfx942", (const uint8_t *)words, sizeof words, at);
        assert_int_equal(inst.bytes, 8);
        inst.exec(&t->wave, &inst);
    }
    ACTIVE_LANES(lane) {
        const double a = half_at(&t->before, 1, false, lane),
                     c = half_at(&t->before, 3, false, lane);
        const double product = (double)(_Float16)(a * 1.5), other = (double)(_Float16)(a * c);
        const double first = half_at(&t->wave, 20, false, lane),
                     second = half_at(&t->wave, 21, false, lane);
        assert_true(same_half(first, a * 1.5 + c) || same_half(first, product + c));
        assert_true(same_half(second, a * c + 1.5) || same_half(second, other + 1.5));
        assert_int_equal((t->wave.v[20][lane] | t->wave.v[21][lane]) >> 16, 0);
    }
}

// ---- barriers

static uint32_t barrier_state(sim_wave *w, const sim_inst *inst) {
    inst->exec(w, inst);
    return w->s[10];
}

static void test_barrier_state(void **) {
    size_t size;
    uint8_t *text = assemble("gfx1201",
                             "s_get_barrier_state s10, -1\n s_barrier_signal -1\n"
                             "s_barrier_signal 0\n s_barrier_init 1\n",
                             &size);
    start("gfx1201");
    sim_wave *waves = aligned_alloc(64, 3 * sizeof *waves);
    assert_non_null(waves);
    memset(waves, 0, 3 * sizeof *waves);
    t->group.waves = waves;
    t->group.num_waves = 3;
    for (int i = 0; i < 3; i++) {
        waves[i].group = &t->group;
        waves[i].index = (uint32_t)i;
    }
    sim_inst get = decode_at("gfx1201", text, size, 0),
             signal = decode_at("gfx1201", text, size, 4);
    sim_inst nothing = decode_at("gfx1201", text, size, 8);
    assert_int_equal(barrier_state(&waves[0], &get), 3 << 4 | 1);
    signal.exec(&waves[1], &signal);
    nothing.exec(&waves[0], &nothing);
    assert_int_equal(barrier_state(&waves[0], &get), 1 << 16 | 3 << 4 | 1);
    signal.exec(&waves[0], &signal);
    assert_int_equal(barrier_state(&waves[2], &get), 2 << 16 | 3 << 4 | 1);
    signal.exec(&waves[2], &signal);
    assert_int_equal(barrier_state(&waves[2], &get), 3 << 4 | 1);
    waves[1].state = SIM_ENDED;
    assert_int_equal(barrier_state(&waves[2], &get), 2 << 4 | 1);
    free(waves);
    free(text);
}

static int tear_down(void **) {
    free(t);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),        cmocka_unit_test(test_movrelsd_2),
        cmocka_unit_test(test_wrexec),         cmocka_unit_test(test_fork),
        cmocka_unit_test(test_subvector_loop), cmocka_unit_test(test_message),
        cmocka_unit_test(test_exchanges),      cmocka_unit_test(test_gfx12_atomics),
        cmocka_unit_test(test_cmpstore),       cmocka_unit_test(test_direct),
        cmocka_unit_test(test_cube),           cmocka_unit_test(test_mullit),
        cmocka_unit_test(test_mqsad),          cmocka_unit_test(test_clamps),
        cmocka_unit_test(test_literals),       cmocka_unit_test(test_gfx9_literals),
        cmocka_unit_test(test_barrier_state)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
