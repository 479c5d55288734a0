// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU for requests of few rows, as in decoding. The memory that holds keys and
// values limits its speed.
//
// With rows in lanes most lanes would idle. attention_decode_narrow_simd.h is for vectors of 8
// lanes. With 4 and 16 lanes a vector is GROUP rows of four cells each:
//
//   scores    lanes (row, cell): s += q[row][4c + i] * k[key][4c + i], k's four cells repeated for
//             each row; the four lanes of a row are added for four keys at once, which gives lanes
//             (row, key)
//   values    lanes are elements of v; one weight multiplies all lanes
//
// k and v are repacked as for tiles (attention_simd.h).
#ifndef QNI_ATTENTION_DECODE_SIMD_H
#define QNI_ATTENTION_DECODE_SIMD_H

#include "attention_simd.h"

enum { DECODE_ROWS = 8 }; // most rows of a request

#if QN_LANES == 8
#include "attention_decode_narrow_simd.h"
#else
enum {
    FOUR = 4,                   // cells of a row in a vector; keys whose sums are computed together
    GROUP = QN_LANES / FOUR,    // rows of a vector
    DECODE_CELLS = FOUR * PAIR, // a row's elements are a multiple of this
    DECODE_WIDTH = QN_LANES,
    DECODE_PACKS_Q = true, // q is repacked from the tile's q
    BLOCK_VECTORS = 4,
    BLOCK = BLOCK_VECTORS * QN_LANES, // elements of v whose sums stay in registers
    AHEAD = 32                        // how many keys ahead of the one that is read in place keys
                                      // are fetched
};

/** What the group's rows have before a chunk's keys are added and while they are; lanes are (row,
 *  any). */
typedef struct rows_state {
    f32v max, sum, scale;
    i32v first, end;
} rows_state;

/** Returns four cells, repeated for each row. */
QN_INLINE f32v repeat_four(const cell *p) {
#if defined(__AVX512F__) && QN_LANES == 16
    return (f32v)_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
#else
    f32v v;
    for (int r = 0; r < GROUP; r++)
        memcpy((char *)&v + r * 16, p, 16);
    return v;
#endif
}

/** Returns acc + a * b, lane by lane. */
QN_INLINE f32v multiply_add(f32v acc, f32v a, f32v b) {
#ifdef QN_BF16
    return (f32v)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#else
    return fma_of(a, b, acc);
#endif
}

// Shuffles within each four lanes: a0 b0 a1 b1; a2 b2 a3 b3; a0 a1 b0 b1; a2 a3 b2 b3; a2 a3 a0 a1;
// a1 a0 a3 a2.
#if QN_LANES == 16
#define FOURS(name, a, b, i, j, k, l)                                                              \
    __builtin_shufflevector(a, b, (i), (j), (k), (l), (i) + 4, (j) + 4, (k) + 4, (l) + 4, (i) + 8, \
                            (j) + 8, (k) + 8, (l) + 8, (i) + 12, (j) + 12, (k) + 12, (l) + 12)
#else
#define FOURS(name, a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#endif
#define INTERLEAVE_LOW(a, b) FOURS(low, a, b, 0, QN_LANES, 1, QN_LANES + 1)
#define INTERLEAVE_HIGH(a, b) FOURS(high, a, b, 2, QN_LANES + 2, 3, QN_LANES + 3)
#define LOW_HALVES(a, b) FOURS(lows, a, b, 0, 1, QN_LANES, QN_LANES + 1)
#define HIGH_HALVES(a, b) FOURS(highs, a, b, 2, 3, QN_LANES + 2, QN_LANES + 3)
#define SWAP_HALVES(a) FOURS(halves, a, a, 2, 3, 0, 1)
#define SWAP_PAIRS(a) FOURS(pairs, a, a, 1, 0, 3, 2)

/** Returns sums over each row's four lanes of four vectors: lane (row, i) is the sum for s[i]. */
QN_INLINE f32v add_fours(const f32v *s) {
    const f32v a = INTERLEAVE_LOW(s[0], s[1]) + INTERLEAVE_HIGH(s[0], s[1]);
    const f32v b = INTERLEAVE_LOW(s[2], s[3]) + INTERLEAVE_HIGH(s[2], s[3]);
    return LOW_HALVES(a, b) + HIGH_HALVES(a, b);
}

/** max_of_four returns the largest of each row's four lanes, in all four; the function below, their
 *  sum. */
QN_INLINE f32v max_of_four(f32v v) {
    v = top_of(v, SWAP_HALVES(v));
    return top_of(v, SWAP_PAIRS(v));
}
QN_INLINE f32v sum_of_four(f32v v) {
    v += SWAP_HALVES(v);
    return v + SWAP_PAIRS(v);
}

/** Writes q as lanes (row, cell), from the tile's q, which has rows of ROWS. */
static void spread_q(const tile *t, int64_t row, cell *out) {
    for (int64_t c = 0; c < t->cells; c += FOUR)
        for (int r = 0; r < GROUP; r++)
            for (int i = 0; i < FOUR; i++)
                *out++ = t->q[(c + i) * ROWS + row + r];
}

/** Finds where keys first + j .. lie: packed, or in memory. Places past the tile's last key repeat
 *  the last one, which is not seen. */
QN_INLINE void find_keys(const tile *t, uint32_t first, int64_t j, int64_t keys, bool is_direct,
                         const cell **rows) {
    const qk_attention_args *g = &t->p->args;
    for (int64_t i = 0; i < 2 * FOUR; i++) {
        const int64_t at_key = j + i < keys ? j + i : keys - 1;
        rows[i] =
            is_direct
                ? (const cell *)(const void *)((const uint16_t *)g->k.data +
                                               qk_attention_key(g, &g->k, t->request, t->index,
                                                                first + (uint32_t)at_key) +
                                               t->kv_head * g->k.head)
                : t->k + (j + i) * t->cells;
    }
}

/** Writes the scores of keys j .. j + 7 to s as lanes (row, key) and returns the largest. */
QN_INLINE f32v decode_scores(tile *t, const rows_state *rows, const cell *q, uint32_t first,
                             int64_t j, int64_t keys, uint32_t ahead, bool is_direct) {
    f32v acc[2 * FOUR] = {};
    const cell *k[2 * FOUR];
    find_keys(t, first, j, keys, is_direct, k);
    for (uint32_t i = 0; ahead && i < 2 * FOUR; i++)
        fetch(t, &t->p->args.k, first + (uint32_t)j + i + ahead, t->head);
    for (int64_t c = 0; c < t->cells; c += FOUR) {
        f32v part;
        memcpy(&part, q + c * GROUP, sizeof part);
        for (int i = 0; i < 2 * FOUR; i++)
            acc[i] = multiply_add(acc[i], part, repeat_four(k[i] + c));
    }
    f32v top = all_of(-__builtin_inff());
    for (int half = 0; half < 2; half++) {
        i32v key;
        for (int i = 0; i < QN_LANES; i++)
            key[i] = (int32_t)(first + (uint32_t)j + (uint32_t)(half * FOUR + i % FOUR));
        const f32v x = add_fours(acc + half * FOUR) * rows->scale;
        const f32v seen =
            select_of((rows->first <= key) & (rows->end > key), x, all_of(-__builtin_inff()));
        put(t->s + (j / FOUR + half) * QN_LANES, seen);
        top = top_of(seen, top);
    }
    return top;
}

/** Turns scores into weights in place. Returns the factor for what the rows had before. */
QN_INLINE f32v decode_weigh(tile *t, rows_state *rows, int64_t keys, f32v top) {
    const f32v old = rows->max, max = top_of(max_of_four(top), old);
    const f32v safe = select_of(max > -__builtin_inff(), max, all_of(0));
    const f32v shrink = weight_of(old - safe);
    f32v sum = {};
    for (int64_t i = 0; i < keys / FOUR; i++) {
        const f32v weight = weight_of(at(t->s + i * QN_LANES) - safe);
        sum += weight;
#ifdef QN_BF16
        const __m256bh pairs = _mm512_cvtneps_pbh((__m512)weight);
        memcpy((uint16_t *)t->s + i * QN_LANES, &pairs, sizeof pairs);
#else
        put(t->s + i * QN_LANES, weight);
#endif
    }
    rows->sum = rows->sum * shrink + sum_of_four(sum);
    rows->max = max;
    return shrink;
}

/** Where the values of a cell's keys lie: in one packed row, or in two rows of memory. */
typedef struct value_rows {
    const cell *packed;
    const uint16_t *even, *odd;
} value_rows;

#ifdef QN_BF16
/** Returns the keys' rows in memory; past the last key they are zeros. */
QN_INLINE value_rows find_values(const tile *t, uint32_t first, int64_t j, int64_t keys) {
    alignas(64) static const uint16_t zeros[MAX_DIM];
    const qk_attention_args *g = &t->p->args;
    const uint16_t *v = (const uint16_t *)g->v.data + t->kv_head * g->v.head;
    const uint32_t key = first + (uint32_t)j;
    return (value_rows){.even = v + qk_attention_key(g, &g->v, t->request, t->index, key),
                        .odd = j + 1 < keys
                                   ? v + qk_attention_key(g, &g->v, t->request, t->index, key + 1)
                                   : zeros};
}
#endif

QN_INLINE value_rows get_values(const tile *t, uint32_t first, int64_t j, int64_t keys,
                                bool is_direct) {
#ifdef QN_BF16
    if (is_direct)
        return find_values(t, first, j * PAIR, keys);
#else
    (void)first, (void)keys, (void)is_direct;
#endif
    return (value_rows){.packed = t->v + j * t->width};
}

/** Loads the rows' cells from d on. */
QN_INLINE f32v load_values(value_rows rows, int64_t d) {
    f32v packed;
    if (rows.packed) {
        memcpy(&packed, rows.packed + d, sizeof packed);
        return packed;
    }
    u16v even, odd;
    memcpy(&even, rows.even + d, sizeof even);
    memcpy(&odd, rows.odd + d, sizeof odd);
    return (f32v)(__builtin_convertvector(even, u32v) | __builtin_convertvector(odd, u32v) << 16);
}

/** Adds values: o = o * shrink + weights * values for elements d .. d + BLOCK - 1, of which
 *  `vectors` vectors exist. */
QN_INLINE void decode_values(tile *t, int vectors, float *o, int64_t d, uint32_t first,
                             int64_t keys, f32v shrink, uint32_t ahead, bool is_direct) {
    f32v acc[GROUP][BLOCK_VECTORS];
    for (int r = 0; r < GROUP; r++)
        for (int v = 0; v < vectors; v++)
            acc[r][v] = at(o + r * t->width + d + v * QN_LANES) * shrink[r * FOUR];
    for (int64_t j = 0; j < qni_round_up(keys, PAIR) / PAIR; j++) {
        constexpr int64_t cells = FOUR / PAIR; // a row's weights of four keys
        const cell *p = (const cell *)t->s + j / cells * (GROUP * cells) + j % cells;
        const value_rows rows = get_values(t, first, j, keys, is_direct);
        for (uint32_t i = 0; ahead && d == 0 && i < PAIR; i++)
            fetch(t, &t->p->args.v, first + (uint32_t)j * PAIR + i + ahead, t->p->args.head_dim_vo);
        for (int v = 0; v < vectors; v++) {
            const f32v values = load_values(rows, d + v * QN_LANES);
            for (int r = 0; r < GROUP; r++)
                acc[r][v] = meet(acc[r][v], values, p + r * cells);
        }
    }
    for (int r = 0; r < GROUP; r++)
        for (int v = 0; v < vectors; v++)
            put(o + r * t->width + d + v * QN_LANES, acc[r][v]);
}

/** Adds a tile's keys to the rows of one group, and fetches the keys that are `ahead` of them; 0:
 *  fetches none. */
QN_INLINE void decode_keys(tile *t, rows_state *rows, const cell *q, float *o, uint32_t first,
                           int64_t keys, uint32_t ahead, bool is_direct) {
    const int64_t whole = qni_round_up(keys, 2 * FOUR);
    f32v top = all_of(-__builtin_inff());
    for (int64_t j = 0; j < whole; j += 2 * FOUR)
        top = top_of(decode_scores(t, rows, q, first, j, keys, ahead, is_direct), top);
    const f32v shrink = decode_weigh(t, rows, whole, top);
    int64_t d = 0;
    for (; d + BLOCK <= t->width; d += BLOCK)
        decode_values(t, BLOCK_VECTORS, o, d, first, keys, shrink, ahead, is_direct);
    for (; d < t->width; d += QN_LANES)
        decode_values(t, 1, o, d, first, keys, shrink, ahead, is_direct);
}

/** Returns whether one group reads k and v where they lie. Then memory is read while there is
 *  arithmetic to do; packing would keep the two apart. */
static bool is_direct(const tile *t) {
#ifdef QN_BF16
    const qk_attention_args *g = &t->p->args;
    return t->count <= GROUP && t->p->dtype_kv == QNI_BF16 && t->p->tail.dim == 0 &&
           t->cells * PAIR == g->head_dim_qk && t->width == g->head_dim_vo;
#else
    (void)t;
    return false;
#endif
}

static rows_state begin_rows(const tile *t, int64_t row, uint32_t end) {
    rows_state s = {.max = all_of(-__builtin_inff())};
    for (int i = 0; i < QN_LANES; i++) {
        const int64_t r = row + i / FOUR;
        s.scale[i] = t->scale[r];
        s.first[i] = t->first[r];
        s.end[i] = t->end[r] < (int32_t)end ? t->end[r] : (int32_t)end;
    }
    return s;
}

static void decode_chunk(tile *t, uint32_t row, range seen, uint32_t begin, uint32_t end) {
    alignas(64) cell q[DECODE_ROWS * MAX_ROW / PAIR];
    rows_state rows[DECODE_ROWS / GROUP];
    uint32_t key = begin;
    const uint32_t stop = end < seen.end ? end : seen.end;
    if (seen.first > begin)
        key += (seen.first - begin) / KEYS * KEYS;
    memset(t->o, 0, (size_t)(t->width * DECODE_ROWS) * sizeof *t->o);
    for (int64_t r = 0; r < t->count; r += GROUP) {
        spread_q(t, r, q + r * t->cells);
        rows[r / GROUP] = begin_rows(t, r, end);
    }
    for (; key < stop; key += KEYS) {
        const int64_t keys = end - key < KEYS ? end - key : KEYS;
        if (is_direct(t)) {
            decode_keys(t, &rows[0], q, t->o, key, keys, AHEAD, true);
            continue;
        }
        pack_k(t, key, keys);
        pack_v(t, key, keys);
        for (int64_t r = 0; r < t->count; r += GROUP)
            decode_keys(t, &rows[r / GROUP], q + r * t->cells, t->o + r * t->width, key, keys,
                        r == 0 ? KEYS : 0, false);
    }
    for (int64_t r = 0; r < t->count; r++) {
        const int lane = (int)(r % GROUP) * FOUR;
        qni_attention_finish(t->p, &t->rows[r], row + (uint32_t)r, begin, rows[r / GROUP].max[lane],
                             rows[r / GROUP].sum[lane], t->o + r * t->width);
    }
}

#endif

/** Returns whether a request is decoded here. Only the request's own lengths and options decide,
 *  because bits differ from a tile's. */
static bool is_decode(const tile *t) {
    return (int64_t)t->request->qo_len * t->p->args.group <= DECODE_ROWS && !t->has_extras &&
           !t->p->args.has_dropout && !qni_env_get()->batch_invariant;
}

/** Computes the rows of a work item for one kv head. */
static void run_item(const qni_attention_problem *p, const qk_attention_work *work,
                     uint32_t kv_head) {
    const qk_attention_args *g = &p->args;
    const qk_attention_request request = qk_attention_get_request(g, work->request);
    tile t;
    t.p = p, t.request = &request, t.index = work->request, t.kv_head = kv_head;
    t.element_bytes = qni_dtype_bytes(p->dtype_kv);
    t.has_extras =
        g->pos_encoding == QK_POS_ALIBI || g->soft_cap > 0 || g->mask_kind || g->custom_mask;
    t.decodes = is_decode(&t);
    t.cells = qni_round_up(g->head_dim_qk, t.decodes ? DECODE_CELLS : 4 * PAIR) / PAIR;
    t.width = qni_round_up(g->head_dim_vo, t.decodes ? DECODE_WIDTH : WIDTH);
    t.head = (int64_t)g->head_dim_qk - p->tail.dim;
    for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS) {
        t.count = work->row_end - row < ROWS ? work->row_end - row : ROWS;
        const range seen = set_rows(&t, row);
        uint32_t begin = work->kv_begin;
        if (DECODE_PACKS_Q || !t.decodes)
            pack_q(&t);
        do {
            const uint32_t end = qk_attention_next_chunk(&request, begin, work->kv_end);
            if (t.decodes)
                decode_chunk(&t, row, seen, begin, end);
            else
                run_chunk(&t, row, seen, begin, end);
            begin = end;
        } while (begin < work->kv_end);
    }
}

#endif
