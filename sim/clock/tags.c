// SPDX-License-Identifier: Apache-2.0
// The tags of a cache. A line's set is a hash of its number, as in the chips, whose hashes are not
// published: strides that are powers of two do not meet in one set.
#include "tags.h"

#include <stdlib.h>
#include <string.h>

bool sim_tags_init(sim_tags *tags, uint64_t bytes, uint32_t line_bytes, uint32_t ways) {
    const uint64_t lines = bytes / line_bytes, sets = lines / ways ? lines / ways : 1;
    *tags = (sim_tags){.sets = (uint32_t)sets, .ways = ways};
    tags->lines = calloc(sets * ways, sizeof *tags->lines);
    return tags->lines;
}

void sim_tags_deinit(sim_tags *tags) {
    free(tags->lines);
    *tags = (sim_tags){};
}

void sim_tags_settle(sim_tags *tags) {
    for (size_t i = 0; i < (size_t)tags->sets * tags->ways; i++)
        tags->lines[i].ready = 0;
}

static sim_cached *set_of(const sim_tags *tags, uint64_t number) {
    return tags->lines + (size_t)sim_spread(number, tags->sets) * tags->ways;
}

sim_cached *sim_tags_find(sim_tags *tags, uint64_t number) {
    sim_cached *set = set_of(tags, number);
    for (uint32_t i = 0; i < tags->ways; i++) {
        if (set[i].number == number + 1) {
            set[i].last_used = ++tags->uses;
            return &set[i];
        }
    }
    return nullptr;
}

sim_cached *sim_tags_replace(sim_tags *tags, uint64_t number) {
    sim_cached *set = set_of(tags, number), *oldest = set;
    for (uint32_t i = 0; i < tags->ways && oldest->number; i++)
        if (!set[i].number || set[i].last_used < oldest->last_used)
            oldest = &set[i];
    return oldest;
}

void sim_tags_put(sim_tags *tags, sim_cached *place, uint64_t number, uint64_t ready,
                  bool is_dirty) {
    *place = (sim_cached){number + 1, ready, ++tags->uses, is_dirty};
}

void sim_tags_clear(sim_tags *tags) {
    memset(tags->lines, 0, (size_t)tags->sets * tags->ways * sizeof *tags->lines);
}

uint64_t sim_tags_dirty(const sim_tags *tags) {
    uint64_t dirty = 0;
    for (size_t i = 0; i < (size_t)tags->sets * tags->ways; i++)
        dirty += tags->lines[i].is_dirty;
    return dirty;
}
