// SPDX-License-Identifier: Apache-2.0
// Reads paged caches and the index tensors that say where tokens go.
#include "pages.h"

static qn_status check_layout(const char *op, qn_kv_layout layout) {
    if (layout == QN_NHD || layout == QN_HND)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: kv_layout is %d; accepted: QN_NHD (0), QN_HND (1)", op,
                   (int)layout);
}

qn_status qni_read_cache(const qni_call *call, qni_tensor *cache, const char *name,
                         const DLTensor *t, qn_kv_layout layout, int64_t heads, int64_t width,
                         qni_cache_view *view) {
    const bool is_latent = heads < 0;
    const int ndim = is_latent ? 3 : 4, place = layout == QN_HND ? 2 : 1, head = 3 - place;
    QN_TRY(check_layout(call->op, layout));
    const int64_t shape[] = {-1, is_latent || place == 1 ? -1 : heads,
                             is_latent    ? width
                             : place == 2 ? -1
                                          : heads,
                             width};
    *cache = (qni_tensor){
        .name = name,
        .t = t,
        .ndim = ndim,
        .dtypes = qni_of_floats | qni_of_fp8,
        .shape = shape,
        .has_rows = true,
        .is_written = true,
    };
    QN_TRY(qni_read_tensors(call, cache, 1));
    if (cache->size[place] == 0 || cache->size[place] > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: %s has pages of %ld, needs 1 to 2^31 - 1", call->op, name,
                       (long)cache->size[place]);
    *view = (qni_cache_view){.data = cache->data,
                             .page = cache->stride[0],
                             .place = cache->stride[place],
                             .head = is_latent ? 0 : cache->stride[head],
                             .pages = cache->size[0],
                             .page_size = cache->size[place]};
    return QN_OK;
}

// ---- contents

/** The index tensors in memory that the host can read; last_page_len null: it is not checked. */
typedef struct host_pages {
    const int32_t *batch_indices, *positions, *kv_indptr, *kv_indices, *last_page_len;
    int64_t batches, pages, page_size;
} host_pages;

/** Returns how many positions sequence b has room for. */
static int64_t room_of(const host_pages *h, int64_t b) {
    const int64_t pages = h->kv_indptr[b + 1] - h->kv_indptr[b];
    return pages > 0 && h->last_page_len ? (pages - 1) * h->page_size + h->last_page_len[b]
                                         : pages * h->page_size;
}

/** Checks token t's sequence, its position there, and the page that holds the position. */
static qn_status check_token(const char *op, const host_pages *h, int64_t t) {
    const int32_t b = h->batch_indices[t], position = h->positions[t];
    if (b < 0)
        return QN_OK;
    if (b >= h->batches)
        return QN_FAIL(QN_E_INVALID, "%s: batch_indices[%ld] is %d; accepted: below %ld", op,
                       (long)t, b, (long)h->batches);
    if (position < 0 || position >= room_of(h, b))
        return QN_FAIL(QN_E_INVALID, "%s: positions[%ld] is %d; accepted: 0 to %ld", op, (long)t,
                       position, (long)room_of(h, b) - 1);
    const int64_t at = h->kv_indptr[b] + position / h->page_size;
    const int32_t page = h->kv_indices[at];
    if (page < 0 || page >= h->pages)
        return QN_FAIL(QN_E_INVALID, "%s: kv_indices[%ld] is %d; accepted: 0 to %ld", op, (long)at,
                       page, (long)h->pages - 1);
    return QN_OK;
}

/** Checks, for QUERN_VALIDATE, what no token of this call needs: pages of other positions, and how
 *  full last pages are. */
static qn_status validate_rest(qn_stream *stream, const char *op, const qni_page_tensors *t,
                               const qk_pages *p, host_pages *h) {
    const qn_status st = QN_OK;
    QN_TRY(qni_validate_range(stream, op, "kv_indices", p->kv_indices, t->kv_indices->shape[0], 0,
                              h->pages));
    if (!t->kv_last_page_len)
        return st;
    const int32_t *last = qni_data(t->kv_last_page_len);
    QN_TRY(
        qni_validate_range(stream, op, "kv_last_page_len", last, h->batches, 0, h->page_size + 1));
    QN_TRY(qni_read_indices(stream, op, "kv_last_page_len", last, h->batches, &h->last_page_len));
    return st;
}

static qn_status validate_paged(qn_stream *stream, const char *op, const qni_page_tensors *t,
                                int64_t n, const qni_cache_view *cache, const qk_pages *p) {
    host_pages h = {.batches = t->kv_indptr->shape[0] - 1,
                    .pages = cache->pages,
                    .page_size = cache->page_size};
    const int64_t indices = t->kv_indices->shape[0];
    qn_status st;
    QN_TRY_OUT(qni_validate_rising(stream, op, "kv_indptr", p->kv_indptr, h.batches + 1, indices));
    if (qni_env_get()->validate)
        QN_TRY_OUT(validate_rest(stream, op, t, p, &h));
    QN_TRY_OUT(
        qni_read_indices(stream, op, "batch_indices", p->batch_indices, n, &h.batch_indices));
    QN_TRY_OUT(qni_read_indices(stream, op, "positions", p->positions, n, &h.positions));
    QN_TRY_OUT(
        qni_read_indices(stream, op, "kv_indptr", p->kv_indptr, h.batches + 1, &h.kv_indptr));
    QN_TRY_OUT(qni_read_indices(stream, op, "kv_indices", p->kv_indices, indices, &h.kv_indices));
    for (int64_t i = 0; i < n; i++)
        QN_TRY_OUT(check_token(op, &h, i));
out:
    qni_release_indices(stream, h.batch_indices);
    qni_release_indices(stream, h.positions);
    qni_release_indices(stream, h.kv_indptr);
    qni_release_indices(stream, h.kv_indices);
    qni_release_indices(stream, h.last_page_len);
    return st;
}

// ---- dtypes and shapes

enum { BATCH_INDICES, POSITIONS, KV_INDICES, KV_INDPTR, KV_LAST_PAGE_LEN, SLOT_MAPPING = 0 };

static qn_status read_paged(const qni_call *call, const qni_page_tensors *given, int64_t n,
                            qni_tensor *t, qk_pages *p) {
    t[BATCH_INDICES] = qni_indices("batch_indices", given->batch_indices, &n);
    t[POSITIONS] = qni_indices("positions", given->positions, &n);
    t[KV_INDICES] = qni_indices("kv_indices", given->kv_indices, nullptr);
    t[KV_INDPTR] = qni_indices("kv_indptr", given->kv_indptr, nullptr);
    QN_TRY(qni_read_tensors(call, t, KV_INDPTR + 1));
    const int64_t batches = t[KV_INDPTR].size[0] - 1;
    if (batches < 0)
        return QN_FAIL(QN_E_INVALID, "%s: kv_indptr is empty, needs at least one entry", call->op);
    t[KV_LAST_PAGE_LEN] = qni_indices("kv_last_page_len", given->kv_last_page_len, &batches);
    t[KV_LAST_PAGE_LEN].may_be_null = true;
    QN_TRY(qni_read_tensors(call, &t[KV_LAST_PAGE_LEN], 1));
    p->batch_indices = t[BATCH_INDICES].data;
    p->positions = t[POSITIONS].data;
    p->kv_indices = t[KV_INDICES].data;
    p->kv_indptr = t[KV_INDPTR].data;
    return QN_OK;
}

qn_status qni_read_pages(qn_stream *stream, const qni_call *call, const qni_page_tensors *given,
                         int64_t n, const qni_cache_view *cache,
                         qni_tensor tensors[QNI_MAX_PAGE_TENSORS], qk_pages *pages) {
    const bool validates = n > 0 && qni_validates_indices(stream);
    *pages = (qk_pages){.page_size = (int32_t)cache->page_size};
    if (!given->slot_mapping) {
        QN_TRY(read_paged(call, given, n, tensors, pages));
        return validates ? validate_paged(stream, call->op, given, n, cache, pages) : QN_OK;
    }
    tensors[SLOT_MAPPING] = qni_indices("slot_mapping", given->slot_mapping, &n);
    QN_TRY(qni_read_tensors(call, &tensors[SLOT_MAPPING], 1));
    pages->slots = tensors[SLOT_MAPPING].data;
    return validates ? qni_validate_range(stream, call->op, "slot_mapping", pages->slots, n,
                                          INT32_MIN, cache->pages * cache->page_size)
                     : QN_OK;
}
