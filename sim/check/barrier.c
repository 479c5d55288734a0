// SPDX-License-Identifier: Apache-2.0
// Barriers: waves of a workgroup that have lost each other.
//
// A barrier counts waves: a wave that comes to any s_barrier counts, whatever EXEC is and wherever
// the s_barrier stands, and so does a wave that has ended. So neither a barrier with few lanes on
// nor an early end is a fault. Waves that meet at different barriers go on, on the chip too, but
// hardly as the program means: one wave reads what another has not written yet. The checker reports
// such a meeting. It also reports a fault of gfx12's split barriers: a wave that signals twice
// counts for another wave, for which nobody then waits.
#include "check.h"
#include "hooks.h"

static bool report(sim_wave *w, const sim_inst *inst, const sim_wave *other) {
    char theirs[SIM_PLACE_BYTES], mine[SIM_PLACE_BYTES];
    sim_place_text(w->group->dispatch, other->barrier_pc, theirs);
    sim_place_text(w->group->dispatch, inst->pc, mine);
    sim_fault_about about = {.other_pc = other->barrier_pc};
    return sim_fault_report(w, inst, -1, SIM_FAULT_BARRIER, &about,
                            "divergent barrier: wave %u waits at %s, wave %u at %s", other->index,
                            theirs, w->index, mine);
}

void sim_check_barrier(sim_wave *w, const sim_inst *inst) {
    const sim_workgroup *group = w->group;
    w->num_barriers++;
    w->barrier_pc = inst->pc;
    for (uint32_t i = 0; i < group->num_waves; i++) {
        const sim_wave *other = &group->waves[i];
        if (other->num_barriers == w->num_barriers && other->barrier_pc != inst->pc) {
            report(w, inst, other);
            return;
        }
    }
}

void sim_check_signal(sim_wave *w, const sim_inst *inst) {
    if (w->num_signals - w->num_waits > 1) {
        sim_fault_report(w, inst, -1, SIM_FAULT_BARRIER, nullptr,
                         "divergent barrier: wave %u signals again before it has waited", w->index);
    }
}
