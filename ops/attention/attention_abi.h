// SPDX-License-Identifier: Apache-2.0
// What attention's kernels share with their launch code, on the host and on every device: the
// arguments, the schedule, which keys a query sees. The code is plain C without builtins, as CPU
// kernels use it as well. The definition uses the types and dropout's counter only; it works out by
// itself which keys are seen and where they lie.
//
// How work is cut. The queries of a request and the query heads of one kv head are `rows`: row r is
// query r / group and head kv_head * group + r % group, so that all rows of a tile share keys and
// values. A work item is a range of rows and a range of keys of one request, for every kv head:
//
//   for (id = workgroup; id < qk_attention_count(g) * g->num_kv_heads; id += workgroups)
//       the kv head is id % num_kv_heads
//       qk_attention_find(g, id / g->num_kv_heads, &work)
//       pass over it unless qk_attention_takes(g, work.request)
//       for each chunk of work.kv_begin .. work.kv_end (qk_attention_next_chunk; at least once,
//       perhaps over no key)
//           over the chunk's keys that any row of the tile sees
//           (qk_attention_first_key, qk_attention_end_key)
//           unsplit request: o and lse
//           split request: partial_o and partial_lse at qk_attention_partial()
//
// A second kernel merges the chunks of split requests, the chunks 0 .. qk_attention_chunks - 1 in
// order:
//
//   for (id …; id < qk_attention_count_merges(g) * num_kv_heads; …) qk_attention_find_merge
//
// Rules that every kernel must keep:
//
// - Any number of rows up to 256 and any number of keys. One with smaller tiles loops over
//   work.row_begin .. row_end.
// - A row's arithmetic must not depend on what other rows share its tile, nor on where the tile
//   begins: q_tile changes with the batch, and bits must not. So a lazy rescale decides for each
//   row, and keys are grouped from the chunk's begin (kv_begin and n tiles), never from the first
//   key that is seen. A tile that a row sees nothing of must leave the row's state as it is, to the
//   bit.
// - Masked scores are -infinity, and a maximum of -infinity must not meet itself in a subtraction.
//   The least finite score wins over any mask.
// - Nothing of a key or value beyond kv_len, or in a place of a page that is not in use, may reach
//   the result: such memory holds NaNs. Zero times NaN is NaN, so clear values past the end, not
//   just weights. Keys that only causality, a window or a mask hides may be read: their scores are
//   replaced, whatever they are, and their values are finite.
// - Scores are scaled in f32, after the product; q is not rounded again. Weights may be rounded to
//   q's kind of 16 bits for the product with v, never the sum of weights.
// - partial_o is o before v_scale and divided by the chunk's sum, partial_lse its base-2
//   log-sum-exp without sinks; no key seen: zeros and -infinity. Sinks enter once: at the end, or
//   in the merge. What a kernel writes is for the merge of its own variant, which may have another
//   type there (ops/mla/mla_partial_gpu.h).
#ifndef QK_ATTENTION_ABI_H
#define QK_ATTENTION_ABI_H

#include <stdint.h>

#define QK_INLINE                                                                                  \
    static inline __attribute__((always_inline)) // so that kernels' arguments are not copied

enum {
    QK_ATTENTION_MAGIC = 0x6E747461, // "attn"
    QK_ATTENTION_MAX_HEAD_DIM = 512,
    QK_ATTENTION_MAX_TILE = 256,  // rows of a work item
    QK_ATTENTION_FEW_ROWS = 16,   // the most rows of a request that attention_decode_gpu.c takes
    QK_ATTENTION_CHUNK_UNIT = 16, // keys that are loaded at once from pages
    QK_ATTENTION_TEAM = 64        // rows of a tile that a team of waves multiplies
};
enum { QK_MASK_NONE, QK_MASK_BOOL, QK_MASK_F32, QK_MASK_F16, QK_MASK_BF16 };
enum { QK_POS_NONE, QK_POS_ROPE, QK_POS_ALIBI };

/** One request. */
typedef struct qk_attention_request {
    int64_t mask_begin;       // byte at which its custom mask begins
    int64_t partial_begin;    // first row of its partial results; below 0: not split
    int32_t qo_begin, qo_len; // first token of q; dense: 0
    int32_t kv_begin, kv_len; // first token of k, or first place in kv_indices; dense: 0
    int32_t kv_chunk;         // keys of a chunk, at least 1; not split: kv_len or more
    int32_t unused;
} qk_attention_request;

typedef struct qk_attention_work {
    uint32_t request;
    uint32_t row_begin, row_end; // rows of the request's qo_len * group
    uint32_t kv_begin, kv_end;   // the keys of whole chunks
} qk_attention_work;

/** What hopper/attention_batch_gpu.c computes at a time, for `pack` query heads of one kv head: a
 *  tile of rows and a chunk of keys. Here row r is query r / pack and the heads' number r % pack.
 *  Only requests of more than QK_ATTENTION_FEW_ROWS rows have such tiles, with
 *  QUERN_BATCH_INVARIANT=1 all. */
typedef struct qk_attention_batch_tile {
    uint32_t request, row, kv_begin; // the first row, the first key
    uint32_t keys;                   // that the tile's last row sees if the request is causal
} qk_attention_batch_tile;

/** A plan: this header, then requests, work items, merges, whose kv_begin and kv_end are unused,
 *  and tiles, the ones with most keys first. The device reads these bytes as they are. */
typedef struct qk_attention_schedule {
    uint32_t magic, num_requests, num_works, num_merges;
    int64_t qo_end, kv_end; // tokens, or entries of kv_indices, that tensors must have
    int64_t mask_bytes;     // of custom_mask
    int64_t workspace_rows; // of partial results, for each kv head
    int64_t bytes;          // of the whole plan
    int32_t num_qo_heads, num_kv_heads, head_dim_vo, page_size; // page_size 0: not paged
    int32_t max_qo_len, max_kv_len;                             // the counts behind dropout's
                                                                // random numbers
    int32_t is_dense_q, is_dense_kv;
    int32_t q_tile;
    int32_t is_for_graph;          // the grid also serves plans that replace this one
    uint32_t num_tiles, tile_rows; // tile_rows 0: there would be too many tiles
    int32_t has_odd_chunks;        // one begins at no multiple of QK_ATTENTION_CHUNK_UNIT
    int32_t unused;
} qk_attention_schedule;

/** Where rows of a tensor lie; strides are in elements. In k and v, `block` is the batch or the
 *  page. */
typedef struct qk_attention_rows {
    const void *data;
    int64_t block, token, head;
} qk_attention_rows;

typedef struct qk_attention_args {
    qk_attention_rows q, k, v;
    void *o;
    int64_t o_batch, o_token, o_head;
    float *lse; // may be null
    int64_t lse_batch, lse_token, lse_head;
    const int32_t *kv_indices;             // paged, else null
    const qk_attention_schedule *schedule; // null: uniform requests, see below
    float *partial_o, *partial_lse; // [rows, num_kv_heads, head_dim_vo]; [rows, num_kv_heads]
    const uint8_t *custom_mask;
    const void *mask;
    int64_t mask_batch, mask_head, mask_query, mask_key; // strides
    const float *q_scales, *k_scales, *v_scales, *sinks; // may be null
    uint64_t dropout_seed, dropout_offset;
    // Uniform requests have qo_len and kv_len each; the launch code cuts them as it likes.
    uint32_t requests, qo_len, kv_len, kv_chunk, q_tile;
    uint32_t least_rows, most_rows; // rows of the requests that a kernel takes; it leaves out other
                                    // requests
    uint32_t num_kv_heads, group, head_dim_qk, head_dim_vo, page_size;
    int32_t left, right; // a query at position d sees keys d - left .. d + right; INT32_MAX: no
                         // bound
    uint32_t is_top_left;
    uint32_t dtype_q, dtype_kv,
        dtype_o; // qni_dtype: f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz
    uint32_t mask_kind, pos_encoding;
    uint32_t dropout_queries, dropout_quads; // queries; ceil(keys / 4)
    uint32_t has_dropout;
    int32_t dropout_threshold;
    float dropout_scale; // 1 / (1 - p); without dropout 1
    float scale;         // of <q, k>, for natural logarithms, without q_scales and k_scales
    float soft_cap;      // 0: none
    float v_scale;
    float lse_unit; // lse is the base-2 log-sum-exp times this
} qk_attention_args;

QK_INLINE uint32_t qk_attention_div_up(uint32_t a, uint32_t b) {
    return a / b + (a % b != 0);
}

QK_INLINE const qk_attention_request *qk_attention_requests(const qk_attention_schedule *s) {
    return (const qk_attention_request *)(s + 1);
}
QK_INLINE const qk_attention_work *qk_attention_works(const qk_attention_schedule *s) {
    return (const qk_attention_work *)(qk_attention_requests(s) + s->num_requests);
}

QK_INLINE const qk_attention_batch_tile *qk_attention_batch_tiles(const qk_attention_schedule *s) {
    return (const qk_attention_batch_tile *)(qk_attention_works(s) + s->num_works + s->num_merges);
}

/** Returns how many heads of a group are in one tile: as many as divide a team's rows evenly. */
QK_INLINE uint32_t qk_attention_pack(uint32_t group) {
    const uint32_t power = group & -group;
    return power < QK_ATTENTION_TEAM ? power : QK_ATTENTION_TEAM;
}
/** Returns the rows of a tile: more fit where o is narrow. */
QK_INLINE uint32_t qk_attention_tile_rows(uint32_t head_dim_vo) {
    return (head_dim_vo <= 128 ? 3 : 2) * QK_ATTENTION_TEAM;
}

/** Returns how many chunks a request has. A request without keys has one, without keys. */
QK_INLINE uint32_t qk_attention_chunks(const qk_attention_request *r) {
    return r->kv_len > r->kv_chunk ? qk_attention_div_up((uint32_t)r->kv_len, (uint32_t)r->kv_chunk)
                                   : 1;
}

/** Returns how many chunks a uniform request has; the function below, how many tiles of rows. */
QK_INLINE uint32_t qk_attention_uniform_chunks(const qk_attention_args *g) {
    return g->kv_len > g->kv_chunk ? qk_attention_div_up(g->kv_len, g->kv_chunk) : 1;
}
QK_INLINE uint32_t qk_attention_uniform_tiles(const qk_attention_args *g) {
    return qk_attention_div_up(g->qo_len * g->group, g->q_tile);
}

QK_INLINE uint32_t qk_attention_count(const qk_attention_args *g) {
    return g->schedule
               ? g->schedule->num_works
               : g->requests * qk_attention_uniform_tiles(g) * qk_attention_uniform_chunks(g);
}

QK_INLINE uint32_t qk_attention_num_requests(const qk_attention_args *g) {
    return g->schedule ? g->schedule->num_requests : g->requests;
}

QK_INLINE qk_attention_request qk_attention_get_request(const qk_attention_args *g,
                                                        uint32_t index) {
    if (g->schedule)
        return qk_attention_requests(g->schedule)[index];
    const uint32_t chunks = qk_attention_uniform_chunks(g);
    const int64_t mask_bytes = ((int64_t)g->qo_len * g->kv_len + 7) / 8;
    return (qk_attention_request){
        .mask_begin = index * mask_bytes,
        .partial_begin = chunks > 1 ? (int64_t)index * chunks * g->qo_len * g->group : -1,
        .qo_len = (int32_t)g->qo_len,
        .kv_len = (int32_t)g->kv_len,
        .kv_chunk = (int32_t)g->kv_chunk};
}

/** Returns the rows of tile `tile` of a uniform request. Tiles count from the last rows, which take
 *  longest with causality. */
QK_INLINE qk_attention_work qk_attention_uniform_rows(const qk_attention_args *g, uint32_t request,
                                                      uint32_t tile) {
    const uint32_t rows = g->qo_len * g->group, tiles = qk_attention_uniform_tiles(g);
    const uint32_t begin = (tiles - 1 - tile) * g->q_tile, end = begin + g->q_tile;
    return (qk_attention_work){
        .request = request, .row_begin = begin, .row_end = end < rows ? end : rows};
}

QK_INLINE qk_attention_work qk_attention_find(const qk_attention_args *g, uint32_t index) {
    if (g->schedule)
        return qk_attention_works(g->schedule)[index];
    const uint32_t chunks = qk_attention_uniform_chunks(g), chunk = index % chunks;
    const uint32_t tiles = qk_attention_uniform_tiles(g), tile = index / chunks;
    qk_attention_work work = qk_attention_uniform_rows(g, tile / tiles, tile % tiles);
    work.kv_begin = chunk * g->kv_chunk;
    work.kv_end = chunk + 1 < chunks ? work.kv_begin + g->kv_chunk : g->kv_len;
    return work;
}

/** Returns whether a kernel takes a request, whose rows must be least_rows .. most_rows. There is
 *  one comparison, because with two gfx9 keeps both results in scalar registers. */
QK_INLINE int qk_attention_takes(const qk_attention_args *g, uint32_t request) {
    const uint32_t qo_len =
        g->schedule ? (uint32_t)qk_attention_requests(g->schedule)[request].qo_len : g->qo_len;
    return qo_len * g->group - g->least_rows <= g->most_rows - g->least_rows;
}

/** Returns how many tiles of rows split requests have. */
QK_INLINE uint32_t qk_attention_count_merges(const qk_attention_args *g) {
    if (g->schedule)
        return g->schedule->num_merges;
    return qk_attention_uniform_chunks(g) > 1 ? g->requests * qk_attention_uniform_tiles(g) : 0;
}

QK_INLINE qk_attention_work qk_attention_find_merge(const qk_attention_args *g, uint32_t index) {
    if (g->schedule)
        return qk_attention_works(g->schedule)[g->schedule->num_works + index];
    const uint32_t tiles = qk_attention_uniform_tiles(g);
    return qk_attention_uniform_rows(g, index / tiles, index % tiles);
}

/** Returns the end of the chunk that begins at `begin`. */
QK_INLINE uint32_t qk_attention_next_chunk(const qk_attention_request *r, uint32_t begin,
                                           uint32_t kv_end) {
    return kv_end - begin > (uint32_t)r->kv_chunk ? begin + (uint32_t)r->kv_chunk : kv_end;
}

/** Returns the row of partial_o and partial_lse for a row of a split request, in the chunk that
 *  begins at kv_begin. */
QK_INLINE int64_t qk_attention_partial(const qk_attention_args *g, const qk_attention_request *r,
                                       uint32_t kv_begin, uint32_t row, uint32_t kv_head) {
    const int64_t rows = (int64_t)r->qo_len * g->group;
    const int64_t chunk = kv_begin / (uint32_t)r->kv_chunk;
    return (r->partial_begin + chunk * rows + row) * g->num_kv_heads + kv_head;
}

/** Returns the key that lines up with query i. From it causality and window give
 *  qk_attention_first_key and qk_attention_end_key: query i may see the keys from the first to the
 *  end, which is excluded. Both bounds rise with i. */
QK_INLINE int64_t qk_attention_diagonal(const qk_attention_args *g, const qk_attention_request *r,
                                        uint32_t i) {
    return (int64_t)i + (g->is_top_left ? 0 : r->kv_len - r->qo_len);
}
QK_INLINE uint32_t qk_attention_first_key(const qk_attention_args *g, const qk_attention_request *r,
                                          uint32_t i) {
    const int64_t first =
        g->left == INT32_MAX ? 0 : qk_attention_diagonal(g, r, i) - (int64_t)g->left;
    return first < 0 ? 0 : first > r->kv_len ? (uint32_t)r->kv_len : (uint32_t)first;
}
QK_INLINE uint32_t qk_attention_end_key(const qk_attention_args *g, const qk_attention_request *r,
                                        uint32_t i) {
    const int64_t end =
        g->right == INT32_MAX ? r->kv_len : qk_attention_diagonal(g, r, i) + (int64_t)g->right + 1;
    return end < 0 ? 0 : end > r->kv_len ? (uint32_t)r->kv_len : (uint32_t)end;
}

/** Returns whether the packed mask hides a key that causality and window leave. */
QK_INLINE int qk_attention_is_masked(const qk_attention_args *g, const qk_attention_request *r,
                                     uint32_t i, uint32_t j) {
    const int64_t bit = (int64_t)i * r->kv_len + j;
    return g->custom_mask && !(g->custom_mask[r->mask_begin + bit / 8] >> (bit % 8) & 1);
}

/** Returns the element of k or v at which key j of a request begins for kv head 0. */
QK_INLINE int64_t qk_attention_key(const qk_attention_args *g, const qk_attention_rows *rows,
                                   const qk_attention_request *r, uint32_t request, uint32_t j) {
    if (!g->kv_indices)
        return request * rows->block + ((int64_t)r->kv_begin + j) * rows->token;
    const int32_t page = g->kv_indices[r->kv_begin + (int32_t)(j / g->page_size)];
    return page * rows->block + j % g->page_size * rows->token;
}

/** Returns Philox's counter for weights 4 quad .. 4 quad + 3 of a row. */
QK_INLINE uint64_t qk_attention_dropout_counter(const qk_attention_args *g, uint32_t request,
                                                uint32_t head, uint32_t query, uint32_t quad) {
    const uint64_t heads = (uint64_t)g->num_kv_heads * g->group;
    const uint64_t row = (request * heads + head) * g->dropout_queries + query;
    return g->dropout_offset + row * g->dropout_quads + quad;
}

#endif
