// SPDX-License-Identifier: Apache-2.0
// Coalescing: the cache lines that the lanes of one access share.
#include "count.h"

enum { MAX_LINES = 2 * SIM_LANES, MASK_WORDS = 2 };

typedef struct line {
    uint64_t number;
    uint64_t bytes[MASK_WORDS]; // bit i: byte i is touched
} line;

typedef struct line_set {
    line lines[MAX_LINES];
    uint32_t count;
} line_set;

/** Finds a line. Neighbours come one after another, so the search begins with the line found
 *  last. */
static line *find(line_set *set, uint64_t number) {
    for (uint32_t i = set->count; i-- > 0;)
        if (set->lines[i].number == number)
            return &set->lines[i];
    set->lines[set->count] = (line){.number = number};
    return &set->lines[set->count++];
}

static void add(line_set *set, uint64_t address, uint32_t bytes, uint32_t line_bytes) {
    while (bytes) {
        const uint32_t at = (uint32_t)(address & (line_bytes - 1));
        const uint32_t part = bytes < line_bytes - at ? bytes : line_bytes - at;
        line *l = find(set, address / line_bytes);
        for (uint32_t i = at; i < at + part; i++)
            l->bytes[i / 64] |= UINT64_C(1) << i % 64;
        address += part;
        bytes -= part;
    }
}

sim_lines sim_count_lines(const sim_touch *touch, uint32_t line_bytes, sim_footprint *loaded,
                          sim_footprint *stored) {
    line_set set;
    set.count = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        add(&set, touch->address[lane], touch->bytes[lane], line_bytes);
    }
    sim_lines out = {.lines = set.count};
    for (uint32_t i = 0; i < set.count; i++) {
        for (int k = 0; k < MASK_WORDS; k++)
            out.bytes += (uint32_t)__builtin_popcountll(set.lines[i].bytes[k]);
        if (loaded)
            sim_footprint_add(loaded, set.lines[i].number * line_bytes);
        if (stored)
            sim_footprint_add(stored, set.lines[i].number * line_bytes);
    }
    return out;
}
