// SPDX-License-Identifier: Apache-2.0
// The check problems of layers for few tokens, against double precision. Of the second weights most
// are zeros, so that what h may be off by its codes' steps hides no fault. moe_test.py compares
// bits with those of the layer's parts.
#include "../../../check/case.h"
#include "../../gemm/gemm.h"
#include "../moe.h"
#include "../moe_check.h"

#include <math.h>

typedef struct shape {
    int64_t tokens, top_k, experts, hidden, inner;
    int64_t mapped; // 0: there is no map
    int64_t gap;    // between rows of x, out, addend, ids and weights
    bool has_addend;
    qni_dtype dtype_out;
} shape;
static const shape shapes[] = {
    {1, 1, 1, 128, 128, 0, 0, false, QNI_BF16},  {2, 3, 4, 256, 384, 0, 8, true, QNI_F32},
    {16, 2, 5, 128, 256, 7, 16, true, QNI_BF16}, {3, 9, 6, 1152, 128, 12, 0, false, QNI_F16},
    {1, 32, 3, 128, 2048, 0, 0, true, QNI_BF16}, {1, 2, 2, 8192, 128, 0, 0, false, QNI_BF16},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum { X, IDS, MAP, WEIGHTS, W1, SCALE1, W2, SCALE2, ADDEND, BETWEEN, OUT, NUM_AREAS };
static const char *const area_names[] = {"x",      "ids",      "expert_map", "weights",
                                         "w1",     "w1_scale", "w2",         "w2_scale",
                                         "addend", "between",  "out"};
constexpr float eps = 1e-10f;
constexpr double f32 = 0x1p-24, bf16 = 0x1p-8, code = 0x1p-4; // relative errors; half a code's step

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    const qn_device *device; // whose order of weights counts
    qni_dtype kind;
    qni_moe_few_problem problem;
    double codes[256]; // what they stand for
    // A token's x as its codes, a pair's first product, its h, a token's result, and how far the
    // latter three may be off.
    double *x, *made, *made_off, *h, *h_off, *out, *out_off;
} trial_case;

static int64_t blocks(int64_t n) {
    return n / QNI_MOE_GROUP;
}

static qni_extent rows(const shape *s, qni_dtype dtype, int64_t width) {
    return (qni_extent){.dtype = dtype, .rows = s->tokens, .row = width, .stride = width + s->gap};
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const int64_t of_w1 = 2 * s->inner * s->hidden, of_w2 = s->hidden * s->inner;
    switch (which) {
    case X:
        return rows(s, QNI_BF16, s->hidden);
    case IDS:
    case WEIGHTS:
        return rows(s, which == IDS ? QNI_I32 : QNI_F32, s->top_k);
    case MAP:
        return s->mapped ? qni_dense(QNI_I32, s->mapped) : (qni_extent){};
    case W1:
    case W2:
        return qni_dense(QNI_U8, s->experts * (which == W1 ? of_w1 : of_w2));
    case SCALE1:
    case SCALE2:
        return qni_dense(QNI_F32, s->experts * (which == SCALE1 ? of_w1 : of_w2) / 16384);
    case ADDEND:
        return s->has_addend ? rows(s, s->dtype_out, s->hidden) : (qni_extent){};
    case BETWEEN:
        return qni_dense(QNI_BF16, s->tokens * s->top_k * 2 * s->inner);
    default:
        return rows(s, s->dtype_out, s->hidden);
    }
}

/** Returns an element of a tensor of rows. One token is zero, one large; some pairs have no expert;
 *  of the map's entries some are of another device. */
static double value_of(trial_case *c, int which, int64_t row, int64_t i) {
    const shape *s = c->shape;
    const uint32_t random = (uint32_t)qni_random(&c->base.random);
    if (which == IDS)
        return row % 5 == 4 || i % 7 == 6 ? -1 : random % (s->mapped ? s->mapped : s->experts);
    if (which == MAP)
        return i % 3 == 2 ? -1 : (double)(i % s->experts);
    if (which == SCALE1 || which == SCALE2)
        return (1 + random % 8) * 0.03125;
    const double normal = qni_random_normal(&c->base.random);
    return which != X ? normal : row % 4 == 2 ? 0 : row % 4 == 3 ? 1000 * normal : normal;
}

/** Returns a code. Of w2's one in 16 is not zero. */
static uint8_t code_of(trial_case *c, int which) {
    uint8_t byte = 0;
    if (which == W1 || qni_random(&c->base.random) % 16 == 0)
        qni_put(c->kind, &byte, 0, qni_random_normal(&c->base.random));
    return byte;
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    for (int64_t r = 0; which != OUT && which != BETWEEN && r < a->rows; r++)
        for (int64_t i = 0; i < a->row; i++)
            if (which == W1 || which == W2)
                ((uint8_t *)qni_area_host(a))[i] = code_of(c, which);
            else if (which == IDS || which == MAP)
                ((int32_t *)qni_area_host(a))[r * a->stride + i] =
                    (int32_t)value_of(c, which, r, i);
            else
                qni_put(a->dtype, qni_area_host(a), r * a->stride + i, value_of(c, which, r, i));
}

static qk_moe_few_weights weights_at(const trial_case *c, int codes, int scales, int64_t n,
                                     int64_t k, bool on_host) {
    return (qk_moe_few_weights){.codes = qni_area_data(&c->base.areas[codes], on_host),
                                .scale = qni_area_data(&c->base.areas[scales], on_host),
                                .group = n * k,
                                .scale_group = blocks(n) * blocks(k),
                                .scale_nb = blocks(k),
                                .packed_k = (uint32_t)k};
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    const shape *s = c->shape;
    const qni_area *a = c->base.areas;
    qni_moe_few_problem *p = &c->problem;
    p->x = qni_area_data(&a[X], on_host);
    p->ids = qni_area_data(&a[IDS], on_host);
    p->expert_map = qni_area_data(&a[MAP], on_host);
    p->weights = qni_area_data(&a[WEIGHTS], on_host);
    p->addend = qni_area_data(&a[ADDEND], on_host);
    p->between = qni_area_data(&a[BETWEEN], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->w1 = weights_at(c, W1, SCALE1, 2 * s->inner, s->hidden, on_host);
    p->w2 = weights_at(c, W2, SCALE2, s->hidden, s->inner, on_host);
    return p;
}

// ---- the definition

/** Adds a row's product with what expert e has in row n of its weights to *sum, and how far it may
 *  be off to *off, where x may be off by x_off. */
static void multiply(const trial_case *c, const qk_moe_few_weights *w, int64_t e, int64_t n,
                     const double *x, const double *x_off, double *sum, double *off) {
    const uint8_t *codes = (const uint8_t *)w->codes + e * w->group;
    const float *scales = w->scale + e * w->scale_group + n / 128 * w->scale_nb;
    const uint32_t k = w->packed_k;
    double all = 0, moved = 0;
    *sum = 0;
    for (uint32_t i = 0; i < k; i++) {
        const double v =
            c->codes[codes[qni_gemm_packed_offset(c->device, k, n, i)]] * (double)scales[i / 128];
        *sum += v * x[i];
        all += fabs(v * x[i]);
        moved += x_off ? fabs(v) * x_off[i] : 0;
    }
    *off = moved + (2.0 * k + 300) * f32 * all;
}

/** Quantises a token as the op must. */
static void take_codes(trial_case *c, int64_t token) {
    const qni_moe_few_problem *p = &c->problem;
    for (int64_t g = 0; g < p->hidden; g += QNI_MOE_GROUP) {
        float top = eps;
        for (int64_t i = g; i < g + QNI_MOE_GROUP; i++)
            top = fmaxf(top, (float)fabs(qni_get(QNI_BF16, p->x, token * p->x_row + i)));
        const float scale = top / (float)qni_max(c->kind), inverse = 1.0f / scale;
        for (int64_t i = g; i < g + QNI_MOE_GROUP; i++) {
            const float x = (float)qni_get(QNI_BF16, p->x, token * p->x_row + i);
            c->x[i] = qni_round_to(c->kind, (double)(x * inverse)) * (double)scale;
        }
    }
}

/** Computes silu(gate) up and how far its codes may be from it. A slope bounds by the values
 *  nearby: 2 covers their change. */
static void act(trial_case *c) {
    const int64_t inner = c->problem.inner;
    for (int64_t g = 0; g < inner; g += QNI_MOE_GROUP) {
        double top = 0;
        for (int64_t i = g; i < g + QNI_MOE_GROUP; i++) {
            const double gate = c->made[i], up = c->made[inner + i];
            const double silu = gate / (1 + exp(-gate)), by = c->made_off[inner + i];
            c->h[i] = silu * up;
            c->h_off[i] = 2 * (1.2 * fabs(up) * c->made_off[i] + fabs(silu) * by) +
                          100 * f32 * fabs(c->h[i]) + c->made_off[i] * by;
            top = fmax(top, fabs(c->h[i]) + c->h_off[i]);
        }
        for (int64_t i = g; i < g + QNI_MOE_GROUP; i++)
            c->h_off[i] += code * (fabs(c->h[i]) + c->h_off[i]) + top * 0x1p-16;
    }
}

/** Adds what a pair's expert makes of its token. */
static void add_pair(trial_case *c, int64_t pair, int64_t e, double weight) {
    const qni_moe_few_problem *p = &c->problem;
    for (int64_t n = 0; n < 2 * p->inner; n++) {
        multiply(c, &p->w1, e, n, c->x, nullptr, &c->made[n], &c->made_off[n]);
        qni_area_expect(&c->base.areas[BETWEEN], pair * 2 * p->inner + n, c->made[n],
                        c->made_off[n]);
        c->made_off[n] += bf16 * (fabs(c->made[n]) + c->made_off[n]);
    }
    act(c);
    for (int64_t n = 0; n < p->hidden; n++) {
        double made, off;
        multiply(c, &p->w2, e, n, c->h, c->h_off, &made, &off);
        off += bf16 * (fabs(made) + off);
        c->out[n] += weight * made;
        c->out_off[n] += fabs(weight) * (off + 40 * f32 * fabs(made));
    }
}

static int64_t expert_of(const qni_moe_few_problem *p, int64_t token, int64_t j) {
    const int32_t id = p->ids[token * p->ids_row + j];
    return id >= 0 && p->expert_map ? p->expert_map[id] : id;
}

static void expect_token(trial_case *c, int64_t token) {
    const qni_moe_few_problem *p = &c->problem;
    take_codes(c, token);
    for (int64_t n = 0; n < p->hidden; n++) {
        c->out[n] = p->addend ? qni_get(p->dtype_out, p->addend, token * p->addend_row + n) : 0;
        c->out_off[n] = f32 * fabs(c->out[n]);
    }
    for (int64_t j = 0; j < p->top_k; j++) {
        const int64_t e = expert_of(p, token, j);
        if (e >= 0)
            add_pair(c, token * p->top_k + j, e, (double)p->weights[token * p->weights_row + j]);
    }
    for (int64_t n = 0; n < p->hidden; n++)
        qni_area_expect(&c->base.areas[OUT], token * p->out_row + n, c->out[n],
                        c->out_off[n] + f32 * fabs(c->out[n]));
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    const int64_t hidden = c->problem.hidden, inner = c->problem.inner;
    c->x = scratch;
    c->out = c->x + hidden;
    c->out_off = c->out + hidden;
    c->made = c->out_off + hidden;
    c->made_off = c->made + 2 * inner;
    c->h = c->made_off + 2 * inner;
    c->h_off = c->h + inner;
    for (int i = 0; i < 256; i++)
        c->codes[i] = qni_get(c->kind, &(uint8_t){(uint8_t)i}, 0);
    for (int64_t token = 0; token < c->problem.tokens; token++)
        expect_token(c, token);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const shape *s) {
    const qn_device *device = qn_stream_device(qni_trial_stream(run));
    const qni_dtype kind = qni_usual_e4m3(device);
    const size_t numbers = (size_t)(3 * s->hidden + 6 * s->inner);
    trial_case c = {.base = {.kind = &case_kind,
                             .op = &qni_op_moe_few,
                             .scratch_bytes = numbers * sizeof(double)},
                    .shape = s,
                    .device = device,
                    .kind = kind};
    c.problem = (qni_moe_few_problem){.dtype = QNI_BF16,
                                      .dtype_w1 = kind,
                                      .dtype_w2 = kind,
                                      .dtype_out = s->dtype_out,
                                      .x_row = s->hidden + s->gap,
                                      .addend_row = s->hidden + s->gap,
                                      .out_row = s->hidden + s->gap,
                                      .weights_row = s->top_k + s->gap,
                                      .ids_row = s->top_k + s->gap,
                                      .tokens = s->tokens,
                                      .top_k = s->top_k,
                                      .hidden = s->hidden,
                                      .inner = s->inner,
                                      .experts = s->experts,
                                      .mapped = s->mapped,
                                      .eps = eps};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "%ld tokens top %ld of %ld experts [%ld, %ld] mapped=%ld gap=%ld%s ->%s",
             (long)s->tokens, (long)s->top_k, (long)s->experts, (long)s->hidden, (long)s->inner,
             (long)s->mapped, (long)s->gap, s->has_addend ? " addend" : "",
             qni_dtype_name(s->dtype_out));
    return qni_case_try(run, &c.base);
}

qn_status qni_moe_try_few(qni_trial_run *run) {
    const size_t step = qni_trial_is_quick(run) ? 2 : 1;
    qn_status st = QN_OK;
    for (size_t i = step - 1; st == QN_OK && i < NUM_SHAPES; i += step)
        st = try_one(run, &shapes[i]);
    return st;
}
