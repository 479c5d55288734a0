// SPDX-License-Identifier: Apache-2.0
// Barriers, whole and split. Source: "CDNA3", "RDNA3" and "RDNA4" ISA, SOPP, SOP1.
#include "../../check/hooks.h"
#include "../../options.h"
#include "../exec.h"

static void exec_s_barrier(sim_wave *w, const sim_inst *inst) {
    w->state = SIM_AT_BARRIER;
    if (w->group->dispatch->check & SIM_CHECK_BARRIER)
        sim_check_barrier(w, inst);
}

// ---- split barriers: a wave signals, works on, waits for the others' signals

enum { NO_BARRIER = 0, GROUP_BARRIER = -1 };

/** Returns the number that a constant or M0[4:0] names, or NO_BARRIER after a fault. RDNA4 has -1,
 *  the workgroup's, and 0, which does nothing; the named ones from 1 on came with gfx1250, which
 *  LLVM alone counts in kernel descriptors. */
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

/** Returns the number of waves that have signalled and wait for others. */
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

/** Gives the barrier's state: bit 0 if it is valid, its members from bit 4 on, its signals from bit
 *  16 on. */
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

/** Faults on a named barrier. LLVM assembles them for every gfx12; the RDNA4 document does not
 *  describe them. */
static void exec_named_barrier(sim_wave *w, const sim_inst *inst) {
    sim_fault_raise(w, inst, -1, "named barriers: this chip has none (gfx1250 has)");
}

// clang-format off
#define LINE(name, function, archs, known, types, is_) \
    SIM_ROW(#name, function, archs, SIM_FLOW, known, types, .is = SIM_IS_BARRIER | is_)
#define SPLIT(name, function, is) LINE(name, function, GFX12, 'i', ":i", is)
#define NAMED(name, types) LINE(name, exec_named_barrier, GFX12, 'l', types, 0)
static const sim_opcode opcodes[] = {
    LINE(s_barrier, exec_s_barrier, ALL, 'i', ":", SIM_SIGNALS | SIM_AWAITS)
    SPLIT(s_barrier_signal, exec_s_barrier_signal, SIM_SIGNALS)
    SPLIT(s_barrier_signal_isfirst, exec_s_barrier_signal_isfirst, SIM_SIGNALS)
    SPLIT(s_barrier_wait, exec_s_barrier_wait, SIM_AWAITS)
    NAMED(s_barrier_init, ":i") NAMED(s_barrier_join, ":i") NAMED(s_barrier_leave, ":")
    SIM_ROW("s_get_barrier_state", exec_s_get_barrier_state, GFX12, SIM_FLOW, 'i', "i:i")};
// clang-format on
SIM_TABLE(sim_ops_barrier, opcodes);
