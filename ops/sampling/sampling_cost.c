// SPDX-License-Identifier: Apache-2.0
// What sampling's GPU kernels cost, in microseconds as an H200 takes them; all that counts is which
// kernel takes less. Lines through the times that docs/performance_h200.md tells of.
#include "sampling.h"

/** What a call takes: a row `row`, and `element` more for each of its elements. */
typedef struct line {
    double row, element;
} line;

/** The times of a kind of function. */
typedef struct times {
    line alone;   // a workgroup a row: of a turn of rows, one for each multiprocessor
    double bytes; // of memory, for each element of a row, where all rows share it
    line first;   // a cluster a row: of the first row
    line more;    // of each row
} times;

enum { SOFTMAX, PLAIN, FILTERED };
static const times times_of[] = {
    [SOFTMAX] = {{8.7, 3.0e-4}, 1.77e-6, {4.5, 3.0e-5}, {0.14, 1.33e-6}},
    [PLAIN] = {{10.6, 2.0e-4}, 0.93e-6, {7.3, 4.5e-5}, {0.20, 1.10e-6}},
    [FILTERED] = {{21.0, 1.9e-4}, 1.55e-6, {23.0, 2.0e-5}, {0.95, 0.50e-6}},
};
constexpr int measured_units = 132; // multiprocessors of an H200

bool qni_sampling_is_plain(const qk_sampling_args *g) {
    return !g->top_ks && g->top_k >= g->vocab && !g->top_ps && g->top_p >= 1;
}

static const times *find_times(const qk_sampling_args *g) {
    return &times_of[g->what == QK_SAMPLING_SOFTMAX ? SOFTMAX
                     : qni_sampling_is_plain(g)     ? PLAIN
                                                    : FILTERED];
}

static double along(line l, double vocab) {
    return l.row + l.element * vocab;
}

double qni_sampling_gpu_cost(const qni_variant *, const qn_device *device, const void *problem) {
    const qni_sampling_problem *p = problem;
    if (!qni_sampling_is_on_rows(p))
        return 0; // no other kernel
    const times *t = find_times(&p->rows);
    const double units = device->info.num_compute_units, vocab = p->rows.vocab;
    const double turns = __builtin_ceil(p->rows.batch / units);
    return turns * along(t->alone, vocab) + t->bytes * p->rows.batch * vocab;
}

double qni_sampling_cluster_cost(const qni_variant *variant, const qn_device *device,
                                 const void *problem) {
    const qk_sampling_args *g = &((const qni_sampling_problem *)problem)->rows;
    const times *t = find_times(g);
    // Of the kernel for wide rows, a multiprocessor runs one workgroup at a time.
    const double crowd = variant->config.columns > QNI_SAMPLING_NARROW ? 2.3 : 1;
    const double units = device->info.num_compute_units;
    return along(t->first, g->vocab) +
           crowd * g->batch * along(t->more, g->vocab) * measured_units / units;
}
