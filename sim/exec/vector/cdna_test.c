// SPDX-License-Identifier: Apache-2.0
// CDNA's own vector, scalar and LDS instructions (valu_cdna.c and its neighbours' lines), each
// against a formula written for the test.
#include "../exec_testing.h"

#include <math.h>

static test_wave *t;

static int set_up(void **) {
    t = make_wave("gfx950");
    return 0;
}

static int tear_down(void **) {
    free(t);
    return 0;
}

static bool active(unsigned lane) {
    return t->before.exec >> lane & 1;
}
static uint32_t before(int reg, unsigned lane) {
    return t->before.v[reg][lane];
}
static uint64_t pair(const sim_wave *w, int reg, unsigned lane) {
    return w->v[reg][lane] | (uint64_t)w->v[reg + 1][lane] << 32;
}

/** Runs `source` many times from random registers, in both builds, then `check`s every active lane;
 *  v20 of the others must be what it was. `prepare` may set registers first. */
static void run(const char *source, void (*prepare)(void), void (*check)(unsigned lane)) {
    size_t size;
    uint8_t *text = assemble("gfx950", source, &size);
    for (unsigned round = 0; round < 60; round++) {
        randomise(t, random_exec(round / 2));
        if (prepare)
            prepare();
        memcpy(&t->before, &t->wave, sizeof t->wave);
        memcpy(t->lds_before, t->lds, sizeof t->lds);
        for (size_t at = 0; at < size;) {
            sim_inst inst = decode_at("gfx950", text, size, at);
            (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
            at += inst.bytes;
        }
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            if (active(lane))
                check(lane);
            else
                assert_int_equal(t->wave.v[20][lane], before(20, lane));
    }
    free(text);
}

static void expect(int reg, unsigned lane, uint32_t want) {
    if (t->wave.v[reg][lane] != want) {
        fail_msg("v%d lane %u: got %08x, want %08x (v1 %08x, v2 %08x, v3 %08x)", reg, lane,
                 t->wave.v[reg][lane], want, before(1, lane), before(2, lane), before(3, lane));
    }
}

// ---- integers

static uint32_t sat8(int32_t x, int least, int most) {
    return (uint32_t)(x < least ? least : x > most ? most : x) & 255;
}

static void check_shift_packs(unsigned lane) {
    const int32_t a = (int32_t)before(1, lane), b = (int32_t)before(2, lane);
    const unsigned by = before(3, lane) & 31;
    const uint32_t i8 = sat8(a >> by, -128, 127) | sat8(b >> by, -128, 127) << 8;
    const uint32_t u8 = sat8(a >> by, 0, 255) | sat8(b >> by, 0, 255) << 8;
    expect(20, lane, (before(20, lane) & 0xffff0000) | i8);
    expect(21, lane, (before(21, lane) & 0xffff) | u8 << 16); // op_sel: the upper half
}

static void test_shift_packs(void **) {
    run("v_ashr_pk_i8_i32 v20, v1, v2, v3\n v_ashr_pk_u8_i32 v21, v1, v2, v3 op_sel:[0,0,0,1]\n",
        nullptr, check_shift_packs);
}

static void check_bitop(unsigned lane) {
    const uint32_t a = before(1, lane) >> 16, b = before(2, lane), c = before(3, lane);
    expect(20, lane, (before(20, lane) & 0xffff0000) | (((a & b) ^ ~c) & 0xffff));
}

static void test_bitop(void **) {
    run("v_bitop3_b16 v20, v1, v2, v3 bitop3:0x95 op_sel:[1,0,0,0]\n", nullptr, check_bitop);
}

static uint32_t distance(uint64_t window, uint32_t reference, bool masked) {
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++) {
        const int x = (uint8_t)(window >> 8 * i), y = (uint8_t)(reference >> 8 * i);
        sum += masked && y == 0 ? 0 : (uint32_t)abs(x - y);
    }
    return sum;
}

/** Some bytes of the reference are 0. */
static void clear_bytes(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        t->wave.v[2][lane] &= next_random() & 1 ? 0xff00ffff : 0xffffff00;
}

static void check_differences(unsigned lane) {
    const uint64_t a = pair(&t->before, 4, lane), c = pair(&t->before, 6, lane);
    const uint32_t b = before(2, lane);
    expect(20, lane, before(3, lane) + distance(before(1, lane), b, true));
    for (int n = 0; n < 4; n++) {
        const uint16_t plain = (uint16_t)(pair(&t->wave, 22, lane) >> 16 * n);
        const uint16_t masked = (uint16_t)(pair(&t->wave, 24, lane) >> 16 * n);
        assert_int_equal(plain, (uint16_t)((c >> 16 * n) + distance(a >> 8 * n, b, false)));
        assert_int_equal(masked, (uint16_t)((c >> 16 * n) + distance(a >> 8 * n, b, true)));
    }
}

static void test_differences(void **) {
    run("v_msad_u8 v20, v1, v2, v3\n v_qsad_pk_u16_u8 v[22:23], v[4:5], v2, v[6:7]\n"
        "v_mqsad_pk_u16_u8 v[24:25], v[4:5], v2, v[6:7]\n",
        clear_bytes, check_differences);
}

/** The exact sum of `addend` and the products of fields. */
static int64_t exact_dot(uint32_t a, uint32_t b, uint32_t addend, int bits) {
    int64_t sum = (int32_t)addend;
    for (int at = 0; at < 32; at += bits) {
        const int64_t x = (int64_t)((uint64_t)a << (64 - bits - at)) >> (64 - bits);
        const int64_t y = (int64_t)((uint64_t)b << (64 - bits - at)) >> (64 - bits);
        sum += x * y;
    }
    return sum;
}

static uint32_t products(uint32_t a, uint32_t b, uint32_t addend, int bits) {
    return (uint32_t)exact_dot(a, b, addend, bits);
}

static uint32_t saturated_products(uint32_t a, uint32_t b, uint32_t addend, int bits) {
    const int64_t sum = exact_dot(a, b, addend, bits);
    return (uint32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

/** Destinations near the ends of their range. */
static void nearly_full(void) {
    for (unsigned reg = 24; reg < 27; reg++)
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            t->wave.v[reg][lane] = (lane & 1 ? 0x80000000 : 0x7fffffc0) | (next_random() & 63);
}

static void check_dots(unsigned lane) {
    const uint32_t a = before(1, lane), b = before(2, lane);
    expect(20, lane, products(a, b, before(20, lane), 8));
    expect(21, lane, products(a, b, before(21, lane), 16));
    expect(22, lane, products(a, b, before(22, lane), 4));
    const uint32_t neighbour = lane ^ 1; // quad_perm:[1,0,3,2]
    const uint32_t moved = t->before.exec >> neighbour & 1 ? before(1, neighbour) : 0;
    expect(23, lane, products(moved, b, before(23, lane), 8));
    expect(24, lane, saturated_products(a, b, before(24, lane), 8));
    expect(25, lane, saturated_products(a, b, before(25, lane), 16));
    expect(26, lane, saturated_products(a, b, before(26, lane), 4));
}

static void test_dots(void **) {
    run("v_dot4c_i32_i8 v20, v1, v2\n v_dot2c_i32_i16 v21, v1, v2\n v_dot8c_i32_i4 v22, v1, v2\n"
        "v_dot4c_i32_i8_dpp v23, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf "
        "bound_ctrl:1\n v_dot4c_i32_i8_e64 v24, v1, v2 clamp\n"
        "v_dot2c_i32_i16_e64 v25, v1, v2 clamp\n v_dot8c_i32_i4_e64 v26, v1, v2 clamp\n",
        nearly_full, check_dots);
}

// ---- floats

static double half(uint32_t bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 x;
    memcpy(&x, &low, sizeof x);
    return (double)x;
}

/** Halves of small integers, so that every sum is exact. */
static void small_halves(void) {
    for (int reg = 1; reg < 30; reg++) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            uint16_t bits[2];
            for (int i = 0; i < 2; i++) {
                _Float16 x = (_Float16)((int)(next_random() % 41) - 20);
                memcpy(&bits[i], &x, sizeof x);
            }
            t->wave.v[reg][lane] = bits[0] | (uint32_t)bits[1] << 16;
        }
    }
}

static void check_halves(unsigned lane) {
    for (int high = 0; high < 2; high++) {
        const double a = half(before(1, lane) >> 16 * high), b = half(before(2, lane) >> 16 * high);
        const double c = half(before(3, lane) >> 16 * high),
                     d = half(before(20, lane) >> 16 * high);
        assert_true(half(t->wave.v[20][lane] >> 16 * high) == a * b + d);
        assert_true(half(t->wave.v[21][lane] >> 16 * high) == fmin(fmin(a, b), c));
        assert_true(half(t->wave.v[22][lane] >> 16 * high) == fmax(fmax(a, b), c));
    }
}

static void test_halves(void **) {
    run("v_pk_fmac_f16 v20, v1, v2\n v_pk_minimum3_f16 v21, v1, v2, v3\n"
        "v_pk_maximum3_f16 v22, v1, v2, v3\n",
        small_halves, check_halves);
}

/** minimum3 and maximum3 keep a NaN; -0 is below +0. */
static void check_extremes(unsigned lane) {
    float x[3], got[2];
    uint32_t got_bits[2] = {t->wave.v[20][lane], t->wave.v[21][lane]};
    bool any_nan = false;
    for (int i = 0; i < 3; i++) {
        memcpy(&x[i], &t->before.v[1 + i][lane], sizeof x[i]);
        any_nan |= isnan(x[i]);
    }
    memcpy(got, got_bits, sizeof got);
    if (any_nan) {
        assert_true(isnan(got[0]) && isnan(got[1]));
        return;
    }
    float least = x[0], most = x[0];
    for (int i = 1; i < 3; i++) {
        const bool below = x[i] < least || (x[i] == least && signbit(x[i]));
        const bool above = x[i] > most || (x[i] == most && !signbit(x[i]));
        least = below ? x[i] : least;
        most = above ? x[i] : most;
    }
    assert_memory_equal(&got[0], &least, sizeof least);
    assert_memory_equal(&got[1], &most, sizeof most);
}

static void test_extremes(void **) {
    run("v_minimum3_f32 v20, v1, v2, v3\n v_maximum3_f32 v21, v1, v2, v3\n", nullptr,
        check_extremes);
}

/** One of the two neighbours: the upper if the position between them and the fraction come to
 *  one. */
static void check_random_rounding(unsigned lane) {
    float x, low, high;
    uint32_t bits = before(1, lane), random = before(2, lane), low_bits = bits & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    if (isnan(x) || fabsf(x) > 60000 || fabsf(x) < 1e-4f)
        return;
    uint32_t high_bits = low_bits + 0x10000;
    memcpy(&low, &low_bits, sizeof low);
    memcpy(&high, &high_bits, sizeof high);
    const double part = ((double)x - (double)low) / ((double)high - (double)low);
    const uint32_t want = part + (random >> 16) * 0x1p-16 >= 1 ? high_bits : low_bits;
    expect(20, lane, (before(20, lane) & 0xffff) | (want & 0xffff0000));
    const double got = half(t->wave.v[21][lane]), gap = exp2(ilogb(x) - 10);
    const double cut = trunc((double)x / gap) * gap;
    const double place = fabs((double)x - cut) / gap + random * 0x1p-32;
    assert_true(got == (place >= 1 ? cut + copysign(gap, (double)x) : cut));
}

static void moderate(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t r = (uint32_t)next_random();
        t->wave.v[1][lane] = (r & 0x807fffff) | (115 + (r >> 24 & 15)) << 23;
    }
}

static void test_random_rounding(void **) {
    run("v_cvt_sr_bf16_f32 v20, v1, v2 op_sel:[0,0,1]\n v_cvt_sr_f16_f32 v21, v1, v2\n", moderate,
        check_random_rounding);
}

static double window(int reg, unsigned lane) {
    uint64_t bits = pair(&t->wave, reg, lane);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** The first groups of digits add up to 2/pi; a larger angle sees the same digits further on. */
static void check_digits(unsigned lane) {
    const uint64_t exponent = pair(&t->before, 4, lane) >> 52 & 2047;
    const double first = window(20, lane), second = window(22, lane);
    if (exponent <= 1077) {
        const long double two_over_pi = 0.63661977236758134307553505349005744813784L;
        assert_true((long double)first + (long double)second == two_over_pi);
        assert_true(first < (double)two_over_pi + 0x1p-53 && second < 0x1p-52);
    } else {
        const uint64_t skipped = exponent - 1077;                       // less than 53 here
        const double whole = window(24, lane), rest = window(26, lane); // of an angle of 1
        const double scaled = ldexp(whole, (int)skipped);
        const double kept =
            (scaled - floor(scaled)) + floor(ldexp(rest, (int)skipped + 53)) * 0x1p-53;
        assert_true(ldexp(first, (int)skipped) == kept);
    }
}

static void angles(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t exponent = lane % 4 ? 1000 + next_random() % 130 : 1077;
        t->wave.v[5][lane] = (uint32_t)exponent << 20 | (uint32_t)next_random() >> 12;
    }
}

static void test_digits(void **) {
    run("v_trig_preop_f64 v[20:21], v[4:5], 0\n v_trig_preop_f64 v[22:23], v[4:5], 1\n"
        "v_trig_preop_f64 v[24:25], 1.0, 0\n v_trig_preop_f64 v[26:27], 1.0, 1\n",
        angles, check_digits);
}

// ---- conversions and sums of halves

static uint32_t normalised(double x, double scale) {
    const double least = scale > 40000 ? 0 : -1;
    x = isnan(x) ? 0 : x < least ? least : x > 1 ? 1 : x;
    return (uint32_t)(int)rint(x * scale) & 0xffff;
}

static void check_conversions(unsigned lane) {
    uint32_t a = before(1, lane), b = before(2, lane), byte = 8 * (b & 3);
    expect(20, lane, normalised(half(a), 32767));
    expect(21, lane, normalised(half(a), 65535));
    expect(22, lane, normalised(half(a), 32767) | normalised(half(b), 32767) << 16);
    expect(23, lane, normalised(half(a >> 16), 65535) | normalised(half(b), 65535) << 16);
    float x;
    memcpy(&x, &a, sizeof x);
    const uint32_t value = isnan(x) || x < 0 ? 0 : x > 255 ? 255 : (uint32_t)x;
    expect(24, lane, (before(24, lane) & ~(255u << byte)) | value << byte);
}

static void test_conversions(void **) {
    run("v_cvt_norm_i16_f16 v20, v1\n v_cvt_norm_u16_f16 v21, v1\n"
        "v_cvt_pknorm_i16_f16 v22, v1, v2\n v_cvt_pknorm_u16_f16 v23, v1, v2 op_sel:[1,0,0]\n"
        "v_cvt_pkaccum_u8_f32 v24, v1, v2\n",
        nullptr, check_conversions);
}

/** The sources are small integers as f16, their sums exact; the destinations are whole f32. */
static void small_sums(void) {
    small_halves();
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        float x = (float)((int)(next_random() % 100) - 50);
        memcpy(&t->wave.v[20][lane], &x, sizeof x);
        memcpy(&t->wave.v[21][lane], &x, sizeof x);
        for (int reg = 4; reg < 6; reg++) { // bf16: the upper halves of f32
            uint32_t bits[2];
            for (int i = 0; i < 2; i++) {
                x = (float)((int)(next_random() % 41) - 20);
                memcpy(&bits[i], &x, sizeof x);
            }
            t->wave.v[reg][lane] = bits[0] >> 16 | (bits[1] & 0xffff0000);
        }
    }
}

static void check_sums(unsigned lane) {
    float x, got[2], want[2];
    uint32_t got_bits[2] = {t->wave.v[20][lane], t->wave.v[21][lane]};
    memcpy(&x, &t->before.v[20][lane], sizeof x);
    memcpy(got, got_bits, sizeof got);
    want[0] = want[1] = x;
    for (int high = 0; high < 2; high++) {
        const uint32_t a = before(1, lane) >> 16 * high, b = before(2, lane) >> 16 * high;
        uint32_t p = before(4, lane) >> 16 * high << 16, q = before(5, lane) >> 16 * high << 16;
        float y, z;
        memcpy(&y, &p, sizeof y);
        memcpy(&z, &q, sizeof z);
        want[0] += (float)(half(a) * half(b));
        want[1] += y * z;
    }
    assert_true(got[0] == want[0] && got[1] == want[1]);
    const double a = half(before(1, lane)), b = half(before(2, lane)), c = half(before(3, lane));
    assert_true(half(t->wave.v[22][lane]) == a * b + c && t->wave.v[22][lane] >> 16 == 0);
    assert_true(half(t->wave.v[23][lane]) == a * b + c && t->wave.v[23][lane] >> 16 == 0);
}

static void test_sums(void **) {
    run("v_dot2c_f32_f16 v20, v1, v2\n v_dot2c_f32_bf16 v21, v4, v5\n"
        "v_fma_legacy_f16 v22, v1, v2, v3\n v_mad_legacy_f16 v23, v1, v2, v3\n",
        small_sums, check_sums);
}

// ---- scalar

static void check_scalar(unsigned) {
    uint64_t value = t->before.s[2] | (uint64_t)t->before.s[3] << 32, groups = 0, twice = 0;
    for (int i = 0; i < 64; i++) {
        groups |= (value >> i & 1) << i / 4;
        twice |= (uint64_t)(t->before.s[2] >> i / 2 & 1) << i;
    }
    const uint64_t bit = UINT64_C(1) << (t->before.s[4] & 63);
    const uint64_t set = t->before.s[14] | (uint64_t)t->before.s[15] << 32;
    const uint64_t clear = t->before.s[16] | (uint64_t)t->before.s[17] << 32;
    const uint64_t want[] = {groups, twice, set | bit, clear & ~bit};
    for (int i = 0; i < 4; i++) {
        const uint64_t got = t->wave.s[10 + 2 * i] | (uint64_t)t->wave.s[11 + 2 * i] << 32;
        assert_int_equal(got, want[i]);
    }
    assert_int_equal(t->wave.scc, groups != 0);
}

static void test_scalar(void **) {
    run("s_quadmask_b64 s[10:11], s[2:3]\n s_bitreplicate_b64_b32 s[12:13], s2\n"
        "s_bitset1_b64 s[14:15], s4\n s_bitset0_b64 s[16:17], s4\n",
        nullptr, check_scalar);
}

// ---- LDS

static uint64_t lds64(const uint8_t *lds, unsigned at) {
    uint64_t value;
    memcpy(&value, lds + at, sizeof value);
    return value;
}

/** Each lane has 32 bytes of its own; what is compared matches in half of them. */
static void prepare_lds(void) {
    for (unsigned i = 0; i < TEST_LDS_BYTES; i += 8) {
        uint64_t bits = next_biased();
        memcpy(t->lds + i, &bits, sizeof bits);
    }
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        t->wave.v[1][lane] = 32 * lane;
        t->wave.v[2][lane] = (uint32_t)lds64(t->lds, 32 * lane) ^ (lane & 1);
        if (lane % 4 == 0) // the ring is at its step exactly
            memcpy(t->lds + 32 * lane + 8, &t->wave.v[2][lane], 4);
        t->wave.v[8][lane] = (uint32_t)lds64(t->lds, 32 * lane + 24) ^ (lane & 1);
        t->wave.v[9][lane] = (uint32_t)(lds64(t->lds, 32 * lane + 24) >> 32);
    }
}

static void check_lds(unsigned lane) {
    uint32_t old = (uint32_t)lds64(t->lds_before, 32 * lane), data = before(3, lane);
    const uint32_t ring = (uint32_t)lds64(t->lds_before, 32 * lane + 8);
    const uint64_t masked = lds64(t->lds_before, 32 * lane + 16);
    uint64_t wide = lds64(t->lds_before, 32 * lane + 24), compare = pair(&t->before, 8, lane);
    float x, y;
    double p, q;
    memcpy(&x, &old, sizeof x);
    memcpy(&y, &t->before.v[2][lane], sizeof y);
    memcpy(&p, &wide, sizeof p);
    memcpy(&q, &compare, sizeof q);
    expect(20, lane, old);
    expect(21, lane, ring);
    assert_int_equal((uint32_t)lds64(t->lds, 32 * lane), x == y ? data : old);
    assert_int_equal((uint32_t)lds64(t->lds, 32 * lane + 8),
                     ring >= before(2, lane) ? ring - before(2, lane) : ring + data);
    assert_int_equal(lds64(t->lds, 32 * lane + 16),
                     (masked & ~pair(&t->before, 4, lane)) | pair(&t->before, 6, lane));
    assert_int_equal(lds64(t->lds, 32 * lane + 24), p == q ? pair(&t->before, 6, lane) : wide);
}

static void test_lds(void **) {
    run("ds_cmpst_rtn_f32 v20, v1, v2, v3\n ds_wrap_rtn_b32 v21, v1, v2, v3 offset:8\n"
        "ds_mskor_b64 v1, v[4:5], v[6:7] offset:16\n ds_cmpst_f64 v1, v[8:9], v[6:7] offset:24\n",
        prepare_lds, check_lds);
}

// ---- loads to LDS: gfx950's 160 KiB need more than 16 bits of M0

enum { BIG_LDS = 163840, DMA_AT = 140000 };

static void check_big_dma(const uint8_t *lds, const uint8_t *memory, bool whole) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint8_t zero[16] = {};
        const unsigned at = whole ? DMA_AT : DMA_AT & 0xffff;
        const uint8_t *want = active(lane) ? memory + 16 * (63 - lane) : zero;
        assert_memory_equal(lds + at + 32 + 16 * lane, want, 16);
    }
}

static void run_big_dma(uint8_t *lds, uint64_t guest) {
    size_t size;
    uint8_t *text = assemble("gfx950", "global_load_lds_dwordx4 v[2:3], off offset:32\n", &size);
    sim_inst inst = decode_at("gfx950", text, size, 0);
    memset(lds, 0, BIG_LDS);
    randomise(t, 0x0ff0123456789abc);
    t->wave.m0 = DMA_AT;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t at = guest + 16 * (63 - lane) - 32;
        t->wave.v[2][lane] = (uint32_t)at;
        t->wave.v[3][lane] = (uint32_t)(at >> 32);
    }
    memcpy(&t->before, &t->wave, sizeof t->wave);
    inst.exec(&t->wave, &inst);
    assert_int_equal(t->wave.state, SIM_RUNNING);
    free(text);
}

static void test_big_lds(void **) {
    static const sim_region nothing;
    sim_memory *memory = t->dispatch.memory = sim_memory_create();
    const uint64_t guest = sim_memory_alloc(memory, 1024, SIM_REGION_DEVICE, 0)->base;
    uint8_t *host = sim_memory_host(memory, guest, 1024), *lds = malloc(BIG_LDS);
    assert_non_null(lds);
    for (unsigned i = 0; i < 1024; i++)
        host[i] = (uint8_t)next_random();
    t->group.lds = lds;
    t->dispatch.lds_bytes = BIG_LDS;
    run_big_dma(lds, guest);
    check_big_dma(lds, host, true);
    t->dispatch.chip = sim_chip_by_name("gfx942"); // takes 16 bits
    run_big_dma(lds, guest);
    check_big_dma(lds, host, false);
    t->dispatch.chip = sim_chip_by_name("gfx950");
    t->dispatch.lds_bytes = TEST_LDS_BYTES;
    t->group.lds = t->lds;
    t->wave.region = &nothing;
    sim_memory_destroy(memory);
    free(lds);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_packs), cmocka_unit_test(test_bitop),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_dots),
        cmocka_unit_test(test_halves),      cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_digits),      cmocka_unit_test(test_random_rounding),
        cmocka_unit_test(test_scalar),      cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_lds),
        cmocka_unit_test(test_big_lds)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
