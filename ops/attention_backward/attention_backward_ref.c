// SPDX-License-Identifier: Apache-2.0
// The definition of attention's backward pass in double precision, and how far off a kernel may be.
//
// The o and lse that are given are taken as they are: p_ij = e^(x_ij - lse_i), D_i = <d_o_i, o_i>.
// With u = 2^-24, a kernel's p_ij is off by a factor of at most 1 +- (delta + u (8 |lse| + 64)),
// where delta is how far off a score may be (attention_ref.c), plus 2^-126, below which exp2 may
// give 0. Products of n elements in f32, in any order, are off by u (n + 8) times the sum of the
// magnitudes. ds = p (dp - D) inherits all of that; the soft cap's derivative 1 - t^2 is off by
// 32 u, and by delta / cap through t. A sum over n terms adds u (n + 8) of the magnitudes' sum. For
// the products with d_o, k and q, kernels may round the weights p m and the scores' gradients to 16
// bits of q's kind (u_p); f16 has none below 2^-24.
//
// Sources: arXiv:2205.14135, appendix B.
#include "attention_backward.h"

#include <stdlib.h>

constexpr double u = 0x1p-24, ln_2 = 0x1.62E42FEFA39EFp-1;

/** A row: what its pairs with keys have in common. */
typedef struct row {
    const qni_backward_problem *p;
    qni_attention_row place;
    double *d_o, *q;      // of the row
    double lse;           // natural
    double delta, off;    // D, and how far off it may be
    double scale, factor; // s and t of include/quern/attention_backward.h
    double score_off;
} row;

/** A number, and how far off a kernel's may be. */
typedef struct bounded {
    double value, off;
} bounded;

static void add(const qni_bounded *to, int64_t at, double value, double off) {
    to->value[at] += value;
    to->bound[at] += off;
}

static int64_t offset_of(const qk_attention_rows *rows, const qni_attention_row *place) {
    return place->index * rows->block +
           ((int64_t)place->request.qo_begin + place->query) * rows->token +
           place->head * rows->head;
}

static void load(qni_dtype dtype, const void *data, int64_t at, int64_t dim, double *x) {
    for (int64_t d = 0; d < dim; d++)
        x[d] = qni_get(dtype, data, at + d);
}

/** Returns <a, b>, of which a kernel's product is off. */
static bounded dot(const double *a, const double *b, int64_t dim) {
    bounded sum = {};
    for (int64_t d = 0; d < dim; d++) {
        sum.value += a[d] * b[d];
        sum.off += fabs(a[d] * b[d]);
    }
    sum.off *= u * (double)(dim + 8);
    return sum;
}

/** Loads a row's gradient and its o, whose product is D. */
static void find_delta(row *r) {
    const qk_attention_args *g = &r->p->args.common;
    const qni_dtype dtype = r->p->forward.dtype_o;
    const qk_attention_rows o_rows = {g->o, g->o_batch, g->o_token, g->o_head};
    double o[QK_ATTENTION_MAX_HEAD_DIM];
    load(dtype, r->p->args.d_o.data, offset_of(&r->p->args.d_o, &r->place), g->head_dim_vo, r->d_o);
    load(dtype, o_rows.data, offset_of(&o_rows, &r->place), g->head_dim_vo, o);
    const bounded delta = dot(r->d_o, o, g->head_dim_vo);
    r->delta = delta.value, r->off = delta.off;
}

static void find_scales(row *r) {
    const qk_attention_args *g = &r->p->args.common;
    const uint32_t head = r->place.head, kv_head = head / g->group;
    const qk_attention_rows lse = {g->lse, g->lse_batch, g->lse_token, g->lse_head};
    r->lse = (double)g->lse[offset_of(&lse, &r->place)] / (double)g->lse_unit * ln_2;
    r->scale = (double)g->scale * (g->q_scales ? (double)g->q_scales[head] : 1) *
               (g->k_scales ? (double)g->k_scales[kv_head] : 1);
    r->factor = (double)g->v_scale * (g->v_scales ? (double)g->v_scales[kv_head] : 1);
}

/** Returns how far off a term of a sum of n terms makes the sum. */
static double off_of(bounded term, double n) {
    return term.off + u * (n + 8) * fabs(term.value);
}

/** Adds the pair's part of dmask, whose element sums over the dimensions that the mask repeats. */
static void add_mask(const row *r, const qni_gradients *out, int64_t j, bounded ds) {
    const qk_mask_gradient *m = &r->p->args.dmask;
    const int64_t batch = m->batches > 1 ? r->place.index : 0;
    const int64_t head = m->heads > 1 ? r->place.head : 0;
    const int64_t query = m->queries > 1 ? r->place.query : 0, key = m->keys > 1 ? j : 0;
    const int64_t at = ((batch * m->heads + head) * m->queries + query) * (int64_t)m->keys + key;
    const double terms = (double)r->p->requests * r->p->args.common.num_kv_heads *
                         r->p->args.common.group * r->p->args.max_qo * r->p->args.max_kv;
    const double repeats = terms / ((double)m->batches * m->heads * m->queries * (double)m->keys);
    add(&out->dmask, at, ds.value, ds.off + u * (repeats + 8) * fabs(ds.value));
}

/** What a row and a key give: p m t, the gradients by the score and, times s, by the product. */
typedef struct pair {
    bounded pv, ds, dx;
} pair;

/** Returns dropout's factor of a weight. */
static double kept_of(const row *r, int64_t j) {
    const qk_attention_args *g = &r->p->args.common;
    if (!g->has_dropout)
        return 1;
    return qni_attention_keeps(g, &r->place, (uint32_t)j) ? (double)g->dropout_scale : 0;
}

/** Adds how far off rounding to 16 bits of q's kind may make a number times `factor`. */
static void round_to_16(const row *r, double factor, bounded *x) {
    const qni_dtype dtype = r->p->forward.dtype;
    if (dtype == QNI_F32)
        return;
    const double smallest = dtype == QNI_F16 ? 0x1p-24 : 0x1p-126;
    x->off += qni_attention_weight_rounding(dtype) * fabs(x->value) + smallest * fabs(factor);
}

/** Computes a pair from its weight p and the score's slope. */
static pair weigh(const row *r, const double *v, int64_t j, double weight, double slope) {
    const qk_attention_args *g = &r->p->args.common;
    const double kept = kept_of(r, j), cap = (double)g->soft_cap;
    const double p_off = weight * (r->score_off + u * (8 * fabs(r->lse) + 64)) + 0x1p-126;
    bounded dp = dot(r->d_o, v, g->head_dim_vo);
    dp.value *= r->factor * kept, dp.off = dp.off * fabs(r->factor) * kept + 4 * u * fabs(dp.value);
    const double gap = dp.value - r->delta, gap_off = dp.off + r->off + u * fabs(gap);
    const double cap_off = cap > 0 ? 32 * u + r->score_off / cap : 0;
    pair out = {.pv = {weight * kept * r->factor, p_off * kept * fabs(r->factor)},
                .ds = {weight * gap, p_off * fabs(gap) + (weight + p_off) * gap_off}};
    out.dx.value = out.ds.value * slope * r->scale;
    out.dx.off = (out.ds.off * slope + fabs(out.ds.value) * (cap_off + 4 * u)) * fabs(r->scale);
    round_to_16(r, r->factor, &out.pv);
    round_to_16(r, r->scale, &out.dx);
    return out;
}

/** Adds what the row, which is `local` among those of its key, and key j give to all gradients. */
static void add_pair(const row *r, const qni_attention_keys *keys, int64_t j, const pair *x,
                     int64_t local, const qni_gradients *out) {
    const qk_attention_args *g = &r->p->args.common;
    const double keys_of_row = r->place.request.kv_len;
    const double rows_of_key = (double)r->place.request.qo_len * g->group;
    const int64_t dim = g->head_dim_qk, dim_vo = g->head_dim_vo;
    for (int64_t d = 0; d < dim; d++) {
        const double k = keys->k[j * dim + d], q = r->q[d];
        add(&out->dq, local * dim + d, x->dx.value * k, off_of(x->dx, keys_of_row) * fabs(k));
        add(&out->dk, j * dim + d, x->dx.value * q, off_of(x->dx, rows_of_key) * fabs(q));
    }
    for (int64_t d = 0; d < dim_vo; d++)
        add(&out->dv, j * dim_vo + d, x->pv.value * r->d_o[d],
            off_of(x->pv, rows_of_key) * fabs(r->d_o[d]));
    if (out->dmask.value)
        add_mask(r, out, j, x->ds);
}

/** Adds the row's part of its head's dsink. */
static void add_sink(const row *r, const qni_gradients *out) {
    const qk_attention_args *g = &r->p->args.common;
    const double rows = (double)r->p->requests * r->p->args.max_qo;
    const double weight = exp((double)g->sinks[r->place.head] - r->lse);
    const double part = -weight * r->delta;
    const double off =
        weight * r->off + 0x1p-126 * fabs(r->delta) +
        u * (8 * fabs(r->lse) + 8 * fabs((double)g->sinks[r->place.head]) + 64 + rows) * fabs(part);
    add(&out->dsinks, r->place.head, part, off);
}

/** Adds what one row gives; x and slope have room for kv_len each. */
static void add_row(row *r, const qni_attention_keys *keys, int64_t local, double *x, double *slope,
                    const qni_gradients *out) {
    const qni_attention_softmax s =
        qni_attention_find_weights(&r->p->forward, &r->place, keys, x, slope);
    const qk_attention_args *g = &r->p->args.common;
    load(r->p->forward.dtype, g->q.data, offset_of(&g->q, &r->place), g->head_dim_qk, r->q);
    find_delta(r);
    find_scales(r);
    r->score_off = s.off;
    for (int64_t j = 0; j < r->place.request.kv_len; j++)
        if (x[j] > 0) {
            const pair found =
                weigh(r, keys->v + j * g->head_dim_vo, j, x[j] * exp(s.max - r->lse), slope[j]);
            add_pair(r, keys, j, &found, local, out);
        }
    if (out->dsinks.value)
        add_sink(r, out);
}

bool qni_backward_ref(const qni_backward_problem *p, const qk_attention_request *request,
                      uint32_t index, uint32_t kv_head, const qni_gradients *out) {
    const qk_attention_args *g = &p->args.common;
    const qni_attention_keys keys = qni_attention_load_keys(&p->forward, request, index, kv_head);
    double *x = malloc(2 * ((size_t)request->kv_len + 1) * sizeof *x);
    double d_o[QK_ATTENTION_MAX_HEAD_DIM], q[QK_ATTENTION_MAX_HEAD_DIM];
    for (uint32_t i = 0; keys.k && x && i < (uint32_t)request->qo_len * g->group; i++) {
        row r = {.p = p,
                 .place = {*request, index, i / g->group, kv_head * g->group + i % g->group},
                 .d_o = d_o,
                 .q = q};
        add_row(&r, &keys, i, x, x + request->kv_len, out);
    }
    const bool is_done = keys.k && x;
    free(keys.k);
    free(x);
    return is_done;
}
