// SPDX-License-Identifier: Apache-2.0
// Reads a call of qn_mla_decode and makes the problem that kernels take.
#include "mla.h"

#define OP "mla_decode"
#define INVALID(...) QN_FAIL(QN_E_INVALID, OP ": " __VA_ARGS__)
#define UNSUPPORTED(...) QN_FAIL(QN_E_UNSUPPORTED, OP ": " __VA_ARGS__)

enum {
    Q_NOPE,
    Q_PE,
    CKV,
    KPE,
    CKV_SCALES,
    KV_INDICES,
    SCHEDULE,
    Q_SCALES,
    KV_SCALES,
    O,
    LSE,
    WORKSPACE,
    NUM_TENSORS
};

/** A call whose arguments become a problem. */
typedef struct call {
    qni_call of;
    const qn_mla_args *args;
    qni_attention_problem *p;
    qni_tensor t[NUM_TENSORS];
} call;

// ---- queries and caches

static qn_status check_dim(const qni_tensor *t, int64_t most) {
    if (t->size[2] < 1 || t->size[2] > most)
        return UNSUPPORTED("%s has a last dimension of %ld; accepted: 1 to %ld", t->name,
                           (long)t->size[2], (long)most);
    return QN_OK;
}

/** Checks that b is as a but for the last dimension. */
static qn_status check_like(const qni_tensor *a, const qni_tensor *b) {
    char of_a[128], of_b[128];
    if (a->size[0] != b->size[0] || a->size[1] != b->size[1])
        return INVALID("%s is %s, %s %s; all but the last dimension need to be the same", a->name,
                       qni_tensor_text(a->t, of_a, sizeof of_a), b->name,
                       qni_tensor_text(b->t, of_b, sizeof of_b));
    return QN_OK;
}

static qn_status check_same_dtype(const qni_tensor *a, const qni_tensor *b) {
    if (a->dtype != b->dtype)
        return UNSUPPORTED("%s has dtype %s, %s %s; both need the same", a->name,
                           qni_dtype_name(a->dtype), b->name, qni_dtype_name(b->dtype));
    return QN_OK;
}

/** Checks the caches' dtypes: equal, or with scales of groups FP8 and another one. */
static qn_status check_cache_dtypes(const qni_tensor *ckv, const qni_tensor *kpe, bool has_groups) {
    if (!has_groups)
        return check_same_dtype(ckv, kpe);
    if (!qni_is_fp8(ckv->dtype))
        return UNSUPPORTED("ckv has dtype %s; accepted with ckv_scales: FP8",
                           qni_dtype_name(ckv->dtype));
    if (!qni_is_float16_or_32(kpe->dtype))
        return UNSUPPORTED("kpe has dtype %s; accepted with ckv_scales: f32, f16, bf16",
                           qni_dtype_name(kpe->dtype));
    return QN_OK;
}

static qn_status check_same_dim(const qni_tensor *a, const qni_tensor *b) {
    if (a->size[2] != b->size[2])
        return INVALID("%s has a last dimension of %ld, %s %ld; both need the same", a->name,
                       (long)a->size[2], b->name, (long)b->size[2]);
    return QN_OK;
}

/** Checks that kernels can count tokens, heads, pages and places of pages. */
static qn_status check_counts(const qni_tensor *t) {
    for (int i = 0; i < 2; i++)
        if (t->size[i] > INT32_MAX)
            return UNSUPPORTED("%s has %ld in dimension %d; fewer than 2^31 are accepted", t->name,
                               (long)t->size[i], i);
    return QN_OK;
}

static qn_status check_inputs(const qni_tensor *t) {
    for (int i = Q_NOPE; i <= KPE; i++)
        QN_TRY(check_counts(&t[i]));
    QN_TRY(check_dim(&t[Q_NOPE], QK_ATTENTION_MAX_HEAD_DIM));
    QN_TRY(check_dim(&t[Q_PE], QK_ATTENTION_MAX_TAIL));
    QN_TRY(check_like(&t[Q_NOPE], &t[Q_PE]));
    QN_TRY(check_same_dtype(&t[Q_NOPE], &t[Q_PE]));
    QN_TRY(check_like(&t[CKV], &t[KPE]));
    QN_TRY(check_cache_dtypes(&t[CKV], &t[KPE], t[CKV_SCALES].t));
    QN_TRY(check_same_dim(&t[Q_NOPE], &t[CKV]));
    QN_TRY(check_same_dim(&t[Q_PE], &t[KPE]));
    if (t[Q_NOPE].size[1] < 1)
        return INVALID("q_nope has 0 heads, needs 1 or more");
    if (t[CKV].size[1] < 1)
        return INVALID("ckv has pages of 0, needs 1 or more");
    return QN_OK;
}

static qk_attention_rows q_rows(const qni_tensor *t) {
    return (qk_attention_rows){.data = t->data, .token = t->stride[0], .head = t->stride[1]};
}

static qk_attention_rows cache_rows(const qni_tensor *t) {
    return (qk_attention_rows){.data = t->data, .block = t->stride[0], .token = t->stride[1]};
}

/** Reads the scales of ckv's groups. */
static qn_status read_groups(call *c) {
    qni_tensor *const t = &c->t[CKV_SCALES], *const ckv = &c->t[CKV];
    const int64_t groups = (ckv->size[2] + QK_ATTENTION_GROUP - 1) / QK_ATTENTION_GROUP;
    *t = (qni_tensor){.name = "ckv_scales",
                      .t = c->args->ckv_scales,
                      .ndim = 3,
                      .dtypes = qni_of_f32,
                      .shape = (const int64_t[]){ckv->size[0], ckv->size[1], groups},
                      .may_be_null = true,
                      .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    if (t->t)
        c->p->groups = cache_rows(t);
    return QN_OK;
}

static qn_status read_inputs(call *c) {
    const qn_mla_args *a = c->args;
    qni_attention_problem *p = c->p;
    const uint32_t dtypes = qni_of_floats | qni_of_fp8;
    qni_tensor *const t = c->t;
    t[Q_NOPE] = (qni_tensor){"q_nope", a->q_nope, 3, dtypes, .has_rows = true};
    t[Q_PE] = (qni_tensor){"q_pe", a->q_pe, 3, dtypes, .has_rows = true};
    t[CKV] = (qni_tensor){"ckv", a->ckv, 3, dtypes, .has_rows = true};
    t[KPE] = (qni_tensor){"kpe", a->kpe, 3, dtypes, .has_rows = true};
    t[KV_INDICES] = qni_indices("kv_indices", a->kv_indices, nullptr);
    QN_TRY(qni_read_tensors(&c->of, t, KPE + 1));
    QN_TRY(qni_read_tensors(&c->of, &t[KV_INDICES], 1));
    QN_TRY(read_groups(c));
    QN_TRY(check_inputs(t));
    p->dtype = t[Q_NOPE].dtype;
    p->dtype_kv = t[CKV].dtype;
    p->dtype_tail = t[KPE].dtype;
    p->kv_blocks = t[CKV].size[0];
    p->kv_tokens = t[CKV].size[1];
    p->tail = (qk_attention_tail){
        .q = q_rows(&t[Q_PE]), .k = cache_rows(&t[KPE]), .dim = (uint32_t)t[Q_PE].size[2]};
    p->args = (qk_attention_args){.q = q_rows(&t[Q_NOPE]),
                                  .k = cache_rows(&t[CKV]),
                                  .v = cache_rows(&t[CKV]),
                                  .kv_indices = t[KV_INDICES].data,
                                  .page_size = (uint32_t)p->kv_tokens,
                                  .num_kv_heads = 1,
                                  .group = (uint32_t)t[Q_NOPE].size[1],
                                  .head_dim_qk = (uint32_t)(t[Q_NOPE].size[2] + t[Q_PE].size[2]),
                                  .head_dim_vo = (uint32_t)t[CKV].size[2],
                                  .dtype_q = (uint32_t)p->dtype,
                                  .dtype_kv = (uint32_t)p->dtype_kv};
    return QN_OK;
}

// ---- outputs

static qn_status read_outputs(call *c) {
    const qn_mla_args *a = c->args;
    const int64_t *const shape = c->t[Q_NOPE].size;
    qk_attention_args *g = &c->p->args;
    qni_tensor *const o = &c->t[O], *const lse = &c->t[LSE];
    *o = (qni_tensor){
        .name = "o",
        .t = a->o,
        .ndim = 3,
        .dtypes = qni_of_floats,
        .shape = shape,
        .has_rows = true,
        .is_written = true,
    };
    *lse = (qni_tensor){
        .name = "lse",
        .t = a->lse,
        .ndim = 2,
        .dtypes = qni_of_f32,
        .shape = shape,
        .may_be_null = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(&c->of, o, 2));
    c->p->dtype_o = o->dtype;
    g->dtype_o = (uint32_t)o->dtype;
    g->o = o->data;
    g->o_token = o->stride[0];
    g->o_head = o->stride[1];
    g->lse = lse->data;
    g->lse_token = lse->stride[0];
    g->lse_head = lse->stride[1];
    return QN_OK;
}

// ---- plan and scalars

static qn_status read_plan(call *c) {
    const qn_mla_args *a = c->args;
    const qni_attention_shapes shapes = {.q_name = "q_nope",
                                         .k_name = "ckv",
                                         .q_ndim = 3,
                                         .k_ndim = 3,
                                         .q_blocks = 1,
                                         .q_tokens = c->t[Q_NOPE].size[0],
                                         .entries = c->t[KV_INDICES].size[0],
                                         .is_paged = true};
    if (!a->plan)
        return INVALID("plan is null, needs one of qn_attention_plan");
    return qni_attention_read_plan(&c->of, &shapes, a->plan, a->plan_bytes, a->schedule,
                                   &c->t[SCHEDULE], c->p);
}

static qn_status read_scales(call *c) {
    static const int64_t one = 1;
    const qn_mla_args *a = c->args;
    qni_tensor *const t = &c->t[Q_SCALES];
    t[0] = (qni_tensor){.name = "q_scales",
                        .t = a->q_scales,
                        .ndim = 1,
                        .dtypes = qni_of_f32,
                        .shape = &c->t[Q_NOPE].size[1],
                        .may_be_null = true,
                        .has_rows = true};
    t[1] = (qni_tensor){.name = "kv_scales",
                        .t = a->kv_scales,
                        .ndim = 1,
                        .dtypes = qni_of_f32,
                        .shape = &one,
                        .may_be_null = true,
                        .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, t, 2));
    c->p->args.q_scales = t[0].data;
    c->p->args.k_scales = c->p->args.v_scales = t[1].data;
    return QN_OK;
}

/** Returns x, or for 0 what 0 stands for; a `otherwise` of 0: 0 is refused. */
static qn_status read_scale(const char *name, float x, float otherwise, float *out) {
    *out = __builtin_fabsf(x) > 0 || x != x ? x : otherwise;
    if (!(*out > 0) || isinf(*out))
        return INVALID("%s is %g; accepted: above 0, finite", name, (double)x);
    return QN_OK;
}

static qn_status read_scalars(call *c) {
    const qn_mla_args *a = c->args;
    qk_attention_args *g = &c->p->args;
    float sm_scale, q_scale;
    QN_TRY(read_scale("sm_scale", a->sm_scale, 0, &sm_scale));
    QN_TRY(read_scale("q_scale", a->q_scale, 1, &q_scale));
    QN_TRY(read_scale("kv_scale", a->kv_scale, 1, &g->v_scale));
    g->scale = sm_scale * q_scale * g->v_scale;
    if (isinf(g->scale))
        return INVALID("sm_scale, q_scale and kv_scale multiply to %g; accepted: finite",
                       (double)g->scale);
    if (a->lse_base != QN_LSE_BASE_2 && a->lse_base != QN_LSE_BASE_E)
        return INVALID("lse_base is %d; accepted: QN_LSE_BASE_2, QN_LSE_BASE_E", a->lse_base);
    g->lse_unit = a->lse_base == QN_LSE_BASE_E ? 0x1.62E43p-1f : 1.0f; // ln 2
    g->left = INT32_MAX;
    g->right = a->is_causal ? 0 : INT32_MAX;
    return QN_OK;
}

qn_status qni_mla_make(const qn_stream *stream, const qn_mla_args *args, qni_attention_problem *p) {
    call c = {.of = {OP, stream}, .args = args, .p = p};
    *p = (qni_attention_problem){};
    QN_TRY(read_inputs(&c));
    QN_TRY(read_outputs(&c));
    QN_TRY(read_plan(&c));
    qni_attention_find_rows(p);
    QN_TRY(read_scales(&c));
    QN_TRY(read_scalars(&c));
    QN_TRY(qni_attention_read_workspace(&c.of, args->workspace, &c.t[WORKSPACE], p));
    return qni_check_apart(&c.of, c.t, NUM_TENSORS);
}
