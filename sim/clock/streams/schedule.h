// SPDX-License-Identifier: Apache-2.0
// When the launches of a device's streams begin and end, from how long each takes by itself and
// what it asks of the chip while it runs.
//
// Launches run one after the other, in the order in which the program queued them; their times are
// found afterwards. A moment stands for a time that may not be known yet: a launch's end, or the
// last of some moments. Launches of which none has to wait for another share the chip (overlap.h).
//
// What the program has waited for is over before anything that it queues later begins. So all is
// known up to the moment for which it had waited when it queued the first launch that has not run.
//
// The caller has a lock for a schedule and all of its moments.
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "overlap.h"

enum { SIM_QUEUE_DEPTH = 1024 }; // launches that a program may be ahead of the device

typedef struct sim_queued sim_queued;

typedef struct sim_schedule {
    sim_overlap overlap;
    sim_queued *first, **last;           // launches that have not run, in order
    sim_moment *host;                    // the last for which the program has waited
    sim_moment *recent[SIM_QUEUE_DEPTH]; // ends of the launches that were queued last
    uint64_t count;                      // launches so far
    bool is_lost;                        // memory ran out, so that no time is right
} sim_schedule;

void sim_schedule_init(sim_schedule *s);
void sim_schedule_deinit(sim_schedule *s);
/** Returns the later one of two moments, as a new reference. */
sim_moment *sim_schedule_later(sim_schedule *s, sim_moment *a, sim_moment *b);
/** The program queues a launch. Returns its end, a reference; null if memory runs out. Launches
 *  with a lower priority number get places first. */
sim_moment *sim_schedule_queue(sim_schedule *s, int priority);
/** Returns whether it is the launch's turn to run. */
bool sim_schedule_is_next(const sim_schedule *s, const sim_moment *launch);
/** The launch has run and begins after a moment; or has been dropped, without a demand. It owns the
 *  demand. */
void sim_schedule_ran(sim_schedule *s, sim_moment *launch, sim_moment *after, sim_demand *demand);
/** The launch failed when it had taken `ns`, and no launch will run that is queued: all is known.
 *  What it has to show is shown. */
void sim_schedule_failed(sim_schedule *s, sim_moment *launch, sim_moment *after, sim_shown *shown,
                         uint64_t ns);
/** The program has waited for a moment. */
void sim_schedule_wait(sim_schedule *s, sim_moment *m);
/** Finds what can be said for good. */
void sim_schedule_advance(sim_schedule *s);
/** No launch will come: finds when all that ran did. */
void sim_schedule_finish(sim_schedule *s);
/** Finds when a moment is for which the program has waited. Returns false if launches that were
 *  queued have to run first. */
bool sim_schedule_find(sim_schedule *s, sim_moment *m, uint64_t *ns);

#endif
