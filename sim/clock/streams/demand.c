// SPDX-License-Identifier: Apache-2.0
// What a launch asks of the chip, for other launches beside it: how long its workgroups ran, the
// room that one takes, and the share of each part that one keeps busy, on average.
#include "demand.h"

#include <stdlib.h>

/** Returns nanoseconds of a tick, as the launch took them. */
static double ns_per_tick(const sim_machine *m) {
    const sim_clock_result *r = &m->dispatch->timed;
    const double ns = (double)(r->ns - m->timing->launch_ns);
    return r->cycles ? ns / ((double)r->cycles * SIM_TICKS) : 0;
}

/** Writes the spans. Returns their sum, in ticks. */
static double add_spans(sim_demand *out, const sim_machine *m) {
    const double each = ns_per_tick(m);
    double sum = 0;
    for (uint64_t i = 0; i < out->num_spans; i++) {
        out->spans[i] = (float)((double)m->spans[i] * each);
        sum += (double)m->spans[i];
    }
    return sum;
}

/** Finds the share of a unit's room that a workgroup takes. A unit is as large as the chip lets a
 *  workgroup have. */
static void find_room(sim_demand *out, const sim_dispatch *d) {
    const sim_occupancy fits = sim_occupancy_of(d);
    const uint32_t parts = d->chip->joint_units / sim_joint_units(d);
    for (int i = 0; i < SIM_NUM_LIMITS; i++)
        out->room[i] = fits.by[i] ? 1.0 / ((double)fits.by[i] * parts) : 1;
}

static double power_share(const sim_machine *m) {
    const sim_timing *t = m->timing;
    return (m->dispatch->timed.watts - t->static_w) / ((double)t->limit_w - t->static_w);
}

/** Finds the share of each part that a workgroup keeps busy, from the ticks for which all of an XCD
 *  did. */
static void find_busy(sim_demand *out, const sim_machine *m, uint64_t end, double spans) {
    const sim_timing *t = m->timing;
    const double joint = m->chip->joint_units, simds = m->chip->simds * joint;
    const double xcds = m->num_xcds, slower = ns_per_tick(m) * m->chip->clock_khz * SIM_TICKS / 1e6;
    const double count[SIM_PART_FABRIC] = {[SIM_PART_MATRIX] = simds,
                                           [SIM_PART_LANES] = simds,
                                           [SIM_PART_LDS] = simds / 2,
                                           [SIM_PART_VECTOR_CACHE] = joint,
                                           [SIM_PART_L2] = t->l2_channels};
    for (int i = 0; i < SIM_PART_FABRIC; i++)
        out->busy[i] = (double)m->busy[i] / count[i] / xcds / spans;
    out->busy[SIM_PART_FABRIC] =
        (double)m->traffic.fabric_lines * SIM_LINE * SIM_TICKS / t->fabric_bytes / xcds / spans;
    out->busy[SIM_PART_MEMORY] =
        (double)m->traffic.hbm_lines * (double)m->hbm_ticks / m->hbm_channels / slower / spans;
    out->busy[SIM_PART_POWER] = power_share(m) * (double)end / spans;
}

sim_demand *sim_demand_of(const sim_machine *m, uint64_t end) {
    const sim_timing *t = m->timing;
    const uint64_t spans = m->xcds[0].num_ended;
    sim_demand *out = calloc(1, sizeof *out + spans * sizeof *out->spans);
    if (!out)
        return nullptr;
    *out = (sim_demand){.ns = m->dispatch->timed.ns,
                        .launch_ns = t->launch_ns,
                        .tail_ns = (double)(end - m->last_end) * ns_per_tick(m),
                        .start_ns = (double)sim_ticks(t->group_cycles) * ns_per_tick(m),
                        .power_root = 1 / (1 + t->energy_exponent / 100.0),
                        .units = m->chip->compute_units / m->chip->num_xccs / m->chip->joint_units,
                        .groups = m->sample.groups,
                        .round = m->sample.slots,
                        .num_spans = spans};
    find_room(out, m->dispatch);
    find_busy(out, m, end, add_spans(out, m));
    return out;
}
