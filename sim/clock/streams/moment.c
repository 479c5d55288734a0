// SPDX-License-Identifier: Apache-2.0
// Moments: a graph, of which parts that are known are forgotten.
#include "moment.h"

#include <stdlib.h>

sim_moment *sim_moment_create(void) {
    sim_moment *m = calloc(1, sizeof *m);
    if (m)
        *m = (sim_moment){.references = 1, .is_open = true};
    return m;
}

sim_moment *sim_moment_keep(sim_moment *m) {
    if (m)
        m->references++;
    return m;
}

static void forget(sim_moment *m) {
    for (int i = 0; i < SIM_MOMENT_PARENTS; i++) {
        sim_moment_release(m->after[i]);
        m->after[i] = nullptr;
    }
}

void sim_moment_release(sim_moment *m) {
    if (!m || --m->references)
        return;
    forget(m);
    free(m);
}

void sim_moment_follow(sim_moment *m, sim_moment *before) {
    int i = 0;
    while (m->after[i])
        i++;
    m->after[i] = sim_moment_keep(before);
}

void sim_moment_know(sim_moment *m, uint64_t ns) {
    m->is_open = false;
    m->is_known = true;
    m->ns = ns;
    forget(m);
}

void sim_moment_close(sim_moment *m) {
    m->is_open = false;
}

bool sim_moment_find_before(sim_moment *m, uint64_t *ns) {
    uint64_t last = 0;
    for (int i = 0; i < SIM_MOMENT_PARENTS; i++) {
        uint64_t one;
        if (!sim_moment_find(m->after[i], &one))
            return false;
        last = one > last ? one : last;
    }
    *ns = last;
    return true;
}

bool sim_moment_find(sim_moment *m, uint64_t *ns) {
    *ns = m && m->is_known ? m->ns : 0;
    if (!m || m->is_known)
        return true;
    if (m->is_open || !sim_moment_find_before(m, ns))
        return false;
    sim_moment_know(m, *ns);
    return true;
}
