// SPDX-License-Identifier: Apache-2.0
// Long workgroups, such as attention's over many keys, do the same over and over. Some of them run
// untimed to their end, and so tell how many instructions a workgroup executes. A round then runs
// at modelled time until the pace of its instructions has settled, and stands for all rounds; so
// does the last round, if it is not full.
//
// The pace is looked at in windows, which are a part of the workgroups' lengths. The first ones do
// not count, since workgroups start together.
#include "settle.h"

#include "../isa/decode.h"
#include "../look/hooks.h"

#include <math.h>
#include <stdlib.h>

enum { NUM_LEVELS = sizeof(sim_traffic) / sizeof(uint64_t) };
enum {
    WINDOWS = 128,       // in a workgroup,
    LEAST_WINDOW = 4096, // if so many instructions of a wave are in each
    LEAST_WINDOWS = 24,  // of a workgroup that is long
    SKIPPED = 2,
    KEPT = 8,             // of which the first half takes as long as the second
    MOST_INSTS = 1 << 28, // of a workgroup
    TURN = 64,            // instructions of a wave, before the next wave's turn
};
constexpr double ALIKE = 0.01; // of workgroups' lengths and of the two halves

// ---- what is counted

static uint64_t scaled(uint64_t now, uint64_t *base, double factor) {
    return *base += (uint64_t)((double)(now - *base) * factor);
}

static uint64_t *scale_some(uint64_t *counts, size_t n, uint64_t *base, double factor) {
    for (size_t i = 0; i < n; i++)
        counts[i] = scaled(counts[i], base + i, factor);
    return base + n;
}

/** Makes what was counted since the last call as much more as the workgroups are longer than what
 *  ran of them. */
static void scale_counts(sim_machine *m, double factor) {
    uint64_t *base = m->settle.base;
    base = scale_some(&m->wave_ticks, 1, base, factor);
    base = scale_some(&m->matrix_ops, 1, base, factor);
    base = scale_some(&m->energy_fj, 1, base, factor);
    base = scale_some(m->busy, SIM_PART_FABRIC, base, factor);
    base = scale_some((uint64_t *)&m->traffic, NUM_LEVELS, base, factor);
    for (uint64_t i = 0; i <= m->num_insts; i++) {
        base = scale_some(&m->insts[i].issues, 1, base, factor);
        base = scale_some(m->insts[i].cycles, SIM_NUM_SPENT, base, factor);
    }
    for (uint32_t u = 0; u < m->units_per_xcd; u++)
        for (uint32_t i = 0; i < m->simds; i++)
            base = scale_some(m->xcds[0].units[u].simds[i].spent, SIM_NUM_SPENT, base, factor);
}

/** Makes room for what was counted before. */
static bool reserve_base(sim_machine *m) {
    const size_t of_machine = 3 + SIM_PART_FABRIC + NUM_LEVELS;
    const size_t of_insts = (m->num_insts + 1) * (1 + SIM_NUM_SPENT);
    const size_t of_simds = (size_t)m->units_per_xcd * m->simds * SIM_NUM_SPENT;
    m->settle.base = calloc(of_machine + of_insts + of_simds, sizeof *m->settle.base);
    m->is_out_of_memory |= !m->settle.base;
    return m->settle.base;
}

// ---- how long workgroups are

/** Runs a wave for a turn. Returns false if it does what must not be done twice, or wrong. */
static bool run_turn(sim_wave *w, uint64_t *insts) {
    for (int i = 0; i < TURN && w->state == SIM_RUNNING; i++, ++*insts) {
        const sim_inst *inst = sim_fetch(w, w->group->dispatch->text, w->pc);
        const sim_traits *t = inst ? &inst->traits : nullptr;
        const bool is_own = t && (t->unit == SIM_UNIT_LDS || t->addressing == SIM_SCRATCH);
        if (!t || (!is_own && (t->access == SIM_ACCESS_ATOMIC || t->scope == SIM_SCOPE_SOME)))
            return false;
        sim_wave_slice(w, 1);
    }
    return w->state != SIM_FAULTED;
}

/** Runs each wave of a workgroup for a turn. */
static bool run_turns(sim_workgroup *group, uint64_t *insts) {
    for (uint32_t i = 0; i < group->num_waves; i++) {
        sim_wave *w = &group->waves[i];
        if (w->state == SIM_AT_BARRIER && w->num_waits && sim_barrier_is_complete(w))
            w->state = SIM_RUNNING;
        if (!run_turn(w, insts))
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

/** Returns how many instructions a workgroup executes; 0 if that cannot be said. */
static uint64_t count_insts(sim_dispatch *d, sim_worker *worker, uint64_t flat_id) {
    sim_workgroup group;
    uint64_t insts = 0;
    if (!sim_group_begin(&group, d, worker, flat_id))
        return 0;
    bool ok = true;
    while (ok && count_waves(&group, SIM_ENDED) < group.num_waves) {
        ok = run_turns(&group, &insts) && insts < MOST_INSTS && !atomic_load(&d->stop);
        const bool is_quiet = !count_waves(&group, SIM_RUNNING);
        if (ok && is_quiet && count_waves(&group, SIM_AT_BARRIER))
            ok = sim_group_release(&group);
    }
    sim_look_end(&group);
    return ok ? insts : 0;
}

/** Returns how many instructions each workgroup executes, if they are long and alike; else 0. */
static uint64_t find_length(sim_machine *m, sim_worker *worker) {
    const uint64_t all = sim_dispatch_groups(m->dispatch), some[] = {all / 2, all - 1};
    const uint64_t first = count_insts(m->dispatch, worker, 0);
    if (first < (uint64_t)LEAST_WINDOWS * LEAST_WINDOW * m->waves_per_group)
        return 0;
    for (int i = 0; i < 2; i++) {
        const uint64_t other = count_insts(m->dispatch, worker, some[i]);
        if (fabs((double)other - (double)first) > ALIKE * (double)first)
            return 0;
    }
    return first;
}

/** Begins to look at the workgroups that have just started. */
static void begin_phase(sim_machine *m, uint64_t residents, uint64_t tick) {
    sim_settle *s = &m->settle;
    const uint64_t least = (uint64_t)LEAST_WINDOW * m->waves_per_group;
    const uint64_t part = s->length / WINDOWS;
    s->residents = residents;
    s->window = residents * (part > least ? part : least);
    s->began = tick;
    s->began_issued = m->issued;
    s->num_marks = 0;
    s->next = m->issued + s->window;
}

/** Returns how many workgroups the last round has. */
static uint64_t last_round(const sim_sample *s) {
    return (s->groups - 1) % s->slots + 1;
}

void sim_settle_begin(sim_machine *m) {
    sim_dispatch *d = m->dispatch;
    sim_worker worker = {};
    const uint32_t check = d->check;
    const bool is_observed = d->is_observed;
    m->settle.next = UINT64_MAX;
    if (d->clock_mode != SIM_CLOCK_SAMPLE || m->timeline)
        return;
    d->check = 0;
    d->is_observed = false;
    m->settle.length = sim_group_reserve(d, &worker) ? find_length(m, &worker) : 0;
    d->is_observed = is_observed;
    d->check = check;
    sim_worker_deinit(&worker);
    if (m->settle.length && reserve_base(m))
        begin_phase(m, m->sample.run < m->sample.slots ? m->sample.run : m->sample.slots, 0);
}

// ---- the pace

/** Ends a phase, whose workgroups stand for some. */
static void end_phase(sim_machine *m, uint64_t groups) {
    sim_settle *s = &m->settle;
    const uint64_t ran = m->issued - s->began_issued;
    scale_counts(m, (double)(groups * s->length) / (double)ran);
    s->ran += ran;
}

/** Returns whether the last windows took the same time. */
static bool is_settled(sim_settle *s) {
    if (s->num_marks < SKIPPED + KEPT)
        return false;
    const uint64_t *last = &s->marks[s->num_marks - 1];
    const double first_half = (double)(last[-KEPT / 2] - last[-KEPT]);
    const double second_half = (double)(last[0] - last[-KEPT / 2]);
    const double spread = fabs(second_half / first_half - 1);
    if (spread <= ALIKE)
        s->spread = fmax(s->spread, spread);
    return spread <= ALIKE;
}

/** Returns how long the workgroups take that have begun. */
static uint64_t whole_time(const sim_machine *m) {
    const sim_settle *s = &m->settle;
    const uint64_t end = s->marks[s->num_marks - 1], from = s->marks[s->num_marks - 1 - KEPT];
    const double per_inst = (double)(end - from) / (double)(KEPT * s->window);
    const double left = (double)(s->residents * s->length) - (double)(m->issued - s->began_issued);
    return end - s->began + (uint64_t)(left * per_inst);
}

/** Goes on to the last round if it is not full. Returns whether there is none. */
static bool next_phase(sim_machine *m, uint64_t tick) {
    sim_xcd *xcd = &m->xcds[0];
    const uint64_t last = last_round(&m->sample);
    const bool is_last =
        m->settle.last_ticks || last == m->sample.slots || m->sample.groups <= m->sample.slots;
    sim_drop_groups(m, tick);
    end_phase(m, m->settle.last_ticks ? last : m->sample.run - (is_last ? 0 : last));
    if (is_last)
        return true;
    xcd->next_group = xcd->num_groups - last;
    sim_start_groups(xcd, tick);
    begin_phase(m, last, tick);
    return false;
}

bool sim_settle_check(sim_machine *m, uint64_t tick) {
    sim_settle *s = &m->settle;
    s->next = m->issued + s->window;
    s->marks[s->num_marks++] = tick;
    if (s->num_marks == SIM_SETTLE_MARKS || m->xcds[0].num_ended) {
        s->next = UINT64_MAX;
        return false;
    }
    if (!is_settled(s))
        return false;
    *(s->round_ticks ? &s->last_ticks : &s->round_ticks) = whole_time(m);
    s->next = UINT64_MAX;
    return next_phase(m, tick);
}

void sim_settle_end(sim_machine *m) {
    sim_settle *s = &m->settle;
    const sim_sample *sample = &m->sample;
    const uint64_t last = last_round(sample), full = (sample->run - last) / sample->slots;
    if (!s->round_ticks)
        return;
    if (m->xcds[0].num_ended) { // the last round's workgroups
        sim_drop_groups(m, m->last);
        s->last_ticks = m->last - s->began;
        end_phase(m, last);
    }
    const uint64_t last_ticks = s->last_ticks ? s->last_ticks : s->round_ticks;
    for (uint64_t i = 0; i < sample->run; i++)
        m->spans[i] = i < full * sample->slots ? s->round_ticks : last_ticks;
    for (uint64_t i = 0; i <= SIM_ROUNDS; i++)
        m->round_ends[i] = i * s->round_ticks;
    m->last = m->last_end = full * s->round_ticks + last_ticks;
    m->groups_run = m->xcds[0].num_ended = sample->run;
    for (uint32_t u = 0; u < m->units_per_xcd; u++)
        for (uint32_t i = 0; i < m->simds; i++)
            m->xcds[0].units[u].simds[i].counted = m->last;
}
