// SPDX-License-Identifier: Apache-2.0
// Reads what a call says of its schedule: the plan and its copy on the device, the workspace, and
// with QUERN_VALIDATE=1 or on the CPU the pages. attention_plan.c makes plans.
#include "attention.h"

#define INVALID(format, ...)                                                                       \
    QN_FAIL(QN_E_INVALID, "%s: " format, call->op __VA_OPT__(, ) __VA_ARGS__)

void qni_attention_find_rows(qni_attention_problem *p) {
    const qk_attention_schedule *s = p->plan;
    const uint32_t count = s ? s->num_requests : 1;
    p->has_few_rows = p->has_more_rows = s && s->is_for_graph;
    for (uint32_t i = 0; i < count && !qni_attention_is_mixed(p); i++) {
        const int64_t rows =
            s ? (int64_t)qk_attention_requests(s)[i].qo_len * p->args.group : p->max_rows;
        p->has_few_rows |= rows > 0 && rows <= QK_ATTENTION_FEW_ROWS;
        p->has_more_rows |= rows > QK_ATTENTION_FEW_ROWS;
    }
    p->args.most_rows = p->has_more_rows ? UINT32_MAX : QK_ATTENTION_FEW_ROWS;
}

// ---- the plan

/** Checks that the plan was made for such heads and pages. */
static qn_status check_plan_heads(const qni_call *call, const qni_attention_shapes *t,
                                  const qni_attention_problem *p, const qk_attention_schedule *s) {
    const int64_t kv_heads = p->args.num_kv_heads, qo_heads = kv_heads * p->args.group;
    const int64_t page_size = t->is_paged ? p->kv_tokens : 0;
    if (s->num_qo_heads != qo_heads || s->num_kv_heads != kv_heads ||
        s->head_dim_vo != (int64_t)p->args.head_dim_vo)
        return INVALID("plan is for %d and %d heads and v of %d; %s has %ld, %s %ld, v is of %u",
                       s->num_qo_heads, s->num_kv_heads, s->head_dim_vo, t->q_name, (long)qo_heads,
                       t->k_name, (long)kv_heads, p->args.head_dim_vo);
    if (s->page_size != page_size)
        return INVALID("plan is for page_size %d, %s has %ld", s->page_size, t->k_name,
                       (long)page_size);
    return QN_OK;
}

/** Checks that the plan was made for tensors such as these. */
static qn_status check_plan_tensors(const qni_call *call, const qni_attention_shapes *t,
                                    const qni_attention_problem *p,
                                    const qk_attention_schedule *s) {
    QN_TRY(check_plan_heads(call, t, p, s));
    if (s->is_dense_q != t->is_dense_q || (!t->is_paged && s->is_dense_kv != t->is_dense_kv))
        return INVALID("plan is for %s q and %s k; %s has %d dimensions, %s %d",
                       s->is_dense_q ? "dense" : "ragged", s->is_dense_kv ? "dense" : "ragged",
                       t->q_name, t->q_ndim, t->k_name, t->k_ndim);
    if ((s->is_dense_q && s->num_requests != t->q_blocks) ||
        (!t->is_paged && s->is_dense_kv && s->num_requests != p->kv_blocks))
        return INVALID("plan is for %u requests, %s has batch %ld", s->num_requests,
                       s->is_dense_q ? t->q_name : t->k_name,
                       (long)(s->is_dense_q ? t->q_blocks : p->kv_blocks));
    if (s->qo_end > t->q_tokens)
        return INVALID("%s has %ld tokens, the plan needs %ld", t->q_name, (long)t->q_tokens,
                       (long)s->qo_end);
    if (s->qo_end < t->q_tokens && !s->is_for_graph)
        return INVALID(
            "%s has %ld tokens, the plan is for %ld; more are accepted with is_for_graph",
            t->q_name, (long)t->q_tokens, (long)s->qo_end);
    if (s->kv_end > t->entries)
        return INVALID("%s has %ld entries, the plan needs %ld",
                       t->is_paged ? "kv_indices" : t->k_name, (long)t->entries, (long)s->kv_end);
    return QN_OK;
}

qn_status qni_attention_read_plan(const qni_call *call, const qni_attention_shapes *shapes,
                                  const void *plan, int64_t plan_bytes, const DLTensor *schedule,
                                  qni_tensor *read, qni_attention_problem *p) {
    const bool is_cpu = call->stream->device->id.device_type == kDLCPU;
    const char *const fault =
        qni_attention_check_plan(plan, plan_bytes, is_cpu || qni_env_get()->validate);
    if (fault)
        return INVALID("plan %s", fault);
    QN_TRY(check_plan_tensors(call, shapes, p, plan));
    *read = (qni_tensor){
        .name = "schedule",
        .t = schedule,
        .ndim = 1,
        .dtypes = 1u << QNI_U8,
        .shape = &plan_bytes,
        .align = 8,
        .may_be_null = is_cpu,
        .has_rows = true,
    };
    QN_TRY(qni_read_tensors(call, read, 1));
    read->shape = nullptr; // which ends with this call
    p->plan = plan;
    p->args.schedule = is_cpu ? plan : read->data;
    p->max_rows = (int64_t)p->plan->max_qo_len * p->args.group;
    return QN_OK;
}

// ---- the workspace

int64_t qni_attention_workspace_rows(const qni_attention_problem *p) {
    const int64_t chunks = qk_attention_uniform_chunks(&p->args);
    if (p->plan)
        return p->plan->workspace_rows;
    return chunks > 1 ? chunks * p->args.requests * p->args.qo_len * p->args.group : 0;
}

/** Gives the workspace to partial results. partial_o gets as many rows as there is room for, so
 *  that later plans of a captured graph find partial_lse in its place. */
static void place_partials(qk_attention_args *g, float *workspace, int64_t bytes) {
    const int64_t room = bytes / qni_attention_workspace_bytes(1, g->num_kv_heads, g->head_dim_vo);
    g->partial_o = workspace;
    g->partial_lse = workspace + room * g->num_kv_heads * g->head_dim_vo;
}

/** Returns whether a kernel may use workspace that the call could do without. */
static bool may_like_workspace(const qni_call *call, const qni_attention_problem *p) {
    return !p->plan && call->stream->device->id.device_type == kDLCUDA;
}

qn_status qni_attention_read_workspace(const qni_call *call, DLTensor *workspace, qni_tensor *read,
                                       qni_attention_problem *p) {
    const int64_t bytes = qni_attention_workspace_bytes(qni_attention_workspace_rows(p),
                                                        p->args.num_kv_heads, p->args.head_dim_vo);
    const bool is_needed = bytes > 0 || (p->plan && p->plan->is_for_graph && workspace);
    const bool is_used = is_needed || may_like_workspace(call, p);
    *read = (qni_tensor){
        .name = "workspace",
        .t = workspace,
        .ndim = 1,
        .dtypes = 1u << QNI_U8,
        .align = is_used ? 16 : 0,
        .may_be_null = true,
        .has_rows = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(call, read, 1));
    const int64_t given = workspace ? read->size[0] : 0;
    if (!workspace && bytes > 0)
        return INVALID("workspace is null, needs %ld bytes", (long)bytes);
    if (given < bytes)
        return INVALID("workspace has %ld bytes, needs %ld", (long)given, (long)bytes);
    if (is_needed)
        place_partials(&p->args, read->data, given);
    if (is_used)
        p->workspace = read->data, p->workspace_bytes = given;
    return QN_OK;
}

// ---- pages

/** Checks that no entry of `count` entries from `begin` on leads outside k and v. */
static qn_status check_pages(const qni_call *call, const int32_t *indices, int64_t begin,
                             int64_t count, int64_t pages) {
    bool is_bad = false;
    for (int64_t i = begin; i < begin + count; i++)
        is_bad |= (uint32_t)indices[i] >= pages;
    for (int64_t i = begin; is_bad; i++)
        if ((uint32_t)indices[i] >= pages)
            return INVALID("kv_indices[%ld] is %d; accepted: 0 to %ld", (long)i, indices[i],
                           (long)pages - 1);
    return QN_OK;
}

/** Checks the pages that kernels read, which are those of requests with queries; with
 *  QUERN_VALIDATE=1 all other pages, too. */
static qn_status validate_pages(const qni_call *call, const qni_attention_problem *p,
                                const int32_t *indices) {
    const qk_attention_schedule *s = p->plan;
    if (qni_env_get()->validate)
        QN_TRY(check_pages(call, indices, 0, s->kv_end, p->kv_blocks));
    for (uint32_t b = 0; b < s->num_requests; b++) {
        const qk_attention_request *r = &qk_attention_requests(s)[b];
        if (r->qo_len > 0)
            QN_TRY(check_pages(call, indices, r->kv_begin,
                               ((int64_t)r->kv_len + s->page_size - 1) / s->page_size,
                               p->kv_blocks));
    }
    return QN_OK;
}

qn_status qni_attention_validate_pages(qn_stream *stream, const char *op,
                                       const qni_attention_problem *p) {
    const qni_call call = {op, stream};
    const int32_t *indices = nullptr;
    if (!p->args.kv_indices || !qni_validates_indices(stream))
        return QN_OK;
    qn_status st =
        qni_read_indices(stream, op, "kv_indices", p->args.kv_indices, p->plan->kv_end, &indices);
    if (st == QN_OK)
        st = validate_pages(&call, p, indices);
    qni_release_indices(stream, indices);
    return st;
}
