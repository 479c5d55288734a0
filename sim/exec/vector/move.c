// SPDX-License-Identifier: Apache-2.0
// Copies of registers and their halves, exchanges, registers by number. Source: "CDNA3", "RDNA3"
// and "RDNA4" ISA, VOP1, VOP3.
#include "vector.h"

static u32x16 v_mov_b32(u32x16 a) {
    return a;
}
static u64x8 v_mov_b64(u64x8 a) {
    return a;
}
static u32x16 v_mov_b16(u32x16 a) {
    return a;
}

/** Writes an AccVGPR. AccVGPRs are the upper half of the register file. */
static void exec_v_accvgpr_write_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[SIM_LANES];
    store_masked(w->v[inst->dst[0].reg], sim_row32(w, inst, 0, tmp), w->exec);
}

static void exec_v_nop(sim_wave *, const sim_inst *) {}

// ---- exchanges

static void exec_v_swap_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t *a = w->v[inst->dst[0].reg], *b = w->v[inst->src[0].reg], old[SIM_LANES];
    memcpy(old, a, sizeof old);
    store_masked(a, b, w->exec);
    store_masked(b, old, w->exec);
}

/** Swaps two halves. */
static void exec_v_swap_b16(sim_wave *w, const sim_inst *inst) {
    uint32_t *a = w->v[inst->dst[0].reg], *b = w->v[inst->src[0].reg];
    const unsigned to = inst->dst[0].half == SIM_HIGH_HALF ? 16 : 0;
    const unsigned from = inst->src[0].half == SIM_HIGH_HALF ? 16 : 0;
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t x = a[lane] >> to & 0xffff, y = b[lane] >> from & 0xffff;
        a[lane] = (a[lane] & ~(0xffffu << to)) | y << to;
        b[lane] = (b[lane] & ~(0xffffu << from)) | x << from;
    }
}

// ---- registers by number: M0 is added. Beyond the file it is register 0.

static uint32_t *indexed_row(sim_wave *w, uint16_t reg, uint32_t index) {
    const uint64_t at = (uint64_t)reg + index;
    return w->v[at < 256 ? at : 0];
}

static void exec_v_movrels_b32(sim_wave *w, const sim_inst *inst) {
    store_masked(w->v[inst->dst[0].reg], indexed_row(w, inst->src[0].reg, w->m0), w->exec);
}

static void exec_v_movreld_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[SIM_LANES];
    store_masked(indexed_row(w, inst->dst[0].reg, w->m0), sim_row32(w, inst, 0, tmp), w->exec);
}

static void exec_v_movrelsd_b32(sim_wave *w, const sim_inst *inst) {
    store_masked(indexed_row(w, inst->dst[0].reg, w->m0), indexed_row(w, inst->src[0].reg, w->m0),
                 w->exec);
}

/** Moves between registers by number: the source's index is in M0[9:0], the destination's in
 *  M0[25:16]. */
static void exec_v_movrelsd_2_b32(sim_wave *w, const sim_inst *inst) {
    store_masked(indexed_row(w, inst->dst[0].reg, w->m0 >> 16 & 0x3ff),
                 indexed_row(w, inst->src[0].reg, w->m0 & 0x3ff), w->exec);
}

/** Exchanges the two registers that v_movrelsd_2_b32 would copy. */
static void exec_v_swaprel_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t *to = indexed_row(w, inst->dst[0].reg, w->m0 >> 16 & 0x3ff), old[SIM_LANES];
    uint32_t *from = indexed_row(w, inst->src[0].reg, w->m0 & 0x3ff);
    memcpy(old, to, sizeof old);
    store_masked(to, from, w->exec);
    store_masked(from, old, w->exec);
}

// clang-format off
#define LIST(X) \
    X(1, u32, v_mov_b32, "i:i", ALL, 'i') \
    X(W1, u64, v_mov_b64, "q:q", GFX94, 'i', SIM_COPIES_PAIR) \
    X(1, u32, v_mov_b16, "w:w", GFX11P, 'i')

#define LINE(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_VALU, 'i', types, __VA_ARGS__)
#define LINE_ACC(name) VALU_ALIAS(name, v_accvgpr_write_b32, GFX9, "i:i", .is = SIM_MOVES_ACC)
#define BY_NUMBER(name, is_) LINE(name, GFX11P, "i:i", .flow = SIM_FLOW_CROSS, .is = is_)
LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    LINE_ACC(v_accvgpr_write_b32) LINE_ACC(v_accvgpr_read_b32) LINE_ACC(v_accvgpr_mov_b32)
    LINE(v_swap_b32, ALL, "i:i", .flow = SIM_FLOW_SWAP) LINE(v_swap_b16, GFX11P, "w:w", .flow = SIM_FLOW_SWAP)
    BY_NUMBER(v_movrels_b32, SIM_INDEXES_SRC) BY_NUMBER(v_movreld_b32, SIM_INDEXES_DST)
    BY_NUMBER(v_movrelsd_b32, SIM_INDEXES_SRC | SIM_INDEXES_DST)
    BY_NUMBER(v_movrelsd_2_b32, SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH)
    BY_NUMBER(v_swaprel_b32, SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH)
    LINE(v_nop, ALL, ":") VALU_ALIAS(v_pipeflush, v_nop, GFX11P, ":")
    VALU_ALIAS(v_clrexcp, v_nop, GFX9, ":")}; // no exceptions are ever pending
// clang-format on
SIM_TABLE(sim_ops_valu_move, opcodes);
