// SPDX-License-Identifier: Apache-2.0
// Moves keys and values of attention's matrix kernel from memory to LDS. FP8 codes stay codes in
// registers until they are written to LDS. They are converted in pairs; a pair of v^T takes its two
// codes from two keys, so that transposing costs nothing more.
#ifndef QK_ATTENTION_KV_GPU_H
#define QK_ATTENTION_KV_GPU_H

#include "attention_tile_gpu.h"
#include "halves.h"

enum { PIECES = D / 8, K_ROW = 2 * D, V_ROW = 2 * TILE };
enum { PAIRS = TILE / 2 * PIECES / THREADS }; // of keys, whose pieces of k and of v a thread moves

[[clang::loader_uninitialized]] static QD_LDS uint8_t k_tile[TILE * K_ROW]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t v_tile[D * V_ROW]
    __attribute__((aligned(128)));

/** Which piece a thread moves to LDS. */
typedef struct mover {
    uint32_t key, piece; // the first key, the piece of its row
    /** The piece's place in a row of k and the keys' place in a row of v, with the first row's
     *  turn. */
    uint32_t k_turn, v_turn;
} mover;

/** k or v of a request's head, if its keys are contiguous in memory. */
typedef struct source {
    const char *begin;
    uint32_t row;    // bytes
    uint32_t offset; // of this thread's piece in a tile
} source;

/** What a thread carries to LDS, and from where. */
typedef struct carrier {
    source k, v;
    bool is_whole;     // k and v are contiguous, and a tile of either is less than 4 GiB
    uint32_t k_pieces; // of a row of k
    mover mover;
    kv_piece moving[2 * PAIRS]; // of k or v, on their way to LDS
} carrier;

// Places in LDS. Rows follow each other, several in a line if they are shorter than one. A line has
// all banks once. The 16-byte pieces of a line change places: the number of a piece in its line is
// xored with its row's turn, which is made so that lanes that are served together touch all banks.
// Lanes that read have neighbouring rows, or rows whose numbers differ in two of their bits 2, 3
// and 4; lanes that write v have rows 8 apart.
enum { LINE = 4 * QK_BANKS, LINE_PIECES = LINE / 16 };
enum {
    K_LINE_ROWS = K_ROW < LINE ? LINE / K_ROW : 1,
    V_LINE_ROWS = V_ROW < LINE ? LINE / V_ROW : 1
};

/** Returns the turn of a key, times 16. */
QD_INLINE uint32_t k_turn_of(uint32_t key) {
    return qd_mma_turn(key / K_LINE_ROWS) % LINE_PIECES * 16;
}
/** Returns the turn of a column of v, times 16. That of a sum is that of its parts, xored, if they
 *  have no bit in common. Columns 64 apart are never served together: one turn takes fewer
 *  registers. */
QD_INLINE uint32_t v_turn_of(uint32_t d) {
    const uint32_t line = d % 64 / V_LINE_ROWS;
    return (qd_mma_turn(line) ^ line / LINE_PIECES) % LINE_PIECES * 16;
}

QD_INLINE QD_LDS uint8_t *k_at(uint32_t key, uint32_t piece) {
    const uint32_t place = key % K_LINE_ROWS * K_ROW + piece % LINE_PIECES * 16;
    return k_tile + key / K_LINE_ROWS * (K_LINE_ROWS * K_ROW) + piece / LINE_PIECES * LINE +
           (place ^ k_turn_of(key));
}
QD_INLINE QD_LDS uint8_t *v_at(uint32_t d, uint32_t byte) {
    const uint32_t place = d % V_LINE_ROWS * V_ROW + byte;
    return v_tile + d / V_LINE_ROWS * (V_LINE_ROWS * V_ROW) + (place ^ v_turn_of(d));
}

/** Returns what this thread moves: a piece of the rows of four keys, an even pair and the next pair
 *  (PAIRS = 1: of two keys). Threads that write at once have eight pieces, of as many keys as fill
 *  16 bytes of v. */
QD_INLINE mover make_mover(void) {
    enum { TOGETHER = 8, TURNS = TILE / 2 / PAIRS };
    const uint32_t pair = qd_thread() / TOGETHER % TURNS * PAIRS;
    const uint32_t piece = qd_thread() / (TOGETHER * TURNS) * TOGETHER + qd_thread() % TOGETHER;
    return (mover){.key = qd_mma_pair(pair),
                   .piece = piece,
                   .k_turn = (qd_mma_pair(pair) % K_LINE_ROWS * K_ROW + piece * 16) ^
                             k_turn_of(qd_mma_pair(pair)),
                   .v_turn = pair * 4 ^ v_turn_of(piece * 8)};
}
QD_INLINE uint32_t key_of(uint32_t i) {
    static_assert(PAIRS == 1 || QD_MMA_PAIR == 1);
    return i / 2 * QD_MMA_NEXT_PAIR + i % 2 * QD_MMA_PAIR;
}

/** Starts loading a tile of k or v, the keys from `begin` on. Keys past the end repeat the last
 *  key, and pieces past the end of a head repeat its last piece. */
QD_INLINE void fetch(const part *p, carrier *c, bool is_v, uint32_t begin) {
    const source *from = is_v ? &c->v : &c->k;
    if (c->is_whole && begin + TILE <= p->chunk_end) {
        const char *tile = from->begin + begin * (int64_t)from->row;
        const uint32_t first = qd_opaque(from->offset);
        QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++)
            c->moving[i] = *(const kv_piece *)(tile + (first + key_of(i) * from->row));
        return;
    }
    const qk_attention_args *g = reread(p->args);
    const qk_attention_rows *rows = is_v ? &g->v : &g->k;
    const int64_t piece = qd_min(c->mover.piece, (is_v ? g->head_dim_vo : g->head_dim_qk) / 8 - 1);
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        const uint32_t key = qd_min(begin + c->mover.key + key_of(i), p->chunk_end - 1);
        const int64_t row = qk_attention_key(g, rows, &p->request, p->index, key);
        c->moving[i] = ((const kv_piece *)((const char *)rows->data +
                                           (p->kv_head * rows->head + row) * KV_BYTES))[piece];
    }
}

/** Returns x. With FP8, whose conversion needs registers, this makes the compiler compute what
 *  follows from x where it is used. */
QD_INLINE uint32_t anew(uint32_t x) {
    return QK_FP8 ? qd_opaque(x) : x;
}

/** Writes this thread's pieces of keys to LDS. */
QD_INLINE void put_keys(const carrier *c, const qd_u32x4 pieces[2 * PAIRS]) {
    enum { ROWS_BYTES = K_LINE_ROWS * K_ROW };
    QD_LDS uint8_t *to = k_tile + anew(c->mover.key) / K_LINE_ROWS * ROWS_BYTES;
    const uint32_t turn = qd_opaque(c->mover.k_turn);
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        const uint32_t key = key_of(i), in_line = key % K_LINE_ROWS * K_ROW ^ k_turn_of(key);
        *(QD_LDS qd_u32x4 *)(to + key / K_LINE_ROWS * ROWS_BYTES + (turn ^ in_line)) = pieces[i];
    }
}

/** Returns eight elements as the matrix core takes them; `kind` is the kind of FP8. */
QD_INLINE qd_u32x4 widen_piece(int kind, kv_piece x) {
#if QK_FP8
    return qd_widen8(kind, QK_F16, x);
#else
    (void)kind;
    return x;
#endif
}

/** Returns element e of two keys' pieces, as the matrix core takes them. */
QD_INLINE uint32_t widen_pair(int kind, kv_piece a, kv_piece b, uint32_t e) {
#if QK_FP8
    return qd_widen2(kind, QK_F16, a[e / 4], e % 4, b[e / 4], e % 4);
#else
    (void)kind;
    return qd_halves(a[e / 2], b[e / 2], e % 2);
#endif
}

QD_INLINE void land_keys(const carrier *c, int kind) {
    qd_u32x4 pieces[2 * PAIRS];
    if (c->mover.piece >= c->k_pieces)
        return;
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++)
        pieces[i] = widen_piece(kind, c->moving[i]);
    put_keys(c, pieces);
}

/** Clears the pieces past the end of a head, which are zeros in q too. No key is written over
 *  them. */
QD_INLINE void clear_keys(const carrier *c) {
    const qd_u32x4 zeros[2 * PAIRS] = {};
    if (c->mover.piece >= c->k_pieces)
        put_keys(c, zeros);
}

/** Writes values to LDS, transposed. */
QD_INLINE void land_values(const carrier *c, int kind) {
    typedef uint32_t pairs __attribute__((ext_vector_type(PAIRS)));
    QD_LDS uint8_t *to = v_tile + anew(c->mover.piece) * 8 * V_ROW;
    const uint32_t turn = qd_opaque(c->mover.v_turn);
    QD_UNROLL for (uint32_t e = 0; e < 8; e++) {
        pairs keys;
        QD_UNROLL for (uint32_t i = 0; i < PAIRS; i++)
            keys[i] = widen_pair(kind, c->moving[2 * i], c->moving[2 * i + 1], e);
        const uint32_t in_line = e % V_LINE_ROWS * V_ROW ^ v_turn_of(e);
        *(QD_LDS pairs *)(to + e / V_LINE_ROWS * (V_LINE_ROWS * V_ROW) + (turn ^ in_line)) = keys;
    }
}

QD_INLINE void land_as(const carrier *c, bool is_v, int kind) {
    if (is_v)
        land_values(c, kind);
    else
        land_keys(c, kind);
}

/** Writes to LDS what fetch() loaded. Each kind of FP8 has its own code, and all waves take the
 *  same code; the FNUZ kinds, where they are not the target's own, share code. */
QD_INLINE void land(const part *p, const carrier *c, bool is_v) {
    if (!QK_FP8 || p->kind == QD_FP8_USUAL)
        land_as(c, is_v, QD_FP8_USUAL);
    else if (p->kind == QD_E4M3FN)
        land_as(c, is_v, QD_E4M3FN);
    else if (p->kind == QD_E5M2)
        land_as(c, is_v, QD_E5M2);
    else
        land_as(c, is_v, p->kind == QD_E4M3FNUZ ? QD_E4M3FNUZ : QD_E5M2FNUZ);
}

/** Returns whether a tile whose rows are so far apart is within 4 GiB. */
QD_INLINE bool is_near(int64_t row) {
    return row >= 0 && row <= INT32_MAX / TILE;
}

QD_INLINE source make_source(const part *p, const mover *m, const qk_attention_rows *rows,
                             uint32_t head_dim) {
    const uint32_t row = (uint32_t)rows->token * KV_BYTES;
    return (source){
        .begin = (const char *)rows->data + (p->kv_head * rows->head + p->index * rows->block +
                                             p->request.kv_begin * rows->token) *
                                                KV_BYTES,
        .row = row,
        .offset = m->key * row + qd_min(m->piece, head_dim / 8 - 1) * sizeof(kv_piece),
    };
}

QD_INLINE carrier make_carrier(const part *p, const qk_attention_args *g) {
    const mover m = make_mover();
    return (carrier){.k = make_source(p, &m, &g->k, g->head_dim_qk),
                     .v = make_source(p, &m, &g->v, g->head_dim_vo),
                     .is_whole = !g->kv_indices && is_near(g->k.token) && is_near(g->v.token),
                     .k_pieces = g->head_dim_qk / 8,
                     .mover = m};
}

#endif
