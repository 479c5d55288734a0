// SPDX-License-Identifier: Apache-2.0
// The CPU kernels: they copy rows, past the caches if rows are whole 16 bytes, or quantise them;
// positions and lengths; reading an MLA cache.
#include "kvcache.h"

#include <stdatomic.h>
#include <string.h>

/** Bytes that one task reads: enough that starting a task costs nothing beside it. */
constexpr int64_t task_bytes = 1 << 16;
/** Smaller writes stay in the caches, for whoever reads them next. */
constexpr int64_t streamed_bytes = 1 << 22;

typedef uint64_t u64x2 __attribute__((vector_size(16)));

static void copy_row(char *to, const char *from, int64_t bytes, bool streams) {
    if (!streams || ((uintptr_t)to | (uintptr_t)bytes) % sizeof(u64x2) != 0) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof(u64x2)) {
        u64x2 v;
        memcpy(&v, from + i, sizeof v);
        __builtin_nontemporal_store(v, (u64x2 *)(to + i));
    }
}

static void quantize_row(const qni_kvcache_problem *p, uint8_t *to, const void *from, int64_t at,
                         int64_t width, float inverse) {
    const qni_fp8 kind = qni_fp8_of(p->dtype_out);
    for (int64_t i = 0; i < width; i++)
        to[i] = qni_fp8_encode(kind, (float)qni_get(p->dtype, from, at + i) * inverse);
}

static void move_token(const qni_kvcache_problem *p, const qni_cache_rows *r, int64_t t,
                       bool streams) {
    const int64_t to = qni_cache_place(p, r, t), size = qni_dtype_bytes(p->dtype);
    const bool is_one = r->in_head == r->width && r->out_head == r->width; // heads side by side
    const int64_t heads = is_one ? 1 : r->heads, width = is_one ? r->heads * r->width : r->width;
    for (int64_t h = 0; to >= 0 && h < heads; h++) {
        const int64_t in = t * r->in_token + h * r->in_head, out = to + h * r->out_head;
        if (r->scale)
            quantize_row(p, (uint8_t *)r->out + out, r->in, in, width, 1.0f / *r->scale);
        else
            copy_row((char *)r->out + out * size, (const char *)r->in + in * size, width * size,
                     streams);
    }
}

static int64_t token_bytes(const qni_kvcache_problem *p) {
    int64_t elements = 1;
    for (int i = 0; i < 2; i++)
        elements += p->parts[i].heads * p->parts[i].width;
    return elements * qni_dtype_bytes(p->dtype);
}

static void run_tokens(void *context, int64_t first, int64_t end, void *) {
    const qni_kvcache_problem *p = context;
    const bool streams = p->n * token_bytes(p) >= streamed_bytes;
    for (int64_t t = first; t < end; t++)
        for (int part = 0; part < 2; part++)
            move_token(p, &p->parts[part], t, streams);
    if (streams) // other processors see such stores in any order
        atomic_thread_fence(memory_order_seq_cst);
}

qn_status qni_kvcache_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_kvcache_problem p = *(const qni_kvcache_problem *)problem;
    qni_parallel_runs(p.n, 1 + task_bytes / token_bytes(&p), 0, run_tokens, &p);
    return QN_OK;
}

static void gather_token(const qni_gather_problem *p, int64_t t) {
    const qk_place from = qk_find_place(&p->pages, t);
    if (from.page < 0)
        return;
    const int64_t in = from.page * p->page + from.place * p->place, out = t * p->out_token;
    const float *scales =
        p->scales ? p->scales + from.page * p->scale_page + from.place * p->scale_place : p->scale;
    if (!scales) {
        const int64_t size = qni_dtype_bytes(p->dtype);
        memcpy((char *)p->out + out * size, (const char *)p->cache + in * size,
               (size_t)(p->width * size));
        return;
    }
    const qni_fp8 kind = qni_fp8_of(p->dtype);
    for (int64_t i = 0; i < p->width; i++) {
        const float x = qni_fp8_decode(kind, ((const uint8_t *)p->cache)[in + i]) *
                        scales[p->scales ? i / QK_CACHE_GROUP : 0];
        qni_put(p->dtype_out, p->out, out + i, (double)x);
    }
}

static void gather_tokens(void *context, int64_t first, int64_t end, void *) {
    for (int64_t t = first; t < end; t++)
        gather_token(context, t);
}

qn_status qni_gather_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_gather_problem p = *(const qni_gather_problem *)problem;
    const int64_t bytes = 1 + p.width * qni_dtype_bytes(p.dtype_out);
    qni_parallel_runs(p.n, 1 + task_bytes / bytes, 0, gather_tokens, &p);
    return QN_OK;
}

/** Quantises elements from .. from + count - 1 of a token's row, which share a scale. */
static float cache_group(const qni_groups_problem *p, int64_t from, int64_t count, uint8_t *codes) {
    const qni_fp8 kind = qni_fp8_of(p->dtype_codes);
    float amax = qk_cache_eps;
    for (int64_t i = 0; i < count; i++) {
        const float x = fabsf((float)qni_get(p->dtype, p->args.ckv, from + i));
        amax = x > amax ? x : amax; // false for a NaN
    }
    const float scale = amax / qni_fp8_format_of(kind).max, inverse = 1.0f / scale;
    for (int64_t i = 0; i < count; i++)
        codes[i] = qni_fp8_encode(kind, (float)qni_get(p->dtype, p->args.ckv, from + i) * inverse);
    return scale;
}

static void cache_token(const qni_groups_problem *p, int64_t t) {
    const qk_groups_args *g = &p->args;
    const qk_place to = qk_find_place(&g->pages, t);
    if (to.page < 0)
        return;
    uint8_t *codes = g->codes + to.page * g->codes_page + to.place * g->codes_place;
    float *scales = g->scales + to.page * g->scales_page + to.place * g->scales_place;
    for (int64_t first = 0; first < p->width; first += QK_CACHE_GROUP) {
        const int64_t left = p->width - first;
        scales[first / QK_CACHE_GROUP] =
            cache_group(p, t * g->ckv_token + first, left < QK_CACHE_GROUP ? left : QK_CACHE_GROUP,
                        codes + first);
    }
    const int64_t size = qni_dtype_bytes(p->dtype);
    memcpy((char *)g->rope + (to.page * g->rope_page + to.place * g->rope_place) * size,
           (const char *)g->kpe + t * g->kpe_token * size, (size_t)(p->rope_width * size));
}

static void cache_tokens(void *context, int64_t first, int64_t end, void *) {
    for (int64_t t = first; t < end; t++)
        cache_token(context, t);
}

qn_status qni_groups_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_groups_problem p = *(const qni_groups_problem *)problem;
    const int64_t bytes = 1 + (p.width + p.rope_width) * qni_dtype_bytes(p.dtype);
    qni_parallel_runs(p.n, 1 + task_bytes / bytes, 0, cache_tokens, &p);
    return QN_OK;
}

qn_status qni_positions_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    const qni_positions_problem *p = problem;
    for (int64_t t = 0; t < p->n; t++) {
        const int32_t b = qk_find_segment(p->append_indptr, (uint32_t)p->batches, (int32_t)t);
        p->batch_indices[t] = b;
        p->positions[t] = b < 0 ? 0 : qk_position(p->seq_lens[b], p->append_indptr[b + 1], t);
    }
    return QN_OK;
}

qn_status qni_seq_lens_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    const qni_seq_lens_problem *p = problem;
    for (int64_t b = 0; b < p->batches; b++)
        p->seq_lens[b] = qk_seq_len(p->kv_indptr, p->kv_last_page_len, p->page_size, b);
    return QN_OK;
}
