// SPDX-License-Identifier: Apache-2.0
// Reports of what a kernel did wrong. The first one of a dispatch stops it.
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/** Appends to a report, silently cut at its end. */
[[gnu::format(printf, 2, 3)]] static void append(sim_fault *fault, const char *format, ...) {
    size_t used = strlen(fault->text);
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text + used, sizeof fault->text - used, format, args);
    va_end(args);
}

/** The one line that says where: instruction, workgroup, wave, lane. */
static void append_place(sim_fault *fault, const sim_wave *w, const sim_inst *inst, int lane) {
    const sim_workgroup *group = w->group;
    const sim_dispatch *d = group->dispatch;
    uint64_t pc = inst ? inst->pc : w->pc;
    bool is_before = pc < d->kernel->entry; // in a function that it calls
    uint64_t distance = is_before ? d->kernel->entry - pc : pc - d->kernel->entry;
    append(fault, "\n  at %s%c0x%llx", d->kernel->name, is_before ? '-' : '+',
           (unsigned long long)distance);
    if (inst && inst->opcode) {
        append(fault, " (%s)", inst->opcode->mnemonic);
    }
    append(fault, ", pc 0x%llx, workgroup (%u, %u, %u), wave %u", (unsigned long long)pc,
           group->id[0], group->id[1], group->id[2], w->index);
    if (lane >= 0) {
        uint32_t thread = w->index * sim_wave_size(d) + (uint32_t)lane;
        append(fault, ", lane %d, work-item (%u, %u, %u)", lane, thread % d->block[0],
               thread / d->block[0] % d->block[1], thread / d->block[0] / d->block[1]);
    }
}

[[gnu::format(printf, 5, 0)]] static void raise(sim_wave *w, const sim_inst *inst, int lane,
                                                bool is_address, const char *format, va_list args) {
    sim_dispatch *d = w->group->dispatch;
    w->state = SIM_FAULTED;
    if (!atomic_flag_test_and_set(&d->fault_taken)) {
        sim_fault *fault = &d->fault;
        fault->is_address = is_address;
        append(fault, "kernel %s: ", d->kernel->name);
        size_t used = strlen(fault->text);
        vsnprintf(fault->text + used, sizeof fault->text - used, format, args);
        append_place(fault, w, inst, lane);
    }
    atomic_store(&d->stop, true);
}

void sim_fault_raise(sim_wave *w, const sim_inst *inst, int lane, const char *format, ...) {
    va_list args;
    va_start(args, format);
    raise(w, inst, lane, false, format, args);
    va_end(args);
}

[[gnu::format(printf, 4, 5)]] static void raise_address(sim_wave *w, const sim_inst *inst, int lane,
                                                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    raise(w, inst, lane, true, format, args);
    va_end(args);
}

void sim_memory_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                      bool is_store) {
    char where[256];
    sim_memory_describe(w->group->dispatch->memory, addr, bytes, where, sizeof where);
    raise_address(w, inst, lane, "%s of %llu bytes at 0x%llx is out of bounds: %s",
                  is_store ? "store" : "load", (unsigned long long)bytes, (unsigned long long)addr,
                  where);
}
