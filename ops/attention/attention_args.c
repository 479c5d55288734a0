// SPDX-License-Identifier: Apache-2.0
// Checks a call of qn_attention and turns it into what kernels take.
#include "../rope/rope.h"
#include "attention.h"

#include <string.h>

#define OP "attention"
#define INVALID(...) QN_FAIL(QN_E_INVALID, OP ": " __VA_ARGS__)
#define UNSUPPORTED(...) QN_FAIL(QN_E_UNSUPPORTED, OP ": " __VA_ARGS__)

/** A tensor of tokens and heads, in elements. */
typedef struct view {
    qk_attention_rows rows;
    int64_t blocks, tokens, heads, dim;
} view;

/** One call on its way to a problem. */
typedef struct call {
    const qn_stream *stream;
    const qn_attention_args *args;
    qni_attention_problem *p;
    view q, k, v;
    bool is_paged, is_dense_q, is_dense_kv;
    int64_t requests;
} call;

// ---- tensors

/** Which dimension holds tokens; heads have the other of the two before the last. */
static int token_dim(int ndim, bool is_hnd) {
    return ndim - 3 + is_hnd;
}

static qn_status get_view(const call *c, const char *name, const DLTensor *t, int ndim, bool is_hnd,
                          view *out) {
    const int token = token_dim(ndim, is_hnd), head = 2 * ndim - 5 - token;
    QN_TRY(qni_check_tensor(c->stream, OP, name, t, ndim));
    QN_TRY(qni_check_dtype(OP, name, t, qni_of_floats | qni_of_fp8));
    QN_TRY(qni_check_last_contiguous(OP, name, t));
    QN_TRY(qni_check_alignment(OP, name, t));
    *out = (view){.rows = {.data = qni_data(t),
                           .block = ndim == 4 ? qni_stride(t, 0) : 0,
                           .token = qni_stride(t, token),
                           .head = qni_stride(t, head)},
                  .blocks = ndim == 4 ? t->shape[0] : 1,
                  .tokens = t->shape[token],
                  .heads = t->shape[head],
                  .dim = t->shape[ndim - 1]};
    if (out->tokens > INT32_MAX || out->blocks > INT32_MAX)
        return UNSUPPORTED("%s has %ld tokens in each of %ld; fewer than 2^31 are accepted", name,
                           (long)out->tokens, (long)out->blocks);
    if (out->dim < 1 || out->dim > QK_ATTENTION_MAX_HEAD_DIM)
        return UNSUPPORTED(
            "%s has head_dim %ld; accepted: 1 to %d (fast: multiples of 8 up to 256)", name,
            (long)out->dim, QK_ATTENTION_MAX_HEAD_DIM);
    return QN_OK;
}

static qn_status check_inputs(call *c) {
    const qn_attention_args *a = c->args;
    const bool is_hnd = a->layout == QN_HND;
    const int kv_ndim = c->is_paged || c->is_dense_kv ? 4 : 3;
    QN_TRY(get_view(c, "q", a->q, c->is_dense_q ? 4 : 3, is_hnd && c->is_dense_q, &c->q));
    QN_TRY(get_view(c, "k", a->k, kv_ndim, is_hnd, &c->k));
    QN_TRY(get_view(c, "v", a->v, kv_ndim, is_hnd, &c->v));
    if (c->k.dim != c->q.dim)
        return INVALID("k has head_dim %ld, q %ld; both need the same", (long)c->k.dim,
                       (long)c->q.dim);
    if (c->k.blocks != c->v.blocks || c->k.tokens != c->v.tokens || c->k.heads != c->v.heads) {
        char k[128], v[128];
        return INVALID("k is %s, v %s; all but head_dim need to be the same",
                       qni_tensor_text(a->k, k, sizeof k), qni_tensor_text(a->v, v, sizeof v));
    }
    if (c->k.heads < 1 || c->q.heads < 1 || c->q.heads % c->k.heads != 0)
        return INVALID("num_qo_heads %ld is no multiple of num_kv_heads %ld", (long)c->q.heads,
                       (long)c->k.heads);
    if (qni_dtype_of(a->k) != qni_dtype_of(a->v))
        return UNSUPPORTED("k has dtype %s, v %s; both need the same", qni_dtype_text(a->k),
                           qni_dtype_text(a->v));
    return QN_OK;
}

/** o, and lse if it is there: q's shape. */
static qn_status check_outputs(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    int64_t want[4];
    view o;
    const int ndim = a->q->ndim, token = token_dim(ndim, a->layout == QN_HND && ndim == 4);
    memcpy(want, a->q->shape, (size_t)ndim * sizeof *want);
    want[ndim - 1] = c->v.dim;
    QN_TRY(get_view(c, "o", a->o, ndim, a->layout == QN_HND && ndim == 4, &o));
    QN_TRY(qni_check_shape(OP, "o", a->o, ndim, want));
    QN_TRY(qni_check_elements_apart(OP, "o", a->o));
    QN_TRY(qni_check_dtype(OP, "o", a->o, qni_of_floats));
    g->o = qni_data(a->o);
    g->o_batch = o.rows.block, g->o_token = o.rows.token, g->o_head = o.rows.head;
    if (!a->lse)
        return QN_OK;
    QN_TRY(qni_check_tensor(c->stream, OP, "lse", a->lse, ndim - 1));
    QN_TRY(qni_check_dtype(OP, "lse", a->lse, qni_of_f32));
    QN_TRY(qni_check_shape(OP, "lse", a->lse, ndim - 1, want));
    QN_TRY(qni_check_alignment(OP, "lse", a->lse));
    QN_TRY(qni_check_elements_apart(OP, "lse", a->lse));
    g->lse = qni_data(a->lse);
    g->lse_batch = ndim == 4 ? qni_stride(a->lse, 0) : 0;
    g->lse_token = qni_stride(a->lse, token);
    g->lse_head = qni_stride(a->lse, 2 * ndim - 5 - token);
    return QN_OK;
}

static qn_status check_overlap(const call *c) {
    const qn_attention_args *a = c->args;
    const struct {
        const char *name;
        const DLTensor *t;
    } read[] = {{"q", a->q},
                {"k", a->k},
                {"v", a->v},
                {"kv_indices", a->kv_indices},
                {"schedule", a->schedule},
                {"mask", a->mask},
                {"custom_mask", a->custom_mask},
                {"q_scales", a->q_scales},
                {"k_scales", a->k_scales},
                {"v_scales", a->v_scales},
                {"sinks", a->sinks}},
      written[] = {{"o", a->o}, {"lse", a->lse}, {"workspace", a->workspace}};
    for (size_t w = 0; w < sizeof written / sizeof *written; w++) {
        for (size_t r = 0; r < sizeof read / sizeof *read; r++)
            QN_TRY(qni_check_disjoint(OP, written[w].name, written[w].t, read[r].name, read[r].t));
        for (size_t other = 0; other < w; other++)
            QN_TRY(qni_check_disjoint(OP, written[w].name, written[w].t, written[other].name,
                                      written[other].t));
    }
    return QN_OK;
}

// ---- the plan, or uniform requests

/** As many rows of queries, heads and chunks of keys as kernels count. */
static qn_status check_rows(int64_t requests, int64_t queries, int64_t heads, int64_t chunks) {
    const double rows = (double)requests * (double)queries * (double)heads * (double)chunks;
    if (!(rows < 0x1p31))
        return UNSUPPORTED("%.0f rows of queries, heads and chunks of keys; fewer than 2^31 are "
                           "accepted",
                           rows);
    return QN_OK;
}

static qn_status check_uniform(call *c) {
    qk_attention_args *g = &c->p->args;
    if (c->args->schedule)
        return INVALID("schedule is given, plan is null; both need the same bytes");
    if (!c->is_dense_q || !c->is_dense_kv)
        return INVALID("plan is null; %s needs one",
                       c->is_dense_q ? "paged or ragged k" : "ragged q");
    if (c->q.blocks != c->k.blocks)
        return INVALID("k has batch %ld, q %ld; both need the same", (long)c->k.blocks,
                       (long)c->q.blocks);
    c->requests = c->q.blocks;
    g->requests = (uint32_t)c->requests;
    g->qo_len = (uint32_t)c->q.tokens;
    g->kv_len = (uint32_t)c->k.tokens;
    g->kv_chunk = (uint32_t)qni_attention_default_chunk(c->q.tokens, c->k.tokens);
    g->q_tile = QK_ATTENTION_MAX_TILE;
    g->dropout_queries = g->qo_len;
    g->dropout_quads = qk_attention_div_up(g->kv_len, 4);
    c->p->max_rows = c->q.tokens * (c->q.heads / c->k.heads);
    return check_rows(c->requests, c->q.tokens, c->q.heads, qk_attention_uniform_chunks(g));
}

/** The plan was made for tensors such as these. */
static qn_status check_plan_tensors(call *c, const qk_attention_schedule *s) {
    const int64_t entries = c->is_paged ? c->args->kv_indices->shape[0] : c->k.tokens;
    const char *const kv_name = c->is_paged ? "kv_indices" : "k";
    if (s->num_qo_heads != c->q.heads || s->num_kv_heads != c->k.heads ||
        s->head_dim_vo != c->v.dim)
        return INVALID("plan is for %d and %d heads and v of %d; q has %ld, k %ld, v is of %ld",
                       s->num_qo_heads, s->num_kv_heads, s->head_dim_vo, (long)c->q.heads,
                       (long)c->k.heads, (long)c->v.dim);
    if (s->page_size != (c->is_paged ? c->k.tokens : 0))
        return INVALID("plan is for page_size %d, k has %ld", s->page_size,
                       c->is_paged ? (long)c->k.tokens : 0);
    if (s->is_dense_q != c->is_dense_q || (!c->is_paged && s->is_dense_kv != c->is_dense_kv))
        return INVALID("plan is for %s q and %s k; q has %d dimensions, k %d",
                       s->is_dense_q ? "dense" : "ragged", s->is_dense_kv ? "dense" : "ragged",
                       c->args->q->ndim, c->args->k->ndim);
    if ((s->is_dense_q && s->num_requests != c->q.blocks) ||
        (!c->is_paged && s->is_dense_kv && s->num_requests != c->k.blocks))
        return INVALID("plan is for %u requests, %s has batch %ld", s->num_requests,
                       s->is_dense_q ? "q" : "k",
                       (long)(s->is_dense_q ? c->q.blocks : c->k.blocks));
    if (s->qo_end > c->q.tokens)
        return INVALID("q has %ld tokens, the plan needs %ld", (long)c->q.tokens, (long)s->qo_end);
    if (s->qo_end < c->q.tokens && !s->is_for_graph)
        return INVALID("q has %ld tokens, the plan is for %ld; more are accepted with is_for_graph",
                       (long)c->q.tokens, (long)s->qo_end);
    if (s->kv_end > entries)
        return INVALID("%s has %ld entries, the plan needs %ld", kv_name, (long)entries,
                       (long)s->kv_end);
    return QN_OK;
}

static qn_status check_plan(call *c) {
    const qn_attention_args *a = c->args;
    const qk_attention_schedule *s = a->plan;
    const bool is_cpu = c->stream->device->id.device_type == kDLCPU;
    qk_attention_args *g = &c->p->args;
    const int64_t want[] = {a->plan_bytes};
    const char *const fault =
        qni_attention_check_plan(s, a->plan_bytes, is_cpu || qni_env_get()->validate);
    if (fault)
        return INVALID("plan %s", fault);
    QN_TRY(check_plan_tensors(c, s));
    if (!is_cpu || a->schedule) {
        QN_TRY(qni_check_tensor(c->stream, OP, "schedule", a->schedule, 1));
        if (qni_dtype_of(a->schedule) != QNI_U8 || (uintptr_t)qni_data(a->schedule) % 8 != 0)
            return INVALID("schedule has dtype %s at %p; accepted: u8 at a multiple of 8",
                           qni_dtype_text(a->schedule), qni_data(a->schedule));
        QN_TRY(qni_check_shape(OP, "schedule", a->schedule, 1, want));
    }
    c->requests = s->num_requests;
    c->p->plan = s;
    c->p->max_rows = (int64_t)s->max_qo_len * (c->q.heads / c->k.heads);
    g->schedule = is_cpu ? s : qni_data(a->schedule);
    g->dropout_queries = (uint32_t)s->max_qo_len;
    g->dropout_quads = qk_attention_div_up((uint32_t)s->max_kv_len, 4);
    return QN_OK;
}

int64_t qni_attention_workspace_rows(const qni_attention_problem *p) {
    const int64_t chunks = qk_attention_uniform_chunks(&p->args);
    if (p->plan)
        return p->plan->workspace_rows;
    return chunks > 1 ? chunks * p->args.requests * p->args.qo_len * p->args.group : 0;
}

static qn_status check_workspace(call *c) {
    const DLTensor *w = c->args->workspace;
    qk_attention_args *g = &c->p->args;
    const int64_t rows = qni_attention_workspace_rows(c->p);
    const int64_t bytes = qni_attention_workspace_bytes(rows, c->k.heads, c->v.dim);
    const bool may_grow = c->p->plan && c->p->plan->is_for_graph && w;
    if (!w && bytes > 0)
        return INVALID("workspace is null, needs %ld bytes", (long)bytes);
    if (w)
        QN_TRY(qni_check_tensor(c->stream, OP, "workspace", w, 1));
    if (bytes == 0 && !may_grow)
        return QN_OK;
    if (qni_dtype_of(w) != QNI_U8 || (uintptr_t)qni_data(w) % 16 != 0)
        return INVALID("workspace has dtype %s at %p; accepted: u8 at a multiple of 16",
                       qni_dtype_text(w), qni_data(w));
    QN_TRY(qni_check_last_contiguous(OP, "workspace", w));
    if (w->shape[0] < bytes)
        return INVALID("workspace has %ld bytes, needs %ld", (long)w->shape[0], (long)bytes);
    g->partial_o = qni_data(w);
    // As many rows as there is room for: later plans of a captured graph find partial_lse where it
    // was.
    const int64_t room = w->shape[0] / qni_attention_workspace_bytes(1, c->k.heads, c->v.dim);
    g->partial_lse = g->partial_o + room * c->k.heads * c->v.dim;
    return QN_OK;
}

// ---- pages

static qn_status check_pages(call *c) {
    const DLTensor *t = c->args->kv_indices;
    if (!c->is_paged)
        return QN_OK;
    QN_TRY(qni_check_indices(c->stream, OP, "kv_indices", t, -1));
    if (c->k.tokens == 0)
        return INVALID("k has pages of 0, needs 1 or more");
    c->p->args.kv_indices = qni_data(t);
    c->p->args.page_size = (uint32_t)c->k.tokens;
    return QN_OK;
}

// ---- masks

static bool is_bool(const DLTensor *t) {
    return (t->dtype.code == kDLBool || t->dtype.code == kDLUInt) && t->dtype.bits == 8 &&
           t->dtype.lanes == 1;
}

/** Stride of the mask's dimension that is `from_last` before the last, of which `size` are
 *  needed. */
static qn_status mask_stride(const DLTensor *t, int from_last, int64_t size, int64_t *stride) {
    const int i = t->ndim - 1 - from_last;
    *stride = 0;
    if (i < 0 || t->shape[i] == 1)
        return QN_OK;
    if (t->shape[i] != size) {
        char text[128];
        return INVALID("mask is %s; its dimension %d needs to be 1 or %ld",
                       qni_tensor_text(t, text, sizeof text), i, (long)size);
    }
    *stride = qni_stride(t, i);
    return QN_OK;
}

static qn_status check_mask(call *c) {
    const qn_attention_args *a = c->args;
    const DLTensor *t = a->mask;
    qk_attention_args *g = &c->p->args;
    if (!t)
        return QN_OK;
    if (a->is_causal)
        return INVALID("mask and is_causal are both given; accepted: one of them");
    if (a->custom_mask)
        return INVALID("mask and custom_mask are both given; accepted: one of them");
    if (!c->is_dense_q || !c->is_dense_kv)
        return INVALID("mask is for dense q and k; custom_mask is for all");
    if (t->ndim < 2 || t->ndim > 4)
        return INVALID("mask has %d dimensions; accepted: 2 to 4", t->ndim);
    QN_TRY(qni_check_tensor(c->stream, OP, "mask", t, t->ndim));
    const qni_dtype dtype = qni_dtype_of(t);
    if (is_bool(t))
        g->mask_kind = QK_MASK_BOOL;
    else if (qni_is_float16_or_32(dtype))
        g->mask_kind = QK_MASK_F32 + (uint32_t)(dtype - QNI_F32);
    else
        return UNSUPPORTED("mask has dtype %s; accepted: bool, u8, f32, f16, bf16",
                           qni_dtype_text(t));
    if ((uintptr_t)qni_data(t) % (t->dtype.bits / 8u) != 0)
        return INVALID("mask is at %p, needs a multiple of its element's size", qni_data(t));
    QN_TRY(mask_stride(t, 0, c->k.tokens, &g->mask_key));
    QN_TRY(mask_stride(t, 1, c->q.tokens, &g->mask_query));
    QN_TRY(mask_stride(t, 2, c->q.heads, &g->mask_head));
    QN_TRY(mask_stride(t, 3, c->requests, &g->mask_batch));
    g->mask = qni_data(t);
    return QN_OK;
}

static qn_status check_custom_mask(call *c) {
    const DLTensor *t = c->args->custom_mask;
    if (!t)
        return QN_OK;
    const int64_t bytes =
        c->p->plan ? c->p->plan->mask_bytes : c->requests * ((c->q.tokens * c->k.tokens + 7) / 8);
    QN_TRY(qni_check_tensor(c->stream, OP, "custom_mask", t, 1));
    if (qni_dtype_of(t) != QNI_U8)
        return UNSUPPORTED("custom_mask has dtype %s; accepted: u8, packed bits",
                           qni_dtype_text(t));
    QN_TRY(qni_check_last_contiguous(OP, "custom_mask", t));
    if (t->shape[0] != bytes)
        return INVALID(
            "custom_mask has %ld bytes, needs %ld: qo_len * kv_len bits for each request",
            (long)t->shape[0], (long)bytes);
    c->p->args.custom_mask = qni_data(t);
    return QN_OK;
}

static qn_status check_window(const char *name, bool is_there, int64_t value, int32_t *bound) {
    if (is_there && (value < 0 || value > INT32_MAX))
        return INVALID("%s is %ld; accepted: 0 to 2^31 - 1", name, (long)value);
    *bound = is_there ? (int32_t)value : INT32_MAX;
    return QN_OK;
}

static qn_status check_bounds(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    QN_TRY(check_window("window_left", a->has_window_left, a->window_left, &g->left));
    QN_TRY(check_window("window_right", a->has_window_right, a->window_right, &g->right));
    if (a->is_causal && !a->custom_mask)
        g->right = 0;
    g->is_top_left = a->is_top_left != 0;
    return QN_OK;
}

// ---- scalars and vectors

static qn_status check_vector(const call *c, const char *name, const DLTensor *t, int64_t count,
                              const float **out) {
    *out = nullptr;
    if (!t)
        return QN_OK;
    QN_TRY(qni_check_tensor(c->stream, OP, name, t, 1));
    QN_TRY(qni_check_dtype(OP, name, t, qni_of_f32));
    QN_TRY(qni_check_shape(OP, name, t, 1, &count));
    QN_TRY(qni_check_last_contiguous(OP, name, t));
    QN_TRY(qni_check_alignment(OP, name, t));
    *out = qni_data(t);
    return QN_OK;
}

static float or_default(float x, float otherwise) {
    return __builtin_fabsf(x) > 0 || x != x ? x : otherwise;
}

static qn_status check_scalars(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    const float own = 1 / sqrtf((float)c->q.dim);
    g->scale = or_default(a->sm_scale, own) * or_default(a->q_scale, 1) * or_default(a->k_scale, 1);
    g->v_scale = or_default(a->v_scale, 1);
    g->soft_cap = a->logits_soft_cap;
    g->lse_unit = a->lse_base == QN_LSE_BASE_E ? 0x1.62E43p-1f : 1.0f; // ln 2
    g->pos_encoding = (uint32_t)a->pos_encoding;
    c->p->rope_scale = or_default(a->rope_scale, 1);
    c->p->rope_theta = or_default(a->rope_theta, 1e4f);
    if (!isfinite(g->scale) || !isfinite(g->v_scale))
        return INVALID("scales are %g (of scores) and %g (of v); accepted: finite ones",
                       (double)g->scale, (double)g->v_scale);
    if (!(g->soft_cap >= 0) || isinf(g->soft_cap))
        return INVALID("logits_soft_cap is %g; accepted: 0 (off) or above", (double)g->soft_cap);
    if (a->lse_base != QN_LSE_BASE_2 && a->lse_base != QN_LSE_BASE_E)
        return INVALID("lse_base is %d; accepted: QN_LSE_BASE_2, QN_LSE_BASE_E", a->lse_base);
    if (a->pos_encoding < QN_POS_NONE || a->pos_encoding > QN_POS_ALIBI)
        return INVALID("pos_encoding is %d; accepted: QN_POS_NONE, QN_POS_ROPE_LLAMA, QN_POS_ALIBI",
                       a->pos_encoding);
    if (a->pos_encoding == QN_POS_ALIBI && g->soft_cap > 0)
        return UNSUPPORTED("logits_soft_cap with QN_POS_ALIBI; accepted: one of them");
    if (a->pos_encoding == QN_POS_ROPE_LLAMA && c->q.dim % 2 != 0)
        return INVALID("QN_POS_ROPE_LLAMA needs an even head_dim, q has %ld", (long)c->q.dim);
    if (!(c->p->rope_scale > 0) || !(c->p->rope_theta > 0))
        return INVALID("rope_scale is %g, rope_theta %g; accepted: above 0",
                       (double)c->p->rope_scale, (double)c->p->rope_theta);
    if (a->pos_encoding == QN_POS_ROPE_LLAMA) {
        const qni_rope_law law = {.theta = c->p->rope_theta, .scale = c->p->rope_scale};
        qni_rope_turns(&law, c->q.dim, c->p->turns);
    }
    return QN_OK;
}

static qn_status check_dropout(call *c) {
    const qn_attention_args *a = c->args;
    if (!(a->dropout_p >= 0 && a->dropout_p < 1))
        return INVALID("dropout_p is %g; accepted: 0 to below 1", (double)a->dropout_p);
    c->p->dropout_p = a->dropout_p;
    qni_attention_set_dropout(&c->p->args, a->dropout_p, a->dropout_seed, a->dropout_offset);
    return QN_OK;
}

void qni_attention_set_dropout(qk_attention_args *g, float p, uint64_t seed, uint64_t offset) {
    g->has_dropout = p > 0;
    g->dropout_seed = seed;
    g->dropout_offset = offset;
    g->dropout_threshold = (int32_t)(((double)p - 0.5) * 0xFFFFFFFFp0);
    g->dropout_scale = 1 / (1 - p);
}

// ---- all together

static qn_status check_shape_of_call(call *c) {
    const qn_attention_args *a = c->args;
    if (a->layout != QN_NHD && a->layout != QN_HND)
        return INVALID("layout is %d; accepted: QN_NHD, QN_HND", a->layout);
    if (!a->q || !a->k)
        return INVALID("%s is null", a->q ? "k" : "q");
    c->is_paged = a->kv_indices != nullptr;
    c->is_dense_q = a->q->ndim == 4;
    c->is_dense_kv = a->k->ndim == 4 && !c->is_paged;
    return QN_OK;
}

qn_status qni_attention_make(const qn_stream *stream, const qn_attention_args *args,
                             qni_attention_problem *p) {
    call c = {.stream = stream, .args = args, .p = p};
    *p = (qni_attention_problem){};
    QN_TRY(check_shape_of_call(&c));
    QN_TRY(check_inputs(&c));
    p->dtype = qni_dtype_of(args->q);
    p->dtype_kv = qni_dtype_of(args->k);
    p->args = (qk_attention_args){.q = c.q.rows,
                                  .k = c.k.rows,
                                  .v = c.v.rows,
                                  .num_kv_heads = (uint32_t)c.k.heads,
                                  .group = (uint32_t)(c.q.heads / c.k.heads),
                                  .head_dim_qk = (uint32_t)c.q.dim,
                                  .head_dim_vo = (uint32_t)c.v.dim,
                                  .dtype_q = (uint32_t)p->dtype,
                                  .dtype_kv = (uint32_t)p->dtype_kv};
    QN_TRY(check_outputs(&c));
    p->dtype_o = qni_dtype_of(args->o);
    p->args.dtype_o = (uint32_t)p->dtype_o;
    QN_TRY(check_pages(&c));
    QN_TRY(args->plan ? check_plan(&c) : check_uniform(&c));
    QN_TRY(check_custom_mask(&c));
    QN_TRY(check_mask(&c));
    QN_TRY(check_bounds(&c));
    QN_TRY(check_scalars(&c));
    QN_TRY(check_dropout(&c));
    QN_TRY(check_vector(&c, "q_scales", args->q_scales, c.q.heads, &p->args.q_scales));
    QN_TRY(check_vector(&c, "k_scales", args->k_scales, c.k.heads, &p->args.k_scales));
    QN_TRY(check_vector(&c, "v_scales", args->v_scales, c.k.heads, &p->args.v_scales));
    QN_TRY(check_vector(&c, "sinks", args->sinks, c.q.heads, &p->args.sinks));
    QN_TRY(check_workspace(&c));
    return check_overlap(&c);
}

/** A dense tensor's shape alone. */
static qn_status check_dense_shape(const char *name, const DLTensor *t) {
    if (!t->shape)
        return INVALID("%s has a null shape", name);
    for (int i = 0; i < 4; i++)
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX)
            return INVALID("%s has %ld in dimension %d; accepted: 0 to 2^31 - 1", name,
                           (long)t->shape[i], i);
    return QN_OK;
}

qn_status qn_attention_workspace_bytes(int64_t *bytes, const qn_attention_args *a) {
    if (!bytes)
        return INVALID("bytes is null");
    QN_TRY(QNI_CHECK_STRUCT(OP, "args", qn_attention_args, a));
    if (!a->q || !a->k || !a->v)
        return INVALID("q, k or v is null");
    if (a->plan || a->q->ndim != 4 || a->k->ndim != 4 || a->v->ndim != 4)
        return INVALID("q and k are not dense; qn_attention_plan tells their workspace");
    const int token = token_dim(4, a->layout == QN_HND);
    QN_TRY(check_dense_shape("q", a->q));
    QN_TRY(check_dense_shape("k", a->k));
    QN_TRY(check_dense_shape("v", a->v));
    const int64_t qo_len = a->q->shape[token], kv_len = a->k->shape[token];
    const int64_t heads = a->q->shape[3 - token];
    const int64_t chunk = qni_attention_default_chunk(qo_len, kv_len);
    const int64_t chunks = kv_len > chunk ? (kv_len + chunk - 1) / chunk : 1;
    QN_TRY(check_rows(a->q->shape[0], qo_len, heads, chunks));
    const int64_t rows = chunks > 1 ? chunks * a->q->shape[0] * qo_len : 0;
    *bytes = qni_attention_workspace_bytes(rows, heads, a->v->shape[3]);
    return QN_OK;
}
