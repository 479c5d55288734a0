// SPDX-License-Identifier: Apache-2.0
// The check problems of sorting. What is expected is found expert by expert, from all pairs.
#include "../../check/case.h"
#include "moe.h"
#include "moe_check.h"

/** How pairs go to experts. */
typedef enum spread { EVEN, ONE, LAST, NOBODY, SOME, NUM_SPREADS } spread;
static const char *const spreads[] = {"even", "one", "last", "nobody", "some"};

typedef struct shape {
    int64_t tokens, top_k, experts, alignment;
    int64_t mapped; // 0: there is no map
    int64_t gap;    // between rows of ids
    int64_t spare;  // rows more than needed
} shape;
// 128 x 8 and 205 x 5 pairs: as many as one workgroup sorts, and one more.
static const shape shapes[] = {
    {1, 1, 1, 1, 0, 0, 0},        {5, 2, 4, 16, 0, 0, 0},      {64, 8, 32, 128, 0, 0, 7},
    {33, 4, 60, 1, 0, 2, 0},      {100, 6, 257, 4, 0, 0, 300}, {17, 8, 20, 128, 160, 1, 0},
    {300, 2, 7, 33, 64, 0, 1000}, {2, 3, 2048, 64, 0, 0, 0},   {0, 4, 8, 128, 0, 0, 256},
    {128, 8, 100, 3, 0, 0, 9},    {205, 5, 300, 32, 0, 1, 0},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { IDS, MAP, ENDS, ROW_OF_PAIR, PAIR_OF_ROW, EXPERT_OF_ROW, EXPERT_OF_BLOCK, NUM_ROWS };
enum { NUM_AREAS = NUM_ROWS + 1 };
static const char *const area_names[] = {
    "ids",           "expert_map",      "ends",    "row_of_pair", "pair_of_row",
    "expert_of_row", "expert_of_block", "num_rows"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    spread spread;
    uint32_t wanted; // bits of the areas that are not left out
    qni_moe_sort_problem problem;
} trial_case;

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const qni_moe_sort_problem *p = &c->problem;
    const int64_t counts[NUM_AREAS] = {[MAP] = s->mapped,
                                       [ENDS] = s->experts,
                                       [PAIR_OF_ROW] = p->rows,
                                       [EXPERT_OF_ROW] = p->rows,
                                       [EXPERT_OF_BLOCK] = p->rows / s->alignment,
                                       [NUM_ROWS] = 1};
    if (!(c->wanted >> which & 1))
        return (qni_extent){};
    if (which == IDS || which == ROW_OF_PAIR)
        return (qni_extent){
            .dtype = QNI_I32, .rows = s->tokens, .row = s->top_k, .stride = s->top_k + s->gap};
    return counts[which] ? qni_dense(QNI_I32, counts[which]) : (qni_extent){};
}

/** Returns the expert of a pair, among `all`. Some are -1, and in maps some are elsewhere. */
static int32_t id_of(trial_case *c, int64_t pair, int64_t all) {
    const int32_t random = (int32_t)(qni_random(&c->base.random) % (uint32_t)all);
    switch (c->spread) {
    case ONE:
        return (int32_t)(all / 2);
    case LAST:
        return (int32_t)all - 1;
    case NOBODY:
        return -1;
    case SOME:
        return pair % 3 == 1 ? -1 : random % 2 ? random / 2 : random;
    default:
        return random;
    }
}

static void fill(void *context, int which) {
    trial_case *c = context;
    const shape *s = c->shape;
    int32_t *at = qni_area_host(&c->base.areas[which]);
    for (int64_t i = 0; which == IDS && i < s->tokens * s->top_k; i++)
        at[i / s->top_k * (s->top_k + s->gap) + i % s->top_k] =
            id_of(c, i, s->mapped ? s->mapped : s->experts);
    for (int64_t i = 0; which == MAP && i < s->mapped; i++)
        at[i] = i % 2 && i / 2 < s->experts ? (int32_t)(s->experts - 1 - i / 2) : -1;
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_moe_sort_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->ids = qni_area_data(&a[IDS], on_host);
    p->expert_map = qni_area_data(&a[MAP], on_host);
    p->ends = qni_area_data(&a[ENDS], on_host);
    p->row_of_pair = qni_area_data(&a[ROW_OF_PAIR], on_host);
    p->pair_of_row = qni_area_data(&a[PAIR_OF_ROW], on_host);
    p->expert_of_row = qni_area_data(&a[EXPERT_OF_ROW], on_host);
    p->expert_of_block = qni_area_data(&a[EXPERT_OF_BLOCK], on_host);
    p->num_rows = qni_area_data(&a[NUM_ROWS], on_host);
    return p;
}

// ---- expected results

static void expect_at(trial_case *c, int which, int64_t i, int64_t value) {
    if (c->base.areas[which].owner)
        qni_area_expect(&c->base.areas[which], i, (double)value, 0);
}

static void expect_row(trial_case *c, int64_t row, int64_t pair, int64_t expert) {
    expect_at(c, PAIR_OF_ROW, row, pair);
    expect_at(c, EXPERT_OF_ROW, row, expert);
}

/** Returns the number that a pair's expert has here; -1: none. */
static int64_t expert_of(const trial_case *c, int64_t pair) {
    const shape *s = c->shape;
    const int32_t id = c->problem.ids[pair / s->top_k * (s->top_k + s->gap) + pair % s->top_k];
    return id < 0 || !s->mapped ? id : c->problem.expert_map[id];
}

static void expect(void *context, void *) {
    trial_case *c = context;
    const shape *s = c->shape;
    const int64_t pairs = s->tokens * s->top_k, align = s->alignment;
    int64_t row = 0, block = 0;
    for (int64_t e = -1; e < s->experts; e++) {
        for (int64_t i = 0; i < pairs; i++) {
            if (expert_of(c, i) != e)
                continue;
            expect_at(c, ROW_OF_PAIR, i / s->top_k * (s->top_k + s->gap) + i % s->top_k,
                      e < 0 ? -1 : row);
            if (e >= 0)
                expect_row(c, row++, i, e);
        }
        if (e >= 0)
            expect_at(c, ENDS, e, row);
        for (; row % align != 0; row++)
            expect_row(c, row, pairs, -1);
        for (; block < row / align; block++)
            expect_at(c, EXPERT_OF_BLOCK, block, e);
    }
    expect_at(c, NUM_ROWS, 0, row);
    for (; row < c->problem.rows; row++)
        expect_row(c, row, pairs, -1);
    for (; block < c->problem.rows / align; block++)
        expect_at(c, EXPERT_OF_BLOCK, block, -1);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const shape *s, spread how, uint32_t wanted) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_moe_sort},
                    .shape = s,
                    .spread = how,
                    .wanted = wanted};
    const int64_t rows = qn_moe_sort_rows(s->tokens * s->top_k, s->experts, s->alignment);
    c.problem = (qni_moe_sort_problem){.ids_row = s->top_k + s->gap,
                                       .row_of_pair_row = s->top_k + s->gap,
                                       .pairs = (uint32_t)(s->tokens * s->top_k),
                                       .top_k = (uint32_t)s->top_k,
                                       .mapped = (uint32_t)s->mapped,
                                       .experts = (uint32_t)s->experts,
                                       .alignment = (uint32_t)s->alignment,
                                       .rows = (uint32_t)(rows + s->spare)};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes) * 10 + how;
    snprintf(c.base.text, sizeof c.base.text,
             "[%ld, %ld] of %ld experts alignment=%ld map=%ld gap=%ld spare=%ld %s outputs=%x",
             (long)s->tokens, (long)s->top_k, (long)s->experts, (long)s->alignment, (long)s->mapped,
             (long)s->gap, (long)s->spare, spreads[how], wanted);
    return qni_case_try(run, &c.base);
}

qn_status qni_moe_try_sort(qni_trial_run *run) {
    constexpr uint32_t all = (1u << NUM_AREAS) - 1, few = 1u << IDS | 1u << MAP | 1u << ENDS;
    const int thinning = qni_trial_is_quick(run) ? 3 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int how = 0; st == QN_OK && how < NUM_SPREADS; how++)
            if (turn++ % thinning == 0)
                st = try_one(run, &shapes[s], (spread)how, turn % 4 == 0 ? few : all);
    return st;
}
