// SPDX-License-Identifier: Apache-2.0
// Tests of where every element of RDNA matrix instructions lies, in waves of 64 lanes, and for the
// sparse ones (SWMMAC) in both sizes, against a plain product of dense matrices of small integers.
// The places come from AMD's matrix instruction calculator and go from (row, column, k) to
// registers, the opposite direction to the simulator's.
#include "wmma_fixture.h"

/** The layouts of A, B and D. */
typedef enum shape { RDNA3, HALVES, BYTES, NIBBLES, LONG_NIBBLES } shape;

typedef struct form {
    sim_arch arch;
    int opcode, k, bits; // of an input
    int a_type, b_type, result;
    shape shape;
    bool sparse;
} form;

static const form forms[] = {
    {SIM_GFX1151, 0x40, 16, 16, 'h', 'h', 'f', RDNA3, false},
    {SIM_GFX1151, 0x41, 16, 16, 'w', 'w', 'f', RDNA3, false},
    {SIM_GFX1151, 0x42, 16, 16, 'h', 'h', 'h', RDNA3, false},
    {SIM_GFX1151, 0x43, 16, 16, 'w', 'w', 'w', RDNA3, false},
    {SIM_GFX1151, 0x44, 16, 8, 'i', 'i', 'i', RDNA3, false},
    {SIM_GFX1151, 0x45, 16, 4, 'i', 'i', 'i', RDNA3, false},
    {SIM_GFX1201, 0x40, 16, 16, 'h', 'h', 'f', HALVES, false},
    {SIM_GFX1201, 0x41, 16, 16, 'w', 'w', 'f', HALVES, false},
    {SIM_GFX1201, 0x42, 16, 16, 'h', 'h', 'h', HALVES, false},
    {SIM_GFX1201, 0x43, 16, 16, 'w', 'w', 'w', HALVES, false},
    {SIM_GFX1201, 0x44, 16, 8, 'i', 'i', 'i', BYTES, false},
    {SIM_GFX1201, 0x45, 16, 4, 'i', 'i', 'i', NIBBLES, false},
    {SIM_GFX1201, 0x46, 16, 8, '8', '8', 'f', BYTES, false},
    {SIM_GFX1201, 0x47, 16, 8, '8', '5', 'f', BYTES, false},
    {SIM_GFX1201, 0x48, 16, 8, '5', '8', 'f', BYTES, false},
    {SIM_GFX1201, 0x49, 16, 8, '5', '5', 'f', BYTES, false},
    {SIM_GFX1201, 0x4a, 32, 4, 'i', 'i', 'i', LONG_NIBBLES, false},
    {SIM_GFX1201, 0x50, 32, 16, 'h', 'h', 'f', HALVES, true},
    {SIM_GFX1201, 0x51, 32, 16, 'w', 'w', 'f', HALVES, true},
    {SIM_GFX1201, 0x52, 32, 16, 'h', 'h', 'h', HALVES, true},
    {SIM_GFX1201, 0x53, 32, 16, 'w', 'w', 'w', HALVES, true},
    {SIM_GFX1201, 0x54, 32, 8, 'i', 'i', 'i', BYTES, true},
    {SIM_GFX1201, 0x55, 32, 4, 'i', 'i', 'i', NIBBLES, true},
    {SIM_GFX1201, 0x56, 64, 4, 'i', 'i', 'i', LONG_NIBBLES, true},
    {SIM_GFX1201, 0x57, 32, 8, '8', '8', 'f', BYTES, true},
    {SIM_GFX1201, 0x58, 32, 8, '8', '5', 'f', BYTES, true},
    {SIM_GFX1201, 0x59, 32, 8, '5', '8', 'f', BYTES, true},
    {SIM_GFX1201, 0x5a, 32, 8, '5', '5', 'f', BYTES, true},
};

/** The lane of row or column 0, the register counted from the operand's first, and the first bit in
 *  it. */
typedef struct place {
    int lane, reg, bit;
} place;

/** Returns the place of element k of a dense operand in a wave of 64. */
static place dense_place(const form *f, int k) {
    switch (f->shape) {
    case RDNA3: // in four copies
        return (place){0, k * f->bits / 32, k * f->bits % 32};
    case HALVES:
        return (place){32 * (k / 8 % 2) + 16 * (k / 4 % 2), k / 2 % 2, 16 * (k % 2)};
    case BYTES:
        return (place){32 * (k / 4 % 2) + 16 * (k / 8 % 2), 0, 8 * (k % 4)};
    case NIBBLES:
        return (place){16 * (k / 8), 0, 4 * (k % 8)};
    default:
        return (place){32 * (k / 8 % 2) + 16 * (k / 16 % 2), 0, 4 * (k % 8)};
    }
}

/** Returns the place of element k of B beside a sparse A. */
static place sparse_b_place(const form *f, bool wave64, int k) {
    switch (f->shape) {
    case HALVES:
        return wave64 ? (place){16 * (k / 8), k / 2 % 4, 16 * (k % 2)}
                      : (place){16 * (k / 8 % 2), 4 * (k / 16) + k / 2 % 4, 16 * (k % 2)};
    case BYTES:
        return wave64 ? (place){32 * (k / 8 % 2) + 16 * (k / 16), k / 4 % 2, 8 * (k % 4)}
                      : (place){16 * (k / 16), k / 4 % 4, 8 * (k % 4)};
    case NIBBLES:
        return wave64 ? (place){32 * (k / 8 % 2) + 16 * (k / 16), 0, 4 * (k % 8)}
                      : (place){16 * (k / 16), k / 8 % 2, 4 * (k % 8)};
    default:
        return wave64 ? (place){32 * (k / 16 % 2) + 16 * (k / 32), k / 8 % 2, 4 * (k % 8)}
                      : (place){16 * (k / 32), k / 8 % 4, 4 * (k % 8)};
    }
}

/** Returns where sparse A keeps the two elements of the four k from `k` on. *index gets the first
 *  bit of their indices. */
static place sparse_a_place(const form *f, bool wave64, int k, int *index) {
    switch (f->shape) {
    case HALVES:
        *index = wave64 ? 4 * (k / 4 % 2) : 8 * (k / 16) + 4 * (k / 4 % 2);
        return wave64 ? (place){16 * (k / 8), k / 4 % 2, 0}
                      : (place){16 * (k / 8 % 2), 2 * (k / 16) + k / 4 % 2, 0};
    case BYTES:
        *index = wave64 ? 4 * (k / 4 % 2) : 4 * (k / 4 % 4);
        return wave64 ? (place){32 * (k / 8 % 2) + 16 * (k / 16), 0, 16 * (k / 4 % 2)}
                      : (place){16 * (k / 16), k / 8 % 2, 16 * (k / 4 % 2)};
    case NIBBLES:
        *index = 4 * (k / 4 % 4);
        return (place){16 * (k / 16), 0, 8 * (k / 4 % 4)};
    default:
        *index = wave64 ? 4 * (k / 4 % 4) : 4 * (k / 4 % 8);
        return wave64 ? (place){32 * (k / 16 % 2) + 16 * (k / 32), 0, 8 * (k / 4 % 4)}
                      : (place){16 * (k / 32), k / 16 % 2, 8 * (k / 4 % 4)};
    }
}

/** Returns how many sets of indices fit in a register. */
static int num_index_sets(const form *f, bool wave64) {
    switch (f->shape) {
    case HALVES:
    case BYTES:
        return wave64 ? 4 : 2;
    case NIBBLES:
        return 2;
    default:
        return wave64 ? 2 : 1;
    }
}

static place result_place(const form *f, bool wave64, int row) {
    const bool half = f->result == 'h' || f->result == 'w';
    if (f->shape == RDNA3)
        return (place){16 * row % 64, row / 4, 0};
    const int lane = wave64 ? 32 * (row / 4 % 2) + 16 * (row / 8) : 16 * (row / 8);
    const int index = row % (wave64 ? 4 : 8);
    return half ? (place){lane, index / 2, 16 * (index % 2)} : (place){lane, index, 0};
}

/** Chooses one of the six pairs out of four, for a row and four k. */
static void choose(int row, int k, int chosen[2]) {
    static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    memcpy(chosen, pairs[(row * 7 + k * 5 + row * k) % 6], sizeof pairs[0]);
}

/** Returns A[row][k] of the dense matrix, which is zero where the sparse one holds nothing. */
static int a_value(const form *f, int row, int k) {
    int chosen[2];
    choose(row, k / 4 * 4, chosen);
    const bool is_held = !f->sparse || k % 4 == chosen[0] || k % 4 == chosen[1];
    return is_held ? small_value(0, row, k) : 0;
}

static void put_at(int reg, place p, int row, int bits, uint32_t x) {
    put(reg + p.reg, p.lane + row, p.bit / bits, bits, x);
}

static void fill_dense(const form *f, int side) {
    const int type = side == 0 ? f->a_type : f->b_type, reg = side == 0 ? A_REG : B_REG;
    for (int i = 0; i < 16 * f->k; i++) {
        const int row = i / f->k, k = i % f->k;
        place p = dense_place(f, k);
        for (int copy = 0; copy < (f->shape == RDNA3 ? 4 : 1); copy++) {
            p.lane = f->shape == RDNA3 ? 16 * copy : p.lane;
            put_at(reg, p, row, f->bits, encode(type, small_value(side, row, k)));
        }
    }
}

enum { INDEX_REG = 32 };

static void fill_sparse(const form *f, bool wave64, int key) {
    const int set_bits = 32 / num_index_sets(f, wave64);
    memset(wave->v[INDEX_REG], 0x5a, sizeof wave->v[0]); // the other sets must not matter
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < f->k; k++) {
            put_at(B_REG, sparse_b_place(f, wave64, k), row, f->bits,
                   encode(f->b_type, small_value(1, row, k)));
        }
        for (int k = 0; k < f->k; k += 4) {
            int index, chosen[2];
            place p = sparse_a_place(f, wave64, k, &index);
            choose(row, k, chosen);
            for (int i = 0; i < 2; i++) {
                place at = {p.lane, p.reg, p.bit + i * f->bits};
                put_at(A_REG, at, row, f->bits, encode(f->a_type, a_value(f, row, k + chosen[i])));
                put(INDEX_REG, p.lane + row, (key * set_bits + index) / 2 + i, 2,
                    (uint32_t)chosen[i]);
            }
        }
    }
}

static void fill(const form *f, bool wave64, int key) {
    memset(wave, 0, sizeof *wave);
    wave->wave32 = !wave64;
    memset(wave->v[D_REG], 0xa5, 8 * sizeof wave->v[0]);
    if (f->sparse) {
        fill_sparse(f, wave64, key);
    } else {
        fill_dense(f, 0);
        fill_dense(f, 1);
    }
    for (int i = 0; i < 256; i++) {
        const int row = i / 16, column = i % 16;
        const bool half = f->result == 'h' || f->result == 'w';
        put_at(f->sparse ? D_REG : C_REG, result_place(f, wave64, row), column, half ? 16 : 32,
               encode(f->result, small_value(2, row, column)));
    }
}

static void run(const form *f, bool wave64, int key) {
    const uint32_t is_signed = f->a_type == 'i' ? 3u << 29 : 0; // neg_lo of A and B
    const uint32_t third = 256 + (f->sparse ? INDEX_REG : C_REG);
    uint32_t words[2] = {0xcc004000 | (uint32_t)f->opcode << 16 | (uint32_t)key << 11 | D_REG,
                         (256 + A_REG) | (256 + B_REG) << 9 | third << 18 | 3u << 27 | is_signed};
    char error[SIM_ERROR_BYTES];
    sim_inst inst;
    if (!sim_decode_wave(sim_chip_by_arch(f->arch), wave64, (const uint8_t *)words, sizeof words, 0,
                         &inst, error)) {
        fail_msg("%s", error);
    }
    inst.exec(wave, &inst);
}

static void check(const form *f, bool wave64) {
    const bool half = f->result == 'h' || f->result == 'w';
    for (int i = 0; i < 256; i++) {
        int row = i / 16, column = i % 16, want = small_value(2, row, column);
        for (int k = 0; k < f->k; k++)
            want += a_value(f, row, k) * small_value(1, column, k);
        place p = result_place(f, wave64, row);
        const uint32_t got = wave->v[D_REG + p.reg][p.lane + column] >> p.bit;
        const uint32_t mask = half ? 0xffff : UINT32_MAX, bits = encode(f->result, want) & mask;
        if ((got & mask) != bits) {
            fail_msg("arch %d opcode %x wave%d: D[%d][%d] is %x, not %x (%d)", (int)f->arch,
                     f->opcode, wave64 ? 64 : 32, row, column, got & mask, bits, want);
        }
    }
}

static void test_places(void **) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        for (int wave64 = !f->sparse; wave64 < 2; wave64++) { // wmma_test.c tests dense in wave32
            for (int key = 0; key < (f->sparse ? num_index_sets(f, wave64) : 1); key++) {
                for (int fast = 0; fast < 2; fast++) { // small integers: the same sums
                    fill(f, wave64, key);
                    wave->fast_matrix = fast;
                    run(f, wave64, key);
                    check(f, wave64);
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
