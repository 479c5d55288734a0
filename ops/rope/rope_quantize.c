// SPDX-License-Identifier: Apache-2.0
// The functions that rotate and quantise to FP8, to tensors or to a paged cache.
#include "../kvcache/pages.h"
#include "rope_call.h"

/** Checks an input of the call: [n, heads, width], or [n, width] where `may_be_latent`. */
static qn_status set_in(const rope_call *c, qni_rope_problem *p, int part, bool may_be_latent,
                        float scale) {
    const rope_tensor *t = &c->parts[part];
    const DLTensor *q = c->parts[QNI_ROPE_Q].in;
    const int ndim = may_be_latent && t->in && t->in->ndim == 2 ? 2 : 3;
    QN_TRY(qni_check_tensor(c->stream, c->op, t->name, t->in, ndim));
    const qni_dtype dtype = qni_dtype_of(t->in);
    if (!qni_is_float16_or_32(dtype) || (q != t->in && dtype != p->dtype))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: f32, f16, bf16, all alike",
                       c->op, t->name, qni_dtype_name(dtype));
    const int64_t want[] = {q->ndim > 0 ? q->shape[0] : 0, -1, -1};
    QN_TRY(qni_check_shape(c->op, t->name, t->in, ndim, want));
    QN_TRY(qni_check_last_contiguous(c->op, t->name, t->in));
    QN_TRY(qni_check_alignment(c->op, t->name, t->in));
    if (part == QNI_ROPE_Q)
        *p = (qni_rope_problem){.dtype = dtype,
                                .dtype_table = QNI_F32,
                                .dtype_out = QNI_DTYPE_NONE,
                                .n = want[0],
                                .inner = want[0] ? want[0] : 1};
    p->parts[part] = (qni_rope_rows){.in = qni_data(t->in),
                                     .in_token = qni_stride(t->in, 0),
                                     .in_head = ndim == 3 ? qni_stride(t->in, 1) : 0,
                                     .heads = ndim == 3 ? t->in->shape[1] : 1,
                                     .width = t->in->shape[ndim - 1],
                                     .scale = scale};
    return QN_OK;
}

/** All results are of one FP8 kind. */
static qn_status check_kind(const rope_call *c, qni_rope_problem *p, const char *name,
                            const DLTensor *t) {
    const qni_dtype dtype = qni_dtype_of(t);
    if (!qni_is_fp8(dtype) || (p->dtype_out != QNI_DTYPE_NONE && dtype != p->dtype_out))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: an FP8 kind, all alike",
                       c->op, name, qni_dtype_name(dtype));
    p->dtype_out = dtype;
    return QN_OK;
}

static qn_status set_out(const rope_call *c, qni_rope_problem *p, int part) {
    const rope_tensor *t = &c->parts[part];
    qni_rope_rows *r = &p->parts[part];
    QN_TRY(qni_check_tensor(c->stream, c->op, t->out_name, t->out, t->in->ndim));
    QN_TRY(check_kind(c, p, t->out_name, t->out));
    QN_TRY(qni_check_shape(c->op, t->out_name, t->out, t->in->ndim, t->in->shape));
    QN_TRY(qni_check_last_contiguous(c->op, t->out_name, t->out));
    QN_TRY(qni_check_elements_apart(c->op, t->out_name, t->out));
    r->out = qni_data(t->out);
    r->out_token = qni_stride(t->out, 0);
    r->out_head = t->out->ndim == 3 ? qni_stride(t->out, 1) : 0;
    return QN_OK;
}

static qn_status check_scale(const char *op, const char *name, float given, float *scale) {
    *scale = given != 0 ? given : 1;
    if (*scale > 0 && *scale <= __FLT_MAX__)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s is %g; accepted: above 0, finite", op, name,
                   (double)given);
}

typedef struct scales {
    float q, kv;
} scales;

/** Inputs, scales and angles: what both functions have. */
static qn_status set_inputs(const rope_call *c, scales given, const DLTensor *cache,
                            const DLTensor *pos_ids, qni_rope_problem *p) {
    scales s;
    QN_TRY(check_scale(c->op, "quant_scale_q", given.q, &s.q));
    QN_TRY(check_scale(c->op, "quant_scale_kv", given.kv, &s.kv));
    QN_TRY(set_in(c, p, QNI_ROPE_Q, false, s.q));
    QN_TRY(set_in(c, p, QNI_ROPE_K, true, s.kv));
    QN_TRY(qni_rope_set_cache(c, p, cache, pos_ids, "pos_ids"));
    for (int part = QNI_ROPE_Q; part <= QNI_ROPE_K; part++)
        if (p->parts[part].width != p->rotary_dim)
            return QN_FAIL(QN_E_INVALID, "%s: %s has heads of %ld, cos_sin_cache rows of %ld",
                           c->op, c->parts[part].name, (long)p->parts[part].width,
                           (long)p->rotary_dim);
    for (int part = QNI_ROPE_Q_NOPE; part < QNI_ROPE_PARTS; part++)
        if (c->parts[part].in)
            QN_TRY(
                set_in(c, p, part, part == QNI_ROPE_K_NOPE, part == QNI_ROPE_Q_NOPE ? s.q : s.kv));
    return QN_OK;
}

qn_status qn_rope_quantize_fp8(qn_stream *stream, const qn_rope_quantize_args *args) {
    const char *op = "rope_quantize_fp8";
    const qn_rope_quantize_args *a = args;
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_rope_quantize_args, a);
    if (st != QN_OK)
        return st;
    const rope_call c = {
        .op = op,
        .stream = stream,
        .parts = {[QNI_ROPE_Q] = {"q_rope", "q_rope_out", a->q_rope, a->q_rope_out},
                  [QNI_ROPE_K] = {"k_rope", "k_rope_out", a->k_rope, a->k_rope_out},
                  [QNI_ROPE_Q_NOPE] = {"q_nope", "q_nope_out", a->q_nope, a->q_nope_out},
                  [QNI_ROPE_K_NOPE] = {"k_nope", "k_nope_out", a->k_nope, a->k_nope_out}}};
    qni_rope_problem p;
    QN_TRY(set_inputs(&c, (scales){a->quant_scale_q, a->quant_scale_kv}, a->cos_sin_cache,
                      a->pos_ids, &p));
    p.is_interleaved = a->interleave != 0;
    for (int part = 0; part < QNI_ROPE_V; part++)
        if (c.parts[part].in || c.parts[part].out)
            QN_TRY(c.parts[part].in ? set_out(&c, &p, part)
                                    : QN_FAIL(QN_E_INVALID, "%s: %s is given without %s", op,
                                              c.parts[part].out_name, c.parts[part].name));
    const rope_read read[] = {{"cos_sin_cache", a->cos_sin_cache}, {"pos_ids", a->pos_ids}, {}};
    QN_TRY(qni_rope_run(&c, read, &p));
    return st;
}

// ---- to a cache

/** Rows of a cache take what begins `offset` elements into them. */
static void set_paged(qni_rope_rows *r, const qni_cache_view *view, int64_t offset) {
    r->out = (uint8_t *)view->data + offset; // FP8: a byte an element
    r->out_batch = view->page;
    r->out_token = view->place;
    r->out_head = view->head;
    r->is_paged = true;
}

/** The two caches, by the names of their arguments. */
typedef struct two_caches {
    const char *names[2];
    DLTensor *tensors[2];
} two_caches;

static qn_status set_caches(const rope_call *c, const qn_rope_quantize_append_args *a,
                            const two_caches *to, qni_rope_problem *p, qni_cache_view view[2]) {
    qni_rope_rows *rope = &p->parts[QNI_ROPE_K], *nope = &p->parts[QNI_ROPE_K_NOPE],
                  *v = &p->parts[QNI_ROPE_V];
    const bool is_latent = a->ckv_cache;
    const int64_t heads = is_latent ? -1 : rope->heads,
                  widths[] = {is_latent ? nope->width : rope->width + nope->width,
                              is_latent ? rope->width : v->width};
    if (is_latent ? a->v || rope->heads != 1 || nope->heads != 1 || a->k_cache || a->v_cache
                  : !a->v || v->heads != heads || (nope->heads && nope->heads != heads))
        return QN_FAIL(QN_E_INVALID,
                       "%s: accepted: k_cache and v_cache with v and as many heads of k_rope, "
                       "k_nope and v; or ckv_cache and kpe_cache with one head, without v",
                       c->op);
    for (int i = 0; i < 2; i++) {
        QN_TRY(qni_check_cache(c->stream, c->op, to->names[i], to->tensors[i],
                               is_latent ? QN_NHD : a->kv_layout, heads, widths[i], &view[i]));
        QN_TRY(check_kind(c, p, to->names[i], to->tensors[i]));
    }
    if (view[0].pages != view[1].pages || view[0].page_size != view[1].page_size)
        return QN_FAIL(QN_E_INVALID, "%s: %s has not the pages of %s", c->op, to->names[1],
                       to->names[0]);
    set_paged(rope, &view[is_latent], 0);
    if (nope->heads)
        set_paged(nope, &view[0], is_latent ? 0 : rope->width);
    if (v->heads)
        set_paged(v, &view[1], 0);
    return QN_OK;
}

/** A cache may meet nothing else. */
static qn_status check_caches_apart(const rope_call *c, const two_caches *to,
                                    const rope_read *read) {
    QN_TRY(qni_check_disjoint(c->op, to->names[1], to->tensors[1], to->names[0], to->tensors[0]));
    for (int i = 0; i < 2; i++) {
        for (int part = 0; part < QNI_ROPE_PARTS; part++) {
            const rope_tensor *t = &c->parts[part];
            QN_TRY(qni_check_disjoint(c->op, to->names[i], to->tensors[i], t->name, t->in));
            QN_TRY(qni_check_disjoint(c->op, to->names[i], to->tensors[i], t->out_name, t->out));
        }
        for (const rope_read *r = read; r->name; r++)
            QN_TRY(qni_check_disjoint(c->op, to->names[i], to->tensors[i], r->name, r->t));
    }
    return QN_OK;
}

qn_status qn_rope_quantize_fp8_append_paged_kv_cache(qn_stream *stream,
                                                     const qn_rope_quantize_append_args *args) {
    const char *op = "rope_quantize_fp8_append_paged_kv_cache";
    const qn_rope_quantize_append_args *a = args;
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_rope_quantize_append_args, a);
    if (st != QN_OK)
        return st;
    const rope_call c = {
        .op = op,
        .stream = stream,
        .parts = {[QNI_ROPE_Q] = {"q_rope", "q_rope_out", a->q_rope, a->q_rope_out},
                  [QNI_ROPE_K] = {"k_rope", "k_rope_out", a->k_rope, nullptr},
                  [QNI_ROPE_Q_NOPE] = {"q_nope", "q_nope_out", a->q_nope, a->q_nope_out},
                  [QNI_ROPE_K_NOPE] = {"k_nope", "k_nope_out", a->k_nope, nullptr},
                  [QNI_ROPE_V] = {"v", "v_out", a->v, nullptr}}};
    const two_caches to = {
        {a->ckv_cache ? "ckv_cache" : "k_cache", a->ckv_cache ? "kpe_cache" : "v_cache"},
        {a->ckv_cache ? a->ckv_cache : a->k_cache, a->ckv_cache ? a->kpe_cache : a->v_cache}};
    const qni_page_tensors tensors = {.batch_indices = a->batch_indices,
                                      .positions = a->positions,
                                      .kv_indices = a->kv_indices,
                                      .kv_indptr = a->kv_indptr};
    const rope_read read[] = {{"cos_sin_cache", a->cos_sin_cache},
                              {"pos_ids", a->pos_ids},
                              {"batch_indices", a->batch_indices},
                              {"positions", a->positions},
                              {"kv_indices", a->kv_indices},
                              {"kv_indptr", a->kv_indptr},
                              {}};
    qni_cache_view view[2];
    qni_rope_problem p;
    QN_TRY(set_inputs(&c, (scales){a->quant_scale_q, a->quant_scale_kv}, a->cos_sin_cache,
                      a->pos_ids, &p));
    p.is_interleaved = a->interleave != 0;
    QN_TRY(set_out(&c, &p, QNI_ROPE_Q));
    if (a->q_nope || a->q_nope_out)
        QN_TRY(a->q_nope ? set_out(&c, &p, QNI_ROPE_Q_NOPE)
                         : QN_FAIL(QN_E_INVALID, "%s: q_nope_out is given without q_nope", op));
    QN_TRY(set_caches(&c, a, &to, &p, view));
    QN_TRY(qni_check_pages(stream, op, &tensors, p.n, &view[0], &p.pages));
    QN_TRY(check_caches_apart(&c, &to, read));
    QN_TRY(qni_rope_run(&c, read, &p));
    return st;
}
