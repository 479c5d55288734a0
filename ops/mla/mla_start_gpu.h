// SPDX-License-Identifier: Apache-2.0
// How work and rows begin in latent attention's kernels for CDNA.
//
// A wave comes to each line of this code once, and waits for most lines; what is known of a problem
// of latent attention is left out: it has a schedule, no window on the left, one kv head. What all
// lanes share is loaded into scalar registers.
#ifndef QK_MLA_START_GPU_H
#define QK_MLA_START_GPU_H

#include "../attention/attention_tile_gpu.h"
#include "mla_abi.h"
#include "mla_partial_gpu.h"

QD_INLINE const qk_mla_args *again(const part *p) {
    return qd_reread(p->args);
}

/** Returns work item `id`. */
QD_INLINE qk_attention_work find_work(const qk_attention_args *g, uint32_t id) {
    return CONSTANT(qk_attention_work, qk_attention_works(g->schedule))[id];
}

/** Returns the first chunk of a work item. */
QD_INLINE part begin_part(const qk_mla_args *a, const qk_attention_work *work) {
    const qk_attention_schedule *s = a->common.schedule;
    return (part){.args = &a->common,
                  .request =
                      CONSTANT(qk_attention_request, qk_attention_requests(s))[work->request],
                  .index = work->request,
                  .row_end = work->row_end,
                  .chunk_begin = work->kv_begin};
}

/** Returns whether the kernel takes the part's request. */
QD_INLINE bool is_taken(const qk_mla_args *a, const part *p) {
    const uint32_t rows = (uint32_t)p->request.qo_len * a->common.group;
    return rows >= a->common.least_rows && rows <= a->common.most_rows;
}

/** Returns the end of the keys of the part's chunk that query i sees. */
QD_INLINE uint32_t end_of(const qk_mla_args *a, const part *p, uint32_t i) {
    const qk_attention_request *r = &p->request;
    const int32_t seen =
        a->common.right == INT32_MAX ? r->kv_len : r->kv_len - r->qo_len + (int32_t)i + 1;
    return seen < 0 ? 0 : qd_min((uint32_t)seen, p->chunk_end);
}

/** Returns row `index` of the part's request, which is the lane's own. Its scale is that of base-2
 *  scores. */
QD_INLINE row begin_row(const part *p, uint32_t index) {
    const qk_mla_args *a = again(p);
    const uint32_t group = a->common.group, query = index / group;
    const bool exists = index < p->row_end;
    row r = {.top = -__builtin_inff(),
             .query = query,
             .head = index - query * group,
             .exists = exists,
             .end = exists ? end_of(a, p, query) : 0};
    const row_place place = place_of(p, &r);
    r.scale = exists ? score_scale(&a->common, &place) * log2_e : 0;
    return r;
}

/** Where the parts of a row of q lie. */
typedef struct query {
    const char *nope, *pe;
    bool is_fp8;
} query;

/** Finds row `index` of q; past the part's end it is the last one. */
QD_INLINE query find_query(const part *p, uint32_t index) {
    const qk_mla_args *a = again(p);
    const qk_attention_rows *nope = &a->common.q, *tail = &a->tail.q;
    const uint32_t row = qd_min(index, p->row_end - 1), i = row / a->common.group;
    const int64_t head = row - i * a->common.group, token = p->request.qo_begin + (int32_t)i;
    const bool is_fp8 = QK_FP8 && a->common.dtype_q != QD_BF16;
    const int64_t bytes = is_fp8 ? 1 : 2;
    return (query){(const char *)nope->data + (token * nope->token + head * nope->head) * bytes,
                   (const char *)tail->data + (token * tail->token + head * tail->head) * bytes,
                   is_fp8};
}

/** Returns eight elements of q as 16 bits. */
QD_INLINE qd_u32x4 query_at(const char *at, bool is_fp8) {
    return is_fp8 ? qd_widen8(QD_FP8_USUAL, QK_F16, *(const qd_u32x2 *)at) : *(const qd_u32x4 *)at;
}

#endif
