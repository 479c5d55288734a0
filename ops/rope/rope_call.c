// SPDX-License-Identifier: Apache-2.0
// Checks of a rope call's tensors, and the problem that they make.
#include "rope_call.h"

/** Dtype, memory and shape of an input; `like`: the shape it must have but for its heads, null for
 *  the first. */
static qn_status check_in(const rope_call *c, const rope_tensor *t, const DLTensor *like) {
    const int ndim = like ? like->ndim : c->may_have_batches && t->in && t->in->ndim == 4 ? 4 : 3;
    QN_TRY(qni_check_tensor(c->stream, c->op, t->name, t->in, ndim));
    const qni_dtype dtype = qni_dtype_of(t->in);
    QN_TRY(qni_check_dtype(c->op, t->name, t->in, qni_of_floats));
    if (like && dtype != qni_dtype_of(like))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs q's, %s", c->op, t->name,
                       qni_dtype_name(dtype), qni_dtype_text(like));
    if (like) {
        const int64_t want[] = {like->shape[0], ndim == 4 ? like->shape[1] : -1,
                                ndim == 4 ? -1 : like->shape[2], like->shape[ndim - 1]};
        QN_TRY(qni_check_shape(c->op, t->name, t->in, ndim, want));
    }
    QN_TRY(qni_check_last_contiguous(c->op, t->name, t->in));
    return qni_check_alignment(c->op, t->name, t->in);
}

static qn_status check_out(const rope_call *c, const rope_tensor *t) {
    QN_TRY(qni_check_tensor(c->stream, c->op, t->out_name, t->out, t->in->ndim));
    if (qni_dtype_of(t->out) != qni_dtype_of(t->in))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs %s's, %s", c->op, t->out_name,
                       qni_dtype_text(t->out), t->name, qni_dtype_text(t->in));
    QN_TRY(qni_check_shape(c->op, t->out_name, t->out, t->in->ndim, t->in->shape));
    QN_TRY(qni_check_last_contiguous(c->op, t->out_name, t->out));
    QN_TRY(qni_check_elements_apart(c->op, t->out_name, t->out));
    return qni_check_alignment(c->op, t->out_name, t->out);
}

static qni_rope_rows rows_of(const rope_tensor *t) {
    const DLTensor *in = t->in, *out = t->out;
    const int last = in->ndim - 1;
    const bool has_batches = last == 3;
    return (qni_rope_rows){.in = qni_data(in),
                           .out = qni_data(out),
                           .in_batch = has_batches ? qni_stride(in, 0) : 0,
                           .in_token = qni_stride(in, last - 2),
                           .in_head = qni_stride(in, last - 1),
                           .out_batch = has_batches ? qni_stride(out, 0) : 0,
                           .out_token = qni_stride(out, last - 2),
                           .out_head = qni_stride(out, last - 1),
                           .heads = in->shape[last - 1],
                           .width = in->shape[last],
                           .scale = 1};
}

qn_status qni_rope_set_q_k(const rope_call *c, qni_rope_problem *p) {
    const rope_tensor *q = &c->parts[QNI_ROPE_Q], *k = &c->parts[QNI_ROPE_K];
    QN_TRY(check_in(c, q, nullptr));
    QN_TRY(check_out(c, q));
    if (k->in || k->out) {
        QN_TRY(check_in(c, k, q->in));
        QN_TRY(check_out(c, k));
    }
    const DLTensor *t = q->in;
    const int token = t->ndim - 3;
    *p = (qni_rope_problem){.dtype = qni_dtype_of(t),
                            .dtype_out = qni_dtype_of(t),
                            .dtype_table = QNI_F32,
                            .n = (token ? t->shape[0] : 1) * t->shape[token],
                            .inner = t->shape[token],
                            .parts = {[QNI_ROPE_Q] = rows_of(q)}};
    if (k->in)
        p->parts[QNI_ROPE_K] = rows_of(k);
    if (p->parts[QNI_ROPE_Q].width == 0)
        return QN_FAIL(QN_E_INVALID, "%s: q has heads of 0 elements, needs at least 2", c->op);
    return QN_OK;
}

qn_status qni_rope_set_rotary_dim(const char *op, qni_rope_problem *p, int64_t dim) {
    const int64_t width = p->parts[QNI_ROPE_Q].width;
    p->rotary_dim = dim == 0 ? width : dim;
    if (p->rotary_dim > 0 && p->rotary_dim <= width && p->rotary_dim % 2 == 0)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: rotary_dim is %ld; accepted: even, from 2 to head_dim, %ld",
                   op, (long)p->rotary_dim, (long)width);
}

qn_status qni_rope_set_cache(const rope_call *c, qni_rope_problem *p, const DLTensor *cache,
                             const DLTensor *positions, const char *name) {
    QN_TRY(qni_check_tensor(c->stream, c->op, "cos_sin_cache", cache, 2));
    QN_TRY(qni_check_dtype(c->op, "cos_sin_cache", cache, qni_of_f32));
    const int64_t dim = cache->shape[1], width = p->parts[QNI_ROPE_Q].width;
    if (dim < 2 || dim % 2 != 0 || dim > width)
        return QN_FAIL(QN_E_INVALID,
                       "%s: cos_sin_cache has rows of %ld; accepted: even, from 2 to head_dim, %ld",
                       c->op, (long)dim, (long)width);
    if (!qni_is_contiguous(cache))
        return QN_FAIL(QN_E_INVALID, "%s: cos_sin_cache is not contiguous", c->op);
    QN_TRY(qni_check_alignment(c->op, "cos_sin_cache", cache));
    QN_TRY(qni_check_indices(c->stream, c->op, name, positions, p->n));
    if (qni_validates_indices(c->stream))
        QN_TRY(qni_validate_range(c->stream, c->op, name, qni_data(positions), p->n, 0,
                                  cache->shape[0]));
    p->angles = QNI_ROPE_BY_POSITION;
    p->rotary_dim = dim;
    p->pos_ids = qni_data(positions);
    p->cos = qni_data(cache);
    p->sin = (const float *)qni_data(cache) + dim / 2;
    p->table_row = dim;
    p->table_step = 1;
    return QN_OK;
}

static qn_status check_written(const rope_call *c, const rope_read *read, int part) {
    const rope_tensor *t = &c->parts[part];
    for (int i = 0; i < QNI_ROPE_PARTS; i++) {
        const rope_tensor *other = &c->parts[i];
        if (i < part)
            QN_TRY(qni_check_disjoint(c->op, t->out_name, t->out, other->out_name, other->out));
        if (!(i == part && qni_is_same_memory(t->out, t->in)))
            QN_TRY(qni_check_disjoint(c->op, t->out_name, t->out, other->name, other->in));
    }
    for (; read->name; read++)
        QN_TRY(qni_check_disjoint(c->op, t->out_name, t->out, read->name, read->t));
    return QN_OK;
}

/** Heads in place have nothing to do behind what turns. */
static void cut_tails(const rope_call *c, qni_rope_problem *p) {
    bool in_place = !c->has_norm;
    for (int i = QNI_ROPE_Q; i <= QNI_ROPE_K; i++)
        if (p->parts[i].heads)
            in_place &= c->parts[i].out && qni_is_same_memory(c->parts[i].out, c->parts[i].in);
    for (int i = QNI_ROPE_Q; in_place && i <= QNI_ROPE_K; i++)
        p->parts[i].width = p->rotary_dim;
}

qn_status qni_rope_run(const rope_call *c, const rope_read *read, const qni_rope_problem *p) {
    qni_rope_problem problem = *p;
    int64_t heads = 0;
    const qn_status st = QN_OK;
    for (int i = 0; i < QNI_ROPE_PARTS; i++) {
        heads += p->parts[i].heads;
        if (c->parts[i].out)
            QN_TRY(check_written(c, read, i));
    }
    if (p->n == 0 || heads == 0)
        return st;
    cut_tails(c, &problem);
    QN_TRY(qni_run(&qni_op_rope, c->stream, &problem));
    return st;
}
