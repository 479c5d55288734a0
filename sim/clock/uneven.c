// SPDX-License-Identifier: Apache-2.0
// Workgroups whose lengths differ and are known (lengths.c), such as causal attention's. As many of
// the longest ones that follow each other as an XCD holds run at modelled time until their pace has
// settled, then half as many on each unit, and so on to one. That gives what an instruction takes
// of a workgroup that shares its unit with so many. The shortest ones then run to their ends, which
// gives what a workgroup takes beside its loop. All that is counted is put together likewise.
//
// From that follow the times of all workgroups of all XCDs, which are placed as the chip would
// place them. The launch is over when the slowest XCD is.
#include "uneven.h"

#include "settle.h"

#include <math.h>
#include <stdlib.h>

enum {
    WINDOWS = 128,    // in a workgroup, if
    LEAST_TRIPS = 40, // each has a trip: more than SIM_SETTLE_MARKS
    KEPT = 8,         // of which the first half takes as long as the second
    KEPT_OF_FEW = 20, // of so few workgroups that it matters how they meet
    FEW = 16,
    MOST_SKIPPED = SIM_SETTLE_MARKS - KEPT_OF_FEW - 2,
    MOST_OF_SHORT = 1 << 26, // instructions of an XCD's workgroups, if all are to run
};

// ---- which run

static uint64_t groups_of(const sim_machine *m, uint32_t xcd) {
    const uint64_t all = sim_dispatch_groups(m->dispatch), xccs = m->chip->num_xccs;
    return all > xcd ? (all - xcd + xccs - 1) / xccs : 0;
}

static uint64_t length_of(const sim_machine *m, uint32_t xcd, uint64_t number) {
    return m->settle.of[number * m->chip->num_xccs + xcd];
}

/** Finds so many workgroups that follow each other, of which the shortest is the longest. */
static void find_longest(sim_machine *m, uint64_t count) {
    sim_settle *s = &m->settle;
    for (uint64_t i = 0; i + count <= groups_of(m, 0); i++) {
        uint64_t least = UINT64_MAX;
        for (uint64_t k = i; k < i + count && least > s->length; k++)
            least = length_of(m, 0, k) < least ? length_of(m, 0, k) : least;
        if (least > s->length) {
            s->length = least;
            s->first = i;
        }
    }
}

/** Returns the first of so many workgroups that are the shortest together. */
static uint64_t find_shortest(const sim_machine *m, uint64_t count) {
    uint64_t sum = 0, least = UINT64_MAX, first = 0;
    for (uint64_t i = 0; i < groups_of(m, 0); i++) {
        sum += length_of(m, 0, i);
        sum -= i >= count ? length_of(m, 0, i - count) : 0;
        if (i + 1 >= count && sum < least) {
            least = sum;
            first = i + 1 - count;
        }
    }
    return first;
}

/** Returns the instructions of a workgroup in a window: whole trips round the loop. */
static uint64_t window_of(const sim_settle *s) {
    const uint64_t trips = s->length / WINDOWS / s->trip;
    return s->trip * (trips ? trips : 1);
}

/** Returns how many windows there are before all workgroups go round their loop. */
static uint32_t skipped_of(const sim_settle *s) {
    const uint64_t windows = s->begin / window_of(s) + 2;
    return windows < MOST_SKIPPED ? (uint32_t)windows : MOST_SKIPPED;
}

static uint64_t residents_of(const sim_machine *m, uint32_t per_unit) {
    const uint64_t places = (uint64_t)per_unit * m->units_per_xcd, groups = groups_of(m, 0);
    return places < groups ? places : groups;
}

/** Starts the workgroups of a phase: so many on a unit. */
static void start_phase(sim_machine *m, uint32_t per_unit, uint64_t tick) {
    sim_settle *s = &m->settle;
    sim_xcd *xcd = &m->xcds[0];
    const uint64_t residents = residents_of(m, per_unit);
    s->per_unit = per_unit;
    s->ended_before = xcd->num_ended;
    s->skipped = skipped_of(s);
    s->kept = residents < FEW ? KEPT_OF_FEW : KEPT;
    xcd->next_group = s->first;
    xcd->num_groups = s->first + residents;
    sim_start_groups(xcd, tick);
    sim_settle_phase(m, residents, window_of(s), tick);
}

/** Finds the shortest workgroups, one on a unit, which are to run to their ends unless that takes
 *  long. */
static void find_whole(sim_machine *m) {
    sim_settle *s = &m->settle;
    const uint64_t count = residents_of(m, 1);
    s->whole = find_shortest(m, count);
    for (uint64_t i = s->whole; i < s->whole + count; i++)
        s->whole_length += length_of(m, 0, i);
    s->num_whole = s->whole_length <= MOST_OF_SHORT ? count : 0;
    s->whole_length = s->num_whole ? s->whole_length : 0;
}

/** Starts them. */
static void start_whole(sim_machine *m, uint64_t tick) {
    sim_settle *s = &m->settle;
    sim_xcd *xcd = &m->xcds[0];
    s->next = UINT64_MAX;
    s->began_issued = m->issued;
    xcd->next_group = s->whole;
    xcd->num_groups = s->whole + s->num_whole;
    sim_start_groups(xcd, tick);
}

/** Makes all workgroups of the first XCD run, if that does not take long. */
static void run_all(sim_machine *m) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < groups_of(m, 0); i++)
        sum += length_of(m, 0, i);
    if (sum <= MOST_OF_SHORT)
        m->sample.run = m->xcds[0].num_groups = groups_of(m, 0);
}

bool sim_uneven_begin(sim_machine *m) {
    sim_settle *s = &m->settle;
    const uint64_t groups = groups_of(m, 0), full = groups / m->units_per_xcd;
    const uint32_t per_unit = full > m->occupancy ? m->occupancy : full ? (uint32_t)full : 1;
    free(m->spans);
    m->spans = calloc(groups, sizeof *m->spans);
    m->is_out_of_memory |= !m->spans;
    if (!m->spans || m->occupancy > SIM_MOST_PER_UNIT)
        return false;
    find_longest(m, residents_of(m, per_unit));
    find_whole(m);
    s->most_per_unit = per_unit;
    if (s->length >= (uint64_t)LEAST_TRIPS * s->trip + s->begin)
        return true;
    run_all(m);
    return false;
}

void sim_uneven_start(sim_machine *m) {
    start_phase(m, m->settle.most_per_unit, 0);
}

// ---- their pace

static uint64_t sum_lengths(const sim_machine *m) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < sim_dispatch_groups(m->dispatch); i++)
        sum += m->settle.of[i];
    return sum;
}

/** Notes what an instruction of a workgroup takes in its loop, and how much longer than at that
 *  pace it takes to come there. */
static void note_pace(sim_machine *m) {
    sim_settle *s = &m->settle;
    const uint32_t kept = s->kept < s->num_marks ? s->kept : s->num_marks - 1;
    const uint64_t end = s->marks[s->num_marks - 1], from = s->marks[s->num_marks - 1 - kept];
    const double of_window = (double)(end - from) / kept;
    s->spread = fmax(s->spread, s->differs);
    s->pace[s->per_unit] = of_window * (double)s->residents / (double)s->window;
    s->head[s->per_unit] = (double)(end - s->began) - of_window * s->num_marks;
}

/** Leaves out of what is counted the way to the loop. */
static void begin_counting(sim_machine *m) {
    sim_settle *s = &m->settle;
    s->ran += m->issued - s->began_issued;
    s->began_issued = m->issued;
    sim_settle_scale(m, 0);
}

/** Ends what is counted: it stands for all that workgroups execute beside what is counted as the
 *  shortest ones run. */
static void end_counting(sim_machine *m) {
    sim_settle *s = &m->settle;
    const uint64_t ran = m->issued - s->began_issued;
    const double short_ones = s->num_whole ? (double)groups_of(m, 0) / (double)s->num_whole : 0;
    const double left = (double)s->all - short_ones * (double)s->whole_length;
    const bool counts = s->per_unit == s->most_per_unit;
    sim_settle_scale(m, counts ? fmax(0, left) / (double)ran : 0);
    s->ran += ran;
}

bool sim_uneven_check(sim_machine *m, uint64_t tick) {
    sim_settle *s = &m->settle;
    const bool is_over = sim_settle_is_settled(s) || s->num_marks == SIM_SETTLE_MARKS ||
                         m->xcds[0].num_ended > s->ended_before;
    if (s->num_marks == s->skipped)
        begin_counting(m);
    if (!is_over || s->num_marks < 2)
        return false;
    note_pace(m);
    s->all = sum_lengths(m) / m->chip->num_xccs;
    sim_drop_groups(m, tick);
    end_counting(m);
    s->next = UINT64_MAX;
    if (s->per_unit > 1)
        start_phase(m, s->per_unit / 2, tick);
    else if (s->num_whole)
        start_whole(m, tick);
    return s->next == UINT64_MAX && !s->num_whole;
}

/** Finds how much longer than at its loop's pace a workgroup takes: less than 0 if what is not in
 *  the loop is quicker. */
static double find_beside(sim_machine *m) {
    const sim_settle *s = &m->settle;
    double sum = 0;
    for (uint64_t i = s->whole; i < s->whole + s->num_whole; i++)
        sum += (double)m->spans[i] - s->pace[1] * (double)length_of(m, 0, i);
    return s->num_whole ? sum / (double)s->num_whole : s->head[1];
}

/** Fills in the paces between those that were found, by straight lines, and those above in
 *  proportion. */
static void fill_paces(sim_settle *s, uint32_t occupancy) {
    for (uint32_t high = s->most_per_unit; high > 1; high /= 2)
        for (uint32_t low = high / 2, i = low + 1; i < high; i++)
            s->pace[i] = s->pace[low] + (s->pace[high] - s->pace[low]) * (i - low) / (high - low);
    for (uint32_t i = s->most_per_unit + 1; i <= occupancy; i++)
        s->pace[i] = s->pace[s->most_per_unit] * i / s->most_per_unit;
}

// ---- all workgroups

/** A workgroup that is resident: ticks until it gets going; instructions that it has left. */
typedef struct resident {
    uint64_t number;
    double began, head, left;
} resident;

typedef struct unit {
    resident at[SIM_MOST_PER_UNIT];
    uint32_t count;
    double now;
} unit;

typedef struct xcd {
    sim_machine *m;
    unit *units;
    uint32_t index, next_unit;
    uint64_t next_group, num_groups;
} xcd;

static double pace_of(const xcd *x, const unit *u) {
    uint32_t going = 0;
    for (uint32_t i = 0; i < u->count; i++)
        going += u->at[i].head <= 0;
    return x->m->settle.pace[going];
}

/** Returns when the next of a unit's workgroups gets going or ends. */
static double next_of(const xcd *x, const unit *u) {
    const double pace = pace_of(x, u);
    double least = INFINITY;
    for (uint32_t i = 0; i < u->count; i++)
        least = fmin(least, u->at[i].head > 0 ? u->at[i].head : u->at[i].left * pace);
    return u->now + least;
}

static void advance(const xcd *x, unit *u, double to) {
    const double pace = pace_of(x, u), ticks = to - u->now;
    constexpr double none = 1e-3; // of a tick or an instruction: what rounding leaves
    for (uint32_t i = 0; i < u->count; i++) {
        resident *r = &u->at[i];
        double *from = r->head > 0 ? &r->head : &r->left;
        *from -= r->head > 0 ? ticks : ticks / pace;
        *from = *from < none ? 0 : *from;
    }
    u->now = to;
}

/** Returns the unit with the fewest workgroups, as place.c finds it; null: all are full. */
static unit *find_unit(xcd *x) {
    const uint32_t units = x->m->units_per_xcd;
    unit *best = nullptr;
    for (uint32_t i = 0; i < units; i++) {
        unit *u = &x->units[(x->next_unit + i) % units];
        if (u->count < x->m->occupancy && (!best || u->count < best->count))
            best = u;
    }
    if (best)
        x->next_unit = ((uint32_t)(best - x->units) + 1) % units;
    return best;
}

static void start(xcd *x, double now) {
    const sim_settle *s = &x->m->settle;
    unit *u;
    while (x->next_group < x->num_groups && (u = find_unit(x))) {
        const uint64_t number = x->next_group++;
        const double head = s->beside + (now > 0 ? 0 : s->cold);
        const double length = (double)length_of(x->m, x->index, number);
        advance(x, u, now);
        u->at[u->count++] = (resident){.number = number,
                                       .began = now,
                                       .head = fmax(head, 0),
                                       .left = fmax(length + fmin(head, 0) / s->pace[1], 1)};
    }
}

static void end_groups(const xcd *x, unit *u) {
    for (uint32_t i = 0; i < u->count;) {
        const resident *r = &u->at[i];
        if (r->head > 0 || r->left > 0) {
            i++;
            continue;
        }
        if (!x->index)
            x->m->spans[r->number] = (uint64_t)(u->now - r->began);
        u->at[i] = u->at[--u->count];
    }
}

/** Runs an XCD's workgroups. Returns when the last one ends. */
static double run_xcd(xcd *x) {
    double now = 0;
    start(x, 0);
    for (;;) {
        unit *first = x->units;
        for (uint32_t i = 1; i < x->m->units_per_xcd; i++)
            if (next_of(x, &x->units[i]) < next_of(x, first))
                first = &x->units[i];
        if (!first->count)
            return now;
        now = next_of(x, first);
        advance(x, first, now);
        end_groups(x, first);
        start(x, now);
    }
}

/** Counts for each workgroup what those did on average that ran to their ends, and lines that are
 *  stored when the launch ends. */
static void count_whole(sim_machine *m) {
    sim_settle *s = &m->settle;
    const uint64_t groups = groups_of(m, 0), others = groups - s->num_whole;
    s->ran += m->issued - s->began_issued;
    sim_settle_scale(m, (double)groups / (double)s->num_whole);
    m->traffic.hbm_lines += sim_tags_dirty(&m->xcds[0].l2) * others / s->num_whole;
}

/** Adds to each SIMD's time what is left of the launch, when it has no waves. */
static void add_idle(sim_machine *m) {
    for (uint32_t u = 0; u < m->units_per_xcd; u++) {
        for (uint32_t i = 0; i < m->simds; i++) {
            sim_simd *s = &m->xcds[0].units[u].simds[i];
            uint64_t sum = 0;
            for (int k = 0; k < SIM_NUM_SPENT; k++)
                sum += s->spent[k];
            s->spent[SIM_SPENT_IDLE] += m->last > sum ? m->last - sum : 0;
            s->counted = m->last;
        }
    }
}

void sim_uneven_end(sim_machine *m) {
    sim_settle *s = &m->settle;
    double last = 0;
    if (s->pace[1] <= 0) // the launch was stopped
        return;
    unit *units = calloc(m->units_per_xcd, sizeof *units);
    m->is_out_of_memory |= !units;
    s->beside = find_beside(m);
    s->cold = fmax(0, s->head[s->most_per_unit] - s->head[1]);
    if (s->num_whole)
        count_whole(m);
    fill_paces(s, m->occupancy);
    for (uint32_t i = 0; units && i < m->chip->num_xccs; i++) {
        xcd x = {.m = m, .units = units, .index = i, .num_groups = groups_of(m, i)};
        for (uint32_t u = 0; u < m->units_per_xcd; u++)
            units[u] = (unit){};
        const double end = run_xcd(&x);
        m->last_end = i ? m->last_end : (uint64_t)end;
        last = fmax(last, end);
    }
    free(units);
    m->last = (uint64_t)last;
    m->sample.run = m->groups_run = m->xcds[0].num_ended = groups_of(m, 0);
    add_idle(m);
}
