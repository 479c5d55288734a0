// SPDX-License-Identifier: Apache-2.0
// Reads a rope call's tensors and makes a problem.
#include "rope_call.h"

qn_status qni_rope_read(rope_call *c, qni_tensor stated, const qni_tensor **out) {
    qni_tensor *const t = qni_rope_next(c);
    *t = stated;
    *out = t;
    return qni_read_tensors(&c->of, t, 1);
}

/** Reads an input, which has q's shape but for its heads, and the output of the input. */
static qn_status read_part(rope_call *c, int part, int ndim) {
    const rope_tensor *given = &c->parts[part];
    qni_tensor *const in = &c->t[QNI_ROPE_IN + part], *const out = &c->t[QNI_ROPE_OUT + part];
    const qni_tensor *const q = part == QNI_ROPE_Q ? nullptr : &c->t[QNI_ROPE_IN + QNI_ROPE_Q];
    int64_t shape[4] = {-1, -1, -1, -1};
    for (int i = 0; q && i < ndim; i++)
        shape[i] = i == ndim - 2 ? -1 : q->size[i];
    *in = (qni_tensor){
        .name = given->name,
        .t = given->in,
        .ndim = ndim,
        .dtypes = q ? 0 : qni_of_floats,
        .like = q,
        .shape = shape,
        .has_rows = true,
    };
    QN_TRY(qni_read_tensors(&c->of, in, 1));
    *out = (qni_tensor){
        .name = given->out_name,
        .t = given->out,
        .ndim = ndim,
        .like = in,
        .shape = in->size,
        .has_rows = true,
        .is_written = true,
        .may_be = in,
    };
    return qni_read_tensors(&c->of, out, 1);
}

static qni_rope_rows rows_of(const rope_call *c, int part) {
    const qni_tensor *in = &c->t[QNI_ROPE_IN + part], *out = &c->t[QNI_ROPE_OUT + part];
    const int last = in->ndim - 1;
    const bool has_batches = last == 3;
    return (qni_rope_rows){.in = in->data,
                           .out = out->data,
                           .in_batch = has_batches ? in->stride[0] : 0,
                           .in_token = in->stride[last - 2],
                           .in_head = in->stride[last - 1],
                           .out_batch = has_batches ? out->stride[0] : 0,
                           .out_token = out->stride[last - 2],
                           .out_head = out->stride[last - 1],
                           .heads = in->size[last - 1],
                           .width = in->size[last],
                           .scale = 1};
}

qn_status qni_rope_read_q_k(rope_call *c, qni_rope_problem *p) {
    const rope_tensor *given = &c->parts[QNI_ROPE_Q], *k = &c->parts[QNI_ROPE_K];
    const int ndim = c->may_have_batches && given->in && given->in->ndim == 4 ? 4 : 3;
    QN_TRY(read_part(c, QNI_ROPE_Q, ndim));
    if (k->in || k->out)
        QN_TRY(read_part(c, QNI_ROPE_K, ndim));
    const qni_tensor *const q = &c->t[QNI_ROPE_IN + QNI_ROPE_Q];
    const int token = ndim - 3;
    *p = (qni_rope_problem){.dtype = q->dtype,
                            .dtype_out = q->dtype,
                            .dtype_table = QNI_F32,
                            .n = (token ? q->size[0] : 1) * q->size[token],
                            .inner = q->size[token],
                            .parts = {[QNI_ROPE_Q] = rows_of(c, QNI_ROPE_Q)}};
    if (k->in)
        p->parts[QNI_ROPE_K] = rows_of(c, QNI_ROPE_K);
    if (p->parts[QNI_ROPE_Q].width == 0)
        return QN_FAIL(QN_E_INVALID, "%s: q has heads of 0 elements, needs at least 2", c->of.op);
    return QN_OK;
}

qn_status qni_rope_read_rotary_dim(const char *op, qni_rope_problem *p, int64_t dim) {
    const int64_t width = p->parts[QNI_ROPE_Q].width;
    p->rotary_dim = dim == 0 ? width : dim;
    if (p->rotary_dim > 0 && p->rotary_dim <= width && p->rotary_dim % 2 == 0)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: rotary_dim is %ld; accepted: even, from 2 to head_dim, %ld",
                   op, (long)p->rotary_dim, (long)width);
}

qn_status qni_rope_read_cache(rope_call *c, qni_rope_problem *p, const DLTensor *cache,
                              const DLTensor *positions, const char *name) {
    const qni_tensor *table, *at;
    QN_TRY(qni_rope_read(c, (qni_tensor){"cos_sin_cache", cache, 2, .dtypes = qni_of_f32}, &table));
    const int64_t dim = table->size[1], width = p->parts[QNI_ROPE_Q].width;
    if (dim < 2 || dim % 2 != 0 || dim > width)
        return QN_FAIL(QN_E_INVALID,
                       "%s: cos_sin_cache has rows of %ld; accepted: even, from 2 to head_dim, %ld",
                       c->of.op, (long)dim, (long)width);
    if (!qni_is_contiguous(cache))
        return QN_FAIL(QN_E_INVALID, "%s: cos_sin_cache is not contiguous", c->of.op);
    QN_TRY(qni_rope_read(c, qni_indices(name, positions, &p->n), &at));
    if (qni_validates_indices(c->stream))
        QN_TRY(qni_validate_range(c->stream, c->of.op, name, at->data, p->n, 0, table->size[0]));
    p->angles = QNI_ROPE_BY_POSITION;
    p->rotary_dim = dim;
    p->pos_ids = at->data;
    p->cos = table->data;
    p->sin = (const float *)table->data + dim / 2;
    p->table_row = dim;
    p->table_step = 1;
    return QN_OK;
}

/** Ends heads where rotation ends if they are written in place, as nothing behind changes. */
static void cut_tails(const rope_call *c, qni_rope_problem *p) {
    bool in_place = !c->has_norm;
    for (int i = QNI_ROPE_Q; i <= QNI_ROPE_K; i++)
        if (p->parts[i].heads)
            in_place &= c->parts[i].out && qni_is_same_memory(c->parts[i].out, c->parts[i].in);
    for (int i = QNI_ROPE_Q; in_place && i <= QNI_ROPE_K; i++)
        p->parts[i].width = p->rotary_dim;
}

qn_status qni_rope_run(const rope_call *c, const qni_rope_problem *p) {
    qni_rope_problem problem = *p;
    int64_t heads = 0;
    QN_TRY(qni_check_apart(&c->of, c->t, QNI_ROPE_REST + c->num_rest));
    for (int i = 0; i < QNI_ROPE_PARTS; i++)
        heads += p->parts[i].heads;
    if (p->n == 0 || heads == 0)
        return QN_OK;
    cut_tails(c, &problem);
    return qni_run(&qni_op_rope, c->stream, &problem);
}
