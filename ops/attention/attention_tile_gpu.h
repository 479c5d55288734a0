// SPDX-License-Identifier: Apache-2.0
// What a workgroup and a lane of attention's matrix kernels hold, how large their tiles are, and
// how a row begins.
#ifndef QK_ATTENTION_TILE_GPU_H
#define QK_ATTENTION_TILE_GPU_H

#include "attention_row_gpu.h"
#include "halves.h"
#include "mma.h"

#ifndef QK_D
#define QK_D 128 // the largest head dim
#endif
#ifndef QK_D_VO
#define QK_D_VO QK_D // of v and o
#endif
#ifndef QK_F16
#define QK_F16 0 // else bf16
#endif
#ifndef QK_FP8
#define QK_FP8 0 // 1: k and v are of any of the four kinds; else of q's type
#endif

#ifndef QK_SLICES
#define QK_SLICES 1 // of o's columns; each slice has a wave of its own
#endif

#ifndef QK_THREADS
#define QK_THREADS 256 // of a workgroup
#endif

// QK_TILE is the keys of a tile, QK_BANKS LDS's banks of 4 bytes. They differ from target to
// target: variants.def.
enum { D = QK_D, D_VO = QK_D_VO, TILE = QK_TILE, SLICES = QK_SLICES };
enum { THREADS = QK_THREADS, WAVES = THREADS / QD_WAVE };
static_assert(TILE % QD_MMA_ROWS == 0, "a tile is whole products");
/** RISE is how many bits a row's maximum may rise without a rescale, HEADROOM how many bits it is
 *  put below the largest score. Where the matrix cores take f16's subnormals for zeros, weights go
 *  up to 2^15, and only those below 2^-25 of the largest are lost. */
constexpr bool loses_small = QK_F16 && QD_MMA_FLUSHES_F16;
enum { RISE = loses_small ? 4 : 8, HEADROOM = loses_small ? 11 : 0 };
enum { ROWS = WAVES / SLICES * QD_MMA_COLUMNS, COLUMNS = D_VO / SLICES };
enum { S_TILES = TILE / QD_MMA_ROWS, O_TILES = COLUMNS / QD_MMA_ROWS, FRAGMENTS = TILE / QD_MMA_K };
constexpr float least = -0x1.FFFFFEp+127f; // finite

enum { KV_BYTES = QK_FP8 ? 1 : 2 }; // of an element in memory
/** Eight elements of a row of k or v in memory. */
#if QK_FP8
typedef qd_u32x2 kv_piece;
#else
typedef qd_u32x4 kv_piece;
#endif

/** What a workgroup computes: some rows, over a chunk of keys. */
typedef struct part {
    const qk_attention_args *args; // for reread() alone
    qk_attention_request request;
    uint32_t index, kv_head; // of the request; of k and v
    uint32_t row_end;
    uint32_t chunk_begin, chunk_end; // keys
    bool transforms;                 // scores are more than the product times a positive number
    int kind;                        // of k and v, if QK_FP8
} part;

/** A row of queries that a lane owns. */
typedef struct row {
    float top;   // the maximum of base-2 scores less HEADROOM, which lags by RISE at most
    float sum;   // over this lane's keys
    float scale; // of natural scores, without the product
    uint32_t query, head;
    bool exists;
    uint32_t first, end; // the keys that it sees
} row;

/** What a lane holds. */
typedef struct wave {
    qd_mma_operand q[D / QD_MMA_K][QD_MMA_OWN];
    qd_mma_acc o[O_TILES];
    row rows[QD_MMA_OWN];
    uint32_t all_first, all_end; // keys that all of the wave's rows see
    uint32_t any_first, any_end; // keys that any of the wave's rows sees
} wave;

// ---- a row's beginning

QD_INLINE uint32_t my_column(void) {
    return SLICES == 1 ? 0 : qd_wave() % SLICES * COLUMNS;
}

QD_INLINE row_place place_of(const part *p, const row *r) {
    return (row_place){.request = p->index,
                       .query = r->query,
                       .head = r->head,
                       .kv_head = p->kv_head,
                       .token = (int64_t)p->request.qo_begin + r->query};
}

QD_INLINE uint32_t first_key(const part *p, uint32_t row) {
    const qk_attention_args *g = reread(p->args);
    return qk_attention_first_key(g, &p->request, row / g->group);
}
QD_INLINE uint32_t end_key(const part *p, uint32_t row) {
    const qk_attention_args *g = reread(p->args);
    return qd_min(qk_attention_end_key(g, &p->request, row / g->group), p->chunk_end);
}

/** Finds the keys that the wave's rows from row_begin on see. */
QD_INLINE void find_keys(const part *p, wave *w, uint32_t row_begin) {
    const uint32_t last = qd_min(row_begin + QD_MMA_COLUMNS, p->row_end) - 1;
    w->any_first = qd_uniform(first_key(p, row_begin));
    w->all_first = qd_uniform(first_key(p, last));
    w->any_end = row_begin < p->row_end ? qd_uniform(end_key(p, last)) : 0;
    w->all_end = qd_uniform(end_key(p, row_begin));
}

QD_INLINE row make_row(const part *p, uint32_t index) {
    const qk_attention_args *g = reread(p->args);
    const bool exists = index < p->row_end;
    row r = {.top = -__builtin_inff(),
             .query = index / g->group,
             .head = p->kv_head * g->group + index % g->group,
             .exists = exists,
             .first = first_key(p, index),
             .end = exists ? end_key(p, index) : 0};
    const row_place place = place_of(p, &r);
    r.scale = score_scale(g, &place);
    return r;
}

/** Returns piece i of a row of q, which holds codes of FP8's `kind` or, if that is below 0, 16-bit
 *  numbers. */
QD_INLINE qd_u32x4 query_piece(const char *q, uint32_t i, int kind) {
    return kind < 0 ? ((const qd_u32x4 *)q)[i] : qd_widen8(kind, QK_F16, ((const qd_u32x2 *)q)[i]);
}

QD_INLINE void load_query_as(const part *p, wave *w, uint32_t own, int kind) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const row_place place = place_of(p, r);
    const char *q = (const char *)g->q.data + q_offset(g, &place) * (kind < 0 ? 2 : 1);
    QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) {
#define PIECE(i) (r->exists && (i) * 8 < g->head_dim_qk ? query_piece(q, i, kind) : (qd_u32x4)0)
        w->q[c][own] = QD_MMA_READ(c, PIECE);
#undef PIECE
    }
}

/** Loads a query. Queries of FP8 become bf16. */
QD_INLINE void load_query(const part *p, wave *w, uint32_t own) {
    const int kind = (int)reread(p->args)->dtype_q - 3;
    if (!QK_FP8 || QK_F16 || kind < 0)
        load_query_as(p, w, own, -1);
    else if (kind == QD_FP8_USUAL)
        load_query_as(p, w, own, QD_FP8_USUAL);
    else if (kind == QD_E4M3FN)
        load_query_as(p, w, own, QD_E4M3FN);
    else
        load_query_as(p, w, own, QD_E5M2);
}

/** Starts the wave's rows, from `begin` on. */
QD_INLINE void begin_rows(const part *p, wave *w, uint32_t begin) {
    find_keys(p, w, begin);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        w->rows[i] = make_row(p, begin + qd_mma_column(i));
        load_query(p, w, i);
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w->o[n] = 0;
}

// ---- what is the same in all lanes

/** Returns x, a value that is equal in all lanes, in scalar registers. */
#define UNIFORM(x) ((typeof(x))qd_uniform((uint32_t)(x)))
QD_INLINE int64_t uniform64(int64_t x) {
    return (int64_t)((uint64_t)qd_uniform((uint32_t)(x >> 32)) << 32 | qd_uniform((uint32_t)x));
}
QD_INLINE qk_attention_request uniform_request(qk_attention_request r) {
    return (qk_attention_request){.mask_begin = uniform64(r.mask_begin),
                                  .partial_begin = uniform64(r.partial_begin),
                                  .qo_begin = UNIFORM(r.qo_begin),
                                  .qo_len = UNIFORM(r.qo_len),
                                  .kv_begin = UNIFORM(r.kv_begin),
                                  .kv_len = UNIFORM(r.kv_len),
                                  .kv_chunk = UNIFORM(r.kv_chunk)};
}
QD_INLINE qk_attention_work uniform_work(qk_attention_work w) {
    return (qk_attention_work){UNIFORM(w.request), UNIFORM(w.row_begin), UNIFORM(w.row_end),
                               UNIFORM(w.kv_begin), UNIFORM(w.kv_end)};
}

/** Returns whether a score of any row is more than the product times a positive number. All heads
 *  of the kv head count, whichever a tile has, so that a row's bits do not depend on other rows. */
QD_INLINE bool has_transform(const qk_attention_args *g, uint32_t kv_head) {
    bool has = g->soft_cap > 0 || g->pos_encoding != QK_POS_NONE || g->mask_kind != QK_MASK_NONE ||
               g->custom_mask;
    const uint32_t lane = qd_opaque(qd_thread()) % QD_WAVE;
    for (uint32_t i = 0; i < g->group; i += QD_WAVE) {
        const uint32_t head = kv_head * g->group + qd_min(i + lane, g->group - 1);
        const row_place place = {.head = head, .kv_head = kv_head};
        has |= !(score_scale(g, &place) > 0);
    }
    return qd_ballot(has);
}

/** Returns the first chunk of a work item. */
QD_INLINE part make_part(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    const qk_attention_args *g = reread(args);
    return (part){.args = args,
                  .request = uniform_request(qk_attention_get_request(g, work->request)),
                  .index = work->request,
                  .kv_head = kv_head,
                  .row_end = work->row_end,
                  .chunk_begin = work->kv_begin,
                  .transforms = has_transform(g, kv_head),
                  .kind = (int)g->dtype_kv - 3}; // qni_dtype's first of FP8
}

#endif
