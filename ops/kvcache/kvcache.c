// SPDX-License-Identifier: Apache-2.0
// The kvcache family's public functions: each checks its tensors and fills one kind of problem.
#include "kvcache.h"

#include "../shared/variants.h"

#include <string.h>

#define QN_TABLE_OF_kvcache 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_kvcache

#define QN_TABLE_OF_kvcache_positions 0,
static const qni_variant positions_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_kvcache_positions

#define QN_TABLE_OF_kvcache_seq_lens 0,
static const qni_variant seq_lens_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_kvcache_seq_lens

const qni_op qni_op_kvcache = QN_OP("kvcache", variants);
const qni_op qni_op_kvcache_positions = QN_OP("kvcache_positions", positions_variants);
const qni_op qni_op_kvcache_seq_lens = QN_OP("kvcache_seq_lens", seq_lens_variants);

/** One of keys and values, by its names. */
typedef struct side {
    const char *name, *cache_name, *scale_name;
    const DLTensor *t;
    DLTensor *cache;
    const DLTensor *scale; // null: copied
} side;

typedef struct append_call {
    const char *op;
    qn_stream *stream;
    side sides[2];
    qni_page_tensors pages;
    qn_kv_layout layout;
    bool is_latent; // no heads
    bool is_one;    // both caches are slices, side by side, of one
} append_call;

static qn_status check_tokens(const append_call *c, const side *s, int64_t n) {
    const int ndim = c->is_latent ? 2 : 3;
    const int64_t want[] = {n, -1, -1};
    QN_TRY(qni_check_tensor(c->stream, c->op, s->name, s->t, ndim));
    QN_TRY(qni_check_dtype(c->op, s->name, s->t, qni_of_floats | qni_of_fp8));
    QN_TRY(qni_check_shape(c->op, s->name, s->t, ndim, want));
    QN_TRY(qni_check_last_contiguous(c->op, s->name, s->t));
    return qni_check_alignment(c->op, s->name, s->t);
}

/** Copies need one dtype; with a scale the cache is FP8 and the tokens are not. */
static qn_status check_dtypes(const append_call *c, const side *s) {
    const qni_dtype from = qni_dtype_of(s->t), to = qni_dtype_of(s->cache);
    const qni_dtype first = qni_dtype_of(c->sides[0].t), cache = qni_dtype_of(c->sides[0].cache);
    if (s->scale ? !qni_is_fp8(to) : to != from)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs %s", c->op, s->cache_name,
                       qni_dtype_name(to), s->scale ? "an FP8 kind" : qni_dtype_name(from));
    if (s->scale && !qni_is_float16_or_32(from))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted with %s: f32, f16, bf16",
                       c->op, s->name, qni_dtype_name(from), s->scale_name);
    if (from != first || to != cache)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s and its cache have dtypes %s and %s, %s %s and %s",
                       c->op, s->name, qni_dtype_name(from), qni_dtype_name(to), c->sides[0].name,
                       qni_dtype_name(first), qni_dtype_name(cache));
    return QN_OK;
}

/** One side of the problem; its cache's view, for the index tensors. */
static qn_status set_side(const append_call *c, const side *s, int64_t n, qni_cache_rows *r,
                          qni_cache_view *view) {
    QN_TRY(check_tokens(c, s, n));
    const int last = s->t->ndim - 1;
    const int64_t heads = c->is_latent ? -1 : s->t->shape[1], width = s->t->shape[last];
    QN_TRY(
        qni_check_cache(c->stream, c->op, s->cache_name, s->cache, c->layout, heads, width, view));
    QN_TRY(check_dtypes(c, s));
    if (s->scale)
        QN_TRY(qni_check_given_scale(c->stream, c->op, s->scale_name, s->scale));
    *r = (qni_cache_rows){.in = qni_data(s->t),
                          .out = view->data,
                          .in_token = qni_stride(s->t, 0),
                          .in_head = c->is_latent ? 0 : qni_stride(s->t, 1),
                          .out_page = view->page,
                          .out_place = view->place,
                          .out_head = view->head,
                          .heads = c->is_latent ? 1 : heads,
                          .width = width,
                          .scale = s->scale ? qni_data(s->scale) : nullptr};
    return QN_OK;
}

/** A cache may meet nothing else. */
static qn_status check_overlap(const append_call *c, const side *s) {
    const qni_page_tensors *p = &c->pages;
    const struct {
        const char *name;
        const DLTensor *t;
    } others[] = {{c->sides[0].name, c->sides[0].t},
                  {c->sides[1].name, c->sides[1].t},
                  {"slot_mapping", p->slot_mapping},
                  {"batch_indices", p->batch_indices},
                  {"positions", p->positions},
                  {"kv_indices", p->kv_indices},
                  {"kv_indptr", p->kv_indptr},
                  {"kv_last_page_len", p->kv_last_page_len},
                  {c->sides[0].scale_name, c->sides[0].scale},
                  {c->sides[1].scale_name, c->sides[1].scale}};
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof others / sizeof *others; i++)
        st = qni_check_disjoint(c->op, s->cache_name, s->cache, others[i].name, others[i].t);
    return st;
}

static qn_status run_append(const append_call *c) {
    const side *k = &c->sides[0], *v = &c->sides[1];
    qni_cache_view views[2];
    qni_kvcache_problem p = {};
    QN_TRY(set_side(c, k, -1, &p.parts[0], &views[0]));
    p.n = k->t->shape[0];
    QN_TRY(set_side(c, v, p.n, &p.parts[1], &views[1]));
    if (views[0].pages != views[1].pages || views[0].page_size != views[1].page_size)
        return QN_FAIL(QN_E_INVALID,
                       "%s: %s has %ld pages of %ld, %s %ld of %ld; both need the same", c->op,
                       k->cache_name, (long)views[0].pages, (long)views[0].page_size, v->cache_name,
                       (long)views[1].pages, (long)views[1].page_size);
    QN_TRY(qni_check_pages(c->stream, c->op, &c->pages, p.n, &views[0], &p.pages));
    QN_TRY(check_overlap(c, k));
    QN_TRY(check_overlap(c, v));
    if (!c->is_one)
        QN_TRY(qni_check_disjoint(c->op, v->cache_name, v->cache, k->cache_name, k->cache));
    p.dtype = qni_dtype_of(k->t);
    p.dtype_out = qni_dtype_of(k->cache);
    if (p.n > 0)
        QN_TRY(qni_run(&qni_op_kvcache, c->stream, &p));
    return QN_OK;
}

// ---- the public functions

qn_status qn_append_paged_kv_cache(qn_stream *stream, const qn_append_paged_kv_cache_args *args) {
    const char *op = "append_paged_kv_cache";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_append_paged_kv_cache_args, args);
    if (st != QN_OK)
        return st;
    const append_call c = {
        .op = op,
        .stream = stream,
        .sides = {{"append_key", "k_cache", nullptr, args->append_key, args->k_cache, nullptr},
                  {"append_value", "v_cache", nullptr, args->append_value, args->v_cache, nullptr}},
        .pages = {.batch_indices = args->batch_indices,
                  .positions = args->positions,
                  .kv_indices = args->kv_indices,
                  .kv_indptr = args->kv_indptr,
                  .kv_last_page_len = args->kv_last_page_len},
        .layout = args->kv_layout};
    return run_append(&c);
}

qn_status qn_append_paged_mla_kv_cache(qn_stream *stream,
                                       const qn_append_paged_mla_kv_cache_args *args) {
    const char *op = "append_paged_mla_kv_cache";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_append_paged_mla_kv_cache_args, args);
    if (st != QN_OK)
        return st;
    const append_call c = {
        .op = op,
        .stream = stream,
        .sides = {{"append_ckv", "ckv_cache", nullptr, args->append_ckv, args->ckv_cache, nullptr},
                  {"append_kpe", "kpe_cache", nullptr, args->append_kpe, args->kpe_cache, nullptr}},
        .pages = {.batch_indices = args->batch_indices,
                  .positions = args->positions,
                  .kv_indices = args->kv_indices,
                  .kv_indptr = args->kv_indptr,
                  .kv_last_page_len = args->kv_last_page_len},
        .is_latent = true};
    return run_append(&c);
}

qn_status qn_reshape_and_cache(qn_stream *stream, const qn_reshape_and_cache_args *args) {
    const char *op = "reshape_and_cache";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_reshape_and_cache_args, args);
    if (st != QN_OK)
        return st;
    if (!args->slot_mapping)
        return QN_FAIL(QN_E_INVALID, "%s: slot_mapping is null", op);
    if (!args->k_scale != !args->v_scale)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null and the other scale is not", op,
                       args->k_scale ? "v_scale" : "k_scale");
    const append_call c = {
        .op = op,
        .stream = stream,
        .sides = {{"key", "k_cache", "k_scale", args->key, args->k_cache, args->k_scale},
                  {"value", "v_cache", "v_scale", args->value, args->v_cache, args->v_scale}},
        .pages = {.slot_mapping = args->slot_mapping},
        .layout = args->kv_layout};
    return run_append(&c);
}

/** Columns first .. first + width - 1 of a cache without heads. */
typedef struct slice {
    DLTensor t;
    int64_t shape[3], strides[3];
} slice;

static void slice_init(slice *s, const DLTensor *cache, int64_t first, int64_t width) {
    *s = (slice){.t = *cache, .shape = {cache->shape[0], cache->shape[1], width}};
    for (int i = 0; i < 3; i++)
        s->strides[i] = qni_stride(cache, i);
    s->t.shape = s->shape;
    s->t.strides = s->strides;
    s->t.byte_offset += (uint64_t)(first * qni_dtype_bytes(qni_dtype_of(cache)));
}

/** The cache as a whole, and that it has room for both parts of a token. */
static qn_status check_concatenated(const qn_stream *stream, const char *op, const DLTensor *cache,
                                    const DLTensor *kv_c, const DLTensor *k_pe) {
    qni_cache_view view;
    QN_TRY(qni_check_tensor(stream, op, "kv_c", kv_c, 2));
    QN_TRY(qni_check_tensor(stream, op, "k_pe", k_pe, 2));
    const int64_t width = kv_c->shape[1] + k_pe->shape[1];
    QN_TRY(qni_check_cache(stream, op, "kv_cache", cache, QN_NHD, -1, width, &view));
    return qni_check_dtype(op, "kv_cache", cache, qni_of_floats | qni_of_fp8);
}

qn_status qn_concat_and_cache_mla(qn_stream *stream, DLTensor *kv_cache, const DLTensor *kv_c,
                                  const DLTensor *k_pe, const DLTensor *slot_mapping,
                                  const DLTensor *scale) {
    const char *op = "concat_and_cache_mla";
    slice parts[2];
    QN_TRY(check_concatenated(stream, op, kv_cache, kv_c, k_pe));
    if (!slot_mapping)
        return QN_FAIL(QN_E_INVALID, "%s: slot_mapping is null", op);
    slice_init(&parts[0], kv_cache, 0, kv_c->shape[1]);
    slice_init(&parts[1], kv_cache, kv_c->shape[1], k_pe->shape[1]);
    const append_call c = {.op = op,
                           .stream = stream,
                           .sides = {{"kv_c", "kv_cache", "scale", kv_c, &parts[0].t, scale},
                                     {"k_pe", "kv_cache", "scale", k_pe, &parts[1].t, scale}},
                           .pages = {.slot_mapping = slot_mapping},
                           .is_latent = true,
                           .is_one = true};
    return run_append(&c);
}

qn_status qn_get_seq_lens(qn_stream *stream, DLTensor *seq_lens, const DLTensor *kv_indptr,
                          const DLTensor *kv_last_page_len, int64_t page_size) {
    const char *op = "get_seq_lens";
    QN_TRY(qni_check_indices(stream, op, "seq_lens", seq_lens, -1));
    const int64_t batches = seq_lens->shape[0];
    QN_TRY(qni_check_indices(stream, op, "kv_indptr", kv_indptr, batches + 1));
    QN_TRY(qni_check_indices(stream, op, "kv_last_page_len", kv_last_page_len, batches));
    if (page_size < 1 || page_size > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: page_size is %ld; accepted: 1 to 2^31 - 1", op,
                       (long)page_size);
    QN_TRY(qni_check_disjoint(op, "seq_lens", seq_lens, "kv_indptr", kv_indptr));
    QN_TRY(qni_check_disjoint(op, "seq_lens", seq_lens, "kv_last_page_len", kv_last_page_len));
    const qni_seq_lens_problem p = {.seq_lens = qni_data(seq_lens),
                                    .kv_indptr = qni_data(kv_indptr),
                                    .kv_last_page_len = qni_data(kv_last_page_len),
                                    .batches = batches,
                                    .page_size = (int32_t)page_size};
    if (qni_validates_indices(stream))
        QN_TRY(qni_validate_rising(stream, op, "kv_indptr", p.kv_indptr, batches + 1, INT32_MAX));
    if (batches > 0)
        QN_TRY(qni_run(&qni_op_kvcache_seq_lens, stream, &p));
    return QN_OK;
}

qn_status qn_get_batch_indices_positions(qn_stream *stream, DLTensor *batch_indices,
                                         DLTensor *positions, const DLTensor *append_indptr,
                                         const DLTensor *seq_lens) {
    const char *op = "get_batch_indices_positions";
    qni_positions_problem p;
    QN_TRY(qni_check_indices(stream, op, "batch_indices", batch_indices, -1));
    QN_TRY(qni_check_indices(stream, op, "positions", positions, batch_indices->shape[0]));
    QN_TRY(qni_check_indices(stream, op, "append_indptr", append_indptr, -1));
    if (append_indptr->shape[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: append_indptr is empty, needs at least one entry", op);
    p = (qni_positions_problem){.n = batch_indices->shape[0],
                                .batches = append_indptr->shape[0] - 1,
                                .batch_indices = qni_data(batch_indices),
                                .positions = qni_data(positions),
                                .append_indptr = qni_data(append_indptr)};
    QN_TRY(qni_check_indices(stream, op, "seq_lens", seq_lens, p.batches));
    p.seq_lens = qni_data(seq_lens);
    QN_TRY(qni_check_disjoint(op, "positions", positions, "batch_indices", batch_indices));
    DLTensor *written[] = {batch_indices, positions};
    const char *names[] = {"batch_indices", "positions"};
    for (int i = 0; i < 2; i++) {
        QN_TRY(qni_check_disjoint(op, names[i], written[i], "append_indptr", append_indptr));
        QN_TRY(qni_check_disjoint(op, names[i], written[i], "seq_lens", seq_lens));
    }
    if (qni_validates_indices(stream))
        QN_TRY(
            qni_validate_rising(stream, op, "append_indptr", p.append_indptr, p.batches + 1, p.n));
    if (p.n > 0)
        QN_TRY(qni_run(&qni_op_kvcache_positions, stream, &p));
    return QN_OK;
}
