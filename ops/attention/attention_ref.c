// SPDX-License-Identifier: Apache-2.0
// The definition of attention for one row in double precision, without rounding, and how far off a
// kernel may be.
//
// With u = 2^-24, a kernel's score is off by delta = u (D + 8) sum |q_d k_d| + 16 u |x| (the
// product in f32 in any order, a few roundings of the scaled score; tanh and ALiBi's slope are
// within a few units) and, rotated, by twice 2^-21 of sum |q_d k_d|, the angles' error. So each
// weight e^(x - max) and their sum are off by a factor of at most 1 +- 2 delta + 16 u (two scores,
// exp2), the quotient by twice that. Weights may be rounded to 16 bits of q's kind (u_p); f16 has
// none below 2^-24, and f32's exp2 need give none below 2^-126. Sums over n keys add n u. All times
// sum p |v|. One visible key, without a sink, has weight 1 exactly.
//
// This file works out by itself which keys are seen and where they lie. A fault in the code that
// kernels share would otherwise be the definition's, too.
//
// Sources: arXiv:1706.03762; FlashInfer's variants (soft cap, ALiBi, RoPE);
// doi:10.1145/2063384.2063405 (dropout).
#include "attention.h"

#include <stdlib.h>

constexpr double u = 0x1p-24, angle_error = 0x1p-21;

/** Returns ALiBi's slope for a head. */
static double slope_of(int64_t heads, int64_t h) {
    int64_t n = 1;
    while (2 * n <= heads)
        n *= 2;
    return h < n ? exp2(-8.0 * (double)(h + 1) / (double)n)
                 : exp2(-4.0 * (double)(2 * (h + 1 - n) - 1) / (double)n);
}

/** Loads a head of q or k, of which a part may lie at `tail`, rotated to its position if the
 *  problem asks. */
static void load_head(const qni_attention_problem *p, const double *turns, qni_dtype dtype,
                      const void *data, int64_t at, qni_dtype dtype_tail, const void *tail,
                      int64_t tail_at, int64_t position, double *x) {
    const int64_t dim = p->args.head_dim_qk, half = dim / 2, first = dim - p->tail.dim;
    for (int64_t d = 0; d < dim; d++)
        x[d] = d < first ? qni_get(dtype, data, at + d)
                         : qni_get(dtype_tail, tail, tail_at + d - first);
    for (int64_t d = 0; p->args.pos_encoding == QK_POS_ROPE && d < half; d++) {
        const double angle = (double)position * turns[d];
        const double c = cos(angle), s = sin(angle), x0 = x[d], x1 = x[d + half];
        x[d] = x0 * c - x1 * s;
        x[d + half] = x1 * c + x0 * s;
    }
}

int64_t qni_attention_place(const qk_attention_args *g, const qk_attention_rows *rows,
                            const qk_attention_request *r, int64_t request, int64_t j) {
    if (!g->kv_indices)
        return request * rows->block + (r->kv_begin + j) * rows->token;
    const int64_t page = j / (int64_t)g->page_size, slot = j - page * (int64_t)g->page_size;
    return g->kv_indices[r->kv_begin + page] * rows->block + slot * rows->token;
}

/** Returns whether causality, window and packed mask leave query i key j, as
 *  include/quern/attention.h puts it. */
static bool is_seen(const qk_attention_args *g, const qk_attention_request *r, int64_t i,
                    int64_t j) {
    const int64_t level = i + (g->is_top_left ? 0 : r->kv_len - r->qo_len);
    if (g->left != INT32_MAX && j < level - g->left)
        return false;
    if (g->right != INT32_MAX && j > level + g->right)
        return false;
    const int64_t bit = i * r->kv_len + j;
    return !g->custom_mask || (g->custom_mask[r->mask_begin + bit / 8] >> bit % 8 & 1);
}

static void find_turns(const qni_attention_problem *p, double *turns) {
    const int64_t dim = p->args.head_dim_qk;
    for (int64_t d = 0; p->args.pos_encoding == QK_POS_ROPE && d < dim / 2; d++)
        turns[d] =
            pow((double)p->rope_theta, -2.0 * (double)d / (double)dim) / (double)p->rope_scale;
}

/** Returns the scale of element d of a key and of its value. */
static double group_scale(const qni_attention_problem *p, const qk_attention_request *r,
                          uint32_t request, int64_t j, int64_t d) {
    if (!p->groups.data)
        return 1;
    const int64_t at = qni_attention_place(&p->args, &p->groups, r, request, j);
    return (double)((const float *)p->groups.data)[at + d / 128];
}

qni_attention_keys qni_attention_load_keys(const qni_attention_problem *p,
                                           const qk_attention_request *r, uint32_t request,
                                           uint32_t kv_head) {
    const qk_attention_args *g = &p->args;
    const int64_t dim = g->head_dim_qk, dim_vo = g->head_dim_vo;
    qni_attention_keys keys = {
        .k = malloc((size_t)(r->kv_len * (dim + dim_vo) + 1) * sizeof(double))};
    if (!keys.k)
        return keys;
    keys.v = keys.k + r->kv_len * dim;
    find_turns(p, keys.turns);
    for (int64_t j = 0; j < r->kv_len; j++) {
        const qk_attention_rows *const tail = &p->tail.k;
        const int64_t v = qni_attention_place(g, &g->v, r, request, j) + kv_head * g->v.head;
        load_head(p, keys.turns, p->dtype_kv, g->k.data,
                  qni_attention_place(g, &g->k, r, request, j) + kv_head * g->k.head, p->dtype_tail,
                  tail->data, qni_attention_place(g, tail, r, request, j) + kv_head * tail->head, j,
                  keys.k + j * dim);
        for (int64_t d = 0; d < dim - p->tail.dim; d++)
            keys.k[j * dim + d] *= group_scale(p, r, request, j, d);
        for (int64_t d = 0; d < dim_vo; d++)
            keys.v[j * dim_vo + d] =
                qni_get(p->dtype_kv, g->v.data, v + d) * group_scale(p, r, request, j, d);
    }
    return keys;
}

/** Returns <q, k_j>. *magnitude gets the sum of the magnitudes of its products; for pairs that
 *  rotation mixes, of the magnitudes' sums. */
static double product(const qni_attention_problem *p, const double *q, const double *k,
                      double *magnitude) {
    const int64_t dim = p->args.head_dim_qk, half = dim / 2;
    double sum = 0;
    *magnitude = 0;
    for (int64_t d = 0; d < dim; d++) {
        sum += q[d] * k[d];
        *magnitude += fabs(q[d] * k[d]);
    }
    if (p->args.pos_encoding != QK_POS_ROPE)
        return sum;
    *magnitude = 0;
    for (int64_t d = 0; d < half; d++)
        *magnitude += 2 * (fabs(q[d]) + fabs(q[d + half])) * (fabs(k[d]) + fabs(k[d + half]));
    return sum;
}

static double scale_of(const qni_attention_problem *p, const qni_attention_row *row) {
    const qk_attention_args *g = &p->args;
    return (double)g->scale * (g->q_scales ? (double)g->q_scales[row->head] : 1) *
           (g->k_scales ? (double)g->k_scales[row->head / g->group] : 1);
}

/** Returns what the mask tensor adds; for a boolean mask 0 or -infinity. */
static double mask_of(const qk_attention_args *g, const qni_attention_row *row, uint32_t j) {
    const int64_t at = row->index * g->mask_batch + row->head * g->mask_head +
                       row->query * g->mask_query + j * g->mask_key;
    if (g->mask_kind == QK_MASK_NONE)
        return 0;
    if (g->mask_kind == QK_MASK_BOOL)
        return ((const uint8_t *)g->mask)[at] ? 0 : -HUGE_VAL;
    return qni_get((qni_dtype)(g->mask_kind - QK_MASK_F32 + QNI_F32), g->mask, at);
}

/** Returns the score x_j; -infinity if the key is not seen. *off gets how far off a kernel's score
 *  may be, *slope the score's derivative by the scaled product, which the soft cap makes less
 *  than 1. */
static double score(const qni_attention_problem *p, const qni_attention_row *row,
                    const qni_attention_keys *keys, const double *q, uint32_t j, double *off,
                    double *slope) {
    const qk_attention_args *g = &p->args;
    const qk_attention_request *r = &row->request;
    double magnitude;
    *off = *slope = 0;
    if (!is_seen(g, r, row->query, j))
        return -HUGE_VAL;
    const double added = mask_of(g, row, j), scale = scale_of(p, row);
    if (isinf(added) && added < 0)
        return added;
    double x = product(p, q, keys->k + (int64_t)j * g->head_dim_qk, &magnitude) * scale;
    double largest = fabs(x);
    if (g->pos_encoding == QK_POS_ALIBI) {
        const double position = (double)row->query + r->kv_len - r->qo_len;
        const double bias =
            slope_of((int64_t)g->num_kv_heads * g->group, row->head) * ((double)j - position);
        x += bias;
        largest += fabs(bias);
    }
    *slope = 1;
    if (g->soft_cap > 0) {
        const double t = tanh(x / (double)g->soft_cap);
        *slope = 1 - t * t;
        x = (double)g->soft_cap * t;
    }
    largest += fabs(added) + (double)g->soft_cap;
    *off = u * (g->head_dim_qk + 8) * magnitude * fabs(scale) + 16 * u * largest;
    if (g->pos_encoding == QK_POS_ROPE)
        *off += 2 * angle_error * magnitude * fabs(scale);
    return x + added;
}

uint32_t qni_attention_word(const qk_attention_args *g, const qni_attention_row *row, uint32_t j) {
    uint32_t lanes[4];
    qk_philox(g->dropout_seed,
              qk_attention_dropout_counter(g, row->index, row->head, row->query, j / 4), lanes);
    return lanes[j % 4];
}

bool qni_attention_keeps(const qk_attention_args *g, const qni_attention_row *row, uint32_t j) {
    return !g->has_dropout || (int32_t)qni_attention_word(g, row, j) > g->dropout_threshold;
}

/** Returns where a row of q begins, or of q's tail. */
static int64_t q_place(const qk_attention_rows *q, const qni_attention_row *row) {
    return row->index * q->block + ((int64_t)row->request.qo_begin + row->query) * q->token +
           row->head * q->head;
}

qni_attention_softmax qni_attention_find_weights(const qni_attention_problem *p,
                                                 const qni_attention_row *row,
                                                 const qni_attention_keys *keys, double *x,
                                                 double *slope) {
    const qk_attention_args *g = &p->args;
    const qk_attention_request *r = &row->request;
    qni_attention_softmax s = {.max = g->sinks ? (double)g->sinks[row->head] : -HUGE_VAL};
    double q[QK_ATTENTION_MAX_ROW], off, unused;
    load_head(p, keys->turns, p->dtype, g->q.data, q_place(&g->q, row), p->dtype, p->tail.q.data,
              q_place(&p->tail.q, row), (int64_t)r->kv_len - r->qo_len + row->query, q);
    for (uint32_t j = 0; j < (uint32_t)r->kv_len; j++) {
        x[j] = score(p, row, keys, q, j, &off, slope ? &slope[j] : &unused);
        s.visible += x[j] > -HUGE_VAL;
        s.max = x[j] > s.max ? x[j] : s.max;
        s.off = off > s.off ? off : s.off;
    }
    s.sum = g->sinks ? exp((double)g->sinks[row->head] - s.max) : 0;
    for (int64_t j = 0; j < r->kv_len; j++) {
        x[j] = x[j] > -HUGE_VAL ? exp(x[j] - s.max) : 0;
        s.sum += x[j];
    }
    return s;
}

double qni_attention_weight_rounding(qni_dtype dtype) {
    return dtype == QNI_F32 ? u : dtype == QNI_F16 ? 0x1p-11 : 0x1p-8;
}

/** Sums over the keys that are seen, for each element of o: of p v, |p v| and |v|. */
typedef struct sums {
    double value[QK_ATTENTION_MAX_HEAD_DIM], magnitude[QK_ATTENTION_MAX_HEAD_DIM],
        least[QK_ATTENTION_MAX_HEAD_DIM];
} sums;

static void sum_values(const qk_attention_args *g, const qni_attention_row *row,
                       const qni_attention_keys *keys, const double *x, sums *out) {
    *out = (sums){};
    for (uint32_t j = 0; j < (uint32_t)row->request.kv_len; j++) {
        const double *v = keys->v + (int64_t)j * g->head_dim_vo;
        if (!(x[j] > 0) || !qni_attention_keeps(g, row, j))
            continue;
        for (uint32_t d = 0; d < g->head_dim_vo; d++) {
            out->value[d] += x[j] * v[d];
            out->magnitude[d] += x[j] * fabs(v[d]);
            out->least[d] += fabs(v[d]);
        }
    }
}

void qni_attention_ref(const qni_attention_problem *p, const qni_attention_row *row,
                       const qni_attention_keys *keys, double *x, double *o, double *lse,
                       double *bound, double *lse_bound) {
    const qk_attention_args *g = &p->args;
    const qni_attention_softmax s = qni_attention_find_weights(p, row, keys, x, nullptr);
    const double v_scale = g->v_scales ? (double)g->v_scales[row->head / g->group] : 1;
    const double scale =
        (double)g->v_scale * v_scale * (g->has_dropout ? (double)g->dropout_scale : 1);
    const double off = 4 * s.off + (double)(row->request.kv_len + 32) * u;
    const bool is_sole = s.visible == 1 && !g->sinks;
    const double relative = is_sole ? 4 * u : off + 2 * qni_attention_weight_rounding(p->dtype);
    const double smallest = !(s.sum > 0) || is_sole ? 0 : p->dtype == QNI_F16 ? 0x1p-24 : 0x1p-126;
    sums all;
    sum_values(g, row, keys, x, &all);
    for (uint32_t d = 0; d < g->head_dim_vo; d++) {
        o[d] = s.visible > 0 ? all.value[d] / s.sum * scale : 0;
        bound[d] =
            s.visible > 0
                ? fabs(scale) * (relative * all.magnitude[d] + smallest * all.least[d]) / s.sum
                : 0;
    }
    *lse = s.sum > 0 ? (s.max + log(s.sum)) / log(2) * (double)g->lse_unit : -HUGE_VAL;
    *lse_bound = (off + 8 * u * (fabs(s.max) + 32)) * 1.5;
}
