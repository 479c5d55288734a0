// SPDX-License-Identifier: Apache-2.0
// The check problems of activations' backward pass: every function, with a limit and without, on
// shapes that reach every kernel and edge.
#include "activation_backward_check.h"

#include "../../check/batches.h"
#include "../../check/walk.h"
#include "../activation/activation_check.h"
#include "activation_backward.h"

static const float limits[] = {HUGE_VALF, 1.5f};
enum { NUM_LIMITS = sizeof limits / sizeof *limits };
static const char *const functions[] = {"silu", "gelu", "gelu_tanh"};

typedef qni_activation_backward_shape shape;
static const shape shapes[] = {
    {1, 1, 1, 0, 0},    {1, 37, 8, 0, 0},   {2, 9, 64, 0, 8},    {1, 33, 136, 8, 0},
    {3, 2, 111, 3, 1},  {1, 3, 1024, 0, 0}, {1, 5, 1032, 16, 8}, {2, 2, 2056, 0, 0},
    {1, 2, 2050, 5, 3}, {1, 2, 9216, 0, 0}, {1, 1, 33000, 0, 0}, {1, 3, 64, qni_far - 128, 0},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, D_OUT, DX, NUM_AREAS };
static const char *const area_names[] = {"x", "d_out", "dx"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_activation_backward_problem problem;
} trial_case;

// ---- the tensors

/** Returns the elements from row to row. Between batches there is the room of one more row. */
static int64_t row_stride(const trial_case *c, int which) {
    return (which == D_OUT ? 1 : 2) * c->shape->h + c->shape->gap;
}
static int64_t batch_stride(const trial_case *c, int which) {
    return (c->shape->inner + 1) * row_stride(c, which);
}
static int64_t row_at(const trial_case *c, int which, int64_t r) {
    return r / c->shape->inner * batch_stride(c, which) +
           r % c->shape->inner * row_stride(c, which);
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const int64_t stride = row_stride(c, which);
    return (qni_extent){.dtype = c->problem.dtype,
                        .rows = row_at(c, which, c->problem.rows - 1) / stride + 1,
                        .row = stride - c->shape->gap,
                        .stride = stride,
                        .offset = c->shape->offset};
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    const int64_t width = (which == X ? 2 : 1) * c->shape->h;
    for (int64_t r = 0; which != DX && r < c->problem.rows; r++)
        for (int64_t i = 0; i < width; i++)
            qni_put(a->dtype, qni_area_host(a), row_at(c, which, r) + i,
                    which == X ? qni_activation_check_value(&c->base.random, c->problem.dtype, r)
                               : qni_random_normal(&c->base.random));
}

static qni_activation_rows rows_in(const trial_case *c, int which, bool on_host) {
    return (qni_activation_rows){qni_area_data(&c->base.areas[which], on_host),
                                 batch_stride(c, which), row_stride(c, which)};
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_activation_backward_problem *p = &c->problem;
    p->x = rows_in(c, X, on_host);
    p->d_out = rows_in(c, D_OUT, on_host);
    p->dx = rows_in(c, DX, on_host);
    return p;
}

// ---- expected results

static void expect_row(trial_case *c, int64_t row) {
    const qni_activation_backward_problem *p = &c->problem;
    const int64_t x = row_at(c, X, row), d = row_at(c, D_OUT, row), dx = row_at(c, DX, row);
    for (int64_t i = 0; i < p->h; i++) {
        const qni_activation_gradients g = qni_activation_backward_ref(
            p, qni_get(p->dtype, p->x.data, x + i), qni_get(p->dtype, p->x.data, x + p->h + i),
            qni_get(p->dtype, p->d_out.data, d + i));
        qni_area_expect(&c->base.areas[DX], dx + i, g.gate, g.gate_bound);
        qni_area_expect(&c->base.areas[DX], dx + p->h + i, g.up, g.up_bound);
    }
}

static void expect(void *context, void *) {
    trial_case *c = context;
    for (int64_t r = 0; r < c->problem.rows; r++)
        expect_row(c, r);
}

// ---- a case

static void name_case(trial_case *c) {
    const qni_activation_backward_problem *p = &c->problem;
    snprintf(c->base.text, sizeof c->base.text,
             "%s_and_mul limit=%g [%ld, %ld, 2 * %ld] gap=%ld offset=%ld %s",
             functions[p->function], (double)p->limit, (long)c->shape->batches,
             (long)c->shape->inner, (long)p->h, (long)c->shape->gap, (long)c->shape->offset,
             qni_dtype_name(p->dtype));
}

static void make_problem(trial_case *c, qni_dtype dtype, qn_activation function, float limit) {
    const shape *s = c->shape;
    c->problem = (qni_activation_backward_problem){.dtype = dtype,
                                                   .rows = s->batches * s->inner,
                                                   .inner = s->inner,
                                                   .h = s->h,
                                                   .function = function,
                                                   .limit = limit};
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

qn_status qni_activation_backward_check(qni_trial_run *run, const shape *s, qni_dtype dtype,
                                        qn_activation function, float limit, uint64_t seed) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_activation_backward}, .shape = s};
    c.base.random = seed;
    make_problem(&c, dtype, function, limit);
    name_case(&c);
    return qni_case_try(run, &c.base);
}

// ---- rows in batches

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    qni_activation_backward_problem *p = &c->problem;
    p->rows = p->inner = rows;
    p->x = (qni_activation_rows){data[X], 0, 2 * p->h};
    p->d_out = (qni_activation_rows){data[D_OUT], 0, p->h};
    p->dx = (qni_activation_rows){data[DX], 0, 2 * p->h};
    return p;
}

static qn_status try_batches(qni_trial_run *run, const shape *s, qni_dtype dtype,
                             qn_activation function) {
    trial_case c = {.shape = s};
    make_problem(&c, dtype, function, HUGE_VALF);
    const qni_batch_tensor tensors[NUM_AREAS] = {
        [X] = {.name = area_names[X], .dtype = dtype, .width = 2 * s->h},
        [D_OUT] = {.name = area_names[D_OUT], .dtype = dtype, .width = s->h},
        [DX] = {.name = area_names[DX], .dtype = dtype, .width = 2 * s->h, .is_written = true}};
    name_case(&c);
    return qni_trial_row_batches(run, &(qni_row_op){&qni_op_activation_backward, c.base.text,
                                                    tensors, NUM_AREAS, make_batch, &c});
}

/** Tries h of whole runs and other h. */
static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {{1, 1, 1024, 0, 0}, {1, 1, 111, 0, 0}};
    qni_walk w = {.forms = 1,
                  .shapes = sizeof widths / sizeof *widths,
                  .types = 3, // a dtype and a function each
                  .thinning = qni_trial_is_quick(run) ? 5 : 1};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_batches(run, &widths[w.shape], (qni_dtype)w.type, (qn_activation)w.type);
    return st;
}

static qni_due is_due(const qni_walk *w) {
    return qni_walk_by_gap(w, shapes[w->shape].gap);
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    qni_walk w = {.forms = NUM_LIMITS,
                  .shapes = NUM_SHAPES,
                  .types = 9, // dtypes, of each function
                  .thinning = qni_trial_is_quick(run) ? 5 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = qni_activation_backward_check(run, &shapes[w.shape], (qni_dtype)(w.type % 3),
                                           (qn_activation)(w.type / 3), limits[w.form],
                                           qni_trial_seed(run) + (uint64_t)w.shape);
    return st == QN_OK ? try_all_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_activation_backward, nullptr};
const qni_family qni_family_activation_backward = {"activation_backward", ops, try_op};
