// SPDX-License-Identifier: Apache-2.0
// Tests of vector floats: halves, extremes, roundings, digits of 2/pi, conversions, cube maps, each
// against a formula written for the test.
#include "../run_testing.h"

#include <math.h>

// ---- halves

static double half(uint32_t bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 x;
    memcpy(&x, &low, sizeof x);
    return (double)x;
}

/** Fills registers with halves of small integers, so that every sum is exact. */
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
    run_lanes("gfx950",
              "v_pk_fmac_f16 v20, v1, v2\n v_pk_minimum3_f16 v21, v1, v2, v3\n"
              "v_pk_maximum3_f16 v22, v1, v2, v3\n",
              small_halves, check_halves);
}

/** Fills the sources with small integers as f16, whose sums are exact, and the destinations with
 *  whole f32. */
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
    run_lanes("gfx950",
              "v_dot2c_f32_f16 v20, v1, v2\n v_dot2c_f32_bf16 v21, v4, v5\n"
              "v_fma_legacy_f16 v22, v1, v2, v3\n v_mad_legacy_f16 v23, v1, v2, v3\n",
              small_sums, check_sums);
}

// ---- extremes, roundings, digits

/** Checks that minimum3 and maximum3 keep a NaN, and that -0 is below +0. */
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
    run_lanes("gfx950", "v_minimum3_f32 v20, v1, v2, v3\n v_maximum3_f32 v21, v1, v2, v3\n",
              nullptr, check_extremes);
}

/** Checks that the result is the upper of the two neighbours if the position between them and the
 *  fraction add up to one, else the lower. */
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
    run_lanes("gfx950",
              "v_cvt_sr_bf16_f32 v20, v1, v2 op_sel:[0,0,1]\n v_cvt_sr_f16_f32 v21, v1, v2\n",
              moderate, check_random_rounding);
}

static double window(unsigned reg, unsigned lane) {
    uint64_t bits = wide(&t->wave, reg, lane);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/** Checks that the first groups of digits add up to 2/pi, and that a larger angle reads the same
 *  digits further on. */
static void check_digits(unsigned lane) {
    const uint64_t exponent = wide(&t->before, 4, lane) >> 52 & 2047;
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
    run_lanes("gfx950",
              "v_trig_preop_f64 v[20:21], v[4:5], 0\n v_trig_preop_f64 v[22:23], v[4:5], 1\n"
              "v_trig_preop_f64 v[24:25], 1.0, 0\n v_trig_preop_f64 v[26:27], 1.0, 1\n",
              angles, check_digits);
}

// ---- conversions

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
    run_lanes("gfx950",
              "v_cvt_norm_i16_f16 v20, v1\n v_cvt_norm_u16_f16 v21, v1\n"
              "v_cvt_pknorm_i16_f16 v22, v1, v2\n v_cvt_pknorm_u16_f16 v23, v1, v2 op_sel:[1,0,0]\n"
              "v_cvt_pkaccum_u8_f32 v24, v1, v2\n",
              nullptr, check_conversions);
}

// ---- cube maps and lighting

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

/** Prepares directions. Only the tests of plain arithmetic have denormals and NaNs. */
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

// ---- halves with a literal

static double half_at(const sim_wave *w, unsigned reg, bool high, unsigned lane) {
    uint16_t bits = (uint16_t)(w->v[reg][lane] >> (high ? 16 : 0));
    _Float16 value;
    memcpy(&value, &bits, sizeof bits);
    return (double)value;
}

/** Prepares halves of moderate size. An exact sum in double has 53 bits, so only its rounding to
 *  odd could differ. */
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

/** Tests gfx9's literals, which LLVM does not assemble: v20 = v1 * 1.5 + v3 and v21 = v1 * v3 +
 *  1.5, upper halves 0. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),   cmocka_unit_test(test_sums),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_random_rounding),
        cmocka_unit_test(test_digits),   cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_cube),     cmocka_unit_test(test_mullit),
        cmocka_unit_test(test_literals), cmocka_unit_test(test_gfx9_literals)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
