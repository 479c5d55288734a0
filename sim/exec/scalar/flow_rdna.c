// SPDX-License-Identifier: Apache-2.0
// RDNA's control: split barriers, waits and hints under their own names, messages with an answer,
// MODE's fields. Source: "RDNA3" and "RDNA4" ISA, SOPP, SOPK, SOP1.
#include "../../check/hooks.h"
#include "../../options.h"
#include "../exec.h"

#include <time.h>

// ---- split barriers: a wave signals, works on, waits for the others' signals

enum { NO_BARRIER = 0, GROUP_BARRIER = -1 };

/** The number that a constant or M0[4:0] names, or NO_BARRIER after a fault. RDNA4 has -1, the
 *  workgroup's, and 0, which does nothing; the named ones from 1 on came with gfx1250, which LLVM
 *  alone counts in kernel descriptors. */
static int barrier_number(sim_wave *w, const sim_inst *inst) {
    const sim_operand *which = &inst->src[0];
    const bool is_constant = which->kind == SIM_OP_IMM;
    const int number = is_constant ? (int16_t)which->value : (int)(w->m0 & 31);
    if (number == GROUP_BARRIER || (number == NO_BARRIER && is_constant))
        return number;
    if (number != NO_BARRIER) {
        sim_fault_raise(w, inst, -1,
                        "barrier %d: this chip has the workgroup's, -1, and no named ones", number);
    }
    return NO_BARRIER;
}

static void signal(sim_wave *w, const sim_inst *inst) {
    w->num_signals++;
    if (w->group->dispatch->check & SIM_CHECK_BARRIER)
        sim_check_signal(w, inst);
}

static void exec_s_barrier_signal(sim_wave *w, const sim_inst *inst) {
    if (barrier_number(w, inst) == GROUP_BARRIER)
        signal(w, inst);
}

/** Waves that have signalled and wait for others to. */
static uint32_t count_signals(const sim_wave *w, uint32_t *members) {
    uint32_t most = w->num_signals, count = 0;
    *members = 0;
    for (uint32_t i = 0; i < w->group->num_waves; i++) {
        const sim_wave *other = &w->group->waves[i];
        const bool is_member = other->state != SIM_ENDED;
        most = is_member && (int32_t)(other->num_signals - most) > 0 ? other->num_signals : most;
        *members += is_member;
    }
    for (uint32_t i = 0; i < w->group->num_waves; i++)
        count += w->group->waves[i].state != SIM_ENDED && w->group->waves[i].num_signals == most;
    return count == *members ? 0 : count;
}

static void exec_s_barrier_signal_isfirst(sim_wave *w, const sim_inst *inst) {
    uint32_t members;
    const bool is_group = barrier_number(w, inst) == GROUP_BARRIER;
    w->scc = is_group && !count_signals(w, &members);
    if (is_group)
        signal(w, inst);
}

/** Bit 0: it is valid; its members from bit 4 on, its signals from bit 16 on. */
static void exec_s_get_barrier_state(sim_wave *w, const sim_inst *inst) {
    uint32_t members, signals = count_signals(w, &members);
    const bool is_group = barrier_number(w, inst) == GROUP_BARRIER;
    sim_write32(w, &inst->dst[0], is_group ? signals << 16 | members << 4 | 1 : 0);
}

static void exec_s_barrier_wait(sim_wave *w, const sim_inst *inst) {
    if (barrier_number(w, inst) == GROUP_BARRIER) {
        w->num_waits++;
        w->state = sim_barrier_is_complete(w) ? SIM_RUNNING : SIM_AT_BARRIER;
        if (w->group->dispatch->check & SIM_CHECK_BARRIER)
            sim_check_barrier(w, inst);
    } else if (w->state == SIM_RUNNING) {
        sim_fault_raise(w, inst, -1, "a wait at barrier 0, which is never complete");
    }
}

/** LLVM assembles them for every gfx12; the RDNA4 document does not have them. */
static void exec_named_barrier(sim_wave *w, const sim_inst *inst) {
    sim_fault_raise(w, inst, -1, "named barriers: this chip has none (gfx1250 has)");
}

// ---- MODE

static void set_mode_field(sim_wave *w, const sim_inst *inst, uint32_t shift) {
    w->mode = (w->mode & ~(15u << shift)) | (inst->imm & 15) << shift;
}

static void exec_s_round_mode(sim_wave *w, const sim_inst *inst) {
    set_mode_field(w, inst, 0);
}
static void exec_s_denorm_mode(sim_wave *w, const sim_inst *inst) {
    set_mode_field(w, inst, 4);
}

// ---- messages with an answer

enum { MSG_GET_REALTIME = 0x83 };

static uint64_t clock_100mhz(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 100000000 + (uint64_t)t.tv_nsec / 10;
}

static bool is_answered(sim_wave *w, const sim_inst *inst) {
    const uint32_t message = inst->word[0] & 0xff;
    if (message != MSG_GET_REALTIME) {
        sim_fault_raise(w, inst, -1, "message %u is not answered; MSG_RTN_GET_REALTIME (%u) is",
                        message, MSG_GET_REALTIME);
    }
    return message == MSG_GET_REALTIME;
}

/** A clock of 100 MHz that follows real time: programs spin on it. */
static void exec_s_sendmsg_rtn_b64(sim_wave *w, const sim_inst *inst) {
    if (is_answered(w, inst))
        sim_write64(w, &inst->dst[0], clock_100mhz());
}

static void exec_s_sendmsg_rtn_b32(sim_wave *w, const sim_inst *inst) {
    if (is_answered(w, inst))
        sim_write32(w, &inst->dst[0], (uint32_t)clock_100mhz());
}

/** What fills code up behind its end. */
static void exec_s_code_end(sim_wave *w, const sim_inst *inst) {
    sim_fault_report(w, inst, -1, SIM_FAULT_OUTSIDE, nullptr,
                     "the program counter ran past the end of the code");
}

/** Waits, hints and cache control: memory operations are complete when issued, registers when
 *  written. */
static void exec_nothing(sim_wave *, const sim_inst *) {}

// clang-format off
#define LINE(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_FLOW, 'i', types, __VA_ARGS__)
#define NOTHING(name, archs, types, ...) SIM_ROW(#name, exec_nothing, archs, SIM_FLOW, 'i', types, __VA_ARGS__)
#define WAIT(name, archs, types, waits_) NOTHING(name, archs, types, .waits = SIM_WAIT_##waits_)
#define CACHE(name, archs) NOTHING(name, archs, ":", .unit = SIM_UNIT_CACHE)
#define PREFETCH(name) NOTHING(name, GFX12, ":t", .unit = SIM_UNIT_SMEM)
#define BARRIER(name, function, known, types, ...) \
    SIM_ROW(#name, function, GFX12, SIM_FLOW, known, types, .is = SIM_IS_BARRIER __VA_OPT__(|) __VA_ARGS__)

static const sim_opcode opcodes[] = {
    BARRIER(s_barrier_signal, exec_s_barrier_signal, 'i', ":i", SIM_SIGNALS)
    BARRIER(s_barrier_signal_isfirst, exec_s_barrier_signal_isfirst, 'i', ":i", SIM_SIGNALS)
    BARRIER(s_barrier_wait, exec_s_barrier_wait, 'i', ":i", SIM_AWAITS)
    BARRIER(s_barrier_init, exec_named_barrier, 'l', ":i") BARRIER(s_barrier_join, exec_named_barrier, 'l', ":i")
    BARRIER(s_barrier_leave, exec_named_barrier, 'l', ":") LINE(s_get_barrier_state, GFX12, "i:i")
    LINE(s_round_mode, GFX11P, ":i") LINE(s_denorm_mode, GFX11P, ":i")
    LINE(s_sendmsg_rtn_b32, GFX11P, "i:i", .unit = SIM_UNIT_MESSAGE)
    LINE(s_sendmsg_rtn_b64, GFX11P, "q:i", .unit = SIM_UNIT_MESSAGE)
    LINE(s_code_end, GFX11P, ":", .is = SIM_ENDS_FLOW)
    WAIT(s_wait_alu, GFX12, ":t", OTHER) WAIT(s_waitcnt_depctr, GFX11, ":t", OTHER)
    WAIT(s_wait_event, GFX11P, ":t", OTHER) WAIT(s_wait_idle, GFX11P, ":t", IDLE)
    WAIT(s_waitcnt_vscnt, GFX11, ":ii", STORES) WAIT(s_waitcnt_vmcnt, GFX11, ":ii", LOADS)
    WAIT(s_waitcnt_expcnt, GFX11, ":ii", OTHER) WAIT(s_waitcnt_lgkmcnt, GFX11, ":ii", LDS_SMEM)
    WAIT(s_wait_loadcnt, GFX12, ":i", LOADS) WAIT(s_wait_storecnt, GFX12, ":i", STORES)
    WAIT(s_wait_dscnt, GFX12, ":i", LDS) WAIT(s_wait_kmcnt, GFX12, ":i", SMEM)
    WAIT(s_wait_samplecnt, GFX12, ":i", OTHER) WAIT(s_wait_bvhcnt, GFX12, ":i", OTHER)
    WAIT(s_wait_expcnt, GFX12, ":i", OTHER) WAIT(s_wait_loadcnt_dscnt, GFX12, ":i", LOADS_LDS)
    WAIT(s_wait_storecnt_dscnt, GFX12, ":i", STORES_LDS)
    NOTHING(s_delay_alu, GFX11P, ":t") NOTHING(s_clause, GFX11P, ":t")
    NOTHING(s_set_inst_prefetch_distance, GFX11, ":t") NOTHING(s_sleep_var, GFX12, ":i")
    NOTHING(s_version, GFX11P, ":t") NOTHING(s_ttracedata_imm, GFX11P, ":i")
    CACHE(buffer_gl0_inv, GFX11) CACHE(buffer_gl1_inv, GFX11) CACHE(s_gl1_inv, GFX11)
    CACHE(global_inv, GFX12) CACHE(global_wb, GFX12) CACHE(global_wbinv, GFX12)
    PREFETCH(s_prefetch_inst) PREFETCH(s_prefetch_inst_pc_rel) PREFETCH(s_prefetch_data)
    PREFETCH(s_prefetch_data_pc_rel) PREFETCH(s_buffer_prefetch_data)};

// clang-format on
SIM_TABLE(sim_ops_flow_rdna, opcodes);
