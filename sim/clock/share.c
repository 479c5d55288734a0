// SPDX-License-Identifier: Apache-2.0
// How many of the lines that an XCD reads are read by others as well, so that memory gives them
// once and the memory-side cache gives them to the rest. One XCD that runs for all cannot tell.
//
// The first workgroups of every XCD execute their first instructions, up to a store or an atomic,
// untimed. Nothing is left of that but the lines that they loaded: when they run again, everything
// is as before.
#include "share.h"

#include "../isa/decode.h"
#include "../look/count.h"
#include "../look/hooks.h"
#include "../pool.h"

enum { MAX_GROUPS = 38, MAX_INSTS = 2048, MAX_XCDS = 16 };
constexpr uint32_t WHOLE = 1024;

/** Returns whether an instruction may leave something behind in memory, or tell somebody. */
static bool has_effect(const sim_traits *t) {
    const bool writes = t->access == SIM_ACCESS_STORE || t->access == SIM_ACCESS_ATOMIC;
    const bool is_own = t->unit == SIM_UNIT_LDS || t->addressing == SIM_SCRATCH;
    return (writes && !is_own) || t->unit == SIM_UNIT_MESSAGE;
}

/** Executes a wave until a barrier, an effect or the limit. Returns whether it waits at a
 *  barrier. */
static bool run_wave(sim_wave *w, uint32_t *left, const sim_facts **facts, sim_footprint *loaded) {
    while (*left && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, w->group->dispatch->text, w->pc);
        if (!inst || has_effect(&inst->traits))
            return false;
        *facts = nullptr;
        sim_look_run(w, 1);
        --*left;
        for (uint64_t lanes = *facts ? (*facts)->memory.mask : 0; lanes; lanes &= lanes - 1)
            sim_footprint_add(loaded, (*facts)->memory.address[__builtin_ctzll(lanes)]);
    }
    return *left && w->state == SIM_AT_BARRIER;
}

static void run_group(sim_workgroup *group, const sim_facts **facts, sim_footprint *loaded) {
    uint32_t left[SIM_MAX_GROUP_WAVES];
    bool all_wait = true;
    for (uint32_t i = 0; i < group->num_waves; i++)
        left[i] = MAX_INSTS;
    do {
        for (uint32_t i = 0; i < group->num_waves; i++)
            all_wait &= run_wave(&group->waves[i], &left[i], facts, loaded);
    } while (all_wait && sim_group_release(group));
}

/** Runs the first workgroups of an XCD. Returns false if memory runs out. */
static bool run_xcd(sim_dispatch *d, sim_worker *worker, uint32_t xcd, sim_footprint *loaded) {
    const uint64_t total = sim_dispatch_groups(d);
    for (uint64_t i = 0; i < MAX_GROUPS; i++) {
        const uint64_t flat_id = i * d->chip->num_xccs + xcd;
        sim_workgroup group;
        if (flat_id >= total)
            break;
        if (!sim_group_begin(&group, d, worker, flat_id))
            return false;
        run_group(&group, &d->rehearsed, loaded);
        sim_look_end(&group);
    }
    return true;
}

/** Returns the sum over the first footprint's lines of 1 / how many footprints have the line. */
static uint32_t count_own(const sim_footprint *loaded, uint32_t count) {
    double own = 0;
    for (size_t i = 0; i < loaded[0].room; i++) {
        for (uint64_t left = loaded[0].pages[i].lines; left; left &= left - 1) {
            const uint64_t line = loaded[0].pages[i].number * 64 + (uint64_t)__builtin_ctzll(left);
            uint32_t have = 1;
            for (uint32_t x = 1; x < count; x++)
                have += sim_footprint_has(&loaded[x], line * SIM_FOOTPRINT_LINE);
            own += 1.0 / have;
        }
    }
    const uint64_t lines = sim_footprint_lines(&loaded[0]);
    return lines ? (uint32_t)(WHOLE * own / (double)lines) : WHOLE;
}

uint32_t sim_own_share(sim_dispatch *d, const sim_sample *sample) {
    const uint64_t total = sim_dispatch_groups(d);
    uint32_t busy = d->chip->num_xccs < MAX_XCDS ? d->chip->num_xccs : MAX_XCDS;
    busy = total < busy ? (uint32_t)total : busy;
    if (busy == sample->xcds)
        return WHOLE;
    sim_footprint loaded[MAX_XCDS] = {};
    sim_worker worker = {};
    const uint32_t check = d->check;
    d->check = 0;
    d->is_rehearsal = true;
    bool ok = sim_group_reserve(d, &worker);
    for (uint32_t x = 0; ok && x < busy; x++)
        ok = run_xcd(d, &worker, x, &loaded[x]);
    d->is_rehearsal = false;
    d->check = check;
    const uint32_t own = ok ? count_own(loaded, busy) : WHOLE;
    for (uint32_t x = 0; x < busy; x++)
        sim_footprint_deinit(&loaded[x]);
    sim_worker_deinit(&worker);
    return own;
}
