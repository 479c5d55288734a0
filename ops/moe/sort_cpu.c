// SPDX-License-Identifier: Apache-2.0
// The CPU kernel that gives pairs their rows: counts, then places, in the order of pairs.
#include "moe.h"

#include <stdlib.h>

static void write_row(const qni_moe_sort_problem *p, uint32_t row, uint32_t pair, int32_t expert) {
    if (p->pair_of_row)
        p->pair_of_row[row] = (int32_t)pair;
    if (p->expert_of_row)
        p->expert_of_row[row] = expert;
}

/** Makes ends of the counts that they hold, and of `next`, each expert's first row. Fills padding.
 *  Returns the rows of all experts. */
static uint32_t find_ends(const qni_moe_sort_problem *p, uint32_t *next) {
    uint32_t begin = 0;
    for (uint32_t e = 0; e < p->experts; e++) {
        const uint32_t end = begin + (uint32_t)p->ends[e],
                       after = qk_moe_round_up(end, p->alignment);
        next[e] = begin;
        p->ends[e] = (int32_t)end;
        for (uint32_t row = end; row < after; row++)
            write_row(p, row, p->pairs, -1);
        for (uint32_t b = begin / p->alignment; p->expert_of_block && b < after / p->alignment; b++)
            p->expert_of_block[b] = (int32_t)e;
        begin = after;
    }
    return begin;
}

static void place_pairs(const qni_moe_sort_problem *p, uint32_t *next) {
    for (uint32_t pair = 0; pair < p->pairs; pair++) {
        const int32_t e = qk_moe_expert_of(p, pair);
        const uint32_t row = e < 0 ? 0 : next[e]++;
        if (e >= 0)
            write_row(p, row, pair, e);
        if (p->row_of_pair)
            p->row_of_pair[qk_moe_pair_at(pair, p->top_k, p->row_of_pair_row)] =
                e < 0 ? -1 : (int32_t)row;
    }
}

qn_status qni_moe_sort_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    const qni_moe_sort_problem *p = problem;
    uint32_t *next = malloc((size_t)p->experts * sizeof *next);
    if (!next)
        return QN_FAIL(QN_E_MEMORY, "moe_sort: no memory for %u experts", p->experts);
    for (uint32_t e = 0; e < p->experts; e++)
        p->ends[e] = 0;
    for (uint32_t pair = 0; pair < p->pairs; pair++) {
        const int32_t e = qk_moe_expert_of(p, pair);
        if (e >= 0)
            p->ends[e]++;
    }
    const uint32_t used = find_ends(p, next);
    place_pairs(p, next);
    free(next);
    if (p->num_rows)
        *p->num_rows = (int32_t)used;
    for (uint32_t row = used; row < p->rows; row++)
        write_row(p, row, p->pairs, -1);
    for (uint32_t b = used / p->alignment; p->expert_of_block && b < p->rows / p->alignment; b++)
        p->expert_of_block[b] = -1;
    return QN_OK;
}
