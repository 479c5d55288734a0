// SPDX-License-Identifier: Apache-2.0
// What the scalar families share: SCC by a result, shapes of instructions, rows of their tables.
#ifndef SIM_SCALAR_H
#define SIM_SCALAR_H

#include "../exec.h"

static inline uint32_t flag(sim_wave *w, uint32_t value) {
    w->scc = value != 0;
    return value;
}

static inline uint64_t flag64(sim_wave *w, uint64_t value) {
    w->scc = value != 0;
    return value;
}

// clang-format off
// Shapes: NAME takes the wave and two sources; results are of 32 bits from 32, 64 from 64, 32 from
// 64.
#define SALU_WRAP32(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        uint32_t a = sim_read32(w, &inst->src[0]), b = sim_read32(w, &inst->src[1]); \
        sim_write32(w, &inst->dst[0], name(w, a, b)); \
    }
#define SALU_WRAP64(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        uint64_t a = sim_read64(w, &inst->src[0]), b = sim_read64(w, &inst->src[1]); \
        sim_write64(w, &inst->dst[0], name(w, a, b)); \
    }
#define SALU_WRAP32_OF_64(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        sim_write32(w, &inst->dst[0], name(w, sim_read64(w, &inst->src[0]), 0)); \
    }

#define SALU_ROW(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_SALU, 'i', types, __VA_ARGS__)
#define SALU_LINE(name, types, ...) SALU_ROW(name, ALL, types, __VA_ARGS__)
/** Makes a row of another name for what `of` does. */
#define SALU_ALIAS(name, of, archs, types, ...) SIM_ROW(#name, exec_##of, archs, SIM_SALU, 'i', types, __VA_ARGS__)

// The columns of a row that the scalar ALU's are not all alike in.
#define KEEPS .is = SIM_KEEPS_SCC
#define BITS(logic_) .logic = SIM_LOGIC_##logic_

// X(name, meaning, what is known of the result's bits), of two sources, or of a source and EXEC.
#define LOGIC(X) \
    X(and, a & b, AND) X(or, a | b, OR) X(xor, a ^ b, ANY) X(nand, ~(a & b), AND) X(nor, ~(a | b), OR) \
    X(xnor, ~(a ^ b), ANY) X(and_not1, a & ~b, AND_NOT1) X(or_not1, a | ~b, OR_NOT1)

// clang-format on
#endif
