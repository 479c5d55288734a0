// SPDX-License-Identifier: Apache-2.0
// Samples. XCDs get equal shares of a launch's workgroups, so one of them stands for all. Where its
// workgroups are many times what it holds, the first rounds stand for the others, and the last,
// which is not full, runs as well.
#include "sample.h"

#include "clock.h"

uint32_t sim_joint_units(const sim_dispatch *d) {
    enum { WGP_MODE = 1 << 29 }; // of rsrc1, on chips that have joint units
    return d->kernel->rsrc1 & WGP_MODE ? d->chip->joint_units : 1;
}

sim_occupancy sim_occupancy_of(const sim_dispatch *d) {
    const uint32_t threads = d->block[0] * d->block[1] * d->block[2];
    sim_chip unit = *d->chip;
    unit.simds *= sim_joint_units(d);
    unit.lds_bytes *= sim_joint_units(d);
    unit.max_groups *= sim_joint_units(d);
    return sim_find_occupancy(&unit, d->kernel, threads, d->lds_bytes);
}

sim_sample sim_sample_of(const sim_dispatch *d) {
    const uint64_t total = (uint64_t)d->grid[0] * d->grid[1] * d->grid[2];
    const uint32_t xccs = d->chip->num_xccs;
    const uint32_t units = d->chip->compute_units / xccs / sim_joint_units(d);
    const uint32_t fits = sim_occupancy_of(d).groups;
    sim_sample s = {.xcds = 1,
                    .slots = (uint64_t)(fits ? fits : 1) * units,
                    .groups = (total + xccs - 1) / xccs};
    s.run = s.groups;
    if (d->clock_mode == SIM_CLOCK_XCD)
        return s;
    if (d->clock_mode == SIM_CLOCK_FULL) {
        s.xcds = total < xccs ? (uint32_t)total : xccs;
        return s;
    }
    const uint64_t last = (s.groups - 1) % s.slots + 1, rounds = (s.groups - last) / s.slots;
    if (rounds > SIM_ROUNDS)
        s.run = SIM_ROUNDS * s.slots + last;
    return s;
}

uint64_t sim_sample_end(const sim_sample *s, uint64_t end, const uint64_t round_ends[]) {
    const uint64_t left_out = s->groups - s->run;
    const uint64_t rounds = (round_ends[SIM_ROUNDS] - round_ends[1]) / (SIM_ROUNDS - 1);
    return left_out ? end + left_out / s->slots * rounds : end;
}
