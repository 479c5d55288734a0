// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel, and how every CPU kernel's parts are shared among threads and added up.
#define QN_LANES 4
#include "norm_backward_simd.h"

enum { COLUMNS = 64 }; // that one task adds up

typedef struct work {
    const qni_norm_backward_problem *p;
    qni_norm_backward_part_fn part;
} work;

static void run_parts(void *context, int64_t first, int64_t end, void *scratch) {
    const work *w = context;
    for (int64_t part = first; part < end; part++)
        w->part(w->p, part, scratch);
}

/** Adds up a group's parts of a sum, one after the other, from column `first` on. */
static void add_parts(const qni_norm_backward_problem *p, const qni_norm_sum *sum, int64_t group,
                      int64_t first) {
    const int64_t count = p->h - first < COLUMNS ? p->h - first : COLUMNS;
    const float *part = sum->parts + group * p->parts_per_group * p->pad + first;
    float total[COLUMNS] = {};
    for (int64_t k = 0; k < p->parts_per_group; k++, part += p->pad)
        for (int64_t i = 0; i < count; i++)
            total[i] += part[i];
    for (int64_t i = 0; i < count; i++)
        qni_put(sum->dtype, sum->to, group * sum->batch + first + i, (double)total[i]);
}

static void run_columns(void *context, int64_t i) {
    const qni_norm_backward_problem *p = ((const work *)context)->p;
    const int64_t blocks = qni_pieces(p->h, COLUMNS);
    for (int k = 0; k < QK_NORM_SUMS; k++)
        if (p->sums[k].to)
            add_parts(p, &p->sums[k], i / blocks, i % blocks * COLUMNS);
}

qn_status qni_norm_backward_on_threads(const qni_norm_backward_problem *p,
                                       qni_norm_backward_part_fn part) {
    work w = {p, part};
    if (!qni_parallel_runs(p->groups * p->parts_per_group, 1, 2 * p->pad * (int64_t)sizeof(float),
                           run_parts, &w))
        return QN_FAIL(QN_E_MEMORY, "norm_backward: no memory for a row of %ld", (long)p->h);
    if (qni_norm_backward_has_sums(p))
        qni_parallel(p->groups * qni_pieces(p->h, COLUMNS), run_columns, &w);
    return QN_OK;
}

qn_status qni_norm_backward_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_norm_backward_on_threads(problem, backward_part);
}
