// SPDX-License-Identifier: Apache-2.0
// Makes a case of the attention check: memory, tensors, values, a plan, and the results by the
// definition.
#include "attention_case.h"

#include <stdlib.h>
#include <string.h>

static const char *const area_names[QNI_CASE_AREAS] = {
    "q",          "k",    "v",           "o",        "lse",      "workspace", "schedule",
    "kv_indices", "mask", "custom_mask", "q_scales", "k_scales", "v_scales",  "sinks"};

// ---- sizes

static bool is_ragged_q(const qni_attention_spec *s) {
    return s->storage == QNI_CASE_RAGGED || s->storage == QNI_CASE_PAGED;
}
static int64_t dim_vo_of(const qni_attention_spec *s) {
    return s->dim_vo ? s->dim_vo : s->dim;
}
/** Returns which of a spec's lengths request b has. */
static int length_of(const qni_attention_spec *s, int b) {
    const int i = b == s->common ? 0 : b == 0 ? s->common : b;
    return i < QNI_CASE_LENGTHS ? i : 1 + i % (QNI_CASE_LENGTHS - 1);
}
static int32_t qo_len_of(const qni_attention_spec *s, int b) {
    return s->qo[is_ragged_q(s) ? length_of(s, b) : 0];
}
static int32_t kv_len_of(const qni_attention_spec *s, int b) {
    return s->kv[s->storage == QNI_CASE_DENSE ? 0 : length_of(s, b)];
}
static int32_t pages_of(const qni_attention_spec *s, int b) {
    return (kv_len_of(s, b) + s->page - 1) / s->page;
}

static int64_t max_kv_len(const qni_attention_spec *s) {
    int64_t most = 0;
    for (int b = 0; b < s->batches; b++)
        most = kv_len_of(s, b) > most ? kv_len_of(s, b) : most;
    return most;
}

/** Returns the tokens of q. Ragged q begins with a token of no request. */
static int64_t q_tokens(const qni_attention_spec *s) {
    int64_t sum = 1;
    for (int b = 0; b < s->batches; b++)
        sum += qo_len_of(s, b);
    return is_ragged_q(s) ? sum : s->qo[0];
}

static int64_t kv_tokens(const qni_attention_spec *s) {
    int64_t sum = 0;
    for (int b = 0; b < s->batches; b++)
        sum += kv_len_of(s, b);
    return s->storage == QNI_CASE_PAGED    ? s->page
           : s->storage == QNI_CASE_RAGGED ? sum
           : s->storage == QNI_CASE_PADDED ? max_kv_len(s) + 3
                                           : s->kv[0];
}

static int64_t kv_blocks(const qni_attention_spec *s) {
    int64_t pages = 2;
    for (int b = 0; b < s->batches && s->storage == QNI_CASE_PAGED; b++)
        pages += pages_of(s, b);
    return s->storage == QNI_CASE_PAGED ? pages : s->storage == QNI_CASE_RAGGED ? 1 : s->batches;
}

static int64_t mask_bytes_before(const qni_attention_spec *s, int request) {
    int64_t sum = 0;
    for (int b = 0; b < request; b++)
        sum += ((int64_t)qo_len_of(s, b) * kv_len_of(s, b) + 7) / 8;
    return sum;
}

qk_attention_request qni_attention_case_request(const qni_attention_spec *s, int b) {
    qk_attention_request r = {.qo_begin = is_ragged_q(s),
                              .qo_len = qo_len_of(s, b),
                              .kv_len = kv_len_of(s, b),
                              .mask_begin = mask_bytes_before(s, b)};
    for (int i = 0; i < b; i++) {
        r.qo_begin += is_ragged_q(s) ? qo_len_of(s, i) : 0;
        r.kv_begin += s->storage == QNI_CASE_PAGED    ? pages_of(s, i)
                      : s->storage == QNI_CASE_RAGGED ? kv_len_of(s, i)
                                                      : 0;
    }
    return r;
}

// ---- tensors

static qn_status make_area(qni_attention_case *c, qn_stream *stream, int which, qni_dtype dtype,
                           int64_t count, int64_t offset) {
    return qni_area_create(&c->areas[which], area_names[which], qn_stream_device(stream), dtype,
                           count, offset);
}

/** Sets a view of an area; a negative size ends the shape. */
static void set_tensor(qni_attention_case *c, int which, int ndim, const int64_t *shape,
                       const int64_t *strides) {
    qni_case_tensor *t = &c->tensors[which];
    const qni_area *a = &c->areas[which];
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(t->strides, strides, (size_t)ndim * sizeof *strides);
    t->t = (DLTensor){.data = qni_area_device(a),
                      .device = qn_device_id(a->owner),
                      .ndim = ndim,
                      .dtype = qni_dl_dtype(a->dtype),
                      .shape = t->shape,
                      .strides = t->strides};
}

static qn_status make_vector(qni_attention_case *c, qn_stream *stream, int which, qni_dtype dtype,
                             int64_t count) {
    static const int64_t one = 1;
    const qn_status st = make_area(c, stream, which, dtype, count, 0);
    if (st == QN_OK)
        set_tensor(c, which, 1, &count, &one);
    return st;
}

/** Makes rows of [blocks, tokens, heads, dim] or [blocks, heads, tokens, dim]. Without blocks there
 *  are three dimensions; dim 0: lse. */
static qn_status make_rows(qni_attention_case *c, qn_stream *stream, int which, qni_dtype dtype,
                           bool has_blocks, bool is_hnd, int64_t blocks, int64_t tokens,
                           int64_t heads, int64_t dim) {
    const qni_attention_spec *s = c->spec;
    const bool heads_first = is_hnd != s->is_swapped; // in memory
    const int64_t width = dim ? dim : 1, inner = (heads_first ? tokens : heads) * width + s->gap;
    const int64_t token = heads_first ? width : inner, head = heads_first ? inner : width;
    const int64_t block = (heads_first ? heads : tokens) * inner + s->block_gap;
    const int64_t shape[] = {blocks, is_hnd ? heads : tokens, is_hnd ? tokens : heads, dim};
    const int64_t strides[] = {block, is_hnd ? head : token, is_hnd ? token : head, 1};
    const qn_status st = make_area(c, stream, which, dtype, blocks * block, dim ? s->offset : 0);
    if (st == QN_OK)
        set_tensor(c, which, 2 + has_blocks + (dim > 0), shape + !has_blocks,
                   strides + !has_blocks);
    return st;
}

static qn_status make_mask(qni_attention_case *c, qn_stream *stream) {
    const qni_attention_spec *s = c->spec;
    const qni_dtype dtype =
        s->mask_kind == QK_MASK_BOOL ? QNI_U8 : (qni_dtype)(s->mask_kind - QK_MASK_F32);
    const int64_t batch = s->is_mask_broadcast ? 1 : s->batches, keys = kv_tokens(s),
                  heads = s->is_mask_broadcast ? 1 : s->qo_heads, queries = s->qo[0];
    const int64_t shape[] = {batch, heads, queries, keys},
                  strides[] = {heads * queries * keys, queries * keys, keys, 1};
    const qn_status st = make_area(c, stream, QNI_CASE_MASK, dtype, batch * strides[0], 0);
    if (st == QN_OK)
        set_tensor(c, QNI_CASE_MASK, 4, shape, strides);
    return st;
}

static qn_status make_tensors(qni_attention_case *c, qn_stream *stream) {
    const qni_attention_spec *s = c->spec;
    const bool q_blocks = !is_ragged_q(s), kv_has_blocks = s->storage != QNI_CASE_RAGGED;
    const bool q_hnd = s->is_hnd && q_blocks;
    const int64_t q_batch = q_blocks ? s->batches : 1, tokens = q_tokens(s);
    QN_TRY(make_rows(c, stream, QNI_CASE_Q, s->dtype, q_blocks, q_hnd, q_batch, tokens, s->qo_heads,
                     s->dim));
    QN_TRY(make_rows(c, stream, QNI_CASE_O, s->dtype_o, q_blocks, q_hnd, q_batch, tokens,
                     s->qo_heads, dim_vo_of(s)));
    for (int i = QNI_CASE_K; i <= QNI_CASE_V; i++)
        QN_TRY(make_rows(c, stream, i, s->dtype_kv, kv_has_blocks, s->is_hnd, kv_blocks(s),
                         kv_tokens(s), s->kv_heads, i == QNI_CASE_K ? s->dim : dim_vo_of(s)));
    if (s->has_lse)
        QN_TRY(make_rows(c, stream, QNI_CASE_LSE, QNI_F32, q_blocks, q_hnd, q_batch, tokens,
                         s->qo_heads, 0));
    if (s->storage == QNI_CASE_PAGED)
        QN_TRY(make_vector(c, stream, QNI_CASE_INDICES, QNI_I32, kv_blocks(s) - 2));
    if (s->has_custom_mask)
        QN_TRY(
            make_vector(c, stream, QNI_CASE_CUSTOM_MASK, QNI_U8, mask_bytes_before(s, s->batches)));
    if (s->mask_kind)
        QN_TRY(make_mask(c, stream));
    if (s->has_scales) {
        QN_TRY(make_vector(c, stream, QNI_CASE_Q_SCALES, QNI_F32, s->qo_heads));
        QN_TRY(make_vector(c, stream, QNI_CASE_K_SCALES, QNI_F32, s->kv_heads));
        QN_TRY(make_vector(c, stream, QNI_CASE_V_SCALES, QNI_F32, s->kv_heads));
    }
    if (s->has_sinks)
        QN_TRY(make_vector(c, stream, QNI_CASE_SINKS, QNI_F32, s->qo_heads));
    return QN_OK;
}

// ---- the plan

static qn_status make_plan(qni_attention_case *c, qn_stream *stream) {
    const qni_attention_spec *s = c->spec;
    int32_t qo_indptr[QNI_CASE_BATCHES + 1] = {1}, kv_indptr[QNI_CASE_BATCHES + 1] = {};
    int32_t last[QNI_CASE_BATCHES] = {}, lens[QNI_CASE_BATCHES] = {};
    int64_t workspace_bytes;
    for (int b = 0; b < s->batches; b++) {
        qo_indptr[b + 1] = qo_indptr[b] + qo_len_of(s, b);
        kv_indptr[b + 1] = kv_indptr[b] + (s->page ? pages_of(s, b) : kv_len_of(s, b));
        lens[b] = kv_len_of(s, b);
        last[b] = s->page ? kv_len_of(s, b) - (pages_of(s, b) - 1) * s->page : 0;
    }
    const bool is_dense_kv = s->storage == QNI_CASE_DENSE || s->storage == QNI_CASE_PADDED;
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = s->batches,
                                      .qo_indptr = is_ragged_q(s) ? qo_indptr : nullptr,
                                      .qo_len = s->qo[0],
                                      .kv_indptr = is_dense_kv ? nullptr : kv_indptr,
                                      .kv_last_page_len = s->page ? last : nullptr,
                                      .kv_lens = s->storage == QNI_CASE_PADDED ? lens : nullptr,
                                      .kv_len = s->kv[0],
                                      .page_size = s->page,
                                      .num_qo_heads = s->qo_heads,
                                      .num_kv_heads = s->kv_heads,
                                      .head_dim_vo = dim_vo_of(s),
                                      .kv_chunk = s->chunk,
                                      .max_kv_splits = s->splits,
                                      .num_compute_units = s->units};
    QN_TRY(qn_attention_plan(nullptr, &c->plan_bytes, &workspace_bytes, &a));
    c->plan = malloc((size_t)c->plan_bytes);
    if (!c->plan)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY(qn_attention_plan(c->plan, &c->plan_bytes, &workspace_bytes, &a));
    QN_TRY(make_vector(c, stream, QNI_CASE_SCHEDULE, QNI_U8, c->plan_bytes));
    memcpy(qni_area_host(&c->areas[QNI_CASE_SCHEDULE]), c->plan, (size_t)c->plan_bytes);
    if (workspace_bytes)
        QN_TRY(make_vector(c, stream, QNI_CASE_WORKSPACE, QNI_U8, workspace_bytes));
    return QN_OK;
}

/** Returns whether the case has a plan. Dense cases have one only if they ask for a chunk. */
static bool has_plan(const qni_attention_spec *s) {
    return s->storage != QNI_CASE_DENSE || s->chunk;
}

static qn_status make_uniform_workspace(qni_attention_case *c, qn_stream *stream) {
    int64_t bytes;
    const qn_status st = qn_attention_workspace_bytes(&bytes, &c->args);
    return st == QN_OK && bytes ? make_vector(c, stream, QNI_CASE_WORKSPACE, QNI_U8, bytes) : st;
}

// ---- values

static double value_of(qni_attention_case *c, int which) {
    const qni_attention_spec *s = c->spec;
    const double normal = qni_random_normal(&c->random);
    if (s->values == QNI_CASE_LOW && which != QNI_CASE_V)
        return (which == QNI_CASE_K ? -1 : 1) * sqrt(524288.0 / s->dim);
    return s->values == QNI_CASE_PEAKS && which == QNI_CASE_Q ? 64 * normal : normal;
}

/** Returns element d of q or k, for scores that rise, or fall, by 2 from key to key. A key's number
 *  is stored as digits of base 16, which every dtype holds exactly. */
static double ramp_of(const qni_attention_case *c, int which, int64_t position, uint32_t head,
                      int64_t d) {
    constexpr int64_t digits = 3;
    if (d >= digits)
        return 0;
    if (which == QNI_CASE_K)
        return (double)(position >> 4 * d & 15);
    const double step = 2 * exp2(ceil(log2((double)c->spec->dim) / 2));
    return (head % 2 ? -step : step) * (double)(1 << 4 * d);
}

/** Returns an element of a key that no query sees. */
static double hidden_of(const qni_attention_case *c, int which) {
    const qni_dtype dtype = c->spec->dtype_kv;
    return which == QNI_CASE_K ? NAN
           : qni_is_fp8(dtype) ? 240
           : dtype == QNI_F16  ? 65504
                               : 0x1.FEp127;
}

static void fill_row(qni_attention_case *c, int which, int64_t position, uint32_t head, int64_t at,
                     int64_t dim) {
    const bool is_ramp = c->spec->values == QNI_CASE_RAMPS && which != QNI_CASE_V;
    const bool is_hidden = which != QNI_CASE_Q && position < c->spec->hidden;
    for (int64_t d = 0; d < dim; d++)
        qni_put(c->areas[which].dtype, qni_area_host(&c->areas[which]), at + d,
                is_hidden ? hidden_of(c, which)
                : is_ramp ? ramp_of(c, which, position, head, d)
                          : value_of(c, which));
}

/** Fills in pages from the last one down; the second request begins with the first request's first
 *  page. */
static void fill_indices(qni_attention_case *c) {
    const qni_attention_spec *s = c->spec;
    const int32_t count = (int32_t)kv_blocks(s) - 2, first = pages_of(s, 0);
    int32_t *indices = qni_area_host(&c->areas[QNI_CASE_INDICES]);
    for (int32_t i = 0; i < count; i++)
        indices[i] = count - i;
    if (s->batches > 1 && first > 0 && kv_len_of(s, 0) >= s->page && kv_len_of(s, 1) >= s->page)
        indices[first] = indices[0];
}

/** Fills the elements of all heads of a token, from `at` on. */
static void fill_token(qni_attention_case *c, int which, uint32_t request, int64_t position,
                       int64_t at, int64_t head) {
    const qk_attention_args *g = &c->problem.args;
    const bool is_q = which == QNI_CASE_Q, is_v = which == QNI_CASE_V;
    const uint64_t owner = request == (uint32_t)c->spec->common ? 0 : request + 1;
    c->random = c->seed + (owner << 40) + ((uint64_t)which << 36) + (uint64_t)position;
    for (uint32_t h = 0; h < g->num_kv_heads * (is_q ? g->group : 1); h++)
        fill_row(c, which, position, h, at + h * head, is_v ? g->head_dim_vo : g->head_dim_qk);
}

/** Fills only what requests use; all else stays NaN. */
static void fill_tokens(qni_attention_case *c, const qni_attention_problem *host) {
    const qk_attention_args *g = &host->args;
    for (uint32_t b = 0; b < (uint32_t)c->spec->batches; b++) {
        const qk_attention_request r = qni_attention_case_request(c->spec, (int)b);
        const int64_t q = b * g->q.block + r.qo_begin * g->q.token;
        for (int64_t i = 0; i < r.qo_len; i++)
            fill_token(c, QNI_CASE_Q, b, r.kv_len - r.qo_len + i, q + i * g->q.token, g->q.head);
        for (int64_t j = 0; j < r.kv_len; j++) {
            fill_token(c, QNI_CASE_K, b, j, qni_attention_place(g, &g->k, &r, b, j), g->k.head);
            fill_token(c, QNI_CASE_V, b, j, qni_attention_place(g, &g->v, &r, b, j), g->v.head);
        }
    }
}

/** Clears the packed mask's bits for the keys that no query may see. */
static void hide_first_keys(qni_attention_case *c) {
    const qni_attention_spec *s = c->spec;
    uint8_t *bits = qni_area_host(&c->areas[QNI_CASE_CUSTOM_MASK]);
    for (int b = 0; b < s->batches && s->has_custom_mask; b++)
        for (int64_t i = 0; i < (int64_t)qo_len_of(s, b) * kv_len_of(s, b); i++)
            if (i % kv_len_of(s, b) < s->hidden)
                bits[mask_bytes_before(s, b) + i / 8] &= (uint8_t)~(1 << i % 8);
}

static void fill_masks(qni_attention_case *c) {
    const qni_attention_spec *s = c->spec;
    qni_area *bits = &c->areas[QNI_CASE_CUSTOM_MASK], *mask = &c->areas[QNI_CASE_MASK];
    for (int64_t i = 0; i < bits->count; i++)
        ((uint8_t *)qni_area_host(bits))[i] = s->is_mask_zero ? 0 : (uint8_t)qni_random(&c->random);
    hide_first_keys(c);
    for (int64_t i = 0; i < mask->count; i++) {
        const bool is_hidden =
            s->is_mask_zero || qni_random(&c->random) % 3 == 0 || i % kv_tokens(s) < s->hidden;
        if (s->mask_kind == QK_MASK_BOOL)
            ((uint8_t *)qni_area_host(mask))[i] = !is_hidden;
        else if (is_hidden) // beyond f16's range: -infinity
            qni_put(mask->dtype, qni_area_host(mask), i, -HUGE_VAL);
        else
            qni_put(mask->dtype, qni_area_host(mask), i, qni_random_normal(&c->random));
    }
}

static void fill_vectors(qni_attention_case *c) {
    c->random = c->seed;
    for (int which = QNI_CASE_Q_SCALES; which <= QNI_CASE_SINKS; which++)
        for (int64_t i = 0; i < c->areas[which].count; i++) {
            const double x = qni_random_normal(&c->random);
            const bool is_negative =
                c->spec->has_negative_scales && which == QNI_CASE_Q_SCALES && i % 2;
            ((float *)qni_area_host(&c->areas[which]))[i] =
                (float)(which == QNI_CASE_SINKS ? x : exp2(x / 2) * (is_negative ? -1 : 1));
        }
}

// ---- the problem

static const DLTensor *tensor_of(qni_attention_case *c, int which) {
    return c->areas[which].count || c->tensors[which].t.ndim ? &c->tensors[which].t : nullptr;
}

static void set_args(qni_attention_case *c) {
    const qni_attention_spec *s = c->spec;
    c->args = (qn_attention_args){.struct_size = sizeof c->args,
                                  .o = &c->tensors[QNI_CASE_O].t,
                                  .lse = (DLTensor *)(uintptr_t)tensor_of(c, QNI_CASE_LSE),
                                  .q = &c->tensors[QNI_CASE_Q].t,
                                  .k = &c->tensors[QNI_CASE_K].t,
                                  .v = &c->tensors[QNI_CASE_V].t,
                                  .layout = s->is_hnd ? QN_HND : QN_NHD,
                                  .kv_indices = tensor_of(c, QNI_CASE_INDICES),
                                  .is_causal = s->is_causal,
                                  .is_top_left = s->is_top_left,
                                  .has_window_left = s->has_left,
                                  .has_window_right = s->has_right,
                                  .window_left = s->left,
                                  .window_right = s->right,
                                  .custom_mask = tensor_of(c, QNI_CASE_CUSTOM_MASK),
                                  .mask = tensor_of(c, QNI_CASE_MASK),
                                  .pos_encoding = s->pos,
                                  .logits_soft_cap = s->cap,
                                  .q_scales = tensor_of(c, QNI_CASE_Q_SCALES),
                                  .k_scales = tensor_of(c, QNI_CASE_K_SCALES),
                                  .v_scales = tensor_of(c, QNI_CASE_V_SCALES),
                                  .sinks = tensor_of(c, QNI_CASE_SINKS),
                                  .dropout_p = s->dropout,
                                  .dropout_seed = 0x123456789ABCDEF,
                                  .dropout_offset = 0xFFFFFFFFF0, // crosses 2^40
                                  .lse_base = s->is_natural ? QN_LSE_BASE_E : QN_LSE_BASE_2};
}

static void set_plan(qni_attention_case *c) {
    c->args.plan = c->plan;
    c->args.plan_bytes = c->plan_bytes;
    c->args.schedule = tensor_of(c, QNI_CASE_SCHEDULE);
    c->args.workspace = (DLTensor *)(uintptr_t)tensor_of(c, QNI_CASE_WORKSPACE);
}

qni_attention_problem qni_attention_case_on_host(qni_attention_case *c) {
    const qni_attention_spec *s = c->spec;
    qni_attention_problem p = c->problem;
    qk_attention_args *g = &p.args;
    g->left = s->has_left ? s->left : INT32_MAX;
    g->right = s->is_causal && !s->has_custom_mask ? 0 : s->has_right ? s->right : INT32_MAX;
    g->is_top_left = s->is_top_left;
    const struct {
        const void **pointer;
        int which;
    } inputs[] = {{&g->q.data, QNI_CASE_Q},
                  {&g->k.data, QNI_CASE_K},
                  {&g->v.data, QNI_CASE_V},
                  {(const void **)&g->schedule, QNI_CASE_SCHEDULE},
                  {(const void **)&g->kv_indices, QNI_CASE_INDICES},
                  {&g->mask, QNI_CASE_MASK},
                  {(const void **)&g->custom_mask, QNI_CASE_CUSTOM_MASK},
                  {(const void **)&g->q_scales, QNI_CASE_Q_SCALES},
                  {(const void **)&g->k_scales, QNI_CASE_K_SCALES},
                  {(const void **)&g->v_scales, QNI_CASE_V_SCALES},
                  {(const void **)&g->sinks, QNI_CASE_SINKS}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        *inputs[i].pointer =
            tensor_of(c, inputs[i].which) ? qni_area_host(&c->areas[inputs[i].which]) : nullptr;
    return p;
}

static void expect_row(qni_attention_case *c, const qni_attention_problem *host,
                       const qni_attention_row *row, const qni_attention_keys *keys, double *x) {
    const qk_attention_args *g = &host->args;
    double o[QK_ATTENTION_MAX_HEAD_DIM], bound[QK_ATTENTION_MAX_HEAD_DIM], lse, lse_bound;
    const int64_t token = (int64_t)row->request.qo_begin + row->query;
    const int64_t at = row->index * g->o_batch + token * g->o_token + row->head * g->o_head;
    qni_attention_ref(host, row, keys, x, o, &lse, bound, &lse_bound);
    for (uint32_t d = 0; d < g->head_dim_vo; d++)
        qni_area_expect(&c->areas[QNI_CASE_O], at + d, o[d], bound[d]);
    if (c->spec->has_lse)
        qni_area_expect(&c->areas[QNI_CASE_LSE],
                        row->index * g->lse_batch + token * g->lse_token + row->head * g->lse_head,
                        lse, lse_bound);
}

/** Expects the results of a request's rows that share a kv head. */
static qn_status expect_rows(qni_attention_case *c, const qni_attention_problem *host,
                             uint32_t request, uint32_t kv_head, double *x) {
    const qk_attention_args *g = &host->args;
    const qk_attention_request r = qni_attention_case_request(c->spec, (int)request);
    const qni_attention_keys keys = qni_attention_load_keys(host, &r, request, kv_head);
    if (!keys.k)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    for (uint32_t i = 0; i < (uint32_t)r.qo_len * g->group; i++) {
        const qni_attention_row row = {r, request, i / g->group, kv_head * g->group + i % g->group};
        expect_row(c, host, &row, &keys, x);
    }
    free(keys.k);
    return QN_OK;
}

static qn_status expect_all(qni_attention_case *c, const qni_attention_problem *host) {
    const qk_attention_args *g = &host->args;
    double *x = malloc(((size_t)max_kv_len(c->spec) + 1) * sizeof *x);
    qn_status st = x ? QN_OK : QN_FAIL(QN_E_MEMORY, "check: out of memory");
    const uint32_t count = (uint32_t)c->spec->batches * g->num_kv_heads;
    for (uint32_t i = 0; st == QN_OK && i < count; i++)
        st = expect_rows(c, host, i / g->num_kv_heads, i % g->num_kv_heads, x);
    for (int64_t i = 0; i < c->areas[QNI_CASE_WORKSPACE].count; i++)
        qni_area_expect(&c->areas[QNI_CASE_WORKSPACE], i, 0, 255); // the workspace may hold
                                                                   // anything
    free(x);
    return st;
}

// ---- its name

static void describe(qni_attention_case *c) {
    static const char *const storages[] = {"dense", "ragged", "paged", "padded"},
                             *const masks[] = {"", " mask=bool", " mask=f32", " mask=f16",
                                               " mask=bf16"},
                             *const positions[] = {"", " rope", " alibi"};
    const qni_attention_spec *s = c->spec;
    char *at = c->text, *end = c->text + sizeof c->text;
#define SAY(...)                                                                                   \
    do {                                                                                           \
        const int said = snprintf(at, (size_t)(end - at), __VA_ARGS__);                            \
        at += said < end - at ? said : end - at - 1;                                               \
    } while (0)
    SAY("%s %s b=%d qo=%d kv=%d heads=%d/%d d=%d", storages[s->storage], s->is_hnd ? "HND" : "NHD",
        s->batches, s->qo[0], s->kv[0], s->qo_heads, s->kv_heads, s->dim);
    if (s->dim_vo)
        SAY(",%d", s->dim_vo);
    SAY(" %s,%s->%s", qni_dtype_name(s->dtype), qni_dtype_name(s->dtype_kv),
        qni_dtype_name(s->dtype_o));
    if (s->page)
        SAY(" page=%d", s->page);
    if (s->gap || s->offset)
        SAY(" gap=%d offset=%d", s->gap, s->offset);
    if (s->block_gap)
        SAY(" block_gap=%d", s->block_gap);
    SAY("%s%s%s%s", s->is_swapped ? " swapped" : "", s->is_causal ? " causal" : "",
        s->is_top_left ? " top-left" : "", s->has_custom_mask ? " custom-mask" : "");
    if (s->has_left)
        SAY(" window_left=%d", s->left);
    if (s->has_right)
        SAY(" window_right=%d", s->right);
    SAY("%s%s", masks[s->mask_kind], positions[s->pos]);
    if (s->cap > 0)
        SAY(" cap=%g", (double)s->cap);
    if (s->dropout > 0)
        SAY(" dropout=%g", (double)s->dropout);
    SAY("%s%s%s", s->has_sinks ? " sinks" : "",
        s->has_negative_scales ? " scales<0"
        : s->has_scales        ? " scales"
                               : "",
        s->has_lse ? " lse" : "");
    if (s->chunk)
        SAY(" chunk=%d splits=%d", s->chunk, s->splits);
#undef SAY
}

qn_status qni_attention_case_create(qni_attention_case *c, qn_stream *stream,
                                    const qni_attention_spec *spec, uint64_t seed) {
    *c = (qni_attention_case){.spec = spec, .seed = seed, .random = seed};
    describe(c);
    QN_TRY(make_tensors(c, stream));
    set_args(c);
    QN_TRY(has_plan(spec) ? make_plan(c, stream) : make_uniform_workspace(c, stream));
    set_plan(c);
    if (spec->storage == QNI_CASE_PAGED)
        fill_indices(c);
    QN_TRY(qni_attention_make(stream, &c->args, &c->problem));
    const qni_attention_problem host = qni_attention_case_on_host(c);
    fill_tokens(c, &host);
    fill_masks(c);
    fill_vectors(c);
    if (!spec->is_bits_alone)
        QN_TRY(expect_all(c, &host));
    c->outputs[0] = &c->areas[QNI_CASE_O].flat;
    c->outputs[1] = &c->areas[QNI_CASE_LSE].flat;
    return QN_OK;
}

void qni_attention_case_destroy(qni_attention_case *c) {
    qni_areas_destroy(c->areas, QNI_CASE_AREAS);
    free(c->plan);
    *c = (qni_attention_case){};
}
