// SPDX-License-Identifier: Apache-2.0
// Tests of dense matrix instructions: layouts against an independent matrix product, published
// examples, and fast forms against the rules.
#include "mfma_fixture.h"

static void fill_small(const mfma_form *f) {
    memset(wave->v, 0xff, sizeof wave->v);
    for (int block = 0; block < f->blocks; block++) {
        for (int k = 0; k < f->k; k++) {
            for (int i = 0; i < f->m; i++) {
                put_input(f, 0, A_REG, block, i, k,
                          encode_small(f->a_type, small_value(0, block, i, k)));
                put_input(f, 1, B_REG, block, i, k,
                          encode_small(f->b_type, small_value(1, block, i, k)));
            }
        }
        for (int i = 0; i < f->m * f->n; i++)
            put_c(f, block, i / f->n, i % f->n, small_value(2, block, i / f->n, i % f->n));
    }
}

/** Checks D at `reg`. from[block] is the block whose A was used. */
static void check_small(const mfma_form *f, const char *what, int reg, const int *from) {
    for (int block = 0; block < f->blocks; block++) {
        for (int i = 0; i < f->m * f->n; i++) {
            const int row = i / f->n, column = i % f->n;
            int want = small_value(2, block, row, column);
            for (int k = 0; k < f->k; k++) {
                want += small_value(0, from ? from[block] : block, row, k) *
                        small_value(1, block, column, k);
            }
            const double got = decode_result(f, result_at(f, reg, block, row, column));
            if (got != want) {
                fail_msg("%s: D[%d][%d] of block %d is %g, not %d", what, row, column, block, got,
                         want);
            }
        }
    }
}

static void test_layouts(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = 0; i < num_dense(); i++) {
            const sim_opcode *o = &tables[table].opcodes[i];
            const mfma_form *f = form_at(i);
            sim_inst inst = make_inst(o);
            fill_small(f);
            wave->exec = 0x5; // must not matter
            o->exec(wave, &inst);
            check_small(f, o->mnemonic, D_REG, nullptr);
            const int regs = f->m * f->n * f->blocks / SIM_LANES * (f->a_type == MFMA_F64 ? 2 : 1);
            assert_int_equal(wave->v[D_REG - 1][63], UINT32_MAX); // neighbours are untouched
            assert_int_equal(wave->v[D_REG + regs][0], UINT32_MAX);
        }
    }
}

/** Tests D over C, over A and over B: the result must be the same as apart from them. */
static void test_overlap(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = 0; i < num_dense(); i++) {
            const sim_opcode *o = &tables[table].opcodes[i];
            const int places[] = {C_REG, A_REG, B_REG, C_REG + 1};
            for (int p = 0; p < 4; p++) {
                sim_inst inst = make_inst(o);
                inst.dst[0].reg = (uint16_t)places[p];
                fill_small(form_at(i));
                o->exec(wave, &inst);
                check_small(form_at(i), o->mnemonic, places[p], nullptr);
            }
        }
    }
}

static void test_block_broadcast(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = 0; i < num_dense(); i++) {
            const mfma_form *f = form_at(i);
            const sim_opcode *o = &tables[table].opcodes[i];
            for (int cbsz = 1; 1 << cbsz <= f->blocks && f->a_type != MFMA_F64; cbsz++) {
                sim_inst inst = make_inst(o);
                inst.cbsz = (uint8_t)cbsz;
                inst.abid = (uint8_t)(next_random() % (1u << cbsz));
                int from[16];
                for (int block = 0; block < f->blocks; block++)
                    from[block] = block / (1 << cbsz) * (1 << cbsz) + inst.abid;
                fill_small(f);
                o->exec(wave, &inst);
                check_small(f, o->mnemonic, D_REG, from);
            }
        }
    }
}

/** Tests that blgp takes B from other lanes: the result must be the same as with the lanes moved by
 *  hand. */
static void test_lane_patterns(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        const sim_opcode *o = find(table, "v_mfma_f32_32x32x2_f32", SIM_GFX942);
        const mfma_form *f = form_at((size_t)(o - tables[table].opcodes));
        for (int blgp = 1; blgp < 8; blgp++) {
            sim_inst inst = make_inst(o);
            fill_small(f);
            memcpy(expected->v, wave->v, sizeof wave->v);
            for (int lane = 0; lane < SIM_LANES; lane++) {
                const int from[8] = {lane,      lane % 32,      lane % 32 + 32, (lane + 16) % 64,
                                     lane % 16, lane % 16 + 16, lane % 16 + 32, lane % 16 + 48};
                expected->v[B_REG][lane] = wave->v[B_REG][from[blgp]];
            }
            o->exec(expected, &inst);
            inst.blgp = (uint8_t)blgp;
            o->exec(wave, &inst);
            assert_memory_equal(wave->v[D_REG], expected->v[D_REG], 16 * sizeof wave->v[0]);
        }
    }
}

static void test_constant_c(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++) {
        for (size_t i = 0; i < num_dense(); i++) {
            const mfma_form *f = form_at(i);
            const sim_opcode *o = &tables[table].opcodes[i];
            sim_inst inst = make_inst(o);
            fill_small(f);
            for (int at = 0; at < f->m * f->n * f->blocks; at++)
                put_c(f, at / (f->m * f->n), at / f->n % f->m, at % f->n, -2);
            memcpy(expected->v, wave->v, sizeof wave->v);
            o->exec(expected, &inst);
            inst.src[2].kind = SIM_OP_IMM;
            inst.src[2].value = f->a_type == MFMA_I8 ? (uint32_t)-2 : 0xc0000000;
            inst.src[2].value64 = 0xc000000000000000;
            o->exec(wave, &inst);
            assert_memory_equal(wave->v[D_REG], expected->v[D_REG], 32 * sizeof wave->v[0]);
        }
    }
}

static void test_f64_negation(void **state) {
    (void)state;
    const sim_opcode *o = find(0, "v_mfma_f64_16x16x4_f64", SIM_GFX942);
    for (int bits = 1; bits < 8; bits++) {
        sim_inst inst = make_inst(o);
        inst.blgp = (uint8_t)bits;
        fill_small(form_at((size_t)(o - tables[0].opcodes)));
        memcpy(expected->v, wave->v, sizeof wave->v);
        o->exec(wave, &inst);
        for (int lane = 0; lane < SIM_LANES; lane++) {
            expected->v[A_REG + 1][lane] ^= (uint32_t)(bits & 1) << 31;
            expected->v[B_REG + 1][lane] ^= (uint32_t)(bits >> 1 & 1) << 31;
            for (int r = 1; r < 8; r += 2)
                expected->v[C_REG + r][lane] ^= (uint32_t)(bits >> 2 & 1) << 31;
        }
        inst.blgp = 0;
        o->exec(expected, &inst);
        assert_memory_equal(wave->v[D_REG], expected->v[D_REG], 8 * sizeof wave->v[0]);
    }
}

// ---- from bytes to results

/** Register fields and whether they name AccVGPRs. */
typedef struct encoding {
    int opcode; // 7 bits
    int c;      // source field: 256 + register, or an inline constant
    bool acc_a, acc_b, acc_cd;
} encoding;

enum { FIRST_MATRIX_OPCODE = 0x40 };

static void encode(encoding e, uint32_t words[2]) {
    words[0] = 0xd3800000 | (uint32_t)e.opcode << 16 | (uint32_t)e.acc_cd << 15 | CODED_D;
    words[1] = (256 + A_REG) | (256 + B_REG) << 9 | (uint32_t)e.c << 18 | (uint32_t)e.acc_a << 27 |
               (uint32_t)e.acc_b << 28;
}

/** Decodes and runs one encoding. Returns the line of the table, or -1 if it is no matrix
 *  instruction. */
static int run_encoding(sim_arch arch, encoding e) {
    uint32_t words[2];
    char error[SIM_ERROR_BYTES];
    sim_inst inst;
    encode(e, words);
    if (!sim_decode(sim_chip_by_arch(arch), (const uint8_t *)words, sizeof words, 0x1000, &inst,
                    error)) {
        if (e.opcode >= FIRST_MATRIX_OPCODE && strncmp(error, "no ", 3) != 0)
            fail_msg("%s", error); // LLVM knows it, and the simulator does not
        return -1;
    }
    if (inst.opcode->klass != SIM_MFMA)
        return -1;
    const size_t line = line_of(&inst);
    if (line >= num_dense())
        return -1;
    const mfma_form *f = form_at(line);
    fill_small(f);
    const int from[] = {A_REG, B_REG, C_REG};
    const bool acc[] = {e.acc_a, e.acc_b, e.acc_cd};
    for (int i = 0; i < 3; i++) {
        if (acc[i]) { // the other half must not be read
            const int rows = i == 2 ? 32 : 8;
            memcpy(wave->v[from[i] + 256], wave->v[from[i]], (size_t)rows * sizeof wave->v[0]);
            memset(wave->v[from[i]], 0x7e, (size_t)rows * sizeof wave->v[0]);
        }
    }
    inst.exec(wave, &inst);
    return (int)line;
}

static void test_encodings(void **state) {
    (void)state;
    bool seen[128] = {false};
    assert_true(sim_ops_mfma.count <= 128);
    for (int arch = SIM_GFX90A; arch <= SIM_GFX950; arch++) {
        for (int variant = 0; variant < 128 * 8; variant++) {
            encoding e = {variant / 8, 256 + C_REG, variant & 1, variant & 2, variant & 4};
            const int line = run_encoding((sim_arch)arch, e);
            if (line >= 0) {
                seen[line] = true;
                check_small(form_at((size_t)line), tables[0].opcodes[line].mnemonic,
                            CODED_D + 256 * e.acc_cd, nullptr);
            }
        }
    }
    for (size_t i = 0; i < num_dense(); i++)
        if (!seen[i])
            fail_msg("%s was not decoded", tables[0].opcodes[i].mnemonic);
}

/** Tests C as an inline constant, 1 in the type of D: it must give the same as C full of ones. */
static void test_encoded_constants(void **state) {
    (void)state;
    for (int variant = 0; variant < 3 * 128; variant++) {
        sim_arch arch = (sim_arch)(SIM_GFX90A + variant / 128);
        int line = run_encoding(arch, (encoding){.opcode = variant % 128, .c = 256 + C_REG});
        if (line < 0)
            continue;
        const mfma_form *f = form_at((size_t)line);
        const int one = f->a_type == MFMA_I8 ? 129 : 242;
        run_encoding(arch, (encoding){.opcode = variant % 128, .c = one});
        memcpy(expected->v, wave->v, sizeof wave->v);
        sim_inst inst = make_inst(&tables[0].opcodes[line]);
        for (int at = 0; at < f->m * f->n * f->blocks; at++)
            put_c(f, at / (f->m * f->n), at / f->n % f->m, at % f->n, 1);
        inst.exec(wave, &inst);
        const int regs = f->m * f->n * f->blocks / SIM_LANES * (f->a_type == MFMA_F64 ? 2 : 1);
        assert_memory_equal(wave->v[D_REG], expected->v[CODED_D], (size_t)regs * sizeof wave->v[0]);
    }
}

// ---- published examples

typedef struct example {
    const char *mnemonic;
    sim_arch arch;
    const char *a, *b; // "k:bits ..." of row 0 of A and of column 0 of B; the rest is zero
    uint64_t c, d;
} example;

static const example examples[] = {
#include "mfma_examples.def"
};

static void put_listed(const mfma_form *f, int side, int reg, const char *list) {
    while (*list != 0) {
        char *end;
        const int k = (int)strtol(list, &end, 10);
        const uint64_t bits = strtoull(end + 1, &end, 16);
        put_input(f, side, reg, 0, 0, k, bits);
        list = end + (*end == ' ');
    }
}

static bool is_nan(const mfma_form *f, uint64_t bits) {
    return f->a_type == MFMA_F64 ? (bits & ~(1ull << 63)) > 0x7ff0000000000000
                                 : (bits & 0x7fffffff) > 0x7f800000;
}

static void run_example(int table, const example *x) {
    const sim_opcode *o = find(table, x->mnemonic, x->arch);
    const mfma_form *f = form_at((size_t)(o - tables[table].opcodes));
    sim_inst inst = make_inst(o);
    memset(wave->v, 0, sizeof wave->v);
    put_listed(f, 0, A_REG, x->a);
    put_listed(f, 1, B_REG, x->b);
    uint32_t *c = result_at(f, C_REG, 0, 0, 0), *d = result_at(f, D_REG, 0, 0, 0);
    c[0] = (uint32_t)x->c;
    const bool is_f64 = f->a_type == MFMA_F64;
    if (is_f64)
        c[SIM_LANES] = (uint32_t)(x->c >> 32);
    o->exec(wave, &inst);
    const uint64_t got = is_f64 ? d[0] | (uint64_t)d[SIM_LANES] << 32 : d[0];
    const bool right = f->a_type != MFMA_I8 && is_nan(f, x->d) ? is_nan(f, got) : got == x->d;
    if (!right) {
        fail_msg("%s %s: a %s b %s c %" PRIx64 " gives %" PRIx64 ", not %" PRIx64,
                 tables[table].name, x->mnemonic, x->a, x->b, x->c, got, x->d);
    }
}

static void test_examples(void **state) {
    (void)state;
    for (int table = 0; table < num_tables; table++)
        for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
            run_example(table, &examples[i]);
}

// ---- fast forms against the definition

/** The ways to draw a tile's elements. */
typedef enum draw {
    DRAW_BITS,      // any pattern
    DRAW_NORMAL,    // exponents of a bell curve
    DRAW_NARROW,    // a few exponents around 1
    DRAW_WIDE,      // any finite exponent, some zeros
    DRAW_EDGES,     // subnormals, ends of the range, zeros, now and then Inf and NaN
    DRAW_CANCEL,    // each pair of products sums to zero
    DRAW_ZERO_ROWS, // a bell curve, but whole rows and columns are zero
    DRAW_TINY,      // small exponents only
    DRAW_TIES,      // mostly zeros, else powers of two of any size: sums at and next to ties
    NUM_DRAWS
} draw;

static uint64_t draw_element(int type, draw how) {
    const mfma_format *f = &mfma_formats[type];
    const uint64_t random = next_random() | (uint64_t)next_random() << 32;
    const uint64_t mask = f->bits == 64 ? UINT64_MAX : (1ull << f->bits) - 1;
    if (how == DRAW_BITS || type == MFMA_I8)
        return random & mask;
    int stored = type == MFMA_XF32 ? 23 : f->fraction; // fraction bits as they lie in the register
    int top = (1 << (f->bits - 1 - stored)) - 1, exponent = f->bias;
    uint64_t fraction = random & ((1ull << stored) - 1);
    switch (how) {
    case DRAW_NARROW:
        exponent += (int)(next_random() % 5) - 2;
        break;
    case DRAW_WIDE:
        exponent = (int)(next_random() % (unsigned)top);
        break;
    case DRAW_EDGES: {
        const int ends[] = {0, 0, 1, 2, top - 1, top - 2, f->bias, f->bias + 1};
        exponent = next_random() % 512 == 0 ? top : ends[next_random() % 8];
        fraction = next_random() % 2 ? 0 : fraction;
        break;
    }
    case DRAW_TINY:
        exponent = (int)(next_random() % (unsigned)(top / 3));
        break;
    case DRAW_TIES:
        exponent = next_random() % 4 ? 0 : f->bias + (int)(next_random() % 64) - 32;
        fraction = exponent == 0 || next_random() % 8 ? 0 : fraction;
        break;
    default: // |x| of a normal distribution: the exponent falls with the leading zeros of a uniform
        exponent += 1 - __builtin_clz(next_random() | 1);
    }
    exponent = exponent < 0 ? 0 : exponent > top ? top : exponent;
    const bool is_zero = how == DRAW_WIDE && next_random() % 8 == 0;
    return is_zero ? 0 : (random >> 63) << (f->bits - 1) | (uint64_t)exponent << stored | fraction;
}

static void fill_inputs(const mfma_form *f, draw how) {
    const uint32_t zero_rows = how == DRAW_ZERO_ROWS ? next_random() : 0;
    for (int block = 0; block < f->blocks; block++) {
        for (int row = 0; row < f->m; row++) {
            uint64_t a = 0, b = 0;
            for (int k = 0; k < f->k; k++) {
                const bool again = how == DRAW_CANCEL && k % 4 == 2;
                const uint64_t flip = again ? 1ull << (mfma_formats[f->a_type].bits - 1) : 0;
                a = again ? a ^ flip : draw_element(f->a_type, how);
                b = again ? b : draw_element(f->b_type, how);
                const bool a_zero = zero_rows >> row & 1, b_zero = zero_rows >> (31 - row) & 1;
                put_input(f, 0, A_REG, block, row, k, a_zero ? 0 : a);
                put_input(f, 1, B_REG, block, row, k, b_zero ? 0 : b);
            }
        }
    }
}

static void fill_c(const mfma_form *f, uint32_t choice) {
    const int type = f->a_type == MFMA_F64 ? MFMA_F64 : MFMA_F32;
    static const draw draws[] = {DRAW_NORMAL, DRAW_WIDE, DRAW_EDGES, DRAW_BITS,
                                 DRAW_NARROW, DRAW_TINY, DRAW_TIES};
    const int regs = f->m * f->n * f->blocks / SIM_LANES;
    for (int i = 0; i < regs * SIM_LANES; i++) {
        const uint64_t bits = choice == 0 ? 0 : draw_element(type, draws[choice - 1]);
        if (type == MFMA_F64) {
            wave->v[C_REG + i / SIM_LANES * 2][i % SIM_LANES] = (uint32_t)bits;
            wave->v[C_REG + i / SIM_LANES * 2 + 1][i % SIM_LANES] = (uint32_t)(bits >> 32);
        } else {
            wave->v[C_REG + i / SIM_LANES][i % SIM_LANES] = (uint32_t)bits;
        }
    }
}

static void compare_results(const char *name, const char *table, draw how) {
    for (int reg = 0; reg < 32; reg++) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const uint32_t got = wave->v[D_REG + reg][lane], want = expected->v[D_REG + reg][lane];
            if (got != want) {
                fail_msg("%s %s, inputs %d: register %d lane %d is %08x, not %08x (c %08x)", table,
                         name, (int)how, reg, lane, got, want, wave->v[C_REG + reg][lane]);
            }
        }
    }
}

static void check_against_rules(size_t line, int rounds) {
    const mfma_form *f = form_at(line);
    for (int round = 0; round < rounds; round++) {
        draw how = (draw)(round % NUM_DRAWS);
        memset(wave->v, 0, sizeof wave->v);
        fill_inputs(f, how);
        fill_c(f, how == DRAW_TIES ? 7 : next_random() % 8);
        memcpy(expected->v, wave->v, sizeof wave->v);
        sim_inst inst = make_inst(&tables[0].opcodes[line]);
        mfma_exec_exact(expected, &inst);
        for (int table = 0; table < num_tables; table++) {
            const sim_opcode *o = &tables[table].opcodes[line];
            memset(wave->v[D_REG], 0, 32 * sizeof wave->v[0]);
            sim_inst fast = make_inst(o);
            o->exec(wave, &fast);
            compare_results(o->mnemonic, tables[table].name, how);
        }
    }
}

static void test_fast_forms(void **state) {
    (void)state;
    const char *rounds = getenv("QUERN_MFMA_ROUNDS");
    for (size_t line = 0; line < num_dense(); line++)
        check_against_rules(line, rounds ? atoi(rounds) : NUM_DRAWS * 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),         cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_block_broadcast), cmocka_unit_test(test_lane_patterns),
        cmocka_unit_test(test_constant_c),      cmocka_unit_test(test_f64_negation),
        cmocka_unit_test(test_encodings),       cmocka_unit_test(test_encoded_constants),

        cmocka_unit_test(test_examples),        cmocka_unit_test(test_fast_forms),
    };
    const char *text = getenv("QUERN_TEST_SEED");
    seed = text ? strtoull(text, nullptr, 0) : seed;
    printf("seed 0x%" PRIx64 "\n", seed);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
