// SPDX-License-Identifier: Apache-2.0
// Makes a machine, and keeps the order of its events: a heap of SIMDs by the tick of their next
// visit. A SIMD that is woken earlier leaves an old entry behind, which is skipped.
#include "machine.h"

#include "../isa/decode.h"

#include <stdlib.h>
#include <string.h>

// ---- the heap

static bool is_before(const sim_event *a, const sim_event *b) {
    return a->tick != b->tick ? a->tick < b->tick : a->simd < b->simd;
}

static bool push(sim_machine *m, sim_event event) {
    if (m->heap_count == m->heap_room) {
        const size_t room = m->heap_room ? 2 * m->heap_room : 1024;
        sim_event *heap = realloc(m->heap, room * sizeof *heap);
        if (!heap)
            return false;
        m->heap = heap;
        m->heap_room = room;
    }
    size_t at = m->heap_count++;
    for (; at && is_before(&event, &m->heap[(at - 1) / 2]); at = (at - 1) / 2)
        m->heap[at] = m->heap[(at - 1) / 2];
    m->heap[at] = event;
    return true;
}

bool sim_next_event(sim_machine *m, sim_event *out) {
    if (!m->heap_count)
        return false;
    *out = m->heap[0];
    const sim_event last = m->heap[--m->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->heap_count; at = child) {
        if (child + 1 < m->heap_count && is_before(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!is_before(&m->heap[child], &last))
            break;
        m->heap[at] = m->heap[child];
    }
    m->heap[at] = last;
    return true;
}

/** Visits come at fixed moments: SIMD i's at cycle i of a period. */
static uint64_t align(const sim_machine *m, uint32_t simd, uint64_t tick) {
    const uint64_t period = sim_ticks(m->timing->issue_cycles);
    const uint64_t offset = sim_ticks(simd) % period;
    const uint64_t past = tick > offset ? tick - offset : 0;
    return (past + period - 1) / period * period + offset;
}

void sim_wake(sim_machine *m, sim_group_unit *unit, uint32_t simd, uint64_t tick) {
    sim_simd *s = &unit->simds[simd];
    tick = align(m, simd, tick);
    if (tick >= s->next)
        return;
    s->next = tick;
    const uint32_t number = unit->xcd->index * m->units_per_xcd + unit->index;
    m->is_out_of_memory |= !push(m, (sim_event){tick, number * SIM_MAX_SIMDS + simd});
}

sim_group_unit *sim_unit_of(sim_machine *m, const sim_event *event) {
    const uint32_t number = event->simd / SIM_MAX_SIMDS;
    return &m->xcds[number / m->units_per_xcd].units[number % m->units_per_xcd];
}

// ---- making and destroying

static bool init_compute_unit(const sim_machine *m, sim_compute_unit *unit) {
    const sim_timing *t = m->timing;
    unit->misses = calloc(t->l1_misses, sizeof *unit->misses);
    return unit->misses && sim_tags_init(&unit->l1, t->l1_bytes, SIM_LINE, t->l1_ways);
}

static bool init_simd(const sim_machine *m, sim_simd *simd) {
    const sim_timing *t = m->timing;
    const bool has_results =
        t->valu_result_cycles || t->trans_result_cycles || t->scalar_result_cycles;
    simd->next = SIM_NEVER;
    simd->waits = SIM_SPENT_IDLE;
    simd->waits_at = m->num_insts;
    simd->results = has_results ? calloc(SIM_MAX_WAVES, sizeof *simd->results) : nullptr;
    return simd->results || !has_results;
}

static bool init_unit(sim_machine *m, sim_xcd *xcd, uint32_t index) {
    sim_group_unit *unit = &xcd->units[index];
    bool ok = true;
    unit->xcd = xcd;
    unit->index = index;
    for (uint32_t i = 0; ok && i < m->joint_units; i++) {
        unit->compute_units[i].xcd = xcd;
        unit->compute_units[i].index = index * m->joint_units + i;
        ok = init_compute_unit(m, &unit->compute_units[i]);
    }
    for (uint32_t i = 0; ok && i < m->simds; i++)
        ok = init_simd(m, &unit->simds[i]);
    return ok;
}

enum { SCALAR_WAYS = 8 };

/** Returns how many groups of `shared` the compute units of an XCD make. */
static uint32_t groups_of(const sim_machine *m, uint32_t shared) {
    return (m->chip->compute_units / m->chip->num_xccs + shared - 1) / shared;
}

static uint32_t scalars_of(const sim_machine *m) {
    return groups_of(m, m->timing->scalar_units);
}

static uint32_t mids_of(const sim_machine *m) {
    return m->timing->mid_bytes ? groups_of(m, m->timing->mid_units) : 0;
}

/** Makes the instruction caches of a device that has none yet. */
static bool init_code(sim_machine *m, sim_clock *clock) {
    const uint32_t count = scalars_of(m) * m->chip->num_xccs;
    if (!clock->code && !(clock->code = calloc(count, sizeof *clock->code)))
        return false;
    for (; clock->num_code < count; clock->num_code++) {
        sim_tags *code = &clock->code[clock->num_code];
        if (!sim_tags_init(code, m->timing->fetch_cache_bytes, m->timing->fetch_bytes, SCALAR_WAYS))
            return false;
    }
    for (uint32_t i = 0; i < count; i++)
        sim_tags_settle(&clock->code[i]);
    return true;
}

static bool init_scalar(sim_machine *m, sim_scalar_unit *scalar, sim_tags *code) {
    const sim_timing *t = m->timing;
    scalar->code = code;
    return sim_tags_init(&scalar->data, t->scalar_cache_bytes, t->scalar_line_bytes, SCALAR_WAYS);
}

static bool init_mids(const sim_machine *m, sim_xcd *xcd) {
    const sim_timing *t = m->timing;
    const uint32_t count = mids_of(m);
    xcd->mids = count ? calloc(count, sizeof *xcd->mids) : nullptr;
    bool ok = xcd->mids || !count;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = sim_tags_init(&xcd->mids[i].tags, t->mid_bytes, SIM_LINE, t->mid_ways);
    return ok;
}

static bool init_xcd(sim_machine *m, sim_clock *clock, uint32_t index) {
    const sim_timing *t = m->timing;
    sim_xcd *xcd = &m->xcds[index];
    const uint32_t scalars = scalars_of(m);
    const uint64_t groups = sim_dispatch_groups(m->dispatch), xccs = m->chip->num_xccs;
    *xcd = (sim_xcd){.machine = m, .index = index};
    const uint64_t all = groups > index ? (groups - index + xccs - 1) / xccs : 0;
    xcd->num_groups = all < m->sample.run ? all : m->sample.run;
    xcd->units = calloc(m->units_per_xcd, sizeof *xcd->units);
    xcd->scalars = calloc(scalars, sizeof *xcd->scalars);
    xcd->channels = calloc(t->l2_channels, sizeof *xcd->channels);
    bool ok = xcd->units && xcd->scalars && xcd->channels &&
              sim_tags_init(&xcd->l2, m->chip->l2_bytes, SIM_LINE, t->l2_ways) && init_mids(m, xcd);
    for (uint32_t i = 0; ok && i < m->units_per_xcd; i++)
        ok = init_unit(m, xcd, i);
    for (uint32_t i = 0; ok && i < scalars; i++)
        ok = init_scalar(m, &xcd->scalars[i], &clock->code[index * scalars + i]);
    return ok;
}

/** Gives the XCDs that run their part of what all busy XCDs share. */
static bool init_memory(sim_machine *m, sim_clock *clock) {
    const sim_timing *t = m->timing;
    const uint64_t groups = sim_dispatch_groups(m->dispatch);
    const uint32_t busy = groups < m->chip->num_xccs ? (uint32_t)groups : m->chip->num_xccs;
    const uint32_t channels = t->hbm_channels * m->num_xcds / busy;
    m->hbm_channels = channels ? channels : 1;
    m->hbm_ticks = (uint64_t)SIM_LINE * SIM_TICKS * m->chip->clock_khz / 1000 / t->hbm_mb_per_s;
    m->hbm = calloc(m->hbm_channels, sizeof *m->hbm);
    const uint64_t bytes = ((uint64_t)t->mall_mib << 20) * m->num_xcds / busy;
    if (bytes && !clock->mall.lines && !sim_tags_init(&clock->mall, bytes, SIM_LINE, 16))
        return false;
    m->mall = bytes ? &clock->mall : nullptr;
    return m->hbm;
}

sim_machine *sim_machine_create(sim_dispatch *d, sim_clock *clock) {
    sim_machine *m = calloc(1, sizeof *m);
    if (!m)
        return nullptr;
    m->dispatch = d;
    m->chip = d->chip;
    m->timing = d->chip->timing;
    m->base = clock->ticks;
    m->joint_units = sim_joint_units(d);
    m->simds = m->chip->simds * m->joint_units;
    m->wave_parts = sim_wave_size(d) / m->chip->wave_size;
    m->units_per_xcd = m->chip->compute_units / m->chip->num_xccs / m->joint_units;
    m->num_insts = d->text->size / 4;
    m->insts = calloc(m->num_insts + 1, sizeof *m->insts); // the last for none
    m->sample = sim_sample_of(d);
    m->num_xcds = m->sample.xcds;
    const uint32_t threads = d->block[0] * d->block[1] * d->block[2];
    m->occupancy = (uint32_t)(m->sample.slots / m->units_per_xcd);
    m->waves_per_group = (threads + sim_wave_size(d) - 1) / sim_wave_size(d);
    m->xcds = calloc(m->num_xcds, sizeof *m->xcds);
    bool ok = m->xcds && m->insts && init_memory(m, clock) && init_code(m, clock);
    for (uint32_t i = 0; ok && i < m->num_xcds; i++)
        ok = init_xcd(m, clock, i);
    ok = ok && (m->spans = calloc(m->xcds[0].num_groups, sizeof *m->spans));
    if (!ok) {
        sim_machine_destroy(m);
        return nullptr;
    }
    return m;
}

static void deinit_unit(sim_group_unit *unit) {
    for (uint32_t i = 0; i < SIM_MAX_JOINT; i++) {
        free(unit->compute_units[i].misses);
        sim_tags_deinit(&unit->compute_units[i].l1);
    }
    for (uint32_t i = 0; i < SIM_MAX_SIMDS; i++)
        free(unit->simds[i].results);
}

static void deinit_xcd(sim_machine *m, sim_xcd *xcd) {
    for (uint32_t i = 0; xcd->units && i < m->units_per_xcd; i++)
        deinit_unit(&xcd->units[i]);
    for (uint32_t i = 0; xcd->mids && i < mids_of(m); i++)
        sim_tags_deinit(&xcd->mids[i].tags);
    free(xcd->mids);
    for (uint32_t i = 0; xcd->scalars && i < scalars_of(m); i++)
        sim_tags_deinit(&xcd->scalars[i].data);
    sim_tags_deinit(&xcd->l2);
    free(xcd->units);
    free(xcd->scalars);
    free(xcd->channels);
}

void sim_machine_destroy(sim_machine *m) {
    for (uint32_t i = 0; m->xcds && i < m->num_xcds; i++)
        deinit_xcd(m, &m->xcds[i]);
    for (sim_resident *r = m->made, *next; r; r = next) {
        next = r->made;
        if (r->num_left) // the launch was stopped
            sim_group_end(&r->group);
        sim_worker_deinit(&r->worker);
        free(r->places);
        free(r);
    }
    free(m->xcds);
    free(m->spans);
    free(m->settle.base);
    free(m->settle.of);
    free(m->insts);
    free(m->hbm);
    free(m->heap);
    free(m);
}
