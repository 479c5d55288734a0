// SPDX-License-Identifier: Apache-2.0
// Tests of RDNA matrix instructions, from bytes to results, against a plain matrix product of small
// integers.
#include "wmma_fixture.h"

#include <math.h>

/** The layout of elements, as in the published tables. */
typedef struct layout {
    sim_arch arch;
    int opcode, k, bits; // of an input
    int a_type, b_type;  // 'h', 'w', 'i', '8' (e4m3), '5' (e5m2)
    int result;          // 'f', 'h', 'w', 'i'
} layout;

static const layout layouts[] = {
    {SIM_GFX1151, 0x40, 16, 16, 'h', 'h', 'f'}, {SIM_GFX1151, 0x41, 16, 16, 'w', 'w', 'f'},
    {SIM_GFX1151, 0x42, 16, 16, 'h', 'h', 'h'}, {SIM_GFX1151, 0x43, 16, 16, 'w', 'w', 'w'},
    {SIM_GFX1151, 0x44, 16, 8, 'i', 'i', 'i'},  {SIM_GFX1151, 0x45, 16, 4, 'i', 'i', 'i'},
    {SIM_GFX1201, 0x40, 16, 16, 'h', 'h', 'f'}, {SIM_GFX1201, 0x41, 16, 16, 'w', 'w', 'f'},
    {SIM_GFX1201, 0x42, 16, 16, 'h', 'h', 'h'}, {SIM_GFX1201, 0x43, 16, 16, 'w', 'w', 'w'},
    {SIM_GFX1201, 0x44, 16, 8, 'i', 'i', 'i'},  {SIM_GFX1201, 0x45, 16, 4, 'i', 'i', 'i'},
    {SIM_GFX1201, 0x46, 16, 8, '8', '8', 'f'},  {SIM_GFX1201, 0x47, 16, 8, '8', '5', 'f'},
    {SIM_GFX1201, 0x48, 16, 8, '5', '8', 'f'},  {SIM_GFX1201, 0x49, 16, 8, '5', '5', 'f'},
    {SIM_GFX1201, 0x4a, 32, 4, 'i', 'i', 'i'},
};

static void put_input(const layout *l, int side, int row, int k) {
    const int reg = side == 0 ? A_REG : B_REG;
    const uint32_t x = encode(side == 0 ? l->a_type : l->b_type, small_value(side, row, k));
    if (l->arch == SIM_GFX1151) { // in both halves
        put(reg, row, k, l->bits, x);
        put(reg, row + 16, k, l->bits, x);
    } else if (l->bits == 16) {
        put(reg, row + 16 * (k / 4 % 2), k / 8 * 4 + k % 4, 16, x);
    } else {
        put(reg, row + 16 * (k / (l->k / 2)), k % (l->k / 2), l->bits, x);
    }
}

/** Returns the register and lane of result [row][column], and its first bit in *shift; on RDNA3 in
 *  op_sel's half. */
static uint32_t *result_at(const layout *l, int reg, int row, int column, bool high, int *shift) {
    const bool half = l->result == 'h' || l->result == 'w', rdna3 = l->arch == SIM_GFX1151;
    *shift = half && (rdna3 ? high : row % 2) ? 16 : 0;
    const int index = rdna3 ? row / 2 : half ? row % 8 / 2 : row % 8;
    return &wave->v[reg + index][column + 16 * (rdna3 ? row % 2 : row / 8)];
}

static bool decode(const layout *l, uint32_t modifiers0, uint32_t modifiers1, sim_inst *inst) {
    uint32_t words[2] = {0xcc004000 | (uint32_t)l->opcode << 16 | D_REG | modifiers0,
                         (256 + A_REG) | (256 + B_REG) << 9 | (256 + C_REG) << 18 | 3u << 27};
    words[1] |= modifiers1;
    char error[SIM_ERROR_BYTES];
    bool known =
        sim_decode(sim_chip_by_arch(l->arch), (const uint8_t *)words, sizeof words, 0, inst, error);
    if (!known)
        fail_msg("%s", error);
    return known;
}

static void fill(const layout *l, bool high) {
    memset(wave, 0, sizeof *wave);
    wave->wave32 = true;
    memset(wave->v[D_REG], 0xa5, 8 * sizeof wave->v[0]);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < l->k; k++) {
            put_input(l, 0, row, k);
            put_input(l, 1, row, k);
        }
        for (int column = 0; column < 16; column++) {
            int shift;
            uint32_t *c = result_at(l, C_REG, row, column, high, &shift);
            const uint32_t x = encode(l->result, small_value(2, row, column));
            *c |= l->result == 'h' || l->result == 'w' ? (x & 0xffff) << shift : x;
        }
    }
}

static void check(const layout *l, bool high) {
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, want = small_value(2, row, column), shift;
        for (int k = 0; k < l->k; k++)
            want += small_value(0, row, k) * small_value(1, column, k);
        const bool half = l->result == 'h' || l->result == 'w';
        uint32_t got = *result_at(l, D_REG, row, column, high, &shift) >> shift;
        const uint32_t bits = encode(l->result, want);
        got &= half ? 0xffff : UINT32_MAX;
        if (got != (half ? bits & 0xffff : bits)) {
            fail_msg("arch %d opcode %x: D[%d][%d] is %x, not %x (%d)", (int)l->arch, l->opcode,
                     row, column, got, bits, want);
        }
        if (half && l->arch == SIM_GFX1151) { // the other half keeps its bits
            assert_int_equal(*result_at(l, D_REG, row, column, !high, &shift) >> shift & 0xffff,
                             0xa5a5);
        }
    }
}

static void test_layouts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        const bool has_halves = l->arch == SIM_GFX1151 && (l->result == 'h' || l->result == 'w');
        for (int high = 0; high <= has_halves; high++) {
            sim_inst inst;
            const uint32_t is_signed = l->a_type == 'i' ? 3u << 29 : 0; // neg_lo of A and B
            decode(l, high ? 1u << 13 : 0, is_signed, &inst);           // op_sel[2]
            fill(l, high);
            inst.exec(wave, &inst);
            check(l, high);
        }
    }
}

// ---- random bits, every special value among them, against the rule output by output

static uint64_t next_random(void) { // splitmix64
    static uint64_t seed = 1;
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint32_t get(const sim_wave *w, int reg, int lane, int element, int bits) {
    const int bit = element * bits;
    return w->v[reg + bit / 32][lane] >> bit % 32 & ((1u << bits) - 1);
}

static double small_float(uint32_t x, int fraction, int bias, bool has_infinity) {
    const int exponent = (int)(x & 0x7f) >> fraction, mantissa = (int)x & ((1 << fraction) - 1);
    const double sign = x & 0x80 ? -1 : 1;
    if (has_infinity && exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    if (!has_infinity && (x & 0x7f) == 0x7f)
        return NAN;
    return sign * (exponent ? ldexp(mantissa + (1 << fraction), exponent - bias - fraction)
                            : ldexp(mantissa, 1 - bias - fraction));
}

static double decoded(int type, int bits, uint32_t x) {
    uint32_t wide = type == 'w' ? x << 16 : x;
    _Float16 half;
    float single;
    switch (type) {
    case 'i':
        return (double)((int32_t)(x << (32 - bits)) >> (32 - bits));
    case 'h':
        memcpy(&half, &x, sizeof half);
        return (double)half;
    case '8':
        return small_float(x, 3, 7, false);
    case '5':
        return small_float(x, 2, 15, true);
    default:
        memcpy(&single, &wide, sizeof single);
        return (double)single;
    }
}

/** Returns element [row][k] of A or B, read from where put_input puts it. */
static double input(const layout *l, const sim_wave *w, int side, int row, int k) {
    int lane = row, element = k;
    if (l->arch == SIM_GFX1201 && l->bits == 16) {
        lane += 16 * (k / 4 % 2);
        element = k / 8 * 4 + k % 4;
    } else if (l->arch == SIM_GFX1201) {
        lane += 16 * (k / (l->k / 2));
        element = k % (l->k / 2);
    }
    const uint32_t bits = get(w, side == 0 ? A_REG : B_REG, lane, element, l->bits);
    return decoded(side == 0 ? l->a_type : l->b_type, l->bits, bits);
}

static uint32_t rounded(int result, float x) {
    _Float16 half = (_Float16)x;
    uint16_t half_bits;
    uint32_t bits;
    memcpy(&half_bits, &half, sizeof half_bits);
    memcpy(&bits, &x, sizeof bits);
    switch (result) {
    case 'h':
        return isnan(x) ? 0x7e00 : half_bits;
    case 'w':
        return isnan(x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    default:
        return isnan(x) ? 0x7fc00000 : bits;
    }
}

/** Computes the expected bits: two products exactly, then one f32 sum; integers modulo 2^32. */
static uint32_t expected(const layout *l, const sim_wave *w, int row, int column, uint32_t c) {
    float sum = l->result == 'i' ? 0 : (float)decoded(l->result, 32, c);
    for (int k = 0; k < l->k; k += 2) {
        const double even = input(l, w, 0, row, k) * input(l, w, 1, column, k);
        const double odd = input(l, w, 0, row, k + 1) * input(l, w, 1, column, k + 1);
        sum += (float)(even + odd);
        c += l->result == 'i' ? (uint32_t)(int32_t)(even + odd) : 0;
    }
    return l->result == 'i' ? c : rounded(l->result, sum);
}

/** Fills the operands. Every second round has values of moderate size, so that infinities and NaNs
 *  do not hide the rest. */
static void fill_randomly(const layout *l, unsigned round) {
    for (int i = 0; i < 64 * SIM_LANES; i++) {
        const int lane = i % SIM_LANES, reg = i / SIM_LANES;
        uint32_t x = (uint32_t)next_random();
        x = round % 2 && l->bits == 16 ? (x & 0xbfffbfff) | 0x20002000 : x;
        const bool copied = l->arch == SIM_GFX1151 && lane >= 16 && lane < 32 && reg < C_REG;
        wave->v[reg][lane] = copied ? wave->v[reg][lane - 16] : x;
    }
}

static void check_randomly(const layout *l, sim_wave *before, unsigned round) {
    const bool half = l->result == 'h' || l->result == 'w';
    const uint32_t mask = half ? 0xffff : UINT32_MAX;
    sim_inst inst;
    decode(l, 0, l->a_type == 'i' ? 3u << 29 : 0, &inst);
    fill_randomly(l, round);
    memcpy(before, wave, sizeof *before);
    inst.exec(wave, &inst);
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, shift;
        const uint32_t got = *result_at(l, D_REG, row, column, false, &shift) >> shift & mask;
        const uint32_t *c_at = result_at(l, C_REG, row, column, false, &shift);
        const uint32_t c = *c_at >> shift & mask; // C is not written
        assert_int_equal(got, expected(l, before, row, column, c));
    }
}

static void test_random(void **state) {
    (void)state;
    enum { ROUNDS = 40 };
    sim_wave *before = aligned_alloc(64, sizeof *before);
    assert_non_null(before);
    for (unsigned i = 0; i < ROUNDS * sizeof layouts / sizeof *layouts; i++)
        check_randomly(&layouts[i / ROUNDS], before, i);
    free(before);
}

/** Checks mfma=fast. A result may be off by 2 (k + 1) roundings of the sum of magnitudes, with
 *  fused multiply-add or without, and by the rounding of the result's type. */
static void check_fast(const layout *l, sim_wave *before) {
    static const double result_rounding[] = {['f'] = 0x1p-24, ['h'] = 0x1p-11, ['w'] = 0x1p-8};
    sim_inst inst;
    decode(l, 0, 0, &inst);
    fill_randomly(l, 1);
    wave->fast_matrix = true;
    memcpy(before, wave, sizeof *before);
    inst.exec(wave, &inst);
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, shift;
        uint32_t *at = result_at(l, D_REG, row, column, false, &shift);
        double got =
            decoded(l->result, 32, *at >> shift & (l->result == 'f' ? UINT32_MAX : 0xffff));
        uint32_t *c_at = result_at(l, C_REG, row, column, false, &shift);
        double c =
            decoded(l->result, 32, *c_at >> shift & (l->result == 'f' ? UINT32_MAX : 0xffff));
        double want = c, size = fabs(c);
        for (int k = 0; k < l->k; k++) {
            const double product = input(l, before, 0, row, k) * input(l, before, 1, column, k);
            want += product;
            size += fabs(product);
        }
        double smallest =
            l->result == 'h' ? 0x1p-24 : 0x1p-133; // half a subnormal's step, and some
        double bound = 2 * (2 * l->k + 2) * 0x1p-24 * size + smallest;
        bound += result_rounding[l->result] * (fabs(want) + bound);
        const bool beyond = l->result == 'h' ? fabs(want) > 65000 : !(size < 0x1p127);
        if (!beyond && !(fabs(got - want) <= bound)) {
            fail_msg("arch %d opcode %x, fast: D[%d][%d] is %a, not %a, with a bound of %a",
                     (int)l->arch, l->opcode, row, column, got, want, bound);
        }
    }
}

static void test_fast(void **state) {
    (void)state;
    sim_wave *before = aligned_alloc(64, sizeof *before);
    assert_non_null(before);
    for (size_t i = 0; i < 10 * sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i / 10];
        if (l->result != 'i')
            check_fast(l, before);
    }
    wave->fast_matrix = false;
    free(before);
}

/** Tests clamp: with every element the largest unsigned and C the largest integer, the sum wraps,
 *  or stays there with clamp. */
static void test_clamp(void **state) {
    (void)state;
    for (int clamp = 0; clamp < 2; clamp++) {
        sim_inst inst;
        decode(&layouts[4], clamp ? 1u << 15 : 0, 0, &inst);
        memset(wave, 0, sizeof *wave);
        wave->wave32 = true;
        memset(wave->v[A_REG], 0xff, 4 * sizeof wave->v[0]);
        memset(wave->v[B_REG], 0xff, 4 * sizeof wave->v[0]);
        for (int i = 0; i < 8 * SIM_LANES; i++)
            wave->v[C_REG + i / SIM_LANES][i % SIM_LANES] = INT32_MAX;
        inst.exec(wave, &inst);
        assert_int_equal(wave->v[D_REG + 7][31], clamp ? INT32_MAX : INT32_MAX + 16u * 255 * 255);
    }
}

/** Tests that neg_lo turns the signs of even k, neg_hi those of odd k; on C, neg_hi takes the
 *  absolute value. */
static void test_signs(void **state) {
    (void)state;
    sim_inst inst;
    decode(&layouts[0], 4u << 8, 5u << 29, &inst); // neg_hi of C, neg_lo of A and C
    fill(&layouts[0], false);
    inst.exec(wave, &inst);
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, want = -abs(small_value(2, row, column)), shift;
        for (int k = 0; k < 16; k++)
            want += (k % 2 ? 1 : -1) * small_value(0, row, k) * small_value(1, column, k);
        float got;
        memcpy(&got, result_at(&layouts[0], D_REG, row, column, false, &shift), sizeof got);
        assert_true(got == (float)want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_random), cmocka_unit_test(test_fast),
        cmocka_unit_test(test_clamp),   cmocka_unit_test(test_signs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
