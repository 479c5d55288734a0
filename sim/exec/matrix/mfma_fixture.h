// SPDX-License-Identifier: Apache-2.0
// For the tests of matrix instructions: a wave, every build's table, and operands in the
// places that the manual gives.
#ifndef SIM_EXEC_MFMA_FIXTURE_H
#define SIM_EXEC_MFMA_FIXTURE_H

#if SIM_HAS_BASE
#define SIM_ISA base
#elif SIM_HAS_V3
#define SIM_ISA v3
#else
#define SIM_ISA v4
#endif
#include "../../isa/isa.h"
#include "mfma.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { A_REG = 0, B_REG = 16, C_REG = 64, D_REG = 320 };
enum { CODED_D = 128 }; // D in encodings

/** The table of one build of exec/. All have equal lines. */
typedef struct build_table {
    const sim_opcode *opcodes;
    sim_exec_build build;
    const char *name;
} build_table;

static build_table tables[SIM_NUM_EXECS]; // of the builds that are there and run here, best last
static int num_tables;
[[maybe_unused]] static sim_wave *wave, *expected;
static uint64_t seed = 0x9e3779b97f4a7c15;

[[maybe_unused]] static uint32_t next_random(void) { // splitmix64, upper half
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(z >> 32);
}

static void find_tables(void) {
    static const char *const names[] = {"best", "baseline", "avx2", "avx512"};
    for (sim_exec_build b = SIM_EXEC_BASELINE; b < SIM_NUM_EXECS; b++)
        if (!sim_exec_lacks(b))
            tables[num_tables++] =
                (build_table){sim_opcode_of(sim_ops_mfma.opcodes, b), b, names[b]};
}

[[maybe_unused]] static int set_up(void **state) {
    (void)state;
    find_tables();
    wave = aligned_alloc(64, sizeof *wave);
    expected = aligned_alloc(64, sizeof *expected);
    return wave && expected ? 0 : -1;
}

[[maybe_unused]] static int tear_down(void **state) {
    (void)state;
    free(wave);
    free(expected);
    return 0;
}

/** Returns the instruction with A, B, C and D in registers of their own; D is in AccVGPRs. */
[[maybe_unused]] static sim_inst make_inst(const sim_opcode *opcode) {
    sim_inst inst = {.exec = opcode->exec, .opcode = opcode, .num_dst = 1, .num_src = 3};
    const int regs[] = {A_REG, B_REG, C_REG};
    for (int i = 0; i < 3; i++) {
        inst.src[i].kind = SIM_OP_VGPR;
        inst.src[i].reg = (uint16_t)regs[i];
    }
    inst.dst[0].kind = SIM_OP_VGPR;
    inst.dst[0].reg = D_REG;
    return inst;
}

[[maybe_unused]] static const sim_opcode *find(int table, const char *mnemonic, sim_arch arch) {
    for (size_t i = 0; i < sim_ops_mfma.count; i++) {
        const sim_opcode *o = &tables[table].opcodes[i];
        if (strcmp(o->mnemonic, mnemonic) == 0 && (o->archs >> arch & 1))
            return o;
    }
    fail_msg("no %s on arch %d", mnemonic, (int)arch);
    return nullptr;
}

/** Returns the form of line i. */
[[maybe_unused]] static const mfma_form *form_at(size_t i) {
    sim_inst inst = {.opcode = &sim_ops_mfma.opcodes[i]};
    return mfma_form_of(&inst);
}

/** Returns the line of a decoded instruction, which is of the best build. */
[[maybe_unused]] static size_t line_of(const sim_inst *inst) {
    return (size_t)(inst->opcode - tables[num_tables - 1].opcodes);
}

/** Returns the number of lines before the block-scaled and sparse forms, which have tests of their
 *  own. */
[[maybe_unused]] static size_t num_dense(void) {
    size_t n = 0;
    while (form_at(n)->a_type != MFMA_BY_FIELD)
        n++;
    return n;
}

// ---- where elements lie, from element to register: the manual's direction, the reverse of the
// code's

[[maybe_unused]] static void put_input(const mfma_form *f, int side, int reg, int block, int row,
                                       int k, uint64_t bits) {
    const int rows = side == 0 ? f->m : f->n;
    const int width = mfma_formats[side == 0 ? f->a_type : f->b_type].bits;
    const int consecutive = f->k / (SIM_LANES / (rows * f->blocks));
    const int lane = row + rows * (block + f->blocks * (k / consecutive));
    const int bit = k % consecutive * width;
    for (int done = 0; done < width; done += 32) {
        uint32_t *dword = &wave->v[reg + (bit + done) / 32][lane];
        const uint32_t mask = width >= 32 ? UINT32_MAX : ((1u << width) - 1) << bit % 32;
        *dword = (*dword & ~mask) | (((uint32_t)(bits >> done) << bit % 32) & mask);
    }
}

/** Returns the register (the first of a pair for f64) and the lane of D[row][column]. */
[[maybe_unused]] static uint32_t *result_at(const mfma_form *f, int reg, int block, int row,
                                            int column) {
    const int height = f->a_type == MFMA_F64 ? 1 : 4;
    const int rows_per_register = SIM_LANES / f->n;
    const int blocks_per_register = (SIM_LANES * height + f->n * f->m - 1) / (f->n * f->m);
    const int index = block * (f->m * f->n / SIM_LANES) +
                      row / (height * rows_per_register) * height + row % height;
    const int lane = block % blocks_per_register * f->n +
                     row / height % rows_per_register * blocks_per_register * f->n + column;
    return &wave->v[reg + index * (f->a_type == MFMA_F64 ? 2 : 1)][lane];
}

[[maybe_unused]] static uint64_t encode_small(int type, int x) { // |x| <= 4: exact in every type
    double d = x;
    float s = (float)x;
    uint64_t bits = 0;
    const mfma_format *f = &mfma_formats[type];
    switch (type) {
    case MFMA_F64:
        memcpy(&bits, &d, 8);
        return bits;
    case MFMA_F32:
    case MFMA_XF32:
        memcpy(&bits, &s, 4);
        return bits;
    case MFMA_I8:
        return (uint8_t)x;
    default:
        break;
    }
    if (x == 0)
        return 0;
    const int e = ilogb(d);
    const uint64_t fraction = (uint64_t)ldexp(fabs(d) - ldexp(1, e), f->fraction - e);
    return (uint64_t)(x < 0) << (f->bits - 1) | (uint64_t)(e + f->bias) << f->fraction | fraction;
}

[[maybe_unused]] static double decode_result(const mfma_form *f, const uint32_t *at) {
    if (f->a_type == MFMA_F64) {
        uint64_t bits = at[0] | (uint64_t)at[SIM_LANES] << 32;
        double d;
        memcpy(&d, &bits, 8);
        return d;
    }
    float s;
    memcpy(&s, at, 4);
    return f->a_type == MFMA_I8 ? (double)(int32_t)at[0] : (double)s;
}

[[maybe_unused]] static int small_value(int side, int block, int row, int k) {
    uint32_t h = (uint32_t)(side * 7919 + block * 104729 + row * 1299709 + k * 15485863);
    h = (h ^ h >> 15) * 0x2c1b3c6d;
    return (int)((h ^ h >> 12) % 9) - 4;
}

[[maybe_unused]] static void put_c(const mfma_form *f, int block, int row, int column, int value) {
    const int type = f->a_type == MFMA_F64 ? MFMA_F64 : f->a_type == MFMA_I8 ? MFMA_I8 : MFMA_F32;
    const uint64_t bits = type == MFMA_I8 ? (uint32_t)value : encode_small(type, value);
    uint32_t *at = result_at(f, C_REG, block, row, column);
    at[0] = (uint32_t)bits;
    if (type == MFMA_F64)
        at[SIM_LANES] = (uint32_t)(bits >> 32);
}

#endif
