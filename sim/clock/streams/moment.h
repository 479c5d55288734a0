// SPDX-License-Identifier: Apache-2.0
// Moments of a device's modelled time, which may not be known yet (schedule.h). A null pointer is
// the device's beginning. Moments are counted by references.
#ifndef SIM_MOMENT_H
#define SIM_MOMENT_H

#include <stdint.h>

enum { SIM_MOMENT_PARENTS = 2 };

typedef struct sim_moment {
    uint32_t references;
    bool is_known, is_open; // open: what it follows is not set yet, or a launch has to end first
    uint64_t ns;            // if it is known
    struct sim_moment *after[SIM_MOMENT_PARENTS]; // unless it is known: the last of these
} sim_moment;

/** Returns a moment that is open; null if memory runs out. */
sim_moment *sim_moment_create(void);
/** Returns another reference. */
sim_moment *sim_moment_keep(sim_moment *m);
void sim_moment_release(sim_moment *m);
/** Adds a moment that comes before, or at the same time. */
void sim_moment_follow(sim_moment *m, sim_moment *before);
/** Says when an open moment is, or that it is the last of those that it follows. */
void sim_moment_know(sim_moment *m, uint64_t ns);
void sim_moment_close(sim_moment *m);
/** Returns whether it is known when the moment is: *ns. */
bool sim_moment_find(sim_moment *m, uint64_t *ns);
/** The same of the last of those that it follows, be it open or not. */
bool sim_moment_find_before(sim_moment *m, uint64_t *ns);

#endif
