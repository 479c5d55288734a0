// SPDX-License-Identifier: Apache-2.0
// Moves between lanes, and between lanes and scalars. Source: "CDNA3", "RDNA3" and "RDNA4" ISA,
// VOP1, VOP3, DS.
#include "permute.h"

// ---- one lane and a scalar

static uint32_t last_lane(const sim_wave *w) {
    return w->wave32 ? 31 : 63;
}

static void exec_v_readfirstlane_b32(sim_wave *w, const sim_inst *inst) {
    const int lane = w->exec ? __builtin_ctzll(w->exec) : 0; // lane 0 if none is active
    const sim_operand *src = &inst->src[0];
    sim_write32(w, &inst->dst[0],
                src->kind == SIM_OP_VGPR ? w->v[src->reg][lane] : sim_read32(w, src));
}

/** Reads a lane and ignores EXEC. */
static void exec_v_readlane_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t lane = sim_read32(w, &inst->src[1]) & last_lane(w);
    sim_write32(w, &inst->dst[0], w->v[inst->src[0].reg][lane]);
}

static void exec_v_writelane_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t lane = sim_read32(w, &inst->src[1]) & last_lane(w);
    w->v[inst->dst[0].reg][lane] = sim_read32(w, &inst->src[0]);
}

// ---- counts of lower lanes in a mask

static void mask_count(sim_wave *w, const sim_inst *inst, unsigned first_lane) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], result[SIM_LANES];
    const u32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32_t *mask = sim_row32(w, inst, 0, tmp[0]), *sum = sim_row32(w, inst, 1, tmp[1]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        unsigned n = k % 32; // lanes of this mask's half below the block
        u32x16 below = ((u32x16){} + 1u << (lane + n)) - 1;
        below = k < first_lane ? (u32x16){} : k - first_lane < 32 ? below : ~(u32x16){};
        store16(result + k,
                load16(sum + k) + __builtin_elementwise_popcount(load16(mask + k) & below));
    }
    sim_finish32(w, inst, result);
}

static void exec_v_mbcnt_lo_u32_b32(sim_wave *w, const sim_inst *inst) {
    mask_count(w, inst, 0);
}
static void exec_v_mbcnt_hi_u32_b32(sim_wave *w, const sim_inst *inst) {
    mask_count(w, inst, 32);
}

// ---- blocks of lanes

/** Swaps odd blocks of `width` lanes of the first register with even blocks of the second. */
static void swap_blocks(sim_wave *w, const sim_inst *inst, unsigned width) {
    uint32_t *a = w->v[inst->dst[0].reg], *b = w->v[inst->src[0].reg];
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const bool odd = lane & width,
                   active = (w->exec >> lane & 1) && (w->exec >> (lane ^ width) & 1);
        if (odd && active) {
            const uint32_t old = a[lane];
            a[lane] = b[lane - width];
            b[lane - width] = old;
        }
    }
}

static void exec_v_permlane16_swap_b32(sim_wave *w, const sim_inst *inst) {
    swap_blocks(w, inst, 16);
}
static void exec_v_permlane32_swap_b32(sim_wave *w, const sim_inst *inst) {
    swap_blocks(w, inst, 32);
}

/** Swaps the halves of a wave of 64 lanes, whatever EXEC says of the source. Does nothing with 32
 *  lanes. */
static void exec_v_permlane64_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t result[SIM_LANES];
    const uint32_t *data = w->v[inst->src[0].reg];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        result[lane] = data[lane ^ 32];
    store_masked(w->v[inst->dst[0].reg], result, w->wave32 ? 0 : w->exec);
}

// ---- permutations of each sixteen lanes, by scalars or by a register

/** Returns the lane that a lane's four-bit selector names, of the same or the other sixteen of each
 *  32. */
static unsigned selected(unsigned lane, uint32_t selector, bool other_row) {
    return ((lane & ~15u) ^ (other_row ? 16 : 0)) | (selector & 15);
}

/** Permutes lanes by `selectors`. With op_sel[0], inactive lanes are read too. With op_sel[1], a
 *  lane that may not be read gives 0; else the destination's lane keeps its value. */
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

/** Permutes lanes by two scalars, which hold sixteen selectors of four bits. */
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

// ---- through the LDS crossbar

/** Lets each lane read the lane that its address names. An inactive lane gives 0 unless
 *  `reads_inactive`. */
SIM_INLINE void read_named(sim_wave *w, const sim_inst *inst, bool reads_inactive) {
    const uint32_t *address = w->v[inst->src[0].reg], *data = w->v[inst->src[1].reg];
    uint32_t result[SIM_LANES];
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 from = (load16(address + k) + (uint32_t)inst->offset) >> 2 & last_lane(w);
        u32x16 seen = reads_inactive ? ~(u32x16){} : picked_bits16(w->exec, from);
        store16(result + k, pick16(data, from) & seen);
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static void exec_ds_bpermute_b32(sim_wave *w, const sim_inst *inst) {
    read_named(w, inst, false);
}
static void exec_ds_bpermute_fi_b32(sim_wave *w, const sim_inst *inst) {
    read_named(w, inst, true);
}

/** Lets each active lane send to the lane that its address names. Of several senders the highest
 *  lane wins; a lane without one gets 0. */
static void exec_ds_permute_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t *address = w->v[inst->src[0].reg], *data = w->v[inst->src[1].reg];
    uint32_t result[SIM_LANES] = {};
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        result[(address[lane] + (uint32_t)inst->offset) >> 2 & last_lane(w)] = data[lane];
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

/** Returns the lanes that a swizzle reads. With bit 15, the pattern is a permutation of each four
 *  lanes; else it has and, or and xor masks within each 32 lanes. */
SIM_INLINE u32x16 swizzled(uint32_t pattern, u32x16 lane) {
    if (pattern & 0x8000)
        return (lane & ~3u) | (((u32x16){} + pattern) >> 2 * (lane & 3) & 3);
    u32x16 in_group = ((lane & 31 & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31);
    return (lane & 32) | (in_group & 31);
}

static void exec_ds_swizzle_b32(sim_wave *w, const sim_inst *inst) {
    const u32x16 first = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32_t *data = w->v[inst->src[0].reg];
    uint32_t result[SIM_LANES];
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 from = swizzled((uint32_t)inst->offset, first + k);
        store16(result + k, pick16(data, from) & picked_bits16(w->exec, from));
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

// clang-format off
#define LINE(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_VALU, 'i', types, __VA_ARGS__)
#define CROSSES(name, archs, types) LINE(name, archs, types, .flow = SIM_FLOW_CROSS)
// Instructions of the LDS unit that do not read LDS.
#define LINE_LDS(name, archs, types) SIM_ROW(#name, exec_##name, archs, SIM_LDS_OP, 'i', types)
#define READS .flow = SIM_FLOW_READ_LANE
static const sim_opcode opcodes[] = {
    LINE(v_readfirstlane_b32, ALL, "i:i", READS, .is = SIM_READS_LANE)
    LINE(v_readlane_b32, ALL, "i:ii", READS, .is = SIM_READS_LANE | SIM_NAMES_LANE)
    LINE(v_writelane_b32, ALL, "i:ii", .flow = SIM_FLOW_WRITE_LANE, .is = SIM_WRITES_LANE | SIM_NAMES_LANE)
    LINE(v_mbcnt_lo_u32_b32, ALL, "i:ii") LINE(v_mbcnt_hi_u32_b32, ALL, "i:ii")
    LINE(v_permlane16_swap_b32, GFX950, "i:i", .flow = SIM_FLOW_SWAP_ROWS)
    LINE(v_permlane32_swap_b32, GFX950, "i:i", .flow = SIM_FLOW_SWAP_ROWS)
    CROSSES(v_permlane64_b32, GFX11P, "i:i")
    CROSSES(v_permlane16_b32, GFX11P, "i:iii") CROSSES(v_permlanex16_b32, GFX11P, "i:iii")
    CROSSES(v_permlane16_var_b32, GFX12, "i:ii") CROSSES(v_permlanex16_var_b32, GFX12, "i:ii")
    LINE_LDS(ds_bpermute_b32, ALL, "i:ii") LINE_LDS(ds_bpermute_fi_b32, GFX12, "i:ii")
    LINE_LDS(ds_permute_b32, ALL, "i:ii") LINE_LDS(ds_swizzle_b32, ALL, "i:i")};
// clang-format on
SIM_TABLE(sim_ops_valu_lane, opcodes);
