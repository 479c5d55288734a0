// SPDX-License-Identifier: Apache-2.0
// The check problems of norms' backward pass: every form, on shapes that reach every kernel and
// every edge.
#include "norm_backward_check.h"

#include "../../check/batches.h"
#include "../../check/walk.h"
#include "norm_backward.h"

#include <string.h>

typedef qni_norm_backward_form form;
typedef qni_norm_backward_shape shape;

static const form forms[] = {
    {.name = "rmsnorm", .has_dweight = true},
    {.name = "layernorm", .subtracts_mean = true, .has_dweight = true, .has_dbeta = true},
    {.name = "fused_add_rmsnorm", .has_sum = true, .has_dweight = true, .has_f32 = true},
    {.name = "gemma_rmsnorm", .weight_plus = 1, .has_dweight = true, .has_f32 = true},
    {.name = "layernorm dx", .subtracts_mean = true, .has_no_weight = true},
    {.name = "layernorm dbeta", .subtracts_mean = true, .has_dbeta = true, .has_f32 = true},
    {.name = "rmsnorm dx", .has_sum = true},
    {"adaptive_layernorm", true, false, false, true, true, 1, .has_batches = true},
    {"gated_residual_layernorm", true, true, false, true, true, 1, false, true, true, true},
    {.name = "gate", .has_no_weight = true, .has_f32 = true, .has_d_gated = true},
    {.name = "dgate", .has_batches = true, .has_dgate = true, .has_dweight = true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

static const shape shapes[] = {
    {1, 1, 1, 0, 0, false},     {3, 5, 64, 0, 0, false},
    {2, 17, 128, 8, 8, true},   {1, 67, 256, 0, 0, false},
    {2, 3, 111, 3, 1, true},    {1, 9, 1032, 0, 0, true},
    {3, 2, 1536, 16, 0, false}, {1, 10, 4096, 0, 0, false},
    {1, 2, 7168, 0, 8, false},  {1, 1, 16384, 0, 0, false},
    {2, 2, 3072, 5, 3, false},  {1, 3, 16392, 0, 0, true},
    {1, 300, 72, 0, 0, true},   {1, 3, 64, qni_far - 64, 8, false},
    {1, 4200, 40, 0, 0, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, D_OUT, D_SUM, GATED, WEIGHT, GATE, DX, D_GATED, DWEIGHT, DBETA, DGATE, WORKSPACE };
enum { NUM_AREAS = WORKSPACE + 1 };
static const char *const area_names[] = {"x",       "d_out", "d_sum", "gated",
                                         "weight",  "gate",  "dx",    "d_gated",
                                         "dweight", "dbeta", "dgate", "workspace"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_norm_backward_problem problem;
    int64_t bytes; // of the workspace
} trial_case;

// ---- the tensors

static int64_t row_stride(const trial_case *c) {
    return c->problem.h + c->shape->gap;
}

static bool is_rows(int which) {
    return which <= GATED || which == DX || which == D_GATED;
}

static bool is_there(const trial_case *c, int which) {
    const form *f = c->form;
    switch (which) {
    case D_SUM:
        return f->has_sum;
    case WEIGHT:
        return !f->has_no_weight;
    case GATE:
    case D_GATED:
        return f->has_d_gated;
    case GATED:
    case DGATE:
        return f->has_dgate;
    case DWEIGHT:
        return f->has_dweight;
    case DBETA:
        return f->has_dbeta;
    case WORKSPACE:
        return c->bytes > 0;
    default:
        return true;
    }
}

/** Rows of weights have gaps where rows of x have. */
static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_norm_backward_problem *p = &c->problem;
    const bool is_sum = which >= DWEIGHT;
    if (!is_there(c, which))
        return (qni_extent){};
    if (which == WORKSPACE)
        return qni_dense(QNI_U8, c->bytes);
    return (qni_extent){.dtype = is_rows(which) ? p->dtype
                                 : is_sum       ? p->sums[which - DWEIGHT].dtype
                                                : p->dtype_weight,
                        .rows = is_rows(which) ? p->rows : p->groups,
                        .row = p->h,
                        .stride = row_stride(c),
                        .offset = c->shape->offset};
}

/** Returns an element of x. Each row has a scale of its own: one is zeros, one has f16's largest
 *  values or values whose squares are large, one lies far from zero, one has infinite squares.
 *  Where eps is 0, rows of equal elements replace two of normal ones. */
static double x_value(trial_case *c, int64_t row) {
    const double normal = qni_random_normal(&c->base.random);
    const bool is_f16 = c->problem.dtype == QNI_F16;
    if (c->shape->has_no_eps && row % 8 == 2)
        return 0.1;
    if (c->shape->has_no_eps && row % 8 == 4)
        return is_f16 ? 1000.5 : ldexp(-1.1, row % 16 == 4 ? 40 : 127);
    switch (row % 8) {
    case 1:
        return 0;
    case 3:
        return is_f16 ? copysign(65504, normal) : ldexp(normal, 40);
    case 5:
        return 100 + normal;
    case 6:
        return ldexp(normal, -20);
    case 7: // no square fits f32
        return ldexp(normal, is_f16 ? 1 : 120);
    default:
        return normal;
    }
}

/** Gates and what they multiply are small, or results would leave f16's range. */
static double value_of(trial_case *c, int which, int64_t row) {
    const double normal = qni_random_normal(&c->base.random);
    if (which == D_OUT)
        return row % 8 == 6 ? ldexp(normal, -10) : normal;
    return ldexp(0.5 + normal, which == GATE ? -2 : which == GATED ? -6 : 0);
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    const int64_t h = c->problem.h, rows = is_rows(which) ? c->problem.rows : c->problem.groups;
    for (int64_t i = 0; which <= GATE && i < rows * h; i++) // gaps keep their poison
        qni_put(a->dtype, qni_area_host(a), i / h * row_stride(c) + i % h,
                which == X ? x_value(c, i / h) : value_of(c, which, i / h));
}

static qni_norm_rows rows_in(const trial_case *c, int which, bool on_host) {
    const qni_area *a = &c->base.areas[which];
    if (!a->device)
        return (qni_norm_rows){};
    return (qni_norm_rows){qni_area_data(a, on_host), c->shape->inner * row_stride(c),
                           row_stride(c)};
}

static qni_norm_weights weights_in(const trial_case *c, int which, bool on_host) {
    return (qni_norm_weights){qni_area_data(&c->base.areas[which], on_host), row_stride(c)};
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_norm_backward_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x = rows_in(c, X, on_host);
    p->d_out = rows_in(c, D_OUT, on_host);
    p->d_sum = rows_in(c, D_SUM, on_host);
    p->gated = rows_in(c, GATED, on_host);
    p->dx = rows_in(c, DX, on_host);
    p->d_gated = rows_in(c, D_GATED, on_host);
    p->weight = weights_in(c, WEIGHT, on_host);
    p->gate = weights_in(c, GATE, on_host);
    for (int i = 0; i < QK_NORM_SUMS; i++) {
        p->sums[i].to = qni_area_data(&a[DWEIGHT + i], on_host);
        p->sums[i].batch = row_stride(c);
    }
    qni_norm_backward_place(p, qni_area_data(&a[WORKSPACE], on_host));
    return p;
}

// ---- expected results

static qni_norm_bounded take(double **room, int64_t h, bool is_there) {
    const qni_norm_bounded taken = {is_there ? *room : nullptr, *room + h};
    *room += 2 * h;
    return taken;
}

static void expect_row(trial_case *c, int which, int64_t row, const qni_norm_bounded *want) {
    for (int64_t i = 0; want->value && i < c->problem.h; i++)
        qni_area_expect(&c->base.areas[which], row * row_stride(c) + i, want->value[i],
                        want->bound[i]);
}

/** Expects the rows of a group, and what is summed up over them. */
static void expect_group(trial_case *c, int64_t group, double *room) {
    const qni_norm_backward_problem *p = &c->problem;
    const int64_t h = p->h, rows = qni_norm_backward_group_rows(p);
    memset(room, 0, c->base.scratch_bytes);
    qni_norm_gradients out = {.dx = take(&room, h, true),
                              .d_gated = take(&room, h, c->form->has_d_gated)};
    for (int i = 0; i < QK_NORM_SUMS; i++)
        out.sums[i] = take(&room, h, is_there(c, DWEIGHT + i));
    out.n = room;
    out.n_bound = room + h;
    out.g = room + 2 * h;
    for (int64_t r = group * rows; r < (group + 1) * rows; r++) {
        qni_norm_backward_ref_row(p, r, &out);
        expect_row(c, DX, r, &out.dx);
        expect_row(c, D_GATED, r, &out.d_gated);
    }
    for (int i = 0; i < QK_NORM_SUMS; i++)
        expect_row(c, DWEIGHT + i, group, &out.sums[i]);
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    for (int64_t group = 0; group < c->problem.groups; group++)
        expect_group(c, group, scratch);
    for (int64_t i = 0; i < c->bytes; i++)
        qni_area_expect(&c->base.areas[WORKSPACE], i, 0, 255); // it may hold anything
}

// ---- a case

static void name_case(trial_case *c) {
    const qni_norm_backward_problem *p = &c->problem;
    snprintf(c->base.text, sizeof c->base.text,
             "%s [%ld, %ld, %ld] gap=%ld offset=%ld %s weight=%s%s", c->form->name,
             (long)c->shape->batches, (long)c->shape->inner, (long)p->h, (long)c->shape->gap,
             (long)c->shape->offset, qni_dtype_name(p->dtype), qni_dtype_name(p->dtype_weight),
             c->shape->has_no_eps ? " eps=0" : "");
}

static void make_problem(trial_case *c, const qn_device *device, qni_dtype dtype,
                         qni_dtype weight) {
    const form *f = c->form;
    const shape *s = c->shape;
    const qni_dtype sums = f->has_f32 ? QNI_F32 : dtype;
    c->problem = (qni_norm_backward_problem){
        .dtype = dtype,
        .dtype_weight = f->has_no_weight && !f->has_d_gated ? QNI_F32 : weight,
        .rows = s->batches * s->inner,
        .inner = s->inner,
        .groups = f->has_batches ? s->batches : 1,
        .h = s->h,
        .eps = s->has_no_eps ? 0 : 1e-6f,
        .weight_plus = f->weight_plus,
        .subtracts_mean = f->subtracts_mean,
    };
    for (int i = 0; i < QK_NORM_SUMS; i++)
        c->problem.sums[i].dtype = sums;
    c->bytes = qni_norm_backward_divide(&c->problem, f->has_dweight + f->has_dbeta + f->has_dgate,
                                        device->id.device_type == kDLCPU);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

qn_status qni_norm_backward_check(qni_trial_run *run, const form *f, const shape *s,
                                  qni_dtype dtype, qni_dtype weight, uint64_t seed) {
    trial_case c = {.base = {.kind = &case_kind,
                             .op = &qni_op_norm_backward,
                             .scratch_bytes = 13 * (size_t)s->h * sizeof(double)},
                    .form = f,
                    .shape = s};
    c.base.random = seed;
    make_problem(&c, qn_stream_device(qni_trial_stream(run)), dtype, weight);
    name_case(&c);
    return qni_case_try(run, &c.base);
}

// ---- rows in batches: dx and d_gated alone, as other gradients are of all rows

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    qni_norm_backward_problem *p = &c->problem;
    p->rows = p->inner = rows;
    qni_norm_backward_divide(p, 0, true); // any parts will do
    p->x = (qni_norm_rows){data[X], 0, p->h};
    p->d_out = (qni_norm_rows){data[D_OUT], 0, p->h};
    p->d_sum = (qni_norm_rows){data[D_SUM], 0, p->h};
    p->weight = (qni_norm_weights){data[WEIGHT], 0};
    p->gate = (qni_norm_weights){data[GATE], 0};
    p->dx = (qni_norm_rows){data[DX], 0, p->h};
    p->d_gated = (qni_norm_rows){data[D_GATED], 0, p->h};
    return p;
}

static qn_status try_batches(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype) {
    trial_case c = {.form = f, .shape = s};
    make_problem(&c, qn_stream_device(qni_trial_stream(run)), dtype, QNI_F32);
    const qni_batch_tensor tensors[] = {
        [X] = {.name = area_names[X], .dtype = dtype, .width = s->h},
        [D_OUT] = {.name = area_names[D_OUT], .dtype = dtype, .width = s->h},
        [D_SUM] = {.name = area_names[D_SUM], .dtype = dtype, .width = f->has_sum ? s->h : 0},
        [WEIGHT] = {.name = area_names[WEIGHT],
                    .dtype = QNI_F32,
                    .width = f->has_no_weight ? 0 : s->h,
                    .is_common = true},
        [GATED] = {.name = area_names[GATED], .dtype = dtype},
        [GATE] = {.name = area_names[GATE],
                  .dtype = QNI_F32,
                  .width = f->has_d_gated ? s->h : 0,
                  .is_common = true},
        [DX] = {.name = area_names[DX], .dtype = dtype, .width = s->h, .is_written = true},
        [D_GATED] = {.name = area_names[D_GATED],
                     .dtype = dtype,
                     .width = f->has_d_gated ? s->h : 0,
                     .is_written = true}};
    name_case(&c);
    return qni_trial_row_batches(run, &(qni_row_op){&qni_op_norm_backward, c.base.text, tensors,
                                                    D_GATED + 1, make_batch, &c});
}

static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {{1, 1, 1024, 0, 0, false}, {1, 1, 111, 0, 0, false}};
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = sizeof widths / sizeof *widths,
                  .types = 3,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        if (!forms[w.form].has_dweight && !forms[w.form].has_dbeta && !forms[w.form].has_dgate)
            st = try_batches(run, &forms[w.form], &widths[w.shape], (qni_dtype)w.type);
    return st;
}

static qni_due is_due(const qni_walk *w) {
    return qni_walk_by_gap(w, shapes[w->shape].gap);
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    static const struct {
        qni_dtype dtype, weight;
    } types[] = {{QNI_F32, QNI_F32},
                 {QNI_F16, QNI_F16},
                 {QNI_BF16, QNI_BF16},
                 {QNI_BF16, QNI_F32},
                 {QNI_F16, QNI_F32}};
    (void)op; // the family has one op
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES,
                  .types = sizeof types / sizeof *types,
                  .thinning = quick ? 7 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = qni_norm_backward_check(
            run, &forms[w.form], &shapes[w.shape], types[w.type].dtype, types[w.type].weight,
            qni_trial_seed(run) + (uint64_t)w.form * 1000 + (uint64_t)w.shape);
    return st == QN_OK ? try_all_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_norm_backward, nullptr};
const qni_family qni_family_norm_backward = {"norm_backward", ops, try_op};
