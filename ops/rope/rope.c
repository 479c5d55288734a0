// SPDX-License-Identifier: Apache-2.0
// The rope family's public functions: each reads its tensors and makes a problem, which is one
// struct for all functions.
#include "rope.h"

#include "../shared/variants.h"
#include "rope_call.h"

#include <string.h>

#define QN_TABLE_OF_rope 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_rope

static const char *const angles_words[] = {"frequency", "position", "token", nullptr};
static const qni_key keys[] = {{.name = "q_heads"},
                               {.name = "k_heads"},
                               {.name = "head_dim"},
                               {.name = "rotary_dim"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "out", .words = qni_dtype_words},
                               {.name = "interleaved", .words = qni_no_yes_words},
                               {.name = "angles", .words = angles_words},
                               {.name = "paged", .words = qni_no_yes_words},
                               {.name = "tokens", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_rope_problem *p = problem;
    QN_SET_VALUES(keys, values, p->parts[QNI_ROPE_Q].heads, p->parts[QNI_ROPE_K].heads,
                  p->parts[QNI_ROPE_Q].width, p->rotary_dim, p->dtype, p->dtype_out,
                  p->is_interleaved, p->angles, p->parts[QNI_ROPE_K].is_paged, p->n);
}

const qni_op qni_op_rope = QN_OP("rope", variants, keys, describe);

// ---- angles

/** Reads the law of frequencies. Zeros become the defaults of Llama 3.1, or of plain RoPE, which
 *  takes no factors of Llama 3.1. */
static qn_status read_law(const char *op, const qn_rope_options *o, bool is_llama31,
                          qni_rope_law *law) {
    const bool has_factors =
        o->low_freq_factor != 0 || o->high_freq_factor != 0 || o->old_context_len != 0;
    if (!is_llama31 && has_factors)
        return QN_FAIL(QN_E_INVALID,
                       "%s: options has low_freq_factor, high_freq_factor or old_context_len, "
                       "which only Llama 3.1's functions take",
                       op);
    *law = (qni_rope_law){
        .theta = o->rope_theta != 0 ? o->rope_theta
                 : is_llama31       ? 5e5f
                                    : 1e4f,
        .scale = o->rope_scale != 0 ? o->rope_scale
                 : is_llama31       ? 8
                                    : 1,
        .old_context_len = is_llama31 && o->old_context_len == 0 ? 8192 : o->old_context_len,
    };
    if (is_llama31) {
        law->low_freq_factor = o->low_freq_factor != 0 ? o->low_freq_factor : 1;
        law->high_freq_factor = o->high_freq_factor != 0 ? o->high_freq_factor : 4;
    }
    if (!(law->theta > 0 && law->theta <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: rope_theta is %g; accepted: above 0, finite", op,
                       (double)law->theta);
    if (!(law->scale > 0 && law->scale <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: rope_scale is %g; accepted: above 0, finite", op,
                       (double)law->scale);
    if (law->old_context_len < 0)
        return QN_FAIL(QN_E_INVALID, "%s: old_context_len is %ld; accepted: above 0", op,
                       (long)law->old_context_len);
    if (is_llama31 && !(law->low_freq_factor > 0 && law->high_freq_factor > law->low_freq_factor &&
                        law->high_freq_factor <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID,
                       "%s: low_freq_factor is %g and high_freq_factor %g; accepted: above 0, and "
                       "above low_freq_factor",
                       op, (double)law->low_freq_factor, (double)law->high_freq_factor);
    return QN_OK;
}

static qn_status read_options(const char *op, const qn_rope_options *given, qn_rope_options *out) {
    *out = (qn_rope_options){.struct_size = sizeof *out};
    if (!given)
        return QN_OK;
    const qn_status st = QNI_CHECK_STRUCT_FROM(op, "options", qn_rope_options, given, rotary_dim);
    if (st == QN_OK)
        memcpy(out, given, given->struct_size < sizeof *out ? given->struct_size : sizeof *out);
    return st;
}

/** Reads law, layout and rotary dimension from the options. */
static qn_status read_angles(const char *op, const qn_rope_options *given, bool is_llama31,
                             qni_rope_problem *p) {
    qn_rope_options o;
    QN_TRY(read_options(op, given, &o));
    QN_TRY(read_law(op, &o, is_llama31, &p->law));
    p->angles = QNI_ROPE_BY_FREQUENCY;
    p->is_interleaved = o.interleave != 0;
    QN_TRY(qni_rope_read_rotary_dim(op, p, o.rotary_dim));
    if (p->rotary_dim > 2 * QNI_ROPE_MAX_PAIRS)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: rotary_dim is %ld; accepted: up to %d, or a cos_sin_cache", op,
                       (long)p->rotary_dim, 2 * QNI_ROPE_MAX_PAIRS);
    return QN_OK;
}

// ---- by segments and by position

#define Q_AND_K                                                                                    \
    .stream = stream,                                                                              \
    .parts = {[QNI_ROPE_Q] = {"q", "q_out", q, q_out}, [QNI_ROPE_K] = {"k", "k_out", k, k_out}}

static qn_status apply_by_segments(rope_call *c, const DLTensor *indptr, const DLTensor *offsets,
                                   const qn_rope_options *options, bool is_llama31) {
    qni_rope_problem p;
    const qni_tensor *ends, *starts;
    QN_TRY(qni_rope_read_q_k(c, &p));
    QN_TRY(read_angles(c->of.op, options, is_llama31, &p));
    QN_TRY(qni_rope_read(c, qni_indices("indptr", indptr, nullptr), &ends));
    if (ends->size[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: indptr is empty, needs at least one entry", c->of.op);
    p.segments = ends->size[0] - 1;
    QN_TRY(qni_rope_read(c, qni_indices("offsets", offsets, &p.segments), &starts));
    p.indptr = ends->data;
    p.offsets = starts->data;
    if (p.segments == 0)
        return QN_OK;
    if (qni_validates_indices(c->stream))
        QN_TRY(qni_validate_rising(c->stream, c->of.op, "indptr", p.indptr, p.segments + 1, p.n));
    return qni_rope_run(c, &p);
}

static qn_status apply_by_position(rope_call *c, const DLTensor *pos_ids,
                                   const qn_rope_options *options, bool is_llama31) {
    qni_rope_problem p;
    const qni_tensor *positions;
    QN_TRY(qni_rope_read_q_k(c, &p));
    QN_TRY(read_angles(c->of.op, options, is_llama31, &p));
    QN_TRY(qni_rope_read(c, qni_indices("pos_ids", pos_ids, &p.n), &positions));
    p.pos_ids = positions->data;
    return qni_rope_run(c, &p);
}

qn_status qn_apply_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out, const DLTensor *q,
                        const DLTensor *k, const DLTensor *indptr, const DLTensor *offsets,
                        const qn_rope_options *options) {
    rope_call c = {.of = {"apply_rope", stream}, Q_AND_K};
    return apply_by_segments(&c, indptr, offsets, options, false);
}

qn_status qn_apply_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                const DLTensor *q, const DLTensor *k, const DLTensor *pos_ids,
                                const qn_rope_options *options) {
    rope_call c = {.of = {"apply_rope_pos_ids", stream}, Q_AND_K};
    return apply_by_position(&c, pos_ids, options, false);
}

qn_status qn_apply_llama31_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                                const DLTensor *offsets, const qn_rope_options *options) {
    rope_call c = {.of = {"apply_llama31_rope", stream}, Q_AND_K};
    return apply_by_segments(&c, indptr, offsets, options, true);
}

qn_status qn_apply_llama31_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                        const DLTensor *q, const DLTensor *k,
                                        const DLTensor *pos_ids, const qn_rope_options *options) {
    rope_call c = {.of = {"apply_llama31_rope_pos_ids", stream}, Q_AND_K};
    return apply_by_position(&c, pos_ids, options, true);
}

// ---- by tables

qn_status qn_apply_rope_with_cos_sin_cache(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                           const DLTensor *q, const DLTensor *k,
                                           const DLTensor *cos_sin_cache, const DLTensor *positions,
                                           int32_t interleave) {
    rope_call c = {.of = {"apply_rope_with_cos_sin_cache", stream}, Q_AND_K};
    qni_rope_problem p;
    QN_TRY(qni_rope_read_q_k(&c, &p));
    p.is_interleaved = interleave != 0;
    QN_TRY(qni_rope_read_cache(&c, &p, cos_sin_cache, positions, "positions"));
    return qni_rope_run(&c, &p);
}

/** Reads a table with a row for each token: [n, rotary_dim] or [n, rotary_dim / 2]. */
static qn_status read_table(rope_call *c, const char *name, const DLTensor *t,
                            const qni_rope_problem *p, const qni_tensor **out) {
    const int64_t half = p->rotary_dim / 2;
    const bool is_half = t && t->ndim == 2 && t->shape && t->shape[1] == half;
    const int64_t shape[] = {p->inner, is_half ? half : p->rotary_dim};
    return qni_rope_read(c,
                         (qni_tensor){
                             .name = name,
                             .t = t,
                             .ndim = 2,
                             .dtypes = qni_of_f32,
                             .like = &c->t[QNI_ROPE_IN],
                             .shape = shape,
                             .has_rows = true,
                         },
                         out);
}

static qn_status read_tables(rope_call *c, qni_rope_problem *p, const DLTensor *cosine,
                             const DLTensor *sine) {
    const qni_tensor *cos, *sin;
    QN_TRY(read_table(c, "cos", cosine, p, &cos));
    QN_TRY(read_table(c, "sin", sine, p, &sin));
    if (cos->dtype != sin->dtype || cos->size[1] != sin->size[1] ||
        (p->inner > 1 && cos->stride[0] != sin->stride[0]))
        return QN_FAIL(QN_E_INVALID, "%s: sin has not the dtype, shape and strides of cos",
                       c->of.op);
    p->angles = QNI_ROPE_BY_TOKEN;
    p->dtype_table = cos->dtype;
    p->cos = cos->data;
    p->sin = sin->data;
    p->table_row = cos->stride[0];
    p->table_step = p->is_interleaved && cos->size[1] == p->rotary_dim ? 2 : 1;
    return QN_OK;
}

static qn_status read_weight(rope_call *c, qni_rope_problem *p, int part, const char *name,
                             const DLTensor *t) {
    const qni_tensor *weight;
    QN_TRY(qni_rope_read(c,
                         (qni_tensor){
                             .name = name,
                             .t = t,
                             .ndim = 1,
                             .like = &c->t[QNI_ROPE_IN],
                             .shape = &p->parts[QNI_ROPE_Q].width,
                             .has_rows = true,
                         },
                         &weight));
    p->parts[part].weight = weight->data;
    return QN_OK;
}

static qn_status read_norm(rope_call *c, const qn_qk_rmsnorm_rope_args *a, qni_rope_problem *p) {
    if (!a->q_weight && !a->k_weight)
        return QN_OK;
    if (!(a->eps >= 0 && a->eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 0 or more, finite", c->of.op,
                       (double)a->eps);
    p->eps = a->eps;
    QN_TRY(read_weight(c, p, QNI_ROPE_Q, "q_weight", a->q_weight));
    if (a->k_weight && !a->k)
        return QN_FAIL(QN_E_INVALID, "%s: k_weight is given without k", c->of.op);
    if (a->k)
        QN_TRY(read_weight(c, p, QNI_ROPE_K, "k_weight", a->k_weight));
    return QN_OK;
}

qn_status qn_qk_rmsnorm_rope(qn_stream *stream, const qn_qk_rmsnorm_rope_args *args) {
    const char *op = "qk_rmsnorm_rope";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_qk_rmsnorm_rope_args, args);
    if (st != QN_OK)
        return st;
    const qn_qk_rmsnorm_rope_args a = *args;
    rope_call c = {.of = {op, stream},
                   .stream = stream,
                   .parts = {[QNI_ROPE_Q] = {"q", "q_out", a.q, a.q_out},
                             [QNI_ROPE_K] = {"k", "k_out", a.k, a.k_out}},
                   .may_have_batches = true,
                   .has_norm = a.q_weight || a.k_weight};
    qni_rope_problem p;
    QN_TRY(qni_rope_read_q_k(&c, &p));
    p.is_interleaved = a.interleave != 0;
    QN_TRY(qni_rope_read_rotary_dim(op, &p, a.rotary_dim));
    QN_TRY(read_norm(&c, &a, &p));
    QN_TRY(read_tables(&c, &p, a.cos, a.sin));
    return qni_rope_run(&c, &p);
}
