// SPDX-License-Identifier: Apache-2.0
// Latent attention on Hopper: what a workgroup computes, part after part, where it lies in LDS, and
// the team that loads it.
#ifndef QK_MLA_WGMMA_GPU_H
#define QK_MLA_WGMMA_GPU_H

#include "../../attention/hopper/attention_weights_gpu.h"
#include "halves.h"
#include "mla_wgmma_abi.h"
#include "tensor_copy.h"

#ifdef QK_FP8
enum { KV_BYTES = 1 };
#else
enum { KV_BYTES = 2 };
#endif
#ifdef QK_F16
enum { IS_F16 = 1 };
#else
enum { IS_F16 = 0 };
#endif
enum { TEAMS = QK_MLA_TEAMS, ROWS = QK_MLA_ROWS, LOADER = TEAMS };
static_assert(KEYS == 64 && TEAMS == 2, "a tile's keys are a block's rows; a tile is a team's");

// A tile of q or of keys is a row of blocks of 64 rows by 128 bytes, kpe's the last.
enum {
    LINE_BYTES = 128,
    BLOCK_BYTES = 64 * LINE_BYTES,
    DIM_BLOCKS = QK_MLA_DIM * 2 / LINE_BYTES,
    ROPE_BLOCK = DIM_BLOCKS,
    TILE_BYTES = (DIM_BLOCKS + 1) * BLOCK_BYTES,
    HALF_BLOCKS = DIM_BLOCKS / TEAMS, // of values, a team's
    PAIR = TEAMS * KEYS               // keys that are in LDS at a time
};

// Places in LDS. A tile is full, and empty, half by half: a half is a team's values. The block of
// kpe, which becomes the weights of the tile's team for the other one, goes with the other team's
// half.
enum { PLACES = 2 }; // pairs of tiles whose keys' places are known
enum {
    Q_AT = 0,
    K_AT = TILE_BYTES,
    TOPS_AT = K_AT + TEAMS * TILE_BYTES,
    SUMS_AT = TOPS_AT + TEAMS * ROWS * 4, // of two parts in turn
    PLACES_AT = SUMS_AT + 2 * TEAMS * ROWS * 4,
    Q_FULL_AT = PLACES_AT + PLACES * PAIR * 8,
    FULL_AT = Q_FULL_AT + 8,            // of each tile and half
    EMPTY_AT = FULL_AT + 8 * 2 * TEAMS, // likewise
    TOPS_FULL_AT = EMPTY_AT + 8 * 2 * TEAMS,
    WEIGHTS_FULL_AT = TOPS_FULL_AT + 8, // of each tile
    LDS_BYTES = WEIGHTS_FULL_AT + 8 * TEAMS
};
static_assert(LDS_BYTES <= 232448, "the tiles are more than a multiprocessor's LDS");

QD_INLINE uint32_t tile_at(uint32_t base, uint32_t tile) {
    return base + K_AT + tile * TILE_BYTES;
}
QD_INLINE uint32_t full_at(uint32_t base, uint32_t tile, uint32_t half) {
    return base + FULL_AT + 8 * (2 * tile + half);
}
QD_INLINE uint32_t empty_at(uint32_t base, uint32_t tile, uint32_t half) {
    return base + EMPTY_AT + 8 * (2 * tile + half);
}

// ---- parts

/** What a workgroup computes at a time: up to ROWS rows of a request over a chunk of its keys. */
typedef struct part {
    qk_attention_request request;
    uint32_t index, row, rows;
    uint32_t begin, end, chunk_end; // keys; behind `end` no row sees any
    bool is_first;                  // of these rows
} part;

/** A walk over the workgroup's parts. An item is the rows of a part with all of their chunks. */
typedef struct walk {
    uint32_t item, kv_end;
    part part;
} walk;

QD_INLINE walk begin_walk(void) {
    return (walk){.item = qd_block()};
}

/** Returns the end of the keys of a chunk that a row sees. */
QD_INLINE uint32_t end_of_row(const qk_attention_args *g, const part *p, uint32_t row) {
    return qd_min(qk_attention_end_key(g, &p->request, row / g->group), p->chunk_end);
}

QD_INLINE void begin_chunk(const qk_attention_args *g, walk *w, uint32_t begin) {
    part *p = &w->part;
    p->begin = begin;
    p->chunk_end = qk_attention_next_chunk(&p->request, begin, w->kv_end);
    p->end = end_of_row(g, p, p->row + p->rows - 1);
}

/** Goes to the next item. Returns whether there is one. */
QD_INLINE bool begin_item(const qk_attention_args *g, walk *w) {
    const uint32_t tiles = g->schedule ? qd_div_up((uint32_t)g->schedule->q_tile, ROWS) : 1;
    const uint32_t items = qk_attention_count(g) * tiles;
    while (w->item < items) {
        const uint32_t item = w->item;
        const qk_attention_work work = qk_attention_find(g, item / tiles);
        const uint32_t row = work.row_begin + item % tiles * ROWS;
        w->item += __gpu_num_blocks(0);
        if (row >= work.row_end)
            continue;
        w->kv_end = work.kv_end;
        w->part = (part){.request = qk_attention_get_request(g, work.request),
                         .index = work.request,
                         .row = row,
                         .rows = qd_min(work.row_end - row, ROWS),
                         .is_first = true};
        begin_chunk(g, w, work.kv_begin);
        return true;
    }
    return false;
}

/** Goes to the next part, at first to the first one. Returns whether there is one. */
QD_INLINE bool next_part(const qk_attention_args *g, walk *w) {
    if (w->part.chunk_end >= w->kv_end)
        return begin_item(g, w);
    w->part.is_first = false;
    begin_chunk(g, w, w->part.chunk_end);
    return true;
}

QD_INLINE uint32_t count_pairs(const part *p) {
    return p->end > p->begin ? qd_div_up(p->end - p->begin, PAIR) : 0;
}

// ---- the team that loads

/** Lanes that copy a line, and rows that the team copies at once. */
enum { LANES_OF_LINE = LINE_BYTES / 16, LINES = QD_TEAM / LANES_OF_LINE, TURNS = 64 / LINES };

static_assert(PAIR == QD_TEAM, "a thread finds a key's place");

/** What a thread of the loading team knows. Places are counted in pieces of eight elements, which
 *  are 16 bytes in LDS. */
typedef struct loader {
    const qk_mla_args *args;
    uint32_t base, thread, parity;
    uint32_t turn; // of PLACES
    uint32_t key;  // whose page the thread has asked for
    int32_t page;
} loader;

QD_INLINE QD_LDS qd_u32x2 *place_at(const loader *l, uint32_t turn, uint32_t key) {
    return (QD_LDS qd_u32x2 *)(uintptr_t)(l->base + PLACES_AT + (turn % PLACES * PAIR + key) * 8);
}

/** Asks for the page of the thread's key of a pair of tiles. */
QD_INLINE void ask_page(loader *l, const part *p, uint32_t pair) {
    const qk_attention_args *g = &l->args->common;
    l->key = p->begin + pair * PAIR + l->thread;
    if (l->key < p->end)
        l->page = g->kv_indices[(uint32_t)p->request.kv_begin + l->key / g->page_size];
}

QD_INLINE uint32_t place_in(const qk_attention_rows *rows, uint32_t page, uint32_t slot) {
    return page * (uint32_t)(rows->block / 8) + slot * (uint32_t)(rows->token / 8);
}
QD_INLINE const char *row_in(const qk_attention_rows *rows, uint32_t place) {
    return (const char *)rows->data + (uint64_t)place * (8 * KV_BYTES);
}

/** Puts the place of the thread's key, whose page has come, into LDS. */
QD_INLINE void put_place(const loader *l, const part *p) {
    const qk_mla_args *a = l->args;
    const uint32_t slot = l->key % a->common.page_size, page = (uint32_t)l->page;
    qd_u32x2 place = 0;
    if (l->key < p->end)
        place = (qd_u32x2){place_in(&a->common.k, page, slot), place_in(&a->tail.k, page, slot)};
    *place_at(l, l->turn, l->thread) = place;
}

/** Returns where the thread's piece of a line of row `row` goes in a block. */
QD_INLINE uint32_t piece_at(const loader *l, uint32_t row) {
    return row * LINE_BYTES + (l->thread % LANES_OF_LINE ^ row % 8) * 16;
}

/** Starts the copies of `count` lines of the thread's row, which lie side by side in memory and
 *  BLOCK_BYTES apart in LDS. */
QD_INLINE void copy_lines(const loader *l, uint32_t to, const char *from, uint32_t row,
                          uint32_t count, bool is_in) {
    const uint32_t at = to + piece_at(l, row);
    from += l->thread % LANES_OF_LINE * 16;
    QD_UNROLL for (uint32_t c = 0; c < count; c++)
        qd_copy16(at + c * BLOCK_BYTES, from + c * LINE_BYTES, is_in);
}

/** Returns the row that the thread copies in a turn. */
QD_INLINE uint32_t row_of_turn(const loader *l, uint32_t turn) {
    return turn * LINES + l->thread / LANES_OF_LINE;
}

/** Where the lines of a half of a tile, of which kpe's is the last if it has that, come from and go
 *  to. */
typedef struct half {
    uint32_t tile, number, lines;
    uint32_t count; // of keys that exist
} half;

QD_INLINE half half_of(const part *p, uint32_t pair, uint32_t tile, uint32_t number) {
    const uint32_t begin = p->begin + pair * PAIR + tile * KEYS;
    return (half){.tile = tile,
                  .number = number,
                  .lines = HALF_BLOCKS + (number != tile),
                  .count = p->end > begin ? p->end - begin : 0};
}

QD_INLINE uint32_t block_of(const half *h, uint32_t line) {
    return line == HALF_BLOCKS ? ROPE_BLOCK : h->number * HALF_BLOCKS + line;
}

/** Returns where the thread's piece of a line lies in memory. */
QD_INLINE const char *line_in(const loader *l, const half *h, qd_u32x2 place, uint32_t line) {
    const char *const row = line == HALF_BLOCKS
                                ? row_in(&l->args->tail.k, place.y)
                                : row_in(&l->args->common.k, place.x) +
                                      (h->number * HALF_BLOCKS + line) * 64 * KV_BYTES;
    return row + l->thread % LANES_OF_LINE * 8 * KV_BYTES;
}

#ifdef QK_FP8
/** Loads a half of a tile of a pair, converts it, and puts it into LDS when there is room; tile and
 *  number are constants. */
QD_INLINE void copy_half(const loader *l, const part *p, uint32_t pair, uint32_t tile,
                         uint32_t number) {
    const half h = half_of(p, pair, tile, number);
    qd_u32x2 codes[TURNS][HALF_BLOCKS + 1];
    QD_UNROLL for (uint32_t i = 0; i < TURNS; i++) {
        const uint32_t row = row_of_turn(l, i);
        const qd_u32x2 place = *place_at(l, l->turn, tile * KEYS + row);
        QD_UNROLL for (uint32_t c = 0; c < h.lines; c++)
            codes[i][c] = row < h.count ? *(const qd_u32x2 *)line_in(l, &h, place, c) : (qd_u32x2)0;
    }
    qd_mbarrier_wait(empty_at(l->base, tile, number), l->parity ^ 1);
    QD_UNROLL for (uint32_t i = 0; i < TURNS; i++) {
        const uint32_t to = tile_at(l->base, tile) + piece_at(l, row_of_turn(l, i));
        QD_UNROLL for (uint32_t c = 0; c < h.lines; c++)
            *(QD_LDS qd_u32x4 *)(uintptr_t)(to + block_of(&h, c) * BLOCK_BYTES) =
                qd_widen8(QD_E4M3FN, IS_F16, codes[i][c]);
    }
    qd_async_fence();
    qd_mbarrier_arrive(full_at(l->base, tile, number));
}
#else
/** Copies a half of a tile of a pair, when there is room; tile and number are constants. */
QD_INLINE void copy_half(const loader *l, const part *p, uint32_t pair, uint32_t tile,
                         uint32_t number) {
    const half h = half_of(p, pair, tile, number);
    qd_mbarrier_wait(empty_at(l->base, tile, number), l->parity ^ 1);
    QD_UNROLL for (uint32_t i = 0; i < TURNS; i++) {
        const uint32_t row = row_of_turn(l, i);
        const uint32_t to = tile_at(l->base, tile) + piece_at(l, row);
        const qd_u32x2 place = *place_at(l, l->turn, tile * KEYS + row);
        QD_UNROLL for (uint32_t c = 0; c < h.lines; c++)
            qd_copy16(to + block_of(&h, c) * BLOCK_BYTES, line_in(l, &h, place, c), row < h.count);
    }
    qd_mbarrier_arrive_copies(full_at(l->base, tile, number));
}
#endif

/** Copies the part's rows of q, when all products with the last ones have ended: they come before
 *  those of the first tile's values. */
QD_INLINE void copy_queries(const loader *l, const part *p) {
    const qk_attention_args *g = &l->args->common;
    const qk_attention_rows *tail = &l->args->tail.q;
    QD_UNROLL for (uint32_t half = 0; half < 2; half++)
        qd_mbarrier_wait(empty_at(l->base, 0, half), l->parity ^ 1);
    QD_NO_UNROLL for (uint32_t i = 0; i < TURNS; i++) {
        const uint32_t row = row_of_turn(l, i);
        const bool is_in = row < p->rows;
        const row_place place =
            find_row(g, &p->request, p->index, 0, p->row + qd_min(row, p->rows - 1));
        const char *nope = (const char *)g->q.data + q_offset(g, &place) * 2;
        const char *pe =
            (const char *)tail->data + (place.token * tail->token + place.head * tail->head) * 2;
        copy_lines(l, l->base + Q_AT, nope, row, DIM_BLOCKS, is_in);
        copy_lines(l, l->base + Q_AT + ROPE_BLOCK * BLOCK_BYTES, pe, row, 1, is_in);
    }
    qd_mbarrier_arrive_copies(l->base + Q_FULL_AT);
}

QD_INLINE void load_pair(loader *l, const part *p, uint32_t pair) {
    put_place(l, p);
    ask_page(l, p, pair + 1);
    qd_team_barrier(1 + LOADER, QD_TEAM); // all places of this pair are in LDS
    QD_UNROLL for (uint32_t tile = 0; tile < TEAMS; tile++) {
        copy_half(l, p, pair, tile, 0);
        copy_half(l, p, pair, tile, 1);
    }
    l->parity ^= 1;
    l->turn++;
}

QD_INLINE void load_part(loader *l, const part *p) {
    const uint32_t pairs = count_pairs(p);
    ask_page(l, p, 0);
    if (p->is_first)
        copy_queries(l, p);
    QD_NO_UNROLL for (uint32_t pair = 0; pair < pairs; pair++)
        load_pair(l, p, pair);
}

/** Loads what all of the workgroup's parts need. */
QD_INLINE void load_parts(const qk_mla_args *a, uint32_t base) {
    loader l = {.args = a, .base = base, .thread = qd_thread() % QD_TEAM};
    walk w = begin_walk();
    while (next_part(&a->common, &w))
        load_part(&l, &w.part);
}

#endif
