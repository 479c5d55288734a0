// SPDX-License-Identifier: Apache-2.0
// The plan of attention for requests of few rows on Hopper: what a workgroup computes, part after
// part, where it lies in LDS, and the wave that finds it.
//
// An image says QK_D, the largest head dim, and QK_FP8 where k and v are codes of e4m3fn; the file
// that includes this defines KEYS, a tile's, KV_BYTES, of an element of k or v, and WORKGROUPS a
// multiprocessor.
#ifndef QK_ATTENTION_ASYNC_GPU_H
#define QK_ATTENTION_ASYNC_GPU_H

#include "../attention_row_gpu.h"
#include "attention_async_abi.h"
#include "attention_query_gpu.h"
#include "mma/sm90.h"
#include "tensor_copy.h"

enum { WAVES = QK_ASYNC_WAVES, ROWS = QK_ATTENTION_FEW_ROWS };
enum { LINE_BYTES = KV_BYTES * QK_D, TILE_BYTES = KEYS * LINE_BYTES }; // of k and v
enum { Q_LINE_BYTES = 2 * QK_D + (QK_FP8 ? 32 : 0) }; // four rows at once touch all banks
enum { STRIDE = QK_D + 8 }; // floats of a row of results: four rows at once touch all banks
enum { ROOMS = 2 };

/** What a workgroup computes at a time: a request's rows, over a chunk of keys. Tiles are those of
 *  which any row sees a key; a chunk of which no row sees any has one as well. */
typedef struct part {
    qk_attention_request request;
    uint32_t index, kv_head, rows; // no rows: there are no more parts
    uint32_t begin;                // first key of the chunk
    uint32_t tile, tiles_end;      // those of the chunk
    uint32_t end;                  // of keys that any row sees
    uint32_t unused;
} part;

/** What a row of a part sees, and its scale of products. */
typedef struct sight {
    int32_t first, end; // keys
    float scale;
    uint32_t unused;
} sight;

/** What is to be computed with the q of a room. */
typedef struct room {
    part part;
    sight sights[ROWS];
} room;

// Places in LDS.
enum {
    STAGE_BYTES = 2 * TILE_BYTES, // of k, then of v
    Q_AT = WAVES * STAGE_BYTES,
    Q_BYTES = ROWS * Q_LINE_BYTES,
    RESULTS_AT = Q_AT + ROOMS * Q_BYTES,
    STATES_AT = RESULTS_AT + WAVES * ROWS * STRIDE * 4, // a row's top and sum
    ROOMS_AT = STATES_AT + WAVES * ROWS * 8,
    ROOM_FULL_AT = ROOMS_AT + ROOMS * (int)sizeof(room),
    ROOM_EMPTY_AT = ROOM_FULL_AT + 8 * ROOMS,
    RESULTS_FULL_AT = ROOM_EMPTY_AT + 8 * ROOMS,
    RESULTS_EMPTY_AT = RESULTS_FULL_AT + 8,
    LDS_BYTES = RESULTS_EMPTY_AT + 8
};
static_assert(WORKGROUPS == QK_ASYNC_WORKGROUPS(QK_D) && LDS_BYTES <= 226 * 1024 / WORKGROUPS);

QD_INLINE QD_LDS room *room_at(uint32_t base, uint32_t at) {
    return (QD_LDS room *)(uintptr_t)(base + ROOMS_AT + at * (uint32_t)sizeof(room));
}

/** Returns where 16-byte piece `piece` of a row of k or v lies: eight rows' pieces touch all
 *  banks. */
QD_INLINE uint32_t piece_at(uint32_t row, uint32_t piece) {
    const uint32_t turn = LINE_BYTES < 128 ? row / 2 % 4 : row % 8;
    static_assert(LINE_BYTES >= 64);
    return row * LINE_BYTES + (piece ^ turn) * 16;
}
/** Returns where such a piece of a row of q lies. */
QD_INLINE uint32_t query_at(uint32_t row, uint32_t piece) {
    return QK_FP8 ? row * Q_LINE_BYTES + piece * 16 : piece_at(row, piece);
}

// ---- rooms

/** Where a wave is in the rooms and in the results. */
typedef struct rounds {
    qd_ring room, results;
} rounds;

QD_INLINE void next_round(rounds *at) {
    qd_ring_advance(&at->room, ROOMS);
    qd_ring_advance(&at->results, 1);
}

/** Waits for the next part. */
QD_INLINE const QD_LDS room *enter_room(uint32_t base, const rounds *at) {
    qd_mbarrier_wait(base + ROOM_FULL_AT + 8 * at->room.at, at->room.parity);
    return room_at(base, at->room.at);
}
QD_INLINE void leave_room(uint32_t base, const rounds *at) {
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(base + ROOM_EMPTY_AT + 8 * at->room.at);
}

// ---- the wave that plans. Lane i knows row i, so that nothing is divided by the group twice

/** A walk over the workgroup's parts. Of work items to come the next one's request and the one
 *  after it are asked for early. */
typedef struct walk {
    uint32_t id, items, chunk_end, kv_end;
    qk_attention_work next, after;
    qk_attention_request request; // of `next`
    part part;
    uint32_t query, head; // of the lane's row, in its request and in its group
    uint32_t first, end;  // keys of the part that the lane's row sees; past the last row as that
    qd_ring room;
    bool is_done; // the last part, which has no rows, is in its room
} walk;

QD_INLINE qk_attention_work find_work(const qk_attention_args *g, const walk *w, uint32_t id) {
    return qk_attention_find(g, qd_min(id, w->items - 1) / g->num_kv_heads);
}

/** Goes to the chunk at `begin`. */
QD_INLINE void begin_chunk(const qk_attention_args *g, walk *w, uint32_t begin) {
    part *p = &w->part;
    const uint32_t last = p->rows - 1, query = qd_from_lane(w->query, qd_min(qd_lane(), last));
    w->chunk_end = qk_attention_next_chunk(&p->request, begin, w->kv_end);
    w->first = qk_attention_first_key(g, &p->request, query);
    w->end = qd_min(qk_attention_end_key(g, &p->request, query), w->chunk_end);
    p->begin = begin;
    p->end = qd_from_lane(w->end, last);
    p->tile = (qd_max(qd_from_lane(w->first, 0), begin) - begin) / KEYS;
    p->tiles_end = qd_max(qd_div_up(p->end > begin ? p->end - begin : 0, KEYS), p->tile + 1);
}

/** Returns whether the kernel takes a request, as qk_attention_takes does. */
QD_INLINE bool is_taken(const qk_attention_args *g, const qk_attention_request *r) {
    const uint32_t rows = (uint32_t)r->qo_len * g->group;
    return rows - g->least_rows <= g->most_rows - g->least_rows;
}

/** Goes to the next work item; to a part without rows if there is none. */
QD_INLINE void begin_item(const qk_attention_args *g, walk *w) {
    while (w->id < w->items) {
        const qk_attention_work work = w->next;
        w->part = (part){.request = w->request,
                         .index = work.request,
                         .kv_head = w->id % g->num_kv_heads,
                         .rows = work.row_end};
        w->kv_end = work.kv_end;
        w->next = w->after;
        w->request = qk_attention_get_request(g, w->next.request);
        w->after = find_work(g, w, w->id + 2 * __gpu_num_blocks(0));
        w->id += __gpu_num_blocks(0);
        if (is_taken(g, &w->part.request)) {
            begin_chunk(g, w, work.kv_begin);
            return;
        }
    }
    w->part.rows = 0;
}

QD_INLINE walk begin_walk(const qk_attention_args *g) {
    const uint32_t row = qd_lane() % ROWS;
    walk w = {.id = qd_block(),
              .items = qk_attention_count(g) * g->num_kv_heads,
              .query = row / g->group,
              .head = row % g->group,
              .room = {0, 1}};
    if (w.items == 0)
        return w;
    w.next = find_work(g, &w, w.id);
    w.after = find_work(g, &w, w.id + __gpu_num_blocks(0));
    w.request = qk_attention_get_request(g, w.next.request);
    begin_item(g, &w);
    return w;
}

/** Returns where the lane's row lies. */
QD_INLINE row_place own_place(const qk_attention_args *g, const walk *w, const part *p) {
    return (row_place){.request = p->index,
                       .query = w->query,
                       .head = p->kv_head * g->group + w->head,
                       .kv_head = p->kv_head,
                       .token = (int64_t)p->request.qo_begin + w->query};
}

/** Copies q's rows to a room, or converts them if they are codes. The room's other rows stay what
 *  they are: rows do not mix. */
QD_INLINE void copy_queries(const qk_attention_args *g, uint32_t to, const walk *w) {
    enum { PIECES = QK_D / 8 };
    const row_place own = own_place(g, w, &w->part);
    const uint32_t bytes = are_codes(g) ? 1 : 2;
    const int64_t own_at = bytes * q_offset(g, &own);
    QD_NO_UNROLL for (uint32_t i = 0; i / PIECES < w->part.rows; i += QD_WAVE) {
        const uint32_t row = (i + qd_lane()) / PIECES, piece = (i + qd_lane()) % PIECES;
        const bool is_in = piece * 8 < g->head_dim_qk;
        const int64_t in_row = qd_from_lane2(own_at, row) + piece * 8 * bytes;
        const char *from = (const char *)g->q.data + (is_in ? in_row : 0);
        if (row < w->part.rows && are_codes(g))
            put_codes(to + query_at(row, piece), g->dtype_q, from, is_in);
        else if (row < w->part.rows)
            qd_copy16(to + query_at(row, piece), from, is_in);
    }
}

/** Says that this lane's part of q is in the room. */
QD_INLINE void hand_over_queries(const qk_attention_args *g, uint32_t full) {
    if (are_codes(g))
        qd_mbarrier_arrive(full);
    else
        qd_mbarrier_arrive_copies(full);
}

/** Puts what rows see into a room, a row a lane. */
QD_INLINE void put_sights(const qk_attention_args *g, QD_LDS room *to, const walk *w) {
    const row_place own = own_place(g, w, &w->part);
    if (qd_lane() < ROWS)
        to->sights[qd_lane()] = (sight){
            .first = (int32_t)w->first, .end = (int32_t)w->end, .scale = score_scale(g, &own)};
}

/** Puts the walk's part into the next room, and goes on. */
QD_INLINE void put_part(const qk_attention_args *g, uint32_t base, walk *w) {
    const uint32_t at = w->room.at, full = base + ROOM_FULL_AT + 8 * at;
    if (w->is_done)
        return;
    qd_mbarrier_wait(base + ROOM_EMPTY_AT + 8 * at, w->room.parity);
    if (qd_lane() == 0)
        room_at(base, at)->part = w->part;
    put_sights(g, room_at(base, at), w);
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(full);
    copy_queries(g, base + Q_AT + at * Q_BYTES, w);
    hand_over_queries(g, full);
    qd_ring_advance(&w->room, ROOMS);
    w->is_done = w->part.rows == 0;
    if (w->chunk_end < w->kv_end)
        begin_chunk(g, w, w->chunk_end);
    else
        begin_item(g, w);
}

#endif
