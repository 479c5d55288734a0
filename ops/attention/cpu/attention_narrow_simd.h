// SPDX-License-Identifier: Apache-2.0
// Tiles where there are 16 vector registers: AVX2 and less. Included by attention_simd.h.
//
// Twelve sums, two vectors and the number that multiplies all their lanes are 15 registers:
//
//   scores   STEP keys for two vectors of rows: each element of k multiplies a vector of q:
//            s[key][row] += q[c][row] * k[key][c]
//   values   STEP rows for two vectors of elements of v: each weight multiplies a vector of v:
//            o[row][d] += s[key][row] * v[key][d]
//
// v stands in blocks of SIDE elements of all keys, because lines of whole rows would fall into few
// sets of the cache. Each SIDE rows take the keys up to the last one that any of them sees; keys
// after that would have weight zero.
#ifndef QNI_ATTENTION_NARROW_SIMD_H
#define QNI_ATTENTION_NARROW_SIMD_H

/** Returns x in all lanes. */
QN_INLINE f32v spread(float x) {
    f32v v;
    for (int i = 0; i < QN_LANES; i++)
        v[i] = x;
    return v;
}

QN_INLINE float *value_block(tile *t, int64_t d) {
    return t->v + d * KEYS;
}

// ---- scores

QN_INLINE void multiply_step(const tile *t, int64_t row, int64_t j, f32v acc[STEP][2]) {
    const float *k = t->k + j * t->cells, *q = t->q + row;
    for (int64_t c = 0; c < t->cells; c++, q += ROWS) {
        const f32v low = at(q), high = at(q + QN_LANES);
        for (int i = 0; i < STEP; i++) {
            const f32v met = spread(k[i * t->cells + c]);
            acc[i][0] = fma_of(low, met, acc[i][0]);
            acc[i][1] = fma_of(high, met, acc[i][1]);
        }
    }
}

/** Computes the scores of STEP keys from j on for SIDE rows; max gets the largest. */
QN_INLINE void score_step(tile *t, int64_t row, uint32_t first, int64_t j, bool is_edge,
                          f32v max[2]) {
    f32v acc[STEP][2] = {};
    multiply_step(t, row, j, acc);
    for (int v = 0; v < 2; v++) {
        const int64_t r = row + v * QN_LANES;
        const f32v scale = at(t->scale + r);
        for (int i = 0; i < STEP; i++) {
            const int32_t key = (int32_t)(first + (uint32_t)j + (uint32_t)i);
            f32v x = acc[i][v] * scale;
            if (t->has_extras)
                x = add_extras(t, x, (uint32_t)key, r);
            if (is_edge)
                x = hide_key(t, x, key, r);
            put(t->s + (j + i) * ROWS + r, x);
            max[v] = top_of(x, max[v]); // the second where one is a NaN
        }
    }
}

/** Returns how many of a tile's keys SIDE rows from `row` on take. Later rows see no fewer
 *  keys. */
static int64_t count_keys(const tile *t, int64_t row, uint32_t first, int64_t keys) {
    const int64_t last = row + SIDE < t->count ? row + SIDE - 1 : t->count - 1;
    const int64_t seen = (int64_t)t->end[last] - first;
    return seen < 0 ? 0 : seen < keys ? seen : keys;
}

static void score_rows(tile *t, int64_t row, uint32_t first, int64_t keys) {
    f32v max[2] = {all_of(-__builtin_inff()), all_of(-__builtin_inff())};
    const int64_t last = row + SIDE < t->count ? row + SIDE - 1 : t->count - 1;
    const int64_t from = (int64_t)t->first[last] - first, to = (int64_t)t->end[row] - first;
    for (int64_t j = 0; j < keys; j += STEP)
        if (j < from || j + STEP > to || j + STEP > keys || row + SIDE > t->count)
            score_step(t, row, first, j, true, max);
        else
            score_step(t, row, first, j, false, max);
    for (int v = 0; v < 2; v++) {
        const int64_t r = row + v * QN_LANES;
        put(t->shrink + r, weigh(t, r, first, qni_round_up(keys, 2), max[v]));
    }
}

// ---- values

/** Adds values: o = o * shrink + weights * values, for STEP rows and the SIDE elements of a
 *  block. */
QN_INLINE void add_block(tile *t, int64_t row, int64_t d, int64_t keys) {
    f32v acc[STEP][2];
    for (int i = 0; i < STEP; i++)
        for (int v = 0; v < 2; v++)
            acc[i][v] =
                at(t->o + (row + i) * t->width + d + v * QN_LANES) * spread(t->shrink[row + i]);
    const float *value = value_block(t, d), *weights = t->s + row;
    for (int64_t j = 0; j < keys; j++, value += SIDE, weights += ROWS) {
        const f32v low = at(value), high = at(value + QN_LANES);
        for (int i = 0; i < STEP; i++) {
            const f32v met = spread(weights[i]);
            acc[i][0] = fma_of(met, low, acc[i][0]);
            acc[i][1] = fma_of(met, high, acc[i][1]);
        }
    }
    for (int i = 0; i < STEP; i++)
        for (int v = 0; v < 2; v++)
            put(t->o + (row + i) * t->width + d + v * QN_LANES, acc[i][v]);
}

/** Returns how many rows scores are computed for: whole steps, and whole sides. */
static int64_t rows_of(const tile *t) {
    return qni_round_up(qni_round_up(t->count, STEP), SIDE);
}

/** Sets to zero the weights of keys that SIDE rows do not take but other rows of their step of
 *  values do. */
static void clear_weights(tile *t, int64_t row, int64_t from, int64_t to) {
    for (int64_t j = from; j < to; j++)
        for (int64_t i = 0; i < SIDE; i++)
            t->s[j * ROWS + row + i] = 0;
}

/** Adds one tile of keys. */
static void add_keys_of(tile *t, uint32_t first, int64_t keys, bool) {
    int64_t taken[ROWS / SIDE];
    const int64_t rows = rows_of(t);
    for (int64_t row = 0; row < rows; row += SIDE) {
        const bool is_used = row < t->count, has_next = row + SIDE < t->count;
        const int64_t mine = is_used ? count_keys(t, row, first, keys) : 0;
        const int64_t next = has_next  ? count_keys(t, row + SIDE, first, keys)
                             : is_used ? mine
                                       : keys;
        taken[row / SIDE] = next;
        if (mine > 0)
            score_rows(t, row, first, mine);
        else
            for (int64_t i = 0; i < SIDE; i++)
                t->shrink[row + i] = 1;
        clear_weights(t, row, qni_round_up(mine, 2), next);
    }
    for (int64_t d = 0; d < t->width; d += SIDE)
        for (int64_t row = 0; row < t->count; row += STEP) {
            const bool crosses = row / SIDE != (row + STEP - 1) / SIDE;
            const int64_t side = row / SIDE * SIDE;
            add_block(t, row, d, crosses ? taken[row / SIDE] : count_keys(t, side, first, keys));
        }
}

static void finish_rows(tile *t, uint32_t row, uint32_t chunk) {
    for (int64_t i = 0; i < t->count; i++)
        qni_attention_finish(t->p, &t->rows[i], row + (uint32_t)i, chunk, t->max[i], t->sum[i],
                             t->o + i * t->width);
}

#endif
