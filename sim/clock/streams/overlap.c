// SPDX-License-Identifier: Apache-2.0
// Shares the chip among launches. One XCD stands for all. Its dispatcher starts a workgroup at a
// time, of the launch that comes first among those that have some left, on the unit with the fewest
// that has room.
//
// A workgroup runs as long as it did by itself while no part of the chip is asked for more than it
// has. Else those that ask for it share it by what each asks for. What a launch by itself asks for
// too much is in its workgroups' times already.
#include "overlap.h"

#include "../../look/hooks.h"

#include <math.h>
#include <stdlib.h>

/** Workgroups of a launch on a unit, which go at one pace. */
typedef struct cell {
    double done, pace; // how far they have come, in nanoseconds of the launch by itself
    double *ends;      // where their ends are on that way, in no order
    uint32_t count;
} cell;

struct sim_sharing {
    sim_sharing *next;
    sim_moment *end;
    sim_demand *demand;
    double begin;   // when its first workgroup may start; INFINITY: that is not known yet
    double started; // when it did
    double shared;  // for how long workgroups of other launches ran, too
    int priority;
    bool has_started;
    uint64_t next_group, num_running;
    cell *cells; // of the units
    double *ends;
};

struct sim_shared_unit {
    double used[SIM_NUM_LIMITS];
    uint32_t count;
};

constexpr double TINY = 1e-9; // of sums of shares

// ---- launches

/** Returns how many workgroups a unit has room for. */
static uint32_t fits(const sim_demand *d) {
    double most = TINY;
    for (int i = 0; i < SIM_NUM_LIMITS; i++)
        most = fmax(most, d->room[i]);
    return (uint32_t)fmax(1, 1 / most + TINY);
}

void sim_demand_destroy(sim_demand *demand) {
    if (demand)
        sim_look_hide(&demand->shown);
    free(demand);
}

static void destroy(sim_sharing *l) {
    free(l->cells);
    free(l->ends);
    free(l);
}

static sim_sharing *create(sim_moment *end, sim_demand *demand, int priority) {
    const uint32_t room = fits(demand);
    sim_sharing *l = calloc(1, sizeof *l);
    if (!l || !(l->cells = calloc(demand->units, sizeof *l->cells)) ||
        !(l->ends = calloc((size_t)demand->units * room, sizeof *l->ends))) {
        if (l)
            destroy(l);
        return nullptr;
    }
    for (uint32_t i = 0; i < demand->units; i++)
        l->cells[i].ends = l->ends + (size_t)i * room;
    l->end = sim_moment_keep(end);
    l->demand = demand;
    l->priority = priority;
    l->begin = INFINITY;
    return l;
}

bool sim_overlap_add(sim_overlap *o, sim_moment *end, sim_demand *demand, int priority) {
    sim_sharing *l = create(end, demand, priority), **at = &o->first;
    if (l && !o->units) {
        o->num_units = demand->units;
        o->units = calloc(o->num_units, sizeof *o->units);
    }
    if (!l || !o->units) {
        if (l) {
            sim_moment_release(l->end);
            destroy(l);
        }
        sim_demand_destroy(demand);
        return false;
    }
    while (*at && (*at)->priority <= priority)
        at = &(*at)->next;
    l->next = *at;
    *at = l;
    return true;
}

/** Ends a launch at a time. It began, for who looks at it, `launch_ns` before its first workgroup:
 *  before that it waited for room. */
static void end_launch(sim_overlap *o, sim_sharing **at, uint64_t ns) {
    sim_sharing *l = *at;
    *at = l->next;
    o->num_started -= l->has_started;
    sim_look_show(&l->demand->shown, &(sim_span){(uint64_t)l->started - l->demand->launch_ns, ns,
                                                 (uint64_t)llround(l->shared)});
    sim_moment_know(l->end, ns);
    sim_moment_release(l->end);
    sim_demand_destroy(l->demand);
    destroy(l);
}

void sim_overlap_deinit(sim_overlap *o) {
    while (o->first) {
        sim_look_hide(&o->first->demand->shown); // when it ran is not known
        end_launch(o, &o->first, 0);
    }
    free(o->units);
}

/** Finds when launches may begin whose predecessors' ends are known. */
static void find_begins(sim_overlap *o) {
    uint64_t ready;
    for (sim_sharing *l = o->first; l; l = l->next)
        if (l->begin == INFINITY && sim_moment_find_before(l->end, &ready))
            l->begin = (double)(ready + l->demand->launch_ns);
}

// ---- a launch that is alone

/** Ends the launch that begins first if none runs, and none begins before it ends. Returns whether
 *  it did. What waits for other launches than that begins later than these. */
static bool run_alone(sim_overlap *o) {
    sim_sharing **at = &o->first;
    if (o->num_started)
        return false;
    for (sim_sharing **l = at; *l; l = &(*l)->next)
        at = (*l)->begin < (*at)->begin ? l : at;
    if ((*at)->begin == INFINITY)
        return false;
    const sim_demand *d = (*at)->demand;
    const double begin = fmax((*at)->begin, o->now); // it may have waited for room
    const double end = begin - (double)d->launch_ns + (double)d->ns;
    for (const sim_sharing *l = o->first; l; l = l->next)
        if (l != *at && l->begin < end)
            return false;
    o->now = end;
    (*at)->started = begin;
    end_launch(o, at, (uint64_t)end);
    return true;
}

// ---- places

static bool has_room(const sim_shared_unit *unit, const sim_demand *d) {
    for (int i = 0; i < SIM_NUM_LIMITS; i++)
        if (unit->used[i] + d->room[i] > 1 + TINY)
            return false;
    return true;
}

/** Returns the unit for a workgroup, or num_units. */
static uint32_t find_unit(const sim_overlap *o, const sim_demand *d) {
    uint32_t best = o->num_units;
    for (uint32_t i = 0; i < o->num_units; i++) {
        const uint32_t u = (o->next_unit + i) % o->num_units;
        if ((best == o->num_units || o->units[u].count < o->units[best].count) &&
            has_room(&o->units[u], d))
            best = u;
    }
    return best;
}

static void take_room(sim_shared_unit *unit, const sim_demand *d, int sign) {
    for (int i = 0; i < SIM_NUM_LIMITS; i++)
        unit->used[i] += sign * d->room[i];
    unit->count += (uint32_t)sign;
}

/** Returns how long a workgroup runs by itself. */
static double span_of(const sim_demand *d, uint64_t group) {
    const uint64_t known = SIM_ROUNDS * d->round, left = d->groups - group;
    if (d->num_spans == d->groups || group < known)
        return d->spans[group];
    if (left <= d->num_spans - known)
        return d->spans[d->num_spans - left];
    return d->spans[d->round + (group - known) % (known - d->round)];
}

/** Starts a workgroup if one has room. Returns whether it did. */
static bool start_group(sim_overlap *o, sim_sharing *l) {
    const sim_demand *d = l->demand;
    const uint32_t u = l->next_group < d->groups ? find_unit(o, d) : o->num_units;
    if (u == o->num_units)
        return false;
    cell *c = &l->cells[u];
    c->ends[c->count++] = c->done + span_of(d, l->next_group++);
    take_room(&o->units[u], d, 1);
    o->next_unit = (u + 1) % o->num_units;
    o->dispatch_free = o->now + d->start_ns;
    if (!l->has_started)
        l->started = o->now;
    o->num_started += !l->has_started;
    l->has_started = true;
    l->num_running++;
    return true;
}

static void start_groups(sim_overlap *o) {
    bool any = true;
    while (any && o->dispatch_free <= o->now) {
        any = false;
        for (sim_sharing *l = o->first; l && !any; l = l->next)
            any = l->begin <= o->now && start_group(o, l);
    }
}

// ---- paces

static double ask_unit(const sim_sharing *l, uint32_t unit, int part) {
    return l->cells[unit].count * l->demand->busy[part];
}

static double ask_chip(const sim_sharing *l, int part) {
    return (double)l->num_running * l->demand->busy[part];
}

/** Returns the pace at which a launch gets on that asks for `own` of a part, of which all launches
 *  ask for `all`. */
static double pace_of(double own, double all) {
    return fmax(own, 1) / fmax(all, 1);
}

/** Returns the pace of a launch as parts that all units share allow. */
static double chip_pace(const sim_overlap *o, const sim_sharing *l) {
    double pace = 1;
    for (int part = SIM_PART_L2; part < SIM_NUM_PARTS; part++) {
        double all = 0;
        for (const sim_sharing *other = o->first; other; other = other->next)
            all += ask_chip(other, part);
        const double one = pace_of(ask_chip(l, part), all);
        pace = fmin(pace, part == SIM_PART_POWER ? pow(one, l->demand->power_root) : one);
    }
    return pace;
}

static double unit_pace(const sim_overlap *o, const sim_sharing *l, uint32_t unit) {
    double pace = 1;
    for (int part = 0; part < SIM_PART_L2; part++) {
        double all = 0;
        for (const sim_sharing *other = o->first; other; other = other->next)
            all += ask_unit(other, unit, part);
        pace = fmin(pace, pace_of(ask_unit(l, unit, part), all));
    }
    return pace;
}

static void find_paces(const sim_overlap *o) {
    for (sim_sharing *l = o->first; l; l = l->next) {
        const double pace = l->num_running ? chip_pace(o, l) : 1;
        for (uint32_t u = 0; l->num_running && u < o->num_units; u++)
            if (l->cells[u].count)
                l->cells[u].pace = fmin(pace, unit_pace(o, l, u));
    }
}

// ---- time

static double first_end(const cell *c) {
    double first = INFINITY;
    for (uint32_t i = 0; i < c->count; i++)
        first = fmin(first, c->ends[i]);
    return first;
}

static bool waits_for_room(const sim_overlap *o) {
    for (const sim_sharing *l = o->first; l; l = l->next)
        if (l->begin <= o->now && l->next_group < l->demand->groups)
            return true;
    return false;
}

/** Returns when something happens next. */
static double next_time(const sim_overlap *o) {
    double next = INFINITY;
    if (o->dispatch_free > o->now && waits_for_room(o))
        next = o->dispatch_free;
    for (const sim_sharing *l = o->first; l; l = l->next) {
        next = l->begin > o->now ? fmin(next, l->begin) : next;
        for (uint32_t u = 0; l->num_running && u < o->num_units; u++) {
            const cell *c = &l->cells[u];
            if (c->count)
                next = fmin(next, o->now + (first_end(c) - c->done) / c->pace);
        }
    }
    return next;
}

/** Moves a cell on. Workgroups whose end it has reached, but for rounding, leave. */
static void move(sim_overlap *o, sim_sharing *l, uint32_t unit, double ns) {
    cell *c = &l->cells[unit];
    c->done += ns * c->pace;
    for (uint32_t i = c->count; i-- > 0;) {
        if (c->ends[i] > c->done + 1e-6)
            continue;
        c->ends[i] = c->ends[--c->count];
        take_room(&o->units[unit], l->demand, -1);
        l->num_running--;
    }
}

static void move_all(sim_overlap *o, double to) {
    const uint32_t num_started = o->num_started;
    sim_sharing **at = &o->first;
    while (*at) {
        sim_sharing *l = *at;
        l->shared += l->has_started && num_started > 1 ? to - o->now : 0;
        for (uint32_t u = 0; l->num_running && u < o->num_units; u++)
            if (l->cells[u].count)
                move(o, l, u, to - o->now);
        if (l->has_started && !l->num_running && l->next_group == l->demand->groups)
            end_launch(o, at, (uint64_t)llround(to + l->demand->tail_ns));
        else
            at = &l->next;
    }
    o->now = to;
}

/** Goes on to when something happens next. Returns false if nothing will. */
static bool run_on(sim_overlap *o) {
    find_begins(o);
    if (run_alone(o))
        return true;
    start_groups(o);
    find_paces(o);
    const double next = next_time(o);
    if (next < INFINITY)
        move_all(o, next);
    return next < INFINITY;
}

void sim_overlap_run(sim_overlap *o, sim_moment *until) {
    uint64_t ns;
    while (!sim_moment_find(until, &ns) && o->first && run_on(o)) {
    }
}

void sim_overlap_finish(sim_overlap *o) {
    while (o->first && run_on(o)) {
    }
}
