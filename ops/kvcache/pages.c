// SPDX-License-Identifier: Apache-2.0
// Checks of paged caches and of the index tensors that say where tokens go.
#include "pages.h"

#include <stdlib.h>

static qn_status check_layout(const char *op, qn_kv_layout layout) {
    if (layout == QN_NHD || layout == QN_HND)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: kv_layout is %d; accepted: QN_NHD (0), QN_HND (1)", op,
                   (int)layout);
}

qn_status qni_check_cache(const qn_stream *stream, const char *op, const char *name,
                          const DLTensor *t, qn_kv_layout layout, int64_t heads, int64_t width,
                          qni_cache_view *view) {
    const bool is_latent = heads < 0;
    const int ndim = is_latent ? 3 : 4, place = layout == QN_HND ? 2 : 1, head = 3 - place;
    qn_status st;
    QN_TRY(check_layout(op, layout));
    QN_TRY(qni_check_tensor(stream, op, name, t, ndim));
    const int64_t want[] = {-1, is_latent || place == 1 ? -1 : heads,
                            is_latent    ? width
                            : place == 2 ? -1
                                         : heads,
                            width};
    QN_TRY(qni_check_shape(op, name, t, ndim, want));
    QN_TRY(qni_check_last_contiguous(op, name, t));
    QN_TRY(qni_check_elements_apart(op, name, t));
    QN_TRY(qni_check_alignment(op, name, t));
    if (t->shape[place] == 0 || t->shape[place] > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: %s has pages of %ld, needs 1 to 2^31 - 1", op, name,
                       (long)t->shape[place]);
    *view = (qni_cache_view){.data = qni_data(t),
                             .page = qni_stride(t, 0),
                             .place = qni_stride(t, place),
                             .head = is_latent ? 0 : qni_stride(t, head),
                             .pages = t->shape[0],
                             .page_size = t->shape[place]};
out:
    return st;
}

// ---- contents

/** Host copies of the index tensors. */
typedef struct copies {
    int32_t *batch_indices, *positions, *kv_indptr, *last_page_len;
    int64_t batches;
} copies;

/** Positions that sequence b has room for. */
static int64_t room_of(const copies *c, int64_t b, int64_t page_size) {
    const int64_t pages = c->kv_indptr[b + 1] - c->kv_indptr[b];
    return pages > 0 && c->last_page_len ? (pages - 1) * page_size + c->last_page_len[b]
                                         : pages * page_size;
}

static qn_status check_tokens(const char *op, const copies *c, int64_t n, int64_t page_size) {
    for (int64_t t = 0; t < n; t++) {
        const int32_t b = c->batch_indices[t];
        if (b >= c->batches)
            return QN_FAIL(QN_E_INVALID, "%s: batch_indices[%ld] is %d; accepted: below %ld", op,
                           (long)t, b, (long)c->batches);
        if (b >= 0 && (c->positions[t] < 0 || c->positions[t] >= room_of(c, b, page_size)))
            return QN_FAIL(QN_E_INVALID, "%s: positions[%ld] is %d; accepted: 0 to %ld", op,
                           (long)t, c->positions[t], (long)room_of(c, b, page_size) - 1);
    }
    return QN_OK;
}

static qn_status validate_paged(qn_stream *stream, const char *op, const qni_page_tensors *t,
                                int64_t n, const qni_cache_view *cache, const qk_pages *p) {
    copies c = {.batches = t->kv_indptr->shape[0] - 1};
    const int64_t indices = t->kv_indices->shape[0];
    qn_status st;
    QN_TRY(qni_validate_rising(stream, op, "kv_indptr", p->kv_indptr, c.batches + 1, indices));
    QN_TRY(qni_validate_range(stream, op, "kv_indices", p->kv_indices, indices, 0, cache->pages));
    if (t->kv_last_page_len) {
        const int32_t *last = qni_data(t->kv_last_page_len);
        QN_TRY(qni_validate_range(stream, op, "kv_last_page_len", last, c.batches, 0,
                                  cache->page_size + 1));
        QN_TRY(qni_read_indices(stream, op, "kv_last_page_len", last, c.batches, &c.last_page_len));
    }
    QN_TRY(qni_read_indices(stream, op, "batch_indices", p->batch_indices, n, &c.batch_indices));
    QN_TRY(qni_read_indices(stream, op, "positions", p->positions, n, &c.positions));
    QN_TRY(qni_read_indices(stream, op, "kv_indptr", p->kv_indptr, c.batches + 1, &c.kv_indptr));
    QN_TRY(check_tokens(op, &c, n, cache->page_size));
out:
    free(c.batch_indices);
    free(c.positions);
    free(c.kv_indptr);
    free(c.last_page_len);
    return st;
}

// ---- dtypes and shapes

static qn_status check_paged(const qn_stream *stream, const char *op, const qni_page_tensors *t,
                             int64_t n, qk_pages *p) {
    qn_status st;
    QN_TRY(qni_check_indices(stream, op, "batch_indices", t->batch_indices, n));
    QN_TRY(qni_check_indices(stream, op, "positions", t->positions, n));
    QN_TRY(qni_check_indices(stream, op, "kv_indices", t->kv_indices, -1));
    QN_TRY(qni_check_indices(stream, op, "kv_indptr", t->kv_indptr, -1));
    if (t->kv_indptr->shape[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: kv_indptr is empty, needs at least one entry", op);
    if (t->kv_last_page_len)
        QN_TRY(qni_check_indices(stream, op, "kv_last_page_len", t->kv_last_page_len,
                                 t->kv_indptr->shape[0] - 1));
    p->batch_indices = qni_data(t->batch_indices);
    p->positions = qni_data(t->positions);
    p->kv_indices = qni_data(t->kv_indices);
    p->kv_indptr = qni_data(t->kv_indptr);
out:
    return st;
}

qn_status qni_check_pages(qn_stream *stream, const char *op, const qni_page_tensors *t, int64_t n,
                          const qni_cache_view *cache, qk_pages *pages) {
    const bool validates = qni_env_get()->validate && n > 0;
    qn_status st;
    *pages = (qk_pages){.page_size = (int32_t)cache->page_size};
    if (!t->slot_mapping) {
        QN_TRY(check_paged(stream, op, t, n, pages));
        if (validates)
            QN_TRY(validate_paged(stream, op, t, n, cache, pages));
        goto out;
    }
    QN_TRY(qni_check_indices(stream, op, "slot_mapping", t->slot_mapping, n));
    pages->slots = qni_data(t->slot_mapping);
    if (validates)
        QN_TRY(qni_validate_range(stream, op, "slot_mapping", pages->slots, n, INT32_MIN,
                                  cache->pages * cache->page_size));
out:
    return st;
}
