// SPDX-License-Identifier: Apache-2.0
// Tests of mfma=fast: how far its results may lie from the sum in double precision and from the
// chip's rules, form by form, and which forms keep the rules' bits.
//
// With u = 2^-24 and S = |c| + the sum of all |a b|, which f64 computes to 2^-53 a step:
//   fast   one rounding of a sum no larger than S (1 + ...) for each k, two where the host has no
//          fused multiply-add; one more for whatever order the host takes pairs of bf16 in: (2 k +
//          2) u S. Subnormals taken for zeros: at most one of 2^-126 for each k, and c.
//   exact  a group of g products loses at most the place 2^-24 of the largest product's exponent
//          from each of g products and from c, and once more when the sum is rounded; the exponent
//          is that of the product, but subnormals count as the smallest normal number (N instead of
//          S): k / g groups lose (g + 2) u N each. gfx90a adds in a tree and flushes: as many
//          roundings.
// Intermediate sums are S at most, but for factors (1 + u)^k, which doubling covers.
#include "mfma_fixture.h"

static double decode_input(int type, uint64_t bits) {
    mfma_term t = mfma_decode((mfma_type)type, bits);
    return ldexp(t.m, t.e - mfma_formats[type].fraction);
}

/** Returns an input's value. gfx90a takes subnormals for zeros. */
static double input_value(const mfma_form *f, int type, uint64_t bits) {
    const double x = decode_input(type, bits);
    const double smallest = ldexp(1, 1 - mfma_formats[type].bias);
    return f->rule == MFMA_PAIRWISE && fabs(x) < smallest ? 0 : x;
}

enum { MAX_INPUTS = 1024 };
static double a[MAX_INPUTS], b[MAX_INPUTS]; // [block][row][k]

static uint64_t draw_bits(int type, int spread) {
    const mfma_format *f = &mfma_formats[type];
    const int stored = type == MFMA_XF32 ? 23 : f->fraction; // as they lie in the register
    const int top = (1 << (f->bits - 1 - stored)) - 2;
    int exponent = f->bias + (int)(next_random() % (unsigned)(2 * spread + 1)) - spread;
    exponent = exponent < 0 ? 0 : exponent > top ? top : exponent;
    const uint64_t fraction = next_random() & ((1ull << stored) - 1);
    uint64_t bits = (uint64_t)exponent << stored | fraction;
    bits |= bits ? (uint64_t)(next_random() & 1) << (f->bits - 1) : 0;
    return next_random() % 16 ? bits : 0;
}

/** Fills the operands with exponents around 1, some zeros, and subnormals where the type is narrow
 *  enough. */
static void fill(const mfma_form *f, int spread) {
    memset(wave->v, 0xff, sizeof wave->v);
    for (int i = 0; i < f->m * f->blocks * f->k; i++) {
        const int k = i % f->k, row = i / f->k % f->m, block = i / f->k / f->m;
        const uint64_t x = draw_bits(f->a_type, spread), y = draw_bits(f->b_type, spread);
        put_input(f, 0, A_REG, block, row, k, x);
        put_input(f, 1, B_REG, block, row, k, y);
        a[i] = input_value(f, f->a_type, x);
        b[i] = input_value(f, f->b_type, y);
    }
    for (int i = 0; i < f->m * f->n * f->blocks; i++) {
        const uint32_t bits = (uint32_t)draw_bits(MFMA_F32, spread);
        *result_at(f, C_REG, i / (f->m * f->n), i / f->n % f->m, i % f->n) = bits;
    }
}

static double f32_at(const mfma_form *f, int reg, int block, int row, int column) {
    float x;
    memcpy(&x, result_at(f, reg, block, row, column), sizeof x);
    return (double)x;
}

static double fast_bound(const mfma_form *f, double size) {
    return 2 * (2 * f->k + 2) * 0x1p-24 * size + (f->k + 1) * 0x1p-126;
}

static double exact_bound(const mfma_form *f, double size) {
    const double groups = ceil((double)f->k / f->group);
    return 2 * groups * (f->group + 2) * 0x1p-24 * size + (2 * f->k + 1) * 0x1p-126;
}

/** Returns the magnitude whose exponent the rules take. */
static double normal_size(int type, double x) {
    return x == 0 ? 0 : fmax(fabs(x), ldexp(1, 1 - mfma_formats[type].bias));
}

/** Returns the place in `expected` that is `at` in `wave`. */
static const void *exact_twin(const uint32_t *at) {
    return (const char *)expected->v + ((const char *)at - (const char *)wave->v);
}

/** Returns the largest error of the fast result, divided by its bound. */
static double check_output(const mfma_form *f, const char *name, int i) {
    const int block = i / (f->m * f->n), row = i / f->n % f->m, column = i % f->n;
    double c = f32_at(f, C_REG, block, row, column), want = c, size = fabs(c), normal = fabs(c);
    for (int k = 0; k < f->k; k++) {
        const double x = a[(block * f->m + row) * f->k + k],
                     y = b[(block * f->n + column) * f->k + k];
        want += x * y;
        size += fabs(x * y);
        normal += normal_size(f->a_type, x) * normal_size(f->b_type, y);
    }
    const double got = f32_at(f, D_REG, block, row, column), rounding = (f->k + 2) * 0x1p-53 * size;
    float exact;
    memcpy(&exact, exact_twin(result_at(f, D_REG, block, row, column)), sizeof exact);
    if (!(fabs(got - want) <= fast_bound(f, size) + rounding)) {
        fail_msg("%s: D[%d][%d] of block %d is %a, not %a, with a bound of %a", name, row, column,
                 block, got, want, fast_bound(f, size));
    }
    if (!(fabs(got - (double)exact) <= fast_bound(f, size) + exact_bound(f, normal))) {
        fail_msg("%s: D[%d][%d] of block %d is %a, exact %a", name, row, column, block, got,
                 (double)exact);
    }
    return fabs(got - want) / fast_bound(f, size);
}

/** Returns whether a form has a fast way on this host: 8-bit floats need AVX-512 BF16. */
static bool is_fast(int table, const mfma_form *f) {
    bool has_pairs = tables[table].build == SIM_EXEC_AVX512 &&
                     __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
    return f->n >= 16 && (f->rule == MFMA_FUSED || f->rule == MFMA_PAIRWISE ||
                          (f->rule == MFMA_SPLIT && has_pairs));
}

/** Runs a line's instruction on `wave`, fast, and on `expected`, exact. */
static void run_both(int table, size_t line, uint16_t d) {
    sim_inst inst = make_inst(&tables[table].opcodes[line]);
    inst.dst[0].reg = d;
    memcpy(expected->v, wave->v, sizeof wave->v);
    wave->fast_matrix = true;
    expected->fast_matrix = false;
    inst.exec(wave, &inst);
    inst.exec(expected, &inst);
}

/** Checks, for all forms and inputs, the largest error against its bound, and that some bits differ
 *  from the rules'. */
static void test_bounds(void **state) {
    (void)state;
    static const int spreads[] = {0, 2, 6, 20};
    for (int table = 0; table < num_tables; table++) {
        double worst = 0;
        bool differs = false;
        for (size_t i = 0; i < num_dense(); i++) {
            const mfma_form *f = form_at(i);
            for (int round = 0; is_fast(table, f) && round < 12; round++) {
                fill(f, spreads[round % 4]);
                run_both(table, i, D_REG);
                for (int at = 0; at < f->m * f->n * f->blocks; at++) {
                    const double error = check_output(f, tables[table].opcodes[i].mnemonic, at);
                    worst = error > worst ? error : worst;
                }
                differs |= memcmp(wave->v, expected->v, sizeof wave->v) != 0;
            }
        }
        assert_true(differs); // the fast arithmetic was run at all
        print_message("%s: largest error %.3f of its bound\n", tables[table].name, worst);
    }
}

/** Integers, chains of fused steps and forms of 4 x 4 have one result, whatever the mode. */
static void test_same_bits(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = 0; i < num_dense(); i++) {
            const mfma_form *f = form_at(i);
            for (int at = 0; at < C_REG + 32; at++)
                for (int lane = 0; lane < SIM_LANES; lane++)
                    wave->v[at][lane] = next_random() & 0xbfffffff; // below 2
            if (!is_fast(table, f)) {
                run_both(table, i, D_REG);
                assert_memory_equal(wave->v, expected->v, sizeof wave->v);
            }
        }
    }
}

/** Tests D over C, next to it, and over A: it must hold what D apart from them holds. C is a
 *  constant. */
static void test_overlap(void **state) {
    (void)state;
    static sim_wave before;
    const uint16_t places[] = {C_REG, C_REG + 1, A_REG, B_REG};
    const int best = num_tables - 1;
    for (size_t i = 0; i < num_dense(); i++) {
        const mfma_form *f = form_at(i);
        for (int p = 0; is_fast(best, f) && p < 4; p++) {
            fill(f, 2);
            before = *wave;
            run_both(best, i, D_REG);
            memcpy(expected->v, wave->v, sizeof wave->v);
            memcpy(wave->v, before.v, sizeof wave->v);
            sim_inst inst = make_inst(&tables[best].opcodes[i]);
            inst.dst[0].reg = places[p];
            inst.exec(wave, &inst);
            assert_memory_equal(wave->v[places[p]], expected->v[D_REG],
                                (size_t)mfma_num_results(f) * sizeof wave->v[0]);
        }
    }
}

/** Tests that a NaN or an infinity of A reaches its row, as by the rules, and no other row. */
static void test_specials(void **state) {
    (void)state;
    const int best = num_tables - 1;
    for (size_t i = 0; i < num_dense(); i++) {
        const mfma_form *f = form_at(i);
        if (!is_fast(best, f))
            continue;
        fill(f, 1);
        const mfma_format *t = &mfma_formats[f->a_type];
        const int stored = f->a_type == MFMA_XF32 ? 23 : t->fraction;
        const uint64_t nan = (1ull << (t->bits - 1)) - 1, inf = nan >> stored << stored;
        put_input(f, 0, A_REG, 0, 1, 0, t->specials == MFMA_FNUZ ? nan + 1 : nan);
        put_input(f, 0, A_REG, 0, 2, 0, inf);
        put_input(f, 1, B_REG, 0, 3, 0, 0);
        run_both(best, i, D_REG);
        for (int at = 0; at < 3 * f->n; at++) {
            uint32_t *got = result_at(f, D_REG, 0, at / f->n, at % f->n);
            float fast, exact;
            memcpy(&fast, got, sizeof fast);
            memcpy(&exact, exact_twin(got), sizeof exact);
            assert_int_equal(isnan(fast), isnan(exact));
            assert_int_equal(isinf(fast), isinf(exact));
            assert_int_equal(isnan(fast), at / f->n == 1 || isnan(exact));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_specials),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
