// SPDX-License-Identifier: Apache-2.0
// Long workgroups, such as attention's over many keys, do the same over and over. Some of them run
// untimed to their end, and so tell how many instructions a workgroup executes. A round then runs
// at modelled time until the pace of its instructions has settled, and stands for all rounds; so
// does the last round, if it is not full.
//
// The pace is looked at in windows, which are a part of the workgroups' lengths. The first ones do
// not count, since workgroups start together.
#include "settle.h"

#include "lengths.h"
#include "uneven.h"

#include <math.h>
#include <stdlib.h>

enum { NUM_LEVELS = sizeof(sim_traffic) / sizeof(uint64_t) };
enum {
    WINDOWS = 128,       // in a workgroup,
    LEAST_WINDOW = 4096, // if so many instructions of a wave are in each
    LEAST_WINDOWS = 24,  // of a workgroup that is long
    SKIPPED = 2,
    KEPT = 8, // of which the first half takes as long as the second
};
constexpr double ALIKE = 0.01; // of the two halves

// ---- what is counted

static uint64_t scaled(uint64_t now, uint64_t *base, double factor) {
    return *base += (uint64_t)((double)(now - *base) * factor);
}

static uint64_t *scale_some(uint64_t *counts, size_t n, uint64_t *base, double factor) {
    for (size_t i = 0; i < n; i++)
        counts[i] = scaled(counts[i], base + i, factor);
    return base + n;
}

void sim_settle_scale(sim_machine *m, double factor) {
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

// ---- phases

void sim_settle_phase(sim_machine *m, uint64_t residents, uint64_t window, uint64_t tick) {
    sim_settle *s = &m->settle;
    s->residents = residents;
    s->window = residents * window;
    s->began = tick;
    s->began_issued = m->issued;
    s->num_marks = 0;
    s->next = m->issued + s->window;
}

/** Begins to look at workgroups of a round. */
static void begin_round(sim_machine *m, uint64_t residents, uint64_t tick) {
    const uint64_t least = (uint64_t)LEAST_WINDOW * m->waves_per_group;
    m->settle.skipped = SKIPPED;
    m->settle.kept = KEPT;
    sim_settle_phase(m, residents, sim_later(m->settle.length / WINDOWS, least), tick);
}

/** Returns how many workgroups the last round has. */
static uint64_t last_round(const sim_sample *s) {
    return (s->groups - 1) % s->slots + 1;
}

static void forget_lengths(sim_settle *s) {
    free(s->of);
    s->of = nullptr;
    s->length = 0;
}

void sim_settle_begin(sim_machine *m) {
    sim_settle *s = &m->settle;
    s->next = UINT64_MAX;
    if (m->dispatch->clock_mode != SIM_CLOCK_SAMPLE || m->timeline)
        return;
    const sim_lengths found = sim_lengths_find(m, (uint64_t)LEAST_WINDOWS * LEAST_WINDOW);
    s->length = found.alike;
    s->of = found.of;
    s->begin = found.begin;
    s->trip = found.trip;
    if (!(s->length || s->of) || !reserve_base(m))
        return;
    if (s->of && !sim_uneven_begin(m))
        forget_lengths(s);
    else if (s->length && !s->of)
        begin_round(m, m->sample.run < m->sample.slots ? m->sample.run : m->sample.slots, 0);
}

// ---- the pace

/** Ends a phase, whose workgroups stand for some. */
static void end_phase(sim_machine *m, uint64_t groups) {
    sim_settle *s = &m->settle;
    const uint64_t ran = m->issued - s->began_issued;
    sim_settle_scale(m, (double)(groups * s->length) / (double)ran);
    s->ran += ran;
}

bool sim_settle_is_settled(sim_settle *s) {
    if (s->num_marks < s->skipped + s->kept)
        return false;
    const int half = (int)s->kept / 2;
    const uint64_t *last = &s->marks[s->num_marks - 1];
    const double first_half = (double)(last[-half] - last[-2 * half]);
    const double second_half = (double)(last[0] - last[-half]);
    s->differs = fabs(second_half / first_half - 1);
    return s->differs <= ALIKE;
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
    begin_round(m, last, tick);
    return false;
}

bool sim_settle_check(sim_machine *m, uint64_t tick) {
    sim_settle *s = &m->settle;
    s->next = m->issued + s->window;
    s->marks[s->num_marks++] = tick;
    if (s->of)
        return sim_uneven_check(m, tick);
    if (s->num_marks == SIM_SETTLE_MARKS || m->xcds[0].num_ended) {
        s->next = UINT64_MAX;
        return false;
    }
    if (!sim_settle_is_settled(s))
        return false;
    s->spread = fmax(s->spread, s->differs);
    *(s->round_ticks ? &s->last_ticks : &s->round_ticks) = whole_time(m);
    s->next = UINT64_MAX;
    return next_phase(m, tick);
}

void sim_settle_end(sim_machine *m) {
    sim_settle *s = &m->settle;
    const sim_sample *sample = &m->sample;
    const uint64_t last = last_round(sample), full = (sample->run - last) / sample->slots;
    if (s->of)
        sim_uneven_end(m);
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
    s->all = sample->run * s->length;
    m->groups_run = m->xcds[0].num_ended = sample->run;
    for (uint32_t u = 0; u < m->units_per_xcd; u++)
        for (uint32_t i = 0; i < m->simds; i++)
            m->xcds[0].units[u].simds[i].counted = m->last;
}
