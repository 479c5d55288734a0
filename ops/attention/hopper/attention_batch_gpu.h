// SPDX-License-Identifier: Apache-2.0
// Attention of batches on Hopper: where things lie in LDS, what a workgroup computes next, and the
// waves that load it.
//
// attention_batch_gpu.c describes the kernel and defines KEYS, a tile's, TEAMS, STAGES and QK_FP8,
// which is 1 where k and v are codes of e4m3fn.
#ifndef QK_ATTENTION_BATCH_GPU_H
#define QK_ATTENTION_BATCH_GPU_H

#include "attention_batch_abi.h"
#include "attention_query_gpu.h"
#include "attention_wgmma_gpu.h"

static_assert((QK_FP8 || KEYS == QK_BATCH_KEYS(QK_D)) && BOX == QK_BATCH_BOX);

/** Tiles of keys, counted from the chunk's begin. */
typedef struct span {
    uint32_t begin, end;
} span;

/** What the teams compute at a time: rows of a request, over a chunk of its keys. */
typedef struct tile {
    uint32_t index, head, kv_head; // of the request; the first query head
    uint32_t row, rows;            // the first row; the request's rows, 0: there are no more tiles
    uint32_t token, place;         // the request's first token of q, and first of k or of its pages
    uint32_t chunk, end_key;       // keys of the chunk
    uint32_t kv_len;
    int64_t first, end; // what query 0 sees, without regard to the chunk: keys from the first on
    int64_t partial;    // the chunk's first row of partial results; below 0: not split
    span keys;          // of which any row sees a key
    span team_keys[TEAMS], team_whole[TEAMS]; // of which a team's rows see some, and all
} tile;

// Places in LDS. Where o is wide, it goes through the place of q.
enum {
    LOADERS = 4, // waves
    TILES = 3,
    O_HAS_PLACE = QK_D <= 128,
    O_AT = O_HAS_PLACE ? TEAMS * Q_BYTES : 0,
    K_AT = TEAMS * (Q_BYTES + (O_HAS_PLACE ? TEAM_BYTES : 0)),
    V_AT = K_AT + STAGES * K_BYTES,
    CODES_AT = V_AT + STAGES * STAGE_BYTES,                // two tiles' on their way
    Q_FULL_AT = CODES_AT + (QK_FP8 ? 2 * KEYS * QK_D : 0), // a barrier for each team
    Q_EMPTY_AT = Q_FULL_AT + 8 * TEAMS,
    K_FULL_AT = Q_EMPTY_AT + 8 * TEAMS, // a barrier for each stage
    K_EMPTY_AT = K_FULL_AT + 8 * STAGES,
    V_FULL_AT = K_EMPTY_AT + 8 * STAGES,
    V_EMPTY_AT = V_FULL_AT + 8 * STAGES,
    V_RAW_AT = V_EMPTY_AT + 8 * STAGES, // values are in, of which the last are to be cleared
    TILE_FULL_AT = V_RAW_AT + 8,
    TILE_EMPTY_AT = TILE_FULL_AT + 8 * TILES,
    TILES_AT = TILE_EMPTY_AT + 8 * TILES,
    LDS_BYTES = TILES_AT + TILES * (int)sizeof(tile)
};
static_assert(LDS_BYTES <= 232448, "the stages are more than a multiprocessor's LDS");
static_assert(TILES_AT % alignof(tile) == 0 && (O_HAS_PLACE || Q_BYTES == TEAM_BYTES));

QD_INLINE QD_LDS tile *tile_at(uint32_t base, uint32_t round) {
    return (QD_LDS tile *)(uintptr_t)(base + TILES_AT + round % TILES * (uint32_t)sizeof(tile));
}
/** Waits for the tile of a round. */
QD_INLINE const QD_LDS tile *enter_tile(uint32_t base, uint32_t round) {
    qd_mbarrier_wait(base + TILE_FULL_AT + 8 * (round % TILES), round / TILES % 2);
    return tile_at(base, round);
}

/** Says that this wave reads the tile of a round no more. */
QD_INLINE void leave_tile(uint32_t base, uint32_t round) {
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(base + TILE_EMPTY_AT + 8 * (round % TILES));
}

// ---- the wave that finds tiles

enum { ROWS = TEAMS * QK_ATTENTION_TEAM };

/** Returns how many times `pack` heads there are. */
QD_INLINE uint32_t count_heads(const qk_attention_args *g, uint32_t shift) {
    return g->num_kv_heads * g->group >> shift;
}

/** Returns how many tiles there are, each for count_heads heads. */
QD_INLINE uint32_t count_tiles(const qk_attention_args *g, uint32_t shift) {
    if (g->schedule)
        return g->schedule->num_tiles;
    return g->requests * qd_div_up(g->qo_len << shift, ROWS) * qk_attention_uniform_chunks(g);
}

/** Returns tile `index` of uniform requests. The longest come first if there is a bound. */
QD_INLINE qk_attention_batch_tile find_uniform(const qk_attention_args *g, uint32_t index,
                                               uint32_t shift) {
    const uint32_t chunks = qk_attention_uniform_chunks(g), each = g->requests * chunks;
    const uint32_t last = qd_div_up(g->qo_len << shift, ROWS) - 1;
    return (qk_attention_batch_tile){.request = index % each / chunks,
                                     .row = (last - index / each) * ROWS,
                                     .kv_begin = index % chunks * g->kv_chunk};
}

/** Finds an item's tile and head. Without a bound the tiles of a head of one uniform request come
 *  one after the other, so that they share keys in L2. */
QD_INLINE qk_attention_batch_tile find_item(const qk_attention_args *g, uint32_t id, uint32_t tiles,
                                            uint32_t shift, uint32_t *head) {
    const uint32_t heads = count_heads(g, shift);
    const bool are_heads_outer = !g->schedule && g->right == INT32_MAX && g->requests == 1;
    const uint32_t index = are_heads_outer ? id % tiles : id / heads;
    *head = (are_heads_outer ? id / tiles : id - index * heads) << shift;
    return g->schedule ? qk_attention_batch_tiles(g->schedule)[index]
                       : find_uniform(g, index, shift);
}

/** Finds an item's tile, but for its spans. */
QD_INLINE tile find_tile(const qk_attention_args *g, uint32_t id, uint32_t tiles, uint32_t shift) {
    constexpr int64_t unbounded = INT64_C(1) << 60;
    uint32_t head;
    const qk_attention_batch_tile item = find_item(g, id, tiles, shift, &head);
    const qk_attention_request r = qk_attention_get_request(g, item.request);
    const int64_t origin = qk_attention_diagonal(g, &r, 0);
    const bool is_split = r.partial_begin >= 0;
    const int64_t chunk = is_split ? item.kv_begin / (uint32_t)r.kv_chunk : 0;
    return (tile){.index = item.request,
                  .head = head,
                  .kv_head = head / g->group,
                  .row = item.row,
                  .rows = (uint32_t)r.qo_len << shift,
                  .token = (uint32_t)r.qo_begin,
                  .place = (uint32_t)r.kv_begin,
                  .chunk = item.kv_begin,
                  .end_key = qk_attention_next_chunk(&r, item.kv_begin, (uint32_t)r.kv_len),
                  .kv_len = (uint32_t)r.kv_len,
                  .first = g->left == INT32_MAX ? -unbounded : origin - g->left,
                  .end = g->right == INT32_MAX ? unbounded : origin + g->right + 1,
                  .partial = is_split ? r.partial_begin + chunk * r.qo_len * g->group : -1};
}

/** Returns the keys of its chunk that query 0 + `query` sees, counted from the chunk's begin; end
 *  may be below begin. */
QD_INLINE span find_keys(int64_t first, int64_t end, uint32_t chunk, uint32_t end_key,
                         uint32_t query) {
    const int64_t size = end_key - chunk, from = first + query - chunk, to = end + query - chunk;
    return (span){from < 0      ? 0
                  : from < size ? (uint32_t)from
                                : (uint32_t)size,
                  to < 0      ? 0
                  : to < size ? (uint32_t)to
                              : (uint32_t)size};
}

QD_INLINE span find_keys_of(const tile *t, uint32_t row, uint32_t shift) {
    return find_keys(t->first, t->end, t->chunk, t->end_key, row >> shift);
}

/** Returns the tiles of keys of which any of these rows sees a key. */
QD_INLINE span find_span(const tile *t, uint32_t first, uint32_t last, uint32_t shift) {
    const uint32_t begin = find_keys_of(t, first, shift).begin;
    const uint32_t end = find_keys_of(t, last, shift).end;
    return end > begin ? (span){begin / KEYS, qd_div_up(end, KEYS)} : (span){};
}

/** Returns the tiles of keys that all of these rows see wholly; end may be below begin. */
QD_INLINE span find_whole(const tile *t, uint32_t first, uint32_t last, uint32_t shift) {
    return (span){qd_div_up(find_keys_of(t, last, shift).begin, KEYS),
                  find_keys_of(t, first, shift).end / KEYS};
}

/** Writes a tile; lane i finds what team i sees. A team that sees nothing passes over all keys. */
QD_INLINE void put_tile(QD_LDS tile *to, tile t, uint32_t shift) {
    const uint32_t lane = qd_lane(), row = t.row + lane * QK_ATTENTION_TEAM;
    t.keys = find_span(&t, t.row, qd_min(t.row + ROWS, t.rows) - 1, shift);
    if (lane == 0) {
        to->index = t.index, to->head = t.head, to->kv_head = t.kv_head;
        to->row = t.row, to->rows = t.rows;
        to->token = t.token, to->place = t.place;
        to->chunk = t.chunk, to->end_key = t.end_key, to->kv_len = t.kv_len;
        to->first = t.first, to->end = t.end, to->partial = t.partial;
        to->keys = t.keys;
    }
    if (lane < TEAMS) {
        const uint32_t last = qd_min(row + QK_ATTENTION_TEAM, t.rows) - 1;
        const span keys = row < t.rows ? find_span(&t, row, last, shift) : (span){};
        to->team_keys[lane] = keys.begin < keys.end ? keys : (span){t.keys.end, t.keys.end};
        to->team_whole[lane] = find_whole(&t, row, last, shift);
    }
}

/** Puts this workgroup's tile of a round; one without rows: there are no more. Who had a shorter
 *  tile in one round gets a longer one in the next. Returns whether there are more. */
QD_INLINE bool plan_round(const qk_attention_batch_args *p, uint32_t base, uint32_t round) {
    const qk_attention_args *g = &p->common;
    const uint32_t grid = __gpu_num_blocks(0), block = qd_block(), shift = p->pack_shift;
    const uint32_t id = round * grid + (round % 2 ? grid - 1 - block : block);
    const uint32_t tiles = count_tiles(g, shift);
    const bool is_any = id < tiles * count_heads(g, shift);
    qd_mbarrier_wait(base + TILE_EMPTY_AT + 8 * (round % TILES), round / TILES % 2 ^ 1);
    if (is_any)
        put_tile(tile_at(base, round), find_tile(g, id, tiles, shift), shift);
    else if (qd_lane() == 0)
        tile_at(base, round)->rows = 0;
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(base + TILE_FULL_AT + 8 * (round % TILES));
    return is_any;
}

QD_INLINE void plan_rounds(const qk_attention_batch_args *p, uint32_t base) {
    uint32_t round = 0;
    QD_NO_UNROLL while (plan_round(p, base, round))
        round++;
}

// ---- loading

/** The addresses of the maps; they are what the arguments begin with. */
enum { MAP_BYTES = sizeof(qk_tensor_map) };
#define MAP_Q(maps) (maps)
#define MAP_K(maps) ((maps) + MAP_BYTES)
#define MAP_V(maps) ((maps) + 2 * MAP_BYTES)

/** What a loading wave knows. */
typedef struct loader {
    const qk_attention_batch_args *args;
    uint64_t maps;
    uint32_t base, round;
    uint32_t pending; // a barrier of which this wave has not said yet that it is full; 0: none
} loader;

/** Tells a team that its round begins, and loads its queries. */
QD_INLINE void load_queries_of(const loader *l, uint32_t team, const QD_LDS tile *t) {
    const uint32_t full = l->base + Q_FULL_AT + 8 * team, to = l->base + team * Q_BYTES;
    const uint32_t row = t->row + QK_ATTENTION_TEAM * team;
    const uint32_t token = t->token + (row >> l->args->pack_shift);
    qd_mbarrier_wait(l->base + Q_EMPTY_AT + 8 * team, l->round % 2 ^ 1);
    if (row >= t->rows) {
        qd_mbarrier_arrive(full);
        return;
    }
    qd_mbarrier_expect(full, Q_BYTES);
    QD_UNROLL for (uint32_t i = 0; i < K_BOXES; i++)
        qd_tensor_load4(to + i * Q_BOX_BYTES, MAP_Q(l->maps), full, i * BOX, t->head, token,
                        t->index * l->args->q_step);
}

/** Begins the teams' round; one thread. */
QD_INLINE void load_queries(const loader *l, const QD_LDS tile *t) {
    QD_NO_UNROLL for (uint32_t team = 0; team < TEAMS; team++)
        load_queries_of(l, team, t);
}

// ---- loading boxes: one wave loads keys, one values, and its first lane starts copies. k and v
// lie in one piece, or in pages that boxes of PART keys divide evenly

enum { PART = QK_BATCH_PART, PARTS_OF_TILE = KEYS / PART };

/** What a wave loads: k or v. */
typedef struct stream {
    uint32_t at, bytes, boxes, full, empty; // full, empty: addresses
    uint64_t map;
    qd_ring ring;
    bool is_paged;
} stream;

/** Asks for the page of each part of a tile: lane i for that of part i. */
QD_INLINE uint32_t find_pages(const loader *l, const QD_LDS tile *t, uint32_t at) {
    const qk_attention_args *g = &l->args->common;
    const uint32_t key = t->chunk + at * KEYS + qd_lane() * PART;
    if (!g->kv_indices || qd_lane() >= PARTS_OF_TILE || key >= t->kv_len)
        return 0;
    return (uint32_t)g->kv_indices[t->place + key / g->page_size];
}

/** Loads a tile in one piece. */
QD_INLINE void load_whole(const loader *l, const stream *s, const QD_LDS tile *t, uint32_t at,
                          uint32_t to, uint32_t bar) {
    const uint32_t key = t->place + t->chunk + at * KEYS, index = t->index * l->args->kv_step;
    qd_mbarrier_expect(bar, s->bytes);
    QD_UNROLL for (uint32_t i = 0; i < s->boxes; i++)
        qd_tensor_load4(to + i * K_BOX_BYTES, s->map, bar, i * BOX, t->kv_head, key, index);
}

/** Loads the parts of a tile whose pages the lanes know, as far as the request has keys. */
QD_INLINE void load_parts(const loader *l, const stream *s, const QD_LDS tile *t, uint32_t at,
                          uint32_t to, uint32_t bar, uint32_t pages) {
    const uint32_t size = l->args->common.page_size, first = t->chunk + at * KEYS;
    const uint32_t count = qd_min(qd_div_up(t->kv_len - first, PART), PARTS_OF_TILE);
    uint32_t key = first % size;
    if (qd_lane() == 0)
        qd_mbarrier_expect(bar, count * s->boxes * PART * 128);
    QD_NO_UNROLL for (uint32_t part = 0; part < count; part++) {
        const uint32_t page = qd_from_lane(pages, part);
        if (qd_lane() == 0) QD_UNROLL
            for (uint32_t i = 0; i < s->boxes; i++)
                qd_tensor_load4(to + i * K_BOX_BYTES + part * PART * 128, s->map, bar, i * BOX,
                                t->kv_head, key, page);
        key = key + PART < size ? key + PART : 0;
    }
}

/** Loads tile `at`. Of values that end in it the stage is not full yet. */
QD_INLINE void load_tile(loader *l, stream *s, const QD_LDS tile *t, uint32_t at, uint32_t pages,
                         bool are_values) {
    const uint32_t full = s->full + 8 * s->ring.at, to = s->at + s->ring.at * s->bytes;
    const bool is_cut = are_values && t->chunk + (at + 1) * KEYS > t->kv_len;
    const uint32_t bar = is_cut ? l->base + V_RAW_AT : full;
    qd_mbarrier_wait(s->empty + 8 * s->ring.at, s->ring.parity);
    if (s->is_paged)
        load_parts(l, s, t, at, to, bar, pages);
    else if (qd_lane() == 0)
        load_whole(l, s, t, at, to, bar);
    if (is_cut)
        l->pending = full;
    qd_ring_advance(&s->ring, STAGES);
}

/** Clears values past the request's end, which may be another request's NaNs or were not loaded at
 *  all, and says that the stage is full. */
QD_INLINE void settle_values(loader *l, const QD_LDS tile *t, uint32_t *parity) {
    if (!l->pending)
        return;
    const uint32_t stage = (l->pending - l->base - V_FULL_AT) / 8, lane = qd_lane();
    const uint32_t to = l->base + V_AT + stage * STAGE_BYTES + lane % 8 * 16;
    const uint32_t first = t->kv_len - t->chunk - (t->keys.end - 1) * KEYS;
    qd_mbarrier_wait(l->base + V_RAW_AT, *parity);
    QD_NO_UNROLL for (uint32_t row = first + lane / 8; row < KEYS; row += 4) QD_UNROLL
        for (uint32_t i = 0; i < BOXES; i++)
            *(QD_LDS qd_u32x4 *)(uintptr_t)(to + i * K_BOX_BYTES + row * 128) = (qd_u32x4)0;
    qd_async_fence();
    qd_wave_barrier();
    if (lane == 0)
        qd_mbarrier_arrive(l->pending);
    *parity ^= 1;
    l->pending = 0;
}

/** Loads k of what the workgroup's tiles see, or v, and q beside k. The pages of a tile are asked
 *  for a tile ahead. */
QD_INLINE void load_stream(loader *l, stream *s, bool are_values) {
    uint32_t raw = 0;
    QD_NO_UNROLL for (;; l->round++) {
        const QD_LDS tile *t = enter_tile(l->base, l->round);
        const uint32_t begin = t->keys.begin, rows = t->rows;
        uint32_t at = rows > 0 ? t->keys.end : begin;
        uint32_t pages = at > begin ? find_pages(l, t, at - 1) : 0;
        bool is_begun = are_values;
        QD_NO_UNROLL for (; at > begin || !is_begun;) {
            if (at > begin) {
                const uint32_t next = find_pages(l, t, qd_max(at, 2) - 2);
                const uint32_t before = l->pending;
                load_tile(l, s, t, --at, pages, are_values);
                pages = next;
                if (are_values && before)
                    settle_values(l, t, &raw);
            }
            if (!is_begun && qd_lane() == 0)
                load_queries(l, t);
            is_begun = true;
            qd_wave_barrier();
        }
        if (are_values) {
            settle_values(l, t, &raw);
            leave_tile(l->base, l->round);
        }
        if (rows == 0)
            break;
    }
}

QD_INLINE void load_boxes(loader *l) {
    const bool is_paged = l->args->common.kv_indices;
    const uint32_t wave = qd_wave_uniform(qd_thread() / QD_WAVE % LOADERS);
    stream k = {.at = l->base + K_AT,
                .bytes = K_BYTES,
                .boxes = K_BOXES,
                .full = l->base + K_FULL_AT,
                .empty = l->base + K_EMPTY_AT,
                .map = MAP_K(l->maps),
                .ring = {0, 1},
                .is_paged = is_paged};
    stream v = {.at = l->base + V_AT,
                .bytes = STAGE_BYTES,
                .boxes = BOXES,
                .full = l->base + V_FULL_AT,
                .empty = l->base + V_EMPTY_AT,
                .map = MAP_V(l->maps),
                .ring = {0, 1},
                .is_paged = is_paged};
    if (wave == 0)
        load_stream(l, &k, false);
    else if (wave == 1)
        load_stream(l, &v, true);
    else if (wave == 2)
        plan_rounds(l->args, l->base);
}

// ---- loading any pages: all waves copy, each lane 16 bytes at a time, as a page may be one key

enum { OWN = KEYS / LOADERS }; // keys of a tile that a wave copies
static_assert(OWN <= QD_WAVE);

/** Where a key lies: each lane knows one of the wave's keys of a tile. page < 0: there is none. */
typedef struct place {
    int32_t page;
    uint32_t key; // in its page
} place;

QD_INLINE uint32_t wave_of_loader(void) {
    return qd_wave_uniform(qd_thread() / QD_WAVE % LOADERS);
}

QD_INLINE place find_place(const loader *l, const QD_LDS tile *t, uint32_t at) {
    const qk_attention_args *g = &l->args->common;
    const uint32_t key = t->chunk + at * KEYS + wave_of_loader() * OWN + qd_lane();
    if (qd_lane() >= OWN || key >= t->kv_len)
        return (place){-1, 0};
    if (QK_FP8 && !g->kv_indices)
        return (place){(int32_t)t->index, t->place + key};
    const uint32_t page = key / g->page_size;
    return (place){g->kv_indices[t->place + page], key - page * g->page_size};
}

#if QK_FP8
#include "attention_batch_fp8_gpu.h"
#else
/** Lanes that copy 128 bytes of a key, and keys that are copied so at once. */
enum { LANES_OF_LINE = 8, LINES = QD_WAVE / LANES_OF_LINE };
static_assert(OWN % LINES == 0);

/** Says that the stage of the wave's commit before the last one is full, or with `is_last` the
 *  last one's. */
QD_INLINE void settle_copies(loader *l, bool is_last) {
    if (is_last)
        qd_copy_wait();
    else
        qd_copy_wait_before_last();
    qd_async_fence();
    qd_wave_barrier();
    if (l->pending && qd_lane() == 0)
        qd_mbarrier_arrive(l->pending);
    l->pending = 0;
}

/** Starts the copies of the wave's keys of a tile; past the end and past head_dim they are
 *  zeros. */
QD_INLINE void copy_keys(const qk_attention_rows *rows, uint32_t head_dim, uint32_t boxes,
                         uint32_t to, uint32_t kv_head, place own) {
    const uint32_t lane = qd_lane(), line = lane / LANES_OF_LINE, piece = lane % LANES_OF_LINE;
    const uint32_t begin = wave_of_loader() * OWN + line;
    const uint32_t own_at = (uint32_t)own.page * (uint32_t)(rows->block / 8) +
                            own.key * (uint32_t)(rows->token / 8) +
                            kv_head * (uint32_t)(rows->head / 8);
    const uint32_t from = own.page < 0 ? UINT32_MAX : own_at;
    QD_NO_UNROLL for (uint32_t i = 0; i < OWN; i += LINES) {
        const uint32_t at = qd_from_lane(from, i + line), row = begin + i;
        const bool is_in = at != UINT32_MAX;
        const char *data = (const char *)rows->data + (uint64_t)(is_in ? at : 0) * 16 + piece * 16;
        QD_UNROLL for (uint32_t b = 0; b < boxes; b++)
            qd_copy16(to + row * 128 + (piece ^ row % 8) * 16 + b * K_BOX_BYTES, data + b * 128,
                      is_in && b * BOX + piece * 8 < head_dim);
    }
    qd_copy_commit();
}

QD_INLINE void copy_key_tile(loader *l, qd_ring *k, uint32_t kv_head, place own) {
    const qk_attention_args *g = &l->args->common;
    qd_mbarrier_wait(l->base + K_EMPTY_AT + 8 * k->at, k->parity);
    copy_keys(&g->k, g->head_dim_qk, K_BOXES, l->base + K_AT + k->at * K_BYTES, kv_head, own);
    settle_copies(l, false);
    l->pending = l->base + K_FULL_AT + 8 * k->at;
    qd_ring_advance(k, STAGES);
}

QD_INLINE void copy_value_tile(loader *l, qd_ring *v, uint32_t kv_head, place own) {
    const qk_attention_args *g = &l->args->common;
    qd_mbarrier_wait(l->base + V_EMPTY_AT + 8 * v->at, v->parity);
    copy_keys(&g->v, g->head_dim_vo, BOXES, l->base + V_AT + v->at * STAGE_BYTES, kv_head, own);
    settle_copies(l, false);
    l->pending = l->base + V_FULL_AT + 8 * v->at;
    qd_ring_advance(v, STAGES);
}

/** Copies a tile's keys and values. The places of keys are asked for a tile ahead. */
QD_INLINE void copy_tile(loader *l, const QD_LDS tile *t, qd_ring *k, qd_ring *v) {
    const uint32_t kv_head = t->kv_head, begin = t->keys.begin;
    uint32_t at = t->rows > 0 ? t->keys.end : begin;
    place values = {-1, 0}, next = {-1, 0};
    if (at > begin) {
        values = find_place(l, t, at - 1);
        next = find_place(l, t, qd_max(at, 2) - 2);
        copy_key_tile(l, k, kv_head, values);
    }
    if (qd_thread() == TEAMS * QD_TEAM)
        load_queries(l, t);
    qd_wave_barrier();
    QD_NO_UNROLL for (; at > begin; at--) {
        const place keys = next;
        next = find_place(l, t, qd_max(at, 3) - 3);
        if (at - 1 > begin)
            copy_key_tile(l, k, kv_head, keys);
        copy_value_tile(l, v, kv_head, values);
        values = keys;
    }
    settle_copies(l, true);
}

#endif

/** Copies what all of the workgroup's tiles need. The last wave finds tiles as well. */
QD_INLINE void copy_pages(loader *l) {
    const bool plans = wave_of_loader() == LOADERS - 1;
    qd_ring k = {0, 1}, v = {0, 1};
    bool is_any = true;
    QD_NO_UNROLL for (; is_any; l->round++) {
        if (plans)
            plan_round(l->args, l->base, l->round);
        const QD_LDS tile *t = enter_tile(l->base, l->round);
        is_any = t->rows > 0;
        copy_tile(l, t, &k, &v);
        leave_tile(l->base, l->round);
    }
}

#endif
