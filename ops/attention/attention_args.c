// SPDX-License-Identifier: Apache-2.0
// Reads a call of qn_attention and makes the problem that kernels take.
#include "../rope/rope.h"
#include "attention.h"

#include <string.h>

#define OP "attention"
// c: the call
#define INVALID(format, ...)                                                                       \
    QN_FAIL(QN_E_INVALID, "%s: " format, c->of.op __VA_OPT__(, ) __VA_ARGS__)
#define UNSUPPORTED(format, ...)                                                                   \
    QN_FAIL(QN_E_UNSUPPORTED, "%s: " format, c->of.op __VA_OPT__(, ) __VA_ARGS__)

enum {
    Q,
    K,
    V,
    KV_INDICES,
    SCHEDULE,
    MASK,
    CUSTOM_MASK,
    Q_SCALES,
    K_SCALES,
    V_SCALES,
    SINKS,
    O,
    LSE,
    WORKSPACE,
    NUM_TENSORS
};
static_assert(Q == QNI_ATTENTION_Q && K == QNI_ATTENTION_K && V == QNI_ATTENTION_V &&
              MASK == QNI_ATTENTION_MASK && SINKS == QNI_ATTENTION_SINKS && O == QNI_ATTENTION_O &&
              NUM_TENSORS == QNI_ATTENTION_TENSORS);

/** Sizes of a tensor of tokens and heads. */
typedef struct sizes {
    int64_t blocks, tokens, heads, dim;
} sizes;

/** A call whose arguments become a problem: each tensor is described and read where the problem
 *  gets it. */
typedef struct call {
    qni_call of;
    const qn_attention_args *args;
    qni_attention_problem *p;
    qni_tensor *t;
    sizes q, k, v;
    bool is_paged, is_dense_q, is_dense_kv;
    int64_t requests;
} call;

/** Reads a tensor that has been described. */
static qn_status read_one(call *c, int which) {
    return qni_read_tensors(&c->of, &c->t[which], 1);
}

// ---- q, k and v

/** Returns the dimension of tokens; heads are the other of the two dimensions before the last. */
static int token_dim(int ndim, bool is_hnd) {
    return ndim - 3 + is_hnd;
}

qk_attention_rows qni_attention_rows(const qni_tensor *t, bool is_hnd) {
    const int token = token_dim(t->ndim, is_hnd), head = 2 * t->ndim - 5 - token;
    return (qk_attention_rows){.data = t->data,
                               .block = t->ndim == 4 ? t->stride[0] : 0,
                               .token = t->stride[token],
                               .head = t->stride[head]};
}

static qn_status read_sizes(const call *c, const qni_tensor *t, bool is_hnd, sizes *out) {
    const int token = token_dim(t->ndim, is_hnd), head = 2 * t->ndim - 5 - token;
    *out = (sizes){.blocks = t->ndim == 4 ? t->size[0] : 1,
                   .tokens = t->size[token],
                   .heads = t->size[head],
                   .dim = t->size[t->ndim - 1]};
    if (out->tokens > INT32_MAX || out->blocks > INT32_MAX)
        return UNSUPPORTED("%s has %ld tokens in each of %ld; fewer than 2^31 are accepted",
                           t->name, (long)out->tokens, (long)out->blocks);
    if (out->dim < 1 || out->dim > QK_ATTENTION_MAX_HEAD_DIM)
        return UNSUPPORTED(
            "%s has head_dim %ld; accepted: 1 to %d (fast: multiples of 8 up to 256)", t->name,
            (long)out->dim, QK_ATTENTION_MAX_HEAD_DIM);
    return QN_OK;
}

/** Checks that q, k and v fit each other. */
static qn_status check_inputs(const call *c) {
    if (c->k.dim != c->q.dim)
        return INVALID("k has head_dim %ld, q %ld; both need the same", (long)c->k.dim,
                       (long)c->q.dim);
    if (c->k.blocks != c->v.blocks || c->k.tokens != c->v.tokens || c->k.heads != c->v.heads) {
        char k[128], v[128];
        return INVALID("k is %s, v %s; all but head_dim need to be the same",
                       qni_tensor_text(c->t[K].t, k, sizeof k),
                       qni_tensor_text(c->t[V].t, v, sizeof v));
    }
    if (c->k.heads < 1 || c->q.heads < 1 || c->q.heads % c->k.heads != 0)
        return INVALID("num_qo_heads %ld is no multiple of num_kv_heads %ld", (long)c->q.heads,
                       (long)c->k.heads);
    if (c->t[K].dtype != c->t[V].dtype)
        return UNSUPPORTED("k has dtype %s, v %s; both need the same",
                           qni_dtype_name(c->t[K].dtype), qni_dtype_name(c->t[V].dtype));
    return QN_OK;
}

static qn_status read_inputs(call *c) {
    const qn_attention_args *a = c->args;
    const bool is_hnd = a->layout == QN_HND, is_hnd_q = is_hnd && c->is_dense_q;
    const uint32_t dtypes = qni_of_floats | qni_of_fp8;
    const int ndim_q = c->is_dense_q ? 4 : 3, ndim = c->is_paged || c->is_dense_kv ? 4 : 3;
    c->t[Q] = (qni_tensor){"q", a->q, ndim_q, dtypes, .has_rows = true};
    c->t[K] = (qni_tensor){"k", a->k, ndim, dtypes, .has_rows = true};
    c->t[V] = (qni_tensor){"v", a->v, ndim, dtypes, .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[Q], 3));
    QN_TRY(read_sizes(c, &c->t[Q], is_hnd_q, &c->q));
    QN_TRY(read_sizes(c, &c->t[K], is_hnd, &c->k));
    QN_TRY(read_sizes(c, &c->t[V], is_hnd, &c->v));
    QN_TRY(check_inputs(c));
    c->p->dtype = c->t[Q].dtype;
    c->p->dtype_kv = c->t[K].dtype;
    c->p->kv_blocks = c->k.blocks;
    c->p->kv_tokens = c->k.tokens;
    c->p->q_tokens = c->q.tokens;
    c->p->args = (qk_attention_args){.q = qni_attention_rows(&c->t[Q], is_hnd_q),
                                     .k = qni_attention_rows(&c->t[K], is_hnd),
                                     .v = qni_attention_rows(&c->t[V], is_hnd),
                                     .num_kv_heads = (uint32_t)c->k.heads,
                                     .group = (uint32_t)(c->q.heads / c->k.heads),
                                     .head_dim_qk = (uint32_t)c->q.dim,
                                     .head_dim_vo = (uint32_t)c->v.dim,
                                     .dtype_q = (uint32_t)c->p->dtype,
                                     .dtype_kv = (uint32_t)c->p->dtype_kv};
    return QN_OK;
}

// ---- o, and lse if it is there

/** Reads the outputs, which have q's shape but for the last dimension. */
static qn_status read_outputs(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    const int ndim = c->t[Q].ndim, token = token_dim(ndim, a->layout == QN_HND && ndim == 4);
    int64_t shape[4];
    memcpy(shape, c->t[Q].size, (size_t)ndim * sizeof *shape);
    shape[ndim - 1] = c->v.dim;
    c->t[O] = (qni_tensor){
        .name = "o",
        .t = a->o,
        .ndim = ndim,
        .dtypes = qni_of_floats,
        .shape = shape,
        .has_rows = true,
        .is_written = true,
    };
    c->t[LSE] = (qni_tensor){
        .name = "lse",
        .t = a->lse,
        .ndim = ndim - 1,
        .dtypes = qni_of_f32,
        .shape = shape,
        .may_be_null = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, &c->t[O], 2));
    const qni_tensor *o = &c->t[O], *lse = &c->t[LSE];
    c->p->dtype_o = o->dtype;
    g->dtype_o = (uint32_t)o->dtype;
    g->o = o->data;
    g->o_batch = ndim == 4 ? o->stride[0] : 0;
    g->o_token = o->stride[token];
    g->o_head = o->stride[2 * ndim - 5 - token];
    g->lse = lse->data;
    g->lse_batch = ndim == 4 ? lse->stride[0] : 0;
    g->lse_token = lse->stride[token];
    g->lse_head = lse->stride[2 * ndim - 5 - token];
    return QN_OK;
}

// ---- the plan, or uniform requests

/** Checks that kernels can count so many rows of queries, heads and chunks of keys. */
static qn_status check_rows(const call *c, int64_t requests, int64_t queries, int64_t heads,
                            int64_t chunks) {
    const double rows = (double)requests * (double)queries * (double)heads * (double)chunks;
    if (!(rows < 0x1p31))
        return UNSUPPORTED("%.0f rows of queries, heads and chunks of keys; fewer than 2^31 are "
                           "accepted",
                           rows);
    return QN_OK;
}

static qn_status read_uniform(call *c) {
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
    return check_rows(c, c->requests, c->q.tokens, c->q.heads, qk_attention_uniform_chunks(g));
}

static qn_status read_plan(call *c) {
    const qn_attention_args *a = c->args;
    const qni_attention_shapes shapes = {.q_name = "q",
                                         .k_name = "k",
                                         .q_ndim = c->t[Q].ndim,
                                         .k_ndim = c->t[K].ndim,
                                         .q_blocks = c->q.blocks,
                                         .q_tokens = c->q.tokens,
                                         .entries =
                                             c->is_paged ? c->t[KV_INDICES].size[0] : c->k.tokens,
                                         .is_paged = c->is_paged,
                                         .is_dense_q = c->is_dense_q,
                                         .is_dense_kv = c->is_dense_kv};
    QN_TRY(qni_attention_read_plan(&c->of, &shapes, a->plan, a->plan_bytes, a->schedule,
                                   &c->t[SCHEDULE], c->p));
    c->requests = c->p->plan->num_requests;
    c->p->args.dropout_queries = (uint32_t)c->p->plan->max_qo_len;
    c->p->args.dropout_quads = qk_attention_div_up((uint32_t)c->p->plan->max_kv_len, 4);
    return QN_OK;
}

// ---- pages

static qn_status read_pages(call *c) {
    if (!c->is_paged)
        return QN_OK;
    c->t[KV_INDICES] = qni_indices("kv_indices", c->args->kv_indices, nullptr);
    QN_TRY(read_one(c, KV_INDICES));
    if (c->k.tokens == 0)
        return INVALID("k has pages of 0, needs 1 or more");
    c->p->args.kv_indices = c->t[KV_INDICES].data;
    c->p->args.page_size = (uint32_t)c->k.tokens;
    return QN_OK;
}

// ---- masks

/** Reads the stride of the mask's dimension that is `from_last` before the last and must have
 *  `size` elements. */
static qn_status read_mask_stride(const call *c, const qni_tensor *t, int from_last, int64_t size,
                                  int64_t *stride) {
    const int i = t->ndim - 1 - from_last;
    *stride = 0;
    if (i < 0 || t->size[i] == 1)
        return QN_OK;
    if (t->size[i] != size) {
        char text[128];
        return INVALID("mask is %s; its dimension %d needs to be 1 or %ld",
                       qni_tensor_text(t->t, text, sizeof text), i, (long)size);
    }
    *stride = t->stride[i];
    return QN_OK;
}

/** Checks what must hold if a mask is given. */
static qn_status check_mask_call(const call *c) {
    const qn_attention_args *a = c->args;
    if (a->is_causal)
        return INVALID("mask and is_causal are both given; accepted: one of them");
    if (a->custom_mask)
        return INVALID("mask and custom_mask are both given; accepted: one of them");
    if (!c->is_dense_q || !c->is_dense_kv)
        return INVALID("mask is for dense q and k; custom_mask is for all");
    if (a->mask->ndim < 2 || a->mask->ndim > 4)
        return INVALID("mask has %d dimensions; accepted: 2 to 4", a->mask->ndim);
    return QN_OK;
}

static qn_status read_mask(call *c) {
    qk_attention_args *g = &c->p->args;
    if (!c->args->mask)
        return QN_OK;
    QN_TRY(check_mask_call(c));
    c->t[MASK] = (qni_tensor){
        .name = "mask",
        .t = c->args->mask,
        .ndim = c->args->mask->ndim,
        .dtypes = qni_of_floats | 1u << QNI_U8 | 1u << QNI_BOOL,
    };
    QN_TRY(read_one(c, MASK));
    const qni_tensor *t = &c->t[MASK];
    QN_TRY(read_mask_stride(c, t, 0, c->k.tokens, &g->mask_key));
    QN_TRY(read_mask_stride(c, t, 1, c->q.tokens, &g->mask_query));
    QN_TRY(read_mask_stride(c, t, 2, c->q.heads, &g->mask_head));
    QN_TRY(read_mask_stride(c, t, 3, c->requests, &g->mask_batch));
    g->mask = t->data;
    g->mask_kind = qni_is_float16_or_32(t->dtype) ? QK_MASK_F32 + (uint32_t)(t->dtype - QNI_F32)
                                                  : QK_MASK_BOOL;
    return QN_OK;
}

static qn_status read_custom_mask(call *c) {
    if (!c->args->custom_mask)
        return QN_OK;
    const int64_t bytes =
        c->p->plan ? c->p->plan->mask_bytes : c->requests * ((c->q.tokens * c->k.tokens + 7) / 8);
    c->t[CUSTOM_MASK] =
        (qni_tensor){"custom_mask", c->args->custom_mask, 1, 1u << QNI_U8, .has_rows = true};
    QN_TRY(read_one(c, CUSTOM_MASK));
    if (c->t[CUSTOM_MASK].size[0] != bytes)
        return INVALID(
            "custom_mask has %ld bytes, needs %ld: qo_len * kv_len bits for each request",
            (long)c->t[CUSTOM_MASK].size[0], (long)bytes);
    c->p->args.custom_mask = c->t[CUSTOM_MASK].data;
    return QN_OK;
}

static qn_status read_window(const call *c, const char *name, bool is_there, int64_t value,
                             int32_t *bound) {
    if (is_there && (value < 0 || value > INT32_MAX))
        return INVALID("%s is %ld; accepted: 0 to 2^31 - 1", name, (long)value);
    *bound = is_there ? (int32_t)value : INT32_MAX;
    return QN_OK;
}

static qn_status read_bounds(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    QN_TRY(read_window(c, "window_left", a->has_window_left, a->window_left, &g->left));
    QN_TRY(read_window(c, "window_right", a->has_window_right, a->window_right, &g->right));
    if (a->is_causal && !a->custom_mask)
        g->right = 0;
    g->is_top_left = a->is_top_left != 0;
    return QN_OK;
}

// ---- scalars and vectors

/** Reads the numbers of heads, each of which may be missing. */
static qn_status read_vectors(call *c) {
    const qn_attention_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    const int64_t *q = &c->q.heads, *k = &c->k.heads;
    const struct {
        const char *name;
        const DLTensor *t;
        const int64_t *count;
        const float **out;
    } vectors[] = {{"q_scales", a->q_scales, q, &g->q_scales},
                   {"k_scales", a->k_scales, k, &g->k_scales},
                   {"v_scales", a->v_scales, k, &g->v_scales},
                   {"sinks", a->sinks, q, &g->sinks}};
    for (int i = 0; i <= SINKS - Q_SCALES; i++) {
        qni_tensor *t = &c->t[Q_SCALES + i];
        *t = (qni_tensor){
            .name = vectors[i].name,
            .t = vectors[i].t,
            .ndim = 1,
            .dtypes = qni_of_f32,
            .shape = vectors[i].count,
            .may_be_null = true,
            .has_rows = true,
        };
        QN_TRY(read_one(c, Q_SCALES + i));
        *vectors[i].out = t->data;
    }
    return QN_OK;
}

static float or_default(float x, float otherwise) {
    return __builtin_fabsf(x) > 0 || x != x ? x : otherwise;
}

static qn_status read_scalars(call *c) {
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

static qn_status read_dropout(call *c) {
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

static qn_status read_forms(call *c) {
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

qn_status qni_attention_read(const qni_call *of, const qn_attention_args *args,
                             qni_attention_problem *p, qni_tensor t[QNI_ATTENTION_TENSORS]) {
    call c = {.of = *of, .args = args, .p = p, .t = t};
    *p = (qni_attention_problem){};
    memset(t, 0, NUM_TENSORS * sizeof *t);
    QN_TRY(read_forms(&c));
    QN_TRY(read_inputs(&c));
    QN_TRY(read_outputs(&c));
    QN_TRY(read_pages(&c));
    QN_TRY(args->plan ? read_plan(&c) : read_uniform(&c));
    qni_attention_find_rows(p);
    QN_TRY(read_custom_mask(&c));
    QN_TRY(read_mask(&c));
    QN_TRY(read_bounds(&c));
    QN_TRY(read_scalars(&c));
    QN_TRY(read_dropout(&c));
    return read_vectors(&c);
}

qn_status qni_attention_make(const qn_stream *stream, const qn_attention_args *args,
                             qni_attention_problem *p) {
    const qni_call of = {OP, stream};
    qni_tensor t[NUM_TENSORS];
    QN_TRY(qni_attention_read(&of, args, p, t));
    QN_TRY(qni_attention_read_workspace(&of, args->workspace, &t[WORKSPACE], p));
    return qni_check_apart(&of, t, NUM_TENSORS);
}

/** Checks a dense tensor's shape alone. */
static qn_status check_dense_shape(const call *c, const char *name, const DLTensor *t) {
    if (!t->shape)
        return INVALID("%s has a null shape", name);
    for (int i = 0; i < 4; i++)
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX)
            return INVALID("%s has %ld in dimension %d; accepted: 0 to 2^31 - 1", name,
                           (long)t->shape[i], i);
    return QN_OK;
}

/** Computes the bytes without which a dense call is refused. */
static qn_status count_needed(const call *c, int64_t *bytes, const qn_attention_args *a) {
    if (!bytes)
        return INVALID("bytes is null");
    QN_TRY(QNI_CHECK_STRUCT(OP, "args", qn_attention_args, a));
    if (!a->q || !a->k || !a->v)
        return INVALID("q, k or v is null");
    if (a->plan || a->q->ndim != 4 || a->k->ndim != 4 || a->v->ndim != 4)
        return INVALID("q and k are not dense; qn_attention_plan tells their workspace");
    const int token = token_dim(4, a->layout == QN_HND);
    QN_TRY(check_dense_shape(c, "q", a->q));
    QN_TRY(check_dense_shape(c, "k", a->k));
    QN_TRY(check_dense_shape(c, "v", a->v));
    const int64_t qo_len = a->q->shape[token], kv_len = a->k->shape[token];
    const int64_t heads = a->q->shape[3 - token];
    const int64_t chunk = qni_attention_default_chunk(qo_len, kv_len);
    const int64_t chunks = kv_len > chunk ? (kv_len + chunk - 1) / chunk : 1;
    QN_TRY(check_rows(c, a->q->shape[0], qo_len, heads, chunks));
    const int64_t rows = chunks > 1 ? chunks * a->q->shape[0] * qo_len : 0;
    *bytes = qni_attention_workspace_bytes(rows, heads, a->v->shape[3]);
    return QN_OK;
}

qn_status qn_attention_workspace_bytes(int64_t *bytes, const qn_attention_args *a) {
    QN_TRY(count_needed(&(call){.of = {OP, nullptr}}, bytes, a));
    if (*bytes || a->is_causal || a->q->device.device_type != kDLCUDA)
        return QN_OK;
    const int token = token_dim(4, a->layout == QN_HND);
    const int64_t *q = a->q->shape, dim_vo = a->v->shape[3];
    *bytes = qni_attention_states_bytes(q[0] * q[3 - token], q[token], a->k->shape[token],
                                        q[3] > dim_vo ? q[3] : dim_vo);
    return QN_OK;
}
