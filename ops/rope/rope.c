// SPDX-License-Identifier: Apache-2.0
// The rope family's public functions: each checks its tensors and fills one kind of problem.
#include "rope.h"

#include "../shared/variants.h"
#include "rope_call.h"

#include <string.h>

#define QN_TABLE_OF_rope 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_rope

const qni_op qni_op_rope = QN_OP("rope", variants);

// ---- angles

/** Zeros become the defaults of Llama 3.1, or of plain RoPE, which takes none of its factors. */
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

/** Options become law, layout and rotary dimension. */
static qn_status set_options(const char *op, const qn_rope_options *given, bool is_llama31,
                             qni_rope_problem *p) {
    qn_rope_options o;
    QN_TRY(read_options(op, given, &o));
    QN_TRY(read_law(op, &o, is_llama31, &p->law));
    p->angles = QNI_ROPE_BY_FREQUENCY;
    p->is_interleaved = o.interleave != 0;
    QN_TRY(qni_rope_set_rotary_dim(op, p, o.rotary_dim));
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

static qn_status apply_by_segments(const rope_call *c, const DLTensor *indptr,
                                   const DLTensor *offsets, const qn_rope_options *options,
                                   bool is_llama31) {
    qni_rope_problem p;
    const qn_status st = QN_OK;
    QN_TRY(qni_rope_set_q_k(c, &p));
    QN_TRY(set_options(c->op, options, is_llama31, &p));
    QN_TRY(qni_check_indices(c->stream, c->op, "indptr", indptr, -1));
    if (indptr->shape[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: indptr is empty, needs at least one entry", c->op);
    p.segments = indptr->shape[0] - 1;
    QN_TRY(qni_check_indices(c->stream, c->op, "offsets", offsets, p.segments));
    p.indptr = qni_data(indptr);
    p.offsets = qni_data(offsets);
    if (p.segments == 0)
        return st;
    const rope_read read[] = {{"indptr", indptr}, {"offsets", offsets}, {}};
    if (qni_validates_indices(c->stream))
        QN_TRY(qni_validate_rising(c->stream, c->op, "indptr", p.indptr, p.segments + 1, p.n));
    QN_TRY(qni_rope_run(c, read, &p));
    return st;
}

static qn_status apply_by_position(const rope_call *c, const DLTensor *pos_ids,
                                   const qn_rope_options *options, bool is_llama31) {
    qni_rope_problem p;
    QN_TRY(qni_rope_set_q_k(c, &p));
    QN_TRY(set_options(c->op, options, is_llama31, &p));
    QN_TRY(qni_check_indices(c->stream, c->op, "pos_ids", pos_ids, p.n));
    p.pos_ids = qni_data(pos_ids);
    const rope_read read[] = {{"pos_ids", pos_ids}, {}};
    return qni_rope_run(c, read, &p);
}

qn_status qn_apply_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out, const DLTensor *q,
                        const DLTensor *k, const DLTensor *indptr, const DLTensor *offsets,
                        const qn_rope_options *options) {
    const rope_call c = {.op = "apply_rope", Q_AND_K};
    return apply_by_segments(&c, indptr, offsets, options, false);
}

qn_status qn_apply_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                const DLTensor *q, const DLTensor *k, const DLTensor *pos_ids,
                                const qn_rope_options *options) {
    const rope_call c = {.op = "apply_rope_pos_ids", Q_AND_K};
    return apply_by_position(&c, pos_ids, options, false);
}

qn_status qn_apply_llama31_rope(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                const DLTensor *q, const DLTensor *k, const DLTensor *indptr,
                                const DLTensor *offsets, const qn_rope_options *options) {
    const rope_call c = {.op = "apply_llama31_rope", Q_AND_K};
    return apply_by_segments(&c, indptr, offsets, options, true);
}

qn_status qn_apply_llama31_rope_pos_ids(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                        const DLTensor *q, const DLTensor *k,
                                        const DLTensor *pos_ids, const qn_rope_options *options) {
    const rope_call c = {.op = "apply_llama31_rope_pos_ids", Q_AND_K};
    return apply_by_position(&c, pos_ids, options, true);
}

// ---- by tables

qn_status qn_apply_rope_with_cos_sin_cache(qn_stream *stream, DLTensor *q_out, DLTensor *k_out,
                                           const DLTensor *q, const DLTensor *k,
                                           const DLTensor *cos_sin_cache, const DLTensor *positions,
                                           int32_t interleave) {
    const rope_call c = {.op = "apply_rope_with_cos_sin_cache", Q_AND_K};
    qni_rope_problem p;
    QN_TRY(qni_rope_set_q_k(&c, &p));
    p.is_interleaved = interleave != 0;
    QN_TRY(qni_rope_set_cache(&c, &p, cos_sin_cache, positions, "positions"));
    const rope_read read[] = {{"cos_sin_cache", cos_sin_cache}, {"positions", positions}, {}};
    return qni_rope_run(&c, read, &p);
}

/** A table of a row a token: [n, rotary_dim] or [n, rotary_dim / 2]. */
static qn_status check_table(const rope_call *c, const char *name, const DLTensor *t,
                             const qni_rope_problem *p) {
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, 2));
    const qni_dtype dtype = qni_dtype_of(t);
    if (dtype != QNI_F32 && dtype != p->dtype)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: q's (%s) and f32", c->op,
                       name, qni_dtype_name(dtype), qni_dtype_name(p->dtype));
    const int64_t half = p->rotary_dim / 2,
                  want[] = {p->inner, t->shape[1] == half ? half : p->rotary_dim};
    QN_TRY(qni_check_shape(c->op, name, t, 2, want));
    QN_TRY(qni_check_last_contiguous(c->op, name, t));
    return qni_check_alignment(c->op, name, t);
}

static qn_status set_tables(const rope_call *c, qni_rope_problem *p, const DLTensor *cosine,
                            const DLTensor *sine) {
    QN_TRY(check_table(c, "cos", cosine, p));
    QN_TRY(check_table(c, "sin", sine, p));
    if (qni_dtype_of(cosine) != qni_dtype_of(sine) || cosine->shape[1] != sine->shape[1] ||
        (p->inner > 1 && qni_stride(cosine, 0) != qni_stride(sine, 0)))
        return QN_FAIL(QN_E_INVALID, "%s: sin has not the dtype, shape and strides of cos", c->op);
    p->angles = QNI_ROPE_BY_TOKEN;
    p->dtype_table = qni_dtype_of(cosine);
    p->cos = qni_data(cosine);
    p->sin = qni_data(sine);
    p->table_row = qni_stride(cosine, 0);
    p->table_step = p->is_interleaved && cosine->shape[1] == p->rotary_dim ? 2 : 1;
    return QN_OK;
}

static qn_status set_weight(const rope_call *c, qni_rope_problem *p, int part, const char *name,
                            const DLTensor *t) {
    const int64_t want[] = {p->parts[QNI_ROPE_Q].width};
    QN_TRY(qni_check_tensor(c->stream, c->op, name, t, 1));
    if (qni_dtype_of(t) != p->dtype)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs q's, %s", c->op, name,
                       qni_dtype_text(t), qni_dtype_name(p->dtype));
    QN_TRY(qni_check_shape(c->op, name, t, 1, want));
    QN_TRY(qni_check_last_contiguous(c->op, name, t));
    QN_TRY(qni_check_alignment(c->op, name, t));
    p->parts[part].weight = qni_data(t);
    return QN_OK;
}

static qn_status set_norm(const rope_call *c, const qn_qk_rmsnorm_rope_args *a,
                          qni_rope_problem *p) {
    if (!a->q_weight && !a->k_weight)
        return QN_OK;
    if (!(a->eps >= 0 && a->eps <= __FLT_MAX__))
        return QN_FAIL(QN_E_INVALID, "%s: eps is %g; accepted: 0 or more, finite", c->op,
                       (double)a->eps);
    p->eps = a->eps;
    QN_TRY(set_weight(c, p, QNI_ROPE_Q, "q_weight", a->q_weight));
    if (a->k_weight && !a->k)
        return QN_FAIL(QN_E_INVALID, "%s: k_weight is given without k", c->op);
    if (a->k)
        QN_TRY(set_weight(c, p, QNI_ROPE_K, "k_weight", a->k_weight));
    return QN_OK;
}

qn_status qn_qk_rmsnorm_rope(qn_stream *stream, const qn_qk_rmsnorm_rope_args *args) {
    const char *op = "qk_rmsnorm_rope";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_qk_rmsnorm_rope_args, args);
    if (st != QN_OK)
        return st;
    const qn_qk_rmsnorm_rope_args a = *args;
    const rope_call c = {.op = op,
                         .stream = stream,
                         .parts = {[QNI_ROPE_Q] = {"q", "q_out", a.q, a.q_out},
                                   [QNI_ROPE_K] = {"k", "k_out", a.k, a.k_out}},
                         .may_have_batches = true,
                         .has_norm = a.q_weight || a.k_weight};
    qni_rope_problem p;
    QN_TRY(qni_rope_set_q_k(&c, &p));
    p.is_interleaved = a.interleave != 0;
    QN_TRY(qni_rope_set_rotary_dim(op, &p, a.rotary_dim));
    QN_TRY(set_norm(&c, &a, &p));
    QN_TRY(set_tables(&c, &p, a.cos, a.sin));
    const rope_read read[] = {
        {"q_weight", a.q_weight}, {"k_weight", a.k_weight}, {"cos", a.cos}, {"sin", a.sin}, {}};
    QN_TRY(qni_rope_run(&c, read, &p));
    return st;
}
