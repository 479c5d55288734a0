// SPDX-License-Identifier: Apache-2.0
// How many of the lines that an XCD reads are read by others as well, so that memory gives them
// once and the memory-side cache gives them to the rest. One XCD that runs for all cannot tell, nor
// whether another's lines are farther away from it, as where workgroups and pages take turns alike.
//
// The first workgroups of every XCD execute their first instructions, up to a store or an atomic,
// untimed. Nothing is left of that but the lines that they loaded: when they run again, everything
// is as before.
#include "share.h"

#include "../chip/timing.h"
#include "../isa/decode.h"
#include "../look/count.h"
#include "../look/hooks.h"
#include "../pool.h"

#include <math.h>

enum { MAX_GROUPS = 38, MAX_INSTS = 2048, MAX_XCDS = 16 };
enum { STACKS = 8, STACK_BYTES = 4096 }; // of memory, which addresses go through in turn
constexpr uint32_t WHOLE = 1024;

/** XCDs and stacks are shared out among the dies that join them: the numbers of neighbours differ
 *  in one bit, those of a square's opposite corners in two. */
uint32_t sim_hops(const sim_chip *chip, uint32_t xcd, uint64_t line) {
    const uint64_t stack = line * SIM_FOOTPRINT_LINE / STACK_BYTES % STACKS;
    const uint32_t dies = 1u << chip->timing->most_hops;
    const uint32_t from = xcd * dies / chip->num_xccs, to = (uint32_t)stack * dies / STACKS;
    return (uint32_t)__builtin_popcount(from ^ to);
}

/** What the workgroups of an XCD load. */
typedef struct xcd_loads {
    sim_footprint lines;
    uint64_t hops, count; // of the loads of lanes
} xcd_loads;

/** Returns whether an instruction may leave something behind in memory, or tell somebody. */
static bool has_effect(const sim_traits *t) {
    const bool writes = t->access == SIM_ACCESS_STORE || t->access == SIM_ACCESS_ATOMIC;
    const bool is_own = t->unit == SIM_UNIT_LDS || t->addressing == SIM_SCRATCH;
    return (writes && !is_own) || t->unit == SIM_UNIT_MESSAGE;
}

static void add_load(const sim_chip *chip, uint32_t xcd, xcd_loads *loaded, uint64_t address) {
    sim_footprint_add(&loaded->lines, address);
    loaded->hops += sim_hops(chip, xcd, address / SIM_FOOTPRINT_LINE);
    loaded->count++;
}

/** Executes a wave until a barrier, an effect or the limit. Returns whether it waits at a
 *  barrier. */
static bool run_wave(sim_wave *w, uint32_t *left, const sim_facts **facts, uint32_t xcd,
                     xcd_loads *loaded) {
    while (*left && w->state == SIM_RUNNING) {
        const sim_inst *inst = sim_fetch(w, w->group->dispatch->text, w->pc);
        if (!inst || has_effect(&inst->traits))
            return false;
        *facts = nullptr;
        sim_look_run(w, 1);
        --*left;
        for (uint64_t lanes = *facts ? (*facts)->memory.mask : 0; lanes; lanes &= lanes - 1)
            add_load(w->group->dispatch->chip, xcd, loaded,
                     (*facts)->memory.address[__builtin_ctzll(lanes)]);
    }
    return *left && w->state == SIM_AT_BARRIER;
}

static void run_group(sim_workgroup *group, const sim_facts **facts, uint32_t xcd,
                      xcd_loads *loaded) {
    uint32_t left[SIM_MAX_GROUP_WAVES];
    bool all_wait = true;
    for (uint32_t i = 0; i < group->num_waves; i++)
        left[i] = MAX_INSTS;
    do {
        for (uint32_t i = 0; i < group->num_waves; i++)
            all_wait &= run_wave(&group->waves[i], &left[i], facts, xcd, loaded);
    } while (all_wait && sim_group_release(group));
}

/** Runs the first workgroups of an XCD. Returns false if memory runs out. */
static bool run_xcd(sim_dispatch *d, sim_worker *worker, uint32_t xcd, xcd_loads *loaded) {
    const uint64_t total = sim_dispatch_groups(d);
    for (uint64_t i = 0; i < MAX_GROUPS; i++) {
        const uint64_t flat_id = i * d->chip->num_xccs + xcd;
        sim_workgroup group;
        if (flat_id >= total)
            break;
        if (!sim_group_begin(&group, d, worker, flat_id))
            return false;
        run_group(&group, &d->rehearsed, xcd, loaded);
        sim_look_end(&group);
    }
    return true;
}

/** Returns the sum over the first XCD's lines of 1 / how many XCDs have the line. */
static uint32_t count_own(const xcd_loads of[], uint32_t count) {
    const sim_footprint *first = &of[0].lines;
    double own = 0;
    for (size_t i = 0; i < first->room; i++) {
        for (uint64_t left = first->pages[i].lines; left; left &= left - 1) {
            const uint64_t line = first->pages[i].number * 64 + (uint64_t)__builtin_ctzll(left);
            uint32_t have = 1;
            for (uint32_t x = 1; x < count; x++)
                have += sim_footprint_has(&of[x].lines, line * SIM_FOOTPRINT_LINE);
            own += 1.0 / have;
        }
    }
    const uint64_t lines = sim_footprint_lines(first);
    return lines ? (uint32_t)(WHOLE * own / (double)lines) : WHOLE;
}

static double mean_hops(const xcd_loads *of) {
    return of->count ? (double)of->hops / (double)of->count : 0;
}

static double find_farther(const xcd_loads of[], uint32_t count) {
    double most = 0;
    for (uint32_t x = 0; x < count; x++)
        most = fmax(most, mean_hops(&of[x]));
    return most - mean_hops(&of[0]);
}

sim_shared sim_share_of(sim_dispatch *d, const sim_sample *sample) {
    const uint64_t total = sim_dispatch_groups(d);
    sim_shared shared = {.own_share = WHOLE};
    uint32_t busy = d->chip->num_xccs < MAX_XCDS ? d->chip->num_xccs : MAX_XCDS;
    busy = total < busy ? (uint32_t)total : busy;
    if (busy == sample->xcds)
        return shared;
    xcd_loads loaded[MAX_XCDS] = {};
    sim_worker worker = {};
    const uint32_t check = d->check;
    d->check = 0;
    d->is_rehearsal = true;
    bool ok = sim_group_reserve(d, &worker);
    for (uint32_t x = 0; ok && x < busy; x++)
        ok = run_xcd(d, &worker, x, &loaded[x]);
    d->is_rehearsal = false;
    d->check = check;
    if (ok)
        shared = (sim_shared){count_own(loaded, busy), find_farther(loaded, busy)};
    for (uint32_t x = 0; x < busy; x++)
        sim_footprint_deinit(&loaded[x].lines);
    sim_worker_deinit(&worker);
    return shared;
}
