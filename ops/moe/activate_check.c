// SPDX-License-Identifier: Apache-2.0
// The check problems of activations, against double precision.
#include "../../check/batches.h"
#include "../../check/case.h"
#include "../../check/walk.h"
#include "moe.h"
#include "moe_check.h"

typedef struct form {
    qn_moe_function function;
    float limit;
    bool is_interleaved, is_quant, skips;
} form;
static const form forms[] = {
    {QN_MOE_SILU, HUGE_VALF, false, false, true}, {QN_MOE_SILU, HUGE_VALF, true, true, true},
    {QN_MOE_GELU, 1.5f, false, true, false},      {QN_MOE_GELU_TANH, HUGE_VALF, true, false, true},
    {QN_MOE_SWIGLU, 7, true, false, false},       {QN_MOE_SWIGLU, 7, false, true, true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };
static const char *const functions[] = {"silu", "gelu", "gelu_tanh", "swiglu"};

typedef struct shape {
    int64_t rows, h, gap, offset; // elements between rows; elements before the first row
    bool has_columns;             // scales with rows side by side
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0, false},     {9, 64, 0, 0, true},
    {7, 136, 8, 8, false},   {5, 111, 3, 1, true},
    {3, 2056, 16, 0, false}, {4, 2050, 1, 3, false},
    {2, 4224, 0, 0, true},   {3, 64, qni_far - 128, 0, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, OUT, SCALE, EXPERTS, NUM_AREAS };
static const char *const area_names[] = {"x", "out", "scale", "expert_of_row"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_moe_activate_problem problem;
    double *y, *error; // a row's results
} trial_case;

static int64_t groups_of(const shape *s) {
    return (s->h + QNI_MOE_GROUP - 1) / QNI_MOE_GROUP;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const qni_moe_activate_problem *p = &c->problem;
    if (which == EXPERTS)
        return c->form->skips ? qni_dense(QNI_I32, s->rows) : (qni_extent){};
    if (which == SCALE && !c->form->is_quant)
        return (qni_extent){};
    if (which == SCALE)
        return s->has_columns ? (qni_extent){QNI_F32, groups_of(s), s->rows, s->rows + 3, 0}
                              : (qni_extent){QNI_F32, s->rows, groups_of(s), groups_of(s), 0};
    return (qni_extent){.dtype = which == X ? p->dtype : p->dtype_out,
                        .rows = s->rows,
                        .row = (which == X ? 2 : 1) * s->h,
                        .stride = which == X ? p->x_row : p->out_row,
                        .offset = s->offset};
}

static bool is_skipped(const trial_case *c, int64_t row) {
    return c->form->skips && row % 3 == 1;
}

/** Returns an element of x: rows of zeros, of values where exp ends its range, of the largest. */
static double x_value(trial_case *c, int64_t row) {
    const double normal = qni_random_normal(&c->base.random);
    const qni_dtype dtype = c->problem.dtype;
    return row % 5 == 2   ? 40 * normal
           : row % 5 == 3 ? 0
           : row % 5 == 4 ? (dtype == QNI_F16 ? copysign(200, normal) : ldexp(normal, 50))
                          : 3 * normal;
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    for (int64_t r = 0; which == X && r < a->rows; r++)
        for (int64_t i = 0; i < a->row; i++)
            qni_put(a->dtype, qni_area_host(a), r * a->stride + i, x_value(c, r));
    for (int64_t r = 0; which == EXPERTS && r < c->shape->rows; r++)
        ((int32_t *)qni_area_host(a))[r] = is_skipped(c, r) ? -1 : (int32_t)r;
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_moe_activate_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x = qni_area_data(&a[X], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->scale = qni_area_data(&a[SCALE], on_host);
    p->expert_of_row = qni_area_data(&a[EXPERTS], on_host);
    return p;
}

static void expect_row(trial_case *c, int64_t r) {
    const qni_moe_activate_problem *p = &c->problem;
    const int64_t step = p->is_interleaved ? 2 : 1, up = p->is_interleaved ? 1 : p->h;
    qni_area *out = &c->base.areas[OUT];
    for (int64_t i = 0; i < p->h; i++)
        c->y[i] = qni_moe_activate_ref(p, qni_get(p->dtype, p->x, r * p->x_row + i * step),
                                       qni_get(p->dtype, p->x, r * p->x_row + i * step + up),
                                       &c->error[i]);
    if (p->scale)
        qni_area_expect_found_scales(&c->base.areas[SCALE], r * p->scale_row, p->scale_column, out,
                                     r * p->out_row, (qni_exact){c->y, c->error, p->h},
                                     QNI_MOE_GROUP, (double)p->scale_eps);
    for (int64_t i = 0; !p->scale && i < p->h; i++)
        qni_area_expect(out, r * p->out_row + i, c->y[i], c->error[i]);
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    c->y = scratch;
    c->error = c->y + c->shape->h;
    for (int64_t r = 0; r < c->shape->rows; r++)
        if (!is_skipped(c, r))
            expect_row(c, r);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static void make_problem(trial_case *c, qni_dtype dtype, qni_dtype fp8) {
    const form *f = c->form;
    const shape *s = c->shape;
    c->problem = (qni_moe_activate_problem){.dtype = dtype,
                                            .dtype_out = f->is_quant ? fp8 : dtype,
                                            .x_row = 2 * s->h + s->gap,
                                            .out_row = s->h + s->gap,
                                            .scale_row = s->has_columns ? 1 : groups_of(s),
                                            .scale_column = s->has_columns ? s->rows + 3 : 1,
                                            .rows = s->rows,
                                            .h = s->h,
                                            .function = f->function,
                                            .limit = f->limit,
                                            .alpha = 1.702f,
                                            .scale_eps = 1e-10f,
                                            .is_interleaved = f->is_interleaved};
    snprintf(c->base.text, sizeof c->base.text,
             "%s%s limit=%g [%ld, 2 * %ld]%s%s gap=%ld "
             "offset=%ld %s->%s",
             functions[f->function], f->is_interleaved ? " interleaved" : "", (double)f->limit,
             (long)s->rows, (long)s->h, f->skips ? " skips" : "",
             s->has_columns ? " scales by columns" : "", (long)s->gap, (long)s->offset,
             qni_dtype_name(dtype), qni_dtype_name(c->problem.dtype_out));
}

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                         qni_dtype fp8) {
    trial_case c = {.base = {.kind = &case_kind,
                             .op = &qni_op_moe_activate,
                             .scratch_bytes = 2 * (size_t)s->h * sizeof(double)},
                    .form = f,
                    .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    make_problem(&c, dtype, fp8);
    return qni_case_try(run, &c.base);
}

// ---- rows in batches

static const void *make_batch(void *context, void *const *data, int64_t rows) {
    qni_moe_activate_problem *p = context;
    p->rows = rows;
    p->x = data[X];
    p->out = data[OUT];
    p->scale = data[SCALE];
    return p;
}

static qn_status try_batches(qni_trial_run *run, const form *f) {
    static const shape wide = {1, 200, 0, 0, false};
    trial_case c = {.form = f, .shape = &wide};
    make_problem(&c, QNI_BF16, qni_usual_e4m3(qn_stream_device(qni_trial_stream(run))));
    const qni_batch_tensor tensors[] = {
        [X] = {.name = "x", .dtype = QNI_BF16, .width = 2 * wide.h},
        [OUT] = {.name = "out", .dtype = c.problem.dtype_out, .width = wide.h, .is_written = true},
        [SCALE] = {.name = "scale",
                   .dtype = QNI_F32,
                   .width = f->is_quant ? groups_of(&wide) : 0,
                   .is_written = true}};
    return qni_trial_row_batches(run, &(qni_row_op){&qni_op_moe_activate, c.base.text, tensors,
                                                    EXPERTS, make_batch, &c.problem});
}

static qni_due is_due(const qni_walk *w) {
    return qni_walk_by_gap(w, shapes[w->shape].gap);
}

qn_status qni_moe_try_activate(qni_trial_run *run) {
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES,
                  .types = 3,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)w.type,
                     (qni_dtype)(QNI_E4M3FN + w.turn % QNI_NUM_FP8));
    for (size_t f = 0; st == QN_OK && f < NUM_FORMS; f += 3)
        st = try_batches(run, &forms[f]);
    return st;
}
