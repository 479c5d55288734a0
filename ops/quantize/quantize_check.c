// SPDX-License-Identifier: Apache-2.0
// The check problems of the quantize family: every kernel gives the bits of the definition, and
// touches nothing else. Used by qn_check on every device.
#include "quantize_check.h"

#include "../../check/case.h"
#include "../../check/walk.h"
#include "../shared/round.h"
#include "quantize.h"
#include "rows.h"

/** What x is filled with when quantising. */
typedef enum fill { FILL_NORMAL, FILL_ANY_FINITE, FILL_TIES, FILL_NONFINITE, NUM_FILLS } fill;
static const char *const fill_names[NUM_FILLS] = {"normal", "any-finite", "ties", "nonfinite"};

/** The numbers of a problem. */
typedef struct shape {
    int64_t rows, cols;
    int64_t x_gap, q_gap; // elements between the end of a row and the next
    int64_t offset;       // elements from an aligned address to the first
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0, 0},     {3, 127, 1, 2, 1},    {128, 128, 0, 0, 0}, {130, 257, 7, 7, 0},
    {257, 384, 8, 3, 8}, {33, 2048, 4, 16, 0}, {5, 4104, 0, 0, 0},  {40, 200, 8, 8, 8},
};

/** Areas are of bytes, since kernels must give the definition's bits. Differences are reported from
 *  the last area on, so that a cause comes before its effects. */
enum { X, Q, SCALE, NUM_AREAS };
static const char *const area_names[] = {"x", "q", "scale"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_quantize_problem problem;
    bool dequantizes;
    fill with;
} trial_case;

static void store_element(qni_dtype dtype, void *x, int64_t i, float v) {
    if (dtype == QNI_F32)
        ((float *)x)[i] = v;
    else if (dtype == QNI_F16)
        ((_Float16 *)x)[i] = (_Float16)v;
    else
        ((uint16_t *)x)[i] = (uint16_t)(__builtin_bit_cast(uint32_t, v) >> 16);
}

/** Returns a sum of uniform values, which is near enough to normal, on a grid of 2^-16. */
static float normal_value(trial_case *c) {
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += qni_random(&c->base.random) >> 12;
    return (float)(sum - (2 << 20)) * 0x1p-19f;
}

/** Returns any bits but those of an infinity or a NaN. */
static float finite_value(trial_case *c, qni_dtype dtype) {
    for (;;) {
        const uint32_t bits = qni_random(&c->base.random);
        const uint16_t half = (uint16_t)bits;
        const float v =
            dtype == QNI_F32 ? __builtin_bit_cast(float, bits) : qni_load_element(dtype, &half, 0);
        if (isfinite(v))
            return v;
    }
}

/** Returns a value half-way between two codes; the first element of a row of a block makes the
 *  block's scale 1. */
static float tie_value(trial_case *c, int64_t col) {
    const qni_fp8_format f = qni_fp8_format_of(c->problem.kind);
    if (col % QNI_BLOCK == 0)
        return f.max;
    const uint8_t code = (uint8_t)(qni_random(&c->base.random) % f.max_code);
    const float tie = (qni_fp8_decode(c->problem.kind, code) +
                       qni_fp8_decode(c->problem.kind, (uint8_t)(code + 1))) *
                      0.5f;
    return qni_random(&c->base.random) & 1 ? tie : -tie;
}

static float nonfinite_value(trial_case *c) {
    switch (qni_random(&c->base.random) % 256) {
    case 0:
        return __builtin_nanf("");
    case 1:
        return qni_random(&c->base.random) & 1 ? __builtin_inff() : -__builtin_inff();
    default:
        return normal_value(c);
    }
}

static float fill_value(trial_case *c, int64_t row, int64_t col) {
    switch (c->with) {
    case FILL_ANY_FINITE:
        return finite_value(c, c->problem.dtype_x);
    case FILL_TIES:
        return tie_value(c, col);
    case FILL_NONFINITE:
        return nonfinite_value(c);
    default: // each row on a scale of its own; the last row is zero
        return row == c->problem.rows - 1 ? 0 : ldexpf(normal_value(c), (int)(row % 24) - 12);
    }
}

static void fill_x(trial_case *c) {
    const qni_quantize_problem *p = &c->problem;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t col = 0; col < p->cols; col++)
            store_element(p->dtype_x, qni_area_host(&c->base.areas[X]), r * p->x_row + col,
                          fill_value(c, r, col));
}

/** Returns a scale of any size. Some scales are any bits at all, some are denormals, and some have
 *  a product with a small code that lies so near a tie between two bf16 denormals that f32 cannot
 *  tell it from the tie. */
static float scale_value(trial_case *c) {
    const uint32_t bits = qni_random(&c->base.random);
    switch (qni_random(&c->base.random) % 16) {
    case 0:
        return __builtin_bit_cast(float, bits);
    case 1:
        return __builtin_bit_cast(float, bits >> 12);
    case 2: // times 3, 5, … 15 smallest steps of e4m3fn (2^-9) or e4m3fnuz: about 2^-134
        return __builtin_bit_cast(float, (UINT32_C(1) << (24 + bits / 8 % 2)) / (3 + bits % 7 * 2));
    default:
        return ldexpf(1.0f + (float)(bits >> 9) * 0x1p-23f, (int)(bits % 24) - 18);
    }
}

/** Fills q with every code. */
static void fill_q(trial_case *c) {
    const qni_quantize_problem *p = &c->problem;
    uint8_t *q = qni_area_host(&c->base.areas[Q]);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t col = 0; col < p->cols; col++)
            q[r * p->q_row + col] = (uint8_t)qni_random(&c->base.random);
}

static void fill_scales(trial_case *c) {
    const qni_quantize_problem *p = &c->problem;
    float *scale = qni_area_host(&c->base.areas[SCALE]);
    for (int64_t r = 0; r < qni_pieces(p->rows, p->block_rows); r++)
        for (int64_t col = 0; col < qni_quantize_block_cols(p); col++)
            scale[r * p->scale_row + col] = scale_value(c);
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const qni_quantize_problem *p = &c->problem;
    const int64_t element = which == X ? qni_element_bytes(p->dtype_x) : which == Q ? 1 : 4;
    qni_extent e = {QNI_U8, p->rows, p->cols, which == X ? p->x_row : p->q_row, c->shape->offset};
    if (which == SCALE) {
        e.rows = qni_pieces(p->rows, p->block_rows);
        e.row = qni_quantize_block_cols(p);
        e.stride = p->scale_row;
    }
    e.row *= element, e.stride *= element, e.offset *= element;
    return e;
}

static void fill_area(void *context, int which) {
    trial_case *c = context;
    if (which == X && !c->dequantizes)
        fill_x(c);
    else if (which == Q && c->dequantizes)
        fill_q(c);
    else if (which == SCALE && c->dequantizes)
        fill_scales(c);
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_quantize_problem *p = &c->problem;
    p->x = qni_area_data(&c->base.areas[X], on_host);
    p->q = qni_area_data(&c->base.areas[Q], on_host);
    p->scale = qni_area_data(&c->base.areas[SCALE], on_host);
    return p;
}

static void expect(void *context, void *) {
    trial_case *c = context;
    qni_area *areas = c->base.areas;
    qni_quantize_problem p = c->problem;
    p.x = qni_area_draft(&areas[X]);
    p.q = qni_area_draft(&areas[Q]);
    p.scale = qni_area_draft(&areas[SCALE]);
    if (c->dequantizes)
        qni_dequantize_ref(&p);
    else
        qni_quantize_ref(&p);
    const void *right[] = {p.x, p.q, p.scale};
    for (int which = c->dequantizes ? X : Q; which <= (c->dequantizes ? X : SCALE); which++) {
        const qni_extent e = extent_of(c, which);
        for (int64_t r = 0; r < e.rows; r++)
            for (int64_t i = r * e.stride; i < r * e.stride + e.row; i++)
                qni_area_expect(&areas[which], i, ((const uint8_t *)right[which])[i], 0);
    }
}

static void name_case(trial_case *c) {
    const shape *s = c->shape;
    const qni_quantize_problem *p = &c->problem;
    const char *q = qni_dtype_name((qni_dtype)(QNI_E4M3FN + (int)p->kind));
    const char *x = qni_dtype_name(p->dtype_x);
    snprintf(c->base.text, sizeof c->base.text,
             "rows=%ld cols=%ld gaps=%ld,%ld block=%ldx128 %s->%s %s", (long)s->rows, (long)s->cols,
             (long)s->x_gap, (long)s->q_gap, (long)p->block_rows, c->dequantizes ? q : x,
             c->dequantizes ? x : q, c->dequantizes ? "any-code" : fill_names[c->with]);
}

static const qni_case_kind case_kind = {
    area_names, NUM_AREAS, extent_of, fill_area, place, expect,
};

static qn_status try_one(qni_trial_run *run, const qni_op *op, const shape *s, qni_dtype dtype,
                         qni_fp8 kind, int64_t block_rows, fill with) {
    trial_case c = {.base = {.kind = &case_kind, .op = op},
                    .shape = s,
                    .problem = {.dtype_x = dtype,
                                .kind = kind,
                                .rows = s->rows,
                                .cols = s->cols,
                                .block_rows = block_rows,
                                .x_row = s->cols + s->x_gap,
                                .q_row = s->cols + s->q_gap,
                                .eps = 1e-4f},
                    .dequantizes = op == &qni_op_dequantize,
                    .with = with};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes) * 1000 + (uint64_t)kind;
    c.problem.scale_row = qni_quantize_block_cols(&c.problem) + s->q_gap;
    name_case(&c);
    return qni_case_try(run, &c.base);
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    if (op == &qni_op_quantize_rows)
        return qni_quantize_rows_try(run, op);
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = quick ? 2 : QNI_NUM_FP8, // kinds
                  .shapes = sizeof shapes / sizeof *shapes,
                  .types = 6, // dtypes, of each block
                  .thinning = quick ? 5 : 1};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, op, &shapes[w.shape], (qni_dtype)(w.type % 3), (qni_fp8)w.form,
                     w.type < 3 ? 1 : QNI_BLOCK, (fill)(w.turn % NUM_FILLS));
    return st == QN_OK ? qni_quantize_vectors_try(run, op) : st;
}

static const qni_op *const ops[] = {&qni_op_quantize, &qni_op_dequantize, &qni_op_quantize_rows,
                                    nullptr};
const qni_family qni_family_quantize = {"quantize", ops, try_op};
