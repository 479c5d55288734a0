// SPDX-License-Identifier: Apache-2.0
// The check problems of the activation family: every function and form, on shapes that reach every
// kernel and edge.
#include "activation_check.h"

#include "../../check/batches.h"
#include "../../check/case.h"
#include "../../check/walk.h"
#include "activation.h"

typedef struct form {
    const char *name;
    qni_activation_quant quant;
    float limit;
} form;
static const form forms[] = {
    {"plain", QNI_ACTIVATION_PLAIN, HUGE_VALF},
    {"limited", QNI_ACTIVATION_PLAIN, 1.5f},
    {"quant", QNI_ACTIVATION_STATIC, HUGE_VALF},
    {"quant per token", QNI_ACTIVATION_PER_TOKEN, 7.0f},
    {"quant per group", QNI_ACTIVATION_PER_GROUP, HUGE_VALF},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };
static const char *const functions[] = {"silu", "gelu", "gelu_tanh"};

typedef struct shape {
    int64_t batches, inner, h;
    int64_t gap, offset; // elements between rows; elements before the first row
} shape;
static const shape shapes[] = {
    {1, 1, 1, 0, 0},
    {1, 37, 8, 0, 0},
    {2, 9, 64, 0, 8},
    {1, 33, 136, 8, 0},
    {3, 2, 111, 3, 1},
    {1, 3, 1024, 0, 0},
    {1, 5, 1032, 16, 8},
    {2, 2, 2056, 0, 0},
    {1, 2, 2050, 5, 3},
    {1, 2, 9216, 0, 0},
    {1, 1, 16384, 0, 0},
    {1, 1, 33000, 0, 0},
    {1, 3, 64, qni_far - 128, 0},
    {1, 301, 7168, 0, 0},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, OUT, SCALE, NUM_AREAS };
static const char *const area_names[] = {"x", "out", "scale"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_activation_problem problem;
    double *y, *error; // a row's results
} trial_case;

// ---- the tensors

static bool has_area(const trial_case *c, int which) {
    return which != SCALE || c->form->quant != QNI_ACTIVATION_PLAIN;
}

/** Returns the elements from row to row. Between batches there is the room of one more row. */
static int64_t row_stride(const trial_case *c, int which) {
    return (which == X ? 2 : 1) * c->shape->h + c->shape->gap;
}
static int64_t batch_stride(const trial_case *c, int which) {
    return (c->shape->inner + 1) * row_stride(c, which);
}
static int64_t row_at(const trial_case *c, int which, int64_t r) {
    return r / c->shape->inner * batch_stride(c, which) +
           r % c->shape->inner * row_stride(c, which);
}

static int64_t scales_per_row(const trial_case *c) {
    return c->form->quant == QNI_ACTIVATION_PER_GROUP ? qni_activation_groups(&c->problem) : 1;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_activation_problem *p = &c->problem;
    const int64_t stride = row_stride(c, which);
    if (!has_area(c, which))
        return (qni_extent){};
    if (which == SCALE)
        return qni_dense(QNI_F32,
                         c->form->quant == QNI_ACTIVATION_STATIC ? 1 : p->rows * scales_per_row(c));
    return (qni_extent){.dtype = which == X ? p->dtype : p->dtype_out,
                        .rows = row_at(c, which, p->rows - 1) / stride + 1,
                        .row = stride - c->shape->gap,
                        .stride = stride,
                        .offset = c->shape->offset};
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    for (int64_t r = 0; which == X && r < c->problem.rows; r++)
        for (int64_t i = 0; i < 2 * c->shape->h; i++)
            qni_put(a->dtype, qni_area_host(a), row_at(c, X, r) + i,
                    qni_activation_check_value(&c->base.random, c->problem.dtype, r));
    if (which == SCALE && c->form->quant == QNI_ACTIVATION_STATIC)
        qni_put(QNI_F32, qni_area_host(a), 0, 0.013); // the largest results saturate e4m3
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_activation_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x =
        (qni_activation_rows){qni_area_data(&a[X], on_host), batch_stride(c, X), row_stride(c, X)};
    p->out = (qni_activation_rows){qni_area_data(&a[OUT], on_host), batch_stride(c, OUT),
                                   row_stride(c, OUT)};
    p->scale = qni_area_data(&a[SCALE], on_host);
    return p;
}

// ---- expected results

static void expect_row(trial_case *c, int64_t row) {
    const qni_activation_problem *p = &c->problem;
    const int64_t x = row_at(c, X, row), at = row_at(c, OUT, row), h = p->h;
    const qni_exact exact = {c->y, c->error, h};
    qni_area *out = &c->base.areas[OUT], *scale = &c->base.areas[SCALE];
    for (int64_t i = 0; i < h; i++)
        c->y[i] = qni_activation_ref(p, qni_get(p->dtype, p->x.data, x + i),
                                     qni_get(p->dtype, p->x.data, x + h + i), &c->error[i]);
    switch (p->quant) {
    case QNI_ACTIVATION_PLAIN:
        for (int64_t i = 0; i < h; i++)
            qni_area_expect(out, at + i, c->y[i], c->error[i]);
        return;
    case QNI_ACTIVATION_STATIC:
        qni_area_expect_codes(out, at, exact, (double)*p->scale, 0);
        return;
    case QNI_ACTIVATION_PER_TOKEN:
    case QNI_ACTIVATION_PER_GROUP:
        qni_area_expect_found_scales(
            scale, row * scales_per_row(c), 1, out, at, exact,
            p->quant == QNI_ACTIVATION_PER_TOKEN ? h : QNI_ACTIVATION_GROUP, (double)p->scale_eps);
        return;
    }
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    c->y = scratch;
    c->error = c->y + c->problem.h;
    for (int64_t r = 0; r < c->problem.rows; r++)
        expect_row(c, r);
}

// ---- a case

static void name_case(trial_case *c) {
    const qni_activation_problem *p = &c->problem;
    snprintf(c->base.text, sizeof c->base.text,
             "%s_and_mul %s [%ld, %ld, 2 * %ld] gap=%ld offset=%ld %s->%s", functions[p->function],
             c->form->name, (long)c->shape->batches, (long)c->shape->inner, (long)p->h,
             (long)c->shape->gap, (long)c->shape->offset, qni_dtype_name(p->dtype),
             qni_dtype_name(p->dtype_out));
}

static void make_problem(trial_case *c, qni_dtype dtype, qn_activation function, qni_fp8 kind) {
    const form *f = c->form;
    const shape *s = c->shape;
    c->problem = (qni_activation_problem){
        .dtype = dtype,
        .dtype_out = f->quant == QNI_ACTIVATION_PLAIN ? dtype : (qni_dtype)(QNI_E4M3FN + (int)kind),
        .rows = s->batches * s->inner,
        .inner = s->inner,
        .h = s->h,
        .function = function,
        .quant = f->quant,
        .limit = f->limit,
        .scale_eps = 1e-10f,
    };
    c->problem.scale_row = scales_per_row(c);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                         qn_activation function, qni_fp8 kind) {
    trial_case c = {.base = {&case_kind, &qni_op_activation,
                             .scratch_bytes = 2 * (size_t)s->h * sizeof(double)},
                    .form = f,
                    .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    make_problem(&c, dtype, function, kind);
    name_case(&c);
    return qni_case_try(run, &c.base);
}

// ---- rows in batches

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    qni_activation_problem *p = &c->problem;
    p->rows = p->inner = rows;
    p->x = (qni_activation_rows){data[X], 0, 2 * p->h};
    p->out = (qni_activation_rows){data[OUT], 0, p->h};
    p->scale = data[SCALE];
    return p;
}

static qn_status try_batches(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                             qn_activation function) {
    const qn_device *device = qn_stream_device(qni_trial_stream(run));
    trial_case c = {.form = f, .shape = s};
    make_problem(&c, dtype, function, qni_fp8_of(qni_usual_e4m3(device)));
    const bool finds_scale = f->quant > QNI_ACTIVATION_STATIC;
    const qni_batch_tensor tensors[NUM_AREAS] = {
        [X] = {.name = area_names[X], .dtype = dtype, .width = 2 * s->h},
        [OUT] = {.name = area_names[OUT],
                 .dtype = c.problem.dtype_out,
                 .width = s->h,
                 .is_written = true},
        [SCALE] = {.name = area_names[SCALE],
                   .dtype = QNI_F32,
                   .width = has_area(&c, SCALE) ? scales_per_row(&c) : 0,
                   .is_common = !finds_scale,
                   .is_written = finds_scale}};
    name_case(&c);
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_activation, c.base.text, tensors, NUM_AREAS, make_batch, &c});
}

/** Tries h of whole runs, enough that long rows are many, and other h. */
static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {{1, 1, 1024, 0, 0}, {1, 1, 111, 0, 0}};
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = sizeof widths / sizeof *widths,
                  .types = 3, // a dtype and a function each
                  .thinning = qni_trial_is_quick(run) ? 5 : 1};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_batches(run, &forms[w.form], &widths[w.shape], (qni_dtype)w.type,
                         (qn_activation)((w.type + w.form) % 3));
    return st;
}

/** Returns whether a problem is due. The last shape, whose plain results are stored past the
 *  caches, takes long. */
static qni_due is_due(const qni_walk *w) {
    if (shapes[w->shape].gap > qni_far / 2)
        return qni_walk_far(w);
    return w->shape == NUM_SHAPES - 1 && (w->form > 0 || w->type % 4 != 0) ? QNI_DUE_NEVER
                                                                           : QNI_DUE_BY_TURN;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES - quick, // the last takes long
                  .types = 9,                   // dtypes, of each function
                  .thinning = quick ? 11 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)(w.type % 3),
                     (qn_activation)(w.type / 3), (qni_fp8)(w.turn % QNI_NUM_FP8));
    return st == QN_OK ? try_all_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_activation, nullptr};
const qni_family qni_family_activation = {"activation", ops, try_op};
