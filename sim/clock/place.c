// SPDX-License-Identifier: Apache-2.0
// Which workgroup runs where: workgroups go to XCDs in turn; an XCD starts the next one on the
// unit that has the fewest, and a unit gives each wave to the SIMD that has the fewest.
#include "machine.h"
#include "timeline.h"

#include <stdlib.h>

static sim_group_unit *find_unit(sim_xcd *xcd) {
    sim_machine *m = xcd->machine;
    sim_group_unit *best = nullptr;
    for (uint32_t i = 0; i < m->units_per_xcd; i++) {
        sim_group_unit *unit = &xcd->units[(xcd->next_unit + i) % m->units_per_xcd];
        if (unit->num_residents < m->occupancy &&
            (!best || unit->num_residents < best->num_residents))
            best = unit;
    }
    if (best)
        xcd->next_unit = (best->index + 1) % m->units_per_xcd;
    return best;
}

static sim_resident *make_resident(sim_machine *m, uint32_t num_waves) {
    sim_resident *r = calloc(1, sizeof *r);
    if (r && !(r->places = calloc(num_waves, sizeof *r->places))) {
        free(r);
        r = nullptr;
    }
    m->is_out_of_memory |= !r;
    if (r) {
        r->made = m->made;
        m->made = r;
    }
    return r;
}

static sim_resident *take_resident(sim_machine *m) {
    sim_resident *r = m->idle;
    if (r)
        m->idle = r->next;
    return r ? r : make_resident(m, m->waves_per_group);
}

/** Gives a wave a place on the SIMD that has the fewest waves. */
static void seat(sim_machine *m, sim_resident *r, uint32_t index, uint64_t ready) {
    uint32_t simd = index % m->simds;
    for (uint32_t i = 0; i < m->simds; i++)
        if (r->unit->simds[i].num_waves < r->unit->simds[simd].num_waves)
            simd = i;
    sim_simd *s = &r->unit->simds[simd];
    uint8_t place = 0;
    while (s->waves[place].wave)
        place++;
    s->waves[place] = (sim_timed_wave){.wave = &r->group.waves[index],
                                       .resident = r,
                                       .began = ready,
                                       .ready = ready,
                                       .fetched = SIM_NEVER,
                                       .results = s->results ? &s->results[place] : nullptr,
                                       .reason = SIM_SPENT_IDLE};
    if (s->results)
        s->results[place] = (sim_results){};
    if (m->timeline)
        sim_timeline_enter(m->timeline, r->unit, simd, &s->waves[place]);
    s->order[s->num_waves++] = place;
    r->places[index] = (struct sim_seat){(uint8_t)simd, place};
    sim_wake(m, r->unit, simd, ready);
}

static bool start(sim_xcd *xcd, sim_group_unit *unit, uint64_t tick) {
    sim_machine *m = xcd->machine;
    sim_resident *r = take_resident(m);
    if (!r || !sim_group_reserve(m->dispatch, &r->worker))
        return false;
    r->number = xcd->next_group++;
    const uint64_t flat_id = r->number * m->chip->num_xccs + xcd->index;
    if (!sim_group_begin(&r->group, m->dispatch, &r->worker, flat_id))
        return false;
    xcd->dispatch_free = sim_later(xcd->dispatch_free, tick) + sim_ticks(m->timing->group_cycles);
    r->began = xcd->dispatch_free;
    r->unit = unit;
    r->num_left = r->group.num_waves;
    r->signalled = 0;
    unit->num_residents++;
    for (uint32_t i = 0; i < r->group.num_waves; i++)
        seat(m, r, i, xcd->dispatch_free + sim_ticks(m->timing->wave_cycles));
    return true;
}

void sim_start_groups(sim_xcd *xcd, uint64_t tick) {
    sim_group_unit *unit;
    while (xcd->next_group < xcd->num_groups && (unit = find_unit(xcd)))
        if (!start(xcd, unit, tick))
            return;
}

static void take_off(sim_simd *s, const sim_timed_wave *w) {
    const uint8_t place = (uint8_t)(w - s->waves);
    uint32_t at = 0;
    while (s->order[at] != place)
        at++;
    s->num_waves--;
    for (; at < s->num_waves; at++)
        s->order[at] = s->order[at + 1];
    s->waves[place].wave = nullptr;
}

/** Takes the waves of a SIMD off it. */
static void clear_simd(sim_machine *m, sim_simd *s, uint64_t tick) {
    for (uint32_t i = 0; i < s->num_waves; i++) {
        sim_timed_wave *w = &s->waves[s->order[i]];
        m->wave_ticks += tick > w->began ? tick - w->began : 0;
        w->wave = nullptr;
    }
    s->num_waves = 0;
    s->next = SIM_NEVER;
}

/** Leaves a SIMD without waves from a tick on. */
static void idle(sim_machine *m, sim_simd *s, uint64_t tick) {
    sim_count_time(m, s, tick);
    s->waits = SIM_SPENT_IDLE;
    s->waits_at = m->num_insts;
}

void sim_drop_groups(sim_machine *m, uint64_t tick) {
    for (sim_resident *r = m->made; r; r = r->made) {
        if (!r->num_left)
            continue;
        for (uint32_t i = 0; i < m->simds; i++)
            clear_simd(m, &r->unit->simds[i], tick);
        sim_group_end(&r->group);
        r->num_left = r->unit->num_residents = 0;
        r->next = m->idle;
        m->idle = r;
    }
    for (uint32_t x = 0; x < m->num_xcds; x++)
        for (uint32_t u = 0; u < m->units_per_xcd; u++)
            for (uint32_t i = 0; i < m->simds; i++)
                idle(m, &m->xcds[x].units[u].simds[i], tick);
    m->heap_count = 0;
    m->last = sim_later(m->last, tick);
}

static void note_span(sim_machine *m, const sim_resident *r, uint64_t tick) {
    m->spans[r->number] = tick - r->began;
    m->last_end = tick;
}

void sim_leave(sim_machine *m, sim_simd *simd, sim_timed_wave *w, uint64_t tick) {
    sim_resident *r = w->resident;
    for (int i = 0; i < SIM_NUM_STREAMS; i++)
        m->last = sim_later(m->last, w->last[i]);
    m->last = sim_later(m->last, tick + sim_ticks(m->timing->issue_cycles));
    m->wave_ticks += tick - w->began;
    if (m->timeline)
        sim_timeline_leave(m->timeline, w, tick);
    take_off(simd, w);
    if (--r->num_left)
        return;
    sim_group_end(&r->group);
    m->groups_run++;
    sim_xcd *xcd = r->unit->xcd;
    if (!xcd->index)
        note_span(m, r, tick);
    const uint64_t round = ++xcd->num_ended / m->sample.slots;
    if (!xcd->index && round <= SIM_ROUNDS && xcd->num_ended % m->sample.slots == 0)
        m->round_ends[round] = tick;
    r->unit->num_residents--;
    r->next = m->idle;
    m->idle = r;
    sim_start_groups(xcd, tick);
}
