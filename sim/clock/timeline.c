// SPDX-License-Identifier: Apache-2.0
// Keeps the waves of a launch for the timeline.
//
// A wave waits millions of times, mostly for a few cycles. Only the longest waits are kept: when
// there are too many, the shorter half of what counts as long no longer does.
#include "timeline.h"

#include <stdlib.h>

enum { LEAST_CYCLES = 64 };

sim_timeline *sim_timeline_create(size_t most_waves) {
    sim_timeline *t = calloc(1, sizeof *t);
    if (!t || !(t->waits = calloc(SIM_TIMELINE_WAITS, sizeof *t->waits))) {
        free(t);
        return nullptr;
    }
    t->most_waves = most_waves;
    t->least = sim_ticks(LEAST_CYCLES);
    t->period = sim_ticks(LEAST_CYCLES);
    return t;
}

void sim_timeline_destroy(sim_timeline *t) {
    if (t) {
        free(t->launch.kernel);
        free(t->waves);
        free(t->waits);
    }
    free(t);
}

// ---- waves

static bool reserve(sim_timeline *t) {
    if (t->num_waves < t->wave_room)
        return true;
    const size_t room = t->wave_room ? 2 * t->wave_room : 256;
    sim_traced_wave *waves =
        t->num_waves < t->most_waves ? realloc(t->waves, room * sizeof *waves) : nullptr;
    if (!waves)
        return false;
    t->waves = waves;
    t->wave_room = room < t->most_waves ? room : t->most_waves;
    return true;
}

void sim_timeline_enter(sim_timeline *t, const sim_group_unit *unit, uint32_t simd,
                        sim_timed_wave *w) {
    const sim_workgroup *group = w->wave->group;
    t->resident++;
    if (!reserve(t)) {
        t->is_cut = true;
        return;
    }
    const uint8_t place = (uint8_t)(w - unit->simds[simd].waves);
    t->waves[t->num_waves] = (sim_traced_wave){
        .began = w->began,
        .since = w->began,
        .now = SIM_NUM_SPENT,
        .unit = unit->xcd->index * unit->xcd->machine->units_per_xcd + unit->index,
        .wave = w->wave->index,
        .slot = (uint8_t)(simd * SIM_MAX_WAVES + place),
        .group = {group->id[0], group->id[1], group->id[2]}};
    w->traced = (uint32_t)++t->num_waves;
}

void sim_timeline_leave(sim_timeline *t, const sim_timed_wave *w, uint64_t tick) {
    t->resident--;
    if (!w->traced)
        return;
    sim_timeline_turn(t, w, SIM_NUM_SPENT, tick);
    t->waves[w->traced - 1].ended = tick;
}

// ---- waits

/** Makes room among the waits that are kept. */
static void drop_short(sim_timeline *t) {
    while (t->num_waits > SIM_TIMELINE_WAITS / 2) {
        size_t kept = 0;
        t->least *= 2;
        for (size_t i = 0; i < t->num_waits; i++)
            if (t->waits[i].ended - t->waits[i].began >= t->least)
                t->waits[kept++] = t->waits[i];
        t->num_waits = kept;
    }
}

void sim_timeline_turn(sim_timeline *t, const sim_timed_wave *w, sim_spent kind, uint64_t tick) {
    sim_traced_wave *wave = w->traced ? &t->waves[w->traced - 1] : nullptr;
    if (!wave || (wave->now == kind && kind != SIM_NUM_SPENT))
        return;
    if (wave->now != SIM_NUM_SPENT && tick >= wave->since + t->least) {
        if (t->num_waits == SIM_TIMELINE_WAITS)
            drop_short(t);
        if (tick >= wave->since + t->least)
            t->waits[t->num_waits++] =
                (sim_traced_wait){wave->since, tick, w->traced - 1, wave->now};
    }
    wave->now = kind;
    wave->since = sim_later(tick, wave->began);
}

// ---- samples

void sim_timeline_sample(sim_timeline *t, const sim_machine *m, uint64_t tick) {
    if (t->num_samples == SIM_TIMELINE_SAMPLES) {
        for (size_t i = 0; i < SIM_TIMELINE_SAMPLES / 2; i++)
            t->samples[i] = t->samples[2 * i];
        t->num_samples = SIM_TIMELINE_SAMPLES / 2;
        t->period *= 2;
    }
    t->samples[t->num_samples++] = (sim_traced_sample){tick, m->traffic.hbm_lines, t->resident};
    t->next_sample = (tick / t->period + 1) * t->period;
}
