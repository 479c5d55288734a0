// SPDX-License-Identifier: Apache-2.0
// Records of what a kernel did wrong: one for each instruction and kind, of the lowest workgroup
// that met it.
//
// Host threads that run workgroups of one launch record at the same time. A known fault costs a
// look at a short list; only a new one is put into words.
#include "fault.h"

#include "../chip/chip.h"
#include "../isa/decode.h"
#include "../isa/inst.h"
#include "../memory.h"
#include "../wave.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What identifies a record, and what decides whether it is kept or replaced. */
typedef struct claim {
    sim_dispatch *dispatch;
    sim_fault_kind kind;
    uint64_t pc, flat_group;
} claim;

static void lock(sim_faults *faults) {
    while (atomic_exchange_explicit(&faults->is_locked, true, memory_order_acquire))
        sched_yield();
}

static void unlock(sim_faults *faults) {
    atomic_store_explicit(&faults->is_locked, false, memory_order_release);
}

static uint32_t max_faults(const sim_faults *faults) {
    return faults->max ? faults->max : SIM_DEFAULT_FAULTS;
}

static sim_fault *find(const sim_faults *faults, const claim *c) {
    for (uint32_t i = 0; i < faults->count; i++) {
        sim_fault *fault = &faults->list[i];
        if (fault->pc == c->pc && fault->kind == c->kind)
            return fault;
    }
    return nullptr;
}

static sim_fault *append(sim_faults *faults) {
    if (faults->count == faults->room) {
        const uint32_t room = faults->room ? 2 * faults->room : 4;
        sim_fault *grown = realloc(faults->list, room * sizeof *grown);
        if (!grown)
            return nullptr;
        faults->list = grown;
        faults->room = room;
    }
    faults->list[faults->count] = (sim_fault){};
    return &faults->list[faults->count++];
}

/** Returns the record to be filled, with its identity filled in; null if there is nothing new to
 *  tell. The lock is held. */
static sim_fault *take_record(const claim *c) {
    sim_faults *faults = &c->dispatch->faults;
    sim_fault *fault = find(faults, c);
    faults->num_met++;
    if (fault && fault->flat_group <= c->flat_group) {
        fault->count++;
        return nullptr;
    }
    const bool passes = c->kind == SIM_FAULT_OVERREAD;
    const uint32_t before = passes ? faults->num_passed : sim_faults_failing(faults);
    if (!fault && before == max_faults(faults))
        return nullptr;
    if (!fault && !(fault = append(faults))) {
        faults->are_lost = true;
        return nullptr;
    }
    faults->num_passed += passes && !fault->count;
    *fault = (sim_fault){.kind = c->kind,
                         .pc = c->pc,
                         .flat_group = c->flat_group,
                         .lane = -1,
                         .count = fault->count + 1,
                         .order = faults->num_met};
    return fault;
}

/** Returns whether a launch goes on after a fault. It does if the fault's kind and the checks allow
 *  it, until there are too many faults. The lock is held. */
static bool goes_on(sim_dispatch *d, sim_fault_kind kind) {
    const bool too_many = sim_faults_failing(&d->faults) >= max_faults(&d->faults);
    if (kind == SIM_FAULT_OVERREAD)
        return true;
    if (kind <= SIM_FAULT_BARRIER && d->check && !too_many && !d->faults.are_lost)
        return true;
    d->faults.are_too_many |= kind <= SIM_FAULT_BARRIER && d->check;
    atomic_store(&d->stop, true);
    return false;
}

// ---- filling a record

static void fill_place(sim_fault *fault, const sim_wave *w, int lane) {
    const sim_dispatch *d = w->group->dispatch;
    const uint32_t work_item = w->index * sim_wave_size(d) + (lane >= 0 ? (uint32_t)lane : 0);
    fault->has_place = true;
    memcpy(fault->group, w->group->id, sizeof fault->group);
    fault->wave = w->index;
    fault->lane = lane;
    fault->work_item[0] = work_item % d->block[0];
    fault->work_item[1] = work_item / d->block[0] % d->block[1];
    fault->work_item[2] = work_item / d->block[0] / d->block[1];
}

static void fill_region(sim_fault *fault, const sim_dispatch *d) {
    if (fault->about.space != SIM_SPACE_MEMORY ||
        !sim_memory_nearest(d->memory, fault->about.address, &fault->region)) {
        fault->region = (sim_region){};
    }
}

// ---- recording

static claim claim_of(const sim_wave *w, const sim_inst *inst, sim_fault_kind kind) {
    return (claim){w->group->dispatch, kind, inst ? inst->pc : w->pc, w->group->flat_id};
}

[[gnu::format(printf, 6, 0)]] static bool report(sim_wave *w, const sim_inst *inst, int lane,
                                                 sim_fault_kind kind, const sim_fault_about *about,
                                                 const char *format, va_list args) {
    sim_dispatch *d = w->group->dispatch;
    claim c = claim_of(w, inst, kind);
    lock(&d->faults);
    sim_fault *fault = take_record(&c);
    if (fault) {
        fault->about = about ? *about : (sim_fault_about){};
        fill_place(fault, w, lane);
        fill_region(fault, d);
        vsnprintf(fault->message, sizeof fault->message, format, args);
    }
    const bool on = goes_on(d, kind);
    unlock(&d->faults);
    w->state = on ? w->state : SIM_FAULTED;
    return on;
}

bool sim_fault_report(sim_wave *w, const sim_inst *inst, int lane, sim_fault_kind kind,
                      const sim_fault_about *about, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const bool on = report(w, inst, lane, kind, about, format, args);
    va_end(args);
    return on;
}

void sim_fault_raise(sim_wave *w, const sim_inst *inst, int lane, const char *format, ...) {
    va_list args;
    va_start(args, format);
    report(w, inst, lane, SIM_FAULT_UNSUPPORTED, nullptr, format, args);
    va_end(args);
}

void sim_fault_stop(sim_dispatch *d, sim_fault_kind kind, const char *format, ...) {
    claim c = {d, kind, 0, 0};
    va_list args;
    va_start(args, format);
    lock(&d->faults);
    sim_fault *fault = take_record(&c);
    if (fault)
        vsnprintf(fault->message, sizeof fault->message, format, args);
    goes_on(d, kind);
    unlock(&d->faults);
    va_end(args);
}

/** Reports an access at an address, as sim_fault_report does. The message ends with what lies near,
 *  which takes a search that known faults do not pay for. */
static bool report_access(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr,
                          uint64_t bytes, bool is_store, sim_fault_kind kind) {
    sim_dispatch *d = w->group->dispatch;
    claim c = claim_of(w, inst, kind);
    lock(&d->faults);
    sim_fault *fault = take_record(&c);
    if (fault) {
        char where[256];
        fault->about = (sim_fault_about){.space = SIM_SPACE_MEMORY,
                                         .is_store = is_store,
                                         .bytes = (uint32_t)bytes,
                                         .address = addr};
        fill_place(fault, w, lane);
        fill_region(fault, d);
        sim_region_describe(&fault->region, addr, bytes, where, sizeof where);
        snprintf(fault->message, sizeof fault->message, "%s of %llu bytes at 0x%llx is %s: %s",
                 is_store ? "store" : "load", (unsigned long long)bytes, (unsigned long long)addr,
                 kind == SIM_FAULT_FREED      ? "a use after free"
                 : kind == SIM_FAULT_OVERREAD ? "out of bounds, in a page that is mapped"
                                              : "out of bounds",
                 where);
    }
    const bool on = goes_on(d, c.kind);
    unlock(&d->faults);
    w->state = on ? w->state : SIM_FAULTED;
    return on;
}

bool sim_memory_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                      bool is_store) {
    const bool was_freed = sim_memory_was_freed(w->group->dispatch->memory, addr);
    return report_access(w, inst, lane, addr, bytes, is_store,
                         was_freed ? SIM_FAULT_FREED : SIM_FAULT_BOUNDS);
}

void *sim_reach(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                bool is_store, bool *goes_on) {
    const sim_dispatch *d = w->group->dispatch;
    void *host = sim_wave_host(w, addr, bytes);
    *goes_on = true;
    if (host && is_store && sim_hits_code(w, addr, bytes)) {
        *goes_on = sim_code_fault(w, inst, lane, addr, bytes);
        return nullptr;
    }
    if (host)
        return host;
    if (d->passes_overreads && !is_store && (host = sim_memory_page_host(d->memory, addr, bytes))) {
        *goes_on = report_access(w, inst, lane, addr, bytes, false, SIM_FAULT_OVERREAD);
        return host;
    }
    *goes_on = sim_memory_fault(w, inst, lane, addr, bytes, is_store);
    return nullptr;
}

bool sim_code_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes) {
    const sim_dispatch *d = w->group->dispatch;
    sim_fault_about about = {SIM_SPACE_MEMORY, true, (uint32_t)bytes, addr, 0};
    char place[SIM_PLACE_BYTES] = "another code object";
    if (addr - d->text->start < d->text->size)
        sim_place_text(d, addr, place);
    return sim_fault_report(w, inst, lane, SIM_FAULT_CODE, &about,
                            "store of %llu bytes at 0x%llx over code: of %s",
                            (unsigned long long)bytes, (unsigned long long)addr, place);
}

bool sim_lds_fault(sim_wave *w, const sim_inst *inst, uint64_t mask,
                   const uint64_t offset[SIM_LANES], uint32_t bytes) {
    if (!w->group->dispatch->check) // it is no fault on the chip
        return true;
    const uint8_t access = inst->traits.access;
    const bool is_store = access != SIM_ACCESS_LOAD && access != SIM_ACCESS_NONE;
    for (uint64_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        sim_fault_about about = {SIM_SPACE_LDS, is_store, bytes, offset[lane], 0};
        if (!sim_fault_report(w, inst, lane, SIM_FAULT_LDS, &about,
                              "LDS %s of %u bytes at 0x%llx is out of bounds: the workgroup has "
                              "%u bytes",
                              is_store ? "store" : "load", bytes, (unsigned long long)offset[lane],
                              w->group->dispatch->lds_bytes)) {
            return false;
        }
    }
    return true;
}

// ---- afterwards

static int compare(const void *a, const void *b) {
    const sim_fault *x = a, *y = b;
    const uint64_t group = x->flat_group, other = y->flat_group;
    return group != other ? (group > other) - (group < other)
                          : (x->order > y->order) - (x->order < y->order);
}

void sim_faults_sort(sim_faults *faults) {
    if (faults->count)
        qsort(faults->list, faults->count, sizeof *faults->list, compare);
}

void sim_faults_deinit(sim_faults *faults) {
    free(faults->list);
    *faults = (sim_faults){.max = faults->max};
}

const char *sim_fault_name(sim_fault_kind kind) {
    static const char *const names[] = {
#define SIM_FAULT_NAME(id, name) name,
        SIM_FAULT_KINDS(SIM_FAULT_NAME)
#undef SIM_FAULT_NAME
    };
    return names[kind];
}
