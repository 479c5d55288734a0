// SPDX-License-Identifier: Apache-2.0
// Branches, calls, ends and messages. Source: "CDNA3", "RDNA3" and "RDNA4" ISA, SOPP, SOPK, SOP1.
#include "../../clock/clock.h"
#include "../../options.h"
#include "../exec.h"

/** Jumps if `taken`. While an instruction runs, w->pc is already the next instruction's
 *  address. */
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
    const uint64_t target = sim_read64(w, &inst->src[0]); // the source may be the destination too
    sim_write64(w, &inst->dst[0], w->pc);
    w->pc = target;
}

static void exec_s_call_b64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], w->pc);
    w->pc = inst->target;
}

// ---- ends

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

/** Faults: s_code_end fills the memory behind the end of the code. */
static void exec_s_code_end(sim_wave *w, const sim_inst *inst) {
    sim_fault_report(w, inst, -1, SIM_FAULT_OUTSIDE, nullptr,
                     "the program counter ran past the end of the code");
}

// ---- messages

/** Does nothing, because nobody reads a message without an answer. */
static void exec_s_sendmsg(sim_wave *, const sim_inst *) {}

enum { MSG_GET_REALTIME = 0x83 };

static bool is_answered(sim_wave *w, const sim_inst *inst) {
    const uint32_t message = inst->word[0] & 0xff;
    if (message != MSG_GET_REALTIME) {
        sim_fault_raise(w, inst, -1, "message %u is not answered; MSG_RTN_GET_REALTIME (%u) is",
                        message, MSG_GET_REALTIME);
    }
    return message == MSG_GET_REALTIME;
}

/** Gives a clock of 100 MHz that never stands, because programs spin on it. */
static void exec_s_sendmsg_rtn_b64(sim_wave *w, const sim_inst *inst) {
    if (is_answered(w, inst))
        sim_write64(w, &inst->dst[0], sim_clock_100mhz(w->group->dispatch));
}

static void exec_s_sendmsg_rtn_b32(sim_wave *w, const sim_inst *inst) {
    if (is_answered(w, inst))
        sim_write32(w, &inst->dst[0], (uint32_t)sim_clock_100mhz(w->group->dispatch));
}

// ---- table
// clang-format off

#define BRANCHES(X) \
    X(s_branch, SIM_ENDS_FLOW) X(s_cbranch_scc0, SIM_BY_SCC) X(s_cbranch_scc1, SIM_BY_SCC) \
    X(s_cbranch_vccz, SIM_BY_VCC) X(s_cbranch_vccnz, SIM_BY_VCC) X(s_cbranch_execz, 0) X(s_cbranch_execnz, 0)
#define WRAP(name, is) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { jump_if(w, inst, name(w)); }
BRANCHES(WRAP)

#define ROW(name, archs, types, ...) SIM_ROW(#name, exec_##name, archs, SIM_FLOW, 'i', types, __VA_ARGS__)
#define LINE(name, types, ...) ROW(name, ALL, types, __VA_ARGS__)
#define LINE_BRANCH(name, is_) LINE(name, ":i", .unit = SIM_UNIT_BRANCH, .is = SIM_JUMPS | is_)
#define LINE_CALL(name, types, is_) LINE(name, types, .unit = SIM_UNIT_BRANCH, .is = SIM_IS_CALL | is_)
#define MESSAGE .unit = SIM_UNIT_MESSAGE

static const sim_opcode opcodes[] = {BRANCHES(LINE_BRANCH)
    LINE_CALL(s_setpc_b64, ":q", SIM_ENDS_FLOW) LINE_CALL(s_swappc_b64, "q:q", 0)
    LINE_CALL(s_call_b64, "q:i", SIM_JUMPS) LINE(s_getpc_b64, "q:", .unit = SIM_UNIT_SALU)
    LINE(s_endpgm, ":", MESSAGE, .is = SIM_ENDS_FLOW) LINE(s_trap, ":i", .is = SIM_ENDS_FLOW)
    LINE(s_sethalt, ":i") LINE(s_sendmsghalt, ":i", MESSAGE, .is = SIM_READS_M0)
    ROW(s_code_end, GFX11P, ":", .is = SIM_ENDS_FLOW) LINE(s_sendmsg, ":i", MESSAGE, .is = SIM_READS_M0)
    ROW(s_sendmsg_rtn_b32, GFX11P, "i:i", MESSAGE) ROW(s_sendmsg_rtn_b64, GFX11P, "q:i", MESSAGE)};

// clang-format on
SIM_TABLE(sim_ops_flow, opcodes);
