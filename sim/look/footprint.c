// SPDX-License-Identifier: Apache-2.0
// Footprints: which cache lines of memory a workgroup or a launch touches at all. A cache that
// forgets nothing fetches each of these lines once.
//
// A hash table by pages of 64 lines, each page with one bit a line; open addressing, at most half
// full.
#include "count.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64, PAGE_LINES = 64 };

static size_t slot_of(const sim_footprint *f, uint64_t page) {
    size_t slot = (size_t)(page * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (f->room - 1);
    while (f->pages[slot].lines && f->pages[slot].number != page)
        slot = (slot + 1) & (f->room - 1);
    return slot;
}

static bool grow(sim_footprint *f) {
    sim_footprint bigger = {.room = f->room ? 2 * f->room : FIRST_ROOM, .used = f->used};
    bigger.pages = calloc(bigger.room, sizeof *bigger.pages);
    for (size_t i = 0; bigger.pages && i < f->room; i++)
        if (f->pages[i].lines)
            bigger.pages[slot_of(&bigger, f->pages[i].number)] = f->pages[i];
    if (bigger.pages) {
        free(f->pages);
        *f = bigger;
    }
    return bigger.pages;
}

static void add_page(sim_footprint *f, uint64_t page, uint64_t lines) {
    if (2 * f->used >= f->room && !grow(f)) {
        f->is_incomplete = true;
        return;
    }
    struct sim_page *p = &f->pages[slot_of(f, page)];
    f->used += !p->lines;
    p->number = page;
    p->lines |= lines;
}

void sim_footprint_add(sim_footprint *f, uint64_t address) {
    const uint64_t line = address / SIM_FOOTPRINT_LINE;
    add_page(f, line / PAGE_LINES, UINT64_C(1) << line % PAGE_LINES);
}

bool sim_footprint_has(const sim_footprint *f, uint64_t address) {
    const uint64_t line = address / SIM_FOOTPRINT_LINE;
    return f->room && f->pages[slot_of(f, line / PAGE_LINES)].lines >> line % PAGE_LINES & 1;
}

void sim_footprint_merge(sim_footprint *to, const sim_footprint *from) {
    for (size_t i = 0; i < from->room; i++)
        if (from->pages[i].lines)
            add_page(to, from->pages[i].number, from->pages[i].lines);
    to->is_incomplete |= from->is_incomplete;
}

uint64_t sim_footprint_lines(const sim_footprint *f) {
    uint64_t lines = 0;
    for (size_t i = 0; i < f->room; i++)
        lines += (uint64_t)__builtin_popcountll(f->pages[i].lines);
    return lines;
}

void sim_footprint_deinit(sim_footprint *f) {
    free(f->pages);
    *f = (sim_footprint){};
}
