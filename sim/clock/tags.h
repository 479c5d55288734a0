// SPDX-License-Identifier: Apache-2.0
// The tags of a cache: which lines it holds, and when each of them arrives. No data.
#ifndef SIM_TAGS_H
#define SIM_TAGS_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_cached {
    uint64_t number;    // address / bytes of a line, plus 1; 0: the place is free
    uint64_t ready;     // when the line's data are there; the clock's unit
    uint32_t last_used; // by sim_tags.uses
    bool is_dirty;
} sim_cached;

/** Returns which of `count` places a number has: numbers that follow each other have places that
 *  do, and those of each block of `count` begin at another place, so that no stride keeps to
 *  few. */
static inline uint32_t sim_spread(uint64_t number, uint32_t count) {
    const uint64_t block = number / count * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((number + (block >> 32)) % count);
}

/** A cache of `sets` times `ways` lines, of which the one that was used longest ago is replaced. */
typedef struct sim_tags {
    sim_cached *lines;
    uint32_t sets, ways, uses;
} sim_tags;

/** Makes an empty cache. Returns false if memory runs out. */
bool sim_tags_init(sim_tags *tags, uint64_t bytes, uint32_t line_bytes, uint32_t ways);
void sim_tags_deinit(sim_tags *tags);
/** Starts a new launch, whose time begins at 0: all lines have arrived. */
void sim_tags_settle(sim_tags *tags);
/** Returns the place of a line, which counts as used now, or null. */
sim_cached *sim_tags_find(sim_tags *tags, uint64_t number);
/** Gives a line that is not there a place. Returns the place, which still holds the line that has
 *  to go. */
sim_cached *sim_tags_replace(sim_tags *tags, uint64_t number);
/** Puts a line into its place. */
void sim_tags_put(sim_tags *tags, sim_cached *place, uint64_t number, uint64_t ready,
                  bool is_dirty);
/** Forgets all lines. */
void sim_tags_clear(sim_tags *tags);
/** Returns how many lines are dirty. */
uint64_t sim_tags_dirty(const sim_tags *tags);

#endif
