// SPDX-License-Identifier: Apache-2.0
// The check problems of routing. Kernels must have the definition's bits, in weights as well.
#include "../../../check/batches.h"
#include "../../../check/case.h"
#include "../../../check/walk.h"
#include "../moe.h"
#include "../moe_check.h"

typedef struct form {
    const char *name;
    bool is_sigmoid, has_bias, renormalizes;
    float scaling;
    int shared;
} form;
static const form forms[] = {
    {"softmax", false, false, true, 1, 0},
    {"softmax", false, true, false, 2.5f, 2},
    {"sigmoid", true, true, true, 2.5f, 0},
    {"sigmoid", true, false, false, 1, 1},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

typedef struct shape {
    int64_t tokens, experts, top_k, groups, topk_groups;
    int64_t gap, offset; // elements between rows; elements before the first row
} shape;
static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, 0},
    {7, 8, 2, 1, 1, 0, 0},
    {5, 16, 16, 1, 1, 3, 1},
    {33, 60, 4, 1, 1, 0, 0},
    {18, 64, 6, 1, 1, 0, 0},
    {3, 128, 8, 8, 2, 1, 3},
    {20, 256, 8, 8, 4, 0, 0},
    {9, 160, 6, 32, 3, 0, 0},
    {4, 64, 3, 64, 5, 2, 1},
    {70, 33, 5, 11, 3, 0, 0},
    {6, 513, 9, 1, 1, 0, 0},
    {2, 2048, 40, 16, 4, 0, 0},
    {3, 40, 4, 1, 1, qni_far - 40, 0},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { LOGITS, BIAS, WEIGHTS, IDS, NUM_AREAS };
static const char *const area_names[] = {"logits", "bias", "weights", "ids"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_moe_route_problem problem;
} trial_case;

static int64_t width_of(const trial_case *c, int which) {
    const qni_moe_route_problem *p = &c->problem;
    return which <= BIAS ? p->experts : p->top_k + p->shared;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_moe_route_problem *p = &c->problem;
    const int64_t width = width_of(c, which);
    if (which == BIAS)
        return c->form->has_bias ? qni_dense(p->dtype_bias, width) : (qni_extent){};
    return (qni_extent){.dtype = which == LOGITS    ? p->dtype
                                 : which == WEIGHTS ? QNI_F32
                                                    : QNI_I32,
                        .rows = p->tokens,
                        .row = width,
                        .stride = width + c->shape->gap,
                        .offset = c->shape->offset};
}

/** Returns a logit. Rows have ties, logits that underflow, equal logits, experts that are ruled
 *  out, infinities and NaNs. */
static double logit(trial_case *c, int64_t token, int64_t expert) {
    const double normal = qni_random_normal(&c->base.random);
    switch (token % 9) {
    case 1:
        return rint(2 * normal);
    case 2:
        return 0.5;
    case 3:
        return 60 * normal;
    case 4:
        return expert % 3 == 1 ? -HUGE_VAL : normal;
    case 5:
        return expert % 7 == 3 ? (double)NAN : normal;
    case 6:
        return expert % 5 == 2 ? HUGE_VAL : 0.1 * normal;
    case 8:
        return -HUGE_VAL;
    default:
        return 2 * normal;
    }
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    const int64_t width = width_of(c, which);
    for (int64_t t = 0; which == LOGITS && t < c->problem.tokens; t++)
        for (int64_t e = 0; e < width; e++)
            qni_put(a->dtype, qni_area_host(a), t * (width + c->shape->gap) + e, logit(c, t, e));
    for (int64_t e = 0; which == BIAS && e < width; e++)
        qni_put(a->dtype, qni_area_host(a), e,
                e % 4 == 0 ? 0 : 0.3 * qni_random_normal(&c->base.random));
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_moe_route_problem *p = &c->problem;
    const qni_area *a = c->base.areas;
    p->logits = qni_area_data(&a[LOGITS], on_host);
    p->bias = qni_area_data(&a[BIAS], on_host);
    p->weights = qni_area_data(&a[WEIGHTS], on_host);
    p->ids = qni_area_data(&a[IDS], on_host);
    return p;
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    qni_moe_route_problem *p = &c->problem;
    float *weights = (float *)scratch + 2 * p->experts;
    int32_t *ids = (int32_t *)(weights + width_of(c, IDS));
    for (int64_t t = 0; t < p->tokens; t++) {
        qni_moe_route_problem one = *p;
        one.weights = weights, one.ids = ids;
        one.weights_row = one.ids_row = 0;
        qni_moe_route_ref(&one, t, scratch, (uint32_t *)scratch + p->experts);
        for (int64_t j = 0; j < width_of(c, IDS); j++) {
            qni_area_expect(&c->base.areas[WEIGHTS], t * p->weights_row + j, (double)weights[j], 0);
            qni_area_expect(&c->base.areas[IDS], t * p->ids_row + j, ids[j], 0);
        }
    }
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static void make_problem(trial_case *c, qni_dtype dtype, qni_dtype dtype_bias) {
    const form *f = c->form;
    const shape *s = c->shape;
    const int64_t width = s->top_k + f->shared + s->gap;
    c->problem = (qni_moe_route_problem){.dtype = dtype,
                                         .dtype_bias = dtype_bias,
                                         .logits_row = s->experts + s->gap,
                                         .weights_row = width,
                                         .ids_row = width,
                                         .tokens = s->tokens,
                                         .experts = s->experts,
                                         .top_k = s->top_k,
                                         .groups = s->groups,
                                         .topk_groups = s->topk_groups,
                                         .shared = f->shared,
                                         .is_sigmoid = f->is_sigmoid,
                                         .renormalizes = f->renormalizes,
                                         .scaling = f->scaling,
                                         .shared_weight = 0.4f};
    snprintf(c->base.text, sizeof c->base.text,
             "%s [%ld, %ld] top %ld of %ld of %ld groups%s%s x %g shared=%d gap=%ld offset=%ld %s",
             f->name, (long)s->tokens, (long)s->experts, (long)s->top_k, (long)s->topk_groups,
             (long)s->groups, f->has_bias ? " bias" : "", f->renormalizes ? " renormalized" : "",
             (double)f->scaling, f->shared, (long)s->gap, (long)s->offset, qni_dtype_name(dtype));
}

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                         qni_dtype dtype_bias) {
    trial_case c = {
        .base = {.kind = &case_kind,
                 .op = &qni_op_moe_route,
                 .scratch_bytes =
                     (size_t)(2 * s->experts + 2 * (s->top_k + f->shared)) * sizeof(float)},
        .form = f,
        .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    make_problem(&c, dtype, dtype_bias);
    return qni_case_try(run, &c.base);
}

// ---- tokens in batches

static const void *make_batch(void *context, void *const *data, int64_t rows) {
    qni_moe_route_problem *p = context;
    p->tokens = rows;
    p->logits = data[LOGITS];
    p->bias = data[BIAS];
    p->weights = data[WEIGHTS];
    p->ids = data[IDS];
    return p;
}

static qn_status try_batches(qni_trial_run *run, const form *f, const shape *s) {
    trial_case c = {.form = f, .shape = s};
    make_problem(&c, QNI_F32, QNI_F32);
    const int64_t width = width_of(&c, IDS);
    const qni_batch_tensor tensors[NUM_AREAS] = {
        [LOGITS] = {.name = "logits", .dtype = QNI_F32, .width = s->experts},
        [BIAS] = {.name = "bias",
                  .dtype = QNI_F32,
                  .width = f->has_bias ? s->experts : 0,
                  .is_common = true},
        [WEIGHTS] = {.name = "weights", .dtype = QNI_F32, .width = width, .is_written = true},
        [IDS] = {.name = "ids", .dtype = QNI_I32, .width = width, .is_written = true}};
    return qni_trial_row_batches(run, &(qni_row_op){&qni_op_moe_route, c.base.text, tensors,
                                                    NUM_AREAS, make_batch, &c.problem});
}

static qni_due is_due(const qni_walk *w) {
    return qni_walk_by_gap(w, shapes[w->shape].gap);
}

qn_status qni_moe_try_route(qni_trial_run *run) {
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES,
                  .types = 3,
                  .thinning = qni_trial_is_quick(run) ? 5 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)w.type,
                     w.form % 2 ? (qni_dtype)w.type : QNI_F32);
    for (size_t f = 0; st == QN_OK && f < NUM_FORMS; f++)
        st = try_batches(run, &forms[f], &shapes[f % 2 ? 3 : 6]);
    return st;
}
