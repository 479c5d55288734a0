// SPDX-License-Identifier: Apache-2.0
// RDNA's moves between lanes: permutations of each sixteen by scalars or by a register. Source:
// "RDNA3" and "RDNA4" ISA, VOP1, VOP3, DS.
#include "../exec.h"

/** Lane of the same or the other sixteen of each 32 that a lane's four-bit selector names. */
static unsigned selected(unsigned lane, uint32_t selector, bool other_row) {
    return ((lane & ~15u) ^ (other_row ? 16 : 0)) | (selector & 15);
}

/** op_sel[0]: inactive lanes are read too; op_sel[1]: a lane that may not be read gives 0, else the
 *  destination's lane stays. */
static void permute(sim_wave *w, const sim_inst *inst, const uint32_t *selectors, bool other_row) {
    uint32_t tmp[SIM_LANES], result[SIM_LANES];
    const uint32_t *data = sim_row32(w, inst, 0, tmp);
    const bool fetch_inactive = inst->op_sel & 1, bound_control = inst->op_sel & 2;
    uint64_t written = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const unsigned from = selected(lane, selectors[lane], other_row);
        const bool valid = fetch_inactive || (w->exec >> from & 1);
        result[lane] = valid ? data[from] : 0;
        written |= (uint64_t)(valid || bound_control) << lane;
    }
    store_masked(w->v[inst->dst[0].reg], result, written & w->exec);
}

/** Two scalars hold sixteen selectors of four bits. */
static void permute_by_scalars(sim_wave *w, const sim_inst *inst, bool other_row) {
    uint32_t selectors[SIM_LANES], low = sim_read32(w, &inst->src[1]);
    const uint32_t high = sim_read32(w, &inst->src[2]);
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        selectors[lane] = (lane & 8 ? high : low) >> 4 * (lane & 7);
    permute(w, inst, selectors, other_row);
}

static void permute_by_register(sim_wave *w, const sim_inst *inst, bool other_row) {
    uint32_t tmp[SIM_LANES];
    permute(w, inst, sim_row32(w, inst, 1, tmp), other_row);
}

static void exec_v_permlane16_b32(sim_wave *w, const sim_inst *inst) {
    permute_by_scalars(w, inst, false);
}
static void exec_v_permlanex16_b32(sim_wave *w, const sim_inst *inst) {
    permute_by_scalars(w, inst, true);
}
static void exec_v_permlane16_var_b32(sim_wave *w, const sim_inst *inst) {
    permute_by_register(w, inst, false);
}
static void exec_v_permlanex16_var_b32(sim_wave *w, const sim_inst *inst) {
    permute_by_register(w, inst, true);
}

/** Swaps the halves of a wave of 64 lanes, whatever EXEC says of the source; nothing with 32. */
static void exec_v_permlane64_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t result[SIM_LANES];
    const uint32_t *data = w->v[inst->src[0].reg];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        result[lane] = data[lane ^ 32];
    store_masked(w->v[inst->dst[0].reg], result, w->wave32 ? 0 : w->exec);
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

/** The source's index in M0[9:0], the destination's in M0[25:16]. */
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

/** ds_bpermute_b32 that reads inactive lanes too. */
static void exec_ds_bpermute_fi_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t *address = w->v[inst->src[0].reg], *data = w->v[inst->src[1].reg];
    uint32_t result[SIM_LANES], last = w->wave32 ? 31 : 63;
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        result[lane] = data[(address[lane] + (uint32_t)inst->offset) >> 2 & last];
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

// clang-format off
#define LINE(name, archs, types, ...) \
    SIM_ROW(#name, exec_##name, archs, SIM_VALU, 'i', types, .flow = SIM_FLOW_CROSS __VA_OPT__(, .is =) __VA_ARGS__)
static const sim_opcode opcodes[] = {
    LINE(v_permlane16_b32, GFX11P, "i:iii") LINE(v_permlanex16_b32, GFX11P, "i:iii")
    LINE(v_permlane16_var_b32, GFX12, "i:ii") LINE(v_permlanex16_var_b32, GFX12, "i:ii")
    LINE(v_permlane64_b32, GFX11P, "i:i")
    LINE(v_movrels_b32, GFX11P, "i:i", SIM_INDEXES_SRC) LINE(v_movreld_b32, GFX11P, "i:i", SIM_INDEXES_DST)
    LINE(v_movrelsd_b32, GFX11P, "i:i", SIM_INDEXES_SRC | SIM_INDEXES_DST)
    LINE(v_movrelsd_2_b32, GFX11P, "i:i", SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH)
    LINE(v_swaprel_b32, GFX11P, "i:i", SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH)
    SIM_ROW("ds_bpermute_fi_b32", exec_ds_bpermute_fi_b32, GFX12, SIM_LDS_OP, 'i', "i:ii")};
// clang-format on
SIM_TABLE(sim_ops_lane_rdna, opcodes);
