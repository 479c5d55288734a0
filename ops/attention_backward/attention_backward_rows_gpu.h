// SPDX-License-Identifier: Apache-2.0
// What attention's backward kernels on matrix cores hold, and how rows that pass by reach LDS.
// There are two kernels of one source. With QK_OF_KEYS a workgroup owns keys, and queries of all
// heads that share them pass by; else it owns queries of a head, and keys pass by. What is owned
// are columns:
//
//              own 0   own 1   pass by 0   pass by 1   sums 0   sums 1
//   queries    q       d_o     k           v           dq       -
//   keys       k       v       q           d_o         dk       dv
#ifndef QK_ATTENTION_BACKWARD_ROWS_GPU_H
#define QK_ATTENTION_BACKWARD_ROWS_GPU_H

#include "../attention/attention_row_gpu.h"
#include "attention_backward_abi.h"
#include "halves.h"
#include "mma.h"

#ifndef QK_F16
#define QK_F16 0 // else bf16
#endif

// QK_D is the largest head dim, QK_TILE the rows of a tile, QK_STAGES for how many tiles of the
// first tensor that passes by LDS has room, QK_HELD how many of the two tensors that are owned
// stay in registers, QK_BANKS LDS's banks of 4 bytes. They differ from target to target:
// variants.def.
enum { D = QK_D, TILE = QK_TILE, STAGES = QK_STAGES, HELD = QK_HELD, OF_KEYS = QK_OF_KEYS };
/** On RDNA registers are scarce: places are found where they are used. */
constexpr bool is_tight = QD_WAVE == 32;
enum { THREADS = QK_THREADS, WAVES = THREADS / QD_WAVE, COLUMNS = WAVES * QD_MMA_COLUMNS };
enum { SUMS = OF_KEYS ? 2 : 1, TYPE = QK_F16 ? QD_F16 : QD_BF16 };
/** A group of rows is whole products: its scores' rows, and its weights' k. */
enum { GROUP = QD_MMA_ROWS > QD_MMA_K ? QD_MMA_ROWS : QD_MMA_K, GROUPS = TILE / GROUP };
enum { S_TILES = GROUP / QD_MMA_ROWS, FRAGMENTS = GROUP / QD_MMA_K };
enum { D_TILES = D / QD_MMA_ROWS, D_STEPS = D / QD_MMA_K, ELEMENTS = QD_MMA_ACC / QD_MMA_OWN };
static_assert(TILE % GROUP == 0 && D % QD_MMA_K == 0, "tiles are whole products");

/** What a workgroup computes. */
typedef struct part {
    const qk_backward_args *args; // for again() alone
    qk_attention_request request;
    uint32_t index, head, kv_head; // of the request; of q: the first one that passes by, or its own
    uint32_t begin, columns;       // the first column; how many the request has
    uint32_t rows;                 // of the other side
    float unit, factor;            // of base-2 scores of qk_backward_tile; of v's scales
} part;

/** A column that a lane owns. */
typedef struct column {
    uint32_t index, first, end; // the rows that it sees
    float base, delta;          // of a query: its negative base-2 log-sum-exp; <d_o, o>
    bool exists;
} column;

/** What a lane holds. */
typedef struct wave {
    qd_mma_operand own[2][D_STEPS][QD_MMA_OWN];
    qd_mma_acc sums[SUMS][D_TILES];
    column columns[QD_MMA_OWN];
    uint32_t all_first, all_end; // rows that all of the wave's columns see
    uint32_t any_first, any_end; // rows that any of the wave's columns sees
} wave;

QD_INLINE const qk_backward_args *again(const qk_backward_args *b) {
    return qd_reread(b);
}

QD_INLINE uint32_t dim_of(const qk_backward_args *b, uint32_t which) {
    return which ? b->common.head_dim_vo : b->common.head_dim_qk;
}
/** Returns where rows of q (0) and d_o (1), or of k and v, lie. */
QD_INLINE const qk_attention_rows *rows_of(const qk_backward_args *b, bool of_keys,
                                           uint32_t which) {
    return of_keys ? which ? &b->common.v : &b->common.k : which ? &b->d_o : &b->common.q;
}
/** Returns the element at which row 0 of the request begins, of a head of q or of keys. */
QD_INLINE int64_t row_begin(const part *p, const qk_attention_rows *rows, bool of_keys,
                            uint32_t head) {
    const int64_t token = of_keys ? p->request.kv_begin : p->request.qo_begin;
    return p->index * rows->block + token * rows->token + head * rows->head;
}

// ---- places in LDS

// A tile of rows stands twice: as rows, and turned, with a row for each element of the head, whose
// k are in pairs (gpu/mma.h). Rows follow each other, several in a line if they are shorter than
// one. A line has all banks once. The 16-byte pieces of a line change places: the number of a
// piece in its line is xored with its row's turn, so that lanes that are served together touch all
// banks.
enum { LINE = 4 * QK_BANKS, LINE_PIECES = LINE / 16, ROW = 2 * D, TURNED_ROW = 2 * TILE };
enum {
    LINE_ROWS = ROW < LINE ? LINE / ROW : 1,
    LINE_TURNED = TURNED_ROW < LINE ? LINE / TURNED_ROW : 1
};
enum { TILE_BYTES = TILE * ROW };

#define LDS_BYTES(name, bytes)                                                                     \
    [[clang::loader_uninitialized]] static QD_LDS uint8_t name[bytes] __attribute__((aligned(128)))
LDS_BYTES(first_rows, STAGES *TILE_BYTES);
LDS_BYTES(first_turned, STAGES *TILE_BYTES);
LDS_BYTES(second_rows, TILE_BYTES);
#if QK_OF_KEYS
LDS_BYTES(second_turned, TILE_BYTES);
[[clang::loader_uninitialized]] static QD_LDS float numbers[STAGES][2][TILE]
    __attribute__((aligned(128))); // queries' base and delta
#endif
#if QK_HELD < 2
LDS_BYTES(owned, (2 - HELD) * COLUMNS * ROW); // own 1; own 0 behind it
#endif

/** Returns the turn of a row, times 16. */
QD_INLINE uint32_t turn_of(uint32_t row) {
    return qd_mma_turn(row / LINE_ROWS) % LINE_PIECES * 16;
}
/** Returns the turn of a turned row, times 16. That of a sum is that of its parts, xored, if they
 *  have no bit in common. */
QD_INLINE uint32_t turn_of_turned(uint32_t d) {
    const uint32_t line = d % 64 / LINE_TURNED;
    return (qd_mma_turn(line) ^ line / LINE_PIECES) % LINE_PIECES * 16;
}
QD_INLINE uint32_t row_at(uint32_t row, uint32_t piece) {
    const uint32_t place = row % LINE_ROWS * ROW + piece % LINE_PIECES * 16;
    return row / LINE_ROWS * (LINE_ROWS * ROW) + piece / LINE_PIECES * LINE +
           (place ^ turn_of(row));
}
QD_INLINE uint32_t turned_at(uint32_t d, uint32_t byte) {
    const uint32_t place = d % LINE_TURNED * TURNED_ROW + byte;
    return d / LINE_TURNED * (LINE_TURNED * TURNED_ROW) + (place ^ turn_of_turned(d));
}

// ---- rows on their way

enum {
    PIECES = D / 8,
    PAIRS = TILE / 2 * PIECES / THREADS
}; // of rows, whose pieces a thread moves
static_assert(PAIRS > 0, "each thread moves a pair of pieces");

/** A head's rows that pass by. */
typedef struct source {
    const char *begin;
    uint32_t row; // bytes
} source;

/** What a thread carries to LDS. */
typedef struct carrier {
    qd_u32x4 moving[2 * PAIRS];
    float numbers[2]; // of a query
} carrier;

/** Which pieces a thread carries. */
typedef struct mover {
    uint32_t row, piece; // the first row, the piece of its row
    /** The piece's place in a line of rows, and the rows' in a line of turned ones, with the first
     *  one's turn. */
    uint32_t turn, turn_of_turned;
} mover;

/** Returns what a thread carries: a piece of four rows, an even pair and the next pair (PAIRS = 1:
 *  of two). Threads that write at once have eight pieces, of as many rows as fill 16 bytes of a
 *  turned row. */
QD_INLINE mover make_mover(void) {
    enum { TOGETHER = 8, TURNS = TILE / 2 / PAIRS };
    const uint32_t thread = is_tight ? qd_opaque(qd_thread()) : qd_thread();
    const uint32_t pair = thread / TOGETHER % TURNS * PAIRS, row = qd_mma_pair(pair);
    const uint32_t piece = thread / (TOGETHER * TURNS) * TOGETHER + thread % TOGETHER;
    return (mover){.row = row,
                   .piece = piece,
                   .turn = (row % LINE_ROWS * ROW + piece * 16) ^ turn_of(row),
                   .turn_of_turned = pair * 4 ^ turn_of_turned(piece * 8)};
}
QD_INLINE uint32_t row_of(uint32_t i) {
    static_assert(PAIRS == 1 || (PAIRS == 2 && QD_MMA_PAIR == 1));
    return i / 2 * QD_MMA_NEXT_PAIR + i % 2 * QD_MMA_PAIR;
}

QD_INLINE source make_source(const part *p, uint32_t which, uint32_t head) {
    const qk_attention_rows *rows = rows_of(again(p->args), !OF_KEYS, which);
    return (source){.begin = (const char *)rows->data + row_begin(p, rows, !OF_KEYS, head) * 2,
                    .row = (uint32_t)rows->token * 2};
}

/** Starts loading the rows from `tile` on. Rows past the end repeat the last one, and pieces past
 *  the end of a head repeat its last piece. */
QD_INLINE void fetch(const part *p, carrier *c, uint32_t which, const source *from, uint32_t tile) {
    const mover m = make_mover();
    const char *begin = from->begin + (uint64_t)tile * from->row;
    const uint32_t piece = qd_min(m.piece, dim_of(again(p->args), which) / 8 - 1);
    const uint32_t last = p->rows - 1 - tile;
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++)
        c->moving[i] =
            *(const qd_u32x4 *)(begin + qd_min(m.row + row_of(i), last) * from->row + piece * 16);
}

/** Writes a thread's pieces to LDS as rows. A place is the first one's, xored with what the row
 *  adds, and is found anew, since registers are scarce. */
QD_INLINE void land_rows(const mover *m, QD_LDS uint8_t *rows, const qd_u32x4 x[2 * PAIRS]) {
    QD_LDS uint8_t *to = rows + m->row / LINE_ROWS * (LINE_ROWS * ROW);
    const uint32_t turn = qd_opaque(m->turn);
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        const uint32_t row = row_of(i), in_line = row % LINE_ROWS * ROW ^ turn_of(row);
        *(QD_LDS qd_u32x4 *)(to + row / LINE_ROWS * (LINE_ROWS * ROW) + (turn ^ in_line)) = x[i];
    }
}
/** Writes a thread's pieces to LDS, turned. */
QD_INLINE void land_turned(const mover *m, QD_LDS uint8_t *turned, const qd_u32x4 x[2 * PAIRS]) {
    typedef uint32_t pairs __attribute__((ext_vector_type(PAIRS)));
    QD_LDS uint8_t *to = turned + m->piece * 8 * TURNED_ROW;
    const uint32_t turn = qd_opaque(m->turn_of_turned);
    QD_UNROLL for (uint32_t e = 0; e < 8; e++) {
        pairs two;
        QD_UNROLL for (uint32_t i = 0; i < PAIRS; i++)
            two[i] = qd_halves(x[2 * i][e / 2], x[2 * i + 1][e / 2], e % 2);
        const uint32_t in_line = e % LINE_TURNED * TURNED_ROW ^ turn_of_turned(e);
        *(QD_LDS pairs *)(to + e / LINE_TURNED * (LINE_TURNED * TURNED_ROW) + (turn ^ in_line)) =
            two;
    }
}

/** Writes pieces of the first or the second tensor to LDS. */
QD_INLINE void put(const mover *m, uint32_t which, uint32_t stage, const qd_u32x4 x[2 * PAIRS]) {
    land_rows(m, which ? second_rows : first_rows + stage * TILE_BYTES, x);
    if (!which)
        land_turned(m, first_turned + stage * TILE_BYTES, x);
#if QK_OF_KEYS
    else
        land_turned(m, second_turned, x);
#endif
}

/** Writes to LDS what fetch() loaded. */
QD_INLINE void land(const part *p, const carrier *c, uint32_t which, uint32_t stage) {
    const mover m = make_mover();
    if (m.piece * 8 < dim_of(again(p->args), which))
        put(&m, which, stage, c->moving);
}

/** Writes to LDS, as rows alone, what fetch() loaded. */
QD_INLINE void land_as_rows(const part *p, const carrier *c, uint32_t which) {
    const mover m = make_mover();
    if (m.piece * 8 < dim_of(again(p->args), which))
        land_rows(&m, which ? second_rows : first_rows, c->moving);
}

/** Clears the pieces past the end of a head. No row is written over them. */
QD_INLINE void clear_rest(const part *p) {
    const qd_u32x4 zeros[2 * PAIRS] = {};
    const mover m = make_mover();
    if (m.piece * 8 >= dim_of(again(p->args), 0)) QD_UNROLL
        for (uint32_t i = 0; i < STAGES; i++)
            put(&m, 0, i, zeros);
    if (m.piece * 8 >= dim_of(again(p->args), 1))
        put(&m, 1, 0, zeros);
}

// ---- numbers of a query

QD_INLINE row_place place_of(const part *p, uint32_t head, uint32_t query) {
    return (row_place){.request = p->index,
                       .query = query,
                       .head = head,
                       .kv_head = p->kv_head,
                       .token = (int64_t)p->request.qo_begin + query};
}

/** Returns a query's negative base-2 log-sum-exp; 0 for one that sees nothing, so that a hidden
 *  score is no NaN. */
QD_INLINE float load_base(const part *p, const row_place *row) {
    const qk_attention_args *g = &again(p->args)->common;
    const float lse =
        g->lse[row->request * g->lse_batch + row->token * g->lse_token + row->head * g->lse_head];
    return lse == -__builtin_inff() ? 0 : -(lse / g->lse_unit);
}
QD_INLINE float *delta_of(const part *p, const row_place *row) {
    const qk_backward_args *b = again(p->args);
    return b->delta + qk_backward_delta(b, row->request, row->token, row->head);
}

#if QK_OF_KEYS
/** Starts loading the numbers of the tile's queries, one a thread. */
QD_INLINE void fetch_numbers(const part *p, carrier *c, uint32_t head, uint32_t tile) {
    const uint32_t query = qd_min(tile + qd_thread() % TILE, p->rows - 1);
    const row_place place = place_of(p, head, query);
    c->numbers[0] = load_base(p, &place);
    c->numbers[1] = *delta_of(p, &place);
}
QD_INLINE void land_numbers(const carrier *c, uint32_t stage) {
    if (qd_thread() < TILE) {
        numbers[stage][0][qd_thread()] = c->numbers[0];
        numbers[stage][1][qd_thread()] = c->numbers[1];
    }
}
#endif

// ---- columns

/** Finds the rows that a column sees. */
QD_INLINE qk_query_range range_of(const part *p, uint32_t index) {
    const qk_attention_args *g = &again(p->args)->common;
    if (OF_KEYS)
        return qk_backward_queries(g, &p->request, index, index);
    return (qk_query_range){qk_attention_first_key(g, &p->request, index),
                            qk_attention_end_key(g, &p->request, index)};
}

/** Finds the rows that the wave's columns see. */
QD_INLINE void find_rows(const part *p, wave *w, uint32_t begin) {
    const uint32_t last = qd_min(begin + QD_MMA_COLUMNS, p->columns) - 1;
    const qk_query_range low = range_of(p, begin), high = range_of(p, last);
    w->any_first = qd_uniform(low.begin);
    w->all_first = qd_uniform(high.begin);
    w->any_end = begin < p->columns ? qd_uniform(high.end) : 0;
    w->all_end = qd_uniform(low.end);
}

/** Returns piece i of a column of own 0 or 1; zeros past the end of a head. */
QD_INLINE qd_u32x4 own_piece(const char *row, const column *x, uint32_t dim, uint32_t i) {
    return x->exists && i * 8 < dim ? ((const qd_u32x4 *)row)[i] : (qd_u32x4)0;
}

QD_INLINE void load_own(const part *p, wave *w, uint32_t which, uint32_t i) {
    const qk_attention_rows *rows = rows_of(again(p->args), OF_KEYS, which);
    const column *x = &w->columns[i];
    const uint32_t dim = dim_of(again(p->args), which);
    const char *row =
        (const char *)rows->data +
        (row_begin(p, rows, OF_KEYS, OF_KEYS ? p->kv_head : p->head) + x->index * rows->token) * 2;
    QD_UNROLL for (uint32_t c = 0; c < D_STEPS; c++) {
#define PIECE(i) own_piece(row, x, dim, i)
        w->own[which][c][i] = QD_MMA_READ(c, PIECE);
#undef PIECE
    }
}

/** Returns <d_o, o> of a query, whose d_o the lanes hold, and stores it for the kernel of keys. */
QD_INLINE float find_delta(const part *p, const wave *w, uint32_t own) {
    enum { OWN_PIECES = sizeof(qd_mma_operand) / 16 };
    constexpr bool is_shared = OWN_PIECES * QD_MMA_PARTS == QD_MMA_K / 8; // each part has its own
    const qk_attention_args *g = &again(p->args)->common;
    const column *x = &w->columns[own];
    const row_place place = place_of(p, p->head, x->index);
    const char *o = (const char *)g->o + o_offset(g, &place) * 2;
    const uint32_t dim = g->head_dim_vo;
    float sum = 0;
    QD_UNROLL for (uint32_t c = 0; c < D_STEPS; c++) QD_UNROLL
        for (uint32_t i = 0; i < OWN_PIECES; i++) {
            const qd_mma_operand d = w->own[1][c][own];
            const qd_u32x4 bits = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
            const qd_f32x8 a = qd_from_16(TYPE, bits);
            const qd_f32x8 b = qd_from_16(TYPE, own_piece(o, x, dim, qd_mma_piece(c, i)));
            QD_UNROLL for (uint32_t e = 0; e < 8; e++)
                sum = __builtin_fmaf(a[e], b[e], sum);
            if (is_tight)
                qd_pin();
        }
    if (is_shared)
        sum = qd_mma_sum(sum);
    if (x->exists && qd_mma_part() == 0)
        *delta_of(p, &place) = sum;
    return sum;
}

QD_INLINE column make_column(const part *p, uint32_t index) {
    const bool exists = index < p->columns;
    const qk_query_range range = range_of(p, exists ? index : p->columns - 1);
    column x = {.index = index, .exists = exists, .first = range.begin, .end = range.end};
    if (!OF_KEYS && exists) {
        const row_place place = place_of(p, p->head, index);
        x.base = load_base(p, &place);
    }
    return x;
}

#if QK_HELD < 2
/** Returns where own `which`, 1 or 0, of the wave's columns stands in LDS. */
QD_INLINE QD_LDS uint8_t *owned_at(uint32_t which, uint32_t own, uint32_t piece) {
    return owned + (1 - which) * (COLUMNS * ROW) +
           row_at(qd_wave() * QD_MMA_COLUMNS + qd_mma_column(own), piece);
}

/** Puts a tensor that the wave owns into LDS, where this wave alone reads it. */
QD_INLINE void put_own(const wave *w, uint32_t which) {
    enum { OWN_PIECES = sizeof(qd_mma_operand) / 16 };
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) QD_UNROLL
        for (uint32_t c = 0; c < D_STEPS; c++) QD_UNROLL
            for (uint32_t n = 0; n < OWN_PIECES; n++) {
                const qd_mma_operand d = w->own[which][c][i];
                *(QD_LDS qd_u32x4 *)owned_at(which, i, qd_mma_piece(c, n)) =
                    (qd_u32x4){d[4 * n], d[4 * n + 1], d[4 * n + 2], d[4 * n + 3]};
            }
    qd_wave_barrier();
}
#endif

QD_INLINE float load_delta(const part *p, const column *x) {
    const row_place place = place_of(p, p->head, x->index);
    return x->exists ? *delta_of(p, &place) : 0;
}

/** Starts the wave's columns, from `begin` on. The second tensor comes first, as it may go to LDS,
 *  and one waits for the other where registers are scarce. has_delta is a constant: the queries'
 *  delta has been stored. */
QD_INLINE void begin_columns(const part *p, wave *w, uint32_t begin, bool has_delta) {
    find_rows(p, w, begin);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        w->columns[i] = make_column(p, begin + qd_mma_column(i));
        load_own(p, w, 1, i);
        if (!OF_KEYS)
            w->columns[i].delta = has_delta ? load_delta(p, &w->columns[i]) : find_delta(p, w, i);
    }
#if QK_HELD < 2
    put_own(w, 1);
    qd_pin();
#endif
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++)
        load_own(p, w, 0, i);
#if QK_HELD < 1
    put_own(w, 0);
#endif
    QD_UNROLL for (uint32_t s = 0; s < SUMS; s++) QD_UNROLL
        for (uint32_t n = 0; n < D_TILES; n++)
            w->sums[s][n] = 0;
}

#endif
