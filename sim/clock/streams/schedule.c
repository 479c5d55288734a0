// SPDX-License-Identifier: Apache-2.0
// Keeps the order in which launches were queued and what the program has waited for.
#include "schedule.h"

#include "../../look/hooks.h"

#include <stdlib.h>

struct sim_queued {
    sim_queued *next;
    sim_moment *end, *host; // for what the program had waited then
    int priority;
};

void sim_schedule_init(sim_schedule *s) {
    *s = (sim_schedule){};
    s->last = &s->first;
}

static void release_queued(sim_queued *q) {
    sim_moment_release(q->end);
    sim_moment_release(q->host);
    free(q);
}

void sim_schedule_deinit(sim_schedule *s) {
    for (sim_queued *next; s->first; s->first = next) {
        next = s->first->next;
        release_queued(s->first);
    }
    sim_moment_release(s->host);
    for (int i = 0; i < SIM_QUEUE_DEPTH; i++)
        sim_moment_release(s->recent[i]);
    sim_overlap_deinit(&s->overlap);
}

sim_moment *sim_schedule_later(sim_schedule *s, sim_moment *a, sim_moment *b) {
    uint64_t a_ns, b_ns;
    const bool knows_a = sim_moment_find(a, &a_ns), knows_b = sim_moment_find(b, &b_ns);
    if (knows_a && knows_b)
        return sim_moment_keep(a_ns > b_ns ? a : b);
    if (a == b || !a || !b)
        return sim_moment_keep(a ? a : b);
    sim_moment *both = sim_moment_create();
    if (!both) {
        s->is_lost = true;
        return sim_moment_keep(a);
    }
    sim_moment_follow(both, a);
    sim_moment_follow(both, b);
    sim_moment_close(both);
    return both;
}

sim_moment *sim_schedule_queue(sim_schedule *s, int priority) {
    sim_queued *q = malloc(sizeof *q);
    sim_moment *end = q ? sim_moment_create() : nullptr;
    sim_moment **recent = &s->recent[s->count % SIM_QUEUE_DEPTH];
    if (!end) {
        free(q);
        return nullptr;
    }
    sim_schedule_wait(s, *recent); // until there is room in the queue
    sim_moment_follow(end, s->host);
    *q = (sim_queued){
        .end = sim_moment_keep(end), .host = sim_moment_keep(s->host), .priority = priority};
    *s->last = q;
    s->last = &q->next;
    sim_moment_release(*recent);
    *recent = sim_moment_keep(end);
    s->count++;
    return end;
}

bool sim_schedule_is_next(const sim_schedule *s, const sim_moment *launch) {
    return s->first && s->first->end == launch;
}

/** Takes a launch off the queue. Returns its priority. */
static int take_off(sim_schedule *s, const sim_moment *launch) {
    sim_queued **at = &s->first;
    while ((*at)->end != launch)
        at = &(*at)->next;
    sim_queued *q = *at;
    const int priority = q->priority;
    *at = q->next;
    if (!q->next)
        s->last = at;
    release_queued(q);
    return priority;
}

void sim_schedule_advance(sim_schedule *s) {
    sim_overlap_run(&s->overlap, s->first ? s->first->host : s->host);
}

void sim_schedule_finish(sim_schedule *s) {
    sim_overlap_finish(&s->overlap);
}

void sim_schedule_ran(sim_schedule *s, sim_moment *launch, sim_moment *after, sim_demand *demand) {
    const int priority = take_off(s, launch);
    sim_moment_follow(launch, after);
    if (!demand)
        sim_moment_close(launch);
    else
        s->is_lost |= !sim_overlap_add(&s->overlap, launch, demand, priority);
    sim_schedule_advance(s);
}

void sim_schedule_failed(sim_schedule *s, sim_moment *launch, sim_moment *after, sim_shown *shown,
                         uint64_t ns) {
    uint64_t begin;
    sim_schedule_ran(s, launch, after, nullptr);
    sim_schedule_finish(s);
    if (sim_moment_find(launch, &begin))
        sim_look_show(shown, &(sim_span){begin, begin + ns, 0});
    else
        sim_look_hide(shown);
}

void sim_schedule_wait(sim_schedule *s, sim_moment *m) {
    sim_moment *host = sim_schedule_later(s, s->host, m);
    sim_moment_release(s->host);
    s->host = host;
}

bool sim_schedule_find(sim_schedule *s, sim_moment *m, uint64_t *ns) {
    sim_schedule_advance(s);
    return sim_moment_find(m, ns);
}
