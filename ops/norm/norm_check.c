// SPDX-License-Identifier: Apache-2.0
// The check problems of the norm family: every form of the ops, on shapes that reach every kernel
// and every edge.
#include "../../check/batches.h"
#include "../../check/case.h"
#include "../../check/walk.h"
#include "norm.h"

/** One of the family's functions, by what it computes. */
typedef struct form {
    const char *name;
    bool in_place, has_residual, has_gate, has_beta, has_batches, subtracts_mean, rounds_first;
    float weight_plus;
    qni_norm_quant quant;
    bool has_scale_columns; // scales of a group of all rows lie side by side
} form;
static const form forms[] = {
    {.name = "rmsnorm"},
    {.name = "gemma_rmsnorm in place", .in_place = true, .weight_plus = 1},
    {.name = "fused_add_rmsnorm", .in_place = true, .has_residual = true},
    {.name = "layernorm", .subtracts_mean = true, .has_beta = true},
    {.name = "rmsnorm_quant", .quant = QNI_NORM_STATIC},
    {.name = "fused_add_rmsnorm_quant", .has_residual = true, .quant = QNI_NORM_STATIC},
    {.name = "layernorm_quant",
     .subtracts_mean = true,
     .has_beta = true,
     .rounds_first = true,
     .quant = QNI_NORM_STATIC},
    {.name = "rmsnorm_dynamic_quant per token", .quant = QNI_NORM_PER_TOKEN},
    {.name = "rmsnorm_dynamic_quant per group", .has_residual = true, .quant = QNI_NORM_PER_GROUP},
    {.name = "adaptive_layernorm",
     .has_batches = true,
     .subtracts_mean = true,
     .has_beta = true,
     .weight_plus = 1},
    {.name = "adaptive_layernorm_dynamic_quant per group",
     .has_batches = true,
     .subtracts_mean = true,
     .has_beta = true,
     .weight_plus = 1,
     .quant = QNI_NORM_PER_GROUP,
     .has_scale_columns = true},
    {.name = "adaptive_layernorm_dynamic_quant per token",
     .has_batches = true,
     .subtracts_mean = true,
     .has_beta = true,
     .weight_plus = 1,
     .quant = QNI_NORM_PER_TOKEN},
    {.name = "gated_residual_layernorm",
     .has_batches = true,
     .subtracts_mean = true,
     .has_beta = true,
     .weight_plus = 1,
     .has_residual = true,
     .has_gate = true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

typedef struct shape {
    int64_t batches, inner, h;
    int64_t gap, offset; // elements between rows; elements before the first row
    bool has_no_eps;
} shape;
static const shape shapes[] = {
    {1, 1, 1, 0, 0, false},     {3, 5, 64, 0, 0, false},
    {2, 17, 128, 8, 8, true},   {1, 35, 256, 0, 0, false},
    {2, 3, 111, 3, 1, true},    {1, 5, 1024, 0, 0, true},
    {3, 2, 1536, 16, 0, false}, {1, 3, 4096, 0, 0, false},
    {1, 2, 7168, 0, 8, false},  {1, 1, 16384, 0, 0, false},
    {2, 2, 3072, 5, 3, false},  {1, 2, 16392, 0, 0, true},
    {1, 90, 2056, 0, 0, true},  {1, 3, 64, qni_far - 64, 8, false},
    {1, 700, 512, 0, 0, true},  {1, 620, 2056, 0, 0, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, OUT, RESIDUAL, WEIGHT, BETA, GATE, SCALE, NUM_AREAS };
static const char *const area_names[] = {"x", "out", "residual", "weight", "beta", "gate", "scale"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_norm_problem problem;
    double *t, *y, *error; // a row's results
} trial_case;

// ---- the tensors

static bool has_area(const trial_case *c, int which) {
    const form *f = c->form;
    return which == OUT        ? !f->in_place
           : which == RESIDUAL ? f->has_residual
           : which == BETA     ? f->has_beta
           : which == GATE     ? f->has_gate
           : which == SCALE    ? f->quant != QNI_NORM_PLAIN
                               : true;
}

static int64_t row_stride(const trial_case *c) {
    return c->problem.h + c->shape->gap;
}

static int64_t scales_per_row(const trial_case *c) {
    return c->form->quant == QNI_NORM_PER_GROUP ? qni_norm_groups(&c->problem) : 1;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_norm_problem *p = &c->problem;
    const bool is_row = which <= RESIDUAL;
    if (!has_area(c, which))
        return (qni_extent){};
    if (which == SCALE)
        return qni_dense(QNI_F32,
                         c->form->quant == QNI_NORM_STATIC ? 1 : p->rows * scales_per_row(c));
    return (qni_extent){.dtype = which == OUT ? p->dtype_out
                                 : is_row     ? p->dtype
                                              : p->dtype_weights,
                        .rows = is_row                 ? p->rows
                                : c->form->has_batches ? c->shape->batches
                                                       : 1,
                        .row = p->h,
                        .stride = row_stride(c),
                        .offset = c->shape->offset};
}

/** Returns an element of x. Each row has a scale of its own: one is zeros, one has f16's largest
 *  values or values whose squares are large, one lies far from zero, one has infinite squares.
 *  Where eps is 0, one has large equal elements, if each order of summation finds their mean. */
static double x_value(trial_case *c, int64_t row) {
    const double normal = qni_random_normal(&c->base.random);
    const bool is_exact = (c->problem.h & (c->problem.h - 1)) == 0;
    if (c->shape->has_no_eps && is_exact && row % 8 == 2)
        return c->problem.dtype == QNI_F16 ? 1024 : 0x1p40;
    switch (row % 8) {
    case 1:
        return 0;
    case 3:
        return c->problem.dtype == QNI_F16 ? copysign(65504, normal) : ldexp(normal, 40);
    case 5:
        return 100 + normal;
    case 6:
        return ldexp(normal, -20);
    case 7: // no square fits f32
        return ldexp(normal, c->problem.dtype == QNI_F16 ? 1 : 120);
    default:
        return normal;
    }
}

/** Returns an element of weights, of which one is a NaN with all bits set; of a bias, a negative
 *  one. */
static double factor_value(trial_case *c, int which, int64_t column) {
    const double normal = 0.5 + qni_random_normal(&c->base.random);
    const double nan = __builtin_nan("0xFFFFFFFFFFFFF");
    return which == WEIGHT && column == 5 ? nan : which == BETA && column == 7 ? -nan : normal;
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    const int64_t h = c->problem.h, stride = row_stride(c);
    const int64_t rows = which == SCALE ? 0 : (a->count + stride - h) / stride;
    for (int64_t i = 0; i < rows * h; i++) { // gaps keep their poison
        const double v =
            which == X || which == RESIDUAL ? x_value(c, i / h) : factor_value(c, which, i % h);
        qni_put(a->dtype, qni_area_host(a), i / h * stride + i % h, v);
    }
    if (which == SCALE && c->form->quant == QNI_NORM_STATIC)
        qni_put(QNI_F32, qni_area_host(a), 0, 0.013); // the largest results saturate e4m3
}

static qni_norm_rows rows_in(const trial_case *c, const qni_area *a, bool on_host) {
    if (!a->device)
        return (qni_norm_rows){};
    return (qni_norm_rows){qni_area_data(a, on_host), c->shape->inner * row_stride(c),
                           row_stride(c)};
}

static qni_norm_weights weights_in(const trial_case *c, const qni_area *a, bool on_host) {
    if (!a->device)
        return (qni_norm_weights){};
    return (qni_norm_weights){qni_area_data(a, on_host), c->form->has_batches ? row_stride(c) : 0};
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_norm_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->x = rows_in(c, &a[X], on_host);
    p->out = rows_in(c, &a[c->form->in_place ? X : OUT], on_host);
    p->residual = rows_in(c, &a[RESIDUAL], on_host);
    p->weight = weights_in(c, &a[WEIGHT], on_host);
    p->beta = weights_in(c, &a[BETA], on_host);
    p->gate = weights_in(c, &a[GATE], on_host);
    p->scale = qni_area_data(&a[SCALE], on_host);
    return p;
}

// ---- expected results

/** Bounds of f32 arithmetic for any order of summation with at most `steps` additions in a row,
 *  which no kernel exceeds. unit is half an ulp. Errors of t, of the mean and of the root each
 *  reach y by its derivative. */
typedef struct bounds {
    double unit, sum,
        mean; // sum: relative error of a sum of positive values; mean: error of the mean
    double inverse, spread; // 1 / root, or 0 if the root is 0; the root's relative error
    double centre;          // the mean itself
} bounds;

/** Returns how far t may be off: a product with the gate and a sum with the residual are each
 *  rounded. */
static double t_error(const trial_case *c, int64_t row, int64_t i) {
    if (!c->form->has_residual)
        return 0;
    const qni_area *residual = &c->base.areas[RESIDUAL];
    const double r = qni_get(residual->dtype, qni_area_host(residual), row * row_stride(c) + i);
    const double product = c->form->has_gate ? fabs(c->t[i] - r) : 0;
    return 0x1.01p-24 * (fabs(c->t[i]) + product);
}

static bounds find_bounds(const trial_case *c, int64_t row) {
    const qni_norm_problem *p = &c->problem;
    const double h = (double)p->h;
    bounds b = {.unit = 0x1p-24, .sum = (h / 4 + 64) * 0x1p-24};
    double magnitude = 0, square = 0, t_worst = 0;
    for (int64_t i = 0; i < p->h; i++) {
        magnitude += fabs(c->t[i]) / h;
        b.centre += p->subtracts_mean ? c->t[i] / h : 0;
        t_worst = fmax(t_worst, t_error(c, row, i));
    }
    for (int64_t i = 0; i < p->h; i++)
        square += (c->t[i] - b.centre) * (c->t[i] - b.centre) / h;
    const double root = sqrt(square + (double)p->eps);
    b.inverse = root > 0 ? 1 / root : 0;
    b.mean = (p->subtracts_mean ? (b.sum + 2 * b.unit) * magnitude : 0) + t_worst;
    b.spread =
        b.sum + 4 * b.unit + 2 * b.mean * b.inverse + b.mean * b.mean * b.inverse * b.inverse;
    return b;
}

/** Returns how far y may be off. */
static double y_error(const trial_case *c, const bounds *b, int64_t row, int64_t i) {
    const qni_norm_problem *p = &c->problem;
    const int64_t batch = c->form->has_batches ? row / p->inner : 0;
    const double weight = qni_get(p->dtype_weights, qni_area_host(&c->base.areas[WEIGHT]),
                                  batch * row_stride(c) + i) +
                          (double)p->weight_plus;
    const double offset = fabs(c->t[i] - b->centre);
    const double normalised = b->inverse * (b->mean + t_error(c, row, i) + offset * b->spread);
    return fabs(weight) * normalised +
           6 * b->unit * (fabs(c->y[i]) + fabs(weight) * b->inverse * offset);
}

static void expect_plain(trial_case *c, int64_t at) {
    qni_area *out = &c->base.areas[c->form->in_place ? X : OUT];
    for (int64_t i = 0; i < c->problem.h; i++)
        qni_area_expect(out, at + i, c->y[i], c->error[i]);
}

static void expect_row(trial_case *c, int64_t row) {
    const qni_norm_problem *p = &c->problem;
    const int64_t at = row * row_stride(c), h = p->h;
    qni_norm_ref_row(p, row, c->t, c->y);
    const bounds b = find_bounds(c, row);
    for (int64_t i = 0; i < h; i++)
        c->error[i] = y_error(c, &b, row, i) +
                      (c->form->rounds_first ? qni_spacing(c->problem.dtype, c->y[i]) / 2 : 0);
    for (int64_t i = 0; c->form->has_residual && i < h; i++)
        qni_area_expect(&c->base.areas[RESIDUAL], at + i, c->t[i], t_error(c, row, i));
    const qni_exact exact = {c->y, c->error, h};
    qni_area *out = &c->base.areas[OUT], *scale = &c->base.areas[SCALE];
    if (c->form->quant == QNI_NORM_PLAIN)
        expect_plain(c, at);
    else if (c->form->quant == QNI_NORM_STATIC)
        qni_area_expect_codes(out, at, exact, (double)*p->scale, 0);
    else
        qni_area_expect_found_scales(scale, row * p->scale_row, p->scale_col, out, at, exact,
                                     c->form->quant == QNI_NORM_PER_TOKEN ? h : QNI_NORM_GROUP,
                                     (double)p->scale_eps);
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    c->t = scratch;
    c->y = c->t + c->problem.h;
    c->error = c->y + c->problem.h;
    for (int64_t r = 0; r < c->problem.rows; r++)
        expect_row(c, r);
}

// ---- a case

static void name_case(trial_case *c) {
    const qni_norm_problem *p = &c->problem;
    snprintf(c->base.text, sizeof c->base.text,
             "%s [%ld, %ld, %ld] gap=%ld offset=%ld %s weights=%s ->%s%s", c->form->name,
             (long)c->shape->batches, (long)c->shape->inner, (long)p->h, (long)c->shape->gap,
             (long)c->shape->offset, qni_dtype_name(p->dtype), qni_dtype_name(p->dtype_weights),
             qni_dtype_name(p->dtype_out), c->shape->has_no_eps ? " eps=0" : "");
}

static void make_problem(trial_case *c, qni_dtype dtype, qni_dtype weights, qni_fp8 kind) {
    const form *f = c->form;
    const shape *s = c->shape;
    c->problem = (qni_norm_problem){
        .dtype = dtype,
        .dtype_weights = weights,
        .dtype_out = f->quant == QNI_NORM_PLAIN ? dtype : (qni_dtype)(QNI_E4M3FN + (int)kind),
        .rows = s->batches * s->inner,
        .inner = s->inner,
        .h = s->h,
        .eps = s->has_no_eps ? 0 : 1e-6f,
        .scale_eps = 1e-10f,
        .weight_plus = f->weight_plus,
        .subtracts_mean = f->subtracts_mean,
        .rounds_first = f->rounds_first,
        .quant = f->quant,
    };
    c->problem.scale_row = f->has_scale_columns ? 1 : scales_per_row(c);
    c->problem.scale_col = f->has_scale_columns ? c->problem.rows : 1;
    c->problem.scale_batch = s->inner * c->problem.scale_row;
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                         qni_dtype weights, qni_fp8 kind) {
    trial_case c = {.base = {.kind = &case_kind,
                             .op = &qni_op_norm,
                             .scratch_bytes = 3 * (size_t)s->h * sizeof(double)},
                    .form = f,
                    .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    make_problem(&c, dtype, weights, kind);
    name_case(&c);
    return qni_case_try(run, &c.base);
}

// ---- fixed vectors

/** Pairs of elements, which repeat along a row. */
typedef struct vector {
    const char *name;
    qni_dtype dtype, dtype_out;
    double x[2], residual[2], weight, scale; // scale 0: no scale; residual 0: no residual
    double want[2], sum[2];                  // the result, and the new residual
} vector;
constexpr double sum_is_tie =
    -9; // weight: 1.75 times the root of the unrounded sums 1 + 2^-8 and 16
static const vector vectors[] = {
    {"zeros", QNI_F32, QNI_F32, {0, 0}, {}, 1, 0, {0, 0}, {}}, // eps is 0 in all vectors
    {"zeros", QNI_F16, QNI_F16, {0, 0}, {}, 1, 0, {0, 0}, {}},
    {"sign of zeros", QNI_F16, QNI_F16, {0, 0}, {}, -1, 0, {0, 0}, {}}, // alike in all kernels
    {"zeros", QNI_BF16, QNI_E4M3FN, {0, 0}, {}, 1, 1, {0, 0}, {}},
    {"f16's largest", QNI_F16, QNI_F16, {65504, -65504}, {}, 1, 0, {1, -1}, {}},
    {"f32's largest", QNI_F32, QNI_F32, {0x1p127, -0x1p127}, {}, 1, 0, {1, -1}, {}},
    {"small squares", QNI_F32, QNI_F32, {0x1p-100, -0x1p-100}, {}, 1, 0, {1, -1}, {}},
    {"denormals", QNI_F32, QNI_F32, {-0x1p-140, 0x1p-140}, {}, 1, 0, {-1, 1}, {}},
    {"bf16's largest", QNI_BF16, QNI_BF16, {0x1.FEp127, -0x1.FEp127}, {}, 1, 0, {1, -1}, {}},
    {"small squares", QNI_BF16, QNI_E4M3FN, {0x1p-126, -0x1p-126}, {}, 1, 1, {1, -1}, {}},
    {"large sum",
     QNI_BF16,
     QNI_BF16,
     {0x1p126, 0x1p126},
     {0x1p126, 0x1p126},
     1,
     0,
     {1, 1},
     {0x1p127, 0x1p127}},
    {"sign of w", QNI_F32, QNI_F32, {3, 3}, {}, -2, 0, {-2, -2}, {}},
    {"saturates", QNI_F32, QNI_E4M3FN, {1, -1}, {}, 1, 1e-6, {448, -448}, {}},
    {"saturates", QNI_F16, QNI_E4M3FNUZ, {1, -1}, {}, 1, 1e-6, {240, -240}, {}},
    {"saturates", QNI_BF16, QNI_E5M2, {1, -1}, {}, 1, 1e-6, {57344, -57344}, {}},
    {"saturates", QNI_BF16, QNI_E5M2FNUZ, {1, -1}, {}, 1, 1e-6, {57344, -57344}, {}},
    // x + residual is a tie: the residual is rounded down, and the rounded sum would give 1.75.
    {"unrounded sum",
     QNI_BF16,
     QNI_BF16,
     {0x1p-8, 15},
     {1, 1},
     sum_is_tie,
     0,
     {1.75 + 0x1p-7, 28},
     {1, 16}},
};

static double weight_of(const vector *v) {
    const double sum = 1 + 0x1p-8;
    return v->weight <= sum_is_tie ? 1.75 * sqrt((sum * sum + 256) / 2) : v->weight;
}

/** Lengths of rows, and whether weights have x's dtype, where that holds the vector's weight. */
typedef struct width {
    int64_t h;
    bool has_narrow_weights;
} width;

static qni_dtype weights_dtype(const vector *v, const width *w) {
    return w->has_narrow_weights && v->weight > sum_is_tie ? v->dtype : QNI_F32;
}

static void fill_vector(qni_area *areas, const vector *v, int64_t h) {
    const double error = ((double)h / 4 + 74) * 0x1p-24; // relative error, from find_bounds and
                                                         // y_error
    for (int64_t i = 0; i < h; i++) {
        qni_put(v->dtype, qni_area_host(&areas[X]), i, v->x[i % 2]);
        qni_put(areas[WEIGHT].dtype, qni_area_host(&areas[WEIGHT]), i, weight_of(v));
        qni_area_expect(&areas[OUT], i, v->want[i % 2], error * fabs(v->want[i % 2]));
        if (v->residual[0] != 0) {
            qni_put(v->dtype, qni_area_host(&areas[RESIDUAL]), i, v->residual[i % 2]);
            qni_area_expect(&areas[RESIDUAL], i, v->sum[i % 2], 0);
        }
    }
    if (v->scale > 0)
        qni_put(QNI_F32, qni_area_host(&areas[SCALE]), 0, v->scale);
}

static qni_norm_problem vector_problem(const qni_area *areas, const vector *v, int64_t h) {
    const bool has_residual = v->residual[0] != 0, has_scale = v->scale > 0;
    return (qni_norm_problem){
        .dtype = v->dtype,
        .dtype_weights = areas[WEIGHT].dtype,
        .dtype_out = v->dtype_out,
        .rows = 1,
        .inner = 1,
        .h = h,
        .x = {qni_area_device(&areas[X]), h, h},
        .out = {qni_area_device(&areas[OUT]), h, h},
        .residual = {has_residual ? qni_area_device(&areas[RESIDUAL]) : nullptr, h, h},
        .weight = {qni_area_device(&areas[WEIGHT]), 0},
        .quant = has_scale ? QNI_NORM_STATIC : QNI_NORM_PLAIN,
        .scale = has_scale ? qni_area_device(&areas[SCALE]) : nullptr,
        .scale_row = 1};
}

static qn_status try_vector(qni_trial_run *run, const vector *v, const width *w) {
    const int64_t h = w->h;
    qni_area areas[SCALE + 1] = {};
    qn_device *device = qn_stream_device(qni_trial_stream(run));
    const qni_dtype dtypes[] = {[X] = v->dtype,
                                [OUT] = v->dtype_out,
                                [RESIDUAL] = v->dtype,
                                [WEIGHT] = weights_dtype(v, w),
                                [SCALE] = QNI_F32};
    const int used[] = {X, OUT, WEIGHT, RESIDUAL, SCALE};
    char text[80];
    qn_status st;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        QN_TRY_OUT(qni_area_create(&areas[used[i]], area_names[used[i]], device, dtypes[used[i]],
                                   used[i] == SCALE ? 1 : h, 0));
    fill_vector(areas, v, h);
    const qni_norm_problem p = vector_problem(areas, v, h);
    snprintf(text, sizeof text, "%s, h=%ld %s->%s weights=%s", v->name, (long)h,
             qni_dtype_name(v->dtype), qni_dtype_name(v->dtype_out),
             qni_dtype_name(p.dtype_weights));
    QN_TRY_OUT(qni_areas_try(run, &qni_op_norm, &p, text, areas, SCALE + 1));
out:
    qni_areas_destroy(areas, SCALE + 1);
    return st;
}

static qn_status try_vectors(qni_trial_run *run) {
    // with 1, a row has its first element alone
    static const width widths[] = {{1, false}, {2, false}, {8, false}, {1024, false}, {1024, true}};
    constexpr size_t num_widths = sizeof widths / sizeof *widths;
    qn_status st = QN_OK;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        for (size_t k = vectors[i].residual[0] != 0; st == QN_OK && k < num_widths; k++)
            st = try_vector(run, &vectors[i], &widths[k]);
    return st;
}

// ---- rows in batches

static qni_norm_rows batch_rows(void *data, int64_t h) {
    return (qni_norm_rows){data, 0, h};
}

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    qni_norm_problem *p = &c->problem;
    p->rows = p->inner = rows;
    p->x = batch_rows(data[X], p->h);
    p->out = batch_rows(data[c->form->in_place ? X : OUT], p->h);
    p->residual = batch_rows(data[RESIDUAL], p->h);
    p->weight = (qni_norm_weights){data[WEIGHT], 0};
    p->beta = (qni_norm_weights){data[BETA], 0};
    p->gate = (qni_norm_weights){data[GATE], 0};
    p->scale = data[SCALE];
    return p;
}

static qn_status try_batches(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                             qni_dtype weights, qni_fp8 kind) {
    trial_case c = {.form = f, .shape = s};
    qni_batch_tensor tensors[NUM_AREAS] = {};
    make_problem(&c, dtype, weights, kind);
    for (int i = 0; i < NUM_AREAS; i++)
        if (has_area(&c, i))
            tensors[i] = (qni_batch_tensor){area_names[i], weights, s->h, .is_common = true};
    tensors[X].dtype = tensors[RESIDUAL].dtype = dtype;
    tensors[X].is_common = tensors[OUT].is_common = tensors[RESIDUAL].is_common = false;
    tensors[X].is_written = f->in_place;
    tensors[OUT].dtype = c.problem.dtype_out;
    tensors[OUT].is_written = tensors[RESIDUAL].is_written = true;
    tensors[SCALE].dtype = QNI_F32;
    if (tensors[SCALE].width && f->quant != QNI_NORM_STATIC) {
        tensors[SCALE].width = scales_per_row(&c);
        tensors[SCALE].is_common = false;
        tensors[SCALE].is_written = true;
    }
    name_case(&c);
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_norm, c.base.text, tensors, NUM_AREAS, make_batch, &c});
}

static qni_due is_batch_due(const qni_walk *w) {
    return forms[w->form].has_batches ? QNI_DUE_NEVER : QNI_DUE_BY_TURN;
}

/** Tries h of 16 lanes, of more than a wave, and of no whole runs. */
static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {
        {1, 1, 128, 0, 0, false}, {1, 1, 2560, 0, 0, false}, {1, 1, 111, 0, 0, true}};
    const qni_fp8 kind = qni_fp8_of(qni_usual_e4m3(qn_stream_device(qni_trial_stream(run))));
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = sizeof widths / sizeof *widths,
                  .types = QNI_BF16 + 1,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1,
                  .is_due = is_batch_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_batches(run, &forms[w.form], &widths[w.shape], (qni_dtype)w.type,
                         (qni_dtype)w.type, kind);
    return st;
}

/** Tries LayerNorm of bf16 with weights in f32, of one batch and of several, of which few are due
 *  in a quick run. */
static qn_status try_wide_weights(qni_trial_run *run) {
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < NUM_FORMS; i++)
        if (forms[i].has_beta && forms[i].quant == QNI_NORM_PLAIN)
            st = try_one(run, &forms[i], &shapes[2], QNI_BF16, QNI_F32, QNI_FP8_E4M3FN);
    return st;
}

static qni_due is_due(const qni_walk *w) {
    const shape *s = &shapes[w->shape];
    return s->gap + s->h >= qni_far ? qni_walk_far(w) : QNI_DUE_BY_TURN;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES - (quick ? 2 : 0), // the last two are long
                  .types = QNI_BF16 + 1,
                  .thinning = quick ? 7 : 1,
                  .is_due = is_due};
    qn_status st = try_vectors(run);
    if (st == QN_OK)
        st = try_wide_weights(run);
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)w.type,
                     w.turn % 2 ? (qni_dtype)w.type : QNI_F32, (qni_fp8)(w.turn % QNI_NUM_FP8));
    return st == QN_OK ? try_all_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_norm, nullptr};
const qni_family qni_family_norm = {"norm", ops, try_op};
