// SPDX-License-Identifier: Apache-2.0
// The check problems of packbits: lengths around bytes and waves, segments of any length and of
// none.
#include "../../check/area.h"
#include "layout_check.h"
#include "pack.h"

#include <stdlib.h>

typedef struct shape {
    int64_t count, segments; // segments 0: one piece
} shape;
static const shape shapes[] = {{1, 0}, {8, 0}, {9, 0},    {4099, 0},   {70001, 0},
                               {1, 1}, {9, 4}, {100, 70}, {5000, 129}, {0, 3}};

enum { X, OUT, INDPTR, STARTS, NUM_AREAS };
static const char *const area_names[] = {"x", "out", "indptr", "indptr_out"};

typedef struct trial_case {
    qni_pack_problem problem; // pointers into device memory
    qni_area areas[NUM_AREAS];
    uint64_t random;
    char text[80];
} trial_case;

/** Fills the values, and the segments' ends, which rise; some of them are equal. */
static void fill(trial_case *c) {
    const qni_pack_problem *p = &c->problem;
    for (int64_t i = 0; i < p->count; i++) {
        const uint32_t r = qni_random(&c->random);
        ((uint8_t *)qni_area_host(&c->areas[X]))[i] = (uint8_t)(r % 2 ? 1 + r / 2 % 255 : 0);
    }
    int32_t *indptr = c->areas[INDPTR].owner ? qni_area_host(&c->areas[INDPTR]) : nullptr;
    for (int64_t i = 0; indptr && i <= p->segments; i++)
        indptr[i] = (int32_t)(p->count * (i / 3 * 3) / p->segments);
    if (indptr)
        indptr[p->segments] = (int32_t)p->count;
}

static void place(trial_case *c, qni_pack_problem *p, bool on_host) {
    const qni_area *a = c->areas;
    p->x = qni_area_data(&a[X], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->indptr = qni_area_data(&a[INDPTR], on_host);
    p->indptr_out = qni_area_data(&a[STARTS], on_host);
}

/** Expects value i in bit i % 8 of byte i / 8, counted from the lowest or from the highest bit. */
static void expect_segment(trial_case *c, const uint8_t *x, int64_t count, int64_t start) {
    for (int64_t first = 0; first < count; first += 8) {
        int byte = 0;
        for (int64_t i = first; i < first + 8 && i < count; i++)
            if (x[i])
                byte += c->problem.is_little ? 1 << i % 8 : 128 >> i % 8;
        qni_area_expect(&c->areas[OUT], start + first / 8, byte, 0);
    }
}

static void make_expectations(trial_case *c) {
    qni_pack_problem host = c->problem;
    int64_t start = 0;
    place(c, &host, true);
    if (!host.indptr) {
        expect_segment(c, host.x, host.count, 0);
        return;
    }
    qni_area_expect(&c->areas[STARTS], 0, 0, 0);
    for (int64_t i = 0; i < host.segments; i++) {
        const int64_t count = host.indptr[i + 1] - host.indptr[i];
        expect_segment(c, host.x + host.indptr[i], count, start);
        start += (count + 7) / 8;
        qni_area_expect(&c->areas[STARTS], i + 1, (double)start, 0);
    }
}

static qn_status try_one(qni_trial_run *run, const shape *s, bool is_little) {
    trial_case *c = calloc(1, sizeof *c);
    qn_status st = QN_OK;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    c->random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    c->problem = (qni_pack_problem){
        .count = s->count, .segments = s->segments ? s->segments : 1, .is_little = is_little};
    const int num_areas = s->segments ? NUM_AREAS : INDPTR;
    const int64_t counts[] = {s->count, s->count / 8 + c->problem.segments, s->segments + 1,
                              s->segments + 1};
    for (int i = 0; i < num_areas; i++)
        QN_TRY_OUT(qni_area_create(&c->areas[i], area_names[i],
                                   qn_stream_device(qni_trial_stream(run)),
                                   i < INDPTR ? QNI_U8 : QNI_I32, counts[i], 0));
    fill(c);
    make_expectations(c);
    place(c, &c->problem, false);
    snprintf(c->text, sizeof c->text, "%ld values in %ld segments, %s", (long)s->count,
             (long)s->segments, is_little ? "little" : "big");
    QN_TRY_OUT(qni_areas_try(run, &qni_op_packbits, &c->problem, c->text, c->areas, NUM_AREAS));
out:
    qni_areas_destroy(c->areas, NUM_AREAS);
    free(c);
    return st;
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
