// SPDX-License-Identifier: Apache-2.0
// Makes a case of the mla check: memory, tensors, values, a plan, and the results by the
// definition.
#include "mla_case.h"

#include <stdlib.h>
#include <string.h>

static const char *const area_names[QNI_MLA_AREAS] = {
    "q_nope", "q_pe",      "ckv",      "kpe",        "ckv_scales", "o",
    "lse",    "workspace", "schedule", "kv_indices", "q_scales",   "kv_scales"};

// ---- sizes

/** Returns which of a spec's lengths request b has. */
static int length_of(const qni_mla_spec *s, int b) {
    const int i = b == s->common ? 0 : b == 0 ? s->common : b;
    return i < QNI_MLA_CASE_LENGTHS ? i : 1 + i % (QNI_MLA_CASE_LENGTHS - 1);
}
static int32_t qo_len_of(const qni_mla_spec *s, int b) {
    return s->qo[length_of(s, b)];
}
static int32_t kv_len_of(const qni_mla_spec *s, int b) {
    return s->kv[length_of(s, b)];
}
static int32_t pages_of(const qni_mla_spec *s, int b) {
    return (kv_len_of(s, b) + s->page - 1) / s->page;
}

/** Returns a request from what the spec asks. A plan with another request is wrong. The first token
 *  of q belongs to no request. */
static qk_attention_request request_of(const qni_mla_spec *s, int b) {
    qk_attention_request r = {.qo_begin = 1, .qo_len = qo_len_of(s, b), .kv_len = kv_len_of(s, b)};
    for (int i = 0; i < b; i++) {
        r.qo_begin += qo_len_of(s, i);
        r.kv_begin += pages_of(s, i);
    }
    return r;
}

static int64_t count_tokens(const qni_mla_spec *s) {
    return request_of(s, s->batches).qo_begin;
}
static int64_t count_entries(const qni_mla_spec *s) {
    return request_of(s, s->batches).kv_begin;
}

int64_t qni_mla_case_common_token(const qni_mla_case *c) {
    return request_of(c->spec, c->spec->common).qo_begin;
}

// ---- tensors

static qn_status make_area(qni_mla_case *c, qn_stream *stream, int which, qni_dtype dtype,
                           int64_t count, int64_t offset) {
    return qni_area_create(&c->areas[which], area_names[which], qn_stream_device(stream), dtype,
                           count, offset);
}

/** Sets a view of an area, whose rows are `step` elements apart. */
static void set_rows(qni_mla_case *c, int which, int area, int64_t first, int64_t outer,
                     int64_t inner, int64_t dim, int64_t step) {
    qni_mla_tensor *const t = &c->tensors[which];
    const qni_area *const a = &c->areas[area];
    *t = (qni_mla_tensor){.shape = {outer, inner, dim},
                          .strides = {inner * step, step, 1},
                          .area = area,
                          .first = first};
    t->t = (DLTensor){.data = (char *)qni_area_device(a) + first * qni_dtype_bytes(a->dtype),
                      .device = qn_device_id(a->owner),
                      .ndim = dim ? 3 : 2,
                      .dtype = qni_dl_dtype(a->dtype),
                      .shape = t->shape,
                      .strides = t->strides};
}

/** Makes rows [outer, inner, dim] and [outer, inner, rope_dim], apart or joined. */
static qn_status make_parts(qni_mla_case *c, qn_stream *stream, int which, qni_dtype dtype,
                            qni_dtype dtype_pe, int64_t outer, int64_t inner) {
    const qni_mla_spec *s = c->spec;
    const int64_t rows = outer * inner, joined = s->is_joined ? s->rope_dim : 0;
    const int64_t step = s->dim + joined + s->gap, rope_step = s->rope_dim + s->gap;
    QN_TRY(make_area(c, stream, which, dtype, rows * step, s->offset));
    set_rows(c, which, which, 0, outer, inner, s->dim, step);
    if (s->is_joined) {
        set_rows(c, which + 1, which, s->dim, outer, inner, s->rope_dim, step);
        return QN_OK;
    }
    QN_TRY(make_area(c, stream, which + 1, dtype_pe, rows * rope_step, s->offset));
    set_rows(c, which + 1, which + 1, 0, outer, inner, s->rope_dim, rope_step);
    return QN_OK;
}

/** Makes scales of groups, with an element between those of a token and of the next. */
static qn_status make_groups(qni_mla_case *c, qn_stream *stream) {
    const qni_mla_spec *s = c->spec;
    const int64_t groups = (s->dim + QK_ATTENTION_GROUP - 1) / QK_ATTENTION_GROUP;
    const int64_t pages = count_entries(s) + 2, count = pages * s->page * (groups + 1);
    QN_TRY(make_area(c, stream, QNI_MLA_CKV_SCALES, QNI_F32, count, s->offset));
    set_rows(c, QNI_MLA_CKV_SCALES, QNI_MLA_CKV_SCALES, 0, pages, s->page, groups, groups + 1);
    return QN_OK;
}

static qn_status make_vector(qni_mla_case *c, qn_stream *stream, int which, qni_dtype dtype,
                             int64_t count) {
    QN_TRY(make_area(c, stream, which, dtype, count, 0));
    set_rows(c, which, which, 0, count, 1, 0, 1);
    c->tensors[which].t.ndim = 1;
    return QN_OK;
}

static qn_status make_tensors(qni_mla_case *c, qn_stream *stream) {
    const qni_mla_spec *s = c->spec;
    const int64_t tokens = count_tokens(s), step = s->dim + s->gap;
    QN_TRY(make_parts(c, stream, QNI_MLA_Q_NOPE, s->dtype, s->dtype, tokens, s->heads));
    QN_TRY(make_parts(c, stream, QNI_MLA_CKV, s->dtype_kv,
                      s->has_groups ? s->dtype_kpe : s->dtype_kv, count_entries(s) + 2, s->page));
    if (s->has_groups)
        QN_TRY(make_groups(c, stream));
    QN_TRY(make_area(c, stream, QNI_MLA_O, s->dtype_o, tokens * s->heads * step, s->offset));
    set_rows(c, QNI_MLA_O, QNI_MLA_O, 0, tokens, s->heads, s->dim, step);
    if (s->has_lse) {
        QN_TRY(make_area(c, stream, QNI_MLA_LSE, QNI_F32, tokens * s->heads * 2, 0));
        set_rows(c, QNI_MLA_LSE, QNI_MLA_LSE, 0, tokens, s->heads, 0, 2);
    }
    if (s->has_scales) {
        QN_TRY(make_vector(c, stream, QNI_MLA_Q_SCALES, QNI_F32, s->heads));
        QN_TRY(make_vector(c, stream, QNI_MLA_KV_SCALES, QNI_F32, 1));
    }
    return make_vector(c, stream, QNI_MLA_INDICES, QNI_I32, count_entries(s));
}

static qn_status make_plan(qni_mla_case *c, qn_stream *stream) {
    const qni_mla_spec *s = c->spec;
    int32_t qo_indptr[QNI_MLA_CASE_BATCHES + 1], kv_indptr[QNI_MLA_CASE_BATCHES + 1];
    int32_t last[QNI_MLA_CASE_BATCHES];
    int64_t workspace_bytes;
    for (int b = 0; b <= s->batches; b++) {
        const qk_attention_request r = request_of(s, b);
        qo_indptr[b] = r.qo_begin, kv_indptr[b] = r.kv_begin;
        if (b < s->batches)
            last[b] = r.kv_len - (pages_of(s, b) - 1) * s->page;
    }
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = s->batches,
                                      .qo_indptr = qo_indptr,
                                      .kv_indptr = kv_indptr,
                                      .kv_last_page_len = last,
                                      .page_size = s->page,
                                      .num_qo_heads = s->heads,
                                      .num_kv_heads = 1,
                                      .head_dim_vo = s->dim,
                                      .kv_chunk = s->chunk,
                                      .max_kv_splits = s->splits};
    QN_TRY(qn_attention_plan(nullptr, &c->plan_bytes, &workspace_bytes, &a));
    c->plan = malloc((size_t)c->plan_bytes);
    if (!c->plan)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY(qn_attention_plan(c->plan, &c->plan_bytes, &workspace_bytes, &a));
    QN_TRY(make_vector(c, stream, QNI_MLA_SCHEDULE, QNI_U8, c->plan_bytes));
    memcpy(qni_area_host(&c->areas[QNI_MLA_SCHEDULE]), c->plan, (size_t)c->plan_bytes);
    if (workspace_bytes)
        QN_TRY(make_vector(c, stream, QNI_MLA_WORKSPACE, QNI_U8, workspace_bytes));
    return QN_OK;
}

// ---- values

/** Returns an element of q_pe or kpe for scores that rise, or fall, by 2 from key to key. A key's
 *  number is stored as digits of base 16. */
static double ramp_of(const qni_mla_case *c, int which, int64_t position, int64_t head, int64_t d) {
    constexpr int64_t digits = 3;
    if (d >= digits)
        return 0;
    if (which == QNI_MLA_KPE)
        return (double)(position >> 4 * d & 15);
    const double step = 2 * exp2(ceil(log2((double)(c->spec->dim + c->spec->rope_dim)) / 2));
    return (head % 2 ? -step : step) * (double)(1 << 4 * d);
}

static double value_of(qni_mla_case *c, int which, int64_t position, int64_t head, int64_t d) {
    const qni_mla_spec *s = c->spec;
    const double drawn = qni_random_normal(&c->random);
    // gfx90a's matrix cores take f16's subnormals for zeros.
    const double normal = fabs(drawn) < 0x1p-14 ? 0 : drawn;
    const bool is_q = which <= QNI_MLA_Q_PE, is_pe = which == QNI_MLA_Q_PE || which == QNI_MLA_KPE;
    if (which == QNI_MLA_CKV_SCALES)
        return exp2(drawn);
    if (s->values == QNI_MLA_RAMPS && is_pe)
        return ramp_of(c, which, position, head, d);
    if (s->values == QNI_MLA_RAMPS && is_q)
        return 0;
    return s->values == QNI_MLA_PEAKS && is_q ? 64 * normal : normal;
}

/** Fills row [outer, inner] of a tensor with what is at a position of a request. */
static void fill_row(qni_mla_case *c, int which, int request, int64_t position, int64_t outer,
                     int64_t inner) {
    const qni_mla_tensor *t = &c->tensors[which];
    qni_area *a = &c->areas[t->area];
    const bool is_q = which <= QNI_MLA_Q_PE;
    const uint64_t owner = request == c->spec->common ? 0 : (uint64_t)request + 1;
    const int64_t at = t->first + outer * t->strides[0] + inner * t->strides[1];
    c->random = c->seed + (owner << 48) + ((uint64_t)which << 44) + ((uint64_t)position << 20);
    c->random += is_q ? (uint64_t)inner << 8 : 0;
    for (int64_t d = 0; d < t->shape[2]; d++)
        qni_put(a->dtype, qni_area_host(a), at + d,
                value_of(c, which, position, is_q ? inner : 0, d));
}

/** Fills in pages from the last one down; the second request begins with the first request's first
 *  page. */
static void fill_indices(qni_mla_case *c) {
    const qni_mla_spec *s = c->spec;
    const int32_t count = (int32_t)count_entries(s), first = pages_of(s, 0);
    int32_t *indices = qni_area_host(&c->areas[QNI_MLA_INDICES]);
    for (int32_t i = 0; i < count; i++)
        indices[i] = count - i;
    if (s->batches > 1 && kv_len_of(s, 0) >= s->page && kv_len_of(s, 1) >= s->page)
        indices[first] = indices[0];
}

/** Fills only what requests use; all else stays NaN. */
static void fill_tokens(qni_mla_case *c) {
    const qni_mla_spec *s = c->spec;
    const int32_t *indices = qni_area_host(&c->areas[QNI_MLA_INDICES]);
    for (int b = 0; b < s->batches; b++) {
        const qk_attention_request r = request_of(s, b);
        for (int64_t i = 0; i < (int64_t)r.qo_len * s->heads; i++)
            for (int part = QNI_MLA_Q_NOPE; part <= QNI_MLA_Q_PE; part++)
                fill_row(c, part, b, r.kv_len - r.qo_len + i / s->heads, r.qo_begin + i / s->heads,
                         i % s->heads);
        for (int64_t j = 0; j < r.kv_len; j++)
            for (int part = QNI_MLA_CKV; part <= (s->has_groups ? QNI_MLA_CKV_SCALES : QNI_MLA_KPE);
                 part++)
                fill_row(c, part, b, j, indices[r.kv_begin + j / s->page], j % s->page);
    }
}

static void fill_scales(qni_mla_case *c) {
    c->random = c->seed;
    for (int which = QNI_MLA_Q_SCALES; which <= QNI_MLA_KV_SCALES; which++)
        for (int64_t i = 0; i < c->areas[which].count; i++)
            ((float *)qni_area_host(&c->areas[which]))[i] =
                (float)exp2(qni_random_normal(&c->random) / 2);
}

// ---- the problem

static DLTensor *tensor_of(qni_mla_case *c, int which) {
    return c->tensors[which].t.ndim ? &c->tensors[which].t : nullptr;
}

static qn_status make_problem(qni_mla_case *c, qn_stream *stream) {
    const qni_mla_spec *s = c->spec;
    const qn_mla_args args = {
        .struct_size = sizeof args,
        .o = tensor_of(c, QNI_MLA_O),
        .lse = tensor_of(c, QNI_MLA_LSE),
        .q_nope = tensor_of(c, QNI_MLA_Q_NOPE),
        .q_pe = tensor_of(c, QNI_MLA_Q_PE),
        .ckv = tensor_of(c, QNI_MLA_CKV),
        .kpe = tensor_of(c, QNI_MLA_KPE),
        .ckv_scales = tensor_of(c, QNI_MLA_CKV_SCALES),
        .kv_indices = tensor_of(c, QNI_MLA_INDICES),
        .plan = c->plan,
        .plan_bytes = c->plan_bytes,
        .schedule = tensor_of(c, QNI_MLA_SCHEDULE),
        .workspace = tensor_of(c, QNI_MLA_WORKSPACE),
        .is_causal = s->is_causal,
        .sm_scale = 1 / sqrtf((float)(s->dim + s->rope_dim)),
        .q_scale = s->has_scales ? 0.75f : 0,
        .kv_scale = s->has_scales ? 1.5f : 0,
        .q_scales = tensor_of(c, QNI_MLA_Q_SCALES),
        .kv_scales = tensor_of(c, QNI_MLA_KV_SCALES),
        .lse_base = s->is_natural ? QN_LSE_BASE_E : QN_LSE_BASE_2,
    };
    return qni_mla_make(stream, &args, &c->problem);
}

static void *host_of(qni_mla_case *c, int which) {
    const qni_mla_tensor *t = &c->tensors[which];
    const qni_area *a = &c->areas[t->area];
    return t->t.ndim ? (char *)qni_area_host(a) + t->first * qni_dtype_bytes(a->dtype) : nullptr;
}

/** Returns the problem over the areas' host copies, with all that the spec itself says. */
static qni_attention_problem on_host(qni_mla_case *c) {
    const qni_mla_spec *s = c->spec;
    qni_attention_problem p = c->problem;
    qk_attention_args *g = &p.args;
    g->left = INT32_MAX;
    g->right = s->is_causal ? 0 : INT32_MAX;
    g->scale = 1 / sqrtf((float)(s->dim + s->rope_dim)) * (s->has_scales ? 0.75f * 1.5f : 1);
    g->v_scale = s->has_scales ? 1.5f : 1;
    g->lse_unit = s->is_natural ? 0x1.62E43p-1f : 1;
    g->q.data = host_of(c, QNI_MLA_Q_NOPE);
    g->k.data = g->v.data = host_of(c, QNI_MLA_CKV);
    p.tail.q.data = host_of(c, QNI_MLA_Q_PE);
    p.tail.k.data = host_of(c, QNI_MLA_KPE);
    p.groups.data = host_of(c, QNI_MLA_CKV_SCALES);
    g->kv_indices = host_of(c, QNI_MLA_INDICES);
    g->q_scales = host_of(c, QNI_MLA_Q_SCALES);
    g->k_scales = g->v_scales = host_of(c, QNI_MLA_KV_SCALES);
    return p;
}

/** Returns what o may lose where chunks' results are f16, beyond what the definition's bound has
 *  room for. f16 rounds a result by 2^-11 of it, an eighth of what bf16 does to weights, for which
 *  the bound has twice the room; but by up to 2^-25 where a result is below 2^-14. The weights with
 *  which chunks are merged add up to 1. */
static double lost_in_f16(const qk_attention_args *g, qni_dtype dtype_kv) {
    const double v_scale = g->v_scales ? (double)g->v_scales[0] : 1;
    return qni_is_fp8(dtype_kv) ? 0x1p-25 * fabs((double)g->v_scale * v_scale) : 0;
}

static void expect_row(qni_mla_case *c, const qni_attention_problem *host,
                       const qni_attention_row *row, const qni_attention_keys *keys, double *x) {
    const qni_mla_tensor *const t_o = &c->tensors[QNI_MLA_O], *const t_lse =
                                                                  &c->tensors[QNI_MLA_LSE];
    const int64_t token = (int64_t)row->request.qo_begin + row->query;
    double o[QK_ATTENTION_MAX_HEAD_DIM], bound[QK_ATTENTION_MAX_HEAD_DIM], lse, lse_bound;
    qni_attention_ref(host, row, keys, x, o, &lse, bound, &lse_bound);
    const double lost = lost_in_f16(&host->args, c->spec->dtype_kv);
    for (int64_t d = 0; d < c->spec->dim; d++)
        qni_area_expect(&c->areas[QNI_MLA_O],
                        token * t_o->strides[0] + row->head * t_o->strides[1] + d, o[d],
                        bound[d] > 0 ? bound[d] + lost : 0);
    if (c->spec->has_lse)
        qni_area_expect(&c->areas[QNI_MLA_LSE],
                        token * t_lse->strides[0] + row->head * t_lse->strides[1], lse, lse_bound);
}

static qn_status expect_request(qni_mla_case *c, const qni_attention_problem *host, uint32_t b) {
    const uint32_t heads = (uint32_t)c->spec->heads;
    const qk_attention_request r = request_of(c->spec, (int)b);
    const qni_attention_keys keys = qni_attention_load_keys(host, &r, b, 0);
    double *const x = malloc(((size_t)r.kv_len + 1) * sizeof *x);
    for (uint32_t i = 0; keys.k && x && i < (uint32_t)r.qo_len * heads; i++)
        expect_row(c, host, &(qni_attention_row){r, b, i / heads, i % heads}, &keys, x);
    const bool is_made = keys.k && x;
    free(keys.k);
    free(x);
    return is_made ? QN_OK : QN_FAIL(QN_E_MEMORY, "check: out of memory");
}

static qn_status expect_all(qni_mla_case *c) {
    const qni_attention_problem host = on_host(c);
    qni_area *const workspace = &c->areas[QNI_MLA_WORKSPACE];
    for (uint32_t b = 0; b < (uint32_t)c->spec->batches; b++)
        QN_TRY(expect_request(c, &host, b));
    for (int64_t i = 0; i < workspace->count; i++)
        qni_area_expect(workspace, i, 0, 255); // it may hold anything
    return QN_OK;
}

static void describe(qni_mla_case *c) {
    static const char *const values[] = {"", " peaks", " ramps"};
    const qni_mla_spec *s = c->spec;
    char chunk[40] = "", groups[24] = "";
    if (s->has_groups)
        snprintf(groups, sizeof groups, " groups+%s", qni_dtype_name(s->dtype_kpe));
    if (s->chunk)
        snprintf(chunk, sizeof chunk, " chunk=%d splits=%d", s->chunk, s->splits);
    snprintf(c->text, sizeof c->text,
             "b=%d qo=%d kv=%d heads=%d d=%d+%d %s,%s%s->%s page=%d gap=%d offset=%d%s%s%s%s%s%s%s",
             s->batches, s->qo[0], s->kv[0], s->heads, s->dim, s->rope_dim,
             qni_dtype_name(s->dtype), qni_dtype_name(s->dtype_kv), groups,
             qni_dtype_name(s->dtype_o), s->page, s->gap, s->offset, s->is_joined ? " joined" : "",
             s->is_causal ? " causal" : "", s->has_scales ? " scales" : "",
             s->has_lse ? " lse" : "", s->is_natural ? " base=e" : "", values[s->values], chunk);
}

qn_status qni_mla_case_create(qni_mla_case *c, qn_stream *stream, const qni_mla_spec *spec,
                              uint64_t seed) {
    *c = (qni_mla_case){.spec = spec, .seed = seed};
    describe(c);
    QN_TRY(make_tensors(c, stream));
    QN_TRY(make_plan(c, stream));
    fill_indices(c);
    QN_TRY(make_problem(c, stream));
    fill_tokens(c);
    fill_scales(c);
    if (!spec->is_bits_alone)
        QN_TRY(expect_all(c));
    c->outputs[0] = &c->areas[QNI_MLA_O].flat;
    c->outputs[1] = &c->areas[QNI_MLA_LSE].flat;
    return QN_OK;
}

void qni_mla_case_destroy(qni_mla_case *c) {
    qni_areas_destroy(c->areas, QNI_MLA_AREAS);
    free(c->plan);
    *c = (qni_mla_case){};
}
