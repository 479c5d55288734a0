// SPDX-License-Identifier: Apache-2.0
// gfx9's branches with a stack: FORK runs the smaller half of a divergent wave first and leaves the
// other half's PC and EXEC in scalar registers. JOIN takes them back. MODE counts the entries.
// gfx11 has loops over the two halves of a wave of 64. Source: "CDNA3" ISA, SOP1, SOP2, SOPK;
// "RDNA2" ISA, SOPK.
#include "../exec.h"

enum { CSP_SHIFT = 29, CSP_ENTRIES = 8, ENTRY_REGS = 4 };

static uint32_t depth(const sim_wave *w) {
    return w->mode >> CSP_SHIFT;
}

static void set_depth(sim_wave *w, uint32_t value) {
    w->mode = (w->mode & ~(7u << CSP_SHIFT)) | value % CSP_ENTRIES << CSP_SHIFT;
}

static void push(sim_wave *w, uint64_t pc, uint64_t exec) {
    uint64_t entry[2] = {exec, pc};
    memcpy(&w->s[ENTRY_REGS * depth(w)], entry, sizeof entry);
    set_depth(w, depth(w) + 1);
}

/** Splits a wave: the lanes of `mask` go to `target`, the others go on. */
static void fork_wave(sim_wave *w, uint64_t mask, uint64_t target) {
    const uint64_t pass = mask & w->exec, fail = ~mask & w->exec;
    if (pass == w->exec) {
        w->pc = target;
    } else if (fail == w->exec) {
        return;
    } else if (__builtin_popcountll(fail) < __builtin_popcountll(pass)) {
        w->exec = fail;
        push(w, target, pass);
    } else {
        w->exec = pass;
        push(w, w->pc, fail);
        w->pc = target;
    }
}

static void exec_s_cbranch_g_fork(sim_wave *w, const sim_inst *inst) {
    fork_wave(w, sim_read64(w, &inst->src[0]), sim_read64(w, &inst->src[1]));
}

static void exec_s_cbranch_i_fork(sim_wave *w, const sim_inst *inst) {
    fork_wave(w, sim_read64(w, &inst->src[0]), inst->target);
}

static void exec_s_cbranch_join(sim_wave *w, const sim_inst *inst) {
    uint64_t entry[2];
    if (depth(w) == sim_read32(w, &inst->src[0]))
        return; // the second half has arrived: go on
    set_depth(w, depth(w) - 1);
    memcpy(entry, &w->s[ENTRY_REGS * depth(w)], sizeof entry);
    w->exec = entry[0];
    w->pc = entry[1];
}

// ---- the body of the loop runs for the lower lanes, then for the upper ones, each time with one
// half of EXEC

static void exec_s_subvector_loop_begin(sim_wave *w, const sim_inst *inst) {
    const uint32_t low = (uint32_t)w->exec, high = (uint32_t)(w->exec >> 32);
    if (!w->exec) {
        w->pc = inst->target;
    } else if (!low) {
        sim_write32(w, &inst->dst[0], low);
    } else {
        sim_write32(w, &inst->dst[0], high);
        w->exec = low;
    }
}

static void exec_s_subvector_loop_end(sim_wave *w, const sim_inst *inst) {
    const uint32_t saved = sim_read32(w, &inst->dst[0]), low = (uint32_t)w->exec;
    if (w->exec >> 32) {
        w->exec = (w->exec & ~(uint64_t)UINT32_MAX) | saved;
    } else if (saved) {
        w->exec = (uint64_t)saved << 32;
        sim_write32(w, &inst->dst[0], low);
        w->pc = inst->target;
    }
}

// clang-format off
#define LINE(name, archs, known, types, ...) \
    SIM_ROW(#name, exec_##name, archs, SIM_FLOW, known, types, .unit = SIM_UNIT_BRANCH __VA_OPT__(, ) __VA_ARGS__)
static const sim_opcode opcodes[] = {
    LINE(s_cbranch_g_fork, GFX9, 'i', ":qq") LINE(s_cbranch_i_fork, GFX9, 'i', ":qi", .is = SIM_JUMPS)
    LINE(s_cbranch_join, GFX9, 'i', ":i") LINE(s_subvector_loop_begin, GFX11, '?', "i:i", .is = SIM_JUMPS)
    LINE(s_subvector_loop_end, GFX11, '?', "i:i+", .is = SIM_JUMPS)};
// clang-format on
SIM_TABLE(sim_ops_fork, opcodes);
