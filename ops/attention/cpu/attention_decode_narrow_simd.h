// SPDX-License-Identifier: Apache-2.0
// Decoding where there are 16 vector registers of 8 lanes: AVX2. Included by
// attention_decode_simd.h.
//
// A block is 4, 2 or 1 rows. k and v are read where they lie and become f32 in registers, once for
// all rows of the block:
//
//   scores   8 / rows keys: k's elements are met by those of each row, 8 sums; their lanes are
//            added for all 8 at once
//   values   8 / rows vectors of elements of v: each is met by each row's weight, 8 sums
//
// Scores and weights are s[key][row], so a vector has lanes (key, row). FP8, heads that RoPE turns
// and rows that are no multiple of 16 elements are first packed as f32. bf16 comes apart into even
// and odd elements (simd.h), so q is put in that order before, and o in the usual order after.
#ifndef QNI_ATTENTION_DECODE_NARROW_SIMD_H
#define QNI_ATTENTION_DECODE_NARROW_SIMD_H

enum {
    SUMS = 8,
    TWO = 2 * QN_LANES, // elements that are loaded at a time
    DECODE_CELLS = TWO, // a row's elements are a multiple of this
    DECODE_WIDTH = TWO,
    DECODE_PACKS_Q = false,
    BLOCK_ROWS = 4,
    BAND = 16, // keys that all elements of v take in turn: L1 holds few rows that lie far apart
};

/** Rows that are computed together; lanes are (any, row). */
typedef struct block {
    f32v max, sum, scale;
    i32v first, end;
    int rows;
    float *q; // [elements / TWO][rows][TWO]
    float *o; // [BLOCK_ROWS][t->width]
} block;

/** Where a tile's keys or values lie. Places past the last key repeat the last one, for steps that
 *  are not full; nobody sees these keys. */
typedef struct places {
    const char *at[KEYS + SUMS];
} places;

/** What a step of keys reads, and what it fetches: the rows of the next tile, as they lie in
 *  memory. */
typedef struct reader {
    qni_dtype dtype;
    const char *const *at, *const *next;
    int64_t element_bytes; // of what is fetched
} reader;

/** Fetches a line into the second-level cache. The first holds no tile, and waits for few misses at
 *  a time. */
QN_INLINE void ask(const char *p) {
    __builtin_prefetch(p, 0, 2);
}

// ---- places

static bool is_k_direct(const tile *t) {
    const qk_attention_args *g = &t->p->args;
    return !qni_is_fp8(t->p->dtype_kv) && t->p->tail.dim == 0 && g->head_dim_qk == t->cells &&
           g->pos_encoding != QK_POS_ROPE;
}

static bool is_v_direct(const tile *t) {
    return !qni_is_fp8(t->p->dtype_kv) && t->p->args.head_dim_vo == t->width;
}

static void repeat_last(places *p, int64_t keys) {
    for (int64_t j = keys; j < KEYS + SUMS; j++)
        p->at[j] = p->at[keys - 1];
}

static void find_rows(const tile *t, const qk_attention_rows *rows, uint32_t first, int64_t keys,
                      places *out) {
    for (int64_t j = 0; j < keys; j++)
        out->at[j] =
            (const char *)rows->data + key_offset(t, rows, first + (uint32_t)j) * t->element_bytes;
    repeat_last(out, keys);
}

static void find_packed(const float *packed, int64_t step, int64_t keys, places *out) {
    for (int64_t j = 0; j < keys; j++)
        out->at[j] = (const char *)(packed + j * step);
    repeat_last(out, keys);
}

// ---- scores

/** Returns sums of neighbours: within each half two sums of a, then two of b. */
QN_INLINE f32v add_neighbours(f32v a, f32v b) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

/** Returns the sums over all lanes: lane i is that of s[i]. */
QN_INLINE f32v add_lanes(const f32v s[SUMS]) {
    const f32v low = add_neighbours(add_neighbours(s[0], s[1]), add_neighbours(s[2], s[3]));
    const f32v high = add_neighbours(add_neighbours(s[4], s[5]), add_neighbours(s[6], s[7]));
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

/** Multiplies a step's keys with the block's rows; lanes of the result are (key, row). */
QN_INLINE f32v multiply_keys(int rows, const tile *t, const float *q, const reader *k, int64_t j) {
    f32v acc[SUMS] = {};
    for (int64_t c = 0; c < t->cells; c += TWO, q += rows * TWO)
        for (int i = 0; i < SUMS / rows; i += 2) {
            f32v x[2][2];
            for (int n = 0; n < 2; n++) {
                load_two(k->dtype == QNI_BF16, k->dtype, k->at[j + i + n], c, x[n]);
                ask(k->next[j + i + n] + c * k->element_bytes);
            }
            for (int r = 0; r < rows; r++)
                for (int half = 0; half < 2; half++) {
                    const f32v met = at(q + r * TWO + half * QN_LANES);
                    f32v *sum = acc + i * rows + r;
                    sum[0] = fma_of(x[0][half], met, sum[0]);
                    sum[rows] = fma_of(x[1][half], met, sum[rows]);
                }
        }
    return add_lanes(acc);
}

/** Writes the scores of a tile's keys to s and returns the largest. */
QN_INLINE f32v score_tile(int rows, qni_dtype dtype, tile *t, const block *b, uint32_t first,
                          int64_t keys, const reader *from) {
    const int step = SUMS / rows;
    const reader k = {dtype, from->at, from->next, from->element_bytes};
    f32v top = all_of(-__builtin_inff());
    i32v key;
    for (int i = 0; i < QN_LANES; i++)
        key[i] = (int32_t)first + i / rows;
    for (int64_t j = 0; j < keys; j += step, key += step) {
        const f32v x = multiply_keys(rows, t, b->q, &k, j) * b->scale;
        const f32v seen =
            select_of((b->first <= key) & (b->end > key), x, all_of(-__builtin_inff()));
        put(t->s + j * rows, seen);
        top = top_of(seen, top);
    }
    return top;
}

QN_INLINE f32v score_dtype(int rows, tile *t, const block *b, uint32_t first, int64_t keys,
                           const reader *k) {
    if (k->dtype == QNI_BF16)
        return score_tile(rows, QNI_BF16, t, b, first, keys, k);
    if (k->dtype == QNI_F16)
        return score_tile(rows, QNI_F16, t, b, first, keys, k);
    return score_tile(rows, QNI_F32, t, b, first, keys, k);
}

static f32v score_block(tile *t, const block *b, uint32_t first, int64_t keys, const reader *k) {
    if (b->rows == 4)
        return score_dtype(4, t, b, first, keys, k);
    if (b->rows == 2)
        return score_dtype(2, t, b, first, keys, k);
    return score_dtype(1, t, b, first, keys, k);
}

// ---- weights

/** Returns v with its lanes moved by 4, 2 or 1. */
QN_INLINE f32v turn_lanes(f32v v, int by) {
    if (by == 4)
        return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    if (by == 2)
        return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
}

/** Turns scores into weights in place. Returns the factor for what the rows had before. */
static f32v weigh_block(tile *t, block *b, int64_t keys, f32v top) {
    for (int by = SUMS / 2; by >= b->rows; by /= 2)
        top = top_of(top, turn_lanes(top, by));
    const f32v max = top_of(top, b->max);
    const f32v safe = select_of(max > -__builtin_inff(), max, all_of(0));
    const f32v shrink = weight_of(b->max - safe);
    f32v sum = {};
    for (int64_t i = 0; i < keys * b->rows; i += QN_LANES) {
        const f32v weight = weight_of(at(t->s + i) - safe);
        sum += weight;
        put(t->s + i, weight);
    }
    for (int by = SUMS / 2; by >= b->rows; by /= 2)
        sum += turn_lanes(sum, by);
    b->sum = b->sum * shrink + sum;
    b->max = max;
    return shrink;
}

// ---- values

/** Adds a band of weighted values, of keys from j on, to `pairs` times TWO elements of the block's
 *  rows. */
QN_INLINE void add_elements(int rows, int pairs, const tile *t, float *o, const reader *v,
                            int64_t j, int64_t end, int64_t d) {
    f32v acc[BLOCK_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 2 * pairs; i++)
            acc[r][i] = at(o + r * t->width + d + i * QN_LANES);
    for (; j < end; j++)
        for (int p = 0; p < pairs; p++) {
            f32v x[2];
            load_two(v->dtype == QNI_BF16, v->dtype, v->at[j], d + p * TWO, x);
            ask(v->next[j] + (d + p * TWO) * v->element_bytes);
            for (int r = 0; r < rows; r++) {
                const f32v met = spread(t->s[j * rows + r]);
                for (int i = 0; i < 2; i++)
                    acc[r][2 * p + i] = fma_of(x[i], met, acc[r][2 * p + i]);
            }
        }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < 2 * pairs; i++)
            put(o + r * t->width + d + i * QN_LANES, acc[r][i]);
}

/** Adds a tile: o = o * shrink + weights * values. */
QN_INLINE void add_tile(int rows, qni_dtype dtype, const tile *t, const block *b, f32v shrink,
                        int64_t keys, const reader *from) {
    const int pairs = SUMS / 2 / rows;
    const reader v = {dtype, from->at, from->next, from->element_bytes};
    for (int r = 0; r < rows; r++)
        for (int64_t d = 0; d < t->width; d += QN_LANES)
            put(b->o + r * t->width + d, at(b->o + r * t->width + d) * shrink[r]);
    for (int64_t j = 0; j < keys; j += BAND) {
        const int64_t end = keys - j < BAND ? keys : j + BAND;
        int64_t d = 0;
        for (; d + pairs * TWO <= t->width; d += pairs * TWO)
            add_elements(rows, pairs, t, b->o, &v, j, end, d);
        for (; d < t->width; d += TWO)
            add_elements(rows, 1, t, b->o, &v, j, end, d);
    }
}

QN_INLINE void add_dtype(int rows, const tile *t, const block *b, f32v shrink, int64_t keys,
                         const reader *v) {
    if (v->dtype == QNI_BF16)
        add_tile(rows, QNI_BF16, t, b, shrink, keys, v);
    else if (v->dtype == QNI_F16)
        add_tile(rows, QNI_F16, t, b, shrink, keys, v);
    else
        add_tile(rows, QNI_F32, t, b, shrink, keys, v);
}

static void add_block_values(const tile *t, const block *b, f32v shrink, int64_t keys,
                             const reader *v) {
    if (b->rows == 4)
        add_dtype(4, t, b, shrink, keys, v);
    else if (b->rows == 2)
        add_dtype(2, t, b, shrink, keys, v);
    else
        add_dtype(1, t, b, shrink, keys, v);
}

// ---- blocks

/** Returns whether rows of k or v are held as even and odd elements. */
static bool is_split(const tile *t, bool is_direct) {
    return is_direct && t->p->dtype_kv == QNI_BF16;
}

/** Writes q of a row of the tile into each `rows * TWO` elements of a block's q. */
static void place_q(const tile *t, int64_t row, int rows, float *out) {
    const bool splits = is_split(t, is_k_direct(t));
    alignas(64) float x[MAX_ROW];
    load_q(t, row, t->cells, x);
    for (int64_t c = 0; c < t->cells; c += TWO, out += rows * TWO) {
        f32v two[2] = {at(x + c), at(x + c + QN_LANES)};
        if (splits)
            split_two(two);
        put(out, two[0]);
        put(out + QN_LANES, two[1]);
    }
}

static block begin_block(const tile *t, int64_t row, uint32_t end, float *q, float *o) {
    const int64_t left = t->count - row;
    block b = {.max = all_of(-__builtin_inff()), .rows = left > 2 ? 4 : (int)left, .q = q, .o = o};
    for (int i = 0; i < QN_LANES; i++) {
        const int64_t r = row + i % b.rows;
        b.scale[i] = t->scale[r];
        b.first[i] = t->first[r];
        b.end[i] = t->end[r] < (int32_t)end ? t->end[r] : (int32_t)end;
    }
    if (b.rows > left)
        memset(q, 0, (size_t)(b.rows * t->cells) * sizeof *q);
    for (int r = 0; r < b.rows && r < left; r++)
        place_q(t, row + r, b.rows, q + r * TWO);
    return b;
}

static void finish_block(const tile *t, const block *b, int64_t first_row, uint32_t row,
                         uint32_t chunk) {
    const bool joins = is_split(t, is_v_direct(t));
    for (int64_t r = 0; r < b->rows && first_row + r < t->count; r++) {
        float *o = b->o + r * t->width;
        for (int64_t d = 0; joins && d < t->width; d += TWO) {
            f32v x[2] = {at(o + d), at(o + d + QN_LANES)};
            join_two(x);
            put(o + d, x[0]);
            put(o + d + QN_LANES, x[1]);
        }
        qni_attention_finish(t->p, &t->rows[first_row + r], row + (uint32_t)(first_row + r), chunk,
                             b->max[r], b->sum[r], o);
    }
}

// ---- tiles

/** Where the rows of a tile lie in memory, as far as the request has any. */
typedef struct tile_rows {
    places k, v;
} tile_rows;

static void find_tile(const tile *t, uint32_t first, tile_rows *out) {
    const int64_t left = (int64_t)t->request->kv_len - first, keys = left < KEYS ? left : KEYS;
    find_rows(t, &t->p->args.k, first, keys, &out->k);
    find_rows(t, &t->p->args.v, first, keys, &out->v);
}

/** Adds a tile's keys to all blocks. */
static void decode_tile(tile *t, block *blocks, uint32_t first, int64_t keys, const tile_rows *now,
                        const tile_rows *next) {
    reader k = {t->p->dtype_kv, now->k.at, next->k.at, t->element_bytes};
    reader v = {t->p->dtype_kv, now->v.at, next->v.at, t->element_bytes};
    places packed_k, packed_v;
    if (!is_k_direct(t)) {
        pack_k(t, first, keys);
        find_packed(t->k, t->cells, keys, &packed_k);
        k.dtype = QNI_F32, k.at = packed_k.at;
    }
    if (!is_v_direct(t)) {
        pack_v(t, first, keys);
        find_packed(t->v, t->width, keys, &packed_v);
        v.dtype = QNI_F32, v.at = packed_v.at;
    }
    for (block *b = blocks; b < blocks + (t->count + BLOCK_ROWS - 1) / BLOCK_ROWS; b++) {
        const f32v top = score_block(t, b, first, keys, &k);
        const f32v shrink = weigh_block(t, b, qni_round_up(keys, SUMS / b->rows), top);
        add_block_values(t, b, shrink, keys, &v);
    }
}

static void decode_chunk(tile *t, uint32_t row, range seen, uint32_t begin, uint32_t end) {
    alignas(64) float q[DECODE_ROWS * MAX_ROW];
    block blocks[DECODE_ROWS / BLOCK_ROWS];
    tile_rows rows[2];
    uint32_t key = begin;
    const uint32_t stop = end < seen.end ? end : seen.end;
    if (seen.first > begin)
        key += (seen.first - begin) / KEYS * KEYS;
    memset(t->o, 0, (size_t)(t->width * DECODE_ROWS) * sizeof *t->o);
    for (int64_t r = 0; r < t->count; r += BLOCK_ROWS)
        blocks[r / BLOCK_ROWS] = begin_block(t, r, end, q + r * t->cells, t->o + r * t->width);
    if (key < stop)
        find_tile(t, key, &rows[0]);
    for (int i = 0; key < stop; key += KEYS, i = !i) {
        const bool is_last = key + KEYS >= (uint32_t)t->request->kv_len;
        if (!is_last)
            find_tile(t, key + KEYS, &rows[!i]);
        decode_tile(t, blocks, key, end - key < KEYS ? end - key : KEYS, &rows[i],
                    &rows[is_last ? i : !i]);
    }
    for (int64_t r = 0; r < t->count; r += BLOCK_ROWS)
        finish_block(t, &blocks[r / BLOCK_ROWS], r, row, begin);
}

#endif
