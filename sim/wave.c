// SPDX-License-Identifier: Apache-2.0
// The run loop of one wave.
#include "wave.h"

#include "check/hooks.h"
#include "isa/decode.h"
#include "isa/inst.h"
#include "look/hooks.h"
#include "options.h"
#include "report/fault.h"

// A fault may keep a kernel from ever ending, for example by a dropped store that another wave
// waits for. Faults are reported when the launch ends, so each wave of a launch with a fault may
// execute only this many more instructions.
constexpr uint64_t GRACE = UINT64_C(1) << 24;

/** Ends a wave that has executed more than the dispatch allows. */
static void check_limit(sim_wave *w) {
    const sim_dispatch *d = w->group->dispatch;
    const bool goes_on = w->state == SIM_RUNNING || w->state == SIM_AT_BARRIER;
    if (d->limit && w->num_executed > d->limit && goes_on) {
        sim_fault_report(w, nullptr, -1, SIM_FAULT_LIMIT, nullptr,
                         "still running after %llu instructions (limit=%llu): an endless loop?",
                         (unsigned long long)w->num_executed, (unsigned long long)d->limit);
    } else if (w->num_after_fault > GRACE && goes_on) {
        sim_fault_report(w, nullptr, -1, SIM_FAULT_LIMIT, nullptr,
                         "still running %llu instructions after the launch's first fault",
                         (unsigned long long)GRACE);
    }
}

static inline uint32_t run(sim_wave *w, uint32_t slice) {
    const sim_text *text = w->group->dispatch->text;
    uint32_t n = 0;
    while (n < slice && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, text, w->pc);
        if (!inst)
            break;
        n++;
        w->pc = inst->pc + inst->bytes;
        w->counters[inst->opcode->klass]++;
        if (w->mode & SIM_MODE_SPECIAL) [[clang::unlikely]]
            sim_exec_special(w, inst);
        else
            inst->exec(w, inst);
    }
    return n;
}

uint32_t sim_wave_slice(sim_wave *w, uint32_t slice) {
    return run(w, slice);
}

/** Returns the instructions until the next wave's turn. Short turns keep the waves of a workgroup
 *  in step, as on silicon, where each SIMD issues for its waves in turn: some kernels in use are
 *  right only because a wave is never far ahead of its neighbours. A wave without neighbours goes
 *  on as long as nothing else must be looked at; those of a cooperative launch may spin until
 *  others have had their turn. */
static uint32_t slice_of(const sim_wave *w) {
    constexpr uint32_t alone = 16384;
    const sim_dispatch *d = w->group->dispatch;
    const uint32_t turn = d->turn ? d->turn : SIM_DEFAULT_TURN;
    const bool has_neighbours = w->group->num_waves > 1 || d->is_cooperative;
    const uint32_t slice = has_neighbours ? turn : alone;
    const uint64_t left = d->limit - w->num_executed;
    return d->limit && left < slice ? (uint32_t)left + 1 : slice;
}

void sim_wave_step(sim_wave *w, uint32_t slice) {
    const uint32_t n = w->look     ? sim_look_run(w, slice)
                       : w->shadow ? sim_check_run(w, slice)
                                   : run(w, slice);
    w->num_executed += n;
    w->num_after_fault += sim_faults_failing(&w->group->dispatch->faults) ? n : 0;
    check_limit(w);
}

void sim_wave_run(sim_wave *w) {
    sim_wave_step(w, slice_of(w));
}
