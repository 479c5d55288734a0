// SPDX-License-Identifier: Apache-2.0
// Runs a launch on the machine, and makes of the machine's ticks a time on the chip.
#include "clock.h"

#include "machine.h"
#include "power.h"
#include "report.h"
#include "settle.h"
#include "share.h"
#include "streams/demand.h"
#include "timeline.h"
#include "uneven.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void sim_clock_init(sim_clock *clock) {
    *clock = (sim_clock){};
    pthread_mutex_init(&clock->lock, nullptr);
}

void sim_clock_deinit(sim_clock *clock) {
    sim_tags_deinit(&clock->mall);
    for (uint32_t i = 0; i < clock->num_code; i++)
        sim_tags_deinit(&clock->code[i]);
    free(clock->code);
    pthread_mutex_destroy(&clock->lock);
}

void sim_clock_tell(sim_clock *clock, sim_clock_result *sum) {
    pthread_mutex_lock(&clock->lock);
    if (clock->told.ns)
        sim_clock_add(sum, &clock->told);
    clock->told = (sim_clock_result){};
    pthread_mutex_unlock(&clock->lock);
}

// ---- what kernels read

uint64_t sim_host_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t sim_clock_cycles(const sim_dispatch *d) {
    if (d->machine)
        return d->clock->ns * (d->chip->clock_khz / 1000) / 1000 + d->machine->now_cycles;
    return sim_host_ns() / 1000 * d->chip->clock_khz / 1000;
}

uint64_t sim_clock_100mhz(const sim_dispatch *d) {
    if (d->machine)
        return d->clock->ns / 10 + d->machine->now_cycles * 100000 / d->chip->clock_khz;
    return sim_host_ns() / 10;
}

// ---- the observer, by which the machine gets the facts of each instruction

static void *begin_dispatch(const sim_dispatch *d) {
    return d->clock;
}

static size_t group_bytes(const void *, const sim_workgroup *group) {
    const sim_dispatch *d = group->dispatch;
    return d->machine || d->is_rehearsal ? sizeof(const sim_facts **) : 0;
}

static void begin_group(void *, void *of_group, const sim_workgroup *group) {
    sim_dispatch *d = group->dispatch;
    *(const sim_facts ***)of_group = d->machine ? &d->machine->facts : &d->rehearsed;
}

static void step(void *of_group, const sim_wave *, const sim_facts *facts) {
    **(const sim_facts ***)of_group = facts;
}

static void end_group(void *, void *, const sim_workgroup *) {}
static void end_dispatch(void *, sim_dispatch *) {}

const sim_observer sim_timer = {.begin_dispatch = begin_dispatch,
                                .group_bytes = group_bytes,
                                .begin_group = begin_group,
                                .step = step,
                                .end_group = end_group,
                                .end_dispatch = end_dispatch};

// ---- a launch

static void run_events(sim_machine *m) {
    sim_event event;
    while (sim_next_event(m, &event)) {
        sim_group_unit *unit = sim_unit_of(m, &event);
        const uint32_t simd = event.simd % SIM_MAX_SIMDS;
        if (unit->simds[simd].next != event.tick)
            continue;
        if (m->is_out_of_memory || atomic_load_explicit(&m->dispatch->stop, memory_order_relaxed))
            break;
        if (m->timeline && event.tick >= m->timeline->next_sample)
            sim_timeline_sample(m->timeline, m, event.tick);
        sim_visit(m, unit, simd, event.tick);
        if (m->issued >= m->settle.next && sim_settle_check(m, event.tick))
            return;
    }
    if (m->is_out_of_memory) // perhaps for the only event that there was to come
        sim_fault_stop(m->dispatch, SIM_FAULT_RESOURCES, "no host memory for the clock");
}

bool sim_clock_has_run(const sim_dispatch *d, uint64_t flat_id) {
    const uint32_t xccs = d->chip->num_xccs;
    return d->clock_mode != SIM_CLOCK_ON ||
           (flat_id % xccs == 0 && flat_id / xccs < d->timed.sampled);
}

static void run_locked(sim_dispatch *d) {
    sim_machine *m = sim_machine_create(d, d->clock);
    if (!m) {
        sim_fault_stop(d, SIM_FAULT_RESOURCES, "no host memory for the clock");
        return;
    }
    const sim_shared shared = sim_share_of(d, &m->sample);
    m->own_share = shared.own_share;
    m->farther = shared.farther;
    d->machine = m;
    m->timeline = sim_timeline_begin();
    sim_settle_begin(m);
    if (m->settle.of)
        sim_uneven_start(m);
    for (uint32_t i = 0; !m->settle.of && i < m->num_xcds; i++)
        sim_start_groups(&m->xcds[i], 0);
    run_events(m);
    d->machine = nullptr;
    sim_settle_end(m);
    const uint64_t end = sim_time_flush(m, m->last);
    sim_forget_lines(m);
    d->timed = sim_clock_result_of(m, end);
    d->demand = d->wants_demand ? sim_demand_of(m, end) : nullptr;
    d->shown.timeline = sim_timeline_keep(m->timeline, m);
    d->clock->ticks += end;
    d->clock->ns += d->timed.ns;
    sim_clock_add(&d->clock->told, &d->timed);
    sim_machine_destroy(m);
}

uint64_t sim_clock_run(sim_dispatch *d) {
    pthread_mutex_lock(&d->clock->lock);
    run_locked(d);
    const uint64_t ns = d->clock->ns;
    pthread_mutex_unlock(&d->clock->lock);
    return ns;
}
