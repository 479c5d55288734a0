// SPDX-License-Identifier: Apache-2.0
// The run loop of a wave that an observer follows, and the facts that are gathered for each
// instruction.
#include "look.h"

#include "../check/hooks.h"
#include "../clock/timeline.h"
#include "../isa/decode.h"
#include "hooks.h"

#include <stdlib.h>

static const sim_observer *const observers[] = {&sim_tracer, &sim_profiler, &sim_timer};

static_assert(sizeof observers / sizeof *observers == SIM_MAX_OBSERVERS);

/** What a workgroup has: the facts of the instruction that runs, and each observer's own
 *  memory. */
struct sim_look {
    sim_facts facts;
    void *of_group[SIM_MAX_OBSERVERS]; // null: of no interest to this observer
    _Alignas(64) uint8_t memory[];
};

// ---- dispatches and workgroups

void sim_look_begin_dispatch(sim_dispatch *d) {
    for (size_t i = 0; i < SIM_MAX_OBSERVERS; i++) {
        d->observed[i] = observers[i]->begin_dispatch(d);
        d->is_observed |= d->observed[i] != nullptr;
    }
}

void sim_look_end_dispatch(sim_dispatch *d) {
    for (size_t i = 0; d->is_observed && i < SIM_MAX_OBSERVERS; i++)
        if (d->observed[i])
            observers[i]->end_dispatch(d->observed[i], d);
}

static size_t round_up(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/** Asks each observer how much memory it wants. Returns the sum. */
static size_t count_bytes(const sim_workgroup *group, size_t bytes[SIM_MAX_OBSERVERS]) {
    size_t total = 0;
    for (size_t i = 0; i < SIM_MAX_OBSERVERS; i++) {
        const bool follows = !group->dispatch->is_rehearsal || observers[i] == &sim_timer;
        void *of_dispatch = follows ? group->dispatch->observed[i] : nullptr;
        bytes[i] = of_dispatch ? round_up(observers[i]->group_bytes(of_dispatch, group)) : 0;
        total += bytes[i];
    }
    return total;
}

bool sim_look_begin(sim_workgroup *group) {
    size_t bytes[SIM_MAX_OBSERVERS];
    const size_t total = group->dispatch->is_observed ? count_bytes(group, bytes) : 0;
    if (!total)
        return true;
    struct sim_look *look = aligned_alloc(64, round_up(sizeof *look) + total);
    if (!look)
        return false;
    __builtin_memset(look, 0, round_up(sizeof *look) + total);
    uint8_t *at = look->memory;
    for (size_t i = 0; i < SIM_MAX_OBSERVERS; at += bytes[i++]) {
        if (bytes[i]) {
            look->of_group[i] = at;
            observers[i]->begin_group(group->dispatch->observed[i], at, group);
        }
    }
    group->look = look;
    for (uint32_t i = 0; i < group->num_waves; i++)
        group->waves[i].look = look;
    return true;
}

void sim_look_end(sim_workgroup *group) {
    struct sim_look *look = group->look;
    for (size_t i = 0; look && i < SIM_MAX_OBSERVERS; i++)
        if (look->of_group[i])
            observers[i]->end_group(group->dispatch->observed[i], look->of_group[i], group);
    free(look);
    group->look = nullptr;
}

void sim_look_show(sim_shown *shown, const sim_span *span) {
    sim_timeline_show(shown, span);
    sim_profile_show(shown, span);
    sim_look_hide(shown);
}

void sim_look_hide(sim_shown *shown) {
    sim_timeline_destroy(shown->timeline);
    *shown = (sim_shown){};
}

// ---- facts

static void begin_facts(sim_facts *f, const sim_wave *w, const sim_inst *inst) {
    f->inst = inst;
    f->exec = w->exec;
    f->is_issued = true;
    if (w->mode & SIM_MODE_SPECIAL) [[clang::unlikely]] {
        sim_inst copy = *inst;
        f->is_issued = sim_is_issued(w, &copy);
    }
    f->num_lds = 0;
    f->scalar_bytes = 0;
    f->memory.mask = f->scratch.mask = f->lds[0].mask = f->lds[1].mask = 0;
}

/** Adds bytes to a lane's access. Parts of one access lie side by side. */
static void touch_lane(sim_touch *t, int lane, uint64_t address, uint32_t bytes) {
    uint64_t first = address, end = address + bytes;
    if (t->mask >> lane & 1) {
        const uint64_t old_end = t->address[lane] + t->bytes[lane];
        first = t->address[lane] < first ? t->address[lane] : first;
        end = old_end > end ? old_end : end;
    }
    t->mask |= UINT64_C(1) << lane;
    t->address[lane] = first;
    t->bytes[lane] = end - first < SIM_MAX_TOUCH ? (uint8_t)(end - first) : SIM_MAX_TOUCH;
}

void sim_look_memory_lane(sim_wave *w, int lane, uint64_t address, uint32_t bytes) {
    touch_lane(&w->look->facts.memory, lane, address, bytes);
}

void sim_look_memory(sim_wave *w, const uint64_t address[SIM_LANES], uint64_t mask,
                     uint32_t bytes) {
    for (uint64_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        touch_lane(&w->look->facts.memory, lane, address[lane], bytes);
    }
}

void sim_look_scratch_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes) {
    touch_lane(&w->look->facts.scratch, lane, offset, bytes);
}

void sim_look_lds_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes) {
    w->look->facts.num_lds = 1;
    touch_lane(&w->look->facts.lds[0], lane, offset, bytes);
}

void sim_look_lds(sim_wave *w, uint8_t *const lane_address[SIM_LANES], uint64_t mask,
                  uint32_t bytes) {
    sim_facts *f = &w->look->facts;
    if (f->num_lds == SIM_MAX_LDS_TOUCHES)
        return;
    sim_touch *t = &f->lds[f->num_lds++];
    for (uint64_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        touch_lane(t, lane, (uint64_t)(lane_address[lane] - w->group->lds), bytes);
    }
}

void sim_look_scalar(sim_wave *w, uint64_t address, uint32_t bytes) {
    w->look->facts.scalar_address = address;
    w->look->facts.scalar_bytes = bytes;
}

// ---- the loop

uint32_t sim_look_run(sim_wave *w, uint32_t slice) {
    const sim_text *text = w->group->dispatch->text;
    struct sim_look *look = w->look;
    uint32_t n = 0;
    while (n < slice && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, text, w->pc);
        if (!inst)
            break;
        begin_facts(&look->facts, w, inst);
        if (!(w->shadow ? sim_check_run(w, 1) : sim_wave_slice(w, 1)))
            break;
        n++;
        for (size_t i = 0; i < SIM_MAX_OBSERVERS; i++)
            if (look->of_group[i])
                observers[i]->step(look->of_group[i], w, &look->facts);
    }
    return n;
}

// ---- the process

bool sim_look_configure(const sim_look_options *options, char *error, size_t error_bytes) {
    return sim_trace_configure(options, error, error_bytes) &&
           sim_profile_configure(options, error, error_bytes) &&
           sim_timeline_configure(options, error, error_bytes);
}

void sim_look_finish(void) {
    sim_trace_finish();
    sim_profile_finish();
    sim_timeline_finish();
}

void sim_look_fork_prepare(void) {
    sim_trace_fork_prepare();
    sim_profile_fork_prepare();
    sim_timeline_fork_prepare();
}

void sim_look_fork_parent(void) {
    sim_trace_fork_parent();
    sim_profile_fork_parent();
    sim_timeline_fork_parent();
}

void sim_look_fork_child(void) {
    sim_trace_fork_child();
    sim_profile_fork_child();
    sim_timeline_fork_child();
}
