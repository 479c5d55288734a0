// SPDX-License-Identifier: Apache-2.0
// The functions that rotate and quantise to FP8, to tensors or to a paged cache.
#include "../kvcache/pages.h"
#include "rope_call.h"

/** Reads an input of the call: [n, heads, width], or [n, width] if `may_be_latent`. */
static qn_status read_in(rope_call *c, qni_rope_problem *p, int part, bool may_be_latent,
                         float scale) {
    const rope_tensor *given = &c->parts[part];
    qni_tensor *const t = &c->t[QNI_ROPE_IN + part], *const q = &c->t[QNI_ROPE_IN + QNI_ROPE_Q];
    const int ndim = may_be_latent && given->in && given->in->ndim == 2 ? 2 : 3;
    const int64_t n = t == q ? -1 : q->size[0];
    *t = (qni_tensor){
        .name = given->name,
        .t = given->in,
        .ndim = ndim,
        .dtypes = t == q ? qni_of_floats : 0,
        .like = t == q ? nullptr : q,
        .shape = (const int64_t[]){n, -1, -1},
        .has_rows = true,
    };
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    if (t == q)
        *p = (qni_rope_problem){.dtype = t->dtype,
                                .dtype_table = QNI_F32,
                                .dtype_out = QNI_DTYPE_NONE,
                                .n = t->size[0],
                                .inner = t->size[0] ? t->size[0] : 1};
    p->parts[part] = (qni_rope_rows){.in = t->data,
                                     .in_token = t->stride[0],
                                     .in_head = ndim == 3 ? t->stride[1] : 0,
                                     .heads = ndim == 3 ? t->size[1] : 1,
                                     .width = t->size[ndim - 1],
                                     .scale = scale};
    return QN_OK;
}

/** Checks that all results are of one FP8 kind. */
static qn_status check_kind(const rope_call *c, qni_rope_problem *p, const qni_tensor *t) {
    if (!qni_is_fp8(t->dtype) || (p->dtype_out != QNI_DTYPE_NONE && t->dtype != p->dtype_out))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: an FP8 kind, all alike",
                       c->of.op, t->name, qni_dtype_text(t->t));
    p->dtype_out = t->dtype;
    return QN_OK;
}

/** Reads the output of an input, which has the input's shape; without the input there is none. */
static qn_status read_out(rope_call *c, qni_rope_problem *p, int part) {
    const rope_tensor *given = &c->parts[part];
    const qni_tensor *const in = &c->t[QNI_ROPE_IN + part];
    qni_tensor *const out = &c->t[QNI_ROPE_OUT + part];
    if (!given->in && given->out)
        return QN_FAIL(QN_E_INVALID, "%s: %s is given without %s", c->of.op, given->out_name,
                       given->name);
    if (!given->in)
        return QN_OK;
    *out = (qni_tensor){
        .name = given->out_name,
        .t = given->out,
        .ndim = in->ndim,
        .shape = in->size,
        .has_rows = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, out, 1));
    QN_TRY(check_kind(c, p, out));
    p->parts[part].out = out->data;
    p->parts[part].out_token = out->stride[0];
    p->parts[part].out_head = out->ndim == 3 ? out->stride[1] : 0;
    return QN_OK;
}

static qn_status read_scale(const char *op, const char *name, float given, float *scale) {
    *scale = given != 0 ? given : 1;
    if (*scale > 0 && *scale <= __FLT_MAX__)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s is %g; accepted: above 0, finite", op, name,
                   (double)given);
}

typedef struct scales {
    float q, kv;
} scales;

/** Reads what both functions have: inputs, scales and angles. */
static qn_status read_inputs(rope_call *c, scales given, const DLTensor *cache,
                             const DLTensor *pos_ids, qni_rope_problem *p) {
    scales s;
    QN_TRY(read_scale(c->of.op, "quant_scale_q", given.q, &s.q));
    QN_TRY(read_scale(c->of.op, "quant_scale_kv", given.kv, &s.kv));
    QN_TRY(read_in(c, p, QNI_ROPE_Q, false, s.q));
    QN_TRY(read_in(c, p, QNI_ROPE_K, true, s.kv));
    QN_TRY(qni_rope_read_cache(c, p, cache, pos_ids, "pos_ids"));
    for (int part = QNI_ROPE_Q; part <= QNI_ROPE_K; part++)
        if (p->parts[part].width != p->rotary_dim)
            return QN_FAIL(QN_E_INVALID, "%s: %s has heads of %ld, cos_sin_cache rows of %ld",
                           c->of.op, c->parts[part].name, (long)p->parts[part].width,
                           (long)p->rotary_dim);
    for (int part = QNI_ROPE_Q_NOPE; part < QNI_ROPE_PARTS; part++)
        if (c->parts[part].in)
            QN_TRY(
                read_in(c, p, part, part == QNI_ROPE_K_NOPE, part == QNI_ROPE_Q_NOPE ? s.q : s.kv));
    return QN_OK;
}

qn_status qn_rope_quantize_fp8(qn_stream *stream, const qn_rope_quantize_args *args) {
    const char *op = "rope_quantize_fp8";
    const qn_rope_quantize_args *a = args;
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_rope_quantize_args, a);
    if (st != QN_OK)
        return st;
    rope_call c = {
        .of = {op, stream},
        .stream = stream,
        .parts = {[QNI_ROPE_Q] = {"q_rope", "q_rope_out", a->q_rope, a->q_rope_out},
                  [QNI_ROPE_K] = {"k_rope", "k_rope_out", a->k_rope, a->k_rope_out},
                  [QNI_ROPE_Q_NOPE] = {"q_nope", "q_nope_out", a->q_nope, a->q_nope_out},
                  [QNI_ROPE_K_NOPE] = {"k_nope", "k_nope_out", a->k_nope, a->k_nope_out}}};
    qni_rope_problem p;
    QN_TRY(read_inputs(&c, (scales){a->quant_scale_q, a->quant_scale_kv}, a->cos_sin_cache,
                       a->pos_ids, &p));
    p.is_interleaved = a->interleave != 0;
    for (int part = 0; part < QNI_ROPE_V; part++)
        QN_TRY(read_out(&c, &p, part));
    return qni_rope_run(&c, &p);
}

// ---- to a cache

/** Makes rows go to a cache, `offset` elements behind the begin of each of its rows. */
static void set_paged(qni_rope_rows *r, const qni_cache_view *view, int64_t offset) {
    r->out = (uint8_t *)view->data + offset; // FP8: an element is a byte
    r->out_batch = view->page;
    r->out_token = view->place;
    r->out_head = view->head;
    r->is_paged = true;
}

/** The two caches, and the names of their arguments. */
typedef struct two_caches {
    const char *names[2];
    DLTensor *tensors[2];
} two_caches;

static qn_status read_caches(rope_call *c, const qn_rope_quantize_append_args *a,
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
                       c->of.op);
    for (int i = 0; i < 2; i++) {
        qni_tensor *const cache = qni_rope_next(c);
        QN_TRY(qni_read_cache(&c->of, cache, to->names[i], to->tensors[i],
                              is_latent ? QN_NHD : a->kv_layout, heads, widths[i], &view[i]));
        QN_TRY(check_kind(c, p, cache));
    }
    if (view[0].pages != view[1].pages || view[0].page_size != view[1].page_size)
        return QN_FAIL(QN_E_INVALID, "%s: %s has not the pages of %s", c->of.op, to->names[1],
                       to->names[0]);
    set_paged(rope, &view[is_latent], 0);
    if (nope->heads)
        set_paged(nope, &view[0], is_latent ? 0 : rope->width);
    if (v->heads)
        set_paged(v, &view[1], 0);
    return QN_OK;
}

qn_status qn_rope_quantize_fp8_append_paged_kv_cache(qn_stream *stream,
                                                     const qn_rope_quantize_append_args *args) {
    const char *op = "rope_quantize_fp8_append_paged_kv_cache";
    const qn_rope_quantize_append_args *a = args;
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_rope_quantize_append_args, a);
    if (st != QN_OK)
        return st;
    rope_call c = {.of = {op, stream},
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
    qni_cache_view view[2];
    qni_rope_problem p;
    QN_TRY(read_inputs(&c, (scales){a->quant_scale_q, a->quant_scale_kv}, a->cos_sin_cache,
                       a->pos_ids, &p));
    p.is_interleaved = a->interleave != 0;
    QN_TRY(read_out(&c, &p, QNI_ROPE_Q));
    QN_TRY(read_out(&c, &p, QNI_ROPE_Q_NOPE));
    QN_TRY(read_caches(&c, a, &to, &p, view));
    QN_TRY(qni_read_pages(stream, &c.of, &tensors, p.n, &view[0], &c.t[QNI_ROPE_REST + c.num_rest],
                          &p.pages));
    c.num_rest += QNI_MAX_PAGE_TENSORS;
    return qni_rope_run(&c, &p);
}
