// SPDX-License-Identifier: Apache-2.0
// Tests of vector integers: packs of shifts, tables of bits, sums of differences, dot products,
// clamp, each against a formula written for the test.
#include "../run_testing.h"

#include <math.h>

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
    run_lanes(
        "gfx950",
        "v_ashr_pk_i8_i32 v20, v1, v2, v3\n v_ashr_pk_u8_i32 v21, v1, v2, v3 op_sel:[0,0,0,1]\n",
        nullptr, check_shift_packs);
}

static void check_bitop(unsigned lane) {
    const uint32_t a = before(1, lane) >> 16, b = before(2, lane), c = before(3, lane);
    expect(20, lane, (before(20, lane) & 0xffff0000) | (((a & b) ^ ~c) & 0xffff));
}

static void test_bitop(void **) {
    run_lanes("gfx950", "v_bitop3_b16 v20, v1, v2, v3 bitop3:0x95 op_sel:[1,0,0,0]\n", nullptr,
              check_bitop);
}

// ---- sums of differences

static uint32_t distance(uint64_t window, uint32_t reference, bool masked) {
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++) {
        const int x = (uint8_t)(window >> 8 * i), y = (uint8_t)(reference >> 8 * i);
        sum += masked && y == 0 ? 0 : (uint32_t)abs(x - y);
    }
    return sum;
}

/** Sets some bytes of the reference to 0. */
static void clear_bytes(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        t->wave.v[2][lane] &= next_random() & 1 ? 0xff00ffff : 0xffffff00;
}

static void check_differences(unsigned lane) {
    const uint64_t a = wide(&t->before, 4, lane), c = wide(&t->before, 6, lane);
    const uint32_t b = before(2, lane);
    expect(20, lane, before(3, lane) + distance(before(1, lane), b, true));
    for (int n = 0; n < 4; n++) {
        const uint16_t plain = (uint16_t)(wide(&t->wave, 22, lane) >> 16 * n);
        const uint16_t masked = (uint16_t)(wide(&t->wave, 24, lane) >> 16 * n);
        assert_int_equal(plain, (uint16_t)((c >> 16 * n) + distance(a >> 8 * n, b, false)));
        assert_int_equal(masked, (uint16_t)((c >> 16 * n) + distance(a >> 8 * n, b, true)));
    }
}

static void test_differences(void **) {
    run_lanes("gfx950",
              "v_msad_u8 v20, v1, v2, v3\n v_qsad_pk_u16_u8 v[22:23], v[4:5], v2, v[6:7]\n"
              "v_mqsad_pk_u16_u8 v[24:25], v[4:5], v2, v[6:7]\n",
              clear_bytes, check_differences);
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

// ---- dot products

/** Returns the exact sum of `addend` and the products of fields. */
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

/** Fills the destinations with values near the ends of their range. */
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
    run_lanes(
        "gfx950",
        "v_dot4c_i32_i8 v20, v1, v2\n v_dot2c_i32_i16 v21, v1, v2\n v_dot8c_i32_i4 v22, v1, v2\n"
        "v_dot4c_i32_i8_dpp v23, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf "
        "bound_ctrl:1\n v_dot4c_i32_i8_e64 v24, v1, v2 clamp\n"
        "v_dot2c_i32_i16_e64 v25, v1, v2 clamp\n v_dot8c_i32_i4_e64 v26, v1, v2 clamp\n",
        nearly_full, check_dots);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift_packs), cmocka_unit_test(test_bitop),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_mqsad),
        cmocka_unit_test(test_dots),        cmocka_unit_test(test_clamps)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
