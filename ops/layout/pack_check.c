// SPDX-License-Identifier: Apache-2.0
// The check problems of packbits: lengths around bytes and waves, segments of any length and of
// none.
#include "../../check/case.h"
#include "layout_check.h"
#include "pack.h"

typedef struct shape {
    int64_t count, segments; // segments 0: one piece
} shape;
static const shape shapes[] = {{1, 0}, {8, 0}, {9, 0},    {4099, 0},   {70001, 0},
                               {1, 1}, {9, 4}, {100, 70}, {5000, 129}, {0, 3}};

enum { X, OUT, INDPTR, STARTS, NUM_AREAS };
static const char *const area_names[] = {"x", "out", "indptr", "indptr_out"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_pack_problem problem;
} trial_case;

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_pack_problem *p = &c->problem;
    if (which < INDPTR)
        return qni_dense(QNI_U8, which == X ? p->count : p->count / 8 + p->segments);
    return c->shape->segments > 0 ? qni_dense(QNI_I32, p->segments + 1) : (qni_extent){};
}

/** Fills the values, or the segments' ends, which rise; some of them are equal. */
static void fill(void *context, int which) {
    trial_case *c = context;
    const qni_pack_problem *p = &c->problem;
    uint8_t *x = qni_area_host(&c->base.areas[which]);
    int32_t *indptr = (void *)x;
    for (int64_t i = 0; which == X && i < p->count; i++) {
        const uint32_t r = qni_random(&c->base.random);
        x[i] = (uint8_t)(r % 2 ? 1 + r / 2 % 255 : 0);
    }
    for (int64_t i = 0; which == INDPTR && i < p->segments; i++)
        indptr[i] = (int32_t)(p->count * (i / 3 * 3) / p->segments);
    if (which == INDPTR)
        indptr[p->segments] = (int32_t)p->count;
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_pack_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x = qni_area_data(&a[X], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->indptr = qni_area_data(&a[INDPTR], on_host);
    p->indptr_out = qni_area_data(&a[STARTS], on_host);
    return p;
}

/** Expects value i in bit i % 8 of byte i / 8, counted from the lowest or from the highest bit. */
static void expect_segment(trial_case *c, const uint8_t *x, int64_t count, int64_t start) {
    for (int64_t first = 0; first < count; first += 8) {
        int byte = 0;
        for (int64_t i = first; i < first + 8 && i < count; i++)
            if (x[i])
                byte += c->problem.is_little ? 1 << i % 8 : 128 >> i % 8;
        qni_area_expect(&c->base.areas[OUT], start + first / 8, byte, 0);
    }
}

static void expect(void *context, void *) {
    trial_case *c = context;
    const qni_pack_problem *p = &c->problem;
    int64_t start = 0;
    if (!p->indptr) {
        expect_segment(c, p->x, p->count, 0);
        return;
    }
    qni_area_expect(&c->base.areas[STARTS], 0, 0, 0);
    for (int64_t i = 0; i < p->segments; i++) {
        const int64_t count = p->indptr[i + 1] - p->indptr[i];
        expect_segment(c, p->x + p->indptr[i], count, start);
        start += (count + 7) / 8;
        qni_area_expect(&c->base.areas[STARTS], i + 1, (double)start, 0);
    }
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const shape *s, bool is_little) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_packbits},
                    .shape = s,
                    .problem = {.count = s->count,
                                .segments = s->segments ? s->segments : 1,
                                .is_little = is_little}};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text, "%ld values in %ld segments, %s", (long)s->count,
             (long)s->segments, is_little ? "little" : "big");
    return qni_case_try(run, &c.base);
}

qn_status qni_pack_try(qni_trial_run *run, const qni_op *op) {
    (void)op;
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int is_little = 0; is_little < 2; is_little++) {
            const qn_status st = try_one(run, &shapes[s], is_little != 0);
            if (st != QN_OK)
                return st;
        }
    return QN_OK;
}
