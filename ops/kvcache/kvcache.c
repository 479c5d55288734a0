// SPDX-License-Identifier: Apache-2.0
// The kvcache family's public functions: each reads its tensors and makes a problem.
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

#define QN_TABLE_OF_kvcache_gather 0,
static const qni_variant gather_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_kvcache_gather

#define QN_TABLE_OF_kvcache_groups 0,
static const qni_variant groups_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_kvcache_groups

static const qni_key keys[] = {{.name = "heads"},
                               {.name = "k_dim"},
                               {.name = "v_dim"},
                               {.name = "page_size"},
                               {.name = "x", .words = qni_dtype_words},
                               {.name = "cache", .words = qni_dtype_words},
                               {.name = "tokens", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_kvcache_problem *p = problem;
    QN_SET_VALUES(keys, values, p->parts[0].heads, p->parts[0].width, p->parts[1].width,
                  p->pages.page_size, p->dtype, p->dtype_out, p->n);
}

static const qni_key positions_keys[] = {
    {.name = "tokens", .is_of_batch = true}, {.name = "requests", .is_of_batch = true}, {}};

static void describe_positions(const void *problem, int64_t *values) {
    const qni_positions_problem *p = problem;
    QN_SET_VALUES(positions_keys, values, p->n, p->batches);
}

static const qni_key seq_lens_keys[] = {
    {.name = "page_size"}, {.name = "requests", .is_of_batch = true}, {}};

static void describe_seq_lens(const void *problem, int64_t *values) {
    const qni_seq_lens_problem *p = problem;
    QN_SET_VALUES(seq_lens_keys, values, p->page_size, p->batches);
}

static const qni_key gather_keys[] = {{.name = "dim"},
                                      {.name = "page_size"},
                                      {.name = "cache", .words = qni_dtype_words},
                                      {.name = "out", .words = qni_dtype_words},
                                      {.name = "tokens", .is_of_batch = true},
                                      {}};

static void describe_gather(const void *problem, int64_t *values) {
    const qni_gather_problem *p = problem;
    QN_SET_VALUES(gather_keys, values, p->width, p->pages.page_size, p->dtype, p->dtype_out, p->n);
}

static const qni_key groups_keys[] = {{.name = "dim"},
                                      {.name = "rope_dim"},
                                      {.name = "page_size"},
                                      {.name = "x", .words = qni_dtype_words},
                                      {.name = "cache", .words = qni_dtype_words},
                                      {.name = "tokens", .is_of_batch = true},
                                      {}};

static void describe_groups(const void *problem, int64_t *values) {
    const qni_groups_problem *p = problem;
    QN_SET_VALUES(groups_keys, values, p->width, p->rope_width, p->args.pages.page_size, p->dtype,
                  p->dtype_codes, p->n);
}

const qni_op qni_op_kvcache = QN_OP("kvcache", variants, keys, describe);
const qni_op qni_op_kvcache_positions =
    QN_OP("kvcache_positions", positions_variants, positions_keys, describe_positions);
const qni_op qni_op_kvcache_seq_lens =
    QN_OP("kvcache_seq_lens", seq_lens_variants, seq_lens_keys, describe_seq_lens);
const qni_op qni_op_kvcache_gather =
    QN_OP("kvcache_gather", gather_variants, gather_keys, describe_gather);
const qni_op qni_op_kvcache_groups =
    QN_OP("kvcache_groups", groups_variants, groups_keys, describe_groups);

/** The tensors of keys or of values, and their names. */
typedef struct side {
    const char *name, *cache_name, *scale_name;
    const DLTensor *t;
    DLTensor *cache;
    const DLTensor *scale; // null: tokens are copied
} side;

enum { // two of each, for keys and values; then the index tensors
    TOKENS,
    CACHES = TOKENS + 2,
    SCALES = CACHES + 2,
    PAGES = SCALES + 2,
    NUM_TENSORS = PAGES + QNI_MAX_PAGE_TENSORS
};

typedef struct append_call {
    qni_call of;
    qn_stream *stream;
    side sides[2];
    qni_page_tensors pages;
    qn_kv_layout layout;
    bool is_latent;          // no heads
    const qni_tensor *whole; // the cache of which both caches are slices, side by side; or null
    qni_tensor t[NUM_TENSORS];
} append_call;

/** Checks dtypes: a copy needs one dtype; with a scale the cache must be FP8, and the tokens
 *  not. */
static qn_status check_dtypes(const append_call *c, int i) {
    const side *s = &c->sides[i];
    const qni_dtype from = c->t[TOKENS + i].dtype, to = c->t[CACHES + i].dtype;
    const qni_dtype first = c->t[TOKENS].dtype, cache = c->t[CACHES].dtype;
    if (s->scale ? !qni_is_fp8(to) : to != from)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s, needs %s", c->of.op, s->cache_name,
                       qni_dtype_name(to), s->scale ? "an FP8 kind" : qni_dtype_name(from));
    if (s->scale && !qni_is_float16_or_32(from))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted with %s: f32, f16, bf16",
                       c->of.op, s->name, qni_dtype_name(from), s->scale_name);
    if (from != first || to != cache)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s and its cache have dtypes %s and %s, %s %s and %s",
                       c->of.op, s->name, qni_dtype_name(from), qni_dtype_name(to),
                       c->sides[0].name, qni_dtype_name(first), qni_dtype_name(cache));
    return QN_OK;
}

/** Reads one side of the problem, and gives the view of its cache, for the index tensors. n < 0:
 *  any number of tokens. */
static qn_status read_side(append_call *c, int i, int64_t n, qni_cache_rows *r,
                           qni_cache_view *view) {
    const side *s = &c->sides[i];
    qni_tensor *const t = &c->t[TOKENS + i], *const scale = &c->t[SCALES + i];
    const int ndim = c->is_latent ? 2 : 3;
    *t = (qni_tensor){
        .name = s->name,
        .t = s->t,
        .ndim = ndim,
        .dtypes = qni_of_floats | qni_of_fp8,
        .shape = (const int64_t[]){n, -1, -1},
        .has_rows = true,
    };
    QN_TRY(qni_read_tensors(&c->of, t, 1));
    const int64_t heads = c->is_latent ? -1 : t->size[1], width = t->size[ndim - 1];
    QN_TRY(qni_read_cache(&c->of, &c->t[CACHES + i], s->cache_name, s->cache, c->layout, heads,
                          width, view));
    QN_TRY(check_dtypes(c, i));
    *scale = qni_given_scale(s->scale_name, s->scale);
    scale->may_be_null = true;
    QN_TRY(qni_read_tensors(&c->of, scale, 1));
    if (s->scale)
        QN_TRY(qni_validate_scale(c->stream, c->of.op, s->scale_name, scale->data));
    *r = (qni_cache_rows){.in = t->data,
                          .out = view->data,
                          .in_token = t->stride[0],
                          .in_head = c->is_latent ? 0 : t->stride[1],
                          .out_page = view->page,
                          .out_place = view->place,
                          .out_head = view->head,
                          .heads = c->is_latent ? 1 : heads,
                          .width = width,
                          .scale = scale->data};
    return QN_OK;
}

static qn_status run_append(append_call *c) {
    const side *k = &c->sides[0], *v = &c->sides[1];
    qni_cache_view views[2];
    qni_kvcache_problem p = {};
    QN_TRY(read_side(c, 0, -1, &p.parts[0], &views[0]));
    p.n = c->t[TOKENS].size[0];
    QN_TRY(read_side(c, 1, p.n, &p.parts[1], &views[1]));
    if (views[0].pages != views[1].pages || views[0].page_size != views[1].page_size)
        return QN_FAIL(QN_E_INVALID,
                       "%s: %s has %ld pages of %ld, %s %ld of %ld; both need the same", c->of.op,
                       k->cache_name, (long)views[0].pages, (long)views[0].page_size, v->cache_name,
                       (long)views[1].pages, (long)views[1].page_size);
    p.dtype = c->t[TOKENS].dtype;
    p.dtype_out = c->t[CACHES].dtype;
    QN_TRY(qni_read_pages(c->stream, &c->of, &c->pages, p.n, &views[0], &c->t[PAGES], &p.pages));
    if (c->whole) {
        c->t[CACHES] = *c->whole;
        c->t[CACHES + 1] = (qni_tensor){};
    }
    QN_TRY(qni_check_apart(&c->of, c->t, NUM_TENSORS));
    return p.n > 0 ? qni_run(&qni_op_kvcache, c->stream, &p) : QN_OK;
}

// ---- the public functions

qn_status qn_append_paged_kv_cache(qn_stream *stream, const qn_append_paged_kv_cache_args *args) {
    const char *op = "append_paged_kv_cache";
    const qn_status st = QNI_CHECK_STRUCT(op, "args", qn_append_paged_kv_cache_args, args);
    if (st != QN_OK)
        return st;
    append_call c = {
        .of = {op, stream},
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
    append_call c = {
        .of = {op, stream},
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
    append_call c = {
        .of = {op, stream},
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

/** Reads the whole cache, which must have room for both parts of a token. */
static qn_status read_whole(const qni_call *call, const DLTensor *cache, const DLTensor *kv_c,
                            const DLTensor *k_pe, qni_tensor *whole) {
    qni_cache_view view;
    qni_tensor parts[] = {{.name = "kv_c", .t = kv_c, .ndim = 2},
                          {.name = "k_pe", .t = k_pe, .ndim = 2}};
    QN_TRY(qni_read_tensors(call, parts, 2));
    const int64_t width = parts[0].size[1] + parts[1].size[1];
    return qni_read_cache(call, whole, "kv_cache", cache, QN_NHD, -1, width, &view);
}

qn_status qn_concat_and_cache_mla(qn_stream *stream, DLTensor *kv_cache, const DLTensor *kv_c,
                                  const DLTensor *k_pe, const DLTensor *slot_mapping,
                                  const DLTensor *scale) {
    const char *op = "concat_and_cache_mla";
    slice parts[2];
    qni_tensor whole;
    QN_TRY(read_whole(&(qni_call){op, stream}, kv_cache, kv_c, k_pe, &whole));
    if (!slot_mapping)
        return QN_FAIL(QN_E_INVALID, "%s: slot_mapping is null", op);
    slice_init(&parts[0], kv_cache, 0, kv_c->shape[1]);
    slice_init(&parts[1], kv_cache, kv_c->shape[1], k_pe->shape[1]);
    append_call c = {.of = {op, stream},
                     .stream = stream,
                     .sides = {{"kv_c", "kv_cache", "scale", kv_c, &parts[0].t, scale},
                               {"k_pe", "kv_cache", "scale", k_pe, &parts[1].t, scale}},
                     .pages = {.slot_mapping = slot_mapping},
                     .is_latent = true,
                     .whole = &whole};
    return run_append(&c);
}

qn_status qn_get_seq_lens(qn_stream *stream, DLTensor *seq_lens, const DLTensor *kv_indptr,
                          const DLTensor *kv_last_page_len, int64_t page_size) {
    const char *op = "get_seq_lens";
    const qni_call call = {op, stream};
    qni_tensor t[] = {qni_indices("seq_lens", seq_lens, nullptr),
                      qni_indices("kv_indptr", kv_indptr, nullptr),
                      qni_indices("kv_last_page_len", kv_last_page_len, nullptr)};
    t[0].is_written = true;
    QN_TRY(qni_read_tensors(&call, t, 1));
    const int64_t batches = t[0].size[0], ends = batches + 1;
    t[1].shape = &ends;
    t[2].shape = &batches;
    QN_TRY(qni_read_tensors(&call, &t[1], 2));
    if (page_size < 1 || page_size > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: page_size is %ld; accepted: 1 to 2^31 - 1", op,
                       (long)page_size);
    QN_TRY(qni_check_apart(&call, t, 3));
    const qni_seq_lens_problem p = {.seq_lens = t[0].data,
                                    .kv_indptr = t[1].data,
                                    .kv_last_page_len = t[2].data,
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
    const qni_call call = {op, stream};
    enum { BATCH_INDICES, POSITIONS, APPEND_INDPTR, SEQ_LENS, NUM };
    qni_tensor t[NUM] = {qni_indices("batch_indices", batch_indices, nullptr),
                         qni_indices("positions", positions, nullptr),
                         qni_indices("append_indptr", append_indptr, nullptr),
                         qni_indices("seq_lens", seq_lens, nullptr)};
    t[BATCH_INDICES].is_written = t[POSITIONS].is_written = true;
    QN_TRY(qni_read_tensors(&call, t, 1));
    t[POSITIONS].shape = t[BATCH_INDICES].size;
    QN_TRY(qni_read_tensors(&call, &t[POSITIONS], 2));
    if (t[APPEND_INDPTR].size[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: append_indptr is empty, needs at least one entry", op);
    const int64_t batches = t[APPEND_INDPTR].size[0] - 1;
    t[SEQ_LENS].shape = &batches;
    QN_TRY(qni_read_tensors(&call, &t[SEQ_LENS], 1));
    QN_TRY(qni_check_apart(&call, t, NUM));
    const qni_positions_problem p = {.n = t[BATCH_INDICES].size[0],
                                     .batches = batches,
                                     .batch_indices = t[BATCH_INDICES].data,
                                     .positions = t[POSITIONS].data,
                                     .append_indptr = t[APPEND_INDPTR].data,
                                     .seq_lens = t[SEQ_LENS].data};
    if (qni_validates_indices(stream))
        QN_TRY(
            qni_validate_rising(stream, op, "append_indptr", p.append_indptr, p.batches + 1, p.n));
    if (p.n > 0)
        QN_TRY(qni_run(&qni_op_kvcache_positions, stream, &p));
    return QN_OK;
}
