// SPDX-License-Identifier: Apache-2.0
// RDNA's control: split barriers, waits and hints under their own names, messages with an answer, MODE's fields.
// Source: "RDNA3" and "RDNA4" ISA, SOPP, SOPK, SOP1.
#include "exec.h"

#include <time.h>

// ---- split barriers: a wave signals, works on, waits for the others' signals

/** -1 is the workgroup's barrier; the named ones would need state of their own. */
static bool is_group_barrier(sim_wave *w, const sim_inst *inst) {
    const sim_operand *which = &inst->src[0];
    if (which->kind == SIM_OP_IMM && (int16_t)which->value == -1) {
        return true;
    }
    sim_fault_raise(w, inst, -1, "named barriers are not implemented: only barrier -1 is");
    return false;
}

static void signal(sim_wave *w, const sim_inst *inst) {
    w->num_signals++;
    if (w->group->dispatch->check & SIM_CHECK_BARRIER) {
        sim_check_signal(w, inst);
    }
}

static void exec_s_barrier_signal(sim_wave *w, const sim_inst *inst) {
    if (is_group_barrier(w, inst)) {
        signal(w, inst);
    }
}

static void exec_s_barrier_signal_isfirst(sim_wave *w, const sim_inst *inst) {
    if (!is_group_barrier(w, inst)) {
        return;
    }
    signal(w, inst);
    w->scc = 1;
    for (uint32_t i = 0; i < w->group->num_waves; i++) {
        const sim_wave *other = &w->group->waves[i];
        if (other != w && (int32_t)(other->num_signals - w->num_signals) >= 0) {
            w->scc = 0;
        }
    }
}

static void exec_s_barrier_wait(sim_wave *w, const sim_inst *inst) {
    if (is_group_barrier(w, inst)) {
        w->num_waits++;
        w->state = sim_barrier_is_complete(w) ? SIM_RUNNING : SIM_AT_BARRIER;
        if (w->group->dispatch->check & SIM_CHECK_BARRIER) {
            sim_check_barrier(w, inst);
        }
    }
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

/** A clock of 100 MHz that follows real time: programs spin on it. */
static void exec_s_sendmsg_rtn_b64(sim_wave *w, const sim_inst *inst) {
    uint32_t message = inst->word[0] & 0xff;
    if (message != MSG_GET_REALTIME) {
        sim_fault_raise(w, inst, -1, "message %u is not answered; MSG_RTN_GET_REALTIME (%u) is",
                        message, MSG_GET_REALTIME);
        return;
    }
    sim_write64(w, &inst->dst[0], clock_100mhz());
}

/** What fills code up behind its end. */
static void exec_s_code_end(sim_wave *w, const sim_inst *inst) {
    sim_fault_report(w, inst, -1, SIM_FAULT_OUTSIDE, nullptr,
                     "the program counter ran past the end of the code");
}

/** Waits, hints and cache control: memory operations are complete when issued, registers when written. */
static void exec_nothing(sim_wave *, const sim_inst *) {}

// clang-format off
#define LINE(name, archs, types) {#name, exec_##name, archs, SIM_FLOW, 'i', types},
#define NOTHING(name, archs, types) {#name, exec_nothing, archs, SIM_FLOW, 'i', types},

static const sim_opcode opcodes[] = {
    LINE(s_barrier_signal, GFX12, ":i") LINE(s_barrier_signal_isfirst, GFX12, ":i")
    LINE(s_barrier_wait, GFX12, ":i") LINE(s_round_mode, GFX11P, ":i") LINE(s_denorm_mode, GFX11P, ":i")
    LINE(s_sendmsg_rtn_b64, GFX11P, "q:i") LINE(s_code_end, GFX11P, ":")
    NOTHING(s_delay_alu, GFX11P, ":t") NOTHING(s_clause, GFX11P, ":t") NOTHING(s_wait_alu, GFX12, ":t")
    NOTHING(s_waitcnt_depctr, GFX11, ":t") NOTHING(s_wait_event, GFX11P, ":t") NOTHING(s_wait_idle, GFX11P, ":t")
    NOTHING(s_set_inst_prefetch_distance, GFX11, ":t") NOTHING(s_waitcnt_vscnt, GFX11, ":ii")
    NOTHING(s_waitcnt_vmcnt, GFX11, ":ii") NOTHING(s_waitcnt_expcnt, GFX11, ":ii")
    NOTHING(s_waitcnt_lgkmcnt, GFX11, ":ii") NOTHING(s_wait_loadcnt, GFX12, ":i")
    NOTHING(s_wait_storecnt, GFX12, ":i") NOTHING(s_wait_dscnt, GFX12, ":i") NOTHING(s_wait_kmcnt, GFX12, ":i")
    NOTHING(s_wait_samplecnt, GFX12, ":i") NOTHING(s_wait_bvhcnt, GFX12, ":i") NOTHING(s_wait_expcnt, GFX12, ":i")
    NOTHING(s_wait_loadcnt_dscnt, GFX12, ":i") NOTHING(s_wait_storecnt_dscnt, GFX12, ":i")
    NOTHING(s_sleep_var, GFX12, ":i") NOTHING(s_version, GFX11P, ":t") NOTHING(s_ttracedata_imm, GFX11P, ":i")
    NOTHING(buffer_gl0_inv, GFX11, ":") NOTHING(buffer_gl1_inv, GFX11, ":") NOTHING(s_gl1_inv, GFX11, ":")
    NOTHING(global_inv, GFX12, ":") NOTHING(global_wb, GFX12, ":") NOTHING(global_wbinv, GFX12, ":")
    NOTHING(s_prefetch_inst, GFX12, ":t") NOTHING(s_prefetch_inst_pc_rel, GFX12, ":t")
    NOTHING(s_prefetch_data, GFX12, ":t") NOTHING(s_prefetch_data_pc_rel, GFX12, ":t")
    NOTHING(s_buffer_prefetch_data, GFX12, ":t")};

// clang-format on
SIM_TABLE(sim_ops_flow_rdna, opcodes);
