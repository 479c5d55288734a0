// SPDX-License-Identifier: Apache-2.0
// What the tests of AOTriton's calls share: a call's arguments, and the results by the definition
// of attention.
#ifndef QNI_AOTRITON_TEST_H
#define QNI_AOTRITON_TEST_H

#include "compat_test.h"

#include <quern/compat/aotriton.h>

#include <math.h>

// ---- a call

/** The arguments of both calls; null and 0 where a test does not care. */
typedef struct problem {
    box *q, *k, *v, *b, *lse, *out, *encoded, *seed_out, *offset_out, *workspace;
    const DLTensor *seed, *offset1;
    int64_t offset2;
    float scale, p;
    bool is_causal;
} problem;

static inline DLTensor *tensor(box *b) {
    return b ? &b->t : nullptr;
}

/** Makes a problem of batch 2 and 4 heads on 2; in memory [batch, token, head] if is_nhd. */
static inline problem make_problem(DLDataType dtype, int64_t n, int64_t m, int64_t dim,
                                   bool is_nhd) {
    problem c = {.scale = 0.125f};
    const int64_t second = is_nhd ? n : 4, third = is_nhd ? 4 : n;
    c.q = randomize(MAKE(dtype, 2, second, third, dim));
    c.k = randomize(MAKE(dtype, 2, is_nhd ? m : 2, is_nhd ? 2 : m, dim));
    c.v = randomize(MAKE(dtype, 2, is_nhd ? m : 2, is_nhd ? 2 : m, dim));
    c.out = MAKE(dtype, 2, second, third, dim);
    c.lse = MAKE(f32, 8, n);
    if (is_nhd) {
        exchange(c.q, 1, 2), exchange(c.k, 1, 2);
        exchange(c.v, 1, 2), exchange(c.out, 1, 2);
    }
    return c;
}

static inline qn_status call_dense(const problem *c) {
    const qn_aotriton_ext ext = {sizeof ext, tensor(c->workspace)};
    return qn_aotriton_attn_fwd(tensor(c->q), tensor(c->k), tensor(c->v), tensor(c->b), c->scale,
                                tensor(c->lse), tensor(c->out), c->p, c->seed, c->offset1,
                                c->offset2, tensor(c->seed_out), tensor(c->offset_out),
                                tensor(c->encoded), c->is_causal, nullptr, stream, &ext);
}

// ---- the definition, of f32

/** Where a sequence lies in the tensors. */
typedef struct place {
    int64_t batch, q_begin, n, k_begin, m;
    int64_t index; // in the mask of dropout
} place;

typedef struct row {
    double max, sum, off; // off: of the worst score, as in attention_ref.c
} row;

/** Computes a row's weights in x, before they are divided by their sum. */
static inline row weigh(const problem *c, const place *s, int64_t h, int64_t i, double *x) {
    const double u = 0x1p-24;
    const int64_t dim = c->q->shape[3], kv_head = h / (c->q->shape[1] / c->k->shape[1]);
    row r = {.max = -HUGE_VAL};
    for (int64_t j = 0; j < s->m; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t d = 0; d < dim; d++) {
            const double product = at(c->q, s->batch, h, s->q_begin + i, d) *
                                   at(c->k, s->batch, kv_head, s->k_begin + j, d);
            sum += product, magnitude += fabs(product);
        }
        x[j] = sum * (double)c->scale + (c->b ? at(c->b, s->batch, h, i, j) : 0);
        if (c->is_causal && j > i)
            x[j] = -HUGE_VAL;
        const double off = u * ((double)(dim + 8) * magnitude * (double)c->scale + 16 * fabs(x[j]));
        r.off = x[j] > -HUGE_VAL && off > r.off ? off : r.off;
        r.max = x[j] > r.max ? x[j] : r.max;
    }
    for (int64_t j = 0; j < s->m; j++)
        r.sum += x[j] = x[j] > -HUGE_VAL ? exp(x[j] - r.max) : 0;
    return r;
}

static inline void assert_near(const char *what, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance) && got != want)
        fail_msg("%s is %.9g, wanted %.9g within %.3g", what, got, want, tolerance);
}

/** Checks one query's o and natural log-sum-exp within attention_ref.c's bound. `keep` may be null:
 *  no dropout. */
static inline void check_row(const problem *c, const place *s, int64_t h, int64_t i,
                             const box *keep) {
    const double u = 0x1p-24, undropped = 1 / (1 - (double)c->p);
    const int64_t kv_head = h / (c->q->shape[1] / c->k->shape[1]);
    double x[512];
    assert_true(s->m <= 512);
    const row r = weigh(c, s, h, i, x);
    const double relative = 4 * r.off + (double)(s->m + 34) * u;
    for (int64_t d = 0; d < c->v->shape[3]; d++) {
        double o = 0, magnitude = 0;
        for (int64_t j = 0; j < s->m; j++) {
            const double v = at(c->v, s->batch, kv_head, s->k_begin + j, d);
            const double weight =
                !keep || at(keep, s->index, h, i, j) > 0 ? x[j] / r.sum * undropped : 0;
            o += r.sum > 0 ? weight * v : 0, magnitude += r.sum > 0 ? weight * fabs(v) : 0;
        }
        assert_near("out", at(c->out, s->batch, h, s->q_begin + i, d), o,
                    relative * magnitude + u * fabs(o));
    }
    assert_near("lse", at(c->lse, s->batch * c->q->shape[1] + h, s->q_begin + i, 0, 0),
                r.sum > 0 ? r.max + log(r.sum) : -HUGE_VAL,
                r.sum > 0 ? relative + 8 * u * (fabs(r.max) + 32) : 0);
}

static inline void check_sequence(const problem *c, const place *s, const box *keep) {
    for (int64_t h = 0; h < c->q->shape[1]; h++)
        for (int64_t i = 0; i < s->n; i++)
            check_row(c, s, h, i, keep);
}

#endif
