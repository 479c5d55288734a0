// SPDX-License-Identifier: Apache-2.0
// Scalar moves and selects, registers by number. Source: "CDNA3" and "RDNA3" ISA, SOP1, SOP2, SOPK.
#include "scalar.h"

static uint32_t s_mov_b32(sim_wave *, uint32_t a, uint32_t) {
    return a;
}
static uint64_t s_mov_b64(sim_wave *, uint64_t a, uint64_t) {
    return a;
}
static uint32_t s_cselect_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return w->scc ? a : b;
}
static uint64_t s_cselect_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return w->scc ? a : b;
}

static void exec_s_cmov_b32(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        sim_write32(w, &inst->dst[0], sim_read32(w, &inst->src[0]));
}

static void exec_s_cmov_b64(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        sim_write64(w, &inst->dst[0], sim_read64(w, &inst->src[0]));
}

static void exec_s_movk_i32(sim_wave *w, const sim_inst *inst) {
    sim_write32(w, &inst->dst[0], (uint32_t)(int16_t)inst->imm);
}

static void exec_s_cmovk_i32(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        exec_s_movk_i32(w, inst);
}

// ---- registers by number

/** Returns the register that lies M0 registers after `reg`, or `reg` itself if that is beyond the
 *  file. */
static uint32_t indexed(const sim_wave *w, uint16_t reg, uint32_t dwords) {
    const uint64_t at = (uint64_t)reg + w->m0;
    return at + dwords <= 106 ? (uint32_t)at : reg;
}

static void exec_s_movrels_b32(sim_wave *w, const sim_inst *inst) {
    sim_write32(w, &inst->dst[0], w->s[indexed(w, inst->src[0].reg, 1)]);
}

static void exec_s_movrels_b64(sim_wave *w, const sim_inst *inst) {
    const uint32_t *from = &w->s[indexed(w, inst->src[0].reg, 2)];
    sim_write64(w, &inst->dst[0], from[0] | (uint64_t)from[1] << 32);
}

static void exec_s_movreld_b32(sim_wave *w, const sim_inst *inst) {
    if (inst->dst[0].kind != SIM_OP_SGPR)
        return; // null
    w->s[indexed(w, inst->dst[0].reg, 1)] = sim_read32(w, &inst->src[0]);
}

static void exec_s_movreld_b64(sim_wave *w, const sim_inst *inst) {
    if (inst->dst[0].kind != SIM_OP_SGPR)
        return;
    const uint64_t value = sim_read64(w, &inst->src[0]);
    uint32_t *to = &w->s[indexed(w, inst->dst[0].reg, 2)];
    to[0] = (uint32_t)value;
    to[1] = (uint32_t)(value >> 32);
}

/** Moves between registers by number: the source's index is in M0[9:0], the destination's in
 *  M0[25:16]. */
static void exec_s_movrelsd_2_b32(sim_wave *w, const sim_inst *inst) {
    const uint64_t from = (uint64_t)inst->src[0].reg + (w->m0 & 0x3ff);
    const uint64_t to = (uint64_t)inst->dst[0].reg + (w->m0 >> 16 & 0x3ff);
    if (inst->dst[0].kind == SIM_OP_SGPR)
        w->s[to < 106 ? to : inst->dst[0].reg] = w->s[from < 106 ? from : inst->src[0].reg];
}

// clang-format off
#define INDEXES(is_) .is = SIM_KEEPS_SCC | SIM_READS_M0 | is_
#define FROM INDEXES(SIM_INDEXES_SRC)
#define TO INDEXES(SIM_INDEXES_DST)

SALU_WRAP32(s_mov_b32)
SALU_WRAP64(s_mov_b64)
SALU_WRAP32(s_cselect_b32)
SALU_WRAP64(s_cselect_b64)

static const sim_opcode opcodes[] = {
    SALU_LINE(s_mov_b32, "i:ii", BITS(ANY), KEEPS) SALU_LINE(s_mov_b64, "q:q", BITS(ANY), KEEPS)
    SALU_LINE(s_cselect_b32, "i:ii", .flow = SIM_FLOW_SELECT, KEEPS)
    SALU_LINE(s_cselect_b64, "q:qq", .flow = SIM_FLOW_SELECT, KEEPS)
    SALU_LINE(s_cmov_b32, "i:i", BITS(ANY), KEEPS) SALU_LINE(s_cmov_b64, "q:q", BITS(ANY), KEEPS)
    SALU_LINE(s_movk_i32, "i:i", KEEPS) SALU_LINE(s_cmovk_i32, "i:i", KEEPS)
    SALU_LINE(s_movrels_b32, "i:i", FROM) SALU_LINE(s_movrels_b64, "q:q", FROM)
    SALU_LINE(s_movreld_b32, "i:i", TO) SALU_LINE(s_movreld_b64, "q:q", TO)
    SALU_ROW(s_movrelsd_2_b32, GFX11P, "i:i", INDEXES(SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH))};
// clang-format on
SIM_TABLE(sim_ops_salu_move, opcodes);
