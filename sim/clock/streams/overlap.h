// SPDX-License-Identifier: Apache-2.0
// Launches that share the chip: their workgroups take places on the units of an XCD as these have
// room, and get on more slowly where together they ask for more than a part of the chip gives
// (overlap.c). Times are in nanoseconds.
#ifndef SIM_OVERLAP_H
#define SIM_OVERLAP_H

#include "../../chip/chip.h"
#include "../sample.h"
#include "moment.h"

/** What launches share: of a unit; from the second level on, of all units. */
typedef enum sim_part {
    SIM_PART_MATRIX,
    SIM_PART_LANES,
    SIM_PART_LDS,
    SIM_PART_VECTOR_CACHE,
    SIM_PART_L2,
    SIM_PART_FABRIC,
    SIM_PART_MEMORY,
    SIM_PART_POWER,
    SIM_NUM_PARTS
} sim_part;

/** A launch by itself, on an XCD. */
typedef struct sim_demand {
    uint64_t ns, launch_ns;      // all of it; of that before the first workgroup
    double tail_ns;              // after the last workgroup
    double start_ns;             // from a workgroup's start to the next one's
    double room[SIM_NUM_LIMITS]; // share of a unit's room that a workgroup takes
    double busy[SIM_NUM_PARTS];  // share of a part that a workgroup keeps busy
    double power_root;           // speed falls as this power of the board's, if that is too high
    sim_shown shown;             // when it is known when the launch ran
    uint32_t units;
    uint64_t groups, round; // workgroups; of a round
    uint64_t num_spans;     // if there are fewer than workgroups, those of the first SIM_ROUNDS
                            // rounds and the last: rounds between repeat all but the first
    float spans[];          // how long workgroups ran, in the order of their starts
} sim_demand;

typedef struct sim_sharing sim_sharing;
typedef struct sim_shared_unit sim_shared_unit;

typedef struct sim_overlap {
    sim_sharing *first;     // launches that have not ended: those that get places first come first
    sim_shared_unit *units; // of an XCD; null: there was no launch yet
    uint32_t num_units, next_unit, num_started;
    double now, dispatch_free;
} sim_overlap;

/** Adds a launch. Its end, an open moment, follows what it waits for. The launch owns the demand.
 *  Returns false if memory runs out. */
bool sim_overlap_add(sim_overlap *o, sim_moment *end, sim_demand *demand, int priority);
/** Runs until a moment is known. */
void sim_overlap_run(sim_overlap *o, sim_moment *until);
/** Runs until all launches have ended. */
void sim_overlap_finish(sim_overlap *o);
void sim_overlap_deinit(sim_overlap *o);
/** Frees a demand that no launch owns. */
void sim_demand_destroy(sim_demand *demand);

#endif
