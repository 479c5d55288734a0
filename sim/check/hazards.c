// SPDX-License-Identifier: Apache-2.0
// Wait states of gfx9: how many instructions, or states of s_nop, must lie between two
// instructions, where the hardware does not check that the first one's result has arrived.
// Compilers count the states; so must assembly.
//
// Each wave has a clock of wait states, and for each register the last instruction that left
// something unfinished there. The clock counts as compilers do: one state for an instruction, and
// the time that a matrix instruction waits for the one before it, as they share a unit. Longer
// stalls count as one, so the checker reports what the documents' numbers forbid, even if a wait
// for memory in between makes it right. Sources: "CDNA3" ISA, "Manually inserted wait states"; the
// numbers of gfx90a and gfx950 are those that LLVM keeps to.
#include "../isa/decode.h"
#include "check.h"

#include <stdio.h>
#include <string.h>

// ---- how many wait states are needed

/** What an instruction does with a register. */
typedef enum use {
    USE_C_SAME, // the sum goes on in the registers of the last sum
    USE_C,
    USE_A_B,
    USE_VECTOR, // read or written
    USE_MEMORY,
} use;

enum { MOST_AFTER_MATRIX = 19 }; // LLVM looks back no further

static uint32_t after_f64(const sim_inst *by, const sim_inst *inst, use u, sim_arch arch) {
    const sim_matrix *next = &inst->traits.matrix;
    const uint8_t passes = by->traits.matrix.passes;
    const bool is_small = passes == 4, is_slow = arch == SIM_GFX950 && !is_small;
    switch (u) {
    case USE_C_SAME:
        return is_small && next->passes == passes && next->unit == SIM_MATRIX_F64 ? 4 : 0;
    case USE_C:
        return next->unit != SIM_MATRIX_F64 ? 0 : is_small ? 4 : is_slow ? 17 : 9;
    case USE_MEMORY:
        return is_small ? 9 : 18;
    default:
        return is_small ? 6 : is_slow ? 19 : 11;
    }
}

/** Returns the wait states between a matrix instruction and another use of its result. */
static uint32_t after_matrix(const sim_inst *by, const sim_inst *inst, use u, sim_arch arch) {
    const sim_matrix *x = &by->traits.matrix, *next = &inst->traits.matrix;
    uint32_t need;
    const bool is_slow = arch == SIM_GFX950 && x->unit == SIM_MATRIX_XDL && x->passes != 2;
    const bool is_old = arch == SIM_GFX90A;
    if (x->unit == SIM_MATRIX_F64)
        return after_f64(by, inst, u, arch);
    switch (u) {
    case USE_C_SAME:
        return x->passes == 2 && !is_old ? 2 : 0;
    case USE_C:
        if (is_old)
            return next->unit == SIM_MATRIX_F64 ? x->passes + 1u : x->passes;
        return x->unit == SIM_MATRIX_XDL      ? x->passes + 1u + is_slow
               : next->unit == SIM_MATRIX_XDL ? 0
                                              : x->passes;
    default:
        need = x->passes + (x->unit == SIM_MATRIX_XDL ? 3u + is_slow : 2u);
        return need < MOST_AFTER_MATRIX ? need : MOST_AFTER_MATRIX;
    }
}

static bool is_memory(const sim_inst *inst) {
    return inst->traits.klass == SIM_VMEM || inst->traits.klass == SIM_LDS_OP;
}

/** Returns whether it is a vector instruction; matrix instructions are not. */
static bool is_vector(const sim_inst *inst) {
    return inst->traits.klass == SIM_VALU;
}

static bool is_dpp(const sim_inst *inst) {
    return is_vector(inst) && (inst->flags & SIM_DPP);
}

static unsigned c_of(const sim_inst *matrix) {
    return matrix->traits.is & SIM_IS_SPARSE ? 3 : 2;
}

static use use_of(const sim_inst *inst, unsigned source, const sim_inst *by) {
    if (!inst->traits.matrix.unit)
        return is_memory(inst) ? USE_MEMORY : USE_VECTOR;
    const sim_operand *op = &inst->src[source], *d = &by->dst[0];
    const bool is_same = op->reg == d->reg && op->count == d->count;
    return source != c_of(inst) ? USE_A_B : is_same ? USE_C_SAME : USE_C;
}

/** Returns the wait states between a vector instruction that writes a vector register and one that
 *  reads it. */
static uint32_t after_vector(const sim_inst *by, const sim_inst *inst, sim_arch arch) {
    const uint64_t wrote = by->traits.is, reads = inst->traits.is;
    if (inst->traits.matrix.unit)
        return wrote & (SIM_MOVES_ACC | SIM_IS_DOT) ? 0 : 2;
    if (is_dpp(inst))
        return 2;
    const bool is_slow = by->traits.unit == SIM_UNIT_TRANS && inst->traits.unit != SIM_UNIT_TRANS;
    const bool is_forwarded = !(wrote & SIM_WRITES_PART) && !is_slow && !(reads & SIM_READS_LANE);
    return arch != SIM_GFX90A && is_vector(inst) && !is_forwarded ? 1 : 0;
}

/** Returns the wait states between a vector instruction that writes a scalar register and one that
 *  reads it. */
static uint32_t after_mask(const sim_inst *inst, unsigned source, sim_arch arch) {
    if ((inst->traits.is & SIM_NAMES_LANE) && source == 1)
        return 4;
    if (inst->traits.klass == SIM_VMEM)
        return 5;
    return is_vector(inst) && arch != SIM_GFX90A ? 2 : 0;
}

static uint32_t after_exec(const sim_inst *inst, sim_arch arch) {
    const bool by_lane = inst->traits.is & (SIM_READS_LANE | SIM_WRITES_LANE);
    return is_dpp(inst) ? 5 : inst->traits.matrix.unit || (by_lane && arch != SIM_GFX90A) ? 4 : 0;
}

// ---- the wave's past

static const char *deed_name(unsigned deed) {
    static const char *const names[SIM_NUM_DEEDS] = {"wrote it", "wrote it", "took it as C",
                                                     "stored it", "wrote it"};
    return names[deed];
}

/** Returns the most wait states that any instruction can need after a deed of `by`; no function
 *  above gives more. */
static uint32_t most_after(unsigned deed, unsigned reg, const sim_inst *by) {
    enum { AFTER_MASK = 5, AFTER_VECTOR = 2 };
    const uint32_t passes = by->traits.matrix.passes + 2u;
    if (reg >= SIM_REG_SCALAR)
        return AFTER_MASK;
    if (deed == SIM_DEED_MATRIX || deed == SIM_DEED_C)
        return passes > MOST_AFTER_MATRIX ? passes : MOST_AFTER_MATRIX;
    return AFTER_VECTOR;
}

/** Returns whether an instruction left something unfinished with the register, not long ago. Most
 *  registers are settled by this one look. */
static bool is_open(const struct sim_past *past, unsigned reg) {
    return (int32_t)(past->open_until[reg] - past->clock) > 0;
}

/** Returns whether `need` wait states have passed since the last deed on a register; reports it if
 *  not. */
static bool has_waited(sim_wave *w, const sim_inst *inst, unsigned deed, unsigned reg,
                       uint32_t need, bool is_write) {
    const struct sim_past *past = &w->shadow->past;
    const uint32_t at = past->at[deed][reg], states = past->clock - at - 1;
    if (!at || states >= need)
        return true;
    const sim_inst *by = past->by[deed][reg];
    sim_fault_about about = {.other_pc = by->pc};
    char name[16], place[SIM_PLACE_BYTES];
    sim_place_text(w->group->dispatch, by->pc, place);
    sim_fault_report(w, inst, -1, SIM_FAULT_WAIT, &about,
                     "missing wait states: %s is %s %u after %s at %s %s: %u must lie between, as "
                     "s_nop or other instructions",
                     reg == SIM_REG_EXEC ? "exec" : sim_reg_name(reg, name),
                     is_write ? "written" : "read", states, sim_mnemonic(by), place,
                     deed_name(deed), need);
    return false;
}

static bool check_source(sim_wave *w, const sim_inst *inst, unsigned i, sim_arch arch) {
    const struct sim_past *past = &w->shadow->past;
    span span = span_of(&inst->src[i]);
    for (unsigned reg = span.first; reg < span.first + span.count; reg++) {
        if (!is_open(past, reg))
            continue;
        const bool is_vector = reg < SIM_REG_SCALAR;
        const sim_inst *matrix =
            is_vector && past->at[SIM_DEED_MATRIX][reg] ? past->by[SIM_DEED_MATRIX][reg] : nullptr;
        if (matrix &&
            !has_waited(w, inst, SIM_DEED_MATRIX, reg,
                        after_matrix(matrix, inst, use_of(inst, i, matrix), arch), false)) {
            return false;
        }
        if (!past->at[SIM_DEED_VECTOR][reg])
            continue;
        const uint32_t need = is_vector ? after_vector(past->by[SIM_DEED_VECTOR][reg], inst, arch)
                                        : after_mask(inst, i, arch);
        if (!has_waited(w, inst, SIM_DEED_VECTOR, reg, need, false))
            return false;
    }
    return true;
}

/** Checks a vector instruction's write, which may overwrite what a matrix instruction or a store
 *  still reads, or a matrix instruction writes. */
static bool check_result(sim_wave *w, const sim_inst *inst, unsigned reg, sim_arch arch) {
    const struct sim_past *past = &w->shadow->past;
    const sim_inst *matrix = past->by[SIM_DEED_MATRIX][reg], *c = past->by[SIM_DEED_C][reg];
    return (!past->at[SIM_DEED_MATRIX][reg] ||
            has_waited(w, inst, SIM_DEED_MATRIX, reg, after_matrix(matrix, inst, USE_VECTOR, arch),
                       true)) &&
           (!past->at[SIM_DEED_C][reg] ||
            has_waited(w, inst, SIM_DEED_C, reg, c->traits.matrix.passes - 1u, true)) &&
           has_waited(w, inst, SIM_DEED_STORE, reg, arch == SIM_GFX90A ? 1 : 2, true);
}

static bool check_special(sim_wave *w, const sim_inst *inst, sim_arch arch) {
    enum { VCC = SIM_REG_SCALAR + 106, M0 = SIM_REG_SCALAR + 124 };
    const uint64_t is = inst->traits.is;
    return has_waited(w, inst, SIM_DEED_VECTOR, SIM_REG_EXEC, after_exec(inst, arch), false) &&
           (!(is & SIM_IS_DIV_FMAS) || has_waited(w, inst, SIM_DEED_VECTOR, VCC, 4, false)) &&
           (!(is & SIM_READS_M0) || has_waited(w, inst, SIM_DEED_SCALAR, M0, 1, false));
}

static bool check(sim_wave *w, const sim_inst *inst) {
    sim_arch arch = w->group->dispatch->chip->arch;
    for (unsigned i = 0; i < inst->num_src; i++)
        if (!check_source(w, inst, i, arch))
            return false;
    for (unsigned i = 0; is_vector(inst) && i < inst->num_dst; i++) {
        span span = span_of(&inst->dst[i]);
        for (unsigned reg = span.first; reg < span.first + span.count && reg < SIM_REG_SCALAR;
             reg++) {
            if (is_open(&w->shadow->past, reg) && !check_result(w, inst, reg, arch))
                return false;
        }
    }
    return check_special(w, inst, arch);
}

static void note_span(struct sim_past *past, unsigned deed, span span, const sim_inst *inst) {
    const uint32_t until = past->clock + 1 + most_after(deed, span.first, inst);
    for (unsigned reg = span.first; reg < span.first + span.count; reg++) {
        past->at[deed][reg] = past->clock;
        past->by[deed][reg] = inst;
        if ((int32_t)(until - past->open_until[reg]) > 0)
            past->open_until[reg] = until;
    }
}

static void forget_span(struct sim_past *past, unsigned deed, span span) {
    for (unsigned reg = span.first; reg < span.first + span.count; reg++)
        past->at[deed][reg] = 0;
}

static void note_matrix(struct sim_past *past, const sim_inst *inst) {
    const sim_matrix *x = &inst->traits.matrix;
    const sim_operand *c = &inst->src[c_of(inst)];
    if (x->unit == SIM_MATRIX_XDL && c->kind == SIM_OP_VGPR) // other matrix instructions read C at
                                                             // once
        note_span(past, SIM_DEED_C, span_of(c), inst);
    note_span(past, SIM_DEED_MATRIX, span_of(&inst->dst[0]), inst);
    forget_span(past, SIM_DEED_VECTOR, span_of(&inst->dst[0]));
    past->unit_free = past->clock + x->passes;
}

static void note(struct sim_past *past, const sim_inst *inst) {
    const sim_traits *t = &inst->traits;
    if (t->matrix.unit) {
        note_matrix(past, inst);
        return;
    }
    for (unsigned i = 0; i < inst->num_dst; i++) {
        span span = span_of(&inst->dst[i]);
        if (is_vector(inst))
            note_span(past, SIM_DEED_VECTOR, span, inst);
        else
            forget_span(past, SIM_DEED_VECTOR, span);
        if (is_vector(inst) && inst->dst[i].kind == SIM_OP_VGPR)
            forget_span(past, SIM_DEED_MATRIX, span);
        else if (t->klass == SIM_SALU)
            note_span(past, SIM_DEED_SCALAR, span, inst);
    }
    if (is_vector(inst) && (t->is & SIM_WRITES_EXEC))
        note_span(past, SIM_DEED_VECTOR, (span){SIM_REG_EXEC, 1}, inst);
    if (t->is & SIM_IS_LATE_STORE)
        note_span(past, SIM_DEED_STORE, span_of(&inst->src[sim_is_buffer(t) ? 0 : 1]), inst);
}

void sim_check_hazards(sim_wave *w, const sim_inst *inst) {
    struct sim_past *past = &w->shadow->past;
    const sim_traits *t = &inst->traits;
    if (t->is & SIM_IS_CALL)
        memset(past->at, 0, sizeof past->at);
    if (t->matrix.unit && (int32_t)(past->unit_free - past->clock) > 0)
        past->clock = past->unit_free;
    check(w, inst);
    note(past, inst);
    past->clock += t->wait_states;
}

void sim_hazards_begin(sim_wave *w) {
    struct sim_past *past = &w->shadow->past;
    memset(past->at, 0, sizeof past->at);
    memset(past->open_until, 0, sizeof past->open_until);
    past->clock = past->unit_free = 1;
}
