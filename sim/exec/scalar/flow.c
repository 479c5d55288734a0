// SPDX-License-Identifier: Apache-2.0
// Control: branches, barriers, ends, waits, MODE and other hardware registers.
#include "../../check/hooks.h"
#include "../../options.h"
#include "../exec.h"

#include <time.h>

/** w->pc is already the next instruction's when an instruction runs. */
static void jump_if(sim_wave *w, const sim_inst *inst, bool taken) {
    if (taken)
        w->pc = inst->target;
}

static bool s_branch(const sim_wave *) {
    return true;
}
static bool s_cbranch_scc0(const sim_wave *w) {
    return !w->scc;
}
static bool s_cbranch_scc1(const sim_wave *w) {
    return w->scc;
}
static bool s_cbranch_vccz(const sim_wave *w) {
    return !sim_vcc(w);
}
static bool s_cbranch_vccnz(const sim_wave *w) {
    return sim_vcc(w);
}
static bool s_cbranch_execz(const sim_wave *w) {
    return !w->exec;
}
static bool s_cbranch_execnz(const sim_wave *w) {
    return w->exec;
}

static void exec_s_getpc_b64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], w->pc);
}
static void exec_s_setpc_b64(sim_wave *w, const sim_inst *inst) {
    w->pc = sim_read64(w, &inst->src[0]);
}

static void exec_s_swappc_b64(sim_wave *w, const sim_inst *inst) {
    const uint64_t target = sim_read64(w, &inst->src[0]); // may be the destination too
    sim_write64(w, &inst->dst[0], w->pc);
    w->pc = target;
}

static void exec_s_call_b64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], w->pc);
    w->pc = inst->target;
}

static void exec_s_barrier(sim_wave *w, const sim_inst *inst) {
    w->state = SIM_AT_BARRIER;
    if (w->group->dispatch->check & SIM_CHECK_BARRIER)
        sim_check_barrier(w, inst);
}
static void exec_s_endpgm(sim_wave *w, const sim_inst *) {
    w->state = SIM_ENDED;
}

static void exec_s_trap(sim_wave *w, const sim_inst *inst) {
    sim_fault_report(w, inst, -1, SIM_FAULT_TRAP, nullptr,
                     "the kernel trapped: s_trap %u (an assertion, or unreachable code)",
                     inst->imm & 0xff);
}

static void exec_s_sethalt(sim_wave *w, const sim_inst *inst) {
    if (inst->imm & 1) {
        sim_fault_report(w, inst, -1, SIM_FAULT_TRAP, nullptr,
                         "the kernel halted itself with s_sethalt");
    }
}

static void exec_s_sendmsghalt(sim_wave *w, const sim_inst *inst) {
    sim_fault_raise(w, inst, -1, "the kernel halted itself with s_sendmsghalt");
}

/** Waits, hints and cache control: memory operations are complete when issued. */
static void exec_nothing(sim_wave *, const sim_inst *) {}

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

/** Core clocks since some moment: programs spin on them. */
static uint64_t shader_cycles(const sim_wave *w) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t microseconds = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    return microseconds * w->group->dispatch->chip->clock_khz / 1000;
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
        return (uint32_t)shader_cycles(w);
    case HW_SHADER_CYCLES_HI:
        return (uint32_t)(shader_cycles(w) >> 32);
    default: // one XCD, one place: identifiers are 0, traps are never pending
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

// ---- modes that change what vector instructions do (modes.c)

/** Bits of the instruction's second field go to M0[15:12], the register's low byte to M0[7:0]. */
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

// ---- table
// clang-format off

#define BRANCHES(X) \
    X(s_branch, SIM_ENDS_FLOW) X(s_cbranch_scc0, SIM_BY_SCC) X(s_cbranch_scc1, SIM_BY_SCC) \
    X(s_cbranch_vccz, SIM_BY_VCC) X(s_cbranch_vccnz, SIM_BY_VCC) X(s_cbranch_execz, 0) X(s_cbranch_execnz, 0)
#define WRAP(name, is) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { jump_if(w, inst, name(w)); }
BRANCHES(WRAP)

#define LINE(name, types, ...) SIM_ROW(#name, exec_##name, ALL, SIM_FLOW, 'i', types, __VA_ARGS__)
#define LINE_BRANCH(name, is_) LINE(name, ":i", .unit = SIM_UNIT_BRANCH, .is = SIM_JUMPS | is_)
#define LINE_CALL(name, types, is_) LINE(name, types, .unit = SIM_UNIT_BRANCH, .is = SIM_IS_CALL | is_)
#define NOTHING(name, ...) SIM_ROW(#name, exec_nothing, ALL, SIM_FLOW, 'i', ":i", __VA_ARGS__)
#define CACHE(name) NOTHING(name, .unit = SIM_UNIT_CACHE)

static const sim_opcode opcodes[] = {BRANCHES(LINE_BRANCH)
    LINE_CALL(s_setpc_b64, ":q", SIM_ENDS_FLOW) LINE_CALL(s_swappc_b64, "q:q", 0)
    LINE_CALL(s_call_b64, "q:i", SIM_JUMPS) LINE(s_getpc_b64, "q:", .unit = SIM_UNIT_SALU)
    LINE(s_barrier, ":", .is = SIM_IS_BARRIER | SIM_SIGNALS | SIM_AWAITS)
    LINE(s_endpgm, ":", .unit = SIM_UNIT_MESSAGE, .is = SIM_ENDS_FLOW) LINE(s_trap, ":i", .is = SIM_ENDS_FLOW)
    LINE(s_sethalt, ":i") LINE(s_sendmsghalt, ":i", .unit = SIM_UNIT_MESSAGE, .is = SIM_READS_M0)
    LINE(s_set_gpr_idx_on, ":ii") LINE(s_set_gpr_idx_idx, ":i") LINE(s_set_gpr_idx_mode, ":i")
    LINE(s_set_gpr_idx_off, ":") LINE(s_setvskip, ":ii") LINE(s_getreg_b32, "i:i", .unit = SIM_UNIT_SALU)
    LINE(s_setreg_b32, ":ii", .unit = SIM_UNIT_SALU) LINE(s_setreg_imm32_b32, ":ii", .unit = SIM_UNIT_SALU)
    NOTHING(s_nop, .is = SIM_IS_NOP) NOTHING(s_sleep) NOTHING(s_setprio) NOTHING(s_waitcnt, .waits = SIM_WAIT_FIELDS)
    NOTHING(s_sendmsg, .unit = SIM_UNIT_MESSAGE, .is = SIM_READS_M0) NOTHING(s_incperflevel)
    NOTHING(s_decperflevel) NOTHING(s_ttracedata) NOTHING(s_wakeup) CACHE(s_icache_inv) CACHE(buffer_wbl2)
    CACHE(buffer_inv) CACHE(buffer_wbinvl1) CACHE(buffer_wbinvl1_vol) CACHE(buffer_invl2)};

// clang-format on
SIM_TABLE(sim_ops_flow, opcodes);
