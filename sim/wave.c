// SPDX-License-Identifier: Apache-2.0
// The run loop of one wave.
#include "sim.h"

/** Ends a wave that has executed more than the dispatch allows. */
static void check_limit(sim_wave *w) {
    const sim_dispatch *d = w->group->dispatch;
    bool goes_on = w->state == SIM_RUNNING || w->state == SIM_AT_BARRIER;
    if (d->limit && w->num_executed > d->limit && goes_on) {
        sim_fault_raise(w, nullptr, -1,
                        "still running after %llu instructions (limit=%llu): an endless loop?",
                        (unsigned long long)w->num_executed, (unsigned long long)d->limit);
    }
}

static uint32_t run(sim_wave *w, uint32_t slice) {
    const sim_text *text = w->group->dispatch->text;
    uint32_t n = 0;
    while (n < slice && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, text, w->pc);
        if (!inst) {
            break;
        }
        n++;
        w->pc = inst->pc + inst->bytes;
        w->counters[inst->opcode->klass]++;
        if (w->mode & SIM_MODE_SPECIAL) [[clang::unlikely]] {
            sim_exec_special(w, inst);
        } else {
            inst->exec(w, inst);
        }
    }
    return n;
}

void sim_wave_run(sim_wave *w) {
    // Long enough that what happens once a slice costs nothing, short enough that a wave which spins
    // on what another wave of its workgroup will write does not hold it up for long.
    enum { SLICE = 16384 };
    w->num_executed += w->shadow ? sim_check_run(w, SLICE) : run(w, SLICE);
    check_limit(w);
}
