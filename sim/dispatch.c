// SPDX-License-Identifier: Apache-2.0
// A kernel launch: workgroups run in parallel on host threads, the waves of a workgroup in turn on
// one thread.
//
// The initial state of a wave is LLVM's AMDGPUUsage, "Initial Kernel Execution State".
#include "check/hooks.h"
#include "clock/clock.h"
#include "look/hooks.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_DYNAMIC_STACK = 16384, MAX_USER_SGPRS = 16, ACC_FIRST = 256 };

uint32_t sim_kernel_scratch(const sim_kernel *kernel) {
    uint32_t bytes = kernel->scratch_bytes; // may be any number: the caller has a limit
    bytes = bytes > UINT32_MAX - 3 ? UINT32_MAX & ~3u : (bytes + 3) & ~3u;
    return kernel->uses_dynamic_stack && bytes < MIN_DYNAMIC_STACK ? MIN_DYNAMIC_STACK : bytes;
}

static uint64_t num_threads(const sim_dispatch *d) {
    return (uint64_t)d->block[0] * d->block[1] * d->block[2];
}

static uint32_t num_waves(const sim_dispatch *d) {
    return (uint32_t)((num_threads(d) + sim_wave_size(d) - 1) / sim_wave_size(d));
}

// ---- initial registers

/** Counts a kernel's registers in each half of the file: rsrc1's granules, split at ACCUM_OFFSET.
 *  RDNA has one half. */
static void count_registers(const sim_dispatch *d, uint32_t *arch, uint32_t *acc) {
    const sim_kernel *kernel = d->kernel;
    const uint32_t total = ((kernel->rsrc1 & 63) + 1) * 8;
    const uint32_t split = d->chip->gfx_major > 9 ? total : ((kernel->rsrc3 & 63) + 1) * 4;
    *arch = total < split ? total : split;
    *arch = *arch < ACC_FIRST ? *arch : ACC_FIRST;
    *acc = total > split ? total - split : 0;
    *acc = *acc < ACC_FIRST ? *acc : ACC_FIRST;
}

static uint32_t put64(sim_wave *w, uint32_t n, uint64_t value) {
    w->s[n] = (uint32_t)value;
    w->s[n + 1] = (uint32_t)(value >> 32);
    return n + 2;
}

/** Loads the kernel arguments that the descriptor asks for in registers. */
static void preload_args(sim_wave *w, uint32_t n) {
    const sim_dispatch *d = w->group->dispatch;
    const uint32_t count = d->kernel->preload & 127, offset = d->kernel->preload >> 7;
    const uint8_t *args = sim_memory_host(d->memory, d->kernarg + 4 * (uint64_t)offset, 4 * count);
    for (uint32_t i = 0; args && i < count && n + i < MAX_USER_SGPRS; i++)
        memcpy(&w->s[n + i], args + 4 * (size_t)i, 4);
}

/** Writes the descriptor of all waves' scratch, as AMD's runtime makes it: dwords of 64 lanes in
 *  turn, indexed by lane. */
static uint32_t put_scratch_buffer(sim_wave *w) {
    put64(w, 0, SIM_SCRATCH_BASE | UINT64_C(1) << 63); // swizzled
    w->s[2] = w->group->num_waves * SIM_LANES * w->scratch_bytes;
    w->s[3] = 0x00ea4fac; // 4-byte elements, 64 indices, the lane added to the index
    return 4;
}

static void init_user_sgprs(sim_wave *w) {
    enum { BUFFER = 1, PACKET = 2, QUEUE = 4, KERNARG = 8, ID = 16, FLAT = 32, PRIVATE_SIZE = 64 };
    const sim_dispatch *d = w->group->dispatch;
    uint32_t wanted = d->kernel->properties, n = 0;
    n = wanted & BUFFER ? put_scratch_buffer(w) : n;
    n = wanted & PACKET ? put64(w, n, d->packet) : n;
    n = wanted & QUEUE ? put64(w, n, 0) : n;
    n = wanted & KERNARG ? put64(w, n, d->kernarg) : n;
    n = wanted & ID ? put64(w, n, d->id) : n;
    n = wanted & FLAT ? put64(w, n, SIM_SCRATCH_BASE) : n;
    if (wanted & PRIVATE_SIZE)
        w->s[n++] = w->scratch_bytes;
    preload_args(w, n);
}

/** Writes the workgroup's ids, then what gfx90a needs to find its scratch; later chips' hardware
 *  knows it. */
static void init_system_sgprs(sim_wave *w) {
    enum { PRIVATE_SEGMENT = 1, INFO = 1 << 10 };
    const sim_dispatch *d = w->group->dispatch;
    uint32_t rsrc2 = d->kernel->rsrc2, n = rsrc2 >> 1 & 31;
    if (d->chip->gfx_major >= 12) { // ids have a place of their own; bits 29:25 of ttmp8 are the
                                    // wave's id
        w->ttmp[8] = w->index << 25;
        w->ttmp[9] = w->group->id[0];
        w->ttmp[7] = w->group->id[1] | w->group->id[2] << 16;
        return;
    }
    for (uint32_t axis = 0; axis < 3; axis++)
        if (rsrc2 >> (7 + axis) & 1)
            w->s[n++] = w->group->id[axis];
    if (rsrc2 & INFO)
        w->s[n++] = (uint32_t)(w->index == 0) << 31 | w->group->num_waves;
    if ((rsrc2 & PRIVATE_SEGMENT) && d->chip->arch == SIM_GFX90A)
        w->s[n] = sim_scratch_offset(w);
}

/** Writes v0, which holds the work-item's three ids of ten bits each, and EXEC, which has the lanes
 *  that exist. */
static void init_lanes(sim_wave *w) {
    const sim_dispatch *d = w->group->dispatch;
    const uint64_t first = (uint64_t)w->index * sim_wave_size(d), left = num_threads(d) - first;
    const uint32_t live = left < sim_wave_size(d) ? (uint32_t)left : sim_wave_size(d);
    w->exec = live == 64 ? UINT64_MAX : (UINT64_C(1) << live) - 1;
    const uint32_t width = d->block[0], height = d->block[1], row = (uint32_t)first / width;
    uint32_t x = (uint32_t)first % width, y = row % height, z = row / height;
    for (uint32_t lane = 0; lane < live; lane++) {
        w->v[0][lane] = x | y << 10 | z << 20;
        if (++x == width) {
            x = 0;
            z += ++y == height;
            y = y == height ? 0 : y;
        }
    }
}

static void init_wave(sim_wave *w, sim_workgroup *group, uint32_t index, uint8_t *scratch) {
    static const sim_region nothing;
    const sim_dispatch *d = group->dispatch;
    uint32_t arch, acc;
    count_registers(d, &arch, &acc);
    memset(w->v[0], 0, arch * sizeof w->v[0]);
    memset(w->v[ACC_FIRST], 0, acc * sizeof w->v[0]);
    memset(w->s, 0, sizeof *w - offsetof(sim_wave, s));
    w->pc = d->kernel->entry;
    w->mode = sim_mode_of_rsrc1(d->kernel->rsrc1);
    w->mode |= d->chip->gfx_major >= 12 ? SIM_MODE_GFX12 : 0;
    w->wave32 = sim_wave_size(d) == 32;
    w->fast_matrix = d->fast_matrix;
    w->state = SIM_RUNNING;
    w->index = index;
    w->shared_base = SIM_SHARED_APERTURE;
    w->private_base = SIM_PRIVATE_APERTURE;
    w->scratch_bytes = sim_kernel_scratch(d->kernel);
    w->scratch = scratch + (size_t)index * SIM_LANES * w->scratch_bytes;
    w->group = group;
    w->region = &nothing;
    init_user_sgprs(w);
    init_system_sgprs(w);
    init_lanes(w);
}

// ---- a workgroup

bool sim_barrier_is_complete(const sim_wave *w) {
    for (uint32_t i = 0; i < w->group->num_waves; i++) {
        const sim_wave *other = &w->group->waves[i];
        if (other->state != SIM_ENDED && (int32_t)(other->num_signals - w->num_waits) < 0)
            return false;
    }
    return true;
}

bool sim_group_release(sim_workgroup *group) {
    bool any = false;
    sim_wave *stuck = nullptr;
    for (uint32_t i = 0; i < group->num_waves; i++) {
        sim_wave *w = &group->waves[i];
        if (w->state == SIM_AT_BARRIER && sim_barrier_is_complete(w)) {
            w->state = SIM_RUNNING;
            any = true;
        } else if (w->state == SIM_AT_BARRIER) {
            stuck = w;
        }
    }
    if (!any && stuck) {
        sim_fault_report(stuck, nullptr, -1, SIM_FAULT_DEADLOCK, nullptr,
                         "waits for ever: no wave is left that could signal the barrier");
    }
    return any;
}

/** Runs each running wave once: to its end, a barrier or the end of its slice. Returns whether any
 *  still runs. */
static bool run_round(sim_workgroup *group) {
    bool running = false;
    for (uint32_t i = 0; i < group->num_waves; i++) {
        sim_wave *w = &group->waves[i];
        if (w->state == SIM_AT_BARRIER && w->num_waits && sim_barrier_is_complete(w))
            w->state = SIM_RUNNING;
        if (w->state == SIM_RUNNING) {
            sim_wave_run(w);
            running |= w->state == SIM_RUNNING;
        }
        if (atomic_load_explicit(&group->dispatch->stop, memory_order_relaxed))
            return false;
    }
    return running;
}

static void add_counters(const sim_workgroup *group) {
    for (uint32_t i = 0; i < group->num_waves; i++) {
        for (int k = 0; k < 8; k++) {
            const uint64_t count = group->waves[i].counters[k];
            if (count) {
                atomic_fetch_add_explicit(&group->dispatch->counters[k], count,
                                          memory_order_relaxed);
            }
        }
    }
}

static void stop_without_memory(sim_dispatch *d) {
    sim_fault_stop(d, SIM_FAULT_RESOURCES,
                   "no host memory for the registers, LDS and scratch of a workgroup");
}

bool sim_group_begin(sim_workgroup *group, sim_dispatch *d, sim_worker *worker, uint64_t flat_id) {
    *group = (sim_workgroup){.dispatch = d,
                             .flat_id = flat_id,
                             .num_waves = num_waves(d),
                             .lds = worker->lds,
                             .waves = worker->waves};
    group->id[0] = (uint32_t)(flat_id % d->grid[0]);
    group->id[1] = (uint32_t)(flat_id / d->grid[0] % d->grid[1]);
    group->id[2] = (uint32_t)(flat_id / d->grid[0] / d->grid[1]);
    memset(group->lds, 0, d->lds_bytes);
    for (uint32_t i = 0; i < group->num_waves; i++)
        init_wave(&group->waves[i], group, i, worker->scratch);
    sim_check_begin(group, worker->shadow);
    const bool ok = sim_look_begin(group);
    if (!ok)
        stop_without_memory(d);
    return ok;
}

void sim_group_end(sim_workgroup *group) {
    add_counters(group);
    sim_look_end(group);
}

static void run_group(sim_dispatch *d, sim_worker *worker, uint64_t flat_id) {
    sim_workgroup group;
    if (!sim_group_begin(&group, d, worker, flat_id))
        return;
    do {
        while (run_round(&group)) {
        }
    } while (!atomic_load_explicit(&d->stop, memory_order_relaxed) && sim_group_release(&group));
    sim_group_end(&group);
}

// ---- a dispatch

uint64_t sim_dispatch_groups(const sim_dispatch *d) {
    return (uint64_t)d->grid[0] * d->grid[1] * d->grid[2];
}

bool sim_group_reserve(sim_dispatch *d, sim_worker *worker) {
    const uint64_t scratch = sim_kernel_scratch(d->kernel);
    const bool ok =
        sim_worker_reserve(worker, num_waves(d), d->lds_bytes, scratch * SIM_LANES * num_waves(d),
                           sim_check_bytes(d->check, num_waves(d), d->lds_bytes));
    if (!ok)
        stop_without_memory(d);
    return ok;
}

void sim_dispatch_work(sim_dispatch *d, sim_worker *worker) {
    const uint64_t total = sim_dispatch_groups(d);
    sim_group_reserve(d, worker);
    while (!atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        const uint64_t flat_id = atomic_fetch_add(&d->next_group, 1);
        if (flat_id >= total)
            break;
        if (!d->clock || !sim_clock_has_run(d, flat_id))
            run_group(d, worker, flat_id);
    }
}

/** A workgroup of a cooperative dispatch, with the memory in which it runs. */
typedef struct resident {
    sim_workgroup group;
    sim_worker worker;
    bool has_begun, has_ended;
} resident;

/** Gives a resident group's waves one turn each. Returns whether it goes on. */
static bool step_resident(resident *r) {
    if (r->has_ended)
        return false;
    if (!run_round(&r->group) && !sim_group_release(&r->group)) {
        sim_group_end(&r->group);
        r->has_ended = true;
    }
    return !r->has_ended;
}

void sim_dispatch_work_together(sim_dispatch *d) {
    const uint64_t total = sim_dispatch_groups(d);
    resident *all = calloc(total, sizeof *all);
    bool goes_on = all;
    if (!all)
        stop_without_memory(d);
    for (uint64_t i = 0; goes_on && i < total; i++) {
        resident *r = &all[i];
        goes_on = sim_group_reserve(d, &r->worker) && sim_group_begin(&r->group, d, &r->worker, i);
        r->has_begun = goes_on;
    }
    while (goes_on && !atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        goes_on = false;
        for (uint64_t i = 0; i < total; i++)
            goes_on |= step_resident(&all[i]);
    }
    for (uint64_t i = 0; all && i < total; i++) {
        if (all[i].has_begun && !all[i].has_ended)
            sim_group_end(&all[i].group);
        sim_worker_deinit(&all[i].worker);
    }
    free(all);
}

bool sim_dispatch_run(sim_dispatch *d) {
    if (!sim_race_open(d)) {
        sim_fault_stop(d, SIM_FAULT_RESOURCES, "no host memory for the check of races");
        return false;
    }
    sim_memory_enter(d->memory);
    sim_look_begin_dispatch(d);
    const uint64_t end_ns = d->clock ? sim_clock_run(d) : 0;
    if (d->is_cooperative)
        sim_dispatch_work_together(d);
    else
        sim_pool_run(d);
    sim_look_end_dispatch(d);
    if (d->clock && !d->wants_demand)
        sim_look_show(&d->shown, &(sim_span){end_ns - d->timed.ns, end_ns, 0});
    free(d->timed.insts);
    d->timed.insts = nullptr;
    sim_memory_leave(d->memory);
    sim_race_close(d);
    sim_faults_sort(&d->faults);
    return !atomic_load(&d->stop) && !sim_faults_failing(&d->faults);
}
