// SPDX-License-Identifier: Apache-2.0
// Latent attention on the matrix cores of CDNA and RDNA: all heads share one key of two parts,
// whose first part is the value, so that a tile of keys is loaded once for scores and for values.
//
// Needs     wave matrix instructions of 16-bit kinds; caches of q's kind, or with QK_FP8 of any FP8
//           kind; dims that are multiples of 8, at most 512 and 64; rows that begin at multiples of
//           eight elements, 16 bytes or of FP8 8
// Tile      32 rows (queries times heads) by 32 keys. Four waves, the slices, share 16 or 32 rows
// Launch    256 threads; as many workgroups as there are work items, or fewer
// LDS       a tile of keys, ckv from piece 0 on and kpe from piece 64 on: 36 KiB; the slices' parts
//           of the scores: 16 KiB. 16-byte piece p of key r stands at p ^ qd_mma_turn(r), so that
//           lanes that read at once touch all banks
// Registers a quarter of the rows' q and of o; with QK_AHEAD the next tile of keys, on its way.
// With
//           QK_TIGHT values are read when the last ones have been used
// Edges     keys past the end repeat the last one and are hidden; elements past a part's end are
//           zeros; a tile that none of the rows sees is skipped
// Schedule  put keys into LDS, ask for the next, meet; each slice multiplies every fourth step of q
//           and k and tells the others, meet; all add up the same scores in the same order, weigh
//           them alike, and multiply their own columns of o; meet. A row's bits depend on no other
//           row
// Values    a lane reads of each key that is its part's the RUN elements side by side of which its
//           line is column d, and uses element RUN d + n for tile n of o: the transposition is a
//           permutation of halves in its registers
#include "../attention/attention_scores_gpu.h"
#include "code.h"
#include "halves.h"
#include "mla_abi.h"

constexpr bool is_tight = QK_TIGHT, is_ahead = QK_AHEAD;

enum { DIM_PIECES = 64, ROW_PIECES = 72, K_ROW = 16 * ROW_PIECES };
enum { LOADERS = THREADS / TILE, LOADS = ROW_PIECES / LOADERS, PE = LOADS - 1 };
static_assert(LOADERS == 8 && DIM_PIECES / LOADERS == PE, "the last load of a key is kpe's");
enum { STEPS = ROW_PIECES * 8 / QD_MMA_K / SLICES }; // of a slice, each of LOADERS pieces of a row
static_assert(LOADERS * 8 == SLICES * QD_MMA_K, "step i of all slices is load i");
enum { RUN = COLUMNS / QD_MMA_ROWS, PART = 4 }; // elements that a lane takes of a key; at a time
static_assert(RUN == O_TILES, "column d of tile n is element RUN d + n");
enum { WORDS = sizeof(qd_mma_operand) / 4, FRAGMENT_KEYS = 2 * WORDS };

[[clang::loader_uninitialized]] static QD_LDS uint8_t k_tile[TILE * K_ROW]
    __attribute__((aligned(128)));
/** The slices' parts of scores, four of a lane's elements at a time. */
[[clang::loader_uninitialized]] static QD_LDS qd_f32x4
    parts[WAVES][S_TILES][QD_MMA_ACC / 4][QD_WAVE];

/** Keeps what follows from beginning early, if registers are few. */
QD_INLINE void pin(void) {
    if (is_tight)
        qd_pin();
}

QD_INLINE const qk_mla_args *again(const part *p) {
    return qd_reread(p->args);
}

/** Returns where piece `piece` of a key stands. */
QD_INLINE QD_LDS uint8_t *k_at(uint32_t key, uint32_t piece) {
    return k_tile + key * K_ROW + piece / 8 * 128 + (piece % 8 * 16 ^ qd_mma_turn(key) % 8 * 16);
}

QD_INLINE uint32_t my_slice(void) {
    return qd_wave() % SLICES;
}

// ---- keys from memory to LDS

/** What a thread carries to LDS: of one key every eighth piece. */
typedef struct carrier {
    uint32_t key, piece;    // the key of the tile, the first of the pieces
    kv_piece moving[LOADS]; // the last is kpe's
} carrier;

QD_INLINE kv_piece load_piece(const qk_attention_rows *rows, int64_t page, uint32_t slot,
                              uint32_t piece, uint32_t dim) {
    const int64_t at = page * rows->block + slot * rows->token;
    const kv_piece *row = (const kv_piece *)((const char *)rows->data + at * KV_BYTES);
    return row[qd_min(piece, dim / 8 - 1)]; // past the end the last piece again
}

/** Starts loading a tile of keys from `begin` on. Keys past the end repeat the last key. */
QD_INLINE void fetch(const part *p, carrier *c, uint32_t begin) {
    const qk_mla_args *a = again(p);
    const qk_attention_args *g = &a->common;
    const uint32_t key = qd_min(begin + c->key, p->chunk_end - 1);
    const uint32_t rope_dim = a->tail.dim, dim = g->head_dim_qk - rope_dim;
    const uint32_t place = key / g->page_size, slot = key - place * g->page_size;
    const int64_t page = g->kv_indices[p->request.kv_begin + (int32_t)place];
    QD_UNROLL for (uint32_t i = 0; i < PE; i++)
        c->moving[i] = load_piece(&g->k, page, slot, i * LOADERS + c->piece, dim);
    c->moving[PE] = load_piece(&a->tail.k, page, slot, c->piece, rope_dim);
}

QD_INLINE qd_u32x4 widen(int kind, kv_piece x) {
#if QK_FP8
    return qd_widen8(kind, QK_F16, x);
#else
    (void)kind;
    return x;
#endif
}

/** Returns whether load i of a key is within its part. */
QD_INLINE bool is_within(const qk_mla_args *a, const carrier *c, uint32_t i) {
    const uint32_t dim = a->common.head_dim_qk - a->tail.dim;
    return i == PE ? c->piece * 8 < a->tail.dim : (i * LOADERS + c->piece) * 8 < dim;
}

QD_INLINE void land_as(const part *p, const carrier *c, int kind) {
    const qk_mla_args *a = again(p);
    QD_UNROLL for (uint32_t i = 0; i < LOADS; i++)
        if (is_within(a, c, i))
            *(QD_LDS qd_u32x4 *)k_at(c->key, i * LOADERS + c->piece) = widen(kind, c->moving[i]);
}

/** Clears the pieces past the end of the parts, which are zeros in q too. No key is written over
 *  them. */
QD_INLINE void clear_keys(void) {
    for (uint32_t at = qd_thread() * 16; at < TILE * K_ROW; at += THREADS * 16)
        *(QD_LDS qd_u32x4 *)(k_tile + at) = 0;
    qd_barrier();
}

/** Writes to LDS what fetch() loaded. Each kind of FP8 has its own code, and all waves take the
 *  same code; the FNUZ kinds, where they are not the target's own, share code. */
QD_INLINE void land(const part *p, const carrier *c) {
    if (!QK_FP8 || p->kind == QD_FP8_USUAL)
        land_as(p, c, QD_FP8_USUAL);
    else if (p->kind == QD_E4M3FN)
        land_as(p, c, QD_E4M3FN);
    else if (p->kind == QD_E5M2)
        land_as(p, c, QD_E5M2);
    else
        land_as(p, c, p->kind == QD_E4M3FNUZ ? QD_E4M3FNUZ : QD_E5M2FNUZ);
}

// ---- queries

/** Returns piece i of a row of q, whose parts lie at `nope` and `pe`; past a part's end zeros. */
QD_INLINE qd_u32x4 query_at(const qk_mla_args *a, const char *nope, const char *pe, uint32_t i) {
    const uint32_t rope_dim = a->tail.dim, dim = a->common.head_dim_qk - rope_dim;
    const uint32_t at = i < DIM_PIECES ? i : i - DIM_PIECES;
    const bool is_there = at * 8 < (i < DIM_PIECES ? dim : rope_dim);
    return is_there ? ((const qd_u32x4 *)(i < DIM_PIECES ? nope : pe))[at] : (qd_u32x4)0;
}

/** Loads a slice's steps of the row of q that the lane owns. */
QD_INLINE void load_queries(const part *p, const row *r, qd_mma_operand q[STEPS]) {
    const qk_mla_args *a = again(p);
    const row_place place = place_of(p, r);
    const qk_attention_rows *tail = &a->tail.q;
    const char *nope = (const char *)a->common.q.data + q_offset(&a->common, &place) * 2;
    const char *pe =
        (const char *)tail->data + (place.token * tail->token + place.head * tail->head) * 2;
    QD_UNROLL for (uint32_t i = 0; i < STEPS; i++) {
#define PIECE(n) (r->exists ? query_at(a, nope, pe, n) : (qd_u32x4)0)
        q[i] = QD_MMA_READ(i * SLICES + my_slice(), PIECE);
#undef PIECE
    }
}

// ---- scores

/** Multiplies the slice's steps of q and k, and tells the result to the other slices. */
QD_INLINE void multiply_keys(const qd_mma_operand q[STEPS]) {
    const uint32_t line = qd_opaque(qd_mma_line());
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const uint32_t key = t * QD_MMA_ROWS + line;
        qd_mma_acc s = 0;
        QD_UNROLL for (uint32_t i = 0; i < STEPS; i++) {
#define PIECE(n) (*(QD_LDS qd_u32x4 *)(k_at(key, (n) - i * LOADERS) + i * 128))
            s = qd_mma(QK_F16, QD_MMA_READ(i * SLICES + my_slice(), PIECE), &q[i], s);
#undef PIECE
        }
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4)
            parts[qd_wave()][t][e / 4][qd_lane()] = (qd_f32x4){s[e], s[e + 1], s[e + 2], s[e + 3]};
    }
}

/** Adds up the slices' parts, in order. */
QD_INLINE void add_parts(qd_mma_acc s[S_TILES]) {
    const uint32_t first = qd_wave() / SLICES * SLICES, lane = qd_lane();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4) {
            qd_f32x4 sum = parts[first][t][e / 4][lane];
            QD_UNROLL for (uint32_t i = 1; i < SLICES; i++)
                sum += parts[first + i][t][e / 4][lane];
            QD_UNROLL for (uint32_t i = 0; i < 4; i++)
                s[t][e + i] = sum[i];
        }
    }
}

// ---- values

/** Returns which key of a tile is number `of` in fragment f of the values that this lane has, in
 *  the order of qd_mma_pair. */
QD_INLINE uint32_t value_key(uint32_t f, uint32_t of) {
    return qd_mma_pair(4 * qd_mma_piece(f, of / 8) + of / 2 % 4) + of % 2 * QD_MMA_PAIR;
}

/** Returns PART elements of a key from element d on. */
QD_INLINE qd_u32x2 read_part(uint32_t key, uint32_t d) {
    return *(const QD_LDS qd_u32x2 *)(k_at(key, d / 8) + d % 8 * 2);
}

QD_INLINE void multiply_values(wave *w, const qd_mma_operand p[FRAGMENTS][QD_MMA_OWN]) {
    const uint32_t begin = my_column() + RUN * qd_opaque(qd_mma_line());
    QD_UNROLL for (uint32_t i = 0; i < FRAGMENTS * (RUN / PART); i++) {
        const uint32_t f = i / (RUN / PART), first = i % (RUN / PART) * PART;
        qd_u32x2 v[FRAGMENT_KEYS];
        pin(); // these values are not read before the last ones are used
        QD_UNROLL for (uint32_t key = 0; key < FRAGMENT_KEYS; key++)
            v[key] = read_part(value_key(f, key), begin + first);
        QD_UNROLL for (uint32_t n = 0; n < PART; n++) {
            qd_mma_operand values;
            QD_UNROLL for (uint32_t word = 0; word < WORDS; word++)
                values[word] = qd_halves(v[2 * word][n / 2], v[2 * word + 1][n / 2], n % 2);
            w->o[first + n] = qd_mma(QK_F16, values, p[f], w->o[first + n]);
            pin();
        }
    }
}

// ---- a row's end

/** Stores a run of a row's results, RUN elements. */
QD_INLINE void store_run(int dtype, char *to, const float v[RUN]) {
    qd_f32x8 all = 0;
    QD_UNROLL for (uint32_t n = 0; n < RUN; n++)
        all[n] = v[n];
    if (RUN == 8) {
        qd_store8(dtype, to, all);
    } else if (dtype == QD_F32) {
        *(qd_f32x4 *)to = all.lo;
    } else {
        const qd_u32x4 halves = qd_to_16(dtype, all);
        *(qd_u32x2 *)to = halves.lo;
    }
}

/** Stores the slice's columns of a row times `factor` at o. */
QD_INLINE void store_row(const part *p, const wave *w, int dtype, char *o, float factor) {
    const uint32_t dim = again(p)->common.head_dim_vo, part = qd_opaque(qd_mma_part());
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        const uint32_t d = my_column() + RUN * qd_mma_row(part, e);
        float v[RUN];
        QD_UNROLL for (uint32_t n = 0; n < RUN; n++)
            v[n] = w->o[n][e] * factor;
        if (w->rows[0].exists && d < dim)
            store_run(dtype, o + d * qd_element_bytes(dtype), v);
    }
}

/** Returns whether this lane stores the numbers of which a row has one. */
QD_INLINE bool speaks_for(const row *r) {
    return r->exists && my_slice() == 0 && qd_mma_part() == 0;
}

/** Stores the results of a chunk that will be merged. */
QD_INLINE void store_partial(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[0];
    const int64_t at =
        qk_attention_partial(g, &p->request, p->chunk_begin, r->query * g->group + r->head, 0);
    store_row(p, w, QD_F32, (char *)(g->partial_o + at * g->head_dim_vo), sum > 0 ? 1 / sum : 0);
    if (speaks_for(r))
        g->partial_lse[at] = r->top + qd_log2(sum);
}

QD_INLINE void store_result(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[0];
    const row_place place = place_of(p, r);
    const row_end end = finish_row(g, &place, r->top, sum);
    const int64_t at = o_offset(g, &place);
    char *o = g->o;
    if (g->dtype_o == QD_F32)
        store_row(p, w, QD_F32, o + at * 4, end.factor);
    else if (g->dtype_o == QD_F16)
        store_row(p, w, QD_F16, o + at * 2, end.factor);
    else
        store_row(p, w, QD_BF16, o + at * 2, end.factor);
    if (speaks_for(r))
        store_lse(g, &place, end.lse);
}

// ---- the kernel

/** Adds the tile of keys from `tile` on, which is in LDS; all waves come here together. */
QD_INLINE void take_tile(const part *p, wave *w, const qd_mma_operand q[STEPS], uint32_t tile) {
    const bool is_seen = tile < w->any_end && tile + TILE > w->any_first;
    qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
    qd_mma_acc s[S_TILES];
    if (is_seen)
        multiply_keys(q);
    qd_barrier();
    if (!is_seen)
        return;
    add_parts(s);
    if (p->transforms)
        transform_all(p, w, tile, s);
    if (tile < w->all_first || tile + TILE > w->all_end)
        hide(w, tile, s);
    weigh(w, s, p->transforms, weights);
    multiply_values(w, weights);
}

/** Adds the tiles of a chunk's keys that rows row_begin to row_end - 1 see. */
QD_INLINE void take_chunk(const part *p, wave *w, const qd_mma_operand q[STEPS], uint32_t row_begin,
                          uint32_t row_end) {
    const uint32_t end = end_key(p, row_end - 1);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    carrier c = {.key = qd_thread() / LOADERS, .piece = qd_thread() % LOADERS};
    if (is_ahead && tile < end)
        fetch(p, &c, tile);
    for (; tile < end; tile += TILE) {
        if (!is_ahead)
            fetch(p, &c, tile);
        land(p, &c);
        if (is_ahead && tile + TILE < end)
            fetch(p, &c, tile + TILE);
        qd_barrier();
        take_tile(p, w, q, tile);
        qd_barrier(); // all waves must have read this tile before the next is written
    }
}

QD_INLINE void take_rows(const part *p, uint32_t row_begin) {
    const uint32_t mine = row_begin + qd_wave() / SLICES * QD_MMA_COLUMNS;
    qd_mma_operand q[STEPS];
    wave w;
    find_keys(p, &w, mine);
    w.rows[0] = make_row(p, mine + qd_mma_column(0));
    load_queries(p, &w.rows[0], q);
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w.o[n] = 0;
    take_chunk(p, &w, q, row_begin, qd_min(row_begin + ROWS, p->row_end));
    const float sum = qd_mma_sum(w.rows[0].sum);
    if (p->request.partial_begin < 0)
        store_result(p, &w, sum);
    else
        store_partial(p, &w, sum);
}

/** Computes one workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_mla_args *args, const qk_attention_work *work) {
    part p = make_part(&args->common, work, 0);
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS)
            take_rows(&p, row);
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

static void code_end(void);

QD_WAVES_PER_EU(1, 2) // LDS has room for no more on CDNA, nor registers on RDNA
QD_KERNEL(THREADS) qk_mla_tile(qk_mla_args args) {
    QD_ASK_FOR_CODE(code_end);
    const uint32_t count = qk_attention_count(&args.common);
    clear_keys();
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(reread(&args.common), id));
        if (qk_attention_takes(reread(&args.common), work.request))
            take_work(&args, &work);
    }
}

QD_CODE_END(code_end)
