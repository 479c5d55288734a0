// SPDX-License-Identifier: Apache-2.0
// RDNA matrix instructions, from bytes to results, against a plain matrix product of small integers.
#include "../isa/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { A_REG = 8, B_REG = 16, C_REG = 24, D_REG = 40, NUM_LANES = 32 };

/** How elements lie, as in the published tables. */
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

static sim_wave *wave;

static int small_value(int side, int row, int k) {
    uint32_t h = (uint32_t)(side * 7919 + row * 1299709 + k * 15485863);
    h = (h ^ h >> 15) * 0x2c1b3c6d;
    return (int)((h ^ h >> 12) % 7) - 3;
}

static uint32_t encode(int type, int x) { // |x| <= 3: exact in every type
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 31, fraction = bits & 0x7fffff, exponent = (bits >> 23 & 255) - 127;
    switch (type) {
    case 'i':
        return (uint32_t)x;
    case 'f':
        return bits;
    case 'w':
        return bits >> 16;
    case 'h':
        return x == 0 ? 0 : sign << 15 | (exponent + 15) << 10 | fraction >> 13;
    case '8':
        return x == 0 ? 0 : sign << 7 | (exponent + 7) << 3 | fraction >> 20;
    default:
        return x == 0 ? 0 : sign << 7 | (exponent + 15) << 2 | fraction >> 21;
    }
}

static void put(int reg, int lane, int element, int bits, uint32_t x) {
    int bit = element * bits;
    uint32_t mask = (bits == 32 ? UINT32_MAX : (1u << bits) - 1) << bit % 32;
    uint32_t *at = &wave->v[reg + bit / 32][lane];
    *at = (*at & ~mask) | (x << bit % 32 & mask);
}

static void put_input(const layout *l, int side, int row, int k) {
    int reg = side == 0 ? A_REG : B_REG;
    uint32_t x = encode(side == 0 ? l->a_type : l->b_type, small_value(side, row, k));
    if (l->arch == SIM_GFX1151) { // in both halves
        put(reg, row, k, l->bits, x);
        put(reg, row + 16, k, l->bits, x);
    } else if (l->bits == 16) {
        put(reg, row + 16 * (k / 4 % 2), k / 8 * 4 + k % 4, 16, x);
    } else {
        put(reg, row + 16 * (k / (l->k / 2)), k % (l->k / 2), l->bits, x);
    }
}

/** Result [row][column]: its register, lane and first bit, for op_sel's half on RDNA3. */
static uint32_t *result_at(const layout *l, int reg, int row, int column, bool high, int *shift) {
    bool half = l->result == 'h' || l->result == 'w', rdna3 = l->arch == SIM_GFX1151;
    *shift = half && (rdna3 ? high : row % 2) ? 16 : 0;
    int index = rdna3 ? row / 2 : half ? row % 8 / 2 : row % 8;
    return &wave->v[reg + index][column + 16 * (rdna3 ? row % 2 : row / 8)];
}

static bool decode(const layout *l, uint32_t modifiers0, uint32_t modifiers1, sim_inst *inst) {
    uint32_t words[2] = {0xcc004000 | (uint32_t)l->opcode << 16 | D_REG | modifiers0,
                         (256 + A_REG) | (256 + B_REG) << 9 | (256 + C_REG) << 18 | 3u << 27};
    words[1] |= modifiers1;
    char error[SIM_ERROR_BYTES];
    bool known =
        sim_decode(sim_chip_by_arch(l->arch), (const uint8_t *)words, sizeof words, 0, inst, error);
    if (!known) {
        fail_msg("%s", error);
    }
    return known;
}

static void fill(const layout *l, bool high) {
    memset(wave, 0, sizeof *wave);
    memset(wave->v[D_REG], 0xa5, 8 * sizeof wave->v[0]);
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < l->k; k++) {
            put_input(l, 0, row, k);
            put_input(l, 1, row, k);
        }
        for (int column = 0; column < 16; column++) {
            int shift;
            uint32_t *c = result_at(l, C_REG, row, column, high, &shift);
            uint32_t x = encode(l->result, small_value(2, row, column));
            *c |= l->result == 'h' || l->result == 'w' ? (x & 0xffff) << shift : x;
        }
    }
}

static void check(const layout *l, bool high) {
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, want = small_value(2, row, column), shift;
        for (int k = 0; k < l->k; k++) {
            want += small_value(0, row, k) * small_value(1, column, k);
        }
        bool half = l->result == 'h' || l->result == 'w';
        uint32_t got = *result_at(l, D_REG, row, column, high, &shift) >> shift;
        uint32_t bits = encode(l->result, want);
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
        bool has_halves = l->arch == SIM_GFX1151 && (l->result == 'h' || l->result == 'w');
        for (int high = 0; high <= has_halves; high++) {
            sim_inst inst;
            uint32_t is_signed = l->a_type == 'i' ? 3u << 29 : 0; // neg_lo of A and B
            decode(l, high ? 1u << 13 : 0, is_signed, &inst);     // op_sel[2]
            fill(l, high);
            inst.exec(wave, &inst);
            check(l, high);
        }
    }
}

/** Every element the largest unsigned, C the largest integer: wraps, or stays with clamp. */
static void test_clamp(void **state) {
    (void)state;
    for (int clamp = 0; clamp < 2; clamp++) {
        sim_inst inst;
        decode(&layouts[4], clamp ? 1u << 15 : 0, 0, &inst);
        memset(wave, 0, sizeof *wave);
        memset(wave->v[A_REG], 0xff, 4 * sizeof wave->v[0]);
        memset(wave->v[B_REG], 0xff, 4 * sizeof wave->v[0]);
        for (int i = 0; i < 8 * SIM_LANES; i++) {
            wave->v[C_REG + i / SIM_LANES][i % SIM_LANES] = INT32_MAX;
        }
        inst.exec(wave, &inst);
        assert_int_equal(wave->v[D_REG + 7][31], clamp ? INT32_MAX : INT32_MAX + 16u * 255 * 255);
    }
}

/** neg_lo turns the signs of even k, neg_hi those of odd k; on C, neg_hi takes the absolute value. */
static void test_signs(void **state) {
    (void)state;
    sim_inst inst;
    decode(&layouts[0], 4u << 8, 5u << 29, &inst); // neg_hi of C, neg_lo of A and C
    fill(&layouts[0], false);
    inst.exec(wave, &inst);
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, want = -abs(small_value(2, row, column)), shift;
        for (int k = 0; k < 16; k++) {
            want += (k % 2 ? 1 : -1) * small_value(0, row, k) * small_value(1, column, k);
        }
        float got;
        memcpy(&got, result_at(&layouts[0], D_REG, row, column, false, &shift), sizeof got);
        assert_true(got == (float)want);
    }
}

static int set_up(void **state) {
    (void)state;
    wave = aligned_alloc(64, sizeof *wave);
    return wave ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    free(wave);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_clamp),
        cmocka_unit_test(test_signs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
