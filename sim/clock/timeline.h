// SPDX-License-Identifier: Apache-2.0
// The timeline: which wave stood where and when, and what it waited for, as a trace that Perfetto
// and Chrome show.
//
// While a launch runs, timeline.c keeps its waves, their longest waits and some samples of memory's
// traffic. When it is known how it shared the chip with others, and ticks can be turned into time,
// timeline_file.c writes them. What is kept until then counts as written, which bounds it.
#ifndef SIM_TIMELINE_H
#define SIM_TIMELINE_H

#include "../options.h"
#include "machine.h"

enum {
    SIM_TIMELINE_EVENTS = 200000, // of a process: waves, waits, samples
    SIM_TIMELINE_WAITS = 20000,   // of a launch
    SIM_TIMELINE_SAMPLES = 512,   // of a launch
};

/** A wave of a timeline, in ticks. */
typedef struct sim_traced_wave {
    uint64_t began, ended; // ended is 0 while it runs
    uint64_t since;        // when what it does now began
    sim_spent now;         // what it waits for; SIM_NUM_SPENT: nothing
    uint32_t unit;         // compute unit, counted over all XCDs
    uint32_t wave;         // in its workgroup
    uint8_t slot;          // SIMD * SIM_MAX_WAVES + place
    uint32_t group[3];
} sim_traced_wave;

typedef struct sim_traced_wait {
    uint64_t began, ended;
    uint32_t wave; // in sim_timeline.waves
    sim_spent kind;
} sim_traced_wait;

/** What had happened by a tick. */
typedef struct sim_traced_sample {
    uint64_t tick, hbm_lines;
    uint32_t waves; // resident
} sim_traced_sample;

/** What else the trace says of a launch. */
typedef struct sim_traced_launch {
    char *kernel; // name
    const sim_chip *chip;
    uint64_t number, groups, groups_run, cycles;
    uint64_t launch_ns, last; // before the first tick; the tick at which what ran had ended
    double mhz;
    uint32_t device, grid[3], block[3], units_per_xcd;
    bool has_rest; // rounds that did not run
} sim_traced_launch;

/** A launch. */
typedef struct sim_timeline {
    sim_traced_launch launch; // when it has run
    uint64_t file;            // number of the file that it is for
    sim_traced_wave *waves;
    size_t num_waves, wave_room, most_waves;
    sim_traced_wait *waits;
    size_t num_waits;
    uint64_t least; // ticks of a wait that is kept
    sim_traced_sample samples[SIM_TIMELINE_SAMPLES];
    size_t num_samples;
    uint64_t period, next_sample;
    uint32_t resident;
    bool is_cut; // some are left out: there are too many, or memory ran out
} sim_timeline;

// ---- timeline.c

/** Returns the timeline of a launch, which may keep some waves; null if memory runs out. */
sim_timeline *sim_timeline_create(size_t most_waves);
void sim_timeline_destroy(sim_timeline *t);
/** A wave takes a place of a SIMD. */
void sim_timeline_enter(sim_timeline *t, const sim_group_unit *unit, uint32_t simd,
                        sim_timed_wave *w);
/** A wave waits, or with SIM_NUM_SPENT as the kind has issued, from a tick on. */
void sim_timeline_turn(sim_timeline *t, const sim_timed_wave *w, sim_spent kind, uint64_t tick);
void sim_timeline_leave(sim_timeline *t, const sim_timed_wave *w, uint64_t tick);
/** Keeps a sample of a tick that is not before t->next_sample. */
void sim_timeline_sample(sim_timeline *t, const sim_machine *m, uint64_t tick);

// ---- timeline_file.c

/** Opens and closes the file as the options say. Returns false if that fails: `error` says why. */
bool sim_timeline_configure(const sim_look_options *options, char *error, size_t error_bytes);
/** Returns the timeline for a launch that begins; null if none is written. */
sim_timeline *sim_timeline_begin(void);
/** Keeps a launch that has run until it is known when: its timed results are in the machine's
 *  dispatch. Returns the timeline; null, destroyed, if nothing of it is to be written. */
sim_timeline *sim_timeline_keep(sim_timeline *t, const sim_machine *m);
/** Writes a launch's timeline, if there is one. */
void sim_timeline_show(const sim_shown *shown, const sim_span *span);
void sim_timeline_finish(void);
void sim_timeline_fork_prepare(void);
void sim_timeline_fork_parent(void);
void sim_timeline_fork_child(void);

#endif
