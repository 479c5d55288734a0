// SPDX-License-Identifier: Apache-2.0
// What an instruction does beside computing: the memory it touches, which counter tells that its
// result is there, what a wait waits for. Worked out once, from the mnemonic. Sources: "CDNA3" ISA,
// s_waitcnt; "RDNA3" and "RDNA4" ISA, dependency counters.
#include "check.h"
#include "hooks.h"

#include <string.h>

static bool has(const sim_inst *inst, const char *part) {
    return strstr(inst->opcode->mnemonic, part);
}

static bool begins(const sim_inst *inst, const char *part) {
    return !strncmp(inst->opcode->mnemonic, part, strlen(part));
}

// ---- memory

/** What the compiler's atomic loads and stores have, and its volatile ones: a scope beyond the
 *  wave. With a hint not to keep the line, glc is a part of the hint. */
static uint8_t scope_of(const sim_inst *inst, sim_arch arch, uint8_t access) {
    const bool has_store_scopes = arch == SIM_GFX942 || arch == SIM_GFX950 || arch == SIM_GFX1201 ||
                                  arch == SIM_GFX12_GENERIC;
    if ((inst->flags & SIM_SCOPED) || ((inst->flags & SIM_GLC) && !(inst->flags & SIM_STREAMED)))
        return SIM_SCOPE_SOME;
    return access == SIM_ACCESS_STORE && !has_store_scopes ? SIM_SCOPE_UNKNOWN : SIM_SCOPE_NONE;
}

static uint8_t vmem_access(const sim_inst *inst) {
    if ((inst->flags & SIM_LDS) || has(inst, "load_lds"))
        return SIM_ACCESS_DMA;
    return has(inst, "atomic")  ? SIM_ACCESS_ATOMIC
           : has(inst, "store") ? SIM_ACCESS_STORE
           : has(inst, "load")  ? SIM_ACCESS_LOAD
                                : SIM_ACCESS_NONE;
}

static uint8_t lds_access(const sim_inst *inst) {
    if (has(inst, "permute") || has(inst, "swizzle") || has(inst, "_nop"))
        return SIM_ACCESS_NONE;
    if (has(inst, "_read") || has(inst, "_load"))
        return SIM_ACCESS_LOAD;
    return has(inst, "_write") || has(inst, "_store") ? SIM_ACCESS_STORE : SIM_ACCESS_ATOMIC;
}

static bool returns_old(const sim_inst *inst) {
    return inst->num_dst || (inst->flags & SIM_GLC);
}

/** gfx9 counts loads and stores together, later chips apart; an atomic goes with what it looks
 *  like. */
static uint8_t vmem_stream(const sim_inst *inst, uint8_t access, bool counts_stores) {
    bool is_store =
        access == SIM_ACCESS_STORE || (access == SIM_ACCESS_ATOMIC && !returns_old(inst));
    return access == SIM_ACCESS_NONE   ? SIM_NUM_STREAMS
           : counts_stores && is_store ? SIM_STREAM_STORE
                                       : SIM_STREAM_LOAD;
}

// ---- waits

static void wait_for(sim_effects *e, unsigned stream, uint32_t left, uint32_t most) {
    e->is_wait = true;
    e->left[stream] = left >= most ? SIM_LEFT_ANY : (uint8_t)left;
}

static void wait_lgkm(sim_effects *e, uint32_t left, uint32_t most) {
    wait_for(e, SIM_STREAM_LDS, left, most);
    wait_for(e, SIM_STREAM_SMEM, left, most);
}

/** The fields of s_waitcnt. */
static void read_waitcnt(const sim_inst *inst, bool is_gfx9, sim_effects *e) {
    const uint32_t imm = inst->word[0] & 0xffff;
    if (is_gfx9) {
        wait_for(e, SIM_STREAM_LOAD, (imm & 15) | (imm >> 14 & 3) << 4, 63);
        wait_lgkm(e, imm >> 8 & 15, 15);
    } else {
        wait_for(e, SIM_STREAM_LOAD, imm >> 10 & 63, 63);
        wait_lgkm(e, imm >> 4 & 63, 63);
    }
}

/** gfx10 to gfx12's waits for one counter, or for two. */
static void read_single_wait(const sim_inst *inst, sim_effects *e) {
    const uint32_t imm = inst->word[0] & 0xffff, low = imm & 63, high = imm >> 8 & 63;
    if (has(inst, "wait_idle")) {
        memset(e->left, 0, sizeof e->left);
        e->is_wait = true;
    } else if (has(inst, "loadcnt_dscnt")) {
        wait_for(e, SIM_STREAM_LOAD, high, 63);
        wait_for(e, SIM_STREAM_LDS, low, 63);
    } else if (has(inst, "storecnt_dscnt")) {
        wait_for(e, SIM_STREAM_STORE, high, 63);
        wait_for(e, SIM_STREAM_LDS, low, 63);
    } else if (has(inst, "loadcnt") || has(inst, "waitcnt_vmcnt")) {
        wait_for(e, SIM_STREAM_LOAD, low, 63);
    } else if (has(inst, "storecnt") || has(inst, "vscnt")) {
        wait_for(e, SIM_STREAM_STORE, low, 63);
    } else if (has(inst, "dscnt")) {
        wait_for(e, SIM_STREAM_LDS, low, 63);
    } else if (has(inst, "kmcnt")) {
        wait_for(e, SIM_STREAM_SMEM, low, 31);
    } else if (has(inst, "lgkmcnt")) {
        wait_lgkm(e, low, 63);
    }
}

// ---- how a result's definedness follows from its sources'

static uint8_t flow_of(const sim_inst *inst) {
    static const struct {
        const char *mnemonic;
        uint8_t flow;
    } special[] = {{"v_cndmask_b32", SIM_FLOW_SELECT},   {"v_cndmask_b16", SIM_FLOW_SELECT},
                   {"v_readlane", SIM_FLOW_READ_LANE},   {"v_readfirstlane", SIM_FLOW_READ_LANE},
                   {"v_writelane", SIM_FLOW_WRITE_LANE}, {"v_swap", SIM_FLOW_SWAP},
                   {"v_permlane16_swap", SIM_FLOW_SWAP}, {"v_permlane32_swap", SIM_FLOW_SWAP},
                   {"v_permlane", SIM_FLOW_CROSS},       {"v_mov", SIM_FLOW_LANES}};
    if (inst->opcode->klass == SIM_MFMA)
        return SIM_FLOW_MATRIX;
    if (has(inst, "v_movrel") || has(inst, "v_swaprel") || (inst->flags & (SIM_DPP | SIM_DPP8)))
        return SIM_FLOW_CROSS;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (begins(inst, special[i].mnemonic))
            return special[i].flow;
    return inst->opcode->klass == SIM_LDS_OP ? SIM_FLOW_CROSS : SIM_FLOW_LANES;
}

void sim_find_effects(sim_inst *inst, sim_arch arch) {
    const bool is_gfx9 = arch <= SIM_GFX950;
    sim_effects e = {.stream = SIM_NUM_STREAMS, .flow = flow_of(inst)};
    memset(e.left, SIM_LEFT_ANY, sizeof e.left);
    switch (inst->opcode->klass) {
    case SIM_VMEM:
        e.access = vmem_access(inst);
        e.stream = vmem_stream(inst, e.access, !is_gfx9);
        break;
    case SIM_LDS_OP:
        e.access = lds_access(inst);
        e.stream = SIM_STREAM_LDS;
        break;
    case SIM_SMEM:
        e.access = has(inst, "atomic")  ? SIM_ACCESS_ATOMIC
                   : has(inst, "store") ? SIM_ACCESS_STORE
                                        : SIM_ACCESS_LOAD;
        e.stream = SIM_STREAM_SMEM;
        break;
    default:
        break;
    }
    e.scope = scope_of(inst, arch, e.access);
    if (!strcmp(inst->opcode->mnemonic, "s_waitcnt"))
        read_waitcnt(inst, is_gfx9, &e);
    else if (begins(inst, "s_wait"))
        read_single_wait(inst, &e);
    const bool is_whole = !strcmp(inst->opcode->mnemonic, "s_barrier");
    e.signals = is_whole || begins(inst, "s_barrier_signal");
    e.is_barrier = is_whole || !strcmp(inst->opcode->mnemonic, "s_barrier_wait");
    e.hazard = sim_find_hazard(inst, arch);
    e.is_indexed = has(inst, "movreld") || has(inst, "movrelsd") || has(inst, "swaprel");
    inst->effects = e;
}
