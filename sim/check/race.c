// SPDX-License-Identifier: Apache-2.0
// Races on global memory: two waves of a launch touch the same bytes, one writes, and nothing
// orders them.
//
// Two accesses are ordered by a barrier of their workgroup, or by a chain of atomics: one wave
// releases through an address, and the other acquires through this address. Every atomic
// instruction counts as both. So do the instructions that compilers make of atomic stores and
// loads: those with a scope (sc0, sc1, glc, scope:). gfx90a and gfx11 have none on stores, so there
// a store of 8 bytes at most may be a flag: it releases, unless it follows another store with no
// wait between.
//
// Time is one counter, which each release advances. A wave knows the time of its last release and
// the latest release that it has acquired; an address through which waves synchronise knows the
// time of its last release; a record knows its wave's last release before it. An access is ordered
// behind a record if the record's wave, or after a barrier another of its workgroup, has released
// since, and the accessing wave, or before a barrier another of its workgroup, has acquired a
// release that came later than the record's. The rule may take two unordered accesses for ordered,
// if both waves synchronise with others at the right times; it never takes ordered accesses for a
// race.
//
// Memory is bounded: each 64 bytes have up to five records, and there are 2^20 such lines, found by
// a hash. A record that does not fit displaces an older one, so that an old access may be
// forgotten. Synchronisation is never forgotten: two addresses or waves that fall together count as
// one, which orders more, not less.
#include "../isa/decode.h"
#include "check.h"
#include "hooks.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LINE_BYTES = 64,
    NUM_LINES = 1 << 20,
    NUM_SYNCS = 1 << 16,
    NUM_WAVES = 1 << 20,
    NUM_RECORDS = 5,
    NUM_GUESSES = 1 << 10,
    MAX_FLAG_BYTES = 8,
};

enum { // record.where, below the instruction
    WRITES = 1,
    STRONG = 2, // an atomic, or with a scope
    MAYBE = 4,  // a store that may be a flag
    KIND_BITS = 3
};

typedef struct sim_race_record record;

typedef struct line {
    _Atomic uint64_t
        header; // address / 64 above 8 bits: the next record to displace above the lock
    record records[NUM_RECORDS];
} line;

static_assert(sizeof(line) == 128);

/** The record of a launch. It is zeros from the system, of which only touched pages take
 *  memory. */
struct sim_race {
    _Atomic uint32_t time;
    atomic_bool is_locked;                // while an instruction synchronises
    _Atomic uint64_t releases[NUM_WAVES]; // a wave's last: time above epoch
    uint64_t syncs[NUM_SYNCS];            // an address's last: time above wave; under the lock
    atomic_bool is_storing[NUM_WAVES];    // between the note of a store and the store itself
    _Atomic uint64_t
        guesses[NUM_GUESSES]; // what was_guess found out: the load's pc above the answer
    line lines[NUM_LINES];
};

bool sim_race_open(sim_dispatch *d) {
    if (!(d->check & SIM_CHECK_RACE))
        return true;
    void *race = mmap(nullptr, sizeof(struct sim_race), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    d->race = race == MAP_FAILED ? nullptr : race;
    return d->race;
}

void sim_race_close(sim_dispatch *d) {
    if (d->race) {
        munmap(d->race, sizeof(struct sim_race));
        d->race = nullptr;
    }
}

// ---- order

static uint32_t max32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t wave_id(const sim_wave *w) {
    return (uint32_t)(w->group->flat_id * w->group->num_waves + w->index);
}

static uint64_t *sync_of(struct sim_race *race, uintptr_t at) {
    const uint64_t hash = (at >> 2) * 0x9e3779b97f4a7c15;
    return &race->syncs[hash >> 48 & (NUM_SYNCS - 1)];
}

static void acquire_from(sim_wave *w, uint64_t sync) {
    if ((uint32_t)sync != wave_id(w))
        w->shadow->acquired = max32(w->shadow->acquired, (uint32_t)(sync >> 32));
}

/** Releases: the wave's accesses so far become known to waves that acquire from now on. */
static uint64_t release(sim_wave *w) {
    struct sim_race *race = w->group->dispatch->race;
    const uint32_t time = atomic_fetch_add(&race->time, 1) + 1;
    w->shadow->released = time;
    atomic_store(&race->releases[wave_id(w) % NUM_WAVES], (uint64_t)time << 32 | w->shadow->epoch);
    return (uint64_t)time << 32 | wave_id(w);
}

/** Returns whether the record's wave, or after a barrier a wave of its workgroup, has released
 *  since. */
static bool was_released(struct sim_race *race, const record *r, uint32_t num_waves) {
    const uint32_t first = r->wave - r->wave % num_waves;
    for (uint32_t wave = first; wave < first + num_waves; wave++) {
        const uint64_t last = atomic_load(&race->releases[wave % NUM_WAVES]);
        if (last >> 32 > r->stamp && (wave == r->wave || (uint32_t)last > r->epoch))
            return true;
    }
    return false;
}

static bool is_ordered(const sim_wave *w, const record *r) {
    const sim_workgroup *group = w->group;
    const bool is_mate = r->wave / group->num_waves == wave_id(w) / group->num_waves;
    if (is_mate && r->epoch < w->shadow->epoch)
        return true;
    const uint32_t acquired = max32(w->shadow->acquired, group->shadow->acquired);
    return acquired > r->stamp && was_released(group->dispatch->race, r, group->num_waves);
}

void sim_race_barrier(sim_wave *w) {
    struct sim_group_shadow *group = w->group->shadow;
    group->acquired = max32(group->acquired, w->shadow->acquired);
}

void sim_race_lds_atomic(sim_wave *w) {
    struct sim_group_shadow *group = w->group->shadow;
    if (w->group->dispatch->race) {
        acquire_from(w, group->lds_sync);
        group->lds_sync = release(w);
    }
}

// ---- one instruction

static uint32_t kind_of(const sim_inst *inst, uint32_t bytes) {
    switch (inst->traits.access) {
    case SIM_ACCESS_ATOMIC:
        return WRITES | STRONG;
    case SIM_ACCESS_STORE:
        return inst->traits.scope == SIM_SCOPE_SOME ? WRITES | STRONG
               : inst->traits.scope == SIM_SCOPE_UNKNOWN && bytes <= MAX_FLAG_BYTES ? WRITES | MAYBE
                                                                                    : WRITES;
    default:
        return inst->traits.scope == SIM_SCOPE_SOME ? STRONG : 0;
    }
}

/** Returns whether two accesses in any order can do harm. A load with a scope is a look at a
 *  flag. */
static bool do_clash(uint32_t a, uint32_t b) {
    const uint32_t one = a & STRONG ? a : b, other = a & STRONG ? b : a;
    if (!((a | b) & WRITES))
        return false;
    return !(one & STRONG) || ((one & WRITES) && !(other & (STRONG | MAYBE)));
}

/** The accesses of one instruction, while they are noted. */
typedef struct turn {
    sim_wave *w;
    const sim_inst *inst;
    const uint64_t *address; // of each lane, in the guest and here
    uint8_t *const *host;
    uint64_t mask;
    uint32_t bytes;
    record mine;
    bool is_told;
} turn;

static uint64_t pc_of(const sim_wave *w, const record *r) {
    return w->group->dispatch->text->start + (uint64_t)(r->where >> KIND_BITS) * 4;
}

static const char *deed(uint32_t kind, bool past) {
    const bool both = (kind & WRITES) && (kind & STRONG);
    return both            ? past ? "updated" : "updates"
           : kind & WRITES ? past ? "wrote" : "writes"
           : past          ? "read"
                           : "reads";
}

static void name_wave(const sim_wave *w, uint32_t wave, char text[64]) {
    const sim_dispatch *d = w->group->dispatch;
    const uint32_t group = wave / w->group->num_waves;
    snprintf(text, 64, "wave %u of workgroup (%u, %u, %u)", wave % w->group->num_waves,
             group % d->grid[0], group / d->grid[0] % d->grid[1], group / d->grid[0] / d->grid[1]);
}

/** Returns the lane that touches a byte, or -1. */
static int lane_at(const turn *t, const uint8_t *byte) {
    for (uint64_t left = t->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        if ((uintptr_t)byte - (uintptr_t)t->host[lane] < t->bytes)
            return lane;
    }
    return -1;
}

static void report(sim_wave *w, const sim_inst *inst, int lane, uint64_t address,
                   const record *mine, const record *other) {
    const sim_dispatch *d = w->group->dispatch;
    const sim_inst *their_inst = sim_fetch(w, d->text, pc_of(w, other));
    char me[64], them[64];
    name_wave(w, mine->wave, me);
    name_wave(w, other->wave, them);
    const bool is_mate = other->wave / w->group->num_waves == mine->wave / w->group->num_waves;
    sim_fault_about about = {.space = SIM_SPACE_MEMORY,
                             .is_store = mine->where & WRITES,
                             .bytes = 1,
                             .address = address,
                             .other_pc = pc_of(w, other)};
    char place[SIM_PLACE_BYTES];
    sim_place_text(d, about.other_pc, place);
    sim_fault_report(w, inst, lane, SIM_FAULT_RACE, &about,
                     "race on memory: %s %s 0x%llx, which %s %s at %s (%s), with no %s between", me,
                     deed(mine->where, false), (unsigned long long)address, them,
                     deed(other->where, true), place, sim_mnemonic(their_inst),
                     is_mate ? "barrier" : "release and acquire");
}

/** Notes a clash that does no harm if the store writes what memory holds already. That is known
 *  only after the instruction. */
static void doubt(const turn *t, const uint8_t *at, uint64_t clash, const record *other) {
    struct sim_race_later *later = &t->w->group->shadow->later;
    if (later->num_doubts == SIM_MAX_DOUBTS)
        return;
    const int lane = lane_at(t, at + __builtin_ctzll(clash));
    typeof(*later->doubts) *d = &later->doubts[later->num_doubts++];
    d->at = at;
    d->address = t->address[lane] - (uintptr_t)t->host[lane] + (uintptr_t)at;
    d->bytes = clash;
    d->lane = lane;
    d->mine = t->mine;
    d->other = *other;
    t->w->group->shadow->has_later = true;
}

/** Returns whether a load begins a loop around a compare and swap, which compilers make of atomics
 *  that a chip lacks. The loaded value is a guess, which the swap tests. */
static bool begins_swap(const sim_text *text, uint64_t pc) {
    enum { NEAR = 48 }; // instructions
    char error[256];
    bool found = false;
    for (unsigned n = 0; n < NEAR && !found && pc - text->start < text->size; n++) {
        sim_inst inst;
        const uint64_t at = pc - text->start;
        if (!sim_decode(text->chip, text->bytes + at, text->size - at, pc, &inst, error))
            return false;
        found = inst.traits.is & SIM_COMPARES;
        pc += inst.bytes;
        sim_inst_deinit(&inst);
    }
    return found;
}

/** Returns whether the clash is that of an atomic and a plain load, and the load was a guess. */
static bool was_guess(const sim_wave *w, const record *a, const record *b) {
    const uint32_t kinds = a->where | b->where;
    const record *load = a->where & WRITES ? b : a;
    if (!(kinds & STRONG) || (load->where & WRITES))
        return false;
    const uint64_t pc = pc_of(w, load);
    _Atomic uint64_t *known = &w->group->dispatch->race->guesses[pc / 4 % NUM_GUESSES];
    uint64_t answer = atomic_load(known);
    if (answer >> 1 != pc) {
        answer = pc << 1 | begins_swap(w->group->dispatch->text, pc);
        atomic_store(known, answer);
    }
    return answer & 1;
}

static void clash(turn *t, const uint8_t *at, uint64_t bytes, const record *other) {
    const uint32_t kind = t->mine.where;
    if ((kind & WRITES) && !(kind & STRONG)) {
        doubt(t, at, bytes, other);
        return;
    }
    const uint8_t *byte = at + __builtin_ctzll(bytes);
    const int lane = lane_at(t, byte);
    if (!t->is_told) {
        t->is_told = true;
        report(t->w, t->inst, lane, t->address[lane] + (uint64_t)(byte - t->host[lane]), &t->mine,
               other);
    }
}

// ---- lines

/** Waits between two looks at a lock, whose holder may need this thread's core. */
static void relax(unsigned n) {
    enum { SPINS = 64 };
    if (n < SPINS)
        __builtin_ia32_pause();
    else
        sched_yield();
}

/** Locks the line for `at`, and empties the line if it was another's. */
static line *lock_line(struct sim_race *race, uintptr_t at, uint64_t *header) {
    const uint64_t number = at / LINE_BYTES;
    line *l = &race->lines[(number ^ number >> 20) % NUM_LINES];
    uint64_t old = atomic_load_explicit(&l->header, memory_order_relaxed) & ~UINT64_C(1);
    for (unsigned n = 0; !atomic_compare_exchange_weak_explicit(
             &l->header, &old, old | 1, memory_order_acquire, memory_order_relaxed);
         n++) {
        old &= ~UINT64_C(1);
        relax(n);
    }
    if (old >> 8 != number) {
        memset(l->records, 0, sizeof l->records);
        old = number << 8;
    }
    *header = old;
    return l;
}

static void unlock_line(line *l, uint64_t header) {
    atomic_store_explicit(&l->header, header, memory_order_release);
}

/** Returns whether two records differ in their bytes alone. */
static bool is_same(const record *a, const record *b) {
    return a->wave == b->wave && a->epoch == b->epoch && a->stamp == b->stamp &&
           a->where == b->where;
}

/** Returns the record that the new one replaces: its like, or one of its wave that it covers, or an
 *  unused one, or the next. */
static record *place_for(line *l, const record *mine, uint64_t bytes, uint64_t *header) {
    enum { KINDS = (1 << KIND_BITS) - 1 };
    record *empty = nullptr;
    for (record *r = l->records; r < l->records + NUM_RECORDS; r++) {
        bool covered =
            r->wave == mine->wave && !(r->bytes & ~bytes) && !((r->where ^ mine->where) & KINDS);
        if (r->bytes && (is_same(r, mine) || covered))
            return r;
        empty = r->bytes ? empty : r;
    }
    if (empty)
        return empty;
    const uint64_t next = *header >> 1 & 7;
    *header = (*header & ~UINT64_C(14)) | (next + 1) % NUM_RECORDS << 1;
    return &l->records[next];
}

/** Notes that `bytes` of the line at `at` are touched, and looks at earlier accesses to them. */
static void touch(turn *t, uint8_t *at, uint64_t bytes) {
    uint64_t header;
    line *l = lock_line(t->w->group->dispatch->race, (uintptr_t)at, &header);
    for (record *r = l->records; r < l->records + NUM_RECORDS; r++) {
        const uint64_t both = r->bytes & bytes;
        if (!both || r->wave == t->mine.wave)
            continue;
        if (do_clash(r->where, t->mine.where) && !is_ordered(t->w, r) &&
            !was_guess(t->w, r, &t->mine)) {
            clash(t, at, both, r);
        }
        r->bytes &= t->mine.where & WRITES
                        ? ~bytes
                        : UINT64_MAX; // an access that clashes with the read clashes with the write
    }
    record *r = place_for(l, &t->mine, bytes, &header);
    const uint64_t before = is_same(r, &t->mine) ? r->bytes : 0;
    *r = t->mine;
    r->bytes = before | bytes;
    unlock_line(l, header);
}

/** Notes the accesses of all lanes; neighbours in one line are noted at once. */
static void touch_lanes(turn *t) {
    uintptr_t line_at = 0;
    uint64_t bytes = 0;
    for (uint64_t left = t->mask; left; left &= left - 1) {
        uintptr_t at = (uintptr_t)t->host[__builtin_ctzll(left)], end = at + t->bytes;
        while (at < end) {
            uintptr_t here = at & ~(uintptr_t)(LINE_BYTES - 1), stop = here + LINE_BYTES;
            stop = stop < end ? stop : end;
            const uint64_t count = stop - at;
            const uint64_t part = (count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX)
                                  << (at - here);
            if (here != line_at && bytes) {
                touch(t, (uint8_t *)line_at, bytes);
                bytes = 0;
            }
            line_at = here;
            bytes |= part;
            at = stop;
        }
    }
    if (bytes)
        touch(t, (uint8_t *)line_at, bytes);
}

// ---- before and after an instruction

/** Returns whether an access releases. A store that follows another one without a wait does not
 *  release that one. */
static bool does_release(const struct sim_shadow *s, uint32_t kind) {
    return (kind & WRITES) && ((kind & STRONG) || ((kind & MAYBE) && !s->has_stored));
}

/** Locks before an instruction synchronises; sim_race_after unlocks. So the notes on an address
 *  come in the order of its accesses. */
static void lock(sim_workgroup *group) {
    struct sim_race_later *later = &group->shadow->later;
    if (!later->is_locked) { // an instruction may access memory in parts
        for (unsigned n = 0; atomic_exchange_explicit(&group->dispatch->race->is_locked, true,
                                                      memory_order_acquire);
             n++) {
            relax(n);
        }
        later->is_locked = group->shadow->has_later = true;
    }
}

/** Acquires and releases through each lane's address. */
static void synchronise(turn *t, uint32_t kind) {
    struct sim_race *race = t->w->group->dispatch->race;
    const bool releases = does_release(t->w->shadow, kind), acquires = kind & STRONG;
    if (!releases && !acquires)
        return;
    lock(t->w->group);
    t->mine.stamp = releases ? atomic_load(&race->time) : t->mine.stamp;
    const uint64_t now = releases ? release(t->w) : 0;
    for (uint64_t left = t->mask; left; left &= left - 1) {
        uint64_t *sync = sync_of(race, (uintptr_t)t->host[__builtin_ctzll(left)]);
        if (acquires)
            acquire_from(t->w, *sync);
        *sync = releases ? now : *sync;
    }
}

/** Keeps what doubtful stores will overwrite, once the store that they clash with has arrived. */
static void look_before(sim_wave *w) {
    enum { PATIENCE = 1 << 10 }; // two waves may wait for each other
    struct sim_race_later *later = &w->group->shadow->later;
    for (uint32_t i = 0; i < later->num_doubts; i++) {
        typeof(*later->doubts) *d = &later->doubts[i];
        atomic_bool *busy = &w->group->dispatch->race->is_storing[d->other.wave % NUM_WAVES];
        for (unsigned n = 0; n < PATIENCE && atomic_load(busy); n++)
            relax(n);
        memcpy(d->before, d->at, LINE_BYTES);
    }
}

static void set_storing(const sim_wave *w, bool on) {
    atomic_store_explicit(&w->group->dispatch->race->is_storing[wave_id(w) % NUM_WAVES], on,
                          memory_order_release);
}

void sim_race_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                     uint8_t *const *host, uint64_t mask, uint32_t bytes) {
    const sim_dispatch *d = w->group->dispatch;
    if (!d->race || !mask || w->region->kind == SIM_REGION_KERNARG)
        return;
    struct sim_shadow *s = w->shadow;
    const uint32_t kind = kind_of(inst, bytes);
    turn t = {.w = w,
              .inst = inst,
              .address = address,
              .host = host,
              .mask = mask,
              .bytes = bytes,
              .mine = {.wave = wave_id(w),
                       .epoch = s->epoch,
                       .stamp = s->released,
                       .where = (uint32_t)((inst->pc - d->text->start) / 4) << KIND_BITS | kind}};
    if (kind & (STRONG | MAYBE))
        synchronise(&t, kind);
    if (kind & WRITES) {
        s->has_stored = w->group->shadow->has_later = true;
        set_storing(w, true);
    }
    touch_lanes(&t);
    look_before(w);
}

void sim_race_after(sim_wave *w, const sim_inst *inst) {
    struct sim_group_shadow *group = w->group->shadow;
    struct sim_race_later *later = &group->later;
    set_storing(w, false);
    if (later->is_locked) {
        later->is_locked = false;
        atomic_store_explicit(&w->group->dispatch->race->is_locked, false, memory_order_release);
    }
    bool is_told = w->state == SIM_FAULTED;
    for (uint32_t i = 0; i < later->num_doubts && !is_told; i++) {
        const typeof(*later->doubts) *d = &later->doubts[i];
        uint64_t bytes = d->bytes;
        while (bytes && d->before[__builtin_ctzll(bytes)] == d->at[__builtin_ctzll(bytes)])
            bytes &= bytes - 1;
        is_told = bytes;
        if (is_told) {
            report(w, inst, d->lane, d->address + (uint64_t)__builtin_ctzll(bytes), &d->mine,
                   &d->other);
        }
    }
    later->num_doubts = 0;
}
