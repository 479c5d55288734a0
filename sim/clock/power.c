// SPDX-License-Identifier: Apache-2.0
// Power: energies of instructions and bytes, measured at one clock, grow with a power of the clock;
// the board's limit then sets the clock. Only the part of the time that depends on the shader clock
// grows when it falls: memory has a clock of its own.
#include "power.h"

#include <math.h>
#include <string.h>

/** What the whole chip does, of which the XCDs that ran are a part. */
typedef struct load {
    double core_cycles, memory_ns; // the time is their sum
    double joules;                 // at the reference clock
    const sim_timing *timing;
} load;

static double seconds_at(const load *l, double mhz) {
    return l->core_cycles / (mhz * 1e6) + l->memory_ns * 1e-9;
}

static double watts_at(const load *l, double mhz) {
    const double scale = pow(mhz / l->timing->reference_mhz, l->timing->energy_exponent / 100.0);
    return l->timing->static_w + l->joules * scale / seconds_at(l, mhz);
}

/** Returns the highest clock at which the board keeps its limit. */
static double find_mhz(const load *l, double peak_mhz) {
    double low = peak_mhz / 10, high = peak_mhz;
    if (watts_at(l, peak_mhz) <= l->timing->limit_w)
        return peak_mhz;
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        *(watts_at(l, middle) > l->timing->limit_w ? &high : &low) = middle;
    }
    return low;
}

/** Returns the share of the time that memory's own clock sets: memory is busy, and what runs waits
 *  for it. Where other work hides memory's, the time follows the shader clock. */
static double memory_share(const sim_machine *m, const uint64_t spent[], uint64_t end) {
    const double busy = (double)m->traffic.hbm_lines * (double)m->hbm_ticks / m->hbm_channels;
    uint64_t all = 0;
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        all += i == SIM_SPENT_IDLE ? 0 : spent[i];
    const uint64_t waits = spent[SIM_SPENT_WAIT_VMEM] + spent[SIM_SPENT_WAIT_QUEUE];
    return end && all ? fmin(busy / (double)end, (double)waits / (double)all) : 0;
}

static void add_spent(uint64_t spent[], const sim_simd *simd, uint64_t end) {
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        spent[i] += simd->spent[i] / SIM_TICKS;
    spent[simd->waits] += end > simd->counted ? (end - simd->counted) / SIM_TICKS : 0;
}

static void sum_spent(uint64_t spent[], const sim_machine *m, uint64_t end) {
    for (uint32_t x = 0; x < m->num_xcds; x++)
        for (uint32_t u = 0; u < m->units_per_xcd; u++)
            for (uint32_t s = 0; s < m->simds; s++)
                add_spent(spent, &m->xcds[x].units[u].simds[s], end);
}

static double part_run(const sim_machine *m) {
    const sim_settle *s = &m->settle;
    return s->ran ? (double)s->ran / (double)s->all : 1;
}

/** Returns by how much the rounds differ that stand for others, or the windows of one. */
static double spread_of(const sim_machine *m) {
    const uint64_t *ends = m->round_ends;
    const double second = (double)(ends[2] - ends[1]), third = (double)(ends[3] - ends[2]);
    if (m->settle.ran)
        return m->settle.spread;
    return m->sample.run < m->sample.groups ? fabs(third / second - 1) : 0;
}

sim_clock_result sim_clock_result_of(sim_machine *m, uint64_t end) {
    const sim_timing *t = m->timing;
    uint64_t spent[SIM_NUM_SPENT] = {};
    sum_spent(spent, m, end);
    const double share = memory_share(m, spent, end);
    const uint64_t whole = sim_sample_end(&m->sample, end, m->round_ends);
    const double peak_mhz = m->chip->clock_khz / 1000.0, cycles = (double)whole / SIM_TICKS;
    const double parts =
        (double)sim_dispatch_groups(m->dispatch) / (double)(m->groups_run ? m->groups_run : 1);
    const double moved_fj = (double)m->traffic.hbm_lines * SIM_LINE * t->hbm_byte_fj +
                            (double)m->traffic.l2_lines * SIM_LINE * t->l2_byte_fj +
                            (double)m->traffic.lds_bytes * t->lds_byte_fj;
    const load l = {.core_cycles = cycles * (1 - share),
                    .memory_ns = cycles * share / peak_mhz * 1e3,
                    .joules = parts * ((double)m->energy_fj + moved_fj) * 1e-15,
                    .timing = t};
    const double mhz = find_mhz(&l, peak_mhz);
    sim_clock_result out = {.cycles = whole / SIM_TICKS,
                            .unlimited_ns =
                                (uint64_t)(seconds_at(&l, peak_mhz) * 1e9) + t->launch_ns,
                            .ns = (uint64_t)(seconds_at(&l, mhz) * 1e9) + t->launch_ns,
                            .mhz = mhz,
                            .watts = watts_at(&l, mhz),
                            .groups = sim_dispatch_groups(m->dispatch),
                            .groups_run = m->groups_run,
                            .wave_cycles = m->wave_ticks / SIM_TICKS,
                            .matrix_ops = m->matrix_ops,
                            .matrix_cycles = m->busy[SIM_PART_MATRIX] / SIM_TICKS,
                            .part_run = part_run(m),
                            .spread = spread_of(m),
                            .sampled = m->sample.run,
                            .traffic = m->traffic};
    for (uint64_t i = 0; i < m->num_insts; i++)
        for (int k = 0; k < SIM_NUM_SPENT; k++)
            m->insts[i].cycles[k] /= SIM_TICKS;
    memcpy(out.spent, spent, sizeof spent);
    out.insts = m->insts;
    out.num_insts = m->num_insts;
    m->insts = nullptr;
    return out;
}
