// SPDX-License-Identifier: Apache-2.0
// How long accesses to LDS take. Two SIMDs share a port; the banks serve both ports. look/banks.c
// says how many cycles the banks work on an access. Each compute unit of joint ones is taken to
// find its data in banks of its own.
#include "../look/count.h"
#include "machine.h"

static uint32_t count_bytes(const sim_touch *touch) {
    uint32_t bytes = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1)
        bytes += touch->bytes[__builtin_ctzll(left)];
    return bytes;
}

uint64_t sim_lds_open(const sim_group_unit *unit, uint32_t simd) {
    const uint64_t queue = sim_ticks(unit->xcd->machine->timing->lds_queue_cycles);
    const uint64_t busy = unit->lds_pair_free[simd / 2];
    return busy > queue ? busy - queue : 0;
}

/** The cycles of the port: those of the data, and of a store's way to it. */
static uint64_t port_cycles(const sim_timing *t, const sim_touch *touch, uint8_t access) {
    const uint64_t cycles = (count_bytes(touch) + t->lds_pair_bytes - 1) / t->lds_pair_bytes;
    return access == SIM_ACCESS_LOAD ? cycles : cycles + t->lds_store_cycles;
}

uint64_t sim_time_lds_access(sim_group_unit *unit, uint32_t simd, const sim_facts *facts,
                             uint64_t at) {
    sim_machine *m = unit->xcd->machine;
    const sim_timing *t = m->timing;
    const uint8_t access = facts->inst->traits.access;
    uint64_t *banks_free = &sim_compute_unit_of(m, unit, simd)->lds_free;
    uint64_t done = at + sim_ticks(t->lds_cycles);
    for (uint8_t i = 0; i < facts->num_lds; i++) {
        const sim_touch *touch = &facts->lds[i];
        const uint32_t banks = sim_time_lds(m->chip, touch, access).active;
        const uint64_t port = port_cycles(t, touch, access),
                       plain = m->chip->wave_size * 4 / t->lds_pair_bytes;
        uint64_t *pair = &unit->lds_pair_free[simd / 2];
        const uint64_t begin = sim_later(sim_later(at, *pair), *banks_free);
        *banks_free = begin + sim_ticks(banks);
        *pair = begin + sim_ticks(port > banks ? port : banks);
        m->busy[SIM_PART_LDS] += *pair - begin;
        const uint64_t data = *pair - begin, hidden = sim_ticks(plain);
        const uint64_t longer = data > hidden ? data - hidden : 0;
        done = sim_later(done, begin + sim_ticks(t->lds_cycles) + longer);
        m->traffic.lds_bytes += count_bytes(touch);
    }
    return done;
}
