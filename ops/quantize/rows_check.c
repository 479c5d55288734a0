// SPDX-License-Identifier: Apache-2.0
// The check problems of quantisation along rows: every form of scale; all codes and scales must be
// right to the bit.
#include "../../check/batches.h"
#include "../../check/case.h"
#include "../../check/walk.h"
#include "quantize_check.h"
#include "rows.h"

typedef struct shape {
    int64_t rows, cols, group; // group 0: the whole row
    int64_t gap, offset;       // elements between rows; elements before the first row
    bool is_column_major;      // of scales
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0, 0, false},       {3, 128, 128, 0, 0, false},
    {37, 32, 32, 8, 8, true},     {5, 136, 64, 0, 0, false},
    {2, 1088, 16, 0, 8, true},    {7, 111, 20, 3, 1, true},
    {2, 2056, 0, 0, 0, false},    {3, 7168, 128, 0, 0, true},
    {4, 1000, 200, 0, 0, false},  {1, 9000, 8, 0, 0, false},
    {2, 2050, 0, 5, 3, false},    {1100, 24, 0, 0, 0, true},
    {1, 33000, 128, 0, 0, false}, {3, 256, 128, qni_far - 256, 0, false},
};

enum { X, Q, SCALE, MAXIMA, NUM_AREAS };
static const char *const area_names[] = {"x", "q", "scale", "workspace"};
static const char *const form_names[] = {"given", "f32", "powers of two", "packed", "tensor"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_rows_problem problem;
} trial_case;

// ---- the tensors

static bool has_area(const trial_case *c, int which) {
    return which != MAXIMA || c->problem.form == QNI_SCALE_TENSOR;
}

/** Places the scales' words: some elements lie between rows, or between columns. */
static void place_scales(trial_case *c) {
    qni_rows_problem *p = &c->problem;
    const int64_t groups = qni_rows_groups(p);
    const int64_t words = p->form == QNI_SCALE_PACKED ? (groups + 3) / 4 : groups;
    p->scale_row = c->shape->is_column_major ? 1 : words + 1;
    p->scale_col = c->shape->is_column_major ? p->rows + 3 : 1;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_rows_problem *p = &c->problem;
    if (!has_area(c, which))
        return (qni_extent){};
    if (which == MAXIMA)
        return qni_dense(QNI_I32, QNI_ROWS_MAXIMA);
    if (which == SCALE)
        return qni_dense(p->form == QNI_SCALE_PACKED ? QNI_I32 : QNI_F32,
                         qni_rows_has_one_scale(p)
                             ? 1
                             : p->rows * p->scale_row + qni_rows_groups(p) * p->scale_col);
    return (qni_extent){.dtype = which == X ? p->dtype_x : p->dtype_q,
                        .rows = p->rows,
                        .row = p->cols,
                        .stride = p->x_row,
                        .offset = c->shape->offset};
}

/** Returns an element of x. Each row has a scale of its own: one is zeros, one powers of two, one
 *  has a NaN, one an infinity. */
static double x_value(trial_case *c, int64_t row, int64_t col) {
    const double normal = qni_random_normal(&c->base.random);
    if (c->problem.form == QNI_SCALE_TENSOR && row % 8 > 1)
        return 3 * normal;
    switch (row % 8) {
    case 1:
        return 0;
    case 2:
        return ldexp(normal < 0 ? -1 : 1, (int)(qni_random(&c->base.random) % 9));
    case 3:
        return col == 5 ? (double)NAN : normal;
    case 4:
        return col == 7 ? (double)-INFINITY : normal;
    case 5:
        return ldexp(normal, c->problem.dtype_x == QNI_F16 ? -14 : -60);
    case 6:
        return ldexp(normal, c->problem.dtype_x == QNI_F16 ? 12 : 100);
    default:
        return normal;
    }
}

static void fill(void *context, int which) {
    trial_case *c = context;
    const qni_rows_problem *p = &c->problem;
    qni_area *a = &c->base.areas[which];
    for (int64_t r = 0; which == X && r < p->rows; r++)
        for (int64_t i = 0; i < p->cols; i++)
            qni_put(a->dtype, qni_area_host(a), r * p->x_row + i, x_value(c, r, i));
    if (which == SCALE && p->form == QNI_SCALE_GIVEN)
        qni_put(QNI_F32, qni_area_host(a), 0, 0.013);
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_rows_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x = qni_area_data(&a[X], on_host);
    p->q = qni_area_data(&a[Q], on_host);
    p->scale = qni_area_data(&a[SCALE], on_host);
    p->maxima = qni_area_data(&a[MAXIMA], on_host);
    return p;
}

// ---- expected results: the definition's values, exactly

static void expect_scales(trial_case *c, const qni_rows_problem *p) {
    const int64_t groups = qni_rows_groups(p);
    const int64_t words = p->form == QNI_SCALE_PACKED ? (groups + 3) / 4 : groups;
    qni_area *a = &c->base.areas[SCALE];
    if (p->form == QNI_SCALE_TENSOR)
        qni_area_expect(a, 0, qni_get(a->dtype, p->scale, 0), 0);
    for (int64_t r = 0; !qni_rows_has_one_scale(p) && r < p->rows; r++)
        for (int64_t i = 0; i < words; i++) {
            const int64_t at = r * p->scale_row + i * p->scale_col;
            qni_area_expect(a, at, qni_get(a->dtype, p->scale, at), 0);
        }
}

static void expect(void *context, void *) {
    trial_case *c = context;
    qni_rows_problem p = c->problem;
    p.q = qni_area_draft(&c->base.areas[Q]);
    p.scale = qni_area_draft(&c->base.areas[SCALE]);
    qni_quantize_rows_ref(&p);
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t i = r * p.q_row; i < r * p.q_row + p.cols; i++)
            qni_area_expect(&c->base.areas[Q], i, qni_get(p.dtype_q, p.q, i), 0);
    expect_scales(c, &p);
    for (int64_t i = 0; has_area(c, MAXIMA) && i < QNI_ROWS_MAXIMA; i++)
        qni_area_expect(&c->base.areas[MAXIMA], i, 0, INT32_MAX); // may be anything
}

// ---- a case

static void make_problem(trial_case *c, qni_dtype dtype, qni_dtype dtype_q, qni_scale_form form) {
    const shape *s = c->shape;
    c->problem = (qni_rows_problem){.dtype_x = dtype,
                                    .dtype_q = dtype_q,
                                    .rows = s->rows,
                                    .cols = s->cols,
                                    .group = s->group ? s->group : s->cols,
                                    .x_row = s->cols + s->gap,
                                    .q_row = s->cols + s->gap,
                                    .form = form,
                                    .eps = 1e-10f};
    if (qni_rows_has_one_scale(&c->problem))
        c->problem.group = s->cols;
    snprintf(c->base.text, sizeof c->base.text,
             "[%ld, %ld] group=%ld scales %s%s gap=%ld offset=%ld %s->%s", (long)s->rows,
             (long)s->cols, (long)s->group, form_names[form],
             s->is_column_major ? " column-major" : "", (long)s->gap, (long)s->offset,
             qni_dtype_name(dtype), qni_dtype_name(dtype_q));
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const shape *s, qni_dtype dtype, qni_dtype dtype_q,
                         qni_scale_form form) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_quantize_rows}, .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes) * 100 + (uint64_t)form;
    make_problem(&c, dtype, dtype_q, form);
    place_scales(&c);
    return qni_case_try(run, &c.base);
}

// ---- rows in batches

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    c->problem.rows = rows;
    c->problem.x = data[X];
    c->problem.q = data[Q];
    c->problem.scale = data[SCALE];
    return &c->problem;
}

static qn_status try_batches(qni_trial_run *run, const shape *s, qni_dtype dtype, qni_dtype dtype_q,
                             qni_scale_form form) {
    trial_case c = {.shape = s};
    make_problem(&c, dtype, dtype_q, form);
    const int64_t groups = qni_rows_groups(&c.problem);
    const bool is_packed = form == QNI_SCALE_PACKED, is_given = form == QNI_SCALE_GIVEN;
    const int64_t words = is_given ? 1 : is_packed ? (groups + 3) / 4 : groups;
    c.problem.scale_row = words;
    c.problem.scale_col = 1;
    const qni_batch_tensor tensors[] = {
        [X] = {.name = area_names[X], .dtype = dtype, .width = s->cols},
        [Q] = {.name = area_names[Q], .dtype = dtype_q, .width = s->cols, .is_written = true},
        [SCALE] = {area_names[SCALE], is_packed ? QNI_I32 : QNI_F32, words, .is_common = is_given,
                   .is_written = !is_given}};
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_quantize_rows, c.base.text, tensors, 3, make_batch, &c});
}

/** Tries all forms but the tensor's scale, which depends on every row. */
static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {
        {1, 1024, 128, 0, 0, false}, {1, 1024, 0, 0, 0, false}, {1, 111, 20, 0, 0, false}};
    qni_walk w = {.forms = QNI_SCALE_TENSOR,
                  .shapes = sizeof widths / sizeof *widths,
                  .types = QNI_BF16 + 1,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_batches(run, &widths[w.shape], (qni_dtype)w.type, w.turn % 3 ? QNI_E4M3FN : QNI_I8,
                         (qni_scale_form)w.form);
    return st;
}

/** Returns whether a problem is due. Far rows, which take much memory, are tried as bf16 alone. */
static qni_due is_due(const qni_walk *w) {
    if (shapes[w->shape].gap <= qni_far / 2)
        return QNI_DUE_BY_TURN;
    return w->type == QNI_BF16 ? QNI_DUE_ALWAYS : QNI_DUE_NEVER;
}

qn_status qni_quantize_rows_try(qni_trial_run *run, const qni_op *op) {
    (void)op;
    static const qni_dtype kinds[] = {QNI_E4M3FN, QNI_I8, QNI_E4M3FNUZ, QNI_E5M2, QNI_E5M2FNUZ};
    qni_walk w = {.forms = QNI_SCALE_TENSOR + 1,
                  .shapes = sizeof shapes / sizeof *shapes,
                  .types = QNI_BF16 + 1,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &shapes[w.shape], (qni_dtype)w.type, kinds[w.turn / w.thinning % 5],
                     (qni_scale_form)w.form);
    return st == QN_OK ? try_all_batches(run) : st;
}
