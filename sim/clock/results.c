// SPDX-License-Identifier: Apache-2.0
// When registers have their values: RDNA's vector and scalar units start an instruction each cycle,
// but its result is there some cycles later, and the hardware makes what needs it wait. Loads are
// not among these results, as the program waits for them.
#include "../isa/decode.h"
#include "machine.h"

enum { VCC = 106, EXEC = 126 };

static uint64_t latest(const uint64_t *registers, uint32_t first, uint32_t count, uint32_t room) {
    uint64_t last = 0;
    for (uint32_t i = first; i < first + count && i < room; i++)
        last = sim_later(last, registers[i]);
    return last;
}

static uint64_t ready_of(const sim_results *r, const sim_operand *op) {
    if (op->kind == SIM_OP_VGPR)
        return latest(r->vector, op->reg, op->count, 512);
    if (op->kind == SIM_OP_SGPR)
        return latest(r->scalar, op->reg, op->count, 128);
    return 0;
}

static uint64_t ready_of_sources(const sim_results *r, const sim_inst *inst) {
    uint64_t last = 0;
    for (unsigned i = 0; i < inst->num_src; i++)
        last = sim_later(last, ready_of(r, &inst->src[i]));
    return last;
}

/** Returns when the registers are ready that the instruction reads without naming them. */
static uint64_t ready_unnamed(const sim_results *r, const sim_inst *inst) {
    const sim_traits *t = &inst->traits;
    uint64_t last = t->klass == SIM_SALU || t->klass == SIM_FLOW ? 0 : r->scalar[EXEC];
    if (t->is & SIM_BY_VCC || inst->flags & SIM_VCC_IMPLICIT)
        last = sim_later(last, r->scalar[VCC]);
    return t->is & SIM_BY_SCC ? sim_later(last, r->scc) : last;
}

uint64_t sim_results_ready(const sim_results *results, const sim_inst *inst) {
    uint64_t last = sim_later(ready_of_sources(results, inst), ready_unnamed(results, inst));
    if (!inst->second)
        return last;
    last = sim_later(last, ready_of_sources(results, inst->second));
    // The second half may read what the first one overwrites.
    return inst->saves_row ? sim_later(last, ready_of(results, &inst->dst[0])) : last;
}

static void note_registers(uint64_t *registers, uint32_t first, uint32_t count, uint32_t room,
                           uint64_t tick) {
    for (uint32_t i = first; i < first + count && i < room; i++)
        registers[i] = tick;
}

static void note_destinations(sim_results *r, const sim_inst *inst, uint64_t tick) {
    for (unsigned i = 0; i < inst->num_dst; i++) {
        const sim_operand *op = &inst->dst[i];
        if (op->kind == SIM_OP_VGPR)
            note_registers(r->vector, op->reg, op->count, 512, tick);
        else if (op->kind == SIM_OP_SGPR)
            note_registers(r->scalar, op->reg, op->count, 128, tick);
    }
}

void sim_results_note(sim_results *results, const sim_inst *inst, uint64_t tick) {
    const sim_traits *t = &inst->traits;
    note_destinations(results, inst, tick);
    if (inst->second)
        note_destinations(results, inst->second, tick);
    if (t->klass == SIM_SALU && !(t->is & SIM_KEEPS_SCC))
        results->scc = tick;
    if (t->is & SIM_WRITES_EXEC)
        results->scalar[EXEC] = tick;
}
