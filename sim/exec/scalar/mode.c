// SPDX-License-Identifier: Apache-2.0
// MODE and other hardware registers, and the modes that change what vector instructions do. Source:
// "CDNA3" and "RDNA3" ISA, SOPK, SOPP, SOP1.
#include "../../clock/clock.h"
#include "../../options.h"
#include "../exec.h"

// ---- hardware registers: id [5:0], offset [10:6], size - 1 [15:11]

enum {
    HW_MODE = 1,
    HW_STATUS = 2,
    HW_TRAPSTS = 3,
    HW_HW_ID = 4,
    HW_LDS_ALLOC = 6,
    HW_XCC_ID = 20,
    HW_SHADER_CYCLES = 29, // RDNA; RDNA4 has 64 bits of them, in two registers
    HW_SHADER_CYCLES_HI = 30,
};

static uint32_t field_mask(uint32_t hwreg) {
    const uint32_t size = (hwreg >> 11 & 31) + 1;
    return size < 32 ? (1u << size) - 1 : UINT32_MAX;
}

static uint32_t hardware_register(const sim_wave *w, uint32_t id) {
    switch (id) {
    case HW_MODE:
        return w->mode;
    case HW_STATUS:
        return w->scc | (uint32_t)(w->exec == 0) << 9 | (uint32_t)(sim_vcc(w) == 0) << 10;
    case HW_LDS_ALLOC: // size in granules of 128 dwords, [20:12]
        return (w->group->dispatch->lds_bytes + 511) / 512 << 12;
    case HW_SHADER_CYCLES:
        return (uint32_t)sim_clock_cycles(w->group->dispatch);
    case HW_SHADER_CYCLES_HI:
        return (uint32_t)(sim_clock_cycles(w->group->dispatch) >> 32);
    default: // with one XCD in one place, identifiers are 0, and traps are never pending
        return 0;
    }
}

static void exec_s_getreg_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t value = hardware_register(w, inst->imm & 63) >> (inst->imm >> 6 & 31);
    sim_write32(w, &inst->dst[0], value & field_mask(inst->imm));
}

static void set_register(sim_wave *w, const sim_inst *inst, uint32_t value) {
    const uint32_t shift = inst->imm >> 6 & 31, mask = field_mask(inst->imm) << shift;
    if ((inst->imm & 63) != HW_MODE) {
        if ((inst->imm & 63) != HW_TRAPSTS) {
            sim_fault_raise(w, inst, -1,
                            "s_setreg of hardware register %u; MODE (1) and TRAPSTS (3) can be set",
                            inst->imm & 63);
        }
        return;
    }
    w->mode = (w->mode & ~mask) | (value << shift & mask);
    const uint32_t major = w->group->dispatch->chip->gfx_major;
    w->mode &= major > 9 ? ~(uint32_t)SIM_MODE_SPECIAL : UINT32_MAX;
    w->mode |= major >= 12 ? SIM_MODE_GFX12 : 0;
}

static void exec_s_setreg_b32(sim_wave *w, const sim_inst *inst) {
    set_register(w, inst, sim_read32(w, &inst->src[1]));
}
static void exec_s_setreg_imm32_b32(sim_wave *w, const sim_inst *inst) {
    set_register(w, inst, inst->word[1]);
}

// ---- fields of MODE

static void set_mode_field(sim_wave *w, const sim_inst *inst, uint32_t shift) {
    w->mode = (w->mode & ~(15u << shift)) | (inst->imm & 15) << shift;
}
static void exec_s_round_mode(sim_wave *w, const sim_inst *inst) {
    set_mode_field(w, inst, 0);
}
static void exec_s_denorm_mode(sim_wave *w, const sim_inst *inst) {
    set_mode_field(w, inst, 4);
}

// ---- registers by number, and vector instructions that are skipped (modes.c)

/** Writes the bits of the instruction's second field to M0[15:12], and the register's low byte to
 *  M0[7:0]. */
static void exec_s_set_gpr_idx_on(sim_wave *w, const sim_inst *inst) {
    w->m0 = (w->m0 & 0xffff0f00) | (sim_read32(w, &inst->src[0]) & 255) |
            (inst->word[0] >> 8 & 15) << 12;
    w->mode |= SIM_MODE_GPR_IDX_EN;
}

static void exec_s_set_gpr_idx_idx(sim_wave *w, const sim_inst *inst) {
    w->m0 = (w->m0 & ~255u) | (sim_read32(w, &inst->src[0]) & 255);
}
static void exec_s_set_gpr_idx_mode(sim_wave *w, const sim_inst *inst) {
    w->m0 = (w->m0 & 0xffff0fff) | (inst->imm & 15) << 12;
}
static void exec_s_set_gpr_idx_off(sim_wave *w, const sim_inst *) {
    w->mode &= ~(uint32_t)SIM_MODE_GPR_IDX_EN;
}

static void exec_s_setvskip(sim_wave *w, const sim_inst *inst) {
    const bool on = sim_read32(w, &inst->src[0]) >> (sim_read32(w, &inst->src[1]) & 31) & 1;
    w->mode = on ? w->mode | SIM_MODE_VSKIP : w->mode & ~(uint32_t)SIM_MODE_VSKIP;
}

// clang-format off
#define LINE(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_FLOW, 'i', types, __VA_ARGS__)
#define SALU .unit = SIM_UNIT_SALU
static const sim_opcode opcodes[] = {
    LINE(s_getreg_b32, ALL, "i:i", SALU) LINE(s_setreg_b32, ALL, ":ii", SALU) LINE(s_setreg_imm32_b32, ALL, ":ii", SALU)
    LINE(s_round_mode, GFX11P, ":i") LINE(s_denorm_mode, GFX11P, ":i")
    LINE(s_set_gpr_idx_on, ALL, ":ii") LINE(s_set_gpr_idx_idx, ALL, ":i") LINE(s_set_gpr_idx_mode, ALL, ":i")
    LINE(s_set_gpr_idx_off, ALL, ":") LINE(s_setvskip, ALL, ":ii")};
// clang-format on
SIM_TABLE(sim_ops_mode, opcodes);
