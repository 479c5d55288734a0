// SPDX-License-Identifier: Apache-2.0
// The check problems of permutation, whose bytes must be their source's, and of sums, which must
// have the definition's bits.
#include "../../../check/case.h"
#include "../moe.h"
#include "../moe_check.h"

#include <string.h>

typedef struct shape {
    int64_t tokens, top_k, n, rows;
    int64_t groups;      // permutation: of scales; 0: none
    int64_t gap, offset; // elements between rows; elements before the first row
    bool has_columns;    // permutation: scales with rows side by side
} shape;
static const shape shapes[] = {
    {1, 1, 1, 1, 0, 0, 0, false},
    {5, 2, 64, 12, 1, 0, 0, true},
    {9, 4, 128, 40, 1, 16, 16, false},
    {7, 8, 33, 60, 1, 3, 1, false},
    {33, 6, 72, 250, 2, 8, 8, true},
    {3, 2, 2056, 9, 17, 0, 0, true},
    {4, 3, 4099, 11, 0, 0, 0, false},
    {3, 2, 40, 6, 1, 0, 4, false},
    {2, 2, 64, 4, 1, qni_far - 64, 0, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    bool is_plain; // sum: no weights, rows in order, no addend
    qni_moe_permute_problem permute;
    qni_moe_sum_problem sum;
} trial_case;

/** Returns the pair of a row; of some rows none. Pairs are in disorder. */
static int32_t pair_of(const shape *s, int64_t row) {
    const int64_t pairs = s->tokens * s->top_k, step = pairs % 5 ? 5 : 7;
    return row % 6 == 5 ? (int32_t)(row % 4 == 1 ? pairs : -1)
                        : (int32_t)((row * step + 1) % pairs);
}

// ---- permute

enum { X, OUT, SCALE, SCALE_OUT, PAIRS, NUM_PERMUTE };
static const char *const permute_names[] = {"x", "out", "scale", "scale_out", "pair_of_row"};

static int64_t scale_stride(const shape *s, int64_t rows) {
    return s->has_columns ? rows + 3 : 1;
}

/** Areas of rows are bytes, so that each byte is compared. */
static qni_extent permute_extent(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const int64_t size = qni_dtype_bytes(c->permute.dtype);
    const int64_t rows = which == X || which == SCALE ? s->tokens : s->rows;
    if (which == PAIRS)
        return qni_dense(QNI_I32, s->rows);
    if (which <= OUT)
        return (qni_extent){QNI_U8, rows, s->n * size, (s->n + s->gap) * size, s->offset * size};
    if (s->groups == 0)
        return (qni_extent){};
    return s->has_columns ? (qni_extent){QNI_F32, s->groups, rows, rows + 3, 0}
                          : (qni_extent){QNI_F32, rows, s->groups, s->groups, 0};
}

static void permute_fill(void *context, int which) {
    trial_case *c = context;
    const shape *s = c->shape;
    qni_area *a = &c->base.areas[which];
    const int64_t row = which == X ? s->n * qni_dtype_bytes(c->permute.dtype) : a->row;
    for (int64_t r = 0; (which == X || which == SCALE) && r < a->rows; r++)
        for (int64_t i = 0; i < row; i++)
            if (which == X)
                ((uint8_t *)qni_area_host(a))[r * a->stride + i] =
                    (uint8_t)qni_random(&c->base.random);
            else
                ((float *)qni_area_host(a))[r * a->stride + i] = (float)(r * 100 + i);
    for (int64_t r = 0; which == PAIRS && r < s->rows; r++)
        ((int32_t *)qni_area_host(a))[r] = pair_of(s, r);
}

static const void *permute_place(void *context, bool on_host) {
    trial_case *c = context;
    const qni_area *a = c->base.areas;
    qni_moe_permute_problem *p = &c->permute;
    p->x = qni_area_data(&a[X], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->scale = qni_area_data(&a[SCALE], on_host);
    p->scale_out = qni_area_data(&a[SCALE_OUT], on_host);
    p->pair_of_row = qni_area_data(&a[PAIRS], on_host);
    return p;
}

static void permute_expect(void *context, void *) {
    trial_case *c = context;
    const shape *s = c->shape;
    const qni_moe_permute_problem *p = &c->permute;
    const int64_t size = qni_dtype_bytes(p->dtype);
    qni_area *a = c->base.areas;
    for (int64_t r = 0; r < s->rows; r++) {
        const int64_t pair = pair_of(s, r), token = pair / s->top_k;
        if (pair < 0 || pair >= s->tokens * s->top_k)
            continue;
        for (int64_t i = 0; i < s->n * size; i++)
            qni_area_expect(&a[OUT], r * p->out_row * size + i,
                            ((const uint8_t *)p->x)[token * p->x_row * size + i], 0);
        for (int64_t g = 0; g < s->groups; g++)
            qni_area_expect(&a[SCALE_OUT], r * p->scale_out_row + g * p->scale_out_column,
                            (double)p->scale[token * p->scale_row + g * p->scale_column], 0);
    }
}

static const qni_case_kind permute_kind = {permute_names, NUM_PERMUTE,   permute_extent,
                                           permute_fill,  permute_place, permute_expect};

static qn_status try_permute(qni_trial_run *run, const shape *s, qni_dtype dtype) {
    trial_case c = {.base = {.kind = &permute_kind, .op = &qni_op_moe_permute}, .shape = s};
    const int64_t row = s->n + s->gap;
    c.permute = (qni_moe_permute_problem){.dtype = dtype,
                                          .x_row = row,
                                          .out_row = row,
                                          .scale_row = s->has_columns ? 1 : s->groups,
                                          .scale_column = scale_stride(s, s->tokens),
                                          .scale_out_row = s->has_columns ? 1 : s->groups,
                                          .scale_out_column = scale_stride(s, s->rows),
                                          .rows = s->rows,
                                          .tokens = s->tokens,
                                          .top_k = s->top_k,
                                          .n = s->n,
                                          .groups = s->groups};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "[%ld, %ld] top %ld to %ld rows, scales=%ld%s gap=%ld offset=%ld %s", (long)s->tokens,
             (long)s->n, (long)s->top_k, (long)s->rows, (long)s->groups,
             s->has_columns ? " by columns" : "", (long)s->gap, (long)s->offset,
             qni_dtype_name(dtype));
    return qni_case_try(run, &c.base);
}

qn_status qni_moe_try_permute(qni_trial_run *run) {
    static const qni_dtype dtypes[] = {QNI_BF16, QNI_E4M3FN, QNI_F32};
    const int thinning = qni_trial_is_quick(run) ? 2 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (size_t d = 0; st == QN_OK && d < sizeof dtypes / sizeof *dtypes; d++)
            if (shapes[s].gap > qni_far / 2 ? dtypes[d] == QNI_E4M3FN : turn++ % thinning == 0)
                st = try_permute(run, &shapes[s], dtypes[d]);
    return st;
}

// ---- sum

enum { Y, TO, WEIGHTS, ROWS, ADDEND, NUM_SUM };
static const char *const sum_names[] = {"x", "out", "weights", "row_of_pair", "addend"};

static qni_extent sum_extent(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    if (c->is_plain && which > TO)
        return (qni_extent){};
    if (which == WEIGHTS || which == ROWS)
        return (qni_extent){which == ROWS ? QNI_I32 : QNI_F32, s->tokens, s->top_k,
                            which == ROWS ? c->sum.row_of_pair_row : c->sum.weights_row, 0};
    return (qni_extent){which == Y ? c->sum.dtype : c->sum.dtype_out,
                        which == Y ? c->sum.rows : s->tokens, s->n, s->n + s->gap, s->offset};
}

static void sum_fill(void *context, int which) {
    trial_case *c = context;
    const shape *s = c->shape;
    qni_area *a = &c->base.areas[which];
    for (int64_t r = 0; which != TO && r < a->rows; r++)
        for (int64_t i = 0; i < a->row; i++) {
            const int64_t pair = r * s->top_k + i;
            if (which == ROWS)
                ((int32_t *)qni_area_host(a))[r * a->stride + i] =
                    pair % 5 == 3 ? -1 : (int32_t)((pair * 7 + 2) % c->sum.rows);
            else
                qni_put(a->dtype, qni_area_host(a), r * a->stride + i,
                        r % 4 == 3 && i % 50 == 1 ? (i % 100 == 1 ? (double)NAN : HUGE_VAL)
                                                  : qni_random_normal(&c->base.random));
        }
}

static const void *sum_place(void *context, bool on_host) {
    trial_case *c = context;
    const qni_area *a = c->base.areas;
    qni_moe_sum_problem *p = &c->sum;
    p->x = qni_area_data(&a[Y], on_host);
    p->out = qni_area_data(&a[TO], on_host);
    p->weights = qni_area_data(&a[WEIGHTS], on_host);
    p->row_of_pair = qni_area_data(&a[ROWS], on_host);
    p->addend = qni_area_data(&a[ADDEND], on_host);
    return p;
}

static void sum_expect(void *context, void *) {
    trial_case *c = context;
    for (int64_t t = 0; t < c->shape->tokens; t++)
        for (int64_t i = 0; i < c->shape->n; i++)
            qni_area_expect(&c->base.areas[TO], t * c->sum.out_row + i,
                            (double)qni_moe_sum_ref(&c->sum, t, i), 0);
}

static const qni_case_kind sum_kind = {sum_names, NUM_SUM,   sum_extent,
                                       sum_fill,  sum_place, sum_expect};

static qn_status try_sum(qni_trial_run *run, const shape *s, qni_dtype dtype, qni_dtype dtype_out,
                         bool is_plain) {
    trial_case c = {
        .base = {.kind = &sum_kind, .op = &qni_op_moe_sum}, .shape = s, .is_plain = is_plain};
    const int64_t row = s->n + s->gap;
    c.sum = (qni_moe_sum_problem){.dtype = dtype,
                                  .dtype_out = dtype_out,
                                  .x_row = row,
                                  .addend_row = row,
                                  .out_row = row,
                                  .weights_row = s->top_k + s->offset,
                                  .row_of_pair_row = s->top_k + s->offset % 3,
                                  .tokens = s->tokens,
                                  .top_k = s->top_k,
                                  .n = s->n,
                                  .rows = is_plain ? s->tokens * s->top_k : s->rows};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "%s[%ld, %ld] top %ld of %ld rows gap=%ld offset=%ld "
             "%s->%s",
             is_plain ? "plain " : "", (long)s->tokens, (long)s->n, (long)s->top_k,
             (long)c.sum.rows, (long)s->gap, (long)s->offset, qni_dtype_name(dtype),
             qni_dtype_name(dtype_out));
    return qni_case_try(run, &c.base);
}

qn_status qni_moe_try_sum(qni_trial_run *run) {
    const int thinning = qni_trial_is_quick(run) ? 5 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t s = 0; s < NUM_SHAPES; s++)
        for (int types = 0; types < 9; types++)
            for (int plain = 0; st == QN_OK && plain < 2; plain++)
                if (shapes[s].gap > qni_far / 2 ? types == 8 : turn++ % thinning == 0)
                    st = try_sum(run, &shapes[s], (qni_dtype)(types % 3), (qni_dtype)(types / 3),
                                 plain);
    return st;
}
