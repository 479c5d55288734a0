// SPDX-License-Identifier: Apache-2.0
// The checking run loop, and the checker's state when a workgroup starts and when it meets at a
// barrier.
#include "../isa/decode.h"
#include "check.h"
#include "hooks.h"

#include <string.h>

static size_t round_up(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

enum { BYTES_OF_WORD = 4 }; // each may get a cell

static size_t num_words(size_t lds_bytes) {
    return (lds_bytes + 3) / 4;
}

size_t sim_check_bytes(uint32_t check, size_t num_waves, size_t lds_bytes) {
    if (!(check & SIM_CHECK_SHADOW))
        return 0;
    return round_up(sizeof(struct sim_group_shadow)) +
           round_up(num_waves * sizeof(struct sim_shadow)) +
           round_up(num_words(lds_bytes) * BYTES_OF_WORD * sizeof(sim_cell));
}

// ---- a wave's first registers

static void set_defined(struct sim_shadow *s, unsigned first, unsigned count) {
    for (unsigned reg = first; reg < first + count; reg++)
        s->undefined[reg / 64] &= ~(UINT64_C(1) << reg % 64);
}

/** Marks the registers that hold nothing yet: all but those of init_wave and those that the system
 *  owns. Lanes that do not exist have no registers to read. */
static void begin_registers(struct sim_shadow *s, const sim_wave *w) {
    const sim_dispatch *d = w->group->dispatch;
    const uint32_t rsrc2 = d->kernel->rsrc2, users = rsrc2 >> 1 & 31;
    uint32_t system =
        (rsrc2 & 1) + (rsrc2 >> 7 & 1) + (rsrc2 >> 8 & 1) + (rsrc2 >> 9 & 1) + (rsrc2 >> 10 & 1);
    memset(s->undefined, 0xff, sizeof s->undefined);
    for (unsigned reg = 0; reg < SIM_NUM_REGS; reg++) {
        s->undefined_lanes[reg] = reg < SIM_REG_SCALAR ? w->exec : UINT64_MAX;
        s->origin[reg] = (uint16_t)reg;
    }
    set_defined(s, 0, 1);       // the work-item's ids
    if (d->chip->gfx_major > 9) // the upper half does not exist; dual.c uses it
        set_defined(s, 256, 256);
    if (w->wave32) // branches on VCC look at its lower half alone
        set_defined(s, SIM_REG_SCALAR + 107, 1);
    set_defined(s, SIM_REG_SCALAR, users + system);
    set_defined(s, SIM_REG_SCALAR + 108, SIM_REG_SCC + 1 - SIM_REG_SCALAR - 108); // TTMPs to SCC
    if (d->chip->gfx_major == 9)
        set_defined(s, SIM_REG_SCALAR + 102, 4); // FLAT_SCRATCH, XNACK_MASK
}

static void begin_wave(struct sim_shadow *s, sim_wave *w) {
    s->epoch = 1;
    memset(s->issued, 0, sizeof s->issued);
    memset(s->done, 0, sizeof s->done);
    memset(s->done_at_barrier, 0, sizeof s->done_at_barrier);
    memset(s->pending, 0, sizeof s->pending);
    memset(s->late, 0, sizeof s->late);
    s->num_late = 0;
    s->num_unwritten = 0;
    s->released = s->acquired = 0;
    s->has_stored = false;
    begin_registers(s, w);
    w->shadow = s;
    if (w->group->dispatch->chip->gfx_major == 9) // no other chip's instructions have wait states
        sim_hazards_begin(w);
}

void sim_check_begin(sim_workgroup *group, void *memory) {
    const sim_dispatch *d = group->dispatch;
    if (!(d->check & SIM_CHECK_SHADOW))
        return;
    uint8_t *at = memory;
    struct sim_group_shadow *shadow = (void *)at;
    at += round_up(sizeof *shadow);
    struct sim_shadow *waves = (void *)at;
    at += round_up(group->num_waves * sizeof *waves);
    shadow->num_late = 0;
    shadow->has_holes = false;
    shadow->acquired = 0;
    shadow->lds_sync = 0;
    shadow->has_later = false;
    shadow->later.num_doubts = shadow->num_doubts = 0;
    shadow->later.is_locked = false;
    shadow->cells = (void *)at;
    shadow->parts = shadow->cells + num_words(d->lds_bytes);
    memset(shadow->cells, 0, num_words(d->lds_bytes) * sizeof(sim_cell));
    for (uint32_t i = 0; i < group->num_waves; i++)
        begin_wave(&waves[i], &group->waves[i]);
    group->shadow = shadow;
}

// ---- calls from exec/

void sim_check_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                      uint8_t *const *host, uint64_t mask, uint32_t bytes) {
    if (w->group->dispatch->check & SIM_CHECK_UNINIT)
        sim_unwritten_memory(w, inst, address, mask, bytes);
    sim_race_memory(w, inst, address, host, mask, bytes);
}

// ---- the loop

/** Signals a barrier. What the wave has waited for and acquired holds for all waves that go on
 *  behind the barrier. They may go on before this wave does, as a split barrier (gfx12) needs only
 *  its signal. */
static void signal_barrier(sim_wave *w) {
    struct sim_shadow *s = w->shadow;
    sim_race_barrier(w);
    memcpy(s->done_at_barrier, s->done, sizeof s->done);
}

/** Checks an instruction as it will run: GPR indexing displaces its registers, and VSKIP skips it.
 *  In these modes wait states are not counted. */
static bool check(sim_wave *w, const sim_inst *inst) {
    if (!(w->mode & SIM_MODE_SPECIAL)) [[clang::likely]] {
        if (inst->traits.wait_states && (w->group->dispatch->check & SIM_CHECK_WAIT))
            sim_check_hazards(w, inst);
        return sim_check_registers(w, inst);
    }
    sim_inst copy = *inst;
    return !sim_is_issued(w, &copy) || sim_check_registers(w, &copy);
}

uint32_t sim_check_run(sim_wave *w, uint32_t slice) {
    const sim_text *text = w->group->dispatch->text;
    struct sim_group_shadow *group = w->group->shadow;
    uint32_t n = 0;
    while (n < slice && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, text, w->pc);
        if (!inst || !check(w, inst))
            break;
        n++;
        w->pc = inst->pc + inst->bytes;
        w->counters[inst->opcode->klass]++;
        if (w->mode & SIM_MODE_SPECIAL) [[clang::unlikely]]
            sim_exec_special(w, inst);
        else
            inst->exec(w, inst);
        if (inst->traits.is & SIM_SIGNALS) [[clang::unlikely]]
            signal_barrier(w);
        if (inst->traits.is & SIM_AWAITS) [[clang::unlikely]]
            w->shadow->epoch++;
        if (group->num_doubts) [[clang::unlikely]]
            sim_check_doubts(w, inst);
        if (group->has_later) [[clang::unlikely]] {
            group->has_later = false;
            sim_race_after(w, inst);
        }
    }
    if (w->state == SIM_ENDED) { // an ended wave has nothing on its way
        memcpy(w->shadow->done, w->shadow->issued, sizeof w->shadow->issued);
        memcpy(w->shadow->done_at_barrier, w->shadow->issued, sizeof w->shadow->issued);
        sim_check_arrivals_in_lds(w);
    }
    return n;
}
