// SPDX-License-Identifier: Apache-2.0
// Tests of block-scaled and sparse matrix instructions: layouts, types and scales by an independent
// matrix product.
#include "mfma_fixture.h"

// ---- gfx950's f8f6f4, from bytes

static double scale_of(int side, int row, int block) { // 2^-3 .. 2^3
    return ldexp(1, (small_value(side, block, row, 77) + 4) % 7 - 3);
}

/** Puts an element at its lane and bit by the published table: bytes in two runs of 16 k, other
 *  types in consecutive k. */
static void put_mixed(const mfma_form *f, int type, int reg, int row, int k, uint64_t bits) {
    const int groups = SIM_LANES / f->m, width = mfma_formats[type].bits;
    const int group = width == 8 ? k / 16 % groups : k / 32;
    const int element = width == 8 ? k / (16 * groups) * 16 + k % 16 : k % 32;
    for (int i = 0; i < width; i++) {
        const int bit = element * width + i;
        uint32_t *dword = &wave->v[reg + bit / 32][row + f->m * group];
        *dword = (*dword & ~(1u << bit % 32)) | (uint32_t)(bits >> i & 1) << bit % 32;
    }
}

enum { SCALE_A = 40, SCALE_B = 41 };

static void fill_mixed(const mfma_form *f, const int types[2], const int bytes[2]) {
    for (int i = 0; i < f->m; i++) {
        for (int k = 0; k < f->k; k++) {
            put_mixed(f, types[0], A_REG, i, k, encode_small(types[0], small_value(0, 0, i, k)));
            put_mixed(f, types[1], B_REG, i, k, encode_small(types[1], small_value(1, 0, i, k)));
        }
        for (int block = 0; block < f->k / 32; block++) {
            for (int side = 0; side < 2; side++) {
                const uint32_t byte = (uint32_t)(127 + ilogb(scale_of(side, i, block)));
                uint32_t *at = &wave->v[SCALE_A + side][i + f->m * block];
                *at = 0x01010101 ^ (byte ^ 1) << (8 * bytes[side]);
            }
        }
        for (int j = 0; j < f->n; j++)
            put_c(f, 0, i, j, small_value(2, 0, i, j));
    }
}

static void check_mixed(const mfma_form *f, bool scaled, int reg) {
    for (int i = 0; i < f->m * f->n; i++) {
        const int row = i / f->n, column = i % f->n;
        double want = small_value(2, 0, row, column);
        for (int k = 0; k < f->k; k++) {
            const double scale = scale_of(0, row, k / 32) * scale_of(1, column, k / 32);
            want += small_value(0, 0, row, k) * small_value(1, 0, column, k) * (scaled ? scale : 1);
        }
        const double got = decode_result(f, result_at(f, reg, 0, row, column));
        if (got != want)
            fail_msg("f8f6f4 %d: D[%d][%d] is %g, not %g", f->m, row, column, got, want);
    }
}

/** Decodes an f8f6f4 encoding whose types are `fields`, and whose scales are in `bytes`. */
static sim_inst decode_mixed(bool is_32, bool scaled, const int fields[2], const int bytes[2]) {
    uint32_t words[4] = {0xd3ac0000 | (uint32_t)(bytes[0] & 1) << 11 |
                             (uint32_t)(bytes[1] & 1) << 12,
                         (256 + SCALE_A) | (256 + SCALE_B) << 9 | (uint32_t)(bytes[0] >> 1) << 27 |
                             (uint32_t)(bytes[1] >> 1) << 28};
    uint32_t *mfma = words + 2;
    mfma[0] = (is_32 ? 0xd3ae0000 : 0xd3ad0000) | CODED_D | (uint32_t)fields[0] << 8 |
              (scaled ? 1u << 11 : 0);
    mfma[1] = (256 + A_REG) | (256 + B_REG) << 9 | (256u + C_REG) << 18 | (uint32_t)fields[1] << 29;
    uint32_t *from = scaled ? words : mfma;
    sim_inst inst;
    char error[SIM_ERROR_BYTES];
    if (!sim_decode(sim_chip_by_arch(SIM_GFX950), (const uint8_t *)from, scaled ? 16 : 8, 0, &inst,
                    error)) {
        fail_msg("%s", error);
    }
    return inst;
}

/** Runs one f8f6f4 encoding; `choice` gives types and scale bytes. */
static void run_mixed(bool is_32, bool scaled, int choice) {
    const int fields[2] = {choice % 5, choice / 5 % 5},
              bytes[2] = {choice / 25 % 4, choice / 7 % 4};
    const int by_field[] = {MFMA_FP8, MFMA_BF8, MFMA_FP6, MFMA_BF6, MFMA_FP4};
    const int types[2] = {by_field[fields[0]], by_field[fields[1]]};
    const sim_inst inst = decode_mixed(is_32, scaled, fields, bytes);
    const mfma_form *f = form_at(line_of(&inst));
    assert_int_equal(f->m, is_32 ? 32 : 16);
    memset(wave->v, 0, sizeof wave->v);
    fill_mixed(f, types, bytes);
    inst.exec(wave, &inst);
    check_mixed(f, scaled, CODED_D);
}

static void test_mixed_types(void **state) {
    (void)state;
    for (int choice = 0; choice < 100; choice++) {
        run_mixed(false, true, choice);
        run_mixed(true, true, choice);
        run_mixed(choice % 2, false, choice % 25);
    }
}

/** Fills A and B with codes whose exponents lie close together, or with any, and C with floats
 *  that are larger, of a size or smaller. */
static void fill_codes(int round) {
    const uint32_t kept = round % 3 == 0 ? 0xffffffff : round % 3 == 1 ? 0x8f8f8f8f : 0xbfbfbfbf;
    memset(wave->v, 0, sizeof wave->v);
    for (int i = 0; i < 8 * SIM_LANES; i++) {
        wave->v[A_REG + i / SIM_LANES][i % SIM_LANES] = next_random() & kept;
        wave->v[B_REG + i / SIM_LANES][i % SIM_LANES] = next_random() & kept;
    }
    for (int i = 0; i < 16 * SIM_LANES; i++) {
        const float c = ldexpf((float)(int)next_random(), -31 + 6 * (round % 8) - 20);
        memcpy(&wave->v[C_REG + i / SIM_LANES][i % SIM_LANES], &c, sizeof c);
    }
    for (int lane = 0; lane < SIM_LANES; lane++)
        wave->v[SCALE_A][lane] = wave->v[SCALE_B][lane] = 0x7f7f7f7f;
}

/** Without scales 8-bit types may run by other code, which must give the bits of scales of 1. D may
 *  lie over C. */
static void test_unscaled_bits(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        const int fields[2] = {round % 2, round / 2 % 2}, bytes[2] = {0};
        sim_inst plain = decode_mixed(round / 4 % 2, false, fields, bytes);
        const sim_inst scaled = decode_mixed(round / 4 % 2, true, fields, bytes);
        fill_codes(round);
        scaled.exec(wave, &scaled);
        memcpy(expected->v[CODED_D], wave->v[CODED_D], 16 * sizeof wave->v[0]);
        plain.dst[0].reg = (uint16_t)(round % 5 == 0 ? C_REG + 1 : CODED_D);
        const size_t rows = round / 4 % 2 ? 16 : 4;
        plain.exec(wave, &plain);
        if (memcmp(expected->v[CODED_D], wave->v[plain.dst[0].reg], rows * sizeof wave->v[0]) != 0)
            fail_msg("round %d: bits differ from those with scales of 1", round);
    }
}

// ---- sparse

/** Returns which two of four k row `row` keeps, as two 2-bit numbers in rising order. */
static uint32_t kept_pair(int row, int quad) {
    static const uint8_t pairs[] = {0 | 1 << 2, 0 | 2 << 2, 0 | 3 << 2,
                                    1 | 2 << 2, 1 | 3 << 2, 2 | 3 << 2};
    return pairs[(row * 5 + quad * 7 + row * quad) % 6];
}

static void fill_sparse(const mfma_form *f, uint32_t set_bits) {
    mfma_form packed = *f;
    packed.k = f->k / 2;
    const int quads_per_lane = f->k * f->m / SIM_LANES / 4;
    memset(wave->v, 0, sizeof wave->v);
    for (int row = 0; row < f->m; row++) {
        for (int quad = 0; quad < f->k / 4; quad++) {
            const uint32_t pair = kept_pair(row, quad);
            for (int i = 0; i < 2; i++) {
                const int k = quad * 4 + (int)(pair >> (2 * i) & 3);
                put_input(&packed, 0, A_REG, 0, row, quad * 2 + i,
                          encode_small(f->a_type, small_value(0, 0, row, k)));
            }
            uint32_t *indices = &wave->v[SCALE_A][row + f->m * (quad / quads_per_lane)];
            *indices |= pair << (set_bits + (uint32_t)(quad % quads_per_lane) * 4);
        }
        for (int k = 0; k < f->k; k++)
            put_input(f, 1, B_REG, 0, row, k, encode_small(f->b_type, small_value(1, 0, row, k)));
        for (int column = 0; column < f->n; column++) { // D is C
            uint32_t *d = result_at(f, D_REG, 0, row, column);
            const int c = small_value(2, 0, row, column);
            *d = (uint32_t)(f->a_type == MFMA_I8 ? (uint64_t)c : encode_small(MFMA_F32, c));
        }
    }
}

static void check_sparse(const mfma_form *f, const char *name) {
    for (int at = 0; at < f->m * f->n; at++) {
        int row = at / f->n, column = at % f->n, want = small_value(2, 0, row, column);
        for (int i = 0; i < f->k / 2; i++) {
            const int k = i / 2 * 4 + (int)(kept_pair(row, i / 2) >> (i % 2 * 2) & 3);
            want += small_value(0, 0, row, k) * small_value(1, 0, column, k);
        }
        const double got = decode_result(f, result_at(f, D_REG, 0, row, column));
        if (got != want)
            fail_msg("%s: D[%d][%d] is %g, not %d", name, row, column, got, want);
    }
}

static void test_sparse(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = num_dense() + 4; i < sim_ops_mfma.count; i++) {
            const sim_opcode *o = &tables[table].opcodes[i];
            const mfma_form *f = form_at(i);
            const uint32_t bits = (uint32_t)(f->k * f->m / SIM_LANES); // of a set
            assert_memory_equal(o->mnemonic, "v_smfmac", 8);
            for (uint32_t set = 0; set < 32 / bits; set++) {
                sim_inst inst = make_inst(o);
                inst.src[2].reg = SCALE_A;
                inst.abid = (uint8_t)set;
                fill_sparse(f, set * bits);
                o->exec(wave, &inst);
                check_sparse(f, o->mnemonic);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_types),
        cmocka_unit_test(test_unscaled_bits),
        cmocka_unit_test(test_sparse),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
