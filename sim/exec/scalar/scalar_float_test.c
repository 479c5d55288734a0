// SPDX-License-Identifier: Apache-2.0
// Tests of RDNA's scalar floats and integers, with expected values written apart from exec/.
#include "../exec.h"
#include "../program_testing.h"

#include <math.h>

static bool same_float(uint32_t got, float want) {
    return isnan(want) ? isnan(as_f32(got)) : got == f32_bits(want);
}

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scalar_floats),
                                       cmocka_unit_test(test_scalar_compares),
                                       cmocka_unit_test(test_scalar_integers)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
