// SPDX-License-Identifier: Apache-2.0
// Vector memory instructions on blocks of registers, and on one dword for each lane, one after
// another. Source: "RDNA3" and "RDNA4" ISA, VGLOBAL and VSCRATCH.
#include "access.h"

// ---- blocks: register i of 32, where bit i of M0 is set, at 4 i bytes past the address

static void load_block(sim_wave *w, const sim_inst *inst) {
    uint32_t rows[32][SIM_LANES]; // the address may lie in the block
    for (uint32_t left = w->m0; left; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        sim_access at;
        if (!sim_resolve(w, inst, 4 * i, 4, false, &at))
            return;
        for (uint64_t lanes = at.mask; lanes; lanes &= lanes - 1) {
            const int lane = __builtin_ctzll(lanes);
            memcpy(&rows[i][lane], at.host[lane], 4);
        }
    }
    for (uint32_t left = w->m0; left; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        store_masked(w->v[inst->dst[0].reg + i], rows[i], w->exec);
    }
}

static void store_block(sim_wave *w, const sim_inst *inst) {
    for (uint32_t left = w->m0; left; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        sim_access at;
        if (!sim_resolve(w, inst, 4 * i, 4, true, &at))
            return;
        for (uint64_t lanes = at.mask; lanes; lanes &= lanes - 1) {
            const int lane = __builtin_ctzll(lanes);
            memcpy(at.host[lane], &w->v[inst->src[1].reg + i][lane], 4);
        }
    }
}

// ---- a dword for each lane, one after another from a scalar address

static bool resolve_by_lane(sim_wave *w, const sim_inst *inst, bool is_store, sim_access *out) {
    const uint64_t base =
        sim_read64(w, &inst->src[inst->num_src - 1]) + (uint64_t)(int64_t)inst->offset;
    uint64_t address[SIM_LANES];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        address[lane] = base + 4 * lane;
    return sim_resolve_addresses(w, inst, address, 4, is_store, out);
}

static void exec_global_load_addtid_b32(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    if (resolve_by_lane(w, inst, false, &at)) {
        for (uint64_t left = at.mask; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            memcpy(&w->v[inst->dst[0].reg][lane], at.host[lane], 4);
        }
    }
}

static void exec_global_store_addtid_b32(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    if (resolve_by_lane(w, inst, true, &at)) {
        for (uint64_t left = at.mask; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            memcpy(at.host[lane], &w->v[inst->src[0].reg][lane], 4);
        }
    }
}

// clang-format off
#define LINE(form, name, function, archs, known, types, access_, ...) \
    SIM_ROW(#form "_" #name, function, archs, SIM_VMEM, known, types, .access = SIM_ACCESS_##access_, \
            .addressing = ADDRESSING_##form __VA_OPT__(, .is =) __VA_ARGS__)
static const sim_opcode opcodes[] = {
    LINE(global, load_block, load_block, GFX12, 'i', "i:", LOAD, SIM_IS_BLOCK)
    LINE(scratch, load_block, load_block, GFX12, 'i', "i:", LOAD, SIM_IS_BLOCK)
    LINE(global, store_block, store_block, GFX12, 'i', ":", STORE, SIM_IS_BLOCK)
    LINE(scratch, store_block, store_block, GFX12, 'i', ":", STORE, SIM_IS_BLOCK)
    LINE(global, load_addtid_b32, exec_global_load_addtid_b32, GFX11P, 'i', "i:q", LOAD)
    LINE(global, store_addtid_b32, exec_global_store_addtid_b32, GFX11P, 'i', ":iq", STORE)};
// clang-format on
SIM_TABLE(sim_ops_block, opcodes);
