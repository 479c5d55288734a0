// SPDX-License-Identifier: Apache-2.0
// A chip while the clock runs a launch on it: XCDs, units, SIMDs, the waves that are resident, and
// when each shared part is free again. A unit holds workgroups: it is a compute unit, or several
// that hold them together.
//
// Time is counted in ticks, of which a cycle of the shader clock has SIM_TICKS: the rates of memory
// are no whole cycles. Every event is handled in the order of its time, so that a part of the chip
// is described by the tick from which on it is free.
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include "../chip/timing.h"
#include "../look/look.h"
#include "../pool.h"
#include "clock.h"
#include "sample.h"
#include "server.h"
#include "streams/overlap.h"

constexpr uint32_t SIM_TICKS = 16;
enum { SIM_MAX_SIMDS = 4, SIM_MAX_JOINT = 2, SIM_MAX_WAVES = 16 }; // of a unit
constexpr uint64_t SIM_NEVER = UINT64_MAX;

typedef struct sim_machine sim_machine;
typedef struct sim_resident sim_resident;

enum { SIM_RING = 64 }; // vmcnt's range

/** When the registers of a wave have the results of its vector and scalar instructions. */
typedef struct sim_results {
    uint64_t vector[512], scalar[128], scc;
} sim_results;

/** A wave that is resident. */
typedef struct sim_timed_wave {
    sim_wave *wave; // null: the place is free
    sim_resident *resident;
    uint64_t began;   // tick at which it came
    uint64_t ready;   // tick from which on its next instruction may issue
    sim_spent reason; // why not before
    uint64_t fetched; // line of the instruction cache that it has
    uint8_t priority; // s_setprio
    uint32_t traced;  // its place in the timeline, from 1; 0: it has none
    bool is_waiting;  // at a barrier
    uint32_t issued[SIM_NUM_STREAMS];
    uint64_t done[SIM_NUM_STREAMS][SIM_RING]; // when each of the last operations is complete
    uint64_t last[SIM_NUM_STREAMS];           // when all of them are
    sim_results *results;                     // null: nothing waits for results
} sim_timed_wave;

typedef struct sim_simd {
    uint64_t next; // tick of its next visit; SIM_NEVER: none of its waves can go on alone
    uint64_t lanes_free, trans_free, matrix_free;
    uint64_t packed_free; // for what does not run beside matrix instructions
    uint64_t counted;     // up to this tick, `spent` knows where time went
    sim_spent waits;      // where it goes from there on
    uint64_t waits_at;    // the instruction that this is for: an index of sim_machine.insts
    uint64_t spent[SIM_NUM_SPENT];
    sim_timed_wave waves[SIM_MAX_WAVES];
    uint8_t order[SIM_MAX_WAVES]; // places of the waves, oldest first
    uint32_t num_waves;
    sim_results *results; // of each place; null: none
} sim_simd;

/** The memory of a compute unit. */
typedef struct sim_compute_unit {
    struct sim_xcd *xcd;
    uint32_t index;        // in the XCD
    uint64_t port_free;    // of the vector cache
    uint64_t l2_port_free; // between it and what is behind
    uint64_t lds_free;     // the banks
    uint64_t *misses;      // when each of the last l1_misses lines arrives
    uint32_t next_miss;
    sim_tags l1;
} sim_compute_unit;

typedef struct sim_group_unit {
    struct sim_xcd *xcd;
    sim_simd simds[SIM_MAX_SIMDS];
    sim_compute_unit compute_units[SIM_MAX_JOINT]; // which have their shares of the SIMDs, in order
    uint64_t lds_pair_free[SIM_MAX_SIMDS / 2];
    uint32_t num_residents;
    uint32_t index;
} sim_group_unit;

/** A cache that some compute units share, in front of the second level. */
typedef struct sim_mid {
    sim_tags tags;
    sim_server server;
} sim_mid;

/** What some compute units share: the scalar cache and the instruction cache. */
typedef struct sim_scalar_unit {
    sim_tags data, *code;
} sim_scalar_unit;

typedef struct sim_xcd {
    sim_machine *machine;
    sim_group_unit *units;
    sim_scalar_unit *scalars;
    sim_mid *mids;        // null: none
    sim_server *channels; // of the second level
    sim_server fabric;    // in ticks times fabric_bytes
    uint64_t dispatch_free;
    sim_tags l2;
    uint64_t next_group, num_groups; // in the order in which it gets them
    uint64_t num_ended;
    uint32_t index, next_unit;
} sim_xcd;

/** A workgroup that is resident on a compute unit. */
struct sim_resident {
    sim_resident *next; // of those that are idle
    sim_resident *made; // of all
    sim_worker worker;
    sim_workgroup group;
    sim_group_unit *unit;
    struct sim_seat {
        uint8_t simd, place;
    } *places;          // of its waves
    uint32_t num_left;  // waves that have not ended
    uint64_t signalled; // tick at which a wave last signalled for a barrier
    uint64_t number;    // among the workgroups of its XCD, in the order of their starts
    uint64_t began;     // tick
};

enum { SIM_SETTLE_MARKS = 32, SIM_MOST_PER_UNIT = 64 };

/** How far a round of long workgroups has come (settle.c). */
typedef struct sim_settle {
    uint64_t length;                   // instructions of a workgroup; 0: not known
    uint64_t next;                     // of sim_machine.issued, when the pace is looked at
    uint64_t residents, window;        // workgroups of the round; instructions
    uint64_t began, began_issued;      // the round: tick and instructions
    uint64_t marks[SIM_SETTLE_MARKS];  // ticks at which windows ended
    uint32_t num_marks, skipped, kept; // of these, those that do not count; the last that do
    uint64_t round_ticks, last_ticks;  // of a full round, and of the last; 0: not known
    double differs, spread; // shares: by which the pace differs; by which it did at most at the end
    uint64_t ran;           // instructions of rounds that are over
    uint64_t all;           // instructions of all workgroups, those left out too
    uint64_t *base;         // what was counted in these, by sim_settle_scale
    // of workgroups whose lengths differ (uneven.c)
    uint64_t *of;              // instructions by flat id; null: they do not, or are not known
    uint64_t begin, trip;      // as in sim_lengths
    uint64_t first;            // of those that run for their pace
    uint64_t whole, num_whole; // the first that runs to its end; how many do
    uint64_t whole_length;     // their instructions in sum
    uint64_t ended_before;     // workgroups, when those that run began
    uint32_t per_unit, most_per_unit;   // workgroups now, and at first
    double pace[SIM_MOST_PER_UNIT + 1]; // ticks of an instruction of one of so many
    double head[SIM_MOST_PER_UNIT + 1]; // ticks more than at that pace, at first
    double beside, cold; // ticks more than at its pace: of a workgroup, of the first ones
} sim_settle;

typedef struct sim_event {
    uint64_t tick;
    uint32_t simd;
} sim_event;

struct sim_machine {
    sim_dispatch *dispatch;
    const sim_chip *chip;
    const sim_timing *timing;
    sim_xcd *xcds;
    uint32_t num_xcds, units_per_xcd; // XCDs that run in detail
    uint32_t joint_units, simds;      // of a unit: compute units, SIMDs
    uint32_t wave_parts;              // waves of the chip's size that make one of this kernel's
    uint32_t occupancy;               // workgroups of a unit
    uint32_t waves_per_group;
    uint64_t hbm_ticks; // of a line on a channel
    sim_server *hbm;
    uint32_t hbm_channels; // for the XCDs that run in detail
    sim_tags *mall;        // null: none
    uint64_t base;         // sim_clock.ticks when the launch began
    uint32_t own_share;    // of 1024 lines, those that no other XCD has fetched before
    double farther;        // hops that are added to each, since one XCD stands for all
    sim_event *heap;
    size_t heap_count, heap_room;
    sim_resident *idle, *made;
    const sim_facts *facts; // of the instruction that has just run
    uint64_t now, last, waves_started;
    uint64_t groups_run, issued;     // workgroups; instructions
    uint64_t wave_ticks, matrix_ops; // as in sim_clock_result
    sim_sample sample;
    sim_settle settle;
    uint64_t round_ends[SIM_ROUNDS + 1]; // of the first XCD
    uint64_t *spans;                     // of the first XCD's workgroups, in ticks
    uint64_t last_end;                   // of these
    uint64_t busy[SIM_PART_FABRIC];      // ticks of the parts of all XCDs that run
    bool is_out_of_memory;
    sim_traffic traffic;
    uint64_t energy_fj;   // at timing->reference_mhz
    sim_inst_cost *insts; // in ticks
    uint64_t num_insts;
    uint64_t now_cycles;           // what the kernel reads as its clock
    struct sim_timeline *timeline; // null: none is written
};

static inline uint64_t sim_later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static inline uint64_t sim_ticks(uint64_t cycles) {
    return cycles * SIM_TICKS;
}

/** Adds an operation of a stream that is complete at a tick. Operations of one stream complete in
 *  order, those of SMEM do not. */
static inline void sim_note(sim_timed_wave *w, uint8_t stream, uint64_t done) {
    if (stream != SIM_STREAM_SMEM)
        done = sim_later(done, w->last[stream]);
    w->done[stream][w->issued[stream]++ % SIM_RING] = done;
    w->last[stream] = sim_later(done, w->last[stream]);
}

// ---- memory.c: each function returns the tick at which the access is complete

/** A vector access, from the facts of the instruction that has run, issued at `at`. */
uint64_t sim_time_vector(sim_compute_unit *unit, const sim_facts *facts, uint64_t at);
/** Returns from which tick on the unit takes a vector access. */
uint64_t sim_vector_open(const sim_compute_unit *unit);
uint64_t sim_time_scalar(sim_compute_unit *unit, const sim_facts *facts, uint64_t at);
/** The fetch of the instruction's line. */
uint64_t sim_time_fetch(sim_compute_unit *unit, uint64_t address, uint64_t at);
/** Ends a launch: returns the tick at which all that was stored is in memory. */
uint64_t sim_time_flush(sim_machine *m, uint64_t at);
/** Empties the memory-side cache if the workgroups that a sample left out would have filled it with
 *  lines of their own. */
void sim_forget_lines(const sim_machine *m);

// ---- lds.c
uint64_t sim_time_lds_access(sim_group_unit *unit, uint32_t simd, const sim_facts *facts,
                             uint64_t at);
uint64_t sim_lds_open(const sim_group_unit *unit, uint32_t simd);

// ---- results.c
/** Returns from which tick on the registers that the instruction needs have their values. */
uint64_t sim_results_ready(const sim_results *results, const sim_inst *inst);
/** Says that what the instruction writes is there from a tick on. */
void sim_results_note(sim_results *results, const sim_inst *inst, uint64_t tick);

// ---- machine.c
/** Makes a machine for a dispatch. Returns null if memory runs out. */
sim_machine *sim_machine_create(sim_dispatch *d, sim_clock *clock);
void sim_machine_destroy(sim_machine *m);
/** Makes a SIMD's next visit no later than a tick. */
void sim_wake(sim_machine *m, sim_group_unit *unit, uint32_t simd, uint64_t tick);
/** Returns the compute unit that a SIMD belongs to. */
static inline sim_compute_unit *sim_compute_unit_of(const sim_machine *m, sim_group_unit *unit,
                                                    uint32_t simd) {
    return &unit->compute_units[simd * m->joint_units / m->simds];
}
/** Takes the earliest event. Returns false if there is none. */
bool sim_next_event(sim_machine *m, sim_event *out);
sim_group_unit *sim_unit_of(sim_machine *m, const sim_event *event);

// ---- place.c
/** Starts workgroups of an XCD where there is room, at a tick. */
void sim_start_groups(sim_xcd *xcd, uint64_t tick);
/** Takes all workgroups off their units, which have not ended. */
void sim_drop_groups(sim_machine *m, uint64_t tick);
/** Takes a wave that has ended off its SIMD, and its workgroup off its unit if it was the last. */
void sim_leave(sim_machine *m, sim_simd *simd, sim_timed_wave *w, uint64_t tick);

// ---- issue.c
/** Counts a SIMD's time up to a tick. */
void sim_count_time(sim_machine *m, sim_simd *s, uint64_t tick);
/** Handles a SIMD's visit. */
void sim_visit(sim_machine *m, sim_group_unit *unit, uint32_t simd, uint64_t tick);

#endif
