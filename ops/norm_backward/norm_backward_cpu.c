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

/** Adds up one tensor's sums, part after part, from column `first` on. */
static void add_parts(const qni_norm_backward_problem *p, const float *sums, qni_dtype dtype,
                      void *out, int64_t first) {
    const int64_t count = p->h - first < COLUMNS ? p->h - first : COLUMNS;
    float total[COLUMNS] = {};
    for (int64_t part = 0; part < p->parts; part++)
        for (int64_t i = 0; i < count; i++)
            total[i] += sums[part * p->pad + first + i];
    for (int64_t i = 0; i < count; i++)
        qni_put(dtype, out, first + i, (double)total[i]);
}

static void run_columns(void *context, int64_t i) {
    const qni_norm_backward_problem *p = ((const work *)context)->p;
    if (p->dweight)
        add_parts(p, p->weight_sums, p->dtype_dweight, p->dweight, i * COLUMNS);
    if (p->dbeta)
        add_parts(p, p->beta_sums, p->dtype_dbeta, p->dbeta, i * COLUMNS);
}

qn_status qni_norm_backward_on_threads(const qni_norm_backward_problem *p,
                                       qni_norm_backward_part_fn part) {
    work w = {p, part};
    if (!qni_parallel_runs(p->parts, 1, 2 * p->pad * (int64_t)sizeof(float), run_parts, &w))
        return QN_FAIL(QN_E_MEMORY, "norm_backward: no memory for a row of %ld", (long)p->h);
    if (p->dweight || p->dbeta)
        qni_parallel(qni_pieces(p->h, COLUMNS), run_columns, &w);
    return QN_OK;
}

qn_status qni_norm_backward_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_norm_backward_on_threads(problem, backward_part);
}
