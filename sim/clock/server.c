// SPDX-License-Identifier: Apache-2.0
// Books requests in windows of time.
#include "server.h"

/** Returns a window, empty if nobody has booked in it; null if it is long over and forgotten. */
static sim_window *window_of(sim_server *s, uint64_t number, uint64_t width) {
    sim_window *w = &s->windows[number % SIM_WINDOWS];
    if (w->number > number)
        return nullptr;
    if (w->number < number)
        *w = (sim_window){.number = number, .last = number * width};
    return w;
}

/** Returns the first window from `number` on that has time left. */
static sim_window *find_open(sim_server *s, uint64_t number, uint64_t width) {
    sim_window *first = window_of(s, number, width), *w = first;
    while (!w || w->used >= width) {
        number = w && w->next ? w->next : number + 1;
        w = window_of(s, number, width);
    }
    if (first && first != w)
        first->next = number;
    return w;
}

/** Hands the window's end on: what was booked beyond it takes the windows behind. */
static void carry(sim_server *s, sim_window *w, uint64_t width) {
    const uint64_t end = (w->number + 1) * width;
    if (w->last <= end && w->used <= width)
        return;
    sim_window *next = window_of(s, w->number + 1, width);
    if (!next)
        return;
    if (next->last < w->last)
        next->last = w->last;
    if (w->used > width) {
        next->used += w->used - width;
        w->used = width;
    }
    carry(s, next, width);
}

uint64_t sim_serve(sim_server *server, uint64_t at, uint64_t units, uint64_t per_tick) {
    const uint64_t width = SIM_WINDOW_TICKS * per_tick, from = at * per_tick;
    for (uint64_t number = at / SIM_WINDOW_TICKS;; number++) {
        sim_window *w = find_open(server, number, width);
        const uint64_t end = (w->number + 1) * width;
        uint64_t begin = from > w->last ? from : w->last;
        number = w->number;
        if (begin >= end) { // only what later requests have left is free
            const uint64_t start = number * width, earliest = from > start ? from : start;
            if (w->used + units > end - earliest)
                continue;
            begin = earliest;
        } else {
            w->last = begin + units;
        }
        w->used += units;
        server->end = server->end > begin + units ? server->end : begin + units;
        carry(server, w, width);
        return begin / per_tick;
    }
}
