// SPDX-License-Identifier: Apache-2.0
// Attention of a few queries over many keys on matrix cores: a decoding step, whose speed memory
// limits.
//
// Needs     as attention_tile_gpu.c; head dims up to 128; requests of up to FEW rows; FP8 of the
//           target's usual kind
// Tile      all rows of a request; each wave takes every WAVES-th tile of TILE keys of a chunk, and
//           the waves' results are merged in the waves' order, so that bits do not depend on which
//           wave was first
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer
// LDS       places of a wave's values; at the end of a chunk the waves' results, some columns at
//           once
// Registers a tile of k and of v, as the matrix core takes them: keys are used once, so LDS would
// save no reading. A lane
//           loads of each key that is its part's the elements of v that lie side by side, RUN d +
//           n, and column d of the matrix core's tile n is that element: so v is transposed in the
//           lane's own registers
// Edges     as attention_tile_gpu.c
// Schedule  ask for k and v of a tile; scores, maxima, weights; o. Other waves compute meanwhile
#include "attention_scores_gpu.h"
#include "halves.h"

enum { FEW = QK_ATTENTION_FEW_ROWS, LINES = QD_MMA_ROWS, RUN = D / LINES };
enum { PIECE = RUN < 8 ? RUN : 8, RUN_PIECES = RUN / PIECE }; // of v: elements that are loaded at
                                                              // once
enum { PIECE_BYTES = PIECE * KV_BYTES, PIECE_WORDS = PIECE_BYTES < 4 ? 1 : PIECE_BYTES / 4 };
enum { WORDS = sizeof(qd_mma_operand) / 4, FRAGMENT_KEYS = 2 * WORDS }; // those of a lane, of
                                                                        // QD_MMA_K
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
    kv_piece k[S_TILES][D / QD_MMA_K][WORDS / 4];
    run v[FRAGMENTS][FRAGMENT_KEYS];
} tile;

/** Keeps a conversion from beginning before the product of the last one, if registers are few. */
QD_INLINE void pin(void) {
    if (is_tight && QK_FP8)
        qd_pin();
}

// ---- from memory

/** Where a wave's values lie, in bytes from head 0 of page 0. */
[[clang::loader_uninitialized]] static QD_LDS int64_t places[WAVES][TILE];

/** Returns where a key's row lies; keys past the end repeat the last one. */
QD_INLINE int64_t place_of_key(const part *p, const qk_attention_args *g,
                               const qk_attention_rows *rows, uint32_t key) {
    const int64_t row =
        qk_attention_key(g, rows, &p->request, p->index, qd_min(key, p->chunk_end - 1));
    return (p->kv_head * rows->head + row) * KV_BYTES;
}

/** Starts loading keys. Pieces past the end of a head repeat its last piece. */
QD_INLINE void fetch_keys(const part *p, uint32_t begin, tile *t) {
    const qk_attention_args *g = reread(p->args);
    const uint32_t last = g->head_dim_qk / 8 - 1;
    QD_UNROLL for (uint32_t s = 0; s < S_TILES; s++) {
        const uint32_t key = begin + s * QD_MMA_ROWS + qd_mma_line();
        const char *k = (const char *)g->k.data + place_of_key(p, g, &g->k, key);
        QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) QD_UNROLL
            for (uint32_t i = 0; i < WORDS / 4; i++)
                t->k[s][c][i] = ((const kv_piece *)k)[qd_min(qd_mma_piece(c, i), last)];
    }
}

/** Returns which key of a tile is number `of` in fragment f of the values that this lane has, in
 *  the order of qd_mma_pair. */
QD_INLINE uint32_t value_key(uint32_t f, uint32_t of) {
    return qd_mma_pair(4 * qd_mma_piece(f, of / 8) + of / 2 % 4) + of % 2 * QD_MMA_PAIR;
}

/** Starts loading values. Values past the end of a head repeat its last ones; nobody stores the
 *  results. */
QD_INLINE run load_run(const char *v, uint32_t head_dim) {
    run r;
    QD_UNROLL for (uint32_t i = 0; i < RUN_PIECES; i++) {
        const uint32_t d = qd_min(RUN * qd_mma_line() + i * PIECE, head_dim - PIECE);
        __builtin_memcpy(r.words[i], __builtin_assume_aligned(v + d * KV_BYTES, PIECE_BYTES),
                         PIECE_BYTES);
    }
    return r;
}

QD_INLINE void fetch_values(const part *p, uint32_t begin, tile *t) {
    const qk_attention_args *g = reread(p->args);
    QD_LDS int64_t *mine = places[qd_wave()];
    if (qd_lane() < TILE)
        mine[qd_lane()] = place_of_key(p, g, &g->v, begin + qd_lane());
    qd_wave_barrier();
    QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) QD_UNROLL
        for (uint32_t i = 0; i < FRAGMENT_KEYS; i++)
            t->v[f][i] = load_run((const char *)g->v.data + mine[value_key(f, i)], g->head_dim_vo);
    qd_wave_barrier(); // all lanes have read these places before the next tile's are written
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

QD_INLINE void take_tile(const part *p, wave *w, uint32_t begin) {
    qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
    qd_mma_acc s[S_TILES];
    tile t;
    fetch_keys(p, begin, &t);
    if (!is_tight)
        fetch_values(p, begin, &t);
    clear_past_end(p, &t);
    multiply_keys(w, &t, s);
    if (p->transforms)
        transform_all(p, w, begin, s);
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, s);
    weigh(w, s, p->transforms, weights);
    if (is_tight)
        fetch_values(p, begin, &t);
    multiply_values(w, &t, weights);
}

// ---- merging the waves' results

enum { WIDTH = 4096 / (WAVES * FEW) }; // columns that are merged at once: 16 KiB of all waves
enum { STEP = WIDTH / LINES < RUN ? WIDTH / LINES : RUN, STRIDE = LINES * STEP + 4 };
[[clang::loader_uninitialized]] static QD_LDS float tops[WAVES][FEW], sums[WAVES][FEW],
    factors[FEW], columns[WAVES][FEW][STRIDE] __attribute__((aligned(16)));

/** The largest of a row's maxima over the waves, and the sum of the row's weights relative to
 *  it. */
typedef struct total {
    float top, sum;
} total;

QD_INLINE total add_up(uint32_t row) {
    total t = {tops[0][row], 0};
    QD_UNROLL for (uint32_t i = 1; i < WAVES; i++)
        t.top = __builtin_fmaxf(t.top, tops[i][row]);
    const float base = __builtin_fmaxf(t.top, least);
    QD_UNROLL for (uint32_t i = 0; i < WAVES; i++)
        t.sum += sums[i][row] * qd_exp2(tops[i][row] - base);
    return t;
}

QD_INLINE int64_t partial_at(const qk_attention_args *g, const part *p, uint32_t row) {
    return qk_attention_partial(g, &p->request, p->chunk_begin, row, p->kv_head);
}

/** Returns the factor for the row's columns; stores the row's log-sum-exp. */
QD_INLINE float finish(const part *p, const row *r, const total *t) {
    const qk_attention_args *g = reread(p->args);
    if (p->request.partial_begin < 0) {
        const row_place place = place_of(p, r);
        const row_end end = finish_row(g, &place, t->top, t->sum);
        store_lse(g, &place, end.lse);
        return end.factor;
    }
    const uint32_t row = r->query * g->group + r->head - p->kv_head * g->group;
    g->partial_lse[partial_at(g, p, row)] = t->top + qd_log2(t->sum);
    return t->sum > 0 ? 1 / t->sum : 0;
}

/** Scales each wave's o to its row's common maximum. */
QD_INLINE void level(const part *p, wave *w) {
    float own[QD_MMA_OWN];
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const float sum = qd_mma_sum(w->rows[i].sum);
        if (qd_mma_part() == 0 && qd_mma_column(i) < FEW) {
            tops[qd_wave()][qd_mma_column(i)] = w->rows[i].top;
            sums[qd_wave()][qd_mma_column(i)] = sum;
        }
    }
    qd_barrier();
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const uint32_t row = qd_mma_column(i) % FEW;
        const total t = add_up(row);
        own[i] = qd_exp2(w->rows[i].top - __builtin_fmaxf(t.top, least));
        if (qd_wave() == 0 && qd_mma_part() == 0 && w->rows[i].exists)
            factors[row] = finish(p, &w->rows[i], &t);
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w->o[n] *= qd_mma_spread(own);
}

/** Writes tiles first .. first + STEP - 1 of o to LDS. */
QD_INLINE void put_columns(const wave *w, uint32_t first) {
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        const uint32_t row = qd_mma_column(qd_mma_own(e)), d = qd_mma_row(qd_mma_part(), e);
        if (row < FEW) QD_UNROLL
            for (uint32_t n = 0; n < STEP; n++)
                columns[qd_wave()][row][d * STEP + n] = w->o[first + n][e];
    }
}

/** Stores the sums of all waves' columns. */
QD_INLINE void store_columns(const part *p, uint32_t first) {
    const qk_attention_args *g = reread(p->args);
    for (uint32_t i = qd_thread(); i < p->row_end * LINES * STEP; i += THREADS) {
        const uint32_t row = i / (LINES * STEP), column = i % (LINES * STEP);
        const uint32_t d = RUN * (column / STEP) + first + column % STEP;
        float sum = 0;
        QD_UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
            sum += columns[wave][row][column];
        sum *= factors[row];
        const row_place place = find_row(g, &p->request, p->index, p->kv_head, row);
        if (d >= g->head_dim_vo)
            continue;
        if (p->request.partial_begin < 0)
            store_o(g, o_offset(g, &place) + d, sum);
        else
            g->partial_o[partial_at(g, p, row) * g->head_dim_vo + d] = sum;
    }
}

QD_INLINE void store(const part *p, wave *w) {
    level(p, w);
    QD_UNROLL for (uint32_t first = 0; first < RUN; first += STEP) {
        put_columns(w, first);
        qd_barrier();
        store_columns(p, first);
        qd_barrier();
    }
}

// ---- the kernel

QD_INLINE void take_chunk(const part *p) {
    wave w;
    begin_rows(p, &w, 0);
    put_queries(&w);
    for (uint32_t tile = p->chunk_begin + qd_uniform(qd_wave()) * TILE; tile < w.any_end;
         tile += WAVES * TILE) {
        if (tile + TILE > w.any_first)
            take_tile(p, &w, tile);
    }
    store(p, &w);
}

/** Computes one workgroup's share of a work item, each chunk in turn. Requests of so few rows are
 *  one tile: their rows begin at 0. */
QD_INLINE void take_work(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    part p = make_part(args, work, kv_head);
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        take_chunk(&p);
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

QD_KERNEL(THREADS) qk_attention_decode(qk_attention_args args) {
    const uint32_t heads = args.num_kv_heads, parts = qk_attention_count(&args) * heads;
    for (uint32_t id = qd_block(); id < parts; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(reread(&args), id / heads));
        if (qk_attention_takes(reread(&args), work.request))
            take_work(&args, &work, id % heads);
    }
}
