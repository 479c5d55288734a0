// SPDX-License-Identifier: Apache-2.0
// Attention of a few queries over many keys on matrix cores: a decoding step, whose speed memory
// limits.
//
// Needs     as attention_tile_gpu.c; head dims up to 128; requests of up to FEW rows; FP8 of the
//           target's usual kind
// Tile      all rows of a request; each wave takes every WAVES-th tile of TILE keys of a chunk, and
//           the waves' results are merged in the waves' order, so that bits do not depend on which
//           wave was first
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer; of a
//           batch that fills the device so, as many as requests and heads of k
// LDS       where a wave's keys and values lie; at the end of a chunk the waves' results, some
//           columns at once
// Registers a tile of k and of v, as the matrix core takes them: keys are used once, so LDS would
//           save no reading. A lane loads of each key that is its part's the elements of v that
//           lie side by side, RUN d + n, and column d of the matrix core's tile n is that element:
//           so v is transposed in the lane's own registers
// Edges     as attention_tile_gpu.c
// Schedule  scores of a tile, then ask for the next tile's k; maxima, weights; o, then ask for the
//           next tile's v. So memory always has something to do for each wave, and k and v have
//           one place each. A tile's page numbers are asked for a tile earlier. If chunks are whole
//           rounds of the waves' tiles, a chunk's end asks for the next chunk's first tiles. With
//           QK_TIGHT a tile is loaded when the last one is done, v after k
#if QK_NARROW
#include "mma/narrow.h"
#endif
#include "attention_decode_abi.h"
#include "attention_scores_gpu.h"
#include "attention_split_gpu.h"
#include "code.h"
#include "halves.h"

enum { FEW = QK_ATTENTION_FEW_ROWS, LINES = QD_MMA_ROWS, RUN = D / LINES };
enum { PIECE = RUN < 8 ? RUN : 8, RUN_PIECES = RUN / PIECE }; // of v: elements that are loaded at
                                                              // once
enum { PIECE_BYTES = PIECE * KV_BYTES, PIECE_WORDS = PIECE_BYTES < 4 ? 1 : PIECE_BYTES / 4 };
enum { WORDS = sizeof(qd_mma_operand) / 4, FRAGMENT_KEYS = 2 * WORDS }; // those of a lane, of
                                                                        // QD_MMA_K
enum { STRIDE_KEYS = WAVES * TILE }; // from a wave's tile to its next
enum { PLACE_LOADS = (2 * TILE + QD_WAVE - 1) / QD_WAVE };
enum { K_STEPS = D / QD_MMA_K, K_PIECES = WORDS / 4 }; // products along a key; pieces of a lane
static_assert(RUN == O_TILES, "column d of tile n is element RUN d + n");

/** If registers are few, q stays in LDS, and k and v of a tile are not in registers at one
 *  time. */
constexpr bool is_tight = QK_TIGHT;

/** The values of a key that a lane has: elements RUN d .. RUN d + RUN - 1. */
typedef struct run {
    uint32_t words[RUN_PIECES][PIECE_WORDS];
} run;

/** A tile of keys and values on its way to the matrix core. */
typedef struct tile {
    kv_piece k[S_TILES][K_STEPS][K_PIECES];
    run v[FRAGMENTS][FRAGMENT_KEYS];
} tile;

/** k or v, in bytes: where a kv head begins, from page to page or batch to batch, from key to
 *  key. */
typedef struct source {
    int64_t head, page, key;
} source;

/** What a lane finds places of keys with. */
typedef struct loader {
    source from[PLACE_LOADS];
    const int32_t *indices;                     // of the request's pages; null: there are none
    uint32_t first;                             // without pages: of the request's keys
    uint32_t page_size, page_factor, page_bits; // qk_attention_page_of
    int32_t pages[PLACE_LOADS];                 // of the next tile's keys; without: the batch
    uint32_t end;                               // of the keys that are loaded
} loader;

/** Tiles of 16 bits leave no registers for sources, which are then found for each tile anew. */
constexpr bool keeps_sources = QK_FP8;

/** Keeps a conversion from beginning before the product of the last one, if registers are few. */
QD_INLINE void pin(void) {
    if (is_tight && QK_FP8)
        qd_pin();
}

// ---- from memory

/** Where a wave's keys and values lie, in bytes from k's and v's beginning. */
[[clang::loader_uninitialized]] static QD_LDS int64_t places[WAVES][2][TILE]
    __attribute__((aligned(16)));

/** Returns k's or v's number, of which each lane wants one. They are loaded as what they are, equal
 *  in all lanes: vector loads would have to wait for the values that are on their way. */
QD_INLINE int64_t either(bool is_v, int64_t of_v, int64_t of_k) {
    of_v = uniform64(of_v), of_k = uniform64(of_k);
    return is_v ? of_v : of_k;
}

QD_INLINE source make_source(const part *p, bool is_v) {
    const qk_attention_args *g = reread(p->args);
    return (source){p->kv_head * either(is_v, g->v.head, g->k.head) * KV_BYTES,
                    either(is_v, g->v.block, g->k.block) * KV_BYTES,
                    either(is_v, g->v.token, g->k.token) * KV_BYTES};
}

/** Returns what all lanes have in common, in scalar registers or, where vector registers are left,
 *  in these. */
QD_INLINE uint32_t each_lane(uint32_t x) {
    return keeps_sources ? qd_opaque(x) : x;
}

QD_INLINE loader make_loader(const part *p) {
    const qk_attention_decode_args *args = (const qk_attention_decode_args *)reread(p->args);
    const qk_attention_args *g = &args->common;
    loader l = {.indices = g->kv_indices ? g->kv_indices + p->request.kv_begin : nullptr,
                .first = each_lane(g->kv_indices ? 0 : (uint32_t)p->request.kv_begin),
                .page_size = each_lane(g->page_size),
                .page_factor = each_lane(args->page_factor),
                .page_bits = each_lane(args->page_bits)};
    QD_UNROLL for (uint32_t i = 0; i < PLACE_LOADS; i++) {
        l.pages[i] = (int32_t)p->index;
        l.from[i] = make_source(p, i * QD_WAVE + qd_lane() >= TILE);
    }
    return l;
}

/** Returns the key whose place a lane finds; keys past the end repeat the last one. */
QD_INLINE uint32_t key_of_place(const loader *l, uint32_t begin, uint32_t i) {
    return qd_min(begin + (i * QD_WAVE + qd_opaque(qd_lane())) % TILE, l->end - 1);
}

QD_INLINE uint32_t page_of(const loader *l, uint32_t key) {
    return qk_attention_page_of(key, l->page_factor, l->page_bits);
}

/** Starts loading the pages of a tile's keys. */
QD_INLINE void ask_pages(loader *l, uint32_t begin) {
    QD_UNROLL for (uint32_t i = 0; i < PLACE_LOADS; i++)
        if (l->indices)
            l->pages[i] = l->indices[page_of(l, key_of_place(l, begin, i))];
}

/** Writes where the keys and values of a tile lie, whose pages are known. */
QD_INLINE void put_places(const part *p, const loader *l, uint32_t begin) {
    qd_wave_barrier(); // all lanes have read the last tile's places
    QD_UNROLL for (uint32_t i = 0; i < PLACE_LOADS; i++) {
        const uint32_t at = i * QD_WAVE + qd_opaque(qd_lane()), key = key_of_place(l, begin, i);
        const uint32_t slot = l->first + key - page_of(l, key) * l->page_size;
        const source s = keeps_sources ? l->from[i] : make_source(p, at >= TILE);
        if (at < 2 * TILE)
            places[qd_opaque(qd_wave())][at / TILE][at % TILE] =
                s.head + l->pages[i] * s.page + slot * s.key;
    }
    qd_wave_barrier();
}

/** Starts loading a lane's pieces of a key. Those past the end of a head repeat its last piece; the
 *  pin keeps the compiler from choosing between both addresses of each piece. */
QD_INLINE void fetch_key(const char *k, uint32_t pieces, kv_piece to[K_STEPS][K_PIECES]) {
    const kv_piece *first = (const kv_piece *)k + qd_mma_piece(0, 0);
    if (pieces == D / 8) {
        QD_UNROLL for (uint32_t n = 0; n < K_STEPS * K_PIECES; n++)
            to[n / K_PIECES][n % K_PIECES] = first[n / K_PIECES * (QD_MMA_K / 8) + n % K_PIECES];
        return;
    }
    qd_pin();
    QD_UNROLL for (uint32_t n = 0; n < K_STEPS * K_PIECES; n++) {
        const uint32_t piece = qd_mma_piece(n / K_PIECES, n % K_PIECES);
        to[n / K_PIECES][n % K_PIECES] = ((const kv_piece *)k)[qd_min(piece, pieces - 1)];
    }
}

/** Starts loading keys. */
QD_INLINE void fetch_keys(const part *p, tile *t) {
    const qk_attention_args *g = reread(p->args);
    const QD_LDS int64_t *from = places[qd_opaque(qd_wave())][0] + qd_mma_line();
    int64_t at[S_TILES]; // all are read before the first is used, as LDS is far
    QD_UNROLL for (uint32_t s = 0; s < S_TILES; s++)
        at[s] = from[s * QD_MMA_ROWS];
    QD_UNROLL for (uint32_t s = 0; s < S_TILES; s++)
        fetch_key((const char *)g->k.data + at[s], g->head_dim_qk / 8, t->k[s]);
}

/** Returns which key of a tile is number `of` in fragment f of the values that this lane has, in
 *  the order of qd_mma_pair. */
QD_INLINE uint32_t value_key(uint32_t f, uint32_t of) {
    return qd_mma_pair(4 * qd_mma_piece(f, of / 8) + of / 2 % 4) + of % 2 * QD_MMA_PAIR;
}

/** Starts loading values. Those past the end of a head repeat its last ones; nobody stores the
 *  results. */
QD_INLINE void fetch_values(const part *p, tile *t) {
    const qk_attention_args *g = reread(p->args);
    const char *data = g->v.data;
    // Keys whose places are read before one is used, as LDS is far. Of 16 bits memory has enough to
    // do without, and registers are few.
    enum { AT_ONCE = QK_FP8 ? 4 : 1 };
    QD_UNROLL for (uint32_t i = 0; i < RUN_PIECES; i++) {
        const uint32_t d =
            qd_min(RUN * qd_opaque(qd_mma_line()) + i * PIECE, g->head_dim_vo - PIECE);
        QD_UNROLL for (uint32_t n = 0; n < FRAGMENTS * FRAGMENT_KEYS; n += AT_ONCE) {
            const QD_LDS int64_t *from = places[qd_opaque(qd_wave())][1];
            int64_t at[AT_ONCE];
            QD_UNROLL for (uint32_t key = 0; key < AT_ONCE; key++)
                at[key] = from[value_key(n / FRAGMENT_KEYS, n % FRAGMENT_KEYS + key)];
            QD_UNROLL for (uint32_t key = 0; key < AT_ONCE; key++)
                __builtin_memcpy(
                    t->v[n / FRAGMENT_KEYS][n % FRAGMENT_KEYS + key].words[i],
                    __builtin_assume_aligned(data + at[key] + d * KV_BYTES, PIECE_BYTES),
                    PIECE_BYTES);
        }
    }
}

// ---- products

[[clang::loader_uninitialized]] static QD_LDS qd_mma_operand
    queries[D / QD_MMA_K][QD_MMA_OWN][QD_WAVE];

/** Writes the first wave's queries, which are those of all waves, to LDS. */
QD_INLINE void put_queries(const wave *w) {
    QD_UNROLL for (uint32_t c = 0; is_tight && c < D / QD_MMA_K; c++) {
        QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++)
            if (qd_wave() == 0)
                queries[c][i][qd_lane()] = w->q[c][i];
    }
    if (is_tight)
        qd_barrier();
}

/** Waits for queries, so that no tile does, which would wait for the next tile's keys, too. */
QD_INLINE void await_queries(wave *w) {
    QD_UNROLL for (uint32_t c = 0; !is_tight && c < K_STEPS; c++) {
        QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) QD_UNROLL
            for (uint32_t n = 0; n < WORDS; n++)
                w->q[c][i][n] = qd_opaque(w->q[c][i][n]);
    }
}

QD_INLINE void get_queries(const wave *w, uint32_t c, qd_mma_operand q[QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++)
        q[i] = is_tight ? queries[c][i][qd_lane()] : w->q[c][i];
}

QD_INLINE uint32_t widen_keys(kv_piece x, uint32_t word) {
#if QK_FP8
    return qd_widen2(QD_FP8_USUAL, QK_F16, x[word / 2], word % 2 * 2, x[word / 2],
                     word % 2 * 2 + 1);
#else
    return x[word];
#endif
}

/** Clears the pieces past the end of a head, which are zeros in q too: they repeat a piece that may
 *  hold an infinity. */
QD_INLINE void clear_past_end(const part *p, tile *t) {
    const uint32_t pieces = reread(p->args)->head_dim_qk / 8;
    if (pieces == D / 8)
        return;
    QD_UNROLL for (uint32_t s = 0; s < S_TILES; s++) {
        QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) QD_UNROLL
            for (uint32_t i = 0; i < WORDS / 4; i++)
                t->k[s][c][i] = qd_mma_piece(c, i) < pieces ? t->k[s][c][i] : (kv_piece)0;
    }
}

QD_INLINE void multiply_keys(const wave *w, const tile *t, qd_mma_acc s[S_TILES]) {
    QD_UNROLL for (uint32_t i = 0; i < S_TILES; i++) {
        s[i] = 0;
        QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) {
            qd_mma_operand keys, q[QD_MMA_OWN];
            get_queries(w, c, q);
            QD_UNROLL for (uint32_t n = 0; n < WORDS; n++)
                keys[n] = widen_keys(t->k[i][c][n / 4], n % 4);
            s[i] = qd_mma(QK_F16, keys, q, s[i]);
            pin();
        }
    }
}

/** Returns element e of two keys' runs. */
QD_INLINE uint32_t pair_of(const run *a, const run *b, uint32_t e) {
    const uint32_t i = e / PIECE, at = e % PIECE;
#if QK_FP8
    return qd_widen2(QD_FP8_USUAL, QK_F16, a->words[i][at / 4], at % 4, b->words[i][at / 4],
                     at % 4);
#else
    return qd_halves(a->words[i][at / 2], b->words[i][at / 2], at % 2);
#endif
}

QD_INLINE void multiply_values(wave *w, const tile *t,
                               const qd_mma_operand p[FRAGMENTS][QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
            qd_mma_operand values;
            QD_UNROLL for (uint32_t i = 0; i < WORDS; i++)
                values[i] = pair_of(&t->v[f][2 * i], &t->v[f][2 * i + 1], n);
            w->o[n] = qd_mma(QK_F16, values, p[f], w->o[n]);
            pin();
        }
    }
}

/** Adds a tile, whose keys and values are on their way, and asks for the one at `next`. */
QD_INLINE void take_tile(const part *p, wave *w, loader *l, tile *t, uint32_t begin,
                         uint32_t next) {
    qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
    qd_mma_acc s[S_TILES];
    clear_past_end(p, t);
    multiply_keys(w, t, s);
    if (!is_tight) {
        put_places(p, l, next);
        ask_pages(l, next + STRIDE_KEYS);
        fetch_keys(p, t);
    }
    if (p->transforms)
        transform_all(p, w, begin, s);
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, s);
    weigh(w, s, p->transforms, weights);
    if (is_tight)
        fetch_values(p, t);
    multiply_values(w, t, weights);
    if (!is_tight)
        fetch_values(p, t);
}

// ---- merging the waves' results

/** Room for the waves' results: 128 columns of 8 rows, or half of the columns of 16. Of 4 rows it
 *  holds two chunks', so that the waves need not meet before they write the next chunk's. */
enum { ROOM_ROWS = 8, STRIDE = D + 4 };
[[clang::loader_uninitialized]] static QD_LDS float tops[2][WAVES][FEW], sums[2][WAVES][FEW],
    room[WAVES * ROOM_ROWS * STRIDE] __attribute__((aligned(16)));

/** How a chunk's results go through LDS. */
typedef struct passage {
    uint32_t buffer; // 0 or 1
    uint32_t rows;   // that there is room for
    uint32_t runs;   // of RUN columns of a lane: as many at once
    uint32_t stride; // floats of a row
} passage;

QD_INLINE passage make_passage(uint32_t rows, uint32_t buffer) {
    const bool is_half = rows > ROOM_ROWS;
    return (passage){.buffer = buffer,
                     .rows = is_half                ? FEW
                             : rows > ROOM_ROWS / 2 ? ROOM_ROWS
                                                    : ROOM_ROWS / 2,
                     .runs = is_half ? RUN / 2 : RUN,
                     .stride = is_half ? STRIDE / 2 : STRIDE};
}
QD_INLINE bool has_two_buffers(const passage *x) {
    return x->rows <= ROOM_ROWS / 2;
}
QD_INLINE QD_LDS float *room_at(const passage *x, uint32_t wave, uint32_t row) {
    const uint32_t first = has_two_buffers(x) ? x->buffer * WAVES : 0;
    return room + ((first + wave) * x->rows + row) * x->stride;
}

/** The largest of a row's maxima over the waves, and the sum of the row's weights relative to
 *  it; by what each wave's results are scaled. */
typedef struct total {
    float top, sum, factors[WAVES];
} total;

QD_INLINE total add_up(uint32_t buffer, uint32_t row) {
    total t = {.top = tops[buffer][0][row]};
    QD_UNROLL for (uint32_t i = 1; i < WAVES; i++)
        t.top = __builtin_fmaxf(t.top, tops[buffer][i][row]);
    const float base = __builtin_fmaxf(t.top, least);
    QD_UNROLL for (uint32_t i = 0; i < WAVES; i++) {
        t.factors[i] = qd_exp2(tops[buffer][i][row] - base);
        t.sum += sums[buffer][i][row] * t.factors[i];
    }
    return t;
}

QD_INLINE int64_t partial_at(const qk_attention_args *g, const part *p, uint32_t row) {
    return qk_attention_partial(g, &p->request, p->chunk_begin, row, p->kv_head);
}

/** Returns the factor for the row's columns. The lane that `speaks` stores its log-sum-exp. */
QD_INLINE float finish(const part *p, uint32_t row, const total *t, bool speaks) {
    const qk_attention_args *g = reread(p->args);
    if (p->request.partial_begin < 0) {
        const row_place place = find_row(g, &p->request, p->index, p->kv_head, row);
        const row_end end = finish_row(g, &place, t->top, t->sum);
        if (speaks)
            store_lse(g, &place, end.lse);
        return end.factor;
    }
    if (speaks)
        g->partial_lse[partial_at(g, p, row)] = t->top + qd_log2(t->sum);
    return t->sum > 0 ? 1 / t->sum : 0;
}

/** Writes what is known of the wave's rows to LDS. */
QD_INLINE void put_rows(const wave *w, const passage *x) {
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const float sum = qd_mma_sum(w->rows[i].sum);
        if (qd_mma_part() == 0 && qd_mma_column(i) < FEW) {
            tops[x->buffer][qd_wave()][qd_mma_column(i)] = w->rows[i].top;
            sums[x->buffer][qd_wave()][qd_mma_column(i)] = sum;
        }
    }
}

/** Writes tiles `first` to `end` - 1 of the wave's o, which are constants, to LDS. */
QD_INLINE void put_tiles(const wave *w, const passage *x, uint32_t first, uint32_t end) {
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        const uint32_t row = qd_opaque(qd_mma_column(qd_mma_own(e))),
                       d = qd_mma_row(qd_opaque(qd_mma_part()), e);
        QD_LDS float *const to = room_at(x, qd_wave(), row) + d * (end - first);
        if (row < x->rows) QD_UNROLL
            for (uint32_t n = first; n < end; n++)
                to[n - first] = w->o[n][e];
    }
}

/** Writes the wave's o to LDS: all columns, or half of each lane's run from `first` on. */
QD_INLINE void put_columns(const wave *w, const passage *x, uint32_t first) {
    if (x->runs == RUN)
        put_tiles(w, x, 0, RUN);
    else if (first == 0)
        put_tiles(w, x, 0, RUN / 2);
    else
        put_tiles(w, x, RUN / 2, RUN);
}

/** Stores the sums of all waves' columns that are in LDS. */
QD_INLINE void store_columns(const part *p, const passage *x, uint32_t first) {
    const qk_attention_args *g = reread(p->args);
    const uint32_t width = LINES * x->runs;
    for (uint32_t i = qd_opaque(qd_thread()); i < p->row_end * width; i += THREADS) {
        const uint32_t row = i / width, column = i % width;
        const uint32_t d = RUN * (column / x->runs) + first + column % x->runs;
        const total t = add_up(x->buffer, row);
        const float factor = finish(p, row, &t, first == 0 && column == 0);
        float sum = 0;
        QD_UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
            sum += room_at(x, wave, row)[column] * t.factors[wave];
        sum *= factor;
        if (d >= g->head_dim_vo)
            continue;
        if (p->request.partial_begin < 0) {
            const row_place place = find_row(g, &p->request, p->index, p->kv_head, row);
            store_o(g, o_offset(g, &place) + d, sum);
        } else {
            g->partial_o[partial_at(g, p, row) * g->head_dim_vo + d] = sum;
        }
    }
}

/** Adds up the waves' results of chunk number `chunk` of this workgroup. */
QD_INLINE void store(const part *p, const wave *w, uint32_t chunk) {
    const passage x = make_passage(p->row_end, chunk % 2);
    put_rows(w, &x);
    for (uint32_t first = 0; first < RUN; first += x.runs) {
        put_columns(w, &x, first);
        qd_barrier();
        store_columns(p, &x, first);
        if (!has_two_buffers(&x))
            qd_barrier(); // all have read before the next results are written
    }
}

// ---- a chunk

/** Returns the wave's first tile that any row sees. */
QD_INLINE uint32_t first_tile(const part *p, const wave *w) {
    const uint32_t begin = p->chunk_begin + qd_uniform(qd_wave()) * TILE;
    const uint32_t past = w->any_first > begin + TILE - 1 ? w->any_first - begin - TILE + 1 : 0;
    return begin + (past + STRIDE_KEYS - 1) / STRIDE_KEYS * STRIDE_KEYS;
}

/** Starts loading the tile at `begin`, whose pages are known, and the pages of the next. */
QD_INLINE void begin_tile(const part *p, loader *l, tile *t, uint32_t begin) {
    put_places(p, l, begin);
    ask_pages(l, begin + STRIDE_KEYS);
    fetch_keys(p, t);
    if (!is_tight)
        fetch_values(p, t);
}

/** Starts the rows of a chunk. Their scales are loaded once for all chunks: a wait for them would
 *  be one for the keys of the next chunk, too. */
QD_INLINE void start_rows(const part *p, wave *w) {
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        row *r = &w->rows[i];
        r->top = -__builtin_inff();
        r->sum = 0;
        r->end = r->exists ? end_key(p, qd_mma_column(i)) : 0;
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w->o[n] = 0;
}

/** What a wave carries from chunk to chunk of a work item. */
typedef struct walk {
    wave w; // its queries
    tile t;
    loader l;
    uint32_t ahead; // the tile in t, if it is on its way
} walk;

constexpr uint32_t nothing = UINT32_MAX; // is ahead

/** Adds up chunk number `chunk` of the workgroup's. Queries are loaded after the first pages, for
 *  which keys wait. */
QD_INLINE void take_chunk(const part *p, walk *x, uint32_t chunk) {
    find_keys(p, &x->w, 0);
    uint32_t tile = first_tile(p, &x->w);
    const bool begins = tile < x->w.any_end && tile != x->ahead;
    if (chunk == 0) {
        if (begins)
            ask_pages(&x->l, tile);
        QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
            x->w.rows[i] = make_row(p, qd_mma_column(i));
            load_query(p, &x->w, i);
        }
        put_queries(&x->w);
        await_queries(&x->w);
    }
    start_rows(p, &x->w);
    if (begins) {
        if (chunk > 0)
            ask_pages(&x->l, tile);
        if (!is_tight) {
            begin_tile(p, &x->l, &x->t, tile);
            x->ahead = tile;
        }
    }
    for (; tile < x->w.any_end; tile += STRIDE_KEYS) {
        if (is_tight)
            begin_tile(p, &x->l, &x->t, tile);
        take_tile(p, &x->w, &x->l, &x->t, tile, tile + STRIDE_KEYS);
        x->ahead = is_tight ? nothing : tile + STRIDE_KEYS;
    }
    store(p, &x->w, chunk);
}

/** Computes one workgroup's share of a work item, each chunk in turn. Requests of so few rows are
 *  one tile: their rows begin at 0. */
QD_INLINE void take_work(const qk_attention_decode_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    part p = make_part(&args->common, work, kv_head);
    const bool flows = !is_tight && (uint32_t)p.request.kv_chunk % STRIDE_KEYS == 0;
    walk x; // its tile begins as whatever is in the registers
    x.l = make_loader(&p);
    x.ahead = nothing;
    uint32_t chunk = 0;
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        x.l.end = flows ? work->kv_end : p.chunk_end;
        x.ahead = flows ? x.ahead : nothing;
        take_chunk(&p, &x, chunk++);
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
    qd_barrier(); // all waves have read what the next work item's chunks write over
}

// ---- the kernel

/** Returns all rows and keys of a request. */
QD_INLINE qk_attention_work whole_work(const qk_attention_args *g, uint32_t request) {
    const qk_attention_request r = qk_attention_get_request(g, request);
    return (qk_attention_work){
        .request = request, .row_end = (uint32_t)r.qo_len * g->group, .kv_end = (uint32_t)r.kv_len};
}

/** Returns how many workgroups have something to do. The arguments are read again, here and below,
 *  as gfx9 has few scalar registers. */
QD_INLINE uint32_t count_parts(const qk_attention_decode_args *args) {
    const qk_attention_args *g = reread(&args->common);
    return (args->is_whole ? qk_attention_num_requests(g) : qk_attention_count(g)) *
           g->num_kv_heads;
}

/** Returns what workgroup `id` does, but for its head of k, *kv_head. */
QD_INLINE qk_attention_work find_work(const qk_attention_decode_args *args, uint32_t id,
                                      uint32_t *kv_head) {
    const qk_attention_args *g = reread(&args->common);
    const uint32_t index = id / g->num_kv_heads;
    *kv_head = id - index * g->num_kv_heads;
    return uniform_work(args->is_whole ? whole_work(g, index) : qk_attention_find(g, index));
}

static void code_end(void);

/** Merges a request's chunks, which workgroup `id`, this one, has stored. */
QD_INLINE void merge(const qk_attention_decode_args *args, uint32_t id) {
    uint32_t kv_head;
    const qk_attention_work work = find_work(args, id, &kv_head);
    const qk_attention_args *g = reread(&args->common);
    if (qk_attention_get_request(g, work.request).partial_begin < 0)
        return;
    QD_ASK_FOR_CODE_AGAIN(code_end);
    __gpu_sync_threads(); // all waves' partial results are in memory
    merge_work(g, &work, kv_head, 0, 1);
}

QD_WAVES_PER_EU(QK_MIN_WAVES, QK_MAX_WAVES)
QD_KERNEL(THREADS) qk_attention_decode(qk_attention_decode_args args) {
    QD_ASK_FOR_CODE(code_end);
    for (uint32_t id = qd_block(); id < count_parts(&args); id += __gpu_num_blocks(0)) {
        uint32_t kv_head;
        const qk_attention_work work = find_work(&args, id, &kv_head);
        if (work.row_end == 0 || !qk_attention_takes(reread(&args.common), work.request))
            continue;
        take_work(&args, &work, kv_head);
        if (args.merges)
            merge(&args, id);
    }
}

QD_CODE_END(code_end)
