// SPDX-License-Identifier: Apache-2.0
// How long workgroups are, in instructions. The first, the middle and the last of a launch run
// untimed to their ends. If they differ, a few more do.
//
// What makes workgroups of one kernel differ is how often they go round a loop, and a scalar
// register holds what that follows from: a count, a bound, or an index that the bound is made of.
// So all workgroups run up to where they first come to the end of the loop in which the first ones
// spent most, and that scalar register is looked for which says, by a straight line, how long those
// are that ran to their ends. Some of these the line is not drawn through but has to meet.
#include "lengths.h"

#include "../isa/decode.h"
#include "../look/hooks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_INSTS = 1 << 28,     // of a workgroup
    MOST_BEGINNING = 1 << 19, // of a workgroup, before it comes to the end of the loop
    LEAST_UNEVEN = 8192,      // of a wave of some of them, where workgroups differ
    MOST_GROUPS = 1 << 15,    // of a launch whose workgroups differ
    TURN = 64,                // instructions of a wave, before the next wave's turn
    NUM_SCALARS = 106,
};
constexpr double ALIKE = 0.01; // as a share

/** The workgroups that run to their ends, as shares of a launch: the line goes through the first
 *  ones, and has to meet the others. They are at no even distance, since lengths may repeat at
 *  one. */
static const double where[] = {0, 0.5, 1, 0.618, 0.236, 0.854, 0.472};
enum { NUM_FIRST = 3, NUM_RUN = sizeof where / sizeof *where, NUM_DRAWN = 5 };

/** How often, and by how many bytes in sum, first waves jumped back at an instruction. */
typedef struct jumps {
    uint64_t count, bytes;
} jumps;

/** A workgroup that runs untimed. */
typedef struct course {
    jumps *jumps;     // by instruction; null: nobody asks
    uint64_t stop;    // address at which the run is over if the first wave comes there; 0: none
    uint64_t most;    // instructions
    uint64_t insts;   // that it executed
    bool has_stopped; // at `stop`
    int32_t scalars[NUM_SCALARS]; // then
} course;

typedef struct run {
    sim_machine *m;
    sim_worker worker;
    jumps *jumps;
    uint64_t loop_end; // address of the branch at the end of the loop
    uint64_t trips;    // round it, of the first waves of those that ran to their ends
    uint64_t ids[NUM_RUN], lengths[NUM_RUN];
    course begun[NUM_RUN]; // the same workgroups up to the end of the loop
    int scalar;            // the register that says a length: offset + each * its value
    double offset, each;
} run;

// ---- one workgroup

static void note_jump(const sim_wave *w, const sim_inst *inst, course *c) {
    const uint64_t start = w->group->dispatch->text->start;
    if (!c->jumps || w->index || inst->traits.unit != SIM_UNIT_BRANCH || w->pc >= inst->pc)
        return;
    jumps *at = &c->jumps[(inst->pc - start) / 4];
    at->count++;
    at->bytes += inst->pc - w->pc;
}

/** Notes whether a wave has come to where the run is over. */
static bool stops(const sim_wave *w, course *c) {
    if (w->index || !c->stop || w->pc != c->stop)
        return false;
    memcpy(c->scalars, w->s, sizeof c->scalars);
    return c->has_stopped = true;
}

/** Runs a wave for a turn. Returns false if it does what must not be done twice, or wrong. */
static bool run_turn(sim_wave *w, course *c) {
    for (int i = 0; i < TURN && w->state == SIM_RUNNING && !stops(w, c); i++, c->insts++) {
        const sim_inst *inst = sim_fetch(w, w->group->dispatch->text, w->pc);
        const sim_traits *t = inst ? &inst->traits : nullptr;
        const bool is_own = t && (t->unit == SIM_UNIT_LDS || t->addressing == SIM_SCRATCH);
        if (!t || (!is_own && (t->access == SIM_ACCESS_ATOMIC || t->scope == SIM_SCOPE_SOME)))
            return false;
        sim_wave_slice(w, 1);
        note_jump(w, inst, c);
    }
    return w->state != SIM_FAULTED;
}

/** Runs each wave of a workgroup for a turn. */
static bool run_turns(sim_workgroup *group, course *c) {
    for (uint32_t i = 0; i < group->num_waves && !c->has_stopped; i++) {
        sim_wave *w = &group->waves[i];
        if (w->state == SIM_AT_BARRIER && w->num_waits && sim_barrier_is_complete(w))
            w->state = SIM_RUNNING;
        if (!run_turn(w, c))
            return false;
    }
    return true;
}

static uint32_t count_waves(const sim_workgroup *group, sim_wave_state state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->num_waves; i++)
        count += group->waves[i].state == state;
    return count;
}

/** Runs a workgroup. Returns false if that cannot be done, or if it is too long. */
static bool run_course(run *r, uint64_t flat_id, course *c) {
    sim_dispatch *d = r->m->dispatch;
    sim_workgroup group;
    if (!sim_group_begin(&group, d, &r->worker, flat_id))
        return false;
    bool ok = true;
    while (ok && !c->has_stopped && count_waves(&group, SIM_ENDED) < group.num_waves) {
        ok = run_turns(&group, c) && c->insts < c->most && !atomic_load(&d->stop);
        const bool is_quiet = !c->has_stopped && !count_waves(&group, SIM_RUNNING);
        if (ok && is_quiet && count_waves(&group, SIM_AT_BARRIER))
            ok = sim_group_release(&group);
    }
    sim_look_end(&group);
    return ok;
}

// ---- some to their ends

/** Returns a workgroup's instructions; 0 if they cannot be told. */
static uint64_t count_insts(run *r, uint64_t flat_id) {
    course c = {.jumps = r->jumps, .most = MOST_INSTS};
    return run_course(r, flat_id, &c) ? c.insts : 0;
}

static bool count_some(run *r, int from, int to) {
    const uint64_t last = sim_dispatch_groups(r->m->dispatch) - 1;
    for (int i = from; i < to; i++) {
        r->ids[i] = (uint64_t)(where[i] * (double)last + 0.5);
        if (!(r->lengths[i] = count_insts(r, r->ids[i])))
            return false;
    }
    return true;
}

static bool is_alike(uint64_t one, double other) {
    return fabs((double)one - other) <= ALIKE * (double)one;
}

// ---- all, from a register

static void find_loop(run *r) {
    const sim_text *text = r->m->dispatch->text;
    uint64_t most = 0;
    for (uint64_t i = 0; i < text->size / 4; i++) {
        if (r->jumps[i].bytes > most) {
            most = r->jumps[i].bytes;
            r->trips = r->jumps[i].count;
            r->loop_end = text->start + 4 * i;
        }
    }
}

static bool begin(run *r, uint64_t flat_id, course *c) {
    *c = (course){.stop = r->loop_end, .most = MOST_BEGINNING};
    return r->loop_end && run_course(r, flat_id, c);
}

/** Draws the line of a register, by least squares. Returns the largest share by which it misses a
 *  workgroup; infinity if there is no line. */
static double draw(run *r, int scalar) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, miss = 0;
    for (int i = 0; i < NUM_DRAWN; i++) {
        if (!r->begun[i].has_stopped)
            continue;
        const double at = r->begun[i].scalars[scalar], length = (double)r->lengths[i];
        n++, x += at, y += length, xx += at * at, xy += at * length;
    }
    const double var = n * xx - x * x;
    if (n < (double)NUM_FIRST || var <= 0)
        return INFINITY;
    r->scalar = scalar;
    r->each = (n * xy - x * y) / var;
    r->offset = (y - r->each * x) / n;
    for (int i = 0; i < NUM_DRAWN; i++) {
        const double says = r->offset + r->each * r->begun[i].scalars[scalar];
        if (r->begun[i].has_stopped)
            miss = fmax(miss, fabs(says / (double)r->lengths[i] - 1));
    }
    return miss;
}

/** Returns what the line says of a workgroup that has begun; 0 if that is no length. */
static uint64_t length_of(const run *r, const course *c) {
    const double says = r->offset + r->each * c->scalars[r->scalar];
    return !c->has_stopped                                         ? c->insts
           : says >= (double)c->insts && says < (double)MOST_INSTS ? (uint64_t)says
                                                                   : 0;
}

/** Finds the register whose line misses least. Returns whether it meets all that have run. */
static bool find_line(run *r) {
    double least = INFINITY;
    int best = 0;
    for (int i = 0; i < NUM_RUN; i++)
        if (!begin(r, r->ids[i], &r->begun[i]))
            return false;
    for (int i = 0; i < NUM_SCALARS; i++) {
        const double miss = draw(r, i);
        best = miss < least ? i : best;
        least = fmin(least, miss);
    }
    if (draw(r, best) > ALIKE)
        return false;
    for (int i = NUM_DRAWN; i < NUM_RUN; i++)
        if (!is_alike(r->lengths[i], (double)length_of(r, &r->begun[i])))
            return false;
    return true;
}

static uint64_t *find_all(run *r) {
    const uint64_t count = sim_dispatch_groups(r->m->dispatch);
    uint64_t *of = calloc(count, sizeof *of);
    bool ok = of;
    for (uint64_t i = 0; ok && i < count; i++) {
        course c;
        ok = begin(r, i, &c) && (of[i] = length_of(r, &c));
    }
    if (ok)
        return of;
    free(of);
    return nullptr;
}

/** Returns the longest beginning of those that ran to their ends. */
static uint64_t find_begin(const run *r) {
    uint64_t most = 0;
    for (int i = 0; i < NUM_RUN; i++)
        most = sim_later(most, r->begun[i].insts);
    return most;
}

static uint64_t find_trip(const run *r) {
    uint64_t insts = 0;
    for (int i = 0; i < NUM_RUN; i++)
        insts += r->lengths[i] - r->begun[i].insts;
    return insts / r->trips;
}

static sim_lengths find(run *r, uint64_t least) {
    const uint64_t waves = r->m->waves_per_group, *have = r->lengths;
    uint64_t longest = 0;
    bool alike = true;
    if (!r->jumps || !count_some(r, 0, NUM_FIRST))
        return (sim_lengths){};
    for (int i = 0; i < NUM_FIRST; i++) {
        alike &= is_alike(have[0], (double)have[i]);
        longest = sim_later(longest, have[i]);
    }
    if (alike)
        return (sim_lengths){.alike = have[0] < least * waves ? 0 : have[0]};
    if (longest < (uint64_t)LEAST_UNEVEN * waves ||
        sim_dispatch_groups(r->m->dispatch) > MOST_GROUPS || !count_some(r, NUM_FIRST, NUM_RUN))
        return (sim_lengths){};
    find_loop(r);
    if (!find_line(r))
        return (sim_lengths){};
    return (sim_lengths){.of = find_all(r), .begin = find_begin(r), .trip = find_trip(r)};
}

sim_lengths sim_lengths_find(sim_machine *m, uint64_t least) {
    sim_dispatch *d = m->dispatch;
    const uint32_t check = d->check;
    const bool is_observed = d->is_observed;
    run r = {.m = m, .jumps = calloc(m->num_insts + 1, sizeof *r.jumps)};
    sim_lengths out = {};
    d->check = 0;
    d->is_observed = false;
    if (sim_group_reserve(d, &r.worker))
        out = find(&r, least);
    d->is_observed = is_observed;
    d->check = check;
    sim_worker_deinit(&r.worker);
    free(r.jumps);
    return out;
}
